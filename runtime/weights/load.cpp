#include "runtime/weights/load.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <system_error>
#include <thread>

#include "ir/diagnostics.h"
#include "runtime/weights/read.h"

namespace maco::runtime {
namespace {

using MakeWriter = std::function<std::unique_ptr<TensorWriter>(size_t bytes, Status& status)>;

// What the threads of one load share. Each thread takes the next slice in order.
class Loading {
 public:
  Loading(const WeightMap& map, const WeightFiles& files, const std::vector<WeightTarget>& targets,
          const MakeWriter& make_writer, const LoadOptions& options)
      : map_(map),
        files_(files),
        make_writer_(make_writer),
        options_(options),
        slices_(slice_weights(map, targets, options.slice_bytes)) {
    for (const WeightTarget& target : targets) total_ += bytes_read(map, target);
  }
  ~Loading() {
    ended_early_ = true;
    for (std::thread& thread : threads_) thread.join();
  }
  Loading(const Loading&) = delete;
  Loading& operator=(const Loading&) = delete;

  Status run() {
    start();
    std::unique_lock lock(mutex_);
    while (
        !changed_.wait_for(lock, std::chrono::milliseconds(100), [&] { return running_ == 0; })) {
      lock.unlock();
      if (options_.progress && !ended_early_) options_.progress(done_, total_);
      lock.lock();
    }
    lock.unlock();
    if (!status_) return status_;
    if (options_.progress) options_.progress(total_, total_);
    return {};
  }

 private:
  void start() {
    constexpr unsigned kFewest = 4, kMost = 16;
    size_t count = options_.threads > 0
                       ? static_cast<size_t>(options_.threads)
                       : std::clamp(std::thread::hardware_concurrency(), kFewest, kMost);
    count = std::min(count, slices_.size());
    for (size_t i = 0; i < count; ++i) {
      const std::lock_guard lock(mutex_);
      try {
        threads_.emplace_back([this] { serve(); });
      } catch (const std::system_error& e) {
        // The existing threads do the work of all.
        if (threads_.empty())
          fail(Status::failure(
              fmt::format("the system gives no thread to load with: {}", e.what())));
        return;
      }
      ++running_;
    }
  }

  void serve() {
    Status status;
    try {
      status = work();
    } catch (const std::bad_alloc&) {
      status = Status::failure("not enough memory to load weights");
    } catch (const std::exception& e) {
      status = Status::failure(fmt::format("loading weights: {}", e.what()));
    }
    const std::lock_guard lock(mutex_);
    if (!status) fail(std::move(status));
    if (--running_ == 0) changed_.notify_all();
  }

  // The first failure is reported. Called with the mutex held.
  void fail(Status status) {
    if (status_) status_ = std::move(status);
    ended_early_ = true;
  }

  Status work() {
    Status made;
    const std::unique_ptr<TensorWriter> writer = make_writer_(options_.slice_bytes, made);
    MACO_TRY(made);
    SliceReader reader(map_, files_, 2 * options_.slice_bytes);
    std::vector<std::byte*> images;
    for (size_t i = next_++; i < slices_.size() && !ended_early_; i = next_++) {
      if (options_.stop && *options_.stop) return Status::failure(kLoadStopped);
      int64_t read = 0;
      MACO_TRY(writer ? fill_writer(slices_[i], reader, *writer, images, read)
                      : fill_memory(slices_[i], reader, images, read));
      done_ += read;
    }
    return writer ? writer->finish() : Status{};
  }

  static Status fill_memory(const WeightSlice& slice, SliceReader& reader,
                            std::vector<std::byte*>& images, int64_t& read) {
    const std::vector<WeightPlace>& places = slice.target->places;
    images.clear();
    for (size_t i = 0; i < slice.target->images(); ++i)
      images.push_back(places[i].memory + slice.offset());
    MACO_TRY(reader.fill(slice, images, read));
    for (size_t i = images.size(); i < places.size(); ++i)
      std::memcpy(places[i].memory + slice.offset(), images[0], slice.bytes());
    return {};
  }

  static Status fill_writer(const WeightSlice& slice, SliceReader& reader, TensorWriter& writer,
                            std::vector<std::byte*>& images, int64_t& read) {
    std::byte* staging = nullptr;
    MACO_TRY(writer.staging(staging));
    images.clear();
    for (size_t i = 0; i < slice.target->images(); ++i)
      images.push_back(staging + i * slice.bytes());
    MACO_TRY(reader.fill(slice, images, read));
    const std::vector<WeightPlace>& places = slice.target->places;
    for (size_t i = 0; i < places.size(); ++i)
      MACO_TRY(writer.write(places[i].rank, places[i].tensor, slice.offset(),
                            images[std::min(i, images.size() - 1)], slice.bytes()));
    return {};
  }

