// The example graphs, and what must hold for any graph: the same bits with and without load-ahead,
// in every launch; epochs that wrap; dims.
#include <fmt/format.h>

#include <stdexcept>

#include "compiler/api/compile.h"
#include "tests/examples.h"
#include "tests/gpu/device_test.h"

namespace maco::gpu_test {

namespace {

struct Example {
  const char* file;
  int64_t world;
  const char* scalar;  // counted up from `first`, or ""
  std::map<std::string, int64_t> dims;
  // A CPU uses smaller numbers: there weights of gigabytes take minutes.
  std::vector<std::pair<const char*, const char*>> on_cpu = {};
  int64_t first = 5;
};
const Example kExamples[] = {
    {"residual_norms.maco", 1, "", {}},
    {"residual_norms.maco", 1, "", {{"tokens", 7}}},
    {"tp_mlp.json", 2, "", {}},
    {"tp_mlp.maco", 2, "", {}},
    {"decode_layer.maco", 2, "pos", {}},
    {"allreduce.maco", 4, "", {}},
    {"reduce_scatter.maco", 4, "", {}},
    {"allgather.maco", 4, "", {}},
    {"broadcast.maco", 4, "", {}},
    {"alltoall.maco", 4, "", {}},
    {"ring_shift.maco", 4, "", {}},
    {"barrier.maco", 4, "", {}},
    {"pipeline_4_stages.maco", 4, "", {}},
    {"phases_roles.maco", 2, "", {}},
    {"mlp_microbatches.maco", 2, "", {}},
    {"../collectives/allreduce_twoshot.maco", 4, "", {}},
    {"../collectives/allreduce_doubling.maco", 4, "", {}},
    {"../collectives/allreduce_pkt_4.maco", 4, "", {}},
    {"../collectives/allgather_ring.maco", 4, "", {}},
    {"../collectives/reduce_scatter_ring.maco", 4, "", {}},
    {"../collectives/alltoall_4.maco", 4, "", {}},
    {"../collectives/broadcast_tree.maco", 4, "", {}},
    {"llama32_1b_decode.maco",
     1,
     "pos",
     {},
     {{"0..16", "0..2"},
      {"x_16", "x_2"},
      {"128256", "1000"},
      {"3072", "384"},
      {"2560", "320"},
      {"2048", "256"},
      {"8192)", "640)"},
      {"[8192", "[640"},
      {"256, 8192", "256, 640"},
      {"512]", "64]"}}},
    {"../../tests/e2e/attentions.maco", 1, "pos", {}},
    {"../../tests/e2e/attentions.maco", 1, "pos", {{"n", 3}}},
    {"../../tests/e2e/attention_windows.maco", 1, "pos", {}},
    {"../../tests/e2e/attention_windows.maco", 1, "pos", {{"n", 3}}},
    {"../../tests/e2e/attention_window_steps.maco", 1, "pos", {}},
    {"../../tests/e2e/attention_window_steps.maco", 1, "pos", {{"m", 2}}},
    {"../../tests/e2e/products_f8.maco", 1, "", {}},
    {"../../tests/e2e/products_in_line.maco", 2, "", {}},
    {"../../tests/gpu/products_halved.maco",
     1,
     "",
     {},
     {{"8184", "520"}, {"7000", "264"}, {"4096", "136"}, {"8200", "200"}}},
    {"../../tests/gpu/halves_sent.maco", 2, "", {}, {{"8184", "264"}, {"4096", "136"}}},
    {"../../tests/gpu/few_rows_sent.maco", 2, "", {}, {{"2048", "256"}, {"4104", "264"}}},
    {"../../tests/gpu/few_rows_sent.maco",
     2,
     "",
     {{"n", 3}, {"m", 5}},
     {{"2048", "256"}, {"4104", "264"}}},
    {"../../tests/gpu/sums_added.maco", 2, "", {}, {{"5120", "96"}, {"5000", "264"}}},
    {"../../tests/gpu/gathered_rows.maco", 2, "", {}, {{"2560", "48"}, {"5000", "264"}}},
    {"../../tests/ir/prepare_operands.maco", 2, "", {}},
    {"../../tests/ir/prepare_operands.maco", 2, "", {{"n", 3}}},
    {"../../tests/gpu/moves.maco", 1, "", {}},
    {"../../tests/gpu/heads.maco", 1, "", {}},
    {"../../tests/gpu/ropes.maco", 1, "pos", {}},
    {"../../tests/gpu/ropes.maco", 1, "pos", {{"n", 3}}, {}, 131068},
    {"../../tests/ir/fuse_ropes_given.maco", 1, "pos", {}, {}, 131068},
    {"../../tests/ir/fuse_attention_given.maco", 1, "pos", {}, {}, 131066},
    {"../../tests/e2e/products_by_threads.maco", 1, "", {}},
    {"../../tests/e2e/products_by_threads.maco", 1, "", {{"n", 7}}},
    {"../../tests/e2e/attention_stored.maco", 1, "", {}},
    {"../../tests/e2e/attention_stored.maco", 1, "", {{"n", 2}}},
    {"../../tests/e2e/product_collectives.maco", 2, "", {}},
    {"../../tests/e2e/finished_sums.maco", 2, "", {}},
    {"../../tests/e2e/products_behind.maco", 2, "", {}, {{"2048", "256"}, {"8192", "264"}}},
    {"../../tests/e2e/handed.maco", 2, "", {}, {{"compute: 96", "compute: 4"}}},
    {"../../tests/e2e/handed.maco", 2, "", {{"tokens", 3}}, {{"compute: 96", "compute: 4"}}},
    {"llama32_1b_prefill.maco",
     1,
     "pos",
     {},
     {{"0..16", "0..2"},
      {"x_16", "x_2"},
      {"128256", "1000"},
      {"3072", "384"},
      {"2560", "320"},
      {"2047", "255"},
      {"2048", "256"},
      {"6145)", "385)"},
      {"[8192", "[640"},
      {"256, 8192", "256, 640"},
      {"512]", "64]"}}},
    {"qwen3_8b_decode.maco",
     1,
     "pos",
     {},
     {{"0..36", "0..2"},
      {"x_36", "x_2"},
      {"151936", "1000"},
      {"12288", "640"},
      {"6144", "512"},
      {"5120", "384"},
      {"4096", "256"},
      {"8192", "640"},
      {"1024", "128"},
      {"[32, 128]", "[2, 128]"},
      {"[8, 128]", "[1, 128]"}},
     // Behind five keys references that differ in the order of their sums alone lie farther apart
     // than the bound (docs/benchmarks/correctness.md).
     512},
    {"llama70b_mlp_tp8.maco", 8, "", {}, {{"8192", "512"}, {"3584", "224"}}},
    {"llama70b_mlp_tp8.maco", 8, "", {{"tokens", 1}}, {{"8192", "512"}, {"3584", "224"}}},
    {"llama70b_decode_tp8.maco", 8, "pos", {}, {{"8192", "512"}, {"3584", "224"}, {"4096", "64"}}},
};

// A graph with tiles that meet in every way, for the properties below.
const char* const kMixed = R"(graph mixed(world = 2) {
  dim tokens <= 40
  input x : bf16[tokens, 384]
  param g : bf16[384]
  param w1 : bf16[384, 640]
  param w2 : bf16[640, 384]
  part = slice(w1, axis = 1, begin = 3, end = 50)
  wide = cast(part, dtype = f32)
  own = reduce_scatter(wide)
  output z = allgather(own)
  n = rmsnorm(x, g)
  h = matmul(n, w1, activation = gelu)
  p = matmul(h, w2)
  s = allreduce(p, algorithm = twoshot)
  output y = add(x, s)
})";

