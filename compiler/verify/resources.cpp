// What a CTA uses (Program::uses) is there (Program::limits), and every CTA is resident, without
// which a wait may be for a task that never gets an SM.
//
// Pages of the ring between a loader and its CTA's consumers (runtime/device/pages.cuh). Proved
// here, from the Program:
//   - there is a ring where a call is paged, of two pages at least: one is filled while another is
//     in use, and no device function holds more than one at a time;
//   - a page has the bytes that each paged call was cut for, and begins on 128 bytes as the first;
//   - a loader that runs ahead of its task's waits reads what was there before the launch.
// By the ring's construction, given two pages: both sides walk the stream in its order, so that the
// page that the consumers wait for is the next that the loader fills; a page is read only once the
// copies of all loader lanes have landed in it (an mbarrier's phase, or a release and an acquire),
// and filled again only once the consumers have released it (a release behind a barrier, and an
// acquire). That loader and consumers of a function use equally many pages, and that a loader reads
// its function's operand 1 only, are contracts of the device functions, which tests/unit/ops_* and
// the access checks of the CPU target hold them to.
//
// That the compiler of the target keeps to `registers` is what __launch_bounds__ asks of it, and
// the host asks the driver for the residency of what was compiled before it launches.
#include "compiler/verify/resources.h"

#include <fmt/format.h>

namespace maco::verify {
namespace {

constexpr int64_t kWarp = 32;
constexpr int64_t kRegisterStep = 8;  // of a thread: registers come in steps
constexpr int64_t kPageAlignment = 128;
constexpr int64_t kLeastPages = 2;
constexpr size_t kLoaderOperand = 1;              // what the loader of a paged function reads
constexpr int64_t kMostBytes = int64_t{1} << 30;  // that any limit may be: sums don't overflow

int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

bool flag(const ir::Call& call, std::string_view name) {
  for (const ir::Param& p : call.params)
    if (const bool* v = std::get_if<bool>(&p.value); v && p.name == name) return *v;
  return false;
}

class ResourceCheck {
 public:
  ResourceCheck(const ir::Program& program, Reporter& reporter) : p_(program), report_(reporter) {}

  void run() {
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
    if (u.threads < 1 || u.registers < 1 || u.scratch_bytes < 0 || u.scratch_bytes > kMostBytes ||
        u.pages < 0 || u.page_bytes < 0 || u.page_bytes > kMostBytes ||
        p_.limits.shared_bytes > kMostBytes) {
      error(
          "a CTA of {} threads with {} registers each, {} bytes and {} pages of {} bytes, where "
          "{} bytes are the limit, isn't possible",
          u.threads, u.registers, u.scratch_bytes, u.pages, u.page_bytes, p_.limits.shared_bytes);
      return;
    }
    cta();
    residency();
    symmetric_memory();
    for (const ir::Call& c : p_.calls)
      if (flag(c, "paged")) paged(c);
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
    if (u.threads > l.threads)
      error("a CTA has {} threads, but target '{}' allows {}", u.threads, p_.target, l.threads);
    const int64_t registers = round_up(u.threads, kWarp) * round_up(u.registers, kRegisterStep);
    if (registers > l.registers)
      error(
          "the {} threads of a CTA with up to {} registers each take {} (whole warps, in steps of "
          "{}), but an SM of target '{}' has {}",
          u.threads, u.registers, registers, kRegisterStep, p_.target, l.registers);
    const int64_t ring = u.pages * u.page_bytes;
    if (u.scratch_bytes + ring > l.shared_bytes)
      error(
          "a CTA takes {} bytes of shared memory ({}, and {} pages of {}), but target '{}' has {}",
          u.scratch_bytes + ring, u.scratch_bytes, u.pages, u.page_bytes, p_.target,
          l.shared_bytes);
    if (u.pages > 0 && u.page_bytes % kPageAlignment != 0)
      error("pages of {} bytes don't all begin on a multiple of {}", u.page_bytes, kPageAlignment);
  }

  void residency() {
    if (p_.ctas > p_.limits.sms)
      error(
          "{} CTAs have to run at once, one an SM, but a rank has {} SMs of target '{}': {} would "
          "never start, and who waits for them neither",
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

  void paged(const ir::Call& c) {
    const ir::Resources& u = p_.uses;
    if (u.pages < kLeastPages) {
      error(c, "{} '{}' takes data through pages, for which {} are needed, but a CTA has {}",
            c.op_kind, c.op, kLeastPages, u.pages);
      return;
    }
    for (const ir::Param& param : c.params)
      if (const auto* bytes = std::get_if<int64_t>(&param.value);
          bytes && param.name == "page_bytes" && *bytes > u.page_bytes)
        error(c, "{} '{}' fills pages of {} bytes, but a page has {}", c.op_kind, c.op, *bytes,
              u.page_bytes);
    if (!flag(c, "load_ahead")) return;
    if (c.operands.size() <= kLoaderOperand) {
      error(c, "{} '{}' loads ahead, but has no operand {}", c.op_kind, c.op, kLoaderOperand);
      return;
    }
    const ir::Buffer& b = p_[c.operands[kLoaderOperand]];
    if (b.kind != ir::BufferKind::Param && b.kind != ir::BufferKind::Input)
      error(c,
            "{} '{}' loads {} '{}' before its waits are over: only what the caller has written "
            "before the launch may be read then",
            c.op_kind, c.op, name(b.kind), b.name);
  }

  const ir::Program& p_;
  Reporter& report_;
};

}  // namespace

void check_resources(const ir::Program& program, Reporter& reporter) {
  ResourceCheck(program, reporter).run();
  reporter.summarise("such errors");
}

}  // namespace maco::verify
