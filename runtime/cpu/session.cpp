#include "runtime/cpu/session.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <optional>
#include <thread>
#include <utility>

#include "ir/manifest.h"
#include "ir/ranks.h"
#include "runtime/cpu/access.h"
#include "runtime/cpu/block_guard.h"
#include "runtime/cpu/executor.h"
#include "runtime/cpu/fenced_memory.h"
#include "runtime/cpu/handed.h"
#include "runtime/cpu/kernel_guard.h"
#include "runtime/cpu/shared_memory.h"
#include "runtime/host/abi.h"
#include "runtime/host/outcome.h"
#include "runtime/host/profile.h"

namespace maco::runtime {

void note_task(CpuContext& context, int place, bool begins) {
  if (context.checker) context.checker->task(context, place, begins);
}

namespace {

// Zeroed memory, aligned as device allocations are.
class Memory {
 public:
  explicit Memory(int64_t bytes) : bytes_(static_cast<size_t>(std::max<int64_t>(bytes, 1))) {
    data_ = static_cast<char*>(::operator new(bytes_, kAlignment));
    clear();
  }
  ~Memory() {
    if (data_) ::operator delete(data_, kAlignment);
  }
  Memory(Memory&& other) noexcept : bytes_(other.bytes_), data_(other.data_) {
    other.data_ = nullptr;
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  Memory& operator=(Memory&&) = delete;

  char* data() const { return data_; }
  size_t size() const { return bytes_; }
  void clear() { std::memset(data_, 0, bytes_); }

 private:
  static constexpr std::align_val_t kAlignment{1024};
  size_t bytes_;
  char* data_ = nullptr;
};

// A CTA's shared memory, with fences: an overflow stops where it happens.
FencedMemory fenced_cta_memory(int64_t bytes) {
  constexpr size_t align = 128;  // of CtaMemory
  return {static_cast<size_t>(bytes), align, 1};
}

// Memory of a tensor, or of all slots or temporaries of a rank; with red zones if a user's kernel
// might overrun it.
class TensorMemory {
 public:
  TensorMemory(int64_t bytes, std::optional<size_t> fence) {
    constexpr size_t align = 256;  // as device allocations are
    if (fence)
      fenced_.emplace(static_cast<size_t>(bytes), align, *fence);
    else
      plain_.emplace(bytes);
  }
  char* data() const { return fenced_ ? fenced_->data() : plain_->data(); }
  size_t size() const { return fenced_ ? fenced_->size() : plain_->size(); }
  void clear() {
    if (fenced_)
      fenced_->clear();
    else
      plain_->clear();
  }
  /// Null if it has no red zones.
  const FencedMemory* fenced() const { return fenced_ ? &*fenced_ : nullptr; }

 private:
  std::optional<Memory> plain_;
  std::optional<FencedMemory> fenced_;
};

struct RankState {
  std::vector<std::optional<TensorMemory>> tensors;  // memory of the session's own
  std::vector<void*> tensor_pointers;
  std::vector<TensorMap> maps;
  int rank = 0;
  std::optional<size_t> fences;  // size of red zones' fences; nothing: no red zones
  TensorMemory arena;
  Memory counters, handed;
  std::optional<TensorMemory> own_symmetric;  // unless all processes map it
  char* symmetric = nullptr;
  std::vector<Memory> shared_memory;  // of its CTAs, or
  std::vector<FencedMemory> fenced_memory;
  std::vector<char*> ctas;      // the CTAs' shared memory
  std::vector<Report> reports;  // of its CTAs
  RankStamps stamps;
  std::vector<LaunchState> states;  // for launches with dims or scalars in memory
  Launch launch{};

  // `fence`: the size of red zones' fences, if own memory has red zones. `shared`: the rank's
  // symmetric memory; null: it allocates its own.
  RankState(const ir::Manifest& m, int number, bool fenced_ctas, std::optional<size_t> fence,
            int64_t profiled_tasks, char* shared)
      : rank(number),
        fences(fence),
        arena(m.arena_bytes, fence),
        counters(m.local_events * 4),
        handed(static_cast<int64_t>(m.handed.size() * sizeof(Handed))) {
    if (!shared)
      own_symmetric.emplace(symmetric_size(m.symmetric_bytes, m.peer_events, m.world), fence);
    symmetric = shared ? shared : own_symmetric->data();
    tensors.resize(m.tensors.size());
    tensor_pointers.resize(m.tensors.size());
    maps.resize(m.maps.size());
    reports.resize(static_cast<size_t>(m.ctas));
    if (profiled_tasks > 0) {
      stamps.ctas.resize(static_cast<size_t>(m.ctas));
      stamps.tasks.resize(static_cast<size_t>(profiled_tasks));
    }
    for (int64_t i = 0; i < m.ctas; ++i)
      ctas.push_back(fenced_ctas
                         ? fenced_memory.emplace_back(fenced_cta_memory(m.shared_bytes)).data()
                         : shared_memory.emplace_back(m.shared_bytes).data());
  }

