// Defines the paragraphs that the docs of several ops share.

#ifndef BLOCKRNN_OPS_SHARED_DOCS_H_
#define BLOCKRNN_OPS_SHARED_DOCS_H_

namespace blockrnn {

inline constexpr char kTypesAndSizesDoc[] =
    R"doc(half and bfloat16 are computed in float32. A sequence, batch, input or state of
size 0 is allowed.
)doc";

inline constexpr char kStockDoc[] =
    R"doc(The signature is that of TensorFlow's op of the same name, with more types.
half and bfloat16 are computed in float32. A sequence, batch, input or state of
size 0 is allowed.
)doc";

inline constexpr char kSeqLenMaxDoc[] =
    R"doc(Steps from seq_len_max on are not computed; all outputs are zeros there.
)doc";

inline constexpr char kSeqLenMaxGradDoc[] =
    R"doc(Nothing is read of the steps from seq_len_max on, and x_grad is zeros there.
)doc";

inline constexpr char kRecurrentDropoutDoc[] =
    R"doc(Recurrent dropout (Gal and Ghahramani 2016, arXiv:1512.05287) multiplies h_prev
by factors in its GEMM with the weights: other factors for each gate, the same
at all steps.
)doc";

inline constexpr char kZoneoutDoc[] =
    R"doc(Zoneout (Krueger et al. 2016, arXiv:1606.01305) then puts the h before the step
in place of the new one where zoneout_h is true; or, where zoneout_h is left
out, h = zoneout_rate_h · h_prev + (1 − zoneout_rate_h) · h, the mean over draws
of that rate.
)doc";

inline constexpr char kZoneoutOfStatesDoc[] =
    R"doc(Zoneout (Krueger et al. 2016, arXiv:1606.01305) then puts the h before the step
in place of the new one where zoneout_h is true; or, where zoneout_h is left
out, h = zoneout_rate_h · h_prev + (1 − zoneout_rate_h) · h, the mean over draws
of that rate. The same with zoneout_c and zoneout_rate_c for cs; h is made of
the new cs, before its zoneout. With a projection zoneout_h is that of the
projected h.
)doc";

inline constexpr char kZoneoutGradDoc[] =
    R"doc(Where zoneout has left a state as it was, its gradient goes to the state before
the step; the mean passes the share zoneout_rate_h, or zoneout_rate_c, of it on.
)doc";

inline constexpr char kSkippedStepsDoc[] =
    R"doc(Where mask is false, the step of that row is skipped: the state stays as it is,
h repeats it, and the saved gates are zeros. From a row's length in
sequence_lengths on there are no steps: x is not read, all outputs are zeros,
and no time is spent. With go_backwards the last step is done first; with
sequence_lengths, the last that the row has. Every output is at the position of
its input, whatever the order.
)doc";

inline constexpr char kMaskedGradDoc[] =
    R"doc(A masked step passes the gradient of the state on unchanged; from a row's
length on x_grad is zeros.
)doc";

inline constexpr char kRecomputeGradDoc[] =
    R"doc(With recompute, that of the forward op, the gates that it has not saved are
computed again from span_states, span after span of steps: the gradient has the
same bits. span_states is empty without recompute.
)doc";

}  // namespace blockrnn

#endif  // BLOCKRNN_OPS_SHARED_DOCS_H_
