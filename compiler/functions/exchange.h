// put, combine, take, clear and hop (headers of these names in runtime/device/ops): what their
// parameters mean, and which regions and transfers of a task follow from them. Tile rules make
// tasks with this, and check_touches holds the tasks of a Program to it.
//
//   put      a tile of a tensor to slots of peers
//   combine  the reduction of the own tile with those that arrived, to a tensor and, for a
//            two-shot, to slots of all peers
//   combine_finished   the same, to a tensor, through an epilogue with further operands, whose
//            tiles it reads too
//   take     an arrived tile, or (own) one of this rank's, to a tensor
//   hop      a tile on its way round a ring: what arrived from the rank before, this rank's tile
//            if that goes in, or both reduced, to a tensor, to a slot of the next rank, or to both
//   clear    zeros to a tile of a tensor
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/functions/function.h"
#include "ir/program.h"

namespace maco::functions {

/// Which rank is at the other end of tile index `t`. The device header has the same words.
enum class PeerMode : uint8_t {
  Others,  // all but this one
  Each,    // rank + 1 + t / tiles, modulo the world: one after another; the tile is t % tiles
  Owner,   // rank t % world, which owns the tile
  Fixed,   // rank `peer`
  Shift,   // rank + `peer`, modulo the world
  Block,   // rank t / tiles; the tile is t % tiles
};
inline constexpr size_t kPeerModes = 6, kReductions = 4;
std::string_view name(PeerMode mode);

/// A block of a tensor, `rows` x `cols`, cut into `tiles` boxes of at most BR x BC, `across` in a
/// row of boxes; a box takes `stride` elements of a slot's row, its rows one after another.
struct Exchange {
  int64_t world = 1;
  int64_t tiles = 1, cols = 1, BR = 1, BC = 1, across = 1, stride = 1;
  ir::ValueRef rows;  // of a block
  PeerMode mode = PeerMode::Others;
  int64_t peer = 0;
  bool blocked = false;      // the tensor has a block for each rank; the peer's is meant
  bool own_blocked = false;  // likewise, and this rank's is
  int64_t slot_div = 1;      // tile t lies at place t / slot_div of its slot row
  bool source_rows = true;   // a slot row for each source rank, else one
  bool packets = false;      // a flag in every 8 bytes
  ir::DType x{}, y{};
  ir::DType sent{};  // what lies in slots: x, but for packets of products, which have one f32 each
  // combine
  ir::Reduction reduce = ir::Reduction::Sum;
  bool forward = false, forward_packets = false;
  // take: `own` means from this rank's tensor. hop: `own` means that this rank's tile goes in.
  bool own = false;
  // For hop, the peer is the rank whose block of a tensor is meant: of x if `own_blocked`, of y if
  // `blocked`. In mode Each a tile takes the place of the tile `places` blocks before it.
  bool arrived = false, keep = false, pass = false;
  int64_t places = 1;
  ir::DType in{}, out{};  // what arrives, what is passed on
};

/// Where a matmul with stage "send" puts its tiles, as `put` would; nullopt if its parameters are
/// invalid. Modes: Others, Owner, Block and Each. In mode Each, and where the matmul adds up,
/// `rows` are the rows of a block, and the matmul's tiles are those of the peer's block or of its
/// own.
std::optional<Exchange> push_of(const ir::Call& call);
/// The parameters of push_of, besides those of every matmul.
std::vector<ir::Param> push_params_of(const Exchange& exchange);
/// What task `tile` writes to peers' slots.
ir::Access push_access_of(const ir::Program& program, ir::BufferId slots, const Exchange& exchange,
                          uint32_t tile);
/// What other ranks' matmuls have put into slots for a matmul with stage "add" as well, in mode
/// Each, and how it reduces that with its own tile; nothing if it has no such stage.
std::optional<Exchange> sum_of(const ir::Call& call);
/// The block of rows to which tile `tile` belongs, if the matmul's tiles are cut by blocks.
ir::Block push_block_of(const ir::Call& call, const Exchange& exchange, uint32_t tile);
/// What task `tile` reads of these slots.
ir::Access sum_access_of(const ir::Program& program, ir::BufferId parts, const Exchange& exchange,
                         uint32_t tile);

/// Whether `function` is put.
bool puts(std::string_view function);
/// Whether `function` is take.
bool takes(std::string_view function);
/// Whether `function` is combine or combine_finished.
bool combines(std::string_view function);
/// Whether `function` is one of the functions of this file.
bool is_exchange(std::string_view function);
/// The parameters of a call of `function`, which is one of this file's.
std::vector<ir::Param> params_of(const std::string& function, const Exchange& exchange);
/// The call's parameters as an Exchange; nothing if the call is of another function or has other
/// parameters.
std::optional<Exchange> exchange_of(const ir::Call& call);

/// Function::touches of this file's functions, and of a matmul that pushes its tiles.
Touches exchange_touches(const ir::Program& program, const ir::Call& call);
Touches push_touches(const ir::Program& program, const ir::Call& call);

/// The rank at the other end of tile `tile`, as a task names it.
ir::RankRef peer_of(const Exchange& exchange, uint32_t tile);
/// The regions of task `tile` of a call, in the order that `transfers_of` refers to.
std::vector<ir::Access> accesses_of(const ir::Program& program, const ir::Call& call,
                                    const Exchange& exchange, uint32_t tile);
std::vector<ir::Transfer> transfers_of(const std::string& function, const Exchange& exchange);

}  // namespace maco::functions
