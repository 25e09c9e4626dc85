#include "runtime/cpu/access.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/cpu/kernel_guard.h"

namespace maco::runtime {
namespace {

constexpr size_t kMostFindings = 8;

// The range that contains all of [begin, end), or the end of the list.
std::vector<ByteRange>::const_iterator holder(const std::vector<ByteRange>& ranges, uintptr_t begin,
                                              uintptr_t end) {
  auto after =
      std::upper_bound(ranges.begin(), ranges.end(), begin,
                       [](uintptr_t at, const ByteRange& range) { return at < range.begin; });
  if (after == ranges.begin()) return ranges.end();
  auto candidate = after - 1;
  return end <= candidate->end ? candidate : ranges.end();
}

// Bytes from one natural row of a packet slot to the next.
int64_t packet_row_bytes(const ir::Buffer& b) {
  return (b.cols * ir::size_of(b.dtype) + 3) / 4 * 8;
}

char* address_of(const ir::Program& program, const std::vector<RankAddresses>& ranks,
                 ir::BufferId id, int rank, uint32_t epoch) {
  const ir::Buffer& buffer = program[id];
  const RankAddresses& addresses = ranks[static_cast<size_t>(rank)];
  switch (buffer.kind) {
    case ir::BufferKind::Temp: return addresses.arena + buffer.offset.value_or(0);
    case ir::BufferKind::Slot:
      return addresses.symmetric + buffer.offset.value_or(0) +
             int64_t{epoch} % buffer.rotation * buffer.copy_bytes();
    default: return addresses.tensors[ir::index(id)];
  }
}

// The rows of a region in a task of `rank`, with the actual rows of its blocks and values.
std::vector<int64_t> rows_of(const ir::Program& program, const ir::Region& region, int rank,
                             const std::vector<int64_t>& values) {
  std::vector<int64_t> rows;
  const auto add = [&](int64_t shift, int64_t end) {
    for (int64_t r = region.r0; r < end; ++r) rows.push_back(shift + r);
  };
  const ir::Block& block = region.block;
  if (!block.any()) {
    add(region.from ? values[*region.from] : 0, region.r1);
    return rows;
  }
  const int64_t height = block.value ? values[*block.value] : block.rows;
  for (int of : ir::resolve(block.ref, rank, static_cast<int>(program.world)))
    add(of * height, block.value ? std::min(region.r1, height) : region.r1);
  return rows;
}

}  // namespace

void merge(std::vector<ByteRange>& ranges) {
  const auto before = [](const ByteRange& a, const ByteRange& b) { return a.begin < b.begin; };
  if (!std::is_sorted(ranges.begin(), ranges.end(), before))
    std::sort(ranges.begin(), ranges.end(), before);
  size_t kept = 0;
  for (const ByteRange& range : ranges) {
    if (kept > 0 && range.begin <= ranges[kept - 1].end) {
      ranges[kept - 1].end = std::max(ranges[kept - 1].end, range.end);
    } else {
      ranges[kept++] = range;
    }
  }
  ranges.resize(kept);
}

void add_ranges(const ir::Program& program, const std::vector<RankAddresses>& ranks,
                const ir::Region& region, int rank, uint32_t epoch,
                const std::vector<ActualSizes>& by_rank, std::vector<ByteRange>& out) {
  const ActualSizes& sizes = by_rank[static_cast<size_t>(rank)];
  const ir::Buffer& buffer = program[region.buffer];
  const int64_t limit = sizes.elements[ir::index(region.buffer)];
  const int64_t size = ir::size_of(buffer.dtype);
  const std::vector<int64_t> rows = rows_of(program, region, rank, sizes.values);
  for (int owner : ir::resolve(region.where, rank, static_cast<int>(program.world))) {
    char* memory = address_of(program, ranks, region.buffer, owner, epoch);
    if (!memory) continue;
    const auto start = reinterpret_cast<uintptr_t>(memory);
    auto add = [&](int64_t begin, int64_t end) {
      const uintptr_t first = start + static_cast<uintptr_t>(begin),
                      last = start + static_cast<uintptr_t>(end);
      if (!out.empty() && out.back().end == first)
        out.back().end = last;
      else
        out.push_back({first, last});
    };
    for (int64_t r : rows) {
      int64_t begin = std::max<int64_t>(r * region.pitch + region.c0, 0);
      const int64_t end = std::min(r * region.pitch + region.c1, limit);
      if (!buffer.packets) {
        if (begin < end) add(begin * size, end * size);
        continue;
      }
      while (begin < end) {
        const int64_t row = begin / buffer.cols;
        const int64_t row_end = std::min(end, (row + 1) * buffer.cols);
        const int64_t at = row * packet_row_bytes(buffer);
        if (buffer.own_packets())
          add(at + (begin - row * buffer.cols) * size * 2,
              at + (row_end - row * buffer.cols) * size * 2);
        else
          add(at + (begin - row * buffer.cols) * size / 4 * 8,
              at + ((row_end - row * buffer.cols) * size + 3) / 4 * 8);
        begin = row_end;
      }
    }
  }
}

std::vector<ActualSizes> actual_sizes(const ir::Program& program, const ir::Lookup& variables) {
  std::vector<ActualSizes> all;
  for (int64_t rank = 0; rank < program.world; ++rank) {
    const auto lookup = [&](std::string_view name) {
      return name == "rank" ? std::optional<int64_t>(rank) : variables(name);
    };
    ActualSizes& sizes = all.emplace_back();
    for (const ir::Buffer& buffer : program.buffers) {
      const ir::EvalResult rows = ir::evaluate(buffer.rows, lookup);
      sizes.elements.push_back(std::min(rows.value.value_or(buffer.max_rows), buffer.max_rows) *
                               buffer.cols);
    }
    for (const ir::Value& value : program.values)
      sizes.values.push_back(ir::evaluate(value.expr, lookup).value.value_or(value.range.hi));
  }
  return all;
}

std::vector<ActualSizes> largest_sizes(const ir::Program& program) {
  return actual_sizes(program, [](std::string_view) { return std::nullopt; });
}

AccessChecker::AccessChecker(const ir::Program& program, std::vector<RankAddresses> ranks,
                             KernelGuard* guard)
    : program_(program), ranks_(std::move(ranks)), streams_(ir::streams(program_)), guard_(guard) {
  const auto add = [&](const char* memory, int64_t bytes) {
    const auto begin = reinterpret_cast<uintptr_t>(memory);
    if (memory && bytes > 0) memory_.push_back({begin, begin + static_cast<uintptr_t>(bytes)});
  };
  for (const RankAddresses& rank : ranks_) {
    add(rank.arena, program_.arena_bytes);
    add(rank.symmetric, program_.symmetric_bytes);
    for (size_t i = 0; i < rank.tensors.size(); ++i)
      add(rank.tensors[i], program_.buffers[i].bytes());
  }
  merge(memory_);
}

void AccessChecker::start(uint32_t epoch, const ir::Lookup& dims) {
  epoch_ = epoch;
  sizes_ = actual_sizes(program_, dims);
  findings_.clear();
  if (guard_) guard_->forget_findings();
  traffic_.assign(program_.calls.size(), {});
}

char* AccessChecker::base(ir::BufferId id, int rank) const {
  return address_of(program_, ranks_, id, rank, epoch_);
}

void AccessChecker::task(CpuContext& context, int place, bool begins) {
  TaskAccess& access = *context.task_access;
  if (begins) {
    access = {};
    const auto& stream = streams_[static_cast<size_t>(context.cta)];
    if (static_cast<size_t>(place) >= stream.size()) return;
    access.place = place;
    const std::vector<ir::Access>& accesses = program_[stream[static_cast<size_t>(place)]].accesses;
    // Others than the kernel also touch what is handed over.
    const bool handed = std::any_of(accesses.begin(), accesses.end(), [&](const ir::Access& a) {
      return program_[a.region.buffer].wire;
    });
    for (const ir::Access& declared : accesses) {
      if (handed) break;
      add_ranges(declared.region, context.rank, access.reads);
      if (declared.writes()) add_ranges(declared.region, context.rank, access.writes);
      if (declared.kind == ir::AccessKind::Write && context.role == 0)
        add_ranges(declared.region, context.rank, access.must);
    }
    merge(access.reads);
    merge(access.writes);
    merge(access.must);
    size_t bytes = 0;
    for (const ByteRange& range : access.must) bytes += range.end - range.begin;
    access.written.assign(bytes, 0);
    if (context.guarded) context.guarded->begin(name_of(context, access));
    return;
  }
  if (context.guarded) context.guarded->end();
  if (access.place >= 0) {
    const std::lock_guard lock(mutex_);
    Traffic& sum = traffic_[ir::index(program_[task_of(context, access)].call)];
    sum.read += access.traffic.read;
    sum.written += access.traffic.written;
    sum.to_peers += access.traffic.to_peers;
  }
  size_t at = 0;
  for (const ByteRange& range : access.must) {
    for (uintptr_t byte = range.begin; byte < range.end; ++byte, ++at) {
      if (access.written[at]) continue;
      found(context, access, byte, "does not write");
      access = {};
      return;
    }
  }
  access = {};
}

void AccessChecker::access(CpuContext& context, const void* address, uint64_t bytes, bool writes) {
  TaskAccess& access = *context.task_access;
  const auto begin = reinterpret_cast<uintptr_t>(address);
  (writes ? access.traffic.written : access.traffic.read) += static_cast<int64_t>(bytes);
  if (writes && is_peers(context, begin)) access.traffic.to_peers += static_cast<int64_t>(bytes);
  const std::vector<ByteRange>& allowed = writes ? access.writes : access.reads;
  if (holder(allowed, begin, begin + bytes) == allowed.end()) {
    // Report the first byte outside.
    uintptr_t byte = begin;
    while (byte + 1 < begin + bytes && holder(allowed, byte, byte + 1) != allowed.end()) ++byte;
    found(context, access, byte, writes ? "writes" : "reads");
    if (guard_ && holder(memory_, begin, begin + bytes) == memory_.end())
      guard_->end(name_of(context, access) + " touches memory of no buffer; the run ends here");
    return;
  }
  if (!writes || access.must.empty()) return;
  size_t at = 0;
  for (const ByteRange& range : access.must) {
    const uintptr_t from = std::max(range.begin, begin),
                    to = std::min<uintptr_t>(range.end, begin + bytes);
    for (uintptr_t byte = from; byte < to; ++byte) access.written[at + (byte - range.begin)] = 1;
    at += range.end - range.begin;
  }
}

bool AccessChecker::touched(CpuContext& context, const void* address, uint64_t bytes, bool writes) {
  const auto begin = reinterpret_cast<uintptr_t>(address);
  if (holder(memory_, begin, begin + bytes) != memory_.end()) {
    access(context, address, bytes, writes);
    return true;
  }
  const auto first = holder(memory_, begin, begin + 1);
  const uintptr_t outside = first == memory_.end() ? begin : first->end;
  std::string place =
      red_zone_ ? red_zone_(reinterpret_cast<const void*>(outside)) : std::string();  // NOLINT
  if (place.empty()) return true;
  found(context, *context.task_access, writes ? "writes" : "reads", [&] { return place; });
  return false;
}

bool AccessChecker::is_peers(const CpuContext& context, uintptr_t address) const {
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    const auto start = reinterpret_cast<uintptr_t>(ranks_[rank].symmetric);
    if (address >= start && address < start + static_cast<uintptr_t>(program_.symmetric_bytes))
      return rank != static_cast<size_t>(context.rank);
  }
  return false;
}

