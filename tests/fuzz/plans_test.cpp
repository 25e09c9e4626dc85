// Random execution plans of MSCCL++: any number of thread blocks share the work of a collective.
// They meet at barriers, or by semaphores, wherever one goes on with another's work, and also
// elsewhere. The result of `macoc import` for each plan is compiled, run and compared with the
// reference.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <set>

#include "compiler/frontend/mscclpp_plan.h"
#include "tests/catch.h"
#include "tests/fuzz/random_values.h"
#include "tests/fuzz/run_case.h"
#include "tests/mscclpp_plan.h"

namespace maco::fuzz {
namespace {

using test::moves;
using test::own;
using test::peers;

constexpr const char* kKinds[] = {"allgather", "allreduce",      "allreduce twoshot",
                                  "alltoall",  "reduce_scatter", "broadcast"};

/// The thread blocks of one rank; their operations are added in an order in which they could be
/// done.
class Blocks {
 public:
  Blocks(Random& r, size_t count) : r_(r), ops_(count) {}

  size_t any() const { return r_.below(ops_.size()); }
  void add(size_t block, const std::string& op) {
    if (r_.chance(8)) push(block, R"({"name":"nop"})");
    push(block, op);
    if (r_.chance(10)) {
      std::set<size_t> some;
      for (int i = 0; i < 3; ++i) some.insert(any());
      barrier(some);
    }
  }
  /// Orders everything that any of `to` does from here on after what `from` have done.
  void order(const std::set<size_t>& from, std::set<size_t> to) {
    if (r_.chance(70)) {
      to.insert(from.begin(), from.end());
      while (r_.chance(30)) to.insert(any());
      return barrier(to);
    }
    for (const size_t a : from)
      for (const size_t b : to) {
        if (a == b) continue;
        const std::string keys = fmt::format(R"("semaphore_ids":[{}]}})", semaphores_++);
        push(a, R"({"name":"sem_release",)" + keys);
        push(b, R"({"name":"sem_acquire",)" + keys);
      }
  }
  /// A single block meets nobody.
  void barrier(const std::set<size_t>& blocks) {
    std::vector<size_t>& ids = barriers_[blocks];
    // The same number again, or a new one.
    if (ids.empty() || r_.chance(30)) ids.push_back(next_barrier_++);
    for (const size_t block : blocks)
      push(block, fmt::format(R"({{"name":"barrier","barrier_id":{},"num_threadblocks":{}}})",
                              ids.back(), blocks.size()));
    ++met_[{blocks.size() > 1, blocks.count(0) > 0}];
  }

  std::vector<std::string> texts() const {
    std::vector<std::string> list;
    for (const auto& block : ops_) list.push_back(fmt::format("{}", fmt::join(block, ",")));
    return list;
  }
  size_t semaphores() const { return semaphores_; }
  /// Barriers, by whether several meet and whether block 0 does.
  const std::map<std::pair<bool, bool>, int>& met() const { return met_; }

 private:
  void push(size_t block, const std::string& op) { ops_[block].push_back(op); }

  Random& r_;
  std::vector<std::vector<std::string>> ops_;
  std::map<std::set<size_t>, std::vector<size_t>> barriers_;
  size_t next_barrier_ = 0, semaphores_ = 0;
  std::map<std::pair<bool, bool>, int> met_;
};

class RandomPlan {
 public:
  explicit RandomPlan(uint64_t seed) : r_(seed), kind_(kKinds[seed % std::size(kKinds)]) {
    world_ = static_cast<int>(r_.range(2, 4));
    chunks_ = static_cast<int>(r_.range(1, 3));
    const auto blocks = static_cast<size_t>(r_.range(1, 4));
    for (int rank = 0; rank < world_; ++rank)
      ranks_.emplace_back(r_,
                          r_.chance(70) ? blocks : static_cast<size_t>(r_.range(1, kMostBlocks)));
    root_ = static_cast<int>(r_.range(0, world_ - 1));
  }

  std::string text() {
    make();
    plan_.world = world_;
    plan_.memory = kMostBlocks * 2;
    plan_.ops.clear();
    size_t semaphores = 0;
    for (const Blocks& b : ranks_) {
      plan_.ops.push_back(b.texts());
      semaphores = std::max(semaphores, b.semaphores());
      for (const auto& [what, count] : b.met()) met[what] += count;
    }
    plan_.semaphores = {fmt::format(
        "{}", fmt::join(std::vector<std::string>(semaphores, R"({"init_value":0})"), ","))};
    return plan_.text();
  }
  int world() const { return world_; }

