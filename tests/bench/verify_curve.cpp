// How much time of a CPU the proofs take and what they hold in memory, as Programs grow. Programs
// are built here, by the rules of the passes, so that their size is free; no pass is linked. Texts
// of Programs (macoc --emit=program) named on the command line are measured too. --long: without
// the short proof of races, which is tried first else.
//
//   - one-shot layers: 8 ranks that do the same, 132 CTAs; norm, matmul of 128 tiles, all-reduce by
//     packets;
//   - two-shot layers: the same on ranks that do different things: each tile has an owner, who
//     reduces it and sends it back, so that the long proof follows each rank by itself;
//   - chains: one rank; every task reads what its CTA and its left neighbour made a step before;
//   - halos: one rank; a matrix in tiles, each read with an edge of its neighbours', so that nearly
//     every access has a box of its own.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "compiler/verify/verify.h"
#include "ir/program_text.h"

namespace maco::bench {
namespace {

using ir::AccessKind;
using ir::BufferId;
using ir::BufferKind;
using ir::CallId;
using ir::EventId;
using ir::EventKind;
using ir::Program;
using ir::RankRef;
using ir::Region;
using ir::Task;

class Builder {
 public:
  Builder(int64_t world, int32_t ctas) {
    p.name = "curve";
    p.stage = ir::Stage::Synced;
    p.world = world;
    p.target = "cpu";
    p.ctas = ctas;
    p.roles = {{ir::Role::Compute, 0, ctas, {}}};
    p.uses = {.consumers = 256,
              .loaders = 32,
              .registers = 224,
              .head_bytes = 2048,
              .scratch_bytes = 16384};
    p.limits = {ctas, 1024, 65536, 65536};
    next_.assign(static_cast<size_t>(ctas), 0);
  }
  BufferId buffer(std::string name, BufferKind kind, int64_t rows, int64_t cols) {
    ir::Buffer b;
    b.name = std::move(name);
    b.kind = kind;
    b.dtype = ir::DType::BF16;
    b.rows = ir::Expr(rows);
    b.max_rows = rows;
    b.cols = cols;
    if (kind == BufferKind::Temp) {
      b.offset = p.arena_bytes;
      p.arena_bytes += (b.bytes() + 255) / 256 * 256;
    } else if (kind != BufferKind::Slot) {
      b.tensor = b.name;
    }
    p.buffers.push_back(std::move(b));
    return ir::id_of<BufferId>(p.buffers.size() - 1);
  }
  BufferId slot(std::string name, int64_t rows, int64_t cols, bool packets) {
    const BufferId id = buffer(std::move(name), BufferKind::Slot, rows, cols);
    ir::Buffer& b = p[id];
    b.packets = packets;
    b.rotation = 2;
    b.offset = p.symmetric_bytes;
    p.symmetric_bytes += b.copy_bytes() * b.rotation;
    return id;
  }
  CallId call(std::string op, std::string kind, std::string function) {
    p.calls.push_back(
        {std::move(op), std::move(kind), std::move(function), {}, {}, {}, {}, {}, {}});
    return ir::id_of<CallId>(p.calls.size() - 1);
  }
  EventId event(EventKind kind, uint32_t count) {
    p.events.push_back({fmt::format("e{}", p.events.size()), kind, count});
    return ir::id_of<EventId>(p.events.size() - 1);
  }
  Task& task(CallId call, uint32_t tile, int32_t cta) {
    Task& t = p.tasks.emplace_back();
    t.call = call;
    t.tile = tile;
    t.sm = cta;
    t.place = next_[static_cast<size_t>(cta)]++;
    return t;
  }
  /// Columns [c0, c1) of the only row.
  static Region columns(BufferId b, int64_t pitch, int64_t c0, int64_t c1) {
    return {b, pitch, 0, 1, c0, c1, {}, {}};
  }

  Program p;

