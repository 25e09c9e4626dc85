#include "compiler/functions/hand_over.h"

#include <fmt/format.h>

#include <map>

#include "compiler/functions/families.h"
#include "ir/ranks.h"

namespace maco::functions {

namespace {

using ir::AccessKind;
using ir::BufferId;
using ir::CollectiveKind;
using ir::RankRef;
using ir::Region;

constexpr std::string_view kHandOver = "hand_over", kTakeBack = "take_back";
constexpr CollectiveKind kKinds[] = {CollectiveKind::AllReduce,     CollectiveKind::AllGather,
                                     CollectiveKind::ReduceScatter, CollectiveKind::AllToAll,
                                     CollectiveKind::Broadcast,     CollectiveKind::RingShift};
constexpr ir::Reduction kReductions[] = {ir::Reduction::Sum, ir::Reduction::Avg, ir::Reduction::Max,
                                         ir::Reduction::Min};

template <class Enum, size_t N>
std::vector<std::string> words_of(const Enum (&all)[N]) {
  std::vector<std::string> words;
  for (const Enum e : all) words.emplace_back(name(e));
  return words;
}

template <class T>
const T* find(const ir::Call& call, std::string_view name) {
  for (const ir::Param& p : call.params)
    if (p.name == name) return std::get_if<T>(&p.value);
  return nullptr;
}
template <class T>
bool get(const ir::Call& call, std::string_view name, T& value) {
  const T* found = find<T>(call, name);
  if (found) value = *found;
  return found != nullptr;
}
template <class Enum, size_t N>
bool get_word(const ir::Call& call, std::string_view param, const Enum (&all)[N], Enum& value) {
  const ir::Word* word = find<ir::Word>(call, param);
  for (const Enum e : all)
    if (word && name(e) == word->text) {
      value = e;
      return true;
    }
  return false;
}

int64_t most(const ir::Program& p, const ir::ValueRef& v) {
  if (const int64_t* n = std::get_if<int64_t>(&v.v)) return *n;
  return p.values[std::get<uint32_t>(v.v)].range.hi;
}

class Regions {
 public:
  Regions(const ir::Program& p, const ir::Call& call, const HandOver& h)
      : h_(h), op_(call.operands), rows_(most(p, h.rows)), pitch_(p[op_[1]].cols) {}

  /// A tensor without blocks, or its block `of`.
  Region tensor(size_t operand) const {
    Region r;
    r.buffer = op_[operand];
    r.pitch = h_.cols;
    r.r1 = rows_, r.c1 = h_.cols;
    return r;
  }
  Region block(size_t operand, RankRef of) const {
    Region r = tensor(operand);
    if (const int64_t* n = std::get_if<int64_t>(&h_.rows.v))
      r.block = {.ref = of, .rows = *n};
    else
      r.block = {.ref = of, .value = std::get<uint32_t>(h_.rows.v)};
    return r;
  }
  /// The wire on rank `where` for what comes from `source`.
  Region wire(RankRef source, RankRef where) const {
    Region r;
    r.buffer = op_[1];
    r.pitch = pitch_;
    r.r1 = 1, r.c1 = rows_ * h_.cols;
    r.block = {.ref = source, .rows = 1};
    r.where = where;
    return r;
  }
  Region met(RankRef source, RankRef where) const {
    Region r;
    r.buffer = op_[3];
    r.pitch = r.c1 = 1;
    r.r1 = 1;
    r.block = {.ref = source, .rows = 1};
    r.where = where;
    return r;
  }

