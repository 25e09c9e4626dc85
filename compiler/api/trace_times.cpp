#include "compiler/api/trace_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "compiler/frontend/frontend.h"
#include "ir/manifest.h"
#include "ir/program_text.h"

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

std::string other_kernel(const TraceKernel& traced, const ir::Program& program) {
  const auto named = [](const std::string& graph, const std::string& target,
                        const std::string& board) {
    return fmt::format("graph '{}' for target '{}'{}", graph, target,
                       board.empty() ? "" : fmt::format(" and board '{}'", board));
  };
  if (traced.program.empty())
    return "it doesn't say which kernel it is of, because an older version of MACO wrote it: "
           "profile again";
  if (traced.program == ir::text_hash(ir::print(program))) return "";
  const std::string theirs = named(traced.graph, traced.target, traced.board),
                    own = named(program.name, program.target, program.board);
  if (theirs != own) return fmt::format("it is of {}, but this is {}", theirs, own);
  return fmt::format(
      "it is of another kernel of {}: the text of the graph, the options or the version of MACO "
      "differ",
      own);
}

std::optional<TraceTimes> read_trace(std::string_view trace, std::string& error,
                                     TraceKernel* kernel) {
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
    if (args && kernel && text(e, "ph") == "M" && name == "maco_kernel")
      *kernel = {text(*args, "graph"), text(*args, "target"), text(*args, "board"),
                 text(*args, "program")};
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
