#include "compiler/ops/collectives/chunk_witness.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <tuple>

#include "compiler/ops/attrs.h"
#include "compiler/ops/collectives/chunk_program.h"

namespace maco::ops {

namespace {

using At = ChunkFault::At;
using Kind = ChunkAction::Kind;

constexpr std::string_view kClaims[] = {"race", "unseen", "empty", "late", "deadlock", "result"};

// For each block of a rank: its statements.
using Blocks = std::map<std::pair<int, int64_t>, std::vector<const ChunkAction*>>;
Blocks blocks_of(const ChunkProgram& program) {
  Blocks blocks;
  const auto everywhere = [](const ChunkAction& x) {
    return x.kind == Kind::Barrier && !x.op->block;
  };
  for (const ChunkAction& x : program.actions) {
    if (!everywhere(x)) blocks[{x.rank, program.ordered ? x.block : 0}];
    for (int64_t b : x.blocks) blocks[{x.rank, b}];
  }
  for (const ChunkAction& x : program.actions) {
    if (!everywhere(x)) {
      blocks[{x.rank, program.ordered ? x.block : 0}].push_back(&x);
      continue;
    }
    for (auto& [at, list] : blocks)
      if (at.first == x.rank &&
          (x.blocks.empty() || std::count(x.blocks.begin(), x.blocks.end(), at.second) > 0))
        list.push_back(&x);
  }
  return blocks;
}

std::string text_of(const ChunkShape& shape, const ChunkAction& x) {
  const auto list = [&](const std::vector<ChunkCell>& cells) {
    std::string text;
    for (const ChunkCell& c : cells)
      text += fmt::format("{}{}{}", text.empty() ? "" : ", ", shape.name(c.rank, c.cell),
                          c.rank == x.rank ? "" : fmt::format(" @ {}", c.rank));
    return text;
  };
  switch (x.kind) {
    case Kind::Copy:
    case Kind::Reduce: return fmt::format("{} = {}({})", list(x.to), x.op->kind, list(x.from));
    case Kind::Signal: return fmt::format("signal(to = {}, tag = {})", x.peer, x.tag);
    case Kind::Wait: return fmt::format("wait(from = {}, tag = {})", x.peer, x.tag);
    case Kind::Acquire: return fmt::format("acquire(semaphore = {})", x.semaphore);
    case Kind::Release: return fmt::format("release(semaphore = {})", x.semaphore);
    case Kind::Barrier: return "barrier()";
  }
  return "";
}
std::string text_of(const At& at) {
  return fmt::format("rank {} block {} step {}", at.rank, at.block, at.step);
}

/// A run of the author's statements. Chunks hold sets of (rank, chunk of its input).
class Run {
 public:
  explicit Run(const ChunkProgram& program)
      : p_(program), blocks_(blocks_of(program)), memory_(size()), arrived_(size(), false) {
    const ChunkShape& s = p_.shape;
    for (int r = 0; r < s.world; ++r)
      for (int64_t c = 0; c < s.chunks; ++c) memory_[place({r, s.input_cell(r, c)})] = {{r, c}};
    for (const ChunkAction& x : p_.actions)
      if (x.packets)
        for (const ChunkCell& c : x.to)
          if (s.is_scratch(c.cell)) packets_.insert(place(c));
  }

  using Content = std::multiset<std::pair<int, int64_t>>;
  const Blocks& blocks() const { return blocks_; }
  const Content& at(ChunkCell c) const { return memory_[place(c)]; }
  /// The next statement of a block, or nullptr.
  const ChunkAction* next(std::pair<int, int64_t> block) const {
    const auto found = blocks_.find(block);
    if (found == blocks_.end()) return nullptr;
    const auto done = done_.find(block);
    const size_t n = done == done_.end() ? 0 : done->second;
    return n < found->second.size() ? found->second[n] : nullptr;
  }
  const ChunkAction* next(const At& at) const {
    const auto done = done_.find({at.rank, at.block});
    const auto n = static_cast<int64_t>(done == done_.end() ? 0 : done->second);
    return n == at.step ? next(std::pair(at.rank, at.block)) : nullptr;
  }

