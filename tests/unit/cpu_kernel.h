// A kernel written by hand as codegen would: 2 ranks, 2 CTAs; copies, a packet all-reduce, an
// exchange by a peer event, paged ops that load ahead and not, a task that one rank only runs. With
// its manifest and its ir::Program.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "compiler/codegen/device_sources.h"
#include "ir/manifest.h"
#include "ir/program.h"
#include "runtime/host/abi.h"

namespace maco::test {

// Tensors: x[64], w[256], y, z, p, q, s[64], all f32. y = x; z = x summed over ranks; p = x *
// sum(w); q = the other rank's x; s = x through pages; on rank 1, y[0] is then negated by the
// guarded task.
inline const char* const kCpuKernelBody = R"(
namespace maco_program {
using namespace maco;

struct K { static constexpr i64 N = 64, W = 256; using at = Value<0>; };

template <class C> MACO_OP void copy(Context& ctx, const Args& args, u32 tile) {
  const float* x = args.ptr<float>(0);
  float* y = args.ptr<float>(1);
  for (i64 i = tile * 32 + consumer_thread(); i < i64(tile) * 32 + 32; i += kConsumers) gstore(y + i, gload(x + i));
}
template <class C> MACO_OP void push(Context& ctx, const Args& args, u32 tile) {
  const float* x = args.ptr<float>(0);
  u64* slot = args.peer<u64>(1, 1 - ctx.rank()) + ctx.rank() * C::N;
  for (i64 i = consumer_thread(); i < C::N; i += kConsumers) packet_store(slot + i, bits_of(gload(x + i)), ctx.sent_flag + args.use(1));
}
template <class C> MACO_OP void sum(Context& ctx, const Args& args, u32 tile) {
  const float* x = args.ptr<float>(0);
  const u64* slot = args.ptr<u64>(1) + (1 - ctx.rank()) * C::N;
  float* z = args.ptr<float>(2);
  for (i64 i = consumer_thread(); i < C::N; i += kConsumers) {
    u32 data;
    if (!poll_packet(ctx, slot + i, ctx.first_flag + args.use(1), data, 1, 1 - ctx.rank())) break;
    float a = gload(x + i), b = float_of(data);
    gstore(z + i, ctx.rank() == 0 ? a + b : b + a);
  }
}
template <class C> MACO_OP void dot_load(Context& ctx, const Args& args, u32 tile) {
  PageFiller pages(ctx);
  for (i64 i = 0; i < C::W; i += 64) {
    char* page = pages.acquire();
    if (!page) return;
    page_copy(page, args.ptr<float>(0) + i, 64);
    pages.publish();
  }
  pages.finish();
}
template <class C> MACO_OP void dot(Context& ctx, const Args& args, u32 tile) {
  float total = 0;
  for (i64 i = 0; i < C::W; i += 64) {
    const float* page = (const float*)page_wait(ctx);
    if (!page) return;
    for (i64 j = 0; j < 64; ++j) total += page[j];
    page_release(ctx);
  }
  for (i64 i = consumer_thread(); i < C::N; i += kConsumers) gstore(args.ptr<float>(2) + i, total * gload(args.ptr<float>(1) + i));
}
template <class C> MACO_OP void put(Context& ctx, const Args& args, u32 tile) {
  float* slot = args.peer<float>(1, 1 - ctx.rank()) + ctx.rank() * C::N;
  for (i64 i = consumer_thread() * 4; i < C::N; i += kConsumers * 4) peer_store_vec<4>(slot + i, gload_vec<4>(args.ptr<float>(0) + i));
}
template <class C> MACO_OP void take(Context& ctx, const Args& args, u32 tile) {
  i64 at = C::at::get(ctx);
  if (at < 0 || at >= 2) {
    ctx.bad_index(at, 2);
    return;
  }
  const float* slot = args.ptr<float>(0) + (1 - ctx.rank()) * C::N;
  for (i64 i = consumer_thread(); i < C::N; i += kConsumers) gstore(args.ptr<float>(1) + i, gload(slot + i));
}
template <class C> MACO_OP void stage_load(Context& ctx, const Args& args, u32 tile) {
  PageFiller pages(ctx);
  char* page = pages.acquire();
  if (!page) return;
  page_copy(page, args.ptr<float>(0), C::N - 1);  // an odd tail: not all in 16 bytes
  pages.publish();
  pages.finish();
}
template <class C> MACO_OP void stage(Context& ctx, const Args& args, u32 tile) {
  const float* page = (const float*)page_wait(ctx);
  if (!page) return;
  for (i64 i = consumer_thread(); i < C::N; i += kConsumers) gstore(args.ptr<float>(1) + i, i < C::N - 1 ? page[i] : 0.0f);
  page_release(ctx);
}
template <class C> MACO_OP void negate(Context& ctx, const Args& args, u32 tile) {
  if (consumer_thread() == 0) gstore(args.ptr<float>(0), -gload(args.ptr<float>(0)));
}

// offset / 256, arena (0 temporaries, 1 symmetric, 2 + tensor), copies, bytes of a copy / 256
MACO_TABLE const Operand operands[] = {
    {0, 2, 1, 0}, {0, 0, 1, 0},                 //  0 copy_in: x -> t
    {0, 0, 1, 0}, {0, 4, 1, 0},                 //  2 copy_out: t -> y
    {0, 0, 1, 0}, {0, 1, 4, 2},                 //  4 push: t -> packets
    {0, 0, 1, 0}, {0, 1, 4, 2}, {0, 5, 1, 0},   //  6 sum: t, packets -> z
    {0, 3, 1, 0}, {0, 0, 1, 0}, {0, 6, 1, 0},   //  9 dot: w, t -> p
    {0, 2, 1, 0}, {8, 1, 2, 2},                 // 12 put: x -> slots
    {8, 1, 2, 2}, {0, 7, 1, 0},                 // 14 take: slots -> q
    {0, 0, 1, 0}, {0, 8, 1, 0},                 // 16 stage: t -> s
    {0, 4, 1, 0},                               // 18 negate: y
};
MACO_TABLE const CallRow calls[] = {{0, 2, 0}, {2, 2, 0}, {4, 2, 1}, {9, 3, 3}, {12, 2, 4}, {14, 2, 5}, {16, 2, 6}, {18, 1, 7}, {6, 3, 2}};
MACO_TABLE const SyncRow syncs[] = {
    {0, 2, kSyncLocal, kWhoSelf, 0, 0},                                          // 0 t is written
    {0, 1, kSyncPeer, kWhoOthers, 2, 0},                                         // 1 push, put: slots read two launches ago
    {1, 1, kSyncPeer, kWhoOthers, 0, 0}, {2, 1, kSyncLocal, kWhoSelf, 0, 0},      // 2 put has ended on the other rank; take has ended
    {0, 2, kSyncLocal, kWhoSelf, 0, 0}, {1, 2, kSyncLocal, kWhoSelf, 0, 0},       // 4 t is written; y and s
    {1, 2, kSyncLocal, kWhoSelf, 0, 0}, {3, 1, kSyncLocal, kWhoSelf, 0, 0},       // 6 y and s are written; negate has ended
    {3, 1, kSyncLocal, kWhoSelf, 0, 0}, {2, 1, kSyncLocal, kWhoSelf, 0, 0}, {0, 1, kSyncPeer, kWhoOthers, 0, 0},  // 8 sum
    {0, 1, kSyncPeer, kWhoOthers, 2, 0}, {1, 1, kSyncPeer, /*drop*/kWhoOthers, 0, /*to*/0},                    // 11 put
    {0, 2, kSyncLocal, kWhoSelf, 0, 0}, {0, 1, kSyncPeer, kWhoOthers, 2, 0},      // 13 push
};
MACO_TABLE const TaskRow tasks[] = {
    // call, tile, first sync, waits, signals, guard, packets
    {0, 0, 0, 0, 1}, {2, 0, 13, 2, 0, 0, 1}, {1, 0, 4, 1, 1}, {5, 0, 2, 1, 1}, {7, 0, 6, 1, 1, 1}, {1, 1, 4, 1},
    {0, 1, 0, 0, 1}, {4, 0, 11, 1, 1}, {3, 0, 4, 1}, {6, 0, 4, 1, 1}, {8, 0, 8, 2, 1},
};
MACO_TABLE const StreamRow streams[] = {{0, 6, calls[0], tasks[0]}, {6, 11, calls[0], tasks[6]}};
MACO_TABLE const u64 rank_masks[] = {~0ull, 2ull};
MACO_TABLE const u32 counts[] = {2, 2, 1, 1};

struct Kernel {
  static constexpr int kWorld = 2, kCtas = 2, kLocalEvents = 4, kPeerEvents = 2;
  static constexpr i64 kSymmetricBytes = 3072;
  static constexpr int kMaps = 0;
  static constexpr u32 kPacketUses = 1;
  static constexpr bool kSysCounters = false, kHints = false;
  static constexpr i64 kPacketBytes = 0;
  static constexpr int kVariables = 1, kValues = 1;
  template <class F> static MACO_FN void each_variable(const F& f) { f(0, -9, 9); }
  template <class F> static MACO_FN void each_value(const i64* v, i64, const F& f) { f(0, v[0], -9, 9); }
  static MACO_FN const TaskRow* tasks() { return maco_program::tasks; }
  static MACO_FN const StreamRow* streams() { return maco_program::streams; }
  static MACO_FN const CallRow* calls() { return maco_program::calls; }
  static MACO_FN const Operand* operands() { return maco_program::operands; }
  static MACO_FN const SyncRow* syncs() { return maco_program::syncs; }
  static MACO_FN const u64* guards() { return rank_masks; }
  static MACO_FN const u32* local_counts() { return counts; }
  static MACO_FN void run(int kind, Context& ctx, const Args& args, u32 tile) {
    switch (kind) {
      case 0: copy<K>(ctx, args, tile); break;
      case 1: push<K>(ctx, args, tile); break;
      case 2: sum<K>(ctx, args, tile); break;
      case 3: dot<K>(ctx, args, tile); break;
      case 4: put<K>(ctx, args, tile); break;
      case 5: take<K>(ctx, args, tile); break;
      case 6: stage<K>(ctx, args, tile); break;
      case 7: negate<K>(ctx, args, tile); break;
    }
  }
  static MACO_FN void load(int kind, Context& ctx, const Args& args, u32 tile) {
    switch (kind) {
      case 3: dot_load<K>(ctx, args, tile); break;
      case 6: stage_load<K>(ctx, args, tile); break;
    }
  }
  static MACO_FN bool paged(int kind) { return kind == 3 || kind == 6; }
  static MACO_FN bool load_ahead(int kind) { return kind == 3; }
  static MACO_FN bool load_apart(int) { return false; }
  static constexpr bool kSends = false, kMates = false;
  static MACO_FN void send(int, Context&, const SenderArgs&, u32) {}
  static MACO_FN bool sends(int) { return false; }
};

}  // namespace maco_program

MACO_KERNEL maco_kernel(MACO_PARAM maco::Launch launch) { maco::worker<maco_program::Kernel>(launch); }
MACO_KERNEL maco_reset(MACO_PARAM maco::Launch launch) { maco::reset_memory<maco_program::Kernel>(launch); }
)";

