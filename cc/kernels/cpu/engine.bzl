"""The CPU engine: the same sources once per instruction set, each into a library of its own."""

load("//cc:copts.bzl", "COPTS")

# GCC 12 takes the _mm512_undefined_* of its own AVX-512 headers for uses of uninitialised variables.
_AVX512 = ["-march=x86-64-v4", "-Wno-maybe-uninitialized", "-Wno-uninitialized"]

# Each base with what it is compiled with, and the sets that add to it for bfloat16 alone.
_X86_64_BASES = {
    "x86-64-v2": (["-march=x86-64-v2"], {}),
    "x86-64-v3": (["-march=x86-64-v3"], {}),
    "x86-64-v4": (_AVX512, {"x86-64-v4-bf16": ["-mavx512bf16"]}),
}

_ENGINE_COPTS = COPTS + [
    # No rounding mode, trap or errno is ever looked at; NaN and infinity keep their meaning.
    "-fno-math-errno",
    "-fno-trapping-math",
    # A multiply-add is fused where the source says so and nowhere else: bits must not depend on inlining.
    "-ffp-contract=off",
    # Vectors are written as such. What the compiler would make of the loops over their last lanes takes a tenth of the
    # time that it has, for nothing; loops of fixed counts (dropout's numbers) it still may.
    "-fvect-cost-model=very-cheap",
    # A packet type as a template argument loses an alignment attribute that Eigen states again where it counts.
    "-Wno-ignored-attributes",
    "-fvisibility=hidden",
    "-fvisibility-inlines-hidden",
]

_DEPS = ["//cc/core", "@local_tensorflow//:eigen"]

def _base(base, base_copts, more_sets, srcs, hdrs, bfloat16_srcs):
    """The engines of a base; the objects that its sets have in common are compiled once."""
    common = "common_" + base
    native.cc_library(
        name = common,
        srcs = srcs + hdrs,
        copts = _ENGINE_COPTS + base_copts,
        linkstatic = True,
        deps = _DEPS,
    )
    sets = {base: []}
    sets.update(more_sets)
    names = []
    for isa, copts in sets.items():
        name = "libblockrnn_cpu_%s.so" % isa
        names.append(name)
        native.cc_binary(
            name = name,
            srcs = bfloat16_srcs + hdrs,
            copts = _ENGINE_COPTS + base_copts + copts + ["-DBLOCKRNN_ISA=\\\"%s\\\"" % isa],
            # One symbol leaves the library: nothing compiled for this instruction set can be linked in place of
            # another's.
            linkopts = ["-Wl,--version-script,$(location exports.lds)", "-Wl,-z,defs"],
            linkshared = True,
            deps = [":exports.lds", ":" + common] + _DEPS,
        )
    return names

def cpu_engines(name, srcs, hdrs, bfloat16_srcs):
    x86_64 = []
    for base, (copts, more_sets) in _X86_64_BASES.items():
        x86_64 += _base(base, copts, more_sets, srcs, hdrs, bfloat16_srcs)
    native.filegroup(
        name = name,
        srcs = select({
            "@platforms//cpu:x86_64": x86_64,
            "//conditions:default": _base("generic", [], {}, srcs, hdrs, bfloat16_srcs),
        }),
    )
