#include "ir/program.h"

#include <fmt/format.h>

#include <algorithm>

namespace maco::ir {
namespace {

int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

}  // namespace

std::string_view name(Stage stage) {
  constexpr std::string_view names[] = {"tiled", "planned", "scheduled", "synced"};
  return names[static_cast<size_t>(stage)];
}

std::string_view name(BufferKind kind) {
  constexpr std::string_view names[] = {"input", "param", "state", "output", "temp", "slot"};
  return names[static_cast<size_t>(kind)];
}

std::string_view name(Role role) { return role == Role::Compute ? "compute" : "comm"; }

std::string_view name(Scope scope) { return scope == Scope::Gpu ? "gpu" : "sys"; }

std::string_view name(CollectiveKind kind) {
  constexpr std::string_view names[] = {"allreduce", "allgather", "reduce_scatter",
                                        "alltoall",  "broadcast", "ring_shift",
                                        "barrier",   "message",   "zeros"};
  return names[static_cast<size_t>(kind)];
}

std::string_view name(Reduction reduction) {
  constexpr std::string_view names[] = {"sum", "avg", "max", "min"};
  return names[static_cast<size_t>(reduction)];
}

std::string_view name(EventKind kind) {
  constexpr std::string_view names[] = {"local", "peer", "packet", "hint"};
  return names[static_cast<size_t>(kind)];
}

int64_t Buffer::bytes() const {
  if (!packets) return max_elements() * size_of(dtype);
  return max_rows * round_up(cols * size_of(dtype), 4) * 2;
}

int64_t Buffer::copy_bytes() const { return round_up(bytes(), 256); }

std::optional<Interval> Program::range_of(std::string_view wanted) const {
  if (wanted == "rank") return Interval{0, world - 1};
  if (wanted == "world") return Interval{world, world};
  for (const Variable& v : variables)
    if (v.name == wanted) return v.range;
  return std::nullopt;
}

std::optional<int64_t> Program::typical_of(std::string_view wanted) const {
  for (const Variable& v : variables)
    if (v.name == wanted) return v.typical.value_or(v.scalar ? middle(v.range) : v.range.hi);
  const auto range = range_of(wanted);
  return range ? std::optional(middle(*range)) : std::nullopt;
}

int64_t Program::packet_uses() const {
  int64_t most = 0;
  for (const Buffer& b : buffers) most = std::max(most, b.use);
  return most + 1;
}

int64_t Program::slots_end() const {
  int64_t end = symmetric_bytes;
  for (const Buffer& b : buffers)
    if (b.wire && b.offset) end = std::max(end, *b.offset + b.copy_bytes() * b.rotation);
  return end;
}

int64_t Program::packet_bytes() const {
  int64_t end = 0;
  for (const Buffer& b : buffers)
    if (b.own_packets() && b.offset) end = std::max(end, round_up(*b.offset + b.bytes(), 256));
  return end;
}

Ranks resolve(RankRef ref, int rank, int world) {
  const auto one = [](int r) { return Ranks(r, r + 1); };
  switch (ref.kind) {
    case RankRef::Kind::Self: return one(rank);
    case RankRef::Kind::Rank: return one(ref.n);
    case RankRef::Kind::Shift: {
      const int64_t to = (int64_t{rank} + ref.n) % world;
      return one(static_cast<int>(to < 0 ? to + world : to));
    }
    case RankRef::Kind::Others: return {0, world, rank};
    case RankRef::Kind::All: break;
  }
  return {0, world};
}

Interval shift_of(const Program& program, const Region& region, int rank) {
  const Block& b = region.block;
  if (region.from) return program.values[*region.from].range;
  if (!b.any()) return {0, 0};
  const auto world = static_cast<int>(program.world);
  const bool several = b.ref.kind == RankRef::Kind::Others || b.ref.kind == RankRef::Kind::All;
  const int64_t first = several ? 0 : resolve(b.ref, rank, world).front();
  const int64_t last = several ? world - 1 : first;
  const Interval rows =
      b.value ? program.values[*b.value].range : Interval{.lo = b.rows, .hi = b.rows};
  const auto [lo, hi] =
      std::minmax({first * rows.lo, first * rows.hi, last * rows.lo, last * rows.hi});
  return {.lo = lo, .hi = hi};
}

std::vector<std::vector<TaskId>> streams(const Program& program) {
  std::vector<std::vector<TaskId>> result(static_cast<size_t>(std::max(program.ctas, 0)));
  for (size_t i = 0; i < program.tasks.size(); ++i) {
    const int32_t sm = program.tasks[i].sm;
    if (sm >= 0 && sm < program.ctas) result[static_cast<size_t>(sm)].push_back(id_of<TaskId>(i));
  }
  for (std::vector<TaskId>& stream : result)
    std::stable_sort(stream.begin(), stream.end(),
                     [&](TaskId a, TaskId b) { return program[a].place < program[b].place; });
  return result;
}

namespace {

bool lies_in(const Region& a, const Region& b) {
  return a.buffer == b.buffer && a.pitch == b.pitch && a.block == b.block && a.where == b.where &&
         a.from == b.from && a.r0 >= b.r0 && a.r1 <= b.r1 && a.c0 >= b.c0 && a.c1 <= b.c1;
}

// Whether `other` reads the same parts as `task` of the operands that their call loads.
bool reads_loaded(const Program& program, const Task& task, const Task& other) {
  const Call& call = program[task.call];
  const auto is_loaded = [&](const Access& a) {
    return !a.writes() && std::any_of(call.loads.begin(), call.loads.end(), [&](const Load& load) {
      return load.operand < call.operands.size() && call.operands[load.operand] == a.region.buffer;
    });
  };
  return std::all_of(task.accesses.begin(), task.accesses.end(), [&](const Access& a) {
    return !is_loaded(a) ||
           std::any_of(other.accesses.begin(), other.accesses.end(),
                       [&](const Access& b) { return !b.writes() && lies_in(a.region, b.region); });
  });
}

}  // namespace

bool may_be_mates(const Program& program, const Task& one, const Task& other) {
  return one.call == other.call && one.ranks == other.ranks && reads_loaded(program, one, other) &&
         reads_loaded(program, other, one);
}

std::vector<std::optional<TaskId>> find_mates(const Program& program) {
  std::vector<std::optional<TaskId>> mates(program.tasks.size());
  const std::vector<std::vector<TaskId>> all = streams(program);
  const auto mated_of = [&](size_t sm) {
    std::vector<TaskId> mated;
    for (const TaskId id : all[sm])
      if (program[id].mated) mated.push_back(id);
    return mated;
  };
  for (size_t sm = 0; sm + 1 < all.size(); sm += 2) {
    const std::vector<TaskId> first = mated_of(sm), second = mated_of(sm + 1);
    for (size_t n = 0; n < std::min(first.size(), second.size()); ++n) {
      mates[index(first[n])] = second[n];
      mates[index(second[n])] = first[n];
    }
  }
  return mates;
}

std::string function_text(const Call& call) {
  return call.stages.empty()
             ? call.function
             : fmt::format("{} with {}", call.function, fmt::join(call.stages, ", "));
}

std::string describe(const Program& program, TaskId task) {
  const Task& t = program[task];
  if (index(t.call) >= program.calls.size()) return fmt::format("task {}", index(task));
  const Call& call = program[t.call];
  // An op may have several device functions; its name alone then doesn't identify a task.
  const bool several = std::any_of(program.calls.begin(), program.calls.end(), [&](const Call& c) {
    return c.op == call.op && (c.function != call.function || c.stages != call.stages);
  });
  return fmt::format("{} '{}'{} tile {}", call.op_kind.empty() ? call.function : call.op_kind,
                     call.op, several ? " (" + function_text(call) + ")" : "", t.tile);
}

}  // namespace maco::ir
