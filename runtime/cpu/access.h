// The debug mode that checks each access of a task against the task's declared regions.
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

/// The addresses of a rank's memory.
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
  std::vector<int64_t> values;    // Program::values; the largest if `variables` doesn't give them
};
/// The sizes by rank; `variables` needn't know `rank`.
std::vector<ActualSizes> actual_sizes(const ir::Program& program, const ir::Lookup& variables);
/// The sizes for the dims' maxima.
std::vector<ActualSizes> largest_sizes(const ir::Program& program);

/// Appends the bytes of `region` for a task of `rank`, on all ranks where the region lies, in the
/// launch with `epoch`. Packets include their flags.
void add_ranges(const ir::Program& program, const std::vector<RankAddresses>& ranks,
                const ir::Region& region, int rank, uint32_t epoch,
                const std::vector<ActualSizes>& sizes, std::vector<ByteRange>& out);
/// Sorts ranges, and joins those that touch.
void merge(std::vector<ByteRange>& ranges);

/// Bytes that tasks read and wrote, counted for each access, including packets' flags.
struct Traffic {
  int64_t read = 0, written = 0;
  int64_t to_peers = 0;  // part of `written`
};

/// What the current task of a context may touch and must write, and which of the latter it has
/// written.
struct TaskAccess {
  int place = -1;
  std::vector<ByteRange> reads, writes;  // sorted and disjoint; reads include writes
  std::vector<ByteRange> must;           // sorted and disjoint
  std::vector<uint8_t> written;          // one flag for each byte of `must`, in order
  Traffic traffic;
};

/// All threads of a launch may call the methods other than `start`.
class AccessChecker {
 public:
  /// `guard`, if not null, gets the findings, and ends the process before an access to memory that
  /// belongs to no tensor, arena or symmetric memory. Without a guard such an access is made.
  AccessChecker(const ir::Program& program, std::vector<RankAddresses> ranks,
                KernelGuard* guard = nullptr);

  const ir::Program& program() const { return program_; }
  /// Called before a launch. `dims` gives the dims' actual values. Forgets earlier findings.
  void start(uint32_t epoch, const ir::Lookup& dims);
  void task(CpuContext& context, int place, bool begins);
  void access(CpuContext& context, const void* address, uint64_t bytes, bool writes);
  /// Describes the place of an address in a red zone: "element 300 of 'y' on rank 0, which has
  /// 256". "" if the address is in no red zone.
  using RedZone = std::function<std::string(const void* address)>;
  void set_red_zone(RedZone red_zone) { red_zone_ = std::move(red_zone); }
  /// Checks an access of a user's kernel, which may lie anywhere: on its stack, in shared memory.
  /// Returns false if the access must not be made because a part of it lies in a red zone.
  bool touched(CpuContext& context, const void* address, uint64_t bytes, bool writes);
  /// The findings, one on each line; "" if there are none.
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
