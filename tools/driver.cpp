#include "tools/driver.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <set>
#include <sstream>

#include "compiler/codegen/codegen.h"
#include "compiler/codegen/device_sources.h"
#include "compiler/cost/machine.h"
#include "compiler/frontend/frontend.h"
#include "ir/check.h"
#include "ir/program_text.h"
#include "tools/products.h"

namespace maco::tools {

void Console::show(const ir::Diagnostics& diagnostics) const {
  if (!diagnostics.all().empty() && (!quiet || diagnostics.has_errors()))
    std::cerr << diagnostics.render(color);
}
void Console::error(const std::string& message) const {
  std::cerr << (color ? "\033[1;31merror:\033[0m " : "error: ") << message << '\n';
}
void Console::say(const std::string& message) const {
  if (!quiet) std::cerr << message << '\n';
}
void Console::detail(const std::string& message) const {
  if (verbose) std::cerr << message << '\n';
}

bool use_color(const std::string& mode) {
  if (mode == "always") return true;
  const char* no_color = std::getenv("NO_COLOR");
  return mode == "auto" && !(no_color && *no_color) && isatty(STDERR_FILENO);
}

std::optional<std::string> read_input(const std::string& path, std::string& error) {
  if (path == "-") return std::string(std::istreambuf_iterator<char>(std::cin), {});
  std::error_code code;
  if (std::filesystem::is_directory(path, code)) {
    error = fmt::format("can't read '{}': it is a directory", path);
    return std::nullopt;
  }
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    error = fmt::format("can't read '{}': {}", path, std::strerror(errno));
    return std::nullopt;
  }
  return std::string(std::istreambuf_iterator<char>(in), {});
}

bool is_program(const std::string& text) {
  size_t at = 0;
  while (at < text.size()) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    const size_t first = line.find_first_not_of(" \t\r");
    if (first != std::string::npos && line[first] != '#' && line.compare(first, 2, "//") != 0)
      return line.compare(first, 8, "program ") == 0;
    at = end + 1;
  }
  return false;
}

std::string to_text(const passes::Unit& unit) {
  if (const auto* graph = std::get_if<ir::Graph>(&unit)) return frontend::print_dsl(*graph);
  return ir::print(std::get<ir::Program>(unit));
}

std::string command_line(const passes::PipelineOptions& o) {
  std::string s = "--target=" + o.target;
  const cost::Machine* usual = cost::find_machine(o.target);
  if (!o.board.empty() && !(usual && usual->board == o.board)) s += " --board=" + o.board;
  if (o.sms > 0) s += fmt::format(" --sms={}", o.sms);
  if (!o.load_ahead) s += " --no-load-ahead";
  if (!o.fuse) s += " --no-fuse";
  if (!o.prune) s += " --no-prune";
  return s;
}

bool read_command_line(const std::string& text, passes::PipelineOptions& options) {
  passes::PipelineOptions o;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const size_t equals = word.find('=');
    const std::string option = word.substr(0, equals),
                      value = equals == std::string::npos ? "" : word.substr(equals + 1);
    if (option == "--target")
      o.target = value;
    else if (option == "--board")
      o.board = value;
    else if (option == "--sms")
      o.sms = std::strtoll(value.c_str(), nullptr, 10);
    else if (option == "--no-load-ahead")
      o.load_ahead = false;
    else if (option == "--no-fuse")
      o.fuse = false;
    else if (option == "--no-prune")
      o.prune = false;
  }
  if (command_line(o) != text || !cost::find_machine(o.target, o.board)) return false;
  options = o;
  return true;
}

