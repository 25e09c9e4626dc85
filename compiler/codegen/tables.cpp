#include "compiler/codegen/tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <span>
#include <string_view>

#include "ir/ranks.h"

namespace maco::codegen {

namespace {

constexpr size_t kLineLength = 96;

// An initialiser "{1,2,3}," without zeros at its end.
void append_row(std::string& text, std::span<const int64_t> numbers) {
  size_t n = numbers.size();
  while (n > 1 && numbers[n - 1] == 0) --n;
  char separator = '{';
  for (const int64_t number : numbers.first(n)) {
    text += separator;
    const fmt::format_int digits(number);
    text.append(digits.data(), digits.size());
    separator = ',';
  }
  text += "},";
}
template <size_t N>
void append_row(std::string& text, const std::array<int64_t, N>& numbers) {
  append_row(text, std::span<const int64_t>(numbers));
}

// Rows of a table, several in a line.
class Lines {
 public:
  explicit Lines(Emitter& e) : e_(e) {}
  ~Lines() { flush(); }
  Lines(const Lines&) = delete;
  Lines& operator=(const Lines&) = delete;

  /// To append a row to.
  std::string& text() {
    if (line_.size() >= kLineLength) flush();
    return line_;
  }
  void flush() {
    if (!line_.empty()) e_.raw(line_);
    line_.clear();
  }

