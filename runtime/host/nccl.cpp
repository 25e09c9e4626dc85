#include "runtime/host/nccl.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "runtime/host/nccl_api.h"

namespace maco::runtime {

namespace {

using ir::CollectiveKind;

// ncclDataType_t, ncclRedOp_t
int type_of(ir::DType type) {
  switch (type) {
    case ir::DType::U8: return 1;
    case ir::DType::I32: return 2;
    case ir::DType::F16: return 6;
    case ir::DType::F32: return 7;
    case ir::DType::BF16: return 9;
    case ir::DType::F8E4M3: return 10;
    case ir::DType::F8E5M2: return 11;
  }
  return 7;
}
constexpr int kSum = 0, kUint32 = 3;
int reduction_of(ir::Reduction how) {
  switch (how) {
    case ir::Reduction::Sum: return kSum;
    case ir::Reduction::Max: return 2;
    case ir::Reduction::Min: return 3;
    case ir::Reduction::Avg: return 4;
  }
  return kSum;
}

void* pointer(cuda::DevicePtr address) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): device memory, never looked at here
  return reinterpret_cast<void*>(static_cast<uintptr_t>(address));
}

}  // namespace

Nccl::Nccl() : api_(std::make_unique<Api>()) {}
Nccl::~Nccl() = default;

const std::string& Nccl::path() const { return api_->library.path(); }

std::shared_ptr<const Nccl> Nccl::load(Status& status) {
  constexpr int kOldest = 21800;
  std::shared_ptr<Nccl> nccl(new Nccl);
  const LibraryPlaces places = {.variable = "MACO_NCCL",
                                .names = {"libnccl.so.2", "libnccl.so"},
                                .packages = {"nvidia/nccl/lib"}};
  nccl->api_->library = Library::open(candidates_of(places), "ncclCommInitRankConfig");
  if (!nccl->api_->library) {
    const std::string chosen = chosen_place(places);
    status = Status::failure(
        !nccl->api_->library.why().empty() ? "NCCL: " + nccl->api_->library.why()
        : chosen.empty()
            ? "NCCL (libnccl.so.2) was not found: install it or 'pip install nvidia-nccl-cu13', or "
              "set MACO_NCCL to the library"
            : fmt::format("NCCL was not found where MACO_NCCL says: '{}' is no usable libnccl",
                          chosen));
    return nullptr;
  }
  int version = 0;
  if (!nccl->api_->bind_all() || nccl->api_->version(&version) != 0 || version < kOldest) {
    status = Status::failure(
        fmt::format("'{}' is too old an NCCL: version 2.18 or later is needed", nccl->path()));
    return nullptr;
  }
  nccl->api_->version_code = version;
  nccl->version_ = fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
  status = {};
  return nccl;
}

Status Nccl::make_id(Group* group, Id& id) const {
  Status made;
  id = {};
  if (const int result = !group || group->rank() == 0 ? api_->unique_id(&id) : 0; result != 0)
    made = Status::failure(
        fmt::format("NCCL {} could not begin a group: {}", version_, api_->error_string(result)));
  if (!group) return made;
  MACO_TRY(group->agree(made));
  std::vector<std::string> all;
  MACO_TRY(group->exchange(std::string(id.begin(), id.end()), all));
  std::copy_n(all[0].begin(), std::min(all[0].size(), id.size()), id.begin());
  return {};
}

std::shared_ptr<Communicator> Communicator::join(std::shared_ptr<const Nccl> nccl,
                                                 const Nccl::Id& id, int rank, int ranks, int sms,
                                                 Status& status) {
  std::shared_ptr<Communicator> made(new Communicator(std::move(nccl), id));
  NcclConfig config;
  config.max_ctas = sms;
  const Nccl& library = *made->nccl_;
  const int result = library.api().init(&made->comm_, ranks, id, rank, &config);
  if (result == 0) return made;
  made->comm_ = nullptr;
  status = Status::failure(fmt::format("rank {}: NCCL {} could not join the ranks: {}", rank,
                                       library.version(), library.api().error_string(result)));
  return nullptr;
}

Communicator::~Communicator() {
  if (comm_) nccl_->api().destroy(comm_);
}

void Communicator::abort() {
  if (comm_) nccl_->api().abort(std::exchange(comm_, nullptr));
}

