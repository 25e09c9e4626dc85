#include "compiler/api/report.h"

#include <fmt/format.h>

namespace maco::api {

namespace {

// What happened to ops, and how often: once for all layers, whose ops differ only in their names.
std::string fusions_of(const Compiled& c) {
  struct Alike {
    std::string what, first;
    size_t count = 0;
  };
  std::vector<Alike> all;
  std::map<std::string, size_t> known;
  for (const auto& [what, ops] : c.fusions) {
    const auto [at, fresh] = known.emplace(ir::without_names(what), all.size());
    if (fresh) all.push_back({what, ops.front(), 0});
    all[at->second].count += ops.size();
  }
  std::string s;
  for (const Alike& a : all)
    s += fmt::format("{:>6} x {} (the first: '{}')\n", a.count, a.what, a.first);
  return s;
}

}  // namespace

std::string report(const Compiled& c) {
  std::string of_variants;
  for (size_t i = 0; i < c.variants.size(); ++i) {
    const auto& condition = c.variants[i].condition;
    of_variants +=
        fmt::format("{}variant {}, {}\n{}", i == 0 ? "" : "\n", i + 1,
                    condition ? "if " + condition->str() : "else", report(c.variants[i]));
  }
  if (!of_variants.empty()) return of_variants;
  const ir::Program& p = c.program;
  std::string s = fmt::format("{}: {} rank{}, target {}, board {}, {} CTAs a rank\n\n", p.name,
                              p.world, p.world == 1 ? "" : "s", p.target, p.board, p.ctas);
  s += fmt::format("{:<12} {:>9} {:>6} {:>8}  {}\n", "role", "SMs", "count", "tasks",
                   "kinds of ops");
  std::map<int32_t, int64_t> tasks_on;
  for (const ir::Task& t : p.tasks) tasks_on[t.sm]++;
  for (const ir::CtaRange& r : p.roles) {
    int64_t n = 0;
    for (int32_t sm = r.begin; sm < r.end; ++sm) n += tasks_on.count(sm) ? tasks_on[sm] : 0;
    std::string kinds = r.ops.empty() ? "any" : "";
    for (const std::string& k : r.ops) kinds += (kinds.empty() ? "" : ", ") + k;
    s += fmt::format("{:<12} {:>9} {:>6} {:>8}  {}\n", ir::name(r.role),
                     fmt::format("{}..{}", r.begin, r.end - 1), r.end - r.begin, n, kinds);
  }
  std::map<std::string, std::pair<int64_t, int64_t>> kinds;
  std::map<std::string, std::string> function_of;
  for (const ir::Call& call : p.calls) kinds[call.op_kind + " " + ir::function_text(call)].first++;
  for (const ir::Task& t : p.tasks)
    kinds[p[t.call].op_kind + " " + ir::function_text(p[t.call])].second++;
  s += fmt::format("\n{:<16} {:<24} {:>6} {:>8}\n", "op", "device function", "calls", "tasks");
  for (const auto& [key, n] : kinds) {
    const size_t blank = key.find(' ');
    s += fmt::format("{:<16} {:<24} {:>6} {:>8}\n", key.substr(0, blank), key.substr(blank + 1),
                     n.first, n.second);
  }
  if (!c.fusions.empty()) s += "\n";
  s += fusions_of(c);
  const auto stat = [&](const char* name) {
    auto it = c.statistics.find(name);
    return it == c.statistics.end() ? int64_t{0} : it->second;
  };
  if (const int64_t microbatches = stat("microbatches"); microbatches > 0)
    s +=
        fmt::format("\npipeline       {:>12} microbatches of up to {} rows{}\n", microbatches,
                    stat("rows of a microbatch"),
                    stat("microbatches overlap") > 0 ? ""
                                                     : ", one behind the other: ranks pass on what "
                                                       "they receive");
  int64_t caller = 0;
  for (const ir::Buffer& b : p.buffers)
    if (b.kind != ir::BufferKind::Temp && b.kind != ir::BufferKind::Slot) caller += b.bytes();
  s += fmt::format("\nwaits          {:>12} inserted, {} pruned, {} left\n", stat("waits inserted"),
                   stat("waits pruned"), stat("waits"));
  s += fmt::format("signals        {:>12} for {} events\n", stat("signals"), stat("events"));
  s += fmt::format("caller memory  {:>12} bytes a rank\n", caller);
  s += fmt::format("temporaries    {:>12} bytes a rank ({} without reuse)\n", p.arena_bytes,
                   stat("arena bytes without reuse"));
  if (const int64_t sent = stat("temporaries sent in packets"); sent > 0)
    s += fmt::format("in packets     {:>12} bytes of these, {} temporaries\n", p.packet_bytes(),
                     sent);
  s += fmt::format("symmetric      {:>12} bytes a rank\n", p.symmetric_bytes);
  s += fmt::format("kernel.cu      {:>12} bytes\n", c.kernel.size());
  return s;
}

}  // namespace maco::api
