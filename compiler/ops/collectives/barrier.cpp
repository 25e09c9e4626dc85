// barrier: two tasks. One tells the other ranks, one waits to be told by them. The tile pass
// handles what comes before and after (Task::after).
#include "compiler/ops/collectives/algorithms.h"

namespace maco::ops {

namespace {

void tile(TileContext& c) {
  c.promise(ir::CollectiveKind::Barrier);
  const ir::EventId met = c.event("met", ir::EventKind::Peer);
  const ir::TaskId tell = c.task(c.call("nothing", {}, {}), 0, {}, ir::Role::Comm);
  c.signal(tell, met, ir::RankRef::others());
  const ir::TaskId hear = c.task(c.call("nothing", {}, {}), 0, {}, ir::Role::Comm);
  c.wait(hear, met, ir::RankRef::others());
}

}  // namespace

Algorithm barrier() { return {"barrier", "", tile}; }

}  // namespace maco::ops