namespace {
struct Kept {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<Communicator>> by_key;
};
Kept& kept() {
  static auto* const all = new Kept;  // sessions may end after main
  return *all;
}
}  // namespace

std::shared_ptr<Communicator> Communicator::find(const std::string& key) {
  const std::lock_guard lock(kept().mutex);
  const auto it = kept().by_key.find(key);
  auto found = it == kept().by_key.end() ? nullptr : it->second.lock();
  return found && found->handle() ? found : nullptr;
}

void Communicator::keep(const std::string& key, const std::shared_ptr<Communicator>& one) {
  const std::lock_guard lock(kept().mutex);
  std::erase_if(kept().by_key, [](const auto& entry) { return entry.second.expired(); });
  kept().by_key[key] = one;
}

NcclRank::NcclRank(const cuda::Driver& driver, const Nccl& nccl, const ir::Manifest& manifest,
                   int rank)
    : driver_(driver), nccl_(nccl), manifest_(manifest), rank_(rank) {}

NcclRank::~NcclRank() {
  // What hasn't ended by now never will.
  if (communicator_ && driver_.stream_query(stream_) != cuda::kSuccess) communicator_->abort();
  communicator_.reset();
  for (cuda::Stream stream : {stream_, side_})
    if (stream) driver_.stream_destroy(stream);
  for (cuda::DevicePtr memory : {words_, word_, first_})
    if (memory) driver_.free(memory);
}

Status NcclRank::check(int result, const std::string& what) const {
  if (result == 0) return {};
  return Status::failure(fmt::format("rank {}: NCCL {} could not {}: {}", rank_, nccl_.version(),
                                     what, nccl_.api().error_string(result)));
}

Status NcclRank::prepare() {
  const auto words = manifest_.handed.size() * sizeof(Handed);
  for (const ir::ManifestHanded& h : manifest_.handed) {
    const bool blocks = h.x_blocks() || h.y_blocks();
    most_ = std::max(most_, static_cast<size_t>(h.rows * h.cols * ir::size_of(h.dtype)) *
                                static_cast<size_t>(blocks ? manifest_.world : 1));
  }
  for (cuda::Stream* stream : {&stream_, &side_})
    MACO_TRY(driver_.check(driver_.stream_create(stream, cuda::kStreamNonBlocking),
                           "make a stream for NCCL"));
  for (const auto& [memory, bytes] :
       {std::pair(&words_, words), {&word_, 2 * sizeof(u32)}, {&first_, 2 * most_}}) {
    MACO_TRY(driver_.check(driver_.allocate(memory, bytes), "allocate memory for NCCL"));
    MACO_TRY(driver_.check(driver_.fill(*memory, 0, bytes, stream_), "clear memory"));
  }
  return driver_.check(driver_.stream_synchronize(stream_), "clear memory");
}

Status NcclRank::connect(std::shared_ptr<Communicator> communicator) {
  communicator_ = std::move(communicator);
  for (const ir::ManifestHanded& h : manifest_.handed)
    MACO_TRY(collective(h, first_, first_ + most_, static_cast<size_t>(h.rows * h.cols)));
  MACO_TRY(meet());
  MACO_TRY(driver_.check(driver_.stream_synchronize(stream_), "run NCCL's first collectives"));
  return driver_.check(driver_.free(std::exchange(first_, 0)), "free memory");
}

Status NcclRank::meet() {
  return check(nccl_.api().all_reduce(pointer(word_), pointer(word_ + sizeof(u32)), 1, kUint32,
                                      kSum, comm(), stream_),
               "let ranks meet");
}

