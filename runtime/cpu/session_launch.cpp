#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "runtime/cpu/rank_zones.h"
#include "runtime/cpu/session_parts.h"

namespace maco::runtime {

namespace {

// The most bytes of patterns, which are checked after each block.
constexpr size_t kMostPatternBytes = size_t{1} << 20;

}  // namespace

void note_task(CpuContext& context, int place, bool begins) {
  if (context.checker) context.checker->task(context, place, begins);
}

void check_access(maco_cpu::RoleContext* context, const void* address, uint64_t bytes,
                  bool writes) {
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

Status CpuSessionImpl::set_values_here(int r, const LaunchValues& values,
                                       const LaunchAddresses& addresses) {
  RankState& rank = at(r);
  rank.launch.epoch = epoch_;
  rank.launch.state = nullptr;
  LaunchValues found = values;
  if (!addresses.empty()) {
    std::vector<LaunchVariable> variables;
    MACO_TRY(list_variables(manifest_, values, addresses, rank.rank, here_, variables));
    number(rank, variables);
    for (const auto& [name, at] : addresses)
      found[name] = read_integer(manifest_, name, at, static_cast<size_t>(rank.rank - here_.first));
  }
  // The launch itself reports wrong values in memory. The values are needed here for what is
  // handed over.
  std::vector<int32_t> evaluated;
  if (Status s = evaluate_values(manifest_, found, rank.rank, evaluated); !s && addresses.empty())
    return s;
  std::copy(evaluated.begin(), evaluated.end(), rank.launch.values);
  std::fill(rank.reports.begin(), rank.reports.end(), Report{});
  return {};
}

Status CpuSessionImpl::launch(const LaunchValues& values, const LaunchAddresses& addresses) {
  if (options_.check_access && !checker_)
    return Status::failure("the check of accesses needs the regions of the kernel's tasks");
  MACO_TRY(set_values(values, addresses));
  if (needs_reset_ || launched_ >= launches_between_resets(manifest_)) MACO_TRY(reset());
  ++launched_;
  if (checker_) start_checker(values, addresses);
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

void CpuSessionImpl::start_checker(const LaunchValues& values, const LaunchAddresses& addresses) {
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
    visit_zones(manifest_, rank, [&](const RedZones& zones, const ZonePiece&, const FencedMemory*) {
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
      context.access = check_access;
      context.touched = check_touched;
    }
  }
}

void CpuSessionImpl::clear_arena(RankState& rank) const {
  rank.arena.clear();
  mend_zones(manifest_, rank);
}

Status CpuSessionImpl::step(int launches, const LaunchValues& values,
                            const std::function<void(int, int)>& before,
                            const std::function<void(Stepper&)>& drive) {
  if (handed_) return Status::failure("a witness of what is handed over to NCCL can't be replayed");
  MACO_TRY(set_values(values));
  for (RankState& rank : ranks_) clear_arena(rank);
  MACO_TRY(reset());
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

Status CpuSessionImpl::enqueue(const LaunchValues& values, const LaunchAddresses& addresses,
                               std::span<void* const> streams, TensorPlaces places) {
  MACO_TRY(check_streams(*this, streams.size()));
  MACO_TRY(wait());
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
    MACO_TRY(launch(values));
    if (i >= 0) times.push_back(slowest_us_);
  }
  median_us = median(std::move(times));
  return {};
}

}  // namespace maco::runtime
