"""The CUDA engine against PyTorch's cuDNN: `python -m bench.gpu`, without TensorFlow."""