  bool can_do(std::pair<int, int64_t> block) const {
    const ChunkAction* x = next(block);
    if (!x) return false;
    switch (x->kind) {
      case Kind::Copy:
      case Kind::Reduce:
        return std::all_of(x->from.begin(), x->from.end(), [&](const ChunkCell& c) {
          return !p_.ordered || !packets_.count(place(c)) || arrived_[place(c)];
        });
      case Kind::Wait:
      case Kind::Acquire: return count(key(*x)) > 0;
      case Kind::Barrier: {
        // Others have left this meeting already, or all blocks that meet have reached it.
        if (passed(block, *x) < met(*x)) return true;
        size_t here = 0, come = 0;
        for (const auto& [other, list] : blocks_) {
          const auto meets = [&](const ChunkAction* y) {
            return y && y->kind == Kind::Barrier && y->blocks == x->blocks;
          };
          if (other.first != x->rank || std::none_of(list.begin(), list.end(), meets)) continue;
          ++come;
          here += meets(next(other)) && passed(other, *x) == met(*x);
        }
        return here == come;
      }
      case Kind::Signal:
      case Kind::Release: return true;
    }
    return true;
  }

  void perform(std::pair<int, int64_t> block) {
    const ChunkAction& x = *next(block);
    if (x.kind == Kind::Copy || x.kind == Kind::Reduce) {
      // Without blocks all ranks read before any of them writes.
      if (!p_.ordered && statement_ != x.op) flush();
      statement_ = x.op;
      Content sum;
      for (const ChunkCell& c : x.from) sum.insert(at(c).begin(), at(c).end());
      for (const ChunkCell& c : x.to) {
        writes_.emplace_back(place(c), sum);
        arrived_[place(c)] = true;
      }
      if (p_.ordered) flush();
    } else if (x.kind == Kind::Wait || x.kind == Kind::Acquire) {
      --counts_[key(x)];
    } else if (x.kind == Kind::Signal || x.kind == Kind::Release) {
      ++counts_[key(x)];
    } else {
      int64_t& gone = passed_[{block, x.blocks}];
      int64_t& meetings = met_[{x.rank, x.blocks}];
      if (gone == meetings) ++meetings;
      ++gone;
    }
    ++done_[block];
  }
  void flush() {
    for (auto& [cell, content] : writes_) memory_[cell] = std::move(content);
    writes_.clear();
  }
  static bool touches(const ChunkAction& x, ChunkCell c, bool writes) {
    const auto has = [&](const std::vector<ChunkCell>& list) {
      return std::find(list.begin(), list.end(), c) != list.end();
    };
    return has(x.to) || (!writes && has(x.from));
  }
  std::string show(const Content& content) const {
    if (content.empty()) return "nothing";
    std::string text;
    for (const auto& [rank, chunk] : content)
      text += fmt::format("{}input[{}] of rank {}", text.empty() ? "" : " + ", chunk, rank);
    return text;
  }

 private:
  using Key = std::tuple<int, int, int, int64_t, int64_t>;
  static Key key(const ChunkAction& x) {
    if (x.kind == Kind::Acquire || x.kind == Kind::Release) return {1, x.rank, 0, x.semaphore, 0};
    const bool signals = x.kind == Kind::Signal;
    return {0, signals ? x.rank : x.peer, signals ? x.peer : x.rank, x.tag, x.unit};
  }
  int64_t count(const Key& k) const {
    const auto found = counts_.find(k);
    int64_t n = found == counts_.end() ? 0 : found->second;
    if (std::get<0>(k) == 1 && static_cast<size_t>(std::get<3>(k)) < p_.semaphores.size())
      n += p_.semaphores[static_cast<size_t>(std::get<3>(k))];
    return n;
  }
  // How many of such barriers the block has passed, and how many have been met in all.
  int64_t passed(std::pair<int, int64_t> block, const ChunkAction& x) const {
    const auto found = passed_.find({block, x.blocks});
    return found == passed_.end() ? 0 : found->second;
  }
  int64_t met(const ChunkAction& x) const {
    const auto found = met_.find({x.rank, x.blocks});
    return found == met_.end() ? 0 : found->second;
  }
  size_t size() const { return static_cast<size_t>(p_.shape.memory() * p_.shape.world); }
  size_t place(ChunkCell c) const {
    return static_cast<size_t>(c.rank * p_.shape.memory() + c.cell);
  }

  const ChunkProgram& p_;
  Blocks blocks_;
  std::vector<Content> memory_;
  std::vector<bool> arrived_;
  std::set<size_t> packets_;
  std::map<std::pair<int, int64_t>, size_t> done_;
  std::map<Key, int64_t> counts_;
  std::map<std::pair<std::pair<int, int64_t>, std::vector<int64_t>>, int64_t> passed_;
  std::map<std::pair<int, std::vector<int64_t>>, int64_t> met_;
  const ir::ChunkOp* statement_ = nullptr;
  std::vector<std::pair<size_t, Content>> writes_;
};

class Replay {
 public:
  Replay(const ChunkProgram& program, const std::string& reduce, const ChunkFault& fault)
      : p_(program), blocks_(blocks_of(program)), reduce_(reduce), f_(fault) {}

