// Seeded random graphs that fill every field. They have the shape of graphs, not their sense: what
// prints and reads text need not care whether an op exists.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "ir/graph.h"

namespace maco::test {

class RandomGraph {
 public:
  explicit RandomGraph(uint64_t seed) : rng_(seed) {}

  ir::Graph make() {
    std::vector<std::string> names = {
        "x",       "w",   "y",   "h",          "input",        "param",  "state",      "scalar",
        "output",  "set", "dim", "phase",      "region",       "repeat", "pipeline",   "true",
        "false",   "in",  "out", "depends_on", "microbatches", "graph",  "layers.0.w", "layers.1.w",
        "a.b.c_1", "_",   "__x", "e1",         "rank_x",       "auto",   "op",         "name"};
    std::shuffle(names.begin(), names.end(), rng_);
    ir::Graph g;
    g.name = names[0];
    g.world = flip() ? 1 : range(1, 64);
    for (int64_t i = range(0, 3); i > 0; --i) {
      const int64_t min = flip() ? 1 : range(1, 9);
      g.dims.push_back({take(names), min, min + range(0, 1000), {}});
      vars_.push_back(g.dims.back().name);
    }
    for (int64_t i = range(0, 2); i > 0; --i) {
      ir::Tensor scalar;
      scalar.name = take(names);
      scalar.kind = ir::TensorKind::Scalar;
      scalar.range_lo = range(-9, 9);
      scalar.range_hi = scalar.range_lo + range(1, 5000);
      vars_.push_back(scalar.name);
      g.tensors.push_back(scalar);
    }
    for (int64_t i = range(1, 6); i > 0; --i) {
      ir::Tensor t;
      t.name = take(names);
      t.kind = pick({ir::TensorKind::Input, ir::TensorKind::Param, ir::TensorKind::State,
                     ir::TensorKind::Output});
      t.dtype = ir::kAllDTypes[index(ir::kAllDTypes.size())];
      for (int64_t axis = range(1, 4); axis > 0; --axis) t.shape.push_back(expr(2));
      g.tensors.push_back(t);
    }
    std::vector<ir::TensorId> outputs;
    for (size_t i = 0; i < g.tensors.size(); ++i)
      if (g.tensors[i].kind == ir::TensorKind::Output)
        outputs.push_back(ir::id_of<ir::TensorId>(i));
    for (int64_t i = range(0, 6); i > 0; --i) g.ops.push_back(op(g, names, outputs));
    settings(g);
    return g;
  }

  ir::Expr expr(int depth) {
    if (depth == 0 || range(0, 3) == 0) {
      if (flip()) return vars_.empty() ? ir::Expr::var("world") : ir::Expr::var(pick(vars_));
      return range(0, 20) == 0 ? std::numeric_limits<int64_t>::min() : range(-5, 4096);
    }
    const auto kind = static_cast<ir::Expr::Kind>(range(2, 16));
    if (kind == ir::Expr::Kind::Neg || kind == ir::Expr::Kind::Not)
      return ir::Expr::unary(kind, expr(depth - 1));
    return ir::Expr::binary(kind, expr(depth - 1), expr(depth - 1));
  }

 private:
  bool flip() { return (rng_() & 1) != 0; }
  int64_t range(int64_t lo, int64_t hi) {
    return lo + static_cast<int64_t>(rng_() % static_cast<uint64_t>(hi - lo + 1));
  }
  size_t index(size_t n) { return static_cast<size_t>(rng_() % n); }
  template <class T>
  T pick(const std::vector<T>& items) {
    return items[index(items.size())];
  }
  template <class T>
  T pick(std::initializer_list<T> items) {
    return pick(std::vector<T>(items));
  }
  static std::string take(std::vector<std::string>& names) {
    std::string name = names.back();
    names.pop_back();
    return name;
  }
  std::vector<std::string> some_names(int64_t least = 0) {
    std::vector<std::string> result;
    for (int64_t i = range(least, 3); i > 0; --i)
      result.push_back(
          pick<std::string>({"attn", "ar", "true", "false", "layers.0.ffn", "in", "x"}));
    return result;
  }

