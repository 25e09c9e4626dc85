// mscclpp_ops.cpp: turns the operations of a plan into statements.
//
// Operations name channels and memory of peers by their indices in the thread block's lists, whose
// entries are indices into the rank's lists. Wrong operations are reported and left out. What
// refers to something wrong is skipped without a message.

#include "compiler/frontend/mscclpp_ops.h"

#include <algorithm>
#include <array>
#include <map>

namespace maco::frontend::mscclpp {

namespace {

using Kind = ChunkStatement::Kind;
using Buffer = ChunkBuffer;
using Statements = std::vector<ChunkStatement>;

constexpr int64_t kMaxBlocks = 1024;  // of a rank; all of them are on the GPU at once
constexpr int64_t kMaxStatements = 1 << 20;
constexpr int64_t kMaxRefs = 1 << 22;  // chunks that all statements together name

constexpr const char* kBufferWords[] = {"input", "output", "scratch"};

/// The schema's names of the supported operations.
enum class Op : uint8_t {
  Nop,
  Barrier,
  Put,
  PutSignal,
  PutSignalFlush,
  PutPackets,
  ReadPutPackets,
  Get,
  Copy,
  CopyPackets,
  UnpackPackets,
  Signal,
  Wait,
  RelaxedSignal,
  RelaxedWait,
  Flush,
  Reduce,
  ReduceSend,
  ReadReduce,
  ReadReduceSend,
  ReducePackets,
  ReduceSendPackets,
  ReduceCopyPackets,
  ReduceCopySendPackets,
  Acquire,
  Release,
  Pipeline,
  GroupLoadReduce,
  GroupStore,
  GroupStorePackets,
  GroupLoadReduceStore
};
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

/// The things to which a thread block's operations refer.
struct Block {
  int32_t rank = 0;
  int64_t id = 0;
  std::array<std::vector<Link>, 2> channels;
  std::vector<Group> groups;
  std::array<std::vector<Memory>, 2> remote;
};

/// A loop of a plan: its operations go over `chunks` chunks in pieces of `unit` bytes.
struct Loop {
  int64_t unit = 0, chunks = 0;
};

class OpsReader {
 public:
  OpsReader(const std::vector<Gpu>& gpus, Values& values, ChunkProgram& program)
      : gpus_(gpus), values_(values), program_(program) {}

  std::string run() {
    program_.ranks.resize(gpus_.size());
    for (size_t r = 0; r < gpus_.size() && !stop(); ++r) read_blocks(static_cast<int32_t>(r));
    return reduce_;
  }

 private:
  bool stop() const { return values_.too_many_errors() || full_; }
  int32_t world() const { return static_cast<int32_t>(gpus_.size()); }
  const Gpu& gpu(int32_t rank) const { return gpus_[index(rank)]; }

  // --- thread blocks ---

  struct Barrier {
    int64_t blocks = 0;  // how many blocks it is for
    ir::Loc loc;
    std::map<int64_t, int64_t> uses;  // by thread block
    size_t list = 0;                  // index into block_lists
  };

