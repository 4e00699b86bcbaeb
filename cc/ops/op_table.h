// Defines the op table: one row for each op, from which its signature is
// generated. The docs are in cc/ops/*_docs.h.

#ifndef BLOCKRNN_OPS_OP_TABLE_H_
#define BLOCKRNN_OPS_OP_TABLE_H_

#include <string_view>

#include "cc/ops/contract_rules.h"
#include "cc/ops/op_spec.h"

namespace blockrnn {
namespace op_table {

// -------------------------------------------------- attrs that several have

inline constexpr char kTypes[] = "T: {half, bfloat16, float, double}";
inline constexpr char kLengths[] = "Tlen: {int32, int64} = DT_INT32";
inline constexpr char kOrder[] =
    "time_major: bool = true;"
    "go_backwards: bool = false";
inline constexpr char kIsTraining[] = "is_training: bool = true";
inline constexpr char kRecompute[] = "recompute: int >= -1 = 0";
inline constexpr char kFrozen[] =
    "frozen: string = '';"
    "precision: {'float32', 'bfloat16', 'int8'} = 'float32'";
// Numbers in decimal text (kNumberAttrs in cc/ops/contract_rules.h).
inline constexpr char kZoneoutRate[] = "zoneout_rate_h: string = '0'";
inline constexpr char kZoneoutRates[] =
    "zoneout_rate_h: string = '0';"
    "zoneout_rate_c: string = '0'";
inline constexpr char kGateOrder[] = "gate_order: {'ruc', 'urc'} = 'ruc'";
inline constexpr char kActivation[] = "activation: {'tanh', 'relu'} = 'tanh'";
inline constexpr char kEpsilon[] = "epsilon: string = '0.001'";
inline constexpr char kNormOutputOnly[] = "norm_output_only: bool = false";
inline constexpr char kLstmOptions[] =
    "forget_bias: string = '0';"
    "cell_clip: string = '0'";
inline constexpr char kStockLstmOptions[] =
    "forget_bias: float = 1.0;"
    "cell_clip: float = 3.0;"
    "use_peephole: bool = false";
inline constexpr char kUsePeephole[] = "use_peephole: bool";
inline constexpr char kCudnnAttrs[] =
    "rnn_mode: {'rnn_relu', 'rnn_tanh', 'lstm', 'gru'} = 'lstm';"
    "input_mode: {'linear_input', 'skip_input', 'auto_select'} = "
    "'linear_input';"
    "direction: {'unidirectional', 'bidirectional'} = 'unidirectional';"
    "dropout: float = 0.0;"
    "seed: int = 0;"
    "seed2: int = 0";
inline constexpr char kProjection[] = "num_proj: int = 0";
inline constexpr char kTimeMajor[] = "time_major: bool = true";

// ---------------------------------------------- arguments that several have

// One step, and a sequence in one array of weights, as TensorFlow has them.
inline constexpr char kGruCell[] =
    "x[B,I] h_prev[B,H] w_ru[I+H,2H] w_c[I+H,H] b_ru[2H] b_c[H]";
inline constexpr char kGruGates[] = "r[B,H] u[B,H] c[B,H]";
inline constexpr char kBlockGru[] =
    "seq_len_max:int64@host[] x[T,B,I] h_prev[B,H] w_ru[I+H,2H] w_c[I+H,H] "
    "b_ru[2H] b_c[H]";
inline constexpr char kBlockGruSteps[] = "r[T,B,H] u[T,B,H] c[T,B,H] h[T,B,H]";
// Peepholes that are not in use may have any length, as in TensorFlow; their
// gradients are zeros of that length.
inline constexpr char kLstmCell[] =
    "cs_prev[B,H] h_prev[B,H] w[I+H,4H] wci[H|?] wcf[H|?] wco[H|?] b[4H]";
inline constexpr char kLstmGates[] =
    "i[B,H] cs[B,H] f[B,H] o[B,H] ci[B,H] co[B,H]";
inline constexpr char kPeepholeGrads[] =
    "wci_grad=wci wcf_grad=wcf wco_grad=wco";
inline constexpr char kSteps[] = "seq_len_max:int64@host[] x[T,B,I]";
inline constexpr char kBlockLstmSteps[] =
    "i[T,B,H] cs[T,B,H] f[T,B,H] o[T,B,H] ci[T,B,H] co[T,B,H] h[T,B,H]";
inline constexpr char kBlockLstmGrads[] =
    "x_grad[T,B,I] cs_prev_grad[B,H] h_prev_grad[B,H] w_grad[I+H,4H]";

// A sequence whose rows have masks and lengths of their own.
inline constexpr char kRows[] =
    "mask:bool[T,B|B,T]? sequence_lengths:Tlen@host[B]? "
    "resets:bool@host[T,B|B,T]?";
inline constexpr char kH[] = "h[T,B,H|B,T,H]";
inline constexpr char kHLast[] = "h_last[B,H]";
inline constexpr char kHGrads[] = "h_grad[T,B,H|B,T,H]? h_last_grad[B,H]?";
inline constexpr char kCsGrads[] =
    "cs_last_grad[B,H]? cs_grad[K*T,B,H|B,K*T,H]?";
inline constexpr char kZoneout[] = "zoneout_h:bool[T,B,H|B,T,H]?";
inline constexpr char kDropout3[] = "recurrent_dropout[3,B,H]?";
inline constexpr char kDropout4[] = "recurrent_dropout[4,B,H]?";
// N is the size of the states that are saved with recompute
// (cc/ops/contract_rules.h).
inline constexpr char kSpanStates[] = "span_states[N]";

inline constexpr char kGru[] =
    "x[T,B,I|B,T,I] h_prev[B,H] w_x[I,3H]?I=3H w_h[H,3H]";
inline constexpr char kGruSaved[] =
    "r[K*T,B,H|B,K*T,H] u[K*T,B,H|B,K*T,H] c[K*T,B,H|B,K*T,H]";
inline constexpr char kGruGrads[] =
    "x_grad=x h_prev_grad[B,H] w_x_grad=w_x w_h_grad[H,3H]";
inline constexpr char kGruBiasGrads[] = "b_x_grad[3H] b_h_grad[3H]";
inline constexpr char kHcSaved[] = "hc[K*T,B,H|B,K*T,H]";
inline constexpr char kGruNorms[] =
    "b_x[3H] b_h[3H] gamma_x[3H] beta_x[3H] gamma_h[3H] beta_h[3H]";
inline constexpr char kGruNormsSaved[] =
    "x_hat[K*T,B,3H|B,K*T,3H] h_hat[K*T,B,3H|B,K*T,3H] "
    "rstd[K*T,B,2|B,K*T,2]";

// P is the size of h with a projection.
inline constexpr char kLstm[] =
    "x[T,B,I|B,T,I] h_prev[B,P] cs_prev[B,H] w_x[I,4H]?I=4H w_h[P,4H]";
inline constexpr char kLstmSaved[] =
    "i[K*T,B,H|B,K*T,H] cs[K*T,B,H|B,K*T,H] f[K*T,B,H|B,K*T,H] "
    "o[K*T,B,H|B,K*T,H] ci[K*T,B,H|B,K*T,H]";
inline constexpr char kLstmOptional[] =
    "w_p[P,H]?P=H recurrent_dropout[4,B,P]? zoneout_h:bool[T,B,P|B,T,P]? "
    "zoneout_c:bool[T,B,H|B,T,H]?";
inline constexpr char kLstmNorms[] =
    "x[T,B,I|B,T,I] h_prev[B,H] cs_prev[B,H] w_x[I,4H]?I=4H w_h[H,4H] b[4H] "
    "gamma_x[4H] beta_x[4H] gamma_h[4H] beta_h[4H] gamma_c[H] beta_c[H]";
inline constexpr char kLstmNormsSaved[] =
    "x_hat[K*T,B,4H|B,K*T,4H] h_hat[K*T,B,4H|B,K*T,4H] "
    "rstd[K*T,B,2|B,K*T,2] cs[K*T,B,H|B,K*T,H]";

inline constexpr char kSimpleRnn[] =
    "x[T,B,I|B,T,I] h_prev[B,H] w_x[I,H]?I=H w_h[H,H]";
inline constexpr char kSimpleRnnDropout[] = "recurrent_dropout[1,B,H]?";

// The cuDNN family in TensorFlow's versions 1 and 2, and in version 3, which
// may be batch-major. P is H without a projection.
inline constexpr char kCudnn[] =
    "input[T,B,I] input_h[L*D,B,P] input_c[L*D,B,H]! params[?]";
inline constexpr char kCudnnV3[] =
    "input[T,B,I|B,T,I] input_h[L*D,B,P|B,L*D,P] input_c[L*D,B,H|B,L*D,H]! "
    "params[?] sequence_lengths:int32@host[B]";
inline constexpr char kCudnnStates[] =
    "output_h=input_h output_c=input_c! reserve_space[S]";
inline constexpr char kCudnnForwarded[] =
    "output[T,B,D*P] output_h[L*D,B,P] output_c[L*D,B,H]! "
    "output_backprop[T,B,D*P] output_h_backprop[L*D,B,P] "
    "output_c_backprop[L*D,B,H]! reserve_space[?]";
inline constexpr char kCudnnForwardedV3[] =
    "output[T,B,D*P|B,T,D*P] output_h[L*D,B,P|B,L*D,P] "
    "output_c[L*D,B,H|B,L*D,H]! output_backprop[T,B,D*P|B,T,D*P] "
    "output_h_backprop[L*D,B,P|B,L*D,P] "
    "output_c_backprop[L*D,B,H|B,L*D,H]! reserve_space[?]";
inline constexpr char kCudnnGrads[] =
    "input_backprop=input input_h_backprop=input_h "
    "input_c_backprop=input_c params_backprop=params";
inline constexpr char kHostReserved[] = "host_reserved:int8@host[0]";
inline constexpr char kNetwork[] =
    "num_layers:int32@host[] num_units:int32@host[] input_size:int32@host[]";
inline constexpr char kParamLists[] =
    "weights:num_params*T[*] biases:num_params*T[*]";
inline constexpr char kParamListsV2[] =
    "weights:num_params_weights*T[*] biases:num_params_biases*T[*]";
inline constexpr char kParamCounts[] =
    "num_params_weights: int >= 1;"
    "num_params_biases: int >= 1";

// clang-format off
inline constexpr OpSpec kOpTable[] = {
    {"GRUBlockCell",
     {kGruCell},
     {kGruGates, "h[B,H]"},
     {kTypes}},
    {"GRUBlockCellGrad",
     {kGruCell, kGruGates, "d_h[B,H]"},
     {"d_x[B,I] d_h_prev[B,H] d_c_bar[B,H] d_r_bar_u_bar[B,2H]"},
     {kTypes}},
    {"LSTMBlockCell",
     {"x[B,I]", kLstmCell},
     {kLstmGates, "h[B,H]"},
     {kStockLstmOptions, kTypes},
     "use_peephole"},
    {"LSTMBlockCellGrad",
     {"x[B,I]", kLstmCell, kLstmGates, "cs_grad[B,H] h_grad[B,H]"},
     {"cs_prev_grad[B,H] dicfo[B,4H]", kPeepholeGrads},
     {kUsePeephole, kTypes},
     "use_peephole"},

    {"BlockGRU",
     {kBlockGru},
     {kBlockGruSteps},
     {kTypes}},
    {"BlockGRUGrad",
     {kBlockGru, kBlockGruSteps, "h_grad[T,B,H]"},
     {"x_grad[T,B,I] h_prev_grad[B,H] w_ru_grad[I+H,2H] w_c_grad[I+H,H] "
      "b_ru_grad[2H] b_c_grad[H]"},
     {kTypes}},
    {"BlockLSTM",
     {kSteps, kLstmCell},
     {kBlockLstmSteps},
     {kStockLstmOptions, kTypes},
     "use_peephole"},
    {"BlockLSTMGrad",
     {kSteps, kLstmCell, kBlockLstmSteps, "cs_grad[T,B,H] h_grad[T,B,H]"},
     {kBlockLstmGrads, kPeepholeGrads, "b_grad[4H]"},
     {kUsePeephole, kTypes},
     "use_peephole"},
    {"BlockLSTMV2",
     {kSteps, kLstmCell},
     {kBlockLstmSteps},
     {"cell_clip: float = 0.0;use_peephole: bool = false", kTypes},
     "use_peephole"},
    {"BlockLSTMGradV2",
     {kSteps, kLstmCell, kBlockLstmSteps, "cs_grad[T,B,H] h_grad[T,B,H]"},
     {kBlockLstmGrads, kPeepholeGrads, "b_grad[4H]"},
     {kUsePeephole, kTypes},
     "use_peephole"},

    {"GRUSequence",
     {kGru, "b[3H]", kRows, kDropout3, kZoneout},
     {kH, kHLast, kGruSaved, kSpanStates},
     {kGateOrder, kOrder, kZoneoutRate, kIsTraining, kRecompute, kFrozen,
      kTypes, kLengths},
     "time_major"},
    {"GRUSequenceGrad",
     {kGru, "b[3H]?K=1", kRows, kH, kGruSaved, kSpanStates, kHGrads, kDropout3,
      kZoneout},
     {kGruGrads, "b_grad[3H]"},
     {kGateOrder, kOrder, kZoneoutRate, kRecompute, kTypes, kLengths},
     "time_major"},
    {"GRUAfterSequence",
     {kGru, "b_x[3H] b_h[3H]", kRows, kDropout3, kZoneout},
     {kH, kHLast, kGruSaved, kHcSaved, kSpanStates},
     {kGateOrder, kOrder, kZoneoutRate, kIsTraining, kRecompute, kFrozen,
      kTypes, kLengths},
     "time_major"},
    {"GRUAfterSequenceGrad",
     {kGru, "b_x[3H]?K=1 b_h[3H]?K=1", kRows, kH, kGruSaved, kHcSaved,
      kSpanStates, kHGrads, kDropout3, kZoneout},
     {kGruGrads, kGruBiasGrads},
     {kGateOrder, kOrder, kZoneoutRate, kRecompute, kTypes, kLengths},
     "time_major"},
    {"LSTMSequence",
     {kLstm, "b[4H] peepholes[3,H]?", kRows, kLstmOptional},
     {"h[T,B,P|B,T,P] h_last[B,P] cs_last[B,H]", kLstmSaved, kSpanStates},
     {kLstmOptions, kOrder, kZoneoutRates, kIsTraining, kRecompute, kFrozen,
      kTypes,
      kLengths},
     "time_major", &CheckProjection},
    {"LSTMSequenceGrad",
     {kLstm, "b[4H]?K=1 peepholes[3,H]?", kRows, "h[T,B,P|B,T,P]", kLstmSaved,
      kSpanStates, "h_grad[T,B,P|B,T,P]? h_last_grad[B,P]?", kCsGrads,
      kLstmOptional},
     {"x_grad=x h_prev_grad[B,P] cs_prev_grad[B,H] w_x_grad=w_x "
      "w_h_grad[P,4H] b_grad[4H] peepholes_grad=peepholes w_p_grad=w_p"},
     {kLstmOptions, kOrder, kZoneoutRates, kRecompute, kTypes, kLengths},
     "time_major", &CheckProjection},
    {"LayerNormLSTMSequence",
     {kLstmNorms, kRows, kDropout4},
     {kH, kHLast, "cs_last[B,H]", kLstmNormsSaved, kSpanStates},
     {kEpsilon, kNormOutputOnly, kOrder, kIsTraining, kRecompute, kFrozen,
      kTypes, kLengths},
     "time_major"},
    {"LayerNormLSTMSequenceGrad",
     {kLstmNorms, kRows, kH, kLstmNormsSaved, kSpanStates, kHGrads, kCsGrads,
      kDropout4},
     {"x_grad=x h_prev_grad[B,H] cs_prev_grad[B,H] w_x_grad=w_x "
      "w_h_grad[H,4H] b_grad[4H] gamma_x_grad[4H] beta_x_grad[4H] "
      "gamma_h_grad[4H] beta_h_grad[4H] gamma_c_grad[H] beta_c_grad[H]"},
     {kEpsilon, kNormOutputOnly, kOrder, kRecompute, kTypes, kLengths},
     "time_major"},
    {"LayerNormGRUSequence",
     {kGru, kGruNorms, kRows, kDropout3},
     {kH, kHLast, kGruNormsSaved, kSpanStates},
     {kGateOrder, kEpsilon, kOrder, kIsTraining, kRecompute, kFrozen, kTypes,
      kLengths},
     "time_major"},
    {"LayerNormGRUSequenceGrad",
     {kGru, kGruNorms, kRows, kH, kGruNormsSaved, kSpanStates, kHGrads,
      kDropout3},
     {kGruGrads, kGruBiasGrads, "gamma_x_grad[3H] beta_x_grad[3H] "
      "gamma_h_grad[3H] beta_h_grad[3H]"},
     {kGateOrder, kEpsilon, kOrder, kRecompute, kTypes, kLengths},
     "time_major"},
    {"RNNSequence",
     {kSimpleRnn, "b[H]", kRows, kSimpleRnnDropout},
     {kH, kHLast},
     {kActivation, kOrder, kFrozen, kTypes, kLengths},
     "time_major"},
    {"RNNSequenceGrad",
     {kSimpleRnn, kRows, kH, kHGrads, kSimpleRnnDropout},
     {"x_grad=x h_prev_grad[B,H] w_x_grad=w_x w_h_grad[H,H] b_grad[H]"},
     {kActivation, kOrder, kTypes, kLengths},
     "time_major"},

    {"CudnnRNN",
     {kCudnn},
     {"output[T,B,D*P]", kCudnnStates},
     {kTypes, kCudnnAttrs, kIsTraining},
     nullptr, nullptr, &CudnnRnnShapes, kStateful | kServesTensorFlow},
    {"CudnnRNNV2",
     {kCudnn},
     {"output[T,B,D*P]", kCudnnStates, kHostReserved},
     {kTypes, kCudnnAttrs, kIsTraining},
     nullptr, nullptr, &CudnnRnnShapes, kStateful | kServesTensorFlow},
    {"CudnnRNNV3",
     {kCudnnV3},
     {"output[T,B,D*P|B,T,D*P]", kCudnnStates, kHostReserved},
     {kTypes, kCudnnAttrs, kProjection, kIsTraining, kTimeMajor},
     "time_major", nullptr, &CudnnRnnShapes, kStateful | kServesTensorFlow},
    {"CudnnRNNBackprop",
     {kCudnn, kCudnnForwarded},
     {kCudnnGrads},
     {kTypes, kCudnnAttrs},
     nullptr, nullptr, &CudnnRnnShapes, kStateful | kServesTensorFlow},
    {"CudnnRNNBackpropV2",
     {kCudnn, kCudnnForwarded, kHostReserved},
     {kCudnnGrads},
     {kTypes, kCudnnAttrs},
     nullptr, nullptr, &CudnnRnnShapes, kStateful | kServesTensorFlow},
    {"CudnnRNNBackpropV3",
     {kCudnnV3, kCudnnForwardedV3, kHostReserved},
     {kCudnnGrads},
     {kTypes, kCudnnAttrs, kProjection, kTimeMajor},
     "time_major", nullptr, &CudnnRnnShapes, kStateful | kServesTensorFlow},

    {"CudnnRNNParamsSize",
     {kNetwork},
     {"params_size:S@host[1]"},
     {kTypes, "S: {int32, int64}", kCudnnAttrs, kProjection},
     nullptr, nullptr, &ParamsSizeShapes, kServesTensorFlow},
    {"CudnnRNNParamsToCanonical",
     {kNetwork, "params[?]"},
     {kParamLists},
     {kTypes, "num_params: int >= 1", kCudnnAttrs},
     nullptr, nullptr, &ToCanonicalShapes, kServesTensorFlow},
    {"CudnnRNNParamsToCanonicalV2",
     {kNetwork, "params[?]"},
     {kParamListsV2},
     {kTypes, kParamCounts, kCudnnAttrs, kProjection},
     nullptr, nullptr, &ToCanonicalShapes, kServesTensorFlow},
    {"CudnnRNNCanonicalToParams",
     {kNetwork, kParamLists},
     {"params[?]"},
     {kTypes, "num_params: int >= 1", kCudnnAttrs},
     nullptr, nullptr, &FromCanonicalShapes, kServesTensorFlow},
    {"CudnnRNNCanonicalToParamsV2",
     {kNetwork, kParamListsV2},
     {"params[?]"},
     {kTypes, kParamCounts, kCudnnAttrs, kProjection},
     nullptr, nullptr, &FromCanonicalShapes, kServesTensorFlow},
};
// clang-format on

}  // namespace op_table

using op_table::kOpTable;

// The row of an op, by its name without our namespace; nullptr: there is none.
constexpr const OpSpec* FindRow(std::string_view name) {
  for (const OpSpec& row : kOpTable) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

// The same for an op that must exist.
constexpr const OpSpec& Row(std::string_view name) {
  const OpSpec* const row = FindRow(name);
  if (row == nullptr) NoSuchName(name);
  return *row;
}

}  // namespace blockrnn

#endif  // BLOCKRNN_OPS_OP_TABLE_H_
