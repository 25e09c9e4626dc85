// maco-opt: runs named passes on the text of a graph or a Program.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "compiler/api/command_line.h"
#include "compiler/api/compile.h"
#include "compiler/passes/fuse/rules.h"
#include "compiler/pipeline/pipeline.h"
#include "compiler/pipeline/unit_text.h"
#include "compiler/verify/explain.h"
#include "compiler/verify/witness.h"
#include "tools/options.h"
#include "tools/products.h"

namespace maco::tools {
namespace {

struct Arguments {
  CommonOptions common;
  PassFlags passes;
  passes::PipelineOptions options;
  std::string input = "-", output = "-";
  std::vector<std::string> names;  // of the passes to run, in order
  bool verify = false;             // after them
  std::string witness_file;
  std::vector<std::string> explained;  // two tasks, or empty
};

/// Returns the exit status if there is nothing to run, else -1.
int read_arguments(int argc, char** argv, Arguments& a) {
  CLI::App app(
      "Runs named passes on the text of a graph or a Program.\n  maco-opt layer.maco --to=tile | "
      "maco-opt - --pass=plan-memory,schedule\n",
      "maco-opt");
  PipelineFlags flags;
  std::string to, verify;
  std::vector<std::string> only;
  app.add_option("input", a.input,
                 "a graph (.json, .maco) or a Program's text; - for standard input");
  app.add_option("-o,--output", a.output, "where the result goes, if not to standard output")
      ->option_text("FILE");
  app.add_option("--pass", a.names, "passes to run, in this order")
      ->option_text("PASS,...")
      ->delimiter(',')
      ->check(one_of(pass_names()));
  app.add_option("--to", to, "run the pipeline up to and with this pass")
      ->option_text("PASS")
      ->check(one_of(pass_names()));
  app.add_option("--only-fuse", only, "the rules of 'fuse' that are asked (--list-passes)")
      ->option_text("NAME,...")
      ->delimiter(',')
      ->check(one_of(passes::fuse_rule_names()));
  app.add_flag("--verify{end}", verify,
               "prove the result, as --pass=verify at the end does; --verify=each: after each pass "
               "that changes a Program")
      ->check(one_of({"each", "end"}));
  app.add_option("--witness", a.witness_file,
                 "if a race, wrong order or deadlock is found: write a schedule that leads to it, "
                 "for maco-run --replay")
      ->option_text("FILE");
  app.add_option("--explain", a.explained,
                 "by which path task A happens before B (status 3 if it doesn't); a task is t12, "
                 "OP, 'OP tile 3', with @RANK and +LAUNCH")
      ->option_text("A B")
      ->expected(2);
  flags.add(app, a.options);
  a.passes.add(app, a.options);
  a.common.add(app);
  if (const int status = parse(app, argc, argv); status >= 0) return status;
  if (const int status = a.common.ended(); status >= 0) return status;
  if (app.count("input") == 0 && isatty(STDIN_FILENO)) {
    // A user who forgot the file would wait for it.
    std::fputs(app.help().c_str(), stderr);
    return kBadUsage;
  }
  flags.apply(a.options);
  if (!only.empty())
    for (const std::string& rule : passes::fuse_rule_names())
      if (std::find(only.begin(), only.end(), rule) == only.end())
        a.options.no_fuse.push_back(rule);
  a.options.verify_each = verify == "each";
  if (!to.empty()) {
    const auto all = passes::pipeline_passes(a.options, to);
    a.names.insert(a.names.begin(), all.begin(), all.end());
  }
  a.verify = !verify.empty();
  return -1;
}

/// Prints the path by which the first of two tasks happens before the second.
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

/// Runs the named passes on `unit`, with the requested proofs. Returns false if an error was
/// reported.
bool run_passes(const Arguments& a, passes::Unit& unit, ir::Diagnostics& diagnostics,
                passes::PassLog& log) {
  passes::PassManager passes(make_context(unit, a.options, diagnostics), a.options, diagnostics);
  const bool is_graph = std::holds_alternative<ir::Graph>(unit);
  if (const auto* program = std::get_if<ir::Program>(&unit);
      program && a.options.verify_each && passes.ok() && !passes.prove(*program))
    diagnostics.note({}, "the Program was wrong before any pass");
  std::string before;  // the passes after which everything was right
  for (const std::string& name : a.names) {
    unit = passes.run(name, std::move(unit));
    if (!passes.log().broken_by.empty())
      diagnostics.note(
          {}, fmt::format("the Program was right before '{}': maco-opt {}{}{}", name, a.input,
                          is_graph ? " " + api::command_line(a.options) : "", before));
    if (!passes.ok()) break;
    before += (before.empty() ? " --pass=" : ",") + name;
  }
  log = passes.log();
  return passes.ok();
}

/// Writes the witness of the first fault, and says how to follow it.
void write_witness(const Arguments& a, const passes::Unit& unit,
                   std::vector<verify::Witness>& witnesses, ir::Diagnostics& diagnostics) {
  if (witnesses.empty()) {
    diagnostics.note({}, "no schedule is needed to see that: there is no witness");
    return;
  }
  const auto& program = std::get<ir::Program>(unit);
  complete(program, witnesses[0]);
  std::string error;
  if (write_product(a.witness_file, print(program, witnesses[0]), error))
    diagnostics.note({}, fmt::format("maco-run PROGRAM --device cpu --replay {} shows the first",
                                     a.witness_file));
  else
    diagnostics.error({}, error);
}

/// A graph by itself has nothing to prove: the pipeline's result is meant.
void add_verify(Arguments& a, const std::optional<passes::Unit>& unit) {
  if (!a.verify) return;
  const bool whole = a.names.empty() && unit && std::holds_alternative<ir::Graph>(*unit);
  if (whole) a.names = passes::pipeline_passes(a.options);
  if (a.names.empty() || a.names.back() != "verify") a.names.emplace_back("verify");
}

/// --variant takes a variant, whatever passes were named.
void add_variant(Arguments& a, const std::optional<passes::Unit>& unit) {
  const bool graph = unit && std::holds_alternative<ir::Graph>(*unit);
  const std::string take(passes::kLastOfSource);
  if (graph && a.options.variant > 0 &&
      std::find(a.names.begin(), a.names.end(), take) == a.names.end())
    a.names.insert(a.names.begin(), take);
}

int run(int argc, char** argv) {
  Arguments a;
  if (const int status = read_arguments(argc, argv, a); status >= 0) return status;
  const Console console = a.common.console();
  if (!a.passes.output.connect(a.options, console)) return kBadUsage;
  std::string error;
  const auto text = read_input(a.input, error);
  if (text) error = other_file(a.input, *text);
  if (!error.empty()) {
    console.error(error);
    return kBadUsage;
  }
  ir::Diagnostics diagnostics;
  auto unit = passes::parse_unit(diagnostics.add_file(input_name(a.input), *text), diagnostics,
                                 a.options.algorithms);
  if (unit && std::holds_alternative<ir::Program>(*unit) && a.options.variant > 0)
    diagnostics.warning({}, "--variant is for graphs, and this is a Program");
  add_verify(a, unit);
  add_variant(a, unit);
  std::vector<verify::Witness> witnesses;
  std::string algorithm_witness;
  if (!a.witness_file.empty()) {
    a.options.witnesses = &witnesses;
    a.options.algorithm_witness = &algorithm_witness;
  }
  passes::PassLog log;
  const bool ok = unit && run_passes(a, *unit, diagnostics, log);
  a.passes.output.show_times(log);
  if (unit && !ok && log.proof_failed && !a.witness_file.empty())
    write_witness(a, *unit, witnesses, diagnostics);
  if (!algorithm_witness.empty()) {
    if (write_product(a.witness_file, algorithm_witness, error))
      diagnostics.note({}, fmt::format("maco-run {} --device cpu --replay {} shows it", a.input,
                                       a.witness_file));
    else
      diagnostics.error({}, error);
  }
  console.show(diagnostics);
  if (!ok) return kBadGraph;
  if (!a.explained.empty()) return explain(*unit, a.explained, console);
  if (!write_product(a.output, passes::to_text(*unit), error)) {
    console.error(error);
    return kBadUsage;
  }
  for (const auto& [name, n] : log.statistics) console.detail(fmt::format("{}: {}", name, n));
  return kOk;
}

}  // namespace
}  // namespace maco::tools

int main(int argc, char** argv) {
  return maco::tools::guarded("maco-opt", maco::tools::run, argc, argv);
}
