// Stages of device functions: their table, and functions put together with them.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <shared_mutex>

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
      })->otherwise = filled;
    if (stage.change) stage.change(f);
  }
  return f;
}

std::string list_of(const std::vector<Stage>& stages) {
  std::string text;
  for (const Stage& s : stages) text += (text.empty() ? "" : ", ") + s.name;
  return text;
}

std::string wrong_with(const Stage& stage) {
  const Function* f = find_function(stage.function);
  if (!f) return fmt::format("there is no device function '{}'", stage.function);
  std::set<std::string> names;
  for (const ParamSpec& p : f->params) names.insert(p.name);
  for (const ParamSpec& p : stage.params)
    if (!names.insert(p.name).second) return fmt::format("parameter '{}' is there already", p.name);
  for (const auto& [slot, filled] : stage.fills)
    if (std::none_of(f->slots.begin(), f->slots.end(),
                     [&, &name = slot](const Slot& s) { return s.name == name; }))
      return fmt::format("'{}' has no slot '{}'", f->name, slot);
  for (const auto* list : {&stage.inputs, &stage.results})
    for (const OperandSpec& o : *list)
      if (o.count != Count::One) return fmt::format("operand '{}' isn't one operand", o.name);
  if (stage.fills.empty() && !has(f->asks, stage.name))
    return fmt::format("it fills no slot of '{}'", f->name);
  return "";
}

}  // namespace

std::vector<Stage> stages_of(std::string_view function) {
  std::vector<Stage> list;
  for (Stage& s : table().all())
    if (s.function == function) list.push_back(std::move(s));
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
  const std::vector<Stage> known = stages_of(call.function);
  size_t next = 0;  // the first of `known` that may follow
  for (size_t i = 0; i < call.stages.size(); ++i) {
    const std::string& name = call.stages[i];
    const auto at =
        std::find_if(known.begin(), known.end(), [&](const Stage& s) { return s.name == name; });
    if (at == known.end()) {
      std::vector<std::string> names;
      for (const Stage& s : known) names.push_back(s.name);
      return fmt::format("calls '{}' with '{}', which is no stage of it{}", f->name, name,
                         names.empty() ? "" : ir::did_you_mean(name, names));
    }
    const auto place = static_cast<size_t>(at - known.begin());
    if (place < next)
      return fmt::format("has stages of '{}' twice or in another order than {}", f->name,
                         list_of(known));
    next = place + 1;
    for (size_t k = 0; k < i; ++k)
      if (!has(at->beside, call.stages[k]))
        return fmt::format("calls '{}' with '{}' and '{}', which can't be together", f->name,
                           call.stages[k], name);
    if (!at->needs.empty() && !has(call.stages, at->needs))
      return fmt::format("calls '{}' with '{}', but without '{}'", f->name, name, at->needs);
  }
  return "";
}

const Function* find_function(const ir::Call& call) {
  if (call.stages.empty()) return find_function(call.function);
  using Key = std::pair<std::string, std::vector<std::string>>;
  static std::shared_mutex mutex;
  static std::map<Key, std::unique_ptr<const Function>> known;
  const Key key(call.function, call.stages);
  {
    const std::shared_lock lock(mutex);
    const auto at = known.find(key);
    if (at != known.end()) return at->second.get();
  }
  if (!refuse_stages(call).empty()) return nullptr;
  auto made = std::make_unique<const Function>(put_together(call));
  const std::unique_lock lock(mutex);
  return known.try_emplace(key, std::move(made)).first->second.get();
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
