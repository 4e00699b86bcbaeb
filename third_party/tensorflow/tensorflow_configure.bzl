"""Finds TensorFlow: asks the Python of PYTHON_BIN_PATH (else python3) where its wheel keeps headers and library.

Where TENSORFLOW_PACKAGE is set, TensorFlow is the folder that it names: the folder `tensorflow` of an unpacked wheel for
another processor, which no Python here can import. The answers are then the files of the wheel and what all of
TensorFlow's wheels answer.

TENSORFLOW_STAMP is not read here. The build script puts the wheel's version and date into it, so that a
TensorFlow that was replaced under the same path is looked at again.
"""

_PROBE = """
import json, os, sys
try:
    import tensorflow as tf
except ImportError as error:
    sys.exit("%s cannot import tensorflow: %s" % (sys.executable, error))
print(json.dumps({
    "version": tf.__version__,
    "compiler": tf.version.COMPILER_VERSION,
    "include": tf.sysconfig.get_include(),
    "lib": tf.sysconfig.get_lib(),
    "compile_flags": [flag for flag in tf.sysconfig.get_compile_flags() if not flag.startswith("-I")],
    "link_flags": tf.sysconfig.get_link_flags(),
}))
"""

_PROBE_PACKAGE = """
import importlib.metadata, json, os, sys
package = os.environ["TENSORFLOW_PACKAGE"]
found = importlib.metadata.distributions(path=[os.path.dirname(package)])
versions = [one.version for one in found if one.metadata["Name"] == "tensorflow"]
if len(versions) != 1:
    sys.exit("%s has %d versions of TensorFlow beside it" % (package, len(versions)))
print(json.dumps({
    "version": versions[0],
    "compiler": "",
    "include": package + "/include",
    "lib": package,
    "compile_flags": ["-D_GLIBCXX_USE_CXX11_ABI=1", "--std=c++17", "-DEIGEN_MAX_ALIGN_BYTES=64"],
    "link_flags": ["-L" + package, "-l:libtensorflow_framework.so.2"],
}))
"""

_XLA_LIBRARY = "libtensorflow_cc.so.2"

_BUILD = """
package(default_visibility = ["//visibility:public"])

# includes makes them system headers: our warnings do not look into them. Eigen has a folder of its own, so that who
# depends on it alone finds no TensorFlow.
cc_library(
    name = "eigen",
    hdrs = glob(["eigen/**"]),
    includes = ["eigen"],
)

cc_library(
    name = "tensorflow",
    hdrs = glob(["include/**"]),
    includes = ["include"],
    linkopts = {link_flags},
)

# XLA, which is in another library of the wheel; its headers include two libraries that the wheel has the headers of.
cc_library(
    name = "xla",
    includes = [
        "include/external/farmhash_archive/src",
        "include/external/highwayhash",
    ],
    linkopts = {xla_link_flags},
    deps = [":tensorflow"],
)
"""

_FACTS = """
# Written by tensorflow_configure.
TENSORFLOW_VERSION = {version}
TENSORFLOW_MINOR = {minor}
TENSORFLOW_COMPILER = {compiler}
TENSORFLOW_COMPILE_FLAGS = {compile_flags}
TENSORFLOW_LIBRARY = {library}  # its folder
TENSORFLOW_HAS_XLA = {has_xla}
"""

def _tensorflow_configure_impl(repository_ctx):
    python = repository_ctx.os.environ.get("PYTHON_BIN_PATH") or repository_ctx.which("python3")
    if not python:
        fail("no Python: set PYTHON_BIN_PATH to one that imports tensorflow")
    package = repository_ctx.os.environ.get("TENSORFLOW_PACKAGE")
    result = repository_ctx.execute(
        [python, "-c", _PROBE_PACKAGE if package else _PROBE],
        environment = {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    if result.return_code:
        fail("no TensorFlow to build against: " + result.stderr.strip().split("\n")[-1])
    facts = json.decode(result.stdout.strip().split("\n")[-1])
    repository_ctx.symlink(facts["include"], "include")
    for folder in ["Eigen", "unsupported"]:
        repository_ctx.symlink(facts["include"] + "/" + folder, "eigen/" + folder)
    has_xla = repository_ctx.path(facts["lib"] + "/" + _XLA_LIBRARY).exists
    repository_ctx.file("BUILD", _BUILD.format(
        link_flags = repr(facts["link_flags"]),
        xla_link_flags = repr(["-L" + facts["lib"], "-l:" + _XLA_LIBRARY]),
    ))
    repository_ctx.file("facts.bzl", _FACTS.format(
        version = repr(facts["version"]),
        minor = repr(".".join(facts["version"].split(".")[:2])),
        compiler = repr(facts["compiler"]),
        compile_flags = repr(facts["compile_flags"]),
        library = repr(facts["lib"]),
        has_xla = repr(has_xla),
    ))

tensorflow_configure = repository_rule(
    implementation = _tensorflow_configure_impl,
    configure = True,
    environ = ["PYTHON_BIN_PATH", "TENSORFLOW_PACKAGE", "TENSORFLOW_STAMP"],
)
