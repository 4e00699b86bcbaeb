"""Compiler options of our own code. Headers from TensorFlow's wheel are system headers, so these do not reach them."""

_COMMON = [
    "-std=c++17",
    "-Wall",
    "-Wextra",
    "-Werror",
    # Eigen's alignment is part of its types: every library here must agree with TensorFlow's.
    "-DEIGEN_MAX_ALIGN_BYTES=64",
]

COPTS = _COMMON + ["-O2"]

# What runs once for each op or each compiled program: registration, lowering.
ONCE_COPTS = _COMMON + ["-O1"]

# How the CPU engine and its C++ tests are built: //cc/kernels/cpu:mode. `release` is what is shipped, `dev` is what
# compiles fastest, the others run under a sanitizer.
MODES = ["release", "dev", "asan", "asan-short", "tsan", "fuzz"]

_ASAN = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]

_SANITIZERS = {
    "release": [],
    "dev": [],
    "asan": _ASAN,
    # These four take two fifths of the compiler's time. AddressSanitizer sees the accesses themselves, and the processor
    # refuses vectors that are not aligned as their type requires.
    "asan-short": _ASAN + ["-fno-sanitize=null,alignment,object-size,pointer-overflow"],
    # With its calls between them g++ 12 takes the two branches of a vector's growth for one path.
    "tsan": ["-fsanitize=thread", "-Wno-use-after-free"],
    "fuzz": _ASAN + ["-fsanitize=fuzzer-no-link"],
}

# Assertions stay in, and _FORTIFY_SOURCE (Bazel defines it) would hide calls from the sanitizers.
_CHECKED = ["-O1", "-UNDEBUG", "-U_FORTIFY_SOURCE"]

# What is unrolled would be checked as often, and would take as long again to compile.
_CHECKED_ENGINE = _CHECKED + ["-DBLOCKRNN_NO_UNROLL"]

# Eigen's intrinsics make clang warn where g++ does not.
_CLANG = ["-Wno-unknown-warning-option"]

def _debug_info(mode):
    return [] if mode == "dev" else ["-g1"]

def _by_mode(options):
    """A select over //cc/kernels/cpu:mode; `options` is a function of the mode."""
    return select({"//cc/kernels/cpu:mode_" + mode: options(mode) for mode in MODES})

def _extra(mode):
    return _SANITIZERS[mode] + _debug_info(mode) + (_CLANG if mode == "fuzz" else [])

def _engine(mode):
    if mode == "release":
        return [
            "-O3",
            # Vectors are written as such. What the compiler would make of the loops over their last lanes takes a tenth
            # of the time that it has, for nothing; loops of fixed counts (dropout's numbers) it still may.
            "-fvect-cost-model=very-cheap",
        ]
    return _CHECKED_ENGINE + _extra(mode)

def _engine_templates(mode):
    # What tests instantiate of the engine multiplies little. What the engine has as well, the linker takes from there,
    # for tests name the engine before their own objects.
    return _engine(mode) + ([] if mode == "release" else ["-O0"])

def _tests(mode):
    if mode == "release":
        return ["-O2"]
    # A fuzzer searches for new ways through the engine, not through the reference, which takes most of its time.
    unsearched = ["-fno-sanitize=fuzzer-no-link", "-O2"] if mode == "fuzz" else []
    return _CHECKED + _extra(mode) + unsearched

def _test_cases(mode):
    # They only call what is optimised, and GoogleTest's macros take the compiler long.
    return _tests(mode) + ["-O0"]

def _link(mode):
    return ["-pthread"] + _SANITIZERS[mode]

_ENGINE = _COMMON + [
    # No rounding mode, trap or errno is ever looked at; NaN and infinity keep their meaning.
    "-fno-math-errno",
    "-fno-trapping-math",
    # A multiply-add is fused where the source says so and nowhere else: bits must not depend on inlining.
    "-ffp-contract=off",
    # A packet type as a template argument loses an alignment attribute that Eigen states again where it counts.
    "-Wno-ignored-attributes",
    "-fvisibility=hidden",
    "-fvisibility-inlines-hidden",
]

# The engine; tests that instantiate templates of the engine; hosts and references; test cases; what links all.
ENGINE_COPTS = _ENGINE + _by_mode(_engine)
ENGINE_TEMPLATE_COPTS = _ENGINE + _by_mode(_engine_templates)
TEST_COPTS = _COMMON + ["-Wno-ignored-attributes"] + _by_mode(_tests)
TEST_CASE_COPTS = _COMMON + ["-Wno-ignored-attributes"] + _by_mode(_test_cases)
TEST_LINKOPTS = _by_mode(_link)
