"""The reference of every cell, once: NumPy float64, written from the equations.

lstm.py, gru.py and simple_rnn.py hold the equations of one step, forward and backward. sequence.py
runs a cell over the steps of a batch, stack.py runs layers of such sequences as the cuDNN ops do,
and block_ops.py gives them the arguments of the block ops. The tests of the CPU, of TensorFlow's
GPU ops and of the CUDA engine without TensorFlow (tests/gpu) all compare with these.

Only NumPy is imported here, and nothing of the package.
"""
