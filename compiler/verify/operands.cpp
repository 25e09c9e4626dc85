#include "compiler/verify/operands.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "compiler/verify/history.h"
#include "compiler/verify/regions.h"

namespace maco::verify {
namespace {

using ir::id_of;
using ir::Region;

struct Touch {
  uint32_t task = 0;
  const Region* region = nullptr;
};
/// What is done with an operand, in the order of the list of tasks.
struct Touches {
  std::vector<Touch> taken;  // read by a transfer
  std::vector<Touch> written;
};

class Operands {
 public:
  Operands(const ir::Program& program, Reporter& reporter)
      : p_(program), layout_(program), report_(reporter) {}

  void run() {
    std::vector<bool> is_operand(p_.buffers.size(), false);
    for (const ir::Collective& x : p_.collectives)
      if (x.kind != ir::CollectiveKind::Barrier) is_operand[index(x.in)] = true;
    touches_.resize(p_.buffers.size());
    for (uint32_t t = 0; t < p_.tasks.size(); ++t) {
      const ir::Task& task = p_.tasks[t];
      for (const ir::Transfer& x : p_[task.call].transfers)
        for (const uint32_t a : x.from)
          if (const Region& r = task.accesses[a].region; is_operand[index(r.buffer)])
            touches_[index(r.buffer)].taken.push_back({t, &r});
      for (const ir::Access& a : task.accesses)
        if (a.writes() && is_operand[index(a.region.buffer)])
          touches_[index(a.region.buffer)].written.push_back({t, &a.region});
    }
    for (const ir::Collective& x : p_.collectives)
      if (x.kind != ir::CollectiveKind::Barrier && !stays(x)) return;
  }

 private:
  bool stays(const ir::Collective& x) {
    const Touches& all = touches_[index(x.in)];
    std::vector<Touch> taken;
    for (const Touch& t : all.taken)
      if (const std::string& op = p_[p_.tasks[t.task].call].op; op == x.op || op == x.sender)
        taken.push_back(t);
    if (taken.empty()) return true;
    std::vector<Touch> between;
    for (const Touch& w : all.written)
      if (w.task >= taken.front().task && w.task <= taken.back().task) between.push_back(w);
    for (const Touch& w : cut_off(between, taken)) {
      const Touch *before = nullptr, *after = nullptr;
      for (const Touch& r : taken) {
        Touch const*& side = r.task < w.task ? before : after;
        if (!side && r.task != w.task && meet(r, w)) side = &r;
      }
      if (!before || !after) continue;  // boxes are of whole words
      const auto name = [&](const Touch& t) { return describe(p_, id_of<ir::TaskId>(t.task)); };
      report_.error(
          id_of<ir::TaskId>(w.task),
          fmt::format("contributions: {} writes {} while '{}' takes it: {} took it "
                      "before, {} takes it after",
                      name(w), to_string(p_, *w.region, 0), x.op, name(*before), name(*after)));
      return false;
    }
    return true;
  }
  /// Those of `written` that something which they overlap was taken before, and something after,
  /// on any rank.
  std::vector<Touch> cut_off(const std::vector<Touch>& written,
                             const std::vector<Touch>& taken) const {
    std::vector<bool> before(written.size(), false), after(written.size(), false);
    const auto runs_on = [&](const Touch& t, int rank) {
      return (p_.tasks[t.task].ranks >> rank & 1) != 0;
    };
    for (int rank = 0; rank < p_.world && !written.empty(); ++rank) {
      std::vector<Box> boxes;
      std::vector<uint32_t> tasks, ids;
      for (const Touch& r : taken)
        if (runs_on(r, rank)) {
          boxes.push_back(layout_.box(*r.region, rank, 0));
          tasks.push_back(r.task);
        }
      const BoxTable table(boxes, ids);
      // The first and the last task that took each box.
      std::vector<uint32_t> first(table.size(), UINT32_MAX), last(table.size(), 0);
      for (size_t i = 0; i < ids.size(); ++i) {
        first[ids[i]] = std::min(first[ids[i]], tasks[i]);
        last[ids[i]] = std::max(last[ids[i]], tasks[i]);
      }
      std::vector<BoxTable::Run> found;
      for (size_t i = 0; i < written.size(); ++i) {
        const Touch& w = written[i];
        if (!runs_on(w, rank) || (before[i] && after[i])) continue;
        found.clear();
        table.find(layout_.box(*w.region, rank, 0), found);
        for (const BoxTable::Run& run : found)
          for (uint32_t id = run.first; id < run.last; ++id) {
            before[i] = before[i] || first[id] < w.task;
            after[i] = after[i] || last[id] > w.task;
          }
      }
    }
    std::vector<Touch> out;
    for (size_t i = 0; i < written.size(); ++i)
      if (before[i] && after[i]) out.push_back(written[i]);
    return out;
  }
  /// Whether the two touch a common element on some rank that runs both.
  bool meet(const Touch& a, const Touch& b) const {
    const Region &x = *a.region, &y = *b.region;
    const auto fixed = [](const Region& r) { return !r.block.any() && !r.from; };
    const bool plain = x.pitch == y.pitch && fixed(x) && fixed(y);
    if (plain && (x.r0 >= y.r1 || y.r0 >= x.r1 || x.c0 >= y.c1 || y.c0 >= x.c1)) return false;
    const uint64_t both = p_.tasks[a.task].ranks & p_.tasks[b.task].ranks;
    for (int rank = 0; rank < p_.world; ++rank)
      if ((both >> rank & 1) && overlap(layout_.box(x, rank, 0), layout_.box(y, rank, 0)))
        return true;
    return false;
  }

  const ir::Program& p_;
  const Layout layout_;
  Reporter& report_;
  std::vector<Touches> touches_;  // by buffer, of operands
};

}  // namespace

void check_operands(const ir::Program& program, Reporter& reporter) {
  Operands(program, reporter).run();
}

}  // namespace maco::verify