std::string AccessChecker::place_name(uintptr_t address,
                                      const std::vector<ir::BufferId>& operands) const {
  // Temporaries share bytes of the arena: look at the task's own operands first.
  std::vector<ir::BufferId> buffers = operands;
  for (size_t i = 0; i < program_.buffers.size(); ++i)
    buffers.push_back(ir::id_of<ir::BufferId>(i));
  for (const ir::BufferId id : buffers) {
    const ir::Buffer& buffer = program_[id];
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      const auto start = reinterpret_cast<uintptr_t>(base(id, static_cast<int>(rank)));
      if (start == 0 || address < start ||
          address >= start + static_cast<uintptr_t>(buffer.bytes()))
        continue;
      const auto offset = static_cast<int64_t>(address - start);
      const int64_t size = ir::size_of(buffer.dtype);
      int64_t element = offset / size;
      if (buffer.packets) {
        const int64_t row = offset / packet_row_bytes(buffer);
        const int64_t in_row = offset - row * packet_row_bytes(buffer);
        element = row * buffer.cols +
                  (buffer.own_packets() ? in_row / (2 * size) : in_row / 8 * 4 / size);
      }
      return fmt::format("element {} (row {}, column {}) of '{}' on rank {}", element,
                         element / buffer.cols, element % buffer.cols, buffer.name, rank);
    }
  }
  return "memory of no buffer of this launch";
}

