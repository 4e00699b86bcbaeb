// Defines the lists of the pointers in the engines' argument structs, each with
// its name, which is that of the op's input or output unless the op renames it
// (cc/kernels/argument_fields.h).

#ifndef BLOCKRNN_KERNELS_ARGUMENT_MEMBERS_H_
#define BLOCKRNN_KERNELS_ARGUMENT_MEMBERS_H_

#include "cc/core/engine_args.h"

namespace blockrnn {

template <class Args, class T>
struct InputMember {
  const T* Args::*member;
  const char* name;
};

template <class Args, class T>
struct OutputMember {
  T* Args::*member;
  const char* name;
};

// Of each struct: `in`, what an engine reads, and `out`, what it writes.
template <class Args>
struct ArgumentMembers;

// clang-format off

// {pointer to the member, its name}: a template cannot obtain the name.
#define MEMBER(name) {&A::name, #name}

template <class T>
struct ArgumentMembers<GruCellForwardArgs<T>> {
  using A = GruCellForwardArgs<T>;
  static constexpr InputMember<A, T> in[] = {
      MEMBER(x), MEMBER(h_prev), MEMBER(w_ru), MEMBER(w_c), MEMBER(b_ru),
      MEMBER(b_c)};
  static constexpr OutputMember<A, T> out[] = {
      MEMBER(r), MEMBER(u), MEMBER(c), MEMBER(h)};
};

template <class T>
struct ArgumentMembers<GruCellBackwardArgs<T>> {
  using A = GruCellBackwardArgs<T>;
  static constexpr InputMember<A, T> in[] = {
      MEMBER(h_prev), MEMBER(w_ru), MEMBER(w_c), MEMBER(r), MEMBER(u),
      MEMBER(c), MEMBER(d_h)};
  static constexpr OutputMember<A, T> out[] = {
      MEMBER(d_x), MEMBER(d_h_prev), MEMBER(d_c_bar), MEMBER(d_r_bar_u_bar)};
};

template <class T>
struct ArgumentMembers<LstmCellForwardArgs<T>> {
  using A = LstmCellForwardArgs<T>;
  static constexpr InputMember<A, T> in[] = {
      MEMBER(x), MEMBER(cs_prev), MEMBER(h_prev), MEMBER(w), MEMBER(wci),
      MEMBER(wcf), MEMBER(wco), MEMBER(b)};
  static constexpr OutputMember<A, T> out[] = {
      MEMBER(i), MEMBER(cs), MEMBER(f), MEMBER(o), MEMBER(ci), MEMBER(co),
      MEMBER(h)};
};

template <class T>
struct ArgumentMembers<LstmCellBackwardArgs<T>> {
  using A = LstmCellBackwardArgs<T>;
  static constexpr InputMember<A, T> in[] = {
      MEMBER(cs_prev), MEMBER(wci), MEMBER(wcf), MEMBER(wco), MEMBER(i),
      MEMBER(cs), MEMBER(f), MEMBER(o), MEMBER(ci), MEMBER(co), MEMBER(cs_grad),
      MEMBER(h_grad)};
  static constexpr OutputMember<A, T> out[] = {
      MEMBER(cs_prev_grad), MEMBER(dicfo), MEMBER(wci_grad), MEMBER(wcf_grad),
      MEMBER(wco_grad)};
};

template <class T>
struct ArgumentMembers<LstmSequenceForwardArgs<T>> {
  using A = LstmSequenceForwardArgs<T>;
  static constexpr InputMember<A, T> in[] = {
      MEMBER(x), MEMBER(cs_prev), MEMBER(h_prev), MEMBER(recurrent_dropout),
      MEMBER(w_x), MEMBER(w_h), MEMBER(w_p), MEMBER(wci), MEMBER(wcf),
      MEMBER(wco), MEMBER(b), MEMBER(b_h)};
  static constexpr OutputMember<A, T> out[] = {
      MEMBER(i), MEMBER(cs), MEMBER(f), MEMBER(o), MEMBER(ci), MEMBER(co),
      MEMBER(h), MEMBER(cs_last), MEMBER(h_last)};
};

template <class T>
struct ArgumentMembers<LstmSequenceBackwardArgs<T>> {
  using A = LstmSequenceBackwardArgs<T>;
  static constexpr InputMember<A, T> in[] = {
      MEMBER(x), MEMBER(cs_prev), MEMBER(h_prev), MEMBER(recurrent_dropout),
      MEMBER(w_x), MEMBER(w_h), MEMBER(w_p), MEMBER(wci), MEMBER(wcf),
      MEMBER(wco), MEMBER(i), MEMBER(cs), MEMBER(f), MEMBER(o), MEMBER(ci),
      MEMBER(co), MEMBER(h), MEMBER(cs_grad), MEMBER(h_grad),
      MEMBER(cs_last_grad), MEMBER(h_last_grad)};
  static constexpr OutputMember<A, T> out[] = {
      MEMBER(x_grad), MEMBER(cs_prev_grad), MEMBER(h_prev_grad),
      MEMBER(w_x_grad), MEMBER(w_h_grad), MEMBER(w_p_grad), MEMBER(wci_grad),
      MEMBER(wcf_grad), MEMBER(wco_grad), MEMBER(b_grad)};
};

template <class T>
struct ArgumentMembers<GruSequenceForwardArgs<T>> {
  using A = GruSequenceForwardArgs<T>;
  static constexpr InputMember<A, T> in[] = {
      MEMBER(x), MEMBER(h_prev), MEMBER(recurrent_dropout), MEMBER(w_ru_x),
      MEMBER(w_ru_h), MEMBER(w_c_x), MEMBER(w_c_h), MEMBER(b_ru), MEMBER(b_c)};
  static constexpr OutputMember<A, T> out[] = {
      MEMBER(r), MEMBER(u), MEMBER(c), MEMBER(h), MEMBER(h_last)};
};

template <class T>
struct ArgumentMembers<GruSequenceBackwardArgs<T>> {
  using A = GruSequenceBackwardArgs<T>;
  static constexpr InputMember<A, T> in[] = {
      MEMBER(x), MEMBER(h_prev), MEMBER(recurrent_dropout), MEMBER(w_ru_x),
      MEMBER(w_ru_h), MEMBER(w_c_x), MEMBER(w_c_h), MEMBER(r), MEMBER(u),
      MEMBER(c), MEMBER(h), MEMBER(h_grad), MEMBER(h_last_grad)};
  static constexpr OutputMember<A, T> out[] = {
      MEMBER(x_grad), MEMBER(h_prev_grad), MEMBER(w_ru_x_grad),
      MEMBER(w_ru_h_grad), MEMBER(w_c_x_grad), MEMBER(w_c_h_grad),
      MEMBER(b_ru_grad), MEMBER(b_c_grad)};
};

template <class T>
struct ArgumentMembers<GruAfterSequenceForwardArgs<T>> {
  using A = GruAfterSequenceForwardArgs<T>;
  static constexpr InputMember<A, T> in[] = {
      MEMBER(x), MEMBER(h_prev), MEMBER(recurrent_dropout), MEMBER(w_x),
      MEMBER(w_h), MEMBER(b_x), MEMBER(b_h)};
  static constexpr OutputMember<A, T> out[] = {
      MEMBER(r), MEMBER(u), MEMBER(c), MEMBER(hc), MEMBER(h), MEMBER(h_last)};
};

template <class T>
struct ArgumentMembers<GruAfterSequenceBackwardArgs<T>> {
  using A = GruAfterSequenceBackwardArgs<T>;
  static constexpr InputMember<A, T> in[] = {
      MEMBER(x), MEMBER(h_prev), MEMBER(recurrent_dropout), MEMBER(w_x),
      MEMBER(w_h), MEMBER(r), MEMBER(u), MEMBER(c), MEMBER(hc), MEMBER(h),
      MEMBER(h_grad), MEMBER(h_last_grad)};
  static constexpr OutputMember<A, T> out[] = {
      MEMBER(x_grad), MEMBER(h_prev_grad), MEMBER(w_x_grad), MEMBER(w_h_grad),
      MEMBER(b_x_grad), MEMBER(b_h_grad)};
};

template <class T>
struct ArgumentMembers<SimpleRnnForwardArgs<T>> {
  using A = SimpleRnnForwardArgs<T>;
  static constexpr InputMember<A, T> in[] = {
      MEMBER(x), MEMBER(h_prev), MEMBER(recurrent_dropout), MEMBER(w_x),
      MEMBER(w_h), MEMBER(b), MEMBER(b_h)};
  static constexpr OutputMember<A, T> out[] = {
      MEMBER(h), MEMBER(h_last)};
};

template <class T>
struct ArgumentMembers<SimpleRnnBackwardArgs<T>> {
  using A = SimpleRnnBackwardArgs<T>;
  static constexpr InputMember<A, T> in[] = {
      MEMBER(x), MEMBER(h_prev), MEMBER(recurrent_dropout), MEMBER(w_x),
      MEMBER(w_h), MEMBER(h), MEMBER(h_grad), MEMBER(h_last_grad)};
  static constexpr OutputMember<A, T> out[] = {
      MEMBER(x_grad), MEMBER(h_prev_grad), MEMBER(w_x_grad), MEMBER(w_h_grad),
      MEMBER(b_grad)};
};

template <class T>
struct ArgumentMembers<RnnStackForwardArgs<T>> {
  using A = RnnStackForwardArgs<T>;
  static constexpr InputMember<A, T> in[] = {
      MEMBER(input), MEMBER(input_h), MEMBER(input_c), MEMBER(params)};
  static constexpr OutputMember<A, T> out[] = {
      MEMBER(output), MEMBER(output_h), MEMBER(output_c)};
};

template <class T>
struct ArgumentMembers<RnnStackBackwardArgs<T>> {
  using A = RnnStackBackwardArgs<T>;
  static constexpr InputMember<A, T> in[] = {
      MEMBER(input), MEMBER(input_h), MEMBER(input_c), MEMBER(params),
      MEMBER(output), MEMBER(output_backprop), MEMBER(output_h_backprop),
      MEMBER(output_c_backprop)};
  static constexpr OutputMember<A, T> out[] = {
      MEMBER(input_backprop), MEMBER(input_h_backprop),
      MEMBER(input_c_backprop), MEMBER(params_backprop)};
};

#undef MEMBER

// clang-format on

}  // namespace blockrnn

#endif  // BLOCKRNN_KERNELS_ARGUMENT_MEMBERS_H_
