// Finds the pointers in the argument structs of the engines by name. The name
// is that of the op's input or output, unless the op renames it
// (cc/kernels/argument_fields.h).

#ifndef BLOCKRNN_KERNELS_ARGUMENT_MEMBERS_H_
#define BLOCKRNN_KERNELS_ARGUMENT_MEMBERS_H_

#include <cstddef>
#include <type_traits>

#include "cc/core/engine_args.h"

// The names of all of them: a template cannot list the members of a struct, but
// it can ask whether there is one of a given name.
// clang-format off
#define BLOCKRNN_ARGUMENT_NAMES(F)                                             \
  F(x) F(h_prev) F(cs_prev) F(recurrent_dropout) F(w) F(w_x) F(w_h) F(w_p)     \
  F(w_ru) F(w_c) F(w_ru_x) F(w_ru_h) F(w_c_x) F(w_c_h) F(wci) F(wcf) F(wco)    \
  F(b) F(b_x) F(b_h) F(b_ru) F(b_c) F(i) F(cs) F(f) F(o) F(ci) F(co) F(r)      \
  F(u) F(c) F(hc) F(h) F(h_last) F(cs_last) F(span_states) F(d_h) F(d_x)       \
  F(d_h_prev) F(d_c_bar) F(d_r_bar_u_bar) F(dicfo) F(h_grad) F(cs_grad)        \
  F(h_last_grad) F(cs_last_grad) F(x_grad) F(h_prev_grad) F(cs_prev_grad)      \
  F(w_x_grad) F(w_h_grad) F(w_p_grad) F(w_ru_x_grad) F(w_ru_h_grad)            \
  F(w_c_x_grad) F(w_c_h_grad) F(wci_grad) F(wcf_grad) F(wco_grad) F(b_grad)    \
  F(b_x_grad) F(b_h_grad) F(b_ru_grad) F(b_c_grad) F(input) F(input_h)         \
  F(input_c) F(params) F(output) F(output_h) F(output_c) F(output_backprop)    \
  F(output_h_backprop) F(output_c_backprop) F(input_backprop)                  \
  F(input_h_backprop) F(input_c_backprop) F(params_backprop) F(gamma_x)        \
  F(beta_x) F(gamma_h) F(beta_h) F(gamma_c) F(beta_c) F(x_hat) F(h_hat)        \
  F(rstd) F(gamma_x_grad) F(beta_x_grad) F(gamma_h_grad) F(beta_h_grad)        \
  F(gamma_c_grad) F(beta_c_grad)
// clang-format on

namespace blockrnn {

struct ArgumentMember {
  const char* name = nullptr;
  std::size_t offset = 0;
  bool written = false;  // by an engine, which reads the others
};

// The pointers to elements in a struct of the engines' arguments, which are at
// the same places for elements of every type: Args is the struct for float, so
// that one instantiation serves all of them.
template <class Args>
class ArgumentMembers {
 public:
  static constexpr int kMax = 64;

  constexpr ArgumentMembers() {
// The structs have bases, and GCC and clang know the offsets there as well.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"
#define BLOCKRNN_ADD(name)                                                \
  Add(#name, [](auto tag) -> Place<decltype(decltype(tag)::type::name)> { \
    return {offsetof(typename decltype(tag)::type, name)};                \
  });
    BLOCKRNN_ARGUMENT_NAMES(BLOCKRNN_ADD)
#undef BLOCKRNN_ADD
#pragma GCC diagnostic pop
  }

  constexpr const ArgumentMember* begin() const { return members_; }
  constexpr const ArgumentMember* end() const { return members_ + size_; }

 private:
  struct Tag {
    using type = Args;
  };
  template <class Pointer>
  struct Place {
    std::size_t offset;
  };

  // find(tag): the place of the member, where there is one.
  template <class Find>
  constexpr void Add(const char* name, const Find& find) {
    if constexpr (std::is_invocable_v<Find, Tag>) AddTo(name, find(Tag()));
  }
  constexpr void AddTo(const char* name, Place<const float*> place) {
    members_[size_++] = {name, place.offset, false};
  }
  constexpr void AddTo(const char* name, Place<float*> place) {
    members_[size_++] = {name, place.offset, true};
  }

  ArgumentMember members_[kMax] = {};
  int size_ = 0;
};

}  // namespace blockrnn

#endif  // BLOCKRNN_KERNELS_ARGUMENT_MEMBERS_H_
