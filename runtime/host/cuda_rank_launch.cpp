// cuda_rank_launch.cpp: launches of a rank, with their values, and their ends.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <thread>
#include <utility>

#include "runtime/host/cuda_rank.h"
#include "runtime/host/device_pointer.h"

namespace maco::runtime {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

}  // namespace

Status CudaRank::reset(uint32_t epoch) {
  MACO_TRY(make_current());
  std::fill_n(reports_, ctas(), Report{});
  launch_.epoch = epoch;
  if (nccl_) MACO_TRY(nccl_->drain());
  MACO_TRY(check(driver_.stream_synchronize(side_), "reset"));  // an abort may be on its way
  MACO_TRY(start(reset_, 0, false, stream_));
  // This returns: maco_reset waits for nothing.
  return check(driver_.stream_synchronize(stream_), "reset");
}

Status CudaRank::enqueue_handed() {
  if (!nccl_) return {};
  MACO_TRY(make_current());
  return nccl_->enqueue((placed_.empty() ? tensors_ : placed_).data(), device(launch_.arena),
                        launch_.values);
}

Status CudaRank::start(cuda::Function function, size_t shared, bool cooperative,
                       cuda::Stream stream) {
  void* arguments[] = {&launch_};
  const unsigned grid = static_cast<unsigned>(manifest_.ctas),
                 block = static_cast<unsigned>(manifest_.threads());
  const unsigned bytes = static_cast<unsigned>(shared);
  return check(
      cooperative
          ? driver_.launch_cooperative(function, grid, 1, 1, block, 1, 1, bytes, stream, arguments)
          : driver_.launch(function, grid, 1, 1, block, 1, 1, bytes, stream, arguments, nullptr),
      "launch the kernel");
}

Status CudaRank::start_early(bool cooperative, cuda::Stream stream) {
  cuda::LaunchAttribute attributes[2];
  attributes[0].id = cuda::kLaunchProgrammatic;
  attributes[1].id = cuda::kLaunchCooperative;
  attributes[0].value = attributes[1].value = 1;
  cuda::LaunchShape shape;
  shape.grid[0] = static_cast<unsigned>(manifest_.ctas);
  shape.block[0] = static_cast<unsigned>(manifest_.threads());
  shape.shared_bytes = static_cast<unsigned>(manifest_.shared_bytes);
  shape.stream = stream;
  shape.attributes = attributes;
  shape.attribute_count = cooperative ? 2 : 1;
  void* arguments[] = {&launch_};
  return check(driver_.launch_shape(&shape, kernel_, arguments, nullptr), "launch the kernel");
}

void CudaRank::set_values(const std::vector<int32_t>& values) {
  std::memset(launch_.values, 0, sizeof launch_.values);
  std::copy(values.begin(), values.end(), launch_.values);
}

Status CudaRank::number(uint32_t epoch, uint32_t left) {
  MACO_TRY(make_current());
  LaunchState state{};
  state.epoch = epoch - 1;
  state.left = left;
  const std::vector<LaunchState> states(ctas(), state);
  MACO_TRY(
      check(driver_.to_device(states_, states.data(), states.size() * sizeof(LaunchState), stream_),
            "number launches"));
  MACO_TRY(check(driver_.stream_synchronize(stream_), "number launches"));
  launch_.state = pointer<LaunchState>(states_);
  return {};
}

Status CudaRank::read_left(uint32_t& left) {
  MACO_TRY(make_current());
  LaunchState state{};
  MACO_TRY(check(driver_.to_host(&state, states_, sizeof state, stream_), "count launches"));
  MACO_TRY(check(driver_.stream_synchronize(stream_), "count launches"));
  left = state.left;
  return {};
}

void CudaRank::set_variables(const std::vector<LaunchVariable>& variables) {
  launch_.variables = given_to_launches(variables);
}

Status CudaRank::start_kernel(cuda::Stream stream) {
  // Cooperative launches of several kernels on one GPU may be run one after the other, but these
  // wait for each other. check_residency has counted all of them.
  const bool cooperative = device_.cooperative && sharing_ == 1;
  const auto shared = static_cast<size_t>(manifest_.shared_bytes);
  return launch_.state && early_ ? start_early(cooperative, stream)
                                 : start(kernel_, shared, cooperative, stream);
}

Status CudaRank::enqueue(uint32_t epoch, cuda::Event begin, cuda::Event end) {
  MACO_TRY(make_current());
  launch_.epoch = epoch;
  if (begin) MACO_TRY(check(driver_.event_record(begin, stream_), "record an event"));
  MACO_TRY(start_kernel(stream_));
  if (end) MACO_TRY(check(driver_.event_record(end, stream_), "record an event"));
  return {};
}

void CudaRank::enqueue_gate(cuda::DevicePtr gate, uint32_t value) {
  if (make_current()) driver_.stream_wait_value(stream_, gate, value, cuda::kWaitGeq);
}

template <class Query>
Status CudaRank::wait_until(const std::atomic<bool>& give_up, Query query) {
  MACO_TRY(make_current());
  const auto start = Clock::now();
  while (true) {
    const cuda::Result result = query();
    if (result == cuda::kSuccess) return {};
    if (result != cuda::kNotReady) return check(result, "run the kernel");
    if (give_up.load(std::memory_order_relaxed))
      return Status::failure(
          fmt::format("rank {} on GPU {}: the kernel does not return, not even when told to stop",
                      rank_, device_.index));
    const auto waited = Clock::now() - start;
    if (waited < milliseconds(5))
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(waited < milliseconds(200) ? std::chrono::microseconds(50)
                                                             : milliseconds(1));
  }
}

