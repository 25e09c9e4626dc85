#include "tests/fuzz/coverage.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/fuzz/forms.h"

namespace maco::fuzz {

namespace {

// The op's operands, or its results if it has none.
const std::vector<ir::TensorId>& operands(const ir::Op& op) {
  return op.in.empty() ? op.out : op.in;
}
bool has_dims(const ir::Graph& g, const ir::Op& op) {
  if (operands(op).empty()) return !g.dims.empty();
  return std::any_of(operands(op).begin(), operands(op).end(),
                     [&](ir::TensorId t) { return !g[t].shape[0].is_constant(); });
}

// Index of "auto", "counts", "ranges", or of none of them.
size_t roles_of(const ir::Graph& g) {
  const auto* roles = std::get_if<ir::Roles>(&g.sm_roles.value);
  return roles ? roles->index() : kRolesKinds;
}

constexpr const char* kColumns[] = {"auto",      "counts",      "ranges",
                                    "dims auto", "dims counts", "dims ranges"};

}  // namespace

bool reuses_buffers(const ir::Program& p) {
  for (const ir::Buffer& a : p.buffers)
    for (const ir::Buffer& b : p.buffers)
      if (&a != &b && a.kind == ir::BufferKind::Temp && b.kind == ir::BufferKind::Temp &&
          a.offset && b.offset && *a.offset <= *b.offset && *b.offset < *a.offset + a.bytes())
        return true;
  return false;
}

bool collectives_in_flight(const ir::Program& p) {
  const size_t n = p.tasks.size(), words = (n + 63) / 64;
  std::vector<std::vector<size_t>> signallers(p.events.size());
  for (size_t t = 0; t < n; ++t)
    for (const ir::Signal& s : p.tasks[t].signals) signallers[index(s.event)].push_back(t);
  // before[t]: tasks that have ended when t starts, on any rank. Dependencies point forward.
  std::vector<std::vector<uint64_t>> before(n, std::vector<uint64_t>(words, 0));
  std::vector<size_t> last(static_cast<size_t>(p.ctas), SIZE_MAX);
  for (size_t t = 0; t < n; ++t) {
    const auto after = [&](size_t q) {
      if (q >= t) return;
      before[t][q / 64] |= uint64_t{1} << (q % 64);
      for (size_t w = 0; w < words; ++w) before[t][w] |= before[q][w];
    };
    size_t& previous = last[static_cast<size_t>(p.tasks[t].sm)];
    if (previous != SIZE_MAX) after(previous);
    previous = t;
    for (const ir::Wait& w : p.tasks[t].waits)
      if (w.lag == 0)
        for (size_t q : signallers[index(w.event)]) after(q);
  }
  for (size_t t = 0; t < n; ++t)
    for (size_t q = 0; q < t; ++q) {
      const ir::Task &a = p.tasks[q], &b = p.tasks[t];
      if (a.role != ir::Role::Comm || b.role != ir::Role::Comm || p[a.call].op == p[b.call].op)
        continue;
      if ((before[t][q / 64] >> (q % 64) & 1) == 0) return true;
    }
  return false;
}

void Coverage::add(const Prepared& p) {
  const size_t roles = roles_of(p.graph);
  for (const ir::Op& op : p.graph.ops) {
    const std::string feature = feature_of(op);
    // The dtype of a choice is that of its alternatives.
    const size_t first = op.kind == "where" ? 1 : 0;
    const ir::DType dtype =
        operands(op).empty() ? ir::DType::F32 : p.graph[operands(op)[first]].dtype;
    if (roles < kRolesKinds)
      cells_[{feature, dtype, (has_dims(p.graph, op) ? kRolesKinds : 0) + roles, p.graph.world}]++;
    for (const std::string& form : forms_of(p.graph, op)) forms_[{feature, form, dtype}]++;
  }
  for (const std::string& setting : settings_of(p.graph)) settings_[{setting, p.graph.world}]++;
  shares_.graphs++;
  shares_.multi_tile +=
      std::any_of(p.program.tasks.begin(), p.program.tasks.end(),
                  [](const ir::Task& t) { return t.role == ir::Role::Compute && t.tile > 0; });
  shares_.reused += reuses_buffers(p.program);
  shares_.several_ranks += p.graph.world > 1;
  shares_.in_flight += p.graph.world > 1 && collectives_in_flight(p.program);
}

void Coverage::add(const Coverage& other) {
  for (const auto& [key, n] : other.cells_) cells_[key] += n;
  for (const auto& [key, n] : other.forms_) forms_[key] += n;
  for (const auto& [key, n] : other.settings_) settings_[key] += n;
  shares_.graphs += other.shares_.graphs;
  shares_.multi_tile += other.shares_.multi_tile;
  shares_.reused += other.shares_.reused;
  shares_.several_ranks += other.shares_.several_ranks;
  shares_.in_flight += other.shares_.in_flight;
}

std::string Coverage::table() const {
  // A digit for each number of ranks, a point if there is none.
  const auto ranks = [](const auto& count) {
    std::string text;
    for (int w : kWorlds) text += count(w) > 0 ? fmt::to_string(w) : ".";
    return text;
  };
  std::string s = fmt::format("{:<18} {:<5}", "ran at ranks", "");
  for (const char* column : kColumns) s += fmt::format(" {:<11}", column);
  s += "\n";
  for (const std::string& feature : features())
    for (ir::DType t : kDTypes) {
      if (!takes(feature, t)) continue;
      s += fmt::format("{:<18} {:<5}", feature, ir::name(t));
      for (size_t c = 0; c < std::size(kColumns); ++c)
        s +=
            fmt::format(" {:<11}", ranks([&](int w) { return count(cells_, {feature, t, c, w}); }));
      s += "\n";
    }
  s += fmt::format("\n{:<44}", "forms that ran");
  for (ir::DType t : kDTypes) s += fmt::format(" {:>6}", ir::name(t));
  s += "\n";
  for (const std::string& feature : features())
    for (const std::string& form : all_forms(feature)) {
      s += fmt::format("{:<18} {:<25}", feature, form);
      for (ir::DType t : kDTypes)
        s += fmt::format(" {:>6}", takes_form(feature, form, t)
                                       ? fmt::to_string(count(forms_, {feature, form, t}))
                                       : "-");
      s += "\n";
    }
  s += "\nsettings at ranks\n";
  for (const std::string& setting : all_settings())
    s += fmt::format("{:<24} {}\n", setting,
                     ranks([&](int w) { return count(settings_, {setting, w}); }));
  s += fmt::format(
      "\n{} graphs: {} with ops of several tiles, {} with reused buffers; of {} with several ranks "
      "{} with two collectives in flight\n",
      shares_.graphs, shares_.multi_tile, shares_.reused, shares_.several_ranks, shares_.in_flight);
  return s;
}

std::string Coverage::missing() const {
  std::string s;
  for (const std::string& feature : unknown_features())
    s += fmt::format("random graphs and the registry of ops don't agree on '{}'\n", feature);
  for (const std::string& feature : features())
    for (ir::DType t : kDTypes) {
      if (!takes(feature, t)) continue;
      for (size_t c = 0; c < std::size(kColumns); ++c)
        for (int w : kWorlds)
          if (count(cells_, {feature, t, c, w}) == 0)
            s += fmt::format("{} of {} at {} ranks, {}, was not covered\n", feature, ir::name(t), w,
                             kColumns[c]);
      for (const std::string& form : all_forms(feature))
        if (takes_form(feature, form, t) && count(forms_, {feature, form, t}) == 0)
          s += fmt::format("{} of {} with '{}' was not covered\n", feature, ir::name(t), form);
    }
  for (const std::string& setting : all_settings())
    for (int w : kWorlds)
      if (count(settings_, {setting, w}) == 0)
        s += fmt::format("'{}' at {} ranks was not covered\n", setting, w);
  const auto share = [&](const char* what, int64_t n, int64_t of) {
    if (2 * n <= of) s += fmt::format("only {} of {} graphs have {}\n", n, of, what);
  };
  share("ops of several tiles", shares_.multi_tile, shares_.graphs);
  share("reused buffers", shares_.reused, shares_.graphs);
  share("two collectives in flight", shares_.in_flight, shares_.several_ranks);
  return s;
}

bool Coverage::has_each() const {
  std::set<std::pair<std::string, ir::DType>> dtypes;
  std::set<std::pair<std::string, int64_t>> ranks;
  std::set<std::pair<std::string, std::string>> forms;
  std::set<std::string> settings;
  for (const auto& [cell, n] : cells_) {
    dtypes.emplace(std::get<0>(cell), std::get<1>(cell));
    ranks.emplace(std::get<0>(cell), std::get<3>(cell));
  }
  for (const auto& [form, n] : forms_) forms.emplace(std::get<0>(form), std::get<1>(form));
  for (const auto& [setting, n] : settings_) settings.insert(setting.first);
  for (const std::string& feature : features()) {
    for (ir::DType t : kDTypes)
      if (takes(feature, t) && !dtypes.contains({feature, t})) return false;
    for (int w : kWorlds)
      if (!ranks.contains({feature, w})) return false;
    for (const std::string& form : all_forms(feature))
      if (!forms.contains({feature, form})) return false;
  }
  for (const std::string& setting : all_settings())
    if (!settings.contains(setting)) return false;
  return true;
}

}  // namespace maco::fuzz