  const WeightMap& map_;
  const WeightFiles& files_;
  const MakeWriter& make_writer_;
  const LoadOptions& options_;
  const std::vector<WeightSlice> slices_;
  int64_t total_ = 0;
  std::atomic<size_t> next_{0};
  std::atomic<int64_t> done_{0};
  std::atomic<bool> ended_early_{false};
  std::mutex mutex_;  // for the next three
  std::condition_variable changed_;
  size_t running_ = 0;
  Status status_;
  std::vector<std::thread> threads_;
};

// An extent, with dims at their maxima.
int64_t extent_of(const ir::Manifest& manifest, const ir::Expr& extent) {
  const auto value = ir::evaluate(extent, [&](std::string_view name) -> std::optional<int64_t> {
                       if (name == "world") return manifest.world;
                       for (const ir::ManifestRange& dim : manifest.dims)
                         if (dim.name == name) return dim.hi;
                       return std::nullopt;
                     }).value;
  return value.value_or(0);
}

std::string described(ir::DType dtype, const std::vector<int64_t>& shape) {
  return fmt::format("{}[{}]", ir::name(dtype), fmt::join(shape, ","));
}

}  // namespace

std::vector<WeightWanted> params_of(const ir::Manifest& manifest) {
  std::vector<WeightWanted> all;
  for (const ir::ManifestTensor& t : manifest.tensors) {
    if (t.kind != "param") continue;
    WeightWanted& param = all.emplace_back();
    param.name = t.name;
    param.dtype = t.dtype;
    for (const ir::Expr& extent : t.shape) param.shape.push_back(extent_of(manifest, extent));
  }
  return all;
}

Status check_weights(const WeightMap& map, int64_t world, const std::vector<WeightWanted>& params) {
  constexpr size_t kNames = 8;
  if (map.world != world)
    return Status::failure(fmt::format("the weights are cut for {} rank{}, but the kernel has {}",
                                       map.world, map.world == 1 ? "" : "s", world));
  std::vector<std::string> known, missing;
  for (const WeightWanted& param : params)
    if (!map.find(param.name)) missing.push_back(param.name);
  if (missing.size() == 1) {
    for (const WeightParam& p : map.params) known.push_back(p.name);
    return Status::failure(fmt::format("the weights have no param '{}'{}", missing[0],
                                       ir::did_you_mean(missing[0], known)));
  }
  if (!missing.empty()) {
    const size_t all = missing.size();
    missing.resize(std::min(all, kNames));
    return Status::failure(
        fmt::format("the weights have no params '{}'{}", fmt::join(missing, "', '"),
                    all > kNames ? fmt::format(" and {} more of the kernel's", all - kNames) : ""));
  }
  for (const WeightWanted& param : params) {
    const WeightParam& found = *map.find(param.name);
    if (found.dtype != param.dtype || found.shape != param.shape)
      return Status::failure(fmt::format("param '{}' is {} in the weights, but the kernel wants {}",
                                         param.name, described(found.dtype, found.shape),
                                         described(param.dtype, param.shape)));
  }
  return {};
}

std::vector<WeightTarget> targets_of(const WeightMap& map, const Session& session) {
  std::vector<WeightTarget> targets;
  const auto& tensors = session.manifest().tensors;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].kind != "param") continue;
    WeightTarget& target = targets.emplace_back();
    target.param = map.find(tensors[i].name);
    const RanksHere here = session.here();
    for (int rank = here.first; here.has(rank); ++rank) target.places.push_back({rank, i});
  }
  return targets;
}

std::vector<size_t> sources_of(const std::vector<WeightTarget>& targets) {
  std::vector<size_t> sources;
  for (const WeightTarget& target : targets)
    for (const WeightPlace& place : target.places)
      for (const WeightPart& part : target.param->parts_of(place.rank))
        sources.push_back(part.source);
  std::sort(sources.begin(), sources.end());
  sources.erase(std::unique(sources.begin(), sources.end()), sources.end());
  return sources;
}

Status load_weights(Session& session, const WeightMap& map, const WeightFiles& files,
                    std::vector<WeightTarget> targets, const LoadOptions& options) {
  for (WeightTarget& target : targets)
    for (WeightPlace& place : target.places) {
      MACO_TRY(session.allocate(place.rank, place.tensor));
      place.memory = static_cast<std::byte*>(session.address(place.rank, place.tensor));
    }
  const MakeWriter make_writer = [&](size_t bytes, Status& status) {
    return session.make_writer(bytes, status);
  };
  return Loading(map, files, targets, make_writer, options).run();
}

Status read_weights(const WeightMap& map, const WeightFiles& files,
                    const std::vector<WeightTarget>& targets, const LoadOptions& options) {
  const MakeWriter none = [](size_t, Status&) { return nullptr; };
  return Loading(map, files, targets, none, options).run();
}

}  // namespace maco::runtime