namespace {

// The unit as its text says, so that what a text can't hold can't pass between passes.
void reparse(passes::Unit& unit, const std::string& pass) {
  ir::Diagnostics d;
  const int32_t file = d.add_file("after " + pass, to_text(unit));
  if (std::holds_alternative<ir::Program>(unit)) {
    auto program = ir::parse_program(file, d);
    MACO_CHECK(program, "text after " + pass + " does not parse:\n" + d.render());
    MACO_CHECK(*program == std::get<ir::Program>(unit), "text after " + pass + " loses something");
    unit = std::move(*program);
    return;
  }
  auto raw = frontend::parse_dsl_raw(file, d);
  MACO_CHECK(raw, "text after " + pass + " does not parse:\n" + d.render());
  frontend::BuildOptions options;
  options.open_outputs = options.internal_ops = true;
  auto graph = frontend::build(*raw, options, d);
  MACO_CHECK(graph, "text after " + pass + " does not build:\n" + d.render());
  MACO_CHECK(*graph == std::get<ir::Graph>(unit), "text after " + pass + " loses something");
  unit = std::move(*graph);
}

// The pass whose result the pipeline's last step proves.
std::string last_before_verify(const passes::PipelineOptions& options) {
  return options.prune ? "prune-sync" : "insert-sync";
}

}  // namespace

namespace {

// A tensor of the caller's, as a Program or a kernel knows it.
struct Bound {
  std::string tensor;
  std::string_view kind;
  ir::DType dtype;
  int64_t elements;
};

// Whether a Program or a kernel (`what`) is for as many ranks and over the same tensors of the
// caller's as the graph.
void check_bound(const ir::Graph& graph, const char* what, int64_t world,
                 const std::vector<Bound>& list, ir::Diagnostics& diagnostics) {
  const auto wrong = [&]<class... Args>(fmt::format_string<Args...> text, Args&&... args) {
    diagnostics.error(
        {}, fmt::format("the {} {}", what, fmt::format(text, std::forward<Args>(args)...)));
  };
  if (world != graph.world) wrong("is for {} ranks, but the graph for {}", world, graph.world);
  std::set<std::string> missing;
  for (const ir::Tensor& t : graph.tensors)
    if (t.kind != ir::TensorKind::Temp && t.kind != ir::TensorKind::Scalar) missing.insert(t.name);
  for (const Bound& b : list) {
    if (missing.erase(b.tensor) == 0) {
      wrong("has a tensor '{}' that the graph has not, or has it twice", b.tensor);
      continue;
    }
    const ir::Tensor& t = graph[*graph.find_tensor(b.tensor)];
    const int64_t elements = ir::max_elements(graph, t.shape);
    if (b.kind != ir::name(t.kind) || b.dtype != t.dtype || b.elements != elements)
      wrong("takes '{}' as {} of {} {}, but in the graph it is {} of {} {}", b.tensor, b.kind,
            b.elements, ir::name(b.dtype), ir::name(t.kind), elements, ir::name(t.dtype));
  }
  for (const std::string& name : missing) wrong("has not the graph's '{}'", name);
}

}  // namespace

bool check_program(const ir::Graph& graph, const ir::Program& program,
                   const passes::PipelineOptions& options, ir::Diagnostics& diagnostics) {
  const int before = diagnostics.errors();
  const passes::Unit unit = program;
  auto context = passes::make_context(unit, options, diagnostics);
  if (!context ||
      !passes::check_form("a kernel", passes::Form::Synced, passes::Form::Synced, unit, *context))
    return false;
  std::vector<Bound> bound;
  for (const ir::Buffer& b : program.buffers)
    if (b.kind != ir::BufferKind::Temp && b.kind != ir::BufferKind::Slot)
      bound.push_back({b.tensor, ir::name(b.kind), b.dtype, b.max_elements()});
  check_bound(graph, "Program", program.world, bound, diagnostics);
  for (const ir::Value& v : program.values)
    for (const std::string& name : v.expr.vars())
      if (!graph.range_of(name))
        diagnostics.error(
            {}, fmt::format("value '{}' names '{}', which is no dim or scalar of the graph",
                            v.expr.str(), name));
  for (const ir::Call& c : program.calls)
    if (!codegen::has_device_function(c.function))
      diagnostics.error(
          {}, fmt::format("'{}' calls '{}', which is no device function", c.op, c.function));
  return diagnostics.errors() == before;
}

