#include "runtime/profile/trace.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/manifest.h"
#include "ir/program_text.h"

namespace maco::runtime {
namespace {

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\')
      out += fmt::format("\\{}", c);
    else if (static_cast<unsigned char>(c) < 0x20)
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    else
      out += c;
  }
  return out + '"';
}

// Microseconds, exactly.
std::string us(int64_t ns) {
  const int64_t whole = std::abs(ns);
  return fmt::format("{}{}.{:03}", ns < 0 ? "-" : "", whole / 1000, whole % 1000);
}

class Trace {
 public:
  explicit Trace(const Timeline& line) : line_(line), p_(line.program()) {}

  std::string text() {
    // Names the kernel; viewers ignore unknown names.
    event(fmt::format(
        R"({{"ph":"M","name":"maco_kernel","pid":0,"tid":0,"args":{{"graph":{},"target":{},"board":{},"program":"{}"}}}})",
        quoted(p_.name), quoted(p_.target), quoted(p_.board), ir::text_hash(ir::print(p_))));
    for (int rank = 0; rank < line_.world(); ++rank) {
      name("process_name", rank, 0, fmt::format("rank {}", rank));
      const auto streams = ir::streams(p_);
      for (size_t sm = 0; sm < streams.size(); ++sm) add_stream(rank, sm, streams[sm]);
    }
    return "[\n" + events_ + "\n]\n";
  }

 private:
  void event(const std::string& text) { events_ += events_.empty() ? text : ",\n" + text; }
  void name(const char* what, int rank, size_t lane, const std::string& is) {
    event(fmt::format(R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{"name":{}}}}})", what,
                      rank, lane, quoted(is)));
  }
  void slice(std::string_view is, std::string_view category, int rank, size_t lane, int64_t begin,
             int64_t end, const std::string& args) {
    event(fmt::format(
        R"({{"ph":"X","name":{},"cat":{},"pid":{},"tid":{},"ts":{},"dur":{},"args":{{{}}}}})",
        quoted(is), quoted(category), rank, lane, us(begin), us(end - begin), args));
  }

  void add_stream(int rank, size_t sm, const std::vector<ir::TaskId>& stream) {
    bool loads = false;
    size_t role = 0;
    while (role < p_.roles.size() && (static_cast<int64_t>(sm) < p_.roles[role].begin ||
                                      static_cast<int64_t>(sm) >= p_.roles[role].end))
      ++role;
    if (stream.empty()) return;
    name("thread_name", rank, 2 * sm,
         fmt::format("SM {} {}", sm,
                     role < p_.roles.size() ? ir::name(p_.roles[role].role) : "compute"));
    for (ir::TaskId task : stream) {
      if (!line_.runs(rank, task)) continue;
      add_task(rank, sm, task);
      const TaskTimes& t = line_.at(rank, task);
      if (t.filled == t.fill_begun) continue;
      if (!loads) name("thread_name", rank, 2 * sm + 1, fmt::format("SM {} loader", sm));
      loads = true;
      slice("fill " + p_[p_[task].call].op, "loader", rank, 2 * sm + 1, t.fill_begun, t.filled,
            fmt::format(R"("task":{},"waits for free pages us":{})", ir::index(task),
                        us(t.fill_wait)));
    }
  }

  void add_task(int rank, size_t sm, ir::TaskId id) {
    const ir::Task& task = p_[id];
    const ir::Call& call = p_[task.call];
    const TaskTimes& t = line_.at(rank, id);
    const std::string number = fmt::format(R"("task":{})", ir::index(id));
    if (!task.waits.empty()) slice("wait", "wait", rank, 2 * sm, t.begun, t.waited, number);
    int64_t read = 0, written = 0;
    for (const ir::Access& a : task.accesses)
      (a.writes() ? written : read) += region_bytes(p_, a.region, rank);
    slice(
        call.op, call.op_kind, rank, 2 * sm, t.waited, t.left,
        fmt::format(R"({},"call":{},"function":{},"tile":{},"bytes read":{},"bytes written":{},)"
                    R"("waits for pages us":{},"waits for packets us":{},"signals us":{})",
                    number, ir::index(task.call), quoted(ir::function_text(call)), task.tile, read,
                    written, us(t.page_wait), us(t.packet_wait), us(t.signalled - t.stored)));
    for (const Arrival& a : line_.arrivals(rank, id)) {
      if (!line_.runs(a.rank, a.task)) continue;  // it signals, but has no slice
      ++flows_;
      // Its last packet was sent before its work ended, and seen before the other task's work
      // ended.
      const bool packet = ir::is_about_packets(p_[a.event].kind);
      // An arrow begins at a slice, even if a separate warp has sent the signal later.
      const int64_t sent = std::min(a.sent, packet ? a.seen : line_.at(a.rank, a.task).left);
      const std::string common =
          fmt::format(R"("id":{},"name":{},"cat":"signal")", flows_, quoted(p_[a.event].name));
      event(fmt::format(R"({{"ph":"s",{},"pid":{},"tid":{},"ts":{}}})", common, a.rank,
                        2 * p_[a.task].sm, us(sent)));
      event(fmt::format(R"({{"ph":"f","bp":"e",{},"pid":{},"tid":{},"ts":{}}})", common, rank,
                        2 * sm, us(a.seen)));
    }
  }

  const Timeline& line_;
  const ir::Program& p_;
  std::string events_;
  int64_t flows_ = 0;
};

}  // namespace

std::string chrome_trace(const Timeline& timeline) { return Trace(timeline).text(); }

}  // namespace maco::runtime
