// What a CTA uses (Program::uses) is there (Program::limits), and every CTA is resident, without
// which a wait may be for a task that never gets an SM.
//
// Pages of the ring between a loader and its CTA's consumers (runtime/device/pages.cuh). Proved
// here, from the Program's loads:
//   - the ring has a page more than any task holds at a time, of all its operands: a task can go on
//     to its next page while the loader fills it, so that neither waits for the other;
//   - a page has the bytes that each load fills, and begins on 128 bytes as the first, on 1,024
//     where boxes land in it, which are such as a tensor map can describe;
//   - a loader that runs ahead of its task's waits reads what no task before it in the list writes:
//     the launch before has ended, and what comes later is ordered behind the task, which reads it;
//   - what a loader reads its task declares to read, so that the races are proved for both.
// By the ring's construction, given that: both sides walk the stream in its order, so that the page
// that the consumers wait for is the next that the loader fills; a page is read only once the
// copies of all loader threads have landed in it (an mbarrier's phase, or a release and an
// acquire), and filled again only once each warp of the consumers has let it go (an arrival that
// releases, and an acquire). That loader and consumers of a function use equally many pages is a
// contract of the device functions, which tests/unit/ops_* and the access checks of the CPU target
// hold them to.
//
// That the compiler of the target keeps to `registers` is what __launch_bounds__ asks of it, and
// the host asks the driver for the residency of what was compiled before it launches.
#include "compiler/verify/resources.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <tuple>
#include <vector>

namespace maco::verify {
namespace {

constexpr int64_t kWarp = 32;
constexpr int64_t kRegisterStep = 8;  // of a thread: registers come in steps
constexpr int64_t kPageAlignment = 128;
constexpr int32_t kMostThreads = 1 << 20;         // likewise
constexpr int64_t kMostBytes = int64_t{1} << 30;  // that any limit may be: sums don't overflow

int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }
int64_t round_down(int64_t n, int64_t step) { return n / step * step; }

class ResourceCheck {
 public:
  ResourceCheck(const ir::Program& program, Reporter& reporter) : p_(program), report_(reporter) {}

  void run(bool symmetric_limit) {
    if (p_.limits == ir::Limits{}) {
      error(
          "the Program is {}, but doesn't say what an SM of target '{}' has: a line 'limits' is "
          "missing",
          name(p_.stage), p_.target);
      return;
    }
    if (p_.uses == ir::Resources{}) {
      error("the Program is {}, but doesn't say what a CTA uses: a line 'uses' is missing",
            name(p_.stage));
      return;
    }
    const ir::Resources& u = p_.uses;
    const auto possible = [](int32_t threads) { return threads >= 0 && threads <= kMostThreads; };
    if (u.consumers < 1 || !possible(u.consumers) || !possible(u.loaders) ||
        !possible(u.signallers) || !possible(u.spare) || u.registers < 1 || u.head_bytes < 0 ||
        u.head_bytes > kMostBytes || u.scratch_bytes < 0 || u.scratch_bytes > kMostBytes ||
        u.pages < 0 || u.page_bytes < 0 || u.page_bytes > kMostBytes ||
        p_.limits.shared_bytes > kMostBytes) {
      error(
          "a CTA of {}, {}, {} and {} threads with {} registers each, {} and {} bytes and {} pages "
          "of {} bytes, where {} bytes are the limit, isn't possible",
          u.consumers, u.loaders, u.signallers, u.spare, u.registers, u.head_bytes, u.scratch_bytes,
          u.pages, u.page_bytes, p_.limits.shared_bytes);
      return;
    }
    cta();
    residency();
    if (symmetric_limit) symmetric_memory();
    find_written();
    for (const ir::Call& c : p_.calls) loads(c);
    readers();
  }

 private:
  template <class... Args>
  void error(fmt::format_string<Args...> text, Args&&... args) {
    report_.error("resources: " + fmt::format(text, std::forward<Args>(args)...));
  }
  template <class... Args>
  void error(const ir::Call& c, fmt::format_string<Args...> text, Args&&... args) {
    report_.error("resources: " + fmt::format(text, std::forward<Args>(args)...), c.loc);
  }

