// lowering.cpp: compares a Program with its graph. Passes behind `tile` place and order tasks, and
// don't change what tasks do. Any damage shows here, with the op to which it belongs.
#include "compiler/passes/lowering.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/cost/machine.h"
#include "compiler/functions/function.h"
#include "compiler/passes/dependencies.h"
#include "ir/graph_text.h"
#include "ir/program_text.h"

namespace maco::passes {

namespace {

bool same_buffer(ir::Buffer a, const ir::Buffer& b) {
  a.offset = b.offset;
  a.use = b.use;
  if (b.kind == ir::BufferKind::Temp) a.packets = b.packets;
  return a == b;
}
bool same_call(ir::Call given, const ir::Call& made) {
  for (size_t i = 0; i < std::min(given.loads.size(), made.loads.size()); ++i)
    given.loads[i].ahead = given.loads[i].ahead || made.loads[i].ahead;
  given.loc = made.loc;
  return given == made;
}
bool same_task(const ir::Task& a, const ir::Task& b) {
  return a.call == b.call && a.tile == b.tile && a.role == b.role && a.priority == b.priority &&
         a.ranks == b.ranks && a.accesses == b.accesses && a.after == b.after;
}
/// Compares the uses of the SMs. Packets may add a warp that signals.
bool same_uses(const ir::Program& given, const ir::Program& made) {
  if (given.uses == made.uses) return true;
  const cost::Machine* machine = cost::find_machine(made.target, made.board);
  ir::Resources with = made.uses;
  if (machine) cost::add_signaller(*machine, with, made.world);
  return given.uses == with;
}
bool same_limits(ir::Limits a, const ir::Limits& b) {
  a.symmetric_loc = b.symmetric_loc;
  return a == b;
}
template <class Entities, class Same>
bool same_list(const Entities& a, const Entities& b, Same same) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), same);
}

bool same_tile(const ir::Task& a, const ir::Task& b) {
  return a.call == b.call && a.tile == b.tile;
}
/// Tasks by call and tile: their order in the list is a pass's choice.
std::vector<uint32_t> by_tile(const ir::Program& p) {
  std::vector<uint32_t> list(p.tasks.size());
  std::iota(list.begin(), list.end(), 0u);
  std::stable_sort(list.begin(), list.end(), [&](uint32_t a, uint32_t b) {
    return std::pair(p.tasks[a].call, p.tasks[a].tile) <
           std::pair(p.tasks[b].call, p.tasks[b].tile);
  });
  return list;
}

bool same_tasks(const ir::Program& given, const ir::Program& made) {
  if (same_list(given.tasks, made.tasks, same_task)) return true;
  const std::vector<uint32_t> a = by_tile(given), b = by_tile(made);
  return same_list(
      a, b, [&](uint32_t x, uint32_t y) { return same_task(given.tasks[x], made.tasks[y]); });
}

bool agree(const ir::Program& given, const ir::Program& made) {
  return given.name == made.name && given.world == made.world && given.ctas == made.ctas &&
         given.target == made.target && given.board == made.board && given.roles == made.roles &&
         same_uses(given, made) && same_limits(given.limits, made.limits) &&
         given.variables == made.variables && given.values == made.values &&
         same_list(given.buffers, made.buffers, same_buffer) &&
         same_list(given.calls, made.calls, same_call) && given.collectives == made.collectives &&
         same_tasks(given, made);
}

/// The part of a Program that decides in which order its tasks may stand, without addresses: all
/// accesses to states that are written, and to buffers that are written again after they were read.
/// Where everything is written before it is read, the verifier finds wrong orders (check_defined).
ir::Program rewritten(const ir::Program& made) {
  std::vector<bool> read(made.buffers.size(), false), again(made.buffers.size(), false);
  for (const ir::Task& t : made.tasks)
    for (const bool writes : {true, false})
      for (const ir::Access& a : t.accesses) {
        if (a.writes() != writes) continue;
        const size_t b = index(a.region.buffer);
        if (writes)
          again[b] = again[b] || read[b] || made.buffers[b].kind == ir::BufferKind::State;
        else
          read[b] = true;
      }
  ir::Program p;
  p.world = made.world;
  p.values = made.values;
  p.buffers = made.buffers;
  p.calls.resize(made.calls.size());
  int64_t offset = 0;
  for (ir::Buffer& b : p.buffers) {
    b.offset = offset;
    offset += b.copy_bytes();
  }
  if (std::find(again.begin(), again.end(), true) == again.end()) return p;
  for (const ir::Task& t : made.tasks) {
    ir::Task& own = p.tasks.emplace_back();
    own.call = t.call;
    own.tile = t.tile;
    own.ranks = t.ranks;
    for (const ir::Access& a : t.accesses)
      if (again[index(a.region.buffer)]) own.accesses.push_back(a);
  }
  return p;
}

