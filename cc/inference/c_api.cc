// Implements the C interface: checks what a caller may get wrong, and lets no
// exception out.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "cc/core/checked_int.h"
#include "cc/core/sequence_args.h"
#include "cc/inference/blockrnn.h"
#include "cc/inference/model_reader.h"
#include "cc/inference/session.h"
#include "cc/inference/session_status.h"
#include "cc/loader/cpu_engine_loader.h"

namespace blockrnn {
namespace {

// Of one call, with the width of a row of the largest array: its bytes are
// counted in 64 bits.
constexpr int64_t kMostElements = int64_t{1} << 56;

// What the last call that failed had to report.
struct LastError {
  std::string text;
  const char* shown = "";  // text, or a literal where there is no memory
};
thread_local LastError last_error;

blockrnn_status Report(SessionStatus status) noexcept {
  if (!status.ok()) {
    last_error.text = std::move(status.text);
    last_error.shown = last_error.text.c_str();
  }
  return status.code;
}

blockrnn_status ReportOutOfMemory() noexcept {
  last_error.shown = kOutOfMemoryText;
  return BLOCKRNN_OUT_OF_MEMORY;
}

blockrnn_status ReportInternal(const char* what) noexcept {
  try {
    return Report(
        {BLOCKRNN_INTERNAL, std::string("an error of the library: ") + what});
  } catch (const std::bad_alloc&) {
    return ReportOutOfMemory();
  }
}

template <class Body>
blockrnn_status Guarded(const Body& body) noexcept {
  try {
    return Report(body());
  } catch (const std::bad_alloc&) {
    return ReportOutOfMemory();
  } catch (const std::exception& error) {
    return ReportInternal(error.what());
  } catch (...) {
    return ReportInternal("an exception of an unknown type");
  }
}

std::string Number(int64_t value) { return std::to_string(value); }

bool HasNorms(blockrnn_cell cell) {
  return cell == BLOCKRNN_LAYER_NORM_LSTM || cell == BLOCKRNN_LAYER_NORM_GRU;
}

SessionStatus CheckNorms(const blockrnn_model& model,
                         const blockrnn_layer& layer,
                         const blockrnn_direction& direction,
                         const std::string& where) {
  if (layer.units == 0) return {};
  if (direction.norm_x == nullptr) {
    return InvalidArgument(where + "norm_x must not be NULL");
  }
  if (direction.norm_h == nullptr) {
    return InvalidArgument(where + "norm_h must not be NULL");
  }
  if (model.cell == BLOCKRNN_LAYER_NORM_LSTM && direction.norm_c == nullptr) {
    return InvalidArgument(where + "norm_c must not be NULL");
  }
  return {};
}

SessionStatus CheckDirection(const blockrnn_model& model,
                             const blockrnn_layer& layer,
                             const blockrnn_direction& direction,
                             const std::string& where) {
  if (direction.w_x == nullptr && layer.inputs * layer.units > 0) {
    return InvalidArgument(where + "w_x must not be NULL");
  }
  if (direction.w_h == nullptr && layer.outputs * layer.units > 0) {
    return InvalidArgument(where + "w_h must not be NULL");
  }
  const bool lstm = model.cell == BLOCKRNN_LSTM;
  if (!lstm && direction.peepholes != nullptr) {
    return InvalidArgument(where + "peepholes are for lstm alone");
  }
  if (!lstm && direction.w_p != nullptr) {
    return InvalidArgument(where + "w_p is for lstm alone");
  }
  if (direction.w_p == nullptr && layer.outputs != layer.units) {
    return InvalidArgument(
        where + "outputs must be units without w_p, which are " +
        Number(layer.units) + ", got " + Number(layer.outputs));
  }
  if (direction.w_p != nullptr && layer.outputs == 0) {
    return InvalidArgument(where +
                           "outputs must be at least 1 with w_p, got 0");
  }
  if (HasNorms(model.cell)) return CheckNorms(model, layer, direction, where);
  return {};
}

SessionStatus CheckActivations(const blockrnn_model& model) {
  if (model.activation < BLOCKRNN_TANH || model.activation > BLOCKRNN_RELU) {
    return InvalidArgument("activation must be a blockrnn_activation, got " +
                           Number(model.activation));
  }
  if (!(model.hard_sigmoid >= 0) || std::isinf(model.hard_sigmoid)) {
    return InvalidArgument("hard_sigmoid must be 0 or above, and finite");
  }
  const bool has_others =
      model.activation != BLOCKRNN_TANH || model.hard_sigmoid > 0;
  if (has_others && model.cell >= BLOCKRNN_RNN_TANH) {
    return InvalidArgument(
        "activation and hard_sigmoid are for lstm and gru alone");
  }
  return {};
}

// `model` is a ModelReader's.
SessionStatus CheckModel(const blockrnn_model& model,
                         blockrnn_precision precision, int32_t threads) {
  if (model.cell < BLOCKRNN_LSTM || model.cell > BLOCKRNN_LAYER_NORM_GRU) {
    return InvalidArgument("cell must be a blockrnn_cell, got " +
                           Number(model.cell));
  }
  if (precision < BLOCKRNN_FLOAT32 || precision > BLOCKRNN_INT8) {
    return InvalidArgument("precision must be a blockrnn_precision, got " +
                           Number(precision));
  }
  if (threads < 1 || threads > 1024) {
    return InvalidArgument("threads must be in 1..1024, got " +
                           Number(threads));
  }
  // Not `< 0`, so that a NaN is refused too.
  if (!(model.cell_clip >= 0) || std::isinf(model.cell_clip)) {
    return InvalidArgument("cell_clip must be 0 or above, and finite");
  }
  if (model.cell_clip > 0 && model.cell != BLOCKRNN_LSTM) {
    return InvalidArgument("cell_clip is for lstm alone");
  }
  for (const float rate : {model.zoneout_h, model.zoneout_c}) {
    if (!(rate >= 0 && rate <= 1)) {
      return InvalidArgument("zoneout_h and zoneout_c must be in 0..1, got " +
                             std::to_string(rate));
    }
  }
  if (model.zoneout_h > 0 && model.cell >= BLOCKRNN_RNN_TANH) {
    return InvalidArgument("zoneout_h is for lstm and gru alone");
  }
  if (model.zoneout_c > 0 && model.cell != BLOCKRNN_LSTM) {
    return InvalidArgument("zoneout_c is for lstm alone");
  }
  const SessionStatus activations = CheckActivations(model);
  if (!activations.ok()) return activations;
  if (HasNorms(model.cell) &&
      !(model.epsilon > 0 && std::isfinite(model.epsilon))) {
    return InvalidArgument("epsilon must be above 0, and finite");
  }
  int64_t width = 0;
  for (int64_t n = 0; n < model.num_layers; ++n) {
    const blockrnn_layer& layer = model.layers[n];
    const std::string where = "layer " + Number(n) + ": ";
    if (layer.inputs < 0 || layer.units < 0 || layer.outputs < 0) {
      return InvalidArgument(where +
                             "inputs, units and outputs must not be negative");
    }
    if (n > 0 && layer.inputs != width) {
      return InvalidArgument(where + "inputs must be " + Number(width) +
                             ", the outputs of the layer below, got " +
                             Number(layer.inputs));
    }
    const CheckedInt elements =
        (CheckedInt(layer.inputs) + layer.outputs + 64) *
        (CheckedInt(layer.units) + 64) * 64;
    if (!elements.value() || *elements.value() > kMostElements) {
      return InvalidArgument(where + "the weights have too many elements");
    }
    const int64_t depth = std::max({layer.inputs, layer.units, layer.outputs});
    if (precision == BLOCKRNN_INT8 && depth > kMostInt8Depth) {
      return InvalidArgument(
          where + "inputs, units and outputs must be at most " +
          Number(kMostInt8Depth) + " in int8, whose sums are int32, got " +
          Number(depth));
    }
    if (layer.forward == nullptr) {
      return InvalidArgument(where + "forward must not be NULL");
    }
    for (const blockrnn_direction* direction :
         {layer.forward, layer.backward}) {
      if (direction == nullptr) continue;
      const SessionStatus status = CheckDirection(
          model, layer, *direction,
          where + (direction == layer.forward ? "forward, " : "backward, "));
      if (!status.ok()) return status;
    }
    width = layer.outputs * (layer.backward == nullptr ? 1 : 2);
  }
  return {};
}

SessionStatus CheckCall(const Session& session, const SessionCall& call) {
  if (call.batch < 0) {
    return InvalidArgument("batch must not be negative, got " +
                           Number(call.batch));
  }
  if (call.steps < 0) {
    return InvalidArgument("steps must not be negative, got " +
                           Number(call.steps));
  }
  const CheckedInt elements = CheckedInt(call.batch) *
                              (CheckedInt(call.steps) + 1) *
                              (CheckedInt(session.inputs()) +
                               session.outputs() + session.state_size() + 64) *
                              64;
  if (!elements.value() || *elements.value() > kMostElements) {
    return InvalidArgument("the arrays have too many elements");
  }
  if (call.x == nullptr && call.batch * call.steps * session.inputs() > 0) {
    return InvalidArgument("x must not be NULL");
  }
  if (call.y == nullptr && call.batch * call.steps * session.outputs() > 0) {
    return InvalidArgument("y must not be NULL");
  }
  for (int64_t b = 0; call.lengths != nullptr && b < call.batch; ++b) {
    if (call.lengths[b] < 0 || call.lengths[b] > call.steps) {
      return InvalidArgument("lengths[" + Number(b) + "] must be in 0.." +
                             Number(call.steps) + ", got " +
                             Number(call.lengths[b]));
    }
  }
  return {};
}

SessionStatus RunChecked(blockrnn_session* session, const SessionCall& call,
                         bool is_step) {
  auto* const own = reinterpret_cast<Session*>(session);
  if (own == nullptr) return InvalidArgument("session must not be NULL");
  if (is_step && !own->has_step()) {
    return InvalidArgument(
        "a layer of two directions has no step: it needs the whole sequence");
  }
  SessionStatus status = CheckCall(*own, call);
  if (!status.ok() || call.batch == 0) return status;
  return own->Run(call);
}

blockrnn_status Call(blockrnn_session* session, const SessionCall& call,
                     bool is_step) {
  return Guarded([&] { return RunChecked(session, call, is_step); });
}

}  // namespace
}  // namespace blockrnn

