// Owns one object of all sources that have few kernels or none, *.part.cu.cc:
// nvcc takes longer to read CUDA's headers than for most of them.

#include "cc/kernels/cuda/cublas.part.cu.cc"
#include "cc/kernels/cuda/large_product.part.cu.cc"
#include "cc/kernels/cuda/memory.part.cu.cc"
#include "cc/kernels/cuda/rnn_stack.part.cu.cc"
#include "cc/kernels/cuda/rnn_stack_streams.part.cu.cc"
#include "cc/kernels/cuda/sequence_passes.part.cu.cc"
#include "cc/kernels/cuda/sequence_rows.part.cu.cc"
#include "cc/kernels/cuda/step_loop.part.cu.cc"
#include "cc/kernels/cuda/step_matrix.part.cu.cc"