  ChunkReplay run_at_random(uint64_t seed) {
    Run run(p_);
    uint64_t state = seed * 2 + 1;
    while (true) {
      std::vector<std::pair<int, int64_t>> ready;
      for (const auto& [block, list] : run.blocks())
        if (run.can_do(block)) ready.push_back(block);
      if (ready.empty()) break;
      state = state * 6364136223846793005u + 1442695040888963407u;
      run.perform(ready[(state >> 33) % ready.size()]);
    }
    run.flush();
    deadlock(run);
    if (!r_.confirmed) result(run);
    return std::move(r_);
  }
  ChunkReplay run() {
    Run run(p_);
    for (size_t i = 0; i < f_.run.size(); ++i) {
      const At& at = f_.run[i];
      const std::pair block{at.rank, at.block};
      if (!run.next(at)) return fail("statement {} of the run, {}, isn't its block's next", i, at);
      if (!run.can_do(block)) return fail("statement {} of the run, {}, has to wait", i, at);
      run.perform(block);
    }
    run.flush();
    say("{} statements done", f_.run.size());
    switch (f_.claim) {
      case ChunkFault::Claim::Race: race(run); break;
      case ChunkFault::Claim::Empty: empty(run); break;
      case ChunkFault::Claim::Late: late(run); break;
      case ChunkFault::Claim::Deadlock: deadlock(run); break;
      case ChunkFault::Claim::Result: result(run); break;
      case ChunkFault::Claim::Unseen: unseen(); break;
    }
    return std::move(r_);
  }

 private:
  template <class... Args>
  void say(fmt::format_string<Args...> text, Args&&... args) {
    r_.story += fmt::format(text, std::forward<Args>(args)...) + "\n";
  }
  ChunkReplay fail(const char* text, size_t number, const At& at) {
    r_.error = fmt::format(fmt::runtime(text), number + 1, text_of(at));
    return std::move(r_);
  }
  // The statement that the witness names, if it can be done now.
  const ChunkAction* possible(const Run& run, const At& at) {
    const ChunkAction* x = run.next(at);
    if (!x || !run.can_do({at.rank, at.block})) {
      say("{} can't be next", text_of(at));
      return nullptr;
    }
    say("{} can be next: {}", text_of(at), text_of(p_.shape, *x));
    return x;
  }

