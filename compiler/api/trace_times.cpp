#include "compiler/api/trace_times.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "compiler/frontend/frontend.h"

namespace maco::api {

namespace {

using frontend::Raw;

double number(const Raw& object, const char* key) {
  const Raw* value = object.find(key);
  if (!value) return 0;
  return value->kind == Raw::Kind::Int ? static_cast<double>(value->integer) : value->number;
}
std::string text(const Raw& object, const char* key) {
  const Raw* value = object.find(key);
  return value && value->kind == Raw::Kind::String ? value->text : "";
}

}  // namespace

std::optional<TraceTimes> read_trace(std::string_view trace, std::string& error) {
  ir::Diagnostics diagnostics;
  const auto events =
      frontend::parse_json_raw(diagnostics.add_file("trace", std::string(trace)), diagnostics);
  if (!events || events->kind != Raw::Kind::List) {
    error = "it is no trace of maco-run --profile: no JSON array";
    return std::nullopt;
  }
  TraceTimes ops;
  std::map<std::pair<int64_t, int64_t>, OpTimes*> of_task;  // by rank and task
  std::vector<std::pair<std::pair<int64_t, int64_t>, double>> waits;
  for (const Raw& e : events->list) {
    const Raw* args = e.find("args");
    const std::string name = text(e, "name");
    if (!args || text(e, "ph") != "X" || name.empty() || !args->find("task")) continue;
    const std::pair key(static_cast<int64_t>(number(e, "pid")),
                        static_cast<int64_t>(number(*args, "task")));
    const double begin = number(e, "ts"), took = number(e, "dur");
    if (text(e, "cat") == "wait") waits.emplace_back(key, took);
    if (!args->find("function")) continue;  // a wait, or a loader's
    OpTimes& op = ops[name];
    of_task[key] = &op;
    op.begin = op.tasks == 0 ? begin : std::min(op.begin, begin);
    op.end = std::max(op.end, begin + took);
    ++op.tasks;
    op.work += took;
    op.longest = std::max(op.longest, took);
    op.pages += number(*args, "waits for pages us");
    op.packets += number(*args, "waits for packets us");
  }
  if (ops.empty()) {
    error = "it is no trace of maco-run --profile: it has no tasks";
    return std::nullopt;
  }
  for (const auto& [key, took] : waits)
    if (const auto it = of_task.find(key); it != of_task.end()) it->second->waits += took;
  return ops;
}

}  // namespace maco::api
