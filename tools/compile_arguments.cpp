#include "tools/compile_arguments.h"

#include <filesystem>

#include "tools/options.h"

namespace maco::tools {

int read_compile_arguments(int argc, char** argv, CompileArguments& a) {
  CommonOptions common;
  PassFlags passes;
  CLI::App app(
      "Compiles a task graph into one persistent CUDA kernel.\n  macoc tp_mlp.json -o kernel.cu\n"
      "  macoc import DIR -o OUT    (a checkpoint, or a plan of MSCCL++: macoc import --help)\n",
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
      "Makes graphs of a checkpoint of Hugging Face's, a folder with config.json and safetensors:\n"
      "  macoc import Llama-3.2-1B --tp 2 -o llama && maco-run llama --weights Llama-3.2-1B\n"
      "Or a collective of an execution plan of MSCCL++ (JSON, schema of version 0.9), and a graph "
      "that uses it:\n  macoc import plan.json -o plan.maco && maco-run plan.maco --device cpu "
      "--check\n",
      "macoc import");
  std::vector<std::string> dtypes,
      kinds(std::begin(frontend::huggingface::kKinds), std::end(frontend::huggingface::kKinds));
  for (const ir::DType t : ir::kAllDTypes) dtypes.emplace_back(ir::name(t));
  std::string dtype;
  bool list = false;
  app.add_option("input", a.input, "a checkpoint's folder, or a plan; - for standard input");
  app.add_option("-o,--output", a.output,
                 "the folder of the graphs and of weights.json; of a plan a file, if not standard "
                 "output")
      ->option_text("PATH");
  app.add_option(
         "--dtype", dtype,
         "of the model (f32, f16 or bf16; the checkpoint's), or of a plan's elements (bf16)")
      ->option_text("DTYPE")
      ->check(one_of(dtypes));
  const auto add_count = [&](const char* name, int64_t& to, const char* what) {
    return app.add_option(name, to, what)->option_text("N")->check(positive_number());
  };
  std::vector<CLI::Option*> of_model = {
      add_count("--tp", a.model.world, "checkpoint: ranks that share the model (1)"),
      add_count("--max-seq", a.model.max_seq,
                "checkpoint: rows of the caches, tokens of prompt and answer (4096, or what the "
                "model is made for)"),
      app.add_option("--kinds", a.model.kinds,
                     "checkpoint: the graphs to make, of decode, prefill and verify (all)")
          ->option_text("KIND,...")
          ->delimiter(',')
          ->check(one_of(kinds)),
      add_count("--chunk", a.model.chunk,
                "checkpoint: tokens of a prompt in a launch of prefill at most (512)"),
      add_count("--verify-rows", a.model.verify_rows,
                "checkpoint: tokens of a launch of verify (8)"),
      app.add_option("--arch", a.architecture,
                     "checkpoint: the file of its architecture (one in the folder, or MACO's own)")
          ->option_text("FILE")};
  CLI::Option* of_plan =
      add_count("--elements", a.elements,
                "plan: of the input on each rank (65536, or the next multiple of what is needed)");
  app.add_flag("--list-architectures", list, "print the architectures that MACO has");
  common.add(app);
  if (const int status = parse(app, argc, argv); status >= 0) return status;
  if (const int status = common.ended(); status >= 0) return status;
  if (list) {
    for (const std::string& name : frontend::huggingface::architecture_names())
      std::printf("%s\n", name.c_str());
    return kOk;
  }
  a.console = common.console();
  const auto fail = [&](const std::string& message) {
    a.console.error(message);
    return kBadUsage;
  };
  if (a.input.empty()) return fail("no checkpoint or plan given; try macoc import --help");
  if (!dtype.empty()) a.dtype = ir::dtype_from_name(dtype);
  a.model.dtype = a.dtype;
  a.is_folder = std::filesystem::is_directory(a.input);
  if (a.is_folder && a.output.empty())
    return fail("a checkpoint's graphs go to a folder: -o FOLDER");
  if (a.is_folder && a.output == "-")
    return fail("a checkpoint's graphs are a folder, and can't go to standard output");
  if (a.is_folder && of_plan->count() > 0)
    return fail("--elements is for plans, and '" + a.input + "' is a folder");
  if (!a.is_folder)
    for (const CLI::Option* option : of_model)
      if (option->count() > 0)
        return fail(option->get_name() + " is for checkpoints, and '" + a.input + "' is no folder");
  return -1;
}

}  // namespace maco::tools