  void race(const Run& run) {
    if (f_.about.size() != 2) return;
    // Without blocks all ranks execute a statement at once, and each rank does its parts of a
    // statement in order.
    Run both = run;
    const ChunkAction* x = possible(both, f_.about[0]);
    if (!x) return;
    if (!p_.ordered)
      while (!both.next(f_.about[1]) && both.next(std::pair(f_.about[1].rank, int64_t{0})) &&
             both.next(std::pair(f_.about[1].rank, int64_t{0}))->op == x->op)
        both.perform({f_.about[1].rank, 0});
    const ChunkAction* y = possible(both, f_.about[1]);
    if (!y) return;
    for (const auto* list : {&x->to, &x->from, &y->to})
      for (const ChunkCell& c : *list) {
        if (!Run::touches(*x, c, false) || !Run::touches(*y, c, false)) continue;
        if (!Run::touches(*x, c, true) && !Run::touches(*y, c, true)) continue;
        say("both touch {} of rank {}, and one writes it", p_.shape.name(c.rank, c.cell), c.rank);
        r_.confirmed = true;
        return;
      }
    say("no chunk is touched by both and written by one");
  }
  void empty(const Run& run) {
    if (f_.about.size() != 1) return;
    Run to = run;
    const At& at = f_.about[0];
    if (!p_.ordered)
      while (!to.next(at) && to.next(std::pair(at.rank, int64_t{0}))) to.perform({at.rank, 0});
    const ChunkAction* x = possible(to, at);
    if (!x) return;
    for (const ChunkCell& c : x->from)
      if (run.at(c).empty()) {
        say("it reads {} of rank {}, which holds nothing", p_.shape.name(c.rank, c.cell), c.rank);
        r_.confirmed = true;
      }
  }
  // The first statement's write may not be visible yet: no release follows it, or no acquire
  // precedes the second statement.
  void unseen() {
    if (f_.about.empty()) return;
    const At& first = f_.about[0];
    const auto is_sync = [&](const At& at, bool releases) {
      const auto block = blocks_.find({at.rank, at.block});
      if (block == blocks_.end() || at.step >= static_cast<int64_t>(block->second.size()))
        return false;
      const ChunkAction& x = *block->second[static_cast<size_t>(at.step)];
      if (x.kind == Kind::Barrier) return true;
      return releases ? (x.kind == Kind::Signal && !x.relaxed) || x.kind == Kind::Release
                      : (x.kind == Kind::Wait && !x.relaxed) || x.kind == Kind::Acquire;
    };
    bool done = false, released = false, acquired = false;
    for (const At& at : f_.run) {
      if (at == first) done = true;
      if (!done) continue;
      const bool own = at.rank == first.rank && at.block == first.block;
      released = released || (own && at != first && is_sync(at, true));
      acquired = acquired || (!own && is_sync(at, false));
    }
    if (!done) return say("{} isn't in the run", text_of(first));
    if (released && acquired) {
      r_.error =
          "the run has a release and an acquire behind the write: whether they meet, only "
          "the compiler's check of order tells";
      return;
    }
    say("nothing {} behind {}: what it writes may still be on its way",
        released ? "acquires" : "releases", text_of(first));
    r_.confirmed = true;
  }
  void late(const Run& run) {
    if (f_.about.size() != 1) return;
    const At& at = f_.about[0];
    const auto block = run.blocks().find({at.rank, at.block});
    if (block == run.blocks().end() || at.step >= static_cast<int64_t>(block->second.size()))
      return;
    const ChunkAction& x = *block->second[static_cast<size_t>(at.step)];
    for (const ChunkCell& c : x.to) {
      if (c.rank == at.rank || p_.shape.is_scratch(c.cell)) continue;
      const bool ended = std::all_of(
          run.blocks().begin(), run.blocks().end(),
          [&](const auto& other) { return other.first.first != c.rank || !run.next(other.first); });
      const auto done = std::find(f_.run.begin(), f_.run.end(), at);
      if (!ended || done != f_.run.end()) continue;
      say("rank {} has ended, but {} has not been done: {}", c.rank, text_of(at),
          text_of(p_.shape, x));
      r_.confirmed = true;
    }
    if (!r_.confirmed) say("no rank has ended whose output {} writes", text_of(at));
  }
  void deadlock(const Run& run) {
    size_t waiting = 0;
    for (const auto& [block, list] : run.blocks()) {
      if (!run.next(block)) continue;
      if (run.can_do(block)) {
        say("rank {} block {} can go on: {}", block.first, block.second,
            text_of(p_.shape, *run.next(block)));
        return;
      }
      ++waiting;
      say("rank {} block {} waits: {}", block.first, block.second,
          text_of(p_.shape, *run.next(block)));
    }
    r_.confirmed = waiting > 0;
  }
  void result(const Run& run) {
    for (const auto& [block, list] : run.blocks())
      if (run.next(block)) {
        say("rank {} block {} has not ended", block.first, block.second);
        return;
      }
    const ChunkShape& s = p_.shape;
    for (int r = 0; r < s.world; ++r)
      for (int64_t c = 0; c < s.out_chunks; ++c) {
        Run::Content wanted;
        for (int from = 0; from < s.world; ++from)
          if ((s.wanted_ranks(c) >> from) & 1) wanted.insert({from, s.wanted_chunk(r, c)});
        Run::Content found = run.at({r, s.output_cell(r, c)});
        if (reduce_ == "max" || reduce_ == "min") {
          const std::set<std::pair<int, int64_t>> once(found.begin(), found.end());
          found = {once.begin(), once.end()};
        }
        if (found == wanted) continue;
        say("output[{}] of rank {} holds {}", c, r, run.show(found));
        say("it should hold {}", run.show(wanted));
        r_.confirmed = true;
        return;
      }
    say("all output is as it should be");
  }

