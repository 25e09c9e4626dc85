// Device functions as the compiler knows them, and the check of calls against them.
#include "compiler/frontend/dumps.h"
#include "compiler/functions/function.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "compiler/codegen/codegen.h"
#include "compiler/codegen/device_sources.h"
#include "compiler/codegen/params.h"
#include "compiler/cost/machine.h"
#include "compiler/functions/matmul.h"
#include "compiler/functions/matmul_method.h"
#include "ir/program_text.h"
#include "tests/catch.h"
#include "tests/compiled.h"

namespace maco::test {
namespace {

using functions::Access;
using functions::Count;

ir::Program two_ops() {
  return compiled(
             "graph g {\n input x : f32[8, 16]\n param w : f32[16, 16]\n input b : f32[16]\n"
             " h = matmul(x, w, b)\n s = softmax(h)\n m = mean(s)\n output y = relu(m)\n}")
      .program;
}

ir::Call& call_of(ir::Program& p, std::string_view function) {
  for (ir::Call& c : p.calls)
    if (c.function == function) return c;
  FAIL(std::string(function));
  return p.calls[0];
}
ir::Param& param_of(ir::Call& call, std::string_view name) {
  for (ir::Param& p : call.params)
    if (p.name == name) return p;
  FAIL(std::string(name));
  return call.params[0];
}

TEST_CASE("the headers that a function names have it, and what it needs") {
  for (const functions::Function& f : functions::all_functions()) {
    INFO(f.name);
    CHECK(functions::find_function(f.name)->name == f.name);
    CHECK(codegen::unknown_header(f.source) == "");
    const std::string source = codegen::device_sources({&f});
    CHECK_THAT(source, Contains("MACO_OP void " + f.name + "(Context&") ||
                           Contains("MACO_FN void " + f.name + "(Context&"));
    for (const functions::ParamSpec& p : f.params)
      for (const std::string& word : p.words) CHECK_THAT(source, Contains(word));
  }
  CHECK(functions::find_function("q") == nullptr);
}

TEST_CASE("operands by number, where one is repeated or missing") {
  const auto& rope = *functions::find_function("rope");
  CHECK(rope.operand(1, 2)->name == "y");
  CHECK(rope.operand(1, 3)->name == "positions");
  CHECK(rope.operand(2, 3)->access == Access::Write);
  CHECK(rope.operand(2, 2) == nullptr);
  const auto& elementwise = *functions::find_function("elementwise");
  CHECK(elementwise.operand(2, 4)->name == "x");
  CHECK(elementwise.operand(3, 4)->name == "y");
  CHECK(elementwise.first_of_many() == 0);
  const auto& matmul = *functions::find_function("matmul");
  CHECK(matmul.operand(4, 5)->name == "more");
  CHECK(matmul.operand(3, 3) == nullptr);
  CHECK(matmul.first_of_many() == 3);
}

TEST_CASE("what is wrong with a call is said, by name") {
  const auto wrong = [](std::string_view function, const auto& change) {
    ir::Program p = two_ops();
    ir::Call& call = call_of(p, function);
    CHECK(functions::check(p, call).empty());
    change(call);
    ir::Diagnostics d;
    CHECK(codegen::check_calls(p, d) == functions::check(p, call).empty());
    return functions::check(p, call);
  };
  using Said = std::vector<std::string>;
  CHECK(wrong("matmul", [](ir::Call& c) { c.function = "matmull"; }) ==
        Said{"calls 'matmull', which is no device function; did you mean 'matmul'?"});
  CHECK(wrong("matmul", [](ir::Call& c) { param_of(c, "method").name = "methods"; }) ==
        Said{"gives 'matmul' a parameter 'methods', which it doesn't have; did you mean "
             "'method'?",
             "leaves out parameter 'method' of 'matmul', one of dot, block, mma, wgmma, by_rows, "
             "by_rows_mma"});
  CHECK(wrong("softmax", [](ir::Call& c) { c.params.push_back(c.params[0]); }) ==
        Said{"gives parameter 'X' of 'softmax' twice"});
  CHECK(wrong("softmax", [](ir::Call& c) { param_of(c, "N").value = 2.0; }) ==
        Said{"gives a floating-point number as parameter 'N' of 'softmax', which is an integer"});
  CHECK(wrong("softmax", [](ir::Call& c) { param_of(c, "rows").value = ir::ValueRef{7u}; }) ==
        Said{"gives a run-time value that there isn't as parameter 'rows' of 'softmax'"});
  CHECK(wrong("reduce", [](ir::Call& c) { param_of(c, "kind").value = ir::Word{"median"}; }) ==
        Said{"gives 'median' as parameter 'kind' of 'reduce', which is one of sum, mean, max"});
  CHECK(wrong("softmax", [](ir::Call& c) { c.operands.pop_back(); }) ==
        Said{"gives 'softmax' 1 operands, which takes 2: x, y"});
  CHECK(wrong("matmul", [](ir::Call& c) { c.operands.resize(2); }) ==
        Said{"gives 'matmul' 2 operands, which takes at least 3: a, b, y, more"});
  CHECK(wrong("matmul", [](ir::Call& c) { c.loads[0].operand = 0; }) ==
        Said{"loads operand 0 of 'matmul', which its loader doesn't bring here",
             "doesn't say how operand 'b' of 'matmul' is loaded"});
  CHECK(wrong("matmul", [](ir::Call& c) { c.loads.push_back(c.loads[0]); }) ==
        Said{"loads operand 'b' of 'matmul' twice"});
  CHECK(wrong("matmul", [](ir::Call& c) { c.operands.pop_back(); }) ==
        Said{"gives 'matmul' 0 operands for a body of 1"});
  CHECK(wrong("softmax", [](ir::Call& c) { param_of(c, "X").value = ir::DType::BF16; }) ==
        Said{"takes operand 'x' of 'softmax' for bf16, but 'h' is f32"});
  CHECK(wrong("matmul", [](ir::Call& c) {
          std::get<ir::BodyParam>(param_of(c, "epilogue").value).operands[1].dtype = ir::DType::F16;
        }) == Said{"takes operand 'more' of 'matmul' for f16, but 'b' is f32"});
}

TEST_CASE("a wrong call of an edited Program is reported at its line") {
  const ir::Program program = two_ops();
  std::string text = ir::print(program);
  const size_t at = text.find("kind=mean }");
  REQUIRE(at != std::string::npos);
  text.replace(at, 11, "kind=men }");
  ir::Diagnostics d;
  const auto edited = frontend::parse_program(d.add_file("p.txt", text), d);
  REQUIRE(edited);
  CHECK_FALSE(codegen::check_calls(*edited, d));
  CHECK_THAT(
      d.render(),
      Contains("error: 'm' gives 'men' as parameter 'kind' of 'reduce', which is one of sum, "
               "mean, max"));
  REQUIRE(d.all().size() == 1);
  CHECK(d.all()[0].loc.known());
}

TEST_CASE("words become enumerators of the device code") {
  const auto& reduce = *functions::find_function("reduce");
  CHECK(codegen::members(reduce, {"kind", ir::Word{"mean"}}) ==
        "static constexpr auto kind = ops::ReduceKind::mean;\n");
}

TEST_CASE("the time of a task is what its function says, else that of its bytes") {
  ir::Program p = two_ops();
  const cost::Machine& cpu = *cost::find_machine("cpu");
  const ir::Task& task = p.tasks.back();
  double bytes = 0;
  for (const ir::Access& a : task.accesses)
    bytes += static_cast<double>((a.region.r1 - a.region.r0) * (a.region.c1 - a.region.c0) * 4);
  CHECK(functions::microseconds(p, task, cpu) ==
        Approx(0.7 + bytes / (cpu.memory_rate / cpu.sms) * 1e6));
  const std::string why = functions::register_function(
      {.name = "test_slow",
       .source = {{}, "// the code of test_slow"},
       .work = [](const functions::CallView& c, const ir::Task&, const cost::Machine&) {
         return cost::Work{.multiply_adds = 1e6,
                           .fixed_microseconds = 2.0 + static_cast<double>(c.call().params.size())};
       }});
  CHECK(why == "");
  p[task.call].function = "test_slow";
  p[task.call].params.resize(3);
  CHECK(functions::microseconds(p, task, cpu) ==
        Approx(5 + 1e6 / (0.355 * cpu.f32_flops / 2 / cpu.sms) * 1e6));
}

TEST_CASE("the work of a product's tile") {
  const cost::Machine &cpu = *cost::find_machine("cpu"), &gpu = *cost::find_machine("sm_90a");
  functions::MatmulTile t{.method = &functions::matmul_method("block"),
                          .rows = 4,
                          .K = 256,
                          .BM = 8,
                          .BN = 16,
                          .a_bytes = 2,
                          .b_bytes = 4};
  CHECK(functions::matmul_work(t, gpu).multiply_adds == 4 * 16 * 256);
  CHECK(functions::matmul_work(t, gpu).bytes == 256 * (16 * 4 + 4 * 2));
  t.method = &functions::matmul_method("wgmma");
  CHECK(functions::matmul_work(t, gpu).matrix_multiply_adds == 8 * 16 * 256);
  t.method = &functions::matmul_method("block");
  t.rows = 40;
  CHECK(functions::matmul_work(t, cpu).multiply_adds == 8 * 16 * 256);
  CHECK(functions::matmul_work(t, cpu).bytes == 256 * (16 * 4 + 8 * 2));
  CHECK(functions::matmul_work(t, gpu).bytes ==
        Approx(functions::kFromCache * 256 * (16 * 4 + 8 * 2)));
}

TEST_CASE("how the operands of a product come through pages") {
  functions::MatmulLoads m{.method = &functions::matmul_method("block"),
                           .N = 512,
                           .K = 256,
                           .BM = 64,
                           .BN = 256,
                           .page_bytes = 16384};
  CHECK(!functions::matmul_load(m, 0));
  CHECK(functions::matmul_load(m, 1)->pages == 1);
  m.method = &functions::matmul_method("mma");
  // A page of a has two blocks, and stays while those of b, two pages each, go by.
  CHECK(functions::matmul_load(m, 0)->pages == 1);
  CHECK(functions::matmul_load(m, 1)->pages == 4);
  CHECK(!functions::matmul_load(m, 1)->box);
  CHECK(functions::matmul_held_pages(256, 64, 1, 16384) == 2);
  CHECK(functions::matmul_held_pages(16, 64, 16, 16384) == 1);
  CHECK(functions::matmul_held_pages(64, 16, 16, 16384) == 4);
  m.method = &functions::matmul_method("wgmma");
  CHECK(functions::matmul_load(m, 0)->box == ir::Load::Box{64, 64, 256});
  CHECK(functions::matmul_load(m, 1)->box == ir::Load::Box{64, 64, 512});
  m.transpose_b = true;
  CHECK(functions::matmul_load(m, 1)->box == ir::Load::Box{128, 64, 256});
  // Where a launch may have fewer rows, of a in boxes of some, if memory has all there may be.
  m.fixed_rows = false;
  m.BM = 128;
  CHECK(functions::matmul_load(m, 1)->box == ir::Load::Box{128, 64, 256});
  CHECK(functions::matmul_load(m, 0)->box == ir::Load::Box{32, 64, 256});
  m.all_there = false;
  CHECK(!functions::matmul_load(m, 0)->box);
  m.fixed_rows = m.all_there = true;
  m.BM = 64;
  m.page_bytes = 4096;
  CHECK(functions::matmul_load(m, 1)->pages == 8);
  CHECK(functions::matmul_load(m, 1)->box == ir::Load::Box{32, 64, 256});
}

TEST_CASE("weights in line are those of a lone row that eight warps share") {
  functions::MatmulLoads m{.method = &functions::matmul_method("dot"),
                           .N = 64,
                           .K = 4096,
                           .BM = 1,
                           .BN = 8,
                           .transpose_b = true,
                           .page_bytes = 16384,
                           .few_rows = functions::kMostFewRows,
                           .lone = true,
                           .in_line = true};
  CHECK(functions::matmul_line_columns(m) == 4);
  CHECK(functions::matmul_load(m, 1)->pages == 1);
  CHECK(!functions::matmul_load(m, 1)->box);
  const auto refused = [&](const auto& change) {
    functions::MatmulLoads other = m;
    change(other);
    return functions::matmul_line_columns(other) == 0 && !functions::matmul_load(other, 1);
  };
  CHECK(refused([](auto& l) { l.lone = false; }));
  CHECK(refused([](auto& l) { l.method = &functions::matmul_method("block"); }));
  CHECK(refused([](auto& l) { l.transpose_b = false; }));
  CHECK(refused([](auto& l) { l.K = 4096 + 256; }));
  CHECK(refused([](auto& l) { l.K = 65536; }));
  CHECK(refused([](auto& l) { l.b_bytes = 4; }));
  CHECK(refused([](auto& l) { l.few_rows = 8; }));
  CHECK(refused([](auto& l) { l.page_bytes = 6144; }));
  CHECK(refused([](auto& l) { l.N = 63; }));
  CHECK(refused([](auto& l) { l.BN = 9; }));
  // What may be a pair, whose slices are narrower, comes as each of it would alone.
  m.N = 1004;
  m.BN = 8;
  for (const int64_t sums : {1, 2}) {
    m.sums = sums;
    CHECK(functions::matmul_line_columns(m) == 0);
  }
  m.sums = 1;
  m.N = 64;
  // Slices are six pages of eight columns; no slice has fewer than two columns.
  m.K = 6144;
  CHECK(functions::matmul_line_columns(m) == 8);
  CHECK(refused([](auto& l) { l.N = 60; }));
  m.K = 16384;
  CHECK(refused([](auto& l) { l.N = 63; }));
  // Columns that end in the middle of a round of the warps.
  for (const int64_t k : {3072, 5120, 7168}) {
    m.K = k;
    CHECK(functions::matmul_line_columns(m) == 8);
    CHECK(functions::matmul_line_scratch(k, *cost::find_machine("sm_90a")) == 8192);
  }
  CHECK(refused([](auto& l) { l.K = 9216; }));
  CHECK(refused([](auto& l) { l.K = 3584; }));
  // Short columns: some for each warp, in whole pages.
  m.K = 1024;
  CHECK(functions::matmul_line_columns(m) == 8);
  CHECK(functions::matmul_load(m, 1)->pages == 1);
  CHECK(functions::matmul_line_scratch(m.K, *cost::find_machine("sm_90a")) == 8192);
  // Columns that two warps share: a page at a time, with the row in the scratch memory.
  m.K = 2048;
  CHECK(functions::matmul_line_columns(m) == 8);
  CHECK(functions::matmul_load(m, 1)->pages == 1);
  CHECK(functions::matmul_line_scratch(m.K, *cost::find_machine("sm_90a")) == 8192 + 4096);
  m.K = 1024;
  CHECK(refused([](auto& l) { l.BN = 4; }));
  CHECK(refused([](auto& l) { l.K = 1536; }));
  CHECK(refused([](auto& l) { l.K = 128; }));
  CHECK(refused([](auto& l) { l.K = 256; }));
  m.N = 64;
  m.BN = 32;
  m.K = 256;
  CHECK(functions::matmul_line_columns(m) == 32);
  // Slices of short ones need room, and boxes: targets that copy 16 bytes at a time have neither.
  cost::Machine machine = *cost::find_machine("sm_90a");
  for (const int64_t sums : {1, 2}) {
    m.sums = sums;
    m.K = 2048;
    CHECK(functions::matmul_line_columns(m) == 8);
    m.N = 4096;
    for (const int64_t bn : {8, 64}) {
      m.BN = bn;
      CHECK(functions::matmul_better_in_line(m, machine));
    }
  }
  m.K = 1024;
  CHECK(functions::matmul_better_in_line(m, machine));
  machine.shared_bytes = 64 * 1024;
  CHECK(!functions::matmul_better_in_line(m, machine));
  machine = *cost::find_machine("sm_80");
  CHECK(!functions::matmul_better_in_line(m, machine));
}

TEST_CASE("a lone row of any length leaves room for a ring, whatever the target") {
  for (const char* target : {"cpu", "sm_120", "sm_90a", "sm_75"}) {
    for (const int k : {512, 2048, 14336, 18432, 22528, 32512, 32768}) {
      INFO(target << ", K " << k);
      api::Options options;
      options.target = target;
      const ir::Program& p = test::compiled(fmt::format(R"(graph g {{
  input x : bf16[1, {0}]
  param gate : bf16[512, {0}]
  param up : bf16[512, {0}]
  g = matmul(x, gate, transpose_b = true)
  u = matmul(x, up, transpose_b = true)
  output y = swiglu(g, u)
}})",
                                                        k),
                                            options)
                                 .program;
      CHECK(p.uses.pages > p.calls.at(0).loads.at(0).pages + p.calls.at(0).loads.at(1).pages);
    }
  }
  // A Program that leaves less than a row takes is refused.
  api::Options h200;
  h200.target = "sm_90a";
  ir::Program p = test::compiled(R"(graph g {
  input x : bf16[1, 28672]
  param w : bf16[8192, 28672]
  output y = matmul(x, w, transpose_b = true)
})",
                                 h200)
                      .program;
  const ir::Call& lone = call_of(p, "matmul");
  CHECK(functions::check(p, lone).empty());
  p.uses.scratch_bytes = 32768;
  CHECK(functions::check(p, lone) ==
        std::vector<std::string>{
            "needs 65536 bytes of scratch memory for 'matmul', but there are 32768"});
  // Rows of several lengths beside each other.
  for (const char* target : {"cpu", "sm_120", "sm_90a"}) {
    INFO(target);
    api::Options options;
    options.target = target;
    test::compiled(R"(graph g {
  input x : bf16[1, 2048]
  param up : bf16[8192, 2048]
  param down : bf16[1024, 8192]
  param gate : bf16[512, 1024]
  param other : bf16[512, 1024]
  h = matmul(x, up, transpose_b = true)
  d = matmul(h, down, transpose_b = true)
  g = matmul(d, gate, transpose_b = true)
  u = matmul(d, other, transpose_b = true)
  output y = swiglu(g, u)
})",
                   options);
  }
}

