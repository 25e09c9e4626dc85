// Elementwise ops, movement, embedding, kv_append: shapes, and that tiles write every element once
// and declare what they read.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>

#include "compiler/cost/machine.h"
#include "compiler/frontend/frontend.h"
#include "compiler/ops/tile_shape.h"
#include "compiler/passes/passes.h"
#include "tests/catch.h"

using namespace maco;
using ir::DType;

namespace {

struct Parsed {
  std::optional<ir::Graph> graph;
  std::string errors;
};
Parsed parse(const std::string& body, const std::string& head = "graph g") {
  ir::Diagnostics d;
  const int32_t file = d.add_file("g.maco", head + " {\n" + body + "\n}\n");
  Parsed p;
  p.graph = frontend::parse_dsl(file, d);
  p.errors = d.render();
  return p;
}

// Tiled as it is, without fusing.
ir::Program tiled(ir::Graph graph, const char* target) {
  ir::Diagnostics d;
  passes::PassContext context{d, *cost::find_machine(target)};
  context.available_sms = context.machine.sms;
  ir::Program program;
  INFO(d.render());
  REQUIRE(passes::assign_roles(graph, context));
  REQUIRE(passes::tile(graph, program, context));
  return program;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}
int64_t count(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}
std::vector<int64_t> coordinates(int64_t flat, const std::vector<int64_t>& shape) {
  std::vector<int64_t> c(shape.size());
  for (size_t i = shape.size(); i-- > 0; flat /= shape[i]) c[i] = flat % shape[i];
  return c;
}
int64_t flat_of(const std::vector<int64_t>& c, const std::vector<int64_t>& shape) {
  int64_t f = 0;
  for (size_t i = 0; i < shape.size(); ++i) f = f * shape[i] + c[i];
  return f;
}

bool holds(const ir::Region& r, int64_t element, int rank) {
  const int64_t row = element / r.pitch - rank * r.block.rows, column = element % r.pitch;
  return row >= r.r0 && row < r.r1 && column >= r.c0 && column < r.c1;
}
int64_t area(const ir::Region& r) { return (r.r1 - r.r0) * (r.c1 - r.c0); }
size_t buffer(const ir::Program& p, const std::string& name) {
  for (size_t i = 0; i < p.buffers.size(); ++i)
    if (p.buffers[i].name == name) return i;
  FAIL("no buffer " << name);
  return 0;
}

// Where an element of an output comes from: tensor and element of each operand it depends on.
using Source = std::function<std::vector<std::pair<std::string, int64_t>>(int64_t)>;

// Each of the first `n` elements of `out` is written by one task (that may write it, if `decided`
// at launch), which declares to read where it comes from. Returns the elements read per element
// written, to see how exact the regions are.
double check_tiles(const ir::Program& p, const std::string& out, int64_t n, const Source& source,
                   int rank = 0, bool decided = false) {
  const auto target = ir::id_of<ir::BufferId>(buffer(p, out));
  std::vector<int> writers(static_cast<size_t>(n), 0);
  int64_t read = 0, written = 0;
  for (const ir::Task& t : p.tasks) {
    const ir::Region* region = nullptr;
    for (const ir::Access& a : t.accesses)
      if (a.region.buffer == target && a.writes()) {
        CHECK((a.kind == ir::AccessKind::Write) == !decided);
        region = &a.region;
      }
    if (!region) continue;
    written += area(*region);
    for (const ir::Access& a : t.accesses)
      if (!a.writes()) read += area(a.region);
    for (int64_t r = region->r0; r < region->r1; ++r) {
      for (int64_t c = region->c0; c < region->c1; ++c) {
        const int64_t e = (r + rank * region->block.rows) * region->pitch + c;
        if (e >= n) continue;
        const auto from = source(e);
        if (from.empty()) continue;  // not written after all
        ++writers[static_cast<size_t>(e)];
        for (const auto& [name, element] : from) {
          const auto b = ir::id_of<ir::BufferId>(buffer(p, name));
          const bool declared = std::any_of(
              t.accesses.begin(), t.accesses.end(), [&, at = element](const ir::Access& a) {
                return !a.writes() && a.region.buffer == b && holds(a.region, at, rank);
              });
          if (!declared)
            FAIL("element " << e << " of " << out << " needs undeclared " << name << " "
                            << element);
        }
      }
    }
  }
  for (int64_t e = 0; e < n; ++e)
    if (writers[static_cast<size_t>(e)] != (source(e).empty() ? 0 : 1))
      FAIL("element " << e << " of " << out << " is written " << writers[static_cast<size_t>(e)]
                      << " times");
  return static_cast<double>(read) / static_cast<double>(written);
}

const char* const kTargets[] = {"cpu", "sm_90a"};
const std::vector<std::vector<int64_t>> kShapes = {
    {1},       {7},          {1000},         {1, 1},       {1, 97},    {64, 64},
    {13, 257}, {200, 72},    {3, 5, 7},      {2, 64, 128}, {1, 31, 1}, {5, 1, 64},
    {4, 3, 2}, {2, 3, 4, 5}, {3, 16, 2, 64}, {70000},      {129, 1000}};

}  // namespace

