// second_opinion_meaning.cpp: what buffers and collectives hold in the end.

#include <map>
#include <optional>

#include "tests/proofs/second_opinion_parts.h"

namespace maco::proofs {

namespace {

using ir::Access;
using ir::BufferKind;
using ir::Program;
using ir::Task;

std::string meaning(const Program& p, BufferKind kind, int memory) {
  std::map<int64_t, std::pair<int64_t, ir::BufferId>> written;  // runs of bytes: end, whose
  for (uint32_t t = 0; t < p.tasks.size(); ++t)
    for (const bool write : {false, true})
      for (int rank = 0; rank < p.world; ++rank) {
        if (!runs(p.tasks[t], rank)) continue;
        for (const Access& a : p.tasks[t].accesses) {
          if (a.writes() != write || p[a.region.buffer].kind != kind ||
              !has(reaches(p, a, rank), memory))
            continue;
          const Bytes box = bytes_of(p, a, rank);
          for (int64_t row = 0; row < box.rows; ++row) {
            const int64_t begin = box.start + row * box.pitch, end = begin + box.width;
            auto at = written.upper_bound(begin);
            if (at != written.begin() && std::prev(at)->second.first > begin) --at;
            if (!write) {
              for (; at != written.end() && at->first < end; ++at)
                if (at->second.second != a.region.buffer)
                  return fmt::format("meaning: {} reads '{}' where '{}' was written since",
                                     describe(p, ir::id_of<ir::TaskId>(t)), p[a.region.buffer].name,
                                     p[at->second.second].name);
              continue;
            }
            while (at != written.end() && at->first < end) {
              const auto [old_begin, old] = *at;
              at = written.erase(at);
              if (old_begin < begin) written[old_begin] = {begin, old.second};
              if (old.first > end)
                at = written.emplace(end, std::pair(old.first, old.second)).first;
            }
            written[begin] = {end, a.region.buffer};
          }
        }
      }
  return "";
}

/// What an element holds: element `index` of the operand; `ranks`: how often each rank's is
/// included (8 bits for each rank); or kZero.
constexpr int64_t kZero = -3;
struct Element {
  int64_t index = -1;
  uint64_t ranks = 0;
  bool reduced = false, averaged = false;
};

/// All transfers of a launch, with these actual values of the dims.
class Simulation {
 public:
  Simulation(const Program& p, const ir::Collective& collective,
             const std::map<std::string, int64_t>& dims)
      : p_(p), c_(collective), world_(static_cast<int>(p.world)) {
    const ir::Lookup lookup = [&](std::string_view name) -> std::optional<int64_t> {
      const auto at = dims.find(std::string(name));
      return at == dims.end() ? std::nullopt : std::optional(at->second);
    };
    for (const ir::Value& v : p.values)
      values_.push_back(ir::evaluate(v.expr, lookup).value.value_or(v.range.hi));
    for (const ir::Buffer& b : p.buffers)
      elements_.push_back(ir::evaluate(b.rows, lookup).value.value_or(b.max_rows) * b.cols);
  }

  std::string run(const std::vector<std::pair<int, uint32_t>>& order) {
    for (const auto& [rank, t] : order) {
      if (!runs(p_.tasks[t], rank)) continue;
      for (const ir::Transfer& x : p_[p_.tasks[t].call].transfers) {
        transfer(rank, p_.tasks[t], x);
        if (!wrong_.empty())
          return fmt::format("delivery: {} on rank {}: {}", describe(p_, ir::id_of<ir::TaskId>(t)),
                             rank, wrong_);
      }
    }
    return promised();
  }

 private:
  std::vector<Element>& memory(ir::BufferId b, int rank) {
    std::vector<Element>& m = memory_[{index(b), rank}];
    if (m.empty()) m.resize(static_cast<size_t>(p_[b].max_elements()));
    return m;
  }
  /// The operand, which nobody changes while it is read.
  std::vector<Element>& operand(int rank) {
    std::vector<Element>& m = operands_[rank];
    if (m.empty()) {
      m.resize(static_cast<size_t>(p_[c_.in].max_elements()));
      for (size_t i = 0; i < m.size(); ++i)
        m[i] = {static_cast<int64_t>(i), uint64_t{1} << 8 * rank, false};
    }
    return m;
  }
  /// Whether a task that reads `b` reads the operand. A message's operand is what its sender reads.
  bool reads_operand(const Task& t, ir::BufferId b) const {
    const std::string& op = p_[t.call].op;
    return b == c_.in && c_.kind != ir::CollectiveKind::Zeros &&
           (c_.kind != ir::CollectiveKind::Message || op == c_.sender || op == c_.op);
  }
  bool is_slot(const ir::Region& r) const { return p_[r.buffer].kind == BufferKind::Slot; }