  void cta() {
    const ir::Resources& u = p_.uses;
    const ir::Limits& l = p_.limits;
    if (u.consumers % kWarp != 0 || u.loaders % kWarp != 0)
      error("a CTA has {} consumers and {} loaders, but roles are whole warps of {}", u.consumers,
            u.loaders, kWarp);
    const int most = u.loaders > 0 ? 1 : 4;
    if (u.signallers % kWarp != 0 || u.signallers > most * kWarp)
      error("a CTA has {} signallers, but they are a warp of {}, or up to four without loaders",
            u.signallers, kWarp);
    if (u.divides_registers() && (u.pages < 1 || u.loaders < 1))
      error("a CTA divides registers without a ring of pages and a loader");
    if (u.prepared() > 0 && u.head_bytes < ir::Resources::kPreparedHeadBytes)
      error("a CTA has {} bytes for its own state, but tasks that a signaller prepares need {}",
            u.head_bytes, ir::Resources::kPreparedHeadBytes);
    if (u.threads() > l.threads)
      error("a CTA has {} threads, but target '{}' allows {}", u.threads(), p_.target, l.threads);
    const int64_t registers = round_up(u.threads(), kWarp) * round_up(u.registers, kRegisterStep);
    if (registers > l.registers)
      error(
          "the {} threads of a CTA with up to {} registers each take {} (whole warps, in steps of "
          "{}), but an SM of target '{}' has {}",
          u.threads(), u.registers, registers, kRegisterStep, p_.target, l.registers);
    if (u.divides_registers() || u.spare > 0) division();
    if (u.shared_bytes() > l.shared_bytes)
      error(
          "a CTA takes {} bytes of shared memory ({}, {}, and {} pages of {}), but target '{}' has "
          "{}",
          u.shared_bytes(), u.head_bytes, u.scratch_bytes, u.pages, u.page_bytes, p_.target,
          l.shared_bytes);
    if (u.pages > 0 && u.page_bytes % kPageAlignment != 0)
      error("pages of {} bytes don't all begin on a multiple of {}", u.page_bytes, kPageAlignment);
  }

  // setmaxnreg in PTX ISA, "Miscellaneous Instructions": by warps of a group together, from 24 to
  // 256 registers in steps of 8, out of what the CTA was launched with.
  void division() {
    constexpr int32_t group = ir::Resources::kRegisterGroup, least = 24, most = 256;
    const ir::Resources& u = p_.uses;
    for (const auto& [role, threads, registers] :
         {std::tuple("consumers", u.consumers, u.consumer_registers),
          std::tuple("other threads", u.threads() - u.consumers, u.loader_registers)}) {
      if (threads % group != 0)
        error("{} {} divide registers, but they do so in groups of {}", threads, role, group);
      if (registers < least || registers > most || registers % kRegisterStep != 0)
        error("{} can't have {} registers each: only {} to {}, in steps of {}", role, registers,
              least, most, kRegisterStep);
    }
    if (u.consumer_registers < u.registers || u.loader_registers > u.registers)
      error(
          "roles divide registers so that consumers have {} and others {}, but only consumers get "
          "more than the {} that all are launched with",
          u.consumer_registers, u.loader_registers, u.registers);
    const int64_t dealt = int64_t{u.consumers} * u.consumer_registers +
                          int64_t{u.threads() - u.consumers} * u.loader_registers,
                  had = int64_t{u.threads()} * round_down(u.registers, kRegisterStep);
    if (dealt > had)
      error("roles divide {} registers among them, but the CTA is launched with {}", dealt, had);
  }

  void residency() {
    if (p_.ctas > p_.limits.sms)
      error(
          "{} CTAs have to run at once, one an SM, but a rank has {} SMs of target '{}': {} would "
          "never start, nor would tasks that wait for them",
          p_.ctas, p_.limits.sms, p_.target, p_.ctas - p_.limits.sms);
  }

  void symmetric_memory() {
    const std::optional<int64_t>& limit = p_.limits.symmetric_bytes;
    if (limit && p_.symmetric_bytes > *limit)
      report_.error(fmt::format("resources: a rank's slots take {} bytes of symmetric memory, but "
                                "'limits' allows {}",
                                p_.symmetric_bytes, *limit),
                    p_.limits.symmetric_loc);
  }

  // Operands of a call share its pages: a task may hold those of all at a time.
  void loads(const ir::Call& c) {
    int64_t held = 0;
    for (const ir::Load& l : c.loads) {
      const bool fits = l.pages >= 1 && l.pages < p_.uses.pages;
      load(c, l, fits);
      if (!fits || l.ring != 0) return;
      held += l.pages;
    }
    if (c.loads.size() > 1 && held >= p_.uses.pages) too_many_pages(c, held);
  }
  void too_many_pages(const ir::Call& c, int64_t held) {
    error(c, "{} '{}' holds {} pages at a time, for which a ring of {} is needed, but a CTA has {}",
          c.op_kind, c.op, held, held + 1, p_.uses.pages);
  }

  void load(const ir::Call& c, const ir::Load& l, bool fits) {
    const ir::Resources& u = p_.uses;
    if (l.ring != 0) {
      error(c, "{} '{}' loads through ring {}, but a CTA has one ring", c.op_kind, c.op, l.ring);
      return;
    }
    if (u.loaders < 1) {
      error(c, "{} '{}' loads through pages, but a CTA has no loaders", c.op_kind, c.op);
      return;
    }
    if (!fits) return too_many_pages(c, l.pages);
    if (l.page_bytes < 1 || l.page_bytes > u.page_bytes)
      error(c, "{} '{}' fills pages of {} bytes, but a page has {}", c.op_kind, c.op, l.page_bytes,
            u.page_bytes);
    if (l.operand >= c.operands.size()) {
      error(c, "{} '{}' loads operand {}, but has {}", c.op_kind, c.op, l.operand,
            c.operands.size());
      return;
    }
    const ir::BufferId id = c.operands[l.operand];
    if (l.box) box(c, l, p_[id]);
    if (l.ahead && first_write_[index(id)] <= last_task_[static_cast<size_t>(&c - p_.calls.data())])
      error(c,
            "{} '{}' loads {} '{}' before its waits are over: only what no task has written by "
            "then may be read",
            c.op_kind, c.op, name(p_[id].kind), p_[id].name);
  }