inline ir::Resources cpu_kernel_cta() {
  return {.consumers = 256,
          .loaders = 32,
          .registers = 224,
          .head_bytes = 3072,
          .scratch_bytes = 16384,
          .pages = 2,
          .page_bytes = 256};
}

inline ir::Manifest cpu_kernel_manifest() {
  ir::Manifest m;
  m.name = "by_hand";
  m.world = 2;
  m.target = "cpu";
  m.ctas = 2;
  m.consumers = cpu_kernel_cta().consumers;
  m.loaders = cpu_kernel_cta().loaders;
  m.shared_bytes = cpu_kernel_cta().shared_bytes();
  m.arena_bytes = 256;
  m.symmetric_bytes = 3072;
  m.local_events = 4;
  m.peer_events = 2;
  for (const char* name : {"x", "w", "y", "z", "p", "q", "s"}) {
    const int64_t n = name[0] == 'w' ? 256 : 64;
    const char* kind = name[0] == 'x' ? "input" : name[0] == 'w' ? "param" : "output";
    m.tensors.push_back({name, kind, ir::DType::F32, {ir::Expr(n)}, n});
  }
  m.scalars = {{"at", -9, 9}};
  m.values = {{ir::Expr::var("at"), -9, 9}};
  for (const char* name : {"in", "out", "push", "dot", "put", "take", "stage", "negate", "sum"})
    m.calls.push_back({name, "copy"});
  m.local_names = {{0, "in"}, {1, "out"}, {2, "take"}, {3, "negate"}};
  m.peer_names = {{0, "sum"}, {1, "put"}};
  return m;
}

