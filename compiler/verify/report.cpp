#include "compiler/verify/report.h"

#include <fmt/format.h>

namespace maco::verify {

std::string to_string(ir::RankRef ref) {
  switch (ref.kind) {
    case ir::RankRef::Kind::Self: return "self";
    case ir::RankRef::Kind::Others: return "others";
    case ir::RankRef::Kind::All: return "all";
    case ir::RankRef::Kind::Rank: return fmt::format("rank({})", ref.n);
    case ir::RankRef::Kind::Shift: break;
  }
  return fmt::format("shift({})", ref.n);
}

std::string to_string(const ir::Program& program, const ir::Block& block) {
  if (!block.value) return fmt::format("{} x {}", to_string(block.ref), block.rows);
  return fmt::format("{} x {}", to_string(block.ref), program.values[*block.value].expr.str());
}

std::string to_string(const ir::Program& program, const ir::Region& region, int rank) {
  const ir::Buffer& buffer = program[region.buffer];
  const ir::Interval shift =
      region.from ? ir::Interval{.lo = 0, .hi = 0} : shift_of(program, region, rank);
  std::string text = fmt::format("{}[{}:{}, {}:{}", buffer.name, region.r0 + shift.lo,
                                 region.r1 + shift.hi, region.c0, region.c1);
  if (region.pitch != buffer.cols) text += fmt::format(" pitch={}", region.pitch);
  if (region.from) text += fmt::format(" from={}", program.values[*region.from].expr.str());
  return text + "]";
}

bool Reporter::error(std::string message, ir::Loc loc) {
  if (++errors_ > max_reports_) return false;
  diagnostics_.error(loc, std::move(message));
  return true;
}

void Reporter::summarise(std::string_view what) {
  if (errors_ > max_reports_)
    diagnostics_.error({}, fmt::format("{} more {} are not shown", errors_ - max_reports_, what));
}

ir::Loc Reporter::loc(ir::TaskId task) const {
  const ir::Task& t = program_[task];
  return index(t.call) < program_.calls.size() ? program_[t.call].loc : ir::Loc{};
}

}  // namespace maco::verify