 private:
  Emitter& e_;
  std::string line_;
};

}  // namespace

bool is_counter_at_sys_scope(const ir::Event& event) {
  return event.kind == ir::EventKind::Local && event.reach() == ir::Scope::Sys;
}

Tables::Tables(const ir::Program& program, const EventNumbers& events, const MapNumbers& maps)
    : p_(program), events_(events), maps_(maps), sync_of_task_(program.tasks.size()) {
  add_guards();
  find_hints();
  add_syncs();
  find_writers();
}

void Tables::add_guards() {
  guards_.push_back(~uint64_t{0});
  std::map<uint64_t, uint32_t> known;
  const uint64_t world = ir::all_ranks(p_.world);
  for (size_t t = 0; t < p_.tasks.size(); ++t) {
    const uint64_t ranks = p_.tasks[t].ranks & world;
    if (ranks == world) continue;
    const auto [it, fresh] = known.try_emplace(ranks, static_cast<uint32_t>(guards_.size()));
    if (fresh) guards_.push_back(ranks);
    sync_of_task_[t].guard = it->second;
  }
}

// What the tasks of a call read of a buffer can be polled without a hint if it is little, counted
// once for each of them. That the Program has a wait all the same tells the proofs that the data
// comes.
void Tables::find_hints() {
  constexpr int64_t kMostBytes = 256 << 10;
  std::map<std::pair<ir::BufferId, ir::CallId>, int64_t> bytes;
  for (const ir::Task& t : p_.tasks)
    for (const ir::Access& a : t.accesses)
      if (const ir::Region& r = a.region; !a.writes() && p_[r.buffer].own_packets())
        bytes[{r.buffer, t.call}] +=
            (r.r1 - r.r0) * (r.c1 - r.c0) * 2 * ir::size_of(p_[r.buffer].dtype);
  awaited_.resize(p_.events.size(), false);
  for (size_t t = 0; t < p_.tasks.size(); ++t) {
    const ir::Task& task = p_.tasks[t];
    sync_of_task_[t].polls =
        std::all_of(task.accesses.begin(), task.accesses.end(), [&](const ir::Access& a) {
          if (a.writes() || !p_[a.region.buffer].own_packets()) return true;
          return bytes[{a.region.buffer, task.call}] <= kMostBytes;
        });
    for (const ir::Wait& w : task.waits)
      if (is_hint(w.event) && !sync_of_task_[t].polls) awaited_[index(w.event)] = true;
  }
}
bool Tables::has_hints() const {
  return std::find(awaited_.begin(), awaited_.end(), true) != awaited_.end();
}

// In the order of the streams, so that what a CTA reads one after the other lies together.
void Tables::add_syncs() {
  std::unordered_map<std::string, uint32_t> known;  // first row of a list, by its rows' bytes
  std::vector<SyncRow> rows;
  for (const auto& stream : ir::streams(p_))
    for (ir::TaskId id : stream) {
      const ir::Task& task = p_[id];
      Sync& sync = sync_of_task_[index(id)];
      rows.clear();
      for (const ir::Wait& w : task.waits)
        if (p_[w.event].kind != ir::EventKind::Packet && !(is_hint(w.event) && sync.polls)) {
          rows.push_back(sync_row(w.event, w.from, w.lag));
          // Who waits for a hint looks at packets once the first of it is there: the others are on
          // their way, and a trip to memory takes as long.
          if (is_hint(w.event)) rows.back().back() = p_[w.event].count - 1;
        }
      sync.waits = static_cast<uint32_t>(rows.size());
      // Packets carry the signal: the device function stores it where the task has one.
      for (const ir::Signal& g : task.signals)
        if (p_[g.event].kind == ir::EventKind::Packet) {
          sync.packets = true;
        } else {
          sync.packets = sync.packets || is_hint(g.event);
          if (is_hint(g.event) && !awaited_[index(g.event)]) continue;
          rows.push_back(sync_row(g.event, g.to, 0));
        }
      sync.signals = static_cast<uint32_t>(rows.size()) - sync.waits;
      if (rows.empty()) continue;
      std::string list;
      for (const SyncRow& row : rows) {
        const int64_t words[] = {row[0] << 32 | row[1], row[2] << 56 | row[3] << 48 | row[4] << 32 |
                                                            (row[5] & 0xffffffff)};
        list.append(reinterpret_cast<const char*>(words), sizeof words);
      }
      const auto [it, fresh] =
          known.try_emplace(std::move(list), static_cast<uint32_t>(syncs_.size()));
      if (fresh) syncs_.insert(syncs_.end(), rows.begin(), rows.end());
      sync.first = it->second;
    }
}

bool scouts(const ir::Program& program) {
  const auto loads_behind = [](const ir::Call& call) {
    return std::any_of(call.loads.begin(), call.loads.end(),
                       [](const ir::Load& load) { return !load.ahead; });
  };
  return std::any_of(program.calls.begin(), program.calls.end(), loads_behind) &&
         std::none_of(program.events.begin(), program.events.end(),
                      [](const ir::Event& e) { return ir::is_about_packets(e.kind); });
}

void Tables::find_writers() {
  constexpr size_t kMost = (1 << 20) - 1;  // farther back is as far: a later task is waited for
  std::vector<size_t> written(p_.buffers.size());  // 1 + place of the last task, by buffer
  for (const auto& stream : ir::streams(p_)) {
    std::fill(written.begin(), written.end(), 0);
    for (size_t place = 0; place < stream.size(); ++place) {
      const ir::Task& task = p_[stream[place]];
      const ir::Call& call = p_[task.call];
      size_t last = 0;
      for (const ir::Load& load : call.loads)
        if (!load.ahead) last = std::max(last, written[index(call.operands[load.operand])]);
      if (last > 0)
        sync_of_task_[index(stream[place])].writer =
            static_cast<uint32_t>(std::min(place + 1 - last, kMost));
      for (const ir::Access& a : task.accesses)
        if (a.writes()) written[index(a.region.buffer)] = place + 1;
    }
  }
}

bool Tables::has_mates() const {
  return std::any_of(p_.tasks.begin(), p_.tasks.end(),
                     [](const ir::Task& task) { return task.mated; });
}

Tables::SyncRow Tables::sync_row(ir::EventId id, ir::RankRef who, uint32_t lag) const {
  const ir::Event& ev = p_[id];
  const int kind = ev.kind == ir::EventKind::Hint    ? 3
                   : ev.kind != ir::EventKind::Local ? 1
                   : is_counter_at_sys_scope(ev)     ? 2
                                                     : 0;
  return {events_.number[index(id)], ev.count, kind, static_cast<int64_t>(who.kind), lag, who.n};
}

std::vector<Tables::Limit> Tables::limits() const {
  Sync most;
  uint32_t tile = 0;
  for (const Sync& s : sync_of_task_) {
    most.waits = std::max(most.waits, s.waits);
    most.signals = std::max(most.signals, s.signals);
  }
  for (const ir::Task& t : p_.tasks) tile = std::max(tile, t.tile);
  return {{static_cast<int64_t>(p_.calls.size()), 1 << 20, "calls"},
          {int64_t{tile} + 1, 1 << 21, "tiles of a call"},
          {static_cast<int64_t>(syncs_.size()), 1 << 23, "different waits and signals"},
          {most.waits, (1 << 16) - 1, "waits of a task"},
          {most.signals, (1 << 15) - 1, "signals of a task"},
          {static_cast<int64_t>(guards_.size()), 1 << 12, "guards"}};
}

void Tables::emit(Emitter& e, const std::vector<size_t>& kinds) const {
  emit_operands(e);
  emit_calls(e, kinds);
  emit_tasks(e, kinds);
  emit_syncs(e);
  {
    e.raw("// The ranks that run a task, a bit each.");
    auto s = e.table("MACO_TABLE const u64 guards[] =");
    for (uint64_t g : guards_) e.line("0x{:x}ull,", g);
  }
  {
    e.raw("// Signals a launch of each local event.");
    auto s = e.table("MACO_TABLE const u32 local_counts[] =");
    Lines lines(e);
    bool any = false;
    for (const ir::Event& ev : p_.events) {
      if (!is_counter(ev.kind)) continue;
      lines.text() += fmt::format("{},", ev.count);
      any = true;
    }
    if (!any) lines.text() += "0,";
  }
  e.raw("");
}

void Tables::emit_operands(Emitter& e) const {
  const std::vector<int> tensors = tensor_numbers(p_);
  e.raw(
      "// Where the operands of each call lie: offset / 256, space (0 temporaries, 1 slots, 2.. "
      "tensors), of slots bytes of a copy / 256, rotation, use, of others their tensor map.");
  auto s = e.table("MACO_TABLE const Operand operands[] =");
  bool any = false;
  for (size_t c = 0; c < p_.calls.size(); ++c) {
    std::string row;
    for (size_t i = 0; i < p_.calls[c].operands.size(); ++i) {
      const ir::BufferId id = p_.calls[c].operands[i];
      const ir::Buffer& b = p_[id];
      const int64_t map = maps_.of_call[c][i];
      const int64_t offset = b.offset.value_or(0) / 256;
      if (b.kind == ir::BufferKind::Temp)
        append_row(row, std::array<int64_t, 3>{offset, 0, map});
      else if (b.kind == ir::BufferKind::Slot)
        append_row(row, std::array<int64_t, 5>{offset, 1, b.copy_bytes() / 256, b.rotation, b.use});
      else
        append_row(row, std::array<int64_t, 3>{0, tensors[index(id)] + 2, map});
    }
    if (row.empty()) continue;
    e.line("{} // call {}: {} '{}'", row, c, ir::function_text(p_.calls[c]), p_.calls[c].op);
    any = true;
  }
  if (!any) e.raw("{0},");
}

std::vector<std::array<int64_t, 3>> Tables::call_rows(const std::vector<size_t>& kinds) const {
  std::vector<std::array<int64_t, 3>> rows;
  size_t first = 0;
  for (size_t c = 0; c < p_.calls.size(); ++c) {
    const size_t operands = p_.calls[c].operands.size();
    rows.push_back({static_cast<int64_t>(first), static_cast<int64_t>(operands),
                    static_cast<int64_t>(kinds[c])});
    first += operands;
  }
  return rows;
}

void Tables::emit_calls(Emitter& e, const std::vector<size_t>& kinds) const {
  e.raw("// First operand, number of operands, kind; in the order of the calls.");
  auto s = e.table("MACO_TABLE const CallRow calls[] =");
  Lines lines(e);
  for (const auto& row : call_rows(kinds)) append_row(lines.text(), row);
  if (p_.calls.empty()) lines.text() += "{0},";
}

std::array<int64_t, 8> Tables::task_row(ir::TaskId id) const {
  const ir::Task& t = p_[id];
  const Sync& sync = sync_of_task_[index(id)];
  return {static_cast<int64_t>(index(t.call)),
          t.tile,
          sync.first,
          sync.waits,
          sync.signals,
          sync.guard,
          sync.packets,
          sync.writer};
}

void Tables::emit_tasks(Emitter& e, const std::vector<size_t>& kinds) const {
  const auto all = ir::streams(p_);
  {
    e.raw(
        "// The streams, SM by SM: call, tile, first row of syncs, waits, signals, guard, sends "
        "packets, places back to a writer of what is loaded.");
    auto s = e.table("MACO_TABLE const TaskRow tasks[] =");
    for (size_t sm = 0; sm < all.size(); ++sm) {
      e.line("// SM {} ({}): {} tasks", sm, role_of(static_cast<int32_t>(sm)), all[sm].size());
      Lines lines(e);
      for (ir::TaskId id : all[sm]) append_row(lines.text(), task_row(id));
    }
    if (p_.tasks.empty()) e.raw("{0},");
  }
  e.raw("// Of each stream: where it begins and ends, the call of its first task, and that.");
  auto s = e.table("MACO_TABLE const StreamRow streams[] =");
  Lines lines(e);
  const auto calls = call_rows(kinds);
  size_t begin = 0;
  for (const auto& stream : all) {
    std::string& line = lines.text();
    fmt::format_to(std::back_inserter(line), "{{{},{}", begin, begin + stream.size());
    if (!stream.empty()) {
      std::string rows = ",";
      append_row(rows, calls[index(p_[stream.front()].call)]);
      append_row(rows, task_row(stream.front()));
      rows.pop_back();
      line += rows;
    }
    line += "},";
    begin += stream.size();
  }
}

void Tables::emit_syncs(Emitter& e) const {
  e.raw(
      "// Waits and signals: event, count, kind (0 local, 1 peer, 2 local at sys scope, 3 hint), "
      "who (0 "
      "self, 1 others, 2 all, 3 rank n, 4 rank + n), lag, n (of a hint: may be late).");
  const bool peers = std::any_of(syncs_.begin(), syncs_.end(),
                                 [](const SyncRow& row) { return short_form(row).has_value(); });
  if (peers) {
    e.raw("// Events of peers, of this launch: those of others, all, rank n, rank + n.");
    e.raw("#define o_(event) {event, 1, 1, 1}");
    e.raw("#define a_(event) {event, 1, 1, 2}");
    e.raw("#define r_(event, n) {event, 1, 1, 3, 0, n}");
    e.raw("#define s_(event, n) {event, 1, 1, 4, 0, n}");
  }
  {
    auto s = e.table("MACO_TABLE const SyncRow syncs[] =");
    Lines lines(e);
    for (const SyncRow& row : syncs_)
      if (const auto text = short_form(row))
        lines.text() += *text;
      else
        append_row(lines.text(), row);
    if (syncs_.empty()) lines.text() += "{0},";
  }
  if (peers)
    for (const char* macro : {"o_", "a_", "r_", "s_"}) e.line("#undef {}", macro);
}

std::optional<std::string> Tables::short_form(const SyncRow& row) {
  const auto [event, count, kind, who, lag, n] = row;
  if (kind != 1 || count != 1 || lag != 0) return std::nullopt;
  switch (static_cast<ir::RankRef::Kind>(who)) {
    case ir::RankRef::Kind::Others: return fmt::format("o_({}),", event);
    case ir::RankRef::Kind::All: return fmt::format("a_({}),", event);
    case ir::RankRef::Kind::Rank: return fmt::format("r_({},{}),", event, n);
    case ir::RankRef::Kind::Shift: return fmt::format("s_({},{}),", event, n);
    case ir::RankRef::Kind::Self: break;
  }
  return std::nullopt;
}

std::string Tables::role_of(int32_t sm) const {
  for (const ir::CtaRange& r : p_.roles)
    if (sm >= r.begin && sm < r.end) return std::string(ir::name(r.role));
  return "idle";
}

}  // namespace maco::codegen
