// Faults that a CPU can't show: signals without a release, waits without an acquire, scopes that
// leave out one end. The verifier is compared with an axiomatic checker of the memory model.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iostream>
#include <map>

#include "compiler/verify/verify.h"
#include "tests/catch.h"
#include "tests/proofs/memory_model.h"
#include "tests/proofs/mutations.h"
#include "tests/proofs/subjects.h"
#include "tests/unit/random_program.h"

namespace maco::proofs {
namespace {

using ir::Program;

size_t share() {
  const char* more = std::getenv("MACO_PROOFS_MORE");
  return more ? static_cast<size_t>(std::max(1, std::atoi(more))) : 1;
}

/// The verifier's verdict: the kinds of its errors, or "".
std::map<std::string, int> kinds(const Program& p) {
  ir::Diagnostics diagnostics;
  verify::VerifyOptions options;
  options.max_reports = 1000;
  verify::verify(p, diagnostics, options);
  std::map<std::string, int> result;
  for (const auto& d : diagnostics.all()) ++result[d.message.substr(0, d.message.find(':'))];
  return result;
}

/// Programs of graphs, small enough to look at every operation; and random ones that are right.
std::vector<Subject> subjects() {
  std::vector<Subject> list;
  for (Subject& s : written_programs())
    if (Nodes(s.program).size() <= 700) list.push_back(std::move(s));
  for (uint32_t seed = 0; seed < 600 * share(); ++seed) {
    test::RandomProgram random(seed);
    random.keep_small();
    const Program p = random.program();
    if (kinds(p).empty()) list.push_back({fmt::format("random {}", seed), p});
  }
  return list;
}

/// The model's verdict without the edges that are relaxed or too narrow.
std::string without(Program p, const Conflicts& conflicts) {
  for (ir::Task& t : p.tasks) {
    const auto narrow = [&](ir::EventId e) {
      return !is_counter(p[e].kind) && p[e].reach() == ir::Scope::Gpu;
    };
    std::erase_if(t.waits, [&](const ir::Wait& w) { return w.relaxed || narrow(w.event); });
    std::erase_if(t.signals, [&](const ir::Signal& s) { return s.relaxed || narrow(s.event); });
  }
  return memory_race(p, conflicts);
}

struct Row {
  int64_t made = 0, races = 0, made_up_for = 0, accepted = 0;
  int64_t of_graphs = 0, of_graphs_made_up_for = 0;  // which are pruned
};

}  // namespace

TEST_CASE(
    "the verifier refuses a scope or a missing release exactly where the memory model finds a "
    "race") {
  const std::vector<Subject> list = subjects();
  std::array<Row, 3> table;
  constexpr Kind kKindsHere[] = {Kind::RelaxSignal, Kind::RelaxWait, Kind::NarrowScope};
  int64_t wrong = 0, packets = 0;
  const auto tell = [&](const Subject& s, const std::string& what) {
    if (++wrong <= 10) std::cout << s.name << ": " << what << "\n";
  };
  for (size_t n = 0; n < list.size(); ++n) {
    const Program& p = list[n].program;
    const Conflicts conflicts(p);
    if (const std::string race = memory_race(p, conflicts); !race.empty()) {
      tell(list[n], "the original races: " + race);
      continue;
    }
    for (size_t k = 0; k < 3; ++k) {
      const std::vector<Mutation> all = mutations(p, kKindsHere[k]);
      const size_t most = std::min<size_t>(all.size(), 4 * share());
      for (size_t i = 0; i < most; ++i) {
        const Mutation& m = all[(i * all.size() / most + n * 7919) % all.size()];
        Program mutant = p;
        m.apply(mutant);
        // A packet or a hint has neither a release nor an acquire that could be missing: the
        // verifier refuses the words, the model has none.
        if (kKindsHere[k] != Kind::NarrowScope) {
          bool packet = false;
          const auto has_none = [&](ir::EventId e) {
            return mutant[e].kind == ir::EventKind::Packet || mutant[e].kind == ir::EventKind::Hint;
          };
          for (const ir::Task& t : mutant.tasks) {
            for (const ir::Wait& w : t.waits) packet = packet || (w.relaxed && has_none(w.event));
            for (const ir::Signal& s : t.signals)
              packet = packet || (s.relaxed && has_none(s.event));
          }
          if (packet) {
            ++packets;
            continue;
          }
        }
        const auto said = kinds(mutant);
        const bool refused = said.count("scope") > 0;
        const std::string race = memory_race(mutant, conflicts);
        Row& row = table[k];
        ++row.made;
        if (list[n].graph) ++row.of_graphs;
        if (!race.empty() && !refused) {
          tell(list[n], fmt::format("accepted although {}: {}", m.what, race));
        } else if (!race.empty()) {
          ++row.races;
        } else if (refused) {
          // Other edges order everything that this one does: the model has no race without it.
          ++row.made_up_for;
          if (list[n].graph) ++row.of_graphs_made_up_for;
          if (const std::string then = without(mutant, conflicts); !then.empty())
            tell(list[n], fmt::format("no race although {}, but one without it: {}", m.what, then));
        } else {
          ++row.accepted;
        }
      }
    }
  }
  std::cout << fmt::format("{} Programs\n{:<14}{:>8}{:>18}{:>32}{:>20}\n", list.size(), "kind",
                           "made", "refused, a race", "refused, others make up",
                           "accepted, no race");
  for (size_t k = 0; k < 3; ++k)
    std::cout << fmt::format("{:<14}{:>8}{:>18}{:>32}{:>20}\n", name(kKindsHere[k]), table[k].made,
                             table[k].races,
                             fmt::format("{} ({} of {} of graphs)", table[k].made_up_for,
                                         table[k].of_graphs_made_up_for, table[k].of_graphs),
                             table[k].accepted);
  std::cout << packets << " relaxed packets left out\n" << std::flush;
  CHECK(wrong == 0);
  for (const Row& row : table) {
    CHECK(row.made >= 200);
    CHECK(row.races >= 150);
    // Pruning leaves few waits that others replace; of an event's many signals some are replaced.
    CHECK(row.of_graphs >= 60);
    CHECK(row.of_graphs_made_up_for * 2 <= row.of_graphs);
  }
}

TEST_CASE("the verifier finds a race in damaged Programs exactly where the memory model does") {
  int64_t right = 0, racy = 0;
  for (uint32_t seed = 0; seed < 3000 * share(); ++seed) {
    test::RandomProgram random(seed);
    random.keep_small();
    Program p = random.program();
    for (int64_t n = 1 + random.below(2); n > 0; --n) random.damage(p);
    const auto said = kinds(p);
    const bool race = said.count("race") > 0, order = said.count("order") > 0;
    if (!said.empty() && !race)
      continue;  // of what comes before races, or of the order of the list
    if (order) continue;
    const std::string found = memory_race(p, Conflicts(p));
    INFO("seed " << seed << "\n" << print(p) << found);
    REQUIRE(race == !found.empty());
    ++(race ? racy : right);
  }
  std::cout << right << " right, " << racy << " with a race\n" << std::flush;
  CHECK(right >= 500);
  CHECK(racy >= 200);
}

}  // namespace maco::proofs
