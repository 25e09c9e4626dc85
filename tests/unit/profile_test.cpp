// Profiles of stamps made by hand: what they are in nanoseconds, on which path the time went, what
// table and trace say of it.
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "runtime/profile/critical_path.h"
#include "runtime/profile/table.h"
#include "runtime/profile/trace.h"
#include "tests/catch.h"
#include "tests/unit/sum_program.h"

namespace maco::runtime {
namespace {

using test::Contains;
using test::kSent;
using test::kSum;
using test::parse_text;
using test::with;

// When a task began to wait, had what it waited for, had worked and had signalled; of the work,
// waits for pages and packets.
struct Made {
  u64 begun, waited, computed, signalled;
  u32 page_wait = 0, packet_wait = 0;
};
// The two ranks of kSum, by task. Task 1 of rank 1 is late.
const std::vector<std::vector<Made>> kTimes = {{{0, 0, 100, 105},
                                                {0, 0, 200, 210},
                                                {0, 230, 330, 340},
                                                {340, 500, 560, 565},
                                                {105, 590, 690, 700, 40}},
                                               {{0, 0, 100, 105},
                                                {0, 0, 350, 360},
                                                {0, 380, 480, 490},
                                                {490, 495, 550, 555},
                                                {105, 580, 640, 650}}};

// As a kernel leaves them, with clocks of two ticks a nanosecond that begin where 32 bits end;
// `later`: of rank 1, which then has a clock of its own.
std::vector<RankStamps> stamps_of(const ir::Program& program,
                                  const std::vector<std::vector<Made>>& times, u64 later = 0) {
  const u64 start = 0xffffff00u;
  std::vector<RankStamps> ranks;
  for (size_t r = 0; r < times.size(); ++r) {
    RankStamps& rank = ranks.emplace_back();
    rank.clock = later > 0 ? static_cast<int>(r) : 0;
    for (const auto& stream : ir::streams(program)) {
      CtaStamps cta{};
      // Each CTA's clock began at a moment of its own.
      const u64 ahead = start + 1000 * rank.ctas.size();
      const u64 ns = 5000 + (r == 1 ? later : 0);
      if (!stream.empty()) cta = {ns, ahead, ns + 1000, ahead + 2000};
      rank.ctas.push_back(cta);
      for (ir::TaskId id : stream) {
        const Made& m = times[r][ir::index(id)];
        const auto ticks = [&](u64 moment) { return static_cast<u32>(2 * (moment - m.begun)); };
        rank.tasks.push_back({ahead + 2 * m.begun,
                              ticks(m.waited),
                              ticks(m.computed),
                              ticks(m.computed),
                              2 * m.page_wait,
                              2 * m.packet_wait,
                              0,
                              0,
                              0,
                              0,
                              ticks(m.signalled),
                              {}});
      }
    }
  }
  return ranks;
}

Timeline line_of(const ir::Program& program, const std::vector<RankStamps>& stamps) {
  Status status;
  auto line = Timeline::make(program, stamps, status);
  INFO(status.message);
  REQUIRE(line);
  return *line;
}

constexpr ir::TaskId task(uint32_t i) { return ir::TaskId{i}; }

}  // namespace

TEST_CASE("ticks become nanoseconds on the line through a CTA's two moments") {
  // 500 ns are 1250 ticks.
  const u64 begin = (u64{1} << 32) - 10;
  RankStamps stamps;
  stamps.ctas = {{7000, begin, 7500, begin + 1250}, {}, {9000, 50, 9100, 150}};
  stamps.tasks = {{begin + 250, 25, 250, 275, 75, 50, 0, begin - 250, 500, 100, 300, {}},
                  {begin + 1000, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, {}},
                  {60, 0, 10, 10, 11, 5, 0, 0, 0, 0, 20, {}}};
  std::vector<TaskTimes> times;
  const std::vector<size_t> streams = {2, 0, 1};
  REQUIRE(task_times(stamps, streams, times));
  REQUIRE(times.size() == 3);
  CHECK(times[0] == TaskTimes{7100, 7110, 7200, 7210, 7220, 30, 20, 6900, 7100, 40});
  CHECK(times[1] == TaskTimes{7400, 7400, 7400, 7400, 7402, 0, 0, 7400, 7400, 0});
  // Waits are no longer than the work that they are part of.
  CHECK(times[2] == TaskTimes{9010, 9010, 9020, 9020, 9030, 10, 0, 9010, 9010, 0});
}

TEST_CASE("stamps that are missing or make no sense are told") {
  RankStamps stamps;
  std::vector<TaskTimes> times;
  const std::vector<size_t> one = {1};
  stamps.tasks.resize(1);
  stamps.ctas = {{0, 0, 0, 0}};
  CHECK_THAT(task_times(stamps, one, times).message, Contains("CTA 0 left no stamps"));
  stamps.ctas = {{10, 20, 30, 20}};
  CHECK_THAT(task_times(stamps, one, times).message, Contains("its clock went from 20 to 20"));
  stamps.ctas = {{10, 20, 30, 40}};
  CHECK(task_times(stamps, one, times).ok);
  stamps.tasks.clear();
  CHECK_THAT(task_times(stamps, one, times).message, Contains("CTA 0 left no stamps"));

  const ir::Program program = parse_text(kSum);
  Status status;
  CHECK_FALSE(Timeline::make(program, {stamps}, status));
  CHECK_THAT(status.message, Contains("other ranks"));
}

TEST_CASE("the critical path goes through whatever a task needed last") {
  const ir::Program program = parse_text(kSum);
  const Timeline line = line_of(program, stamps_of(program, kTimes));
  CHECK(line.clocks() == Timeline::Clocks::Shared);
  CHECK(line.end() == 700);
  for (int rank = 0; rank < 2; ++rank)
    for (uint32_t t = 0; t < 5; ++t) {
      const Made& m = kTimes[static_cast<size_t>(rank)][t];
      const TaskTimes& got = line.at(rank, task(t));
      CHECK(got.begun == static_cast<int64_t>(m.begun));
      CHECK(got.waited == static_cast<int64_t>(m.waited));
      CHECK(got.stored == static_cast<int64_t>(m.computed));
      CHECK(got.signalled == static_cast<int64_t>(m.signalled));
    }
  const auto path = critical_path(line);
  // rank, task, begin, end, hand-off, busy, pages
  const std::vector<std::array<int64_t, 7>> expected = {{1, 1, 0, 350, 0, 350, 0},
                                                        {1, 2, 350, 480, 30, 100, 0},
                                                        {0, 3, 480, 560, 20, 60, 0},
                                                        {0, 4, 560, 700, 30, 70, 40}};
  REQUIRE(path.size() == expected.size());
  for (size_t i = 0; i < path.size(); ++i) {
    const PathStep& s = path[i];
    CAPTURE(i);
    CHECK(std::array<int64_t, 7>{s.rank, static_cast<int64_t>(ir::index(s.task)), s.begin, s.end,
                                 s.hand_off, s.busy, s.pages} == expected[i]);
  }
}

TEST_CASE("a task that waits for packets works from the last one on") {
  const ir::Program program = parse_text(test::skipped_packets());
  auto times = kTimes;
  // It finds the counters at once, and polls until after 480, when rank 1 has put its packets.
  times[0][3] = {340, 345, 560, 565, 0, 150};
  const auto path = critical_path(line_of(program, stamps_of(program, times)));
  REQUIRE(path.size() == 4);
  CHECK(ir::index(path[2].task) == 3);
  CHECK(path[2].begin == 480);
  CHECK(path[2].end == 560);
  // 150 of polling reach from 345 to 495, of which 15 are behind 480.
  CHECK(path[2].hand_off == 15);
  CHECK(path[2].busy == 65);
}

TEST_CASE("the task before it in the stream may be what a task needed last") {
  const ir::Program program = parse_text(kSum);
  auto times = kTimes;
  // Task 0 of rank 0 blocks its SM until long after task 3.
  times[0][0] = {0, 0, 100, 640};
  times[0][4] = {640, 645, 690, 700};
  const auto path = critical_path(line_of(program, stamps_of(program, times)));
  REQUIRE(path.size() == 2);
  CHECK(ir::index(path[0].task) == 0);
  CHECK(path[0].busy == 640);
  CHECK(path[1].begin == 640);
  CHECK(path[1].hand_off == 5);
}

TEST_CASE("clocks of two GPUs are brought together by what their ranks tell each other") {
  const ir::Program program = parse_text(kSum);
  const Timeline line = line_of(program, stamps_of(program, kTimes, 1000000));
  CHECK(line.clocks() == Timeline::Clocks::Signals);
  // Rank 0 signals at 330, seen at 495; rank 1 at 480, seen at 500: the clocks may be 165 off one
  // way and 20 the other. The middle is 72 off, and 93 away from either.
  CHECK(line.clock_error() == 93);
  CHECK(line.at(1, task(1)).computed - line.at(0, task(1)).computed == 150 - 73);
  int crossings = 0;
  for (int rank = 0; rank < 2; ++rank)
    for (uint32_t t = 0; t < 5; ++t)
      for (const Arrival& a : line.arrivals(rank, task(t))) {
        CHECK(a.sent <= a.seen);
        crossings += a.rank != rank;
      }
  CHECK(crossings == 2);
  CHECK_THAT(print(line, make_table(line)), Contains("to within 0.09 us"));

  const std::string one_way = with(with(kSum, "arrived to others", "arrived to rank(1)"),
                                   "arrived from others", "arrived from rank(0)");
  const ir::Program bounded = parse_text(one_way);
  const Timeline half = line_of(bounded, stamps_of(bounded, kTimes, 1000000));
  CHECK(half.clocks() == Timeline::Clocks::Bounded);
  CHECK_THAT(print(half, make_table(half)), Contains("one way only"));

  const ir::Program apart = parse_text(
      with(with(kSum, "; signal arrived to others", ""), "wait arrived from others; ", ""));
  const Timeline unknown = line_of(apart, stamps_of(apart, kTimes, 1000000));
  CHECK(unknown.clocks() == Timeline::Clocks::Unknown);
  CHECK(unknown.at(1, task(1)).begun == unknown.at(0, task(1)).begun);
}

TEST_CASE("packets come from who sends what a task reads, not from who signals its hint last") {
  const ir::Program program = parse_text(with(kSent, "wait row.sent.0", "wait row.sent"));
  // Task 3 reads the half of task 0 alone, and is through before task 1 begins.
  const std::vector<std::vector<Made>> times = {{{0, 0, 100, 105},
                                                 {300, 300, 400, 405},
                                                 {0, 10, 420, 425, 0, 300},
                                                 {0, 10, 200, 205, 0, 90}}};
  const Timeline line = line_of(program, stamps_of(program, times));
  const auto from = [&](uint32_t reader) {
    const std::vector<Arrival> list = line.arrivals(0, task(reader));
    REQUIRE(list.size() == 1);
    CHECK(list[0].sent <= list[0].seen);
    return ir::index(list[0].task);
  };
  CHECK(from(2) == 1);
  CHECK(from(3) == 0);
}

TEST_CASE("the table's numbers add up") {
  const ir::Program program = parse_text(kSum);
  const Timeline line = line_of(program, stamps_of(program, kTimes));
  const ProfileTable table = make_table(line);
  CHECK(table.time == 700);
  REQUIRE(table.ops.size() == 3);
  CHECK(table.ops[0].op == "down");
  CHECK(table.ops[1].op == "y");
  CHECK(table.ops[2].op == "out");
  CHECK(table.ops[0].path == 350);
  CHECK(table.ops[1].path == 210);
  CHECK(table.ops[2].path == 140);
  REQUIRE(table.functions.size() == 2);
  CHECK(table.functions[0].function == "combine");
  CHECK(table.functions[0].path == 80);
  CHECK(table.functions[1].function == "put");
  CHECK(table.functions[1].path == 130);

  // By hand, in floats: x 32 and p 16 read and written by each of four tasks, a rank.
  CHECK(table.ops[0].bytes == 4 * (32 + 16) * 4);
  // put: p and the peer's slot; combine: p, two slots and q; two ranks of each.
  CHECK(table.ops[1].bytes == 2 * (32 + 32) * 4 + 2 * (32 + 64 + 32) * 4);
  CHECK(table.ops[0].busy == 105 + 210 + 105 + 360);
  CHECK(table.ops[1].data == 230 + 160 + 380 + 5);
  CHECK(table.ops[2].pages == 40);
  CHECK(table.ops[0].sms == 4);
  CHECK(table.ops[1].sms == 2);
  // Both SMs at once, then one alone, on both ranks; exchanges one after the other.
  CHECK(table.ops[0].active == 210 + 360);
  CHECK(table.ops[1].active == (110 + 65) + (110 + 60));

  // No moment is lost: tasks follow each other without gaps here, but for SM 1, which has one.
  int64_t all = 0;
  for (const auto& rank : kTimes)
    for (const Made& m : rank) all += static_cast<int64_t>(m.signalled - m.begun);
  ProfileRow sum;
  for (const ProfileRow& r : table.ops) {
    CHECK(r.path == r.path_hand_off + r.path_busy + r.path_pages);
    sum.path += r.path, sum.busy += r.busy, sum.data += r.data, sum.pages += r.pages;
    sum.tasks += r.tasks, sum.bytes += r.bytes;
  }
  CHECK(sum.path == table.time);
  CHECK(sum.busy + sum.data + sum.pages == all);
  CHECK(sum.busy == table.total.busy);
  CHECK(sum.data == table.total.data);
  CHECK(sum.pages == table.total.pages);
  CHECK(sum.bytes == table.total.bytes);
  CHECK(sum.tasks == 10);
  CHECK(table.total.sms == 6);

  // Compute SMs work 215, 210, 175 and 360; each has some.
  REQUIRE(table.roles.size() == 2);
  CHECK(table.roles[0].sms == 4);
  CHECK(table.roles[0].fullest == 360);
  CHECK(table.roles[0].rank == 1);
  CHECK(table.roles[0].sm == 1);
  CHECK(table.roles[0].mean == Approx((215 + 210 + 175 + 360) / 4.0));
  const std::string text = print(line, table);
  CHECK_THAT(
      text,
      Contains("sum: 0.70 us") && Contains("2 ranks") && Contains("down") &&
          Contains("  combine") &&
          Contains("fullest compute SM: 0.36 us of work (SM 1 of rank 1), 1.500 of the mean"));
}

TEST_CASE("the table's columns stand beneath each other, however long the names") {
  ir::Program program = parse_text(kSum);
  for (auto& call : program.calls)
    if (call.function == "combine") call.function = "a_function_with_a_long_name";
  const Timeline line = line_of(program, stamps_of(program, kTimes));
  const std::string text = print(line, make_table(line));
  std::istringstream lines(text.substr(text.find("\nop ") + 1));
  size_t width = 0, rows = 0;
  for (std::string row; std::getline(lines, row) && !row.empty(); ++rows) {
    if (width == 0) width = row.size();
    CHECK(row.size() == width);
  }
  CHECK(rows > 4);
  CHECK_THAT(text, Contains("  a_function_with_a_long_name "));
}

TEST_CASE("ops of repeated layers share a line") {
  ir::Program program = parse_text(kSum);
  program.calls[0].op = "down_0";
  program.calls[3].op = "down_12";
  program.calls[1].op = program.calls[2].op = "down_1";
  const Timeline line = line_of(program, stamps_of(program, kTimes));
  const auto names = [&] {
    std::vector<std::string> list;
    for (const ProfileRow& r : make_table(line).ops) list.push_back(r.op + " " + r.kind);
    return list;
  };
  // Each is the only one of its kind.
  CHECK(names() == std::vector<std::string>{"down_0 matmul", "down_1 exchange", "down_12 silu"});
  program.calls[3].op_kind = "matmul";
  CHECK(names() == std::vector<std::string>{"down_* matmul", "down_1 exchange"});
  const ProfileRow row = make_table(line).ops[0];
  CHECK(row.path == 350 + 140);
  CHECK(row.tasks == 6);
  CHECK(row.sms == 4);
}

TEST_CASE("on a rank that leaves a task out, it has no part but its signals") {
  const ir::Program program = parse_text(with(kSum, "sm=1 place=0", "sm=1 place=0 ranks=0x1"));
  auto times = kTimes;
  times[1][1] = {0, 0, 0, 7};
  const Timeline line = line_of(program, stamps_of(program, times));
  const ProfileTable table = make_table(line);
  CHECK(table.total.tasks == 9);
  CHECK(table.ops[0].busy + table.ops[1].busy + table.ops[2].busy == table.total.busy);
  CHECK(line.arrivals(1, task(2)).size() == 1);
  int slices = 0;
  for (const auto& event : nlohmann::json::parse(chrome_trace(line)))
    slices += event["ph"] == "X" && event["name"] == "down";
  CHECK(slices == 3);
}

TEST_CASE("where a warp apart signals, an SM has left a task before that is over") {
  ir::Program program = parse_text(kSum);
  auto times = kTimes;
  // Task 0 of rank 0 has signalled only when task 4 of its SM has begun.
  times[0][0] = {0, 0, 100, 600};
  times[0][4] = {105, 590, 690, 700};
  const auto stamps = stamps_of(program, times);
  CHECK(line_of(program, stamps).at(0, ir::TaskId{0}).left == 600);
  program.uses.signallers = 32;
  const Timeline line = line_of(program, stamps);
  CHECK(line.at(0, ir::TaskId{0}).left == 100);
  CHECK(line.at(0, ir::TaskId{0}).signalled == 600);
  std::map<std::pair<int, int>, double> end;  // by rank and lane: where the last slice ended
  for (const auto& e : nlohmann::json::parse(chrome_trace(line))) {
    const std::string kind = e["ph"];
    if (kind == "s") CHECK(e["ts"].get<double>() < 0.6);
    if (kind != "X") continue;
    double& last = end[{e["pid"], e["tid"]}];
    CHECK(e["ts"].get<double>() >= last - 1e-9);
    last = e["ts"].get<double>() + e["dur"].get<double>();
  }
}

TEST_CASE("a trace has each task's slices, and arrows that point forward") {
  ir::Program program = parse_text(kSum);
  program.calls[0].op = "a \"b\"\\\n";
  program.events[0].name = "\"";
  auto stamps = stamps_of(program, kTimes);
  // SM 0 of rank 0 fills pages for its second task: 40 ns from 90 on, 15 of them in vain.
  stamps[0].tasks[1].fill_begun = 0xffffff00u + 180;
  stamps[0].tasks[1].filled = 80;
  stamps[0].tasks[1].fill_wait = 30;
  const Timeline line = line_of(program, stamps);
  const auto trace = nlohmann::json::parse(chrome_trace(line));
  std::map<std::string, int> slices;
  std::map<int, nlohmann::json> starts, ends;
  std::set<std::string> lanes;
  // By rank and lane: where the last slice ended.
  std::map<std::pair<int, int>, double> end;
  for (const auto& e : trace) {
    const std::string kind = e["ph"];
    if (kind == "M" && e["name"] == "thread_name") lanes.insert(e["args"]["name"]);
    if (kind == "s") starts[e["id"]] = e;
    if (kind == "f") ends[e["id"]] = e;
    if (kind != "X") continue;
    ++slices[e["name"]];
    double& last = end[{e["pid"], e["tid"]}];
    CHECK(e["ts"].get<double>() >= last - 1e-9);
    last = e["ts"].get<double>() + e["dur"].get<double>();
  }
  CHECK(slices == std::map<std::string, int>{
                      {"a \"b\"\\\n", 4}, {"wait", 6}, {"y", 4}, {"out", 2}, {"fill out", 1}});
  CHECK(lanes == std::set<std::string>{"SM 0 compute", "SM 1 compute", "SM 2 comm", "SM 0 loader"});
  REQUIRE(starts.size() == 6);
  REQUIRE(ends.size() == 6);
  int between_ranks = 0;
  for (const auto& [id, s] : starts) {
    REQUIRE(ends.count(id));
    const auto& f = ends[id];
    CHECK(s["ts"].get<double>() <= f["ts"].get<double>());
    between_ranks += s["pid"] != f["pid"];
    if (f["pid"] == 0 && s["pid"] == 1) {
      CHECK(s["ts"] == 0.48);
      CHECK(f["ts"] == 0.5);
      CHECK(s["tid"] == 4);
    }
  }
  CHECK(between_ranks == 2);
}

}  // namespace maco::runtime
