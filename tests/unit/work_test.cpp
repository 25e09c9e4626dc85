// Work follows the actual value of a dim: what tasks read, write and send to peers at one row is a
// small part of what they do at the maximum. Counted, not timed, by the CPU target's check of
// accesses.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "compiler/api/compile.h"
#include "compiler/frontend/frontend.h"
#include "compiler/ops/op.h"
#include "runtime/cpu/session.h"
#include "tests/catch.h"

namespace maco {
namespace {

using runtime::Traffic;

// Every op, with rows that a dim decides.
constexpr const char* kGraph = R"(graph work(world = 2) {
  dim tokens <= 64
  scalar pos in [0, 16)
  input x : f32[tokens, 64]
  input two : f32[2 * tokens, 64]
  input ids : i32[tokens]
  param w : f32[64, 48]
  param g : f32[64]
  param h : f32[64]
  param table : f32[32, 64]
  state cache : f32[80, 64]

  output o_matmul = matmul(x, w)
  output o_add = add(x, x)
  output o_sub = sub(x, g)
  output o_mul = mul(x, value = 2)
  output o_maximum = maximum(x, g)
  output o_minimum = minimum(x, g)
  output o_relu = relu(x)
  output o_silu = silu(x)
  output o_gelu = gelu(x)
  output o_sigmoid = sigmoid(x)
  output o_tanh = tanh(x)
  output o_exp = exp(x)
  output o_div = div(x, g)
  output o_pow = pow(x, value = 2)
  output o_eq = eq(x, g)
  output o_ne = ne(x, x)
  output o_lt = lt(x, value = 0)
  output o_le = le(x, x)
  output o_gt = gt(x, x)
  output o_ge = ge(x, x)
  output o_log = log(x)
  output o_sqrt = sqrt(x)
  output o_rsqrt = rsqrt(x)
  output o_sin = sin(x)
  output o_cos = cos(x)
  output o_erf = erf(x)
  output o_neg = neg(x)
  output o_abs = abs(x)
  output o_clamp = clamp(x, min = 0)
  output o_where = where(o_eq, x, value = 0)
  output o_swiglu = swiglu(x, x)
  output o_geglu = geglu(x, x)
  output o_rmsnorm = rmsnorm(x, g)
  output o_layernorm = layernorm(x, g, h)
  output o_softmax = softmax(x)
  output o_rope = rope(x, head_dim = 16, position = pos)
  output o_attention = attention(x, x, x, head_dim = 16)
  cache = kv_append(cache, x, at = pos)
  output o_embedding = embedding(table, ids)
  output o_argmax = argmax(x)
  output o_sum = sum(x)
  output o_mean = mean(x)
  output o_max = max(x)
  output o_cast = cast(x, dtype = bf16)
  output o_copy = copy(x)
  output o_reshape = reshape(x, shape = [tokens, 4, 16])
  output o_transpose = transpose(o_reshape, perm = [0, 2, 1])
  output o_slice = slice(x, axis = 1, begin = 0, end = 32)
  output o_concat = concat(x, x, axis = 1)
  l, r = split(x, axis = 1)
  output o_split = add(l, r)

  output o_allreduce = allreduce(x, algorithm = oneshot)
  output o_twoshot = allreduce(x, algorithm = twoshot)
  output o_allgather = allgather(x)
  output o_reduce_scatter = reduce_scatter(two)
  output o_alltoall = alltoall(two)
  output o_broadcast = broadcast(x, root = 1)
  output o_ring_shift = ring_shift(x, by = 1)
  send(x, dst = 1 - rank) @o_send
  output o_recv = recv(src = 1 - rank, shape = [tokens, 64], dtype = f32)
})";

// By op of the graph.
using Work = std::map<std::string, Traffic>;

class Counter {
 public:
  Counter() {
    ir::Diagnostics diagnostics;
    const auto graph = frontend::parse_dsl(diagnostics.add_file("work.maco", kGraph), diagnostics);
    api::Options options;
    options.target = "cpu";
    options.fuse = false;
    auto compiled = graph ? api::compile(*graph, options, diagnostics) : std::nullopt;
    INFO(diagnostics.render());
    REQUIRE(compiled);
    program_ = compiled->program;
    runtime::SessionOptions how;
    how.check_access = true;
    how.replay = 1;
    runtime::Status status;
    session_ = runtime::make_cpu_session(compiled->kernel, how, status);
    INFO(status.message);
    REQUIRE(session_);
    REQUIRE(session_->set_regions(program_));
  }
  const ir::Program& program() const { return program_; }
  Work at(int64_t tokens) {
    const runtime::Status status = session_->launch({{"tokens", tokens}, {"pos", 3}});
    INFO(status.message);
    REQUIRE(status.ok);
    const std::vector<Traffic> traffic = session_->traffic();
    REQUIRE(traffic.size() == program_.calls.size());
    Work work;
    for (size_t c = 0; c < traffic.size(); ++c) {
      Traffic& of = work[program_.calls[c].op];
      of.read += traffic[c].read;
      of.written += traffic[c].written;
      of.to_peers += traffic[c].to_peers;
    }
    return work;
  }

 private:
  ir::Program program_;
  std::unique_ptr<runtime::CpuSession> session_;
};

}  // namespace

TEST_CASE("what tasks read, write and send follows the actual rows") {
  Counter counter;
  const Work one = counter.at(1), half = counter.at(32), all = counter.at(64);
  std::set<std::string> kinds;
  for (const ir::Call& call : counter.program().calls) {
    kinds.insert(call.op_kind);
    const std::string& op = call.op;
    CAPTURE(op);
    const Traffic &a = one.at(op), &b = half.at(op), &c = all.at(op);
    INFO(fmt::format("read {} {} {}, written {} {} {}, to peers {} {} {}", a.read, b.read, c.read,
                     a.written, b.written, c.written, a.to_peers, b.to_peers, c.to_peers));
    CHECK(a.read * 4 <= c.read);
    CHECK(a.read < b.read);
    CHECK(b.read < c.read);
    // Only the rows are written: bytes grow in proportion, but for what packets round up.
    CHECK(a.written > 0);
    CHECK(a.written * 32 <= c.written);
    CHECK(b.written * 2 == c.written);
    CHECK(b.to_peers * 2 == c.to_peers);
    CHECK(a.to_peers * 32 <= c.to_peers);
  }
  // An op that is missing above has to come in: all but those that passes make, the barrier, which
  // has no rows, and kernels of users (tests/e2e/cuda_test.py).
  for (const ops::OpDef& def : ops::all_ops()) {
    CAPTURE(def.kind);
    CHECK((def.internal || def.kind == "barrier" || def.kind == "cuda" ||
           kinds.count(def.kind) == 1));
  }
  for (const ir::Collective& c : counter.program().collectives) {
    CAPTURE(c.op);
    CHECK(all.at(c.sender.empty() ? c.op : c.sender).to_peers > 0);
  }
}

}  // namespace maco
