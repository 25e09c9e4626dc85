#include "runtime/cpu/stand_in.h"

#include <algorithm>
#include <cstring>
#include <map>

namespace maco::runtime {
namespace {

using ir::EventKind;

constexpr uint32_t kFirstEpoch = 64;  // a multiple of every rotation: launch 0 has copy 0

uint64_t mix(uint64_t a, uint64_t b) { return Random(a * 0x100000001b3u ^ b).next(); }

class StandIn final : public Steppable {
 public:
  StandIn(const ir::Program& program, std::vector<bool> skip)
      : p_(program), skip_(std::move(skip)), streams_(ir::streams(program)) {
    skip_.resize(p_.tasks.size(), false);
    sizes_ = largest_sizes(p_);
    // Buffers of the same tensor share its memory. Wires lie behind symmetric memory.
    int64_t bytes = p_.arena_bytes + std::max(p_.symmetric_bytes, p_.slots_end());
    std::map<std::string, int64_t> sizes, offsets;
    const auto name = [&](size_t i) {
      const std::string& tensor = p_.buffers[i].tensor;
      return tensor.empty() ? "#" + std::to_string(i) : "'" + tensor;
    };
    // Inputs and params have no memory: nobody writes them, and they may be large.
    const auto of_caller = [](const ir::Buffer& b) {
      return b.kind == ir::BufferKind::State || b.kind == ir::BufferKind::Output;
    };
    for (size_t i = 0; i < p_.buffers.size(); ++i)
      if (of_caller(p_.buffers[i]))
        sizes[name(i)] = std::max(sizes[name(i)], p_.buffers[i].bytes());
    for (const auto& [tensor, size] : sizes) {
      offsets[tensor] = bytes;
      bytes += size;
    }
    std::vector<int64_t> at;
    for (size_t i = 0; i < p_.buffers.size(); ++i)
      at.push_back(of_caller(p_.buffers[i]) ? offsets[name(i)] : -1);
    for (int64_t r = 0; r < p_.world; ++r) {
      memory_.emplace_back(static_cast<size_t>(std::max<int64_t>(bytes, 1)));
      char* base = memory_.back().data();
      RankAddresses& a = addresses_.emplace_back();
      a.arena = base;
      a.symmetric = base + p_.arena_bytes;
      for (int64_t offset : at) a.tensors.push_back(offset < 0 ? nullptr : base + offset);
    }
  }

  std::vector<RankAddresses> addresses(const ir::Program&) override { return addresses_; }
  uint32_t first_epoch() const override { return kFirstEpoch; }

  Status step(int launches, const LaunchValues&, const std::function<void(int, int)>& before,
              const std::function<void(Stepper&)>& drive) override {
    const auto world = static_cast<size_t>(p_.world);
    for (std::vector<char>& memory : memory_) std::fill(memory.begin(), memory.end(), '\0');
    counters_.assign(p_.events.size() * world, 0);
    for (size_t e = 0; e < p_.events.size(); ++e)
      for (size_t r = 0; r < world; ++r)
        counters_[e * world + r] = (kFirstEpoch - 1) * p_.events[e].count;
    words_.assign(p_.events.size() * world * world, kFirstEpoch - 1);
    contexts_.clear();
    launches_.clear();
    const auto open = [&](int rank, int launch, std::vector<CpuContext*>& out) {
      before(rank, launch);
      Launch& l = launches_.emplace_back();
      l.rank = rank;
      l.epoch = kFirstEpoch + static_cast<uint32_t>(launch);
      for (size_t cta = 0; cta < streams_.size(); ++cta) {
        CpuContext& context = contexts_.emplace_back();
        context.rank = rank;
        context.cta = static_cast<int>(cta);
        context.launch = &l;
        out.push_back(&context);
      }
    };
    return with_fibres([&] {
      Stepper stepper(static_cast<int>(p_.world), launches,
                      {[this](CpuContext& context) { run(context); }, [](CpuContext&) {}}, open);
      drive(stepper);
    });
  }

 private:
  void run(CpuContext& context) {
    const std::vector<ir::TaskId>& stream = streams_[static_cast<size_t>(context.cta)];
    for (size_t place = 0; place < stream.size(); ++place) {
      const auto task = static_cast<uint32_t>(index(stream[place]));
      const bool runs = (p_.tasks[task].ranks >> context.rank) & 1;
      if (runs) {
        context.task(&context, static_cast<int>(place), true);
        wait(context, task);
        work(context, task);
        context.task(&context, static_cast<int>(place), false);
      }
      signal(context, task, runs);
    }
  }

