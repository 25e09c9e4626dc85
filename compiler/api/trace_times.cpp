#include "compiler/api/trace_times.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

namespace maco::api {

namespace {

using Json = nlohmann::json;

double number(const Json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_number() ? it->get<double>() : 0;
}

}  // namespace

std::optional<TraceTimes> read_trace(std::string_view text, std::string& error) {
  const Json events = Json::parse(text, nullptr, false);
  if (!events.is_array()) {
    error = "it is no trace of maco-run --profile: no JSON array";
    return std::nullopt;
  }
  TraceTimes ops;
  std::map<std::pair<int64_t, int64_t>, OpTimes*> of_task;  // by rank and task
  std::vector<std::pair<std::pair<int64_t, int64_t>, double>> waits;
  for (const Json& e : events) {
    if (!e.is_object() || !e.contains("args") || !e["args"].is_object() || !e.contains("ts"))
      continue;
    const Json &args = e["args"], &name = e.value("name", Json());
    if (e.value("ph", Json()) != "X" || !name.is_string() || !args.contains("task")) continue;
    const std::pair key(static_cast<int64_t>(number(e, "pid")),
                        static_cast<int64_t>(number(args, "task")));
    const double begin = number(e, "ts"), took = number(e, "dur");
    if (e.value("cat", Json()) == "wait") waits.emplace_back(key, took);
    if (!args.contains("function")) continue;  // a wait, or a loader's
    OpTimes& op = ops[name.get<std::string>()];
    of_task[key] = &op;
    op.begin = op.tasks == 0 ? begin : std::min(op.begin, begin);
    op.end = std::max(op.end, begin + took);
    ++op.tasks;
    op.work += took;
    op.longest = std::max(op.longest, took);
    op.pages += number(args, "waits for pages us");
    op.packets += number(args, "waits for packets us");
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
