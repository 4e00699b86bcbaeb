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

// Macros, since only adjacent string literals are concatenated.
#define BLOCKRNN_T "T: {half, bfloat16, float, double};"
#define BLOCKRNN_SEQUENCE_TYPES BLOCKRNN_T "Tlen: {int32, int64} = DT_INT32;"
#define BLOCKRNN_ORDER       \
  "time_major: bool = true;" \
  "go_backwards: bool = false;"
#define BLOCKRNN_RECOMPUTE "recompute: int >= -1 = 0;"
#define BLOCKRNN_ZONEOUT "zoneout_rate_h: float = 0.0;"
#define BLOCKRNN_LSTM_ZONEOUT BLOCKRNN_ZONEOUT "zoneout_rate_c: float = 0.0;"
#define BLOCKRNN_FROZEN  \
  "frozen: string = '';" \
  "precision: {'float32', 'bfloat16', 'int8'} = 'float32';"
#define BLOCKRNN_RNN_ATTRS                                             \
  "rnn_mode: {'rnn_relu', 'rnn_tanh', 'lstm', 'gru'} = 'lstm';"        \
  "input_mode: {'linear_input', 'skip_input', 'auto_select'} = "       \
  "'linear_input';"                                                    \
  "direction: {'unidirectional', 'bidirectional'} = 'unidirectional';" \
  "dropout: float = 0.0;"                                              \
  "seed: int = 0;"                                                     \
  "seed2: int = 0;"

// ------------------------------------------------- inputs that several have

// Peepholes that are not in use may have any length, as in TensorFlow; their
// gradients are zeros of that length.
#define BLOCKRNN_LSTM_CELL_INPUTS \
  "cs_prev[B,H] h_prev[B,H] w[I+H,4H] wci[H|?] wcf[H|?] wco[H|?] b[4H]"
#define BLOCKRNN_LSTM_STEPS \
  "i[T,B,H] cs[T,B,H] f[T,B,H] o[T,B,H] ci[T,B,H] co[T,B,H] h[T,B,H]"
#define BLOCKRNN_BLOCK_LSTM_INPUTS \
  "seq_len_max:int64@host[] x[T,B,I] " BLOCKRNN_LSTM_CELL_INPUTS
#define BLOCKRNN_BLOCK_LSTM_GRADS                                    \
  "x_grad[T,B,I] cs_prev_grad[B,H] h_prev_grad[B,H] w_grad[I+H,4H] " \
  "wci_grad=wci wcf_grad=wcf wco_grad=wco b_grad[4H]"
#define BLOCKRNN_ROWS "mask:bool[T,B|B,T]? sequence_lengths:Tlen@host[B]?"
#define BLOCKRNN_ZONEOUT_H " zoneout_h:bool[T,B,H|B,T,H]?"
#define BLOCKRNN_ZONEOUT_STATES \
  " zoneout_h:bool[T,B,P|B,T,P]? zoneout_c:bool[T,B,H|B,T,H]?"
#define BLOCKRNN_NETWORK \
  "num_layers:int32@host[] num_units:int32@host[] input_size:int32@host[]"

// K is a factor of the number of steps of what is saved for backward: 0 with
// recompute and without is_training, else 1. N is the size of the states that
// are saved with recompute instead (cc/ops/span_states.h).
inline constexpr char kLstmSequenceInputs[] =
    "x[T,B,I|B,T,I] h_prev[B,P] cs_prev[B,H] w_x[I,4H]?I=4H w_h[P,4H] b[4H] "
    "peepholes[3,H]? " BLOCKRNN_ROWS
    " w_p[P,H]?P=H recurrent_dropout[4,B,P]?" BLOCKRNN_ZONEOUT_STATES;
inline constexpr char kLstmSequenceGradInputs[] =
    "x[T,B,I|B,T,I] h_prev[B,P] cs_prev[B,H] w_x[I,4H]?I=4H w_h[P,4H] "
    "b[4H]?K=1 peepholes[3,H]? " BLOCKRNN_ROWS
    " h[T,B,P|B,T,P] i[K*T,B,H|B,K*T,H] cs[K*T,B,H|B,K*T,H] "
    "f[K*T,B,H|B,K*T,H] o[K*T,B,H|B,K*T,H] ci[K*T,B,H|B,K*T,H] span_states[N] "
    "h_grad[T,B,P|B,T,P]? h_last_grad[B,P]? cs_last_grad[B,H]? "
    "cs_grad[K*T,B,H|B,K*T,H]? w_p[P,H]?P=H "
    "recurrent_dropout[4,B,P]?" BLOCKRNN_ZONEOUT_STATES;