bool check_manifest(const ir::Graph& graph, const ir::Manifest& manifest,
                    ir::Diagnostics& diagnostics) {
  const int before = diagnostics.errors();
  std::vector<Bound> bound;
  for (const ir::ManifestTensor& t : manifest.tensors)
    bound.push_back({t.name, t.kind, t.dtype, t.max_elements});
  check_bound(graph, "kernel", manifest.world, bound, diagnostics);
  std::vector<ir::ManifestRange> dims, scalars;
  for (const ir::Dim& d : graph.dims) dims.push_back({d.name, d.min, d.max});
  for (const ir::Tensor& t : graph.tensors)
    if (t.kind == ir::TensorKind::Scalar) scalars.push_back({t.name, t.range_lo, t.range_hi - 1});
  if (manifest.dims != dims) diagnostics.error({}, "the kernel's dims are not those of the graph");
  if (manifest.scalars != scalars)
    diagnostics.error({}, "the kernel's scalars are not those of the graph");
  for (const ir::ManifestTensor& t : manifest.tensors)
    if (const auto id = graph.find_tensor(t.name); id && graph[*id].shape != t.shape)
      diagnostics.error(
          {}, fmt::format("the kernel's '{}' has another shape than the graph's", t.name));
  return diagnostics.errors() == before;
}

std::string emit_kernel(const ir::Graph& graph, const ir::Program& program,
                        const passes::PipelineOptions& options, ir::Diagnostics& diagnostics) {
  codegen::Options code;
  code.load_ahead = options.load_ahead;
  code.command_line = command_line(options);
  return codegen::emit(graph, frontend::print_dsl(graph), program, code, diagnostics);
}

std::optional<Compiled> compile(const ir::Graph& graph, const CompileOptions& options,
                                ir::Diagnostics& diagnostics, const Console& console) {
  passes::PipelineOptions pipeline = options.pipeline;
  std::string before = frontend::print_dsl(graph);
  int number = 0;
  const bool texts =
      !options.print_after.empty() || options.print_changed || !options.dump_dir.empty();
  pipeline.after_pass = [&](const passes::Pass& pass, passes::Unit& unit) {
    if (options.pipeline.after_pass) options.pipeline.after_pass(pass, unit);
    if (options.reparse) reparse(unit, pass.name);
    if (!texts) return;
    const std::string text = to_text(unit);
    bool wanted = options.print_changed && text != before;
    for (const std::string& name : options.print_after)
      wanted = wanted || name == "all" || name == pass.name;
    if (wanted) std::cerr << fmt::format("// after {}\n{}\n", pass.name, text);
    if (!options.dump_dir.empty()) {
      std::string error;
      const std::string path =
          fmt::format("{}/{:02}-{}.{}", options.dump_dir, number++, pass.name,
                      std::holds_alternative<ir::Graph>(unit) ? "maco" : "program");
      if (!write_product(path, text, error)) console.error(error);
    }
    before = text;
  };
  passes::PipelineResult result = passes::run_pipeline(graph, pipeline, diagnostics);
  if (options.time_passes) {
    double total = 0;
    for (const auto& [name, seconds] : result.seconds) total += seconds;
    std::cerr << "  milliseconds  pass\n";
    for (const auto& [name, seconds] : result.seconds)
      std::cerr << fmt::format("{:14.3f}  {}\n", seconds * 1e3, name);
    std::cerr << fmt::format("{:14.3f}  in all\n", total * 1e3);
  }
  if (!result.broken_by.empty()) {
    // What stands before 'tile' is a graph.
    const char* state = result.broken_by == "tile" ? "the graph before '{}': {}"
                                                   : "the Program was right before '{}': {}";
    diagnostics.note({},
                     fmt::format(fmt::runtime(state), result.broken_by,
                                 fmt::format("macoc {} {} --print-after={}",
                                             options.input.empty() ? "-" : options.input,
                                             command_line(options.pipeline), result.right_after)));
  } else if (!result.ok && result.right_after == last_before_verify(options.pipeline)) {
    diagnostics.note({}, "--verify=each says which pass made it wrong");
  }
  if (!result.ok) return std::nullopt;
  Compiled c;
  c.graph = graph;
  c.program = std::move(std::get<ir::Program>(result.unit));
  c.statistics = result.statistics;
  c.kernel = emit_kernel(graph, c.program, options.pipeline, diagnostics);
  if (c.kernel.empty()) return std::nullopt;
  return c;
}

