// Implements filling the pointers of an engine's argument struct from an op's
// inputs and outputs. They are matched by name when the library is compiled: a
// name that matches nothing is a compile error.

#ifndef BLOCKRNN_KERNELS_ARGUMENT_FIELDS_H_
#define BLOCKRNN_KERNELS_ARGUMENT_FIELDS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>

#include "cc/core/engine_args.h"
#include "cc/kernels/op_call.h"
#include "cc/ops/op_spec.h"

namespace blockrnn {

// The names of the pointers in argument structs, each also with _grad: in C++17
// a template cannot list the members of a struct, but it can ask whether there
// is one of a given name.
// clang-format off
#define BLOCKRNN_POINTER_NAMES(F)                                              \
  F(x) F(h_prev) F(cs_prev) F(recurrent_dropout) F(w) F(w_x) F(w_h) F(w_p)     \
  F(w_ru) F(w_c) F(w_ru_x) F(w_ru_h) F(w_c_x) F(w_c_h) F(wci) F(wcf) F(wco)    \
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

// How an op's names differ from those of the engine's struct.
struct FieldNames {
  // "member=argument" or "member=argument+4I*H", for a pointer to so many
  // elements behind its begin; separated by spaces.
  const char* renamed = "";
  const char* unread = "";  // arguments of type T without a member
};

template <class Args>
class ArgumentFields {
 public:
  // Members without an argument in the row stay nullptr.
  constexpr ArgumentFields(const OpSpec& row, const FieldNames& names) {
    constexpr ArgumentMembers<Args> kMembers;
    for (const ArgumentMember& member : kMembers) {
      const ArgumentList& list = member.written ? row.outputs : row.inputs;
      Add(member, list, FindArgument(list, member.name), "");
    }
    std::string_view renamed = names.renamed;
    while (!renamed.empty()) {
      std::string_view argument = NextPart(&renamed, ' ');
      const ArgumentMember& member = Find(kMembers, NextPart(&argument, '='));
      const ArgumentList& list = member.written ? row.outputs : row.inputs;
      const int index = IndexIn(list, NextPart(&argument, '+'));
      Add(member, list, index, argument);
    }
    std::string_view unread = names.unread;
    while (!unread.empty()) {
      const std::string_view name = NextPart(&unread, ' ');
      if (!HasInput(row, name) && !HasOutput(row, name)) NoSuchName(name);
    }
    CheckAllFound(row.inputs, names.unread, false);
    CheckAllFound(row.outputs, names.unread, true);
  }

  // args: the struct for elements T.
  template <class T, class ArgsOfT>
  void Fill(const OpCall& call, const Bindings& bound, bool saves_gates,
            ArgsOfT* args) const {
    static_assert(sizeof(ArgsOfT) == sizeof(Args));
    for (int i = 0; i < size_; ++i) {
      const Field& field = fields_[i];
      if ((field.optional && LeftOut(call, field.index)) ||
          (field.saved && !saves_gates)) {
        continue;  // stays nullptr
      }
      const void* const data =
          field.written ? call.output(field.index) : call.input(field.index);
      const T* const begin =
          static_cast<const T*>(data) + field.start.In(bound);
      std::memcpy(reinterpret_cast<char*>(args) + field.offset, &begin,
                  sizeof(void*));
    }
  }

 private:
  // A product of a number and symbols, in elements.
  struct Start {
    int64_t factor = 0;
    std::string_view symbols;  // separated by asterisks

    int64_t In(const Bindings& bound) const {
      int64_t elements = factor;
      for (char symbol : symbols) {
        if (symbol != '*') elements *= bound[symbol];
      }
      return elements;
    }
  };
  struct Field {
    std::size_t offset = 0;
    int index = 0;  // of the input or output
    bool written = false;
    bool optional = false;  // an input that may be left out
    bool saved = false;     // for backward; else empty
    Start start;
  };

  static constexpr const ArgumentMember& Find(
      const ArgumentMembers<Args>& members, std::string_view name) {
    for (const ArgumentMember& member : members) {
      if (member.name == name) return member;
    }
    NoSuchName(name);
  }

  // index: of the argument, or -1; start: "4I*H", or "".
  constexpr void Add(const ArgumentMember& member, const ArgumentList& list,
                     int index, std::string_view start) {
    if (index < 0) return;
    Field& field = fields_[size_++];
    field.offset = member.offset;
    field.index = index;
    field.written = member.written;
    if (!start.empty()) {
      const bool has_number = start[0] >= '0' && start[0] <= '9';
      field.start.factor = has_number ? start[0] - '0' : 1;
      field.start.symbols = start.substr(has_number ? 1 : 0);
    }
    for (std::string_view argument : list) {
      if (index-- != 0) continue;
      field.optional =
          !member.written && argument.find("]?") != std::string_view::npos;
      field.saved = argument.find("[K*") != std::string_view::npos;
    }
  }

  constexpr void CheckAllFound(const ArgumentList& list,
                               std::string_view unread, bool written) const {
    int index = 0;
    for (std::string_view argument : list) {
      const std::string_view name = ArgumentName(argument);
      bool found = argument[name.size()] == ':';  // of a type other than T
      for (std::string_view rest = unread; !rest.empty();) {
        found |= NextPart(&rest, ' ') == name;
      }
      for (int i = 0; i < size_; ++i) {
        found |= fields_[i].written == written && fields_[i].index == index;
      }
      if (!found) NoSuchName(name);
      ++index;
    }
  }

  std::array<Field, ArgumentMembers<Args>::kMax> fields_ = {};
  int size_ = 0;
};

}  // namespace blockrnn

#endif  // BLOCKRNN_KERNELS_ARGUMENT_FIELDS_H_
