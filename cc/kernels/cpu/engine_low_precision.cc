// The functions for frozen weights of float in bfloat16 and int8: a source of
// their own, because their inner loops differ between instruction sets that
// have the engine of float in common.

#include "cc/kernels/cpu/engine_functions.h"

namespace blockrnn::cpu {
namespace {

template <class Forward>
Precision PrecisionOf(const FreezeArgs<Forward>& args) {
  return args.precision;
}
template <class Forward>
Precision PrecisionOf(const Forward& args) {
  return args.frozen->precision;
}

template <class P>
using FunctionsOf = SequenceFunctions<float, StandardActivations, P>;

template <class Args>
Status RunLowPrecision(const Args& args, const Executor& executor) {
  return PrecisionOf(args) == Precision::kBFloat16
             ? FunctionsOf<BFloat16Element>::Run(args, executor)
             : FunctionsOf<Int8Quad>::Run(args, executor);
}

template <template <class> class... Args>
constexpr LowPrecisionFunctions TableOfLow(ArgsList<Args...>) {
  return {{&RunLowPrecision<Args<float>>}...};
}

}  // namespace

const LowPrecisionFunctions kLowPrecisionFunctions =
    TableOfLow(FrozenSequenceArgs());

}  // namespace blockrnn::cpu
