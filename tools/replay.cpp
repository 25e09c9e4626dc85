#include "tools/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "compiler/verify/report.h"

namespace maco::tools {
namespace {

using runtime::ByteRange;
using runtime::Stepper;
using runtime::TaskPlace;
using verify::Instance;
using verify::Witness;
using Claim = Witness::Claim;
using Went = Stepper::Went;
using Bytes = std::vector<char>;

constexpr size_t kMostStuck = 16;

class Replay {
 public:
  Replay(const ReplaySubject& subject, const Witness& witness)
      : s_(subject),
        p_(subject.program),
        w_(witness),
        addresses_(subject.run.addresses(subject.program)),
        sizes_(runtime::actual_sizes(p_, [&](std::string_view name) -> std::optional<int64_t> {
          if (name == "world") return p_.world;
          const auto found = s_.values.find(std::string(name));
          return found == s_.values.end() ? std::nullopt : std::optional(found->second);
        })) {
    launches_ = std::max(w_.first.launch, w_.second.launch) + 1;
    for (const Instance i : w_.schedule) launches_ = std::max(launches_, i.launch + 1);
  }

  ReplayResult run() {
    switch (w_.claim) {
      case Claim::Race: race(); break;
      case Claim::Order: order(); break;
      case Claim::Deadlock: deadlock(); break;
      case Claim::Unseen:
        result_.error = fmt::format(
            "no run shows it: {} comes after {} by packets only, which make no other writes "
            "visible "
            "(on a CPU all are); or what they touch counts as shared, as all blocks of others do",
            text(w_.second), text(w_.first));
        break;
    }
    return std::move(result_);
  }

 private:
  // --- one run ---

  /// Follows the schedule, then calls `then`. Returns false if the schedule can't be followed.
  bool follow(const std::function<void(Stepper&)>& then) {
    bool followed = true;
    const auto drive = [&](Stepper& stepper) {
      for (size_t i = 0; i < w_.schedule.size() && followed; ++i) {
        const Went went = stepper.step(place(w_.schedule[i]));
        if (went == Went::Ended) continue;
        followed = false;
        say("  step {} of the schedule, {}, {}", i + 1, text(w_.schedule[i]), word(went));
      }
      if (followed) then(stepper);
    };
    const auto before = [&](int rank, int launch) {
      if (launch == 0 && rank == 0) results_.clear();
      if (launch > 0) keep_results(static_cast<size_t>(rank), launch - 1);
      if (s_.write_tensors) s_.write_tensors(rank, launch);
    };
    if (const auto status = s_.run.step(launches_, s_.values, before, drive); !status) {
      result_.error = status.message;
      return false;
    }
    return followed;
  }
  static const char* word(Went went) {
    switch (went) {
      case Went::Ended: return "runs";
      case Went::Waits: return "waits";
      case Went::Elsewhere: return "isn't next in its stream";
      case Went::Stopped: break;
    }
    return "gives up: an index of the data is out of range";
  }
  TaskPlace place(Instance i) const {
    const ir::Task& t = p_.tasks[i.task];
    return {i.rank, i.launch, t.sm, t.place};
  }
  std::string text(Instance i) const { return verify::describe(p_, i); }
  template <class... T>
  void say(fmt::format_string<T...> format, T&&... values) {
    result_.story += fmt::format(format, std::forward<T>(values)...) + "\n";
  }
  static std::string count(size_t n, const char* what) {
    return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
  }

  // --- races ---

