// Small Programs, right and wrong, on the fibre executor itself, in every order in which their
// tasks can run. In each state the executor decides what is ready; signals and waits are those of
// the device headers. The verifier's verdict must agree.
//
// Packets order only their own data, which no CPU shows. Programs with packets are therefore left
// to the model checker (small_test.cpp).
#include <fmt/format.h>

#include <cstdlib>
#include <iostream>
#include <map>
#include <set>

#include "compiler/verify/verify.h"
#include "ir/program_text.h"
#include "runtime/cpu/stand_in.h"
#include "tests/catch.h"
#include "tests/unit/random_program.h"
#include "tests/unit/verify_oracle.h"

namespace maco::proofs {
namespace {

using ir::Program;
using runtime::Stepper;
using runtime::TaskPlace;

/// Explores a Program; nothing if it has more than `most` states.
class Explorer {
 public:
  Explorer(const Program& p, int launches)
      : p_(p), launches_(launches), oracle_(p), run_(runtime::make_stand_in(p)) {
    for (size_t t = 0; t < p.tasks.size(); ++t)
      for (int rank = 0; rank < p.world; ++rank)
        if ((p.tasks[t].ranks >> rank) & 1)
          for (int launch = 0; launch < launches; ++launch)
            all_[{rank, launch, p.tasks[t].sm, p.tasks[t].place}] = t;
  }

  std::optional<std::string> verdict(size_t most) {
    std::set<std::vector<TaskPlace>> seen = {{}};
    std::vector<std::vector<TaskPlace>> open = {{}};  // orders that lead to the states
    bool hangs = false, wrong = false;
    while (!open.empty()) {
      const std::vector<TaskPlace> order = std::move(open.back());
      open.pop_back();
      bool any = false;
      for (const TaskPlace& next : standing(order)) {
        if (!runs(order, next)) continue;
        any = true;
        wrong = wrong || too_early(order, next);
        std::vector<TaskPlace> longer = order;
        longer.push_back(next);
        std::vector<TaskPlace> state = longer;
        std::sort(state.begin(), state.end());
        if (seen.insert(std::move(state)).second) open.push_back(std::move(longer));
      }
      hangs = hangs || (!any && order.size() < all_.size());
      if (seen.size() > most) return std::nullopt;
    }
    states = seen.size();
    return hangs ? "deadlock" : wrong ? "race" : "";
  }
  size_t states = 0;

 private:
  void drive(const std::function<void(Stepper&)>& then) {
    const auto status = run_->step(launches_, {}, [](int, int) {}, then);
    INFO(status.message);
    REQUIRE(status);
  }
  void replay(Stepper& stepper, const std::vector<TaskPlace>& order) {
    for (const TaskPlace& task : order) REQUIRE(stepper.step(task) == Stepper::Went::Ended);
  }
  /// Where CTAs stand after `order`.
  std::vector<TaskPlace> standing(const std::vector<TaskPlace>& order) {
    std::vector<TaskPlace> places;
    drive([&](Stepper& stepper) {
      replay(stepper, order);
      for (const TaskPlace& at : stepper.standing())
        if (all_.count(at)) places.push_back(at);
    });
    return places;
  }
  /// Whether the executor lets `next` run then.
  bool runs(const std::vector<TaskPlace>& order, const TaskPlace& next) {
    bool ended = false;
    drive([&](Stepper& stepper) {
      replay(stepper, order);
      ended = stepper.step(next) == Stepper::Went::Ended;
    });
    return ended;
  }
  /// Whether a task runs before a task after which it has to come: one that is earlier in the list
  /// of tasks (or the same task of another rank) and touches the same bytes, or one that is
  /// declared to come before it.
  bool too_early(const std::vector<TaskPlace>& order, const TaskPlace& next) {
    const size_t task = all_.at(next);
    for (const auto& [place, other] : all_) {
      if (place == next || std::find(order.begin(), order.end(), place) != order.end()) continue;
      const std::vector<ir::CallId>& after = p_.tasks[task].after;
      if (place.rank == next.rank && place.launch == next.launch &&
          std::find(after.begin(), after.end(), p_.tasks[other].call) != after.end())
        return true;
      if (std::pair(place.launch, other) <= std::pair(next.launch, task) &&
          oracle_.conflict({other, place.rank, place.launch}, {task, next.rank, next.launch}))
        return true;
    }
    return false;
  }

  const Program& p_;
  const int launches_;
  const test::Oracle oracle_;
  std::unique_ptr<runtime::Steppable> run_;
  std::map<TaskPlace, size_t> all_;  // those that run, and which task of the Program each is
};

}  // namespace

TEST_CASE("the verifier says of small Programs what running all their interleavings shows") {
  const char* more = std::getenv("MACO_PROOFS_MORE");
  const auto seeds = static_cast<uint32_t>(2000 * (more ? std::max(1, std::atoi(more)) : 1));
  std::map<std::string, int> verdicts;
  size_t states = 0, too_large = 0;
  for (uint32_t seed = 0; seed < seeds; ++seed) {
    test::RandomProgram random(seed + 1000000);
    random.keep_small();
    Program p = random.program();
    for (int64_t n = random.below(3); n > 0; --n) random.damage(p);
    bool packets = false;
    for (const ir::Event& e : p.events) packets = packets || e.kind == ir::EventKind::Packet;
    for (const ir::Buffer& b : p.buffers) packets = packets || b.packets;
    ir::Diagnostics diagnostics;
    p.stage = ir::Stage::Scheduled;
    if (packets || !verify::verify(p, diagnostics)) continue;
    p.stage = ir::Stage::Synced;
    ir::Diagnostics said;
    const bool ok = verify::verify(p, said);
    std::string expected =
        ok ? "" : said.all().at(0).message.substr(0, said.all().at(0).message.find(':'));
    if (expected == "order") expected = "race";
    if (!ok && expected != "race" && expected != "deadlock")
      continue;  // counts: the verifier is stricter
    int launches = 1;
    for (const ir::Buffer& b : p.buffers)
      if (b.kind == ir::BufferKind::Slot && p.world > 1)
        launches = std::max(launches, static_cast<int>(b.rotation) + 1);
    INFO("seed " << seed << "\n" << ir::print(p) << said.render());
    Explorer explorer(p, launches);
    const auto found = explorer.verdict(80);
    if (!found) {
      ++too_large;
      continue;
    }
    states += explorer.states;
    ++verdicts[*found];
    REQUIRE(*found == expected);
  }
  std::cout << fmt::format(
      "{} states of {} right, {} racing and {} hanging Programs; {} were too large\n", states,
      verdicts[""], verdicts["race"], verdicts["deadlock"], too_large);
  CHECK(verdicts[""] >= 200);
  CHECK(verdicts["race"] >= 50);
  CHECK(verdicts["deadlock"] >= 5);
}

}  // namespace maco::proofs