Status CudaRank::wait(const std::atomic<bool>& give_up) {
  return wait_until(give_up, [&] { return driver_.stream_query(stream_); });
}

std::span<const cuda::DevicePtr> CudaRank::with_places(TensorPlaces places, size_t here) {
  placed_ = tensors_;
  for (const TensorPlace& place : places)
    placed_[place.tensor] = reinterpret_cast<cuda::DevicePtr>(place.at[here]);
  return placed_;
}

Status CudaRank::start_with(const TensorTables::Table& table, cuda::Stream stream) {
  void** const tensors = std::exchange(launch_.tensors, pointer<void*>(table.tensors));
  const TensorMap* const maps = std::exchange(launch_.maps, pointer<TensorMap>(table.maps));
  const Status started = start_kernel(stream);
  launch_.tensors = tensors;
  launch_.maps = maps;
  return started;
}

Status CudaRank::enqueue_on(cuda::Stream stream, uint32_t epoch, TensorPlaces places, size_t here) {
  MACO_TRY(make_current());
  // Launches share counters and temporaries, whichever streams they are on. A single stream orders
  // them. Handles of destroyed streams may be reused; their ids aren't.
  uint64_t id = 0;
  MACO_TRY(check(driver_.stream_id(stream, &id), "ask a stream"));
  if (!last_)
    MACO_TRY(check(driver_.event_create(&last_, cuda::kEventNoTiming), "make an event"));
  else if (id != last_stream_)
    MACO_TRY(check(driver_.stream_wait_event(stream, last_, 0), "order launches"));
  last_stream_ = id;
  launch_.epoch = epoch;
  if (places.empty()) {
    placed_.clear();
    MACO_TRY(start_kernel(stream));
  } else {
    if (!tables_)
      tables_ = std::make_unique<TensorTables>(driver_, manifest_, device(launch_.arena));
    TensorTables::Table table;
    MACO_TRY(of_rank(tables_->at(with_places(places, here), stream, table)));
    MACO_TRY(start_with(table, stream));
  }
  return check(driver_.event_record(last_, stream), "record an event");
}

Status CudaRank::capture_on(cuda::Stream stream, TensorPlaces places, size_t here) {
  MACO_TRY(make_current());
  if (places.empty()) return start_kernel(stream);
  if (!tables_) tables_ = std::make_unique<TensorTables>(driver_, manifest_, device(launch_.arena));
  TensorTables::Table table;
  MACO_TRY(of_rank(tables_->fixed(with_places(places, here), stream_, table)));
  return start_with(table, stream);
}

Status CudaRank::is_capturing(cuda::Stream stream, bool& capturing) const {
  MACO_TRY(make_current());
  int state = 0;
  MACO_TRY(check(driver_.stream_capturing(stream, &state), "ask a stream"));
  capturing = state != 0;
  return {};
}

Status CudaRank::synchronize() const {
  MACO_TRY(make_current());
  return check(driver_.context_synchronize(), "run the kernel");
}

Status CudaRank::wait_for_last(const std::atomic<bool>& give_up) {
  if (!last_) return {};
  return wait_until(give_up, [&] { return driver_.event_query(last_); });
}

Status CudaRank::last_ended(bool& ended) {
  ended = true;
  if (!last_) return {};
  MACO_TRY(make_current());
  const cuda::Result result = driver_.event_query(last_);
  ended = result != cuda::kNotReady;
  return ended ? check(result, "run the kernel") : Status{};
}

cuda::Result CudaRank::make_events(size_t count) {
  if (cuda::Result r = driver_.context_set(context_); r != cuda::kSuccess) return r;
  while (events_.size() < count) {
    cuda::Event event = nullptr;
    if (cuda::Result r = driver_.event_create(&event, 0); r != cuda::kSuccess) return r;
    events_.push_back(event);
  }
  return cuda::kSuccess;
}

bool CudaRank::side_done() {
  for (const auto start = Clock::now(); Clock::now() - start < milliseconds(500);) {
    const cuda::Result result = driver_.stream_query(side_);
    if (result != cuda::kNotReady) return result == cuda::kSuccess;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return false;
}

bool CudaRank::read_heartbeat(uint32_t& heartbeat) {
  if (!make_current() || driver_.stream_query(side_) != cuda::kSuccess) return false;
  heartbeat = 0;
  for (const cuda::DevicePtr control : controls_) {
    if (driver_.to_host(words_, control + offsetof(Control, heartbeat), sizeof(u32), side_) !=
            cuda::kSuccess ||
        !side_done())
      return false;
    heartbeat += words_[0];
  }
  return true;
}

void CudaRank::write_abort(int rank) {
  if (!make_current()) return;
  words_[1] = static_cast<uint32_t>(rank) + 1;
  for (const cuda::DevicePtr control : controls_)
    driver_.to_device(control + offsetof(Control, abort), words_ + 1, sizeof(u32), side_);
}

Status CudaRank::settle() const {
  MACO_TRY(make_current());
  return check(driver_.stream_synchronize(side_), "stop the kernel");
}

}  // namespace maco::runtime
