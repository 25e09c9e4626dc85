// tile.cpp: from what is computed to how. Each op's own rule (compiler/ops) cuts it into tasks, in
// an order in which every dependency on a rank points forward. Orders that no data gives (after,
// phases, regions, overlap, barrier) become Task::after.

#include "compiler/ops/tile.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <span>

#include "compiler/functions/exchange.h"
#include "compiler/functions/function.h"
#include "compiler/functions/matmul.h"
#include "compiler/ops/op.h"
#include "compiler/passes/begin_program.h"
#include "compiler/passes/microbatches.h"
#include "compiler/passes/order.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/symmetric.h"
#include "ir/check.h"

namespace maco::passes {

namespace {

bool too_many_tasks(const ir::Op& op, PassContext& context) {
  context.diagnostics.error(op.loc, fmt::format("'{}' brings the graph to more than {} tasks",
                                                op.kind, ops::TileContext::kMostTasks));
  return false;
}

// Above this number of tasks, the rest is counted before it is made.
constexpr size_t kManyTasks = ops::TileContext::kMostTasks / 8;

// Returns false, after reporting, if `made` tasks and those of `ops` are too many together.
bool check_count(const ir::Graph& graph, std::span<const ir::OpId> ops, size_t made,
                 const ops::Messages& messages, PassContext& context) {
  ir::Program program;
  const std::vector<ir::BufferId> tensors = begin_program(graph, program, context);
  const size_t buffers = program.buffers.size();
  ir::Diagnostics unheard;  // other errors are reported when the ops are tiled
  const auto counted = std::make_shared<ops::Messages>(messages);
  for (ir::OpId id : ops) {
    counted->begin_program();
    ops::TileContext tiles(graph, id, program, context.machine, tensors, unheard, counted);
    if (!tiles.check_cut()) return true;
    tiles.only_count(made);
    try {
      ops::find_op(graph[id].kind)->tile(tiles);
      made += program.tasks.size();
    } catch (const ops::TileContext::Counted&) {
      made += tiles.announced();
    } catch (const ops::TileContext::TooManyTasks&) {
      return too_many_tasks(graph[id], context);
    }
    if (made > ops::TileContext::kMostTasks) return too_many_tasks(graph[id], context);
    program.buffers.resize(buffers);
    program.tasks.clear();
    program.calls.clear();
    program.events.clear();
    program.collectives.clear();
  }
  return true;
}

// By buffer: the first task that writes it, or SIZE_MAX. Peers write slots at any time.
std::vector<size_t> first_writes(const ir::Program& program) {
  std::vector<size_t> first(program.buffers.size(), SIZE_MAX);
  for (size_t b = 0; b < first.size(); ++b)
    if (program.buffers[b].kind == ir::BufferKind::Slot) first[b] = 0;
  for (size_t t = program.tasks.size(); t-- > 0;)
    for (const ir::Access& a : program.tasks[t].accesses)
      if (a.writes()) first[index(a.region.buffer)] = t;
  return first;
}
// By call: its last task.
std::vector<size_t> last_tasks(const ir::Program& program) {
  std::vector<size_t> last(program.calls.size(), 0);
  for (size_t t = 0; t < program.tasks.size(); ++t) last[index(program.tasks[t].call)] = t;
  return last;
}

// The most pages that a call's task holds at a time.
int64_t held_pages(const ir::Call& call) {
  int64_t pages = 0;
  for (const ir::Load& load : call.loads) pages += load.pages;
  return pages;
}
// The most pages that any call's task holds.
int64_t held_pages(const ir::Program& program) {
  int64_t held = 0;
  for (const ir::Call& call : program.calls) held = std::max(held, held_pages(call));
  return held;
}

// Shared memory of a CTA, in bytes. Users' kernels may need more than the usual.
int64_t shared_room(const ir::Program& program, const PassContext& context) {
  const cost::Machine& machine = context.machine;
  const bool more =
      std::any_of(program.calls.begin(), program.calls.end(), [&](const ir::Call& call) {
        const functions::Function* f = functions::find_function(call);
        return f && f->users_block_bytes &&
               f->users_block_bytes({program, call}) > machine.shared_bytes / 4;
      });
  return more ? machine.users_shared_bytes() : machine.shared_bytes;
}

// Sets what a CTA uses, with `scratch` bytes of scratch memory and a ring of `pages` pages, or of
// fewer if no more fit. Returns false if those are fewer than some call holds.
bool fit_uses(ir::Program& program, int64_t scratch, int32_t pages, const PassContext& context) {
  program.uses =
      cost::uses_of(context.machine, pages, functions::divides_registers(program), program.world);
  // The signaller sends what tasks have stored.
  if (std::any_of(program.calls.begin(), program.calls.end(),
                  [&](const ir::Call& call) { return functions::sends(program, call); }))
    cost::add_signaller(context.machine, program.uses, program.world);
  // The pages follow, and begin where boxes of any kind can lie.
  constexpr int64_t align = ir::Load::kLinesAlignment;
  const int64_t head = program.uses.head_bytes;
  program.uses.scratch_bytes =
      std::max(program.uses.scratch_bytes, (head + scratch + align - 1) / align * align - head);
  // Tasks' scratch memory comes first.
  if (pages == 0) cost::add_signaller(context.machine, program.uses, program.world);
  const int64_t held = held_pages(program);
  const bool in_threes = std::any_of(
      program.calls.begin(), program.calls.end(),
      [](const ir::Call& call) { return held_pages(call) == 3 && call.loads.front().box; });
  // Packets may add a signaller.
  const int64_t room = shared_room(program, context) -
                       (program.uses.signallers > 0
                            ? 0
                            : cost::signaller_bytes(context.machine, program.uses, program.world));
  while (program.uses.pages > 0 && program.uses.shared_bytes() > room) --program.uses.pages;
  // Two of a step's three pages are one operand of tensor cores. With whole steps in the ring,
  // these two never lie at opposite ends of it (ops/matmul_tensor.cuh).
  const int32_t whole = program.uses.pages - program.uses.pages % 3;
  if (in_threes && whole > held) program.uses.pages = whole;
  return held == 0 || program.uses.pages > held;
}

bool set_uses(const ir::Graph& graph, ir::Program& program, int32_t pages, PassContext& context) {
  const int64_t scratch = program.uses.scratch_bytes;
  if (fit_uses(program, scratch, pages, context)) return true;
  if (functions::leave_blocks(program) && fit_uses(program, scratch, pages, context)) return true;
  context.diagnostics.error(
      graph.loc,
      fmt::format(
          "tasks take {} bytes of scratch memory, {} pages of {} bytes and {} of the worker's "
          "own, {} together, but a CTA of '{}' can have {}",
          program.uses.scratch_bytes, held_pages(program) + 1, context.machine.page_bytes,
          program.uses.head_bytes,
          program.uses.scratch_bytes + program.uses.head_bytes +
              (held_pages(program) + 1) * context.machine.page_bytes,
          context.machine.target, shared_room(program, context)));
  return false;
}

// If a matmul that begins with its own rank's rows stands right behind the allgather of these rows,
// and both have the same SMs, their tasks are interleaved: first the copies of the own rows, then
// the puts among the tiles of these rows, then the tasks that take what has arrived, and the tiles
// of that.
void weave(ir::Program& program, size_t moved, size_t first, PassContext& context) {
  std::vector<ir::Task>& tasks = program.tasks;
  const auto function = [&](const ir::Task& t) -> const std::string& {
    return program[t.call].function;
  };
  const functions::Function* products = functions::find_function(program[tasks[first].call]);
  if (!products || !products->own_rows_first || first == moved) return;
  const std::string& op = program[tasks[moved].call].op;
  if (std::none_of(program.collectives.begin(), program.collectives.end(),
                   [&](const ir::Collective& c) {
                     return c.op == op && c.kind == ir::CollectiveKind::AllGather;
                   }))
    return;
  const auto at = [&](size_t t) { return tasks.begin() + static_cast<std::ptrdiff_t>(t); };
  const std::span<const ir::Task> gathers(at(moved), at(first));
  if (std::any_of(gathers.begin(), gathers.end(), [&](const ir::Task& t) {
        return program[t.call].op != op ||
               (!functions::puts(function(t)) && !functions::takes(function(t))) ||
               t.role != ir::Role::Compute || t.after != tasks[first].after ||
               t.priority != tasks[first].priority;
      }))
    return;
  std::vector<ir::Task> puts, takes, woven;
  for (size_t t = moved; t < first; ++t) {
    const bool copies = functions::exchange_of(program[tasks[t].call])->own;
    (functions::puts(function(tasks[t])) ? puts
     : copies                            ? woven
                                         : takes)
        .push_back(std::move(tasks[t]));
  }
  const size_t all = tasks.size() - first, own = all / static_cast<size_t>(program.world);
  size_t put = 0;
  for (size_t i = 0; i < all; ++i) {
    if (i == own)
      for (ir::Task& take : takes) woven.push_back(std::move(take));
    woven.push_back(std::move(tasks[first + i]));
    for (; put * own < (i + 1) * puts.size() && put < puts.size(); ++put)
      woven.push_back(std::move(puts[put]));
  }
  std::move(woven.begin(), woven.end(), at(moved));
  ++context.statistics["allgathers woven with products"];
}

}  // namespace

int64_t symmetric_bytes(const ir::Graph& graph, ir::OpId op, PassContext& context) {
  if (graph[op].out.empty()) return 0;  // a send's slots are its receivers'
  ir::Program program;
  const std::vector<ir::BufferId> buffers = begin_program(graph, program, context);
  ir::Diagnostics unheard;  // errors are reported when the op is tiled
  ops::TileContext tiles(graph, op, program, context.machine, buffers, unheard);
  try {
    ops::find_op(graph[op].kind)->tile(tiles);
  } catch (const ops::TileContext::TooManyTasks&) {
  }
  return place_slots(program);
}

bool tile(const ir::Graph& graph, ir::Program& program, PassContext& context) {
  const std::vector<ir::BufferId> buffers = begin_program(graph, program, context);

  const auto messages =
      std::make_shared<ops::Messages>(ops::Messages::match(graph, context.diagnostics));
  OpOrder order;
  if (!order_ops(graph, *messages, order, context.diagnostics)) return false;
  struct Range {
    size_t begin = 0, end = 0;
  };
  std::vector<Range> calls(graph.ops.size());
  const int before = context.diagnostics.errors();
  bool counted = false;
  size_t last_first = 0;  // first task of the op before
  for (size_t i = 0; i < order.linear.size(); ++i) {
    const ir::OpId id = order.linear[i];
    const size_t first_task = program.tasks.size();
    if (!counted && first_task > kManyTasks) {
      counted = true;
      const std::span<const ir::OpId> rest(order.linear.begin() + static_cast<std::ptrdiff_t>(i),
                                           order.linear.end());
      if (!check_count(graph, rest, first_task, *messages, context)) return false;
    }
    calls[index(id)].begin = program.calls.size();
    ops::TileContext tiles(graph, id, program, context.machine, buffers, context.diagnostics,
                           messages);
    if (!tiles.check_cut()) return false;
    try {
      ops::find_op(graph[id].kind)->tile(tiles);
    } catch (const ops::TileContext::TooManyTasks&) {
      return too_many_tasks(graph[id], context);
    }
    MACO_CHECK(tiles.announced() == 0 || tiles.announced() == program.tasks.size() - first_task,
               fmt::format("'{}' announced {} tasks", graph[id].name, tiles.announced()));
    calls[index(id)].end = program.calls.size();
    std::vector<ir::CallId> after;
    for (ir::OpId p : order.whole[index(id)])
      for (size_t c = calls[index(p)].begin; c < calls[index(p)].end; ++c)
        after.push_back(ir::id_of<ir::CallId>(c));
    for (size_t t = first_task; t < program.tasks.size(); ++t) program.tasks[t].after = after;
    if (first_task < program.tasks.size()) weave(program, last_first, first_task, context);
    last_first = first_task;
  }
  if (!Microbatches(graph).order(program, context)) return false;
  const std::vector<size_t> first_write = first_writes(program), last_task = last_tasks(program);
  int32_t pages = 0;
  for (size_t c = 0; c < program.calls.size(); ++c) {
    ir::Call& call = program.calls[c];
    if (call.loads.empty()) continue;
    // Only what no task has written before may be read ahead of the waits.
    bool all_ahead = true;
    int64_t held = 0;
    for (ir::Load& load : call.loads) {
      load.ahead = load.ahead && first_write[index(call.operands[load.operand])] > last_task[c];
      all_ahead = all_ahead && load.ahead;
      held += load.pages;
      load.ahead = load.ahead && context.load_ahead;
    }
    const bool streams =
        (call.loads.size() == 1 || all_ahead) && held < context.machine.stream_pages;
    pages = std::max(pages, streams ? context.machine.stream_pages : context.machine.pages);
  }
  if (!set_uses(graph, program, pages, context)) return false;
  program.limits = cost::limits_of(context.machine, context.available_sms);
  program.limits.shared_bytes = shared_room(program, context);
  program.limits.symmetric_bytes = graph.comm_buffer_bytes;
  if (const auto key = graph.key_loc.find("comm_buffer_bytes"); key != graph.key_loc.end())
    program.limits.symmetric_loc = key->second;
  program.graph = graph;
  context.statistics["tasks"] = static_cast<int64_t>(program.tasks.size());
  return context.diagnostics.errors() == before;
}

}  // namespace maco::passes
