// Witnesses hold: a run of the Program by its text alone, which shares no code with the proofs,
// follows each schedule and then finds what the witness says.
#include "compiler/verify/witness.h"

#include <map>
#include <set>

#include "compiler/verify/verify.h"
#include "ir/program_text.h"
#include "tests/unit/damaged_programs.h"
#include "tests/unit/sum_program.h"

namespace maco::test {
namespace {

using verify::Instance;
using verify::Witness;
using Claim = Witness::Claim;

/// The first `max` violations with their schedules.
std::vector<Witness> witnesses(const ir::Program& p, size_t max = 3) {
  ir::Diagnostics diagnostics;
  std::vector<Witness> list;
  verify::verify(p, diagnostics, {.max_reports = max, .witnesses = &list});
  for (Witness& w : list) complete(p, w);
  return list;
}

/// Runs whole tasks; all ranks, any number of launches.
class Run {
 public:
  Run(const ir::Program& p, bool small_dims) : p_(p), small_(small_dims), order_(p) {
    const auto streams = ir::streams(p);
    for (const auto& s : streams)
      if (!s.empty()) streams_.push_back(s);
    at_.assign(static_cast<size_t>(p.world), std::vector<size_t>(streams_.size(), 0));
    launch_.assign(static_cast<size_t>(p.world), 0);
    skip();
  }
  bool stands(Instance i) const {
    const auto r = static_cast<size_t>(i.rank);
    if (launch_[r] != i.launch) return false;
    for (size_t s = 0; s < streams_.size(); ++s)
      if (at_[r][s] < streams_[s].size() && index(streams_[s][at_[r][s]]) == i.task) return true;
    return false;
  }
  bool ready(Instance i) const {
    if (!stands(i)) return false;
    for (const ir::Wait& w : p_.tasks[i.task].waits) {
      const ir::Event& e = p_.events[index(w.event)];
      const int64_t launch = i.launch - int64_t{w.lag};
      if (launch < 0) continue;
      if (e.kind == ir::EventKind::Packet && small_ && order_.may_skip(i.task)) continue;
      if (is_counter(e.kind)) {
        if (count(index(w.event), i.rank, -1) < (launch + 1) * e.count) return false;
        continue;
      }
      for (int source : ir::resolve(w.from, i.rank, static_cast<int>(p_.world)))
        if (count(index(w.event), i.rank, source) < launch + 1) return false;
    }
    return true;
  }
  bool run(Instance i) {
    if (!ready(i)) return false;
    end(i.task, i.rank, true);
    skip();
    return true;
  }
  std::vector<Instance> standing() const {
    std::vector<Instance> list;
    for (size_t r = 0; r < at_.size(); ++r)
      for (size_t s = 0; s < streams_.size(); ++s)
        if (at_[r][s] < streams_[s].size())
          list.push_back({static_cast<uint32_t>(index(streams_[s][at_[r][s]])),
                          static_cast<int32_t>(r), launch_[r]});
    return list;
  }

 private:
  int64_t count(size_t event, int rank, int source) const {
    const auto found = counts_.find({event, rank, source});
    return found == counts_.end() ? 0 : found->second;
  }
  void end(uint32_t task, int rank, bool runs) {
    for (size_t s = 0; s < streams_.size(); ++s) {
      size_t& at = at_[static_cast<size_t>(rank)][s];
      if (at < streams_[s].size() && index(streams_[s][at]) == task) ++at;
    }
    for (const ir::Signal& s : p_.tasks[task].signals) {
      if (is_counter(p_.events[index(s.event)].kind))
        ++counts_[{index(s.event), rank, -1}];
      else if (runs)
        for (int to : ir::resolve(s.to, rank, static_cast<int>(p_.world)))
          ++counts_[{index(s.event), to, rank}];
    }
  }
  // Tasks that a rank leaves out end at once, and so do launches that have come to their end.
  void skip() {
    for (size_t r = 0; r < at_.size(); ++r) {
      const int rank = static_cast<int>(r);
      bool ended = true;
      for (size_t s = 0; s < streams_.size(); ++s) {
        while (at_[r][s] < streams_[s].size()) {
          const auto task = static_cast<uint32_t>(index(streams_[s][at_[r][s]]));
          if ((p_.tasks[task].ranks >> r) & 1) break;
          end(task, rank, false);
        }
        ended = ended && at_[r][s] == streams_[s].size();
      }
      if (!ended || launch_[r] == kLaunches - 1) continue;
      ++launch_[r];
      at_[r].assign(streams_.size(), 0);
      skip();
    }
  }

