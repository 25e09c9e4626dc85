// send_packets.cpp: sends small temporaries as packets: beside each element lies a flag with the
// launch's number. A reader needs no release and acquire of the tasks that write. Those take longer
// than the work of a small task while other tasks stream weights. The reader waits for a hint, a
// relaxed counter, and then for the flags. Packets take twice the bytes, so only temporaries that
// are small to each reader are worth it (docs/notebook/decoding.md).
//
// A reader waits for a hint of all of a buffer's writers, or where few kinds of readers need few of
// the writers each, for one of those.

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "compiler/cost/machine.h"
#include "compiler/functions/function.h"
#include "compiler/passes/passes.h"

namespace maco::passes {

namespace {

using ir::BufferId;
using ir::TaskId;

constexpr int64_t kMostBytes = 32 << 10;  // of payload that a task reads
constexpr size_t kMostParts = 16;         // hints of a buffer for readers of some of it

class Sender {
 public:
  explicit Sender(ir::Program& p) : p_(p), uses_(p.buffers.size()) {}

  int64_t run() {
    for (size_t b = 0; b < p_.buffers.size(); ++b) uses_[b].suits = may_be_sent(p_.buffers[b]);
    for (const ir::Call& call : p_.calls) look_at(call);
    for (size_t t = 0; t < p_.tasks.size(); ++t) look_at(ir::id_of<TaskId>(t));
    int64_t sent = 0;
    for (size_t b = 0; b < p_.buffers.size(); ++b) {
      Use& use = uses_[b];
      if (!use.suits || use.writes.empty() || use.reads.empty()) continue;
      p_.buffers[b].packets = true;
      add_hints(p_.buffers[b], use);
      ++sent;
    }
    return sent;
  }
  int64_t compared() const { return compared_; }

 private:
  struct Touch {
    TaskId task;
    ir::Region region;
  };
  struct Use {
    bool suits = false;
    std::vector<Touch> writes, reads;
  };

  static bool may_be_sent(const ir::Buffer& b) {
    const int64_t size = ir::size_of(b.dtype);
    return b.kind == ir::BufferKind::Temp && b.rows.is_constant() && (size == 2 || size == 4) &&
           b.cols * size % 16 == 0;
  }

  void look_at(const ir::Call& call) {
    const functions::Function* function = functions::find_function(call);
    for (size_t i = 0; i < call.operands.size(); ++i) {
      Use& use = uses_[index(call.operands[i])];
      use.suits = use.suits && function && function->takes_packets &&
                  function->takes_packets(functions::CallView(p_, call), i);
    }
  }
  void look_at(TaskId task) {
    std::map<BufferId, int64_t> read;  // bytes
    for (const ir::Access& a : p_[task].accesses) {
      const ir::Region& r = a.region;
      const ir::Buffer& buffer = p_[r.buffer];
      Use& use = uses_[index(r.buffer)];
      if (!use.suits) continue;
      use.suits = a.kind != ir::AccessKind::MayWrite && r.pitch == buffer.cols && !r.block.any() &&
                  r.where == ir::RankRef::self();
      (a.writes() ? use.writes : use.reads).push_back({task, r});
      if (!a.writes()) read[r.buffer] += (r.r1 - r.r0) * (r.c1 - r.c0) * ir::size_of(buffer.dtype);
    }
    for (const auto& [buffer, bytes] : read)
      if (bytes > kMostBytes) uses_[index(buffer)].suits = false;
  }

  static bool overlap(const ir::Region& a, const ir::Region& b) {
    return std::max(a.r0, b.r0) < std::min(a.r1, b.r1) &&
           std::max(a.c0, b.c0) < std::min(a.c1, b.c1);
  }
  using Tasks = std::vector<TaskId>;  // ascending
  static void tidy(Tasks& tasks) {
    std::sort(tasks.begin(), tasks.end());
    tasks.erase(std::unique(tasks.begin(), tasks.end()), tasks.end());
  }
  void add_hints(const ir::Buffer& buffer, const Use& use) {
    Tasks writers;
    for (const Touch& w : use.writes) writers.push_back(w.task);
    tidy(writers);
    std::vector<std::pair<TaskId, Tasks>> needs;  // of each reader; of all writers: none
    for (size_t r = 0; r < use.reads.size();) {
      const TaskId reader = use.reads[r].task;
      Tasks from;
      for (; r < use.reads.size() && use.reads[r].task == reader; ++r)
        for (const Touch& w : use.writes) {
          ++compared_;
          if (overlap(w.region, use.reads[r].region)) from.push_back(w.task);
        }
      tidy(from);
      // Who needs most of them loses nothing by waiting for all.
      if (2 * from.size() >= writers.size()) from.clear();
      needs.emplace_back(reader, std::move(from));
    }
    std::map<Tasks, std::optional<ir::EventId>> hints;
    for (const auto& [reader, from] : needs) hints.try_emplace(from);
    if (hints.size() - hints.count({}) > kMostParts) {
      for (auto& [reader, from] : needs) from.clear();
      hints.clear();
    }
    Tasks told;
    for (const auto& [reader, from] : needs) {
      std::optional<ir::EventId>& event = hints[from];
      const Tasks& tasks = from.empty() ? writers : from;
      if (!event) {
        event = hint(buffer.name, tasks, from.empty());
        told.insert(told.end(), tasks.begin(), tasks.end());
      }
      p_[reader].waits.push_back({*event, ir::RankRef::self()});
    }
    // Without a reader of all of it some may have none.
    tidy(told);
    Tasks untold;
    std::set_difference(writers.begin(), writers.end(), told.begin(), told.end(),
                        std::back_inserter(untold));
    if (!untold.empty()) hint(buffer.name, untold, false);
    parts_ = 0;
  }
  ir::EventId hint(const std::string& name, const Tasks& from, bool all) {
    const auto id = ir::id_of<ir::EventId>(p_.events.size());
    p_.events.push_back({.name = all ? name + ".sent" : fmt::format("{}.sent.{}", name, parts_++),
                         .kind = ir::EventKind::Hint,
                         .count = static_cast<uint32_t>(from.size())});
    for (const TaskId t : from) p_[t].signals.push_back({id, ir::RankRef::self()});
    return id;
  }

  ir::Program& p_;
  std::vector<Use> uses_;  // by buffer
  int64_t compared_ = 0;   // a region that is read with one that is written
  int parts_ = 0;          // hints of the current buffer for some of its writers
};

}  // namespace

bool send_packets(ir::Program& program, PassContext& context) {
  Sender sender(program);
  const int64_t sent = sender.run();
  context.statistics["temporaries sent in packets"] = sent;
  context.statistics["regions compared by send-packets"] = sender.compared();
  // Hints go out at once; a release, which waits for all that the CTA has written, needn't hold up
  // its next task.
  if (sent > 0) cost::add_signaller(context.machine, program.uses, program.world);
  return true;
}

}  // namespace maco::passes
