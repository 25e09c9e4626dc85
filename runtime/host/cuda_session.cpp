#include "runtime/host/cuda_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "runtime/host/cuda_rank.h"
#include "runtime/host/cuda_writer.h"
#include "runtime/host/jit.h"
#include "runtime/host/outcome.h"
#include "runtime/host/profile.h"
#include "runtime/host/rank_threads.h"
#include "runtime/host/symmetric_pool.h"

namespace maco::runtime {
namespace {

using Clock = std::chrono::steady_clock;

// How many launches, and collectives that they hand over, are enqueued before the first launch may
// start. A stream holds about a thousand entries; each launch or collective takes four.
constexpr int kBatch = 64, kHandedBatch = 128;

// For each launch, the time of the slowest rank of all processes.
Status slowest_of(Group& group, std::vector<double>& times) {
  std::vector<std::string> all;
  MACO_TRY(group.exchange(
      {reinterpret_cast<const char*>(times.data()), times.size() * sizeof(double)}, all));
  for (const std::string& one : all)
    for (size_t i = 0; i < times.size() && (i + 1) * sizeof(double) <= one.size(); ++i) {
      double time = 0;
      std::memcpy(&time, one.data() + i * sizeof time, sizeof time);
      times[i] = std::max(times[i], time);
    }
  return {};
}

class CudaSession : public Session {
 public:
  CudaSession(std::unique_ptr<cuda::Driver> driver, ir::Manifest manifest,
              const SessionOptions& options)
      : driver_(std::move(driver)),
        manifest_(std::move(manifest)),
        options_(options),
        first_(options.group ? options.group->rank() : 0),
        threads_(options.group ? 1 : static_cast<int>(manifest_.world)),
        epoch_(options.first_epoch) {}
  ~CudaSession() override;

  Status prepare(const std::string& image);
  const ir::Manifest& manifest() const override { return manifest_; }
  RanksHere here() const override { return {first_, static_cast<int>(ranks_.size())}; }
  Status bind(int rank, size_t tensor, void* memory) override;
  Status allocate(int rank, size_t tensor) override;
  void* address(int rank, size_t tensor) const override {
    if (!is_here(rank)) return nullptr;
    // NOLINTNEXTLINE(performance-no-int-to-ptr): device memory, never looked at here
    return reinterpret_cast<void*>(ranks_[static_cast<size_t>(rank - first_)]->tensor(tensor));
  }
  Status write_at(int rank, size_t tensor, size_t offset, const void* data, size_t bytes) override;
  Status read_at(int rank, size_t tensor, size_t offset, void* data, size_t bytes) override;
  std::unique_ptr<TensorWriter> make_writer(size_t staging, Status& status) override;
  Status launch(const LaunchValues& values) override;
  Status bench(const LaunchValues& values, int launches, double& median_us) override;
  Status enqueue(const LaunchValues& values, const LaunchAddresses& addresses,
                 std::span<void* const> streams, TensorPlaces places) override;
  Status wait() override;
  Status ended(bool& all) override;
  void stop() override {
    if (waiting_) stop_ = true;
  }
  Status stamps(std::vector<RankStamps>& ranks) override;

