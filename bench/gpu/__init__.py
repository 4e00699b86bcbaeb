"""The CUDA engine against cuDNN, which PyTorch runs: `python -m bench.gpu` on a machine with a GPU.

Needs nvcc and a PyTorch with CUDA; no TensorFlow.
"""