  struct Overlap {
    std::vector<ByteRange> bytes;
    std::string buffers;  // "p[0:4, 0:4] and p[0:4, 0:8]"
  };
  void add(const ir::Access& a, Instance i, std::vector<ByteRange>& out) const {
    runtime::add_ranges(p_, addresses_, a.region, i.rank,
                        s_.run.first_epoch() + static_cast<uint32_t>(i.launch), sizes_, out);
  }
  Overlap overlap() const {
    Overlap all;
    for (const ir::Access& a : p_.tasks[w_.first.task].accesses)
      for (const ir::Access& b : p_.tasks[w_.second.task].accesses) {
        if (!a.writes() && !b.writes()) continue;
        std::vector<ByteRange> x, y;
        add(a, w_.first, x);
        add(b, w_.second, y);
        const size_t before = all.bytes.size();
        for (const ByteRange& u : x)
          for (const ByteRange& v : y)
            if (const ByteRange both{std::max(u.begin, v.begin), std::min(u.end, v.end)};
                both.begin < both.end)
              all.bytes.push_back(both);
        if (all.bytes.size() == before) continue;
        all.buffers += fmt::format(
            "{}{} {} and {} {}", all.buffers.empty() ? "" : "; ", a.writes() ? "writes" : "reads",
            verify::to_string(p_, a.region, w_.first.rank), b.writes() ? "writes" : "reads",
            verify::to_string(p_, b.region, w_.second.rank));
      }
    runtime::merge(all.bytes);
    return all;
  }
  static Bytes copy(const std::vector<ByteRange>& ranges) {
    Bytes bytes;
    for (const ByteRange& r : ranges)
      bytes.insert(bytes.end(), reinterpret_cast<const char*>(r.begin),
                   reinterpret_cast<const char*>(r.end));
    return bytes;
  }
  static size_t different(const Bytes& a, const Bytes& b) {
    size_t n = 0;
    for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) n += a[i] != b[i] ? 1 : 0;
    return n;
  }
  /// Keeps the outputs and states of a rank after a launch.
  void keep_results(size_t rank, int launch) {
    for (size_t i = 0; i < p_.buffers.size(); ++i) {
      const ir::Buffer& b = p_.buffers[i];
      const char* from = addresses_[rank].tensors[i];
      if (!from || (b.kind != ir::BufferKind::Output && b.kind != ir::BufferKind::State)) continue;
      results_[fmt::format("'{}' on rank {}{}", b.name, rank,
                           launches_ > 1 ? fmt::format(" after launch {}", launch) : "")] =
          Bytes(from, from + b.bytes());
    }
  }

  struct Order {
    Went first = Went::Elsewhere, second = Went::Elsewhere;
    Bytes before, between, after;
    bool finished = false;
    std::map<std::string, Bytes> results;
  };
  std::optional<Order> both(Instance first, Instance second, const std::vector<ByteRange>& bytes) {
    Order o;
    const bool followed = follow([&](Stepper& stepper) {
      o.before = copy(bytes);
      o.first = stepper.step(place(first));
      o.between = copy(bytes);
      if (o.first != Went::Ended) return;
      o.second = stepper.step(place(second));
      o.after = copy(bytes);
      o.finished = stepper.finish();
      for (size_t rank = 0; rank < addresses_.size(); ++rank) keep_results(rank, launches_ - 1);
      o.results = std::move(results_);
    });
    if (!followed) return std::nullopt;
    return o;
  }

  void race() {
    const Overlap shared = overlap();
    say("race: {} and {}", text(w_.first), text(w_.second));
    if (shared.bytes.empty()) {
      say("  touch no byte in common");
      return;
    }
    const auto forth = both(w_.first, w_.second, shared.bytes);
    if (!forth) return;
    const auto back = both(w_.second, w_.first, shared.bytes);
    if (!back) return;
    say("  after the schedule of {} each can go first:", count(w_.schedule.size(), "task"));
    say("    {} {}", text(w_.first), word(forth->first));
    say("    {} {}", text(w_.second), word(back->first));
    polls(w_.first, forth->first);
    polls(w_.second, back->first);
    if (forth->first != Went::Ended || back->first != Went::Ended) return;
    result_.confirmed = true;
    say("  {}: {} in common", shared.buffers, count(forth->before.size(), "byte"));
    effect(w_.first, w_.second, *forth, *back);
    effect(w_.second, w_.first, *back, *forth);
    if (writes(w_.first) && writes(w_.second)) {
      const size_t n = different(forth->after, back->after);
      say("  when both have run, {}", n ? fmt::format("the order shows in {} of these bytes", n)
                                        : "these bytes are the same this time");
    }
    at_the_end(*forth, *back);
  }
  void polls(Instance i, Went went) {
    if (went != Went::Waits) return;
    for (const ir::Access& a : p_.tasks[i.task].accesses)
      result_.polled = result_.polled || (!a.writes() && p_[a.region.buffer].packets);
  }
  bool reads(Instance i) const { return any(i, false); }
  bool writes(Instance i) const { return any(i, true); }
  bool any(Instance i, bool writes) const {
    // Compares all bytes that both touch: both lists are short.
    const Instance other = i == w_.first ? w_.second : w_.first;
    for (const ir::Access& a : p_.tasks[i.task].accesses)
      for (const ir::Access& b : p_.tasks[other.task].accesses) {
        if (a.writes() != writes || (!a.writes() && !b.writes())) continue;
        std::vector<ByteRange> x, y;
        add(a, i, x);
        add(b, other, y);
        for (const ByteRange& u : x)
          for (const ByteRange& v : y)
            if (std::max(u.begin, v.begin) < std::min(u.end, v.end)) return true;
      }
    return false;
  }
  /// What `reader` sees if `writer` goes first, and if `reader` does.
  void effect(Instance writer, Instance reader, const Order& writer_first,
              const Order& reader_first) {
    if (writer_first.second != Went::Ended)
      say("  {} {} if {} has gone first: it never ends", text(reader), word(writer_first.second),
          text(writer));
    if (!writes(writer) || !reads(reader)) return;
    const size_t n = different(writer_first.between, reader_first.before);
    say("  {} reads {}", text(reader),
        n ? fmt::format("other bytes, {} of them, if {} has gone first", n, text(writer))
          : "the same bytes this time, whichever goes first");
  }
  void at_the_end(const Order& a, const Order& b) {
    if (!a.finished || !b.finished) say("  then not all launches end");
    std::string names;
    for (const auto& [name, bytes] : a.results)
      if (const auto other = b.results.find(name);
          other == b.results.end() || other->second != bytes)
        names += (names.empty() ? "" : ", ") + name;
    if (names.empty())
      say("  outputs and states are the same this time");
    else
      say("  at the end these differ: {}", names);
  }

