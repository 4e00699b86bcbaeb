// Implements the forward pass of an LSTM over a whole sequence on the GPU. The
// equations are in cc/core/lstm_cell.h; this file has the order of the GEMMs
// and what is handed from step to step.

#ifndef BLOCKRNN_KERNELS_CUDA_CELLS_LSTM_SEQUENCE_FORWARD_CUH_
#define BLOCKRNN_KERNELS_CUDA_CELLS_LSTM_SEQUENCE_FORWARD_CUH_

#include <cstdint>

#include "cc/core/activations.h"
#include "cc/core/gate_layout.h"
#include "cc/core/lstm_cell.h"
#include "cc/core/sequence_args.h"
#include "cc/kernels/cuda/cells/lstm_common.cuh"
#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/launch.cuh"
#include "cc/kernels/cuda/sequence/calls.cuh"
#include "cc/kernels/cuda/sequence/sequence_forward.cuh"
#include "cc/kernels/cuda/sequence/sequence_rows.cuh"
#include "cc/kernels/cuda/sequence/step_loop.cuh"
#include "cc/kernels/cuda/step/step_matrix.cuh"
#include "cc/kernels/cuda/storage.cuh"

namespace blockrnn::cuda {

// The arrays of both stages of a step.
template <class T>
struct LstmSequenceArrays {
  using C = ComputeType<T>;
  LstmSequenceForwardArgs<T> args;
  C forget_bias;
  C cell_clip;             // infinity: not clipped
  StepZoneout<C> zoneout;  // of cs
  C* cs;                   // [B, H]
  T* m;                    // [B, H], the input of the projection, or nullptr
};

// x · w_x + b + h · w_h  →  the gates, cs, m = o ∘ tanh(cs), which is h
// without a projection
template <class T, class Activations>
struct LstmSequenceCell {
  using C = ComputeType<T>;
  ForwardStep<T> common;
  LstmSequenceArrays<T> arrays;

  struct Operands {
    StepRow row;
    C bars[kLstmGates];  // but for the sums
    C cs_prev;
    LstmPeepholes<C> peepholes;
  };

  __device__ __forceinline__ Operands Read(int64_t step, int64_t b,
                                           int64_t unit) const {
    const LstmSequenceForwardArgs<T>& args = arrays.args;
    Operands in;
    in.row = FindStepRow(common.rows, step, b);
    common.template ReadInput<kLstmGates>(in.row, unit, in.bars);
    in.cs_prev = arrays.cs[b * args.shape.units + unit];
    in.peepholes = LoadPeepholes(args, unit, args.options.use_peephole);
    return in;
  }

  using Results = LstmStep<C>;

  __device__ __forceinline__ Results Publish(int64_t step, int64_t b,
                                             int64_t unit,
                                             const C (&sums)[kLstmGates],
                                             const Operands& in) const {
    const int64_t state = b * arrays.args.shape.units + unit;
    Results out = {};
    if (in.row.masked) {
      // The gates are zeros.
      out.cs = in.cs_prev;
      if (arrays.m != nullptr) return out;
      out.h = common.PreviousH(step, b, unit);
    } else {
      out = Compute(sums, in);
    }
    if (arrays.m != nullptr) {
      Store(arrays.m, state, out.h);
    } else {
      out.h = common.AfterStep(in.row, step, b, unit, out.h);
      common.PublishH(step, b, unit, out.h);
    }
    return out;
  }

  __device__ __forceinline__ void Save(int64_t, int64_t b, int64_t unit,
                                       const Operands& in,
                                       const Results& out) const {
    const LstmSequenceForwardArgs<T>& args = arrays.args;
    const int64_t units = args.shape.units;
    const int64_t at = in.row.saved * units + unit;
    const C cs = in.row.masked
                     ? in.cs_prev
                     : AfterZoneout(
                           arrays.zoneout, in.row.memory * units + unit,
                           [&] { return in.cs_prev; }, out.cs);
    StoreIf(args.i, at, out.i);
    StoreIf(args.cs, at, cs);
    StoreIf(args.f, at, out.f);
    StoreIf(args.o, at, out.o);
    StoreIf(args.ci, at, out.ci);
    StoreIf(args.co, at, out.co);
    arrays.cs[b * units + unit] = cs;
    if (arrays.m == nullptr) common.SaveH(in.row, unit, out.h);
  }

