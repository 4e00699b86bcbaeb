// Lists the pointers to elements in the structs of the engines' arguments.

#ifndef BLOCKRNN_CORE_ARGUMENT_MEMBERS_H_
#define BLOCKRNN_CORE_ARGUMENT_MEMBERS_H_

#include <cstddef>
#include <string_view>
#include <type_traits>

namespace blockrnn {

// The names of the pointers in argument structs, each also with _grad: in C++17
// a template cannot list the members of a struct, but it can ask whether there
// is one of a given name.
// clang-format off
#define BLOCKRNN_POINTER_NAMES(F)                                              \
  F(x) F(h_prev) F(cs_prev) F(recurrent_dropout) F(w) F(w_x) F(w_h) F(w_p)     \
  F(w_ru) F(w_c) F(w_c_x) F(w_c_h) F(wci) F(wcf) F(wco)                        \
  F(b) F(b_x) F(b_h) F(b_ru) F(b_c) F(gamma_x) F(beta_x) F(gamma_h) F(beta_h)  \
  F(gamma_c) F(beta_c) F(i) F(cs) F(f) F(o) F(ci) F(co) F(r) F(u) F(c) F(hc)   \
  F(x_hat) F(h_hat) F(rstd) F(h) F(h_last) F(cs_last) F(span_states) F(d_h)    \
  F(d_x) F(d_h_prev) F(d_c_bar) F(d_r_bar_u_bar) F(dicfo) F(input) F(input_h)  \
  F(input_c) F(params) F(output) F(output_h) F(output_c) F(output_backprop)    \
  F(output_h_backprop) F(output_c_backprop) F(input_backprop)                  \
  F(input_h_backprop) F(input_c_backprop) F(params_backprop)
// clang-format on

struct ArgumentMember {
  std::string_view name;
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
#define BLOCKRNN_ADD_MEMBER(name)                                         \
  Add(#name, [](auto tag) -> Place<decltype(decltype(tag)::type::name)> { \
    return {offsetof(typename decltype(tag)::type, name)};                \
  });
#define BLOCKRNN_ADD(name) \
  BLOCKRNN_ADD_MEMBER(name) BLOCKRNN_ADD_MEMBER(name##_grad)
    BLOCKRNN_POINTER_NAMES(BLOCKRNN_ADD)
#undef BLOCKRNN_ADD
#undef BLOCKRNN_ADD_MEMBER
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

#endif  // BLOCKRNN_CORE_ARGUMENT_MEMBERS_H_