  uint32_t& counter(ir::EventId e, int rank) {
    return counters_[index(e) * static_cast<size_t>(p_.world) + static_cast<size_t>(rank)];
  }
  uint32_t& word(ir::EventId e, int on, int source) {
    const auto world = static_cast<size_t>(p_.world);
    return words_[(index(e) * world + static_cast<size_t>(on)) * world +
                  static_cast<size_t>(source)];
  }
  static void poll(CpuContext& context, const uint32_t& seen, uint32_t target) {
    for (unsigned spins = 1; static_cast<int32_t>(seen - target) < 0; ++spins)
      context.pause(&context, &seen, spins);
  }
  // A fibre that pauses may hold nothing on the heap: it may never go on.
  void wait(CpuContext& context, uint32_t task) {
    for (const ir::Wait& w : p_.tasks[task].waits) {
      const ir::Event& e = p_.events[index(w.event)];
      const uint32_t epoch = context.launch->epoch - w.lag;
      if (e.kind == EventKind::Packet && skip_[task]) continue;
      if (is_counter(e.kind)) {
        poll(context, counter(w.event, context.rank), epoch * e.count);
        continue;
      }
      uint64_t sources = 0;
      for (int source : ir::resolve(w.from, context.rank, static_cast<int>(p_.world)))
        sources |= uint64_t{1} << source;
      for (int source = 0; source < p_.world; ++source)
        if ((sources >> source) & 1) poll(context, word(w.event, context.rank, source), epoch);
    }
  }
  void signal(CpuContext& context, uint32_t task, bool runs) {
    for (const ir::Signal& s : p_.tasks[task].signals) {
      if (is_counter(p_.events[index(s.event)].kind)) {
        uint32_t& count = counter(s.event, context.rank);
        ++count;
        context.changed(&context, &count);
        continue;
      }
      if (!runs) continue;
      for (int to : ir::resolve(s.to, context.rank, static_cast<int>(p_.world))) {
        uint32_t& epoch = word(s.event, to, context.rank);
        epoch = context.launch->epoch;
        context.changed(&context, &epoch);
      }
    }
  }

  void work(const CpuContext& context, uint32_t task) {
    uint64_t digest = mix(index(p_.tasks[task].call), p_.tasks[task].tile);
    for (const ir::Access& a : p_.tasks[task].accesses) {
      if (a.writes()) continue;
      const auto kind = p_[a.region.buffer].kind;
      if (kind == ir::BufferKind::Input || kind == ir::BufferKind::Param) {
        digest = mix(digest, static_cast<uint64_t>(context.rank));
        if (kind == ir::BufferKind::Input) digest = mix(digest, context.launch->epoch);
        continue;
      }
      for (const ByteRange& range : ranges(context, a)) digest = read(range, digest);
    }
    for (const ir::Access& a : p_.tasks[task].accesses)
      if (a.writes()) write(ranges(context, a), digest = mix(digest, 1));
  }
  std::vector<ByteRange> ranges(const CpuContext& context, const ir::Access& a) const {
    std::vector<ByteRange> list;
    add_ranges(p_, addresses_, a.region, context.rank, context.launch->epoch, sizes_, list);
    return list;
  }
  // Reads eight bytes at a time, as a Program's tensors may be large.
  static uint64_t read(const ByteRange& range, uint64_t digest) {
    for (uintptr_t at = range.begin; at < range.end; at += 8) {
      uint64_t word = 0;
      std::memcpy(&word, reinterpret_cast<const void*>(at), std::min<size_t>(8, range.end - at));
      digest = (digest ^ word) * 0x9e3779b97f4a7c15u;
      digest ^= digest >> 29;
    }
    return digest;
  }
  static void write(const std::vector<ByteRange>& where, uint64_t digest) {
    Random random(digest);
    for (const ByteRange& range : where)
      for (uintptr_t at = range.begin; at < range.end; at += 8) {
        const uint64_t word = random.next();
        std::memcpy(reinterpret_cast<void*>(at), &word, std::min<size_t>(8, range.end - at));
      }
  }

  const ir::Program p_;
  std::vector<bool> skip_;
  const std::vector<std::vector<ir::TaskId>> streams_;
  std::vector<ActualSizes> sizes_;
  std::vector<std::vector<char>> memory_;  // by rank
  std::vector<RankAddresses> addresses_;
  std::vector<uint32_t> counters_;  // by event and rank
  std::vector<uint32_t> words_;     // by event, rank that waits, and source
  CpuContexts contexts_;
  std::deque<Launch> launches_;
};

}  // namespace

std::unique_ptr<Steppable> make_stand_in(const ir::Program& program, std::vector<bool> skip) {
  return std::make_unique<StandIn>(program, std::move(skip));
}

}  // namespace maco::runtime
