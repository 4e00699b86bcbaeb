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

#include "cc/core/argument_members.h"
#include "cc/core/engine_args.h"
#include "cc/kernels/op_call.h"
#include "cc/ops/op_spec.h"

namespace blockrnn {

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