  void allocate(const ir::Manifest& m, size_t tensor) {
    const ir::ManifestTensor& t = m.tensors[tensor];
    tensors[tensor].emplace(t.max_elements * ir::size_of(t.dtype), fences);
    tensor_pointers[tensor] = tensors[tensor]->data();
  }
  // Makes the maps for the tensors' current addresses.
  void make_maps(const ir::Manifest& m) {
    for (size_t i = 0; i < maps.size(); ++i) {
      const ir::ManifestMap& map = m.maps[i];
      const char* base =
          map.tensor < 0
              ? arena.data()
              : static_cast<const char*>(tensor_pointers[static_cast<size_t>(map.tensor)]);
      maps[i] = {{reinterpret_cast<uintptr_t>(base) + static_cast<u64>(map.offset),
                  static_cast<u64>(map.rows), static_cast<u64>(map.cols),
                  static_cast<u64>(ir::size_of(map.dtype)), static_cast<u64>(map.box_rows),
                  static_cast<u64>(map.box_cols), static_cast<u64>(map.run)}};
    }
  }
};

void check(maco_cpu::RoleContext* context, const void* address, uint64_t bytes, bool writes) {
  auto& c = *static_cast<CpuContext*>(context);
  if (c.checker) c.checker->access(c, address, bytes, writes);
}

void check_touched(maco_cpu::RoleContext* context, const void* address, uint64_t bytes,
                   bool writes) {
  auto& c = *static_cast<CpuContext*>(context);
  if (!c.checker) return;
  const OutsideUsersCode ours;
  if (!c.checker->touched(c, address, bytes, writes))
    if (GuardedBlock* block = block_of_this_thread()) block->give_up(BlockEnd::Outside, nullptr);
}

// The most bytes of patterns, which are checked after each block.
constexpr size_t kMostPatternBytes = size_t{1} << 20;

class CpuSessionImpl final : public CpuSession {
 public:
  CpuSessionImpl(std::shared_ptr<CpuLibrary> library, size_t index, ir::Manifest manifest,
                 bool users_kernels, const SessionOptions& options,
                 std::unique_ptr<SharedMemory> shared)
      : shared_(std::move(shared)),
        library_(std::move(library)),
        index_(index),
        manifest_(std::move(manifest)),
        users_kernels_(users_kernels),
        options_(options),
        epoch_(options.first_epoch) {
    const int world = static_cast<int>(manifest_.world);
    first_ = options.group ? options.group->rank() : 0;
    const int here = options.group ? 1 : world;
    ranks_.reserve(static_cast<size_t>(here));
    std::optional<size_t> fence;
    if (users_kernels_) fence = fence_bytes((manifest_.tensors.size() + 2) * ranks_.capacity());
    for (int r = first_; r < first_ + here; ++r)
      ranks_.emplace_back(manifest_, r, options.check_access || users_kernels_, fence,
                          options_.profiled_tasks, shared_ ? shared_->of(r) : nullptr);
    for (RankState& rank : ranks_)
      for (size_t t = 0; options.allocate_tensors && t < manifest_.tensors.size(); ++t)
        rank.allocate(manifest_, t);
    for (const RankState& rank : ranks_) mend_zones(rank);
    for (int r = 0; r < world; ++r)
      symmetric_.push_back(shared_ ? shared_->of(r) : at(r).symmetric);
    for (RankState& rank : ranks_) {
      rank.launch.tensors = rank.tensor_pointers.data();
      rank.launch.arena = rank.arena.data();
      rank.launch.maps = rank.maps.data();
      rank.launch.counters = reinterpret_cast<u32*>(rank.counters.data());
      rank.launch.handed = reinterpret_cast<Handed*>(rank.handed.data());
      rank.launch.symmetric = symmetric_.data();
      rank.launch.control = reinterpret_cast<Control*>(
          rank.symmetric +
          control_offset(manifest_.symmetric_bytes, manifest_.peer_events, manifest_.world));
      rank.launch.reports = rank.reports.data();
      rank.launch.rank = rank.rank;
      rank.launch.timeout_ns = options_.timeout_ms * 1000000;
      rank.launch.cta_stamps = rank.stamps.ctas.data();
      rank.launch.task_stamps = rank.stamps.tasks.data();
      rank.launch.stamped_tasks = static_cast<u32>(rank.stamps.tasks.size());
    }
    if (manifest_.handed.empty()) return;
    std::vector<HandingRank> handing;
    for (const RankState& rank : ranks_) handing.push_back({rank.rank, &rank.launch});
    handed_ = std::make_unique<HandedOver>(manifest_, std::move(handing), options_.group);
  }

