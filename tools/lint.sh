#!/bin/bash
# tools/lint.sh check|format: clang-format, clang-tidy and ruff, with the Python of $PYTHON.
set -euo pipefail
cd "$(dirname "$0")/.."
python="${PYTHON:?}"
# The pinned clang-format of the environment, where there is one.
PATH="$("${python}" -c 'import os, sys; print(os.path.dirname(sys.executable))'):${PATH}"

for tool in clang-format clang-tidy; do
  if ! command -v "${tool}" >/dev/null; then
    echo "${tool} is missing: install it (Debian, Ubuntu: apt-get install ${tool})." >&2
    exit 1
  fi
done

# *.cu.cc and the C++ tests among them.
mapfile -t cpp < <(find cc examples tests -name '*.cc' -o -name '*.h' -o -name '*.cuh' | sort)
if [[ "$1" == format ]]; then
  clang-format -i "${cpp[@]}"
  "${python}" -m ruff format .
  "${python}" -m ruff check --fix .
  exit
fi

clang-format --dry-run -Werror "${cpp[@]}"
"${python}" -m ruff check .
"${python}" -m ruff format --check .

include="$("${python}" -c "
import importlib.util
import pathlib
print(pathlib.Path(importlib.util.find_spec('tensorflow').origin).parent / 'include')")"
# Sources that the build compiles as one (cc/together.bzl) are read as one, since each would read TensorFlow's headers.
together=.build/lint
rm -rf "${together}"
tools/interface_hash.sh . "${together}"
for folder in cc/kernels cc/ops; do
  printf '#include "%s"\n' "${folder}"/*.cc >"${together}/${folder//\//_}.cc"
done
# The host compiler's view of our own code; v3 is enough to see the packet code. clang-tidy does not see *.cu.cc, which
# are nvcc's, nor tests/cpp, which would take it more than a minute; clang-format sees both. What takes longest comes
# first.
{
  ls "${together}"/*.cc
  find cc -name '*.cc' -not -name '*.cu.cc' -not -path 'cc/ops/*' -not -path 'cc/kernels/*.cc' -o -path 'cc/kernels/cpu/*.cc' | sort
} | tr '\n' '\0' |
  xargs -0 -n 1 -P "$(nproc)" sh -c '
    clang-tidy --quiet "$2" -- -std=c++17 -O1 -march=x86-64-v3 -iquote . -iquote .build/lint -isystem "$1" \
      -isystem "$1/external/highwayhash" -isystem "$1/external/farmhash_archive/src" -DEIGEN_MAX_ALIGN_BYTES=64 \
      -DNDEBUG "-DBLOCKRNN_ISA=\"x86-64-v3\"" || exit 255' sh "${include}"
