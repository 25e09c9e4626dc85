#include "compiler/api/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compiler/cost/machine.h"
#include "compiler/functions/function.h"
#include "compiler/ops/op.h"
#include "compiler/verify/explain.h"
#include "ir/check.h"

namespace maco::api {

namespace {

using ir::Op;
using ir::Program;
using ir::Task;

std::string quoted(const std::set<std::string>& names) {
  std::string text;
  size_t told = 0;
  constexpr size_t kMost = 8;
  for (const std::string& name : names) {
    if (told++ == kMost) return text + fmt::format(" and {} more", names.size() - kMost);
    text += (text.empty() ? "'" : ", '") + name + "'";
  }
  return text;
}

// "0..3, 7".
std::string ranges(const std::set<int32_t>& numbers) {
  std::string text;
  for (auto it = numbers.begin(); it != numbers.end();) {
    const int32_t first = *it;
    int32_t last = first;
    while (++it != numbers.end() && *it == last + 1) ++last;
    text += text.empty() ? "" : ", ";
    text += first == last ? fmt::format("{}", first) : fmt::format("{}..{}", first, last);
  }
  return text;
}

std::string times(size_t n, const char* what) {
  return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
}

// Whether two buffers of a rank's temporaries have bytes in common.
bool overlap(const ir::Buffer& a, const ir::Buffer& b) {
  return a.kind == ir::BufferKind::Temp && b.kind == ir::BufferKind::Temp && a.offset && b.offset &&
         *a.offset < *b.offset + b.bytes() && *b.offset < *a.offset + a.bytes();
}

// Why a task of one op has to come before a task of another: data that both touch, one of them
// writing, or memory that one of them reuses.
std::set<std::string> reasons(const Program& p, const Task& before, const Task& after) {
  std::set<std::string> found;
  for (const ir::Access& a : before.accesses)
    for (const ir::Access& b : after.accesses) {
      const ir::Buffer &buffer = p[a.region.buffer], &other = p[b.region.buffer];
      if (a.region.buffer != b.region.buffer && b.writes() && overlap(buffer, other))
        found.insert(fmt::format("'{}' takes the memory of '{}'", other.name, buffer.name));
      if (a.region.buffer != b.region.buffer || (!a.writes() && !b.writes())) continue;
      const std::string& name = buffer.tensor.empty() ? buffer.name : buffer.tensor;
      if (a.writes() && b.writes())
        found.insert(fmt::format("both write '{}'", name));
      else
        found.insert(fmt::format(fmt::runtime(a.writes() ? "the later one reads '{}'"
                                                         : "'{}' is read before it changes"),
                                 name));
    }
  return found;
}

class Story {
 public:
  Story(const Compiled& compiled, const Program& unpruned, const TraceTimes* measured)
      : c_(compiled),
        p_(compiled.program),
        unpruned_(unpruned),
        measured_(measured),
        final_(*compiled.program.graph),
        readers_(compiled.graph.tensors.size()) {
    for (const Op& op : c_.graph.ops)
      for (ir::TensorId in : op.in) readers_[index(in)].push_back(&op);
    for (const Op& op : final_.ops)
      for (ir::TensorId out : op.out) givers_[final_[out].name] = &op;
  }

  std::optional<std::string> tell(std::string_view name, std::string& error) {
    const Op* op = find(c_.graph, name);
    const Op* made = op ? nullptr : find(final_, name);
    if (!op && !made) {
      std::vector<std::string> names;
      for (const Op& o : c_.graph.ops) {
        names.push_back(o.name);
        for (ir::TensorId out : o.out) names.push_back(c_.graph[out].name);
      }
      error = fmt::format("the graph has no op '{}'{}", name, ir::did_you_mean(name, names));
      return std::nullopt;
    }
    const std::set<std::string> hosts = op ? hosts_of(*op) : std::set<std::string>{made->name};
    if (op)
      tell_fusion(*op, hosts);
    else
      text_ += fmt::format("{} '{}', which passes made\n", made->kind, made->name);
    for (const std::string& host : hosts) {
      if (hosts.size() > 1) text_ += fmt::format("\nin '{}':\n", host);
      tell_tasks(host);
    }
    return text_;
  }

 private:
  static const Op* find(const ir::Graph& graph, std::string_view name) {
    if (const auto id = graph.find_op(name)) return &graph[*id];
    const auto tensor = graph.find_tensor(name);
    // A state's name means the last op that writes it.
    const Op* last = nullptr;
    for (const Op& op : graph.ops)
      for (ir::TensorId out : op.out)
        if (tensor && out == *tensor) last = &op;
    return last;
  }

  void line(std::string_view what, const std::string& text) {
    text_ += fmt::format("{:<11} {}\n", what, text);
  }