  const ir::Manifest& manifest() const override { return manifest_; }
  RanksHere here() const override { return {first_, static_cast<int>(ranks_.size())}; }
  Status bind(int rank, size_t tensor, void* memory) override;
  Status allocate(int rank, size_t tensor) override;
  void* address(int rank, size_t tensor) const override {
    return is_here(rank) ? at(rank).tensor_pointers[tensor] : nullptr;
  }
  Status write_at(int rank, size_t tensor, size_t offset, const void* data, size_t bytes) override;
  Status read_at(int rank, size_t tensor, size_t offset, void* data, size_t bytes) override;
  Status launch(const LaunchValues& values) override { return launch(values, {}); }
  Status bench(const LaunchValues& values, int launches, double& median_us) override;
  Status enqueue(const LaunchValues& values, const LaunchAddresses& addresses,
                 std::span<void* const> streams, TensorPlaces places) override;
  Status wait() override { return std::exchange(enqueued_, Status{}); }
  Status ended(bool& all) override {
    all = true;
    return wait();
  }
  void stop() override;
  Status stamps(std::vector<RankStamps>& ranks) override;
  Status set_regions(const ir::Program& program, KernelGuard* guard) override;
  void set_guard(KernelGuard* guard) override { guard_ = guard; }
  std::vector<Traffic> traffic() const override {
    return checker_ ? checker_->traffic() : std::vector<Traffic>();
  }
  Status step(int launches, const LaunchValues& values, const std::function<void(int, int)>& before,
              const std::function<void(Stepper&)>& drive) override;
  std::vector<RankAddresses> addresses(const ir::Program& program) override;
  uint32_t first_epoch() const override { return epoch_; }

 private:
  RankState& at(int rank) { return ranks_[static_cast<size_t>(rank - first_)]; }
  const RankState& at(int rank) const { return ranks_[static_cast<size_t>(rank - first_)]; }
  Status check_here(int rank) const {
    if (is_here(rank)) return {};
    return Status::failure(fmt::format("rank {} runs in another process", rank));
  }
  // Tells all ranks' kernels to stop; 1 + `by` is the rank that caused it.
  void abort_all(int by) const;
  // While this rank's kernel runs, tells the ranks of the other processes if one of them is gone.
  void watch(const std::atomic<bool>& ended, int wake);
  // The launch's outcome on all ranks. `story`: what went wrong here besides reports.
  Status conclude(const LaunchValues& values, std::string story);
  // Whether there is memory to copy from or to.
  Status check_copy(int rank, size_t tensor, size_t offset, size_t bytes) const;
  Status launch(const LaunchValues& values, const LaunchAddresses& addresses);
  Status set_values(const LaunchValues& values, const LaunchAddresses& addresses = {});
  // Makes launches number themselves, and find values in memory.
  void number(RankState& rank, const std::vector<LaunchVariable>& variables) const;
  Status reset();
  Status run();
  Status run(CpuContexts& contexts);
  // What lies between red zones, for messages.
  struct Piece {
    std::string_view name;  // of a tensor; empty for anything else, such as the slots
    int64_t element_bytes = 1, elements = 0;
    std::string_view what{};
  };
  // Calls visit(RedZones, Piece, FencedMemory*) for each piece of a rank's memory; the last
  // argument is null if there are no fences.
  template <class Visit>
  void each_zones(const RankState& rank, const Visit& visit) const;
  static constexpr int64_t kNear = int64_t{1} << 20;
  static std::string far_away(const void* address) {
    return fmt::format("address {}, far from every tensor", fmt::ptr(address));
  }
  static std::string place_in_red_zone(int64_t at, const Piece& piece, int rank);
  // Describes the address in the red zones of a rank: "element 300 of 'y' on rank 0, which has
  // 256"; "" if it is in none.
  std::string red_zone(const RankState& rank, const void* address) const;
  std::string red_zone(const void* address) const;
  // Notes what was overwritten in a rank's red zones, and restores it. Returns whether anything
  // was.
  bool take_damage(const RankState& rank);
  void clear_arena(RankState& rank) const {
    rank.arena.clear();
    mend_zones(rank);
  }
  void mend_zones(const RankState& rank) const {
    each_zones(rank,
               [](const RedZones& zones, const Piece&, const FencedMemory*) { zones.mend(); });
  }
  // Collects what became of blocks that were given up, for the reports and in words.
  void take_block_ends(const CpuContexts& contexts);
  // Returns whether `stop` was called since the last time.
  bool set_running(bool running);
  // Whether any rank of this process gave up.
  bool stopped() const {
    return std::any_of(ranks_.begin(), ranks_.end(),
                       [](const RankState& rank) { return cause_of(rank.reports).state != 0; });
  }
  // Adds the contexts of a rank's launch; clears the CTAs' shared memory.
  void add_contexts(RankState& rank, const Launch& launch, CpuContexts& contexts) const;