  /// The existing elements of a region in one block, in order.
  std::vector<int64_t> elements(const ir::Region& r, int64_t block) const {
    const int64_t height = r.block.value ? values_[*r.block.value] : r.block.rows;
    const int64_t last = r.block.value ? std::min(r.r1, height) : r.r1;
    std::vector<int64_t> list;
    for (int64_t row = r.r0; row < last; ++row)
      for (int64_t column = r.c0; column < r.c1; ++column) {
        const int64_t at = (block * height + row) * r.pitch + column;
        if (at < elements_[index(r.buffer)]) list.push_back(at);
      }
    return list;
  }
  std::vector<int> blocks(const ir::Region& r, int rank) const {
    return r.block.any() ? ranks_of(r.block.ref, rank, world_) : std::vector<int>{0};
  }

  void transfer(int rank, const Task& t, const ir::Transfer& x) {
    // Tensors say how much there is; slots have room for more.
    std::optional<size_t> count;
    std::vector<std::vector<Element*>> from, to;
    const auto collect = [&](uint32_t a, bool reads, std::vector<std::vector<Element*>>& lists) {
      const ir::Region& r = t.accesses[a].region;
      const std::vector<int> owners =
          is_slot(r) ? ranks_of(r.where, rank, world_) : std::vector<int>{rank};
      for (int block : blocks(r, rank)) {
        const std::vector<int64_t> at = elements(r, block);
        if (!is_slot(r)) {
          if (count && *count != at.size()) wrong_ = "moves more to one place than to another";
          count = at.size();
        }
        for (int owner : owners) {
          std::vector<Element*>& list = lists.emplace_back();
          std::vector<Element>& there =
              reads && reads_operand(t, r.buffer) ? operand(owner) : memory(r.buffer, owner);
          for (int64_t e : at) list.push_back(&there[static_cast<size_t>(e)]);
        }
      }
    };
    for (uint32_t a : x.from) collect(a, true, from);
    for (uint32_t a : x.to) collect(a, false, to);
    if (x.kind == ir::Transfer::Kind::Clear) {
      for (const std::vector<Element*>& list : to)
        for (Element* e : list) *e = {kZero, 0, false};
      return;
    }
    size_t n = count.value_or(SIZE_MAX);
    for (const auto* lists : {&from, &to})
      for (const std::vector<Element*>& list : *lists) {
        if (count && list.size() < *count) wrong_ = "moves more than there is room for";
        n = std::min(n, list.size());
      }
    if (x.kind == ir::Transfer::Kind::Copy && from.size() != 1) wrong_ = "copies from many places";
    for (size_t k = 0; k < n && wrong_.empty(); ++k) {
      const Element e = x.kind == ir::Transfer::Kind::Copy ? *from[0][k] : sum(x, from, k);
      for (const std::vector<Element*>& list : to) *list[k] = e;
    }
  }
  Element sum(const ir::Transfer& x, const std::vector<std::vector<Element*>>& from, size_t k) {
    Element sum = *from[0][k];
    bool averaged = sum.averaged, ours = sum.index >= 0;
    for (size_t i = 1; i < from.size(); ++i) {
      const Element& e = *from[i][k];
      ours = ours || e.index >= 0;
      averaged = averaged || e.averaged;
      if (e.index != sum.index) sum.index = -2;
      sum.ranks += e.ranks;
    }
    sum.reduced = true;
    sum.averaged = x.reduce == ir::Reduction::Avg;
    if (!ours) return {};
    // Only wrong if this collective's result depends on it: operands may be shared with others.
    // Sums on the way to an average are sums.
    const bool on_the_way = c_.reduce == ir::Reduction::Avg && x.reduce == ir::Reduction::Sum;
    if (sum.index == -2 || (x.reduce != c_.reduce && !on_the_way) ||
        (sum.averaged && (averaged || sum.ranks != all_ranks())))
      return {};
    return sum;
  }
  uint64_t all_ranks() const {
    uint64_t all = 0;
    for (int r = 0; r < world_; ++r) all |= uint64_t{1} << 8 * r;
    return all;
  }