#define BLOCKRNN_EXPORT __attribute__((visibility("default")))

extern "C" {

BLOCKRNN_EXPORT blockrnn_status blockrnn_session_create(
    const blockrnn_model* model, blockrnn_precision precision, int32_t threads,
    blockrnn_session** session) {
  using blockrnn::Session;
  using blockrnn::SessionStatus;
  return blockrnn::Guarded([&]() -> SessionStatus {
    if (session == nullptr) {
      return blockrnn::InvalidArgument("session must not be NULL");
    }
    *session = nullptr;
    blockrnn::ModelReader reader;
    SessionStatus status = reader.Read(model);
    if (!status.ok()) return status;
    status = blockrnn::CheckModel(reader.model(), precision, threads);
    if (!status.ok()) return status;
    const auto& loaded = blockrnn::CpuEngine();
    if (loaded.engine == nullptr) {
      return {BLOCKRNN_NO_ENGINE, loaded.problem};
    }
    auto made = std::make_unique<Session>(loaded.engine, threads);
    status = made->Init(reader.model(), precision);
    if (status.ok()) {
      *session = reinterpret_cast<blockrnn_session*>(made.release());
    }
    return status;
  });
}

BLOCKRNN_EXPORT void blockrnn_session_destroy(blockrnn_session* session) {
  delete reinterpret_cast<blockrnn::Session*>(session);
}

BLOCKRNN_EXPORT int64_t
blockrnn_session_state_size(const blockrnn_session* session) {
  if (session == nullptr) return -1;
  return reinterpret_cast<const blockrnn::Session*>(session)->state_size();
}

BLOCKRNN_EXPORT int64_t
blockrnn_session_weight_bytes(const blockrnn_session* session) {
  if (session == nullptr) return -1;
  return reinterpret_cast<const blockrnn::Session*>(session)->weight_bytes();
}

BLOCKRNN_EXPORT blockrnn_status blockrnn_session_run(
    blockrnn_session* session, const float* x, int64_t batch, int64_t steps,
    const int64_t* lengths, const float* state, float* new_state, float* y) {
  return blockrnn::Call(
      session, {x, batch, steps, lengths, nullptr, state, new_state, y, false},
      false);
}

BLOCKRNN_EXPORT blockrnn_status blockrnn_session_run_sequences(
    blockrnn_session* session, const blockrnn_sequences* sequences) {
  return blockrnn::Guarded([&]() -> blockrnn::SessionStatus {
    blockrnn_sequences read;
    blockrnn::SessionStatus status = blockrnn::ReadSequences(sequences, &read);
    if (!status.ok()) return status;
    return blockrnn::RunChecked(
        session,
        {read.x, read.batch, read.steps, read.lengths, read.resets, read.state,
         read.new_state, read.y, false},
        false);
  });
}

BLOCKRNN_EXPORT blockrnn_status blockrnn_session_step(
    blockrnn_session* session, const float* x, int64_t batch,
    const float* state, float* new_state, float* y, int32_t rows_apart) {
  return blockrnn::Call(
      session,
      {x, batch, 1, nullptr, nullptr, state, new_state, y, rows_apart != 0},
      true);
}

BLOCKRNN_EXPORT const char* blockrnn_last_error(void) {
  return blockrnn::last_error.shown;
}

BLOCKRNN_EXPORT int32_t blockrnn_api_version(void) {
  return BLOCKRNN_API_VERSION;
}

}  // extern "C"
