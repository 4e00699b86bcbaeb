"""Compiler options of our own code. Headers from TensorFlow's wheel are system headers, so these do not reach them."""

COPTS = [
    "-std=c++17",
    "-O3",
    "-Wall",
    "-Wextra",
    "-Werror",
    # Eigen's alignment is part of its types: every library here must agree with TensorFlow's.
    "-DEIGEN_MAX_ALIGN_BYTES=64",
]