 private:
  CudaRank& at(int rank) { return *ranks_[static_cast<size_t>(rank - first_)]; }
  // Runs the step on all ranks of this process at once.
  Status on_all(const std::function<Status(int)>& step) {
    return all_of(threads_.run([&](int i) { return step(first_ + i); }));
  }
  // The same for a step that takes each rank a few microseconds: waking threads takes longer than
  // two of these. (NCCL may wait for all ranks at its first call.)
  Status soon_on_all(const std::function<Status(int)>& step) {
    constexpr size_t kFew = 2;
    if (ranks_.size() > kFew || !manifest_.handed.empty()) return on_all(step);
    std::vector<Status> statuses;
    for (size_t i = 0; i < ranks_.size(); ++i)
      statuses.push_back(step(first_ + static_cast<int>(i)));
    return all_of(statuses);
  }
  // A failure of any process is a failure of all.
  Status agree(const Status& mine) const {
    return options_.group ? options_.group->agree(mine) : mine;
  }
  // Runs the step on all ranks, in all processes.
  Status everywhere(const std::function<Status(int)>& step) { return agree(on_all(step)); }
  Status open_ranks();
  Status make_gate();
  Status join_nccl();
  Status have_communicators(bool& all);
  Status check_here(int rank) const {
    if (is_here(rank)) return {};
    return Status::failure(fmt::format("rank {} runs in another process", rank));
  }
  // Waits until everything on the ranks' GPUs has ended.
  Status synchronize() {
    return on_all([&](int r) { return at(r).synchronize(); });
  }
  Status check_copy(int rank, size_t tensor, size_t offset, size_t bytes) const;
  // Captured launches begin without a call here: tells them the tensors' current addresses, unless
  // a launch runs that was told before.
  Status place_for_graphs();
  Status set_values(const LaunchValues& values, const LaunchAddresses& addresses = {},
                    TensorPlaces places = {});
  Status run(int launches, bool timed);
  // Announces `launches` more launches: resets counters if packets would get flags that earlier
  // launches left behind.
  Status count(int launches);
  // Called before launches, and after them: combines the kernels' reports and the ranks'
  // `statuses`.
  void begin();
  Status conclude(std::vector<Status> statuses);
  // Adds what other processes' ranks say: `status`, and `reports` with one for each rank.
  Status conclude_all(Status& status, std::vector<Report>& reports);
  Status lost(const Status& met);
  // Sets the values of launches that all processes are about to run; waits for earlier launches.
  Status ready(const LaunchValues& values, int launches);
  Status ready_to_enqueue(const LaunchValues& values, const LaunchAddresses& addresses,
                          TensorPlaces places, bool captured);
  // For the ranks of this process.
  std::vector<Status> wait_for_last();
  bool any_report() const;
  // Whether the streams, one for each rank, are being captured: all or none.
  Status are_captured(std::span<void* const> streams, bool& captured);
  // Why collectives can't be handed over in such a launch.
  Status refuse_handed(bool captured, const LaunchAddresses& addresses) const;
  // Makes launches number themselves in the ranks' memory from now on.
  Status number();
  // For numbered launches: resets counters if half of the allowed launches have run.
  Status renew();
  Status enqueue(int rank, int launches, bool timed);
  Status enqueue_handed(int rank, int launches);
  // How many launches may be enqueued before the first of them starts.
  int batch() const {
    const int handed = static_cast<int>(manifest_.handed.size());
    return handed == 0 ? kBatch : std::clamp(kHandedBatch / handed, 1, kBatch);
  }
  void watch();
  // 1 + `by` is the rank that stopped; the world's size means the host.
  void abort_all(int by);
  void abort_all() { abort_all(static_cast<int>(manifest_.world)); }
  Status recover();
  Status reset();

  std::unique_ptr<cuda::Driver> driver_;
  const ir::Manifest manifest_;
  const SessionOptions options_;
  const int first_;                   // the first rank of this process
  std::string gpu_;                   // in a group: the UUID of this process's GPU
  RankThreads threads_;               // of this process's ranks
  std::shared_ptr<const Nccl> nccl_;  // if the kernel hands collectives over
  std::vector<std::shared_ptr<Communicator>> communicators_;  // kept while ranks join
  std::vector<std::unique_ptr<CudaRank>> ranks_;
  std::unique_ptr<SymmetricMemory> symmetric_;
  uint32_t* gate_ = nullptr;  // host memory, mapped: see CudaRank::enqueue_gate
  cuda::DevicePtr gate_address_ = 0;
  uint32_t gate_value_ = 0;
  uint32_t epoch_;         // of the next launch
  int64_t launched_ = 0;   // since the last reset
  bool opened_ = false;    // all ranks are ready
  bool enqueued_ = false;  // launches for which nobody has waited
  Status start_;           // of these: the failure of a rank that didn't start
  // In a group: all values of these launches; `wait` compares them with other processes'.
  EnqueuedValues given_;
  // Whether launches number themselves in the ranks' memory, since graphs contain launches that the
  // host doesn't see; `epoch_` and `launched_` don't count these.
  bool numbered_ = false;
  // In a group, at the last wait: whether any rank's launches are numbered, and the fewest that a
  // rank has left until a reset.
  bool any_numbered_ = false;
  uint32_t least_left_ = UINT32_MAX;
  std::string dead_;  // not empty: why nothing can be launched any more