TEST_CASE("roles divide registers where a task has many, and nothing may be called") {
  ir::Program p = two_ops();
  CHECK(!functions::divides_registers(p));
  param_of(call_of(p, "matmul"), "method").value = ir::Word{"wgmma"};
  CHECK(functions::divides_registers(p));
  p.calls.push_back(p.calls[0]);
  p.calls.back().function = "cuda_kernel";
  CHECK(!functions::divides_registers(p));
  p.calls.back().function = "unheard";
  CHECK(!functions::divides_registers(p));
}

TEST_CASE("functions from outside") {
  functions::Function f{.name = "test_triple",
                        .params = {{"Y", functions::ParamType::DType}},
                        .operands = {{"x"}, {"y", Access::Write}},
                        .source = {{"vectors.cuh"}, "// the code of test_triple"}};
  const auto refused = [&](const auto& change) {
    functions::Function other = f;
    change(other);
    const std::string why = functions::register_function(other);
    CHECK(functions::find_function("test_triple") == nullptr);
    return why;
  };
  CHECK(refused([](auto& g) { g.name = "two words"; }) ==
        "device function 'two words': its name is no name of C++");
  CHECK(refused([](auto& g) { g.source.text = ""; }) ==
        "device function 'test_triple': it has no source text");
  CHECK(refused([](auto& g) { g.params.push_back(g.params[0]); }) ==
        "device function 'test_triple': parameter 'Y' is there twice");
  CHECK(
      refused([](auto& g) { g.params[0].type = functions::ParamType::Word; }) ==
      "device function 'test_triple': parameter 'Y' has words and their type if it is a Word, and "
      "only then");
  CHECK(refused([](auto& g) { g.operands[0].count = g.operands[1].count = Count::Many; }) ==
        "device function 'test_triple': more than one of its operands is optional or repeated");
  CHECK(refused([](auto& g) { g.name = "softmax"; }) ==
        "device function 'softmax' is there already");

  // If several threads register one name, one of them gets it.
  std::vector<std::string> said(4);
  std::vector<std::thread> threads;
  for (std::string& s : said)
    threads.emplace_back([&] {
      s = functions::register_function(f);
      CHECK(functions::find_function("test_triple"));
    });
  for (std::thread& t : threads) t.join();
  CHECK(std::count(said.begin(), said.end(), "") == 1);
  CHECK(std::count(said.begin(), said.end(), "device function 'test_triple' is there already") ==
        3);
  CHECK(functions::all_functions().back().name == "test_triple");
  // Its code may call functions.
  ir::Program p = two_ops();
  param_of(call_of(p, "matmul"), "method").value = ir::Word{"wgmma"};
  REQUIRE(functions::divides_registers(p));
  p.calls.push_back(p.calls[0]);
  p.calls.back().function = "test_triple";
  CHECK(!functions::divides_registers(p));
  const std::string source = codegen::device_sources({functions::find_function("test_triple")});
  const size_t header = source.find("runtime/device/vectors.cuh"),
               own = source.find("// the code of test_triple");
  CHECK(header < own);
  CHECK(own != std::string::npos);
  functions::Function lost = f;
  lost.source.headers = {"nowhere.cuh"};
  CHECK(codegen::unknown_header(lost.source) == "nowhere.cuh");
}

}  // namespace
}  // namespace maco::test
