// send and recv: each message is put into slots of the receiver, and taken from them where its recv
// stands in the graph. Ranks that are equally far from their receivers share tasks. The slots and
// the cut are those of the recv: a rank receives at most one message of it.
//
// What a rank sends to itself is copied, through a temporary if it is a part of a state. Ranks that
// take no part in a recv clear its result.
#include "compiler/ops/collectives/algorithms.h"
#include "compiler/ops/collectives/messages.h"
#include "compiler/ops/collectives/one_way.h"
#include "ir/ranks.h"

namespace maco::ops {

namespace {

Cut choose(const TileContext& c) { return choose_exchange(c, c.out(0), c.out(0).rows, 1); }

functions::Exchange way_of(const Exchanger& exchanger, int64_t peer) {
  functions::Exchange way = exchanger.base();
  way.mode = functions::PeerMode::Shift;
  way.peer = peer;
  way.source_rows = false;
  return way;
}

Channel& channel_of(TileContext& c, ir::OpId recv, const Boxes& boxes, const Mat& y) {
  std::optional<Channel>& channel = c.messages().channel(recv);
  if (!channel) {
    TileContext receiver = c.beside(recv);
    Exchanger tiles(receiver, boxes, y.dtype, y.dtype, in_packets(receiver));
    channel = make_channel(receiver, tiles, way_of(tiles, 0), y.dtype);
  }
  return *channel;
}

bool changes(const TileContext& c, const Message& m) {
  return c.graph()[c.graph()[m.send].in[0]].kind == ir::TensorKind::State;
}
// Where a rank keeps what it sends to itself.
Mat kept(TileContext& c, const Message& m) {
  TileContext receiver = c.beside(m.recv);
  Mat y = receiver.out(0);
  std::optional<ir::BufferId>& kept = c.messages().kept(m.recv);
  if (!kept) kept = receiver.rows_buffer("kept", y.dtype, y.rows, y.max_rows, y.cols);
  y.buffer = *kept;
  return y;
}

void tile_send(TileContext& c) {
  const Mat x = c.in(0);
  for (const Message* m : c.messages().of_op(c.id())) {
    TileContext receiver = c.beside(m->recv);
    const Boxes boxes = boxes_of(receiver, receiver.out(0), receiver.out(0).rows);
    Exchanger exchanger(c, boxes, x.dtype, x.dtype, in_packets(receiver));
    if (m->shift == 0) {
      if (changes(c, *m)) exchanger.copy_own(x, kept(c, *m), false, false, m->senders);
      continue;
    }
    const Channel& channel = channel_of(c, m->recv, boxes, receiver.out(0));
    const auto put = exchanger.call("put", way_of(exchanger, m->shift), {x.buffer, channel.slots});
    const ir::RankRef to = ir::RankRef::shift(static_cast<int32_t>(m->shift));
    for (int64_t t = 0; t < exchanger.tiles(); ++t)
      put_tile(c, exchanger, put, t, channel, to, m->senders);
  }
}

void tile_recv(TileContext& c) {
  const Mat y = c.out(0);
  const Boxes boxes = boxes_of(c, y, y.rows);
  Exchanger exchanger(c, boxes, y.dtype, y.dtype, in_packets(c));
  uint64_t idle = ir::all_ranks(c.world());
  for (const Message* m : c.messages().of_op(c.id())) {
    idle &= ~m->receivers;
    c.promise_message(*m);
    if (m->shift == 0) {
      const Mat x = changes(c, *m) ? kept(c, *m) : c.mat(c.graph()[m->send].in[0]);
      exchanger.copy_own(x, y, false, false, m->receivers);
      continue;
    }
    const Channel& channel = channel_of(c, m->recv, boxes, y);
    const int64_t back = c.world() - m->shift;
    const auto take = exchanger.call("take", way_of(exchanger, back), {channel.slots, y.buffer});
    const ir::RankRef source = ir::RankRef::shift(static_cast<int32_t>(back));
    for (int64_t t = 0; t < exchanger.tiles(); ++t)
      take_tile(c, exchanger, take, t, channel, source, m->receivers);
  }
  if (idle == 0) return;
  c.promise_zeros(idle);
  const auto clear = exchanger.call("clear", exchanger.base(), {y.buffer});
  for (int64_t t = 0; t < exchanger.tiles(); ++t) exchanger.task(clear, t, idle);
}

}  // namespace

Algorithm send() { return {"send", "", tile_send}; }
Algorithm recv() { return {"recv", "", tile_recv, nullptr, choose}; }

}  // namespace maco::ops
