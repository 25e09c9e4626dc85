// random_compute.cpp: ops that compute, in random graphs.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "tests/fuzz/random_maker.h"

namespace maco::fuzz {

void Maker::softmax(DType t) {
  const Value v = rows_of(t, 6);
  std::vector<std::string> attrs;
  const DType out = typed(t, attrs);
  Value y = computed(out, v.shape, 1, true);
  y.flat = true;
  emit("softmax", {v.name}, attrs, y);
}

void Maker::matmul(DType t) {
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
  // A matmul of two results, if one has the right extent.
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

void Maker::binary(const std::string& f, DType t) {
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
    Value y = computed(out, a.shape, times ? a.most * other : a.most + other,
                       positive && a.positive && f != "sub");
    y.flat = a.flat;
    return y;
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
    // The added value must not be a multiple of the multiplied one: 1 - sigmoid(x) may be all
    // rounding.
    const bool adds = f == "add" || f == "sub";
    const std::string number = !is_float(t) ? r_.word({"3", "-1", "1073741824", "2"})
                               : adds       ? r_.word({"0.3", "1.7", "-1.7", "0.7"})
                                            : r_.word({"0.5", "2", "-1", "1.25"});
    const Value y = result(2, number[0] != '-');
    attrs.push_back("value = " + number);
    emit(f, {a.name}, attrs, y);
  }
}

void Maker::unary(const std::string& f, DType t) {
  const Value v = pick(t, [&](const Value& x) {
    return fits(x.shape) && x.most <= (f == "exp" ? 6 : f == "sin" || f == "cos" ? 5 : 3000);
  });
  std::vector<std::string> attrs;
  const DType out = typed(t, attrs);
  if (f == "gelu" && r_.chance(50)) attrs.push_back("approximate = tanh");
  static const std::set<std::string> within_one = {"sigmoid", "tanh", "erf", "sin", "cos"};
  const double most = f == "exp" ? 150 : within_one.count(f) ? 1 : v.most;
  Value y = computed(out, v.shape, most, f == "exp" || f == "sigmoid" || f == "abs");
  y.flat = v.flat || f == "sigmoid" || f == "cos";
  emit(f, {v.name}, attrs, y);
}

Value Maker::near_one(DType t, const Value& of) {
  const Value root = emit("tanh", {of.name}, {}, computed(of.dtype, of.shape, 1));
  const Value square =
      emit("mul", {root.name, root.name}, {}, computed(of.dtype, of.shape, 1, true));
  Value y = computed(t, of.shape, 1.5, true);
  y.flat = true;
  std::vector<std::string> attrs = {"value = 0.5"};
  if (t != of.dtype) attrs.push_back(fmt::format("dtype = {}", name(t)));
  return emit("add", {square.name}, attrs, y);
}

void Maker::of_positive(const std::string& f, DType t) {
  const Value a = pick(t, [&](const Value& v) { return fits(v.shape) && v.most <= 50; });
  const bool pow = f == "pow";
  const Value x = f == "div" ? a : near_one(t, a);
  std::vector<std::string> attrs, in = {x.name};
  if ((pow || f == "div") && r_.chance(30)) {
    attrs.push_back("value = " + r_.word(pow ? std::initializer_list<const char*>{"2", "-1", "0.7"}
                                             : std::initializer_list<const char*>{"3", "-0.7"}));
  } else if (pow || f == "div") {
    // To any power, or divided by something that isn't near 0.
    const int64_t n = a.last() > 0 && r_.chance(60) ? a.last() : 1;
    const DType type = other_float(t);
    const bool whole = r_.chance(40);
    Value y = whole ? a : Value{param(type, {n}), type, {{n, 0, 0}}, 5, true, false, 0};
    if (!pow || y.most > 5) y = near_one(y.dtype, y);
    in.push_back(y.name);
  }
  const DType out = typed(t, attrs);
  Value y = computed(out, a.shape,
                     f == "div" ? a.most * 2
                     : pow      ? 32
                                : 1.5,
                     f != "log" && f != "div");
  y.flat = true;
  emit(f, in, attrs, y);
}

void Maker::comparison(const std::string& f, DType t) {
  const Value a = pick(t, [&](const Value& v) { return fits(v.shape) && v.exact; });
  std::vector<std::string> attrs, in = {a.name};
  if (r_.chance(30)) {
    attrs.push_back(is_float(t) ? "value = 0.5" : "value = 3");
  } else if (r_.chance(50)) {
    in.push_back(input(t, a.shape).name);
  } else {
    in.push_back(
        param(is_float(t) ? other_float(t) : t, {a.last() > 0 && r_.chance(60) ? a.last() : 1}));
  }
  Value y{"", DType::U8, a.shape, 1, true, true, 0, true};
  if (is_float(t) && r_.chance(30)) {
    y.dtype = r_.pick<DType>({DType::F32, DType::F16, DType::BF16});
    attrs.push_back(fmt::format("dtype = {}", name(y.dtype)));
  }
  emit(f, in, attrs, y);
  if (y.dtype == DType::U8) values_.pop_back();  // few ops take it
}

void Maker::where(DType t) {
  const Value a = any(t);
  const std::string mask = tensor("mask", "input", DType::U8, a.shape);
  std::vector<std::string> attrs, in = {mask, a.name};
  double most = a.most;
  if (r_.chance(50)) {
    attrs.push_back("value = -2");
  } else {
    const Value b = r_.chance(50) ? a : input(is_float(t) ? other_float(t) : t, a.shape);
    most = std::max(most, b.most);
    in.push_back(b.name);
  }
  const DType out = typed(t, attrs);
  Value y = computed(out, a.shape, most);
  y.flat = true;
  emit("where", in, attrs, y);
}

void Maker::clamp(DType t) {
  const Value v = any(t);
  std::vector<std::string> attrs;
  if (r_.chance(65)) attrs.push_back(is_float(t) ? "min = -0.75" : "min = -3");
  if (attrs.empty() || r_.chance(50)) attrs.push_back("max = 2");
  const DType out = typed(t, attrs);
  Value y = computed(out, v.shape, v.most);
  y.flat = true;
  emit("clamp", {v.name}, attrs, y);
}

void Maker::gated(const std::string& f, DType t) {
  const Value a = pick(t, [&](const Value& v) { return fits(v.shape) && v.most <= 50; });
  std::vector<Value> same;
  for (const Value& v : values_)
    if (v.shape == a.shape && is_float(v.dtype) && v.most <= 50) same.push_back(v);
  const Value b = r_.pick(same);
  std::vector<std::string> attrs;
  if (f == "geglu" && r_.chance(50)) attrs.push_back("approximate = tanh");
  const DType out = typed(t, attrs);
  emit(f, {a.name, b.name}, attrs, computed(out, a.shape, a.most * b.most));
}

void Maker::norm(const std::string& f, DType t) {
  const Value v = rows_of(t, 3000, f == "layernorm");
  std::vector<std::string> in = {v.name, param(other_float(t), {v.last()})};
  if (f == "layernorm") in.push_back(param(other_float(t), {v.last()}));
  std::vector<std::string> attrs;
  const DType out = typed(t, attrs);
  if (r_.chance(70)) attrs.push_back("eps = 1e-3");
  emit(f, in, attrs, computed(out, v.shape, 25));
}

std::vector<int64_t> Maker::heads(int64_t n, bool even) {
  std::vector<int64_t> found;
  for (int64_t d : {2, 3, 4, 5, 6, 8, 12, 16, 20, 32, 40, 64})
    if (n % d == 0 && (!even || d % 2 == 0)) found.push_back(d);
  return found;
}

Value Maker::with_heads(DType t, bool even, double most) {
  return pick(
      t,
      [=, this](const Value& v) {
        return v.axes() == 2 && !heads(v.last(), even).empty() && v.most <= most && fits(v.shape);
      },
      [&] { return Shape{rows(), {r_.pick<int64_t>({16, 24, 32, 64, 96}), 0, 0}}; });
}

// Some heads of a matmul of many rows, which could rotate them itself.
std::pair<Value, int64_t> Maker::heads_of_product(DType t) {
  const int64_t d = r_.pick<int64_t>({16, 32, 64}), all = r_.range(1, 4), k = 8 * r_.range(2, 5);
  const Value x = input(t, {{r_.range(33, 130), 0, 0}, {k, 0, 0}});
  const Value product = emit("matmul", {x.name, param(t, {all * d, k})}, {"transpose_b = true"},
                             computed(t, {x.shape[0], {all * d, 0, 0}}, x.most * 1.5 + 5));
  const int64_t first = r_.range(0, all - 1), count = r_.range(1, all - first);
  if (count == all) return {product, d};
  Value some = moved(product, {x.shape[0], {count * d, 0, 0}});
  return {emit("slice", {product.name},
               {"axis = 1", fmt::format("begin = {}", first * d),
                fmt::format("end = {}", (first + count) * d)},
               some),
          d};
}

void Maker::rope(DType t) {
  const bool of_product = !needs_dims_ && (t == DType::BF16 || t == DType::F16) && r_.chance(65);
  const auto [v, d] = of_product ? heads_of_product(t) : [&] {
    const Value any = with_heads(t, true, 1000);
    return std::pair{any, r_.pick(heads(any.last(), true))};
  }();
  std::vector<std::string> attrs = {fmt::format("head_dim = {}", d)}, in = {v.name};
  const DType out = of_product ? t : typed(t, attrs);
  if (r_.chance(50)) attrs.push_back("interleaved = true");
  const int64_t turning = r_.chance(30) ? 2 * r_.range(1, d / 2) : d;
  if (turning < d || r_.chance(10)) attrs.push_back(fmt::format("rotary_dim = {}", turning));
  if (r_.chance(25)) attrs.push_back("attention_factor = 1.25");
  const bool tables = r_.chance(30), frequencies = !tables && r_.chance(30);
  if (!tables && !frequencies && r_.chance(30)) attrs.push_back("theta = 500000");
  if (!tables && !frequencies && r_.chance(30))
    attrs.push_back(
        "scaling = {factor: 8, low_freq_factor: 1, high_freq_factor: 4, original_max_position: "
        "64}");
  if (!of_product && r_.chance(30))
    in.push_back(tensor("p", "input", DType::I32, {v.shape[0]}));
  else if (tables)
    attrs.push_back("position = 3");
  else
    attrs.push_back("position = " + (r_.chance(50) ? r_.word({"3", "rank * 2 + 1"})
                                                   : scalar() + r_.word({"", " + 1", " + rank"})));
  if (tables) {
    const DType type = other_float(t);
    const Shape rows = {Extent{3, 0, 0}.plus(v.shape[0]),
                        {r_.chance(50) ? turning : turning / 2, 0, 0}};
    in.push_back(tensor("cosines", "input", type, rows));
    in.push_back(tensor("sines", "input", type, rows));
  }
  if (frequencies)
    in.push_back(tensor("f", r_.chance(50) ? "input" : "param", DType::F32, {{turning / 2, 0, 0}}));
  const Value turned = emit("rope", in, attrs, computed(out, v.shape, v.most * 2));
  if (!of_product || r_.chance(50)) return;
  const Shape keys = {{r_.range(1, 70), 0, 0}, {d, 0, 0}};
  emit("attention", {turned.name, input(t, keys).name, input(t, keys).name},
       {fmt::format("head_dim = {}", d), "scale = 0.02"}, computed(t, turned.shape, 8));
}

void Maker::attention(DType t) {
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
    // Queries before the first key would see nothing.
    causal = causal && q.constant() && q.shape[0].fixed <= length;
  }
  if (causal) attrs.push_back("causal = true");
  if (r_.chance(30)) attrs.push_back("scale = 0.2");
  scores(causal, attrs);
  emit("attention", in, attrs, computed(out, q.shape, 6));
}