#define BLOCKRNN_LAYER_NORM \
  "epsilon: float = 0.001;norm_output_only: bool = false;"
#define BLOCKRNN_LAYER_NORM_LSTM_INPUTS                                     \
  "x[T,B,I|B,T,I] h_prev[B,H] cs_prev[B,H] w_x[I,4H]?I=4H w_h[H,4H] b[4H] " \
  "gamma_x[4H] beta_x[4H] gamma_h[4H] beta_h[4H] gamma_c[H] "               \
  "beta_c[H] " BLOCKRNN_ROWS
#define BLOCKRNN_LAYER_NORM_LSTM_GRADS                          \
  "x_grad=x h_prev_grad[B,H] cs_prev_grad[B,H] w_x_grad=w_x "   \
  "w_h_grad[H,4H] b_grad[4H] gamma_x_grad[4H] beta_x_grad[4H] " \
  "gamma_h_grad[4H] beta_h_grad[4H] gamma_c_grad[H] beta_c_grad[H]"
#define BLOCKRNN_LAYER_NORM_GRU_INPUTS                           \
  "x[T,B,I|B,T,I] h_prev[B,H] w_x[I,3H]?I=3H w_h[H,3H] b_x[3H] " \
  "b_h[3H] gamma_x[3H] beta_x[3H] gamma_h[3H] beta_h[3H] " BLOCKRNN_ROWS
#define BLOCKRNN_LAYER_NORM_GRU_GRADS                                   \
  "x_grad=x h_prev_grad[B,H] w_x_grad=w_x w_h_grad[H,3H] b_x_grad[3H] " \
  "b_h_grad[3H] gamma_x_grad[3H] beta_x_grad[3H] gamma_h_grad[3H] "     \
  "beta_h_grad[3H]"
inline constexpr char kGruSequenceInputs[] =
    "x[T,B,I|B,T,I] h_prev[B,H] w_ru_x[I,2H]?I=3H w_ru_h[H,2H] "
    "w_c_x[I,H]?I=3H w_c_h[H,H] b_ru[2H] b_c[H] " BLOCKRNN_ROWS
    " recurrent_dropout[3,B,H]?" BLOCKRNN_ZONEOUT_H;
inline constexpr char kGruSequenceGradInputs[] =
    "x[T,B,I|B,T,I] h_prev[B,H] w_ru_x[I,2H]?I=3H w_ru_h[H,2H] "
    "w_c_x[I,H]?I=3H w_c_h[H,H] b_ru[2H]?K=1 b_c[H]?K=1 " BLOCKRNN_ROWS
    " h[T,B,H|B,T,H] r[K*T,B,H|B,K*T,H] u[K*T,B,H|B,K*T,H] "
    "c[K*T,B,H|B,K*T,H] span_states[N] h_grad[T,B,H|B,T,H]? h_last_grad[B,H]? "
    "recurrent_dropout[3,B,H]?" BLOCKRNN_ZONEOUT_H;

// The cuDNN family in TensorFlow's versions 1 and 2, and in version 3, which
// may be batch-major. P is H without a projection.
#define BLOCKRNN_CUDNN_INPUTS \
  "input[T,B,I] input_h[L*D,B,P] input_c[L*D,B,H]! params[?]"
#define BLOCKRNN_CUDNN_INPUTS_V3                 \
  "input[T,B,I|B,T,I] input_h[L*D,B,P|B,L*D,P] " \
  "input_c[L*D,B,H|B,L*D,H]! params[?] sequence_lengths:int32@host[B]"
#define BLOCKRNN_CUDNN_STATES \
  "output_h=input_h output_c=input_c! reserve_space[S]"
