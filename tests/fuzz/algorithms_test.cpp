// Random algorithms: chunks travel and are reduced along random trees, by puts, gets and reductions
// of peers' chunks, in any order that keeps each chunk's steps in order. MACO_PROOFS_MORE=N: N
// times as many.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <iostream>
#include <map>
#include <thread>

#include "tests/fuzz/random_values.h"
#include "tests/fuzz/run_case.h"

namespace maco::fuzz {
namespace {

// The statements of one collective, chunk by chunk; those of a chunk keep their order.
class Algorithm {
 public:
  Algorithm(Random& r, std::string kind, int world, std::string name)
      : r_(r), kind_(std::move(kind)), world_(world), name_(std::move(name)) {
    parts_ = static_cast<int>(r.range(1, 3));
    in_place_ = kind_ != "alltoall" && r.chance(40);
    root_ = static_cast<int>(r.range(0, world - 1));
  }

  std::string text() {
    const bool blocks = kind_ == "allgather" || kind_ == "reduce_scatter" || kind_ == "alltoall";
    for (int block = 0; block < (blocks ? world_ : 1); ++block)
      for (int part = 0; part < parts_; ++part) {
        chains_.emplace_back();
        const int chunk = block * parts_ + part;
        if (kind_ == "allreduce") {
          spread(fmt::format("output[{}]", chunk), reduce(chunk, any(), chunk));
        } else if (kind_ == "reduce_scatter") {
          reduce(chunk, block, part);
        } else if (kind_ == "allgather") {
          say(block, fmt::format("output[{}] = copy(input[{}]", chunk, part));
          spread(fmt::format("output[{}]", chunk), block);
        } else if (kind_ == "broadcast") {
          say(root_, fmt::format("output[{0}] = copy(input[{0}]", chunk));
          spread(fmt::format("output[{}]", chunk), root_);
        } else {
          for (int from = 0; from < world_; ++from) send(chunk, from, block, from * parts_ + part);
        }
      }
    const bool in_blocks = kind_ == "reduce_scatter" || kind_ == "alltoall";
    std::string s = fmt::format("collective {}(of = {}, chunks = {}, scratch = {}{}) {{\n", name_,
                                kind_, in_blocks ? parts_ * world_ : parts_, scratch_,
                                in_place_ ? ", in_place = true" : "");
    while (!chains_.empty()) {
      const auto i = static_cast<size_t>(r_.range(0, static_cast<int64_t>(chains_.size()) - 1));
      if (chains_[i].empty()) {
        chains_.erase(chains_.begin() + static_cast<std::ptrdiff_t>(i));
        continue;
      }
      s += "  " + chains_[i].front() + "\n";
      chains_[i].erase(chains_[i].begin());
    }
    return s + "}\n";
  }
  std::string use(const std::string& x, const std::string& reduce) const {
    std::string attrs;
    if (kind_ == "allreduce" || kind_ == "reduce_scatter") attrs = ", reduce = " + reduce;
    if (kind_ == "broadcast") attrs = fmt::format(", root = {}", root_);
    return fmt::format("{}({}{}, algorithm = {})", kind_, x, attrs, name_);
  }

 private:
  int any() { return static_cast<int>(r_.range(0, world_ - 1)); }
  void say(int rank, const std::string& statement) {
    chains_.back().push_back(fmt::format("{}, if = rank == {})", statement, rank));
  }
  std::string cell() { return fmt::format("scratch[{}]", scratch_++); }
  static std::string at(const std::string& chunk, int rank) {
    return fmt::format("{} @ {}", chunk, rank);
  }

  // Reduces a chunk over all ranks, into output[out] of `to` or anywhere; returns the rank.
  int reduce(int chunk, int to, int out) {
    struct Part {
      int rank;
      std::string place;
    };
    std::vector<Part> parts;
    for (int r = 0; r < world_; ++r) parts.push_back({r, fmt::format("input[{}]", chunk)});
    r_.shuffle(parts);
    while (parts.size() > 1) {
      const auto count = static_cast<size_t>(
          std::min<int64_t>(r_.range(2, 4), static_cast<int64_t>(parts.size())));
      const bool last = count == parts.size();
      const int rank = last ? to : parts[0].rank;
      std::string from;
      for (size_t i = 0; i < count; ++i) {
        std::string place = parts[i].place;
        if (parts[i].rank != rank && r_.chance(50)) {
          const std::string slot = cell();
          say(parts[i].rank, fmt::format("{} = put({}", at(slot, rank), place));
          place = slot;
        } else if (parts[i].rank != rank) {
          place = at(place, parts[i].rank);
        }
        from += (i == 0 ? "" : ", ") + place;
      }
      const std::string made = last ? fmt::format("output[{}]", out) : cell();
      say(rank, fmt::format("{} = reduce({}", made, from));
      parts.erase(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(count));
      parts.push_back({rank, made});
      r_.shuffle(parts);
    }
    if (world_ == 1) say(0, fmt::format("output[{}] = copy(input[{}]", out, chunk));
    return to;
  }

