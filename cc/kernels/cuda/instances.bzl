"""The sources that instantiate the engine's functions: one for each cell, or for each direction of a cell whose kernels
take long to compile, so that nvcc's work is parallel.

tests/gpu/run.py reads this file as Python.
"""

# Of each source the header of its cell, the structs of arguments, and those that stacks run in both directions.
_INSTANCES = {
    "gru_block_cell": ("gru_block_cell", ["GruCellForwardArgs", "GruCellBackwardArgs"], []),
    "lstm_block_cell": ("lstm_block_cell", ["LstmCellForwardArgs", "LstmCellBackwardArgs"], []),
    "gru_forward": ("gru_sequence_forward", ["GruSequenceForwardArgs"], []),
    "gru_backward": ("gru_sequence_backward", ["GruSequenceBackwardArgs"], []),
    "gru_after_forward": ("gru_after_sequence", [], ["GruAfterSequenceForwardArgs"]),
    "gru_after_backward": ("gru_after_sequence", [], ["GruAfterSequenceBackwardArgs"]),
    "lstm_forward": ("lstm_sequence_forward", [], ["LstmSequenceForwardArgs"]),
    "lstm_backward": ("lstm_sequence_backward", [], ["LstmSequenceBackwardArgs"]),
    "simple_rnn": ("simple_rnn_sequence", [], ["SimpleRnnForwardArgs", "SimpleRnnBackwardArgs"]),
    "layer_norm_lstm_forward": ("layer_norm_lstm_forward", ["LayerNormLstmForwardArgs"], []),
    "layer_norm_lstm_backward": ("layer_norm_lstm_backward", ["LayerNormLstmBackwardArgs"], []),
    "layer_norm_gru": ("layer_norm_gru", ["LayerNormGruForwardArgs", "LayerNormGruBackwardArgs"], []),
}
_TYPES = ["Eigen::half", "Eigen::bfloat16", "float", "double"]

def instance_sources():
    """The text of each source by its name."""
    sources = {}
    for name in _INSTANCES:
        cell, alone, in_stacks = _INSTANCES[name]
        lines = ["#include \"cc/kernels/cuda/%s.cuh\"" % header for header in ("cells/" + cell, "run")]
        lines.append("namespace blockrnn::cuda {")
        for args in ["const %s<%s>&" % (args, type) for args in alone + in_stacks for type in _TYPES]:
            lines.append("template Error Run(%s, const HostInterface&);" % args)
        for args in ["const %s<%s>&" % (args, type) for args in in_stacks for type in _TYPES]:
            lines.append("template Error RunDirections(%s, %s, const HostInterface&, bool*);" % (args, args))
        lines.append("}  // namespace blockrnn::cuda")
        sources[name + ".cu.cc"] = "\n".join(lines) + "\n"
    return sources
