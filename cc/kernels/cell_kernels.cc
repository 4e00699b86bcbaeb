// Registers the kernels of the cells' ops, of one step and of sequences: the
// row of the op table, the argument struct of the engine function, and where
// the names of the two differ.

#include "cc/core/gru_cell.h"
#include "cc/core/layer_norm.h"
#include "cc/core/lstm_cell.h"
#include "cc/core/simple_rnn_cell.h"
#include "cc/kernels/engine_kernel.h"

namespace blockrnn {
namespace {

constexpr Mapping kGruCellGrad = {{"", "x b_ru b_c"}};
constexpr Mapping kLstmCellGrad = {{"", "x h_prev w b"}};

// The weights hold the rows of x and those of h_prev in one array.
constexpr Mapping kBlockGru = {
    {"w_x=w_ru w_h=w_ru+2I*H w_c_x=w_c w_c_h=w_c+I*H b=b_ru"}};
constexpr Mapping kBlockGruGrad = {
    {"w_x=w_ru w_h=w_ru+2I*H w_c_x=w_c w_c_h=w_c+I*H "
     "w_x_grad=w_ru_grad w_h_grad=w_ru_grad+2I*H "
     "w_c_x_grad=w_c_grad w_c_h_grad=w_c_grad+I*H b_grad=b_ru_grad",
     "b_ru b_c"}};
constexpr FieldNames kBlockLstmNames = {"w_x=w w_h=w+4I*H"};
constexpr FieldNames kBlockLstmGradNames = {
    "w_x=w w_h=w+4I*H w_x_grad=w_grad w_h_grad=w_grad+4I*H", "b"};
constexpr Mapping kBlockLstm = {kBlockLstmNames, kLstmIcfo};
constexpr Mapping kBlockLstmGrad = {kBlockLstmGradNames, kLstmIcfo};
constexpr Mapping kBlockLstmV2 = {kBlockLstmNames};
constexpr Mapping kBlockLstmGradV2 = {kBlockLstmGradNames};

// The three peephole weights are in one array.
constexpr Mapping kLstm = {{"wci=peepholes wcf=peepholes+H wco=peepholes+2H"}};
constexpr Mapping kLstmGrad = {
    {"wci=peepholes wcf=peepholes+H wco=peepholes+2H wci_grad=peepholes_grad "
     "wcf_grad=peepholes_grad+H wco_grad=peepholes_grad+2H"}};

[[maybe_unused]] const bool registered[] = {
    RegisterEngineKernel<RowAt("GRUBlockCell"), GruCellForwardArgs>(),
    RegisterEngineKernel<RowAt("GRUBlockCellGrad"), GruCellBackwardArgs,
                         kGruCellGrad>(),
    RegisterEngineKernel<RowAt("LSTMBlockCell"), LstmCellForwardArgs>(),
    RegisterEngineKernel<RowAt("LSTMBlockCellGrad"), LstmCellBackwardArgs,
                         kLstmCellGrad>(),

    RegisterEngineKernel<RowAt("BlockGRU"), GruSequenceForwardArgs,
                         kBlockGru>(),
    RegisterEngineKernel<RowAt("BlockGRUGrad"), GruSequenceBackwardArgs,
                         kBlockGruGrad>(),
    RegisterEngineKernel<RowAt("BlockLSTM"), LstmSequenceForwardArgs,
                         kBlockLstm>(),
    RegisterEngineKernel<RowAt("BlockLSTMGrad"), LstmSequenceBackwardArgs,
                         kBlockLstmGrad>(),
    RegisterEngineKernel<RowAt("BlockLSTMV2"), LstmSequenceForwardArgs,
                         kBlockLstmV2>(),
    RegisterEngineKernel<RowAt("BlockLSTMGradV2"), LstmSequenceBackwardArgs,
                         kBlockLstmGradV2>(),

    RegisterEngineKernel<RowAt("GRUSequence"), GruSequenceForwardArgs>(),
    RegisterEngineKernel<RowAt("GRUSequenceGrad"), GruSequenceBackwardArgs>(),
    RegisterEngineKernel<RowAt("GRUAfterSequence"),
                         GruAfterSequenceForwardArgs>(),
    RegisterEngineKernel<RowAt("GRUAfterSequenceGrad"),
                         GruAfterSequenceBackwardArgs>(),
    RegisterEngineKernel<RowAt("LSTMSequence"), LstmSequenceForwardArgs,
                         kLstm>(),
    RegisterEngineKernel<RowAt("LSTMSequenceGrad"), LstmSequenceBackwardArgs,
                         kLstmGrad>(),
    RegisterEngineKernel<RowAt("LayerNormLSTMSequence"),
                         LayerNormLstmForwardArgs>(),
    RegisterEngineKernel<RowAt("LayerNormLSTMSequenceGrad"),
                         LayerNormLstmBackwardArgs>(),
    RegisterEngineKernel<RowAt("LayerNormGRUSequence"),
                         LayerNormGruForwardArgs>(),
    RegisterEngineKernel<RowAt("LayerNormGRUSequenceGrad"),
                         LayerNormGruBackwardArgs>(),
    RegisterEngineKernel<RowAt("RNNSequence"), SimpleRnnForwardArgs>(),
    RegisterEngineKernel<RowAt("RNNSequenceGrad"), SimpleRnnBackwardArgs>(),
};

}  // namespace
}  // namespace blockrnn
