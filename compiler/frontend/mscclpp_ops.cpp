// mscclpp_ops.cpp: turns the operations of a plan into statements.

#include "compiler/frontend/mscclpp_reader.h"

#include <algorithm>
#include <utility>

#include "compiler/frontend/mscclpp_ops.h"

namespace maco::frontend::mscclpp {

namespace {

using Kind = ChunkStatement::Kind;
using Buffer = ChunkBuffer;

const std::map<std::string, Op>& op_names() {
  static const std::map<std::string, Op> names = {{"nop", Op::Nop},
                                                  {"barrier", Op::Barrier},
                                                  {"put", Op::Put},
                                                  {"pws", Op::PutSignal},
                                                  {"pwsf", Op::PutSignalFlush},
                                                  {"ppkt", Op::PutPackets},
                                                  {"rppkt", Op::ReadPutPackets},
                                                  {"get", Op::Get},
                                                  {"copy", Op::Copy},
                                                  {"cpkt", Op::CopyPackets},
                                                  {"upkt", Op::UnpackPackets},
                                                  {"signal", Op::Signal},
                                                  {"wait", Op::Wait},
                                                  {"rlxsignal", Op::RelaxedSignal},
                                                  {"rlxwait", Op::RelaxedWait},
                                                  {"flush", Op::Flush},
                                                  {"re", Op::Reduce},
                                                  {"res", Op::ReduceSend},
                                                  {"rre", Op::ReadReduce},
                                                  {"rres", Op::ReadReduceSend},
                                                  {"repkt", Op::ReducePackets},
                                                  {"respkt", Op::ReduceSendPackets},
                                                  {"recpkt", Op::ReduceCopyPackets},
                                                  {"recspkt", Op::ReduceCopySendPackets},
                                                  {"sem_acquire", Op::Acquire},
                                                  {"sem_release", Op::Release},
                                                  {"pipeline", Op::Pipeline},
                                                  {"glre", Op::GroupLoadReduce},
                                                  {"gstore", Op::GroupStore},
                                                  {"gstorepkt", Op::GroupStorePackets},
                                                  {"glres", Op::GroupLoadReduceStore}};
  return names;
}

}  // namespace

void OpsReader::too_large(ir::Loc loc) {
  if (!full_)
    values_.error(loc, fmt::format("the plan is too large: it must have at most {} operations "
                                   "and {} chunks that they name",
                                   kMaxStatements, kMaxRefs));
  full_ = true;
}

void OpsReader::add(Statements& out, ChunkStatement statement, const Raw& op, const Loop* loop) {
  statement.loc = op.loc;
  statement.unit = loop ? loop->unit : 0;
  if (const Raw* slice = op.find("tbg_info"); slice && !(statement.to.empty())) {
    statement.slice = slice->find("tb_id")->integer;
    statement.slices = slice->find("tbg_size")->integer;
  }
  refs_ += static_cast<int64_t>(statement.to.size() + statement.from.size());
  if (++statements_ > kMaxStatements || refs_ > kMaxRefs) return too_large(op.loc);
  out.push_back(std::move(statement));
}

void OpsReader::read_op(const Raw& raw, const Block& block, const Loop* loop, Statements& out) {
  if (++ops_ > 4 * kMaxStatements) return too_large(raw.loc);
  if (!values_.object(raw, "an operation")) return;
  const Raw* name = values_.required(raw, "name", Raw::Kind::String);
  if (name == nullptr) return;
  const auto found = op_names().find(name->text);
  if (found == op_names().end()) {
    std::vector<std::string> names;
    for (const auto& [known, op] : op_names()) names.push_back(known);
    values_.error(name->loc, fmt::format("unknown operation '{}'{}", name->text,
                                         ir::did_you_mean(name->text, names)));
    return;
  }
  if (raw.find("tbg_info") != nullptr && !read_slice(raw)) return;
  switch (found->second) {
    // Statements of a thread block run in order, and later ones see what they wrote.
    case Op::Nop:
    case Op::Flush: return;
    case Op::Barrier: return barrier(raw, block, loop, out);
    case Op::Put:
    case Op::PutSignal:
    case Op::PutSignalFlush:
    case Op::PutPackets:
    case Op::ReadPutPackets: return put(raw, found->second, block, loop, out);
    case Op::Get: return get(raw, block, loop, out);
    case Op::Copy:
    case Op::CopyPackets:
    case Op::UnpackPackets: return copy(raw, found->second, block, loop, out);
    case Op::Signal:
    case Op::Wait:
    case Op::RelaxedSignal:
    case Op::RelaxedWait: return signal(raw, found->second, block, loop, out);
    case Op::Reduce:
    case Op::ReduceSend:
    case Op::ReadReduce:
    case Op::ReadReduceSend:
    case Op::ReducePackets:
    case Op::ReduceSendPackets:
    case Op::ReduceCopyPackets:
    case Op::ReduceCopySendPackets: return reduce(raw, found->second, block, loop, out);
    case Op::Acquire:
    case Op::Release: return semaphore(raw, found->second, block, loop, out);
    case Op::Pipeline: return pipeline(raw, block, loop, out);
    case Op::GroupLoadReduce:
    case Op::GroupLoadReduceStore: return group_reduce(raw, found->second, block, loop, out);
    case Op::GroupStore:
    case Op::GroupStorePackets: return group_store(raw, found->second, block, loop, out);
  }
}

bool OpsReader::read_slice(const Raw& op) {
  const Raw* raw = values_.optional(op, "tbg_info", Raw::Kind::Map);
  if (raw == nullptr || !values_.object(*raw, "'tbg_info'")) return false;
  const auto size = values_.integer(*raw, "tbg_size", 1, kMaxBlocks);
  return size && values_.integer(*raw, "tb_id", 0, *size - 1);
}

std::optional<Channel> OpsReader::channel_of(const Raw& op, bool required) {
  const Raw* raw = op.find("channel_type");
  if (raw == nullptr && !required) return Channel::Memory;
  if (raw != nullptr && raw->kind == Raw::Kind::String && raw->text == "none" && !required)
    return Channel::Memory;
  const auto type = values_.channel_type(op, "channel_type");
  if (type == Channel::Switch) {
    values_.error(raw->loc, fmt::format("{} can't go through a switch channel", quoted(op)));
    return std::nullopt;
  }
  return type;
}

std::optional<ChunkRef> OpsReader::read_ref(const Raw& raw, const Block& block, Side side,
                                            Channel channel) {
  if (!values_.object(raw, "an entry of 'src_buff' or 'dst_buff'")) return std::nullopt;
  ChunkRef ref;
  if (side == Side::Own) {
    if (raw.find("type") == nullptr && raw.find("buffer_id") != nullptr) {
      values_.error(raw.loc, "this must be memory of the rank itself ('type'), not a peer's");
      return std::nullopt;
    }
    const auto buffer = values_.buffer(raw, "type");
    if (!buffer) return std::nullopt;
    ref.buffer = *buffer;
    ref.rank = block.rank;
  } else {
    if (raw.find("buffer_id") == nullptr && raw.find("type") != nullptr) {
      values_.error(raw.loc, "this must be memory of a peer ('buffer_id'), not the rank's own");
      return std::nullopt;
    }
    const auto& remote = block.remote[static_cast<size_t>(channel)];
    const auto id = values_.integer(raw, "buffer_id", 0, static_cast<int64_t>(remote.size()) - 1);
    if (!id || !remote[index(*id)].sound) return std::nullopt;
    ref.buffer = remote[index(*id)].buffer;
    ref.rank = remote[index(*id)].rank;
  }
  if (!read_chunks(raw, "index", ref)) return std::nullopt;
  return ref;
}

bool OpsReader::read_chunks(const Raw& raw, const char* key, ChunkRef& ref) {
  const auto begin = values_.integer(raw, key, 0, kMaxChunks);
  const auto count = values_.integer(raw, "size", 1, kMaxChunks);
  if (!begin || !count) return false;
  ref.begin = *begin;
  ref.count = *count;
  return within(raw.find(key)->loc, ref);
}

bool OpsReader::within(ir::Loc loc, const ChunkRef& ref) {
  const Gpu& owner = gpu(ref.rank);
  if (owner.raw == nullptr) return false;
  const auto buffer = static_cast<size_t>(ref.buffer);
  if (ref.begin + ref.count <= owner.chunks[buffer]) return true;
  values_.error(loc, fmt::format("chunks {} to {} are past the end of the {} of rank {}, which "
                                 "has {}",
                                 ref.begin, ref.begin + ref.count - 1, kBufferWords[buffer],
                                 ref.rank, owner.chunks[buffer]));
  return false;
}

bool OpsReader::of_number(const Raw& op, const char* key, size_t found, size_t low, size_t high) {
  if (found >= low && found <= high) return true;
  values_.error(op.find(key)->loc, fmt::format("{} must have {}{} in '{}', found {}", quoted(op),
                                               low, high == low ? "" : " or more", key, found));
  return false;
}

bool OpsReader::of_one_size(const Raw& op, const std::vector<ChunkRef>& a,
                            const std::vector<ChunkRef>& b) {
  for (const auto* refs : {&a, &b})
    for (const ChunkRef& r : *refs)
      if (r.count != a[0].count) {
        values_.error(op.loc, fmt::format("all chunks of {} must be of one size, found {} and {}",
                                          quoted(op), a[0].count, r.count));
        return false;
      }
  return true;
}

bool OpsReader::in_scratch(const Raw& op, const ChunkRef& ref) {
  if (ref.buffer == Buffer::Scratch) return true;
  values_.error(op.loc, fmt::format("packets of {} must be in scratch memory, not in the {}",
                                    quoted(op), kBufferWords[static_cast<size_t>(ref.buffer)]));
  return false;
}

const Link* OpsReader::channel_at(const Raw& raw, const Block& block, Channel type) {
  const auto& channels = block.channels[static_cast<size_t>(type)];
  const auto id = values_.number(raw, "an entry of 'channel_ids'", 0,
                                 static_cast<int64_t>(channels.size()) - 1);
  return id && channels[index(*id)].sound ? &channels[index(*id)] : nullptr;
}

void OpsReader::signal(const Raw& op, Op kind, const Block& block, const Loop* loop,
                       Statements& out) {
  const auto type = channel_of(op, true);
  const Raw* ids = values_.required(op, "channel_ids", Raw::Kind::List);
  if (!type || ids == nullptr) return;
  for (const Raw& id : ids->list) {
    if (stop()) return;
    const Link* link = channel_at(id, block, *type);
    if (link == nullptr) continue;
    ChunkStatement s;
    const bool signals = kind == Op::Signal || kind == Op::RelaxedSignal;
    s.kind = signals ? Kind::Signal : Kind::Wait;
    s.relaxed = kind == Op::RelaxedSignal || kind == Op::RelaxedWait;
    s.peer = link->peer;
    s.number = link->tag;
    add(out, std::move(s), op, loop);
  }
}

void OpsReader::semaphore(const Raw& op, Op kind, const Block& block, const Loop* loop,
                          Statements& out) {
  const Raw* ids = values_.required(op, "semaphore_ids", Raw::Kind::List);
  if (ids == nullptr) return;
  const auto& numbers = gpu(block.rank).semaphore_numbers;
  for (const Raw& raw : ids->list) {
    if (stop()) return;
    const auto id = values_.number(raw, "an entry of 'semaphore_ids'", 0,
                                   static_cast<int64_t>(numbers.size()) - 1);
    if (!id) continue;
    ChunkStatement s;
    s.kind = kind == Op::Acquire ? Kind::Acquire : Kind::Release;
    s.number = static_cast<int64_t>(numbers[index(*id)]);
    add(out, std::move(s), op, loop);
  }
}

void OpsReader::put(const Raw& op, Op kind, const Block& block, const Loop* loop, Statements& out) {
  const auto type = channel_of(op, false);
  if (!type) return;
  auto from = read_refs(op, "src_buff", block, *type, [](size_t) { return Side::Own; });
  auto to = read_refs(op, "dst_buff", block, *type, [](size_t) { return Side::Peer; });
  if (!from || !to || !of_number(op, "dst_buff", to->size(), 1, SIZE_MAX)) return;
  const bool signals = kind == Op::PutSignal || kind == Op::PutSignalFlush;
  const bool packets = kind == Op::PutPackets || kind == Op::ReadPutPackets;
  // 'rppkt' reads one source, whatever else is listed.
  if (kind == Op::ReadPutPackets) {
    if (!of_number(op, "src_buff", from->size(), 1, SIZE_MAX)) return;
    for (const ChunkRef& r : *from)
      if (r != (*from)[0]) {
        values_.error(op.loc, "'rppkt' must have one source");
        return;
      }
    from->assign(to->size(), (*from)[0]);
  }
  if (from->size() != to->size()) {
    values_.error(op.loc, fmt::format("{} must have as many sources as destinations, found {} "
                                      "and {}",
                                      quoted(op), from->size(), to->size()));
    return;
  }
  if (signals && *type != Channel::Port) {
    values_.error(op.loc, fmt::format("{} must go through a port channel: through others it "
                                      "doesn't signal",
                                      quoted(op)));
    return;
  }
  if (!of_one_size(op, *from, *to)) return;
  if (packets) {
    if (!outside_loop(op, loop)) return;
    for (size_t i = 0; i < to->size(); ++i) {
      (*to)[i].packets = true;
      if (!in_scratch(op, (*to)[i])) return;
      // A port channel moves packets as they are.
      if (kind == Op::ReadPutPackets ||
          (*type == Channel::Port && (*from)[i].buffer == Buffer::Scratch)) {
        if (!in_scratch(op, (*from)[i])) return;
        (*from)[i].packets = true;
      }
    }
  }
  if (!fits_loop(op, loop, (*to)[0].count)) return;
  std::vector<const Link*> links;
  if (*type == Channel::Port) {
    const Raw* ids = values_.required(op, "channel_ids", Raw::Kind::List);
    if (ids == nullptr) return;
    if (ids->list.size() != to->size()) {
      values_.error(ids->loc, fmt::format("{} must have a channel for each destination, found {} "
                                          "for {}",
                                          quoted(op), ids->list.size(), to->size()));
      return;
    }
    for (size_t i = 0; i < to->size(); ++i) {
      const Link* link = channel_at(ids->list[i], block, *type);
      if (link == nullptr) return;
      if (link->peer != (*to)[i].rank) {
        values_.error(ids->list[i].loc,
                      fmt::format("this channel goes to rank {}, but the memory is of rank {}",
                                  link->peer, (*to)[i].rank));
        return;
      }
      links.push_back(link);
    }
  }
  const bool one_source =
      std::all_of(from->begin(), from->end(), [&](const auto& r) { return r == (*from)[0]; });
  ChunkStatement s;
  s.kind = Kind::Put;
  s.packets = packets;
  if (one_source) {
    s.from = {(*from)[0]};
    s.to = *to;
    add(out, std::move(s), op, loop);
  } else {
    for (size_t i = 0; i < to->size() && !stop(); ++i) {
      s.from = {(*from)[i]};
      s.to = {(*to)[i]};
      add(out, s, op, loop);
    }
  }
  if (signals)
    for (const Link* link : links) {
      ChunkStatement done;
      done.kind = Kind::Signal;
      done.peer = link->peer;
      done.number = link->tag;
      add(out, std::move(done), op, loop);
    }
}

void OpsReader::get(const Raw& op, const Block& block, const Loop* loop, Statements& out) {
  const auto type = channel_of(op, false);
  if (!type) return;
  if (*type == Channel::Port) {
    values_.error(op.loc, "'get' must go through a memory channel");
    return;
  }
  const auto from = read_refs(op, "src_buff", block, *type, [](size_t) { return Side::Peer; });
  const auto to = read_refs(op, "dst_buff", block, *type, [](size_t) { return Side::Own; });
  if (!from || !to || !of_number(op, "src_buff", from->size(), 1, SIZE_MAX) ||
      !of_number(op, "dst_buff", to->size(), from->size(), from->size()) ||
      !of_one_size(op, *from, *to) || !fits_loop(op, loop, (*to)[0].count))
    return;
  for (size_t i = 0; i < from->size() && !stop(); ++i) {
    ChunkStatement s;
    s.kind = Kind::Get;
    s.from = {(*from)[i]};
    s.to = {(*to)[i]};
    add(out, std::move(s), op, loop);
  }
}

void OpsReader::copy(const Raw& op, Op kind, const Block& block, const Loop* loop,
                     Statements& out) {
  const auto own = [](size_t) { return Side::Own; };
  auto from = read_refs(op, "src_buff", block, Channel::Memory, own);
  auto to = read_refs(op, "dst_buff", block, Channel::Memory, own);
  if (!from || !to || !of_number(op, "src_buff", from->size(), 1, 1) ||
      !of_number(op, "dst_buff", to->size(), 1, 1) || !of_one_size(op, *from, *to))
    return;
  if (kind != Op::Copy && !outside_loop(op, loop)) return;
  if (!fits_loop(op, loop, (*to)[0].count)) return;
  if (kind == Op::CopyPackets) {
    if (!in_scratch(op, (*to)[0])) return;
    (*to)[0].packets = true;
  }
  if (kind == Op::UnpackPackets) {
    if (!in_scratch(op, (*from)[0])) return;
    (*from)[0].packets = true;
  }
  ChunkStatement s;
  s.kind = Kind::Copy;
  s.packets = kind == Op::CopyPackets;
  s.from = std::move(*from);
  s.to = std::move(*to);
  add(out, std::move(s), op, loop);
}

bool OpsReader::read_reduce_op(const Raw& op) {
  std::string word = "sum";
  ir::Loc loc = op.loc;
  if (op.find("reduce_op") != nullptr) {
    const Raw* raw = values_.optional(op, "reduce_op", Raw::Kind::String);
    if (raw == nullptr) return false;
    word = raw->text;
    loc = raw->loc;
  }
  if (word != "sum" && word != "min" && word != "max") {
    values_.error(loc, fmt::format("'reduce_op' must be 'sum', 'min' or 'max', found '{}'", word));
    return false;
  }
  if (!program_.of.empty() && program_.of != "allreduce" && program_.of != "reduce_scatter") {
    values_.error(op.loc, fmt::format("{} reduces, but '{}' moves data and reduces nothing",
                                      quoted(op), program_.of));
    return false;
  }
  if (reduce_.empty()) {
    reduce_ = word;
    reduce_loc_ = loc;
  }
  if (word == reduce_) return true;
  if (!mixed_) {
    values_.error(loc, fmt::format("all operations of a plan must reduce in the same way: '{}' "
                                   "and '{}' can't be had in one collective",
                                   reduce_, word));
    values_.note(reduce_loc_, fmt::format("'{}' is here", reduce_));
  }
  mixed_ = true;
  return false;
}

void OpsReader::reduce(const Raw& op, Op kind, const Block& block, const Loop* loop,
                       Statements& out) {
  const auto type = channel_of(op, false);
  if (!type) return;
  if (*type == Channel::Port) {
    values_.error(op.loc, fmt::format("{} must go through memory channels", quoted(op)));
    return;
  }
  const bool packets = kind == Op::ReducePackets || kind == Op::ReduceSendPackets ||
                       kind == Op::ReduceCopyPackets || kind == Op::ReduceCopySendPackets;
  const bool reads = kind == Op::ReadReduce || kind == Op::ReadReduceSend;
  const bool sends = kind == Op::ReduceSend || kind == Op::ReadReduceSend ||
                     kind == Op::ReduceSendPackets || kind == Op::ReduceCopySendPackets;
  // The result's places: in own memory, as packets in own scratch memory, and in peers' memory.
  const bool copies = kind == Op::ReduceCopyPackets || kind == Op::ReduceCopySendPackets;
  const size_t own = copies ? 2 : 1;
  auto from = read_refs(op, "src_buff", block, *type,
                        [&](size_t i) { return reads && i > 0 ? Side::Peer : Side::Own; });
  auto to = read_refs(op, "dst_buff", block, *type,
                      [&](size_t i) { return i >= own ? Side::Peer : Side::Own; });
  if (!read_reduce_op(op) || !from || !to ||
      !of_number(op, "src_buff", from->size(), 2, SIZE_MAX) ||
      !of_number(op, "dst_buff", to->size(), sends ? own + 1 : own, sends ? SIZE_MAX : own) ||
      !of_one_size(op, *from, *to) || (packets && !outside_loop(op, loop)) ||
      !fits_loop(op, loop, (*to)[0].count))
    return;
  if (packets) {
    for (size_t i = 1; i < from->size(); ++i) (*from)[i].packets = true;
    for (size_t i = 1; i < to->size(); ++i) (*to)[i].packets = true;
    for (const auto* refs : {&*from, &*to})
      for (const ChunkRef& r : *refs)
        if (r.packets && !in_scratch(op, r)) return;
  }
  ChunkStatement s;
  s.kind = Kind::Reduce;
  s.from = std::move(*from);
  s.to = std::move(*to);
  s.packets = packets && s.to.size() > 1;
  if (s.packets && s.to[0].buffer == Buffer::Scratch) {
    // The first place isn't in packets: it is written first, and then read for the others.
    ChunkStatement rest;
    rest.from = {s.to[0]};
    rest.packets = true;
    const std::vector<ChunkRef> others(s.to.begin() + 1, s.to.end());
    s.to.resize(1);
    s.packets = false;
    add(out, std::move(s), op, loop);
    send(others, rest, block, op, loop, out);
    return;
  }
  add(out, std::move(s), op, loop);
}

void OpsReader::send(const std::vector<ChunkRef>& to, const ChunkStatement& statement,
                     const Block& block, const Raw& op, const Loop* loop, Statements& out) {
  for (const bool own : {true, false}) {
    ChunkStatement s = statement;
    s.kind = own ? Kind::Copy : Kind::Put;
    for (const ChunkRef& r : to)
      if ((r.rank == block.rank) == own && !same_memory(program_, gpus_, r, s.from[0]))
        s.to.push_back(r);
    if (!s.to.empty()) add(out, std::move(s), op, loop);
  }
}

std::string read_ops(const std::vector<Gpu>& gpus, Values& values, ChunkProgram& program) {
  return OpsReader(gpus, values, program).run();
}

}  // namespace maco::frontend::mscclpp
