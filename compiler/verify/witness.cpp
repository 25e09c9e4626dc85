#include "compiler/verify/witness.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "compiler/verify/regions.h"
#include "ir/manifest.h"
#include "ir/program_syntax.h"
#include "ir/program_text.h"
#include "ir/text_cursor.h"

namespace maco::verify {
namespace {

using Claim = Witness::Claim;
using Packets = Precedence::Packets;

// All that happens before some instances, in an order of happens-before.
class Past {
 public:
  Past(const Precedence& order, Packets packets) : order_(order), packets_(packets) {}

  /// Adds all that happens before `i`.
  void add(Instance i) {
    struct Frame {
      Instance instance;
      std::vector<Precedence::Edge> edges;
      size_t next = 0;
    };
    std::vector<Frame> open;
    const auto enter = [&](Instance one) { open.push_back({one, order_.before(one, packets_)}); };
    enter(i);
    // Depth first, without recursion: a path may be as long as the Program.
    while (!open.empty()) {
      Frame& top = open.back();
      if (top.next < top.edges.size()) {
        const Instance before = top.edges[top.next++].other;
        if (seen_.insert(before).second) enter(before);
        continue;
      }
      const Instance done = top.instance;
      open.pop_back();
      if (!open.empty() && order_.runs(done)) list_.push_back(done);
    }
  }
  bool has(Instance i) const { return seen_.contains(i); }
  std::vector<Instance> take() { return std::move(list_); }

 private:
  const Precedence& order_;
  const Packets packets_;
  std::set<Instance> seen_;
  std::vector<Instance> list_;
};

std::vector<Instance> all_that_ends(const ir::Program& p, const Precedence& order) {
  std::map<Instance, size_t> left;  // what has to end before it
  std::vector<Instance> free, list;
  for (uint32_t t = 0; t < p.tasks.size(); ++t)
    for (int32_t rank = 0; rank < p.world; ++rank) {
      const Instance i{t, rank, 0};
      left[i] = order.before(i, Packets::All).size();
      if (left[i] == 0) free.push_back(i);
    }
  for (size_t at = 0; at < free.size(); ++at) {
    const Instance i = free[at];
    if (order.runs(i)) list.push_back(i);
    for (const Precedence::Edge& e : order.after(i, 1, Packets::All))
      if (--left[e.other] == 0) free.push_back(e.other);
  }
  return list;
}

std::string hash(const ir::Program& program) { return ir::code_hash(ir::print(program)); }

class Parser : ir::TextCursor {
 public:
  Parser(int32_t file, const ir::Program& program, ir::Diagnostics& diagnostics)
      : TextCursor(file, diagnostics), program_(program) {}

  std::optional<Witness> run() {
    Witness w;
    return header(w) && entries(w) ? std::optional(std::move(w)) : std::nullopt;
  }

 private:
  bool word(std::string_view expected_word) {
    return accept_word(expected_word) || expected(fmt::format("'{}'", expected_word));
  }
  bool header(Witness& w) {
    if (!word("witness") || !word_of(w.claim, 4, "a claim") || !word("of")) return false;
    const size_t at = at_;
    std::string program, code;
    if (!read_name(program, "the name of a Program")) return false;
    if (peek() != '"') return expected("a hash in quotes");
    if (!quoted(code)) return false;
    if (program == program_.name && code == hash(program_)) return true;
    return error(at + 1, at_ - at - 1,
                 fmt::format("the witness is of another Program than '{}', whose text has hash {}",
                             program_.name, hash(program_)));
  }
  bool entries(Witness& w) {
    int firsts = 0, seconds = 0;
    while (!at_end()) {
      if (accept_word("dims")) {
        if (!word("minimal")) return false;
        w.small_dims = true;
      } else if (accept_word("first")) {
        ++firsts;
        if (!instance(w.first)) return false;
      } else if (accept_word("second")) {
        ++seconds;
        if (!instance(w.second)) return false;
      } else if (accept_word("stuck")) {
        // It may be a task that the rank leaves out: it still has its place in the stream.
        if (!instance(w.stuck.emplace_back(), false)) return false;
      } else if (accept_word("run")) {
        if (!instance(w.schedule.emplace_back())) return false;
      } else {
        return expected("'dims', 'first', 'second', 'stuck' or 'run'");
      }
    }
    const int two = w.claim == Claim::Deadlock ? 0 : 1;
    if (firsts == two && seconds == two) return true;
    return error(text_.size(), 1,
                 two ? "a witness has one 'first' and one 'second'"
                     : "a deadlock has neither 'first' nor 'second'");
  }
  bool instance(Instance& i, bool runs = true) {
    skip();
    const size_t at = at_;
    const std::string_view label = peek_word();
    const char* end = label.data() + label.size();
    if (label.size() < 2 || label[0] != 't' ||
        std::from_chars(label.data() + 1, end, i.task).ptr != end)
      return expected("the label of a task");
    at_ += label.size();
    if (!word("rank") || !number(i.rank) || !word("launch") || !number(i.launch)) return false;
    if (i.task < program_.tasks.size() && i.rank >= 0 && i.rank < program_.world && i.launch >= 0 &&
        i.launch < kLaunches && (!runs || ((program_.tasks[i.task].ranks >> i.rank) & 1)))
      return true;
    return error(at, at_ - at, "the Program has no such task");
  }

