// The compiler as a library: products, diagnostics as values, several threads at once.
#include <thread>
#include <vector>

#include "compiler/api/command_line.h"
#include "compiler/api/compile.h"
#include "ir/manifest.h"
#include "ir/program_text.h"
#include "tests/catch.h"

namespace maco::test {
namespace {

const char* const kGraph = R"(graph g(world = 2) {
  input x : f32[4, 8]
  a = softmax(x)
  output y = allreduce(a)
})";

ir::Graph graph() {
  ir::Diagnostics d;
  auto g = api::read_graph("g.maco", kGraph, d);
  REQUIRE(g);
  return std::move(*g);
}

api::Options cpu() {
  api::Options options;
  options.target = "cpu";
  return options;
}

TEST_CASE("each product of a graph") {
  const api::CudaCompiler none;
  const auto made = [&](api::Product product) {
    ir::Diagnostics d;
    api::Made m = api::make(product, graph(), cpu(), none, d);
    INFO(d.render());
    REQUIRE(m.ok);
    return m.bytes;
  };
  ir::Diagnostics d;
  CHECK(api::read_graph("dsl", made(api::Product::Dsl), d) == graph());
  CHECK(api::read_graph("json", made(api::Product::Json), d) == graph());
  CHECK_THAT(made(api::Product::Graph), Contains("algorithm = oneshot") && Contains("sm_roles"));
  const auto compiled = api::compile(graph(), cpu(), d);
  REQUIRE(compiled);
  CHECK(made(api::Product::Program) == ir::print(compiled->program));
  const std::string kernel = made(api::Product::Cuda), manifest = made(api::Product::Manifest);
  CHECK(kernel == compiled->kernel);
  CHECK(kernel.rfind(manifest, 0) == 0);
  CHECK(kernel.compare(manifest.size(), 8, "//@maco ") != 0);
  CHECK(ir::parse_manifest(kernel).manifest->options == api::command_line(cpu()));
  for (const std::string& name : api::product_names()) CHECK(api::find_product(name));
  CHECK_FALSE(api::find_product("elf"));
}

TEST_CASE("PTX and cubins are made by who can") {
  api::Options options;
  std::vector<std::string> asked;
  bool able = true;
  const api::CudaCompiler compiler = [&](const std::string& source, const std::string& arch,
                                         std::string& image, std::string& error) {
    CHECK(ir::parse_manifest(source).manifest);
    asked.push_back(arch);
    (able ? image : error) = "from " + arch;
    return able;
  };
  ir::Diagnostics d;
  CHECK(api::make(api::Product::Ptx, graph(), options, compiler, d).bytes == "from compute_90a");
  CHECK(api::make(api::Product::Cubin, graph(), options, compiler, d).bytes == "from sm_90a");
  able = false;
  const api::Made failed = api::make(api::Product::Cubin, graph(), options, compiler, d);
  CHECK((!failed.ok && failed.cuda_error == "from sm_90a" && failed.bytes.empty()));
  CHECK(d.all().empty());
  CHECK(asked.size() == 3);
}

TEST_CASE("what is wrong is in the diagnostics, whichever product is asked for") {
  const api::CudaCompiler none;
  for (const std::string& name : api::product_names()) {
    ir::Graph wrong = graph();
    wrong.ops[0].kind = "softmin";
    ir::Diagnostics d;
    const api::Made made = api::make(*api::find_product(name), wrong, cpu(), none, d);
    CHECK((!made.ok && made.bytes.empty() && !made.compiled));
    CHECK_THAT(d.render(), Contains("unknown op 'softmin'"));
  }
  ir::Diagnostics d;
  CHECK_FALSE(api::read_graph("g.maco", "graph g { x }", d));
  CHECK(d.has_errors());
  std::string error;
  CHECK_FALSE(api::read_file("/no/such/file", error));
  CHECK_THAT(error, Contains("can't read '/no/such/file'"));
}

TEST_CASE("several threads compile at once") {
  std::vector<std::string> kernels(4);
  std::vector<std::thread> threads;
  for (std::string& kernel : kernels)
    threads.emplace_back([&kernel] {
      ir::Diagnostics d;
      auto g = api::read_graph("g.maco", kGraph, d);
      if (auto compiled = g ? api::compile(std::move(*g), cpu(), d) : std::nullopt)
        kernel = std::move(compiled->kernel);
    });
  for (std::thread& t : threads) t.join();
  for (const std::string& kernel : kernels) CHECK((!kernel.empty() && kernel == kernels[0]));
}

TEST_CASE("the options of a kernel are read back as they were") {
  api::Options options;
  const auto again = [&] {
    api::Options read;
    CHECK(api::read_command_line(api::command_line(options), read));
    return api::command_line(read);
  };
  CHECK(again() == "--target=sm_90a");
  options.board = "h200";  // the target's own
  CHECK(again() == "--target=sm_90a");
  options.board = "gh200";
  options.sms = 7;
  options.load_ahead = options.fuse = options.prune = options.packets = false;
  CHECK(again() ==
        "--target=sm_90a --board=gh200 --sms=7 --no-load-ahead --no-fuse --no-prune --no-packets");
  for (const char* wrong : {"", "--target=sm_1", "--target=sm_80 --board=h200", "--target=cpu -x"})
    CHECK_FALSE(api::read_command_line(wrong, options));
  CHECK(options.board == "gh200");
}

}  // namespace
}  // namespace maco::test
