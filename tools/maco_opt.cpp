// maco-opt: named passes on the text of a graph or a Program.
#include <fmt/format.h>

#include "compiler/frontend/frontend.h"
#include "compiler/verify/explain.h"
#include "compiler/verify/verify.h"
#include "compiler/verify/witness.h"
#include "ir/program_text.h"
#include "tools/options.h"
#include "tools/products.h"

namespace maco::tools {
namespace {

std::optional<passes::Unit> parse_unit(const std::string& text, int32_t file,
                                       ir::Diagnostics& diagnostics) {
  if (is_program(text)) {
    auto program = ir::parse_program(file, diagnostics);
    if (!program) return std::nullopt;
    return passes::Unit(std::move(*program));
  }
  const size_t first = text.find_first_not_of(" \t\r\n");
  auto raw = first != std::string::npos && text[first] == '{'
                 ? frontend::parse_json_raw(file, diagnostics)
                 : frontend::parse_dsl_raw(file, diagnostics);
  if (!raw) return std::nullopt;
  frontend::BuildOptions build;
  build.open_outputs = build.internal_ops = true;
  auto graph = frontend::build(*raw, build, diagnostics);
  if (!graph) return std::nullopt;
  return passes::Unit(std::move(*graph));
}

// Says by which path the first of two tasks happens before the second.
int explain(const passes::Unit& unit, const std::vector<std::string>& names,
            const Console& console) {
  const auto* program = std::get_if<ir::Program>(&unit);
  if (!program) {
    console.error("--explain takes a synced Program, but this is a graph; try --to=prune-sync");
    return kBadUsage;
  }
  ir::Diagnostics diagnostics;
  if (!verify::check_explainable(*program, diagnostics)) {
    console.show(diagnostics);
    return kBadGraph;
  }
  std::string error;
  std::vector<verify::Instance> tasks;
  for (const std::string& name : names) {
    const auto task = verify::find_instance(*program, name, error);
    if (!task) {
      console.error(error);
      return kBadUsage;
    }
    tasks.push_back(*task);
  }
  const verify::Explanation told = verify::explain(*program, tasks[0], tasks[1]);
  std::fputs(told.text.c_str(), stdout);
  return told.ordered ? kOk : kCheckFailed;
}

int run(int argc, char** argv) {
  CLI::App app(
      "Runs named passes on the text of a graph or a Program.\n  maco-opt layer.maco --to=tile | "
      "maco-opt - --pass=plan-memory,schedule\n",
      "maco-opt");
  CommonOptions common;
  PipelineFlags flags;
  passes::PipelineOptions options;
  std::string input = "-", output = "-", to;
  std::vector<std::string> names, pass_names;
  std::vector<std::string> explained;
  std::string verify, witness_file;
  for (const passes::Pass& p : passes::registry()) pass_names.push_back(p.name);
  app.add_option("input", input,
                 "a graph (.json, .maco) or a Program's text; - for standard input");
  app.add_option("-o,--output", output, "where the result goes, if not to standard output")
      ->option_text("FILE");
  app.add_option("--pass", names, "passes to run, in this order")
      ->option_text("PASS,...")
      ->delimiter(',')
      ->check(CLI::IsMember(pass_names));
  app.add_option("--to", to, "run the pipeline up to and with this pass")
      ->option_text("PASS")
      ->check(CLI::IsMember(pass_names));
  app.add_flag("--verify{end}", verify,
               "prove the result, as --pass=verify at the end does; --verify=each: after each pass "
               "that changes a Program")
      ->check(CLI::IsMember({"each", "end"}));
  app.add_option("--witness", witness_file,
                 "if a race, wrong order or deadlock is found: write a schedule that leads to it, "
                 "for maco-run --replay")
      ->option_text("FILE");
  app.add_option("--explain", explained,
                 "by which path task A happens before B (status 3 if it doesn't); a task is t12, "
                 "OP, 'OP tile 3', with @RANK and +LAUNCH")
      ->option_text("A B")
      ->expected(2);
  flags.add(app, options);
  common.add(app);
  if (const int status = parse(app, argc, argv); status >= 0) return status;
  if (common.listed()) return kOk;
  const Console console = common.console();
  flags.apply(options);

  std::string error;
  const auto text = read_input(input, error);
  if (!text) {
    console.error(error);
    return kBadUsage;
  }
  ir::Diagnostics diagnostics;
  const int32_t file = diagnostics.add_file(input == "-" ? "<stdin>" : input, *text);
  auto unit = parse_unit(*text, file, diagnostics);
  if (!unit) {
    console.show(diagnostics);
    return kBadGraph;
  }
  auto context = passes::make_context(*unit, options, diagnostics);
  if (!context) {
    console.show(diagnostics);
    return kBadGraph;
  }
  if (!to.empty()) {
    std::vector<std::string> all;
    for (const std::string& name : pass_names) {
      const bool left_out =
          (name == "fuse" && !options.fuse) || (name == "prune-sync" && !options.prune);
      if (!left_out) all.push_back(name);
      if (name == to) break;
    }
    names.insert(names.begin(), all.begin(), all.end());
  }
  if (!verify.empty()) names.push_back("verify");
  const auto stop = [&](const std::string& why) {
    if (!why.empty()) diagnostics.note({}, why);
    console.show(diagnostics);
    return kBadGraph;
  };
  ir::Program proved;
  std::vector<verify::Witness> witnesses;
  const auto prove = [&](const ir::Program& program) {
    if (program == proved) return true;
    proved = program;
    verify::VerifyOptions verify_options;
    if (!witness_file.empty()) verify_options.witnesses = &witnesses;
    if (verify::verify(program, diagnostics, verify_options)) return true;
    if (witness_file.empty()) return false;
    if (witnesses.empty()) {
      diagnostics.note({}, "no schedule is needed to see that: there is no witness");
      return false;
    }
    complete(program, witnesses[0]);
    if (write_product(witness_file, print(program, witnesses[0]), error))
      diagnostics.note({}, fmt::format("maco-run PROGRAM --device cpu --replay {} shows the first",
                                       witness_file));
    else
      diagnostics.error({}, error);
    return false;
  };
  const auto prove_each = [&] {
    const auto* program = std::get_if<ir::Program>(&*unit);
    return verify != "each" || !program || prove(*program);
  };
  if (!prove_each()) return stop("the Program was wrong before any pass");
  const std::string common_flags =
      std::holds_alternative<ir::Program>(*unit) ? "" : " " + command_line(options);
  for (size_t i = 0; i < names.size(); ++i) {
    if (const auto* program = std::get_if<ir::Program>(&*unit); program && names[i] == "verify") {
      if (!prove(*program)) return stop("");
      continue;
    }
    if (!passes::apply(*passes::find_pass(names[i]), *unit, *context)) return stop("");
    if (prove_each()) continue;
    std::string before;
    for (size_t j = 0; j < i; ++j) before += (j == 0 ? " --pass=" : ",") + names[j];
    return stop(fmt::format("the Program was right before '{}': {}{}{}", names[i],
                            "maco-opt " + input, common_flags, before));
  }
  console.show(diagnostics);
  if (!explained.empty()) return explain(*unit, explained, console);
  if (!write_product(output, to_text(*unit), error)) {
    console.error(error);
    return kBadUsage;
  }
  if (common.verbose)
    for (const auto& [name, n] : context->statistics)
      console.detail(name + ": " + std::to_string(n));
  return kOk;
}

}  // namespace
}  // namespace maco::tools

int main(int argc, char** argv) {
  return maco::tools::guarded("maco-opt", maco::tools::run, argc, argv);
}
