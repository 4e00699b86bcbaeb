"""Finds GoogleTest's source: in GOOGLETEST_SOURCE, or where Debian's libgtest-dev puts it."""

_BUILD = """
cc_library(
    name = "gtest",
    testonly = True,
    srcs = ["googletest/src/gtest-all.cc"],
    hdrs = glob(["googletest/include/**/*.h"]),
    # The sanitizers need not look into the framework, so that it is compiled once for all of them.
    copts = ["-std=c++17", "-O1", "-w"],
    includes = ["googletest", "googletest/include"],
    linkopts = ["-pthread"],
    linkstatic = True,
    textual_hdrs = glob(["googletest/src/*"]),
    visibility = ["//visibility:public"],
)
"""

def _googletest_configure_impl(repository_ctx):
    source = repository_ctx.os.environ.get("GOOGLETEST_SOURCE") or "/usr/src/googletest"
    if not repository_ctx.path(source + "/googletest/src/gtest-all.cc").exists:
        fail("no source of GoogleTest in %s: install libgtest-dev (Debian, Ubuntu), or set GOOGLETEST_SOURCE to a " %
             source + "checkout of GoogleTest")
    repository_ctx.symlink(source + "/googletest", "googletest")
    repository_ctx.file("BUILD", _BUILD)

googletest_configure = repository_rule(
    implementation = _googletest_configure_impl,
    configure = True,
    environ = ["GOOGLETEST_SOURCE"],
)