TEST_CASE("tile sizes give each SM work without cutting small tensors to pieces") {
  CHECK(ops::tile_elements(100, 132) == 2048);
  CHECK(ops::tile_elements(132 * 8192, 132) == 8192);
  for (int64_t rows : {1, 64, 4096, 100000})
    for (int64_t cols : {1, 64, 1000, 16384}) {
      const auto t = ops::tile_matrix(rows, cols, ops::tile_elements(rows * cols, 132));
      const int64_t tiles = ((rows + t.bm - 1) / t.bm) * ((cols + t.bn - 1) / t.bn);
      CHECK(tiles <= 5 * 132);
      CHECK((t.bn == cols || t.bn % 64 == 0));
      CHECK((t.bm == rows || t.bm % 8 == 0));
    }
}

TEST_CASE("elementwise tiles partition the result and read just their part") {
  for (const char* target : kTargets)
    for (const auto& shape : kShapes) {
      const std::string s = shape_text(shape);
      const int64_t n = count(shape), last = shape.back();
      INFO(target << " " << s);
      const auto p =
          parse(fmt::format("input x : bf16{}\ninput u : f32{}\nparam b : f16[{}]\nparam c : "
                            "f32[1]\ns = swiglu(x, u)\nt = add(s, b)\noutput y = mul(t, c)",
                            s, s, last));
      REQUIRE(p.graph);
      const ir::Program program = tiled(*p.graph, target);
      CHECK(check_tiles(program, "s", n, [&](int64_t e) {
              return std::vector<std::pair<std::string, int64_t>>{{"x", e}, {"u", e}};
            }) == Approx(2.0));
      check_tiles(program, "t", n, [&](int64_t e) {
        return std::vector<std::pair<std::string, int64_t>>{{"s", e}, {"b", e % last}};
      });
      check_tiles(program, "y", n, [&](int64_t e) {
        return std::vector<std::pair<std::string, int64_t>>{{"t", e}, {"c", 0}};
      });
    }
}

TEST_CASE("movement reads what it moves and nothing else") {
  std::mt19937 random(1);
  const auto below = [&](int64_t n) {
    return static_cast<int64_t>(random() % static_cast<uint32_t>(n));
  };
  using From = std::vector<std::pair<std::string, int64_t>>;
  for (const char* target : kTargets)
    for (const auto& shape : kShapes) {
      const std::string in = "input x : bf16" + shape_text(shape) + "\n";
      INFO(target << " " << shape_text(shape));
      {
        const auto p = parse(in + fmt::format("output y = reshape(x, shape = [-1, {}])", shape[0]));
        REQUIRE(p.graph);
        CHECK(check_tiles(tiled(*p.graph, target), "y", count(shape),
                          [](int64_t e) { return From{{"x", e}}; }) == Approx(1.0));
      }
      std::vector<int64_t> perm(shape.size()), moved;
      std::iota(perm.begin(), perm.end(), 0);
      for (int turn = 0; turn < 3; ++turn) {
        std::shuffle(perm.begin(), perm.end(), random);
        moved.clear();
        for (int64_t a : perm) moved.push_back(shape[static_cast<size_t>(a)]);
        const auto p =
            parse(in + fmt::format("output y = transpose(x, perm = {})", shape_text(perm)));
        REQUIRE(p.graph);
        INFO("perm " << shape_text(perm));
        check_tiles(tiled(*p.graph, target), "y", count(shape), [&](int64_t e) {
          const auto c = coordinates(e, moved);
          std::vector<int64_t> from(c.size());
          for (size_t i = 0; i < c.size(); ++i) from[static_cast<size_t>(perm[i])] = c[i];
          return From{{"x", flat_of(from, shape)}};
        });
      }
      const size_t axis = static_cast<size_t>(below(static_cast<int64_t>(shape.size())));
      const int64_t extent = shape[axis], begin = below(extent),
                    end = begin + 1 + below(extent - begin);
      for (int64_t step : {1, 3}) {
        auto part = shape;
        part[axis] = (end - begin + step - 1) / step;
        const auto p = parse(
            in + fmt::format("output y = slice(x, axis = {}, begin = {}, end = {}, step = {})",
                             axis, begin, end, step));
        REQUIRE(p.graph);
        INFO("slice " << axis << " " << begin << " " << end << " " << step);
        const double exact = check_tiles(tiled(*p.graph, target), "y", count(part), [&](int64_t e) {
          auto c = coordinates(e, part);
          c[axis] = begin + c[axis] * step;
          return From{{"x", flat_of(c, shape)}};
        });
        if (step == 1) CHECK(exact == Approx(1.0));
      }
      auto other = shape;
      other[axis] = 1 + below(70);
      const auto p =
          parse(in + fmt::format("input z : f32{}\noutput y = concat(x, z, x, axis = {})",
                                 shape_text(other), axis));
      REQUIRE(p.graph);
      auto whole = shape;
      whole[axis] = 2 * shape[axis] + other[axis];
      CHECK(check_tiles(tiled(*p.graph, target), "y", count(whole), [&](int64_t e) {
              auto c = coordinates(e, whole);
              if (c[axis] < shape[axis]) return From{{"x", flat_of(c, shape)}};
              c[axis] -= shape[axis];
              if (c[axis] < other[axis]) return From{{"z", flat_of(c, other)}};
              c[axis] -= other[axis];
              return From{{"x", flat_of(c, shape)}};
            }) == Approx(1.0));
    }
}

