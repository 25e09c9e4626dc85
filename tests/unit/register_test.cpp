// An op from outside: its rules, its device function and its meaning, none of which MACO knows.
#include <vector>

#include "compiler/codegen/codegen.h"
#include "compiler/frontend/frontend.h"
#include "compiler/functions/function.h"
#include "compiler/ops/collectives/algorithms.h"
#include "compiler/ops/op.h"
#include "compiler/ops/tile.h"
#include "compiler/pipeline/pipeline.h"
#include "runtime/reference/op.h"
#include "tests/catch.h"

namespace maco::test {
namespace {

constexpr const char* kSource = R"(namespace maco::ops {
// Operands x, y of N elements.
template <class C>
MACO_OP void test_negate(Context&, const Args& args, u32) {
  for (i64 i = consumer_thread(); i < C::N; i += kConsumers)
    gstore(args.ptr<float>(1) + i, fsub(0.0f, gload(args.ptr<const float>(0) + i)));
}
}  // namespace maco::ops)";

void infer(ops::InferContext& c) { c.set_out(0, c.in(0).dtype, c.in(0).shape); }
void tile(ops::TileContext& c) {
  const ops::Mat x = c.in(0), y = c.out(0);
  c.task(c.call("test_negate", {{"N", x.max_elements()}}, {x.buffer, y.buffer}), 0,
         {ops::read(ops::whole(x)), ops::write(ops::whole(y))});
}
ops::OpDef negate() {
  ops::OpDef def;
  def.kind = "test_negate";
  def.summary = "-x";
  def.infer = infer;
  def.tile = tile;
  return def;
}

std::optional<ir::Graph> parse(const std::string& text, ir::Diagnostics& d) {
  return frontend::parse_dsl(d.add_file("g.maco", text), d);
}

TEST_CASE("an op from outside is compiled as those of MACO are") {
  const std::string text =
      "graph g {\n input x : f32[4, 8]\n a = relu(x)\n b = test_negate(a)\n output y = exp(b)\n}";
  ir::Diagnostics before;
  CHECK_FALSE(parse(text, before));
  CHECK_THAT(before.render(), Contains("unknown op 'test_negate'"));

  CHECK(functions::register_function({.name = "test_negate",
                                      .params = {{"N"}},
                                      .operands = {{"x"}, {"y", functions::Access::Write}},
                                      .source = {{}, kSource}}) == "");
  CHECK(ops::register_op(negate()) == "");
  CHECK(ops::register_op(negate()) == "op 'test_negate' is there already");
  ops::OpDef without = negate();
  without.kind = "test_none";
  without.tile = nullptr;
  CHECK(ops::register_op(without) == "op 'test_none' needs a shape rule and a tile rule");
  CHECK(ops::find_op("test_negate")->summary == "-x");
  CHECK(ops::all_ops().back().kind == "test_negate");

  ir::Diagnostics d;
  const auto graph = parse(text, d);
  INFO(d.render());
  REQUIRE(graph);
  passes::PipelineOptions options;
  options.target = "cpu";
  const auto result = passes::run_pipeline(*graph, options, d);
  INFO(d.render());
  REQUIRE(result.ok);
  const std::string kernel = codegen::emit(*graph, std::get<ir::Program>(result.unit), {}, d);
  CHECK_THAT(kernel, Contains(kSource));
  CHECK_THAT(kernel, Contains("ops::test_negate<test_negate_b_1_config>(ctx, args, tile);"));
  CHECK(kernel.find(kSource) < kernel.find(codegen::kGeneratedMarker));
}

TEST_CASE("an algorithm from outside is one of its op's words, and auto asks what it costs") {
  const auto refuses = [](ops::Algorithm a) { return ops::register_algorithm(std::move(a)); };
  CHECK(refuses({"alltoall", "test_tree", tile}) == "'alltoall' takes no algorithm");
  CHECK(refuses({"allreduce", "auto", tile}) == "an algorithm of 'allreduce' needs a word");
  CHECK(refuses({"allreduce", "test_none"}) ==
        "algorithm 'test_none' of 'allreduce' needs a tile rule");
  CHECK(refuses({"allreduce", "oneshot", tile}) ==
        "algorithm 'oneshot' of 'allreduce' is there already");

  const auto chosen = [](const std::string& word) {
    ir::Diagnostics d;
    auto graph = parse(
        "graph g(world = 2) {\n input x : f32[4]\n output y = allreduce(x, algorithm "
        "= " +
            word + ")\n}",
        d);
    if (!graph) return d.render();
    passes::PipelineOptions options;
    options.target = "cpu";
    options.stop_after = "choose-collectives";
    const auto result = passes::run_pipeline(*graph, options, d);
    INFO(d.render());
    REQUIRE(result.ok);
    return std::get<std::string>(
        std::get<ir::Graph>(result.unit).ops[0].attrs.at("algorithm").value);
  };
  CHECK_THAT(chosen("test_free"), Contains("found 'test_free'"));
  CHECK(chosen("auto") == "oneshot");
  // As the one-shot one, and for nothing.
  ops::Algorithm free = ops::algorithms_of("allreduce")[0];
  free.word = "test_free";
  free.route = [](double, int64_t) { return cost::Route{}; };
  CHECK(ops::register_algorithm(free) == "");
  CHECK(chosen("test_free") == "test_free");
  CHECK(chosen("auto") == "test_free");
  CHECK(ops::algorithm_words("allreduce") ==
        std::vector<std::string>{"oneshot", "twoshot", "ring", "nccl", "test_free"});
}

TEST_CASE("the meaning of an op from outside") {
  CHECK(reference::find_entry("test_meaning") == nullptr);
  reference::OpEntry entry;
  entry.kind = "test_meaning";
  CHECK(reference::register_op(entry) ==
        "the meaning of 'test_meaning' is that of one rank or of all");
  entry.eval = [](reference::Call&) {};
  CHECK(reference::register_op(entry) == "");
  CHECK(reference::register_op(entry) == "'test_meaning' has a meaning already");
  CHECK(reference::find_entry("test_meaning")->eval == entry.eval);
}

}  // namespace
}  // namespace maco::test
