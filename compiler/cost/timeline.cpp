#include "compiler/cost/timeline.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <queue>
#include <tuple>
#include <utility>

#include "ir/ranks.h"

namespace maco::cost {

namespace {

using ir::TaskId;
constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kByte = 1e-6;  // a part of a byte that is nothing

// A rate that is shared alike by those who use it; none of a kind gets more than the kind's cap.
class Shared {
 public:
  // In bytes a microsecond.
  Shared(double rate, const std::vector<double>& caps) : rate_(rate) {
    for (const double cap : caps) kinds_.push_back({cap, 0, {}});
  }
  void add(double now, size_t kind, double bytes, size_t user) {
    advance(now);
    Kind& k = kinds_[kind];
    k.waiting.push({k.each + bytes, user});
    ++version_;
  }
  // When the next user has all its bytes, if nobody comes or goes before.
  double next() const {
    double at = kNever;
    for (size_t i = 0; i < kinds_.size(); ++i) {
      const Kind& k = kinds_[i];
      if (k.waiting.empty()) continue;
      const double left = k.waiting.top().first - k.each;
      at = std::min(at, now_ + std::max(left, 0.0) / rates()[i]);
    }
    return at;
  }
  // The users that have all their bytes by now.
  std::vector<size_t> done(double now) {
    advance(now);
    std::vector<size_t> users;
    for (Kind& k : kinds_)
      for (; !k.waiting.empty() && k.waiting.top().first - k.each <= kByte; k.waiting.pop())
        users.push_back(k.waiting.top().second);
    if (!users.empty()) ++version_;
    return users;
  }
  uint64_t version() const { return version_; }

 private:
  using Ending = std::pair<double, size_t>;  // at how many bytes, and who
  struct Kind {
    double cap = 0;
    double each = 0;  // bytes that one who was there from the begin would have got
    std::priority_queue<Ending, std::vector<Ending>, std::greater<>> waiting;
  };
  // What one user of each kind gets.
  std::array<double, 2> rates() const {
    std::array<double, 2> out{};
    std::array<size_t, 2> order{0, 1};
    if (kinds_.size() > 1 && kinds_[0].cap > kinds_[1].cap) std::swap(order[0], order[1]);
    double left = rate_;
    size_t users = 0;
    for (const Kind& k : kinds_) users += k.waiting.size();
    for (size_t i = 0; i < kinds_.size(); ++i) {
      const size_t kind = order[i], n = kinds_[kind].waiting.size();
      if (n == 0) continue;
      out[kind] = std::min(kinds_[kind].cap, left / static_cast<double>(users));
      left -= out[kind] * static_cast<double>(n);
      users -= n;
    }
    return out;
  }
  void advance(double now) {
    if (now > now_) {
      const auto r = rates();
      for (size_t i = 0; i < kinds_.size(); ++i) kinds_[i].each += r[i] * (now - now_);
    }
    now_ = std::max(now, now_);
  }

  double rate_, now_ = 0;
  std::vector<Kind> kinds_;  // at most two
  uint64_t version_ = 0;
};

int64_t ranks_other_than(const ir::Program& program, ir::RankRef where, int rank) {
  int64_t n = 0;
  for (const int r : ir::resolve(where, rank, static_cast<int>(program.world))) n += r != rank;
  return n;
}

// What a task asks of the machine.
struct Demand {
  double loaded = 0;          // bytes through pages
  bool ahead = false;         // they may be fetched before the task's waits are over
  double direct = 0;          // bytes of device memory besides
  double sent = 0;            // bytes over links
  double busy = 0, last = 0;  // microseconds of arithmetic, and of what follows all else
};

double region_bytes(const ir::Program& program, const ir::Region& r) {
  return static_cast<double>(typical_rows(program, r) * (r.c1 - r.c0) *
                             ir::size_of(program[r.buffer].dtype));
}

Demand demand_of(const ir::Program& program, const ir::Task& task, const Work& work, int rank,
                 const Machine& machine) {
  const ir::Call& call = program[task.call];
  Demand d;
  double loaded = 0, all = 0;
  for (const ir::Access& a : task.accesses) {
    const double bytes = region_bytes(program, a.region);
    const int64_t peers = ranks_other_than(program, a.region.where, rank);
    d.sent += bytes * static_cast<double>(peers);
    all += bytes;
    for (const ir::Load& load : call.loads)
      if (!a.writes() && call.operands[load.operand] == a.region.buffer) loaded += bytes;
  }
  for (const ir::Load& load : call.loads) d.ahead = d.ahead || load.ahead;
  // A function may count more than its regions, or less: then what is loaded counts alike.
  const double share = all > 0 ? std::min(1.0, loaded / all) : 0;
  d.loaded = work.bytes * share;
  d.direct = work.bytes - d.loaded;
  const double arithmetic =
                   work.multiply_adds / (machine.f32_reached * machine.f32_flops / 2 / machine.sms),
               matrices = work.matrix_multiply_adds / (machine.flops / 2 / machine.sms);
  d.busy = 1e6 * std::max(arithmetic, matrices);
  d.last = work.fixed_microseconds;
  return d;
}

// Signals that an event has got on a rank of a class.
struct Arrivals {
  uint32_t count = 0;
  // Counters: when the SM whose signal came last gave it, and when the last of the others did.
  int32_t sm = -1;
  double last = -kNever, other = -kNever;
  std::map<size_t, double> by_class{};               // others: by the sender's class
  std::vector<std::pair<size_t, size_t>> waiting{};  // SMs, and their wait's index

