"""The CPU engine: the same sources once per instruction set, each into a library of its own."""

load("//cc:copts.bzl", "ENGINE_COPTS")

# GCC 12 takes the _mm512_undefined_* of its own AVX-512 headers for uses of uninitialised variables.
_AVX512 = ["-march=x86-64-v4", "-Wno-maybe-uninitialized", "-Wno-uninitialized"]

# On AArch64 GCC reorders before it assigns registers, and then has too few for the sums of a tile.
_NEON = ["-fno-schedule-insns"]

# Each instruction set with what it is compiled with, and its base. A set that adds to its base for bfloat16 and int8
# alone has the objects of the other types in common with it.
_X86_64_ISAS = {
    "x86-64-v2": (["-march=x86-64-v2"], "x86-64-v2"),
    "x86-64-v3": (["-march=x86-64-v3"], "x86-64-v3"),
    "x86-64-v4": (_AVX512, "x86-64-v4"),
    "x86-64-v4-vnni": (_AVX512 + ["-mavx512vnni"], "x86-64-v4"),
    "x86-64-v4-bf16": (_AVX512 + ["-mavx512vnni", "-mavx512bf16"], "x86-64-v4"),
}
_AARCH64_ISAS = {
    "armv8-a": (_NEON + ["-march=armv8-a"], "armv8-a"),
    "armv8.2-a-dotprod": (_NEON + ["-march=armv8.2-a+dotprod"], "armv8-a"),
    "armv8.2-a-bf16": (_NEON + ["-march=armv8.2-a+dotprod+i8mm+bf16"], "armv8-a"),
}
_ISAS = dict({"generic": ([], "generic")}, **dict(_X86_64_ISAS, **_AARCH64_ISAS))

_TYPES = ["f16", "bf16", "f32", "f64"]

_DEPS = ["//cc/core", "@local_tensorflow//:eigen"]

# Of the instruction set that --//cc/kernels/cpu:isa names: options for code that includes more of the engine than
# engine.h, the macro that holds the set's name, and the objects of the engine.
ISA_COPTS = select({"//cc/kernels/cpu:isa_" + isa: copts for isa, (copts, _) in _ISAS.items()})
ISA_DEFINES = select({"//cc/kernels/cpu:isa_" + isa: ["BLOCKRNN_ISA=\\\"%s\\\"" % isa] for isa in _ISAS})
ISA_OBJECTS = select({"//cc/kernels/cpu:isa_" + isa: [":objects_" + isa] for isa in _ISAS})

def type_defines():
    """One macro per chosen type, for the tests."""
    defines = []
    for type in _TYPES:
        defines += select({
            "//cc/kernels/cpu:type_" + type: ["BLOCKRNN_TEST_%s=1" % type.upper()],
            "//conditions:default": [],
        })
    return defines

def _string_setting_impl(_):
    return []

string_setting = rule(implementation = _string_setting_impl, build_setting = config.string(flag = True))
string_list_setting = rule(implementation = _string_setting_impl, build_setting = config.string_list(flag = True))

def engine_settings(modes):
    """The flags mode, isa and types (all of them by default), and a config_setting for each value.

    generic runs on any processor; tools/cpp_tests.py names a better one. `built` names the sets of which
    there is to be a library (tools/build.py); those of other processors are left out. `fallback` is the one that
    is there only in case the library moves to another machine: it is compiled fast.
    """
    string_setting(name = "mode", build_setting_default = "release")
    string_setting(name = "isa", build_setting_default = "generic")
    string_list_setting(name = "types", build_setting_default = _TYPES)
    string_setting(name = "fallback", build_setting_default = "")
    string_list_setting(name = "built", build_setting_default = [isa for isa in _ISAS if isa != "generic"])
    for family, isas in [("x86_64", _X86_64_ISAS), ("aarch64", _AARCH64_ISAS)]:
        for isa in isas:
            native.config_setting(
                name = "builds_" + isa,
                constraint_values = ["@platforms//cpu:" + family],
                flag_values = {":built": isa},
            )
    native.config_setting(
        name = "builds_generic",
        flag_values = {":built": "generic"},
    )
    settings = [
        ("mode", "mode_", modes),
        ("isa", "isa_", _ISAS),
        ("fallback", "fallback_", _ISAS),
        ("types", "type_", _TYPES),
    ]
    for setting, prefix, values in settings:
        for value in values:
            native.config_setting(
                name = prefix + value,
                flag_values = {":" + setting: value},
                visibility = ["//visibility:public"],
            )

def _sources(type):
    return select({
        ":type_" + type: ["engine_%s.cc" % type],
        "//conditions:default": [],
    })

def _own_sources():
    return _sources("bf16") + select({
        ":type_f32": ["engine_low_precision.cc"],
        "//conditions:default": [],
    })

def cpu_engines(name, hdrs):
    """objects_<isa> for tests, libblockrnn_cpu_<isa>.so, and under `name` the libraries of the sets that are built.

    Of a base, the objects that its sets have in common are compiled once.
    """
    for isa, (copts, base) in _ISAS.items():
        copts = ENGINE_COPTS + copts + select({
            ":fallback_" + isa: ["-O1"],
            "//conditions:default": [],
        })
        if isa == base:
            native.cc_library(
                name = "common_" + base,
                srcs = _sources("f16") + _sources("f32") + _sources("f64") + hdrs,
                copts = copts,
                linkstatic = True,
                deps = _DEPS,
            )
        native.cc_library(
            name = "own_" + isa,
            srcs = _own_sources() + hdrs,
            copts = copts,
            linkstatic = True,
            deps = _DEPS,
            # The linker reads the common objects, which ask for it, later.
            alwayslink = True,
        )
        native.cc_library(
            name = "objects_" + isa,
            srcs = ["engine.cc"] + hdrs,
            copts = copts,
            linkstatic = True,
            local_defines = ["BLOCKRNN_ISA=\\\"%s\\\"" % isa],
            deps = [":own_" + isa, ":common_" + base, "//cc/core:engine_version"] + _DEPS,
            # Of a shared library nothing else asks for the one symbol.
            alwayslink = True,
        )
        native.cc_binary(
            name = "libblockrnn_cpu_%s.so" % isa,
            # One symbol leaves the library: nothing compiled for this instruction set can be linked in place of
            # another's.
            linkopts = ["-Wl,--version-script,$(location exports.lds)", "-Wl,-z,defs"],
            linkshared = True,
            deps = [":exports.lds", ":objects_" + isa],
        )
    libraries = []
    for isa in _ISAS:
        libraries += select({
            ":builds_" + isa: ["libblockrnn_cpu_%s.so" % isa],
            "//conditions:default": [],
        })
    native.filegroup(
        name = name,
        srcs = libraries,
    )