 private:
  __device__ __forceinline__ LstmStep<C> Compute(const C (&sums)[kLstmGates],
                                                 const Operands& in) const {
    const LstmSequenceForwardArgs<T>& args = arrays.args;
    C bars[kLstmGates];
#pragma unroll
    for (int gate = 0; gate < kLstmGates; ++gate) {
      bars[gate] = in.bars[gate] + sums[gate];
    }
    return blockrnn::LstmForward<Activations, true, true>(
        SelectGates(args.layout, bars), in.cs_prev, in.peepholes,
        arrays.forget_bias, arrays.cell_clip, args.options.use_peephole);
  }
};

// m · w_pᵀ  →  h
template <class T>
struct LstmSequenceProjection {
  using C = ComputeType<T>;
  ForwardStep<T> common;

  using Operands = StepRow;
  __device__ __forceinline__ Operands Read(int64_t step, int64_t b,
                                           int64_t) const {
    return FindStepRow(common.rows, step, b);
  }

  __device__ void operator()(int64_t step, int64_t b, int64_t unit,
                             const C (&sums)[1], const Operands& row) const {
    common.StoreH(row, step, b, unit,
                  row.masked ? common.PreviousH(step, b, unit) : sums[0]);
  }
};

template <class T, class Activations = StandardActivations>
class LstmSequenceForwardCall
    : public SequenceForward<T, LstmSequenceForwardArgs<T>, kLstmGates> {
  using Base = SequenceForward<T, LstmSequenceForwardArgs<T>, kLstmGates>;
  using Base::args_;
  using Base::host_;
  using Base::shape_;

 public:
  LstmSequenceForwardCall(const LstmSequenceForwardArgs<T>& args,
                          const HostInterface& host)
      : Base(args, host,
             {{args.w_x, args.b, args.b_h, kLstmGates},
              args.w_h,
              args.proj > 0 ? args.proj : args.shape.units}) {}

  Error Plan() {
    w_p_.SetShape({args_.proj, shape_.units, shape_.batch});
    return projects() ? Base::Plan(w_p_) : Base::Plan();
  }

  Error Prepare() {
    const int64_t units = shape_.units;
    arrays_.args = args_;
    arrays_.forget_bias =
        static_cast<ComputeType<T>>(args_.options.forget_bias);
    arrays_.cell_clip = CellClip<ComputeType<T>>(args_.options);
    arrays_.zoneout = StepZoneout<ComputeType<T>>(args_.zoneout_c);
    Error error = nullptr;
    if ((error = Base::Prepare()) ||
        (error = Allocate(host_, shape_.batch * units, &arrays_.cs)) ||
        (error = this->passes().LoadStates(RowEnd::kFirst, args_.cs_prev, units,
                                           arrays_.cs)) ||
        (error = PrepareProjection())) {
      return error;
    }
    return this->ZeroSaved(
        {args_.i, args_.cs, args_.f, args_.o, args_.ci, args_.co});
  }

  template <class... Others>
  Error RunBlock(const StepBlock& block, const Others&... others) const {
    const auto cells = MakeByDirection(CellWork(), others.CellWork()...);
    if (!projects()) return this->RunSteps(block, cells);
    return this->RunSteps(
        block, cells,
        MakeByDirection(ProjectionWork(), others.ProjectionWork()...));
  }

  Error Finish() const {
    if (Error error = Base::Finish()) return error;
    return this->passes().StoreStates(RowEnd::kLast, arrays_.cs, arrays_.cs,
                                      shape_.units, args_.cs_last);
  }

 private:
  bool projects() const { return args_.proj > 0; }

  Error PrepareProjection() {
    if (!projects()) return nullptr;
    const int64_t units = shape_.units;
    if (Error error = AllocateStored(host_, shape_.batch * units, &arrays_.m)) {
      return error;
    }
    w_p_.gemm().state = {arrays_.m, arrays_.m};
    return w_p_.Prepare(host_, {args_.w_p, units, 0, 1});
  }

  auto CellWork() const {
    return this->StateWork(
        LstmSequenceCell<T, Activations>{this->step(), arrays_});
  }
  auto ProjectionWork() const {
    return Work(w_p_, LstmSequenceProjection<T>{this->step()}, true);
  }

  StepMatrix<T, kSlices, true> w_p_;
  LstmSequenceArrays<T> arrays_ = {};
};

template <class T>
struct FunctionOf<LstmSequenceForwardArgs<T>>
    : SequenceFunction<LstmSequenceForwardCall<T>> {};

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_CELLS_LSTM_SEQUENCE_FORWARD_CUH_
