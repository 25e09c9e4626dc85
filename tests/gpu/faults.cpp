// For every kind of wait, a signal that never comes: the launch ends with a report that names, for
// every rank, who waited and for what. The same process then launches again correctly; so does the
// same session if its kernel is right.
#include <fmt/format.h>

#include <algorithm>
#include <regex>
#include <sstream>
#include <stdexcept>

#include "compiler/api/compile.h"
#include "compiler/frontend/dumps.h"
#include "ir/program_text.h"
#include "tests/gpu/device_test.h"

namespace maco::gpu_test {

namespace {

// A small exchange travels as packets, a large one with peer events; the matmul's loader fills
// pages. Each graph is one chain of ops: everything behind the fault waits too, and must not be
// blamed.
const char* const kSmall = R"(graph faults(world = 2) {
  input x : f32[8, 256]
  param w : f32[256, 256]
  h = matmul(x, w)
  n = softmax(h)
  y = allreduce(n, algorithm = oneshot)
  barrier() @meet
  output z = exp(y)
})";
// Matmuls of a lone row in sequence: their kernel has a signaller, which prepares tasks.
const char* const kAhead = R"(graph faults(world = 2) {
  input x : bf16[1, 256]
  param v : bf16[256, 256]
  param w : bf16[256, 256]
  g = matmul(x, v, transpose_b = true)
  h = matmul(g, w, transpose_b = true)
  n = softmax(h)
  y = allreduce(n, algorithm = oneshot)
  barrier() @meet
  output z = exp(y)
})";
// A task hands the all-reduce over to NCCL, and a later one takes the result back.
const char* const kHanded = R"(graph faults(world = 2) {
  input x : f32[8, 256]
  n = softmax(x)
  y = allreduce(n, algorithm = nccl)
  output z = exp(y)
})";
const char* const kLarge = R"(graph faults(world = 2) {
  input x : f32[96, 1024]
  big = allreduce(x, algorithm = oneshot)
  output z = exp(big)
})";

// A matmul that pushes its tiles.
const char* const kPushed = R"(graph faults(world = 2) {
  input x : bf16[64, 256]
  param w : bf16[256, 256]
  h = matmul(x, w, transpose_b = true)
  y = allreduce(h, algorithm = oneshot)
  output z = exp(y)
})";

// The missing signal that the report must name: of a local or a peer event, in packets, or of a
// full page; or a hand-over.
enum class Kind { Local, Peer, Packet, Page, Handed };
constexpr bool is_signal(Kind kind) { return kind != Kind::Page && kind != Kind::Handed; }
struct Fault {
  const char* name;
  // The first signal of the event whose name begins with this (or is shared with another such name)
  // is dropped from the Program's text; for a page: the op.
  const char* event;
  const char* waiter;  // the task that waits for it, from which all else follows
  Kind kind = Kind::Local;
  const char* graph = kSmall;
};
const Fault kFaults[] = {
    {"local event", "meet part 2 tile 0", "'z' (exp) tile 0"},
    {"local event with one of its signals", "h tiles 0..", "'n' (softmax) tile 0"},
    {"peer event", "big.arrived.0", "'big' (allreduce) tile 0", Kind::Peer, kLarge},
    {"packet", "y.arrived.0", "'y' (allreduce) tile 0", Kind::Packet},
    {"tile of a product", "y.arrived.0", "'y' (allreduce) tile 0", Kind::Peer, kPushed},
    {"barrier", "meet.met", "'meet' (barrier) tile 0", Kind::Peer},
    {"page", "h", "'h' (matmul) tile 0", Kind::Page},
    {"local event, tasks prepared", "meet part", "'z' (exp) tile 0", Kind::Local, kAhead},
    {"signal of many, tasks prepared", "h tiles 0..", "'n' (softmax) tile 0", Kind::Local, kAhead},
    {"packet, tasks prepared", "y.arrived.0", "'y' (allreduce) tile 0", Kind::Packet, kAhead},
    {"barrier, tasks prepared", "meet.met", "'meet' (barrier) tile 0", Kind::Peer, kAhead},
    {"hand-over", "", "'y' (allreduce) tile 0", Kind::Handed, kHanded},
    {"page, tasks prepared", "g", "'g' (matmul) tile 0", Kind::Page, kAhead},
};
constexpr uint32_t kFirstEpoch = 0xfffffffdu;