  void read_blocks(int32_t rank) {
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

  void read_block(const Raw& raw, int32_t rank, int64_t id, Statements& out) {
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

  /// Reads the channels and the memory of peers, which the thread block's operations number from 0.
  void read_block_lists(const Raw& raw, Block& block) {
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

  /// Gives each barrier the thread blocks that reach it.
  void finish_barriers(int32_t rank) {
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
          s.blocks =
              known_lists_.try_emplace(program_.block_lists[s.blocks], s.blocks).first->second;
  }

  // --- operations ---

  void too_large(ir::Loc loc) {
    if (!full_)
      values_.error(loc, fmt::format("the plan is too large: it must have at most {} operations "
                                     "and {} chunks that they name",
                                     kMaxStatements, kMaxRefs));
    full_ = true;
  }

  void add(Statements& out, ChunkStatement statement, const Raw& op, const Loop* loop) {
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

  void read_op(const Raw& raw, const Block& block, const Loop* loop, Statements& out) {
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

  /// 'tbg_info': a group of thread blocks executes the operation, and this block handles a slice.
  bool read_slice(const Raw& op) {
    const Raw* raw = values_.optional(op, "tbg_info", Raw::Kind::Map);
    if (raw == nullptr || !values_.object(*raw, "'tbg_info'")) return false;
    const auto size = values_.integer(*raw, "tbg_size", 1, kMaxBlocks);
    return size && values_.integer(*raw, "tb_id", 0, *size - 1);
  }

  static std::string quoted(const Raw& op) { return "'" + op.find("name")->text + "'"; }

  /// An operation's 'channel_type'; most operations may leave it out.
  std::optional<Channel> channel_of(const Raw& op, bool required) {
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

  enum class Side : uint8_t { Own, Peer };

  /// Reads chunks of an own buffer ('type') or of a peer's ('buffer_id').
  std::optional<ChunkRef> read_ref(const Raw& raw, const Block& block, Side side, Channel channel) {
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

  /// Reads 'index' (or its name in `key`) and 'size', which must lie within the buffer.
  bool read_chunks(const Raw& raw, const char* key, ChunkRef& ref) {
    const auto begin = values_.integer(raw, key, 0, kMaxChunks);
    const auto count = values_.integer(raw, "size", 1, kMaxChunks);
    if (!begin || !count) return false;
    ref.begin = *begin;
    ref.count = *count;
    return within(raw.find(key)->loc, ref);
  }
  bool within(ir::Loc loc, const ChunkRef& ref) {
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

  /// `side` says whose memory entry i must be.
  template <typename SideOf>
  std::optional<std::vector<ChunkRef>> read_refs(const Raw& op, const char* key, const Block& block,
                                                 Channel channel, const SideOf& side) {
    const Raw* list = values_.required(op, key, Raw::Kind::List);
    if (list == nullptr) return std::nullopt;
    if (refs_ + static_cast<int64_t>(list->list.size()) > kMaxRefs) {
      too_large(list->loc);
      return std::nullopt;
    }
    std::vector<ChunkRef> refs;
    for (size_t i = 0; i < list->list.size(); ++i) {
      const auto ref = read_ref(list->list[i], block, side(i), channel);
      if (!ref) return std::nullopt;
      refs.push_back(*ref);
    }
    return refs;
  }
  bool of_number(const Raw& op, const char* key, size_t found, size_t low, size_t high) {
    if (found >= low && found <= high) return true;
    values_.error(op.find(key)->loc, fmt::format("{} must have {}{} in '{}', found {}", quoted(op),
                                                 low, high == low ? "" : " or more", key, found));
    return false;
  }
  bool of_one_size(const Raw& op, const std::vector<ChunkRef>& a, const std::vector<ChunkRef>& b) {
    for (const auto* refs : {&a, &b})
      for (const ChunkRef& r : *refs)
        if (r.count != a[0].count) {
          values_.error(op.loc, fmt::format("all chunks of {} must be of one size, found {} and {}",
                                            quoted(op), a[0].count, r.count));
          return false;
        }
    return true;
  }
  /// Packets are written to scratch memory and read from it.
  bool in_scratch(const Raw& op, const ChunkRef& ref) {
    if (ref.buffer == Buffer::Scratch) return true;
    values_.error(op.loc, fmt::format("packets of {} must be in scratch memory, not in the {}",
                                      quoted(op), kBufferWords[static_cast<size_t>(ref.buffer)]));
    return false;
  }
  bool outside_loop(const Raw& op, const Loop* loop) {
    if (loop == nullptr) return true;
    values_.error(op.loc, fmt::format("{} can't be in a pipeline: it would move all of its chunks "
                                      "each time round",
                                      quoted(op)));
    return false;
  }
  bool fits_loop(const Raw& op, const Loop* loop, int64_t count) {
    if (loop == nullptr) return true;
    int64_t slices = 1;
    if (const Raw* slice = op.find("tbg_info")) slices = slice->find("tbg_size")->integer;
    loop_moves_ = true;
    if (count == loop->chunks * slices) return true;
    values_.error(op.loc,
                  fmt::format("{} has {}, but the pipeline goes over {}", quoted(op),
                              slices == 1 ? fmt::format("{} chunks", count)
                                          : fmt::format("a {}-th of {} chunks", slices, count),
                              loop->chunks));
    return false;
  }

  const Link* channel_at(const Raw& raw, const Block& block, Channel type) {
    const auto& channels = block.channels[static_cast<size_t>(type)];
    const auto id = values_.number(raw, "an entry of 'channel_ids'", 0,
                                   static_cast<int64_t>(channels.size()) - 1);
    return id && channels[index(*id)].sound ? &channels[index(*id)] : nullptr;
  }

  void signal(const Raw& op, Op kind, const Block& block, const Loop* loop, Statements& out) {
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

  void semaphore(const Raw& op, Op kind, const Block& block, const Loop* loop, Statements& out) {
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

  void barrier(const Raw& op, const Block& block, const Loop* loop, Statements& out) {
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
      values_.error(op.loc, fmt::format("barrier {} is of {} thread blocks here and of {} there",
                                        *id, *blocks, barrier.blocks));
      values_.note(barrier.loc, "the other is here");
      return;
    }
    ++barrier.uses[block.id];
    ChunkStatement s;
    s.kind = Kind::Barrier;
    s.blocks = barrier.list;
    add(out, std::move(s), op, loop);
  }

  /// Entry i of the sources goes to entry i of the destinations. If there is one source, this is
  /// one statement.
  void put(const Raw& op, Op kind, const Block& block, const Loop* loop, Statements& out) {
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

  void get(const Raw& op, const Block& block, const Loop* loop, Statements& out) {
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

  void copy(const Raw& op, Op kind, const Block& block, const Loop* loop, Statements& out) {
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

  /// All operations of a plan must reduce in the same way, which becomes the collective's.
  bool read_reduce_op(const Raw& op) {
    std::string word = "sum";
    ir::Loc loc = op.loc;
    if (op.find("reduce_op") != nullptr) {
      const Raw* raw = values_.optional(op, "reduce_op", Raw::Kind::String);
      if (raw == nullptr) return false;
      word = raw->text;
      loc = raw->loc;
    }
    if (word != "sum" && word != "min" && word != "max") {
      values_.error(loc,
                    fmt::format("'reduce_op' must be 'sum', 'min' or 'max', found '{}'", word));
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

  void reduce(const Raw& op, Op kind, const Block& block, const Loop* loop, Statements& out) {
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

  /// Sends the source of `statement` to `to`: copies it to own chunks, puts it to others.
  void send(const std::vector<ChunkRef>& to, const ChunkStatement& statement, const Block& block,
            const Raw& op, const Loop* loop, Statements& out) {
    for (const bool own : {true, false}) {
      ChunkStatement s = statement;
      s.kind = own ? Kind::Copy : Kind::Put;
      for (const ChunkRef& r : to)
        if ((r.rank == block.rank) == own && !same_memory(program_, gpus_, r, s.from[0]))
          s.to.push_back(r);
      if (!s.to.empty()) add(out, std::move(s), op, loop);
    }
  }

  // --- switch channels ---

  /// Chunks at the same place on all ranks of a group.
  std::optional<std::vector<ChunkRef>> group_refs(const Raw& where, const char* index_key,
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
  /// The only entry of `key`, which names a switch channel.
  std::optional<std::vector<ChunkRef>> group_side(const Raw& op, const char* key,
                                                  const Block& block) {
    const Raw* list = values_.required(op, key, Raw::Kind::List);
    if (list == nullptr || !of_number(op, key, list->list.size(), 1, 1)) return std::nullopt;
    const Raw& entry = list->list[0];
    if (!values_.object(entry, "an entry of 'src_buff' or 'dst_buff'")) return std::nullopt;
    const Raw* id = values_.required(entry, "switch_channel_id", Raw::Kind::Int);
    if (id == nullptr) return std::nullopt;
    return group_refs(entry, "index", *id, block, op);
  }
  /// The group of an operation with 'buffer_type', 'buffer_offset', 'size' and 'channel_ids'.
  std::optional<std::vector<ChunkRef>> group_offset(const Raw& op, const Block& block) {
    const Raw* ids = values_.required(op, "channel_ids", Raw::Kind::List);
    if (ids == nullptr || !of_number(op, "channel_ids", ids->list.size(), 1, 1))
      return std::nullopt;
    return group_refs(op, "buffer_offset", ids->list[0], block, op);
  }
  /// 'src_chunk' or 'dst_chunk': rank, type, index and size.
  std::optional<ChunkRef> lone_chunk(const Raw& op, const char* key) {
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
  /// The switch may add in any order.
  void group_reduce(const Raw& op, Op kind, const Block& block, const Loop* loop, Statements& out) {
    if (!read_reduce_op(op)) return;
    std::optional<std::vector<ChunkRef>> from, to;
    if (kind == Op::GroupLoadReduceStore) {
      from = group_side(op, "src_buff", block);
      to = group_side(op, "dst_buff", block);
    } else {
      from = group_offset(op, block);
      if (const auto chunk = lone_chunk(op, "dst_chunk")) to = {*chunk};
    }
    if (!from || !to || !of_one_size(op, *from, *to) || !fits_loop(op, loop, (*to)[0].count))
      return;
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

  void group_store(const Raw& op, Op kind, const Block& block, const Loop* loop, Statements& out) {
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
  static ChunkStatement with_source(const ChunkRef& from, bool packets) {
    ChunkStatement s;
    s.from = {from};
    s.packets = packets;
    return s;
  }

  // --- loops ---

  void pipeline(const Raw& op, const Block& block, const Loop* outer, Statements& out) {
    if (outer != nullptr) {
      values_.error(op.loc, "a pipeline can't be inside of another");
      return;
    }
    const Raw* context = values_.required(op, "iter_context", Raw::Kind::Map);
    const Raw* ops = values_.required(op, "ops", Raw::Kind::List);
    if (context == nullptr || ops == nullptr || !values_.object(*context, "'iter_context'")) return;
    const auto unit = values_.integer(*context, "unit_size", 1, INT32_MAX);
    const auto chunks = values_.integer(*context, "num_chunks", 1, kMaxChunks);
    if (!unit || !chunks) return;
    const Loop loop{*unit, *chunks};
    // Two adjacent loops would be read as one. A barrier of the block with itself separates them.
    if (!out.empty() && out.back().unit == loop.unit) {
      ChunkStatement s;
      s.kind = Kind::Barrier;
      s.blocks = program_.block_lists.size();
      program_.block_lists.push_back({block.id});
      add(out, std::move(s), op, nullptr);
    }
    const size_t before = out.size();
    loop_moves_ = false;
    for (const Raw& inner : ops->list) {
      if (stop()) return;
      read_op(inner, block, &loop, out);
    }
    if (out.size() > before && !loop_moves_ && !values_.has_errors())
      values_.error(op.loc,
                    "nothing in this pipeline moves chunks, so its number of iterations is "
                    "unknown");
  }

  const std::vector<Gpu>& gpus_;
  Values& values_;
  ChunkProgram& program_;
  std::map<int64_t, Barrier> barriers_;  // of the rank that is being read
  std::map<std::vector<int64_t>, size_t> known_lists_;
  std::string reduce_;  // empty: nothing reduces so far
  ir::Loc reduce_loc_;
  bool mixed_ = false, full_ = false;
  bool loop_moves_ = false;  // whether the loop that is being read moves data
  int64_t ops_ = 0, statements_ = 0, refs_ = 0;
};

}  // namespace

std::string read_ops(const std::vector<Gpu>& gpus, Values& values, ChunkProgram& program) {
  return OpsReader(gpus, values, program).run();
}

}  // namespace maco::frontend::mscclpp
