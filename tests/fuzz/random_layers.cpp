#include "tests/fuzz/random_layers.h"

#include <fmt/format.h>

#include <set>
#include <vector>

#include "tests/fuzz/random_values.h"

namespace maco::fuzz {

namespace {

/// [rows, columns] of a number of rows, `dim` times as many if there is one.
struct Value {
  std::string name;
  int64_t rows = 1, columns = 1;
};

class Layers {
 public:
  explicit Layers(uint64_t seed) : r_(seed * 0x2545f4914f6cdd1du + 58), seed_(seed) {}

  std::string text() {
    world_ = 1 + static_cast<int64_t>(seed_ % 4);
    dim_ = r_.chance(30);
    dtype_ = r_.word({"bf16", "bf16", "f16", "f32"});
    x_ = {"x", r_.pick<int64_t>({1, 1, 2, 3, 8, 16, 64, 128, 256}),
          r_.pick<int64_t>({32, 64, 128, 256, 512})};
    if (dim_) declare("dim tokens <= {}", r_.range(1, 4));
    declare("input x : {}", type(x_.rows, x_.columns));
    const int64_t steps = r_.range(2, 8);
    for (int64_t i = 0; i < steps; ++i) step();
    if (r_.chance(world_ > 1 ? 60 : 20)) collective();
    results_.erase(x_.name);
    for (const std::string& name : results_) statement("output y{} = copy({})", count_++, name);
    statement("output y = {}({})", r_.word({"copy", "silu", "softmax"}), x_.name);
    settings();
    return fmt::format("graph layers(world = {}) {{\n{}{}}}\n", world_, declarations_, statements_);
  }

 private:
  template <class... Args>
  void declare(fmt::format_string<Args...> text, Args&&... args) {
    declarations_ += "  " + fmt::format(text, std::forward<Args>(args)...) + "\n";
  }
  template <class... Args>
  void statement(fmt::format_string<Args...> text, Args&&... args) {
    statements_ += "  " + fmt::format(text, std::forward<Args>(args)...) + "\n";
  }
  std::string type(int64_t rows, int64_t columns) const {
    return fmt::format("{}[{}{}, {}]", dtype_, dim_ ? "tokens * " : "", rows, columns);
  }
  std::string weight(const std::string& shape) {
    const std::string name = fmt::format("w{}", count_++);
    declare("param {} : {}[{}]", name, dtype_, shape);
    return name;
  }
  /// The next value, of an op that is written as `op`.
  void becomes(const std::string& op, int64_t rows, int64_t columns) {
    if (r_.chance(15)) results_.insert(x_.name);
    const std::string name = fmt::format("t{}", count_++);
    std::string named;
    if (r_.chance(10)) named = fmt::format(" @op_{}", name);
    statement("{} = {}{}", name, op, named);
    x_ = {name, rows, columns};
  }
  void becomes(const std::string& op) { becomes(op, x_.rows, x_.columns); }

