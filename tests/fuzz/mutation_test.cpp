// Removes waits from Programs, one at a time: the verifier must object to each one that the Program
// needs, and to no other.
//
// Programs come as text from `mutants`. This program links ir and the verifier, and no pass
// (CMakeLists.txt ensures that). Every other wait of every pruned Program is removed; with
// MACO_PROOFS_MORE=2 every wait. A Program that is accepted without a wait must also be right by
// the second opinion of tests/proofs: reachability over all tasks of all ranks and launches must
// show that other orders replace the wait. The short proof of races is requested, whatever the
// default is, because its verdicts are tested here.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "compiler/verify/verify.h"
#include "ir/program_text.h"
#include "tests/catch.h"
#include "tests/paths.h"
#include "tests/proofs/second_opinion.h"
#include "tests/tier.h"

namespace maco::fuzz {
namespace {

using ir::EventId;
using ir::EventKind;
using ir::Program;
using ir::Wait;
namespace fs = std::filesystem;

// How many mutants of one kind are made of a Program: all, or as many as can be verified quickly.
constexpr size_t kTasks = 25000;
size_t samples(const Program& p) {
  const size_t nodes = p.tasks.size() * static_cast<size_t>(p.world);
  return std::clamp<size_t>(kTasks / std::max<size_t>(nodes, 1), 8, 150);
}

struct Subject {
  std::string name;
  Program pruned, unpruned;
};

// A wait of a Program, by its place.
struct At {
  size_t task = 0, wait = 0;
};

Program read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  ir::Diagnostics diagnostics;
  const auto program = ir::parse_program(
      diagnostics.add_file(path.filename().string(), {std::istreambuf_iterator<char>(in), {}}),
      diagnostics);
  INFO(path << "\n" << diagnostics.render());
  REQUIRE(program);
  return *program;
}

std::vector<Subject> subjects() {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(test::binary_path("tests/mutant_programs")))
    if (entry.path().extension() == ".pruned") paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::vector<Subject> list;
  for (fs::path path : paths) {
    Subject s;
    s.name = path.stem().string();
    s.pruned = read(path);
    s.unpruned = read(path.replace_extension("unpruned"));
    list.push_back(std::move(s));
  }
  // The slowest first: time grows with the square of the number of tasks.
  std::stable_sort(list.begin(), list.end(), [](const Subject& a, const Subject& b) {
    return a.pruned.tasks.size() > b.pruned.tasks.size();
  });
  return list;
}

// "", or the first word of the verifier's message: "race", "order", "count", "deadlock".
std::string objection(const Program& p) {
  ir::Diagnostics diagnostics;
  if (verify::verify(p, diagnostics, {.at_once = true, .max_reports = 1})) return "";
  const std::string& message = diagnostics.all().at(0).message;
  return message.substr(0, message.find(':'));
}

ir::Ranks sources(const Program& p, const Wait& w, int rank) {
  const ir::RankRef from = is_counter(p[w.event].kind) ? ir::RankRef::self() : w.from;
  return ir::resolve(from, rank, static_cast<int>(p.world));
}
// All waits except those for nobody, such as a wait for the others with only one rank.
std::vector<At> waits_of(const Program& p) {
  std::vector<At> list;
  for (size_t t = 0; t < p.tasks.size(); ++t)
    for (size_t w = 0; w < p.tasks[t].waits.size(); ++w)
      if (p.world > 1 || !sources(p, p.tasks[t].waits[w], 0).empty()) list.push_back({t, w});
  return list;
}

// At most `most` of them, evenly spaced, beginning with one that `seed` chooses.
std::vector<At> sample(const std::vector<At>& all, size_t most, size_t seed) {
  if (all.size() <= most) return all;
  std::vector<At> some;
  for (size_t i = 0; i < most; ++i)
    some.push_back(all[(i * all.size() / most + seed * 7919) % all.size()]);
  return some;
}

// Whether to remove every wait, not every other one.
bool every_wait() {
  const char* more = std::getenv("MACO_PROOFS_MORE");
  return more && std::atoi(more) > 1;
}

std::string describe(const Program& p, At at) {
  const Wait& w = p.tasks[at.task].waits[at.wait];
  return fmt::format("{} waits for '{}'{}", ir::describe(p, ir::id_of<ir::TaskId>(at.task)),
                     p[w.event].name, w.lag > 0 ? fmt::format(" of {} launches ago", w.lag) : "");
}

// Calls `then` while the wait is removed from the Program.
template <class Then>
auto without(Program& p, At at, const Then& then) {
  auto& waits = p.tasks[at.task].waits;
  const Wait wait = waits[at.wait];
  waits.erase(waits.begin() + static_cast<std::ptrdiff_t>(at.wait));
  const auto result = then(std::as_const(p));
  waits.insert(waits.begin() + static_cast<std::ptrdiff_t>(at.wait), wait);
  return result;
}

