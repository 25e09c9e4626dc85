// What kernels read to find tensors: a pointer for each tensor, and a tensor map for each matrix,
// in device memory.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/host/abi.h"
#include "runtime/host/driver.h"

namespace maco::runtime {

/// Encodes map `i` of the manifest, of a tensor or temporary at `base`.
Status encode_map(const cuda::Driver& driver, const ir::Manifest& manifest, size_t i,
                  cuda::DevicePtr base, TensorMap& map);

/// Tables for launches with tensors at other addresses than the bound ones. The tables of the last
/// launches stay in device memory: a launch copies nothing if its tensors lie where those of one of
/// these launches did.
///
/// For one rank, whose context is current in all calls. Not thread safe.
class TensorTables {
 public:
  struct Table {
    cuda::DevicePtr tensors = 0, maps = 0;
  };
  /// How many tables stay; for captured launches all stay.
  static constexpr size_t kKept = 16;

  /// The driver and the manifest must outlive the object. `arena`: the address of temporaries.
  TensorTables(const cuda::Driver& driver, const ir::Manifest& manifest, cuda::DevicePtr arena);
  ~TensorTables();
  TensorTables(const TensorTables&) = delete;
  TensorTables& operator=(const TensorTables&) = delete;

  /// The table for these addresses, one for each tensor of the manifest, for launches on `stream`
  /// from here on; a copy is put before them there. `stream` must be behind all earlier launches
  /// that use tables.
  Status at(std::span<const cuda::DevicePtr> tensors, cuda::Stream stream, Table& table);
  /// A table that doesn't change, for a launch that is being captured. `own`: a stream that isn't
  /// being captured; waits for the copy.
  Status fixed(std::span<const cuda::DevicePtr> tensors, cuda::Stream own, Table& table);

 private:
  struct Slot;
  Status make_slot(std::unique_ptr<Slot>& slot) const;
  /// Writes the host's copy.
  Status fill(Slot& slot, std::span<const cuda::DevicePtr> tensors) const;
  Status copy(Slot& slot, cuda::Stream stream) const;
  Table table_of(const Slot& slot) const;
  size_t bytes() const;

  const cuda::Driver& driver_;
  const ir::Manifest& manifest_;
  const cuda::DevicePtr arena_;
  uint64_t launches_ = 0;
  std::vector<std::unique_ptr<Slot>> slots_, fixed_;
};

}  // namespace maco::runtime
