#include "tests/fuzz/coverage.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "compiler/ops/op.h"

namespace maco::fuzz {

namespace {

std::string feature_of(const ir::Op& op) {
  if (op.kind != "allreduce") return op.kind;
  const auto it = op.attrs.find("algorithm");
  return op.kind + " " + (it == op.attrs.end() ? "auto" : std::get<std::string>(it->second.value));
}

bool has_dims(const ir::Graph& g, const ir::Op& op) {
  if (op.in.empty()) return !g.dims.empty();
  return std::any_of(op.in.begin(), op.in.end(), [&](ir::TensorId t) { return !g[t].shape[0].is_constant(); });
}

}  // namespace

bool reuses_buffers(const ir::Program& p) {
  for (const ir::Buffer& a : p.buffers)
    for (const ir::Buffer& b : p.buffers)
      if (&a != &b && a.kind == ir::BufferKind::Temp && b.kind == ir::BufferKind::Temp && a.offset && b.offset && *a.offset <= *b.offset &&
          *b.offset < *a.offset + a.bytes())
        return true;
  return false;
}

bool collectives_in_flight(const ir::Program& p) {
  const size_t n = p.tasks.size(), words = (n + 63) / 64;
  std::vector<std::vector<size_t>> signallers(p.events.size());
  for (size_t t = 0; t < n; ++t)
    for (const ir::Signal& s : p.tasks[t].signals) signallers[index(s.event)].push_back(t);
  // before[t]: tasks that have ended when t starts, on whatever rank. Dependencies point forward.
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
      if (a.role != ir::Role::Comm || b.role != ir::Role::Comm || p[a.call].op == p[b.call].op) continue;
      if ((before[t][q / 64] >> (q % 64) & 1) == 0) return true;
    }
  return false;
}

void Coverage::add(const Prepared& p, RolesKind roles) {
  for (const ir::Op& op : p.graph.ops) {
    Row& row = rows_[feature_of(op)];
    row.ran[{op.in.empty() ? ir::DType::F32 : p.graph[op.in[0]].dtype, p.graph.world}]++;
    row.split[has_dims(p.graph, op)][static_cast<size_t>(roles)]++;
  }
  shares_.graphs++;
  shares_.multi_tile += std::any_of(p.program.tasks.begin(), p.program.tasks.end(),
                                    [](const ir::Task& t) { return t.role == ir::Role::Compute && t.tile > 0; });
  shares_.reused += reuses_buffers(p.program);
  shares_.several_ranks += p.graph.world > 1;
  shares_.in_flight += p.graph.world > 1 && collectives_in_flight(p.program);
}

void Coverage::add(const Coverage& other) {
  for (const auto& [feature, row] : other.rows_) {
    for (const auto& [key, n] : row.ran) rows_[feature].ran[key] += n;
    for (size_t d = 0; d < 2; ++d)
      for (size_t r = 0; r < 3; ++r) rows_[feature].split[d][r] += row.split[d][r];
  }
  shares_.graphs += other.shares_.graphs;
  shares_.multi_tile += other.shares_.multi_tile;
  shares_.reused += other.shares_.reused;
  shares_.several_ranks += other.shares_.several_ranks;
  shares_.in_flight += other.shares_.in_flight;
}

std::string Coverage::table() const {
  std::string s = fmt::format("{:<18}", "ran at ranks");
  for (ir::DType t : kDTypes) s += fmt::format(" {:>8}", ir::name(t));
  s += "  |  fixed: auto counts ranges  |  dims: auto counts ranges\n";
  for (const std::string& feature : features()) {
    const auto it = rows_.find(feature);
    const Row row = it == rows_.end() ? Row{} : it->second;
    s += fmt::format("{:<18}", feature);
    for (ir::DType t : kDTypes) {
      std::string ranks;
      for (int64_t w = 1; w <= 8; ++w) {
        const bool expected = takes(feature, t) && std::find(std::begin(kWorlds), std::end(kWorlds), w) != std::end(kWorlds);
        ranks += row.ran.count({t, w}) ? fmt::to_string(w) : expected ? "." : "";
      }
      s += fmt::format(" {:>8}", takes(feature, t) ? ranks : "-");
    }
    s += fmt::format("  |  {:>11} {:>6} {:>6}  |  {:>10} {:>6} {:>6}\n", row.split[0][0], row.split[0][1], row.split[0][2], row.split[1][0],
                     row.split[1][1], row.split[1][2]);
  }
  s += fmt::format("{} graphs: {} with ops of several tiles, {} with reused buffers; of {} with several ranks {} with two collectives in flight\n",
                   shares_.graphs, shares_.multi_tile, shares_.reused, shares_.several_ranks, shares_.in_flight);
  return s;
}

std::string Coverage::missing() const {
  std::string s;
  for (const std::string& feature : features()) {
    const auto it = rows_.find(feature);
    const Row row = it == rows_.end() ? Row{} : it->second;
    for (ir::DType t : kDTypes)
      for (int w : kWorlds)
        if (takes(feature, t) && !row.ran.count({t, w})) s += fmt::format("{} of {} at {} ranks was not covered\n", feature, ir::name(t), w);
    constexpr const char* roles[] = {"auto", "counts", "ranges"};
    for (size_t d = 0; d < 2; ++d)
      for (size_t r = 0; r < 3; ++r)
        if (row.split[d][r] == 0)
          s += fmt::format("{} {} with roles given as {} was not covered\n", feature, d ? "with dims" : "of fixed extents", roles[r]);
  }
  const auto share = [&](const char* what, int64_t n, int64_t of) {
    if (2 * n <= of) s += fmt::format("only {} of {} graphs have {}\n", n, of, what);
  };
  share("ops of several tiles", shares_.multi_tile, shares_.graphs);
  share("reused buffers", shares_.reused, shares_.graphs);
  share("two collectives in flight", shares_.in_flight, shares_.several_ranks);
  return s;
}

}  // namespace maco::fuzz
