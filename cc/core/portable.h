// Defines the macro with which an equation compiles for a host and for a GPU.

#ifndef BLOCKRNN_CORE_PORTABLE_H_
#define BLOCKRNN_CORE_PORTABLE_H_

#if defined(__CUDACC__)
#define BLOCKRNN_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define BLOCKRNN_HOST_DEVICE inline __attribute__((always_inline))
#endif

#endif  // BLOCKRNN_CORE_PORTABLE_H_
