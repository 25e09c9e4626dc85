// mscclpp_ranks.cpp: reads what each rank has, and finds numbers on which both ends of a channel
// and all ranks agree.

#include "compiler/frontend/mscclpp_ranks.h"

#include <algorithm>
#include <map>

#include "ir/ranks.h"

namespace maco::frontend::mscclpp {

namespace {

class RanksReader {
 public:
  RanksReader(Values& values, ChunkProgram& program) : values_(values), program_(program) {}

  std::vector<Gpu> run(const Raw& gpus) {
    if (gpus.list.empty() || gpus.list.size() > index(ir::kMaxWorld)) {
      values_.error(gpus.loc, fmt::format("a plan must be for 1 to {} ranks, found {}",
                                          ir::kMaxWorld, gpus.list.size()));
      return {};
    }
    gpus_.resize(gpus.list.size());
    program_.world = world();
    for (size_t r = 0; r < gpus_.size(); ++r) read_gpu(gpus.list[r], static_cast<int32_t>(r));
    for (const Gpu& g : gpus_) program_.scratch = std::max(program_.scratch, g.chunks[2]);
    number_channels();
    number_semaphores();
    return std::move(gpus_);
  }

 private:
  int32_t world() const { return static_cast<int32_t>(gpus_.size()); }

  void read_gpu(const Raw& raw, int32_t rank) {
    Gpu& gpu = gpus_[index(rank)];
    if (!values_.object(raw, "an entry of 'gpus'")) return;
    if (const auto id = values_.integer(raw, "id", 0, ir::kMaxWorld - 1); id && *id != rank)
      values_.error(raw.find("id")->loc,
                    fmt::format("the entries of 'gpus' must be in the order of ranks: 'id' must be "
                                "{}, found {}",
                                rank, *id));
    const auto input = values_.integer(raw, "input_chunks", 1, kMaxChunks);
    auto output = values_.integer(raw, "output_chunks", program_.in_place ? 0 : 1, kMaxChunks);
    // In place, a plan may count the chunks of only one buffer.
    if (output == 0 && program_.of != "allgather" && program_.of != "reduce_scatter")
      output = input;
    const auto scratch = values_.integer(raw, "scratch_chunks", 0, kMaxChunks);
    read_channels(raw, rank, gpu);
    read_remote(raw, rank, gpu);
    if (const Raw* list = values_.optional(raw, "semaphores", Raw::Kind::List))
      for (const Raw& s : list->list)
        gpu.semaphores.push_back(values_.object(s, "an entry of 'semaphores'")
                                     ? values_.integer(s, "init_value", 0, INT32_MAX).value_or(0)
                                     : 0);
    if (!input || !output || !scratch) return;
    gpu.chunks = {*input, *output, *scratch};
    gpu.raw = &raw;
  }

  /// Reads a rank other than `rank`.
  std::optional<int32_t> peer(const Raw& raw, const char* what, int32_t rank) {
    const auto peer = values_.number(raw, what, 0, world() - 1);
    if (peer && *peer == rank) {
      values_.error(raw.loc, fmt::format("{} is rank {} itself", what, rank));
      return std::nullopt;
    }
    if (!peer) return std::nullopt;
    return static_cast<int32_t>(*peer);
  }

  void read_channels(const Raw& raw, int32_t rank, Gpu& gpu) {
    const Raw* list = values_.required(raw, "channels", Raw::Kind::List);
    if (list == nullptr) return;
    for (const Raw& entry : list->list) {
      if (!values_.object(entry, "an entry of 'channels'")) continue;
      const auto type = values_.channel_type(entry, "channel_type");
      if (!type) continue;
      if (*type == Channel::Switch) {
        const auto buffer = values_.buffer(entry, "buffer_type");
        const Raw* groups = values_.required(entry, "rank_groups", Raw::Kind::List);
        if (groups == nullptr) continue;
        for (const Raw& g : groups->list) {
          Group group = read_group(g, rank);
          group.buffer = buffer.value_or(ChunkBuffer::Input);
          group.sound = group.sound && buffer;
          gpu.groups.push_back(std::move(group));
        }
      } else if (const Raw* peers = values_.required(entry, "connected_to", Raw::Kind::List)) {
        for (const Raw& p : peers->list) {
          const auto other = peer(p, "an entry of 'connected_to'", rank);
          gpu.channels[static_cast<size_t>(*type)].push_back(
              {other.value_or(0), 0, other.has_value()});
        }
      }
    }
  }

  Group read_group(const Raw& raw, int32_t rank) {
    Group group;
    group.sound = false;
    if (!values_.object(raw, "an entry of 'rank_groups'")) return group;
    const Raw* ranks = values_.required(raw, "ranks", Raw::Kind::List);
    if (ranks == nullptr) return group;
    for (const Raw& r : ranks->list) {
      const auto member = values_.number(r, "an entry of 'ranks'", 0, world() - 1);
      if (!member) return group;
      if (std::find(group.ranks.begin(), group.ranks.end(), *member) != group.ranks.end()) {
        values_.error(r.loc, fmt::format("rank {} is in the group twice", *member));
        return group;
      }
      group.ranks.push_back(static_cast<int32_t>(*member));
    }
    const auto self = std::find(group.ranks.begin(), group.ranks.end(), rank);
    if (self == group.ranks.end()) {
      values_.error(ranks->loc, fmt::format("rank {} has a switch channel of a group that it isn't "
                                            "in",
                                            rank));
      return group;
    }
    // Groups are equal on all ranks except for a rotation; the order has no meaning to a switch.
    std::rotate(group.ranks.begin(), self, group.ranks.end());
    group.sound = true;
    return group;
  }

