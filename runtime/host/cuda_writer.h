// Fills tensors on GPUs from a thread of the caller's, with pinned memory and a stream for each
// rank.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "runtime/host/cuda_rank.h"
#include "runtime/host/driver.h"
#include "runtime/host/session.h"

namespace maco::runtime {

class CudaWriter final : public TensorWriter {
 public:
  /// `first`: the first rank of this process. `driver` must outlive the object, and so must the
  /// ranks, which are added in order.
  CudaWriter(const cuda::Driver& driver, int first) : driver_(driver), first_(first) {}
  ~CudaWriter() override;
  CudaWriter(const CudaWriter&) = delete;
  CudaWriter& operator=(const CudaWriter&) = delete;

  Status add(const CudaRank& rank);
  /// After the last rank was added: allocates two buffers of `bytes` bytes.
  Status allocate(size_t bytes);

  Status staging(std::byte*& memory) override;
  Status write(int rank, size_t tensor, size_t offset, const std::byte* from,
               size_t bytes) override;
  Status finish() override;

 private:
  static constexpr size_t kBuffers = 2;
  struct Lane {
    const CudaRank* rank = nullptr;
    cuda::Stream stream = nullptr;
    std::array<cuda::Event, kBuffers> copied{};  // after the last copy from each buffer
    std::array<bool, kBuffers> pending{};        // whether there was one
  };
  Status use(const Lane& lane) const;
  Status check(cuda::Result result, const Lane& lane, const char* what) const;

  const cuda::Driver& driver_;
  const int first_;
  std::vector<Lane> lanes_;  // one for each rank
  std::byte* memory_ = nullptr;
  size_t bytes_ = 0;              // of a buffer
  size_t buffer_ = kBuffers - 1;  // the last buffer that was given out
};

}  // namespace maco::runtime