  void signal(int32_t s, double at) {
    ++count;
    if (s == sm || sm < 0) {
      sm = s, last = at;
    } else {
      other = std::max(other, last);
      sm = s, last = at;
    }
  }
};

class Run {
 public:
  Run(const ir::Program& program, const std::vector<Work>& works, const Machine& machine)
      : p_(program),
        machine_(machine),
        streams_(ir::streams(program)),
        sms_(streams_.size()),
        mates_(ir::find_mates(program)) {
    times_.class_of = rank_classes(program);
    const size_t classes = 1 + *std::max_element(times_.class_of.begin(), times_.class_of.end());
    for (size_t c = 0; c < classes; ++c)
      first_.push_back(static_cast<int>(
          std::find(times_.class_of.begin(), times_.class_of.end(), c) - times_.class_of.begin()));
    times_.spans.assign(classes, std::vector<Span>(program.tasks.size()));
    demands_.resize(classes);
    for (size_t c = 0; c < classes; ++c)
      for (size_t t = 0; t < program.tasks.size(); ++t)
        demands_[c].push_back(demand_of(program, program.tasks[t], works[t], first_[c], machine));
    arrivals_.assign(classes, std::vector<Arrivals>(program.events.size()));
    const double us = 1e-6;
    for (size_t c = 0; c < classes; ++c) {
      shared_.emplace_back(
          machine.memory_rate * us,
          std::vector<double>{machine.sm_memory_rate * us, machine.sm_plain_rate * us});
      shared_.emplace_back(machine.link_rate * us, std::vector<double>{machine.sm_link_rate * us});
    }
    sm_.resize(classes * sms_);
    ring_ = static_cast<double>(std::max<int64_t>(program.uses.pages * program.uses.page_bytes, 1));
  }

  std::optional<LaunchTimes> run() {
    for (size_t s = 0; s < sm_.size(); ++s) {
      next_task(s, 0);
      fetch(s, 0);
    }
    look();
    while (!events_.empty()) {
      const Event e = events_.top();
      events_.pop();
      if (e.what == What::Shared) {
        Shared& shared = shared_[e.who];
        if (e.version != shared.version()) continue;
        for (const size_t user : shared.done(e.at)) served(user, e.at);
      } else {
        happen(e);
      }
      look();
    }
    for (const Sm& sm : sm_)
      if (sm.at < streams_[static_cast<size_t>(&sm - sm_.data()) % sms_].size())
        return std::nullopt;
    return std::move(times_);
  }

 private:
  enum class What : uint8_t { Shared, Start, Piece, Ended };
  struct Event {
    double at = 0;
    uint64_t number = 0;  // among those at the same time in the order in which they were made
    What what = What::Shared;
    size_t who = 0;  // an SM of a class, or what is shared
    uint64_t version = 0;
    bool operator<(const Event& o) const {  // the earliest is on top
      return std::tie(at, number) > std::tie(o.at, o.number);
    }
  };
  // Who uses what is shared: an SM's loader, its task's direct accesses, or what the task sends.
  enum User : size_t { kLoader, kDirect, kSender, kUsers };