  // The ops behind the passes that do the work of `op`: the ops that give its results or, if these
  // are never stored, the ops that would have read them.
  std::set<std::string> hosts_of(const Op& op) const {
    std::set<std::string> hosts;
    std::vector<const Op*> todo = {&op};
    std::set<const Op*> seen = {&op};
    while (!todo.empty()) {
      const Op& at = *todo.back();
      todo.pop_back();
      if (final_.find_op(at.name)) {
        hosts.insert(at.name);
        continue;
      }
      for (ir::TensorId out : at.out) {
        const auto giver = givers_.find(c_.graph[out].name);
        if (giver != givers_.end()) {
          hosts.insert(giver->second->name);
          continue;
        }
        for (const Op* reader : readers_[index(out)])
          if (seen.insert(reader).second) todo.push_back(reader);
      }
    }
    return hosts;
  }

  void tell_fusion(const Op& op, const std::set<std::string>& hosts) {
    text_ += fmt::format("{} '{}'", op.kind, op.name);
    if (op.loc.known()) text_ += fmt::format(", line {}", op.loc.line);
    text_ += "\n";
    std::set<std::string> others;
    for (const Op& other : c_.graph.ops) {
      if (&other == &op) continue;
      const auto theirs = hosts_of(other);
      for (const std::string& host : hosts)
        if (theirs.count(host) > 0) others.insert(other.name);
    }
    if (!others.empty()) line("fused with", quoted(others));
    for (const auto& [what, names] : c_.fusions)
      if (std::any_of(names.begin(), names.end(), [&](const std::string& name) {
            return name == op.name || hosts.count(name) > 0;
          }))
        line(what.rfind("runs ", 0) == 0 ? "method" : "fusing", what);
    if (hosts.empty()) line("tasks", "none: nothing reads its result, or it needs no work");
  }

  void tell_tasks(const std::string& host) {
    const cost::Machine* machine = cost::find_machine(p_.target, p_.board);
    MACO_CHECK(machine, p_.target);
    std::map<std::string, size_t> functions;
    std::map<int32_t, size_t> on_sm;
    std::set<int32_t> sms;
    double all = 0, longest = 0;
    for (const Task& t : p_.tasks) {
      if (p_[t.call].op != host) continue;
      ++functions[ir::function_text(p_[t.call])];
      ++on_sm[t.sm];
      sms.insert(t.sm);
      const double us = functions::microseconds(p_, t, *machine);
      all += us;
      longest = std::max(longest, us);
    }
    if (functions.empty()) return;
    size_t tasks = 0, most = 0;
    std::string kinds;
    for (const auto& [function, n] : functions) {
      tasks += n;
      kinds += fmt::format("{}{} x {}", kinds.empty() ? "" : ", ", n, function);
    }
    for (const auto& [sm, n] : on_sm) most = std::max(most, n);
    line("tasks", kinds + cut_text(host));
    line("SMs", fmt::format("{}, up to {} on one", ranges(sms), times(most, "task")));
    line("cost model", fmt::format("{:.3g} us a task, at most {:.3g}; {:.4g} us of SMs in all",
                                   all / static_cast<double>(tasks), longest, all));
    if (measured_) tell_measured(host);
    tell_packets(host);
    tell_waits(host);
  }

  void tell_measured(const std::string& host) {
    // A launch may skip tasks that exist only for the dims' maxima.
    const auto it = measured_->find(host);
    if (it == measured_->end())
      return line("took", "nothing: none of its tasks ran in the profiled launch");
    const OpTimes& m = it->second;
    line("took",
         fmt::format("{:.3g} us a task, at most {:.3g}; {:.4g} us of SMs a rank; from {:.5g} to "
                     "{:.5g} us of the launch",
                     m.work / static_cast<double>(m.tasks), m.longest,
                     m.work / static_cast<double>(p_.world), m.begin, m.end));
    line("waited", fmt::format("{:.3g} us a task for others, {:.3g} for packets, {:.3g} for pages",
                               m.waits / static_cast<double>(m.tasks),
                               m.packets / static_cast<double>(m.tasks),
                               m.pages / static_cast<double>(m.tasks)));
  }

  // Tells what is handed over in packets. Waits for packets are hints; codegen leaves out hints for
  // little data.
  void tell_packets(const std::string& host) {
    std::set<std::string> reads, writes;
    for (const Task& t : p_.tasks) {
      if (p_[t.call].op != host) continue;
      for (const ir::Access& a : t.accesses)
        if (const ir::Buffer& b = p_[a.region.buffer]; b.own_packets())
          (a.writes() ? writes : reads).insert(b.name);
    }
    if (!reads.empty()) line("receives", quoted(reads) + " in packets, behind hints or none");
    if (!writes.empty()) line("sends", quoted(writes) + " in packets");
  }

