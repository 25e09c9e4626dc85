#include "tools/compile_arguments.h"

#include "tools/options.h"

namespace maco::tools {

int read_compile_arguments(int argc, char** argv, CompileArguments& a) {
  CommonOptions common;
  PassFlags passes;
  CLI::App app(
      "Compiles a task graph into one persistent CUDA kernel.\n  macoc tp_mlp.json -o kernel.cu\n"
      "  macoc import plan.json -o plan.maco    (an execution plan of MSCCL++: macoc import "
      "--help)\n",
      "macoc");
  PipelineFlags flags;
  std::string verify = "end";
  app.add_option("graph", a.input,
                 "a .json or .maco graph, - for standard input; or a CUDA source, see "
                 "--kernel");
  app.add_option("-o,--output", a.output, "where the product goes, if not to standard output")
      ->option_text("FILE");
  app.add_option(
         "--emit", a.emit,
         "the product: cuda (the default), ptx, cubin, manifest; dsl, json, graph, program; dot, "
         "task-dot: pictures of ops and of tasks")
      ->option_text("WHAT")
      ->check(one_of(api::product_names()));
  flags.add(app, a.options);
  app.add_option("--verify", verify,
                 "each: prove the Program after each pass that changes it, and name the one that "
                 "broke it; end: once")
      ->option_text("WHEN")
      ->check(one_of({"each", "end"}));
  passes.add(app, a.options);
  app.add_flag("--report", a.report, "print the table of SM roles, tasks, waits and memory");
  app.add_option("--explain", a.explained,
                 "instead of a product tell what became of this op: fused with what, cut how, on "
                 "which SMs, waiting for whom and why")
      ->option_text("OP");
  app.add_option("--profile", a.profile,
                 "with --explain: a trace of maco-run --profile, to tell what the op took there")
      ->option_text("FILE")
      ->needs("--explain");
  app.add_option("--kernel", a.kernel,
                 "of a CUDA source (macoc FILE.cu): print a graph that uses this kernel, to begin "
                 "with; where the file has one kernel it need not be named")
      ->option_text("NAME");
  common.add(app);
  if (const int status = parse(app, argc, argv); status >= 0) return status;
  if (const int status = common.ended(); status >= 0) return status;
  if (a.input.empty()) {
    common.console().error("no graph given; try macoc --help");
    return kBadUsage;
  }
  a.console = common.console();
  a.passes = passes.output;
  flags.apply(a.options);
  a.options.verify_each = verify == "each";
  return -1;
}

int read_import_arguments(int argc, char** argv, ImportArguments& a) {
  CommonOptions common;
  CLI::App app(
      "Makes a collective of an execution plan of MSCCL++ (JSON, schema of version 0.9), and a "
      "graph that uses it.\n  macoc import plan.json -o plan.maco && maco-run plan.maco --device "
      "cpu --check\n",
      "macoc import");
  std::vector<std::string> dtypes;
  for (const ir::DType t : ir::kAllDTypes) dtypes.emplace_back(ir::name(t));
  std::string dtype = "bf16";
  app.add_option("plan", a.input, "the plan; - for standard input");
  app.add_option("-o,--output", a.output, "where the graph goes, if not to standard output")
      ->option_text("FILE");
  app.add_option("--elements", a.elements,
                 "of the input on each rank (65536, or the next multiple of what is needed)")
      ->option_text("N")
      ->check(positive_number());
  app.add_option("--dtype", dtype, "of the elements (bf16)")
      ->option_text("DTYPE")
      ->check(one_of(dtypes));
  common.add(app);
  if (const int status = parse(app, argc, argv); status >= 0) return status;
  if (const int status = common.ended(); status >= 0) return status;
  a.console = common.console();
  if (a.input.empty()) {
    a.console.error("no plan given; try macoc import --help");
    return kBadUsage;
  }
  a.dtype = *ir::dtype_from_name(dtype);
  return -1;
}

}  // namespace maco::tools
