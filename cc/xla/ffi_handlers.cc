#include "cc/xla/ffi_handlers.h"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "cc/kernels/devices.h"
#include "cc/kernels/kernel.h"
#include "cc/ops/op_table.h"
#include "cc/xla/ffi_call.h"
#include "tensorflow/core/framework/node_def.pb.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/types.h"
#include "tensorflow/core/platform/errors.h"

namespace blockrnn {
namespace {

// What XLA keeps of each custom call of a compiled program: it is made when the
// program is, and destroyed with it. Several threads may run one program.
struct CallSite {
  std::unique_ptr<Kernel> kernel;
  std::vector<int> host_inputs;  // the inputs that are in host memory
};

void DeleteCallSite(void* site) { delete static_cast<CallSite*>(site); }

XLA_FFI_TypeId call_site_type = {};

XLA_FFI_ByteSpan Span(std::string_view text) {
  return {text.data(), text.size()};
}

#if XLA_FFI_API_MINOR >= 2
absl::Status RegisterCallSiteType(const XLA_FFI_Api* api) {
  static const XLA_FFI_TypeInfo info = {XLA_FFI_TypeInfo_STRUCT_SIZE, nullptr,
                                        &DeleteCallSite};
  XLA_FFI_Type_Register_Args args = {};
  args.struct_size = XLA_FFI_Type_Register_Args_STRUCT_SIZE;
  args.name = Span("tf_blockrnn_call_site");
  args.type_id = &call_site_type;
  args.type_info = &info;
  return ToStatus(api, api->XLA_FFI_Type_Register(&args));
}
#else
absl::Status RegisterCallSiteType(const XLA_FFI_Api* api) {
  XLA_FFI_TypeId_Register_Args args = {};
  args.struct_size = XLA_FFI_TypeId_Register_Args_STRUCT_SIZE;
  args.name = Span("tf_blockrnn_call_site");
  args.type_id = &call_site_type;
  return ToStatus(api, api->XLA_FFI_TypeId_Register(&args));
}
#endif

// Passes the site to XLA, which then owns it.
absl::Status SetCallSite(XLA_FFI_CallFrame* frame,
                         std::unique_ptr<CallSite> site) {
  XLA_FFI_State_Set_Args args = {};
  args.struct_size = XLA_FFI_State_Set_Args_STRUCT_SIZE;
  args.ctx = frame->ctx;
  args.type_id = &call_site_type;
  args.state = site.get();
#if XLA_FFI_API_MINOR < 2
  args.deleter = &DeleteCallSite;
#endif
  const absl::Status status =
      ToStatus(frame->api, frame->api->XLA_FFI_State_Set(&args));
  if (status.ok()) site.release();
  return status;
}

absl::Status GetCallSite(XLA_FFI_CallFrame* frame, CallSite** site) {
  XLA_FFI_State_Get_Args args = {};
  args.struct_size = XLA_FFI_State_Get_Args_STRUCT_SIZE;
  args.ctx = frame->ctx;
  args.type_id = &call_site_type;
  TF_RETURN_IF_ERROR(
      ToStatus(frame->api, frame->api->XLA_FFI_State_Get(&args)));
  *site = static_cast<CallSite*>(args.state);
  return absl::OkStatus();
}

// Answers XLA when it asks for the version of the interface that a handler was
// compiled with, and for the type of the state that the handler sets. Returns
// whether it asks.
bool IsMetadataQuery(XLA_FFI_CallFrame* frame,
                     [[maybe_unused]] XLA_FFI_TypeId state) {
  XLA_FFI_Extension_Base* const extension = frame->extension_start;
  if (extension == nullptr || extension->type != XLA_FFI_Extension_Metadata) {
    return false;
  }
  XLA_FFI_Metadata* const metadata =
      reinterpret_cast<XLA_FFI_Metadata_Extension*>(extension)->metadata;
  metadata->api_version = {XLA_FFI_Api_Version_STRUCT_SIZE, nullptr,
                           XLA_FFI_API_MAJOR, XLA_FFI_API_MINOR};
  metadata->traits = 0;
#if XLA_FFI_API_MINOR >= 2
  metadata->state_type_id = state;
#endif
  return true;
}

absl::Status GetNode(const XLA_FFI_Attrs& attrs, tensorflow::NodeDef* node) {
  for (int64_t i = 0; i < attrs.size; ++i) {
    const std::string_view name(attrs.names[i]->ptr, attrs.names[i]->len);
    if (name != kNodeAttr || attrs.types[i] != XLA_FFI_AttrType_STRING) {
      continue;
    }
    const auto* value = static_cast<const XLA_FFI_ByteSpan*>(attrs.attrs[i]);
    std::string bytes;
    if (absl::Base64Unescape(std::string_view(value->ptr, value->len),
                             &bytes) &&
        node->ParseFromString(bytes)) {
      return absl::OkStatus();
    }
  }
  return absl::InternalError("tf_blockrnn: a custom call without a node");
}

// Arguments before a list have the indices that they have in the row; no
// argument behind one is in host memory.
std::vector<int> HostInputs(const OpSpec& row) {
  std::vector<int> inputs;
  int index = 0;
  for (std::string_view argument : row.inputs) {
    if (IsOnHost(argument)) inputs.push_back(index);
    ++index;
  }
  return inputs;
}

absl::Status MakeCallSite(const tensorflow::NodeDef& def, const char* device,
                          CallSite* site) {
  tensorflow::DataType type;
  TF_RETURN_IF_ERROR(
      tensorflow::GetNodeAttr(tensorflow::AttrSlice(def), "T", &type));
  const OpSpec* const row = FindRow(def.op());
  const KernelFactory factory = FindKernelFactory(def.op(), type, device);
  if (row == nullptr || factory == nullptr) {
    return absl::InternalError(
        absl::StrCat("tf_blockrnn has no kernel of ", def.op(), " for ",
                     tensorflow::DataTypeString(type), " on ", device));
  }
  KernelNode node(def);
  site->kernel = factory(&node);
  site->host_inputs = HostInputs(*row);
  return node.status();
}

XLA_FFI_Error* Instantiate(XLA_FFI_CallFrame* frame, const char* device) {
  if (IsMetadataQuery(frame, call_site_type)) return nullptr;
  // The kernel does not refer to the node once it is made.
  const absl::Status status = WithoutExceptions([&]() -> absl::Status {
    tensorflow::NodeDef def;
    TF_RETURN_IF_ERROR(GetNode(frame->attrs, &def));
    auto site = std::make_unique<CallSite>();
    TF_RETURN_IF_ERROR(MakeCallSite(def, device, site.get()));
    return SetCallSite(frame, std::move(site));
  });
  return ToError(frame->api, status);
}

template <class Call>
XLA_FFI_Error* Execute(XLA_FFI_CallFrame* frame) {
  if (IsMetadataQuery(frame, {})) return nullptr;
  const absl::Status status = WithoutExceptions([&]() -> absl::Status {
    CallSite* site = nullptr;
    TF_RETURN_IF_ERROR(GetCallSite(frame, &site));
    Call call(frame, site->host_inputs);
    TF_RETURN_IF_ERROR(call.Begin());
    return site->kernel->Run(&call);
  });
  return ToError(frame->api, status);
}

XLA_FFI_Error* InstantiateCpu(XLA_FFI_CallFrame* frame) {
  return Instantiate(frame, tensorflow::DEVICE_CPU);
}

XLA_FFI_Error* InstantiateCuda(XLA_FFI_CallFrame* frame) {
  return Instantiate(frame, tensorflow::DEVICE_GPU);
}

absl::Status RegisterHandler(const XLA_FFI_Api* api, const OpSpec& row,
                             const char* platform,
                             const XLA_FFI_Handler_Bundle& bundle) {
  const std::string name = absl::StrCat(kNamespace, row.name);
  XLA_FFI_Handler_Register_Args args = {};
  args.struct_size = XLA_FFI_Handler_Register_Args_STRUCT_SIZE;
  args.name = Span(name);
  args.platform = Span(platform);
  args.bundle = bundle;
  return ToStatus(api, api->XLA_FFI_Handler_Register(&args));
}

absl::Status RegisterHandlers(const XLA_FFI_Api* api) {
  TF_RETURN_IF_ERROR(RegisterCallSiteType(api));
  for (const OpSpec& row : kOpTable) {
    TF_RETURN_IF_ERROR(RegisterHandler(
        api, row, "Host",
        {&InstantiateCpu, nullptr, nullptr, &Execute<CpuFfiCall>}));
    // The kernel of CudnnRNNParamsSize writes to host memory, and a program has
    // a constant in its place.
    if (!GpuKernelsAreUsable() || &row == &Row("CudnnRNNParamsSize")) continue;
    TF_RETURN_IF_ERROR(RegisterHandler(
        api, row, "CUDA",
        {&InstantiateCuda, nullptr, nullptr, &Execute<CudaFfiCall>}));
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace blockrnn

extern "C" {

__attribute__((visibility("default"))) const char*
blockrnn_register_ffi_handlers(const XLA_FFI_Api* api) {
  static const auto* const failure = [api] {
    const absl::Status status = blockrnn::RegisterHandlers(api);
    return status.ok() ? nullptr : new std::string(status.ToString());
  }();
  return failure == nullptr ? nullptr : failure->c_str();
}

}  // extern "C"