  // --- wrong order ---

  void order() {
    say("order: {} has to end before {} starts", text(w_.first), text(w_.second));
    Went went = Went::Elsewhere;
    bool ended = false;
    const bool followed = follow([&](Stepper& stepper) {
      went = stepper.step(place(w_.second));
      const auto& list = stepper.ended();
      ended = std::find(list.begin(), list.end(), place(w_.first)) != list.end();
    });
    if (!followed) return;
    say("  after the schedule of {}, {} {}", count(w_.schedule.size(), "task"), text(w_.second),
        word(went));
    say("  {} has {}", text(w_.first), ended ? "ended before" : "not ended");
    result_.confirmed = went == Went::Ended && !ended;
  }

  // --- deadlocks ---

  void deadlock() {
    say("deadlock: after the schedule of {} nothing goes on", count(w_.schedule.size(), "task"));
    std::vector<TaskPlace> standing, more;
    bool finished = false;
    const bool followed = follow([&](Stepper& stepper) {
      const size_t before = stepper.ended().size();
      finished = stepper.finish();
      more.assign(stepper.ended().begin() + static_cast<std::ptrdiff_t>(before),
                  stepper.ended().end());
      standing = stepper.standing();
    });
    if (!followed) return;
    if (finished) {
      say("  but all went on to the end");
      return;
    }
    std::map<TaskPlace, Instance> at;
    for (uint32_t t = 0; t < p_.tasks.size(); ++t)
      for (int32_t r = 0; r < p_.world; ++r) at[place({t, r, 0})] = {t, r, 0};
    for (const TaskPlace& i : more) say("  but {} went on", text(at.at(i)));
    const verify::Precedence order(p_);
    std::set<Instance> ended(w_.schedule.begin(), w_.schedule.end());
    for (size_t n = 0; n < standing.size() && n < kMostStuck; ++n) {
      const auto found = at.find(standing[n]);
      if (found == at.end()) continue;
      const Instance i = found->second;
      for (const auto& e : order.before(i, verify::Precedence::Packets::All)) {
        if (e.why == verify::Precedence::Why::Stream || e.why == verify::Precedence::Why::Launch ||
            ended.contains(e.other) || !order.runs(e.other))
          continue;
        say("  {} waits for event '{}' of {}", text(i), p_.events[index(e.event)].name,
            text(e.other));
        break;
      }
    }
    if (standing.size() > kMostStuck) say("  and {} more wait", standing.size() - kMostStuck);
    result_.confirmed = more.empty() && !standing.empty();
  }

  const ReplaySubject& s_;
  const ir::Program& p_;
  const Witness& w_;
  const std::vector<runtime::RankAddresses> addresses_;
  const std::vector<runtime::ActualSizes> sizes_;
  int launches_ = 1;
  std::map<std::string, Bytes> results_;
  ReplayResult result_;
};

}  // namespace

ReplayResult replay(const ReplaySubject& subject, const verify::Witness& witness) {
  return Replay(subject, witness).run();
}

}  // namespace maco::tools