  // An SM of a class.
  struct Sm {
    size_t at = 0;         // the task in its stream that waits or works
    size_t missing = 0;    // waits that aren't over
    double ready = 0;      // when those that are over are
    bool arrived = false;  // mates: it could start
    int parts = 0;         // of the task's work that aren't done
    // The loader: the task it fetches for, how much of it, and whether a piece is on its way.
    size_t fetching = 0;
    double fetched = 0;
    double piece = 0;
    double in_ring = 0;  // bytes fetched and not yet worked on
    bool on_its_way = false, working = false;
    // Of the current task: bytes there, worked on, and of the piece that is worked on.
    double there = 0, worked = 0, worked_on = 0;
    bool begun = false;                // the current task's work
    double waits_since = 0;            // for pages
    std::map<size_t, double> ahead{};  // bytes there of later tasks of the stream
  };

  size_t class_of(size_t s) const { return s / sms_; }
  TaskId task_at(size_t s, size_t at) const { return streams_[s % sms_][at]; }
  TaskId task_of(size_t s) const { return task_at(s, sm_[s].at); }
  bool runs(size_t s, TaskId task) const { return p_[task].ranks >> first_[class_of(s)] & 1; }
  const Demand& demand(size_t s, TaskId task) const {
    return demands_[class_of(s)][ir::index(task)];
  }
  Span& span(size_t s, TaskId task) { return times_.spans[class_of(s)][ir::index(task)]; }

  void push(double at, What what, size_t who, uint64_t version = 0) {
    events_.push({at, number_++, what, who, version});
  }
  // Has what is shared tell when it serves somebody next, if that has changed.
  void look() {
    seen_.resize(shared_.size(), ~uint64_t{0});
    for (size_t i = 0; i < shared_.size(); ++i) {
      if (seen_[i] == shared_[i].version()) continue;
      seen_[i] = shared_[i].version();
      if (const double at = shared_[i].next(); at < kNever)
        push(at, What::Shared, i, shared_[i].version());
    }
  }

  // Goes on to the SM's next task that its rank runs, and lets that wait.
  void next_task(size_t s, double now) {
    Sm& sm = sm_[s];
    const auto& stream = streams_[s % sms_];
    for (; sm.at < stream.size() && !runs(s, stream[sm.at]); ++sm.at) signal(s, stream[sm.at], now);
    if (sm.at == stream.size()) return;
    const TaskId task = stream[sm.at];
    span(s, task).begun = now;
    sm.begun = sm.arrived = false;
    sm.worked = sm.worked_on = 0;
    sm.there = 0;
    if (const auto at = sm.ahead.find(sm.at); at != sm.ahead.end()) {
      sm.there = at->second;
      sm.ahead.erase(at);
    }
    sm.ready = now;
    sm.missing = 0;
    const auto& waits = p_[task].waits;
    for (size_t w = 0; w < waits.size(); ++w) {
      if (waits[w].lag > 0) continue;
      Arrivals& a = arrivals_[class_of(s)][ir::index(waits[w].event)];
      if (const double over = over_at(s, waits[w], a); over < kNever) {
        sm.ready = std::max(sm.ready, over);
      } else {
        ++sm.missing;
        a.waiting.push_back({s, w});
      }
    }
    if (sm.missing == 0) push(sm.ready, What::Start, s);
  }

  // When an SM's wait is over; never, as long as signals are missing.
  double over_at(size_t s, const ir::Wait& wait, const Arrivals& a) const {
    const ir::Event& event = p_[wait.event];
    if (ir::is_counter(event.kind)) {
      if (a.count < event.count) return kNever;
      const double later = event.kind == ir::EventKind::Hint ? machine_.packet_hand_over.value
                                                             : machine_.hand_over.value;
      return a.sm == static_cast<int32_t>(s % sms_) ? std::max(a.last, a.other + later)
                                                    : a.last + later;
    }
    const int rank = first_[class_of(s)];
    double over = -kNever;
    for (const int source : ir::resolve(wait.from, rank, static_cast<int>(p_.world))) {
      const auto at = a.by_class.find(times_.class_of[static_cast<size_t>(source)]);
      if (at == a.by_class.end()) return kNever;
      over = std::max(over, at->second + (source == rank ? 0.0 : machine_.hop.value));
    }
    return over;
  }