  std::string cut_text(const std::string& host) const {
    const auto id = final_.find_op(host);
    if (!id) return "";
    const ops::Cut cut = ops::cut_of(final_[*id]);
    const ops::OpDef* def = ops::find_op(final_[*id].kind);
    std::string text;
    if (!cut.method.empty()) text += fmt::format(", method {}", cut.method);
    for (size_t i = 0; def && i < cut.tile.size() && i < def->tile_axes.size(); ++i)
      text += fmt::format("{}{} {}", i == 0 ? ", " : " x ", cut.tile[i], def->tile_axes[i]);
    return text;
  }

  // By event: the tasks that signal it.
  static std::vector<std::vector<size_t>> signallers(const Program& p) {
    std::vector<std::vector<size_t>> list(p.events.size());
    for (size_t t = 0; t < p.tasks.size(); ++t)
      for (const ir::Signal& s : p.tasks[t].signals) list[index(s.event)].push_back(t);
    return list;
  }

  void tell_waits(const std::string& host) {
    const auto who = signallers(p_);
    struct Edge {
      size_t waits = 0;
      std::set<std::string> why;
    };
    std::map<std::string, Edge> before, after;
    size_t left = 0;
    for (const Task& t : p_.tasks) {
      const bool own = p_[t.call].op == host;
      if (own) left += t.waits.size();
      for (const ir::Wait& w : t.waits) {
        std::set<std::string> named;
        for (size_t s : who[index(w.event)]) {
          const Task& signaller = p_.tasks[s];
          const std::string& op = p_[signaller.call].op;
          if (!own && op != host) continue;
          Edge& edge = own ? before[op] : after[p_[t.call].op];
          if (named.insert(own ? op : p_[t.call].op).second) ++edge.waits;
          edge.why.merge(reasons(p_, signaller, t));
        }
      }
    }
    const auto tell = [&](const char* what, const std::map<std::string, Edge>& edges) {
      // If an op reads what another op gives, other waits may imply that it is ready.
      if (edges.empty()) line(what, "no op: it needs no wait of its own");
      for (const auto& [op, edge] : edges) {
        std::string why;
        for (const std::string& one : edge.why) why += (why.empty() ? "" : "; ") + one;
        line(what, fmt::format("'{}', {}: {}", op, times(edge.waits, "wait"),
                               why.empty() ? "the graph orders them" : why));
      }
    };
    tell("waits for", before);
    tell("awaited by", after);
    tell_pruned(host, left);
  }

  void tell_pruned(const std::string& host, size_t left) {
    const auto who = signallers(unpruned_);
    size_t inserted = 0;
    std::optional<std::pair<size_t, size_t>> example;  // signalling task, waiting task
    for (size_t t = 0; t < unpruned_.tasks.size(); ++t) {
      const Task& task = unpruned_.tasks[t];
      if (unpruned_[task.call].op != host) continue;
      inserted += task.waits.size();
      if (example || task.waits.size() == p_.tasks[t].waits.size()) continue;
      for (const ir::Wait& w : task.waits) {
        const std::string& event = unpruned_[w.event].name;
        const bool kept = std::any_of(p_.tasks[t].waits.begin(), p_.tasks[t].waits.end(),
                                      [&](const ir::Wait& k) { return p_[k.event].name == event; });
        if (!kept && w.lag == 0 && !who[index(w.event)].empty())
          example = {who[index(w.event)].front(), t};
      }
    }
    line("pruned", inserted == left
                       ? fmt::format("none of {}", times(inserted, "wait"))
                       : fmt::format("{} of {}", inserted - left, times(inserted, "wait")));
    if (!example) return;
    verify::Instance first, second;
    first.task = static_cast<uint32_t>(example->first);
    second.task = static_cast<uint32_t>(example->second);
    const verify::Explanation why = verify::explain(p_, first, second);
    if (!why.ordered) return;
    text_ += "one of them, which the others imply:\n";
    for (size_t at = 0; at < why.text.size();) {
      const size_t end = std::min(why.text.find('\n', at), why.text.size());
      text_ += "  " + why.text.substr(at, end - at) + "\n";
      at = end + 1;
    }
  }

  const Compiled& c_;
  const Program& p_;
  const Program& unpruned_;
  const TraceTimes* const measured_;
  const ir::Graph& final_;                       // behind the passes on graphs
  std::vector<std::vector<const Op*>> readers_;  // by tensor, of the graph as it was given
  // Behind the passes: by tensor the last op that gives it.
  std::map<std::string, const Op*, std::less<>> givers_;
  std::string text_;
};

}  // namespace

std::optional<std::string> explain_op(const Compiled& compiled, const Program& unpruned,
                                      std::string_view name, const TraceTimes* measured,
                                      std::string& error) {
  return Story(compiled, unpruned, measured).tell(name, error);
}

}  // namespace maco::api
