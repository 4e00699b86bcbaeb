// Declares the choice of the CUDA engine: of the libraries beside this one that
// are built with CUDA (libblockrnn_cuda<major version>.so), the newest that the
// driver runs. It is opened when a GPU kernel is made for the first time, which
// happens only where TensorFlow sees a GPU; finding it costs no CUDA context.

#ifndef BLOCKRNN_LOADER_CUDA_ENGINE_LOADER_H_
#define BLOCKRNN_LOADER_CUDA_ENGINE_LOADER_H_

#include <string>

#include "cc/kernels/cuda/engine.h"
#include "cc/loader/open_engine.h"

namespace blockrnn {

struct CudaEngineChoice {
  std::string path;     // of the library; "" if there is none
  std::string problem;  // why there is none
  // Whether there would be one, were the driver newer.
  bool driver_is_too_old = false;
};

// Without a driver any library will do: no kernel will be made. The same on
// every call.
const CudaEngineChoice& ChosenCudaEngine();

// The engine, opened on the first call; later calls return the same.
const OpenedEngine<cuda::Engine>& CudaEngine();

}  // namespace blockrnn

extern "C" {

// Why the ops have no kernels for GPUs here, or "" if they have.
const char* blockrnn_cuda_problem();

}  // extern "C"

#endif  // BLOCKRNN_LOADER_CUDA_ENGINE_LOADER_H_