std::string report(const Compiled& c) {
  const ir::Program& p = c.program;
  std::string s = fmt::format("{}: {} rank{}, target {}, board {}, {} CTAs a rank\n\n", p.name,
                              p.world, p.world == 1 ? "" : "s", p.target, p.board, p.ctas);
  s += fmt::format("{:<12} {:>9} {:>6} {:>8}  {}\n", "role", "SMs", "count", "tasks",
                   "kinds of ops");
  std::map<int32_t, int64_t> tasks_on;
  for (const ir::Task& t : p.tasks) tasks_on[t.sm]++;
  for (const ir::RoleSpan& r : p.roles) {
    int64_t n = 0;
    for (int32_t sm = r.begin; sm < r.end; ++sm) n += tasks_on.count(sm) ? tasks_on[sm] : 0;
    std::string kinds = r.ops.empty() ? "any" : "";
    for (const std::string& k : r.ops) kinds += (kinds.empty() ? "" : ", ") + k;
    s += fmt::format("{:<12} {:>9} {:>6} {:>8}  {}\n", ir::name(r.role),
                     fmt::format("{}..{}", r.begin, r.end - 1), r.end - r.begin, n, kinds);
  }
  std::map<std::string, std::pair<int64_t, int64_t>> kinds;
  std::map<std::string, std::string> function_of;
  for (const ir::Call& call : p.calls) kinds[call.op_kind + " " + call.function].first++;
  for (const ir::Task& t : p.tasks) kinds[p[t.call].op_kind + " " + p[t.call].function].second++;
  s += fmt::format("\n{:<16} {:<18} {:>6} {:>8}\n", "op", "device function", "calls", "tasks");
  for (const auto& [key, n] : kinds) {
    const size_t blank = key.find(' ');
    s += fmt::format("{:<16} {:<18} {:>6} {:>8}\n", key.substr(0, blank), key.substr(blank + 1),
                     n.first, n.second);
  }
  const auto stat = [&](const char* name) {
    auto it = c.statistics.find(name);
    return it == c.statistics.end() ? int64_t{0} : it->second;
  };
  int64_t caller = 0;
  for (const ir::Buffer& b : p.buffers)
    if (b.kind != ir::BufferKind::Temp && b.kind != ir::BufferKind::Slot) caller += b.bytes();
  s += fmt::format("\nwaits          {:>12} inserted, {} pruned, {} left\n", stat("waits inserted"),
                   stat("waits pruned"), stat("waits"));
  s += fmt::format("signals        {:>12} for {} events\n", stat("signals"), stat("events"));
  s += fmt::format("caller memory  {:>12} bytes a rank\n", caller);
  s += fmt::format("temporaries    {:>12} bytes a rank ({} without reuse)\n", p.arena_bytes,
                   stat("arena bytes without reuse"));
  s += fmt::format("symmetric      {:>12} bytes a rank\n", p.symmetric_bytes);
  s += fmt::format("kernel.cu      {:>12} bytes\n", c.kernel.size());
  return s;
}

int guarded(const char* tool, int (*main)(int, char**), int argc, char** argv) {
  std::string what;
  try {
    const int status = main(argc, argv);
    if ((std::fflush(stdout) == 0 && !std::ferror(stdout)) || status == kBadUsage) return status;
    std::cerr << "error: can't write to standard output\n";
    return kBadUsage;
  } catch (const std::bad_alloc&) {
    std::cerr << tool << ": out of memory\n";
    return kRunFailed;
  } catch (const std::exception& e) {
    what = e.what();
  }
  std::cerr << fmt::format(
      "{}: this is a bug in MACO, not in your graph:\n  {}\nplease report it with the graph and "
      "the command line ({} {})\n",
      tool, what, tool, kVersion);
  return kBug;
}

}  // namespace maco::tools
