// Reads the operations of a plan's thread blocks (mscclpp_ops.h).
//
// Operations name channels and memory of peers by their indices in the thread block's lists, whose
// entries are indices into the rank's lists. Wrong operations are reported and left out. What
// refers to something wrong is skipped without a message.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compiler/frontend/mscclpp_ranks.h"

namespace maco::frontend::mscclpp {

using Statements = std::vector<ChunkStatement>;

inline constexpr int64_t kMaxBlocks = 1024;  // of a rank; all of them are on the GPU at once
inline constexpr int64_t kMaxStatements = 1 << 20;
inline constexpr int64_t kMaxRefs = 1 << 22;  // chunks that all statements together name

inline constexpr const char* kBufferWords[] = {"input", "output", "scratch"};

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

/// Reads all ranks' operations. A file has the members of a subject.
class OpsReader {
 public:
  OpsReader(const std::vector<Gpu>& gpus, Values& values, ChunkProgram& program)
      : gpus_(gpus), values_(values), program_(program) {}

  std::string run();

 private:
  bool stop() const { return values_.too_many_errors() || full_; }
  int32_t world() const { return static_cast<int32_t>(gpus_.size()); }
  const Gpu& gpu(int32_t rank) const { return gpus_[index(rank)]; }

  // Thread blocks.

  struct Barrier {
    int64_t blocks = 0;  // how many blocks it is for
    ir::Loc loc;
    std::map<int64_t, int64_t> uses;  // by thread block
    size_t list = 0;                  // index into block_lists
  };

  void read_blocks(int32_t rank);

  void read_block(const Raw& raw, int32_t rank, int64_t id, Statements& out);

  /// Reads the channels and the memory of peers, which the thread block's operations number from 0.
  void read_block_lists(const Raw& raw, Block& block);

  /// Gives each barrier the thread blocks that reach it.
  void finish_barriers(int32_t rank);

  // Operations.

  void too_large(ir::Loc loc);

  void add(Statements& out, ChunkStatement statement, const Raw& op, const Loop* loop);

  void read_op(const Raw& raw, const Block& block, const Loop* loop, Statements& out);

  /// 'tbg_info': a group of thread blocks executes the operation, and this block handles a slice.
  bool read_slice(const Raw& op);

  static std::string quoted(const Raw& op) { return "'" + op.find("name")->text + "'"; }

  /// An operation's 'channel_type'; most operations may leave it out.
  std::optional<Channel> channel_of(const Raw& op, bool required);

  enum class Side : uint8_t { Own, Peer };

  /// Reads chunks of an own buffer ('type') or of a peer's ('buffer_id').
  std::optional<ChunkRef> read_ref(const Raw& raw, const Block& block, Side side, Channel channel);

  /// Reads 'index' (or its name in `key`) and 'size', which must lie within the buffer.
  bool read_chunks(const Raw& raw, const char* key, ChunkRef& ref);
  bool within(ir::Loc loc, const ChunkRef& ref);

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
  bool of_number(const Raw& op, const char* key, size_t found, size_t low, size_t high);
  bool of_one_size(const Raw& op, const std::vector<ChunkRef>& a, const std::vector<ChunkRef>& b);
  /// Packets are written to scratch memory and read from it.
  bool in_scratch(const Raw& op, const ChunkRef& ref);
  bool outside_loop(const Raw& op, const Loop* loop);
  bool fits_loop(const Raw& op, const Loop* loop, int64_t count);

  const Link* channel_at(const Raw& raw, const Block& block, Channel type);

  void signal(const Raw& op, Op kind, const Block& block, const Loop* loop, Statements& out);

  void semaphore(const Raw& op, Op kind, const Block& block, const Loop* loop, Statements& out);

  void barrier(const Raw& op, const Block& block, const Loop* loop, Statements& out);

  /// Entry i of the sources goes to entry i of the destinations. If there is one source, this is
  /// one statement.
  void put(const Raw& op, Op kind, const Block& block, const Loop* loop, Statements& out);

  void get(const Raw& op, const Block& block, const Loop* loop, Statements& out);

  void copy(const Raw& op, Op kind, const Block& block, const Loop* loop, Statements& out);

  /// All operations of a plan must reduce in the same way, which becomes the collective's.
  bool read_reduce_op(const Raw& op);

  void reduce(const Raw& op, Op kind, const Block& block, const Loop* loop, Statements& out);

  /// Sends the source of `statement` to `to`: copies it to own chunks, puts it to others.
  void send(const std::vector<ChunkRef>& to, const ChunkStatement& statement, const Block& block,
            const Raw& op, const Loop* loop, Statements& out);

  // Switch channels.

  /// Chunks at the same place on all ranks of a group.
  std::optional<std::vector<ChunkRef>> group_refs(const Raw& where, const char* index_key,
                                                  const Raw& id, const Block& block, const Raw& op);
  /// The only entry of `key`, which names a switch channel.
  std::optional<std::vector<ChunkRef>> group_side(const Raw& op, const char* key,
                                                  const Block& block);
  /// The group of an operation with 'buffer_type', 'buffer_offset', 'size' and 'channel_ids'.
  std::optional<std::vector<ChunkRef>> group_offset(const Raw& op, const Block& block);
  /// 'src_chunk' or 'dst_chunk': rank, type, index and size.
  std::optional<ChunkRef> lone_chunk(const Raw& op, const char* key);
  /// The switch may add in any order.
  void group_reduce(const Raw& op, Op kind, const Block& block, const Loop* loop, Statements& out);

  void group_store(const Raw& op, Op kind, const Block& block, const Loop* loop, Statements& out);
  static ChunkStatement with_source(const ChunkRef& from, bool packets);

  // Loops.

  void pipeline(const Raw& op, const Block& block, const Loop* outer, Statements& out);

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

}  // namespace maco::frontend::mscclpp