/// `from` replaced by `to`; throws if it isn't there.
inline std::string replaced(std::string body, const std::string& from, const std::string& to) {
  const size_t at = body.find(from);
  if (at == std::string::npos) throw std::logic_error("no '" + from + "' in the kernel");
  return body.replace(at, from.size(), to);
}

/// The kernel with its manifest, `from` replaced by `to` in its code (which must be there); `sys`:
/// its local events at sys scope; `packet_uses`: flags that a launch may use.
inline std::string cpu_kernel(const std::string& from = "", const std::string& to = "",
                              bool sys = false, int64_t packet_uses = 1) {
  std::string body = replaced(kCpuKernelBody, from, to);
  if (sys) {
    body = replaced(body, "kSysCounters = false", "kSysCounters = true");
    for (const std::string word = "kSyncLocal,"; body.find(word) != std::string::npos;)
      body = replaced(body, word, "kSyncLocalSys,");
  }
  body = replaced(body, "kPacketUses = 1", "kPacketUses = " + std::to_string(packet_uses));
  std::string code =
      codegen::cta_source(cpu_kernel_cta(), 2, false) + codegen::device_sources({}) + body;
  ir::Manifest m = cpu_kernel_manifest();
  m.packet_uses = packet_uses;
  m.code_hash = ir::code_hash(code);
  return ir::print_manifest(m) + code;
}

