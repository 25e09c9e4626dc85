#include "runtime/host/cuda_writer.h"

#include <fmt/format.h>

namespace maco::runtime {

CudaWriter::~CudaWriter() {
  for (const Lane& lane : lanes_) {
    if (!use(lane)) continue;
    if (lane.stream) driver_.stream_synchronize(lane.stream);
    for (cuda::Event event : lane.copied)
      if (event) driver_.event_destroy(event);
    if (lane.stream) driver_.stream_destroy(lane.stream);
  }
  if (memory_) driver_.host_free(memory_);
}

Status CudaWriter::check(cuda::Result result, const Lane& lane, const char* what) const {
  if (result == cuda::kSuccess) return {};
  const size_t at = static_cast<size_t>(&lane - lanes_.data());
  Status failed = driver_.check(result, what);
  failed.message = fmt::format("rank {} on GPU {}: {}", first_ + static_cast<int>(at),
                               lane.rank->place().device_index, failed.message);
  return failed;
}

Status CudaWriter::use(const Lane& lane) const {
  return check(driver_.context_set(lane.rank->place().context), lane, "use its context");
}

Status CudaWriter::add(const CudaRank& rank) {
  // Allowed whatever the application captures meanwhile.
  int mode = cuda::kCaptureRelaxed;
  driver_.exchange_capture_mode(&mode);
  Lane& lane = lanes_.emplace_back();
  lane.rank = &rank;
  MACO_TRY(use(lane));
  MACO_TRY(
      check(driver_.stream_create(&lane.stream, cuda::kStreamNonBlocking), lane, "make a stream"));
  for (cuda::Event& event : lane.copied)
    MACO_TRY(check(driver_.event_create(&event, cuda::kEventBlockingSync | cuda::kEventNoTiming),
                   lane, "make an event"));
  return {};
}

Status CudaWriter::allocate(size_t bytes) {
  MACO_TRY(use(lanes_.front()));
  void* memory = nullptr;
  MACO_TRY(check(driver_.host_allocate(&memory, kBuffers * bytes, cuda::kHostPortable),
                 lanes_.front(), "allocate pinned host memory"));
  memory_ = static_cast<std::byte*>(memory);
  bytes_ = bytes;
  return {};
}

Status CudaWriter::staging(std::byte*& memory) {
  buffer_ = (buffer_ + 1) % kBuffers;
  for (Lane& lane : lanes_) {
    if (!lane.pending[buffer_]) continue;
    MACO_TRY(use(lane));
    MACO_TRY(check(driver_.event_synchronize(lane.copied[buffer_]), lane, "copy to the GPU"));
    lane.pending[buffer_] = false;
  }
  memory = memory_ + buffer_ * bytes_;
  return {};
}

Status CudaWriter::write(int rank, size_t tensor, size_t offset, const std::byte* from,
                         size_t bytes) {
  Lane& lane = lanes_[static_cast<size_t>(rank - first_)];
  MACO_TRY(use(lane));
  MACO_TRY(check(driver_.to_device(lane.rank->tensor(tensor) + offset, from, bytes, lane.stream),
                 lane, "copy to the GPU"));
  MACO_TRY(check(driver_.event_record(lane.copied[buffer_], lane.stream), lane, "record an event"));
  lane.pending[buffer_] = true;
  return {};
}

Status CudaWriter::finish() {
  for (const Lane& lane : lanes_) {
    MACO_TRY(use(lane));
    MACO_TRY(check(driver_.stream_synchronize(lane.stream), lane, "copy to the GPU"));
  }
  return {};
}

}  // namespace maco::runtime
