"""What a build shows while it runs."""

from __future__ import annotations

from tools import bazel_progress

_LOG = """\
Starting local Bazel server and connecting to it...
Loading: 0 packages loaded
[3 / 29] [Prepa] BazelWorkspaceStatusAction stable-status.txt
SUBCOMMAND: # //cc/kernels/cpu:common_x86-64-v4 [action 'Compiling cc/kernels/cpu/engine_f16.cc', x]
(cd /execroot && \\
  exec env - \\
    PATH=/bin \\
  /usr/bin/gcc -O3 -c cc/kernels/cpu/engine_f16.cc -o engine_f16.o)
SUBCOMMAND: # //cc/kernels/cpu:objects_x86-64-v4 [action 'Compiling cc/kernels/cpu/engine.cc', x]
(cd /execroot && \\
  /usr/bin/gcc -c cc/kernels/cpu/engine.cc)
[11 / 29] Compiling cc/kernels/cpu/engine_f16.cc; 13s local ... (2 actions running)
SUBCOMMAND: # //cc/kernels:kernels [action 'Compiling cc/kernels/kernels_together.cc', x]
(cd /execroot)
SUBCOMMAND: # //cc/kernels/cuda:o [action 'CudaCompile cc/kernels/cuda/gru_sequence.cu.o', x]
(cd /execroot)
SUBCOMMAND: # //:build_info [action 'BuildInfo _build_info.json', x]
(cd /execroot)
SUBCOMMAND: # //cc/ops:checks_source [action 'Executing genrule //cc/ops:checks_source', x]
(cd /execroot)
SUBCOMMAND: # //:libops.so [action 'Linking libops.so', x]
(cd /execroot)
ERROR: /tree/cc/BUILD:3:1: Compiling cc/kernels/kernels_together.cc failed
  cc/kernels/a.cc:1:2: error: expected ';'
"""


def test_what_bazel_does_is_shown_in_words():
    shown = list(bazel_progress.in_words(_LOG.splitlines()))
    assert [line for is_progress, line in shown if is_progress] == [
        "[  3 of 29] CPU engine for AVX-512: float16",
        "[  3 of 29] CPU engine for AVX-512: its table",
        "[ 11 of 29] TensorFlow kernels: kernels",
        "[ 11 of 29] CUDA engine: gru sequence",
        "[ 11 of 29] linking libops.so",
    ]
    # And nothing else is lost.
    assert [line for is_progress, line in shown if not is_progress] == _LOG.splitlines()[-2:]


def test_errors_are_apart_from_progress(capsys):
    bazel_progress.show(_LOG.splitlines())
    out, err = capsys.readouterr()
    assert err.splitlines() == _LOG.splitlines()[-2:]
    assert out.count("\n") == 5
