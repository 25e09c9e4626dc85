#include "runtime/host/block_end.h"

#include <fmt/format.h>

namespace maco::runtime {

std::string describe(BlockEnd end, int64_t block, uint64_t timeout_ms) {
  const auto crashed = [&](const char* how) {
    return fmt::format("block {} crashed ({})", block, how);
  };
  switch (end) {
    case BlockEnd::Done: return fmt::format("block {} ended", block);
    case BlockEnd::Segment: return crashed("segmentation fault");
    case BlockEnd::Bus: return crashed("bus error");
    case BlockEnd::Arithmetic: return crashed("arithmetic error, as an integer division by zero");
    case BlockEnd::Aborted: return crashed("aborted, as by an assert that fails");
    case BlockEnd::Trapped:
      return crashed("trap, as for a vector that isn't aligned or a division by zero");
    case BlockEnd::Late:
      return fmt::format("block {} doesn't end: none of its threads has ended{}", block,
                         timeout_ms == 0          ? std::string(" within the time-out")
                         : timeout_ms % 1000 == 0 ? fmt::format(" for {} s", timeout_ms / 1000)
                                                  : fmt::format(" for {} ms", timeout_ms));
    case BlockEnd::Outside:
      return fmt::format("block {} reads or writes memory that belongs to no tensor", block);
    case BlockEnd::Spoiled:
      return fmt::format("block {} has overwritten memory that belongs to no tensor", block);
    case BlockEnd::Waits: break;
  }
  return fmt::format("threads of block {} wait at barriers or for other lanes that never come",
                     block);
}

}  // namespace maco::runtime