 private:
  std::vector<int32_t> next_;
};

void add(Task& t, AccessKind kind, const Region& region) { t.accesses.push_back({kind, region}); }
void wait(Task& t, EventId e, RankRef from = {}) {
  t.waits.push_back({.event = e, .from = from, .lag = 0});
}
void signal(Task& t, EventId e, RankRef to = {}) { t.signals.push_back({.event = e, .to = to}); }

constexpr int64_t kWorld = 8, kCols = 8192, kTiles = 8, kWide = kCols / kTiles;
constexpr uint32_t kMatmuls = 128;

Program layers(size_t tasks, bool two_shot) {
  Builder b(kWorld, 132);
  const size_t a_layer =
      1 + kMatmuls + (two_shot ? 3 * static_cast<size_t>(kTiles) : 2 * static_cast<size_t>(kTiles));
  const size_t count = std::max<size_t>(tasks / a_layer, 1);
  b.p.tasks.reserve(count * a_layer);
  BufferId x = b.buffer("x", BufferKind::Input, 1, kCols);
  EventId ready{};  // `x` is whole
  // Temporaries of a layer are used again by the next layer but one.
  BufferId xs[2], hs[2], os[2];
  for (int i = 0; i < 2; ++i) {
    xs[i] = b.buffer(fmt::format("x_{}", i), BufferKind::Temp, 1, kCols);
    hs[i] = b.buffer(fmt::format("h_{}", i), BufferKind::Temp, 1, kCols);
    os[i] = b.buffer(fmt::format("o_{}", i), BufferKind::Temp, 1, kCols);
  }
  for (size_t layer = 0; layer < count; ++layer) {
    const BufferId h = hs[layer % 2], o = os[layer % 2];
    const BufferId y =
        layer + 1 == count ? b.buffer("y", BufferKind::Output, 1, kCols) : xs[layer % 2];
    Task& norm = b.task(b.call(fmt::format("n_{}", layer), "rmsnorm", "rmsnorm"), 0, 0);
    add(norm, AccessKind::Read, Builder::columns(x, kCols, 0, kCols));
    add(norm, AccessKind::Write, Builder::columns(h, kCols, 0, kCols));
    if (layer > 0) wait(norm, ready);
    const EventId normed = b.event(EventKind::Local, 1);
    signal(norm, normed);

    const CallId matmul = b.call(fmt::format("o_{}", layer), "matmul", "matmul");
    const EventId first_made = ir::id_of<EventId>(b.p.events.size());
    for (int64_t t = 0; t < kTiles; ++t) b.event(EventKind::Local, kMatmuls / kTiles);
    constexpr int64_t wide = kCols / kMatmuls;
    for (uint32_t t = 0; t < kMatmuls; ++t) {
      Task& m = b.task(matmul, t, static_cast<int32_t>(t % 116));
      add(m, AccessKind::Read, Builder::columns(h, kCols, 0, kCols));
      add(m, AccessKind::Write, Builder::columns(o, kCols, t * wide, (t + 1) * wide));
      wait(m, normed);
      signal(m, ir::id_of<EventId>(index(first_made) + t / (kMatmuls / kTiles)));
    }

    const std::string op = fmt::format("y_{}", layer);
    const CallId put = b.call(op, "allreduce", "put"), combine = b.call(op, "allreduce", "combine");
    const BufferId slots = b.slot(op + ".slots", kWorld, kCols, true);
    b.p[put].operands = {o, slots};
    using Kind = ir::Transfer::Kind;
    b.p[put].transfers = {{.kind = Kind::Copy, .from = {0}, .to = {1}}};
    b.p[combine].operands = {o, slots, y};
    b.p[combine].transfers = {{.kind = Kind::Reduce, .from = {0, 1}, .to = {2}}};
    if (two_shot) b.p[combine].transfers[0].to.push_back(3);
    b.p.collectives.push_back({.op = op, .kind = ir::CollectiveKind::AllReduce, .in = o, .out = y});
    ready = b.event(EventKind::Local, static_cast<uint32_t>(2 * kTiles));
    const EventId first_sent = ir::id_of<EventId>(b.p.events.size());
    for (int64_t t = 0; t < kTiles; ++t) b.event(EventKind::Packet, 1);
    const uint64_t all = (uint64_t{1} << kWorld) - 1;
    const auto owner = [&](int64_t t) { return static_cast<int32_t>(t % kWorld); };
    for (int64_t t = 0; t < kTiles; ++t) {
      Task& s = b.task(put, static_cast<uint32_t>(t), static_cast<int32_t>(116 + t));
      s.ranks = two_shot ? all & ~(uint64_t{1} << owner(t)) : ~uint64_t{0};
      const RankRef to = two_shot ? RankRef::rank(owner(t)) : RankRef::others();
      add(s, AccessKind::Read, Builder::columns(o, kCols, t * kWide, (t + 1) * kWide));
      add(s, AccessKind::Write, {slots, kCols, 0, 1, t * kWide, (t + 1) * kWide, {.rows = 1}, to});
      wait(s, ir::id_of<EventId>(index(first_made) + static_cast<size_t>(t)));
      signal(s, ir::id_of<EventId>(index(first_sent) + static_cast<size_t>(t)), to);
      if (!two_shot) signal(s, ready);  // `o` is used again
    }
    BufferId results{};
    EventId first_reduced{};
    if (two_shot) {
      results = b.slot(op + ".results", 1, kCols, true);
      b.p[combine].operands.push_back(results);
      first_reduced = ir::id_of<EventId>(b.p.events.size());
      for (int64_t t = 0; t < kTiles; ++t) b.event(EventKind::Packet, 1);
    }
    for (int64_t t = 0; t < kTiles; ++t) {
      Task& c = b.task(combine, static_cast<uint32_t>(t), static_cast<int32_t>(116 + 8 + t));
      if (two_shot) c.ranks = uint64_t{1} << owner(t);
      add(c, AccessKind::Read, Builder::columns(o, kCols, t * kWide, (t + 1) * kWide));
      add(c, AccessKind::Read,
          {slots,
           kCols,
           0,
           1,
           t * kWide,
           (t + 1) * kWide,
           {.ref = RankRef::others(), .rows = 1},
           {}});
      add(c, AccessKind::Write, Builder::columns(y, kCols, t * kWide, (t + 1) * kWide));
      wait(c, ir::id_of<EventId>(index(first_made) + static_cast<size_t>(t)));
      wait(c, ir::id_of<EventId>(index(first_sent) + static_cast<size_t>(t)), RankRef::others());
      signal(c, ready);
      if (!two_shot) continue;
      add(c, AccessKind::Write,
          {results, kCols, 0, 1, t * kWide, (t + 1) * kWide, {}, RankRef::others()});
      signal(c, ir::id_of<EventId>(index(first_reduced) + static_cast<size_t>(t)),
             RankRef::others());
    }
    if (two_shot) {
      const CallId take = b.call(op, "allreduce", "take");
      b.p[take].operands = {results, y};
      b.p[take].transfers = {{.kind = Kind::Copy, .from = {0}, .to = {1}}};
      for (int64_t t = 0; t < kTiles; ++t) {
        Task& c = b.task(take, static_cast<uint32_t>(t), static_cast<int32_t>(116 + t));
        c.ranks = all & ~(uint64_t{1} << owner(t));
        add(c, AccessKind::Read, Builder::columns(results, kCols, t * kWide, (t + 1) * kWide));
        add(c, AccessKind::Write, Builder::columns(y, kCols, t * kWide, (t + 1) * kWide));
        wait(c, ir::id_of<EventId>(index(first_reduced) + static_cast<size_t>(t)),
             RankRef::rank(owner(t)));
        signal(c, ready);
      }
    }
    x = y;
  }
  return std::move(b.p);
}

Program chains(size_t tasks) {
  constexpr int32_t kCtas = 132;
  constexpr int64_t kBytes = 4096;
  Builder b(1, kCtas);
  const size_t length = std::max<size_t>(tasks / kCtas, 1);
  b.p.tasks.reserve(length * kCtas);
  const CallId call = b.call("step", "elementwise", "elementwise");
  const BufferId out = b.buffer("y", BufferKind::Output, kCtas, kBytes);
  BufferId pair[2];
  for (int i = 0; i < 2; ++i)
    pair[i] = b.buffer(fmt::format("t{}", i), BufferKind::Temp, kCtas, kBytes);
  std::vector<EventId> before(kCtas), now(kCtas);
  for (size_t step = 0; step < length; ++step) {
    for (int64_t c = 0; c < kCtas; ++c) {
      const auto tile = static_cast<uint32_t>(step * kCtas + static_cast<size_t>(c));
      Task& t = b.task(call, tile, static_cast<int32_t>(c));
      const auto row = [&](BufferId buffer, int64_t r) {
        return Region{buffer, kBytes, r, r + 1, 0, kBytes, {}, {}};
      };
      if (step > 0) {
        add(t, AccessKind::Read, row(pair[(step + 1) % 2], c));
        // The left neighbour's result, which it overwrites in two steps.
        add(t, AccessKind::Read, row(pair[(step + 1) % 2], (c + kCtas - 1) % kCtas));
        wait(t, before[static_cast<size_t>((c + kCtas - 1) % kCtas)]);
        wait(t, before[static_cast<size_t>((c + 1) % kCtas)]);
      }
      add(t, AccessKind::Write, row(step + 1 == length ? out : pair[step % 2], c));
      if (step + 1 < length) {
        now[static_cast<size_t>(c)] = b.event(EventKind::Local, 1);
        signal(t, now[static_cast<size_t>(c)]);
      }
    }
    std::swap(before, now);
  }
  return std::move(b.p);
}

Program halos(size_t tasks) {
  constexpr int32_t kCtas = 132;
  constexpr int64_t kTile = 64, kHalo = 4, kAcross = 100;
  Builder b(1, kCtas);
  const auto down = static_cast<int64_t>(std::max<size_t>(tasks / 2 / kAcross, 1));
  b.p.tasks.reserve(static_cast<size_t>(2 * down * kAcross));
  const BufferId in = b.buffer("t", BufferKind::Temp, down * kTile, kAcross * kTile);
  const BufferId out = b.buffer("y", BufferKind::Output, down * kTile, kAcross * kTile);
  const CallId write = b.call("t", "copy", "copy"), read = b.call("y", "stencil", "stencil");
  const auto box = [&](BufferId buffer, int64_t r, int64_t c, int64_t halo) {
    return Region{buffer,
                  kAcross * kTile,
                  std::max<int64_t>(r * kTile - halo, 0),
                  std::min((r + 1) * kTile + halo, down * kTile),
                  std::max<int64_t>(c * kTile - halo, 0),
                  std::min((c + 1) * kTile + halo, kAcross * kTile),
                  {},
                  {}};
  };
  for (int64_t r = 0; r < down; ++r) {
    const EventId row = b.event(EventKind::Local, static_cast<uint32_t>(kAcross));
    for (int64_t c = 0; c < kAcross; ++c) {
      Task& t = b.task(write, static_cast<uint32_t>(r * kAcross + c),
                       static_cast<int32_t>((r * kAcross + c) % kCtas));
      add(t, AccessKind::Write, box(in, r, c, 0));
      signal(t, row);
    }
  }
  for (int64_t r = 0; r < down; ++r)
    for (int64_t c = 0; c < kAcross; ++c) {
      Task& t = b.task(read, static_cast<uint32_t>(r * kAcross + c),
                       static_cast<int32_t>((r * kAcross + c) % kCtas));
      add(t, AccessKind::Read, box(in, r, c, kHalo));
      add(t, AccessKind::Write, box(out, r, c, 0));
      for (int64_t near = std::max<int64_t>(r - 1, 0); near <= std::min(r + 1, down - 1); ++near)
        wait(t, ir::id_of<EventId>(static_cast<size_t>(near)));
    }
  return std::move(b.p);
}

// --- measuring ---

int64_t status_bytes(const char* key) {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);)
    if (line.rfind(key, 0) == 0)
      return std::strtoll(line.c_str() + std::strlen(key), nullptr, 10) * 1024;
  return 0;
}

