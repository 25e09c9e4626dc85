#include "compiler/functions/exchange.h"

#include <algorithm>

#include "compiler/functions/matmul_method.h"

namespace maco::functions {

namespace {

using ir::AccessKind;
using ir::BufferId;
using ir::Param;
using ir::RankRef;
using ir::Region;

int64_t most(const ir::Program& p, const ir::ValueRef& v) {
  if (const int64_t* n = std::get_if<int64_t>(&v.v)) return *n;
  return p.values[std::get<uint32_t>(v.v)].range.hi;
}

int64_t tile_in_block(const Exchange& e, uint32_t index) {
  return e.mode == PeerMode::Each || e.mode == PeerMode::Block ? index % e.tiles : index;
}
// Where a tile lies in the slots of the hop in which it arrives or, if `next`, of the next hop.
int64_t hop_place(const Exchange& e, uint32_t index, bool next) {
  if (e.mode != PeerMode::Each) return index;
  return (index / e.tiles - next) % e.places * e.tiles + index % e.tiles;
}

// The box of one tile, for the maximum number of rows.
struct Tile {
  int64_t r0, r1, c0, c1;
  int64_t count() const { return (r1 - r0) * (c1 - c0); }
};
Tile tile_of(const ir::Program& p, const Exchange& e, uint32_t index) {
  const int64_t t = tile_in_block(e, index);
  Tile b{};
  b.r0 = t / e.across * e.BR;
  b.c0 = t % e.across * e.BC;
  b.r1 = std::clamp(most(p, e.rows), b.r0, b.r0 + e.BR);
  b.c1 = std::min(b.c0 + e.BC, e.cols);
  return b;
}

ir::Block block_of(RankRef ref, const ir::ValueRef& rows) {
  if (const int64_t* n = std::get_if<int64_t>(&rows.v)) return {.ref = ref, .rows = *n};
  return {.ref = ref, .value = std::get<uint32_t>(rows.v)};
}

Region box_of(BufferId tensor, const Exchange& e, const Tile& t) {
  Region r;
  r.buffer = tensor;
  r.pitch = e.cols;
  r.r0 = t.r0, r.r1 = t.r1, r.c0 = t.c0, r.c1 = t.c1;
  return r;
}
Region box_in_block(BufferId tensor, const Exchange& e, const Tile& t, RankRef of) {
  Region r = box_of(tensor, e, t);
  r.block = block_of(of, e.rows);
  return r;
}
// A write. Where in a block the tile begins, and where the next block begins, may depend on the
// launch. The region is then that of the actual rows, and covers more than is written.
ir::Access written(const Region& r) {
  return {r.block.value ? AccessKind::MayWrite : AccessKind::Write, r};
}

// A place in the slot's row of rank `source`, or in its only row.
Region slot_of(const ir::Program& p, BufferId slot, const Exchange& e, const Tile& t, int64_t place,
               RankRef source, RankRef where) {
  Region r;
  r.buffer = slot;
  r.pitch = p[slot].cols;
  r.r1 = 1;
  r.c0 = place * e.stride;
  r.c1 = r.c0 + t.count();
  if (e.source_rows) r.block = {.ref = source, .rows = 1};
  r.where = where;
  return r;
}

struct Reader {
  const ir::Call& call;
  bool ok = true;
  template <class T>
  void get(std::string_view name, T& value) {
    for (const Param& p : call.params)
      if (p.name == name)
        if (const T* v = std::get_if<T>(&p.value)) {
          value = *v;
          return;
        }
    ok = false;
  }
  template <class Enum>
  void get_word(std::string_view param, Enum& value, size_t count) {
    ir::Word word;
    get(param, word);
    for (size_t i = 0; i < count; ++i) {
      value = static_cast<Enum>(i);
      if (name(value) == word.text) return;
    }
    ok = false;
  }
};

// Whether the call's epilogue computes one element from one f32 sum and from elements at its place.
bool finishes_elements(const ir::Call& call) {
  for (const Param& p : call.params) {
    const auto* body = std::get_if<ir::BodyParam>(&p.value);
    if (!body) continue;
    const auto& operands = body->operands;
    return body->accumulators() == 1 && operands[0].dtype == ir::DType::F32 &&
           std::all_of(operands.begin() + 1, operands.end(),
                       [](const auto& o) { return o.spread == ir::Spread::Full; });
  }
  return false;
}

}  // namespace

bool puts(std::string_view function) { return function == "put"; }
bool takes(std::string_view function) { return function == "take"; }
bool combines(std::string_view function) {
  return function == "combine" || function == "combine_finished";
}
bool is_exchange(std::string_view function) {
  return puts(function) || combines(function) || takes(function) || function == "hop" ||
         function == "clear";
}

std::string_view name(PeerMode mode) {
  constexpr std::string_view words[] = {"others", "each", "owner", "fixed", "shift", "block"};
  return words[static_cast<size_t>(mode)];
}

std::vector<Param> params_of(const std::string& function, const Exchange& e) {
  std::vector<Param> params = {{"W", e.world},
                               {"T", e.tiles},
                               {"cols", e.cols},
                               {"BR", e.BR},
                               {"BC", e.BC},
                               {"across", e.across},
                               {"stride", e.stride},
                               {"rows", e.rows},
                               {"mode", ir::Word{std::string(name(e.mode))}},
                               {"peer", e.peer},
                               {"blocked", e.blocked},
                               {"own_blocked", e.own_blocked},
                               {"slot_div", e.slot_div},
                               {"source_rows", e.source_rows},
                               {"packets", e.packets},
                               {"X", e.x},
                               {"Y", e.y}};
  if (combines(function)) {
    params.push_back({"reduce", ir::Word{std::string(name(e.reduce))}});
    params.push_back({"forward", e.forward});
    params.push_back({"forward_packets", e.forward_packets});
    params.push_back({"S", e.sent});
    if (function != "combine") params.push_back({"N", e.cols});
  }
  if (function == "take") params.push_back({"own", e.own});
  if (function == "hop") {
    params.push_back({"reduce", ir::Word{std::string(name(e.reduce))}});
    params.push_back({"own", e.own});
    params.push_back({"arrived", e.arrived});
    params.push_back({"keep", e.keep});
    params.push_back({"pass", e.pass});
    params.push_back({"places", e.places});
    params.push_back({"In", e.in});
    params.push_back({"Out", e.out});
  }
  return params;
}

std::optional<Exchange> exchange_of(const ir::Call& call) {
  const std::string& f = call.function;
  if (!is_exchange(f)) return std::nullopt;
  Exchange e;
  Reader read{call};
  read.get("W", e.world);
  read.get("T", e.tiles);
  read.get("cols", e.cols);
  read.get("BR", e.BR);
  read.get("BC", e.BC);
  read.get("across", e.across);
  read.get("stride", e.stride);
  read.get("rows", e.rows);
  read.get_word("mode", e.mode, kPeerModes);
  read.get("peer", e.peer);
  read.get("blocked", e.blocked);
  read.get("own_blocked", e.own_blocked);
  read.get("slot_div", e.slot_div);
  read.get("source_rows", e.source_rows);
  read.get("packets", e.packets);
  read.get("X", e.x);
  read.get("Y", e.y);
  if (combines(f)) {
    read.get_word("reduce", e.reduce, kReductions);
    read.get("forward", e.forward);
    read.get("forward_packets", e.forward_packets);
    read.get("S", e.sent);
    if (e.sent != e.x && !(e.packets && e.sent == ir::DType::F32 && !e.forward))
      return std::nullopt;
    if (f != "combine") {
      int64_t columns = 0;
      read.get("N", columns);
      if (e.forward || e.own_blocked || columns != e.cols || !finishes_elements(call))
        return std::nullopt;
    }
  }
  if (f == "take") read.get("own", e.own);
  if (f == "hop") {
    read.get_word("reduce", e.reduce, kReductions);
    read.get("own", e.own);
    read.get("arrived", e.arrived);
    read.get("keep", e.keep);
    read.get("pass", e.pass);
    read.get("places", e.places);
    read.get("In", e.in);
    read.get("Out", e.out);
  }
  const size_t operands = f == "combine" ? (e.forward ? 4 : 3)
                          : combines(f)  ? std::max<size_t>(call.operands.size(), 3)
                          : f == "hop"   ? 4
                          : f == "clear" ? 1
                                         : 2;
  if (!read.ok || call.operands.size() != operands || e.tiles < 1 || e.across < 1 ||
      e.slot_div < 1 || e.world < 1 || e.places < 1)
    return std::nullopt;
  return e;
}

std::vector<Param> push_params_of(const Exchange& e) {
  return {{"ranks", e.world},
          {"T", e.tiles},
          {"stride", e.stride},
          {"slot_div", e.slot_div},
          {"mode", ir::Word{std::string(name(e.mode))}},
          {"packets", e.packets},
          {"S", e.sent}};
}

namespace {
bool adds_up(const ir::Call& call) { return has_stage(call, "add"); }
}  // namespace

std::optional<Exchange> push_of(const ir::Call& call) {
  Exchange e;
  Reader read{call};
  read.get("ranks", e.world);
  read.get("T", e.tiles);
  read.get("stride", e.stride);
  read.get("slot_div", e.slot_div);
  read.get_word("mode", e.mode, kPeerModes);
  read.get("rows", e.rows);
  read.get("N", e.cols);
  read.get("BM", e.BR);
  read.get("BN", e.BC);
  read.get("Y", e.x);
  read.get("packets", e.packets);
  read.get("S", e.sent);
  ir::Word method;
  bool behind = false;
  read.get("method", method);
  read.get("behind", behind);
  const MatmulMethod* way = find_matmul_method(method.text);
  // A matmul of few rows sends packets of f32 to all; one on tensor cores sends its tiles as they
  // are.
  if (e.packets != (way && way->few) || (e.packets && behind) ||
      (e.packets && e.mode != PeerMode::Others) || e.sent != (e.packets ? ir::DType::F32 : e.x) ||
      (e.packets && !ir::is_float(e.x)))
    return std::nullopt;
  // Each mate has half of a tile's columns.
  if (const Function* f = find_function(call); f && f->mates) {
    if (e.packets || behind || e.BC % 2 != 0) return std::nullopt;
    e.BC /= 2;
  }
  if (!read.ok || e.world < 2 || e.tiles < 1 || e.slot_div < 1 || e.BR < 1 || e.BC < 1)
    return std::nullopt;
  const bool adds = adds_up(call);
  if (e.mode == PeerMode::Fixed || e.mode == PeerMode::Shift) return std::nullopt;
  if (adds && e.mode != PeerMode::Others) return std::nullopt;
  if (adds || e.mode == PeerMode::Each) {
    // Tiles must be whole, and their rows present in every launch.
    const int64_t* rows = std::get_if<int64_t>(&e.rows.v);
    if (!rows || e.packets || e.slot_div != 1 || *rows % e.world != 0 ||
        *rows / e.world % e.BR != 0)
      return std::nullopt;
    e.rows = ir::ValueRef{*rows / e.world};
  }
  e.y = e.x;
  e.across = (e.cols + e.BC - 1) / e.BC;
  return e;
}

std::optional<Exchange> sum_of(const ir::Call& call) {
  std::optional<Exchange> e;
  if (!adds_up(call) || !(e = push_of(call))) return std::nullopt;
  Reader read{call};
  read.get_word("reduce", e->reduce, kReductions);
  if (!read.ok) return std::nullopt;
  e->mode = PeerMode::Each;
  return e;
}

ir::Block push_block_of(const ir::Call& call, const Exchange& e, uint32_t tile) {
  if (adds_up(call)) return block_of(RankRef::self(), e.rows);
  return e.mode == PeerMode::Each ? block_of(peer_of(e, tile), e.rows) : ir::Block{};
}

ir::Access push_access_of(const ir::Program& p, BufferId slots, const Exchange& e, uint32_t index) {
  // The tile's box is counted over the whole tensor, its place over the block.
  Exchange whole = e;
  if (whole.mode == PeerMode::Block) whole.mode = PeerMode::Fixed;
  return {AccessKind::MayWrite,
          slot_of(p, slots, e, tile_of(p, whole, index), tile_in_block(e, index) / e.slot_div,
                  RankRef::self(), peer_of(e, index))};
}
ir::Access sum_access_of(const ir::Program& p, BufferId parts, const Exchange& e, uint32_t index) {
  return {AccessKind::Read,
          slot_of(p, parts, e, tile_of(p, e, index), index, RankRef::others(), RankRef::self())};
}

RankRef peer_of(const Exchange& e, uint32_t tile) {
  switch (e.mode) {
    case PeerMode::Others: return RankRef::others();
    case PeerMode::Each:
      return RankRef::shift(static_cast<int32_t>((1 + tile / e.tiles) % e.world));
    case PeerMode::Owner: return RankRef::rank(static_cast<int32_t>(tile % e.world));
    case PeerMode::Fixed: return RankRef::rank(static_cast<int32_t>(e.peer));
    case PeerMode::Block: return RankRef::rank(static_cast<int32_t>(tile / e.tiles));
    case PeerMode::Shift: break;
  }
  return RankRef::shift(static_cast<int32_t>(e.peer));
}

std::vector<ir::Access> accesses_of(const ir::Program& p, const ir::Call& call, const Exchange& e,
                                    uint32_t index) {
  const Tile t = tile_of(p, e, index);
  const int64_t tile = tile_in_block(e, index);
  const int64_t place = tile / e.slot_div;
  const RankRef peer = peer_of(e, index), self = RankRef::self();
  const auto& op = call.operands;
  const auto own = [&](BufferId tensor) {
    return e.own_blocked ? box_in_block(tensor, e, t, self) : box_of(tensor, e, t);
  };
  if (call.function == "clear") return {written(box_of(op[0], e, t))};
  if (call.function == "put") {
    const Region from = e.blocked ? box_in_block(op[0], e, t, peer) : box_of(op[0], e, t);
    return {{AccessKind::Read, from},
            {AccessKind::MayWrite, slot_of(p, op[1], e, t, place, self, peer)}};
  }
  if (combines(call.function)) {
    std::vector<ir::Access> accesses = {
        {AccessKind::Read, own(op[0])},
        {AccessKind::Read, slot_of(p, op[1], e, t, place, RankRef::others(), self)},
        {AccessKind::Write, box_of(op[2], e, t)}};
    if (e.forward) {
      Region to = slot_of(p, op[3], e, t, tile, self, RankRef::others());
      to.block = {};  // results have one row
      accesses.push_back({AccessKind::MayWrite, to});
    } else {
      for (size_t i = 3; i < op.size(); ++i)
        accesses.push_back({AccessKind::Read, box_of(op[i], e, t)});
    }
    return accesses;
  }
  if (call.function == "hop") {
    std::vector<ir::Access> accesses;
    if (e.own)
      accesses.push_back({AccessKind::Read,
                          e.own_blocked ? box_in_block(op[0], e, t, peer) : box_of(op[0], e, t)});
    if (e.arrived)
      accesses.push_back(
          {AccessKind::Read, slot_of(p, op[1], e, t, hop_place(e, index, false), peer, self)});
    if (e.keep)
      accesses.push_back(
          written(e.blocked ? box_in_block(op[2], e, t, peer) : box_of(op[2], e, t)));
    if (e.pass)
      accesses.push_back({AccessKind::MayWrite, slot_of(p, op[3], e, t, hop_place(e, index, true),
                                                        self, RankRef::shift(1))});
    return accesses;
  }
  const Region from = e.own ? own(op[0]) : slot_of(p, op[0], e, t, place, peer, self);
  const RankRef of = e.own ? self : peer;
  return {{AccessKind::Read, from},
          written(e.blocked ? box_in_block(op[1], e, t, of) : box_of(op[1], e, t))};
}

std::vector<ir::Transfer> transfers_of(const std::string& function, const Exchange& e) {
  using Kind = ir::Transfer::Kind;
  if (function == "clear") return {{.kind = Kind::Clear, .to = {0}}};
  if (function == "hop") {
    ir::Transfer moved;
    uint32_t places = 0;
    if (e.own) moved.from.push_back(places++);
    if (e.arrived) moved.from.push_back(places++);
    if (e.keep) moved.to.push_back(places++);
    if (e.pass) moved.to.push_back(places++);
    if (e.own && e.arrived) {
      moved.kind = Kind::Reduce;
      moved.reduce = e.reduce;
    }
    return {moved};
  }
  if (!combines(function)) return {{.kind = Kind::Copy, .from = {0}, .to = {1}}};
  ir::Transfer sum{.kind = Kind::Reduce, .reduce = e.reduce, .from = {0, 1}, .to = {2}};
  if (e.forward) sum.to.push_back(3);
  return {sum};
}

namespace {
constexpr const char* kNotTaken = "hasn't the parameters and operands that it takes";
}

Touches exchange_touches(const ir::Program& p, const ir::Call& call) {
  const auto e = exchange_of(call);
  if (!e) return {.wrong = kNotTaken};
  const bool moves = e->world == p.world && call.transfers == transfers_of(call.function, *e);
  return {.moves = [=](const ir::Task&) { return moves; },
          .touches =
              [&p, &call, e](const ir::Task& task) {
                return task.accesses == accesses_of(p, call, *e, task.tile);
              }};
}

Touches push_touches(const ir::Program& p, const ir::Call& call) {
  const Function& f = *find_function(call);
  const auto operand = [&](std::string_view name) { return call.operands[f.index_of(name)]; };
  const auto e = push_of(call), sum = sum_of(call);
  const bool adds = adds_up(call);
  const BufferId result = operand("y"), slots = operand("slots"),
                 parts = adds ? operand("parts") : BufferId{},
                 kept = adds ? operand("own") : BufferId{};
  const bool right = e && adds == sum.has_value() && e->world == p.world &&
                     p[slots].packets == e->packets && !(adds && p[parts].packets);
  // A task's last accesses: what others have sent and the own result, if it adds up; the slots; the
  // result.
  const size_t last = adds ? 4 : 2;
  const auto moves = [=, &call](const ir::Task& task) {
    if (!right || task.accesses.size() < last) return false;
    const auto stored = static_cast<uint32_t>(task.accesses.size() - 1);
    const ir::Transfer moved =
        adds ? ir::Transfer{.kind = ir::Transfer::Kind::Reduce,
                            .reduce = sum->reduce,
                            .from = {stored - 2, stored - 3},
                            .to = {stored, stored - 1}}
             : ir::Transfer{.kind = ir::Transfer::Kind::Copy, .from = {stored}, .to = {stored - 1}};
    return call.transfers == std::vector{moved};
  };
  const auto touches = [=, &p, &call](const ir::Task& task) {
    const size_t stored = task.accesses.size() - 1;
    const Region& y = task.accesses[stored].region;
    const ir::Block block = push_block_of(call, *e, task.tile);
    const int64_t tile = block.any() ? task.tile % e->tiles : task.tile;
    const int64_t r = tile / e->across * e->BR, c = tile % e->across * e->BC;
    if (y.buffer != result || y.r0 != r || y.c0 != c || y.pitch != e->cols || y.block != block ||
        task.accesses[0].region.block != block ||
        task.accesses[stored - 1] != push_access_of(p, slots, *e, task.tile))
      return false;
    if (!adds) return true;
    ir::Access own = task.accesses[stored];
    own.region.buffer = kept;
    return task.accesses[stored - 2] == own && task.tile < e->tiles &&
           task.accesses[stored - 3] == sum_access_of(p, parts, *sum, task.tile);
  };
  return {.moves = moves, .touches = touches};
}

}  // namespace maco::functions