// The Program without the wait and without all signals of its event.
Program without_its_event(const Program& p, At at) {
  Program q = p;
  auto& waits = q.tasks[at.task].waits;
  const EventId event = waits[at.wait].event;
  waits.erase(waits.begin() + static_cast<std::ptrdiff_t>(at.wait));
  for (ir::Task& t : q.tasks)
    std::erase_if(t.signals, [&](const ir::Signal& s) { return s.event == event; });
  return q;
}

bool only_wait(const Program& p, At at) {
  const EventId event = p.tasks[at.task].waits[at.wait].event;
  int64_t n = 0;
  for (const ir::Task& t : p.tasks)
    n += std::count_if(t.waits.begin(), t.waits.end(),
                       [&](const Wait& w) { return w.event == event; });
  return n == 1;
}

// The results for one Program, or for all.
struct Count {
  int64_t removed = 0, silenced = 0;                 // of pruned Programs: waits; also with signals
  int64_t equivalent = 0, silent_equivalent = 0;     // of those: right by the second opinion
  int64_t unneeded = 0, restored = 0, left_out = 0;  // about waits that pruning removed
  int64_t kept = 0, kept_needed = 0;                 // of unpruned Programs: waits that were kept
  std::map<std::string, int64_t> reasons;
  std::vector<std::string> wrong;
};

void add(Count& a, const Count& b) {
  a.removed += b.removed;
  a.silenced += b.silenced;
  a.equivalent += b.equivalent;
  a.silent_equivalent += b.silent_equivalent;
  a.unneeded += b.unneeded;
  a.restored += b.restored;
  a.left_out += b.left_out;
  a.kept += b.kept;
  a.kept_needed += b.kept_needed;
  for (const auto& [reason, n] : b.reasons) a.reasons[reason] += n;
  a.wrong.insert(a.wrong.end(), b.wrong.begin(), b.wrong.end());
}

// Matches events of two Programs of one graph by name.
std::map<std::string, EventId> events_by_name(const Program& p) {
  std::map<std::string, EventId> map;
  for (size_t e = 0; e < p.events.size(); ++e) map[p.events[e].name] = ir::id_of<EventId>(e);
  return map;
}

class Judge {
 public:
  Judge(Subject& s, size_t seed) : s_(s), seed_(seed) {}

  Count run() {
    for (const auto& [p, which] : {std::pair(&s_.pruned, "pruned"), {&s_.unpruned, "unpruned"}})
      if (const std::string said = objection(*p); !said.empty())
        return wrong(fmt::format("the {} original is refused: {}", which, said)), count_;
    take_away();
    put_back();
    return count_;
  }

 private:
  void wrong(std::string what) { count_.wrong.push_back(s_.name + ": " + std::move(what)); }

  // No wait that pruning kept may be removable, unless the second opinion finds nothing wrong
  // either.
  void take_away() {
    Program& p = s_.pruned;
    const std::vector<At> all = waits_of(p);
    for (size_t i = every_wait() ? 0 : seed_ % 2; i < all.size(); i += every_wait() ? 1 : 2) {
      const At at = all[i];
      const std::string what = describe(p, at) + " no more";
      ++count_.removed;
      without(p, at,
              [&](const Program& mutant) { return judge(mutant, what, "", count_.equivalent); });
      // A signal to another rank for which nobody waits is an error by itself. Without the signals
      // there must be another error, unless other orders replace the event.
      if (is_counter(p[p.tasks[at.task].waits[at.wait].event].kind) || !only_wait(p, at)) continue;
      ++count_.silenced;
      judge(without_its_event(p, at), what + ", and nobody signals it", ", without signals",
            count_.silent_equivalent);
    }
  }
  // Counts a mutant as refused or as equivalent. Returns whether it was refused.
  bool judge(const Program& mutant, const std::string& what, const char* how, int64_t& equivalent) {
    if (const std::string said = objection(mutant); !said.empty()) {
      ++count_.reasons[said + how];
      return true;
    }
    if (!conflicts_) conflicts_.emplace(mutant);  // they don't depend on waits and signals
    const std::string second = proofs::second_opinion(mutant, &*conflicts_);
    if (second.empty())
      ++equivalent;
    else
      wrong(fmt::format("accepted although {}: {}", what, second));
    return false;
  }