  static constexpr int kLaunches = 8;
  const ir::Program& p_;
  const bool small_;
  const verify::Precedence order_;
  std::vector<std::vector<ir::TaskId>> streams_;
  std::vector<std::vector<size_t>> at_;  // by rank and stream
  std::vector<int32_t> launch_;          // by rank
  std::map<std::tuple<size_t, int, int>, int64_t> counts_;
};

/// What is wrong with the witness; "" if it shows what it claims.
std::string fault(const ir::Program& p, const Witness& w) {
  Run run(p, w.small_dims);
  for (size_t i = 0; i < w.schedule.size(); ++i)
    if (!run.run(w.schedule[i])) return "step " + std::to_string(i) + " can't run";
  switch (w.claim) {
    case Claim::Race: return run.ready(w.first) && run.ready(w.second) ? "" : "not both are ready";
    case Claim::Order:
      for (const Instance i : w.schedule)
        if (i == w.first) return "the first has ended";
      return run.ready(w.second) ? "" : "the second isn't ready";
    case Claim::Unseen: return "";
    case Claim::Deadlock: break;
  }
  const std::vector<Instance> standing = run.standing();
  // A rank that has ended its launch may begin the next, which the witness doesn't have.
  for (const Instance i : standing)
    if (i.launch == 0 && run.ready(i)) return "something is ready";
  return !standing.empty() && w.stuck.size() > 1 ? "" : "nothing is stuck";
}

TEST_CASE("a dropped wait gives the race after which both are ready") {
  const ir::Program p = parse_text(with(kSum, "wait done; signal arrived", "signal arrived"));
  const std::vector<Witness> all = witnesses(p);
  REQUIRE(!all.empty());
  CHECK(all[0].claim == Claim::Race);
  CHECK(all[0].first == Instance{0, 0, 0});
  CHECK(all[0].second == Instance{2, 0, 0});
  CHECK(all[0].schedule.empty());
  for (const Witness& w : all) CHECK(fault(p, w) == "");
}

TEST_CASE("a slot used again too early needs the launch before in its schedule") {
  const ir::Program p = parse_text(with(kSum, "rotation=2 ", ""));
  const std::vector<Witness> all = witnesses(p);
  REQUIRE(!all.empty());
  CHECK(all[0].second.launch == 1);
  CHECK(all[0].schedule.size() == 10);  // three of rank 0, five of rank 1, and two of its next
  CHECK(fault(p, all[0]) == "");
}

TEST_CASE("a deadlock's schedule ends where nothing can go on") {
  std::string text = with(kSum, "t2 c1#0 comm sm=2 place=0", "t2 c1#0 comm sm=2 place=1");
  text = with(text, "t3 c2#0 comm sm=2 place=1", "t3 c2#0 comm sm=2 place=0");
  const ir::Program p = parse_text(text);
  const std::vector<Witness> all = witnesses(p);
  REQUIRE(all.size() == 1);
  CHECK(all[0].claim == Claim::Deadlock);
  CHECK(all[0].schedule.size() == 4);  // the matmul's tiles
  CHECK(all[0].stuck.size() == 4);
  CHECK(fault(p, all[0]) == "");
}

TEST_CASE("what only packets order isn't taken for a race that can be seen to run") {
  std::string text = with(with(kSum, "rotation=2 offset", "rotation=2 packets offset"),
                          "arrived peer", "arrived packet");
  text = with(text, "  buffer y",
              "  buffer plain : f32[2 x 8] slot rotation=2 offset=1024\n  buffer y");
  text = with(text, "may slots[0:1, 0:32 block=self*1 on=others]",
              "may slots[0:1, 0:32 block=self*1 on=others] plain[0:1, 0:8 block=self*1 on=others]");
  text = with(text, "slots[0:2, 0:32]; write q", "slots[0:2, 0:32] plain[0:2, 0:8]; write q");
  const std::vector<Witness> all = witnesses(parse_text(text));
  REQUIRE(!all.empty());
  CHECK(all[0].claim == Claim::Unseen);
}

TEST_CASE("a race that only small dims show says so") {
  const ir::Program p = parse_text(skipped_packets());
  const std::vector<Witness> all = witnesses(p);
  REQUIRE(!all.empty());
  CHECK(all[0].claim == Claim::Race);
  CHECK(all[0].small_dims);
  CHECK(all[0].second.launch == 2);
  CHECK(fault(p, all[0]) == "");
  CHECK_THAT(print(p, all[0]), Contains("\ndims minimal\n"));
}

TEST_CASE("orders that no data says have a witness") {
  std::string text =
      with(with(kSum, "sm=0 place=1: read q[0:4, 0:8]; write y[0:4, 0:8]; wait summed",
                "sm=0 place=1 after(c0): read x[0:4, 0:8]; write y[0:4, 0:8]"),
           "; signal summed", "");
  const ir::Program p = parse_text(with(text, "  event summed local\n", ""));
  const std::vector<Witness> all = witnesses(p);
  REQUIRE(all.size() == 1);
  CHECK(all[0].claim == Claim::Order);
  CHECK(all[0].first == Instance{1, 0, 0});
  CHECK(all[0].second == Instance{4, 0, 0});
  CHECK(fault(p, all[0]) == "");
}

TEST_CASE("a race is claimed of bytes that both touch, not of blocks that count as all") {
  // On rank 0 the others' block is the second one, and its own the first.
  const ir::Program p = parse_text(R"(program g stage=synced world=2 target=cpu ctas=2 {
  uses consumers=256 loaders=32 registers=224 head=2048 scratch=16384
  limits sms=8 threads=1024 registers=65536 shared=65536
  roles compute 0..2
  buffer x : f32[2 x 8] input tensor=x
  buffer s : f32[2 x 8] state tensor=s
  buffer y : f32[1 x 8] output tensor=y
  call c0 = copy op=s kind=copy (x, s)
  call c1 = copy op=y kind=copy (s, y)
  task t0 c0#0 compute sm=0 place=0: read x[0:1, 0:8]; write s[0:1, 0:8 block=self*1]
  task t1 c1#0 compute sm=1 place=0: read s[0:1, 0:8 block=others*1]; write y[0:1, 0:8]
}
)");
  const std::vector<Witness> all = witnesses(p);
  REQUIRE(!all.empty());
  CHECK(all[0].claim == Claim::Unseen);
}

TEST_CASE("every witness of damaged Programs holds") {
  std::map<Claim, int> seen;
  for (const char* name : {"tp_mlp.maco", "allreduce.maco", "barrier.maco", "alltoall.maco",
                           "broadcast.maco", "reduce_scatter.maco", "decode_layer.maco",
                           "phases_roles.maco", "pipeline_4_stages.maco"}) {
    const Subject subject = example(name);
    for (const ir::Program& p : damaged(subject.program, 12))
      for (const Witness& w : witnesses(p)) {
        INFO(subject.name << "\n" << print(p, w));
        CHECK(fault(p, w) == "");
        ir::Diagnostics d;
        const auto again = verify::parse_witness(d.add_file("w", print(p, w)), p, d);
        INFO(d.render());
        CHECK((again && *again == w));
        ++seen[w.claim];
      }
  }
  CHECK(seen[Claim::Race] >= 20);
  CHECK(seen[Claim::Deadlock] >= 5);
  CHECK(seen[Claim::Order] >= 1);
}

std::string refusal(const ir::Program& p, const std::string& text) {
  ir::Diagnostics d;
  CHECK_FALSE(verify::parse_witness(d.add_file("w", text), p, d));
  return d.render();
}

TEST_CASE("witnesses print and parse") {
  std::vector<ir::Program> programs = {
      parse_text(with(kSum, "rotation=2 ", "")),
      parse_text(with(with(kSum, "program sum", "program \"two words\""), "wait done; signal arr",
                      "signal arr"))};
  std::string text = with(kSum, "t2 c1#0 comm sm=2 place=0", "t2 c1#0 comm sm=2 place=1");
  programs.push_back(
      parse_text(with(text, "t3 c2#0 comm sm=2 place=1", "t3 c2#0 comm sm=2 place=0")));
  for (const ir::Program& p : programs)
    for (Witness w : witnesses(p))
      for (const bool small : {false, true}) {
        w.small_dims = small;
        ir::Diagnostics d;
        const auto again = verify::parse_witness(d.add_file("w", print(p, w)), p, d);
        INFO(print(p, w) << d.render());
        REQUIRE(again);
        CHECK((*again == w));
      }
  const ir::Program& p = programs[0];
  const std::string good = print(p, witnesses(p)[0]);
  CHECK_THAT(refusal(p, print(programs[1], witnesses(programs[1])[0])),
             Contains("w:1:17: error: the witness is of another Program than 'sum'"));
  CHECK_THAT(refusal(p, with(good, "witness race", "witness rage")),
             Contains("expected a claim (race, order, unseen, deadlock), found 'rage'; did you"));
  CHECK_THAT(refusal(p, with(good, "run t0", "run t9")), Contains("the Program has no such task"));
  CHECK_THAT(refusal(p, with(good, "rank 1", "rank 2")), Contains("the Program has no such task"));
  CHECK_THAT(refusal(p, with(good, "first", "second")), Contains("one 'first' and one 'second'"));
  CHECK_THAT(refusal(p, with(good, "witness race", "witness deadlock")),
             Contains("a deadlock has neither"));
  CHECK_THAT(refusal(p, with(good, "run", "walk")), Contains("expected 'dims', 'first'"));
  CHECK_THAT(refusal(p, ""), Contains("expected 'witness', found the end"));
}

}  // namespace
}  // namespace maco::test