#define BLOCKRNN_CUDNN_FORWARDED                           \
  " output[T,B,D*P] output_h[L*D,B,P] output_c[L*D,B,H]! " \
  "output_backprop[T,B,D*P] output_h_backprop[L*D,B,P] "   \
  "output_c_backprop[L*D,B,H]! reserve_space[?]"
#define BLOCKRNN_CUDNN_FORWARDED_V3                              \
  " output[T,B,D*P|B,T,D*P] output_h[L*D,B,P|B,L*D,P] "          \
  "output_c[L*D,B,H|B,L*D,H]! output_backprop[T,B,D*P|B,T,D*P] " \
  "output_h_backprop[L*D,B,P|B,L*D,P] "                          \
  "output_c_backprop[L*D,B,H|B,L*D,H]! reserve_space[?]"
#define BLOCKRNN_CUDNN_GRADS                       \
  "input_backprop=input input_h_backprop=input_h " \
  "input_c_backprop=input_c params_backprop=params"
#define BLOCKRNN_HOST_RESERVED " host_reserved:int8@host[0]"

}  // namespace op_table

// clang-format off
inline constexpr OpSpec kOpTable[] = {
    {"GRUBlockCell",
     "x[B,I] h_prev[B,H] w_ru[I+H,2H] w_c[I+H,H] b_ru[2H] b_c[H]",
     "r[B,H] u[B,H] c[B,H] h[B,H]",
     BLOCKRNN_T},
    {"GRUBlockCellGrad",
     "x[B,I] h_prev[B,H] w_ru[I+H,2H] w_c[I+H,H] b_ru[2H] b_c[H] "
     "r[B,H] u[B,H] c[B,H] d_h[B,H]",
     "d_x[B,I] d_h_prev[B,H] d_c_bar[B,H] d_r_bar_u_bar[B,2H]",
     BLOCKRNN_T},
    {"LSTMBlockCell",
     "x[B,I] " BLOCKRNN_LSTM_CELL_INPUTS,
     "i[B,H] cs[B,H] f[B,H] o[B,H] ci[B,H] co[B,H] h[B,H]",
     "forget_bias: float = 1.0;"
     "cell_clip: float = 3.0;"
     "use_peephole: bool = false;"
     BLOCKRNN_T,
     "use_peephole"},
    {"LSTMBlockCellGrad",
     "x[B,I] " BLOCKRNN_LSTM_CELL_INPUTS
     " i[B,H] cs[B,H] f[B,H] o[B,H] ci[B,H] co[B,H] cs_grad[B,H] h_grad[B,H]",
     "cs_prev_grad[B,H] dicfo[B,4H] wci_grad=wci wcf_grad=wcf wco_grad=wco",
     "use_peephole: bool;"
     BLOCKRNN_T,
     "use_peephole"},

    {"BlockGRU",
     "seq_len_max:int64@host[] x[T,B,I] h_prev[B,H] w_ru[I+H,2H] w_c[I+H,H] "
     "b_ru[2H] b_c[H]",
     "r[T,B,H] u[T,B,H] c[T,B,H] h[T,B,H]",
     BLOCKRNN_T},
    {"BlockGRUGrad",
     "seq_len_max:int64@host[] x[T,B,I] h_prev[B,H] w_ru[I+H,2H] w_c[I+H,H] "
     "b_ru[2H] b_c[H] r[T,B,H] u[T,B,H] c[T,B,H] h[T,B,H] h_grad[T,B,H]",
     "x_grad[T,B,I] h_prev_grad[B,H] w_ru_grad[I+H,2H] w_c_grad[I+H,H] "
     "b_ru_grad[2H] b_c_grad[H]",
     BLOCKRNN_T},
    {"BlockLSTM",
     BLOCKRNN_BLOCK_LSTM_INPUTS,
     BLOCKRNN_LSTM_STEPS,
     "forget_bias: float = 1.0;"
     "cell_clip: float = 3.0;"
     "use_peephole: bool = false;"
     BLOCKRNN_T,
     "use_peephole"},
    {"BlockLSTMGrad",
     BLOCKRNN_BLOCK_LSTM_INPUTS " " BLOCKRNN_LSTM_STEPS
     " cs_grad[T,B,H] h_grad[T,B,H]",
     BLOCKRNN_BLOCK_LSTM_GRADS,
     "use_peephole: bool;"
     BLOCKRNN_T,
     "use_peephole"},
    {"BlockLSTMV2",
     BLOCKRNN_BLOCK_LSTM_INPUTS,
     BLOCKRNN_LSTM_STEPS,
     "cell_clip: float = 0.0;"
     "use_peephole: bool = false;"
     BLOCKRNN_T,
     "use_peephole"},
    {"BlockLSTMGradV2",
     BLOCKRNN_BLOCK_LSTM_INPUTS " " BLOCKRNN_LSTM_STEPS
     " cs_grad[T,B,H] h_grad[T,B,H]",
     BLOCKRNN_BLOCK_LSTM_GRADS,
     "use_peephole: bool;"
     BLOCKRNN_T,
     "use_peephole"},

    {"GRUSequence",
     op_table::kGruSequenceInputs,
     "h[T,B,H|B,T,H] h_last[B,H] r[K*T,B,H|B,K*T,H] u[K*T,B,H|B,K*T,H] "
     "c[K*T,B,H|B,K*T,H] span_states[N]",
     BLOCKRNN_ORDER
     BLOCKRNN_ZONEOUT
     "is_training: bool = true;"
     BLOCKRNN_RECOMPUTE
     BLOCKRNN_FROZEN
     BLOCKRNN_SEQUENCE_TYPES,
     "time_major",
     &LeftOutTogether<IndexIn(op_table::kGruSequenceInputs, "w_ru_x"),
                      IndexIn(op_table::kGruSequenceInputs, "w_c_x")>},
    {"GRUSequenceGrad",
     op_table::kGruSequenceGradInputs,
     "x_grad=x h_prev_grad[B,H] w_ru_x_grad=w_ru_x w_ru_h_grad[H,2H] "
     "w_c_x_grad=w_c_x w_c_h_grad[H,H] b_ru_grad[2H] b_c_grad[H]",
     BLOCKRNN_ORDER
     BLOCKRNN_ZONEOUT
     BLOCKRNN_RECOMPUTE
     BLOCKRNN_SEQUENCE_TYPES,
     "time_major",
     &LeftOutTogether<IndexIn(op_table::kGruSequenceGradInputs, "w_ru_x"),
                      IndexIn(op_table::kGruSequenceGradInputs, "w_c_x")>},
    {"GRUAfterSequence",
     "x[T,B,I|B,T,I] h_prev[B,H] w_x[I,3H]?I=3H w_h[H,3H] b_x[3H] b_h[3H] "
     BLOCKRNN_ROWS " recurrent_dropout[3,B,H]?" BLOCKRNN_ZONEOUT_H,
     "h[T,B,H|B,T,H] h_last[B,H] r[K*T,B,H|B,K*T,H] u[K*T,B,H|B,K*T,H] "
     "c[K*T,B,H|B,K*T,H] hc[K*T,B,H|B,K*T,H] span_states[N]",
     "gate_order: {'ruc', 'urc'} = 'ruc';"
     BLOCKRNN_ORDER
     BLOCKRNN_ZONEOUT
     "is_training: bool = true;"
     BLOCKRNN_RECOMPUTE
     BLOCKRNN_FROZEN
     BLOCKRNN_SEQUENCE_TYPES,
     "time_major"},
    {"GRUAfterSequenceGrad",
     "x[T,B,I|B,T,I] h_prev[B,H] w_x[I,3H]?I=3H w_h[H,3H] "
     "b_x[3H]?K=1 b_h[3H]?K=1 " BLOCKRNN_ROWS
     " h[T,B,H|B,T,H] r[K*T,B,H|B,K*T,H] u[K*T,B,H|B,K*T,H] "
     "c[K*T,B,H|B,K*T,H] hc[K*T,B,H|B,K*T,H] span_states[N] "
     "h_grad[T,B,H|B,T,H]? h_last_grad[B,H]? "
     "recurrent_dropout[3,B,H]?" BLOCKRNN_ZONEOUT_H,
     "x_grad=x h_prev_grad[B,H] w_x_grad=w_x w_h_grad[H,3H] b_x_grad[3H] "
     "b_h_grad[3H]",
     "gate_order: {'ruc', 'urc'} = 'ruc';"
     BLOCKRNN_ORDER
     BLOCKRNN_ZONEOUT
     BLOCKRNN_RECOMPUTE
     BLOCKRNN_SEQUENCE_TYPES,
     "time_major"},
    {"LSTMSequence",
     op_table::kLstmSequenceInputs,
     "h[T,B,P|B,T,P] h_last[B,P] cs_last[B,H] i[K*T,B,H|B,K*T,H] "
     "cs[K*T,B,H|B,K*T,H] f[K*T,B,H|B,K*T,H] o[K*T,B,H|B,K*T,H] "
     "ci[K*T,B,H|B,K*T,H] span_states[N]",
     "forget_bias: float = 0.0;"
     "cell_clip: float = 0.0;"
     BLOCKRNN_ORDER
     BLOCKRNN_LSTM_ZONEOUT
     "is_training: bool = true;"
     BLOCKRNN_RECOMPUTE
     BLOCKRNN_FROZEN
     BLOCKRNN_SEQUENCE_TYPES,
     "time_major",
     &ProjectionAt<IndexIn(op_table::kLstmSequenceInputs, "w_p")>},
    {"LSTMSequenceGrad",
     op_table::kLstmSequenceGradInputs,
     "x_grad=x h_prev_grad[B,P] cs_prev_grad[B,H] w_x_grad=w_x "
     "w_h_grad[P,4H] b_grad[4H] peepholes_grad=peepholes w_p_grad=w_p",
     "forget_bias: float = 0.0;"
     "cell_clip: float = 0.0;"
     BLOCKRNN_ORDER
     BLOCKRNN_LSTM_ZONEOUT
     BLOCKRNN_RECOMPUTE
     BLOCKRNN_SEQUENCE_TYPES,
     "time_major",
     &ProjectionAt<IndexIn(op_table::kLstmSequenceGradInputs, "w_p")>},
    {"LayerNormLSTMSequence",
     BLOCKRNN_LAYER_NORM_LSTM_INPUTS " recurrent_dropout[4,B,H]?",
     "h[T,B,H|B,T,H] h_last[B,H] cs_last[B,H] x_hat[K*T,B,4H|B,K*T,4H] "
     "h_hat[K*T,B,4H|B,K*T,4H] rstd[K*T,B,2|B,K*T,2] cs[K*T,B,H|B,K*T,H] "
     "span_states[N]",
     BLOCKRNN_LAYER_NORM
     BLOCKRNN_ORDER
     "is_training: bool = true;"
     BLOCKRNN_RECOMPUTE
     BLOCKRNN_FROZEN
     BLOCKRNN_SEQUENCE_TYPES,
     "time_major"},
    {"LayerNormLSTMSequenceGrad",
     BLOCKRNN_LAYER_NORM_LSTM_INPUTS
     " h[T,B,H|B,T,H] x_hat[K*T,B,4H|B,K*T,4H] h_hat[K*T,B,4H|B,K*T,4H] "
     "rstd[K*T,B,2|B,K*T,2] cs[K*T,B,H|B,K*T,H] span_states[N] "
     "h_grad[T,B,H|B,T,H]? h_last_grad[B,H]? cs_last_grad[B,H]? "
     "cs_grad[K*T,B,H|B,K*T,H]? "
     "recurrent_dropout[4,B,H]?",
     BLOCKRNN_LAYER_NORM_LSTM_GRADS,
     BLOCKRNN_LAYER_NORM
     BLOCKRNN_ORDER
     BLOCKRNN_RECOMPUTE
     BLOCKRNN_SEQUENCE_TYPES,
     "time_major"},
    {"LayerNormGRUSequence",
     BLOCKRNN_LAYER_NORM_GRU_INPUTS " recurrent_dropout[3,B,H]?",
     "h[T,B,H|B,T,H] h_last[B,H] x_hat[K*T,B,3H|B,K*T,3H] "
     "h_hat[K*T,B,3H|B,K*T,3H] rstd[K*T,B,2|B,K*T,2] span_states[N]",
     "gate_order: {'ruc', 'urc'} = 'ruc';"
     "epsilon: float = 0.001;"
     BLOCKRNN_ORDER
     "is_training: bool = true;"
     BLOCKRNN_RECOMPUTE
     BLOCKRNN_FROZEN
     BLOCKRNN_SEQUENCE_TYPES,
     "time_major"},
    {"LayerNormGRUSequenceGrad",
     BLOCKRNN_LAYER_NORM_GRU_INPUTS
     " h[T,B,H|B,T,H] x_hat[K*T,B,3H|B,K*T,3H] h_hat[K*T,B,3H|B,K*T,3H] "
     "rstd[K*T,B,2|B,K*T,2] span_states[N] h_grad[T,B,H|B,T,H]? "
     "h_last_grad[B,H]? "
     "recurrent_dropout[3,B,H]?",
     BLOCKRNN_LAYER_NORM_GRU_GRADS,
     "gate_order: {'ruc', 'urc'} = 'ruc';"
     "epsilon: float = 0.001;"
     BLOCKRNN_ORDER
     BLOCKRNN_RECOMPUTE
     BLOCKRNN_SEQUENCE_TYPES,
     "time_major"},
    {"RNNSequence",
     "x[T,B,I|B,T,I] h_prev[B,H] w_x[I,H]?I=H w_h[H,H] b[H] " BLOCKRNN_ROWS
     " recurrent_dropout[1,B,H]?",
     "h[T,B,H|B,T,H] h_last[B,H]",
     "activation: {'tanh', 'relu'} = 'tanh';"
     BLOCKRNN_ORDER
     BLOCKRNN_FROZEN
     BLOCKRNN_SEQUENCE_TYPES,
     "time_major"},
    {"RNNSequenceGrad",
     "x[T,B,I|B,T,I] h_prev[B,H] w_x[I,H]?I=H w_h[H,H] " BLOCKRNN_ROWS
     " h[T,B,H|B,T,H] h_grad[T,B,H|B,T,H]? h_last_grad[B,H]? "
     "recurrent_dropout[1,B,H]?",
     "x_grad=x h_prev_grad[B,H] w_x_grad=w_x w_h_grad[H,H] b_grad[H]",
     "activation: {'tanh', 'relu'} = 'tanh';"
     BLOCKRNN_ORDER
     BLOCKRNN_SEQUENCE_TYPES,
     "time_major"},

    {"CudnnRNN",
     BLOCKRNN_CUDNN_INPUTS,
     "output[T,B,D*P] " BLOCKRNN_CUDNN_STATES,
     BLOCKRNN_T
     BLOCKRNN_RNN_ATTRS
     "is_training: bool = true",
     nullptr, nullptr, &CudnnRnnShapes, kStateful | kServesTensorFlow},
    {"CudnnRNNV2",
     BLOCKRNN_CUDNN_INPUTS,
     "output[T,B,D*P] " BLOCKRNN_CUDNN_STATES BLOCKRNN_HOST_RESERVED,
     BLOCKRNN_T
     BLOCKRNN_RNN_ATTRS
     "is_training: bool = true",
     nullptr, nullptr, &CudnnRnnShapes, kStateful | kServesTensorFlow},
    {"CudnnRNNV3",
     BLOCKRNN_CUDNN_INPUTS_V3,
     "output[T,B,D*P|B,T,D*P] " BLOCKRNN_CUDNN_STATES BLOCKRNN_HOST_RESERVED,
     BLOCKRNN_T
     BLOCKRNN_RNN_ATTRS
     "num_proj: int = 0;"
     "is_training: bool = true;"
     "time_major: bool = true",
     "time_major", nullptr, &CudnnRnnShapes, kStateful | kServesTensorFlow},
    {"CudnnRNNBackprop",
     BLOCKRNN_CUDNN_INPUTS BLOCKRNN_CUDNN_FORWARDED,
     BLOCKRNN_CUDNN_GRADS,
     BLOCKRNN_T
     BLOCKRNN_RNN_ATTRS,
     nullptr, nullptr, &CudnnRnnShapes, kStateful | kServesTensorFlow},
    {"CudnnRNNBackpropV2",
     BLOCKRNN_CUDNN_INPUTS BLOCKRNN_CUDNN_FORWARDED BLOCKRNN_HOST_RESERVED,
     BLOCKRNN_CUDNN_GRADS,
     BLOCKRNN_T
     BLOCKRNN_RNN_ATTRS,
     nullptr, nullptr, &CudnnRnnShapes, kStateful | kServesTensorFlow},
    {"CudnnRNNBackpropV3",
     BLOCKRNN_CUDNN_INPUTS_V3 BLOCKRNN_CUDNN_FORWARDED_V3
     BLOCKRNN_HOST_RESERVED,
     BLOCKRNN_CUDNN_GRADS,
     BLOCKRNN_T
     BLOCKRNN_RNN_ATTRS
     "num_proj: int = 0;"
     "time_major: bool = true",
     "time_major", nullptr, &CudnnRnnShapes, kStateful | kServesTensorFlow},

    {"CudnnRNNParamsSize",
     BLOCKRNN_NETWORK,
     "params_size:S@host[1]",
     BLOCKRNN_T
     "S: {int32, int64};"
     BLOCKRNN_RNN_ATTRS
     "num_proj: int = 0",
     nullptr, nullptr, &ParamsSizeShapes, kServesTensorFlow},
    {"CudnnRNNParamsToCanonical",
     BLOCKRNN_NETWORK " params[?]",
     "weights:num_params*T[*] biases:num_params*T[*]",
     BLOCKRNN_T
     "num_params: int >= 1;"
     BLOCKRNN_RNN_ATTRS,
     nullptr, nullptr, &ToCanonicalShapes, kServesTensorFlow},
    {"CudnnRNNParamsToCanonicalV2",
     BLOCKRNN_NETWORK " params[?]",
     "weights:num_params_weights*T[*] biases:num_params_biases*T[*]",
     BLOCKRNN_T
     "num_params_weights: int >= 1;"
     "num_params_biases: int >= 1;"
     BLOCKRNN_RNN_ATTRS
     "num_proj: int = 0",
     nullptr, nullptr, &ToCanonicalShapes, kServesTensorFlow},
    {"CudnnRNNCanonicalToParams",
     BLOCKRNN_NETWORK " weights:num_params*T[*] biases:num_params*T[*]",
     "params[?]",
     BLOCKRNN_T
     "num_params: int >= 1;"
     BLOCKRNN_RNN_ATTRS,
     nullptr, nullptr, &FromCanonicalShapes, kServesTensorFlow},
    {"CudnnRNNCanonicalToParamsV2",
     BLOCKRNN_NETWORK
     " weights:num_params_weights*T[*] biases:num_params_biases*T[*]",
     "params[?]",
     BLOCKRNN_T
     "num_params_weights: int >= 1;"
     "num_params_biases: int >= 1;"
     BLOCKRNN_RNN_ATTRS
     "num_proj: int = 0",
     nullptr, nullptr, &FromCanonicalShapes, kServesTensorFlow},
};
// clang-format on

