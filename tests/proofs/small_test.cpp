// Small Programs, right and wrong: the verifier's verdict must agree with an exploration of all
// interleavings.
//
// If that is cheap, two launches more than a slot has copies are explored, which is more than the
// verifier looks at. The verifier is deliberately stricter only in its counts: a signal to another
// rank for which nobody waits, a count that other signals replace. Such Programs are counted, not
// compared, except for the one way in which they can be.
#include <fmt/format.h>

#include <cstdlib>
#include <iostream>
#include <map>
#include <mutex>
#include <thread>

#include "compiler/verify/verify.h"
#include "ir/program_text.h"
#include "tests/catch.h"
#include "tests/proofs/model_checker.h"
#include "tests/unit/random_program.h"

namespace maco::proofs {
namespace {

using ir::Program;
using test::RandomProgram;

constexpr size_t kMostStates = 20000;

struct Tally {
  std::map<std::string, int64_t> verdicts, miscounted;
  int64_t states = 0, too_large = 0, not_about_order = 0, more_launches = 0, symmetric = 0;
  std::vector<std::string> wrong;
};

std::string kind(const std::string& message) {
  const std::string word = message.substr(0, message.find(':'));
  return word == "order" ? "race" : word;
}

/// Two tasks of a stream the other way round: no event need show it.
void swap_neighbours(Program& p, RandomProgram& random) {
  ir::Task& t = p.tasks[static_cast<size_t>(random.below(static_cast<int64_t>(p.tasks.size())))];
  for (ir::Task& u : p.tasks)
    if (u.sm == t.sm && u.place == t.place + 1) {
      std::swap(t.place, u.place);
      return;
    }
}

/// Every task reads the row of its tile of an input that has two rows or more.
void cut_rows(Program& p) {
  const ir::Expr n = ir::Expr::var("n");
  p.variables.push_back({.name = "n", .range = {.lo = 2, .hi = 64}});
  p.values.push_back({n, {.lo = 2, .hi = 64}});
  ir::Buffer rows;
  rows.name = rows.tensor = "rows";
  rows.kind = ir::BufferKind::Input;
  rows.rows = n;
  rows.max_rows = 64;
  p.buffers.push_back(rows);
  for (ir::Task& t : p.tasks) {
    ir::Region r;
    r.buffer = ir::id_of<ir::BufferId>(p.buffers.size() - 1);
    r.r0 = std::min<int64_t>(t.tile, 63);
    r.r1 = r.r0 + 1;
    r.c1 = 1;
    t.accesses.push_back({ir::AccessKind::Read, r});
  }
}

void one(uint32_t seed, Tally& tally) {
  RandomProgram random(seed);
  random.keep_small();
  if (seed % 4 == 3) random.with_heights();
  Program p = random.program();
  // Tiles from the third on may be beyond the rows.
  if (seed % 4 != 3 && random.below(4) == 0) cut_rows(p);
  for (int64_t n = random.below(3); n > 0; --n) random.damage(p);
  if (random.below(5) == 0) swap_neighbours(p, random);
  ir::Diagnostics diagnostics;
  p.stage = ir::Stage::Scheduled;
  if (!verify::verify(p, diagnostics)) {
    ++tally.not_about_order;
    return;
  }
  p.stage = ir::Stage::Synced;
  int launches = 1;
  for (const ir::Buffer& b : p.buffers)
    if (b.kind == ir::BufferKind::Slot && p.world > 1)
      launches = std::max(launches, static_cast<int>(b.rotation) + 1);
  const auto fits = [&](int n) {
    return p.tasks.size() * static_cast<size_t>(p.world) * static_cast<size_t>(n) <= 64;
  };
  std::optional<Exploration> found;
  if (fits(launches + 1)) found = explore(p, launches + 1, kMostStates / 4);
  if (found) ++tally.more_launches;
  if (!found && fits(launches)) found = explore(p, launches, kMostStates);
  if (!found) {
    ++tally.too_large;
    return;
  }
  tally.states += found->states;
  for (int how = 0; how < 4; ++how) {
    const bool symmetry = (how & 1) == 0, at_once = (how & 2) == 0;
    ir::Diagnostics said;
    verify::VerifyStatistics statistics;
    const bool ok = verify::verify(
        p, said, {.use_symmetry = symmetry, .at_once = at_once, .forget_every = seed % 3},
        &statistics);
    const std::string verdict = ok ? "" : kind(said.all().at(0).message);
    tally.symmetric += statistics.symmetric;
    if (verdict == "count") {
      if (how == 0) ++tally.miscounted[found->verdict.empty() ? "harmless" : found->verdict];
      continue;
    }
    if (how == 0) ++tally.verdicts[found->verdict.empty() ? "right" : found->verdict];
    if (verdict == found->verdict) continue;
    tally.wrong.push_back(
        fmt::format("seed {}{}{}: the verifier says '{}', exploring shows '{}' {}\n{}{}", seed,
                    symmetry ? " with symmetry" : "", at_once ? " at once" : "", verdict,
                    found->verdict, found->what, ir::print(p), said.render()));
    return;
  }
}

}  // namespace

TEST_CASE("the verifier says of small Programs what all their interleavings show") {
  const char* more = std::getenv("MACO_PROOFS_MORE");
  const auto seeds = static_cast<uint32_t>(5000 * (more ? std::max(1, std::atoi(more)) : 1));
  Tally tallies[2];
  const auto worker = [&](uint32_t first) {
    for (uint32_t seed = first; seed < seeds; seed += 2) one(seed, tallies[first]);
  };
  std::thread other(worker, 1);
  worker(0);
  other.join();
  Tally all = tallies[0];
  for (const auto& [v, n] : tallies[1].verdicts) all.verdicts[v] += n;
  for (const auto& [v, n] : tallies[1].miscounted) all.miscounted[v] += n;
  all.states += tallies[1].states;
  all.too_large += tallies[1].too_large;
  all.not_about_order += tallies[1].not_about_order;
  all.more_launches += tallies[1].more_launches;
  all.symmetric += tallies[1].symmetric;
  all.wrong.insert(all.wrong.end(), tallies[1].wrong.begin(), tallies[1].wrong.end());
  std::cout << fmt::format(
      "{} seeds, {} states; {} not about order, {} too large, {} with a launch more than needed, "
      "{} symmetric\n",
      seeds, all.states, all.not_about_order, all.too_large, all.more_launches, all.symmetric);
  for (const auto& [v, n] : all.verdicts) std::cout << fmt::format("{:>8} {}\n", n, v);
  for (const auto& [v, n] : all.miscounted)
    std::cout << fmt::format("{:>8} refused for a count, {}\n", n, v);
  for (size_t i = 0; i < all.wrong.size() && i < 5; ++i) std::cout << all.wrong[i] << "\n";
  std::cout << all.wrong.size() << " disagreements\n" << std::flush;
  CHECK(all.wrong.empty());
  CHECK(all.verdicts["right"] >= 1000);
  CHECK(all.verdicts["race"] >= 400);
  CHECK(all.verdicts["deadlock"] >= 30);
  CHECK(all.more_launches >= 1000);
  CHECK(all.symmetric >= 300);
}

}  // namespace maco::proofs