  // Copies from `from` to the same place on all other ranks.
  void spread(const std::string& place, int from) {
    std::vector<int> have = {from}, rest;
    for (int r = 0; r < world_; ++r)
      if (r != from) rest.push_back(r);
    r_.shuffle(rest);
    while (!rest.empty()) {
      const int holder = r_.pick(have);
      const int to = rest.back();
      rest.pop_back();
      if (r_.chance(50))
        say(holder, fmt::format("{} = put({}", at(place, to), place));
      else
        say(to, fmt::format("{} = get({}", place, at(place, holder)));
      have.push_back(to);
    }
  }

  // Sends a chunk of an all-to-all, sometimes by way of another rank.
  void send(int chunk, int from, int to, int out) {
    const std::string source = fmt::format("input[{}]", chunk),
                      target = fmt::format("output[{}]", out);
    const int over = any();
    if (from == to) {
      say(from, fmt::format("{} = copy({}", target, source));
    } else if (over != from && over != to && r_.chance(40)) {
      const std::string slot = cell();
      say(from, fmt::format("{} = put({}", at(slot, over), source));
      say(to, fmt::format("{} = get({}", target, at(slot, over)));
    } else {
      say(from, fmt::format("{} = put({}", at(target, to), source));
    }
  }

  Random& r_;
  std::string kind_;
  int world_, parts_ = 1, root_ = 0, scratch_ = 0;
  std::string name_;
  bool in_place_ = false;
  std::vector<std::vector<std::string>> chains_;
};

Case random_case(uint64_t seed, std::map<std::string, int>& met) {
  Random r(seed);
  constexpr int kWorlds[] = {2, 3, 4, 5, 7, 8, 1};
  const int world = kWorlds[seed % std::size(kWorlds)];
  const bool dims = seed / std::size(kWorlds) % 2 == 1;
  std::string algorithms, inputs, ops;
  int n = 0;
  for (const char* kind :
       {"allreduce", "allgather", "reduce_scatter", "alltoall", "broadcast", "allreduce"}) {
    const std::string dtype =
        r.word({"f32", "bf16", "f16", "i32", "u8", "f8e4m3", "f32", "bf16", "i32"});
    // Sums of floats must have one order on all ranks: each is made once.
    const bool whole = dtype == "i32" || dtype == "u8" || dtype == "f8e4m3";
    const std::string reduce =
        whole ? r.word({"sum", "max", "min"}) : r.word({"sum", "avg", "max"});
    const std::string rows = dims ? "tokens" : fmt::format("{}", r.pick<int64_t>({1, 9, 23}));
    const bool in_blocks = kind == std::string("reduce_scatter") || kind == std::string("alltoall");
    const std::string shape = fmt::format("[{}{}, {}]", in_blocks ? "world * " : "", rows,
                                          r.pick<int64_t>({5, 48, 130, 700}));
    Algorithm a(r, kind, world, fmt::format("a{}", n));
    algorithms += a.text();
    inputs += fmt::format("  input x{} : {}{}\n", n, dtype, shape);
    ops += fmt::format("  output y{} = {}\n", n, a.use(fmt::format("x{}", n), reduce));
    ++met[kind];
    ++met[dtype];
    ++n;
  }
  Case c;
  c.name = fmt::format("algorithms {}", seed);
  c.text = algorithms + fmt::format("graph algorithms_{}(world = {}) {{\n", seed, world) +
           (dims ? "  dim tokens <= 23\n" : "") + inputs + ops + "}\n";
  if (dims)
    c.launches = {{{"tokens", 23}}, {{"tokens", 1}}, {{"tokens", 12}}, {{"tokens", 23}}};
  else
    c.launches = {{}, {}, {}};
  c.seed = seed;
  return c;
}

}  // namespace

TEST_CASE("random algorithms") {
  report_crashes();
  const char* more = std::getenv("MACO_PROOFS_MORE");
  const uint64_t count = 28 * static_cast<uint64_t>(more ? std::max(1, std::atoi(more)) : 1);
  std::map<std::string, int> met;
  std::vector<Case> cases;
  for (uint64_t seed = 0; seed < count; ++seed) cases.push_back(random_case(seed, met));
  for (const char* dtype : {"f32", "bf16", "f16", "i32", "u8", "f8e4m3"}) CHECK(met[dtype] > 0);

  constexpr size_t kBatch = 4;
  std::vector<std::string> errors(cases.size());
  std::atomic<size_t> next{0};
  const auto worker = [&] {
    for (size_t first = kBatch * next++; first < cases.size(); first = kBatch * next++) {
      const size_t last = std::min(cases.size(), first + kBatch);
      const BatchResult r =
          run_batch({cases.begin() + static_cast<std::ptrdiff_t>(first),
                     cases.begin() + static_cast<std::ptrdiff_t>(last)},
                    {.check_access = first / kBatch % 3 == 2, .quick = first / kBatch % 4 != 0});
      std::copy(r.errors.begin(), r.errors.end(),
                errors.begin() + static_cast<std::ptrdiff_t>(first));
    }
  };
  std::thread other(worker);
  worker();
  other.join();
  for (size_t i = 0; i < cases.size(); ++i) {
    INFO(cases[i].text);
    CHECK(errors[i] == "");
  }
  std::cout << fmt::format("{} graphs of {} algorithms each\n", cases.size(), 6);
}

}  // namespace maco::fuzz
