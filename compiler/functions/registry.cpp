// The table of device functions.

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "compiler/functions/families.h"
#include "compiler/functions/function.h"
#include "ir/registry.h"

namespace maco::functions {

namespace {

ir::Registry<Function>& table() {
  static ir::Registry<Function> functions(&Function::name, [] {
    std::vector<Function> all;
    for (auto family : {elementwise_functions, matmul_functions, attention_functions,
                        embedding_functions, norm_functions, rope_functions, softmax_functions,
                        reduction_functions, strided_copy_functions, collective_functions,
                        hand_over_functions, chunk_functions, cuda_functions})
      for (Function& f : family()) all.push_back(std::move(f));
    return all;
  }());
  return functions;
}

bool is_identifier(std::string_view text) {
  return !text.empty() && !std::isdigit(static_cast<unsigned char>(text[0])) &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return c == '_' || std::isalnum(static_cast<unsigned char>(c));
         });
}

std::string wrong_with(const Function& f) {
  if (!is_identifier(f.name)) return "its name is no name of C++";
  if (f.source.text.empty()) return "it has no source text";
  std::set<std::string_view> names;
  for (const ParamSpec& p : f.params) {
    if (!is_identifier(p.name)) return fmt::format("parameter '{}' is no name of C++", p.name);
    if (!names.insert(p.name).second) return fmt::format("parameter '{}' is there twice", p.name);
    if ((p.type == ParamType::Word) != !p.words.empty() ||
        (p.type == ParamType::Word) != !p.word_type.empty())
      return fmt::format("parameter '{}' has words and their type if it is a Word, and only then",
                         p.name);
  }
  for (const OperandSpec& o : f.operands)
    if (const ParamSpec* p = f.find_param(o.dtype);
        !o.dtype.empty() && (p ? p->type != ParamType::DType : !ir::dtype_from_name(o.dtype)))
      return fmt::format("operand '{}' has dtype '{}', which is no parameter that holds one",
                         o.name, o.dtype);
  if (std::count_if(f.operands.begin(), f.operands.end(),
                    [](const OperandSpec& o) { return o.count != Count::One; }) > 1)
    return "more than one of its operands is optional or repeated";
  return "";
}

}  // namespace

const Function* find_function(std::string_view name) { return table().find(name); }
std::vector<Function> all_functions() { return table().all(); }

std::string register_function(Function function) {
  const std::string name = function.name;
  if (const std::string why = wrong_with(function); !why.empty())
    return fmt::format("device function '{}': {}", name, why);
  if (!table().add(std::move(function)))
    return fmt::format("device function '{}' is there already", name);
  return "";
}

}  // namespace maco::functions