/// Two tasks of `given` whose order contradicts the flow of data between them; nothing if all are
/// in order.
std::optional<std::pair<ir::TaskId, ir::TaskId>> turned_round(const ir::Program& given,
                                                              const ir::Program& made) {
  if (same_list(given.tasks, made.tasks, same_tile)) return std::nullopt;
  const ir::Program flow = rewritten(made);
  if (flow.tasks.empty()) return std::nullopt;
  const std::vector<uint32_t> a = by_tile(given), b = by_tile(made);
  std::vector<uint32_t> place(b.size());  // by task of `made`: its place in `given`
  for (size_t i = 0; i < b.size(); ++i) place[b[i]] = a[i];
  const Dependencies needed = find_dependencies(flow);
  std::vector<uint32_t> last(needed.sets.size(), 0);
  for (size_t s = 0; s < last.size(); ++s)
    for (const ir::TaskId t : needed.sets[s]) last[s] = std::max(last[s], place[index(t)]);
  for (size_t t = 0; t < place.size(); ++t)
    for (const uint32_t set : needed.of(ir::id_of<ir::TaskId>(t)))
      if (last[set] > place[t])
        return std::pair(ir::id_of<ir::TaskId>(last[set]), ir::id_of<ir::TaskId>(place[t]));
  return std::nullopt;
}

/// The Program as it was before it was planned, scheduled and synced.
ir::Program without_order(ir::Program p, const ir::Program& made) {
  p.stage = ir::Stage::Tiled;
  if (same_uses(p, made)) p.uses = made.uses;
  p.arena_bytes = p.symmetric_bytes = 0;
  p.graph = {};
  p.events.clear();
  for (ir::Buffer& b : p.buffers) {
    b.offset.reset();
    b.use = 0;
    if (b.kind == ir::BufferKind::Temp) b.packets = false;
  }
  for (size_t c = 0; c < std::min(p.calls.size(), made.calls.size()); ++c)
    if (same_call(p.calls[c], made.calls[c])) p.calls[c] = made.calls[c];
  std::vector<ir::Task> tasks;
  for (const uint32_t t : by_tile(p)) tasks.push_back(p.tasks[t]);
  p.tasks = std::move(tasks);
  for (ir::Task& t : p.tasks) {
    t.sm = t.place = -1;
    t.mated = false;
    t.waits.clear();
    t.signals.clear();
  }
  return p;
}

std::string_view line(std::string_view text, size_t at) {
  const size_t begin = at == 0 ? 0 : text.rfind('\n', at - 1) + 1;
  std::string_view found = text.substr(begin, text.find('\n', at) - begin);
  found.remove_prefix(std::min(found.find_first_not_of(' '), found.size()));
  return found.substr(0, 400);
}

void report(const ir::Program& given, const ir::Program& made, ir::Diagnostics& diagnostics) {
  const std::string a = ir::print(without_order(given, made)),
                    b = ir::print(without_order(made, made));
  const auto at =
      static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
  diagnostics.error({}, "lowering: the Program does other things than its graph says");
  diagnostics.note({}, fmt::format("it has     {}", line(a, at)));
  diagnostics.note({}, fmt::format("instead of {}", line(b, at)));
}

/// Whether two graphs have the same text. Equal graphs may declare their tensors in other orders.
bool same_text(const ir::SharedGraph& a, const ir::SharedGraph& b) {
  return a.same(b) || (a && b && ir::print(*a) == ir::print(*b));
}

/// Cuts the ops of the graph that a Program carries into tasks.
bool tile_again(const ir::Program& program, ir::Program& made, PassContext& context) {
  ir::Diagnostics& d = context.diagnostics;
  PassContext own(d, context.machine);
  own.available_sms = std::clamp<int64_t>(program.limits.sms, 1, context.machine.sms);
  if (const Form form = form_of(*program.graph, own); form != Form::Cut) {
    d.error({}, fmt::format("lowering: a Program carries {}, but '{}' has {}", name(Form::Cut),
                            program.name, name(form)));
    return false;
  }
  return tile(*program.graph, made, own);
}

}  // namespace

bool check_lowering(const ir::Program& program, PassContext& context, const ir::Program* tiled) {
  ir::Diagnostics& d = context.diagnostics;
  if (!program.graph) {
    const auto real = std::find_if(
        program.calls.begin(), program.calls.end(),
        [](const ir::Call& call) { return functions::find_function(call.function) != nullptr; });
    if (real == program.calls.end()) return true;
    d.error(real->loc, fmt::format("lowering: the Program carries no graph, and nothing else says "
                                   "what '{}' has to compute",
                                   real->op));
    return false;
  }
  ir::Program again;
  if (!tiled || !same_text(tiled->graph, program.graph)) {
    if (!tile_again(program, again, context)) return false;
    tiled = &again;
  }
  if (!agree(program, *tiled)) {
    report(program, *tiled, d);
    return false;
  }
  const auto turned = turned_round(program, *tiled);
  if (turned)
    d.error(program[program[turned->second].call].loc,
            fmt::format("lowering: {} stands before {} in the list of tasks, but its graph has "
                        "them the other way round",
                        describe(program, turned->second), describe(program, turned->first)));
  return !turned;
}

}  // namespace maco::passes