  static constexpr int32_t kLaunches = 1000;
  const ir::Program& program_;
};

// Blocks of others count as all of them where regions are compared: do the two tasks touch a byte
// in common on the ranks where they run?
bool meet(const ir::Program& p, const Witness& w) {
  const Layout layout(p);
  const auto world = static_cast<int>(p.world);
  // The regions of one block each.
  const auto parts = [&](const ir::Region& r, int rank) {
    std::vector<ir::Region> list;
    if (r.block.any())
      for (const int block : resolve(r.block.ref, rank, world)) {
        list.push_back(r);
        list.back().block.ref = ir::RankRef::rank(block);
      }
    else
      list.push_back(r);
    return list;
  };
  const auto copy = [&](const ir::Region& r, Instance i) {
    return i.launch % p[r.buffer].rotation;
  };
  for (const ir::Access& x : p.tasks[w.first.task].accesses)
    for (const ir::Access& y : p.tasks[w.second.task].accesses) {
      if ((!x.writes() && !y.writes()) || !layout.matters(x.region.buffer) ||
          !layout.matters(y.region.buffer))
        continue;
      const auto owners = resolve(x.region.where, w.first.rank, world);
      const auto others = resolve(y.region.where, w.second.rank, world);
      if (std::none_of(owners.begin(), owners.end(),
                       [&](int owner) { return others.contains(owner); }))
        continue;
      for (const ir::Region& a : parts(x.region, w.first.rank))
        for (const ir::Region& b : parts(y.region, w.second.rank))
          if (overlap(layout.box(a, w.first.rank, copy(a, w.first)),
                      layout.box(b, w.second.rank, copy(b, w.second))))
            return true;
    }
  return false;
}

}  // namespace

std::string_view name(Claim claim) {
  constexpr std::string_view names[] = {"race", "order", "unseen", "deadlock"};
  return names[static_cast<size_t>(claim)];
}

void complete(const ir::Program& program, Witness& w) {
  const Precedence order(program);
  if (w.claim == Claim::Deadlock) {
    w.schedule = all_that_ends(program, order);
    return;
  }
  const bool race = w.claim == Claim::Race;
  if (race && !meet(program, w)) w.claim = Claim::Unseen;
  const auto past = [&](Packets packets) {
    Past before(order, packets);
    if (race) before.add(w.first);
    before.add(w.second);
    return before;
  };
  Past all = past(Packets::All);
  w.schedule = all.take();
  if (!all.has(w.first) && !all.has(w.second)) return;
  // Packets or hints keep the second waiting: those that a task may not poll, or others too.
  Past sure = past(Packets::SureAndHints);
  if (!sure.has(w.first) && !sure.has(w.second)) {
    w.small_dims = true;
    w.schedule = sure.take();
  } else if (race) {
    w.claim = Claim::Unseen;
  }
}

std::string print(const ir::Program& program, const Witness& w) {
  std::string text = fmt::format("witness {} of ", name(w.claim));
  ir::append_name(text, program.name);
  text += fmt::format(" \"{}\"\n", hash(program));
  const auto line = [&](const char* word, Instance i) {
    const ir::Task& t = program.tasks[i.task];
    text +=
        fmt::format("{} t{} rank {} launch {}  // {}: task {} of CTA {}\n", word, i.task, i.rank,
                    i.launch, ir::describe(program, ir::id_of<ir::TaskId>(i.task)), t.place, t.sm);
  };
  if (w.small_dims) text += "dims minimal\n";
  if (w.claim != Claim::Deadlock) {
    line("first", w.first);
    line("second", w.second);
  }
  for (const Instance i : w.stuck) line("stuck", i);
  for (const Instance i : w.schedule) line("run", i);
  return text;
}

std::optional<Witness> parse_witness(int32_t file, const ir::Program& program,
                                     ir::Diagnostics& diagnostics) {
  return Parser(file, program, diagnostics).run();
}

}  // namespace maco::verify
