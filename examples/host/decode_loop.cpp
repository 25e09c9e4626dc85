// A language model of one layer with random weights, as two graphs that share its params and
// caches: one reads a prompt, the other gives a token for a token, on a GPU as a CUDA graph that
// finds the position in memory. Some of what they give is compared with prompts that have all
// tokens before it.
//
//   decode_loop [cpu|cuda]
#include <maco/maco.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "cuda_graph.h"

namespace {

using namespace maco::types;

constexpr int64_t kWords = 200, kWide = 64, kHeadDim = 16, kContext = 64, kPrompt = 8, kTokens = 12;

// Reads `rows` tokens at once, which stand at `pos` and on, and gives the word behind the last.
maco::Graph model(const char* name, int64_t rows) {
  maco::GraphBuilder g(name);
  const maco::Expr pos = g.scalar("pos", 0, kContext - rows + 1);
  const auto tokens = g.input("tokens", i32, {rows});
  const auto words = g.param("words", f32, {kWords, kWide});
  const auto weights = [&](const char* of) { return g.param(of, f32, {kWide, kWide}); };
  auto keys = g.state("keys", f32, {kContext, kWide});
  auto values = g.state("values", f32, {kContext, kWide});

  const auto x = g.embedding(words, tokens);
  const auto q = g.rope(g.matmul(x, weights("wq")), {.head_dim = kHeadDim, .position = pos});
  const auto k = g.rope(g.matmul(x, weights("wk")), {.head_dim = kHeadDim, .position = pos});
  keys = g.kv_append(keys, k, pos);
  values = g.kv_append(values, g.matmul(x, weights("wv")), pos);
  const auto seen =
      g.attention(q, keys, values, {.head_dim = kHeadDim, .causal = true, .length = pos + rows});
  const auto y = g.add(x, g.matmul(seen, weights("wo")));
  const auto last = g.slice(y, {.axis = 0, .begin = rows - 1, .end = rows});
  g.output("next", g.argmax(g.matmul(last, words, {.transpose_b = true})));
  return g.build().value();
}

maco::Session open(const maco::Graph& graph, maco::Device device) {
  const bool cpu = device == maco::Device::Cpu;
  const auto kernel = maco::compile(graph, {.target = cpu ? "cpu" : "sm_90a"}).value();
  return maco::Session::open(kernel, {.device = device}).value();
}

// The word behind the tokens; `graph`: of a launch of the session, if there is one.
int32_t run(maco::Session& session, const std::vector<int32_t>& tokens, int64_t pos,
            CudaGraph* graph = nullptr) {
  session.write(0, "tokens", tokens.data(), static_cast<int64_t>(tokens.size() * 4)).value();
  if (graph)
    graph->launch(static_cast<int32_t>(pos));
  else
    session.launch({{"pos", pos}}).value();
  session.wait().value();
  int32_t next = 0;
  session.read(0, "next", &next, sizeof next).value();
  return next;
}

// A launch of the session with the position in the graph's memory.
std::unique_ptr<CudaGraph> capture(maco::Session& session) {
  auto graph = std::make_unique<CudaGraph>();
  void* const streams[] = {graph->stream()};
  graph->begin();
  session.launch({{"pos", maco::value_at(graph->word())}}, streams).value();
  graph->end();
  return graph;
}

int example(maco::Device device) {
  maco::Session prompt = open(model("prompt", kPrompt), device);
  maco::Session step = open(model("step", 1), device);
  prompt.allocate().value();
  uint32_t random = 1;
  for (const maco::TensorInfo& t : prompt.kernel().tensors()) {
    if (t.kind != maco::TensorKind::Param) continue;
    std::vector<float> data(static_cast<size_t>(t.bytes) / sizeof(float));
    for (float& x : data) {
      random = random * 1664525 + 1013904223;
      x = static_cast<float>(random >> 8) / (1 << 23) - 1;
    }
    prompt.write(0, t.name, data.data(), t.bytes).value();
  }
  step.share(prompt).value();
  step.allocate().value();

  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < kPrompt; ++i) tokens.push_back(17 * i % kWords);
  tokens.push_back(run(prompt, tokens, 0));
  const auto graph = device == maco::Device::Cuda ? capture(step) : nullptr;
  while (static_cast<int64_t>(tokens.size()) < kPrompt + kTokens)
    tokens.push_back(
        run(step, {tokens.back()}, static_cast<int64_t>(tokens.size()) - 1, graph.get()));

  // A word is the one that a prompt with all that is before it gives: some of them.
  int wrong = 0, compared = 0;
  for (size_t at = kPrompt; at < tokens.size(); at += 5, ++compared) {
    maco::Session whole = open(model("whole", static_cast<int64_t>(at)), device);
    whole.share(prompt).value();
    whole.allocate().value();
    wrong +=
        run(whole, {tokens.begin(), tokens.begin() + static_cast<int64_t>(at)}, 0) != tokens[at];
  }
  for (int32_t token : tokens) std::printf("%d ", token);
  std::printf("\n%d of %d words are wrong\n", wrong, compared);
  return wrong == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace

int main(int argc, char** argv) {
  const bool cuda = argc > 1 && std::strcmp(argv[1], "cuda") == 0;
  try {
    return example(cuda ? maco::Device::Cuda : maco::Device::Cpu);
  } catch (const std::exception& wrong) {
    std::fprintf(stderr, "%s\n", wrong.what());
    return EXIT_FAILURE;
  }
}