 private:
  const HandOver& h_;
  const std::vector<BufferId>& op_;
  int64_t rows_, pitch_;
};

ir::Access read(const Region& r) { return {AccessKind::Read, r}; }
ir::Access may(const Region& r) { return {AccessKind::MayWrite, r}; }
// A write. Where a block ends may depend on the launch.
ir::Access written(const Region& r) {
  return {r.block.value ? AccessKind::MayWrite : AccessKind::Write, r};
}

RankRef shift(int64_t by) { return RankRef::shift(static_cast<int32_t>(by)); }

std::vector<ir::Access> handed(const Regions& at, const HandOver& h) {
  const RankRef self = RankRef::self(), others = RankRef::others();
  std::vector<ir::Access> list;
  // What is sent, and where to, comes first: transfers refer to these regions.
  switch (h.kind) {
    case CollectiveKind::AllReduce:
    case CollectiveKind::AllGather: list = {read(at.tensor(0)), may(at.wire(self, others))}; break;
    case CollectiveKind::ReduceScatter:
    case CollectiveKind::AllToAll:
      for (int64_t k = 1; k < h.world; ++k) {
        list.push_back(read(at.block(0, shift(k))));
        list.push_back(may(at.wire(self, shift(k))));
      }
      list.push_back(read(at.block(0, self)));
      break;
    case CollectiveKind::RingShift:
      list = {read(at.tensor(0)), may(at.wire(self, shift(h.peer)))};
      break;
    default:
      list = {read(at.tensor(0))};
      if (h.root) list.push_back(may(at.wire(self, others)));
  }
  list.push_back(may(h.y_blocks() ? at.block(2, RankRef::all()) : at.tensor(2)));
  if (h.meets()) list.push_back(may(at.met(self, others)));
  return list;
}

std::vector<ir::Access> taken(const Regions& at, const HandOver& h) {
  const RankRef self = RankRef::self(), others = RankRef::others();
  std::vector<ir::Access> list;
  switch (h.kind) {
    case CollectiveKind::AllReduce:
    case CollectiveKind::ReduceScatter:
      list = {read(h.x_blocks() ? at.block(0, self) : at.tensor(0)), read(at.wire(others, self)),
              written(at.tensor(2))};
      break;
    case CollectiveKind::AllGather:
    case CollectiveKind::AllToAll:
      list = {read(h.x_blocks() ? at.block(0, self) : at.tensor(0)), written(at.block(2, self))};
      for (int64_t k = 1; k < h.world; ++k) {
        list.push_back(read(at.wire(shift(k), self)));
        list.push_back(written(at.block(2, shift(k))));
      }
      break;
    case CollectiveKind::RingShift:
      list = {read(at.wire(shift(h.world - h.peer), self)), written(at.tensor(2)),
              read(at.tensor(0))};
      break;
    default:
      if (h.root)
        list = {read(at.tensor(0)), written(at.tensor(2))};
      else
        list = {read(at.wire(RankRef::rank(static_cast<int32_t>(h.peer)), self)),
                written(at.tensor(2)), read(at.tensor(0))};
  }
  // What the library may still read.
  if (h.x_blocks()) list.push_back(read(at.block(0, others)));
  if (h.meets()) list.push_back(read(at.met(others, self)));
  return list;
}

}  // namespace

bool is_hand_over(std::string_view function) {
  return function == kHandOver || function == kTakeBack;
}

std::vector<ir::Param> params_of(const HandOver& h) {
  return {{"kind", ir::Word{std::string(name(h.kind))}},
          {"W", h.world},
          {"number", h.number},
          {"rows", h.rows},
          {"cols", h.cols},
          {"X", h.x},
          {"reduce", ir::Word{std::string(name(h.reduce))}},
          {"peer", h.peer},
          {"root", h.root}};
}

std::optional<HandOver> hand_over_of(const ir::Call& call) {
  if (!is_hand_over(call.function)) return std::nullopt;
  HandOver h;
  const bool ok = get_word(call, "kind", kKinds, h.kind) && get(call, "W", h.world) &&
                  get(call, "number", h.number) && get(call, "rows", h.rows) &&
                  get(call, "cols", h.cols) && get(call, "X", h.x) &&
                  get_word(call, "reduce", kReductions, h.reduce) && get(call, "peer", h.peer) &&
                  get(call, "root", h.root);
  if (!ok || h.world < 2 || h.world > ir::kMaxWorld || h.cols < 1 || h.number < 0 || h.peer < 0 ||
      h.peer >= h.world || (h.kind == CollectiveKind::RingShift && h.peer == 0) ||
      call.operands.size() != (h.meets() ? 4u : 3u))
    return std::nullopt;
  return h;
}

std::vector<ir::Access> accesses_of(const ir::Program& program, const ir::Call& call,
                                    const HandOver& h) {
  const Regions at(program, call, h);
  return call.function == kHandOver ? handed(at, h) : taken(at, h);
}

std::vector<ir::Transfer> transfers_of(std::string_view function, const HandOver& h) {
  using Kind = ir::Transfer::Kind;
  const auto copy = [](uint32_t from) {
    return ir::Transfer{.kind = Kind::Copy, .from = {from}, .to = {from + 1}};
  };
  std::vector<ir::Transfer> list;
  const auto copies = [&](int64_t count) {
    for (uint32_t i = 0; i < static_cast<uint32_t>(count); ++i) list.push_back(copy(2 * i));
  };
  if (function == kHandOver) {
    if (h.kind == CollectiveKind::Broadcast)
      copies(h.root ? 1 : 0);
    else
      copies(h.x_blocks() ? h.world - 1 : 1);
  } else if (h.kind == CollectiveKind::AllReduce || h.kind == CollectiveKind::ReduceScatter) {
    list.push_back({.kind = Kind::Reduce, .reduce = h.reduce, .from = {0, 1}, .to = {2}});
  } else {
    copies(h.y_blocks() ? h.world : 1);
  }
  return list;
}

namespace {

// Each link carries the bytes of a ring algorithm.
cost::Work library_work(const CallView& c, const ir::Task&, const cost::Machine& machine) {
  const auto h = hand_over_of(c.call());
  const auto n = static_cast<double>(h->world);
  const double block = static_cast<double>(c.typical("rows") * h->cols * ir::size_of(h->x));
  const double bytes = h->kind == CollectiveKind::AllReduce ? 2 * (n - 1) / n * block
                       : h->x_blocks() || h->y_blocks()     ? (n - 1) * block
                                                            : block;
  return {.fixed_microseconds = machine.nccl + 1e6 * cost::seconds({0, bytes}, machine)};
}

}  // namespace

namespace {

// Checks collectives that are handed over. hand_over and take_back of an op (both pairs of a
// broadcast) must have the same parameters, under a number that no other op has; those of a
// broadcast's root run on the root, the others on the other ranks.
bool check_pairs(const ir::Program& program, ir::Diagnostics& diagnostics) {
  const auto wrong = [&](const ir::Call& call, const std::string& what) {
    diagnostics.error(call.loc, fmt::format("{} of '{}' {}", call.function, call.op, what));
    return false;
  };
  std::map<int64_t, const ir::Call*> first;  // by number
  std::map<std::string, int64_t> numbers;    // by op
  for (const ir::Call& call : program.calls) {
    if (!is_hand_over(call.function)) continue;
    const auto h = hand_over_of(call);
    if (!h) return wrong(call, "hasn't the parameters and operands that it takes");
    const auto [at, fresh] = first.try_emplace(h->number, &call);
    if (numbers.try_emplace(call.op, h->number).first->second != h->number ||
        at->second->op != call.op)
      return wrong(call, "has another's number");
    if (fresh) continue;
    HandOver same = *hand_over_of(*at->second);
    same.root = h->root;
    if (params_of(same) != params_of(*h) || at->second->operands != call.operands)
      return wrong(call, "hands over other data, or in another way, than its op's other calls");
  }
  int64_t next = 0;
  for (const auto& [number, call] : first)
    if (number != next++) return wrong(*call, "leaves a number out");
  const uint64_t all = ir::all_ranks(program.world);
  for (const ir::Task& task : program.tasks) {
    const ir::Call& call = program[task.call];
    const auto h = hand_over_of(call);
    if (!h || h->kind != CollectiveKind::Broadcast) continue;
    const uint64_t root = uint64_t{1} << h->peer;
    if ((task.ranks & all) != (h->root ? root : all & ~root))
      return wrong(call, "runs on other ranks than it is for");
  }
  return true;
}

Touches touches(const ir::Program& p, const ir::Call& call) {
  const auto h = hand_over_of(call);
  if (!h || h->world != p.world)
    return {.wrong = "hasn't the parameters and operands that it takes"};
  const bool moves = call.transfers == transfers_of(call.function, *h);
  return {
      .moves = [=](const ir::Task& task) { return moves && task.tile == 0; },
      .touches = [=, &p, &call](
                     const ir::Task& task) { return task.accesses == accesses_of(p, call, *h); }};
}

}  // namespace

std::vector<Function> hand_over_functions() {
  const std::vector<ParamSpec> params = {word("kind", "ops::HandedKind", words_of(kKinds)),
                                         integer("W"),
                                         integer("number"),
                                         value("rows"),
                                         integer("cols"),
                                         dtype("X"),
                                         word("reduce", "ops::Reduction", words_of(kReductions)),
                                         integer("peer"),
                                         flag("root")};
  std::vector<Function> list;
  for (const std::string_view name : {kHandOver, kTakeBack}) {
    const bool back = name == kTakeBack;
    list.push_back(
        {.name = std::string(name),
         .params = params,
         .operands = {reads("x", "X"), wire(back ? reads("wires", "X") : writes("wires", "X")),
                      writes("y", "X"),
                      wire(back ? reads("met", "u8", Count::Optional)
                                : writes("met", "u8", Count::Optional))},
         .source = {{"ops/collectives.cuh", "ops/hand_over.cuh"}},
         .taken_back_by = std::string(back ? "" : kTakeBack),
         .touches = touches,
         .check_calls = check_pairs});
    if (back)
      list.back().work = library_work;
    else
      list.back().work = [](const CallView&, const ir::Task&, const cost::Machine&) {
        return cost::Work{.fixed_microseconds = 1};
      };
  }
  return list;
}

}  // namespace maco::functions
