// random_graph.cpp: a graph is made op by op. Each op takes values that are there, most likely
// recent ones, or new inputs, and looks at what it is told of them: extents, dtype, how large they
// get, whether they are exact.
#include "tests/fuzz/random_graph.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "compiler/ops/op.h"

namespace maco::fuzz {

namespace {

using ir::DType;

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  int64_t range(int64_t lo, int64_t hi) {
    return lo + static_cast<int64_t>(next() % static_cast<uint64_t>(hi - lo + 1));
  }
  bool chance(int percent) { return range(0, 99) < percent; }
  template <class T>
  const T& pick(const std::vector<T>& items) {
    return items[static_cast<size_t>(next() % items.size())];
  }
  std::string word(std::initializer_list<const char*> words) {
    return words.begin()[next() % words.size()];
  }
  template <class T>
  void shuffle(std::vector<T>& items) {
    for (size_t i = items.size(); i > 1; --i)
      std::swap(items[i - 1], items[static_cast<size_t>(next() % i)]);
  }

 private:
  uint64_t state_;
};

// tokens * `tokens` + batch * `batch` + fixed.
struct Extent {
  int64_t fixed = 0, tokens = 0, batch = 0;
  bool constant() const { return tokens == 0 && batch == 0; }
  bool divisible(int64_t n) const { return fixed % n == 0 && tokens % n == 0 && batch % n == 0; }
  Extent times(int64_t n) const { return {fixed * n, tokens * n, batch * n}; }
  Extent over(int64_t n) const { return {fixed / n, tokens / n, batch / n}; }
  Extent plus(const Extent& o) const {
    return {fixed + o.fixed, tokens + o.tokens, batch + o.batch};
  }
  std::string text() const {
    std::string s;
    const auto add = [&](int64_t n, const char* name) {
      if (n == 0) return;
      s += s.empty() ? "" : " + ";
      s += *name == 0 ? fmt::to_string(n) : n == 1 ? name : fmt::format("{} * {}", n, name);
    };
    add(tokens, "tokens");
    add(batch, "batch");
    add(fixed, "");
    return s;
  }
  friend bool operator==(const Extent&, const Extent&) = default;
};
using Shape = std::vector<Extent>;

struct Value {
  std::string name;
  DType dtype = DType::F32;
  Shape shape;
  double most = 5;  // about the largest magnitude
  // the same bits whoever computes it: bound, or moved or converted from that, or integers
  bool exact = false;
  bool positive = false;
  int64_t below = 0;  // not 0: integers from 0 to below this

