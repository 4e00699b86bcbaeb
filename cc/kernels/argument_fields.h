// Implements filling the pointers of an engine's argument struct from an op's
// inputs and outputs. They are matched by name when the library is compiled: a
// name that matches nothing is a compile error.

#ifndef BLOCKRNN_KERNELS_ARGUMENT_FIELDS_H_
#define BLOCKRNN_KERNELS_ARGUMENT_FIELDS_H_

#include <array>
#include <cstddef>
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

template <class Args, class T>
class ArgumentFields {
 public:
  // Members without an argument in the row stay nullptr.
  constexpr ArgumentFields(const OpSpec& row, const FieldNames& names) {
    constexpr Members kMembers;
    for (const auto& member : kMembers.in()) {
      const int index = Find(row.inputs, member.name, names.renamed);
      if (index < 0) continue;
      const bool optional = Has(row.inputs, index, "]?");
      inputs_[num_inputs_++] = {member.member, index, optional};
    }
    for (const auto& member : kMembers.out()) {
      const int index = Find(row.outputs, member.name, names.renamed);
      if (index < 0) continue;
      outputs_[num_outputs_++] = {member.member, index,
                                  Has(row.outputs, index, "[K*")};
    }
    std::string_view unread = names.unread;
    while (!unread.empty()) {
      const std::string_view name = NextPart(&unread, ' ');
      if (!HasInput(row, name) && !HasOutput(row, name)) NoSuchName(name);
    }
    CheckAllFound(row.inputs, names.unread, inputs_, num_inputs_);
    CheckAllFound(row.outputs, names.unread, outputs_, num_outputs_);
  }

  void Fill(const OpCall& call, bool is_training, Args* args) const {
    for (int i = 0; i < num_inputs_; ++i) {
      const Field<const T>& input = inputs_[i];
      if (input.may_lack && LeftOut(call, input.index)) continue;
      args->*input.member = Input<T>(call, input.index);
    }
    for (int i = 0; i < num_outputs_; ++i) {
      const Field<T>& output = outputs_[i];
      if (output.may_lack && !is_training) continue;
      args->*output.member = Output<T>(call, output.index);
    }
  }

 private:
  using Members = ArgumentMembers<Args, T>;

  template <class Element>
  struct Field {
    Element* Args::*member = nullptr;
    int index = 0;
    // Stays nullptr for an input that is left out, and for an output saved for
    // backward that is empty without is_training.
    bool may_lack = false;
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

  template <class Fields>
  static constexpr void CheckAllFound(std::string_view list,
                                      std::string_view unread,
                                      const Fields& fields, int count) {
    for (int index = 0; !list.empty(); ++index) {
      const std::string_view argument = NextPart(&list, ' ');
      const std::string_view name = ArgumentName(argument);
      bool found = argument[name.size()] == ':' ||  // of a type other than T
                   FindArgument(unread, name) >= 0;
      for (int i = 0; i < count; ++i) found |= fields[i].index == index;
      if (!found) NoSuchName(name);
    }
  }

  std::array<Field<const T>, Members::kMax> inputs_ = {};
  std::array<Field<T>, Members::kMax> outputs_ = {};
  int num_inputs_ = 0;
  int num_outputs_ = 0;
};

}  // namespace blockrnn

#endif  // BLOCKRNN_KERNELS_ARGUMENT_FIELDS_H_
