// The debug mode that checks each access of a task against the regions that it declares.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "ir/program.h"
#include "runtime/cpu/executor.h"

namespace maco::runtime {

class KernelGuard;

/// Where a rank's memory lies.
struct RankAddresses {
  std::vector<char*> tensors;  // by the program's buffers; nullptr for temporaries and slots
  char* arena = nullptr;
  char* symmetric = nullptr;
};

/// Bytes [begin, end) of this process.
struct ByteRange {
  uintptr_t begin = 0, end = 0;
};

/// The sizes and values of a Program on a rank in one launch, which dims and scalars decide.
struct ActualSizes {
  std::vector<int64_t> elements;  // of each buffer
  std::vector<int64_t> values;    // Program::values; the most where `variables` doesn't know them
};
/// By rank, which `variables` needn't know.
std::vector<ActualSizes> actual_sizes(const ir::Program& program, const ir::Lookup& variables);
/// For the dims' maxima.
std::vector<ActualSizes> largest_sizes(const ir::Program& program);

/// Appends the bytes of `region` for a task of `rank`, on all ranks where the region lies, in the
/// launch with `epoch`. Packets: with their flags.
void add_ranges(const ir::Program& program, const std::vector<RankAddresses>& ranks,
                const ir::Region& region, int rank, uint32_t epoch,
                const std::vector<ActualSizes>& sizes, std::vector<ByteRange>& out);
/// Sorts, and joins what touches.
void merge(std::vector<ByteRange>& ranges);

/// Bytes that tasks read and wrote, each as often as they did, with packets' flags.
struct Traffic {
  int64_t read = 0, written = 0;
  int64_t to_peers = 0;  // of those written
};

/// What the current task of a context may touch, what it must write, and what it has written of
/// that.
struct TaskAccess {
  int place = -1;
  std::vector<ByteRange> reads, writes;  // sorted and disjoint; reads include writes
  std::vector<ByteRange> must;           // sorted and disjoint
  std::vector<uint8_t> written;          // a byte of `must` each, in order
  Traffic traffic;
};

/// Methods other than `start` may be called by all threads of a launch.
class AccessChecker {
 public:
  /// `guard`, if there is one, is told what is found, and ends the process before an access to
  /// memory of no tensor, arena or symmetric memory; without it that access is made.
  AccessChecker(const ir::Program& program, std::vector<RankAddresses> ranks,
                KernelGuard* guard = nullptr);

  const ir::Program& program() const { return program_; }
  /// Before a launch. `dims` gives the actual values of dims. Forgets what was found.
  void start(uint32_t epoch, const ir::Lookup& dims);
  void task(CpuContext& context, int place, bool begins);
  void access(CpuContext& context, const void* address, uint64_t bytes, bool writes);
  /// Says of an address what it is the red zone of, "" if of nothing: "element 300 of 'y' on
  /// rank 0, which has 256".
  using RedZone = std::function<std::string(const void* address)>;
  void set_red_zone(RedZone red_zone) { red_zone_ = std::move(red_zone); }
  /// An access of a user's kernel, which may lie anywhere: on its stack, in shared memory. False if
  /// it isn't to be made: some of it lies in a red zone.
  bool touched(CpuContext& context, const void* address, uint64_t bytes, bool writes);
  /// What was wrong, a line each; "" if nothing.
  std::string findings() const;
  /// The traffic of the tasks of each call of the program since `start`, on all ranks.
  std::vector<Traffic> traffic() const;

 private:
  char* base(ir::BufferId buffer, int rank) const;
  void add_ranges(const ir::Region& region, int rank, std::vector<ByteRange>& out) const {
    runtime::add_ranges(program_, ranks_, region, rank, epoch_, sizes_, out);
  }
  bool is_peers(const CpuContext& context, uintptr_t address) const;
  ir::TaskId task_of(const CpuContext& context, const TaskAccess& access) const {
    return streams_[static_cast<size_t>(context.cta)][static_cast<size_t>(access.place)];
  }
  /// "rank 1, SM 3: attention 'y' tile 0 (loader)".
  std::string name_of(const CpuContext& context, const TaskAccess& access) const;
  void found(const CpuContext& context, const TaskAccess& access, uintptr_t address,
             const char* what);
  void found(const CpuContext& context, const TaskAccess& access, const char* what,
             const std::function<std::string()>& rest);
  /// "element 8 (row 0, column 8) of 'x' on rank 1"; of `operands` if one of them lies there.
  std::string place_name(uintptr_t address, const std::vector<ir::BufferId>& operands) const;

  const ir::Program program_;
  const std::vector<RankAddresses> ranks_;
  const std::vector<std::vector<ir::TaskId>> streams_;
  std::vector<ByteRange> memory_;  // of all buffers; sorted and disjoint
  KernelGuard* const guard_;
  RedZone red_zone_;
  uint32_t epoch_ = 0;
  std::vector<ActualSizes> sizes_;
  mutable std::mutex mutex_;
  std::vector<std::string> findings_;
  std::vector<Traffic> traffic_;  // by call
};

}  // namespace maco::runtime