  void signal(size_t s, TaskId task, double now) {
    const size_t own = class_of(s);
    const bool runs_here = runs(s, task);
    for (const ir::Signal& signal : p_[task].signals) {
      const size_t e = ir::index(signal.event);
      const bool counter = ir::is_counter(p_[signal.event].kind);
      if (!counter && !runs_here) continue;
      // A signal to peers may be waited for by ranks of any class.
      for (size_t c = 0; c < arrivals_.size(); ++c) {
        if (counter && c != own) continue;
        Arrivals& a = arrivals_[c][e];
        if (counter)
          a.signal(static_cast<int32_t>(s % sms_), now);
        else
          a.by_class[own] = now;
        std::vector<std::pair<size_t, size_t>> still;
        for (const auto& [waiter, w] : a.waiting) {
          const double over = over_at(waiter, p_[task_of(waiter)].waits[w], a);
          if (over == kNever) {
            still.push_back({waiter, w});
            continue;
          }
          Sm& sm = sm_[waiter];
          sm.ready = std::max(sm.ready, over);
          if (--sm.missing == 0) push(std::max(sm.ready, now), What::Start, waiter);
        }
        a.waiting = std::move(still);
      }
    }
  }

  void happen(const Event& e) {
    if (e.what == What::Start) return could_start(e.who, e.at);
    if (e.what == What::Piece) return worked_piece(e.who, e.at);
    ended(e.who, e.at);
  }

  // The task's waits are over. Mates start together.
  void could_start(size_t s, double now) {
    sm_[s].arrived = true;
    if (const auto mate = mates_[ir::index(task_of(s))]) {
      const size_t other = s - s % sms_ + static_cast<size_t>(p_[*mate].sm);
      if (task_of_or_none(other) != mate || !sm_[other].arrived) return;
      start(other, now);
    }
    start(s, now);
  }
  std::optional<TaskId> task_of_or_none(size_t s) const {
    const auto& stream = streams_[s % sms_];
    return sm_[s].at < stream.size() ? std::optional(stream[sm_[s].at]) : std::nullopt;
  }

  void start(size_t s, double now) {
    Sm& sm = sm_[s];
    const TaskId task = task_of(s);
    const Demand& d = demand(s, task);
    span(s, task).waited = now;
    sm.begun = true;
    sm.parts = 1;
    sm.waits_since = now;
    if (d.direct > kByte) use(s, kDirect, 1, d.direct, now);
    if (d.sent > kByte) use(s, kSender, 0, d.sent, now);
    if (d.loaded > kByte) {
      fetch(s, now);
      work(s, now);
    } else {
      push(now + d.busy, What::Piece, s);
    }
  }
  void use(size_t s, User user, size_t kind, double bytes, double now) {
    if (user != kLoader) ++sm_[s].parts;
    shared_[2 * class_of(s) + (user == kSender)].add(now, kind, bytes, s * kUsers + user);
  }

  // The loader fetches the next piece if there is one and the ring has room.
  void fetch(size_t s, double now) {
    Sm& sm = sm_[s];
    if (sm.on_its_way) return;
    const auto& stream = streams_[s % sms_];
    for (; sm.fetching < stream.size(); ++sm.fetching, sm.fetched = 0) {
      const TaskId task = stream[sm.fetching];
      const Demand& d = demand(s, task);
      if (!runs(s, task) || d.loaded - sm.fetched <= kByte) continue;
      if (!d.ahead && (sm.fetching != sm.at || !sm.begun)) return;
      // Some pieces are in the ring at a time, so that one is fetched while another is worked on.
      const double piece = std::min(d.loaded - sm.fetched, ring_ / 4);
      if (sm.in_ring + piece > ring_ + kByte) return;
      if (sm.fetched == 0) span(s, task).filling = now;
      sm.piece = piece;
      sm.on_its_way = true;
      use(s, kLoader, 0, piece, now);
      return;
    }
  }
  void served(size_t user, double now) {
    const size_t s = user / kUsers;
    Sm& sm = sm_[s];
    if (user % kUsers != kLoader) return part_done(s, now);
    sm.on_its_way = false;
    sm.fetched += sm.piece;
    sm.in_ring += sm.piece;
    span(s, task_at(s, sm.fetching)).filled = now;
    if (sm.fetching == sm.at)
      sm.there += sm.piece;
    else
      sm.ahead[sm.fetching] += sm.piece;
    if (sm.begun && sm.fetching == sm.at) work(s, now);
    fetch(s, now);
  }
  // The consumers work on what is there.
  void work(size_t s, double now) {
    Sm& sm = sm_[s];
    const TaskId task = task_of(s);
    const Demand& d = demand(s, task);
    if (sm.working || sm.there - sm.worked <= kByte) return;
    span(s, task).pages += now - sm.waits_since;
    sm.working = true;
    sm.worked_on = std::min(sm.there - sm.worked, ring_ / 4);
    push(now + d.busy * sm.worked_on / d.loaded, What::Piece, s);
  }
  void worked_piece(size_t s, double now) {
    Sm& sm = sm_[s];
    const Demand& d = demand(s, task_of(s));
    if (!sm.working) return part_done(s, now);  // nothing came through pages
    sm.working = false;
    sm.worked += sm.worked_on;
    sm.in_ring -= sm.worked_on;
    sm.waits_since = now;
    fetch(s, now);
    if (d.loaded - sm.worked <= kByte) return part_done(s, now);
    work(s, now);
  }
  void part_done(size_t s, double now) {
    if (--sm_[s].parts == 0) push(now + demand(s, task_of(s)).last, What::Ended, s);
  }
  void ended(size_t s, double now) {
    const TaskId task = task_of(s);
    span(s, task).worked = now;
    times_.end = std::max(times_.end, now);
    signal(s, task, now);
    ++sm_[s].at;
    sm_[s].begun = false;
    next_task(s, now);
    fetch(s, now);
  }

