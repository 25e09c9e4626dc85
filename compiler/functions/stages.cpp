// Stages of device functions: their table, and functions put together with them.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <tuple>

#include "compiler/functions/families.h"
#include "compiler/functions/function.h"
#include "ir/registry.h"

namespace maco::functions {

namespace {

std::string key_of(const Stage& stage) { return stage.function + " " + stage.name; }

ir::Registry<Stage>& table() {
  static ir::Registry<Stage> stages(key_of, matmul_stages());
  return stages;
}

const Stage* find_stage(const std::string& function, const std::string& name) {
  return table().find(function + " " + name);
}

bool has(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Puts `more` behind element `at` of `list`; returns the place behind them.
size_t insert_at(std::vector<OperandSpec>& list, size_t at, const std::vector<OperandSpec>& more) {
  list.insert(list.begin() + static_cast<std::ptrdiff_t>(at), more.begin(), more.end());
  return at + more.size();
}

Function put_together(const ir::Call& call) {
  Function f = *find_function(call.function);
  const auto is_result = [](const OperandSpec& o) { return o.access != Access::Read; };
  size_t inputs = static_cast<size_t>(
      std::find_if(f.operands.begin(), f.operands.end(), is_result) - f.operands.begin());
  size_t results = inputs;
  while (results < f.operands.size() && is_result(f.operands[results])) ++results;
  for (const std::string& name : call.stages) {
    const Stage& stage = *find_stage(call.function, name);
    f.params.insert(f.params.end(), stage.params.begin(), stage.params.end());
    inputs = insert_at(f.operands, inputs, stage.inputs);
    results = insert_at(f.operands, results + stage.inputs.size(), stage.results);
    auto& headers = f.source.headers;
    headers.insert(headers.begin(), stage.headers_before.begin(), stage.headers_before.end());
    headers.insert(headers.end(), stage.source.headers.begin(), stage.source.headers.end());
    if (!stage.source.text.empty()) f.source.more.push_back(stage.source.text);
    for (const auto& [slot, filled] : stage.fills)
      std::find_if(f.slots.begin(), f.slots.end(), [&](const Slot& s) {
        return s.name == slot;
      })->fill = filled;
    if (stage.change) stage.change(f);
  }
  return f;
}

std::vector<std::string> names_of(const std::vector<const Stage*>& stages) {
  std::vector<std::string> names;
  for (const Stage* s : stages) names.push_back(s->name);
  return names;
}

std::string wrong_with(const Stage& stage) {
  const Function* f = find_function(stage.function);
  if (!f) return fmt::format("there is no device function '{}'", stage.function);
  std::set<std::string> names;  // of parameters and operands
  for (const ParamSpec& p : f->params) names.insert(p.name);
  for (const OperandSpec& o : f->operands) names.insert(o.name);
  std::vector<std::string> beside = stage.beside;
  if (!stage.needs.empty()) beside.push_back(stage.needs);
  for (const std::string& name : beside) {
    const Stage* other = find_stage(stage.function, name);
    if (!other) return fmt::format("'{}' has no stage '{}'", f->name, name);
    for (const ParamSpec& p : other->params) names.insert(p.name);
    for (const auto* list : {&other->inputs, &other->results})
      for (const OperandSpec& o : *list) names.insert(o.name);
  }
  for (const ParamSpec& p : stage.params)
    if (!names.insert(p.name).second) return fmt::format("parameter '{}' is there already", p.name);
  for (const auto* list : {&stage.inputs, &stage.results})
    for (const OperandSpec& o : *list) {
      if (o.count != Count::One) return fmt::format("operand '{}' isn't one operand", o.name);
      if (!names.insert(o.name).second) return fmt::format("operand '{}' is there already", o.name);
    }
  for (const auto& [slot, filled] : stage.fills)
    if (std::none_of(f->slots.begin(), f->slots.end(),
                     [&, &name = slot](const Slot& s) { return s.name == name; }))
      return fmt::format("'{}' has no slot '{}'", f->name, slot);
  if (stage.fills.empty() && !has(f->asks, stage.name))
    return fmt::format("it fills no slot of '{}'", f->name);
  return "";
}

}  // namespace

std::vector<const Stage*> stages_of(std::string_view function) {
  std::vector<const Stage*> list;
  table().each([&](const Stage& s) {
    if (s.function == function) list.push_back(&s);
  });
  return list;
}

std::string refuse_stages(const ir::Call& call) {
  const Function* f = find_function(call.function);
  if (!f) {
    std::vector<std::string> names;
    for (const Function& known : all_functions()) names.push_back(known.name);
    return fmt::format("calls '{}', which is no device function{}", call.function,
                       ir::did_you_mean(call.function, names));
  }
  if (call.stages.empty()) return "";
  const std::vector<const Stage*> known = stages_of(call.function);
  size_t next = 0;  // the first of `known` that may follow
  for (size_t i = 0; i < call.stages.size(); ++i) {
    const std::string& name = call.stages[i];
    const auto at =
        std::find_if(known.begin(), known.end(), [&](const Stage* s) { return s->name == name; });
    if (at == known.end())
      return fmt::format("calls '{}' with '{}', which is no stage of it{}", f->name, name,
                         known.empty() ? "" : ir::did_you_mean(name, names_of(known)));
    const Stage& stage = **at;
    const auto place = static_cast<size_t>(at - known.begin());
    if (place < next)
      return fmt::format("has stages of '{}' twice or in another order than {}", f->name,
                         fmt::join(names_of(known), ", "));
    next = place + 1;
    for (size_t k = 0; k < i; ++k)
      if (!has(stage.beside, call.stages[k]))
        return fmt::format("calls '{}' with '{}' and '{}', which can't be together", f->name,
                           call.stages[k], name);
    if (!stage.needs.empty() && !has(call.stages, stage.needs))
      return fmt::format("calls '{}' with '{}', but without '{}'", f->name, name, stage.needs);
  }
  return "";
}

namespace {

// A function and its stages. Calls are looked up as they are.
struct Named {
  std::string function;
  std::vector<std::string> stages;
};
struct Before {
  using is_transparent = void;
  template <class A, class B>
  bool operator()(const A& a, const B& b) const {
    return std::tie(a.function, a.stages) < std::tie(b.function, b.stages);
  }
};

}  // namespace

const Function* find_function(const ir::Call& call) {
  if (call.stages.empty()) return find_function(call.function);
  static std::shared_mutex mutex;
  static std::map<Named, std::unique_ptr<const Function>, Before> known;
  {
    const std::shared_lock lock(mutex);
    const auto at = known.find(call);
    if (at != known.end()) return at->second.get();
  }
  if (!refuse_stages(call).empty()) return nullptr;
  auto made = std::make_unique<const Function>(put_together(call));
  const std::unique_lock lock(mutex);
  return known.try_emplace({call.function, call.stages}, std::move(made)).first->second.get();
}

std::string register_stage(Stage stage) {
  const std::string name = stage.name, function = stage.function;
  if (const std::string why = wrong_with(stage); !why.empty())
    return fmt::format("stage '{}' of '{}': {}", name, function, why);
  if (!table().add(std::move(stage)))
    return fmt::format("stage '{}' of '{}' is there already", name, function);
  return "";
}

}  // namespace maco::functions
