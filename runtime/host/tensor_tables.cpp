#include "runtime/host/tensor_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace maco::runtime {

namespace {

// The host never reads device memory directly.
char* pointer(cuda::DevicePtr p) {
  return reinterpret_cast<char*>(p);  // NOLINT(performance-no-int-to-ptr)
}

}  // namespace

Status encode_map(const cuda::Driver& driver, const ir::Manifest& manifest, size_t i,
                  cuda::DevicePtr base, TensorMap& map) {
  const ir::ManifestMap& m = manifest.maps[i];
  const auto bytes = static_cast<uint64_t>(ir::size_of(m.dtype));
  const auto cols = static_cast<uint64_t>(m.cols), box_cols = static_cast<uint64_t>(m.box_cols);
  // A box has at most 256 elements a row: long rows are described as runs of 8 bytes.
  const bool lines = m.lines();
  const uint64_t unit = lines ? bytes : sizeof(uint64_t);
  // Runs are an axis of their own.
  const bool runs = m.run > 0;
  const uint64_t run = runs ? static_cast<uint64_t>(m.run) : cols;
  const auto rows = static_cast<uint64_t>(m.rows), row = cols * bytes;
  const auto box_row = static_cast<uint32_t>(box_cols * bytes / unit),
             box_rows = static_cast<uint32_t>(m.box_rows);
  const uint64_t extents[] = {run * bytes / unit, runs ? cols / run : rows, rows},
                 pitch[] = {runs ? run * bytes : row, row};
  const uint32_t box[] = {box_row, runs ? 1 : box_rows, box_rows}, every[] = {1, 1, 1};
  const int type = !lines                       ? cuda::kMapU64
                   : m.dtype == ir::DType::BF16 ? cuda::kMapBf16
                   : m.dtype == ir::DType::F16  ? cuda::kMapF16
                   : bytes == 4                 ? cuda::kMapU32
                                                : cuda::kMapU8;
  return driver.check(
      driver.map_encode(&map, type, runs ? 3 : 2,
                        pointer(base + static_cast<cuda::DevicePtr>(m.offset)), extents, pitch, box,
                        every, 0, lines ? cuda::kMapSwizzle128 : cuda::kMapSwizzleNone,
                        cuda::kMapL2Promotion256, 0),
      fmt::format("describe a matrix of {} x {} elements", m.rows, m.cols));
}

// Maps, which are aligned to 64 bytes, with pointers behind them: on the device, and in the host
// memory from which they are copied.
struct TensorTables::Slot {
  explicit Slot(const cuda::Driver& d) : driver(d) {}
  ~Slot() {
    if (copied) driver.event_destroy(copied);
    if (device) driver.free(device);
    if (host) driver.host_free(host);
  }
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;

  const cuda::Driver& driver;
  cuda::DevicePtr device = 0;
  char* host = nullptr;
  cuda::Event copied = nullptr;          // after the last copy from `host`
  std::vector<cuda::DevicePtr> tensors;  // the addresses that it has; empty: none yet
  uint64_t used = 0;                     // the number of the last launch that used it
};

TensorTables::TensorTables(const cuda::Driver& driver, const ir::Manifest& manifest,
                           cuda::DevicePtr arena)
    : driver_(driver), manifest_(manifest), arena_(arena) {}
TensorTables::~TensorTables() = default;

size_t TensorTables::bytes() const {
  return manifest_.maps.size() * sizeof(TensorMap) +
         manifest_.tensors.size() * sizeof(cuda::DevicePtr);
}

TensorTables::Table TensorTables::table_of(const Slot& slot) const {
  return {slot.device + manifest_.maps.size() * sizeof(TensorMap), slot.device};
}

Status TensorTables::make_slot(std::unique_ptr<Slot>& slot) const {
  auto made = std::make_unique<Slot>(driver_);
  const size_t all = std::max<size_t>(bytes(), 1);
  MACO_TRY(driver_.check(driver_.allocate(&made->device, all),
                         fmt::format("allocate {} bytes for the tensors' addresses", all)));
  void* host = nullptr;
  MACO_TRY(driver_.check(driver_.host_allocate(&host, all, cuda::kHostPortable),
                         "allocate host memory"));
  made->host = static_cast<char*>(host);
  MACO_TRY(
      driver_.check(driver_.event_create(&made->copied, cuda::kEventNoTiming), "make an event"));
  slot = std::move(made);
  return {};
}

Status TensorTables::fill(Slot& slot, std::span<const cuda::DevicePtr> tensors) const {
  for (size_t i = 0; i < manifest_.maps.size(); ++i) {
    const int64_t tensor = manifest_.maps[i].tensor;
    const cuda::DevicePtr base = tensor < 0 ? arena_ : tensors[static_cast<size_t>(tensor)];
    const bool same =
        !slot.tensors.empty() && (tensor < 0 || slot.tensors[static_cast<size_t>(tensor)] == base);
    if (same) continue;
    TensorMap map;
    MACO_TRY(encode_map(driver_, manifest_, i, base, map));
    std::memcpy(slot.host + i * sizeof map, &map, sizeof map);
  }
  std::memcpy(slot.host + manifest_.maps.size() * sizeof(TensorMap), tensors.data(),
              tensors.size_bytes());
  slot.tensors.assign(tensors.begin(), tensors.end());
  return {};
}

Status TensorTables::copy(Slot& slot, cuda::Stream stream) const {
  MACO_TRY(driver_.check(driver_.to_device(slot.device, slot.host, bytes(), stream), "copy"));
  return driver_.check(driver_.event_record(slot.copied, stream), "record an event");
}

Status TensorTables::at(std::span<const cuda::DevicePtr> tensors, cuda::Stream stream,
                        Table& table) {
  ++launches_;
  Slot* oldest = nullptr;
  for (const auto& slot : slots_) {
    if (std::equal(tensors.begin(), tensors.end(), slot->tensors.begin(), slot->tensors.end())) {
      slot->used = launches_;
      table = table_of(*slot);
      return {};
    }
    if (!oldest || slot->used < oldest->used) oldest = slot.get();
  }
  if (slots_.size() < kKept) {
    std::unique_ptr<Slot> made;
    MACO_TRY(make_slot(made));
    slots_.push_back(std::move(made));
    oldest = slots_.back().get();
  } else {
    // The host's memory is still read if launches stand before the copy.
    MACO_TRY(driver_.check(driver_.event_synchronize(oldest->copied), "wait for a copy"));
  }
  Slot& slot = *oldest;
  if (Status filled = fill(slot, tensors); !filled) {
    slot.tensors.clear();
    return filled;
  }
  if (Status copied = copy(slot, stream); !copied) {
    slot.tensors.clear();
    return copied;
  }
  slot.used = launches_;
  table = table_of(slot);
  return {};
}

Status TensorTables::fixed(std::span<const cuda::DevicePtr> tensors, cuda::Stream own,
                           Table& table) {
  std::unique_ptr<Slot> made;
  MACO_TRY(make_slot(made));
  MACO_TRY(fill(*made, tensors));
  MACO_TRY(copy(*made, own));
  MACO_TRY(driver_.check(driver_.stream_synchronize(own), "copy"));
  fixed_.push_back(std::move(made));
  table = table_of(*fixed_.back());
  return {};
}

}  // namespace maco::runtime
