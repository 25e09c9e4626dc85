// Methods of device functions: their table.
#include <fmt/format.h>

#include <algorithm>

#include "compiler/functions/families.h"
#include "compiler/functions/function.h"
#include "ir/registry.h"

namespace maco::functions {

namespace {

std::string key(std::string_view function, std::string_view name) {
  return fmt::format("{} {}", function, name);
}

ir::Registry<Method>& table() {
  static ir::Registry<Method> methods([](const Method& m) { return key(m.function, m.name); },
                                      matmul_methods());
  return methods;
}

const Stage* find_stage(std::string_view function, std::string_view name) {
  const std::vector<const Stage*> stages = stages_of(function);
  const auto at =
      std::find_if(stages.begin(), stages.end(), [&](const Stage* s) { return s->name == name; });
  return at == stages.end() ? nullptr : *at;
}

bool has(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string wrong_with(const Method& method) {
  const Function* f = find_function(method.function);
  if (!f) return fmt::format("there is no device function '{}'", method.function);
  if (std::none_of(f->params.begin(), f->params.end(),
                   [](const ParamSpec& p) { return p.type == ParamType::Method; }))
    return fmt::format("'{}' has no methods", f->name);
  if (method.name.empty() || method.code.empty()) return "it has no name or no code";
  for (const std::string& part : method.takes)
    if (!has(f->asks, part) && std::none_of(f->slots.begin(), f->slots.end(),
                                            [&](const Slot& s) { return s.name == part; }))
      return fmt::format("'{}' has no slot '{}', and asks for no such stage", f->name, part);
  return "";
}

}  // namespace

std::vector<const Method*> methods_of(std::string_view function) {
  std::vector<const Method*> list;
  table().each([&](const Method& m) {
    if (m.function == function) list.push_back(&m);
  });
  return list;
}

const Method* find_method(std::string_view function, std::string_view name) {
  return table().find(key(function, name));
}

const Method* method_of(const ir::Call& call) {
  const Function* f = find_function(call.function);
  if (!f) return nullptr;
  for (const ir::Param& p : call.params)
    if (const auto* word = std::get_if<ir::Word>(&p.value))
      if (const ParamSpec* spec = f->find_param(p.name); spec && spec->type == ParamType::Method)
        return find_method(call.function, word->text);
  return nullptr;
}

bool takes_stage(const Method& method, std::string_view name) {
  const Stage* stage = find_stage(method.function, name);
  if (stage->fills.empty()) return has(method.takes, stage->name);
  return std::all_of(stage->fills.begin(), stage->fills.end(),
                     [&](const auto& fill) { return has(method.takes, fill.first); });
}

std::string register_method(Method method) {
  const std::string name = method.name, function = method.function;
  if (const std::string why = wrong_with(method); !why.empty())
    return fmt::format("method '{}' of '{}': {}", name, function, why);
  if (!table().add(std::move(method)))
    return fmt::format("method '{}' of '{}' is there already", name, function);
  return "";
}

}  // namespace maco::functions
