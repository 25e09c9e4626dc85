// Makes a random graph op by op. Each op takes existing values, most likely recent ones, or new
// inputs, and looks at what is known of them: extents, dtype, how large they get, whether they are
// exact. The ops are in random_compute.cpp and random_movement.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/fuzz/random_graph.h"
#include "tests/fuzz/random_values.h"

namespace maco::fuzz {

using ir::DType;

class Maker {
 public:
  explicit Maker(uint64_t seed) : r_(seed * 0x2545f4914f6cdd1du + 80) {
    g_.seed = seed;
    g_.plan = plan_of(seed);
    world_ = g_.plan.world;
  }
  RandomGraph make();

 private:
  // --- sizes -----------------------------------------------------------------

  void choose_sizes();
  int64_t width() {
    return r_.chance(85) ? r_.pick(widths_) : r_.pick<int64_t>({1, 4, 5, 7, 16, 32, 65});
  }
  Extent fixed_rows() {
    return {r_.chance(85) ? r_.pick(rows_) : r_.pick<int64_t>({1, 2, 3, 7, 17}), 0, 0};
  }
  Extent rows();
  int64_t most_of(const Extent& e) const;
  int64_t least_of(const Extent& e) const;
  int64_t most_elements(const Shape& s) const {
    return std::accumulate(s.begin(), s.end(), int64_t{1},
                           [&](int64_t n, const Extent& e) { return n * most_of(e); });
  }
  int64_t least_elements(const Shape& s) const {
    return std::accumulate(s.begin(), s.end(), int64_t{1},
                           [&](int64_t n, const Extent& e) { return n * least_of(e); });
  }
  bool fits(const Shape& s) const { return most_elements(s) <= (huge_ ? 140000 : 40000); }

  // --- declarations ----------------------------------------------------------

  std::string fresh(const char* prefix) { return fmt::format("{}{}", prefix, ++count_); }
  void declare(const std::string& name, std::string statement) {
    g_.declarations.emplace_back(name, std::move(statement));
  }
  static std::string shape_text(const Shape& s);
  std::string tensor(const char* prefix, const char* kind, DType dtype, const Shape& shape);
  std::string param(DType dtype, const std::vector<int64_t>& extents);
  Value input(DType dtype, const Shape& shape);
  Value random_input(DType dtype);
  DType other_float(DType t) {
    return r_.chance(25) ? r_.pick<DType>({DType::F32, DType::F16, DType::BF16}) : t;
  }
  DType some_dtype() {
    return r_.chance(65) ? g_.plan.dtype
                         : r_.pick<DType>({DType::F32, DType::F16, DType::BF16, DType::I32});
  }
  DType some_float() {
    const DType t = some_dtype();
    return is_float(t) ? t : DType::F32;
  }
  std::string scalar();

  // --- values ----------------------------------------------------------------

  // A value of `dtype` that `accept` takes, most likely a recent one; else a new input, with a
  // shape from `shape` that `accept` must take.
  using Accept = std::function<bool(const Value&)>;
  bool has_dims(const Value& v) const { return !needs_dims_ || !v.constant(); }
  Value pick(DType dtype, const Accept& accept, const std::function<Shape()>& shape = {});
  Value any(DType t) {
    return pick(t, [&](const Value& v) { return fits(v.shape) && v.most <= 3000; });
  }
  Value matrix(DType t, double most = 3000);
  Value rows_of(DType t, double most = 3000, bool uneven = false);
  Value emit(const std::string& feature, const std::vector<std::string>& in,
             std::vector<std::string> attrs, Value result, int outs = 1);
  // An op's `dtype`, most often left out.
  DType typed(DType t, std::vector<std::string>& attrs);
  // The same values, most often of the same type.
  Value converted(Value v, std::vector<std::string>& attrs) {
    v.dtype = typed(v.dtype, attrs);
    return v;
  }
  static Value computed(DType t, Shape shape, double most, bool positive = false) {
    return {"", t, std::move(shape), most, !is_float(t), positive, 0};
  }
  Value moved(const Value& v, Shape shape);

  // --- ops -------------------------------------------------------------------

  std::string some_collective() {
    return r_.word({"allreduce auto", "allreduce oneshot", "allreduce twoshot", "allreduce ring",
                    "allgather", "reduce_scatter", "alltoall", "broadcast", "ring_shift"});
  }
  std::string glue();
  void step(const std::string& f);
  void copy(DType t);
  void softmax(DType t);
  void matmul(DType t);
  void binary(const std::string& f, DType t);
  void unary(const std::string& f, DType t);
  // A value of that shape with numbers from 0.5 to 1.5.
  Value near_one(DType t, const Value& of);
  void of_positive(const std::string& f, DType t);
  // A comparison of values that no op has rounded: comparing nearly equal numbers may give either
  // result.
  void comparison(const std::string& f, DType t);
  void where(DType t);
  void clamp(DType t);
  void gated(const std::string& f, DType t);
  void norm(const std::string& f, DType t);
  // Extents of heads that cut rows of `n`.
  std::vector<int64_t> heads(int64_t n, bool even);
  Value with_heads(DType t, bool even, double most);
  std::pair<Value, int64_t> heads_of_product(DType t);
  void rope(DType t);
  void attention(DType t);
  void scores(bool causal, std::vector<std::string>& attrs);
  void kv_append(DType t);
  void change_state(const std::string& f, std::vector<std::string> in,
                    std::vector<std::string> attrs);
  // state += value, over launches.
  void accumulate();
  void embedding(DType t);
  void argmax(DType t);
  void reduction(const std::string& f, DType t);
  void cast(DType t);
  void reshape(DType t);
  void transpose(DType t);
  // A random axis that `accept` takes, or nothing; and how it is written.
  std::optional<size_t> axis_of(const Value& v, const std::function<bool(const Extent&)>& accept);
  std::string axis_text(const Value& v, size_t axis) {
    const auto a = static_cast<int64_t>(axis);
    return fmt::format("axis = {}", r_.chance(50) ? a : a - static_cast<int64_t>(v.axes()));
  }
  void slice(DType t);
  void concat(DType t);
  void split(DType t);
  void collective(const std::string& f, DType t);
  void message(const std::string& f, DType t);

  // --- what isn't data -------------------------------------------------------

  static std::string name_of(const OpText& op) { return op.name.empty() ? op.out[0] : op.name; }
  std::string ranges(int64_t compute, int64_t comm);
  void settings();
  void launches();

  struct DimRange {
    std::string name;
    int64_t min, max;
  };
  Random r_;
  RandomGraph g_;
  int64_t world_ = 1;
  std::vector<DimRange> dims_;
  std::vector<int64_t> rows_, widths_;
  bool huge_ = false, scalar_ = false, needs_dims_ = false;
  std::vector<Value> values_;
  std::set<std::string> read_;
  int count_ = 0;
};

}  // namespace maco::fuzz
