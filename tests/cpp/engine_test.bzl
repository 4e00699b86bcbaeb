"""C++ tests of the CPU engine: their objects and the test binaries."""

load("//cc:copts.bzl", "ENGINE_TEMPLATE_COPTS", "TEST_CASE_COPTS", "TEST_COPTS", "TEST_LINKOPTS")
load("//cc:together.bzl", "compiled_together")
load("//cc/kernels/cpu:engine.bzl", "ISA_COPTS", "ISA_DEFINES", "type_defines")

def test_objects(name, srcs, hdrs = [], deps = [], engine_templates = False, test_cases = False, copts = None):
    """One object, which is always linked: ops and tests register themselves.

    Args:
      engine_templates: whether they include more of the engine than engine.h. Then they are compiled for the
        instruction set under test, as the engine is.
      test_cases: whether they are test cases and nothing that takes time to run.
      copts: the options; by default those of the above.
    """
    if not copts:
        copts = TEST_CASE_COPTS if test_cases else TEST_COPTS
        if engine_templates:
            copts = ENGINE_TEMPLATE_COPTS
    compiled_together(
        name = name,
        testonly = True,
        srcs = srcs,
        hdrs = hdrs,
        alwayslink = True,
        copts = copts + (ISA_COPTS if engine_templates else []),
        defines = type_defines(),
        linkstatic = True,
        local_defines = ISA_DEFINES,
        # Of the engine its headers alone: test binaries name the engine itself, before all of this.
        deps = deps + [
            "//cc/kernels/cpu:headers" if engine_templates else "//cc/kernels/cpu:engine_header",
            "@local_googletest//:gtest",
        ],
    )

def engine_test(name, srcs = [], deps = [], engine_templates = False, shard_count = None):
    """A test binary, with the engine, which :support calls."""
    if srcs:
        test_objects(
            name = name + "_objects",
            srcs = srcs,
            deps = [":support"],
            engine_templates = engine_templates,
            test_cases = True,
        )
    native.cc_test(
        name = name,
        linkopts = TEST_LINKOPTS,
        linkstatic = True,
        shard_count = shard_count,
        # What an op's test instantiates of the engine is the same template as in the engine and less optimised: the
        # linker takes the first, so the engine comes first.
        deps = ["//cc/kernels/cpu:engine", ":left_out_types"] +
               ([":" + name + "_objects"] if srcs else []) + deps + [":main"],
    )