  // About the launch in progress.
  std::atomic<bool> failed_{false};   // a kernel did not start or faulted; its peers wait in vain
  std::atomic<bool> give_up_{false};  // nobody waits for kernels any more
  std::atomic<bool> waiting_{false}, stop_{false};  // `stop` is asked for
  Clock::time_point progress_, aborted_;
  bool aborting_ = false;
  std::string stopped_why_;  // not empty: why the host stopped the kernels
  std::vector<uint32_t> heartbeats_;
};

CudaSession::~CudaSession() {
  // Others may still write into memory here, unless this has waited for them.
  if (opened_ && (enqueued_ || !options_.group)) static_cast<void>(wait());
  const cuda::ContextGuard guard(*driver_);
  if (give_up_) {  // kernels may still run, and freeing anything would wait for them
    for (auto& rank : ranks_) rank.release()->abandon();
    static_cast<void>(symmetric_.release());
    static_cast<void>(driver_.release());
    return;
  }
  if (gate_) driver_->host_free(gate_);
  symmetric_.reset();
  ranks_.clear();
}

// The GPU of this process's first rank.
size_t first_gpu(const SessionOptions& options, size_t gpus) {
  if (options.gpu >= 0) return static_cast<size_t>(options.gpu);
  if (!options.group) return 0;
  return static_cast<size_t>(options.group->rank() / options.ranks_per_gpu) % gpus;
}

// Finds where the ranks of this process run, and how many share each GPU.
Status CudaSession::open_ranks() {
  const auto& devices = driver_->devices();
  const int world = static_cast<int>(manifest_.world), per_gpu = options_.ranks_per_gpu;
  if (!options_.group) {
    for (int r = 0; r < world; ++r) {
      const int sharing = std::min(per_gpu, world - r / per_gpu * per_gpu);
      ranks_.push_back(std::make_unique<CudaRank>(
          *driver_, manifest_, options_, r,
          devices[first_gpu(options_, devices.size()) + static_cast<size_t>(r / per_gpu)],
          sharing));
    }
    return {};
  }
  // A process may see all GPUs, or only its own.
  const cuda::DeviceInfo& device = devices[first_gpu(options_, devices.size())];
  cuda::Uuid uuid{};
  MACO_TRY(
      agree(driver_->check(driver_->device_uuid(&uuid, device.device), "ask a GPU who it is")));
  gpu_.assign(uuid, sizeof uuid);
  std::vector<std::string> all;
  MACO_TRY(options_.group->exchange(gpu_, all));
  for (int r = 0; r < world; ++r) {
    const auto sharing = std::count(all.begin(), all.end(), all[static_cast<size_t>(r)]);
    if (sharing > per_gpu)
      return Status::failure(
          fmt::format("{} ranks are on the GPU of rank {}, with {} on a GPU: not all GPUs are seen "
                      "(CUDA_VISIBLE_DEVICES?), or there are too few (--ranks-per-gpu={} would put "
                      "them there)",
                      sharing, r, per_gpu, sharing));
  }
  const auto sharing = std::count(all.begin(), all.end(), all[static_cast<size_t>(first_)]);
  ranks_.push_back(std::make_unique<CudaRank>(*driver_, manifest_, options_, first_, device,
                                              static_cast<int>(sharing)));
  return {};
}

// In one process or several: rank 0's id goes to all, and every rank joins with it.
Status CudaSession::join_nccl() {
  Status status;
  nccl_ = Nccl::load(status);
  MACO_TRY(agree(status));
  MACO_TRY(everywhere([&](int r) { return at(r).prepare_hand_over(*nccl_); }));
  bool shared = false;
  MACO_TRY(have_communicators(shared));
  if (shared) {
    const Status connected = everywhere([&](int r) { return at(r).connect(nccl_, nullptr); });
    communicators_.clear();
    return connected;
  }
  communicators_.clear();
  Nccl::Id id;
  MACO_TRY(nccl_->make_id(options_.group, id));
  return everywhere([&](int r) { return at(r).connect(nccl_, &id); });
}

// Whether all ranks have ends of one communicator, made by another session.
Status CudaSession::have_communicators(bool& all) {
  std::vector<std::string> ids;
  communicators_.clear();
  for (const auto& rank : ranks_) {
    communicators_.push_back(Communicator::find(rank->communicator_key()));
    const auto& own = communicators_.back();
    ids.push_back(own ? std::string(own->id().begin(), own->id().end()) : "");
  }
  if (options_.group) {
    const std::string mine = ids[0];
    MACO_TRY(options_.group->exchange(mine, ids));
  }
  all = !ids[0].empty() &&
        std::all_of(ids.begin(), ids.end(), [&](const std::string& id) { return id == ids[0]; });
  return {};
}

Status CudaSession::prepare(const std::string& image) {
  const cuda::ContextGuard guard(*driver_);
  MACO_TRY(agree(threads_.status()));
  MACO_TRY(open_ranks());
  // Every step ends on all ranks before the next one begins on any.
  MACO_TRY(everywhere([&](int r) { return at(r).open(); }));
  MACO_TRY(everywhere([&](int r) { return at(r).load(image); }));
  MACO_TRY(everywhere([&](int r) { return at(r).check_free_memory(); }));
  MACO_TRY(everywhere([&](int r) { return at(r).allocate(); }));
  const SymmetricLayout layout = symmetric_layout(manifest_);
  std::vector<SymmetricRank> places;
  for (auto& rank : ranks_) places.push_back(rank->place());
  Status status;
  // What the graph's backend asks for, unless the caller names something.
  std::string memory = options_.peer_memory;
  if (memory.empty() && manifest_.backend == "nvshmem") memory = manifest_.backend;
  if (manifest_.world == 1) memory.clear();
  const SymmetricProvider* provider =
      find_symmetric_provider(memory, options_.group != nullptr, status);
  MACO_TRY(agree(status));
  symmetric_ = allocate_pooled(*provider, {*driver_, places, layout.bytes, options_.group},
                               options_.group ? options_.group->processes() : "", status);
  if (!symmetric_) return status;
  MACO_TRY(everywhere([&](int r) { return at(r).bind(*symmetric_, layout); }));
  if (!manifest_.handed.empty()) MACO_TRY(join_nccl());

  MACO_TRY(agree(make_gate()));
  MACO_TRY(reset());
  opened_ = true;
  return {};
}

Status CudaSession::make_gate() {
  MACO_TRY(driver_->check(driver_->context_set(ranks_[0]->place().context), "use a GPU"));
  void* host = nullptr;
  MACO_TRY(driver_->check(
      driver_->host_allocate(&host, sizeof(u32), cuda::kHostPortable | cuda::kHostMapped),
      "allocate host memory"));
  gate_ = static_cast<uint32_t*>(host);
  *gate_ = 0;
  return driver_->check(driver_->host_pointer(&gate_address_, host, 0), "map host memory");
}

Status CudaSession::reset() {
  launched_ = 0;
  MACO_TRY(everywhere([&](int r) { return at(r).reset(epoch_); }));
  return agree(numbered_ ? number() : Status{});
}

Status CudaSession::number() {
  const auto most = launches_between_resets(manifest_);
  const auto left = static_cast<uint32_t>(std::max<int64_t>(most - launched_, 0));
  MACO_TRY(on_all([&](int r) { return at(r).number(epoch_, left); }));
  numbered_ = true;
  return {};
}

Status CudaSession::renew() {
  uint32_t left = least_left_;
  if (options_.group) {
    if (!any_numbered_) return {};
    Status mine = numbered_ ? Status{} : number();
    if (mine) mine = place_for_graphs();
    MACO_TRY(agree(mine));
  } else {
    if (!numbered_) return {};
    MACO_TRY(place_for_graphs());
    MACO_TRY(at(first_).read_left(left));
  }
  if (left > launches_between_resets(manifest_) / 2) return {};
  MACO_TRY(agree(synchronize()));
  return reset();
}

bool CudaSession::any_report() const {
  return std::any_of(ranks_.begin(), ranks_.end(),
                     [](const auto& rank) { return cause_of(rank->reports()).state != 0; });
}

Status CudaSession::check_copy(int rank, size_t tensor, size_t offset, size_t bytes) const {
  if (!dead_.empty()) return Status::failure(dead_);
  MACO_TRY(check_range(manifest_, rank, tensor, offset, bytes));
  MACO_TRY(check_here(rank));
  if (address(rank, tensor)) return {};
  return Status::failure(fmt::format("'{}' has no memory yet", manifest_.tensors[tensor].name));
}

Status CudaSession::bind(int rank, size_t tensor, void* memory) {
  if (!dead_.empty()) return Status::failure(dead_);
  MACO_TRY(check_binding(manifest_, rank, tensor, memory));
  MACO_TRY(check_here(rank));
  at(rank).bind_tensor(tensor, static_cast<cuda::DevicePtr>(reinterpret_cast<uintptr_t>(memory)));
  return place_for_graphs();
}

Status CudaSession::place_for_graphs() {
  if (!numbered_ || enqueued_ || !check_bound(*this)) return {};
  const cuda::ContextGuard guard(*driver_);
  for (auto& rank : ranks_) MACO_TRY(rank->place_tensors());
  return {};
}

Status CudaSession::allocate(int rank, size_t tensor) {
  const cuda::ContextGuard guard(*driver_);
  if (!dead_.empty()) return Status::failure(dead_);
  MACO_TRY(check_range(manifest_, rank, tensor));
  MACO_TRY(check_here(rank));
  return address(rank, tensor) ? Status{} : at(rank).allocate_tensor(tensor);
}

Status CudaSession::write_at(int rank, size_t tensor, size_t offset, const void* data,
                             size_t bytes) {
  const cuda::ContextGuard guard(*driver_);
  MACO_TRY(check_copy(rank, tensor, offset, bytes));
  return bytes == 0 ? Status{} : at(rank).write(tensor, offset, data, bytes);
}

Status CudaSession::read_at(int rank, size_t tensor, size_t offset, void* data, size_t bytes) {
  const cuda::ContextGuard guard(*driver_);
  MACO_TRY(check_copy(rank, tensor, offset, bytes));
  return bytes == 0 ? Status{} : at(rank).read(tensor, offset, data, bytes);
}

std::unique_ptr<TensorWriter> CudaSession::make_writer(size_t staging, Status& status) {
  status = dead_.empty() ? Status{} : Status::failure(dead_);
  if (!status) return nullptr;
  auto writer = std::make_unique<CudaWriter>(*driver_, first_);
  for (const auto& rank : ranks_)
    if (status) status = writer->add(*rank);
  if (status) status = writer->allocate(staging);
  return status ? std::move(writer) : nullptr;
}

Status CudaSession::set_values(const LaunchValues& values, const LaunchAddresses& addresses,
                               TensorPlaces places) {
  if (!dead_.empty()) return Status::failure(dead_);
  MACO_TRY(check_bound(*this, places));
  MACO_TRY(check_addresses(*this, addresses, places));
  for (auto& rank : ranks_) MACO_TRY(rank->place_tensors());
  for (int r = first_; is_here(r); ++r) {
    // Numbers are checked before the launch, even if launches check them again.
    std::vector<int32_t> out;
    if (addresses.empty()) MACO_TRY(evaluate_values(manifest_, values, r, out));
    at(r).set_values(out);
    if (!numbered_) continue;
    std::vector<LaunchVariable> variables;
    MACO_TRY(list_variables(manifest_, values, addresses, r, here(), variables));
    at(r).set_variables(variables);
  }
  return {};
}

Status CudaSession::enqueue(int rank, int launches, bool timed) {
  CudaRank& r = at(rank);
  if (timed) r.enqueue_gate(gate_address_, gate_value_);
  for (int i = 0; i < launches; ++i) {
    const auto first = static_cast<size_t>(2 * i);
    MACO_TRY(r.enqueue(epoch_ + static_cast<uint32_t>(i), timed ? r.event(first) : nullptr,
                       timed ? r.event(first + 1) : nullptr));
  }
  return {};
}

Status CudaSession::enqueue_handed(int rank, int launches) {
  for (int i = 0; i < launches; ++i) MACO_TRY(at(rank).enqueue_handed());
  return {};
}

Status CudaSession::count(int launches) {
  launched_ += launches;
  if (launched_ <= launches_between_resets(manifest_) / (numbered_ ? 2 : 1)) return {};
  MACO_TRY(wait());
  if (!numbered_) MACO_TRY(reset());  // otherwise it was done already
  launched_ = launches;
  return {};
}

void CudaSession::begin() {
  failed_ = false;
  stop_ = false;
  waiting_ = true;
  aborting_ = false;
  stopped_why_.clear();
  progress_ = Clock::now();
  heartbeats_.assign(ranks_.size(), 0);
}

Status CudaSession::conclude(std::vector<Status> statuses) {
  waiting_ = false;
  // Captured launches may still run and report, but not for long.
  const bool unsettled = numbered_ && any_report() && all_of(statuses);
  if (const Status settled = agree(unsettled ? synchronize() : Status{}); !settled)
    return options_.group && options_.group->broken() ? lost(settled) : settled;
  std::vector<Report> reports(static_cast<size_t>(manifest_.world));
  for (int r = first_; is_here(r); ++r) reports[static_cast<size_t>(r)] = cause_of(at(r).reports());
  if (!stopped_why_.empty()) statuses.insert(statuses.begin(), Status::failure(stopped_why_));
  Status status = all_of(statuses);
  if (options_.group) MACO_TRY(conclude_all(status, reports));
  const bool stopped =
      std::any_of(reports.begin(), reports.end(), [](const Report& r) { return r.state != 0; });
  if (status.ok && !stopped) return {};
  const std::string story = explain_reports(manifest_, reports, options_.timeout_ms);
  if (!story.empty())
    status = Status::failure(status.message.empty() ? story : status.message + "\n" + story);
  status.stopped = first_stopped(manifest_, reports);
  if (Status recovered = recover(); !recovered)
    dead_ = "nothing can be launched after this failure: " + status.message;
  return status;
}

// The group is broken: no process can be asked any more.
Status CudaSession::lost(const Status& met) {
  const std::string waited =
      explain_report(manifest_, first_, cause_of(at(first_).reports()), options_.timeout_ms);
  dead_ = met.message + (waited.empty() ? "" : "\n" + waited);
  return Status::failure(dead_);
}

Status CudaSession::conclude_all(Status& status, std::vector<Report>& reports) {
  Outcome mine{reports[static_cast<size_t>(first_)], 0, numbered_, UINT32_MAX, ""};
  if (numbered_)
    if (const Status read = at(first_).read_left(mine.left); !read && status) status = read;
  mine.story = status.message;
  std::vector<Outcome> all;
  std::string story;
  const Status met = exchange_outcomes(*options_.group, mine, std::exchange(given_, {}).all(),
                                       Group::kPatienceMs, all, story);
  if (!met) return lost(met);
  any_numbered_ = false;
  least_left_ = UINT32_MAX;
  for (size_t r = 0; r < all.size(); ++r) {
    reports[r] = all[r].report;
    any_numbered_ = any_numbered_ || all[r].numbered;
    least_left_ = std::min(least_left_, all[r].left);
  }
  status = story.empty() ? Status{} : Status::failure(story);
  return {};
}

// Launches `launches` times on all ranks and waits. Whatever happens, all ranks have ended, or have
// been given up, when it returns.
Status CudaSession::run(int launches, bool timed) {
  MACO_TRY(count(launches));
  begin();
  ++gate_value_;
  // Ahead of the gate, if everything fits there.
  const bool ahead = manifest_.handed.size() <= size_t{kHandedBatch};
  auto step = [&](int i) {
    const int r = first_ + i;
    threads_.meet();
    Status status = enqueue(r, launches, timed);
    if (status && ahead) status = enqueue_handed(r, launches);
    if (!status) failed_ = true;
    threads_.meet();
    // Also if a rank has failed: the others' kernels must run to see its abort.
    if (timed && i == 0) {
      if (options_.group) static_cast<void>(options_.group->meet());
      std::atomic_ref<uint32_t>(*gate_).store(gate_value_, std::memory_order_release);
    }
    if (status && !ahead) status = enqueue_handed(r, launches);
    Status ended = at(r).wait(give_up_);
    if (!ended) failed_ = true;
    return status ? ended : status;
  };
  std::vector<Status> statuses = threads_.run(step, [this] { watch(); });
  epoch_ += static_cast<uint32_t>(launches);
  return conclude(std::move(statuses));
}

Status CudaSession::are_captured(std::span<void* const> streams, bool& captured) {
  size_t count = 0;
  for (size_t r = 0; r < streams.size(); ++r) {
    bool one = false;
    MACO_TRY(ranks_[r]->is_capturing(static_cast<cuda::Stream>(streams[r]), one));
    count += one ? 1 : 0;
  }
  captured = count > 0;
  if (count == 0 || count == streams.size()) return {};
  return Status::failure(
      fmt::format("{} of {} streams are being captured: a launch becomes part of graphs on all "
                  "ranks or on none",
                  count, streams.size()));
}

Status CudaSession::refuse_handed(bool captured, const LaunchAddresses& addresses) const {
  for (const ir::ManifestHanded& h : manifest_.handed) {
    if (captured)
      return Status::failure(
          fmt::format("'{}' is handed over to NCCL, which can't be captured by this version: "
                      "launch it, or use backend 'p2p'",
                      h.op));
    if (!addresses.empty() && h.value >= 0)
      return Status::failure(
          fmt::format("how much '{}' hands over to NCCL depends on dims or scalars, which have to "
                      "come from the host then",
                      h.op));
  }
  return {};
}

// Prepares a launch before it goes to streams.
Status CudaSession::ready_to_enqueue(const LaunchValues& values, const LaunchAddresses& addresses,
                                     TensorPlaces places, bool captured) {
  // An earlier launch that stopped has left its report; and addresses must not change under a
  // kernel that reads them.
  const bool stopped = any_report();
  if (stopped && captured)
    return Status::failure("a launch has stopped: wait says why, when nothing is captured");
  if (stopped && options_.group) return Status::failure("a launch has stopped: wait says why");
  const bool moved =
      std::any_of(ranks_.begin(), ranks_.end(), [](const auto& rank) { return rank->moved(); });
  if (stopped || (moved && !options_.group)) MACO_TRY(wait());
  if (moved && options_.group) {  // other processes need not wait because of memory here
    begin();
    MACO_TRY(all_of(wait_for_last()));
  }
  if (const auto refused = refuse_handed(captured, addresses); !refused) return refused;
  if (!numbered_ && (captured || !addresses.empty())) {
    MACO_TRY(check_variables(manifest_));
    MACO_TRY(number());
  }
  return set_values(values, addresses, places);
}

Status CudaSession::enqueue(const LaunchValues& values, const LaunchAddresses& addresses,
                            std::span<void* const> streams, TensorPlaces places) {
  const cuda::ContextGuard guard(*driver_);
  if (!dead_.empty()) return Status::failure(dead_);
  const auto stream_of = [&](int r) {
    return streams.empty() ? at(r).own_stream()
                           : static_cast<cuda::Stream>(streams[static_cast<size_t>(r - first_)]);
  };
  bool captured = false;
  Status status =
      streams.empty() || streams.size() == ranks_.size()
          ? are_captured(streams, captured)
          : Status::failure(fmt::format("{} streams for {} ranks", streams.size(), ranks_.size()));
  if (captured && status) {
    MACO_TRY(ready_to_enqueue(values, addresses, places, true));
    return soon_on_all([&](int r) {
      return at(r).capture_on(stream_of(r), places, static_cast<size_t>(r - first_));
    });
  }
  // All processes count in the same way, even if one of them can't launch.
  if (options_.group) {
    MACO_TRY(count(1));
    given_.add(values, addresses);
  }
  if (status) status = ready_to_enqueue(values, addresses, places, false);
  if (!status && !options_.group) return status;
  if (!options_.group) MACO_TRY(count(1));
  enqueued_ = true;
  if (status)
    status = soon_on_all([&](int r) {
      const Status begun =
          at(r).enqueue_on(stream_of(r), epoch_, places, static_cast<size_t>(r - first_));
      return begun ? at(r).enqueue_handed() : begun;
    });
  ++epoch_;
  if (status) return {};
  // The other ranks wait in vain for a rank that didn't start.
  if (start_) start_ = status;
  abort_all();
  return options_.group ? status : wait();
}

std::vector<Status> CudaSession::wait_for_last() {
  return threads_.run(
      [&](int i) {
        Status ended = at(first_ + i).wait_for_last(give_up_);
        if (!ended) failed_ = true;
        return ended;
      },
      [this] { watch(); });
}

Status CudaSession::wait() {
  const cuda::ContextGuard guard(*driver_);
  if (options_.group && !dead_.empty()) return Status::failure(dead_);
  const bool launched = std::exchange(enqueued_, false);
  // In a group always, as others may have launched, or number launches.
  if (launched || numbered_ || options_.group) {
    begin();
    std::vector<Status> statuses;
    if (launched) {
      statuses = wait_for_last();
      statuses.insert(statuses.begin(), std::exchange(start_, Status{}));
    }
    MACO_TRY(conclude(std::move(statuses)));
  }
  return dead_.empty() ? renew() : Status{};
}

Status CudaSession::ended(bool& all) {
  const cuda::ContextGuard guard(*driver_);
  all = true;
  for (size_t r = 0; enqueued_ && r < ranks_.size(); ++r) {
    bool one = true;
    MACO_TRY(ranks_[r]->last_ended(one));
    all = all && one;
  }
  // All processes tell its outcome at once, in wait.
  return all && !options_.group ? wait() : Status{};
}

// After all ranks have left their kernels: resets counters, slots and reports.
Status CudaSession::recover() {
  Status ended;
  if (give_up_)
    ended = Status::failure("a kernel still runs");
  else
    ended = on_all([&](int r) { return at(r).settle(); });
  if (ended && numbered_) ended = synchronize();
  MACO_TRY(agree(ended));
  return reset();
}

// Called from time to time while kernels run. Kernels end by themselves after the time-out. This
// handles those that don't, and the peers of a kernel that couldn't start.
void CudaSession::watch() {
  const auto now = Clock::now();
  if (aborting_) {
    if (now - aborted_ > std::chrono::seconds(10)) give_up_ = true;
    return;
  }
  if (failed_) return abort_all();
  if (stop_) {
    stopped_why_ = kStoppedByCaller;
    return abort_all();
  }
  if (const int gone = options_.group ? options_.group->gone(0) : -1; gone >= 0)
    return abort_all(gone);
  const std::chrono::milliseconds timeout(options_.timeout_ms);
  if (now - progress_ < timeout) return;
  for (size_t r = 0; r < ranks_.size(); ++r) {
    uint32_t heartbeat = 0;
    if (!ranks_[r]->read_heartbeat(heartbeat) || heartbeat == heartbeats_[r]) continue;
    heartbeats_[r] = heartbeat;
    progress_ = Clock::now();
  }
  if (now - progress_ <= 2 * timeout + std::chrono::seconds(5)) return;
  stopped_why_ =
      fmt::format("no rank made progress for {} ms, and the kernel did not stop by itself",
                  std::chrono::duration_cast<std::chrono::milliseconds>(now - progress_).count());
  abort_all();
}

void CudaSession::abort_all(int by) {
  aborting_ = true;
  aborted_ = Clock::now();
  for (auto& rank : ranks_) rank->write_abort(by);
}

Status CudaSession::ready(const LaunchValues& values, int launches) {
  MACO_TRY(wait());
  Status set = set_values(values);
  if (!options_.group) return set;
  LaunchValues all = values;
  all["(launches)"] = launches;  // no name in a graph looks like this
  return agree_on_values(*options_.group, all, set);
}

Status CudaSession::launch(const LaunchValues& values) {
  const cuda::ContextGuard guard(*driver_);
  MACO_TRY(ready(values, 1));
  return run(1, false);
}

Status CudaSession::bench(const LaunchValues& values, int launches, double& median_us) {
  const cuda::ContextGuard guard(*driver_);
  if (launches < 1) return Status::failure("a benchmark needs at least one launch");
  MACO_TRY(ready(values, launches));
  MACO_TRY(everywhere(
      [&](int r) { return driver_->check(at(r).make_events(2 * kBatch), "make events"); }));
  MACO_TRY(run(std::min(std::clamp(launches / 4, 3, kBatch), batch()), true));  // warm-up
  std::vector<double> times;
  while (static_cast<int>(times.size()) < launches) {
    const int count = std::min(batch(), launches - static_cast<int>(times.size()));
    MACO_TRY(run(count, true));
    std::vector<double> slowest(static_cast<size_t>(count), 0);
    Status read;
    for (int i = 0; i < count; ++i) {
      for (auto& rank : ranks_) {
        const auto first = static_cast<size_t>(2 * i);
        float ms = 0;
        if (read)
          read = driver_->check(
              driver_->event_elapsed(&ms, rank->event(first), rank->event(first + 1)),
              "read the time");
        slowest[static_cast<size_t>(i)] =
            std::max(slowest[static_cast<size_t>(i)], 1000.0 * double{ms});
      }
    }
    MACO_TRY(agree(read));
    if (options_.group) MACO_TRY(slowest_of(*options_.group, slowest));
    times.insert(times.end(), slowest.begin(), slowest.end());
  }
  median_us = median(std::move(times));
  return {};
}

Status CudaSession::stamps(std::vector<RankStamps>& ranks) {
  const cuda::ContextGuard guard(*driver_);
  if (!dead_.empty()) return Status::failure(dead_);
  if (options_.profiled_tasks == 0)
    return Status::failure("the kernel was compiled without stamps");
  ranks.assign(ranks_.size(), {});
  Status read;
  for (size_t r = 0; r < ranks_.size() && read; ++r) read = ranks_[r]->read_stamps(ranks[r]);
  if (!options_.group) return read;
  MACO_TRY(agree(read));
  return gather_stamps(*options_.group, gpu_, RankStamps{ranks.front()}, ranks);
}

// Reports what can be found wrong before anything is compiled. `as_ptx`: PTX is needed instead of a
// cubin, since some device is a later one.
Status check_devices(const cuda::Driver& driver, const ir::Manifest& m, const Arch& arch,
                     const SessionOptions& options, bool& as_ptx) {
  const int64_t needed =
      options.group ? 1 : (m.world + options.ranks_per_gpu - 1) / options.ranks_per_gpu;
  const auto found = static_cast<int64_t>(driver.devices().size());
  if (needed > found)
    return Status::failure(
        fmt::format("{} ranks with {} on a GPU need {} GPUs, but {} {} found (--ranks-per-gpu={} "
                    "would put them there)",
                    m.world, options.ranks_per_gpu, needed, found, found == 1 ? "was" : "were",
                    (m.world + found - 1) / found));
  const size_t begin = first_gpu(options, driver.devices().size());
  if (begin + static_cast<size_t>(needed) > driver.devices().size())
    return Status::failure(fmt::format("there is no GPU {}: this machine has {}",
                                       begin + static_cast<size_t>(needed) - 1, found));
  for (size_t i = begin; i < begin + static_cast<size_t>(needed); ++i) {
    const cuda::DeviceInfo& d = driver.devices()[i];
    as_ptx = as_ptx || !runs_on(arch, d.major, d.minor);
    if (!ptx_runs_on(arch, d.major, d.minor))
      return Status::failure(
          fmt::format("the kernel was compiled for {}, but GPU {} ({}) is sm_{}{}", m.target, i,
                      d.name, d.major, d.minor));
  }
  return {};
}

}  // namespace

std::unique_ptr<Session> make_cuda_session(const std::string& kernel_source,
                                           const SessionOptions& options, Status& status) {
  auto fail = [&status](std::string why) {
    status = Status::failure(std::move(why));
    return nullptr;
  };
  ir::ManifestResult parsed = ir::parse_manifest(kernel_source);
  if (!parsed.manifest) return fail(parsed.error);
  const ir::Manifest& m = *parsed.manifest;
  const std::optional<Arch> arch = parse_arch(m.target);
  if (!arch)
    return fail(
        fmt::format("the kernel was compiled for '{}', which is no NVIDIA GPU: compile it with "
                    "--target=sm_90a, say",
                    m.target));
  if (!m.handed.empty() && options.ranks_per_gpu > 1)
    return fail(
        fmt::format("'{}' is to be handed over to NCCL, which takes one rank a GPU, not {}: use "
                    "backend 'p2p'",
                    m.handed[0].op, options.ranks_per_gpu));
  if (options.ranks_per_gpu < 1) return fail("a GPU must have at least one rank");
  if (m.values.size() > size_t{kMaxValues})
    return fail(
        fmt::format("the kernel has {} launch values, more than {}", m.values.size(), kMaxValues));

  status = options.group ? check_group(*options.group, m, options) : Status{};
  if (!status) return nullptr;

  std::unique_ptr<cuda::Driver> driver = cuda::Driver::load(status);
  bool as_ptx = false;
  if (driver) status = check_devices(*driver, m, *arch, options, as_ptx);
  std::string image;
  const auto compile = [&] {
    options.tell("compiling the kernel with NVRTC");
    const std::string number = m.target.substr(m.target.find('_') + 1);
    status = compile_kernel(kernel_source, (as_ptx ? "compute_" : "sm_") + number, options.verbose,
                            image, options.profiled_tasks > 0);
  };
  // In a group rank 0 compiles, and the others find the result in the cache.
  Group* const group = options.group;
  if (status && (!group || group->rank() == 0)) compile();
  if (group) status = group->agree(status);
  if (status && group && group->rank() != 0) compile();
  if (group && status) status = group->agree(status);
  if (!status) return nullptr;
  auto session =
      std::make_unique<CudaSession>(std::move(driver), std::move(*parsed.manifest), options);
  options.tell("loading the kernel on all ranks");
  status = session->prepare(image);
  if (!status) return nullptr;
  return session;
}

}  // namespace maco::runtime
