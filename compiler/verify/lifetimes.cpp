// The list of tasks is what a Program means, and the proof of races says that every execution means
// the same. It would also hold if the list itself read a temporary after it had written another at
// the same address; that it doesn't is proved here.
//
// A temporary lives from the first task of the list that touches it to the last, and so does a
// slot. Those that live at once mostly have bytes of their own: then there is nothing more to
// prove. If not, the last writer of each byte is followed through the list, in the memory of each
// rank.
#include "compiler/verify/lifetimes.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "compiler/verify/model.h"
#include "compiler/verify/regions.h"

namespace maco::verify {
namespace {

using ir::BufferId;
using ir::BufferKind;
using ir::id_of;
using ir::TaskId;

constexpr int64_t kMostRows = 1 << 22;

class Lifetimes {
 public:
  Lifetimes(const ir::Program& program, Reporter& reporter) : p_(program), report_(reporter) {}

  void run() {
    for (const BufferKind kind : {BufferKind::Temp, BufferKind::Slot}) {
      if (!lives_meet(kind)) continue;
      const Layout layout(p_);
      for (int rank = 0; rank < p_.world && !report_.failed(); ++rank) follow(layout, kind, rank);
    }
  }

 private:
  /// Whether two buffers of the kind that live at once share a byte.
  bool lives_meet(BufferKind kind) {
    struct Life {
      int64_t begin = 0, end = 0;  // bytes
      size_t first = 0, last = 0;  // tasks
    };
    std::vector<Life> lives(p_.buffers.size());
    std::vector<bool> used(p_.buffers.size(), false);
    for (size_t t = 0; t < p_.tasks.size(); ++t)
      for (const ir::Access& a : p_.tasks[t].accesses) {
        const size_t b = index(a.region.buffer);
        const ir::Buffer& buffer = p_.buffers[b];
        if (buffer.kind != kind) continue;
        if (!used[b]) lives[b] = {*buffer.offset, *buffer.offset + buffer.bytes(), t, t};
        used[b] = true;
        lives[b].last = t;
      }
    std::erase_if(lives, [&](const Life& x) { return x.begin == x.end; });
    std::stable_sort(lives.begin(), lives.end(),
                     [](const Life& a, const Life& b) { return a.first < b.first; });
    // Those that live now, by address: no two share a byte.
    std::map<int64_t, Life> now;
    std::multimap<size_t, int64_t> ends;
    for (const Life& life : lives) {
      while (!ends.empty() && ends.begin()->first < life.first) {
        now.erase(ends.begin()->second);
        ends.erase(ends.begin());
      }
      auto at = now.upper_bound(life.begin);
      if (at != now.begin() && std::prev(at)->second.end > life.begin) --at;
      if (at != now.end() && at->second.begin < life.end) return true;
      now[life.begin] = life;
      ends.emplace(life.last, life.begin);
    }
    return false;
  }

  void follow(const Layout& layout, BufferKind kind, int memory) {
    const int world = static_cast<int>(p_.world);
    written_.clear();
    for (size_t t = 0; t < p_.tasks.size(); ++t)
      for (const bool writes : {false, true})
        for (const ir::Access& a : p_.tasks[t].accesses)
          for (int rank = 0; rank < world; ++rank)
            if (a.writes() == writes && p_[a.region.buffer].kind == kind &&
                ((p_.tasks[t].ranks >> rank) & 1) && names(a.region.where, rank, memory, world) &&
                !touch(id_of<TaskId>(t), a, layout.box(a.region, rank, 0), rank))
              return;
  }
  bool touch(TaskId task, const ir::Access& a, Box box, int rank) {
    // More rows than anybody has: as if all between them were touched.
    if (box.rows > kMostRows) box = {.start = box.start, .rows = 1, .width = box.end() - box.start};
    for (int64_t row = 0; row < box.rows; ++row) {
      const int64_t begin = box.start + row * box.pitch, end = begin + box.width;
      if (a.writes())
        write(begin, end, {a.region.buffer, task});
      else if (!read(task, a.region, rank, begin, end))
        return false;
    }
    return true;
  }

  struct Last {
    BufferId buffer;
    TaskId task;
  };
  struct Run {
    int64_t end;
    Last by;
  };
  std::map<int64_t, Run>::iterator first_of(int64_t begin) {
    auto at = written_.upper_bound(begin);
    if (at != written_.begin() && std::prev(at)->second.end > begin) --at;
    return at;
  }
  void write(int64_t begin, int64_t end, Last by) {
    for (auto at = first_of(begin); at != written_.end() && at->first < end;) {
      const auto [from, run] = *at;
      at = written_.erase(at);
      if (from < begin) written_.emplace(from, Run{begin, run.by});
      if (run.end > end) at = written_.emplace(end, run).first;
    }
    written_.insert_or_assign(begin, Run{end, by});
  }
  bool read(TaskId task, const ir::Region& region, int rank, int64_t begin, int64_t end) {
    for (auto at = first_of(begin); at != written_.end() && at->first < end; ++at) {
      const Last by = at->second.by;
      if (by.buffer == region.buffer) continue;
      if (report_.error(task,
                        fmt::format("order: {} reads {} where {} has written '{}', which shares "
                                    "memory: what was there is lost",
                                    describe(p_, task), to_string(p_, region, rank),
                                    describe(p_, by.task), p_[by.buffer].name)))
        report_.note(
            by.task,
            fmt::format("'{}' lies at {}, '{}' at {} of {}", p_[region.buffer].name,
                        *p_[region.buffer].offset, p_[by.buffer].name, *p_[by.buffer].offset,
                        p_[by.buffer].kind == BufferKind::Temp ? "the arena" : "symmetric memory"));
      return false;
    }
    return true;
  }

  const ir::Program& p_;
  Reporter& report_;
  std::map<int64_t, Run> written_;  // runs of bytes by their first byte
};

}  // namespace

void check_lifetimes(const ir::Program& program, Reporter& reporter) {
  Lifetimes(program, reporter).run();
}

}  // namespace maco::verify
