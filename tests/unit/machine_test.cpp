// Machines: each target has a board of its own, and each figure a source.
#include "compiler/cost/machine.h"
#include "compiler/cost/model.h"

#include <cstdlib>
#include <set>
#include <string>

#include "tests/catch.h"

namespace maco::test {
namespace {

TEST_CASE("each target's default board is one of its boards") {
  for (const cost::Architecture& a : cost::all_architectures()) {
    const cost::Machine* machine = cost::find_machine(a.target);
    INFO(a.target);
    REQUIRE(machine);
    CHECK(machine->board == a.default_board);
    CHECK(machine->of_target == a.target);
  }
}

TEST_CASE("each board has an architecture, figures, and a source for each of them") {
  std::set<std::string> names;
  for (const cost::Machine& m : cost::all_machines()) {
    INFO(m.board);
    CHECK(names.insert(m.board).second);
    CHECK(cost::find_machine(m.target, m.board) == &m);
    CHECK(cost::find_board(m.board) == &m);
    CHECK((m.sms > 0 && m.default_comm > 0 && m.default_comm < m.sms && m.sms_source != ""));
    for (const cost::Figure& f : {m.flops, m.f32_flops, m.memory_rate, m.link_rate})
      CHECK((f.value > 0 && f.source != ""));
  }
  CHECK(names.size() == cost::all_boards().size());
}

TEST_CASE("costs follow the board's own figures") {
  const cost::Machine &h200 = *cost::find_board("h200"), &t4 = *cost::find_board("t4");
  const cost::Work arithmetic{.multiply_adds = 1e9}, traffic{.bytes = 1e9};
  const auto times = [&](const cost::Work& w) {
    return cost::microseconds(w, t4) / cost::microseconds(w, h200);
  };
  // An SM's share of the board's rates.
  CHECK(times(arithmetic) == Approx(67e12 / 132 / (8.1e12 / 40)));
  CHECK(times(traffic) == Approx(4.5e12 / 132 / (300e9 / 40)));
  CHECK(cost::microseconds(arithmetic, h200) == Approx(1e9 / 0.9e11 * 1e6).epsilon(0.01));
  CHECK(cost::seconds({.hops = 2}, h200) == Approx(2.6e-6));
  CHECK(cost::seconds({.link_bytes = 370e9}, h200) == Approx(1));
  CHECK(cost::seconds({.link_bytes = 16e9}, t4) == Approx(1));
}

TEST_CASE("what isn't a machine is told by name") {
  const auto said = [](const char* target, const char* board) {
    ir::Diagnostics d;
    CHECK(!cost::find_machine(target, board, d));
    CHECK(!cost::find_machine(target, board));
    return d.render();
  };
  CHECK(said("sm_1", "") == "error: unknown target 'sm_1'; did you mean 'sm_120'?\n");
  CHECK(said("sm_1", "h200") == "error: unknown target 'sm_1'; did you mean 'sm_120'?\n");
  CHECK(said("sm_80", "h200") == "error: board 'h200' has GPUs of target 'sm_90a', not 'sm_80'\n");
  CHECK(said("sm_80", "a10") == "error: unknown board 'a10'; did you mean 'a40'?\n");
}

TEST_CASE("MACO_CPU_SMS says how many SMs the CPU target has") {
  const int32_t usual = cost::find_board("cpu")->sms;
  setenv(cost::kCpuSms, "128", 1);
  ir::Diagnostics d;
  CHECK(cost::find_machine("cpu", "", d)->sms == 128);
  CHECK(cost::find_machine("cpu") == cost::find_board("cpu"));
  CHECK(cost::find_machine("sm_90a", "", d)->sms == 132);
  for (const char* wrong : {"0", "1025", "8 SMs", "-1"}) {
    setenv(cost::kCpuSms, wrong, 1);
    ir::Diagnostics said;
    CHECK(!cost::find_machine("cpu", "", said));
    CHECK(said.render() == std::string("error: MACO_CPU_SMS is '") + wrong +
                               "', but must be a number from 1 to 1024\n");
    CHECK(cost::find_machine("sm_90a", "", said));
  }
  setenv(cost::kCpuSms, "", 1);
  CHECK(cost::find_machine("cpu", "", d)->sms == usual);
  unsetenv(cost::kCpuSms);
  CHECK(cost::find_machine("cpu", "", d)->sms == usual);
}

}  // namespace
}  // namespace maco::test
