// Machines: each target has a board of its own, and each figure a source.
#include "compiler/cost/machine.h"
#include "compiler/cost/boards.h"
#include "compiler/cost/model.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include <unistd.h>

#include "tests/catch.h"
#include "tests/paths.h"

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
    for (const cost::Figure& f : {m.flops, m.f32_flops, m.memory_rate, m.link_rate, m.hand_over,
                                  m.packet_hand_over, m.hop, m.task, m.f32_reached, m.nccl})
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

std::string board_text(const std::string& name) {
  std::ifstream file(source_path("compiler/cost/boards/" + name + ".json"));
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}
std::string replaced(std::string text, const std::string& old, const std::string& with) {
  const size_t at = text.find(old);
  REQUIRE(at != text.npos);
  return text.replace(at, old.size(), with);
}

TEST_CASE("a board's file has each figure, and is refused with a reason") {
  const std::string text = board_text("h200");
  std::string why;
  const auto board = cost::read_board(text, why);
  REQUIRE(board);
  CHECK(why.empty());
  CHECK((board->board == "h200" && board->of_target == "sm_90a" && board->sms == 132));
  CHECK((board->hop.value == 1.3 && board->hop.source.find("NVLink") != std::string::npos));
  const auto refused = [&](const std::string& old, const std::string& with) {
    std::string said;
    CHECK(!cost::read_board(replaced(text, old, with), said));
    return said;
  };
  CHECK(refused("{", "[") == "is no JSON");
  CHECK(refused("hop_us", "hopp_us") == "has an unknown key 'hopp_us'; did you mean 'hop_us'?");
  CHECK(refused("\"h200\"", "7") == "has no text 'board'");
  CHECK(refused("132", "\"132\"") ==
        "has no figure 'sms', written as {\"value\": 1.5, \"source\": \"measured\"}");
  CHECK(refused("132", "1.5") == "has a number of SMs that isn't whole");
  CHECK(refused("132", "16") == "has no SM that computes: 'comm_sms' are all of 'sms'");
  CHECK(refused("132", "0") == "has 0 for 'sms', which is 1 to 1024");
  CHECK(refused("3.7e11", "-3.7e11") ==
        "has -370000000000 for 'link_bytes_per_s', which is 1 to 1e+18");
  CHECK(refused("3.7e11", "1e400") == "is no JSON");
  // Each figure is needed, and nothing but its value and source.
  for (const char* key :
       {"matrix_flops_per_s", "f32_flops_per_s", "memory_bytes_per_s", "link_bytes_per_s",
        "hand_over_us", "packet_hand_over_us", "hop_us", "task_us", "f32_reached", "nccl_us"}) {
    const size_t begin = text.find("  \"" + std::string(key)), end = text.find('\n', begin);
    REQUIRE(begin != text.npos);
    std::string without = text.substr(0, begin) + text.substr(end + 1);
    if (without.find("\"nccl_us\"") == without.npos)  // it was the last
      without.replace(without.rfind("},"), 2, "}");
    std::string said;
    CHECK(!cost::read_board(without, said));
    CHECK(said.find("has no figure '" + std::string(key) + "'") == 0);
  }
}

TEST_CASE("a board from a file is known by its path, then by its name") {
  namespace fs = std::filesystem;
  const fs::path folder = fs::temp_directory_path() / ("maco-boards-" + std::to_string(::getpid()));
  fs::create_directories(folder);
  const auto written = [&](const char* name, const std::string& text) {
    const std::string path = (folder / name).string();
    std::ofstream(path) << text;
    return path;
  };
  const std::string text = replaced(board_text("h200"), "\"h200\"", "\"tests\"");
  CHECK(!cost::find_board("tests"));
  const std::string path = written("a.json", replaced(text, "1.3", "2.6"));
  const cost::Machine* const machine = cost::find_machine("sm_90a", path);
  REQUIRE(machine);
  CHECK((machine->board == "tests" && machine->hop.value == 2.6 && machine->arch == 90));
  CHECK(cost::find_machine("sm_90a", "tests") == machine);
  CHECK(cost::find_board(path) == machine);
  CHECK(!cost::find_machine("sm_100a", path));
  const auto said = [](const std::string& board) {
    ir::Diagnostics d;
    CHECK(!cost::find_machine("sm_90a", board, d));
    return d.render();
  };
  const std::string other = written("b.json", text), own = written("c.json", board_text("h200")),
                    unknown = written("d.json", replaced(text, "sm_90a", "sm_91"));
  CHECK(said(other) ==
        "error: board file '" + other + "' has the name 'tests', which another file's board has\n");
  CHECK(said(own) ==
        "error: board file '" + own + "' has the name 'h200', which a board of MACO's has\n");
  CHECK(said(unknown) ==
        "error: board file '" + unknown + "' is for target 'sm_91', which MACO doesn't know\n");
  CHECK(said("./none") == "error: board file './none' can't be read\n");
  fs::remove_all(folder);
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
