// Mutants that the verifier rejects are shown to be wrong: the verifier's witness is followed on
// the CPU, task by task, with stand-ins for the device functions (each task reads everything that
// it declares and writes a digest of it). A race is confirmed if each of the two tasks can go
// first, a wrong order if the later one can, a deadlock if nothing goes on.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iostream>
#include <map>

#include "compiler/verify/verify.h"
#include "compiler/verify/witness.h"
#include "runtime/cpu/stand_in.h"
#include "tests/catch.h"
#include "tests/proofs/mutations.h"
#include "tests/proofs/subjects.h"
#include "tools/replay.h"

namespace maco::proofs {
namespace {

using ir::Program;
using verify::Witness;

struct Row {
  std::map<std::string, int64_t> confirmed;
  int64_t unseen = 0, differs = 0;
};

}  // namespace

TEST_CASE("what the verifier says of mutants happens when its witnesses are replayed") {
  const char* more = std::getenv("MACO_PROOFS_MORE");
  const size_t most = more ? static_cast<size_t>(std::max(1, std::atoi(more))) : 2;
  const std::vector<Subject> list = written_programs();
  std::array<Row, kKinds> table;
  std::vector<std::string> wrong;
  for (size_t n = 0; n < list.size(); ++n) {
    const Program& p = list[n].program;
    // Memory of all ranks, for two runs.
    if (p.tasks.size() * static_cast<size_t>(p.world) > 400) continue;
    for (int k = 0; k < kKinds; ++k) {
      const auto kind = static_cast<Kind>(k);
      const std::vector<Mutation> all = mutations(p, kind);
      for (size_t i = 0; i < std::min(all.size(), most); ++i) {
        const Mutation& m = all[(i * all.size() / most + n * 7919) % all.size()];
        Program mutant = p;
        m.apply(mutant);
        ir::Diagnostics diagnostics;
        std::vector<Witness> witnesses;
        verify::verify(mutant, diagnostics, {.max_reports = 1, .witnesses = &witnesses});
        if (witnesses.empty()) continue;
        Witness& w = witnesses[0];
        complete(mutant, w);
        Row& row = table[static_cast<size_t>(k)];
        if (w.claim == Witness::Claim::Unseen) {
          ++row.unseen;
          continue;
        }
        std::vector<bool> skip;
        const verify::Precedence order(mutant);
        for (uint32_t t = 0; w.small_dims && t < mutant.tasks.size(); ++t)
          skip.push_back(order.may_skip(t));
        const auto run = runtime::make_stand_in(mutant, skip);
        const tools::ReplayResult result = tools::replay({mutant, *run, {}}, w);
        if (result.confirmed) {
          ++row.confirmed[std::string(name(w.claim))];
          row.differs += result.story.find("differ") != std::string::npos ||
                         result.story.find("other bytes") != std::string::npos;
        } else {
          wrong.push_back(fmt::format("{}: {}: {}\n{}{}{}", list[n].name, m.what,
                                      diagnostics.all().at(0).message, print(mutant, w),
                                      result.error, result.story));
        }
      }
    }
  }
  int64_t races = 0, orders = 0, deadlocks = 0, differ = 0;
  std::cout << fmt::format("{:<16}{:>8}{:>8}{:>10}{:>32}{:>16}\n", "confirmed", "races", "orders",
                           "deadlocks", "with other bytes to be seen", "not on a CPU");
  for (int k = 0; k < kKinds; ++k) {
    Row& row = table[static_cast<size_t>(k)];
    races += row.confirmed["race"];
    orders += row.confirmed["order"];
    deadlocks += row.confirmed["deadlock"];
    differ += row.differs;
    std::cout << fmt::format("{:<16}{:>8}{:>8}{:>10}{:>32}{:>16}\n", name(static_cast<Kind>(k)),
                             row.confirmed["race"], row.confirmed["order"],
                             row.confirmed["deadlock"], row.differs, row.unseen);
  }
  for (size_t i = 0; i < wrong.size() && i < 10; ++i) std::cout << wrong[i] << "\n";
  std::cout << wrong.size() << " not confirmed\n" << std::flush;
  CHECK(wrong.empty());
  CHECK(races >= 100);
  CHECK(orders >= 10);
  CHECK(deadlocks >= 10);
  CHECK(differ >= 50);
}

}  // namespace maco::proofs
