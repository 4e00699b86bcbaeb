// Declares the registration of the kernels with XLA, as custom calls of its
// foreign function interface. The library with the lowerings
// (cc/xla/lowering.cc) calls it, since it links with XLA.

#ifndef BLOCKRNN_XLA_FFI_HANDLERS_H_
#define BLOCKRNN_XLA_FFI_HANDLERS_H_

#include "xla/ffi/api/c_api.h"

namespace blockrnn {

// The attr of a custom call that holds its node: the bytes of the NodeDef, with
// the op's name without our namespace, in Base64.
inline constexpr char kNodeAttr[] = "node";

}  // namespace blockrnn

extern "C" {

// Registers a handler for every op of the table, under its name with our
// namespace. Returns nullptr, or a message that stays valid.
const char* blockrnn_register_ffi_handlers(const XLA_FFI_Api* api);

}  // extern "C"

#endif  // BLOCKRNN_XLA_FFI_HANDLERS_H_