  std::map<std::pair<bool, bool>, int> met;

 private:
  static constexpr int kMostBlocks = 4;
  using Set = std::set<size_t>;

  void make() {
    const bool sums = kind_.rfind("allreduce", 0) == 0;
    plan_.collective = sums ? "allreduce" : kind_ == "reduce_scatter" ? "reducescatter" : kind_;
    const int all = world_ * chunks_;
    plan_.input = plan_.output = kind_ == "broadcast" || kind_ == "allreduce" ? chunks_ : all;
    plan_.scratch = sums || kind_ == "reduce_scatter" ? all : 0;
    if (kind_ == "allgather") plan_.input = chunks_;
    if (kind_ == "reduce_scatter") plan_.output = chunks_;
    plan_.in_place =
        (kind_ == "allgather" || kind_ == "broadcast" || kind_ == "allreduce twoshot") &&
        r_.chance(50);
    if (kind_ == "allgather") {
      if (!plan_.in_place) copies([&](int rank, int c) { return std::pair(c, at(rank, c)); });
      exchange("i", "o", 0, [&](int from, int, int c) { return std::pair(c, at(from, c)); });
    } else if (kind_ == "alltoall") {
      copies([&](int rank, int c) { return std::pair(at(rank, c), at(rank, c)); });
      exchange("i", "o", 0,
               [&](int from, int to, int c) { return std::pair(at(to, c), at(from, c)); });
    } else if (kind_ == "broadcast") {
      only_ = root_;
      if (!plan_.in_place) copies([&](int, int c) { return std::pair(c, c); });
      exchange("i", "o", 0, [&](int, int, int c) { return std::pair(c, c); });
      only_.reset();
    } else if (kind_ == "allreduce") {
      exchange("i", "s", 0, [&](int from, int, int c) { return std::pair(c, at(from, c)); });
      reduce([&](int, int c) { return std::pair(c, c); });
    } else {
      exchange("i", "s", 0,
               [&](int from, int to, int c) { return std::pair(at(to, c), at(from, c)); });
      const bool two = kind_ == "allreduce twoshot";
      reduce([&](int rank, int c) { return std::pair(at(rank, c), two ? at(rank, c) : c); });
      if (two)
        exchange("o", "o", 1,
                 [&](int from, int, int c) { return std::pair(at(from, c), at(from, c)); });
    }
    // The executor counts the chunks of one buffer.
    if (plan_.in_place && kind_ != "allgather" && r_.chance(50)) plan_.output = 0;
  }

  int at(int rank, int c) const { return rank * chunks_ + c; }
  int order(int rank, int peer) const { return peer < rank ? peer : peer - 1; }
  /// A rank's n-th channel to a peer.
  std::string channel(int rank, int peer, size_t n) const {
    return fmt::format("{}", static_cast<int>(n) * (world_ - 1) + order(rank, peer));
  }
  bool takes_part(int rank) const { return !only_ || *only_ == rank; }

  /// places(rank, c): the place in the input to copy from, and the place in the output.
  template <class Places>
  void copies(const Places& places) {
    for (int rank = 0; rank < world_; ++rank)
      for (int c = 0; c < chunks_ && takes_part(rank); ++c) {
        Blocks& b = ranks_[static_cast<size_t>(rank)];
        const auto [from, to] = places(rank, c);
        b.add(b.any(), moves("copy", own("i", from), own("o", to), R"("x":0)"));
      }
  }