TEST_CASE("split, embedding and kv_append") {
  using From = std::vector<std::pair<std::string, int64_t>>;
  const auto p = parse(
      "input x : bf16[13, 3, 130]\nparam table : f16[50, 200]\ninput ids : i32[37]\nstate cache : "
      "f16[64, 200]\n"
      "a, b = split(x, axis = -1)\noutput y = embedding(table, ids)\ncache = kv_append(cache, y, "
      "at = 5)");
  INFO(p.errors);
  REQUIRE(p.graph);
  const ir::Program program = tiled(*p.graph, "cpu");
  CHECK(check_tiles(program, "a", 13 * 3 * 65,
                    [](int64_t e) { return From{{"x", e / 65 * 130 + e % 65}}; }) == Approx(1.0));
  CHECK(check_tiles(program, "b", 13 * 3 * 65, [](int64_t e) {
          return From{{"x", e / 65 * 130 + 65 + e % 65}};
        }) == Approx(1.0));
  check_tiles(program, "y", 37 * 200, [](int64_t e) {
    return From{{"ids", e / 200}, {"table", e % 200}, {"table", 49 * 200 + e % 200}};
  });
  CHECK(check_tiles(program, "cache", 64 * 200, [](int64_t e) {
          return e >= 5 * 200 && e < 42 * 200 ? From{{"y", e - 5 * 200}} : From{};
        }) == Approx(1.0));
}

TEST_CASE("sizes and places that are known at launch") {
  using From = std::vector<std::pair<std::string, int64_t>>;
  const auto p = parse(
      "dim tokens <= 100\nscalar pos in [0, 29)\ninput x : bf16[tokens, 130]\ninput z : bf16[4, "
      "130]\nstate cache : bf16[128, 130]\n"
      "input flags : i32[tokens]\ne = reshape(x, shape = [-1, 65])\nh = add(e, e)\nl, r = split(h, "
      "axis = 0)\n"
      "last = slice(x, axis = 0, begin = -1)\nmine = slice(z, axis = 0, begin = rank * 2, end = "
      "rank * 2 + 2)\n"
      "c = concat(x, z, axis = 0)\nd = concat(z, x, axis = 0)\nf = add(flags, value = 3)\n"
      "cache = kv_append(cache, x, at = pos)",
      "graph g(world = 2)");
  INFO(p.errors);
  REQUIRE(p.graph);
  for (const char* target : kTargets) {
    const ir::Program program = tiled(*p.graph, target);
    for (int64_t t : {1, 7, 64, 100}) {
      check_tiles(program, "h", t * 130, [](int64_t e) { return From{{"e", e}}; });
      check_tiles(program, "l", t * 65, [](int64_t e) { return From{{"h", e}}; });
      check_tiles(program, "r", t * 65, [&](int64_t e) { return From{{"h", t * 65 + e}}; });
      check_tiles(program, "last", 130, [&](int64_t e) { return From{{"x", (t - 1) * 130 + e}}; });
      check_tiles(program, "f", t, [&](int64_t e) { return From{{"flags", e}}; });
      for (int rank : {0, 1})
        CHECK(check_tiles(
                  program, "mine", 260, [&](int64_t e) { return From{{"z", rank * 260 + e}}; },
                  rank) == Approx(1.0));
      check_tiles(program, "d", (t + 4) * 130,
                  [&](int64_t e) { return e < 520 ? From{{"z", e}} : From{{"x", e - 520}}; });
    }
    // Where one operand ends and the next begins only the launch knows: no element is promised,
    // each may be written.
    const auto c = ir::id_of<ir::BufferId>(buffer(program, "c"));
    const auto cache = ir::id_of<ir::BufferId>(buffer(program, "cache"));
    for (const ir::Task& task : program.tasks)
      for (const ir::Access& a : task.accesses)
        if (a.region.buffer == c || a.region.buffer == cache)
          CHECK(a.kind != ir::AccessKind::Write);
  }
}