// The name of the dropped signal's event.
std::string drop_signal(std::string& text, const std::string& event) {
  // "; signal A to others, "B tile 0", C": names with blanks stand in quotes.
  const std::regex signal("(; signal |, )(\"?)((?:[^\",;\n]*? and )?" +
                          std::regex_replace(event, std::regex("\\."), "\\.") +
                          R"([^",;\n]*?)\2( to [a-z]+)?(?=[,\n]))");
  size_t from = 0;
  for (std::smatch m; std::regex_search(text.cbegin() + static_cast<std::ptrdiff_t>(from),
                                        text.cend(), m, signal);) {
    const size_t at = from + static_cast<size_t>(m.position()),
                 end = at + static_cast<size_t>(m.length());
    const size_t clause = text.rfind("; ", at + 1);
    if (text.compare(clause, 9, "; signal ") != 0) {  // a wait
      from = end;
      continue;
    }
    const std::string name = m[3];
    if (m[1] == ", ")
      text.erase(at, end - at);
    else if (text[end] == ',')
      text.erase(at + 9, end + 2 - (at + 9));
    else
      text.erase(at, end - at);
    return name;
  }
  throw std::runtime_error(fmt::format("no task signals an event '{}':\n{}", event, text));
}

// Pages are filled and released within an op's tasks, by the code of its loader and consumers, and
// what leaves the kernel is signalled within a task. Events are between tasks, so that the
// Program's text has no such signal to drop. Instead the calls are removed from the kernel.
void drop_calls(const char* call, std::string& kernel) {
  bool any = false;
  for (size_t found; (found = kernel.find(call)) != std::string::npos; any = true) {
    const size_t begin = kernel.rfind('\n', found) + 1;
    kernel.erase(begin, kernel.find('\n', found) - begin);
  }
  if (!any)
    throw std::runtime_error("the kernel doesn't call " + std::string(call) + "\n" + kernel);
}

// What a rank waits for, in the report's words, except the numbers of SMs and events.
std::string awaited(const Fault& fault, const ir::Program& program, const std::string& event,
                    int rank, uint32_t epoch) {
  const auto found = std::find_if(program.events.begin(), program.events.end(),
                                  [&](const ir::Event& e) { return e.name == event; });
  if (is_signal(fault.kind) && found == program.events.end())
    throw std::runtime_error("no event " + event);
  const int peer = 1 - rank;
  switch (fault.kind) {
    case Kind::Local:
      return fmt::format("event '{}' (local event #): expected {}, seen {}", event,
                         epoch * found->count, epoch * found->count - 1);
    case Kind::Peer:
      return fmt::format("rank {}'s event '{}' (peer event #): expected {}, seen {}", peer, event,
                         epoch, epoch - 1);
    case Kind::Packet:
      return fmt::format("rank {}'s packets of 'y' (operand 1): expected {}, seen {}", peer, epoch,
                         epoch ^ 0x80000000u);
    case Kind::Handed: return "'y' to come back from NCCL: expected 1, seen 0";
    case Kind::Page:
      return "a page of shared memory between its loader and its consumers: expected 1, seen 0";
  }
  return "";
}

// "" if a report of two ranks says exactly what it should: one line for each rank, the first for a
// rank whose time was up.
std::string check_report(const Fault& fault, const ir::Program& program, const std::string& event,
                         uint32_t epoch, const std::string& said) {
  std::istringstream lines(
      std::regex_replace(std::regex_replace(said, std::regex("SM [0-9]+"), "SM #"),
                         std::regex(" event [0-9]+\\)"), " event #)"));
  std::vector<std::string> found, expected, stopped;
  for (std::string line; std::getline(lines, line);) found.push_back(line);
  for (int rank = 0; rank < 2; ++rank) {
    const std::string what = awaited(fault, program, event, rank, epoch);
    // The other rank's time may be up first.
    const std::string later =
        fmt::format("rank {}, SM #: stopped by rank {} while task {} waited for {}", rank, 1 - rank,
                    fault.waiter, what);
    if (stopped.empty() && std::find(found.begin(), found.end(), later) != found.end())
      stopped.push_back(later);
    else
      expected.push_back(fmt::format("rank {}, SM #: task {} waited 400 ms without progress for {}",
                                     rank, fault.waiter, what));
  }
  expected.insert(expected.end(), stopped.begin(), stopped.end());
  return found == expected
             ? ""
             : fmt::format("the report is\n{}\nand not\n{}\n{}", said, expected[0], expected[1]);
}

std::string run_fault(const Device& device, const Fault& fault, const Placement& placement) {
  const api::Compiled good = compile_text(device, fault.graph, placement);
  // Kernels without a loader also prepare tasks.
  const bool prepares = fault.graph == kAhead || good.program.uses.loaders == 0;
  if (fault.graph != kPushed && (good.program.uses.prepared() > 0) != prepares)
    return "its kernel prepares tasks, or doesn't, unlike what is to be tried";
  ir::Diagnostics d;
  std::string text = ir::print(good.program), event;
  if (is_signal(fault.kind)) event = drop_signal(text, fault.event);
  const auto program = frontend::parse_program(d.add_file("edited", text), d);
  if (!program) return d.render();
  passes::PipelineOptions pipeline;
  pipeline.target = good.program.target;
  std::string bad_kernel = api::emit_kernel(good.graph, *program, pipeline, d);
  if (bad_kernel.empty()) return d.render();
  if (fault.kind == Kind::Page) drop_calls("_load(ctx, args, tile); break;", bad_kernel);
  if (fault.kind == Kind::Handed) drop_calls(": hand_over_", bad_kernel);

  runtime::SessionOptions options;
  options.timeout_ms = 400;
  options.first_epoch = kFirstEpoch;
  runtime::Status status;
  auto bad = make_session(device, bad_kernel, placement, options, status);
  if (!bad) return status.message;
  bind(good.graph, *bad, 1);
  // The second time the counts are those of a launch after a successful one: nothing of the first
  // is left.
  for (uint32_t launch = 0; launch < 2; ++launch) {
    status = bad->launch({});
    if (status) return fmt::format("launch {} ended as if nothing were wrong", launch);
    const std::string problem =
        check_report(fault, good.program, event, kFirstEpoch + launch, status.message);
    if (!problem.empty()) return fmt::format("launch {}: {}", launch, problem);
  }
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
  return result == tools::kOk
             ? ""
             : fmt::format("afterwards a correct kernel ended with status {}", result);
}