#undef BLOCKRNN_T
#undef BLOCKRNN_SEQUENCE_TYPES
#undef BLOCKRNN_ORDER
#undef BLOCKRNN_RECOMPUTE
#undef BLOCKRNN_ZONEOUT
#undef BLOCKRNN_LSTM_ZONEOUT
#undef BLOCKRNN_FROZEN
#undef BLOCKRNN_RNN_ATTRS
#undef BLOCKRNN_LSTM_CELL_INPUTS
#undef BLOCKRNN_LSTM_STEPS
#undef BLOCKRNN_BLOCK_LSTM_INPUTS
#undef BLOCKRNN_BLOCK_LSTM_GRADS
#undef BLOCKRNN_LAYER_NORM
#undef BLOCKRNN_LAYER_NORM_LSTM_INPUTS
#undef BLOCKRNN_LAYER_NORM_LSTM_GRADS
#undef BLOCKRNN_ROWS
#undef BLOCKRNN_ZONEOUT_H
#undef BLOCKRNN_ZONEOUT_STATES
#undef BLOCKRNN_NETWORK
#undef BLOCKRNN_CUDNN_INPUTS
#undef BLOCKRNN_CUDNN_INPUTS_V3
#undef BLOCKRNN_CUDNN_STATES
#undef BLOCKRNN_CUDNN_FORWARDED
#undef BLOCKRNN_CUDNN_FORWARDED_V3
#undef BLOCKRNN_CUDNN_GRADS
#undef BLOCKRNN_HOST_RESERVED

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