// Which keys rows see, and how scores are changed.
void Maker::scores(bool causal, std::vector<std::string>& attrs) {
  if (causal && r_.chance(40))
    attrs.push_back(fmt::format("window = {}", r_.pick<int64_t>({1, 2, 5, 17, 40, 100})));
  if (r_.chance(25)) attrs.push_back("softcap = " + r_.word({"0.5", "2", "30"}));
}

void Maker::kv_append(DType t) {
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
    std::vector<std::string> attrs = {fmt::format("head_dim = {}", r_.pick(d)), "causal = true",
                                      fmt::format("length = {} + {}", at, x.shape[0].text())};
    scores(true, attrs);
    Value y = computed(t, q.shape, 6);
    y.flat = x.flat || x.positive || x.exact;  // means of similar values
    emit("attention", {q.name, cache, cache}, attrs, y);
  } else if (r_.chance(50)) {
    emit("copy", {cache}, {}, {"", type, shape, x.most, x.exact, false, 0});
  }
  if (r_.chance(25)) change_state("kv_append", {cache, x.name}, {"at = 0"});
}

void Maker::change_state(const std::string& f, std::vector<std::string> in,
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

void Maker::accumulate() {
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

void Maker::embedding(DType t) {
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

void Maker::argmax(DType t) {
  const Value v = pick(t, [&](const Value& x) { return fits(x.shape) && x.last() > 0; });
  Shape shape = v.shape;
  shape.pop_back();
  if (shape.empty()) shape = {{1, 0, 0}};
  Value y{"", DType::I32, shape, static_cast<double>(v.last()), true, false, v.last()};
  emit("argmax", {v.name}, {}, y);
  if (!v.exact) values_.pop_back();  // ties may fall either way
}

void Maker::reduction(const std::string& f, DType t) {
  Value v = pick(t, [&](const Value& x) {
    return fits(x.shape) && x.most <= 50 && (x.axes() >= 2 || !x.constant() || x.last() > 1);
  });
  // Sums are over squares, so that they don't cancel.
  if (is_float(t) && f != "max" && !v.positive)
    v = emit("mul", {v.name, v.name}, {}, computed(t, v.shape, v.most * v.most, true));
  Shape shape = v.shape;
  shape.pop_back();
  if (shape.empty()) shape = {{1, 0, 0}};
  std::vector<std::string> attrs;
  const DType out = typed(t, attrs);
  emit(f, {v.name}, attrs, computed(out, shape, f == "sum" ? v.most * 60 : v.most, v.positive));
}

}  // namespace maco::fuzz
