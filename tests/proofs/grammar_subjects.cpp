#include "tests/proofs/grammar_subjects.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "compiler/ops/collectives/algorithms.h"
#include "compiler/ops/op.h"
#include "ir/program_text.h"
#include "tests/catch.h"
#include "tests/fuzz/random_graph.h"
#include "tests/proofs/grammar_judge.h"

namespace maco::proofs {
namespace {

struct Source {
  int world;
  const char* statements;
};

constexpr Source kSources[] = {
    // Elementwise, each dtype, broadcast and not, rows that dims decide.
    {1, "input x : f32[5, 16]; input u : f32[5, 16]; output y = add(x, u)"},
    {1, "input x : f16[5, 16]; param b : f16[16]; output y = sub(x, b)"},
    {1, "dim t <= 6; input x : bf16[t, 16]; output y = mul(x, value = 0.5)"},
    {1, "input x : i32[7, 5]; input u : i32[7, 5]; output y = maximum(x, u)"},
    {1, "input x : i32[37]; output y = minimum(x, value = 3)"},
    {1, "dim t <= 9; input x : f32[t, 12]; output y = relu(x); output z = gelu(y)"},
    {2, "input x : f16[6, 20]; a = silu(x); output b = tanh(a); output c = sigmoid(a)"},
    {1,
     "dim 2 <= t <= 7; input x : bf16[t, 8]; input u : bf16[t, 8]; s = swiglu(x, u); "
     "output y = exp(s)"},
    {1,
     "input x : f32[6, 12]; input u : bf16[6, 12]; s = sin(x); c = cos(s); e = erf(c); output y = "
     "div(e, u); n = neg(x); a = abs(n); q = sqrt(a); r = rsqrt(q); output z = log(r)"},
    {1,
     "dim t <= 6; input x : f16[t, 16]; input u : f16[t, 16]; m = lt(x, u); output y = where(m, x, "
     "value = 2); p = pow(u, value = 1.5); c = clamp(p, min = 0, max = 4); output z = geglu(c, x)"},
    {1,
     "input x : i32[5, 8]; input u : i32[5, 8]; a = eq(x, u); b = ne(x, value = 3); c = le(x, u); "
     "d = gt(x, u); e = ge(a, b); f = where(c, e, d); output y = where(f, x, u)"},
    {1, "input x : f8e4m3[4, 16]; input u : f8e5m2[4, 16]; output y = add(x, u, dtype = f32)"},
    {1, "input x : f32[700]; a = relu(x); output y = add(a, x); output z = mul(a, y)"},
    // Conversions and movement.
    {1, "input x : f32[6, 8]; a = cast(x, dtype = f8e4m3); output y = cast(a, dtype = f16)"},
    {1, "input x : u8[5, 9]; output y = cast(x, dtype = i32); output z = copy(x)"},
    {2, "input x : i32[5, 8]; output y = cast(x, dtype = u8); output z = allgather(y)"},
    {1, "input x : bf16[3, 4, 5]; output y = transpose(x, perm = [2, 0, 1])"},
    {1, "input x : f32[9, 7]; t = transpose(x); output y = reshape(t, shape = [3, 21])"},
    {1,
     "dim t <= 8; input x : f32[t, 12]; output y = slice(x, axis = 1, begin = 2, end = 11, "
     "step = 3); output z = slice(x, axis = 0, begin = -1)"},
    {3, "input x : f16[9, 4]; output y = slice(x, axis = 0, begin = rank * 2, end = rank * 2 + 2)"},
    {1, "dim t <= 5; input x : f32[t, 4]; input u : f32[3, 4]; output y = concat(x, u, axis = 0)"},
    {1, "input x : f16[4, 6]; input u : bf16[4, 5]; output y = concat(x, u, axis = 1)"},
    {1, "input x : i32[6, 8]; l, r = split(x, axis = 1); output y = add(l, r)"},
    {1, "dim t <= 4; input x : u8[t, 6]; output y = reshape(x, shape = [t * 2, 3])"},
    // Rows.
    {1, "dim t <= 6; input x : f32[t, 24]; param w : f32[24]; output y = rmsnorm(x, w)"},
    {1,
     "input x : f16[5, 16]; param w : f16[16]; param b : f16[16]; output y = layernorm(x, w, b, "
     "eps = 1e-5)"},
    {1, "input x : bf16[6, 40]; output y = softmax(x)"},
    {1, "dim t <= 30; input x : f32[t]; output y = softmax(x); output m = max(x)"},
    {1, "dim t <= 5; input x : f32[t, 20]; output i = argmax(x); output s = sum(x)"},
    {1, "input x : u8[4, 12]; output s = sum(x, dtype = i32); output m = max(x)"},
    {1, "input x : f16[6, 10]; m = mean(x); output y = add(m, m); output i = argmax(x)"},
    // Heads.
    {1,
     "scalar pos in [0, 9); dim t <= 4; input x : f32[t, 16]; output y = rope(x, head_dim = 8, "
     "position = pos)"},
    {1,
     "input x : bf16[5, 16]; input p : i32[5]; output y = rope(x, p, head_dim = 4, interleaved = "
     "true, scaling = {factor: 8.0, low_freq_factor: 1.0, high_freq_factor: 4.0, "
     "original_max_position: 32})"},
    {1,
     "input q : f32[5, 16]; input k : f32[7, 8]; input v : f32[7, 8]; output y = attention(q, k, "
     "v, head_dim = 8, causal = true)"},
    {1,
     "input q : f32[5, 16]; input k : f32[7, 8]; input v : f32[7, 8]; output y = attention(q, k, "
     "v, head_dim = 8, causal = true, window = 3, softcap = 2.5)"},
    {1,
     "scalar pos in [0, 12); dim t <= 4; input q : f16[t, 8]; state k : f16[16, 8]; "
     "k = kv_append(k, q, at = pos); output y = attention(q, k, k, head_dim = 8, causal = true, "
     "length = pos + t)"},
    {1,
     "scalar at in [0, 5); input x : i32[3, 4]; state s : i32[7, 4]; s = kv_append(s, x, at = at); "
     "output y = sum(s)"},
    {1, "dim t <= 6; input i : i32[t]; param table : f32[11, 8]; output y = embedding(table, i)"},
    {2,
     "input i : i32[5]; param table : bf16[9, 4]; e = embedding(table, i); "
     "output y = allreduce(e)"},
    // Matmuls.
    {1, "input x : f32[5, 16]; param w : f32[16, 12]; output y = matmul(x, w)"},
    {1,
     "dim t <= 12; input x : f32[t, 32]; param w : f32[24, 32]; param b : f32[24]; "
     "output y = matmul(x, w, b, transpose_b = true, activation = silu)"},
    {1, "input x : bf16[20, 32]; param w : bf16[32, 16]; output y = matmul(x, w, dtype = f32)"},
    {1,
     "input x : f16[3, 24]; param w : f8e4m3[8, 24]; output y = matmul(x, w, transpose_b = true)"},
    {1, "input x : i32[4, 10]; param w : i32[10, 6]; output y = matmul(x, w)"},
    {1,
     "input x : f32[6, 16]; param w : f32[16, 16]; h = matmul(x, w); a = relu(x); "
     "g = matmul(h, w); output y = add(g, a)"},
    {2,
     "dim t <= 10; input x : f16[t, 16]; param w : f16[16, 16]; h = matmul(x, w, activation = "
     "gelu); "
     "p = matmul(h, w); output y = allreduce(p)"},
    // Collectives.
    {2, "input x : f32[6, 8]; output y = allreduce(x)"},
    {3, "input x : f32[7, 8]; output y = allreduce(x, algorithm = oneshot, reduce = max)"},
    {4, "input x : f16[6, 8]; output y = allreduce(x, algorithm = twoshot)"},
    {3,
     "dim t <= 9; input x : bf16[t, 8]; output y = allreduce(x, algorithm = twoshot, "
     "reduce = avg)"},
    {5, "dim t <= 4; input x : i32[t, 6]; output y = allreduce(x, reduce = min)"},
    {2, "input x : f8e5m2[4, 8]; output y = allreduce(x)"},
    {3, "input x : f16[5, 8]; output y = allreduce(x, algorithm = ring)"},
    {4,
     "dim t <= 9; input x : f8e4m3[t, 8]; output y = allreduce(x, algorithm = ring, reduce = avg)"},
    {1, "input x : f32[4, 8]; output y = allreduce(x); output z = allgather(x)"},
    {2, "dim t <= 6; input x : f32[t, 4]; output y = allgather(x, algorithm = oneshot)"},
    {4, "input x : u8[5, 12]; output y = allgather(x)"},
    {4, "dim t <= 5; input x : f32[t, 4]; output y = allgather(x, algorithm = ring)"},
    {2, "input x : f32[6, 8]; output y = reduce_scatter(x, algorithm = oneshot)"},
    {3, "dim t <= 4; input x : f16[t * 3, 8]; output y = reduce_scatter(x, reduce = avg)"},
    {6, "input x : i32[6, 4]; output y = reduce_scatter(x, reduce = max)"},
    {3, "dim t <= 4; input x : f32[t * 3, 8]; output y = reduce_scatter(x, algorithm = ring)"},
    {3, "input x : f32[6, 8]; output y = alltoall(x)"},
    {2, "dim t <= 5; input x : bf16[2 * t, 6]; output y = alltoall(x)"},
    {8, "input x : i32[8, 3]; output y = alltoall(x)"},
    {3, "dim t <= 8; input x : f32[t, 8]; output y = broadcast(x, root = 2)"},
    {7, "input x : f16[3, 8]; output y = broadcast(x, root = 0, algorithm = oneshot)"},
    {4,
     "dim t <= 8; input x : f32[t, 8]; a = broadcast(x, root = 0, algorithm = twoshot); "
     "output y = broadcast(a, root = 3, algorithm = twoshot)"},
    {4, "input x : f32[5, 8]; output y = ring_shift(x, by = 1)"},
    {3,
     "input x : f32[5, 8]; a = recv(src = rank - 1, shape = [5, 8], dtype = f32, if = rank > 0); "
     "output y = add(a, x); send(y, dst = rank + 1, if = rank < 2)"},
    {2,
     "dim t <= 6; input x : f16[t, 8]; send(x, dst = 1 - rank); "
     "output y = recv(src = 1 - rank, shape = [t, 8], dtype = f16)"},
    {3, "dim t <= 6; input x : u8[t, 8]; output y = ring_shift(x, by = -1)"},
    {8, "input x : f32[3, 4]; output y = allreduce(x, algorithm = twoshot)"},
    // Handed over.
    {3,
     "dim t <= 6; input x : f16[t, 8]; output y = allreduce(x, algorithm = nccl); "
     "output z = allgather(x, algorithm = nccl)"},
    {2,
     "input x : f32[4, 8]; a = reduce_scatter(x, algorithm = nccl); output y = exp(a); "
     "b = alltoall(x, algorithm = nccl); output z = broadcast(b, root = 1, algorithm = nccl)"},
    {3,
     "input x : f32[5, 8]; a = exp(x); b = broadcast(a, root = 1); barrier(); "
     "output y = ring_shift(b, by = 2); set backend = nccl"},
    // Too large for packets.
    {2, "input x : f32[9, 8192]; output y = allgather(x)"},
    {2, "input x : f32[9, 8192]; output y = allreduce(x, algorithm = oneshot)"},
    {2, "input x : f32[18, 8192]; output y = allreduce(x, algorithm = twoshot)"},
    {3, "input x : f32[9, 8192]; output y = allreduce(x, algorithm = ring)"},
    {4, "input x : f32[9, 8192]; output y = allgather(x, algorithm = ring)"},
    {3, "input x : bf16[18, 8192]; output y = reduce_scatter(x, algorithm = ring)"},
    {2, "input x : f16[18, 8192]; output y = reduce_scatter(x)"},
    {2, "dim t <= 9; input x : f32[2 * t, 8192]; output y = alltoall(x)"},
    {3, "input x : f32[9, 8192]; output y = broadcast(x, root = 1)"},
    {3, "input x : f32[9, 8192]; output y = broadcast(x, root = 1, algorithm = twoshot)"},
    {3, "input x : f32[9, 8192]; output y = ring_shift(x, by = 2)"},
    // What orders ops, and what shares memory.
    {2, "input x : f32[5, 8]; output a = exp(x); barrier(); output b = relu(x)"},
    {2,
     "input x : f32[4, 16]; output a = exp(x); output b = relu(x, after = [a]); "
     "output c = allreduce(x, after = [b])"},
    {2,
     "input x : f32[4, 16]; output a = softmax(x, phase = \"first\"); "
     "output b = silu(x, phase = \"then\"); phase first; phase then depends_on first; "
     "set overlap = \"conservative\""},
    {2,
     "input x : f32[4, 16]; a = exp(x); output b = allgather(x, priority = high); "
     "output c = silu(a); set overlap = \"none\""},
    {3,
     "input x : f32[4, 16]; a = exp(x); b = allreduce(a); c = relu(b); d = allreduce(c); "
     "e = tanh(d); output y = allreduce(e, algorithm = twoshot)"},
    {2,
     "input x : f32[6, 64]; a = softmax(x); b = softmax(a); c = softmax(b); output y = softmax(c)"},
    {2,
     "scalar pos in [0, 6); dim t <= 3; input x : f32[t, 16]; param w : f32[16, 16]; "
     "param n : f32[16]; state k : f32[9, 8]; state v : f32[9, 8]; h = rmsnorm(x, n); "
     "q = matmul(h, w); l, r = split(q, axis = 1); k = kv_append(k, l, at = pos); "
     "v = kv_append(v, r, at = pos); o = attention(q, k, v, head_dim = 8, length = pos + t); "
     "p = matmul(o, w); s = allreduce(p); output y = add(x, s)"},
    {1,
     "dim t <= 20; input x : f32[t, 8]; a = exp(x); output y = sum(a); "
     "set sm_roles = {compute: 3}"},
    {2,
     "input x : f32[16, 16]; param w : f32[16, 16]; h = matmul(x, w); g = relu(x); "
     "output y = mul(h, g); set sm_roles = [{sms: [0, 2], role: \"compute\", tasks: [\"matmul\"]}, "
     "{sms: [2, 4], role: \"compute\"}]"},
    {1,
     "input x : f32[6, 16]; param w : f32[16, 16]; h = matmul(x, w); output y = softmax(h); "
     "set sm_roles = [{sms: [0, 2], role: \"compute\", tasks: [\"matmul\"]}, "
     "{sms: [2, 4], role: \"compute\"}]"},
    {2,
     "input x : f32[40, 16]; a = exp(x); b = allreduce(a); output y = relu(b); "
     "region r = [a, b]"},
};

// Every dim and scalar at its maximum, its minimum, in between, and at its maximum again: a slot is
// used again by the launch after the next.
std::vector<runtime::LaunchValues> launches_of(const ir::Graph& g) {
  std::vector<runtime::LaunchValues> launches(4);
  const auto set = [&](const std::string& name, int64_t lo, int64_t hi) {
    const int64_t values[] = {hi, lo, (lo + hi) / 2, hi};
    for (size_t i = 0; i < launches.size(); ++i) launches[i][name] = values[i];
  };
  for (const ir::Dim& d : g.dims) set(d.name, d.min, d.max);
  for (const ir::Tensor& t : g.tensors)
    if (t.kind == ir::TensorKind::Scalar) set(t.name, t.range_lo, t.range_hi - 1);
  return launches;
}

std::string text_of(size_t number, const Source& s) {
  std::string text = fmt::format("graph g{}(world = {}) {{\n  ", number, s.world);
  for (const char c : std::string(s.statements)) {
    if (c == ';')
      text += "\n ";
    else
      text += c;
  }
  return text + "\n}\n";
}

GraphSubject compiled(std::string name, const std::string& text, const api::Options& options) {
  ir::Diagnostics diagnostics;
  auto graph = api::read_graph(name, text, diagnostics);
  INFO(text << diagnostics.render());
  REQUIRE(graph);
  auto made = api::compile(std::move(*graph), options, diagnostics);
  INFO(diagnostics.render());
  REQUIRE(made);
  GraphSubject s{std::move(name),       std::move(made->graph),  options, ir::print(made->program),
                 code_of(made->kernel), launch_of(made->kernel), {}};
  s.launches = launches_of(s.graph);
  return s;
}

}  // namespace

std::vector<GraphSubject> graph_subjects() {
  std::vector<GraphSubject> subjects;
  for (const Source& source : kSources) {
    const size_t number = subjects.size();
    api::Options options;
    options.target = "cpu";
    // Few CTAs; with all CTAs tasks are distributed differently.
    constexpr int64_t kFew = 4;
    options.sms = number % 3 == 2 ? 0 : kFew;
    options.prune = number % 5 != 4;
    subjects.push_back(compiled(fmt::format("g{}", number), text_of(number, source), options));
  }
  for (const uint64_t seed : {3, 50, 99, 130}) {
    api::Options options;
    options.target = "cpu";
    const fuzz::RandomGraph random = fuzz::random_graph(seed);
    subjects.push_back(compiled(fmt::format("seed{}", seed), random.text(), options));
    subjects.back().launches = random.launches;
  }
  return subjects;
}

std::string missing_of(const std::vector<GraphSubject>& subjects) {
  std::set<std::string> wanted, had;
  for (const ops::OpDef& op : ops::all_ops())
    // Kernels of users need Clang; their tests are their own (tests/e2e/cuda_test.py).
    if (!op.internal && op.tile && op.kind != "cuda") {
      wanted.insert(op.kind);
      const bool named = std::any_of(op.attrs.begin(), op.attrs.end(),
                                     [](const ops::AttrSpec& a) { return a.name == "algorithm"; });
      for (const std::string& word :
           named ? ops::algorithm_words(op.kind) : std::vector<std::string>())
        wanted.insert(op.kind + " " + word);
    }
  for (const ir::DType t : ir::kAllDTypes) wanted.insert(std::string(ir::name(t)));
  for (int world = 1; world <= 8; ++world) wanted.insert(fmt::format("{} ranks", world));
  for (const GraphSubject& s : subjects) {
    had.insert(fmt::format("{} ranks", s.graph.world));
    for (const ir::Tensor& t : s.graph.tensors) had.insert(std::string(ir::name(t.dtype)));
    for (const ir::Op& op : s.graph.ops) {
      had.insert(op.kind);
      if (const auto found = op.attrs.find("algorithm"); found != op.attrs.end())
        if (const auto* word = std::get_if<std::string>(&found->second.value))
          had.insert(op.kind + " " + *word);
    }
  }
  std::string missing;
  for (const std::string& what : wanted)
    if (had.count(what) == 0) missing += what + "\n";
  return missing;
}

}  // namespace maco::proofs
