"""The CPU engine: the same sources once per instruction set, each into a library of its own."""

load("//cc:copts.bzl", "COPTS")

_X86_64_LEVELS = ["x86-64-v2", "x86-64-v3", "x86-64-v4"]

def _engine(isa, march, srcs):
    name = "libblockrnn_cpu_%s.so" % isa
    native.cc_binary(
        name = name,
        srcs = srcs,
        copts = COPTS + march + [
            # No rounding mode, trap or errno is ever looked at; NaN and infinity keep their meaning.
            "-fno-math-errno",
            "-fno-trapping-math",
            # A packet type as a template argument loses an alignment attribute that Eigen states again where it counts.
            "-Wno-ignored-attributes",
            "-fvisibility=hidden",
            "-fvisibility-inlines-hidden",
            "-DBLOCKRNN_ISA=\\\"%s\\\"" % isa,
        ],
        # One symbol leaves the library, and libstdc++ with its inline templates stays inside as well: nothing compiled
        # for this instruction set can be linked in place of another's.
        linkopts = ["-Wl,--version-script,$(location exports.lds)", "-Wl,-z,defs"],
        linkshared = True,
        deps = [
            ":exports.lds",
            "//cc/core",
            "@local_tensorflow//:eigen",
        ],
    )
    return name

def cpu_engines(name, srcs):
    x86_64 = [_engine(isa, ["-march=" + isa], srcs) for isa in _X86_64_LEVELS]
    generic = [_engine("generic", [], srcs)]
    native.filegroup(
        name = name,
        srcs = select({
            "@platforms//cpu:x86_64": x86_64,
            "//conditions:default": generic,
        }),
    )
