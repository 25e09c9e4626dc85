#include "runtime/profile/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "runtime/profile/critical_path.h"

namespace maco::runtime {
namespace {

using Sm = std::pair<int, int32_t>;  // rank, CTA

struct Row {
  ProfileRow is;
  std::set<Sm> used;
  std::map<int, std::vector<std::pair<int64_t, int64_t>>> work;  // by rank: from when to when
  void add(const Timeline& line, int rank, ir::TaskId id) {
    const ir::Task& task = line.program()[id];
    const TaskTimes& t = line.at(rank, id);
    is.busy += t.left - t.waited - t.page_wait - t.packet_wait;
    is.data += t.waited - t.begun + t.packet_wait;
    is.pages += t.page_wait;
    for (const ir::Access& a : task.accesses)
      is.bytes += region_bytes(line.program(), a.region, rank);
    ++is.tasks;
    used.insert({rank, task.sm});
    work[rank].push_back({t.waited, t.left});
  }
  // Called when everything has been added.
  ProfileRow row() {
    is.sms = static_cast<int64_t>(used.size());
    is.active = 0;
    for (auto& [rank, spans] : work) {
      std::sort(spans.begin(), spans.end());
      int64_t until = spans.front().first;
      for (const auto& [begin, end] : spans) {
        is.active += std::max<int64_t>(end - std::max(begin, until), 0);
        until = std::max(until, end);
      }
    }
    return is;
  }
  void add(const PathStep& s) {
    is.path += s.end - s.begin;
    is.path_hand_off += s.hand_off;
    is.path_busy += s.busy;
    is.path_pages += s.pages;
  }
};

struct Rows {
  Row op;
  std::map<std::string, Row> functions;
};

// For each call the name of its op's line: "q_*" for q_0, q_1 and so on of one kind.
std::vector<std::string> line_names(const ir::Program& p) {
  const auto stem = [](const std::string& op) {
    const size_t end = op.find_last_not_of("0123456789");
    const bool numbered = end != std::string::npos && end + 1 < op.size() && op[end] == '_';
    return numbered ? op.substr(0, end + 1) : std::string();
  };
  std::map<std::pair<std::string, std::string>, std::set<std::string>> ops;  // by stem and kind
  for (const ir::Call& call : p.calls) ops[{stem(call.op), call.op_kind}].insert(call.op);
  std::vector<std::string> names;
  for (const ir::Call& call : p.calls) {
    const std::string s = stem(call.op);
    names.push_back(!s.empty() && ops[{s, call.op_kind}].size() > 1 ? s + "*" : call.op);
  }
  return names;
}

std::vector<RoleBalance> balance(const Timeline& line) {
  std::map<Sm, int64_t> work;
  const ir::Program& p = line.program();
  for (int rank = 0; rank < line.world(); ++rank)
    for (size_t t = 0; t < p.tasks.size(); ++t) {
      const auto id = ir::id_of<ir::TaskId>(t);
      if (!line.runs(rank, id)) continue;
      const TaskTimes& times = line.at(rank, id);
      work[{rank, p[id].sm}] += times.left - times.waited - times.packet_wait;
    }
  std::vector<RoleBalance> list;
  for (const ir::CtaRange& range : p.roles) {
    RoleBalance* b = nullptr;
    for (RoleBalance& known : list)
      if (known.role == range.role) b = &known;
    if (!b) b = &list.emplace_back(RoleBalance{range.role, 0, 0, 0, 0, 0.0});
    for (const auto& [sm, ns] : work) {
      if (sm.second < range.begin || sm.second >= range.end) continue;
      if (b->sms == 0 || ns > b->fullest) b->fullest = ns, b->rank = sm.first, b->sm = sm.second;
      b->mean += (static_cast<double>(ns) - b->mean) / static_cast<double>(++b->sms);
    }
  }
  std::erase_if(list, [](const RoleBalance& b) { return b.sms == 0; });
  return list;
}

double us(int64_t ns) { return static_cast<double>(ns) / 1000; }

std::string clocks(const Timeline& line) {
  const std::string error = fmt::format("to within {:.2f} us", us(line.clock_error()));
  switch (line.clocks()) {
    case Timeline::Clocks::Shared: return "";
    case Timeline::Clocks::Signals:
      return fmt::format("clocks of the GPUs: brought together by their signals, {}\n", error);
    case Timeline::Clocks::Bounded:
      return "clocks of the GPUs: some ranks hear each other one way only; their times may be "
             "shifted against each other\n";
    case Timeline::Clocks::Unknown: break;
  }
  return "clocks of the GPUs: some ranks exchange no signals; as if they had begun at once\n";
}

}  // namespace

ProfileTable make_table(const Timeline& line) {
  const ir::Program& p = line.program();
  ProfileTable table;
  table.time = line.end();
  const std::vector<std::string> names = line_names(p);
  std::map<std::pair<std::string, std::string>, Rows> rows;  // by name and kind
  Row total;
  const auto with_rows = [&](ir::TaskId id, const auto& add) {
    const ir::Call& call = p[p[id].call];
    const std::string& op = names[ir::index(p[id].call)];
    Rows& r = rows[{op, call.op_kind}];
    r.op.is.op = op;
    r.op.is.kind = call.op_kind;
    const std::string function = ir::function_text(call);
    Row& f = r.functions[function];
    f.is.op = op;
    f.is.kind = call.op_kind;
    f.is.function = function;
    for (Row* row : {&r.op, &f, &total}) add(*row);
  };
  for (int rank = 0; rank < line.world(); ++rank)
    for (size_t t = 0; t < p.tasks.size(); ++t) {
      const auto id = ir::id_of<ir::TaskId>(t);
      if (line.runs(rank, id)) with_rows(id, [&](Row& row) { row.add(line, rank, id); });
    }
  for (const PathStep& step : critical_path(line))
    with_rows(step.task, [&](Row& row) { row.add(step); });
  table.total = total.row();
  table.roles = balance(line);

  std::vector<Rows*> order;
  for (auto& entry : rows) order.push_back(&entry.second);
  std::stable_sort(order.begin(), order.end(), [](const Rows* a, const Rows* b) {
    return std::pair(a->op.is.path, a->op.is.busy) > std::pair(b->op.is.path, b->op.is.busy);
  });
  for (Rows* r : order) {
    table.ops.push_back(r->op.row());
    if (r->functions.size() < 2) continue;
    for (auto& entry : r->functions) table.functions.push_back(entry.second.row());
  }
  return table;
}

std::string print(const Timeline& line, const ProfileTable& table) {
  const auto world = static_cast<double>(line.world());
  constexpr std::string_view kIndent = "  ";  // for an op's functions
  size_t name_width = 8, kind_width = 4;
  for (const ProfileRow& r : table.ops) {
    name_width = std::max(name_width, r.op.size());
    kind_width = std::max(kind_width, r.kind.size());
  }
  for (const ProfileRow& f : table.functions)
    name_width = std::max(name_width, kIndent.size() + f.function.size());
  const auto row = [&](const std::string& name, const std::string& kind, const ProfileRow& r) {
    const double bytes = static_cast<double>(r.bytes) / world;
    const double sms = static_cast<double>(r.sms) / world;
    return fmt::format(
        "{:<{}}  {:<{}} {:>9.2f} {:>8.2f} {:>9.2f} {:>8.2f} {:>10.2f} {:>10.2f} {:>9.2f} {:>9.3f} "
        "{:>7.1f} {:>5.4g} {:>7.7g}\n",
        name, name_width, kind, kind_width, us(r.path), us(r.path_hand_off), us(r.path_busy),
        us(r.path_pages), us(r.busy) / world, us(r.data) / world, us(r.pages) / world, bytes / 1e6,
        r.active > 0 ? static_cast<double>(r.bytes) / static_cast<double>(r.active) : 0.0, sms,
        static_cast<double>(r.tasks) / world);
  };
  std::string s = fmt::format("{}: {:.2f} us from the first task's begin to the last one's end",
                              line.program().name, us(table.time));
  s += line.world() == 1 ? "\n" : fmt::format(", {} ranks\n", line.world());
  s += clocks(line);
  s += "path: us on the critical path (hand: from the last signal, or the SM's task before, to the "
       "work; pages: waiting for pages)\n"
       "SMs: us of a rank, summed over its SMs (data: waiting for other tasks); MB: what a rank's "
       "tasks touch; GB/s: while some SM works\n\n";
  s += fmt::format(
      "{:<{}}  {:<{}} {:>9} {:>8} {:>9} {:>8} {:>10} {:>10} {:>9} {:>9} {:>7} {:>5} "
      "{:>7}\n",
      "op", name_width, "kind", kind_width, "path", "hand", "busy", "pages", "SMs: busy", "data",
      "pages", "MB", "GB/s", "SMs", "tasks");
  for (const ProfileRow& r : table.ops) {
    s += row(r.op, r.kind, r);
    for (const ProfileRow& f : table.functions)
      if (f.op == r.op && f.kind == r.kind) s += row(std::string(kIndent) + f.function, "", f);
  }
  s += row("all", "", table.total) + "\n";
  for (const RoleBalance& b : table.roles)
    s += fmt::format(
        "fullest {} SM: {:.2f} us of work (SM {} of rank {}), {:.3f} of the mean of {} SMs\n",
        ir::name(b.role), us(b.fullest), b.sm, b.rank,
        b.mean > 0 ? static_cast<double>(b.fullest) / b.mean : 1.0, b.sms);
  return s;
}

}  // namespace maco::runtime