  std::string promised() {
    using enum ir::CollectiveKind;
    const bool out_blocks = c_.kind == AllGather || c_.kind == AllToAll,
               in_blocks = c_.kind == ReduceScatter || c_.kind == AllToAll;
    const int64_t block = elements_[index(c_.in)] / (in_blocks ? world_ : 1);
    if (elements_[index(c_.out)] != block * (out_blocks ? world_ : 1))
      return "delivery: the result has not as many elements";
    for (int rank = 0; rank < world_; ++rank) {
      if (c_.of_some() && !(c_.ranks >> rank & 1)) continue;
      const std::vector<Element>& y = memory(c_.out, rank);
      for (int64_t i = 0; i < block * (out_blocks ? world_ : 1); ++i) {
        const Element& got = y[static_cast<size_t>(i)];
        const int64_t index = (in_blocks ? rank * block : 0) + i % block;
        const int64_t from = out_blocks             ? i / block
                             : c_.kind == Broadcast ? c_.peer
                                                    : ((rank - c_.peer) % world_ + world_) % world_;
        if (c_.kind == Zeros) {
          if (got.index != kZero)
            return fmt::format("delivery: element {} of '{}' on rank {} isn't cleared", i,
                               p_[c_.out].name, rank);
          continue;
        }
        const bool sum = c_.kind == AllReduce || c_.kind == ReduceScatter;
        const uint64_t ranks = sum ? all_ranks() : uint64_t{1} << 8 * from;
        if (got.index != index || got.ranks != ranks ||
            (world_ > 1 &&
             (got.reduced != sum || got.averaged != (sum && c_.reduce == ir::Reduction::Avg))))
          return fmt::format("delivery: element {} of '{}' on rank {} is wrong", i, p_[c_.out].name,
                             rank);
      }
    }
    return "";
  }

  const Program& p_;
  const ir::Collective& c_;
  const int world_;
  std::vector<int64_t> values_, elements_;  // actual
  std::map<std::pair<size_t, int>, std::vector<Element>> memory_;
  std::map<int, std::vector<Element>> operands_;  // by rank
  std::string wrong_;
};

}  // namespace

std::string meaning(const Program& p) {
  for (const BufferKind kind : {BufferKind::Temp, BufferKind::Slot})
    for (int memory = 0; memory < p.world; ++memory)
      if (const std::string wrong = meaning(p, kind, memory); !wrong.empty()) return wrong;
  return "";
}

std::string delivery(const Program& p, const std::vector<std::pair<int, uint32_t>>& order) {
  // Each rank's result must be stated exactly once.
  std::map<std::string, std::vector<int>> promised;  // by op and rank
  for (const ir::Collective& c : p.collectives) {
    std::vector<int>& ranks = promised[c.op];
    ranks.resize(static_cast<size_t>(p.world));
    for (size_t r = 0; r < ranks.size(); ++r) ranks[r] += !c.of_some() || (c.ranks >> r & 1);
  }
  for (const auto& [op, ranks] : promised)
    if (std::count(ranks.begin(), ranks.end(), 1) != static_cast<int64_t>(ranks.size()))
      return fmt::format("delivery: what '{}' delivers isn't said once for each rank", op);
  for (const ir::Collective& c : p.collectives) {
    if (c.kind == ir::CollectiveKind::Barrier) continue;
    if (std::none_of(p.calls.begin(), p.calls.end(),
                     [&](const ir::Call& call) { return call.op == c.op; }))
      return "delivery: nothing does it";
    // The minimum, the maximum and the middle of the dims; these are different values wherever rows
    // depend on them.
    for (int step = 0; step < 3; ++step) {
      std::map<std::string, int64_t> dims;
      for (const ir::Value& v : p.values)
        if (const auto vars = v.expr.vars();
            vars.size() == 1 && v.expr == ir::Expr::var(*vars.begin()))
          dims[*vars.begin()] = v.range.lo + (v.range.hi - v.range.lo) * step / 2;
      if (const std::string wrong = Simulation(p, c, dims).run(order); !wrong.empty()) return wrong;
      if (dims.empty()) break;
    }
  }
  return "";
}

}  // namespace maco::proofs