/// CPU seconds of this process, which has one thread: other work on the machine has little
/// influence.
double cpu_seconds() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

/// Measures in a process of its own, so that each measurement starts with the same memory. Prints
/// the best of `repeats`.
bool measure(const std::string& shape, const std::function<Program()>& make, int repeats,
             bool at_once) {
  std::cout.flush();
  const pid_t child = fork();
  if (child == 0) {
    const Program program = make();
    double best = 1e9;
    int64_t bytes = 0;
    verify::VerifyStatistics statistics;
    bool ok = true;
    for (int i = 0; i < repeats && ok; ++i) {
      if (i == 0) std::ofstream("/proc/self/clear_refs") << "5";  // forget the peak until now
      const int64_t before = status_bytes("VmRSS:");
      ir::Diagnostics diagnostics;
      const double begin = cpu_seconds();
      ok = verify::verify(program, diagnostics, {.at_once = at_once}, &statistics);
      best = std::min(best, cpu_seconds() - begin);
      if (i == 0) bytes = status_bytes("VmHWM:") - before;
      if (!ok) std::cout << diagnostics.render();
    }
    const auto tasks = static_cast<int64_t>(program.tasks.size());
    std::cout << fmt::format(
        "{:<18} {:>9} {:>5} {:>8} {:>5} {:>11} {:>9.3f} {:>8.2f} {:>8}\n", shape, tasks,
        program.world, statistics.launches, statistics.at_once ? "short" : "long", statistics.pairs,
        best, best * 1e6 / static_cast<double>(tasks), bytes / std::max<int64_t>(tasks, 1));
    std::cout.flush();
    _exit(ok ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int run(int argc, char** argv) {
  size_t most = 1'000'000;
  bool at_once = true;
  std::vector<std::string> files;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--most") == 0 && i + 1 < argc)
      most = std::strtoull(argv[++i], nullptr, 10);
    else if (std::strcmp(argv[i], "--long") == 0)
      at_once = false;
    else if (argv[i][0] == '-') {
      std::cerr << "usage: verify_curve [--most TASKS] [--long] [PROGRAM...]\n";
      return 2;
    } else {
      files.emplace_back(argv[i]);
    }
  }
  std::cout << fmt::format("{:<18} {:>9} {:>5} {:>8} {:>5} {:>11} {:>9} {:>8} {:>8}\n", "shape",
                           "tasks", "world", "launches", "proof", "pairs", "seconds", "us/task",
                           "B/task");
  bool ok = true;
  for (const std::string& file : files) {
    std::ifstream in(file, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    ok &= measure(
        file.substr(file.rfind('/') + 1),
        [&] {
          ir::Diagnostics diagnostics;
          auto program = ir::parse_program(diagnostics.add_file(file, text), diagnostics);
          if (!program) {
            std::cerr << diagnostics.render();
            _exit(1);
          }
          return std::move(*program);
        },
        3, at_once);
  }
  const std::pair<const char*, std::function<Program(size_t)>> shapes[] = {
      {"one-shot layers", [](size_t n) { return layers(n, false); }},
      {"two-shot layers", [](size_t n) { return layers(n / static_cast<size_t>(kWorld), true); }},
      {"chains", chains},
      {"halos", halos}};
  for (const auto& [name, make] : shapes)
    for (size_t tasks = 1000; tasks <= most; tasks *= 10)
      ok &= measure(name, [&, &f = make] { return f(tasks); }, tasks < 1'000'000 ? 3 : 1, at_once);
  return ok ? 0 : 1;
}

}  // namespace
}  // namespace maco::bench

int main(int argc, char** argv) { return maco::bench::run(argc, argv); }
