// random_movement.cpp: ops that move data, collectives included, in random graphs.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "tests/fuzz/random_maker.h"

namespace maco::fuzz {

void Maker::copy(DType t) {
  const Value v = any(t);
  std::vector<std::string> attrs;
  const Value y = converted(v, attrs);
  emit("copy", {v.name}, attrs, y);
}

void Maker::cast(DType t) {
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

void Maker::reshape(DType t) {
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
  const size_t open = r_.chance(40)
                          ? static_cast<size_t>(r_.range(0, static_cast<int64_t>(shape.size()) - 1))
                          : SIZE_MAX;
  for (size_t a = 0; a < shape.size(); ++a) entries.push_back(a == open ? "-1" : shape[a].text());
  std::vector<std::string> attrs = {fmt::format("shape = [{}]", fmt::join(entries, ", "))};
  const Value y = converted(moved(v, shape), attrs);
  emit("reshape", {v.name}, attrs, y);
}

void Maker::transpose(DType t) {
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

std::optional<size_t> Maker::axis_of(const Value& v,
                                     const std::function<bool(const Extent&)>& accept) {
  std::vector<size_t> fitting;
  for (size_t a = 0; a < v.axes(); ++a)
    if (accept(v.shape[a])) fitting.push_back(a);
  if (fitting.empty()) return std::nullopt;
  return r_.pick(fitting);
}

void Maker::slice(DType t) {
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

void Maker::concat(DType t) {
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

void Maker::split(DType t) {
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

void Maker::collective(const std::string& f, DType t) {
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
    reduce =
        is_float(t) ? r_.word({"sum", "sum", "max", "min", "avg"}) : r_.word({"sum", "max", "min"});
    if (reduce != "sum" || r_.chance(30)) attrs.push_back("reduce = " + reduce);
    y.exact = !is_float(t) || (v.exact && (reduce == "max" || reduce == "min"));
    y.below = 0;
    if (reduce == "sum") y.most *= static_cast<double>(world_);
  }
  if (kind == "allreduce" && f != "allreduce auto")
    attrs.push_back("algorithm = " + f.substr(f.find(' ') + 1));
  if (kind == "broadcast") {
    const auto root = r_.range(0, world_ - 1);
    attrs.push_back(fmt::format("root = {}", root));
    if (root % 2 == 1) attrs.push_back("algorithm = twoshot");
  }
  if (kind == "ring_shift" && r_.chance(70))
    attrs.push_back("by = " + r_.word({"1", "-1", "2", "world - 1", "0"}));
  if (gathers) y.shape[0] = v.shape[0].times(world_);
  if (kind == "reduce_scatter") y.shape[0] = v.shape[0].over(world_);
  std::string algorithm;
  if ((gathers || kind == "reduce_scatter") && r_.chance(40))
    algorithm = r_.word({"auto", "oneshot", "ring", "nccl"});
  const Value made = converted(y, attrs);
  // A collective that is handed over isn't converted block by block.
  if (algorithm == "nccl" && made.dtype != y.dtype) algorithm = "ring";
  if (!algorithm.empty()) attrs.push_back("algorithm = " + algorithm);
  y = made;
  emit(f, {v.name}, attrs, y);
}

// A send and its recv; or a recv, an op and its send, so that each rank waits for the previous one.
void Maker::message(const std::string& f, DType t) {
  const Value v = pick(t, [&](const Value& x) { return fits(x.shape) && x.most <= 300; });
  struct Way {
    const char *to, *from, *senders, *receivers;
  };
  static const std::vector<Way> ways = {
      {"rank + 1", "rank - 1", "rank + 1 < world", "rank > 0"},
      {"(rank + 1) % world", "(rank - 1) % world", "", ""},
      {"world - 1 - rank", "world - 1 - rank", "", ""},
      {"rank", "rank", "", "rank < world"},
      {"0", "world - 1", "rank == world - 1", "rank == 0"},
      {"rank + 1", "rank - 1", "rank % 2 == 0 && rank + 1 < world", "rank % 2 == 1"},
  };
  const bool passed_on = r_.chance(30);
  const Way& way = passed_on ? ways[0] : r_.pick(ways);
  std::string send, recv = fmt::format("src = {}", way.from);
  if (*way.senders) send += fmt::format(", if = {}", way.senders);
  if (*way.receivers) recv += fmt::format(", if = {}", way.receivers);
  if (r_.chance(40)) {
    const int64_t tag = r_.range(-2, 3);
    send += fmt::format(", tag = {}", tag);
    recv += fmt::format(", tag = {}", tag);
  }
  const std::string type = fmt::format("{}{}", ir::name(t), shape_text(v.shape)),
                    full = fmt::format("{}, shape = {}, dtype = {}", recv, shape_text(v.shape),
                                       ir::name(t));
  const auto sent = [&](const std::string& what) {
    return fmt::format("send({}, dst = {}{})", what, way.to, send);
  };
  Value y = v;
  y.positive = false;
  if (passed_on) {
    const std::string got = fresh("r");
    y.most = v.most * static_cast<double>(world_);
    y.exact = !is_float(t);
    y.below = 0;
    const Value sum = emit("add", {v.name}, {got}, y);
    OpText& op = g_.ops.back();
    op.feature = f;
    op.first = fmt::format("{} = recv({})", got, full);
    op.last = sent(sum.name);
    return;
  }
  const bool declared = r_.chance(30);
  emit(f, {v.name}, {declared ? recv : full}, y);
  OpText& op = g_.ops.back();
  op.kind = "recv";
  op.no_operands = true;
  op.first = sent(v.name);
  if (declared) op.type = type;
}

}  // namespace maco::fuzz
