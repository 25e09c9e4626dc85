// Mutated Programs: whatever can change what a Program does is rejected, and nothing else is.
//
// Programs come as text from `mutants` (tests/fuzz). This program links ir and the verifier, and no
// pass. An accepted mutant must also be right by the second opinion, which computes that every
// conflict is still ordered, every count still met and every collective still delivered. A rejected
// mutant must be wrong by it, except for what the verifier deliberately proves more strictly
// (`strict`).
//
//   proofs-mutants                what fits into a minute
//   MACO_PROOFS_MORE=10           ten times as many mutants
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <iostream>
#include <map>
#include <mutex>
#include <thread>

#include "compiler/verify/verify.h"
#include "tests/catch.h"
#include "tests/proofs/mutations.h"
#include "tests/proofs/second_opinion.h"
#include "tests/proofs/subjects.h"

namespace maco::proofs {
namespace {

using ir::Program;

/// "", or the verifier's first message.
std::string objection(const Program& p) {
  ir::Diagnostics diagnostics;
  if (verify::verify(p, diagnostics, {.at_once = true, .max_reports = 1})) return "";
  return diagnostics.all().at(0).message;
}
std::string reason(const std::string& message) {
  const std::string word = message.substr(0, message.find(':'));
  for (const char* known : {"count", "packets", "deadlock", "race", "order", "contributions",
                            "scope", "resources", "hand-over"})
    if (word == known) return word;
  return "structure";
}

/// Whether the verifier may reject a mutant of this kind for this reason although it would do no
/// harm.
bool strict(const std::string& why, Kind kind) {
  // A collective's task does what its parameters and regions say: these have to agree, whatever is
  // moved.
  if (why == "contributions") return true;
  // Every signal is a release and every wait an acquire, even if another order would be enough.
  if (why == "scope") return true;
  // A reader of packets waits for their hints itself, even if a task before it on its CTA has seen
  // them.
  if (why == "packets") return true;
  // What is handed over is taken back right behind that, even if another order would be enough.
  if (why == "hand-over") return true;
  // Regions and places are checked by themselves.
  if (why == "structure") return kind == Kind::ShrinkBuffer;
  return false;
}

struct Row {
  int64_t made = 0, equivalent = 0;
  std::map<std::string, int64_t> rejected;
};
using Table = std::array<Row, kKinds>;

struct Result {
  Table table;
  std::vector<std::string> wrong;
};

size_t share() {
  const char* more = std::getenv("MACO_PROOFS_MORE");
  return more ? static_cast<size_t>(std::max(1, std::atoi(more))) : 1;
}

Result judge(const Subject& s, size_t seed) {
  Result result;
  const auto wrong = [&](const std::string& what) { result.wrong.push_back(s.name + ": " + what); };
  const Program& p = s.program;
  const Conflicts conflicts(p);
  if (const std::string said = objection(p); !said.empty())
    wrong("the original is refused: " + said);
  if (const std::string said = second_opinion(p, &conflicts); !said.empty())
    wrong("the original is wrong: " + said);
  if (!result.wrong.empty()) return result;
  const size_t nodes = Nodes(p).size();
  // Large Programs get a mutant of only every few kinds; which kinds depends on the seed.
  const size_t most = std::clamp<size_t>(4000 / (nodes + 1), 1, 6) * share(),
               every = std::clamp<size_t>(nodes / 4000, 1, 4);
  for (int k = 0; k < kKinds; ++k) {
    const auto kind = static_cast<Kind>(k);
    if ((static_cast<size_t>(k) + seed) % every != 0) continue;
    const std::vector<Mutation> all = mutations(p, kind);
    Row& row = result.table[static_cast<size_t>(k)];
    const size_t n = std::min(all.size(), most);
    for (size_t i = 0; i < n; ++i) {
      const Mutation& m = all[(i * all.size() / n + seed * 7919) % all.size()];
      Program mutant = p;
      m.apply(mutant);
      ++row.made;
      const std::string said = objection(mutant);
      const std::string second = second_opinion(mutant, m.touches_same ? &conflicts : nullptr);
      if (said.empty() && !second.empty()) {
        wrong(fmt::format("accepted although {}: {}", m.what, second));
      } else if (said.empty()) {
        ++row.equivalent;
      } else {
        ++row.rejected[reason(said)];
        if (second.empty() && !strict(reason(said), kind))
          wrong(fmt::format("\"{}\", and nothing is wrong although {}", said, m.what));
      }
    }
  }
  return result;
}

void print(const Table& table) {
  const char* reasons[] = {"count",         "packets", "deadlock",  "race",     "order",
                           "contributions", "scope",   "resources", "structure"};
  std::cout << fmt::format("{:<16}{:>7}", "kind", "made");
  for (const char* r : reasons) std::cout << fmt::format("{:>15}", r);
  std::cout << fmt::format("{:>15}\n", "equivalent");
  for (int k = 0; k < kKinds; ++k) {
    const Row& row = table[static_cast<size_t>(k)];
    std::cout << fmt::format("{:<16}{:>7}", name(static_cast<Kind>(k)), row.made);
    for (const char* r : reasons)
      std::cout << fmt::format("{:>15}", row.rejected.count(r) ? row.rejected.at(r) : 0);
    std::cout << fmt::format("{:>15}\n", row.equivalent);
  }
}

}  // namespace

TEST_CASE("every mutant that can change what a Program does is rejected, and no other") {
  const std::vector<Subject> list = written_programs();
  std::vector<Result> results(list.size());
  std::atomic<size_t> next{0};
  const auto worker = [&] {
    // The largest stand in the middle of the list: the last to begin are small.
    for (size_t i = next++; i < list.size(); i = next++) results[i] = judge(list[i], i);
  };
  std::thread other(worker);
  worker();
  other.join();

  Table table;
  std::vector<std::string> wrong;
  for (const Result& r : results) {
    for (size_t k = 0; k < kKinds; ++k) {
      table[k].made += r.table[k].made;
      table[k].equivalent += r.table[k].equivalent;
      for (const auto& [reason, n] : r.table[k].rejected) table[k].rejected[reason] += n;
    }
    wrong.insert(wrong.end(), r.wrong.begin(), r.wrong.end());
  }
  int64_t made = 0;
  for (const Row& row : table) made += row.made;
  std::cout << fmt::format("{} Programs, {} mutants\n", list.size(), made);
  print(table);
  for (const std::string& what : wrong) std::cout << what << "\n";
  std::cout << std::flush;
  CHECK(wrong.empty());
  CHECK(list.size() >= 30);
  CHECK(made >= 1000);
  for (int k = 0; k < kKinds; ++k) {
    INFO(name(static_cast<Kind>(k)));
    const Row& row = table[static_cast<size_t>(k)];
    CHECK(row.made >= 50);
    CHECK_FALSE(row.rejected.empty());
  }
}

}  // namespace maco::proofs