/// What the tasks of the kernel touch.
inline ir::Program cpu_kernel_program() {
  using namespace ir;
  Program p;
  p.world = 2;
  p.ctas = 2;
  p.stage = Stage::Synced;
  enum { X, W, Y, Z, P, Q, S, T, PACKETS, SLOTS };
  for (const char* name : {"x", "w", "y", "z", "p", "q", "s"}) {
    Buffer b;
    b.name = b.tensor = name;
    b.kind = name[0] == 'x'   ? BufferKind::Input
             : name[0] == 'w' ? BufferKind::Param
                              : BufferKind::Output;
    b.rows = Expr(1);
    b.cols = name[0] == 'w' ? 256 : 64;
    p.buffers.push_back(b);
  }
  auto own = [&](const char* name, BufferKind kind, int64_t rows, int64_t rotation, bool packets,
                 int64_t offset) {
    Buffer b;
    b.name = name;
    b.kind = kind;
    b.rows = Expr(rows);
    b.max_rows = rows;
    b.cols = 64;
    b.rotation = rotation;
    b.packets = packets;
    b.offset = offset;
    p.buffers.push_back(b);
  };
  own("t", BufferKind::Temp, 1, 1, false, 0);
  own("packets", BufferKind::Slot, 2, 2, true, 0);
  own("slots", BufferKind::Slot, 2, 2, false, 2048);
  for (const char* name : {"in", "out", "push", "dot", "put", "take", "stage", "negate", "sum"}) {
    Call c;
    c.op = name;
    c.op_kind = "copy";
    p.calls.push_back(c);
  }
  auto region = [](int buffer, int64_t c0, int64_t c1, int64_t row = 0, int64_t rank_rows = 0,
                   RankRef where = {}) {
    Region r;
    r.buffer = id_of<BufferId>(static_cast<size_t>(buffer));
    r.pitch = buffer == W ? 256 : 64;
    r.r0 = row;
    r.r1 = row + 1;
    r.c0 = c0;
    r.c1 = c1;
    r.block = {.rows = rank_rows};
    r.where = where;
    return r;
  };
  auto task = [&](int sm, int place, size_t call, uint32_t tile, std::vector<Access> accesses) {
    Task t;
    t.call = id_of<CallId>(call);
    t.tile = tile;
    t.sm = sm;
    t.place = place;
    t.accesses = std::move(accesses);
    p.tasks.push_back(t);
  };
  constexpr auto R = AccessKind::Read, WR = AccessKind::Write;
  for (uint32_t tile : {0u, 1u}) {
    const int64_t a = tile * 32, b = a + 32;
    task(static_cast<int>(tile), 0, 0, tile, {{R, region(X, a, b)}, {WR, region(T, a, b)}});
    task(0, tile == 0 ? 2 : 5, 1, tile, {{R, region(T, a, b)}, {WR, region(Y, a, b)}});
  }
  // What a rank sends lies in row `rank` on the other, what it gets in row 1 - rank on its own.
  task(0, 1, 2, 0, {{R, region(T, 0, 64)}, {WR, region(PACKETS, 0, 64, 0, 1, RankRef::others())}});
  task(0, 3, 5, 0, {{R, region(SLOTS, 0, 64, 1, -1)}, {WR, region(Q, 0, 64)}});
  task(0, 4, 7, 0, {{R, region(Y, 0, 1)}, {WR, region(Y, 0, 1)}});
  task(1, 1, 4, 0, {{R, region(X, 0, 64)}, {WR, region(SLOTS, 0, 64, 0, 1, RankRef::others())}});
  task(1, 2, 3, 0, {{R, region(W, 0, 256)}, {R, region(T, 0, 64)}, {WR, region(P, 0, 64)}});
  task(1, 3, 6, 0, {{R, region(T, 0, 64)}, {WR, region(S, 0, 64)}});
  task(1, 4, 8, 0,
       {{R, region(T, 0, 64)}, {R, region(PACKETS, 0, 64, 1, -1)}, {WR, region(Z, 0, 64)}});
  return p;
}

}  // namespace maco::test
