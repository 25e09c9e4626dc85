#include "compiler/verify/overlays.h"

#include <fmt/format.h>

#include "compiler/verify/model.h"
#include "compiler/verify/regions.h"

namespace maco::verify {
namespace {

using ir::Access;
using ir::Buffer;
using ir::id_of;
using ir::TaskId;

class Overlays {
 public:
  Overlays(const ir::Program& program, Reporter& reporter)
      : p_(program), layout_(program), report_(reporter) {}

  void run() {
    for (size_t t = 0; t < p_.tasks.size(); ++t) {
      const std::vector<Access>& accesses = p_.tasks[t].accesses;
      for (size_t w = 0; w < accesses.size(); ++w) {
        if (!accesses[w].writes()) continue;
        for (size_t o = 0; o < accesses.size(); ++o)
          if (o != w && !(accesses[o].writes() && o < w) && may_meet(accesses[w], accesses[o]))
            compare(id_of<TaskId>(t), accesses[w], accesses[o]);
      }
    }
  }

 private:
  /// Cheap, for all but a few pairs.
  bool may_meet(const Access& written, const Access& other) const {
    const Buffer &a = p_[written.region.buffer], &b = p_[other.region.buffer];
    if (&a == &b) return !(written.region == other.region) || other.writes();
    if (!a.tensor.empty() && a.tensor == b.tensor) return true;
    if (a.kind != b.kind || !a.offset || !b.offset) return false;
    return *a.offset < *b.offset + b.bytes() && *b.offset < *a.offset + a.bytes();
  }
  void compare(TaskId task, const Access& written, const Access& other) {
    const int world = static_cast<int>(p_.world);
    for (int rank = 0; rank < world; ++rank) {
      if (!((p_[task].ranks >> rank) & 1) ||
          !same_memory(written.region.where, other.region.where, rank, world) ||
          !overlap(layout_.box(written.region, rank, 0), layout_.box(other.region, rank, 0)))
        continue;
      report_.error(
          task,
          fmt::format("overlay: {} on rank {} {} {} and writes {}, which share bytes: "
                      "nothing orders the two within a task",
                      describe(p_, task), rank, other.writes() ? "writes" : "reads",
                      to_string(p_, other.region, rank), to_string(p_, written.region, rank)));
      return;
    }
  }
  static bool same_memory(ir::RankRef a, ir::RankRef b, int rank, int world) {
    for (int memory = 0; memory < world; ++memory)
      if (names(a, rank, memory, world) && names(b, rank, memory, world)) return true;
    return false;
  }

  const ir::Program& p_;
  const Layout layout_;
  Reporter& report_;
};

}  // namespace

void check_overlays(const ir::Program& program, Reporter& reporter) {
  Overlays(program, reporter).run();
  reporter.summarise("such errors");
}

}  // namespace maco::verify