// An index from data is out of range on one rank, while the other rank waits for it: local events,
// peer events, packets and a barrier are left in the middle. The same session goes on, with the
// bytes of one that never failed, again and again, over epochs that wrap.
std::string run_bad_index(const Device& device, const Placement& placement,
                          const std::string& beside) {
  const std::string text = "graph ids(world = 2) {\n" + beside + R"(
  input ids : i32[96]
  param table : f32[11, 1024]
  param small : f32[11, 64]
  e = embedding(table, ids)
  s = embedding(small, ids)
  sum = allreduce(e, algorithm = oneshot)
  barrier() @meet
  t = allreduce(s, algorithm = twoshot)
  output y = exp(sum)
  output z = softmax(t)
})";
  const api::Compiled c = compile_text(device, text.c_str(), placement);
  runtime::SessionOptions options;
  options.timeout_ms = 20000;
  options.first_epoch = 0xfffffff9u;
  runtime::Status status;
  auto session = make_session(device, c.kernel, placement, options, status);
  if (!session) return status.message;
  auto sound = make_session(device, c.kernel, placement, options, status);
  if (!sound) return status.message;
  bind(c.graph, *session, 1);
  bind(c.graph, *sound, 1);
  size_t tensor = 0;
  while (session->manifest().tensors[tensor].name != "ids") ++tensor;
  const auto launch = [&](runtime::Session& on, int number, int wrong_rank) {
    for (int rank = 0; rank < 2; ++rank) {
      std::vector<int32_t> ids;
      for (int i = 0; i < 96; ++i) ids.push_back((i * (2 * number + 1) + rank) % 11);
      if (rank == wrong_rank) ids[95] = 700;
      if (const auto written = on.write(rank, tensor, ids.data(), ids.size() * sizeof ids[0]);
          !written)
        return written;
    }
    return on.launch({});
  };
  for (int number = 0; number < 16; ++number) {
    // -1: none; two failures follow each other
    const int wrong_rank = number % 8 < 2 ? -1 : number % 8 - 3;
    if (wrong_rank == 0 || wrong_rank == 1) {
      status = launch(*session, number, wrong_rank);
      if (status) return "an index out of range was not noticed";
      const std::string first = status.message.substr(0, status.message.find('\n'));
      const std::string e =
          fmt::format("rank {}: op 'e': index 700 is outside [0, 11)", wrong_rank);
      const std::string s =
          fmt::format("rank {}: op 's': index 700 is outside [0, 11)", wrong_rank);
      if (first != e && first != s)
        return fmt::format("the report does not begin with\n{}\nbut says\n{}", e, status.message);
      continue;
    }
    for (runtime::Session* on : {session.get(), sound.get()})
      if (status = launch(*on, number, -1); !status)
        return fmt::format("launch {}: {}", number, status.message);
    for (const char* name : {"y", "z"})
      for (int rank = 0; rank < 2; ++rank)
        if (read(*session, name, rank) != read(*sound, name, rank))
          return fmt::format(
              "launch {}: '{}' on rank {} differs from that of a session that never failed", number,
              name, rank);
  }
  return "";
}

}  // namespace

void add_fault_cases(const Device& device, std::vector<Case>& cases) {
  for (const Fault& f : kFaults)
    add_cases(device, cases, 2, fmt::format("a {} that never comes", f.name),
              [&device, &f](const Placement& p) {
                if (f.kind == Kind::Handed) skip_shared(device, p);
                return run_fault(device, f, p);
              });
  add_cases(device, cases, 2, "an index out of range",
            [&device](const Placement& p) { return run_bad_index(device, p, ""); });
  add_cases(device, cases, 2, "an index out of range, tasks prepared",
            [&device](const Placement& p) {
              return run_bad_index(device, p, R"(  input x : bf16[1, 256]
  param v : bf16[256, 256]
  param w : bf16[256, 256]
  g = matmul(x, v, transpose_b = true)
  h = matmul(g, w, transpose_b = true)
  output n = softmax(h))");
            });
}

}  // namespace maco::gpu_test