  /// Each rank puts what places(rank, peer, c) says into its peers. Some of the peers' blocks then
  /// know of it: `arrived_`.
  template <class Places>
  void exchange(const char* source, const char* target, size_t round, const Places& places) {
    const int buffer = target == std::string("o") ? 1 : 2;
    // By rank and peer: the blocks of the rank that signal the peer.
    std::map<std::pair<int, int>, Set> signals;
    for (int rank = 0; rank < world_; ++rank) {
      if (!takes_part(rank)) continue;
      Blocks& b = ranks_[static_cast<size_t>(rank)];
      std::map<int, Set> putters;
      Set all;
      if (!made_[rank].empty()) {
        // Blocks that put what others have made.
        Set to;
        for (int i = 0; i < 2; ++i) to.insert(b.any());
        b.order(made_[rank], to);
        all = to;
      }
      const std::vector<size_t> may(all.begin(), all.end());
      for (int peer = 0; peer < world_; ++peer)
        for (int c = 0; c < chunks_ && peer != rank; ++c) {
          const size_t block = may.empty() ? b.any() : r_.pick(may);
          const auto [from, to] = places(rank, peer, c);
          b.add(block, moves("put", own(source, from), peers(3 * order(rank, peer) + buffer, to)));
          putters[peer].insert(block);
          all.insert(block);
        }
      if (r_.chance(50)) {
        // One signals for all.
        const size_t one = b.any();
        b.order(all, {one});
        for (auto& [peer, blocks] : putters) blocks = {one};
      }
      for (const auto& [peer, blocks] : putters) {
        for (const size_t block : blocks)
          b.add(block, test::syncs("signal", channel(rank, peer, 2 * block + round)));
        signals[{rank, peer}] = blocks;
      }
    }
    for (const auto& [who, blocks] : signals) {
      const auto [rank, peer] = who;
      Blocks& b = ranks_[static_cast<size_t>(peer)];
      for (const size_t block : blocks) {
        const size_t waiter = b.any();
        b.add(waiter, test::syncs("wait", channel(peer, rank, 2 * block + round)));
        arrived_[peer].insert(waiter);
      }
    }
  }

  /// places(rank, c): the chunk of its input that a rank adds to those that arrived, and the
  /// destination.
  template <class Places>
  void reduce(const Places& places) {
    for (int rank = 0; rank < world_; ++rank) {
      Blocks& b = ranks_[static_cast<size_t>(rank)];
      Set reducers;
      for (int i = 0; i < 2; ++i) reducers.insert(b.any());
      b.order(arrived_[rank], reducers);
      const std::vector<size_t> list(reducers.begin(), reducers.end());
      for (int c = 0; c < chunks_; ++c) {
        const auto [from, to] = places(rank, c);
        // In the same order on all ranks, so that they make the same bits.
        std::vector<std::string> parts;
        for (int r = 0; r < world_; ++r)
          parts.push_back(r == rank ? own("i", from) : own("s", at(r, c)));
        const size_t block = r_.pick(list);
        b.add(block, moves("re", fmt::format("{}", fmt::join(parts, ",")), own("o", to),
                           R"("reduce_op":"sum")"));
        made_[rank].insert(block);
      }
    }
  }

  Random r_;
  const std::string kind_;
  int world_ = 2, chunks_ = 1, root_ = 0;
  std::optional<int> only_;  // the rank that sends
  std::vector<Blocks> ranks_;
  std::map<int, Set> arrived_, made_;  // by rank: the blocks that know of it
  test::Plan plan_;
};

}  // namespace

TEST_CASE("random plans of MSCCL++") {
  report_crashes();
  constexpr uint64_t kPlans = 84;
  constexpr size_t kBatch = 12;
  std::map<std::pair<bool, bool>, int> met;
  std::vector<std::vector<Case>> batches;
  for (uint64_t seed = 0; seed < kPlans; ++seed) {
    RandomPlan plan(seed);
    const std::string text = plan.text();
    for (const auto& [what, count] : plan.met) met[what] += count;
    Random r(seed + kPlans);
    frontend::PlanOptions options;
    options.elements = plan.world() * r.range(1, 300);
    options.dtype = r.pick<ir::DType>({ir::DType::F32, ir::DType::BF16, ir::DType::I32});
    ir::Diagnostics d;
    const auto graph = frontend::import_plan(d.add_file("plan.json", text), options, d);
    INFO("seed " << seed << "\n" << text << "\n" << d.render());
    REQUIRE(graph);
    Case c;
    c.name = fmt::format("plan {}", seed);
    c.text = *graph;
    c.launches = {{}, {}};
    c.seed = seed;
    if (batches.empty() || batches.back().size() == kBatch) batches.emplace_back();
    batches.back().push_back(std::move(c));
  }
  // Several blocks meet, with block 0 and without.
  CHECK(met[{true, true}] > 50);
  CHECK(met[{true, false}] > 50);

  for (size_t i = 0; i < batches.size(); ++i) {
    const Where where = {.quick = true};
    const BatchResult r = run_batch(batches[i], where);
    for (size_t k = 0; k < batches[i].size(); ++k) {
      INFO(batches[i][k].name << "\n" << batches[i][k].text);
      CHECK(r.errors[k] == "");
    }
  }
  std::cout << fmt::format("{} plans ran\n", kPlans);
}

}  // namespace maco::fuzz
