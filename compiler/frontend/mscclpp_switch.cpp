// mscclpp_switch.cpp: operations of a plan through switch channels, on all ranks of a group at
// once.

#include "compiler/frontend/mscclpp_reader.h"

#include <utility>

namespace maco::frontend::mscclpp {

namespace {

using Kind = ChunkStatement::Kind;

}  // namespace

std::optional<std::vector<ChunkRef>> OpsReader::group_refs(const Raw& where, const char* index_key,
                                                           const Raw& id, const Block& block,
                                                           const Raw& op) {
  const auto group = values_.number(id, "the number of a switch channel", 0,
                                    static_cast<int64_t>(block.groups.size()) - 1);
  if (!group || !block.groups[index(*group)].sound) return std::nullopt;
  const Group& g = block.groups[index(*group)];
  if (where.find("buffer_type") != nullptr) {
    const auto buffer = values_.buffer(where, "buffer_type");
    if (!buffer) return std::nullopt;
    if (*buffer != g.buffer) {
      values_.error(op.loc, fmt::format("{} is about the {}, but its channel is of the {}",
                                        quoted(op), kBufferWords[static_cast<size_t>(*buffer)],
                                        kBufferWords[static_cast<size_t>(g.buffer)]));
      return std::nullopt;
    }
  }
  std::vector<ChunkRef> refs;
  for (int32_t rank : g.ranks) {
    ChunkRef ref;
    ref.buffer = g.buffer;
    ref.rank = rank;
    if (!read_chunks(where, index_key, ref)) return std::nullopt;
    refs.push_back(ref);
  }
  return refs;
}

std::optional<std::vector<ChunkRef>> OpsReader::group_side(const Raw& op, const char* key,
                                                           const Block& block) {
  const Raw* list = values_.required(op, key, Raw::Kind::List);
  if (list == nullptr || !of_number(op, key, list->list.size(), 1, 1)) return std::nullopt;
  const Raw& entry = list->list[0];
  if (!values_.object(entry, "an entry of 'src_buff' or 'dst_buff'")) return std::nullopt;
  const Raw* id = values_.required(entry, "switch_channel_id", Raw::Kind::Int);
  if (id == nullptr) return std::nullopt;
  return group_refs(entry, "index", *id, block, op);
}

std::optional<std::vector<ChunkRef>> OpsReader::group_offset(const Raw& op, const Block& block) {
  const Raw* ids = values_.required(op, "channel_ids", Raw::Kind::List);
  if (ids == nullptr || !of_number(op, "channel_ids", ids->list.size(), 1, 1)) return std::nullopt;
  return group_refs(op, "buffer_offset", ids->list[0], block, op);
}

std::optional<ChunkRef> OpsReader::lone_chunk(const Raw& op, const char* key) {
  const Raw* raw = values_.required(op, key, Raw::Kind::Map);
  if (raw == nullptr || !values_.object(*raw, fmt::format("'{}'", key))) return std::nullopt;
  ChunkRef ref;
  const auto rank = values_.integer(*raw, "rank", 0, world() - 1);
  const auto buffer = values_.buffer(*raw, "type");
  if (!rank || !buffer) return std::nullopt;
  ref.rank = static_cast<int32_t>(*rank);
  ref.buffer = *buffer;
  if (!read_chunks(*raw, "index", ref)) return std::nullopt;
  return ref;
}

void OpsReader::group_reduce(const Raw& op, Op kind, const Block& block, const Loop* loop,
                             Statements& out) {
  if (!read_reduce_op(op)) return;
  std::optional<std::vector<ChunkRef>> from, to;
  if (kind == Op::GroupLoadReduceStore) {
    from = group_side(op, "src_buff", block);
    to = group_side(op, "dst_buff", block);
  } else {
    from = group_offset(op, block);
    if (const auto chunk = lone_chunk(op, "dst_chunk")) to = {*chunk};
  }
  if (!from || !to || !of_one_size(op, *from, *to) || !fits_loop(op, loop, (*to)[0].count)) return;
  ChunkStatement s;
  s.kind = Kind::Reduce;
  s.from = std::move(*from);
  s.to = std::move(*to);
  if (s.from.size() == 1) {
    // A group of one rank.
    send(std::vector<ChunkRef>(s.to), with_source(s.from[0], false), block, op, loop, out);
    return;
  }
  add(out, std::move(s), op, loop);
}

void OpsReader::group_store(const Raw& op, Op kind, const Block& block, const Loop* loop,
                            Statements& out) {
  std::optional<ChunkRef> from;
  std::optional<std::vector<ChunkRef>> to;
  const bool packets = kind == Op::GroupStorePackets;
  if (op.find("src_chunk") != nullptr) {
    from = lone_chunk(op, "src_chunk");
    to = group_offset(op, block);
    if (from && from->rank != block.rank) {
      values_.error(op.find("src_chunk")->loc,
                    fmt::format("{} must have a source of its own rank {}, found one of {}",
                                quoted(op), block.rank, from->rank));
      return;
    }
  } else {
    const auto own =
        read_refs(op, "src_buff", block, Channel::Memory, [](size_t) { return Side::Own; });
    if (own && of_number(op, "src_buff", own->size(), 1, 1)) from = (*own)[0];
    to = group_side(op, "dst_buff", block);
  }
  if (!from || !to || !of_one_size(op, {*from}, *to) || (packets && !outside_loop(op, loop)) ||
      !fits_loop(op, loop, from->count))
    return;
  if (packets) {
    from->packets = true;
    if (!in_scratch(op, *from)) return;
    for (ChunkRef& r : *to) {
      if (!in_scratch(op, r)) return;
      r.packets = true;
    }
  }
  send(*to, with_source(*from, packets), block, op, loop, out);
}

ChunkStatement OpsReader::with_source(const ChunkRef& from, bool packets) {
  ChunkStatement s;
  s.from = {from};
  s.packets = packets;
  return s;
}

}  // namespace maco::frontend::mscclpp
