#include "tests/fuzz/other_tiles.h"

#include <algorithm>

#include "compiler/cost/machine.h"
#include "compiler/ops/collectives/push.h"
#include "compiler/ops/tile.h"
#include "compiler/passes/begin_program.h"
#include "compiler/pipeline/registry.h"
#include "tests/fuzz/random_values.h"

namespace maco::fuzz {

namespace {

// A matmul's method, and how much of K its tiles cover, decide how K is summed. A collective's
// method only decides how tiles travel.
std::string other_method(const ops::OpDef& def, const std::string& method, Random& random) {
  return def.collective ? random.pick(def.methods) : method;
}

int64_t other_extent(int64_t extent, Random& random) {
  switch (random.below(5)) {
    case 0: return extent * 2;
    case 1: return std::max<int64_t>(1, extent / 2);
    case 2: return random.range(1, 9);
    case 3: return 16 << random.below(4);
    default: return extent;
  }
}

// An op with tiles of one row may make a million tasks, whose proof takes gigabytes.
constexpr size_t kMostTasks = 20'000;

// Whether the op can be cut as it says, with a number of tasks that a test can afford.
bool cuts_well(const ir::Graph& graph, ir::OpId op, const passes::PassContext& context) {
  ir::Diagnostics unheard;
  ir::Program program;
  const auto buffers = passes::begin_program(graph, program, context);
  ops::TileContext tiles(graph, op, program, context.machine, buffers, unheard);
  if (!tiles.check_cut()) return false;
  tiles.only_count(0);
  try {
    ops::find_op(graph[op].kind)->tile(tiles);
  } catch (const ops::TileContext::Counted&) {
    return tiles.announced() <= kMostTasks;
  } catch (const ops::TileContext::TooManyTasks&) {
    return false;
  }
  return program.tasks.size() <= kMostTasks;
}

void cut_otherwise(ir::Graph& graph, Random& random) {
  ir::Diagnostics unheard;
  const cost::Machine& machine = *cost::find_machine("cpu");
  const passes::PassContext context(unheard, machine);
  constexpr size_t kRowsAndColumns = 2;
  std::vector<ops::Cut> before;
  for (const ir::Op& op : graph.ops) before.push_back(ops::cut_of(op));
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    ir::Op& op = graph.ops[i];
    if (!ops::has_choice(graph, op)) continue;
    const ops::Cut chosen = ops::cut_of(op);
    // A pushed collective has its matmul's tiles.
    if (ops::moves_as_made(op) && op.kind != "matmul") {
      const size_t product = index(*ops::product_of(graph, op));
      ops::Cut cut = chosen;
      cut.tile = {ops::cut_of(graph.ops[product]).tile[0], ops::cut_of(graph.ops[product]).tile[1]};
      ops::set_cut(op, cut);
      if (cuts_well(graph, ir::id_of<ir::OpId>(i), context)) continue;
      ops::set_cut(op, chosen);
      ops::set_cut(graph.ops[product], before[product]);
      continue;
    }
    for (int attempt = 0; attempt < 8; ++attempt) {
      ops::Cut cut = chosen;
      cut.method = other_method(*ops::find_op(op.kind), cut.method, random);
      for (size_t axis = 0; axis < std::min(cut.tile.size(), kRowsAndColumns); ++axis)
        cut.tile[axis] = other_extent(cut.tile[axis], random);
      ops::set_cut(op, cut);
      if (cut != chosen && cuts_well(graph, ir::id_of<ir::OpId>(i), context)) break;
      ops::set_cut(op, chosen);
    }
  }
}

}  // namespace

std::function<void(const passes::Pass&, passes::Unit&)> with_other_tiles(uint64_t seed) {
  return [seed](const passes::Pass& pass, passes::Unit& unit) {
    Random random(seed);
    if (pass.name == "choose-tiles") cut_otherwise(std::get<ir::Graph>(unit), random);
  };
}

}  // namespace maco::fuzz