  void step() {
    switch (r_.below(12)) {
      case 0:
      case 1:
      case 2:
      case 3: return product();
      case 4: return becomes(fmt::format("softmax({})", x_.name));
      case 5:
        return becomes(
            fmt::format("{}({})", r_.word({"silu", "gelu", "relu", "sigmoid"}), x_.name));
      case 6:
        return becomes(fmt::format("rmsnorm({}, {})", x_.name, weight(fmt::to_string(x_.columns))));
      case 7: return layernorm();
      case 8: return becomes(fmt::format("mul({}, value = 0.5)", x_.name));
      case 9: return attention();
      case 10: return residual();
      default: return collective();
    }
  }
  void product() {
    const int64_t columns = r_.pick<int64_t>({32, 64, 128, 256, 512, 1024});
    const bool transposed = r_.chance(70);
    const std::string w = weight(transposed ? fmt::format("{}, {}", columns, x_.columns)
                                            : fmt::format("{}, {}", x_.columns, columns));
    std::string rest = transposed ? ", transpose_b = true" : "";
    if (r_.chance(20)) rest = ", " + weight(fmt::to_string(columns)) + rest;
    if (r_.chance(20)) rest += fmt::format(", activation = {}", r_.word({"silu", "relu", "gelu"}));
    becomes(fmt::format("matmul({}, {}{})", x_.name, w, rest), x_.rows, columns);
  }
  void layernorm() {
    const std::string n = fmt::to_string(x_.columns), w = weight(n);
    becomes(fmt::format("layernorm({}, {}, {})", x_.name, w, weight(n)));
  }
  void attention() {
    if (dim_) return product();
    const int64_t head = r_.pick<int64_t>({32, 64}), keys = r_.pick<int64_t>({64, 128, 256});
    if (x_.columns % head != 0) return product();
    const std::string k = weight(fmt::format("{}, {}", keys, head));
    std::string rest;
    if (keys >= x_.rows && r_.chance(50)) {
      rest = ", causal = true";
      if (r_.chance(40)) rest += fmt::format(", window = {}", r_.pick<int64_t>({1, 20, 64, 150}));
    }
    if (r_.chance(20)) rest += ", softcap = 20";
    becomes(fmt::format("attention({}, {}, {}, head_dim = {}{})", x_.name, k,
                        weight(fmt::format("{}, {}", keys, head)), head, rest));
  }
  void residual() {
    const Value before = x_;
    product();
    const std::string w = weight(fmt::format("{}, {}", before.columns, x_.columns));
    becomes(fmt::format("matmul({}, {}, transpose_b = true)", x_.name, w), x_.rows, before.columns);
    if (r_.chance(50)) collective_sum();
    becomes(fmt::format("add({}, {})", x_.name, before.name));
  }
  std::string algorithm() {
    return r_.chance(70) ? ""
                         : fmt::format(", algorithm = {}",
                                       r_.word({"auto", "oneshot", "oneshot", "twoshot", "ring"}));
  }
  void collective_sum() {
    becomes(fmt::format("allreduce({}, reduce = {}{})", x_.name, r_.word({"sum", "max", "avg"}),
                        algorithm()));
  }
  void collective() {
    constexpr int64_t kMostRows = 1024;
    switch (r_.below(8)) {
      case 0:
        if (x_.rows * world_ > kMostRows) break;
        return becomes(fmt::format("allgather({})", x_.name), x_.rows * world_, x_.columns);
      case 1:
        if (x_.rows % world_ != 0) break;
        return becomes(fmt::format("reduce_scatter({}, reduce = sum)", x_.name), x_.rows / world_,
                       x_.columns);
      case 2:
        if (x_.rows % world_ != 0) break;
        return becomes(fmt::format("alltoall({})", x_.name));
      case 3: return becomes(fmt::format("broadcast({}, root = {})", x_.name, world_ - 1));
      case 4: return becomes(fmt::format("ring_shift({})", x_.name));
      case 5: return statement("barrier()");
      default: break;
    }
    collective_sum();
  }

  void settings() {
    constexpr int64_t kSms = 8;  // as many as every target has
    switch (r_.below(8)) {
      case 0:
        statement("set sm_roles = {{compute: {}, comm: {}}}", r_.range(1, 6), r_.range(0, 2));
        break;
      case 1: statement("set sm_roles = [{{sms: [0, {}], role: compute}}]", kSms); break;
      case 2: {
        const int64_t compute = r_.range(1, kSms - 1);
        statement("set sm_roles = [{{sms: [0, {}], role: compute}}, {{sms: [{}, {}], role: comm}}]",
                  compute, compute, kSms);
        break;
      }
      default: break;
    }
    if (r_.chance(40))
      statement("set overlap = {}", r_.word({"none", "conservative", "aggressive"}));
    if (r_.chance(20)) statement("set backend = {}", r_.word({"nccl", "nvshmem"}));
    if (r_.chance(10)) statement("set comm_buffer_bytes = {}", 1 << r_.range(18, 24));
  }

  Random r_;
  const uint64_t seed_;
  int64_t world_ = 1;
  bool dim_ = false;
  std::string dtype_;
  Value x_;
  int count_ = 0;
  std::set<std::string> results_;  // that are outputs besides the last
  std::string declarations_, statements_;
};

}  // namespace

std::string random_layers(uint64_t seed) { return Layers(seed).text(); }

}  // namespace maco::fuzz