  double number() {
    double value = 0;
    do {
      const uint64_t bits = rng_();
      std::memcpy(&value, &bits, sizeof value);
    } while (!std::isfinite(value));
    return flip() ? value : pick({1.0, 0.5, -0.0, 1e-5, 1e300, 10000.0, 5e-324, -3.25});
  }
  std::string text() {
    return pick<std::string>({"sum", "true", "a b", "say \"no\"", "back\\slash",
                              "line\nline\ttab\r\b", "# no comment", "", "v0 * v1 + max(v2, 0.0)",
                              "12", "1.5", "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", "{i}",
                              std::string("\x01\x1f\x7f")});
  }
  ir::AttrValue attribute() {
    switch (range(0, 5)) {
      case 0: return flip();
      case 1: return expr(3);
      case 2: return number();
      case 3: return text();
      case 4: {
        std::vector<ir::Expr> list;
        for (int64_t i = range(0, 3); i > 0; --i) list.push_back(expr(1));
        return list;
      }
      default:
        return std::map<std::string, double>{
            {"factor", number()}, {"low_freq_factor", number()}, {"true", number()}};
    }
  }

  ir::Op op(ir::Graph& g, std::vector<std::string>& names, std::vector<ir::TensorId>& outputs) {
    ir::Op o;
    o.kind = pick<std::string>({"matmul", "add", "set", "fused", "repeat", "barrier"});
    for (int64_t i = range(0, 3); i > 0; --i)
      o.in.push_back(ir::id_of<ir::TensorId>(index(g.tensors.size())));
    for (int64_t i = range(0, 3); i > 0; --i) {
      if (!outputs.empty() && flip()) {
        o.out.push_back(outputs.back());
        outputs.pop_back();
      } else if (names.size() > 4) {
        ir::Tensor t;
        t.name = take(names);
        o.out.push_back(ir::id_of<ir::TensorId>(g.tensors.size()));
        g.tensors.push_back(t);
      }
    }
    o.named = flip();
    if (o.named) o.name = pick<std::string>({"down", "true", "layers.0.ffn", "set"});
    for (int64_t i = range(0, 3); i > 0; --i)
      o.attrs[pick<std::string>({"axis", "if", "eps", "true", "body", "epilogue", "scaling",
                                 "from"})] = {attribute(), {}};
    if (flip()) o.dtype = ir::kAllDTypes[index(ir::kAllDTypes.size())];
    o.after = some_names();
    if (flip()) o.phase = pick<std::string>({"qkv", "true"});
    if (flip())
      o.overlap = pick({ir::Overlap::None, ir::Overlap::Conservative, ir::Overlap::Aggressive});
    if (flip()) o.overlap_group = pick<std::string>({"mlp", "a.b"});
    o.priority = pick({ir::Priority::Low, ir::Priority::Normal, ir::Priority::High});
    return o;
  }

  ir::Roles roles() {
    switch (range(0, 2)) {
      case 0: return ir::RoleAuto{};
      case 1: {
        ir::RoleCounts counts;
        counts.compute = range(1, 132);
        if (flip()) counts.comm = range(0, 32);
        if (flip()) counts.scheduler = range(1, 4);
        return counts;
      }
      default: {
        std::vector<ir::RoleRange> ranges;
        for (int64_t i = range(1, 3); i > 0; --i)
          ranges.push_back({range(0, 60),
                            range(61, 132),
                            pick<std::string>({"compute", "comm"}),
                            some_names(),
                            {}});
        return ranges;
      }
    }
  }

  void settings(ir::Graph& g) {
    if (flip()) {
      g.sm_roles.value = roles();
    } else {
      std::vector<ir::RoleVariant> variants;
      for (int64_t i = range(1, 2); i > 0; --i) variants.push_back({expr(2), roles(), {}});
      variants.push_back({std::nullopt, roles(), {}});
      g.sm_roles.value = std::move(variants);
    }
    g.schedule = pick({ir::Schedule::Static, ir::Schedule::Dynamic});
    g.overlap = pick({ir::Overlap::None, ir::Overlap::Conservative, ir::Overlap::Aggressive});
    for (int64_t i = range(0, 2); i > 0; --i)
      g.overlap_regions.push_back({pick<std::string>({"r", "region", "true"}), some_names(1), {}});
    for (int64_t i = range(0, 3); i > 0; --i)
      g.phases.push_back({pick<std::string>({"qkv", "depends_on", "true"}), some_names(), {}});
    if (flip()) {
      ir::Pipeline p;
      for (int64_t i = range(1, 3); i > 0; --i) p.stages.push_back(some_names(1));
      p.microbatches = range(1, 8);
      g.pipeline = p;
    }
    g.backend = pick({ir::Backend::P2P, ir::Backend::Nccl, ir::Backend::Nvshmem});
    if (flip()) g.comm_buffer_bytes = range(0, int64_t{1} << 40);
  }

  std::mt19937_64 rng_;
  std::vector<std::string> vars_ = {"world"};
};

}  // namespace maco::test
