// The verifier against a naive one, on small random Programs: ones that a simple rule synchronised,
// and the same damaged.
#include <map>
#include <random>

#include "compiler/verify/verify.h"
#include "ir/program_text.h"
#include "tests/catch.h"
#include "tests/unit/random_program.h"
#include "tests/unit/verify_oracle.h"

namespace maco::test {
namespace {

using namespace ir;

std::string kind_of(const ir::Diagnostics& diagnostics) {
  const std::string& message = diagnostics.all().at(0).message;
  const std::string kind = message.substr(0, message.find(':'));
  return kind == "order" ? "race" : kind;
}

TEST_CASE("the verifier agrees with a naive one on random Programs") {
  std::map<std::string, int> verdicts;
  int symmetric = 0, at_once = 0;
  for (uint32_t seed = 0; seed < 2500; ++seed) {
    RandomProgram generator(seed);
    if (seed % 4 == 3) generator.with_heights();
    Program p = generator.program();
    for (int64_t n = generator.below(4); n > 0; --n) generator.damage(p);
    Diagnostics diagnostics;
    p.stage = Stage::Scheduled;
    if (!verify::verify(p, diagnostics)) continue;  // not about order
    p.stage = Stage::Synced;
    Oracle oracle(p);
    REQUIRE(oracle.nodes() <= Oracle::kMaxNodes);
    const std::string expected = oracle.verdict();
    ++verdicts[expected];
    for (int how = 0; how < 4; ++how) {
      const bool use_symmetry = (how & 1) == 0, short_proof = (how & 2) == 0;
      Diagnostics found;
      verify::VerifyStatistics statistics;
      const bool ok = verify::verify(
          p, found,
          {.use_symmetry = use_symmetry, .at_once = short_proof, .forget_every = seed % 3},
          &statistics);
      symmetric += statistics.symmetric;
      at_once += statistics.at_once;
      INFO("seed " << seed << (use_symmetry ? " with symmetry" : "")
                   << (short_proof ? " at once" : "") << "\n"
                   << print(p) << found.render());
      REQUIRE(ok != found.has_errors());
      REQUIRE((ok ? "" : kind_of(found)) == expected);
    }
  }

  // All sorts were seen.
  CHECK(verdicts[""] > 500);
  CHECK(verdicts["race"] > 200);
  CHECK(verdicts["count"] > 100);
  CHECK(verdicts["deadlock"] > 20);
  CHECK(symmetric > 600);
  CHECK(at_once > 1800);  // mostly the short proof is enough
}

TEST_CASE("the verifier takes any Program that can be parsed") {
  std::mt19937 random(3);
  for (uint32_t seed = 0; seed < 1500; ++seed) {
    std::string text = print(RandomProgram(seed).program());
    for (int n = 1 + static_cast<int>(random() % 3); n > 0; --n) {
      const size_t at = random() % text.size();
      if (text[at] >= '0' && text[at] <= '9') text[at] = static_cast<char>('0' + random() % 10);
      if (random() % 4 == 0) text.insert(at, 1, static_cast<char>('0' + random() % 10));
    }
    Diagnostics diagnostics;
    const auto p = parse_program(diagnostics.add_file("p", text), diagnostics);
    if (!p) continue;
    INFO(text);
    const bool ok = verify::verify(*p, diagnostics);
    REQUIRE(ok != diagnostics.has_errors());
  }
}

}  // namespace
}  // namespace maco::test
