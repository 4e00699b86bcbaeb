"""Writes _build_info.json: what the libraries were built from, for the loader and the doctor."""

load(
    "@local_cuda//:facts.bzl",
    "CUDA_ARCHITECTURES",
    "CUDA_MISSING",
    "CUDA_VERSION",
)
load("@local_tensorflow//:facts.bzl", "TENSORFLOW_VERSION")
load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

def _build_info_impl(ctx):
    output = ctx.actions.declare_file("_build_info.json")
    facts = json.encode({
        "tensorflow": [TENSORFLOW_VERSION],
        "compiler": "@COMPILER@",
        "cuda": {
            "version": CUDA_VERSION,
            "architectures": ["sm_" + a for a in CUDA_ARCHITECTURES],
            "missing": CUDA_MISSING,
        },
    })
    ctx.actions.run_shell(
        outputs = [output],
        arguments = [find_cpp_toolchain(ctx).compiler_executable, facts, output.path],
        command = 'compiler=$("$1" --version | head -n 1) && echo "${2/@COMPILER@/${compiler//\\"/}}" > "$3"',
        mnemonic = "BuildInfo",
    )
    return [DefaultInfo(files = depset([output]))]

build_info = rule(
    implementation = _build_info_impl,
    attrs = {
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
