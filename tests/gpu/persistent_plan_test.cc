// Tests the choice of a persistent kernel without a GPU: every tile is
// somebody's and nobody's twice, all blocks can run at once, shared memory is
// enough and its parts are apart; and which of the usual shapes are chosen.

#include "cc/kernels/cuda/step/persistent_plan.h"

#include <cstdint>
#include <cstdio>
#include <tuple>
#include <vector>

namespace {

using blockrnn::cuda::kFewestPersistentSteps;
using blockrnn::cuda::kFewPersistentRows;
using blockrnn::cuda::kManyPersistentRows;
using blockrnn::cuda::kMostPersistentTiles;
using blockrnn::cuda::kTensorPersistentRows;
using blockrnn::cuda::PersistentDevice;
using blockrnn::cuda::PersistentPlan;
using blockrnn::cuda::PersistentProduct;
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

// 16-bit types are multiplied by tensor cores.
PersistentProduct Product(int64_t rows, int64_t units, int panel_units,
                          int weight_bytes) {
  const bool tensor_cores = weight_bytes == 2;
  PersistentProduct product;
  product.rows = rows;
  product.panels = CeilDiv(units, panel_units);
  product.chunks = CeilDiv(units, tensor_cores ? 16 : 4);
  product.weight_bytes = weight_bytes;
  product.compute_bytes = weight_bytes == 8 ? 8 : 4;
  product.tensor_cores = tensor_cores;
  return product;
}

// The product of a step with the state, forward: a column for each gate.
PersistentProduct Forward(int64_t rows, int64_t units, int gates,
                          int weight_bytes) {
  return Product(rows, units, 32 / gates, weight_bytes);
}

// Backward: as many slices of the gates' gradients, of tensor cores in full
// eights of columns.
PersistentProduct Backward(int64_t rows, int64_t units, int gates,
                           int weight_bytes) {
  const int panel_units = 32 / gates;
  PersistentProduct product = Product(
      rows, units, weight_bytes == 2 ? panel_units / 8 * 8 : panel_units,
      weight_bytes);
  product.slices = gates;
  return product;
}

// The second product of a GRU's step, after that of two gates: the candidate's
// sums are of four slices of the depth, forward and backward.
PersistentProduct Candidate(int64_t rows, int64_t units, int weight_bytes) {
  PersistentProduct product = Backward(rows, units, 4, weight_bytes);
  product.chunks = CeilDiv(product.chunks, 4);
  return product;
}

PersistentPlan Plan(const PersistentDevice& device, int64_t steps,
                    const std::vector<PersistentProduct>& products) {
  return PlanPersistent(device, steps, products.data(),
                        static_cast<int>(products.size()));
}

bool Chosen(const PersistentDevice& device, const PersistentProduct& product) {
  return Plan(device, kSteps, {product}).rows > 0;
}

// How often each (panel, tile) is computed.
std::vector<int> Shares(const PersistentPlan& plan,
                        const PersistentStage& stage,
                        const PersistentProduct& product) {
  const int64_t tiles = CeilDiv(product.rows, plan.rows);
  std::vector<int> shares(product.panels * tiles);
  for (int64_t block = 0; block < plan.blocks; ++block) {
    const int64_t first_tile = block / stage.panel_groups;
    if (first_tile >= stage.row_groups) continue;
    for (int64_t p = block % stage.panel_groups; p < product.panels;
         p += stage.panel_groups) {
      for (int64_t t = first_tile; t < tiles; t += stage.row_groups) {
        ++shares[p * tiles + t];
      }
    }
  }
  return shares;
}

void CheckPlan(const PersistentDevice& device,
               const std::vector<PersistentProduct>& products,
               const PersistentPlan& plan) {
  EXPECT(plan.blocks > 0 && plan.blocks <= device.multiprocessors);
  EXPECT(plan.shared_bytes <= device.shared_bytes);
  EXPECT(plan.sums_at % 16 == 0 && plan.states_at % 16 == 0);
  int64_t weights_end = 0;
  for (std::size_t s = 0; s < products.size(); ++s) {
    const PersistentProduct& product = products[s];
    const PersistentStage& stage = plan.stages[s];
    int64_t most = 0;
    for (const int share : Shares(plan, stage, product)) {
      EXPECT(share == 1);
    }
    const int64_t panels = CeilDiv(product.panels, stage.panel_groups);
    most = panels * CeilDiv(CeilDiv(product.rows, plan.rows), stage.row_groups);
    EXPECT(most <= kMostPersistentTiles);
    EXPECT(stage.weights_at == weights_end && stage.weights_at % 16 == 0);
    const bool tensor_cores = product.tensor_cores;
    EXPECT((plan.rows == kTensorPersistentRows) == tensor_cores);
    weights_end += panels * product.chunks * (tensor_cores ? 16 : 4) * 32 *
                   product.weight_bytes;
    EXPECT(stage.chunks_at_once == product.chunks ||
           (stage.chunks_at_once % 8 == 0 && stage.chunks_at_once > 0 &&
            stage.chunks_at_once < product.chunks));
    const int64_t chunks = stage.chunks_at_once;
    const int64_t odd_chunks = chunks + (chunks % 2 == 0);
    const int64_t states =
        tensor_cores ? product.slices * plan.rows * odd_chunks * 16 * 2
                     : product.slices * (plan.rows * chunks + 1) * 4 *
                           product.compute_bytes;
    // No part is smaller than it has to be.
    EXPECT(!tensor_cores || stage.chunks_at_once == product.chunks ||
           plan.states_at + states + product.slices * plan.rows * 8 * 16 * 2 >
               device.shared_bytes);
    EXPECT(plan.states_at + states <= plan.shared_bytes);
    const int64_t sums = 8 * plan.rows * 32 * product.compute_bytes;
    EXPECT(plan.sums_at + sums <= plan.shared_bytes);
    EXPECT(tensor_cores ? plan.sums_at == plan.states_at
                        : plan.sums_at + sums <= plan.states_at);
  }
  EXPECT(plan.sums_at == weights_end);
}

// Returns how many plans hold only a part of the state at a time.
int Sweep() {
  int parts = 0;
  int chosen = 0;
  for (const PersistentDevice& device :
       {kH200, kA100, PersistentDevice{true, 4, 64 * 1024},
        PersistentDevice{true, 1, 48 * 1024}}) {
    for (const int64_t rows : {1, 2, 3, 8, 9, 31, 32, 33, 128}) {
      for (const int64_t units : {1, 7, 8, 9, 64, 100, 257, 512, 1000, 1024}) {
        for (const int gates : {2, 3, 4}) {
          for (const int bytes : {2, 4, 8}) {
            const PersistentProduct forward =
                Forward(rows, units, gates, bytes);
            const PersistentProduct backward =
                Backward(rows, units, gates, bytes);
            for (const std::vector<PersistentProduct>& products :
                 {std::vector<PersistentProduct>{forward},
                  {backward},
                  {forward, backward}}) {
              const PersistentPlan plan = Plan(device, kSteps, products);
              if (plan.rows == 0) continue;
              ++chosen;
              CheckPlan(device, products, plan);
              for (std::size_t s = 0; s < products.size(); ++s) {
                parts += plan.stages[s].chunks_at_once < products[s].chunks;
              }
            }
          }
        }
      }
    }
  }
  EXPECT(chosen > 500);
  return parts;
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
  EXPECT(Plan(kH200, kSteps, {Forward(128, 256, 4, 4)}).blocks == 128);
  // Large batches of large cells are better step by step.
  EXPECT(Chosen(kH200, Forward(32, 1024, 4, 4)));
  EXPECT(!Chosen(kH200, Forward(128, 1024, 4, 4)));
  EXPECT(Chosen(kH200, Forward(128, 256, 4, 4)));
  EXPECT(Plan(kH200, kSteps, {Forward(1, 512, 4, 4)}).rows ==
         kFewPersistentRows);
  EXPECT(Plan(kH200, kSteps, {Forward(3, 512, 4, 4)}).rows ==
         kManyPersistentRows);
  EXPECT(
      Plan(kH200, kSteps, {Forward(1, 64, 3, 4), Forward(1, 64, 3, 4)}).rows ==
      kManyPersistentRows);
  // A tile of tensor cores has sixteen rows, of which four tiles are a step.
  EXPECT(Plan(kH200, kSteps, {Forward(1, 512, 4, 2)}).rows ==
         kTensorPersistentRows);
  EXPECT(Plan(kH200, kSteps, {Forward(32, 1024, 4, 2)}).blocks == 128);
  EXPECT(Chosen(kH200, Forward(64, 1024, 4, 2)));
  EXPECT(!Chosen(kH200, Forward(65, 1024, 4, 2)));
  // What docs/adr/0011-persistent-kernel.md says of bfloat16.
  for (const auto& [device, units, rows] : {std::tuple{kH200, 1664, 32},
                                            {kH200, 1056, 64},
                                            {kH200, 528, 128},
                                            {kA100, 1152, 32}}) {
    EXPECT(Chosen(device, Forward(rows, units, 4, 2)));
    EXPECT(Chosen(device, Backward(rows, units, 4, 2)));
    EXPECT(!Chosen(device, Backward(rows, units + 16, 4, 2)));
  }
  EXPECT(Chosen(kH200, Forward(32, 1680, 3, 2)));
  EXPECT(Chosen(kH200, Backward(32, 1680, 3, 2)));
  // Two products of a step share the memory.
  EXPECT(
      Plan(kH200, kSteps, {Forward(8, 700, 3, 4), Forward(8, 700, 3, 4)}).rows >
      0);
  EXPECT(Plan(kH200, kSteps, {Forward(8, 1024, 3, 4), Forward(8, 1024, 3, 4)})
             .rows == 0);
  // Those of a GRU of 1024 units fit in float32, backward with the state of the
  // gates in parts.
  const std::vector<PersistentProduct> gru = {Forward(8, 1024, 2, 4),
                                              Candidate(8, 1024, 4)};
  const PersistentPlan forward = Plan(kH200, kSteps, gru);
  CheckPlan(kH200, gru, forward);
  EXPECT(forward.stages[0].chunks_at_once == 256);
  const std::vector<PersistentProduct> gru_grad = {Backward(8, 1024, 2, 4),
                                                   Candidate(8, 1024, 4)};
  const PersistentPlan backward = Plan(kH200, kSteps, gru_grad);
  CheckPlan(kH200, gru_grad, backward);
  EXPECT(backward.stages[0].chunks_at_once == 224);
  EXPECT(backward.stages[1].chunks_at_once == 64);
}

void Refusals() {
  const PersistentProduct product = Forward(8, 64, 4, 4);
  EXPECT(Plan(kH200, kFewestPersistentSteps, {product}).rows > 0);
  EXPECT(Plan(kH200, kFewestPersistentSteps - 1, {product}).rows == 0);
  PersistentDevice no_grid_barrier = kH200;
  no_grid_barrier.cooperative = false;
  EXPECT(!Chosen(no_grid_barrier, product));
  EXPECT(!Chosen({true, 0, 227 * 1024}, product));
  EXPECT(!Chosen(kH200, Forward(0, 64, 4, 4)));
  EXPECT(!Chosen(kH200, Forward(8, 0, 4, 4)));
}

}  // namespace

int main() {
  Choices();
  Refusals();
  const int parts = Sweep();
  EXPECT(parts > 0);
  if (failures == 0) std::printf("ok\n");
  return failures == 0 ? 0 : 1;
}