  const ir::Program& p_;
  const Machine& machine_;
  const std::vector<std::vector<TaskId>> streams_;
  const size_t sms_;
  const std::vector<std::optional<TaskId>> mates_;
  LaunchTimes times_;
  std::vector<int> first_;                       // by class: its first rank, which stands for all
  std::vector<std::vector<Demand>> demands_;     // by class and task
  std::vector<std::vector<Arrivals>> arrivals_;  // by class and event
  std::vector<Shared> shared_;                   // by class: device memory, then the link
  std::vector<uint64_t> seen_;
  std::vector<Sm> sm_;  // class after class
  double ring_ = 1;
  std::priority_queue<Event> events_;
  uint64_t number_ = 0;
};

}  // namespace

std::vector<size_t> rank_classes(const ir::Program& program) {
  const int world = static_cast<int>(program.world);
  const auto ranks = static_cast<size_t>(world);
  std::vector<size_t> of(ranks, 0);
  size_t classes = 1;
  // Whom a rank hears and reaches, each kind of reference once.
  std::vector<ir::RankRef> refs;
  const auto note = [&](ir::RankRef ref) {
    if (std::find(refs.begin(), refs.end(), ref) == refs.end()) refs.push_back(ref);
  };
  std::vector<uint64_t> guards;
  for (const ir::Task& task : program.tasks) {
    if (std::find(guards.begin(), guards.end(), task.ranks) == guards.end())
      guards.push_back(task.ranks);
    for (const ir::Wait& w : task.waits) note(w.from);
    for (const ir::Signal& s : task.signals) note(s.to);
    for (const ir::Access& a : task.accesses) note(a.region.where);
  }
  // Ranks that differ in what they run differ; then those that differ in their peers' classes,
  // until nothing changes.
  for (;;) {
    std::map<std::vector<size_t>, size_t> names;
    std::vector<size_t> next;
    for (int r = 0; r < world; ++r) {
      std::vector<size_t> signature{of[static_cast<size_t>(r)]};
      for (const uint64_t g : guards) signature.push_back(g >> r & 1);
      for (const ir::RankRef ref : refs) {
        std::vector<size_t> peers;
        for (const int q : ir::resolve(ref, r, world)) {
          peers.push_back(of[static_cast<size_t>(q)] * 2 + (q == r));
        }
        std::sort(peers.begin(), peers.end());
        signature.push_back(peers.size());
        signature.insert(signature.end(), peers.begin(), peers.end());
      }
      next.push_back(names.try_emplace(signature, names.size()).first->second);
    }
    const bool same = names.size() == classes;
    classes = names.size();
    of = std::move(next);
    if (same) return of;
  }
}

std::optional<LaunchTimes> launch_times(const ir::Program& program, const std::vector<Work>& works,
                                        const Machine& machine) {
  if (program.tasks.empty()) {
    LaunchTimes none;
    none.class_of.assign(static_cast<size_t>(program.world), 0);
    none.spans.resize(1);
    return none;
  }
  return Run(program, works, machine).run();
}

}  // namespace maco::cost