  size_t axes() const { return shape.size(); }
  bool constant() const { return shape[0].constant(); }
  int64_t last() const { return shape.back().constant() ? shape.back().fixed : 0; }
};

const std::vector<std::string> kBinary = {"add", "sub", "mul", "maximum", "minimum"};
const std::vector<std::string> kUnary = {"relu", "silu", "gelu", "sigmoid", "tanh", "exp"};
template <class T>
bool contains(const std::vector<T>& list, const T& item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

class Maker {
 public:
  explicit Maker(uint64_t seed) : r_(seed * 0x2545f4914f6cdd1du + 77) {
    g_.seed = seed;
    g_.plan = plan_of(seed);
    world_ = g_.plan.world;
  }

  RandomGraph make() {
    choose_sizes();
    std::vector<std::string> steps = g_.plan.forced;
    while (steps.size() < 8) steps.push_back(glue());
    for (int64_t more = r_.range(0, 2); more > 0; --more) steps.push_back(glue());
    r_.shuffle(steps);
    for (const std::string& feature : steps) step(feature);
    settings();
    launches();
    for (const OpText& op : g_.ops)
      for (const std::string& out : op.out)
        if (!op.changes_state && r_.chance(15)) g_.outputs_anyway.push_back(out);
    return std::move(g_);
  }

 private:
  // --- sizes -----------------------------------------------------------------

  void choose_sizes() {
    const bool big = r_.chance(75);
    for (int i = 0; i < 2; ++i)
      rows_.push_back(big ? r_.pick<int64_t>({31, 33, 64, 65, 67, 96, 100, 130})
                          : r_.pick<int64_t>({1, 2, 3, 5, 7, 8, 13, 16, 31}));
    for (int i = 0; i < 3; ++i)
      widths_.push_back(big ? r_.pick<int64_t>({32, 40, 48, 64, 72, 80, 96, 97, 128, 160})
                            : r_.pick<int64_t>({4, 6, 8, 12, 13, 16, 24, 31, 40}));
    if (r_.chance(6)) {  // more than travels in packets
      rows_[0] = 257;
      widths_[0] = 264;
      huge_ = true;
    }
    if (!g_.plan.dims) return;
    const int64_t most = big ? r_.range(24, 100) : r_.range(2, 17);
    dims_.push_back({"tokens", r_.chance(80) ? 1 : r_.range(1, most), most});
    if (r_.chance(30)) dims_.push_back({"batch", 1, r_.range(2, 9)});
    for (const auto& d : dims_)
      declare(d.name, d.min > 1 ? fmt::format("dim {} <= {} <= {}", d.min, d.name, d.max)
                                : fmt::format("dim {} <= {}", d.name, d.max));
  }
  int64_t width() {
    return r_.chance(85) ? r_.pick(widths_) : r_.pick<int64_t>({1, 4, 5, 7, 16, 32, 65});
  }
  Extent fixed_rows() {
    return {r_.chance(85) ? r_.pick(rows_) : r_.pick<int64_t>({1, 2, 3, 7, 17}), 0, 0};
  }
  Extent rows() {
    if (dims_.empty() || (!needs_dims_ && r_.chance(40))) return fixed_rows();
    if (dims_.size() > 1 && r_.chance(25)) return {0, 0, r_.range(1, 3)};
    if (r_.chance(15)) return {r_.range(1, 3), r_.range(1, 2), 0};
    return {0, 1, 0};
  }
  int64_t most_of(const Extent& e) const {
    int64_t n = e.fixed;
    for (const auto& d : dims_) n += d.max * (d.name == "tokens" ? e.tokens : e.batch);
    return n;
  }
  int64_t least_of(const Extent& e) const {
    int64_t n = e.fixed;
    for (const auto& d : dims_) n += d.min * (d.name == "tokens" ? e.tokens : e.batch);
    return n;
  }
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
  static std::string shape_text(const Shape& s) {
    std::vector<std::string> entries;
    for (const Extent& e : s) entries.push_back(e.text());
    return fmt::format("[{}]", fmt::join(entries, ", "));
  }
  std::string tensor(const char* prefix, const char* kind, DType dtype, const Shape& shape) {
    const std::string name = fresh(prefix);
    declare(name, fmt::format("{} {} : {}{}", kind, name, ir::name(dtype), shape_text(shape)));
    return name;
  }
  std::string param(DType dtype, const std::vector<int64_t>& extents) {
    Shape s;
    for (int64_t n : extents) s.push_back({n, 0, 0});
    return tensor("w", "param", dtype, s);
  }
  Value input(DType dtype, const Shape& shape) {
    Value v{tensor("x", "input", dtype, shape), dtype, shape, 5, true, false, 0};
    if (!is_float(dtype)) v.most = 8;
    values_.push_back(v);
    return v;
  }
  Value random_input(DType dtype) {
    const int64_t axes = r_.pick<int64_t>({1, 2, 2, 2, 2, 2, 3, 4});
    if (axes == 1)
      return input(dtype, {dims_.empty() || (!needs_dims_ && r_.chance(60)) ? Extent{width(), 0, 0}
                                                                            : rows()});
    Shape s = {rows()};
    for (int64_t a = 2; a < axes; ++a) s.push_back({r_.range(1, 3), 0, 0});
    s.push_back({width(), 0, 0});
    while (!fits(s)) s[0] = {5, 0, 0};
    return input(dtype, s);
  }
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
  std::string scalar() {
    if (!scalar_) declare("pos", "scalar pos in [0, 24)");
    scalar_ = true;
    return "pos";
  }

  // --- values ----------------------------------------------------------------

  // A value of `dtype` that `accept` takes, most likely a recent one; else a new input of a shape
  // that `shape` gives, which it must take.
  using Accept = std::function<bool(const Value&)>;
  bool has_dims(const Value& v) const { return !needs_dims_ || !v.constant(); }
  Value pick(DType dtype, const Accept& accept, const std::function<Shape()>& shape = {}) {
    std::vector<const Value*> found;
    for (const Value& v : values_)
      if (v.dtype == dtype && has_dims(v) && accept(v)) found.push_back(&v);
    // Results before inputs, and those that nothing reads yet before others: long chains, few
    // outputs.
    const auto prefer = [&](const auto& better) {
      std::vector<const Value*> some;
      for (const Value* v : found)
        if (better(*v)) some.push_back(v);
      if (!some.empty() && r_.chance(75)) found = some;
    };
    prefer([](const Value& v) { return v.name[0] == 't'; });
    prefer([&](const Value& v) { return !read_.count(v.name); });
    if (!found.empty() && !r_.chance(12)) {
      size_t back = 0;
      while (back + 1 < found.size() && r_.chance(50)) ++back;
      return *found[found.size() - 1 - back];
    }
    for (int tries = 0; !shape && tries < 60; ++tries) {
      const size_t before = values_.size(), declared = g_.declarations.size();
      Value v = random_input(dtype);
      if (has_dims(v) && accept(v)) return v;
      values_.resize(before);
      g_.declarations.resize(declared);
    }
    return input(dtype, shape ? shape() : Shape{rows(), {16, 0, 0}});
  }
  Value any(DType t) {
    return pick(t, [&](const Value& v) { return fits(v.shape) && v.most <= 3000; });
  }
  Value matrix(DType t, double most = 3000) {
    return pick(
        t,
        [=, this](const Value& v) {
          return v.axes() == 2 && v.last() >= 4 && v.most <= most && fits(v.shape);
        },
        [&] { return Shape{rows(), {std::max<int64_t>(4, width()), 0, 0}}; });
  }
  Value rows_of(DType t, double most = 3000) {
    return pick(
        t,
        [=, this](const Value& v) {
          return v.axes() >= 2 && v.last() >= 4 && v.most <= most && fits(v.shape);
        },
        [&] { return Shape{rows(), {std::max<int64_t>(4, width()), 0, 0}}; });
  }

  Value emit(const std::string& feature, const std::vector<std::string>& in,
             std::vector<std::string> attrs, Value result, int outs = 1) {
    OpText op;
    op.feature = feature;
    op.kind = feature.substr(0, feature.find(' '));
    op.in = in;
    read_.insert(in.begin(), in.end());
    op.attrs = std::move(attrs);
    for (int i = 0; i < outs; ++i) op.out.push_back(fresh("t"));
    g_.ops.push_back(op);
    for (int i = 0; i < outs; ++i) {
      result.name = op.out[static_cast<size_t>(i)];
      values_.push_back(result);
    }
    return result;
  }
  // An op's `dtype`, most often left out.
  DType typed(DType t, std::vector<std::string>& attrs) {
    const DType out = is_float(t) ? other_float(t) : t;
    if (out != t) attrs.push_back(fmt::format("dtype = {}", ir::name(out)));
    return out;
  }
  // The same values, most often of the same type.
  Value converted(Value v, std::vector<std::string>& attrs) {
    v.dtype = typed(v.dtype, attrs);
    return v;
  }
  static Value computed(DType t, Shape shape, double most, bool positive = false) {
    return {"", t, std::move(shape), most, !is_float(t), positive, 0};
  }
  Value moved(const Value& v, Shape shape) {
    Value m = v;
    m.shape = std::move(shape);
    return m;
  }

  // --- ops -------------------------------------------------------------------

  std::string some_collective() {
    return r_.word({"allreduce auto", "allreduce oneshot", "allreduce twoshot", "allgather",
                    "reduce_scatter", "alltoall", "broadcast", "ring_shift"});
  }
  std::string glue() {
    static const std::vector<std::string> common = {"matmul", "matmul",  "add",       "add",
                                                    "mul",    "rmsnorm", "layernorm", "silu",
                                                    "swiglu", "softmax"};
    if (r_.chance(world_ > 1 ? 20 : 8)) return some_collective();
    if (r_.chance(50)) return r_.pick(common);
    return r_.pick(features());
  }

  void step(const std::string& f) {
    const bool forced = contains(g_.plan.forced, f);
    DType t = forced ? g_.plan.dtype : some_dtype();
    if (!takes(f, t)) t = some_float();
    if (!takes(f, t)) t = DType::F32;
    needs_dims_ = forced && !dims_.empty();
    if (f == "matmul")
      matmul(t);
    else if (contains(kBinary, f))
      binary(f, t);
    else if (contains(kUnary, f))
      unary(f, t);
    else if (f == "swiglu")
      swiglu(t);
    else if (f == "rmsnorm" || f == "layernorm")
      norm(f, t);
    else if (f == "softmax")
      softmax(t);
    else if (f == "rope")
      rope(t);
    else if (f == "attention")
      attention(t);
    else if (f == "kv_append")
      kv_append(t);
    else if (f == "embedding")
      embedding(t);
    else if (f == "argmax")
      argmax(t);
    else if (f == "sum" || f == "mean" || f == "max")
      reduction(f, t);
    else if (f == "cast")
      cast(t);
    else if (f == "copy")
      copy(t);
    else if (f == "reshape")
      reshape(t);
    else if (f == "transpose")
      transpose(t);
    else if (f == "slice")
      slice(t);
    else if (f == "concat")
      concat(t);
    else if (f == "split")
      split(t);
    else if (f == "barrier") {
      emit(f, {}, {}, {}, 0);
      g_.ops.back().name = fresh("b");
    } else
      collective(f, t);
    if (r_.chance(3)) accumulate();
  }

  void copy(DType t) {
    const Value v = any(t);
    std::vector<std::string> attrs;
    const Value y = converted(v, attrs);
    emit("copy", {v.name}, attrs, y);
  }

  void softmax(DType t) {
    const Value v = rows_of(t, 6);
    std::vector<std::string> attrs;
    const DType out = typed(t, attrs);
    emit("softmax", {v.name}, attrs, computed(out, v.shape, 1, true));
  }

  void matmul(DType t) {
    const bool one = r_.chance(6);
    const Value a = pick(
        t,
        [&](const Value& v) {
          return v.axes() <= 3 && v.last() >= (one ? 1 : 4) && v.most <= 2000 && fits(v.shape);
        },
        [&] { return Shape{rows(), {std::max<int64_t>(4, width()), 0, 0}}; });
    const int64_t k = a.last();
    int64_t n = std::max<int64_t>(width(), 1);
    Shape shape = a.shape;
    std::vector<std::string> attrs;
    std::string b;
    bool transposed = r_.chance(60);
    double grows = 1.5;
    // A product of two results, where one has the right extent.
    const auto other = std::find_if(values_.begin(), values_.end(), [&](const Value& v) {
      return v.dtype == t && v.axes() == 2 && v.constant() && v.name != a.name && v.most <= 30 &&
             (v.shape[1].fixed == k || v.shape[0].fixed == k);
    });
    if (other != values_.end() && r_.chance(30)) {
      b = other->name;
      transposed = other->shape[1].fixed == k;
      n = other->shape[transposed ? 0 : 1].fixed;
      grows = other->most * 20;
    } else {
      while (n < 64 && least_elements(shape) / k * n < 8) n += 8;  // a single sum of few may cancel
      const DType type = is_float(t) ? other_float(t) : t;
      b = param(type, transposed ? std::vector<int64_t>{n, k} : std::vector<int64_t>{k, n});
    }
    shape.back() = {n, 0, 0};
    const DType out = typed(t, attrs);
    std::vector<std::string> in = {a.name, b};
    if (transposed) attrs.push_back("transpose_b = true");
    if (r_.chance(30)) in.push_back(param(is_float(t) ? other_float(t) : t, {n}));
    if (r_.chance(45))
      attrs.push_back("activation = " + (is_float(t) ? r_.word({"relu", "silu", "gelu"}) : "relu"));
    emit("matmul", in, attrs, computed(out, shape, a.most * grows + 5));
  }

  void binary(const std::string& f, DType t) {
    // Not sub of two results: the difference of nearly equal numbers has no bound.
    const bool exact = f == "sub" && is_float(t);
    const Value a = exact && r_.chance(40)
                        ? pick(t, [&](const Value& v) { return fits(v.shape) && v.exact; })
                        : any(t);
    if (exact && a.exact && r_.chance(50)) input(t, a.shape);
    std::vector<std::string> attrs;
    const bool times = f == "mul";
    const auto result = [&](double other, bool positive) {
      const DType out = typed(t, attrs);
      return computed(out, a.shape, times ? a.most * other : a.most + other,
                      positive && a.positive && f != "sub");
    };
    std::vector<Value> same;
    for (const Value& v : values_)
      if (v.shape == a.shape && is_float(v.dtype) == is_float(t) &&
          (!is_float(t) || a.most * v.most < 3000) &&
          (!exact || (v.exact && a.exact && v.name != a.name)))
        same.push_back(v);
    if (!same.empty() && r_.chance(45)) {
      const Value b = r_.pick(same);
      const Value y = result(b.most, b.positive || (times && b.name == a.name));
      emit(f, {a.name, b.name}, attrs, y);
    } else if (a.last() > 0 && r_.chance(60)) {
      const std::string b = param(t, {r_.chance(45) ? a.last() : 1});
      emit(f, {a.name, b}, attrs, result(5, false));
    } else {
      const std::string number = is_float(t) ? r_.word({"0.5", "2", "-1", "1.25"})
                                             : r_.word({"3", "-1", "1073741824", "2"});
      const Value y = result(2, number != "-1");
      attrs.push_back("value = " + number);
      emit(f, {a.name}, attrs, y);
    }
  }

  void unary(const std::string& f, DType t) {
    const Value v =
        pick(t, [&](const Value& x) { return fits(x.shape) && x.most <= (f == "exp" ? 6 : 3000); });
    std::vector<std::string> attrs;
    const DType out = typed(t, attrs);
    if (f == "gelu" && r_.chance(50)) attrs.push_back("approximate = tanh");
    const double most = f == "exp" ? 150 : f == "sigmoid" || f == "tanh" ? 1 : v.most;
    emit(f, {v.name}, attrs, computed(out, v.shape, most, f == "exp" || f == "sigmoid"));
  }

  void swiglu(DType t) {
    const Value a = pick(t, [&](const Value& v) { return fits(v.shape) && v.most <= 50; });
    std::vector<Value> same;
    for (const Value& v : values_)
      if (v.shape == a.shape && is_float(v.dtype) && v.most <= 50) same.push_back(v);
    const Value b = r_.pick(same);
    std::vector<std::string> attrs;
    const DType out = typed(t, attrs);
    emit("swiglu", {a.name, b.name}, attrs, computed(out, a.shape, a.most * b.most));
  }

  void norm(const std::string& f, DType t) {
    const Value v = rows_of(t);
    std::vector<std::string> in = {v.name, param(other_float(t), {v.last()})};
    if (f == "layernorm") in.push_back(param(other_float(t), {v.last()}));
    std::vector<std::string> attrs;
    const DType out = typed(t, attrs);
    if (r_.chance(70)) attrs.push_back("eps = 1e-3");
    emit(f, in, attrs, computed(out, v.shape, 25));
  }

  // Extents of heads that cut rows of `n`.
  std::vector<int64_t> heads(int64_t n, bool even) {
    std::vector<int64_t> found;
    for (int64_t d : {2, 3, 4, 5, 6, 8, 12, 16, 20, 32, 40, 64})
      if (n % d == 0 && (!even || d % 2 == 0)) found.push_back(d);
    return found;
  }
  Value with_heads(DType t, bool even, double most) {
    return pick(
        t,
        [=, this](const Value& v) {
          return v.axes() == 2 && !heads(v.last(), even).empty() && v.most <= most && fits(v.shape);
        },
        [&] { return Shape{rows(), {r_.pick<int64_t>({16, 24, 32, 64, 96}), 0, 0}}; });
  }

  void rope(DType t) {
    const Value v = with_heads(t, true, 1000);
    std::vector<std::string> attrs = {fmt::format("head_dim = {}", r_.pick(heads(v.last(), true)))},
                             in = {v.name};
    const DType out = typed(t, attrs);
    if (r_.chance(50)) attrs.push_back("interleaved = true");
    if (r_.chance(30)) attrs.push_back("theta = 500000");
    if (r_.chance(30))
      attrs.push_back(
          "scaling = {factor: 8, low_freq_factor: 1, high_freq_factor: 4, original_max_position: "
          "64}");
    if (r_.chance(30))
      in.push_back(tensor("p", "input", DType::I32, {v.shape[0]}));
    else
      attrs.push_back("position = " + (r_.chance(50)
                                           ? r_.word({"3", "rank * 2 + 1"})
                                           : scalar() + r_.word({"", " + 1", " + rank"})));
    emit("rope", in, attrs, computed(out, v.shape, v.most * 1.5));
  }

  void attention(DType t) {
    const Value q = with_heads(t, false, 6);
    const int64_t d = r_.pick(heads(q.last(), false)), query_heads = q.last() / d;
    std::vector<int64_t> groups;
    for (int64_t g : {1, 2, 3, 4, 8})
      if (query_heads % g == 0) groups.push_back(g);
    const int64_t width_of_keys = q.last() / r_.pick(groups);
    std::vector<std::string> attrs = {fmt::format("head_dim = {}", d)}, in = {q.name};
    std::vector<Value> same;
    for (const Value& v : values_)
      if (v.shape == q.shape && is_float(v.dtype) && v.most <= 6) same.push_back(v);
    const DType out = typed(t, attrs);
    bool causal = r_.chance(40);
    if (!same.empty() && r_.chance(40)) {
      in.push_back(r_.pick(same).name);
      in.push_back(r_.pick(same).name);
    } else {
      const int64_t s = r_.range(1, 70);
      const Shape shape = {{s, 0, 0}, {width_of_keys, 0, 0}};
      const DType type = other_float(t);
      in.push_back(input(type, shape).name);
      in.push_back(input(r_.chance(80) ? type : other_float(t), shape).name);
      int64_t length = s;
      if (s > 26 && r_.chance(40))
        attrs.push_back(fmt::format("length = {} + {}", scalar(), length = 2));
      else if (s > world_ && r_.chance(25))
        attrs.push_back(fmt::format("length = rank + {}", length = r_.range(1, s - world_ + 1)));
      else if (r_.chance(45))
        attrs.push_back(fmt::format("length = {}", length = r_.range(1, s)));
      // Queries that no key comes before have nothing to see.
      causal = causal && q.constant() && q.shape[0].fixed <= length;
    }
    if (causal) attrs.push_back("causal = true");
    if (r_.chance(30)) attrs.push_back("scale = 0.2");
    emit("attention", in, attrs, computed(out, q.shape, 6));
  }

  void kv_append(DType t) {
    const Value x = pick(
        t,
        [&](const Value& v) {
          return v.axes() == 2 && v.last() > 0 && v.most <= 3000 && fits(v.shape);
        },
        [&] { return Shape{rows(), {std::max<int64_t>(4, width()), 0, 0}}; });
    const int64_t rows_of_cache = most_of(x.shape[0]) + 24 + world_ + r_.range(0, 9);
    const Shape shape = {{rows_of_cache, 0, 0}, x.shape[1]};
    const DType type =
        is_float(t) && !contains<std::string>(g_.plan.forced, "kv_append") ? other_float(t) : t;
    const std::string cache = tensor("cache", "state", type, shape);
    std::string at = r_.chance(65) ? scalar() : fmt::to_string(r_.range(0, 24));
    if (r_.chance(25)) at += " + rank";
    change_state("kv_append", {cache, x.name}, {"at = " + at});
    const auto d = heads(x.last(), false);
    if (is_float(t) && !d.empty() && x.most <= 6 && r_.chance(60)) {
      const Value q = r_.chance(60) ? x : input(t, x.shape);
      emit("attention", {q.name, cache, cache},
           {fmt::format("head_dim = {}", r_.pick(d)), "causal = true",
            fmt::format("length = {} + {}", at, x.shape[0].text())},
           computed(t, q.shape, 6));
    } else if (r_.chance(50)) {
      emit("copy", {cache}, {}, {"", type, shape, x.most, x.exact, false, 0});
    }
    if (r_.chance(25)) change_state("kv_append", {cache, x.name}, {"at = 0"});
  }

  void change_state(const std::string& f, std::vector<std::string> in,
                    std::vector<std::string> attrs) {
    OpText op;
    op.feature = op.kind = f;
    op.out = {in[0]};
    op.in = std::move(in);
    op.attrs = std::move(attrs);
    op.changes_state = true;
    op.name = fresh("s");
    g_.ops.push_back(std::move(op));
  }

  // state += value: over launches.
  void accumulate() {
    std::vector<Value> fitting;
    for (const Value& v : values_)
      if ((v.dtype == DType::F32 || v.dtype == DType::I32) && v.most <= 100 && fits(v.shape))
        fitting.push_back(v);
    if (fitting.empty()) return;
    const Value v = r_.pick(fitting);
    const std::string state = tensor("total", "state", v.dtype, v.shape);
    change_state("add", {state, v.name}, {});
    if (r_.chance(50))
      emit("mul", {state}, {std::string(is_float(v.dtype) ? "value = 0.5" : "value = 3")},
           computed(v.dtype, v.shape, v.most * 3));
    if (r_.chance(30)) change_state("maximum", {state, v.name}, {});
  }

  void embedding(DType t) {
    int64_t vocabulary = r_.pick<int64_t>({1, 7, 100, 777});
    const int64_t n = width();
    Shape shape;
    std::string ids;
    std::vector<Value> found;
    for (const Value& v : values_)
      if (v.below > 0 && v.axes() <= 3 && has_dims(v) && fits(v.shape)) found.push_back(v);
    if (!found.empty() && r_.chance(50)) {
      const Value v = r_.pick(found);
      vocabulary = std::max(vocabulary, v.below);
      ids = v.name;
      shape = v.shape;
    } else {
      shape = {rows()};
      if (r_.chance(40)) shape.push_back({r_.range(1, 3), 0, 0});
      ids = tensor("ids", "input", DType::I32, shape);
    }
    shape.push_back({n, 0, 0});
    std::vector<std::string> attrs;
    const DType out = typed(t, attrs);
    Value y{"", out, shape, is_float(t) ? 2.0 : 8.0, true, false, 0};
    emit("embedding", {param(t, {vocabulary, n}), ids}, attrs, y);
  }

  void argmax(DType t) {
    const Value v = pick(t, [&](const Value& x) { return fits(x.shape) && x.last() > 0; });
    Shape shape = v.shape;
    shape.pop_back();
    if (shape.empty()) shape = {{1, 0, 0}};
    Value y{"", DType::I32, shape, static_cast<double>(v.last()), true, false, v.last()};
    emit("argmax", {v.name}, {}, y);
    if (!v.exact) values_.pop_back();  // ties may fall either way
  }

  void reduction(const std::string& f, DType t) {
    Value v = pick(t, [&](const Value& x) {
      return fits(x.shape) && x.most <= 50 && (x.axes() >= 2 || !x.constant() || x.last() > 1);
    });
    // Of squares, so that sums don't cancel.
    if (is_float(t) && f != "max" && !v.positive)
      v = emit("mul", {v.name, v.name}, {}, computed(t, v.shape, v.most * v.most, true));
    Shape shape = v.shape;
    shape.pop_back();
    if (shape.empty()) shape = {{1, 0, 0}};
    std::vector<std::string> attrs;
    const DType out = typed(t, attrs);
    emit(f, {v.name}, attrs, computed(out, shape, f == "sum" ? v.most * 60 : v.most, v.positive));
  }

  void cast(DType t) {
    // Truncation is a jump, so that only exact values become integers.
    Value v =
        r_.chance(40)
            ? pick(t, [&](const Value& x) { return x.exact && fits(x.shape) && x.most <= 3000; })
            : any(t);
    DType to = r_.pick<DType>({DType::F32, DType::F16, DType::BF16, DType::I32});
    if (to == DType::I32 && !v.exact) to = DType::F32;
    if (t == DType::I32 && v.most > 3000) to = DType::I32;
    const bool was_index = v.below > 0 && to == DType::I32;
    Value y = v;
    y.dtype = to;
    if (!was_index) y.below = 0;
    emit("cast", {v.name}, {fmt::format("dtype = {}", ir::name(to))}, y);
  }

  void reshape(DType t) {
    const Value v = any(t);
    Shape shape;
    std::vector<std::string> entries;
    if (v.constant()) {
      const int64_t n = most_elements(v.shape);
      std::vector<int64_t> divisors;
      for (int64_t d = 1; d <= n; ++d)
        if (n % d == 0) divisors.push_back(d);
      const int64_t last = r_.pick(divisors), rest = n / last;
      const int64_t middle = rest % 2 == 0 && r_.chance(40) ? 2 : 1;
      shape = {{rest / middle, 0, 0}, {last, 0, 0}};
      if (middle == 2) shape.insert(shape.begin() + 1, {2, 0, 0});
      if (rest == 1 && r_.chance(50)) shape = {{last, 0, 0}};
    } else {
      // Rows taken together or apart behind axis 0, or axis 0 with its neighbour.
      int64_t row = 1;
      for (size_t a = 1; a < v.axes(); ++a) row *= v.shape[a].fixed;
      if (v.axes() > 1 && r_.chance(40)) {
        shape = {v.shape[0].times(v.shape[1].fixed), {row / v.shape[1].fixed, 0, 0}};
      } else {
        const int64_t part = row % 2 == 0 ? 2 : 1;
        shape = {v.shape[0], {part, 0, 0}, {row / part, 0, 0}};
      }
    }
    const size_t open =
        r_.chance(40) ? static_cast<size_t>(r_.range(0, static_cast<int64_t>(shape.size()) - 1))
                      : SIZE_MAX;
    for (size_t a = 0; a < shape.size(); ++a) entries.push_back(a == open ? "-1" : shape[a].text());
    std::vector<std::string> attrs = {fmt::format("shape = [{}]", fmt::join(entries, ", "))};
    const Value y = converted(moved(v, shape), attrs);
    emit("reshape", {v.name}, attrs, y);
  }

  void transpose(DType t) {
    const Value v = pick(t, [&](const Value& x) { return x.axes() >= 2 && fits(x.shape); });
    std::vector<int64_t> perm(v.axes());
    std::iota(perm.begin(), perm.end(), 0);
    if (v.constant())
      r_.shuffle(perm);
    else if (perm.size() > 2)
      std::swap(perm[1], perm[perm.size() - 1]);
    std::vector<std::string> attrs;
    if (v.constant() && r_.chance(30)) {
      for (size_t i = 0; i < perm.size(); ++i) perm[i] = static_cast<int64_t>(perm.size() - 1 - i);
    } else {
      attrs.push_back(fmt::format("perm = [{}]", fmt::join(perm, ", ")));
    }
    Shape shape;
    for (int64_t p : perm) shape.push_back(v.shape[static_cast<size_t>(p)]);
    const Value y = converted(moved(v, shape), attrs);
    emit("transpose", {v.name}, attrs, y);
  }

  // A random axis that `accept` takes, or nothing; and how it is written.
  std::optional<size_t> axis_of(const Value& v, const std::function<bool(const Extent&)>& accept) {
    std::vector<size_t> fitting;
    for (size_t a = 0; a < v.axes(); ++a)
      if (accept(v.shape[a])) fitting.push_back(a);
    if (fitting.empty()) return std::nullopt;
    return r_.pick(fitting);
  }
  std::string axis_text(const Value& v, size_t axis) {
    const auto a = static_cast<int64_t>(axis);
    return fmt::format("axis = {}", r_.chance(50) ? a : a - static_cast<int64_t>(v.axes()));
  }

  void slice(DType t) {
    const auto cuts = [](const Extent& e) { return e.constant() && e.fixed >= 4; };
    const Value v = pick(
        t,
        [&](const Value& x) {
          return fits(x.shape) && std::any_of(x.shape.begin(), x.shape.end(), cuts);
        },
        [&] { return Shape{rows(), {std::max<int64_t>(4, width()), 0, 0}}; });
    const bool of_dim = v.shape[0].tokens > 0 && r_.chance(35);
    const size_t a = of_dim ? 0 : *axis_of(v, cuts);
    const int64_t n = v.shape[a].fixed;
    Shape shape = v.shape;
    std::vector<std::string> attrs = {axis_text(v, a)};
    if (of_dim) {
      attrs.emplace_back("end = tokens");
      shape[a] = {0, 1, 0};
    } else if (world_ > 1 && n % world_ == 0 && r_.chance(40)) {
      const int64_t part = n / world_;
      attrs.push_back(fmt::format("begin = rank * {}", part));
      attrs.push_back(fmt::format("end = rank * {} + {}", part, part));
      shape[a] = {part, 0, 0};
    } else {
      const int64_t begin = r_.chance(70) ? r_.range(0, n / 2) : 0,
                    end = r_.chance(70) ? r_.range(begin + 1, n) : n;
      const int64_t step = r_.pick<int64_t>({1, 1, 2, 3});
      if (begin > 0 || r_.chance(30))
        attrs.push_back(fmt::format("begin = {}", begin > 0 && r_.chance(50) ? begin - n : begin));
      if (end < n || r_.chance(30)) attrs.push_back(fmt::format("end = {}", end));
      if (step > 1) attrs.push_back(fmt::format("step = {}", step));
      shape[a] = {(end - begin + step - 1) / step, 0, 0};
    }
    const Value y = converted(moved(v, shape), attrs);
    emit("slice", {v.name}, attrs, y);
  }

  void concat(DType t) {
    const Value v = pick(t, [&](const Value& x) { return most_elements(x.shape) <= 14000; });
    const auto a = axis_of(v, [&](const Extent& e) { return e.constant() || &e == &v.shape[0]; });
    std::vector<Value> parts = {v};
    for (int64_t more = r_.range(1, 2); more > 0; --more) {
      std::vector<Value> fitting;
      for (const Value& w : values_) {
        bool ok = w.axes() == v.axes() && w.dtype == t && most_elements(w.shape) <= 14000;
        for (size_t i = 0; ok && i < v.axes(); ++i) ok = i == *a || w.shape[i] == v.shape[i];
        if (ok) fitting.push_back(w);
      }
      parts.push_back(fitting.empty() ? v : r_.pick(fitting));
    }
    Value y = v;
    std::vector<std::string> in;
    y.shape[*a] = {};
    for (const Value& p : parts) {
      in.push_back(p.name);
      y.shape[*a] = y.shape[*a].plus(p.shape[*a]);
      y.most = std::max(y.most, p.most);
      y.exact = y.exact && p.exact;
      y.positive = y.positive && p.positive;
      y.below = y.below == 0 || p.below == 0 ? 0 : std::max(y.below, p.below);
    }
    std::vector<std::string> attrs = {axis_text(v, *a)};
    y = converted(y, attrs);
    emit("concat", in, attrs, y);
  }

  void split(DType t) {
    const int64_t parts = r_.pick<int64_t>({2, 2, 3, 4});
    const auto cuts = [&](const Extent& e) { return e.divisible(parts) && least_of(e) >= parts; };
    const Value v = pick(
        t,
        [&](const Value& x) {
          return fits(x.shape) && std::any_of(x.shape.begin(), x.shape.end(), cuts);
        },
        [&] { return Shape{rows(), {12 * r_.range(1, 4), 0, 0}}; });
    const size_t a = *axis_of(v, cuts);
    Value y = v;
    y.shape[a] = v.shape[a].over(parts);
    std::vector<std::string> attrs = {axis_text(v, a)};
    y = converted(y, attrs);
    emit("split", {v.name}, attrs, y, static_cast<int>(parts));
  }

  void collective(const std::string& f, DType t) {
    const std::string kind = f.substr(0, f.find(' '));
    const bool blocks = kind == "reduce_scatter" || kind == "alltoall";
    const bool gathers = kind == "allgather";
    const Value v = pick(
        t,
        [&](const Value& x) {
          return most_elements(x.shape) * (gathers ? world_ : 1) <= (huge_ ? 140000 : 40000) &&
                 x.most <= 1500 &&
                 (!blocks || (x.shape[0].divisible(world_) && least_of(x.shape[0]) >= world_));
        },
        [&] {
          Extent e = rows();
          if (most_of(e) > 40)
            e = e.constant() ? Extent{std::max<int64_t>(1, e.fixed / world_), 0, 0} : e;
          Shape s = {blocks ? e.times(world_) : e, {width(), 0, 0}};
          while (!fits(s)) s[1].fixed = s[1].fixed / 2 + 1;
          return s;
        });
    std::vector<std::string> attrs;
    Value y = v;
    std::string reduce = "sum";
    if (kind == "allreduce" || kind == "reduce_scatter") {
      reduce = is_float(t) ? r_.word({"sum", "sum", "max", "min", "avg"})
                           : r_.word({"sum", "max", "min"});
      if (reduce != "sum" || r_.chance(30)) attrs.push_back("reduce = " + reduce);
      y.exact = !is_float(t) || (v.exact && (reduce == "max" || reduce == "min"));
      y.below = 0;
      if (reduce == "sum") y.most *= static_cast<double>(world_);
    }
    if (kind == "allreduce" && f != "allreduce auto")
      attrs.push_back("algorithm = " + f.substr(f.find(' ') + 1));
    if (kind == "broadcast") attrs.push_back(fmt::format("root = {}", r_.range(0, world_ - 1)));
    if (kind == "ring_shift" && r_.chance(70))
      attrs.push_back("by = " + r_.word({"1", "-1", "2", "world - 1", "0"}));
    if (gathers) y.shape[0] = v.shape[0].times(world_);
    if (kind == "reduce_scatter") y.shape[0] = v.shape[0].over(world_);
    if ((gathers || kind == "reduce_scatter") && r_.chance(40))
      attrs.push_back("algorithm = " + r_.word({"auto", "oneshot"}));
    y = converted(y, attrs);
    emit(f, {v.name}, attrs, y);
  }

  // --- what isn't data -------------------------------------------------------

  static std::string name_of(const OpText& op) { return op.name.empty() ? op.out[0] : op.name; }

  std::string ranges(int64_t compute, int64_t comm) {
    std::vector<std::string> list;
    int64_t at = 0;
    const auto range = [&](int64_t n, const std::string& rest) {
      list.push_back(fmt::format("{{sms: [{}, {}], role: {}}}", at, at + n, rest));
      at += n;
    };
    const bool comm_first = r_.chance(30);
    if (comm_first) range(comm, "comm");
    std::vector<std::string> kinds;
    for (const OpText& op : g_.ops)
      if (!ops::find_op(op.kind)->collective && !contains(kinds, op.kind)) kinds.push_back(op.kind);
    if (compute >= 2 && kinds.size() >= 2 && r_.chance(70)) {
      r_.shuffle(kinds);
      const auto half = static_cast<std::ptrdiff_t>(kinds.size() / 2);
      const std::vector<std::string> first(kinds.begin(), kinds.begin() + half),
          second(kinds.begin() + half, kinds.end());
      range(compute / 2, fmt::format("compute, tasks: [{}]", fmt::join(first, ", ")));
      // With one rank collectives are copies, so somebody must take anything.
      range(compute - compute / 2,
            world_ > 1 && r_.chance(50)
                ? fmt::format("compute, tasks: [{}]", fmt::join(second, ", "))
                : "compute");
    } else {
      range(compute, "compute");
    }
    if (!comm_first) range(comm, "comm");
    return fmt::format("set sm_roles = [{}]", fmt::join(list, ", "));
  }

  void settings() {
    auto& ops = g_.ops;
    const int64_t compute = r_.range(1, 6), comm = r_.range(1, 8 - compute);
    g_.roles_statements[static_cast<size_t>(RolesKind::Counts)] =
        fmt::format("set sm_roles = {{compute: {}, comm: {}}}", compute, comm);
    g_.roles_statements[static_cast<size_t>(RolesKind::Ranges)] = ranges(compute, comm);
    if (r_.chance(45))
      g_.set_statements.push_back("set overlap = " +
                                  r_.word({"none", "conservative", "aggressive", "aggressive"}));

    for (OpText& op : ops) {
      if (r_.chance(10)) op.attrs.push_back("priority = " + r_.word({"high", "low"}));
      if (r_.chance(8))
        op.attrs.push_back("overlap = " + r_.word({"none", "conservative", "aggressive"}));
    }
    if (r_.chance(20))
      for (OpText& op : ops)
        if (r_.chance(50))
          op.attrs.push_back(fmt::format("overlap_group = \"{}\"", r_.word({"a", "b"})));
    for (size_t i = 1; i < ops.size(); ++i)
      if (r_.chance(10))
        ops[i].after.push_back(
            name_of(ops[static_cast<size_t>(r_.range(0, static_cast<int64_t>(i) - 1))]));
    if (ops.size() > 2 && r_.chance(25)) {
      const auto border = static_cast<size_t>(r_.range(1, static_cast<int64_t>(ops.size()) - 1));
      for (size_t i = 0; i < ops.size(); ++i)
        if (r_.chance(60))
          ops[i].attrs.push_back(fmt::format("phase = \"{}\"", i < border ? "first" : "then"));
      g_.set_statements.push_back("phase first");
      g_.set_statements.push_back("phase then depends_on first");
    }
    if (ops.size() > 2 && r_.chance(20)) {
      std::vector<std::string> members;
      for (const OpText& op : ops)
        if (r_.chance(30)) members.push_back(name_of(op));
      if (!members.empty()) g_.regions.emplace_back("together", members);
    }
  }

  void launches() {
    const int64_t n = scalar_ || !dims_.empty() ? 3 : 2;
    for (int64_t i = 0; i < n; ++i) {
      runtime::LaunchValues v;
      for (const auto& d : dims_)
        v[d.name] = i == 0 ? d.max : r_.chance(30) ? d.min : r_.range(d.min, d.max);
      if (scalar_) v["pos"] = r_.range(0, 23);
      g_.launches.push_back(std::move(v));
    }
  }

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

}  // namespace

const std::vector<std::string>& features() {
  static const std::vector<std::string> list = {"matmul",
                                                "add",
                                                "sub",
                                                "mul",
                                                "maximum",
                                                "minimum",
                                                "relu",
                                                "silu",
                                                "gelu",
                                                "sigmoid",
                                                "tanh",
                                                "exp",
                                                "swiglu",
                                                "rmsnorm",
                                                "layernorm",
                                                "softmax",
                                                "rope",
                                                "attention",
                                                "kv_append",
                                                "argmax",
                                                "sum",
                                                "mean",
                                                "max",
                                                "embedding",
                                                "cast",
                                                "copy",
                                                "reshape",
                                                "slice",
                                                "concat",
                                                "split",
                                                "transpose",
                                                "allreduce auto",
                                                "allgather",
                                                "alltoall",
                                                "broadcast",
                                                "barrier",
                                                "ring_shift",
                                                "reduce_scatter",
                                                "allreduce oneshot",
                                                "allreduce twoshot"};
  return list;
}

bool takes(const std::string& feature, DType dtype) {
  static const std::set<std::string> floats = {"silu",    "gelu",   "sigmoid",   "tanh",
                                               "exp",     "swiglu", "rmsnorm",   "layernorm",
                                               "softmax", "rope",   "attention", "mean"};
  if (feature == "barrier") return dtype == DType::F32;
  return is_float(dtype) || !floats.count(feature);
}

Plan plan_of(uint64_t seed) {
  // In an order of their own, so that any part of the seeds has something of everything.
  static const std::vector<uint64_t> order = [] {
    std::vector<uint64_t> all(kCoveringSeeds);
    std::iota(all.begin(), all.end(), uint64_t{0});
    Random(1).shuffle(all);
    return all;
  }();
  uint64_t rest = order[seed % kCoveringSeeds];
  const auto digit = [&](uint64_t of) {
    const uint64_t n = rest % of;
    rest /= of;
    return n;
  };
  const uint64_t again = seed / kCoveringSeeds, second = digit(kGraphsOfRoles),
                 round = digit(kRounds), cls = rest;
  Random r(cls * 1000 + again);
  Plan p;
  p.world = kWorlds[digit(std::size(kWorlds))];
  p.dtype = kDTypes[digit(std::size(kDTypes))];
  p.dims = digit(2) == 1;
  const auto roles = [&](uint64_t n) {
    return static_cast<RolesKind>((cls + round + n) % kRolesKinds);
  };
  p.roles = roles(2 * second);
  if (second == 0) p.other_roles = roles(1);
  if (again > 0 && r.chance(15)) p.world = 6;
  std::vector<std::string> list;
  for (const std::string& f : features())
    if (takes(f, p.dtype)) list.push_back(f);
  r.shuffle(list);
  for (size_t i = round; i < list.size(); i += kRounds) p.forced.push_back(list[i]);
  return p;
}

std::string RandomGraph::text(const std::vector<bool>& kept, RolesKind roles,
                              bool with_settings) const {
  std::set<std::string> used, read, defined;
  const auto words = [&](const std::string& attr) {
    std::string word;
    for (char c : attr + " ") {
      if (std::isalnum(static_cast<unsigned char>(c)) || c == '_')
        word += c;
      else
        used.insert(std::exchange(word, ""));
    }
  };
  std::set<std::string> names;
  for (size_t i = 0; i < ops.size(); ++i) {
    if (!kept[i]) continue;
    read.insert(ops[i].in.begin(), ops[i].in.end());
    used.insert(ops[i].in.begin(), ops[i].in.end());
    for (const std::string& a : ops[i].attrs) words(a);
    names.insert(ops[i].name.empty() ? ops[i].out[0] : ops[i].name);
  }
  // Dims stand in shapes and are declared always: launches give them values.
  std::string s = fmt::format("graph random_{}(world = {}) {{\n", seed, plan.world);
  for (const auto& [name, statement] : declarations)
    if (used.count(name) || statement.rfind("dim ", 0) == 0 || statement.rfind("scalar ", 0) == 0)
      s += "  " + statement + "\n";
  for (size_t i = 0; i < ops.size(); ++i) {
    if (!kept[i]) continue;
    const OpText& op = ops[i];
    bool output = false;
    if (!op.changes_state)
      for (const std::string& out : op.out)
        output =
            output || !read.count(out) ||
            std::find(outputs_anyway.begin(), outputs_anyway.end(), out) != outputs_anyway.end();
    std::vector<std::string> arguments = op.in;
    for (const std::string& a : op.attrs) {
      const bool setting =
          a.rfind("priority", 0) == 0 || a.rfind("overlap", 0) == 0 || a.rfind("phase", 0) == 0;
      if (with_settings || !setting) arguments.push_back(a);
    }
    std::vector<std::string> later;
    for (const std::string& a : op.after)
      if (names.count(a) && with_settings) later.push_back(a);
    if (!later.empty()) arguments.push_back(fmt::format("after = [{}]", fmt::join(later, ", ")));
    s += fmt::format("  {}{}{}{}({}){}\n", output ? "output " : "", fmt::join(op.out, ", "),
                     op.out.empty() ? "" : " = ", op.kind, fmt::join(arguments, ", "),
                     op.name.empty() ? "" : " @" + op.name);
  }
  if (const std::string& statement = roles_statements[static_cast<size_t>(roles)];
      !statement.empty())
    s += "  " + statement + "\n";
  if (with_settings) {
    for (const std::string& statement : set_statements) s += "  " + statement + "\n";
    for (const auto& [name, members] : regions) {
      std::vector<std::string> here;
      for (const std::string& m : members)
        if (names.count(m)) here.push_back(m);
      if (!here.empty()) s += fmt::format("  region {} = [{}]\n", name, fmt::join(here, ", "));
    }
  }
  return s + "}\n";
}

RandomGraph random_graph(uint64_t seed) { return Maker(seed).make(); }

}  // namespace maco::fuzz