std::string check_example(const Device& device, const Example& example,
                          const Placement& placement) {
  tools::RunOptions options;
  options.check = true;
  options.launches = 3;
  options.dims = example.dims;
  if (*example.scalar) options.scalars[example.scalar] = {example.first, true};
  std::string text = test::example_text(device.examples + "/" + example.file);
  if (!device.cuda)
    for (const auto& [from, to] : example.on_cpu) test::replace(text, from, to);
  if (text.find("backend = nccl") != std::string::npos) skip_shared(device, placement);
  const api::Compiled c = compile_text(device, text, placement);
  tools::Console console;
  console.quiet = true;
  if (!tools::check_arguments(c.graph, options, console)) return "arguments";
  runtime::SessionOptions session_options;
  session_options.first_epoch = 0xffffffffu;
  session_options.timeout_ms = 20000;
  runtime::Status status;
  auto session = make_session(device, c.kernel, placement, session_options, status);
  if (!session) return status.message;
  const int result = tools::run_graph(c.graph, *session, options, console);
  return result == tools::kOk ? "" : fmt::format("exit status {}", result);
}

// Outputs of several launches, all of rank 0 and the last rank.
std::vector<std::vector<std::byte>> outputs(const Device& device, const Placement& placement,
                                            bool load_ahead, uint32_t first_epoch) {
  const api::Compiled c = compile_text(device, kMixed, placement, load_ahead);
  runtime::SessionOptions options;
  options.first_epoch = first_epoch;
  options.timeout_ms = 20000;
  runtime::Status status;
  auto session = make_session(device, c.kernel, placement, options, status);
  if (!session) throw std::runtime_error(status.message);
  bind(c.graph, *session, 3);
  std::vector<std::vector<std::byte>> all;
  for (int64_t tokens : {40, 1, 17, 40}) {
    if (status = session->launch({{"tokens", tokens}}); !status)
      throw std::runtime_error(status.message);
    for (const char* name : {"y", "z"})
      for (int rank : {0, static_cast<int>(c.graph.world) - 1})
        all.push_back(read(*session, name, rank));
  }
  return all;
}

}  // namespace

void add_example_cases(const Device& device, std::vector<Case>& cases) {
  for (const Example& e : kExamples) {
    std::string dims;
    for (const auto& [name, n] : e.dims) dims += fmt::format(" {}={}", name, n);
    const char* small = device.cuda || e.on_cpu.empty() ? "" : ", made small,";
    add_cases(device, cases, e.world, fmt::format("example {}{}{}", e.file, dims, small),
              [&device, &e](const Placement& p) { return check_example(device, e, p); });
  }
  add_cases(device, cases, 2, "load-ahead changes no bit", [&device](const Placement& p) {
    return outputs(device, p, true, 1) == outputs(device, p, false, 1) ? "" : "the bits differ";
  });
  add_cases(device, cases, 2, "the same bits every time, epochs that wrap,",
            [&device](const Placement& p) {
              const auto once = outputs(device, p, true, 1);
              for (uint32_t first : {0xfffffffeu, 0x7ffffffeu, 5u})
                if (outputs(device, p, true, first) != once)
                  return fmt::format("the bits differ from epoch {} on", first);
              return std::string();
            });
}

}  // namespace maco::gpu_test