std::string AccessChecker::name_of(const CpuContext& context, const TaskAccess& access) const {
  return fmt::format("rank {}, SM {}: {}{}", context.rank, context.cta,
                     access.place < 0 ? "a task that the regions don't know"
                                      : ir::describe(program_, task_of(context, access)),
                     context.role == 1 ? " (loader)" : "");
}

void AccessChecker::found(const CpuContext& context, const TaskAccess& access, uintptr_t address,
                          const char* what) {
  found(context, access, what, [&] {
    std::vector<ir::BufferId> operands;
    if (access.place >= 0) operands = program_[program_[task_of(context, access)].call].operands;
    return place_name(address, operands) + ", which it " +
           (what[0] == 'd' ? "says it does" : "does not declare");
  });
}

void AccessChecker::found(const CpuContext& context, const TaskAccess& access, const char* what,
                          const std::function<std::string()>& rest) {
  const std::lock_guard lock(mutex_);
  if (findings_.size() >= kMostFindings) return;
  const std::string who = fmt::format("{} {} ", name_of(context, access), what);
  for (const std::string& line : findings_) {
    if (line.starts_with(who)) return;  // one line for each task is enough
  }
  findings_.push_back(who + rest());
  if (guard_) guard_->add_finding(findings_.back());
}

std::vector<Traffic> AccessChecker::traffic() const {
  const std::lock_guard lock(mutex_);
  return traffic_;
}

std::string AccessChecker::findings() const {
  const std::lock_guard lock(mutex_);
  std::string out;
  for (const std::string& line : findings_) out += (out.empty() ? "" : "\n") + line;
  return out;
}

}  // namespace maco::runtime
