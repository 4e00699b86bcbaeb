"""The CPU engine: the same sources once per instruction set, each into a library of its own."""

load("//cc:copts.bzl", "COPTS")

_X86_64_LEVELS = {
    "x86-64-v2": [],
    "x86-64-v3": [],
    # GCC 12 takes the _mm512_undefined_* of its own AVX-512 headers for uses of uninitialised variables.
    "x86-64-v4": ["-Wno-maybe-uninitialized", "-Wno-uninitialized"],
}

def _engine(isa, isa_copts, srcs):
    name = "libblockrnn_cpu_%s.so" % isa
    native.cc_binary(
        name = name,
        srcs = srcs,
        copts = COPTS + isa_copts + [
            # No rounding mode, trap or errno is ever looked at; NaN and infinity keep their meaning.
            "-fno-math-errno",
            "-fno-trapping-math",
            # A multiply-add is fused where the source says so and nowhere else: bits must not depend on inlining.
            "-ffp-contract=off",
            # A packet type as a template argument loses an alignment attribute that Eigen states again where it counts.
            "-Wno-ignored-attributes",
            "-fvisibility=hidden",
            "-fvisibility-inlines-hidden",
            "-DBLOCKRNN_ISA=\\\"%s\\\"" % isa,
        ],
        # One symbol leaves the library: nothing compiled for this instruction set can be linked in place of another's.
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
    x86_64 = [
        _engine(isa, ["-march=" + isa] + copts, srcs)
        for isa, copts in _X86_64_LEVELS.items()
    ]
    generic = [_engine("generic", [], srcs)]
    native.filegroup(
        name = name,
        srcs = select({
            "@platforms//cpu:x86_64": x86_64,
            "//conditions:default": generic,
        }),
    )
