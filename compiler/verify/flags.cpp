#include "compiler/verify/flags.h"

namespace maco::verify {

bool tells_apart(const Model& m, Touch write, Touch read, int memory, int launches) {
  const ir::Program& p = m.program;
  const ir::Access& written = p.tasks[write.task].accesses[write.access];
  const ir::Access& wanted = p.tasks[read.task].accesses[read.access];
  const ir::Buffer &from = p[written.region.buffer], &to = p[wanted.region.buffer];
  if (!written.writes() || wanted.writes() || !from.packets || !to.packets) return false;
  if (written.region.buffer != wanted.region.buffer)
    return from.use != to.use && (launches > 0 || write.task < read.task);
  for (const ir::Wait& w : p.tasks[read.task].waits)
    if (m.event(w.event).kind == ir::EventKind::Packet && static_cast<int>(w.lag) <= launches &&
        names(w.from, memory, write.runner, m.world) &&
        m.signaller(w.event, write.runner, memory) == write.task)
      return true;
  return false;
}

}  // namespace maco::verify
