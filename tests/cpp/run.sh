#!/bin/bash
# Builds and runs the tests of the CPU engine, without TensorFlow's code.
#
#     tests/cpp/run.sh {plain|asan|tsan} {short|full} [TEST_ARGUMENT...]
#     tests/cpp/run.sh fuzz SECONDS
#
# plain full takes every instruction set that this machine runs, plain short the
# best and the generic one, the others the best. asan is AddressSanitizer with
# UndefinedBehaviorSanitizer; in short it takes float and bfloat16, tsan float:
# the code is a template over the type, and short asan leaves out the checks of
# a pointer before each access. fuzz needs clang++.
# PYTHON names the Python whose TensorFlow has the Eigen headers, EIGEN_INCLUDE
# a folder with them where there is none. Ends with "N passed, N failed".
set -euo pipefail

usage() {
  sed -n '2,13s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
  exit 2
}

mode=${1:-}
length=${2:-}
case "$mode:$length" in
  plain:short | plain:full | asan:short | asan:full | tsan:short | tsan:full) ;;
  fuzz:[1-9]*) ;;
  *) usage ;;
esac
shift 2

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=.build/tests-cpp/$mode
types="f16 bf16 f32 f64"
type_flags=
own_templates=
case "$mode:$length" in
  asan:short)
    types="bf16 f32"
    type_flags=-DBLOCKRNN_FLOAT_AND_BFLOAT16
    ;;
  tsan:short)
    types=f32
    type_flags=-DBLOCKRNN_FLOAT_ONLY
    ;;
esac
if [ -n "$type_flags" ]; then build=$build-short; fi
mkdir -p "$build"