// After a collective a rank knows that all have handed over. So a collective whose data goes one
// way ends with a word that all add up, and so does one without elements.
Status NcclRank::collective(const ir::ManifestHanded& h, cuda::DevicePtr x, cuda::DevicePtr y,
                            size_t elements) {
  const Nccl::Api& api = nccl_.api();
  const int type = type_of(h.dtype), world = static_cast<int>(manifest_.world);
  const size_t bytes = elements * static_cast<size_t>(ir::size_of(h.dtype));
  const std::string what = fmt::format("run {} '{}'", name(h.kind), h.op);
  if (elements == 0) return meet();
  if (h.kind == CollectiveKind::AllReduce)
    return check(api.all_reduce(pointer(x), pointer(y), elements, type, reduction_of(h.reduce),
                                comm(), stream_),
                 what);
  if (h.kind == CollectiveKind::ReduceScatter)
    return check(api.reduce_scatter(pointer(x), pointer(y), elements, type, reduction_of(h.reduce),
                                    comm(), stream_),
                 what);
  if (h.kind == CollectiveKind::AllGather)
    return check(api.all_gather(pointer(x), pointer(y), elements, type, comm(), stream_), what);
  if (h.kind == CollectiveKind::Broadcast) {
    MACO_TRY(check(api.broadcast(pointer(x), pointer(y), elements, type, static_cast<int>(h.peer),
                                 comm(), stream_),
                   what));
    return meet();
  }
  MACO_TRY(check(api.group_start(), what));
  int result = 0;
  if (h.kind == CollectiveKind::RingShift) {
    const auto by = static_cast<int>(((h.peer % world) + world) % world);
    result = api.send(pointer(x), elements, type, (rank_ + by) % world, comm(), stream_);
    if (result == 0)
      result =
          api.receive(pointer(y), elements, type, (rank_ + world - by) % world, comm(), stream_);
  } else {
    for (int peer = 0; peer < world && result == 0; ++peer) {
      const auto at = static_cast<size_t>(peer) * bytes;
      result = api.send(pointer(x + at), elements, type, peer, comm(), stream_);
      if (result == 0) result = api.receive(pointer(y + at), elements, type, peer, comm(), stream_);
    }
  }
  const int ended = api.group_end();
  MACO_TRY(check(result != 0 ? result : ended, what));
  return h.kind == CollectiveKind::RingShift ? meet() : Status{};
}

Status NcclRank::enqueue(const cuda::DevicePtr* tensors, cuda::DevicePtr arena,
                         const int32_t* values) {
  const auto place = [&](int64_t tensor, int64_t offset) {
    return tensor < 0 ? arena + static_cast<cuda::DevicePtr>(offset)
                      : tensors[static_cast<size_t>(tensor)];
  };
  for (const ir::ManifestHanded& h : manifest_.handed) {
    const int64_t rows = h.value < 0 ? h.rows : int64_t{values[static_cast<size_t>(h.value)]};
    const cuda::DevicePtr words = words_ + static_cast<cuda::DevicePtr>(h.number) * sizeof(Handed);
    MACO_TRY(driver_.check(
        driver_.stream_wait_value(stream_, words + offsetof(Handed, ready), 1, cuda::kWaitEq),
        "wait for what is handed over"));
    MACO_TRY(
        driver_.check(driver_.stream_write_value(stream_, words + offsetof(Handed, ready), 0, 0),
                      "lower a word"));
    MACO_TRY(collective(h, place(h.x, h.x_offset), place(h.y, h.y_offset),
                        static_cast<size_t>(std::clamp<int64_t>(rows, 0, h.rows) * h.cols)));
    MACO_TRY(driver_.check(
        driver_.stream_write_value(stream_, words + offsetof(Handed, done), 1, 0), "raise a word"));
  }
  return {};
}

Status NcclRank::drain() {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::seconds kPatience(10);
  for (const auto begin = Clock::now(); driver_.stream_query(stream_) == cuda::kNotReady;) {
    if (Clock::now() - begin > kPatience)
      return Status::failure(
          fmt::format("rank {}: collectives that were handed over to NCCL don't end", rank_));
    for (const ir::ManifestHanded& h : manifest_.handed)
      MACO_TRY(driver_.check(driver_.stream_write_value(
                                 side_,
                                 words_ + static_cast<cuda::DevicePtr>(h.number) * sizeof(Handed) +
                                     offsetof(Handed, ready),
                                 1, 0),
                             "raise a word"));
    MACO_TRY(driver_.check(driver_.stream_synchronize(side_), "raise words"));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  MACO_TRY(driver_.check(driver_.stream_query(stream_), "run what was handed over to NCCL"));
  MACO_TRY(driver_.check(driver_.fill(words_, 0, manifest_.handed.size() * sizeof(Handed), side_),
                         "clear memory"));
  return driver_.check(driver_.stream_synchronize(side_), "clear memory");
}

}  // namespace maco::runtime
