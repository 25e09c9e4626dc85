#include "compiler/ops/collectives/chunk_flow.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "compiler/ops/collectives/chunk_order.h"
#include "compiler/ops/collectives/chunk_program.h"
#include "compiler/ops/collectives/chunk_values.h"

namespace maco::ops {

namespace {

/// Runs statements one after the other, on all ranks together.
class InTurn {
 public:
  InTurn(const ChunkProgram& program, ChunkValues& values, ir::Diagnostics& d)
      : p_(program), values_(values), d_(d) {}

  bool run(std::optional<ChunkFault>* fault) {
    for (size_t i = 0; i < p_.actions.size();) {
      size_t end = i;
      while (end < p_.actions.size() && p_.actions[end].op == p_.actions[i].op) ++end;
      if (!statement(i, end, fault)) return false;
      i = end;
    }
    return true;
  }
  /// The run up to action `end`, for a witness; each rank has one block.
  std::vector<ChunkFault::At> run_to(size_t end) const {
    std::vector<ChunkFault::At> run;
    std::vector<int64_t> done(static_cast<size_t>(p_.shape.world), 0);
    for (size_t i = 0; i < end; ++i) {
      const int rank = p_.actions[i].rank;
      run.push_back({rank, 0, done[static_cast<size_t>(rank)]++});
    }
    return run;
  }

 private:
  bool statement(size_t begin, size_t end, std::optional<ChunkFault>* fault) {
    struct Done {
      std::vector<uint32_t> found;
      uint32_t made = 0;
    };
    std::vector<Done> done;
    std::unordered_map<size_t, size_t> writers;
    for (size_t i = begin; i < end; ++i) {
      const ChunkAction& x = p_.actions[i];
      Done one;
      for (const ChunkCell& c : x.from) {
        one.found.push_back(values_.at(c));
        if (one.found.back() != kNoChunkValue) continue;
        d_.error(x.op->loc, fmt::format("rank {} reads {}, which nothing has written", x.rank,
                                        place_text(p_.shape, c)));
        if (fault) *fault = {ChunkFault::Claim::Empty, {at(i)}, run_to(begin)};
        return false;
      }
      const auto made = values_.make(x, one.found);
      if (!made) return false;
      one.made = *made;
      for (const ChunkCell& c : x.to)
        if (const auto [it, fresh] = writers.try_emplace(values_.place(c), i); !fresh) {
          const ChunkAction& other = p_.actions[it->second];
          d_.error(x.op->loc,
                   fmt::format("rank {} writes {}, and so does rank {} in the same statement",
                               other.rank, place_text(p_.shape, c), x.rank));
          if (fault) *fault = {ChunkFault::Claim::Race, {at(it->second), at(i)}, run_to(begin)};
          return false;
        }
      done.push_back(std::move(one));
    }
    for (size_t i = begin; i < end; ++i)
      values_.write(p_.actions[i], done[i - begin].found, done[i - begin].made);
    return true;
  }
  ChunkFault::At at(size_t action) const {
    const int rank = p_.actions[action].rank;
    int64_t step = 0;
    for (size_t i = 0; i < action; ++i) step += p_.actions[i].rank == rank;
    return {rank, 0, step};
  }

  const ChunkProgram& p_;
  ChunkValues& values_;
  ir::Diagnostics& d_;
};

// Leaves out values that reach no output: they are neither sent nor made.
void leave_out_unused(ChunkFlow& flow) {
  const auto key = [](int rank, uint32_t value) {
    return (uint64_t{value} << 8) + static_cast<uint64_t>(rank);
  };
  std::unordered_set<uint64_t> read;  // by rank and value: read by steps that stay
  std::vector<ChunkStep> kept;
  for (size_t i = flow.steps.size(); i-- > 0;) {
    ChunkStep& s = flow.steps[i];
    std::erase_if(s.to, [&](int to) { return !read.count(key(to, s.value)); });
    s.keep = s.keep && read.count(key(s.rank, s.value)) > 0;
    if (s.to.empty() && !s.keep && !s.out) continue;
    if (s.from.empty()) read.insert(key(s.rank, s.value));
    for (uint32_t v : s.from) read.insert(key(s.rank, v));
    kept.push_back(std::move(s));
  }
  std::reverse(kept.begin(), kept.end());
  flow.steps = std::move(kept);
}

}  // namespace

std::optional<ChunkFlow> chunk_flow(const ir::Graph& graph, const ir::Op& op,
                                    const ir::UserAlgorithm& algorithm,
                                    ir::Diagnostics& diagnostics,
                                    std::optional<ChunkFault>* fault) {
  const auto program = chunk_program(graph, op, algorithm, diagnostics);
  if (!program) return std::nullopt;
  // The order also matters for the largest: it decides which zero or NaN is the result.
  ChunkValues values(program->shape, ir::is_float(graph[op.in[0]].dtype), diagnostics);
  std::vector<ChunkFault::At> run;
  if (program->ordered) {
    if (!run_as_ordered(*program, algorithm, values, diagnostics, fault, run)) return std::nullopt;
  } else {
    InTurn turn(*program, values, diagnostics);
    if (!turn.run(fault)) return std::nullopt;
    if (fault) run = turn.run_to(program->actions.size());
  }
  if (!values.finish(algorithm)) {
    if (fault && !values.complete()) *fault = {ChunkFault::Claim::Result, {}, std::move(run)};
    return std::nullopt;
  }
  ChunkFlow flow = values.take();
  leave_out_unused(flow);
  flow.packets = program->packets;
  flow.unit = program->unit;
  return flow;
}

}  // namespace maco::ops
