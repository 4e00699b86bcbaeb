// Includes the headers of XLA and of TensorFlow's part that lowers ops to it.

#ifndef BLOCKRNN_XLA_XLA_HEADERS_H_
#define BLOCKRNN_XLA_XLA_HEADERS_H_

#include "tensorflow/core/public/version.h"
#include "xla/ffi/api/c_api.h"

#if TF_MAJOR_VERSION == 2 && TF_MINOR_VERSION == 19
// This header needs LLVM's headers, which the wheel lacks. Other headers use it
// only as the parameter of a function that nothing here calls.
#define XLA_STREAM_EXECUTOR_GPU_TMA_METADATA_H_
namespace stream_executor::gpu {
class TmaDescriptor {};
}  // namespace stream_executor::gpu
#endif

// These two take the compiler longer than all that follows, and are here for
// pointers only.
#define XLA_CLIENT_CLIENT_H_
#define XLA_CLIENT_LOCAL_CLIENT_H_
namespace xla {
class Client;
class LocalClient;
}  // namespace xla

#include "tensorflow/compiler/tf2xla/type_util.h"
#include "tensorflow/compiler/tf2xla/xla_op_kernel.h"
#include "tensorflow/compiler/tf2xla/xla_op_registry.h"
#include "xla/hlo/builder/xla_builder.h"
#include "xla/shape_util.h"

// As in xla/ffi/ffi_api.h, which includes headers of MLIR that the wheels lack.
namespace xla::ffi {
const XLA_FFI_Api* GetXlaFfiApi();
}  // namespace xla::ffi

#endif  // BLOCKRNN_XLA_XLA_HEADERS_H_
