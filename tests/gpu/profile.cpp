// Profiles of examples: stamps are in order, hand-offs are seen after they are sent, and results
// are the same as without profiling.
#include "runtime/host/profile.h"

#include <fmt/format.h>

#include "runtime/profile/table.h"
#include "runtime/profile/timeline.h"
#include "tests/examples.h"
#include "tests/gpu/device_test.h"

namespace maco::gpu_test {

namespace {

// The largest error of a clock: two SMs of one GPU are aligned by a clock that they read in a loop.
constexpr int64_t kSmError = 1000;

// "" or what is wrong with a rank's stamps, in its own ticks.
std::string check_ticks(const Device& device, const ir::Program& program,
                        const runtime::RankStamps& stamps) {
  const auto streams = ir::streams(program);
  size_t at = 0;
  for (size_t cta = 0; cta < streams.size(); ++cta) {
    const CtaStamps& c = stamps.ctas[cta];
    u64 last = c.begin_clock;
    for (size_t place = 0; place < streams[cta].size(); ++place, ++at) {
      const TaskStamps& s = stamps.tasks[at];
      if (s.begun < last || s.computed < s.waited || s.stored < s.computed ||
          s.signalled < s.stored || u64{s.page_wait} + s.packet_wait > s.computed - s.waited ||
          s.fill_wait > s.filled)
        return fmt::format(
            "SM {}, task {}: begun at {} after {}, then {} {} {} {}, waits {} {}, loader {} {}",
            cta, place, s.begun, last, s.waited, s.computed, s.stored, s.signalled, s.page_wait,
            s.packet_wait, s.filled, s.fill_wait);
      last = s.begun + (program.uses.signallers > 0 ? s.stored : s.signalled);
    }
    if (streams[cta].empty()) continue;
    const double tick = static_cast<double>(c.end_ns - c.begin_ns) /
                        static_cast<double>(c.end_clock - c.begin_clock);
    if (c.end_clock < last || c.end_ns <= c.begin_ns || tick < 0.2 || tick > 5 ||
        (!device.cuda && tick != 1))
      return fmt::format("SM {}: from {} to {} ns, ticks of {} ns", cta, c.begin_ns, c.end_ns,
                         tick);
  }
  return "";
}

std::string check_profile(const Device& device, const std::string& file,
                          const Placement& placement) {
  const api::Compiled c =
      compile_text(device, test::example_text(device.examples + "/" + file), placement);
  std::vector<std::vector<std::byte>> results[2];
  runtime::Status status;
  for (const bool profile : {false, true}) {
    runtime::SessionOptions options;
    options.timeout_ms = 20000;
    if (profile) options.profiled_tasks = static_cast<int64_t>(c.program.tasks.size());
    const auto session = make_session(device, c.kernel, placement, options, status);
    if (!session) return status.message;
    bind(c.graph, *session, 3);
    runtime::LaunchValues values;
    for (const ir::Variable& v : c.program.variables) values[v.name] = v.range.hi;
    for (int launch = 0; launch < 3; ++launch)
      if (status = session->launch(values); !status) return status.message;
    for (const auto& tensor : session->manifest().tensors)
      for (int rank = 0; rank < c.graph.world; ++rank)
        if (tensor.kind == "output") results[profile].push_back(read(*session, tensor.name, rank));
    std::vector<runtime::RankStamps> stamps;
    status = session->stamps(stamps);
    if (!profile) {
      if (status) return "stamps of a kernel that has none";
      continue;
    }
    if (!status) return status.message;
    for (const runtime::RankStamps& rank : stamps)
      if (const std::string wrong = check_ticks(device, c.program, rank); !wrong.empty())
        return wrong;
    const auto line = runtime::Timeline::make(c.program, stamps, status);
    if (!line) return status.message;

    int64_t worst = 0;
    int arrivals = 0;
    for (int rank = 0; rank < line->world(); ++rank)
      for (size_t t = 0; t < c.program.tasks.size(); ++t)
        for (const runtime::Arrival& a : line->arrivals(rank, ir::id_of<ir::TaskId>(t))) {
          ++arrivals;
          // All that may send signal a hint; a reader needs only some of them.
          if (c.program[a.event].kind == ir::EventKind::Hint) continue;
          // A CPU's thread may be interrupted between its last packet and its stamp.
          const bool somewhen = !device.cuda && ir::is_about_packets(c.program[a.event].kind);
          const int64_t sent = somewhen ? line->at(a.rank, a.task).waited : a.sent;
          worst = std::max(worst, sent - a.seen);
        }
    const runtime::ProfileTable table = runtime::make_table(*line);
    std::printf("  %.2f us, %d hand-offs, at worst seen %lld ns too early; clocks +- %lld ns\n",
                static_cast<double>(line->end()) / 1000, arrivals, static_cast<long long>(worst),
                static_cast<long long>(line->clock_error()));
    if (arrivals == 0) return "nothing was waited for";
    if (worst > (device.cuda ? kSmError + line->clock_error() : 0))
      return fmt::format("a signal was seen {} ns before it was sent", worst);
    if (table.total.path != line->end()) return "the critical path is not as long as the launch";
  }
  return results[0] == results[1] && !results[0].empty() ? "" : "other bits than without stamps";
}

}  // namespace

void add_profile_cases(const Device& device, std::vector<Case>& cases) {
  for (const auto& [file, world] : {std::pair("residual_norms.maco", 1),
                                    {"tp_mlp.maco", 2},
                                    {"decode_layer.maco", 2},
                                    {"ring_shift.maco", 4},
                                    {"alltoall.maco", 4}})
    add_cases(
        device, cases, world, fmt::format("profile of {}", file),
        [&device, file = file](const Placement& p) { return check_profile(device, file, p); });
}

}  // namespace maco::gpu_test