  // What a tensor map can describe, and where its boxes can lie.
  void box(const ir::Call& c, const ir::Load& l, const ir::Buffer& b) {
    constexpr int64_t kMostRows = 256, kChunk = 16, kLines = ir::Load::kLinesAlignment;
    const ir::Load::Box& box = *l.box;
    const int64_t bytes = ir::size_of(b.dtype);
    const bool describable =
        box.rows >= 1 && box.rows <= kMostRows && box.pitch >= 1 && box.pitch <= b.max_elements() &&
        box.pitch * bytes % kChunk == 0 && box.cols >= ir::Load::kLine / bytes &&
        (box.cols == ir::Load::kLine / bytes ||
         box.cols <= std::min(ir::Load::kMostBoxRow / bytes, box.pitch)) &&
        box.cols * bytes % kChunk == 0 &&
        (box.run == 0 || (box.run >= 1 && box.pitch % box.run == 0 &&
                          box.run * bytes % kChunk == 0 && box.cols == ir::Load::kLine / bytes));
    if (!describable)
      error(
          c,
          "{} '{}' loads '{}' in boxes of {} x {} elements of rows of {}{}, which no map describes",
          c.op_kind, c.op, b.name, box.rows, box.cols, box.pitch,
          box.run == 0 ? "" : fmt::format(" in runs of {}", box.run));
    if (describable && box.rows * box.cols * bytes > l.page_bytes)
      error(c, "{} '{}' loads '{}' in boxes of {} bytes, but fills {} of a page", c.op_kind, c.op,
            b.name, box.rows * box.cols * bytes, l.page_bytes);
    // Lines change places by their addresses; pages begin on kPageAlignment anyway.
    if (box.cols * bytes == ir::Load::kLine &&
        ((p_.uses.head_bytes + p_.uses.scratch_bytes) % kLines != 0 ||
         p_.uses.page_bytes % kLines != 0))
      error(c, "{} '{}' loads boxes into pages that don't all begin on a multiple of {}", c.op_kind,
            c.op, kLines);
    if ((p_.uses.head_bytes + p_.uses.scratch_bytes) % kPageAlignment != 0)
      error(c, "{} '{}' loads boxes into pages that don't all begin on a multiple of {}", c.op_kind,
            c.op, kPageAlignment);
  }

  // What a loader reads is read by its task: then what the races prove of the task holds of it.
  void readers() {
    std::vector<bool> told(p_.calls.size(), false);
    for (size_t t = 0; t < p_.tasks.size(); ++t) {
      const ir::Task& task = p_.tasks[t];
      const ir::Call& c = p_[task.call];
      for (const ir::Load& l : c.loads) {
        if (l.operand >= c.operands.size() || told[index(task.call)]) continue;
        const bool reads =
            std::any_of(task.accesses.begin(), task.accesses.end(), [&](const ir::Access& a) {
              return !a.writes() && a.region.buffer == c.operands[l.operand];
            });
        if (reads) continue;
        told[index(task.call)] = true;
        error(c, "{} loads '{}', which it doesn't declare to read",
              ir::describe(p_, ir::id_of<ir::TaskId>(t)), p_[c.operands[l.operand]].name);
      }
    }
  }

  // By buffer: the first task that writes it, or another buffer of the same memory. Tasks of a call
  // end with its last; that what it reads is written only behind it, in every execution, is what
  // the proof of races shows.
  void find_written() {
    first_write_.assign(p_.buffers.size(), SIZE_MAX);
    last_task_.assign(p_.calls.size(), 0);
    std::map<std::string_view, size_t> tensors;
    for (size_t t = 0; t < p_.tasks.size(); ++t) {
      last_task_[index(p_.tasks[t].call)] = t;
      for (const ir::Access& a : p_.tasks[t].accesses) {
        if (!a.writes()) continue;
        size_t& first = first_write_[index(a.region.buffer)];
        first = std::min(first, t);
        tensors.try_emplace(p_[a.region.buffer].tensor, t);
      }
    }
    for (size_t i = 0; i < p_.buffers.size(); ++i) {
      const ir::Buffer& b = p_.buffers[i];
      // A temporary takes turns in the arena with others, and peers write slots.
      if (b.kind == ir::BufferKind::Temp || b.kind == ir::BufferKind::Slot) first_write_[i] = 0;
      if (const auto other = tensors.find(b.tensor); !b.tensor.empty() && other != tensors.end())
        first_write_[i] = std::min(first_write_[i], other->second);
    }
  }

  const ir::Program& p_;
  Reporter& report_;
  std::vector<size_t> first_write_;  // by buffer: task
  std::vector<size_t> last_task_;    // by call
};

}  // namespace

void check_resources(const ir::Program& program, bool symmetric_limit, Reporter& reporter) {
  ResourceCheck(program, reporter).run(symmetric_limit);
  reporter.summarise("such errors");
}

}  // namespace maco::verify
