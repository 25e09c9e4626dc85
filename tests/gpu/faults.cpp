// A signal that never comes, of every kind of wait: the launch ends with a report that names what was waited for, on every rank, and the
// same process launches again correctly.
#include <fmt/format.h>

#include <stdexcept>

#include "ir/program_text.h"
#include "tests/gpu/device_test.h"

namespace maco::gpu_test {

namespace {

// A small exchange travels as packets, a large one with peer events; the matmul's loader fills pages. One chain of ops each, so that whatever
// wait expires first names the op that is stuck, as the waiting one or as the one waited for.
const char* const kSmall = R"(graph faults(world = 2) {
  input x : f32[8, 256]
  param w : f32[256, 256]
  h = matmul(x, w)
  n = softmax(h)
  y = allreduce(n, algorithm = oneshot)
  barrier() @meet
  output z = exp(y)
})";
const char* const kLarge = R"(graph faults(world = 2) {
  input x : f32[96, 1024]
  big = allreduce(x, algorithm = oneshot)
  output z = exp(big)
})";

enum class Edit { DropSignals, SkipOnRank0, NoLoader };
struct Fault {
  const char* name;
  Edit edit;
  const char* where;   // the first line of the Program's text (NoLoader: of the kernel) that has this is edited
  const char* blames;  // the op that the report must name
  const char* graph = kSmall;
};
const Fault kFaults[] = {
    {"local event", Edit::DropSignals, "; signal \"meet#", "'z'"},
    {"peer event", Edit::DropSignals, "signal big.arrived.0 to others", "'big'", kLarge},
    {"packet", Edit::SkipOnRank0, "signal y.arrived.0 to others", "'y'"},
    {"barrier", Edit::DropSignals, "signal meet.met to others", "'meet'"},
    {"page", Edit::NoLoader, "_load(ctx, args, tile); break;", "'h'"},
};

std::string edit(const std::string& text, const Fault& fault) {
  const size_t found = text.find(fault.where);
  if (found == std::string::npos) throw std::runtime_error(fmt::format("the text has no '{}':\n{}", fault.where, text));
  const size_t begin = text.rfind('\n', found) + 1, end = text.find('\n', found);
  std::string line = text.substr(begin, end - begin);
  switch (fault.edit) {
    case Edit::DropSignals: line.erase(line.rfind("; signal")); break;
    case Edit::SkipOnRank0: line.insert(line.find(": "), " ranks=0x2"); break;
    case Edit::NoLoader: line.clear(); break;
  }
  return text.substr(0, begin) + line + text.substr(end);
}

std::string run_fault(const Device& device, const Fault& fault, const Placement& placement) {
  const tools::Compiled good = compile_text(device, fault.graph, placement);
  ir::Diagnostics d;
  std::string text = ir::print(good.program);
  if (fault.edit != Edit::NoLoader) text = edit(text, fault);
  const auto program = ir::parse_program(d.add_file("edited", text), d);
  if (!program) return d.render();
  passes::PipelineOptions pipeline;
  pipeline.target = good.program.target;
  std::string bad_kernel = tools::emit_kernel(good.graph, *program, pipeline, d);
  if (bad_kernel.empty()) return d.render();
  // Pages are filled by the loader's code, which the Program's text doesn't spell out.
  if (fault.edit == Edit::NoLoader) bad_kernel = edit(bad_kernel, fault);

  runtime::SessionOptions options;
  options.timeout_ms = 400;
  options.first_epoch = 0xfffffffdu;
  runtime::Status status;
  auto bad = make_session(device, bad_kernel, placement, options, status);
  if (!bad) return status.message;
  bind(good.graph, *bad, 1);
  status = bad->launch({});
  if (status) return "the launch ended as if nothing were wrong";
  const std::string said = status.message;
  if (said.find(fault.blames) == std::string::npos) return fmt::format("the report does not name {}:\n{}", fault.blames, said);
  for (int rank = 0; rank < 2; ++rank)
    if (said.find(fmt::format("rank {}", rank)) == std::string::npos) return fmt::format("nothing is said of rank {}:\n{}", rank, said);
  // Again: the same end, not a worse one.
  if (bad->launch({})) return "the second launch ended as if nothing were wrong";
  bad.reset();

  options.timeout_ms = 20000;
  auto session = make_session(device, good.kernel, placement, options, status);
  if (!session) return "afterwards: " + status.message;
  tools::RunOptions run;
  run.check = true;
  run.launches = 3;
  tools::Console console;
  console.quiet = true;
  const int result = tools::run_graph(good.graph, *session, run, console);
  return result == tools::kOk ? "" : fmt::format("afterwards a correct kernel ended with status {}", result);
}

// An index that only the data knows: status, names, and the same session goes on.
std::string run_bad_index(const Device& device, const Placement& placement) {
  const tools::Compiled c = compile_text(device, R"(graph ids(world = 2) {
  input ids : i32[5]
  param table : f32[11, 24]
  e = embedding(table, ids)
  output y = allreduce(e)
})", placement);
  runtime::Status status;
  runtime::SessionOptions options;
  options.timeout_ms = 20000;
  auto session = make_session(device, c.kernel, placement, options, status);
  if (!session) return status.message;
  bind(c.graph, *session, 1);
  size_t ids = 0;
  while (session->manifest().tensors[ids].name != "ids") ++ids;
  const int32_t wrong[5] = {1, 2, 700, 3, 4}, right[5] = {1, 2, 10, 3, 0};
  if (status = session->launch({}); !status) return status.message;
  const auto before = read(*session, "y", 0);
  session->write(1, ids, wrong, sizeof wrong);
  status = session->launch({});
  if (status) return "an index out of range was not noticed";
  for (const char* word : {"'e'", "700", "rank 1"})
    if (status.message.find(word) == std::string::npos) return fmt::format("the report does not say {}:\n{}", word, status.message);
  for (int rank = 0; rank < 2; ++rank) session->write(rank, ids, right, sizeof right);
  for (int launch = 0; launch < 3; ++launch)
    if (status = session->launch({}); !status) return "afterwards: " + status.message;
  return "";
}

}  // namespace

void add_fault_cases(const Device& device, std::vector<Case>& cases) {
  for (const Placement& p : placements(device, 2)) {
    for (const Fault& f : kFaults)
      cases.push_back({fmt::format("a {} that never comes, {}", f.name, p.str()), [&device, &f, p] { return run_fault(device, f, p); }});
    cases.push_back({"an index out of range, " + p.str(), [&device, p] { return run_bad_index(device, p); }});
  }
}

}  // namespace maco::gpu_test