eigen=${EIGEN_INCLUDE:-}
if [ -z "$eigen" ]; then
  # find_spec looks the package up and does not import it, which takes seconds.
  eigen=$("${PYTHON:-python3}" -c '
import importlib.util, os, sys
spec = importlib.util.find_spec("tensorflow")
if spec is None:
    sys.exit(f"{sys.executable} has no tensorflow; set PYTHON or EIGEN_INCLUDE")
print(os.path.join(spec.submodule_search_locations[0], "include"))')
fi
[ -e "$eigen/Eigen/Core" ] || { echo "no Eigen/Core in $eigen" >&2; exit 1; }

has() {
  for flag in "$@"; do grep -m1 '^flags' /proc/cpuinfo | grep -qw "$flag" || return 1; done
}

# The engine's instruction sets that this machine runs, best first.
machine_isas() {
  if [ "$(uname -m)" = x86_64 ]; then
    if has avx512f avx512dq avx512cd avx512bw avx512vl; then
      if has avx512_bf16; then echo x86-64-v4-bf16; fi
      echo x86-64-v4
    fi
    if has avx2 fma bmi2 f16c; then echo x86-64-v3; fi
    if has sse4_2 popcnt; then echo x86-64-v2; fi
  fi
  echo generic
}

cxx=${CXX:-g++}
warnings="-Wall -Wextra -Werror -Wno-ignored-attributes"
# As the Bazel build has them, but for the sanitizers' own.
engine_flags="-fno-math-errno -fno-trapping-math -ffp-contract=off -DEIGEN_MAX_ALIGN_BYTES=64 -fvisibility=hidden"
case "$mode" in
  plain)
    test_flags="-O2"
    engine_flags="-O3 -fvect-cost-model=very-cheap $engine_flags"
    # Most lanes and fewest; the ones between take as long again to compile.
    isas=$(machine_isas | sed -n '1p;$p')
    ;;
  asan | fuzz)
    # The heap's own checks; a failed check ends the run.
    sanitizer="-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer"
    # These take two fifths of the compiler's time. The address sanitizer sees the accesses themselves, and the
    # processor refuses vectors that are not aligned as their type says.
    if [ "$length" = short ]; then
      sanitizer="$sanitizer -fno-sanitize=null,alignment,object-size,pointer-overflow"
    fi
    ;;
  tsan)
    sanitizer="-fsanitize=thread"
    # What the others do on one thread is not its business, and out_of_memory has its helpers come when the call
    # is over.
    if [ $# = 0 ]; then
      set -- --only={same_bits,cancelled,concurrent_calls,step_loop,fuzz}
      if [ "$length" = full ]; then set -- "$@" --only=out_of_memory; fi
    fi
    ;;
esac
if [ "$mode" != plain ]; then
  if [ "$mode" = fuzz ]; then
    cxx=
    for name in clang++ clang++-{20..11}; do
      if command -v "$name" >/dev/null; then cxx=$name && break; fi
    done
    [ -n "$cxx" ] || { echo "run.sh fuzz needs clang++ on the PATH" >&2; exit 1; }
    sanitizer="$sanitizer -fsanitize=fuzzer"
    # Eigen's intrinsics make clang warn where g++ does not.
    warnings="$warnings -Wno-unknown-warning-option"
  fi
  test_flags="-O1 -g1 $sanitizer"
  # What is unrolled would be checked as often, and take as long again to compile.
  engine_flags="-O1 -g1 -DBLOCKRNN_NO_UNROLL $engine_flags $sanitizer"
  # What tests instantiate of their own multiplies little; what the engine has as well, the linker takes from there.
  own_templates=-O0
  isas=$(machine_isas | sed -n 1p)
fi
if [ "$mode:$length" = plain:full ]; then isas=$(machine_isas); fi
test_flags="$test_flags $type_flags"
engine_flags="$engine_flags $type_flags"

# Whether an object is younger than all it is made of (which the compiler wrote
# beside it) and was made by the same command.
up_to_date() {
  local object=$1 command=$2 file
  [ -e "$object" ] && [ "$(cat "$object.flags" 2>/dev/null)" = "$command" ] || return 1
  for file in $(sed -e 's/^[^:]*://' -e 's/\\$//' "${object%.o}.d"); do
    if [ ! -e "$file" ] || [ "$file" -nt "$object" ]; then return 1; fi
  done
}

# compile OBJECT SOURCE FLAG...
compile() {
  local object=$1 source=$2
  shift 2
  local command="$cxx -std=c++17 $warnings -pthread -I. -isystem $eigen -MMD -c $source -o $object $*"
  if up_to_date "$object" "$command"; then return; fi
  rm -f "$object"
  $command
  echo "$command" >"$object.flags"
}

# Two at a time: memory, and a machine that others use too.
jobs_at_once=2
queue() {
  while [ "$(jobs -rp | wc -l)" -ge "$jobs_at_once" ]; do wait -n || exit 1; done
  compile "$@" &
}

# Tests that include more of the engine than its border hold templates of it, so
# they are compiled with it, once for each instruction set; what else there is,
# once.
per_isa=cc/kernels/cpu/engine.cc
for type in $types; do per_isa="$per_isa cc/kernels/cpu/engine_$type.cc"; done
common=
for source in tests/cpp/*.cc; do
  if grep '^#include "cc/kernels/cpu/' "$source" | grep -qv '/engine\.h"'; then
    per_isa="$per_isa $source"
  elif [ "$mode:$source" != fuzz:tests/cpp/main.cc ]; then
    common="$common $source"
  fi
done

common_objects=
for isa in $isas; do
  march=-march=$isa
  case "$isa" in
    generic) march= ;;
    # GCC 12 takes the undefined vectors of its own AVX-512 headers for mistakes.
    x86-64-v4*) march="-march=x86-64-v4 -Wno-maybe-uninitialized -Wno-uninitialized" ;;
  esac
  if [ "$isa" = x86-64-v4-bf16 ]; then march="$march -mavx512bf16"; fi
  mkdir -p "$build/$isa"
  for source in $per_isa; do
    level=
    if [ "${source%%/*}" = tests ]; then level=$own_templates; fi
    queue "$build/$isa/$(basename "$source" .cc).o" "$source" $engine_flags $level $march "-DBLOCKRNN_ISA=\"$isa\""
  done
done
for source in $common; do
  object=$build/$(basename "$source" .cc).o
  queue "$object" "$source" $test_flags
  common_objects="$common_objects $object"
done
while [ -n "$(jobs -p)" ]; do wait -n || exit 1; done

export UBSAN_OPTIONS=print_stacktrace=1
count='^[0-9]* passed, [0-9]* failed$'
status=0
for isa in $isas; do
  objects=
  for source in $per_isa; do objects="$objects $build/$isa/$(basename "$source" .cc).o"; done
  "$cxx" $test_flags -pthread -o "$build/$isa/tests" $objects $common_objects
  if [ "$mode" = fuzz ]; then
    mkdir -p "$build/corpus"
    "$build/$isa/tests" -max_total_time="$length" -max_len=24 -print_final_stats=1 "$build/corpus" && continue
    status=1
    continue
  fi
  echo "== $mode $length $isa"
  # In as many processes as compilers before; each takes the next test that is left.
  printf '\0\0\0\0\0\0\0\0' >"$build/$isa/turns"
  rm -f "$build/$isa"/log*
  for ((number = 1; number <= jobs_at_once; ++number)); do
    "$build/$isa/tests" "$length" --isa="$isa" --turns="$build/$isa/turns" "$@" | tee "$build/$isa/log$number" &
  done
  while [ -n "$(jobs -p)" ]; do wait -n || status=1; done
  for ((number = 1; number <= jobs_at_once; ++number)); do
    # A crash prints no count.
    tail -n 1 "$build/$isa/log$number" | grep -q "$count" || echo "0 passed, 1 failed" >>"$build/$isa/log$number"
  done
  # A run of no test is no success.
  grep -hqv '^0 passed' "$build/$isa"/log* || status=1
done
if [ "$mode" != fuzz ]; then
  for isa in $isas; do tail -qn 1 "$build/$isa"/log*; done |
    awk '{ passed += $1; failed += $3 } END { print passed " passed, " failed " failed" }'
fi
exit $status
