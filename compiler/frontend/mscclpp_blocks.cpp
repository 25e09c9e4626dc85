// mscclpp_blocks.cpp: the thread blocks of a plan, their lists of channels and memory, and
// barriers.

#include "compiler/frontend/mscclpp_reader.h"

#include <utility>

namespace maco::frontend::mscclpp {

namespace {

using Kind = ChunkStatement::Kind;

}  // namespace

std::string OpsReader::run() {
  program_.ranks.resize(gpus_.size());
  for (size_t r = 0; r < gpus_.size() && !stop(); ++r) read_blocks(static_cast<int32_t>(r));
  return reduce_;
}

void OpsReader::read_blocks(int32_t rank) {
  if (gpu(rank).raw == nullptr) return;
  const Raw* list = values_.required(*gpu(rank).raw, "threadblocks", Raw::Kind::List);
  if (list == nullptr) return;
  if (list->list.size() > index(kMaxBlocks)) {
    values_.error(list->loc, fmt::format("a rank must have at most {} thread blocks, found {}",
                                         kMaxBlocks, list->list.size()));
    return;
  }
  auto& blocks = program_.ranks[index(rank)];
  blocks.resize(list->list.size());
  barriers_.clear();
  for (size_t i = 0; i < blocks.size() && !stop(); ++i)
    read_block(list->list[i], rank, static_cast<int64_t>(i), blocks[i]);
  finish_barriers(rank);
}

void OpsReader::read_block(const Raw& raw, int32_t rank, int64_t id, Statements& out) {
  if (!values_.object(raw, "an entry of 'threadblocks'")) return;
  if (const auto found = values_.integer(raw, "id", 0, kMaxBlocks - 1); found && *found != id)
    values_.error(raw.find("id")->loc, fmt::format("thread blocks must be in the order of their "
                                                   "numbers: 'id' must be {}, found {}",
                                                   id, *found));
  Block block;
  block.rank = rank;
  block.id = id;
  read_block_lists(raw, block);
  const Raw* ops = values_.required(raw, "ops", Raw::Kind::List);
  if (ops == nullptr) return;
  for (const Raw& op : ops->list) {
    if (stop()) return;
    read_op(op, block, nullptr, out);
  }
}

void OpsReader::read_block_lists(const Raw& raw, Block& block) {
  const Gpu& g = gpu(block.rank);
  const auto each_id = [&](const Raw& entry, const char* key, size_t size, const auto& add) {
    const Raw* ids = values_.required(entry, key, Raw::Kind::List);
    if (ids == nullptr) return;
    for (const Raw& id : ids->list)
      add(values_.number(id, fmt::format("an entry of '{}'", key), 0,
                         static_cast<int64_t>(size) - 1));
  };
  if (const Raw* list = values_.optional(raw, "channels", Raw::Kind::List))
    for (const Raw& entry : list->list) {
      if (!values_.object(entry, "an entry of 'channels'")) continue;
      const auto type = values_.channel_type(entry, "channel_type");
      if (!type) continue;
      if (*type == Channel::Switch)
        each_id(entry, "channel_ids", g.groups.size(), [&](std::optional<int64_t> id) {
          block.groups.push_back(id ? g.groups[index(*id)] : Group{{}, {}, false});
        });
      else
        each_id(entry, "channel_ids", g.channels[static_cast<size_t>(*type)].size(),
                [&](std::optional<int64_t> id) {
                  const auto t = static_cast<size_t>(*type);
                  block.channels[t].push_back(id ? g.channels[t][index(*id)] : Link{0, 0, false});
                });
    }
  if (const Raw* list = values_.optional(raw, "remote_buffer_refs", Raw::Kind::List))
    for (const Raw& entry : list->list) {
      if (!values_.object(entry, "an entry of 'remote_buffer_refs'")) continue;
      const auto type = values_.channel_type(entry, "access_channel_type");
      if (!type) continue;
      if (*type == Channel::Switch) {
        values_.error(entry.find("access_channel_type")->loc,
                      "a peer's memory is reached through memory or port channels");
        continue;
      }
      each_id(entry, "remote_buffer_ids", g.remote.size(), [&](std::optional<int64_t> id) {
        Memory memory = id ? g.remote[index(*id)] : Memory{};
        memory.sound = memory.sound && id;
        const bool port = *type == Channel::Port;
        if (memory.sound && !(port ? memory.by_port : memory.by_memory)) {
          values_.error(entry.loc, fmt::format("remote buffer {} isn't reached through {} "
                                               "channels: its 'access_channel_types' don't say "
                                               "so",
                                               *id, port ? "port" : "memory"));
          memory.sound = false;
        }
        block.remote[static_cast<size_t>(*type)].push_back(memory);
      });
    }
}

void OpsReader::finish_barriers(int32_t rank) {
  std::map<size_t, size_t> lists;  // number of the barrier to its list
  for (const auto& [id, barrier] : barriers_) {
    if (static_cast<int64_t>(barrier.uses.size()) != barrier.blocks) {
      values_.error(barrier.loc, fmt::format("barrier {} of rank {} is of {} thread blocks, but "
                                             "{} come to it",
                                             id, rank, barrier.blocks, barrier.uses.size()));
      continue;
    }
    const int64_t uses = barrier.uses.begin()->second;
    std::vector<int64_t> blocks;
    for (const auto& [block, count] : barrier.uses) {
      blocks.push_back(block);
      if (count == uses) continue;
      values_.error(barrier.loc,
                    fmt::format("thread block {} of rank {} comes to barrier {} {} times and "
                                "thread block {} {} times",
                                barrier.uses.begin()->first, rank, id, uses, block, count));
      break;
    }
    refs_ += uses * barrier.blocks * barrier.blocks / 4;
    if (refs_ > kMaxRefs) too_large(barrier.loc);
    program_.block_lists[barrier.list] = std::move(blocks);
  }
  // Equal lists get the same number, so that equal statements are recognized.
  for (Statements& block : program_.ranks[index(rank)])
    for (ChunkStatement& s : block)
      if (s.kind == Kind::Barrier)
        s.blocks = known_lists_.try_emplace(program_.block_lists[s.blocks], s.blocks).first->second;
}

void OpsReader::barrier(const Raw& op, const Block& block, const Loop* loop, Statements& out) {
  const auto id = values_.integer(op, "barrier_id", 0, INT32_MAX);
  const auto blocks = values_.integer(op, "num_threadblocks", 1, kMaxBlocks);
  if (!id || !blocks || *blocks == 1) return;
  const auto [at, is_new] = barriers_.try_emplace(*id);
  Barrier& barrier = at->second;
  if (is_new) {
    barrier.blocks = *blocks;
    barrier.loc = op.loc;
    barrier.list = program_.block_lists.size();
    program_.block_lists.emplace_back();
  } else if (barrier.blocks != *blocks) {
    values_.error(op.loc, fmt::format("barrier {} is of {} thread blocks here and of {} there", *id,
                                      *blocks, barrier.blocks));
    values_.note(barrier.loc, "the other is here");
    return;
  }
  ++barrier.uses[block.id];
  ChunkStatement s;
  s.kind = Kind::Barrier;
  s.blocks = barrier.list;
  add(out, std::move(s), op, loop);
}

}  // namespace maco::frontend::mscclpp