  const ChunkProgram& p_;
  const Blocks blocks_;
  const std::string reduce_;
  const ChunkFault& f_;
  ChunkReplay r_;
};

}  // namespace

std::string_view name(ChunkFault::Claim claim) { return kClaims[static_cast<size_t>(claim)]; }

std::string print(const ir::Graph& graph, const ir::Op& op, const ir::UserAlgorithm& algorithm,
                  const ChunkFault& fault) {
  ir::Diagnostics unheard;
  const auto program = chunk_program(graph, op, algorithm, unheard);
  const Blocks blocks = program ? blocks_of(*program) : Blocks();
  std::string text = fmt::format("witness collective {} of op {}: {}\n", algorithm.name, op.name,
                                 name(fault.claim));
  const auto line = [&](const char* word, const At& at) {
    text += fmt::format("{} {}", word, text_of(at));
    if (const auto block = blocks.find({at.rank, at.block});
        block != blocks.end() && at.step < static_cast<int64_t>(block->second.size()))
      text += "  // " + text_of(program->shape, *block->second[static_cast<size_t>(at.step)]);
    text += "\n";
  };
  for (const At& at : fault.about) line("about", at);
  for (const At& at : fault.run) line("run", at);
  return text;
}

bool is_chunk_witness(std::string_view text) { return text.rfind("witness collective ", 0) == 0; }

std::optional<ChunkWitness> parse_chunk_witness(int32_t file, ir::Diagnostics& diagnostics) {
  const std::string text(diagnostics.file_text(file));
  ChunkWitness witness;
  size_t line_start = 0;
  for (int32_t line = 1; line_start < text.size(); ++line) {
    const size_t end = std::min(text.find('\n', line_start), text.size());
    std::string words = text.substr(line_start, end - line_start);
    line_start = end + 1;
    words = words.substr(0, words.find("//"));
    while (!words.empty() && words.back() == ' ') words.pop_back();
    if (words.empty()) continue;
    ir::Loc loc;
    loc.file = file;
    loc.line = line;
    loc.column = 1;
    loc.length = static_cast<int32_t>(words.size());
    if (line == 1) {
      const size_t of = words.find(" of op "), colon = words.rfind(": ");
      const auto claim = colon == std::string::npos
                             ? std::end(kClaims)
                             : std::find(std::begin(kClaims), std::end(kClaims),
                                         std::string_view(words).substr(colon + 2));
      if (of == std::string::npos || claim == std::end(kClaims) || colon < of) {
        diagnostics.error(loc, "expected 'witness collective NAME of op OP: CLAIM'");
        return std::nullopt;
      }
      witness.op = words.substr(of + 7, colon - of - 7);
      witness.fault.claim = static_cast<ChunkFault::Claim>(claim - std::begin(kClaims));
      continue;
    }
    At at;
    char word[8] = "";
    int rank = 0, used = 0;
    long long block = 0, step = 0;
    const int read = std::sscanf(words.c_str(), "%7s rank %9d block %18lld step %18lld%n", word,
                                 &rank, &block, &step, &used);
    const bool about = std::string_view(word) == "about", runs = std::string_view(word) == "run";
    if (read != 4 || used != static_cast<int>(words.size()) || (!about && !runs) || rank < 0 ||
        step < 0) {
      diagnostics.error(loc, "expected 'about' or 'run' and 'rank N block N step N'");
      return std::nullopt;
    }
    at.rank = rank;
    at.block = block;
    at.step = step;
    (about ? witness.fault.about : witness.fault.run).push_back(at);
  }
  return witness;
}

ChunkReplay run_at_random(const ir::Graph& graph, const ir::Op& op,
                          const ir::UserAlgorithm& algorithm, uint64_t seed) {
  ir::Diagnostics diagnostics;
  const auto program = chunk_program(graph, op, algorithm, diagnostics);
  ChunkReplay failed;
  if (!program) {
    failed.error = diagnostics.render(false);
    return failed;
  }
  const ChunkFault none;
  return Replay(*program, attr_word(op, "reduce", "sum"), none).run_at_random(seed);
}

ChunkReplay replay(const ir::Graph& graph, const ChunkWitness& witness,
                   ir::Diagnostics& diagnostics) {
  const auto id = graph.find_op(witness.op);
  const ir::UserAlgorithm* algorithm =
      id ? graph.find_algorithm(attr_word(graph[*id], "algorithm", "")) : nullptr;
  ChunkReplay failed;
  if (!algorithm) {
    failed.error = fmt::format("the graph has no op '{}' with an algorithm of its own", witness.op);
    return failed;
  }
  const auto program = chunk_program(graph, graph[*id], *algorithm, diagnostics);
  if (!program) {
    failed.error = "the collective can't be run";
    return failed;
  }
  return Replay(*program, attr_word(graph[*id], "reduce", "sum"), witness.fault).run();
}

}  // namespace maco::ops
