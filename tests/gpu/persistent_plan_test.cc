// Tests the choice of a persistent kernel without a GPU: every tile is computed
// exactly once, all blocks can be resident at once, shared memory is large
// enough and its parts do not overlap; and which of the usual shapes are
// chosen.

#include "cc/kernels/cuda/step/persistent_plan.h"

#include <cstdint>
#include <cstdio>
#include <tuple>
#include <vector>

namespace {

using blockrnn::cuda::kFewPersistentRows;
using blockrnn::cuda::kManyPersistentRows;
using blockrnn::cuda::kMaxPersistentTiles;
using blockrnn::cuda::kMaxTilesOfAPanel;
using blockrnn::cuda::kMinPersistentSteps;
using blockrnn::cuda::kTensorPersistentRows;
using blockrnn::cuda::PersistentDevice;
using blockrnn::cuda::PersistentGemm;
using blockrnn::cuda::PersistentPlan;
using blockrnn::cuda::PersistentStage;
using blockrnn::cuda::PlanPersistent;

constexpr PersistentDevice kH200 = {true, 132, 227 * 1024};
constexpr PersistentDevice kA100 = {true, 108, 163 * 1024};
constexpr int64_t kSteps = 50;

int failures = 0;

void Expect(bool holds, const char* what, int line) {
  if (holds) return;
  ++failures;
  std::printf("line %d: not so: %s\n", line, what);
}
#define EXPECT(condition) Expect(condition, #condition, __LINE__)

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// 16-bit types are multiplied on tensor cores.
PersistentGemm MakeGemm(int64_t rows, int64_t units, int panel_units,
                        int weight_bytes) {
  const bool tensor_cores = weight_bytes == 2;
  PersistentGemm gemm;
  gemm.rows = rows;
  gemm.panels = CeilDiv(units, panel_units);
  gemm.chunks = CeilDiv(units, tensor_cores ? 16 : 4);
  gemm.weight_bytes = weight_bytes;
  gemm.state_bytes = weight_bytes;
  gemm.compute_bytes = weight_bytes == 8 ? 8 : 4;
  gemm.tensor_cores = tensor_cores;
  return gemm;
}

// The GEMM of a step with the state, forward: a column for each gate.
PersistentGemm Forward(int64_t rows, int64_t units, int gates,
                       int weight_bytes) {
  return MakeGemm(rows, units, 32 / gates, weight_bytes);
}

// Backward: as many slices of the gates' gradients; for tensor cores in
// multiples of eight columns.
PersistentGemm Backward(int64_t rows, int64_t units, int gates,
                        int weight_bytes) {
  const int panel_units = 32 / gates;
  PersistentGemm gemm = MakeGemm(
      rows, units, weight_bytes == 2 ? panel_units / 8 * 8 : panel_units,
      weight_bytes);
  gemm.slices = gates;
  return gemm;
}

// The second GEMM of a GRU's step, after that of two gates: the candidate's
// sums have four slices of the depth, forward and backward.
PersistentGemm Candidate(int64_t rows, int64_t units, int weight_bytes) {
  PersistentGemm gemm = Backward(rows, units, 4, weight_bytes);
  gemm.chunks = CeilDiv(gemm.chunks, 4);
  return gemm;
}

PersistentPlan Plan(const PersistentDevice& device, int64_t steps,
                    const std::vector<PersistentGemm>& gemms) {
  return PlanPersistent(device, steps, gemms.data(),
                        static_cast<int>(gemms.size()));
}

// The same GEMM of float as TF32, on tensor cores.
PersistentGemm AsTf32(PersistentGemm gemm) {
  gemm.tensor_cores = true;
  gemm.chunks = CeilDiv(gemm.chunks, 4);
  return gemm;
}

bool Chosen(const PersistentDevice& device, const PersistentGemm& gemm) {
  return Plan(device, kSteps, {gemm}).rows > 0;
}

// How often each (panel, tile) is computed.
std::vector<int> Shares(const PersistentPlan& plan,
                        const PersistentStage& stage,
                        const PersistentGemm& gemm) {
  const int64_t tiles = CeilDiv(gemm.rows, plan.rows);
  std::vector<int> shares(gemm.panels * tiles);
  for (int64_t block = 0; block < plan.blocks; ++block) {
    const int64_t first_tile = block / stage.panel_groups;
    if (first_tile >= stage.row_groups) continue;
    for (int64_t p = block % stage.panel_groups; p < gemm.panels;
         p += stage.panel_groups) {
      for (int64_t t = first_tile; t < tiles; t += stage.row_groups) {
        ++shares[p * tiles + t];
      }
    }
  }
  return shares;
}

int64_t StateBytes(const PersistentGemm& gemm, int rows, int64_t chunks) {
  const int64_t odd_chunks = chunks + (chunks % 2 == 0);
  return gemm.tensor_cores
             ? gemm.slices * rows * odd_chunks * 16 * gemm.state_bytes
             : gemm.slices * (rows * chunks + 1) * 4 * gemm.compute_bytes;
}

void CheckPlan(const PersistentDevice& device,
               const std::vector<PersistentGemm>& gemms,
               const PersistentPlan& plan) {
  EXPECT(plan.blocks > 0 && plan.blocks <= device.multiprocessors);
  EXPECT(plan.shared_bytes <= device.shared_bytes);
  EXPECT(plan.sums_at % 16 == 0 && plan.states_at % 16 == 0);
  int64_t weights_end = 0;
  for (std::size_t s = 0; s < gemms.size(); ++s) {
    const PersistentGemm& gemm = gemms[s];
    const PersistentStage& stage = plan.stages[s];
    int64_t most = 0;
    for (const int share : Shares(plan, stage, gemm)) {
      EXPECT(share == 1);
    }
    const int64_t panels = CeilDiv(gemm.panels, stage.panel_groups);
    most = panels * CeilDiv(CeilDiv(gemm.rows, plan.rows), stage.row_groups);
    EXPECT(most <= kMaxPersistentTiles);
    EXPECT(most <= panels * kMaxTilesOfAPanel);
    EXPECT(stage.weights_at == weights_end && stage.weights_at % 16 == 0);
    const bool tensor_cores = gemm.tensor_cores;
    EXPECT((plan.rows == kTensorPersistentRows) == tensor_cores);
    weights_end +=
        panels * gemm.chunks * (tensor_cores ? 16 : 4) * 32 * gemm.weight_bytes;
    EXPECT(stage.chunks_per_load == gemm.chunks ||
           (stage.chunks_per_load % 8 == 0 && stage.chunks_per_load > 0 &&
            stage.chunks_per_load < gemm.chunks));
    const int64_t states = StateBytes(gemm, plan.rows, stage.chunks_per_load);
    const int64_t sums = 8 * plan.rows * 32 * gemm.compute_bytes;
    EXPECT(plan.next_state % 16 == 0);
    EXPECT(plan.next_state == 0 || states <= plan.next_state);
    EXPECT(plan.states_at + plan.next_state + states <= plan.shared_bytes);
    EXPECT(plan.sums_at + sums <= plan.shared_bytes);
    // The sums overwrite the state only where there is one piece of it, on
    // tensor cores.
    EXPECT(plan.sums_at + sums <= plan.states_at ||
           (tensor_cores && plan.sums_at == plan.states_at &&
            plan.next_state == 0));
    // No piece is smaller than necessary.
    const int64_t group = tensor_cores ? 8 : 32;
    const int64_t larger =
        StateBytes(gemm, plan.rows, stage.chunks_per_load + group);
    const int64_t buffers = plan.next_state > 0 ? 2 : 1;
    EXPECT(stage.chunks_per_load == gemm.chunks ||
           plan.states_at + buffers * larger > device.shared_bytes - 32 ||
           (buffers == 2 && 2 * stage.chunks_per_load >= gemm.chunks));
  }
  EXPECT(plan.sums_at == weights_end);
}

void Sweep() {
  int chosen = 0;
  // Plans with room for one piece of the state of several, for two pieces, and
  // with sums that overwrite the state.
  int single = 0;
  int ahead = 0;
  int overlap = 0;
  for (const PersistentDevice& device :
       {kH200, kA100, PersistentDevice{true, 4, 64 * 1024},
        PersistentDevice{true, 1, 48 * 1024}}) {
    for (const int64_t rows : {1, 2, 3, 8, 9, 31, 32, 33, 128}) {
      for (const int64_t units : {1, 7, 8, 9, 64, 100, 257, 512, 1000, 1024}) {
        for (const int gates : {2, 3, 4}) {
          for (const int bytes : {2, 4, 8}) {
            const PersistentGemm forward = Forward(rows, units, gates, bytes);
            const PersistentGemm backward = Backward(rows, units, gates, bytes);
            for (const std::vector<PersistentGemm>& gemms :
                 {std::vector<PersistentGemm>{forward},
                  {backward},
                  {forward, backward}}) {
              const PersistentPlan plan = Plan(device, kSteps, gemms);
              if (plan.rows == 0) continue;
              ++chosen;
              CheckPlan(device, gemms, plan);
              const bool parts =
                  plan.stages[0].chunks_per_load < gemms[0].chunks;
              single += parts && plan.next_state == 0;
              ahead += plan.next_state > 0;
              overlap += plan.sums_at == plan.states_at;
            }
          }
        }
      }
    }
  }
  EXPECT(chosen > 500);
  EXPECT(single > 0 && ahead > 100 && overlap > 0);
}

void Choices() {
  // LSTM: four gates. On an H200 the weights of 1024 units fit in float32, of
  // 1536 in bfloat16, and those of 2048 do not.
  EXPECT(Chosen(kH200, Forward(8, 1024, 4, 4)));
  EXPECT(Chosen(kH200, Backward(8, 1024, 4, 4)));
  EXPECT(!Chosen(kH200, Forward(8, 2048, 4, 4)));
  EXPECT(!Chosen(kH200, Forward(8, 2048, 4, 2)));
  EXPECT(Chosen(kH200, Forward(8, 1536, 4, 2)));
  EXPECT(Chosen(kH200, Backward(8, 1536, 4, 2)));
  EXPECT(!Chosen(kA100, Forward(8, 1024, 4, 4)));
  EXPECT(Chosen(kA100, Forward(8, 512, 4, 4)));
  // A block for each panel; more for more rows, as long as there are any left.
  EXPECT(Plan(kH200, kSteps, {Forward(8, 1024, 4, 4)}).blocks == 128);
  EXPECT(Plan(kH200, kSteps, {Forward(64, 256, 4, 4)}).blocks == 128);
  // Large batches of large cells are faster step by step: a block has two tiles
  // of a panel at most, on tensor cores of 16 bits one.
  EXPECT(Chosen(kH200, Forward(16, 1024, 4, 4)));
  EXPECT(!Chosen(kH200, Forward(17, 1024, 4, 4)));
  EXPECT(Chosen(kH200, Forward(64, 256, 4, 4)));
  EXPECT(!Chosen(kH200, Forward(65, 256, 4, 4)));
  EXPECT(Plan(kH200, kSteps, {Forward(1, 512, 4, 4)}).rows ==
         kFewPersistentRows);
  EXPECT(Plan(kH200, kSteps, {Forward(3, 512, 4, 4)}).rows ==
         kManyPersistentRows);
  EXPECT(
      Plan(kH200, kSteps, {Forward(1, 64, 3, 4), Forward(1, 64, 3, 4)}).rows ==
      kManyPersistentRows);
  // A tile of tensor cores has sixteen rows.
  EXPECT(Plan(kH200, kSteps, {Forward(1, 512, 4, 2)}).rows ==
         kTensorPersistentRows);
  EXPECT(Plan(kH200, kSteps, {Forward(16, 1024, 4, 2)}).blocks == 128);
  EXPECT(!Chosen(kH200, Forward(17, 1024, 4, 2)));
  // The figures for bfloat16 in docs/adr/0011-persistent-kernel.md.
  for (const auto& [device, units, rows] : {std::tuple{kH200, 1664, 16},
                                            {kH200, 528, 32},
                                            {kH200, 256, 64},
                                            {kA100, 1152, 16}}) {
    EXPECT(Chosen(device, Forward(rows, units, 4, 2)));
    EXPECT(Chosen(device, Backward(rows, units, 4, 2)));
    EXPECT(!Chosen(device, Backward(rows, units + 16, 4, 2)));
  }
  EXPECT(Chosen(kH200, Forward(16, 1680, 3, 2)));
  EXPECT(Chosen(kH200, Backward(16, 1680, 3, 2)));
  // As TF32 a block has two tiles of up to 512 depths, or one of more.
  EXPECT(!Chosen(kH200, AsTf32(Forward(64, 528, 4, 4))));
  EXPECT(!Chosen(kH200, AsTf32(Forward(17, 1056, 4, 4))));
  EXPECT(Chosen(kH200, AsTf32(Backward(16, 1056, 4, 4))));
  for (const PersistentGemm& gemm :
       {AsTf32(Forward(64, 512, 4, 4)), AsTf32(Backward(64, 512, 4, 4))}) {
    const PersistentPlan plan = Plan(kH200, kSteps, {gemm});
    EXPECT(plan.rows == kTensorPersistentRows && plan.next_state > 0);
    CheckPlan(kH200, {gemm}, plan);
  }
  // Two pieces of the state: of two tiles, or halves of a large one; a small
  // single one is loaded at once.
  EXPECT(Plan(kH200, kSteps, {Forward(16, 1024, 4, 4)}).next_state > 0);
  const PersistentPlan halves = Plan(kH200, kSteps, {Backward(8, 512, 4, 4)});
  EXPECT(halves.stages[0].chunks_per_load == 64 && halves.next_state > 0);
  EXPECT(Plan(kH200, kSteps, {Forward(8, 512, 4, 4)}).next_state == 0);
  // Two GEMMs of a step share the memory.
  EXPECT(
      Plan(kH200, kSteps, {Forward(8, 700, 3, 4), Forward(8, 700, 3, 4)}).rows >
      0);
  EXPECT(Plan(kH200, kSteps, {Forward(8, 1024, 3, 4), Forward(8, 1024, 3, 4)})
             .rows == 0);
  // Those of a GRU of 1024 units fit in float32, backward with the state of the
  // gates in parts.
  const std::vector<PersistentGemm> gru = {Forward(8, 1024, 2, 4),
                                           Candidate(8, 1024, 4)};
  const PersistentPlan forward = Plan(kH200, kSteps, gru);
  CheckPlan(kH200, gru, forward);
  EXPECT(forward.stages[0].chunks_per_load == 128);
  const std::vector<PersistentGemm> gru_grad = {Backward(8, 1024, 2, 4),
                                                Candidate(8, 1024, 4)};
  const PersistentPlan backward = Plan(kH200, kSteps, gru_grad);
  CheckPlan(kH200, gru_grad, backward);
  EXPECT(backward.stages[0].chunks_per_load == 96);
  EXPECT(backward.stages[1].chunks_per_load == 32);
}

void Refusals() {
  const PersistentGemm gemm = Forward(8, 64, 4, 4);
  EXPECT(Plan(kH200, kMinPersistentSteps, {gemm}).rows > 0);
  EXPECT(Plan(kH200, kMinPersistentSteps - 1, {gemm}).rows == 0);
  PersistentDevice no_grid_barrier = kH200;
  no_grid_barrier.cooperative = false;
  EXPECT(!Chosen(no_grid_barrier, gemm));
  EXPECT(!Chosen({true, 0, 227 * 1024}, gemm));
  EXPECT(!Chosen(kH200, Forward(0, 64, 4, 4)));
  EXPECT(!Chosen(kH200, Forward(8, 0, 4, 4)));
}

}  // namespace

int main() {
  Choices();
  Refusals();
  Sweep();
  if (failures == 0) std::printf("ok\n");
  return failures == 0 ? 0 : 1;
}
