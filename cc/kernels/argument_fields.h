// Implements filling the pointers of an engine's argument struct from an op's
// inputs and outputs. They are matched by name when the library is compiled: a
// name that matches nothing is a compile error.

#ifndef BLOCKRNN_KERNELS_ARGUMENT_FIELDS_H_
#define BLOCKRNN_KERNELS_ARGUMENT_FIELDS_H_

#include <array>
#include <cstddef>
#include <cstring>
#include <string_view>

#include "cc/kernels/argument_members.h"
#include "cc/kernels/op_call.h"
#include "cc/ops/op_spec.h"

namespace blockrnn {

// How an op's names differ from those of the engine's struct.
struct FieldNames {
  const char* renamed = "";  // "member=argument", separated by spaces
  const char* unread = "";   // arguments of type T without a member
};

// Args: the struct for elements of float, whose pointers are where those of
// every other type are.
template <class Args>
class ArgumentFields {
 public:
  // Members without an argument in the row stay nullptr.
  constexpr ArgumentFields(const OpSpec& row, const FieldNames& names) {
    constexpr ArgumentMembers<Args> kMembers;
    for (const ArgumentMember& member : kMembers) {
      const std::string_view list = member.written ? row.outputs : row.inputs;
      const int index = Find(list, member.name, names.renamed);
      if (index < 0) continue;
      fields_[size_++] = {member.offset, index, member.written,
                          !member.written && Has(list, index, "]?"),
                          Has(list, index, "[K*")};
    }
    std::string_view unread = names.unread;
    while (!unread.empty()) {
      const std::string_view name = NextPart(&unread, ' ');
      if (!HasInput(row, name) && !HasOutput(row, name)) NoSuchName(name);
    }
    CheckAllFound(row.inputs, names.unread, false);
    CheckAllFound(row.outputs, names.unread, true);
  }

  // args: the struct for elements of any type.
  template <class ArgsOfType>
  void Fill(const OpCall& call, bool saves_gates, ArgsOfType* args) const {
    static_assert(sizeof(ArgsOfType) == sizeof(Args));
    for (int i = 0; i < size_; ++i) {
      const Field& field = fields_[i];
      if ((field.optional && LeftOut(call, field.index)) ||
          (field.saved && !saves_gates)) {
        continue;  // stays nullptr
      }
      const void* const data =
          field.written ? call.output(field.index) : call.input(field.index);
      std::memcpy(reinterpret_cast<char*>(args) + field.offset, &data,
                  sizeof(data));
    }
  }

 private:
  struct Field {
    std::size_t offset = 0;
    int index = 0;  // of the input or output
    bool written = false;
    bool optional = false;  // an input that may be left out
    bool saved = false;     // for backward; else empty
  };

  static constexpr bool Has(std::string_view list, int index,
                            std::string_view mark) {
    return ArgumentText(list, index).find(mark) != std::string_view::npos;
  }

  static constexpr int Find(std::string_view list, std::string_view member,
                            std::string_view renamed) {
    while (!renamed.empty()) {
      std::string_view pair = NextPart(&renamed, ' ');
      if (NextPart(&pair, '=') == member) return IndexIn(list, pair);
    }
    return FindArgument(list, member);
  }

  constexpr void CheckAllFound(std::string_view list, std::string_view unread,
                               bool written) const {
    for (int index = 0; !list.empty(); ++index) {
      const std::string_view argument = NextPart(&list, ' ');
      const std::string_view name = ArgumentName(argument);
      bool found = argument[name.size()] == ':' ||  // of a type other than T
                   FindArgument(unread, name) >= 0;
      for (int i = 0; i < size_; ++i) {
        found |= fields_[i].written == written && fields_[i].index == index;
      }
      if (!found) NoSuchName(name);
    }
  }

  std::array<Field, ArgumentMembers<Args>::kMax> fields_ = {};
  int size_ = 0;
};

}  // namespace blockrnn

#endif  // BLOCKRNN_KERNELS_ARGUMENT_FIELDS_H_
