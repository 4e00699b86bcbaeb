"""The CUDA engine, a library of its own: nvcc makes the objects, the host compiler links them with the static CUDA runtime."""

load("@local_cuda//:facts.bzl", "CUDA_ARCHITECTURES", "CUDA_LIBRARY_DIRECTORY", "CUDA_NVCC", "CUDA_VERSION")
load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")
load(":instances.bzl", "instance_sources")

# The kernels use no feature newer than Ampere's, so newer architectures are compiled from its PTX: half of nvcc's time
# is spent before ptxas generates the machine code of each architecture.
_NEWEST_USED = 80

def _nvcc_flags():
    flags = [
        "-std=c++17",
        "-O1",  # of host code, which queues; kernels are optimized in any case
        "-Werror=all-warnings",
        "-Xcompiler=-fPIC,-Wall,-Wextra,-Werror,-fvisibility=hidden",
        "--expt-relaxed-constexpr",
        "-Xptxas=-v",
        "-Xfatbin=-compress-all",  # a library of a third of the size
        "-DEIGEN_MAX_ALIGN_BYTES=64",
    ]
    newest = 0
    for architecture in CUDA_ARCHITECTURES:
        ptx = min(int(architecture), _NEWEST_USED)
        newest = max(newest, ptx)
        flags.append("-gencode=arch=compute_{},code=sm_{}".format(ptx, architecture))
    flags.append("-gencode=arch=compute_{0},code=compute_{0}".format(newest))
    return flags

def _cuda_objects_impl(ctx):
    compilation = cc_common.merge_cc_infos(cc_infos = [dep[CcInfo] for dep in ctx.attr.deps]).compilation_context
    includes = []
    for directory in compilation.quote_includes.to_list():
        includes += ["-I", directory]
    for directory in compilation.system_includes.to_list():
        includes += ["-isystem", directory]
    objects = []
    reports = []
    instances = []
    for name, text in instance_sources().items():
        instances.append(ctx.actions.declare_file(name))
        ctx.actions.write(instances[-1], text)
    table_headers = ctx.attr.table_dep[CcInfo].compilation_context.headers
    for source in instances + ctx.files.srcs:
        stem = source.basename[:-len(".cu.cc")]
        own_headers = [table_headers] if stem == "engine" else []
        object = ctx.actions.declare_file(stem + ".cu.o")
        report = ctx.actions.declare_file(stem + ".ptxas.txt")
        ctx.actions.run_shell(
            inputs = depset([source] + ctx.files.hdrs, transitive = [compilation.headers] + own_headers),
            outputs = [object, report],
            # ptxas reports the registers of each kernel. The report is a file, and shown only if the compilation fails.
            command = 'report=$1; shift; "$@" > "$report" 2>&1 || { cat "$report" >&2; exit 1; }',
            arguments = [report.path, CUDA_NVCC, "-ccbin", find_cpp_toolchain(ctx).compiler_executable] +
                        _nvcc_flags() + includes + ["-x", "cu", "-c", source.path, "-o", object.path],
            mnemonic = "CudaCompile",
            use_default_shell_env = True,
        )
        objects.append(object)
        reports.append(report)
    return [
        DefaultInfo(files = depset(objects)),
        OutputGroupInfo(ptxas = depset(reports)),
    ]

_cuda_objects = rule(
    implementation = _cuda_objects_impl,
    attrs = {
        "srcs": attr.label_list(allow_files = [".cu.cc"]),
        "hdrs": attr.label_list(allow_files = True),
        "deps": attr.label_list(providers = [CcInfo]),
        # What engine.cu.cc alone includes: all inputs of an action count, whether a source includes them or not.
        "table_dep": attr.label(providers = [CcInfo]),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
    fragments = ["cpp"],
)

def cuda_engine(name, srcs, hdrs):
    """libblockrnn_cuda<major version of CUDA>.so under `name`, and ptxas' reports; nothing where there is no nvcc."""
    if not CUDA_NVCC:
        native.filegroup(name = name)
        native.filegroup(name = name + "_ptxas")
        return
    _cuda_objects(
        name = name + "_objects",
        srcs = srcs,
        hdrs = hdrs,
        deps = ["//cc/core", "@local_tensorflow//:eigen"],
        table_dep = "//cc/core:engine_version",
    )
    native.filegroup(name = name + "_ptxas", srcs = [name + "_objects"], output_group = "ptxas")
    library = "libblockrnn_cuda%s.so" % CUDA_VERSION.split(".")[0]
    native.cc_binary(
        name = library,
        srcs = [name + "_objects"],
        linkopts = [
            "-Wl,--version-script,$(location exports.lds)",
            "-Wl,-z,defs",
            "-L" + CUDA_LIBRARY_DIRECTORY,
            "-l:libcudart_static.a",
            "-ldl",
            "-lrt",
            "-lpthread",
        ],
        linkshared = True,
        deps = [":exports.lds"],
    )
    native.filegroup(name = name, srcs = [library])