  // Waits that pruning removed can be put back one at a time, and can be removed from the unpruned
  // Program one at a time.
  void put_back() {
    Program &p = s_.pruned, &u = s_.unpruned;
    const auto of_p = events_by_name(p), of_u = events_by_name(u);
    if (of_p.size() != p.events.size() || of_u.size() != u.events.size())
      return wrong("two events have one name");
    if (p.tasks.size() != u.tasks.size()) return wrong("pruning changes the number of tasks");
    std::vector<At> gone, kept;
    for (size_t t = 0; t < p.tasks.size(); ++t) {
      ir::Task a = p.tasks[t], b = u.tasks[t];
      for (size_t w = 0; w < b.waits.size(); ++w) {
        const auto same = [&](const Wait& x) {
          return p[x.event].name == u[b.waits[w].event].name && x.from == b.waits[w].from &&
                 x.lag == b.waits[w].lag;
        };
        (std::any_of(a.waits.begin(), a.waits.end(), same) ? kept : gone).push_back({t, w});
      }
      if (b.waits.size() < a.waits.size()) return wrong("pruning adds waits");
      a.waits = b.waits = {};
      a.signals = b.signals = {};
      if (a != b) return wrong("pruning changes " + ir::describe(p, ir::id_of<ir::TaskId>(t)));
    }
    if (gone.size() + waits_of(p).size() != waits_of(u).size())
      return wrong("pruning changes waits");
    count_.unneeded += static_cast<int64_t>(gone.size());
    for (const At at : sample(gone, samples(u), seed_)) {
      ++count_.left_out;
      if (const std::string said = without(u, at, objection); !said.empty())
        wrong(fmt::format("{} although {}, which pruning found unneeded, no more", said,
                          describe(u, at)));
      ++count_.restored;
      if (const std::string said = with(u, at, of_p); !said.empty())
        wrong(fmt::format("{} although {} again", said, describe(u, at)));
    }
    for (const At at : sample(kept, samples(u) / 4, seed_)) {
      ++count_.kept;
      if (!without(u, at, objection).empty()) ++count_.kept_needed;
    }
  }

  // The verdict on the pruned Program with a wait of the unpruned one.
  std::string with(const Program& u, At at, const std::map<std::string, EventId>& of_p) {
    Program q = s_.pruned;
    Wait wait = u.tasks[at.task].waits[at.wait];
    const EventId event = wait.event;
    if (const auto it = of_p.find(u[event].name); it != of_p.end()) {
      wait.event = it->second;
    } else {
      wait.event = ir::id_of<EventId>(q.events.size());
      q.events.push_back(u[event]);
      for (size_t t = 0; t < u.tasks.size(); ++t)
        for (ir::Signal signal : u.tasks[t].signals)
          if (signal.event == event) {
            signal.event = wait.event;
            q.tasks[t].signals.push_back(signal);
          }
    }
    q.tasks[at.task].waits.push_back(wait);
    return objection(q);
  }

  Subject& s_;
  const size_t seed_;
  std::optional<proofs::Conflicts> conflicts_;  // of the pruned Program, once needed
  Count count_;
};

}  // namespace

TEST_CASE("waits that a Program needs, and waits that it doesn't") {
  std::vector<Subject> list = subjects();
  const test::Share share = test::share(3);
  CHECK(list.size() >= 60);
  std::vector<Count> counts(list.size());
  std::atomic<size_t> next{0};
  const auto worker = [&] {
    for (size_t i = next++; i < list.size(); i = next++)
      if (share.has(i)) counts[i] = Judge(list[i], i).run();
  };
  std::thread other(worker);
  worker();
  other.join();

  Count all;
  int64_t with_unneeded = 0;
  for (const Count& c : counts) {
    add(all, c);
    with_unneeded += c.unneeded > 0;
  }
  std::cout << fmt::format("one in {} of {} graphs\n", share.of, list.size());
  std::cout << fmt::format("pruned:   {} waits taken away, {} also with all signals\n", all.removed,
                           all.silenced);
  for (const auto& [reason, n] : all.reasons)
    std::cout << fmt::format("          {:>7} {}\n", n, reason);
  std::cout << fmt::format(
      "          {:>7} accepted and equivalent\n          {:>7} accepted and equivalent, without "
      "signals\n",
      all.equivalent, all.silent_equivalent);
  std::cout << fmt::format(
      "unneeded: {} waits in {} graphs, {} of them put back, {} taken from the unpruned Program\n",
      all.unneeded, with_unneeded, all.restored, all.left_out);
  std::cout << fmt::format("unpruned: of {} waits that pruning keeps {} are needed there too\n",
                           all.kept, all.kept_needed);
  for (const std::string& what : all.wrong) std::cout << what << "\n";
  std::cout << std::flush;
  CHECK(all.wrong.empty());
  // Nothing may pass for lack of mutants; parts differ in size.
  const auto least = [&](int64_t n) {
    return share.of == 1 ? n : n / static_cast<int64_t>(3 * share.of);
  };
  CHECK(all.removed >= least(2000));
  CHECK(all.reasons["race"] >= least(500));
  CHECK(all.reasons["order"] >= least(50));
  CHECK(all.reasons["count"] >= least(500));
  CHECK(all.reasons["count, without signals"] >= least(400));
  CHECK(all.reasons["race, without signals"] >= least(10));
  CHECK(with_unneeded >= least(40));
  CHECK(all.restored >= least(1000));
  CHECK(all.left_out >= least(1000));
  CHECK(all.kept_needed * 10 >= all.kept * 9);
}

}  // namespace maco::fuzz
