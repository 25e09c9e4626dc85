// mscclpp_checks.cpp: checks slices, packets, signals and the root of a broadcast.

#include "compiler/frontend/mscclpp_checks.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <set>

namespace maco::frontend::mscclpp {

namespace {

using Statements = std::vector<ChunkStatement>;

bool has_slices(const std::vector<Statements>& rank) {
  for (const Statements& block : rank)
    for (const ChunkStatement& s : block)
      if (s.slices > 1) return true;
  return false;
}

/// For each chunk of one rank's buffer, the number of marked chunks before it.
class Marks {
 public:
  void resize(int64_t chunks) { ahead_.assign(index(chunks) + 1, 0); }
  void mark(const ChunkRef& r) {
    ++ahead_[index(r.begin)];
    --ahead_[index(r.begin + r.count)];
  }
  void count() {
    int64_t depth = 0, marked = 0;
    for (int64_t& x : ahead_) {
      depth += x;
      x = marked;
      marked += depth > 0 ? 1 : 0;
    }
  }
  int64_t marked(int64_t begin, int64_t count) const {
    return ahead_[index(begin + count)] - ahead_[index(begin)];
  }

 private:
  std::vector<int64_t> ahead_;
};

template <typename Visit>
void each_statement(const ChunkProgram& program, const Visit& visit) {
  for (const auto& rank : program.ranks)
    for (const Statements& block : rank)
      for (const ChunkStatement& s : block) visit(s);
}

}  // namespace

void refine(std::vector<Gpu>& gpus, Values& values, ChunkProgram& program) {
  int64_t factor = 1;
  int64_t most = program.scratch;
  for (const Gpu& g : gpus) most = std::max({most, g.chunks[0], g.chunks[1]});
  for (const auto& rank : program.ranks)
    for (const Statements& block : rank)
      for (const ChunkStatement& s : block) {
        if (s.slices == 1) continue;
        factor = std::lcm(factor, s.slices / std::gcd(s.slices, s.to[0].count));
        if (factor * most <= kMaxChunks) continue;
        values.error(s.loc, fmt::format("with the slices of its thread block groups the plan "
                                        "has more than {} chunks",
                                        kMaxChunks));
        return;
      }
  if (factor == 1 && std::none_of(program.ranks.begin(), program.ranks.end(), has_slices)) return;
  program.chunks *= factor;
  program.scratch *= factor;
  for (Gpu& g : gpus)
    for (int64_t& n : g.chunks) n *= factor;
  for (auto& rank : program.ranks)
    for (Statements& block : rank)
      for (ChunkStatement& s : block)
        for (auto* refs : {&s.to, &s.from})
          for (ChunkRef& r : *refs) {
            const int64_t count = r.count * factor / s.slices;
            r.begin = r.begin * factor + s.slice * count;
            r.count = count;
          }
}

void check_packets(const std::vector<Gpu>& gpus, Values& values, const ChunkProgram& program) {
  std::vector<Marks> packed(gpus.size()), plain(gpus.size());
  for (size_t r = 0; r < gpus.size(); ++r)
    for (auto* marks : {&packed, &plain}) (*marks)[r].resize(gpus[r].chunks[2]);
  each_statement(program, [&](const ChunkStatement& s) {
    for (const ChunkRef& r : s.to)
      if (r.buffer == ChunkBuffer::Scratch) (r.packets ? packed : plain)[index(r.rank)].mark(r);
  });
  for (auto* marks : {&packed, &plain})
    for (Marks& m : *marks) m.count();
  each_statement(program, [&](const ChunkStatement& s) {
    for (const ChunkRef& r : s.from) {
      if (r.buffer != ChunkBuffer::Scratch || values.too_many_errors()) continue;
      const int64_t as_packets = packed[index(r.rank)].marked(r.begin, r.count);
      const std::string what =
          fmt::format("scratch[{}:{}] of rank {}", r.begin, r.begin + r.count, r.rank);
      if (r.packets && as_packets < r.count)
        values.error(s.loc, fmt::format("this waits for packets in {}, but none are written to "
                                        "{} of these chunks",
                                        what, r.count - as_packets));
      else if (!r.packets && as_packets == r.count &&
               plain[index(r.rank)].marked(r.begin, r.count) == 0)
        values.error(s.loc,
                     fmt::format("this reads {} as it is, but packets are written there", what));
    }
  });
}

void check_signals(Values& values, const ChunkProgram& program) {
  struct Count {
    int64_t signals = 0, waits = 0;
    bool loops = false;
    ir::Loc loc;
  };
  std::map<std::array<int64_t, 3>, Count> counts;  // by sender, receiver and tag
  for (int32_t r = 0; r < program.world; ++r)
    for (const Statements& block : program.ranks[index(r)])
      for (const ChunkStatement& s : block) {
        const bool signals = s.kind == ChunkStatement::Kind::Signal;
        if (!signals && s.kind != ChunkStatement::Kind::Wait) continue;
        Count& c = signals ? counts[{r, s.peer, s.number}] : counts[{s.peer, r, s.number}];
        if (c.signals + c.waits == 0) c.loc = s.loc;
        ++(signals ? c.signals : c.waits);
        c.loops = c.loops || s.unit > 0;
      }
  for (const auto& [key, c] : counts)
    if (c.signals != c.waits && !c.loops && !values.too_many_errors())
      values.error(c.loc, fmt::format("rank {} signals rank {} {} times on their channel {}, "
                                      "but there are {} waits",
                                      key[0], key[1], c.signals, key[2], c.waits));
}

std::optional<int32_t> find_root(const std::vector<Gpu>& gpus, Values& values,
                                 const ChunkProgram& program, ir::Loc loc) {
  const auto input = [&](const ChunkRef& r) {
    return r.buffer == ChunkBuffer::Input || (program.in_place && r.buffer == ChunkBuffer::Output);
  };
  std::vector<Marks> written(gpus.size());
  for (size_t r = 0; r < gpus.size(); ++r) written[r].resize(gpus[r].chunks[0]);
  each_statement(program, [&](const ChunkStatement& s) {
    for (const ChunkRef& r : s.to)
      if (input(r) && !same_memory(program, gpus, r, s.from[0])) written[index(r.rank)].mark(r);
  });
  for (Marks& m : written) m.count();
  std::set<int32_t> roots;
  each_statement(program, [&](const ChunkStatement& s) {
    for (const ChunkRef& r : s.from)
      if (input(r) && written[index(r.rank)].marked(r.begin, r.count) < r.count)
        roots.insert(r.rank);
  });
  if (roots.size() == 1) return *roots.begin();
  if (roots.empty())
    values.error(loc,
                 "the root of this broadcast is unknown: no rank's input is "
                 "read");
  else
    values.error(loc, fmt::format("a broadcast must have one root, but the inputs of ranks {} are "
                                  "read",
                                  fmt::join(roots, " and ")));
  return std::nullopt;
}

}  // namespace maco::frontend::mscclpp