TEST_CASE("shape and type errors say what was expected") {
  const auto error = [](const std::string& text) { return parse(text).errors; };
  using Catch::Matchers::Contains;
  const std::string x =
      "dim t <= 9\ninput x : bf16[4, 6]\ninput i : i32[4, 6]\ninput d : f32[t, 6]\n";
  CHECK_THAT(error(x + "input b : bf16[4]\noutput y = add(x, b)"),
             Contains("operand 2 must be [4,6], [6] or [1]"));
  CHECK_THAT(error(x + "output y = add(x, i)"),
             Contains("'add' cannot mix bf16 and i32; cast one of them"));
  CHECK_THAT(error(x + "output y = add(x)"), Contains("here is neither"));
  CHECK_THAT(error(x + "output y = add(x, x, value = 2)"), Contains("here are both"));
  CHECK_THAT(error(x + "output y = silu(i)"),
             Contains("'silu' is not defined for i32; cast it to a float type first"));
  CHECK_THAT(error(x + "output y = mul(i, value = 0.5)"), Contains("0.5 is not an integer"));
  CHECK_THAT(error(x + "output y = mul(i, value = 3000000000)"), Contains("does not fit in i32"));
  CHECK_THAT(error(x + "c = cast(x)\noutput y = add(c, c)"), Contains("'cast' needs 'dtype'"));
  CHECK_THAT(error(x + "output y = reshape(x, shape = [5, 5])"), Contains("24 elements into 25"));
  CHECK_THAT(error(x + "output y = reshape(x, shape = [-1, 5])"),
             Contains("are not a multiple of 5"));
  CHECK_THAT(error(x + "output y = transpose(x, perm = [0, 0])"),
             Contains("must name each of the 2 axes"));
  CHECK_THAT(error(x + "output y = transpose(d)"), Contains("a dim may be in axis 0 only"));
  CHECK_THAT(error(x + "output y = slice(x, axis = 2)"), Contains("'axis' of 'slice' is 2"));
  CHECK_THAT(error(x + "output y = slice(d, axis = 0, end = 4)"),
             Contains("which may reach beyond it"));
  CHECK_THAT(error(x + "output y = slice(x, axis = 0, begin = 3, end = 3)"),
             Contains("which may be empty"));
  CHECK_THAT(error(x + "output y = slice(x, axis = 0, end = rank + 1)"),
             Contains("depends on the rank"));
  CHECK_THAT(error(x + "output y = concat(x, d, axis = 1)"),
             Contains("'concat' cannot put d[t,6] behind x[4,6]"));
  CHECK_THAT(error(x + "l, r = split(d, axis = 0)\noutput y = add(l, r)"),
             Contains("into 2 equal parts"));
  CHECK_THAT(error(x + "output y = embedding(x, x)"), Contains("needs ids of type i32"));
  const std::string s = "scalar pos in [0, 8)\nstate k : bf16[8, 6]\ninput x : bf16[4, 6]\n";
  CHECK_THAT(error(s + "k = kv_append(k, x, at = pos)"),
             Contains("rows [pos, pos + 4) end at up to 11, but it has 8"));
  CHECK_THAT(error(s + "k = kv_append(k, x, at = pos - 4)"), Contains("which may be negative"));
  CHECK_THAT(error(s + "output y = kv_append(x, x, at = 0)"), Contains("appends to a state"));
}
