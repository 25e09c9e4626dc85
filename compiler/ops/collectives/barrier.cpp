// barrier: two tasks; one tells the others, one hears from them. What stands before and after is
// the tile pass's (Task::after).
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