  void read_remote(const Raw& raw, int32_t rank, Gpu& gpu) {
    const Raw* list = values_.required(raw, "remote_buffers", Raw::Kind::List);
    if (list == nullptr) return;
    for (const Raw& entry : list->list) {
      Memory& memory = gpu.remote.emplace_back();
      memory.sound = false;
      if (!values_.object(entry, "an entry of 'remote_buffers'")) continue;
      const Raw* owner = values_.required(entry, "rank", Raw::Kind::Int);
      const auto other = owner ? peer(*owner, "'rank' of a remote buffer", rank) : std::nullopt;
      const auto buffer = values_.buffer(entry, "type");
      const Raw* types = values_.required(entry, "access_channel_types", Raw::Kind::List);
      if (!other || !buffer || types == nullptr) continue;
      memory = {*other, *buffer, false, false, true};
      for (const Raw& t : types->list)
        if (const auto type = values_.channel(t, "an entry of 'access_channel_types'")) {
          memory.by_memory = memory.by_memory || *type == Channel::Memory;
          memory.by_port = memory.by_port || *type == Channel::Port;
        }
    }
  }

  /// A rank's n-th memory channel to a peer is connected to the peer's n-th memory channel to the
  /// rank. Port channels are counted behind the memory channels of either side.
  void number_channels() {
    const size_t n = gpus_.size();
    std::vector<std::vector<int64_t>> memory(n, std::vector<int64_t>(n, 0)), port = memory;
    for (size_t r = 0; r < n; ++r)
      for (Link& link : gpus_[r].channels[0])
        if (link.sound) link.tag = memory[r][index(link.peer)]++;
    for (size_t r = 0; r < n; ++r)
      for (Link& link : gpus_[r].channels[1])
        if (const size_t p = index(link.peer); link.sound)
          link.tag = std::max(memory[r][p], memory[p][r]) + port[r][p]++;
  }

  /// In a plan each rank numbers its own semaphores; here the numbers and first values are the same
  /// on all ranks. If the ranks agree, nothing changes.
  void number_semaphores() {
    std::vector<int64_t>& all = program_.semaphores;
    bool agree = true;
    for (const Gpu& g : gpus_)
      for (size_t i = 0; i < g.semaphores.size(); ++i) {
        if (i == all.size()) all.push_back(g.semaphores[i]);
        agree = agree && all[i] == g.semaphores[i];
      }
    if (!agree) {
      // For each first value, as many semaphores as any rank has.
      std::map<int64_t, size_t> most;
      for (const Gpu& g : gpus_) {
        std::map<int64_t, size_t> count;
        for (int64_t value : g.semaphores) most[value] = std::max(most[value], ++count[value]);
      }
      all.clear();
      for (const auto& [value, count] : most) all.insert(all.end(), count, value);
    }
    for (Gpu& g : gpus_) {
      std::map<int64_t, size_t> next;
      for (size_t i = 0; i < g.semaphores.size(); ++i) {
        size_t number = i;
        if (!agree) {
          const auto from = all.begin() + static_cast<std::ptrdiff_t>(next[g.semaphores[i]]);
          number = static_cast<size_t>(std::find(from, all.end(), g.semaphores[i]) - all.begin());
          next[g.semaphores[i]] = number + 1;
        }
        g.semaphore_numbers.push_back(number);
      }
    }
  }

  Values& values_;
  ChunkProgram& program_;
  std::vector<Gpu> gpus_;
};

}  // namespace

std::vector<Gpu> read_ranks(const Raw& gpus, Values& values, ChunkProgram& program) {
  return RanksReader(values, program).run(gpus);
}

bool same_memory(const ChunkProgram& program, const std::vector<Gpu>& gpus, ChunkRef a,
                 ChunkRef b) {
  for (ChunkRef* r : {&a, &b}) {
    if (!program.in_place) continue;
    const int64_t output_chunks = gpus[index(r->rank)].chunks[1];
    if (program.of == "reduce_scatter" && r->buffer == ChunkBuffer::Output) {
      r->begin += r->rank * output_chunks;
    } else if (program.of == "allgather") {
      if (r->buffer == ChunkBuffer::Input) r->begin += r->rank * gpus[index(r->rank)].chunks[0];
    }
    if (r->buffer == ChunkBuffer::Output) r->buffer = ChunkBuffer::Input;
  }
  return a.buffer == b.buffer && a.rank == b.rank && a.begin == b.begin && a.count == b.count;
}

}  // namespace maco::frontend::mscclpp