  std::unique_ptr<SharedMemory> shared_;  // in a group
  std::shared_ptr<CpuLibrary> library_;
  const size_t index_;
  const ir::Manifest manifest_;
  const bool users_kernels_;
  const SessionOptions options_;
  uint32_t epoch_;
  int64_t launched_ = 0;  // since the last reset
  bool needs_reset_ = true;
  Status enqueued_;               // the first failure among enqueued launches
  int first_ = 0;                 // rank of ranks_[0]
  std::vector<RankState> ranks_;  // that run here
  double slowest_us_ = 0;         // rank of the last launch
  std::vector<char*> symmetric_;
  std::unique_ptr<HandedOver> handed_;  // if the kernel hands anything over
  std::unique_ptr<AccessChecker> checker_;
  KernelGuard* guard_ = nullptr;
  std::mutex stop_mutex_;  // for the next two
  bool running_ = false, stopped_by_caller_ = false;
  std::mutex damage_mutex_;
  std::string damage_;  // one line for each
};

Status CpuSessionImpl::check_copy(int rank, size_t tensor, size_t offset, size_t bytes) const {
  if (Status s = check_range(manifest_, rank, tensor, offset, bytes); !s) return s;
  if (Status s = check_here(rank); !s) return s;
  if (address(rank, tensor)) return {};
  return Status::failure(fmt::format("'{}' has no memory yet", manifest_.tensors[tensor].name));
}

Status CpuSessionImpl::bind(int rank, size_t tensor, void* memory) {
  if (Status s = check_binding(manifest_, rank, tensor, memory); !s) return s;
  if (Status s = check_here(rank); !s) return s;
  // The session's own memory stays until the session ends, as others may have its address.
  at(rank).tensor_pointers[tensor] = memory;
  return {};
}

Status CpuSessionImpl::allocate(int rank, size_t tensor) {
  if (Status s = check_range(manifest_, rank, tensor); !s) return s;
  if (Status s = check_here(rank); !s) return s;
  if (address(rank, tensor)) return {};
  try {
    at(rank).allocate(manifest_, tensor);
  } catch (const std::bad_alloc&) {
    return Status::failure(
        fmt::format("not enough memory for tensor '{}'", manifest_.tensors[tensor].name));
  }
  return {};
}

Status CpuSessionImpl::write_at(int rank, size_t tensor, size_t offset, const void* data,
                                size_t bytes) {
  if (Status s = check_copy(rank, tensor, offset, bytes); !s) return s;
  if (bytes > 0)
    std::memcpy(static_cast<char*>(at(rank).tensor_pointers[tensor]) + offset, data, bytes);
  return {};
}

Status CpuSessionImpl::read_at(int rank, size_t tensor, size_t offset, void* data, size_t bytes) {
  if (Status s = check_copy(rank, tensor, offset, bytes); !s) return s;
  if (bytes > 0)
    std::memcpy(data, static_cast<const char*>(at(rank).tensor_pointers[tensor]) + offset, bytes);
  return {};
}

Status CpuSessionImpl::stamps(std::vector<RankStamps>& ranks) {
  if (options_.profiled_tasks == 0)
    return Status::failure("the kernel was compiled without stamps");
  if (options_.group) return gather_stamps(*options_.group, "cpu", ranks_.front().stamps, ranks);
  ranks.clear();
  for (const RankState& rank : ranks_) ranks.push_back(rank.stamps);
  return {};
}

Status CpuSessionImpl::set_regions(const ir::Program& program, KernelGuard* guard) {
  if (!options_.check_access)
    return Status::failure("the kernel was compiled without the check of accesses");
  if (program.world != manifest_.world || program.ctas != manifest_.ctas) {
    return Status::failure("the regions are those of another kernel: world or CTAs differ");
  }
  checker_ = std::make_unique<AccessChecker>(program, addresses(program), guard);
  checker_->set_red_zone([this](const void* address) { return red_zone(address); });
  guard_ = guard;
  return {};
}

std::vector<RankAddresses> CpuSessionImpl::addresses(const ir::Program& program) {
  std::vector<RankAddresses> addresses;
  for (RankState& rank : ranks_) {
    RankAddresses a{{}, rank.arena.data(), rank.symmetric};
    for (const ir::Buffer& buffer : program.buffers) {
      auto found =
          std::find_if(manifest_.tensors.begin(), manifest_.tensors.end(),
                       [&](const ir::ManifestTensor& t) { return t.name == buffer.tensor; });
      const bool own = buffer.kind == ir::BufferKind::Temp || buffer.kind == ir::BufferKind::Slot;
      a.tensors.push_back(
          own || found == manifest_.tensors.end()
              ? nullptr
              : static_cast<char*>(
                    rank.tensor_pointers[static_cast<size_t>(found - manifest_.tensors.begin())]));
    }
    addresses.push_back(std::move(a));
  }
  return addresses;
}

// Resets memory as if the launch before `epoch_` had ended everywhere.
Status CpuSessionImpl::reset() {
  for (RankState& rank : ranks_) {
    CpuContexts context(1);
    context[0].rank = rank.launch.rank;
    context[0].memory = rank.ctas.empty() ? nullptr : rank.ctas[0];
    context[0].launch = &rank.launch;
    context[0].access = check;
    if (Status s = run_on_threads(*library_, library_->reset(index_), context, nullptr); !s)
      return s;
  }
  if (handed_)
    if (Status s = handed_->reset(); !s) return s;
  needs_reset_ = false;
  // A peer's packets would be lost in slots that are reset after their arrival.
  return options_.group ? options_.group->meet() : Status{};
}

void CpuSessionImpl::add_contexts(RankState& rank, const Launch& launch,
                                  CpuContexts& contexts) const {
  std::vector<int> roles = {0};
  if (manifest_.loaders > 0) roles.push_back(1);
  if (manifest_.signallers > 0) roles.push_back(2);
  for (size_t cta = 0; cta < rank.ctas.size(); ++cta) {
    std::memset(rank.ctas[cta], 0, static_cast<size_t>(manifest_.shared_bytes));
    for (const int role : roles) {
      CpuContext& context = contexts.emplace_back();
      context.memory = rank.ctas[cta];
      if ((cta ^ 1) < rank.ctas.size()) context.mate_memory = rank.ctas[cta ^ 1];
      context.rank = launch.rank;
      context.cta = static_cast<int>(cta);
      context.role = role;
      context.launch = &launch;
      context.access = check;
      context.touched = check_touched;
    }
  }
}

template <class Visit>
void CpuSessionImpl::each_zones(const RankState& rank, const Visit& visit) const {
  const auto visit_fenced = [&](const std::optional<TensorMemory>& memory, const Piece& piece) {
    if (memory && memory->fenced()) visit(memory->fenced()->zones(), piece, memory->fenced());
  };
  for (size_t i = 0; i < rank.tensors.size(); ++i) {
    const ir::ManifestTensor& t = manifest_.tensors[i];
    visit_fenced(rank.tensors[i], {t.name, ir::size_of(t.dtype), t.max_elements});
  }
  if (rank.arena.fenced()) {
    visit(rank.arena.fenced()->zones(), Piece{"", 1, manifest_.arena_bytes, "the temporaries"},
          rank.arena.fenced());
    for (const ir::ManifestTemporary& t : manifest_.temporaries) {
      const int64_t size = ir::size_of(t.dtype), bytes = t.max_elements * size;
      char* data = rank.arena.data() + t.offset;
      visit(RedZones(data - t.before, data, static_cast<size_t>(bytes), data + bytes + t.behind),
            Piece{t.name, size, t.max_elements}, static_cast<const FencedMemory*>(nullptr));
    }
  }
  if (rank.own_symmetric)
    visit_fenced(rank.own_symmetric,
                 {"", 1, static_cast<int64_t>(rank.own_symmetric->size()), "the slots"});
}

// Where a byte of a red zone lies: `at` bytes from the begin of the memory that the zone surrounds.
std::string CpuSessionImpl::place_in_red_zone(int64_t at, const Piece& piece, int rank) {
  const int64_t size = piece.element_bytes;
  if (piece.name.empty())
    return fmt::format("byte {} {} {} of rank {}", at < 0 ? -at : at - piece.elements + 1,
                       at < 0 ? "before" : "behind", piece.what, rank);
  const int64_t element = at < 0 ? (at - size + 1) / size : at / size;
  return fmt::format("element {} of '{}' on rank {}, which has {}", element, piece.name, rank,
                     piece.elements);
}

std::string CpuSessionImpl::red_zone(const RankState& rank, const void* address) const {
  std::string place;
  each_zones(rank, [&](const RedZones& zones, const Piece& piece, const FencedMemory* fenced) {
    if (!(fenced ? fenced->fences(address) : zones.contains(address))) return;
    const int64_t at = static_cast<const char*>(address) - zones.data(),
                  far = at < 0 ? -at : at - static_cast<int64_t>(zones.size());
    // A far-away address was probably computed from a tensor, not from the nearest memory.
    place = far <= kNear || !piece.name.empty() ? place_in_red_zone(at, piece, rank.rank)
                                                : far_away(address);
  });
  return place;
}

std::string CpuSessionImpl::red_zone(const void* address) const {
  for (const RankState& rank : ranks_)
    if (std::string place = red_zone(rank, address); !place.empty()) return place;
  return "";
}

bool CpuSessionImpl::take_damage(const RankState& rank) {
  const std::lock_guard lock(damage_mutex_);
  bool any = false;
  each_zones(rank, [&](const RedZones& zones, const Piece& piece, const FencedMemory*) {
    const std::optional<int64_t> at = zones.damage();
    if (!at) return;
    any = true;
    damage_ += fmt::format("{}rank {}: a kernel of a user's wrote {}", damage_.empty() ? "" : "\n",
                           rank.rank, place_in_red_zone(*at, piece, rank.rank));
    zones.mend();
  });
  return any;
}

void CpuSessionImpl::take_block_ends(const CpuContexts& contexts) {
  for (const CpuContext& context : contexts) {
    if (!context.blocks || context.blocks->end == BlockEnd::Done) continue;
    Report& report = at(context.rank).reports[static_cast<size_t>(context.cta)];
    if (report.kind == kWaitThreads) report.limit = static_cast<i64>(context.blocks->end);
    const BlockEnd end = context.blocks->end;
    if (end != BlockEnd::Segment && end != BlockEnd::Bus) continue;
    const std::string place = red_zone(context.blocks->address);
    damage_ += fmt::format("{}rank {}: it touched {}", damage_.empty() ? "" : "\n", context.rank,
                           place.empty() ? far_away(context.blocks->address) : place);
  }
}

Status CpuSessionImpl::run() {
  CpuContexts contexts;
  std::deque<TaskAccess> accesses;
  for (RankState& rank : ranks_) add_contexts(rank, rank.launch, contexts);
  for (CpuContext& context : contexts) {
    context.checker = checker_.get();
    context.task_access = &accesses.emplace_back();
  }
  damage_.clear();
  if (!users_kernels_) return run(contexts);

  const std::unique_ptr<BlockGuard> blocks = BlockGuard::make();
  if (!blocks) return Status::failure("no thread to watch the blocks of users' kernels");
  std::deque<BlockScope> scopes;
  size_t pattern_bytes = 0;
  for (const RankState& rank : ranks_)
    each_zones(rank, [&](const RedZones& zones, const Piece&, const FencedMemory*) {
      pattern_bytes += zones.pattern_bytes();
    });
  for (CpuContext& context : contexts) {
    if (context.role != 0) continue;
    context.blocks = &scopes.emplace_back();
    context.blocks->patience = std::chrono::milliseconds(options_.timeout_ms);
    if (pattern_bytes <= kMostPatternBytes * ranks_.size())
      context.blocks->spoiled = [this, &rank = at(context.rank)] { return take_damage(rank); };
  }
  const SignalStack stack;  // for fibres of this thread
  const Status status = run(contexts);
  set_block_scope(nullptr);
  for (const RankState& rank : ranks_) take_damage(rank);
  take_block_ends(contexts);
  return status;
}

Status CpuSessionImpl::run(CpuContexts& contexts) {
  const KernelGuard::Launch guarded(guard_, contexts, static_cast<size_t>(manifest_.shared_bytes));
  if (handed_) handed_->begin();
  if (options_.replay)
    return run_on_fibres(*library_, library_->kernel(index_), contexts, *options_.replay,
                         handed_.get());
  std::atomic<bool> ended{false};
  // Ends the watch at once; without it the watch ends a little later.
  const int wake = options_.group ? ::eventfd(0, EFD_CLOEXEC) : -1;
  std::thread watcher;
  if (options_.group) watcher = std::thread([&] { watch(ended, wake); });
  const Status status = run_on_threads(*library_, library_->kernel(index_), contexts,
                                       options_.jitter ? &*options_.jitter : nullptr,
                                       options_.group == nullptr, handed_.get());
  if (handed_) handed_->finish(stopped() ? 0 : options_.timeout_ms);
  ended = true;
  if (wake >= 0) ::eventfd_write(wake, 1);
  if (watcher.joinable()) watcher.join();
  if (wake >= 0) ::close(wake);
  return status;
}

void CpuSessionImpl::watch(const std::atomic<bool>& ended, int wake) {
  constexpr int kPeriodMs = 20;
  while (!ended) {
    const int gone = options_.group->gone(kPeriodMs, wake);
    if (gone < 0) continue;
    return abort_all(gone);
  }
}

void CpuSessionImpl::abort_all(int by) const {
  const int64_t at =
      control_offset(manifest_.symmetric_bytes, manifest_.peer_events, manifest_.world);
  for (char* memory : symmetric_) {
    auto* control = reinterpret_cast<Control*>(memory + at);
    std::atomic_ref<u32>(control->abort).store(static_cast<u32>(by) + 1);
  }
}

void CpuSessionImpl::stop() {
  const std::lock_guard lock(stop_mutex_);
  if (!running_) return;
  stopped_by_caller_ = true;
  abort_all(static_cast<int>(manifest_.world));
}

bool CpuSessionImpl::set_running(bool running) {
  const std::lock_guard lock(stop_mutex_);
  running_ = running;
  return std::exchange(stopped_by_caller_, false);
}

Status CpuSessionImpl::set_values(const LaunchValues& values, const LaunchAddresses& addresses) {
  if (Status s = check_bound(*this); !s) return s;
  if (Status s = check_addresses(*this, addresses); !s) return s;
  for (RankState& rank : ranks_) {
    rank.make_maps(manifest_);
    rank.launch.epoch = epoch_;
    rank.launch.state = nullptr;
    LaunchValues found = values;
    if (!addresses.empty()) {
      std::vector<LaunchVariable> variables;
      if (Status s = list_variables(manifest_, values, addresses, rank.rank, here(), variables); !s)
        return s;
      number(rank, variables);
      for (const auto& [name, at] : addresses)
        found[name] = read_integer(manifest_, name, at, static_cast<size_t>(rank.rank - first_));
    }
    // The launch itself reports wrong values in memory. The values are needed here for what is
    // handed over.
    std::vector<int32_t> evaluated;
    if (Status s = evaluate_values(manifest_, found, rank.rank, evaluated); !s && addresses.empty())
      return s;
    std::copy(evaluated.begin(), evaluated.end(), rank.launch.values);
    std::fill(rank.reports.begin(), rank.reports.end(), Report{});
  }
  return {};
}

Status CpuSessionImpl::step(int launches, const LaunchValues& values,
                            const std::function<void(int, int)>& before,
                            const std::function<void(Stepper&)>& drive) {
  if (handed_) return Status::failure("a witness of what is handed over to NCCL can't be replayed");
  if (Status s = set_values(values); !s) return s;
  for (RankState& rank : ranks_) clear_arena(rank);
  if (Status s = reset(); !s) return s;
  needs_reset_ = true;
  CpuContexts contexts;
  std::deque<Launch> copies;
  const auto open = [&](int rank, int launch, std::vector<CpuContext*>& out) {
    before(rank, launch);
    RankState& state = at(rank);
    Launch& copy = copies.emplace_back(state.launch);
    copy.epoch += static_cast<u32>(launch);
    const size_t first = contexts.size();
    add_contexts(state, copy, contexts);
    for (size_t i = first; i < contexts.size(); ++i) out.push_back(&contexts[i]);
  };
  return with_fibres([&] {
    Stepper stepper(static_cast<int>(manifest_.world), launches,
                    code_of(*library_, library_->kernel(index_)), open);
    drive(stepper);
  });
}

void CpuSessionImpl::number(RankState& rank, const std::vector<LaunchVariable>& variables) const {
  rank.launch.variables = given_to_launches(variables);
  LaunchState before{};
  before.epoch = epoch_ - 1;
  before.left = 1;
  rank.states.assign(rank.ctas.size() * kRoles, before);
  rank.launch.state = rank.states.data();
}

Status CpuSessionImpl::launch(const LaunchValues& values, const LaunchAddresses& addresses) {
  if (options_.check_access && !checker_)
    return Status::failure("the check of accesses needs the regions of the kernel's tasks");
  if (Status s = set_values(values, addresses); !s) return s;
  if (needs_reset_ || launched_ >= launches_between_resets(manifest_))
    if (Status s = reset(); !s) return s;
  ++launched_;
  if (checker_) {
    checker_->start(epoch_, [&](std::string_view name) -> std::optional<int64_t> {
      if (name == "world") return manifest_.world;
      if (auto at = addresses.find(std::string(name)); at != addresses.end())
        return read_integer(manifest_, at->first, at->second, 0);
      if (auto given = values.find(std::string(name)); given != values.end()) return given->second;
      for (const ir::ManifestRange& dim : manifest_.dims) {
        if (dim.name == name) return dim.hi;
      }
      return std::nullopt;
    });
  }
  const auto begin = std::chrono::steady_clock::now();
  set_running(true);
  Status ran = run();
  const bool stopped_by_caller = set_running(false);
  // This also holds if the kernel had ended: other ranks may have been told to stop.
  if (stopped_by_caller) needs_reset_ = true;
  slowest_us_ =
      std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
  if (!ran && !options_.group) return ran;
  ++epoch_;
  std::string story = checker_ ? checker_->findings() : ran.message;
  if (!damage_.empty()) story += (story.empty() ? "" : "\n") + damage_;
  if (stopped_by_caller) story += (story.empty() ? "" : "\n") + std::string(kStoppedByCaller);
  return conclude(values, std::move(story));
}

Status CpuSessionImpl::conclude(const LaunchValues& values, std::string story) {
  std::vector<Report> reports;
  for (const RankState& rank : ranks_) reports.push_back(cause_of(rank.reports));
  if (options_.group) {
    const Outcome mine{reports[0], slowest_us_, false, 0, std::move(story)};
    std::vector<Outcome> all;
    // Kernels end within the time-out; a process that has been stopped says nothing.
    if (Status s = exchange_outcomes(*options_.group, mine, values, 2 * options_.timeout_ms + 5000,
                                     all, story);
        !s) {
      needs_reset_ = true;
      const std::string waited =
          explain_report(manifest_, first_, mine.report, options_.timeout_ms);
      return Status::failure(s.message + (waited.empty() ? "" : "\n" + waited));
    }
    reports.clear();
    for (const Outcome& one : all) {
      reports.push_back(one.report);
      slowest_us_ = std::max(slowest_us_, one.us);
    }
  }
  if (std::any_of(reports.begin(), reports.end(), [](const Report& r) { return r.state != 0; })) {
    needs_reset_ = true;
    const std::string stopped = explain_reports(manifest_, reports, options_.timeout_ms);
    story = stopped + (story.empty() ? "" : "\n") + story;
  }
  if (!story.empty() && options_.group) needs_reset_ = true;
  if (story.empty()) return {};
  Status failed = Status::failure(story);
  failed.stopped = first_stopped(manifest_, reports);
  return failed;
}

Status CpuSessionImpl::enqueue(const LaunchValues& values, const LaunchAddresses& addresses,
                               std::span<void* const> streams, TensorPlaces places) {
  if (!streams.empty() && streams.size() != ranks_.size())
    return Status::failure(fmt::format("{} streams for {} ranks", streams.size(), ranks_.size()));
  if (Status earlier = wait(); !earlier) return earlier;
  std::vector<std::vector<void*>> bound;  // to restore after the launch
  for (const RankState& rank : ranks_)
    if (!places.empty()) bound.push_back(rank.tensor_pointers);
  for (const TensorPlace& place : places)
    for (size_t r = 0; r < ranks_.size(); ++r)
      ranks_[r].tensor_pointers[place.tensor] = place.at[r];
  // A wrong call is reported at once.
  Status called = set_values(values, addresses);
  if (called) enqueued_ = launch(values, addresses);
  // Stored in place, since `launch` knows that memory.
  for (size_t r = 0; r < bound.size(); ++r)
    std::copy(bound[r].begin(), bound[r].end(), ranks_[r].tensor_pointers.begin());
  return called;
}

Status CpuSessionImpl::bench(const LaunchValues& values, int launches, double& median_us) {
  std::vector<double> times;
  for (int i = -2; i < std::max(launches, 1); ++i) {
    if (Status s = launch(values); !s) return s;
    if (i >= 0) times.push_back(slowest_us_);
  }
  median_us = median(std::move(times));
  return {};
}

Status check_manifest(const ir::Manifest& m) {
  if (m.world < 1 || m.world > ir::kMaxWorld || m.ctas < 1) {
    return Status::failure(
        fmt::format("the kernel's manifest asks for {} ranks of {} CTAs", m.world, m.ctas));
  }
  if (m.values.size() > static_cast<size_t>(kMaxValues)) {
    return Status::failure(fmt::format("the kernel has {} launch values, more than the {} that fit",
                                       m.values.size(), kMaxValues));
  }
  return {};
}

}  // namespace

std::unique_ptr<CpuSession> make_cpu_session(std::shared_ptr<CpuLibrary> library, size_t index,
                                             const std::string& kernel_source,
                                             const SessionOptions& options, Status& status) {
  ir::ManifestResult parsed = ir::parse_manifest(kernel_source);
  if (!parsed.manifest) {
    status = Status::failure(parsed.error);
    return nullptr;
  }
  if (status = check_manifest(*parsed.manifest); !status) return nullptr;
  std::unique_ptr<SharedMemory> shared;
  if (options.group) {
    const ir::Manifest& m = *parsed.manifest;
    if (status = check_group(*options.group, m, options); !status) return nullptr;
    shared = SharedMemory::map(
        *options.group,
        static_cast<size_t>(symmetric_size(m.symmetric_bytes, m.peer_events, m.world)), status);
    if (!shared) return nullptr;
  }
  try {
    return std::make_unique<CpuSessionImpl>(std::move(library), index, std::move(*parsed.manifest),
                                            has_cuda_units(kernel_source), options,
                                            std::move(shared));
  } catch (const std::bad_alloc&) {
    status = Status::failure("not enough memory for the tensors of all ranks");
    return nullptr;
  }
}

std::unique_ptr<CpuSession> make_cpu_session(const std::string& kernel_source,
                                             const SessionOptions& options, Status& status) {
  ir::ManifestResult parsed = ir::parse_manifest(kernel_source);
  if (!parsed.manifest) {
    status = Status::failure(parsed.error);
    return nullptr;
  }
  if (status = check_manifest(*parsed.manifest); !status) return nullptr;
  const CpuCompileOptions compile = {.check_access = options.check_access,
                                     .verbose = options.verbose,
                                     .profile = options.profiled_tasks > 0};
  options.tell("compiling the kernel for the CPU");
  // In a group rank 0 compiles, and the others find it in the cache.
  Group* group = options.group;
  if (group && group->rank() != 0)
    if (status = group->meet(); !status) return nullptr;
  auto library = compile_cpu_kernels({kernel_source}, compile, status);
  if (group && group->rank() == 0) {
    if (const Status met = group->meet(); status && !met) status = met;
  }
  if (!library || !status) return nullptr;
  return make_cpu_session(std::move(library), 0, kernel_source, options, status);
}

}  // namespace maco::runtime
