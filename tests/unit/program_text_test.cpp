// print and parse of ir::Program.
#include "ir/program_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <random>

#include "compiler/frontend/dumps.h"
#include "compiler/frontend/frontend.h"
#include "ir/graph_text.h"
#include "tests/catch.h"

namespace maco::ir {
namespace {

constexpr const char* kExample =
    R"(program tp_mlp stage=synced world=2 target=cpu ctas=8 arena=131072 symmetric=4096 {
  roles compute 0..6, comm 6..8 [allreduce, "all gather"]
  value %0 = pos + 1 in [1, 4096]
  buffer x : bf16[64 x 1024] input tensor=x
  buffer h : f32[tokens max 64 x 2048] temp offset=0
  buffer p.slots : bf16[2 x 4096] slot rotation=2 packets offset=0
  call c0 = matmul op=h kind=matmul { M=64 eps=1e-06 one=1.0 wide=true mode=by_block odd=word "bf16" X=bf16 rows=const 64 pos=value %0 turns=table [0x0, 0xffffffffffffffff] epilogue=body(acc f32, column bf16) "t0 = add(%0, %1) : f32; t1 = mul(t0, value=0.10000000000000001) : bf16" } (x, h) loads 1 ring=0 pages=1 page_bytes=4096 ahead, 0 ring=1 pages=2 page_bytes=64 behind
  call c1 = push with pair, "a b" op=y kind=allreduce (p.slots) moves copy(0 -> 1), reduce max(0, 1 -> 2, 3)
  event e0 local count=16
  event y.push packet
  task t0 c0#3 compute sm=2 place=0: read x[0:64, 0:1024]; write h[0:64, 0:64]; signal e0
  task t1 c1#0 comm sm=6 place=0 ranks=0x3 priority=high after(c0, c1): read h[0:4, 0:8 pitch=512]; write p.slots[0:1, 0:4096 block=self*1 on=others]; wait e0, y.push from shift(-1) lag 1; signal y.push to others
  task t2 c1#1 comm: may p.slots[0:1, 0:1]; read p.slots[1:2, 0:1]; wait y.push from rank(1)
}
)";

struct Parsed {
  std::optional<Program> program;
  Diagnostics diagnostics;
};
Parsed parse(const std::string& text) {
  Parsed result;
  const int32_t file = result.diagnostics.add_file("p.txt", text);
  result.program = frontend::parse_program(file, result.diagnostics);
  return result;
}

/// A graph of `rows` rows and one.
Graph small_graph(int64_t rows) {
  Diagnostics d;
  const std::string text =
      fmt::format("graph g {{\n  input x : f32[{}, 8]\n  output y : f32[{}, 8] = relu(x)\n}}\n",
                  rows + 1, rows + 1);
  auto graph = frontend::parse_dsl(d.add_file("g", text), d);
  REQUIRE(graph);
  return std::move(*graph);
}

TEST_CASE("a Program's text is canonical") {
  Parsed parsed = parse(kExample);
  INFO(parsed.diagnostics.render());
  REQUIRE(parsed.program);
  CHECK(print(*parsed.program) == kExample);
  const Program& p = *parsed.program;
  CHECK(p.tasks[1].accesses[1].region.where == RankRef::others());
  CHECK(p.tasks[1].waits[1].from == RankRef::shift(-1));
  CHECK(p.tasks[0].accesses[0].region.pitch == 1024);
  CHECK(p.calls[1].loc.line == 8);
  CHECK(describe(p, id_of<TaskId>(0)) == "matmul 'h' tile 3");
}

TEST_CASE("layout, comments and labels are free") {
  Parsed parsed = parse(
      "program \"\" stage=tiled world=1 target=cpu ctas=0 { // nothing yet\n"
      "buffer a:f32[1 x 1]temp buffer b : f32[1 x 1] temp // two on a line\n"
      "call mm=f op=a kind=k(a,\n  b)\n task mine mm#0\n compute:\n read a[0:1,0:1]\n "
      "b[0:1,0:1];\n write b[0:1,0:1] }");
  INFO(parsed.diagnostics.render());
  REQUIRE(parsed.program);
  CHECK(parsed.program->tasks[0].accesses.size() == 3);
}

// Fills every field with something that is seldom seen.
class Random {
 public:
  explicit Random(uint32_t seed) : random_(seed) {}
  int64_t below(int64_t n) { return std::uniform_int_distribution<int64_t>(0, n - 1)(random_); }
  bool coin() { return below(2) == 0; }
  int64_t integer() {
    switch (below(5)) {
      case 0: return std::numeric_limits<int64_t>::min() + below(2);
      case 1: return std::numeric_limits<int64_t>::max();
      case 2: return -below(1000);
      default: return below(1000);
    }
  }
  template <class Int>
  Int narrow() {
    return static_cast<Int>(integer());
  }
  std::string text() {
    static const char* const some[] = {"a",     "layers.0.w", "read", "self", "x",        "",
                                       "const", "wait",       "1a",   "a b",  "a\"\\\n\t"};
    if (coin()) return some[below(std::size(some))];
    std::string s;
    for (int64_t n = below(12); n > 0; --n) s += static_cast<char>(below(256));
    return s;
  }
  double number() {
    static const double some[] = {0.0,
                                  1.0,
                                  -2.5,
                                  1e-6,
                                  1e300,
                                  5e-324,
                                  0.1,
                                  std::numeric_limits<double>::infinity(),
                                  -std::numeric_limits<double>::infinity(),
                                  std::numeric_limits<double>::max()};
    return coin() ? some[below(std::size(some))]
                  : std::uniform_real_distribution<double>(-1e9, 1e9)(random_);
  }
  template <class Id>
  Id id(size_t count) {
    return id_of<Id>(static_cast<size_t>(below(static_cast<int64_t>(count))));
  }
  RankRef ranks() {
    const auto kind = static_cast<RankRef::Kind>(below(5));
    const bool numbered = kind == RankRef::Kind::Rank || kind == RankRef::Kind::Shift;
    return {kind, numbered ? narrow<int32_t>() : 0};
  }
  std::optional<Load::Box> box() {
    if (coin()) return std::nullopt;
    return Load::Box{integer(), integer(), integer(), coin() ? 0 : integer()};
  }
  Transfer transfer() {
    Transfer t;
    t.from.push_back(narrow<uint32_t>());
    t.to.push_back(narrow<uint32_t>());
    if (coin()) return t;
    if (coin()) {
      t.kind = Transfer::Kind::Clear;
      t.from.clear();
      return t;
    }
    t.kind = Transfer::Kind::Reduce;
    t.reduce = static_cast<Reduction>(below(4));
    t.from.push_back(narrow<uint32_t>());
    return t;
  }
  Param param(size_t values) {
    Param p{text(), true};
    switch (below(9)) {
      case 0: p.value = coin(); break;
      case 1: p.value = integer(); break;
      case 2: p.value = number(); break;
      case 3: p.value = kAllDTypes[static_cast<size_t>(below(7))]; break;
      case 4: p.value = ValueRef{integer()}; break;
      case 5: p.value = ValueRef{static_cast<uint32_t>(below(static_cast<int64_t>(values)))}; break;
      case 6: {
        Table table;
        for (int64_t n = below(4); n > 0; --n)
          table.words.push_back(static_cast<uint64_t>(integer()));
        p.value = table;
        break;
      }
      case 7: p.value = Word{text()}; break;
      default: p.value = body();
    }
    return p;
  }
  // A body over floats, which all functions take.
  BodyParam body() {
    BodyParam p;
    for (int64_t n = 1 + below(3); n > 0; --n) {
      const auto dtype = kAllDTypes[static_cast<size_t>(below(5))];
      p.operands.push_back({static_cast<Spread>(below(3)), dtype});
    }
    if (coin()) p.operands[0] = {Spread::Accumulator, DType::F32};
    for (int64_t n = 1 + below(4); n > 0; --n) {
      constexpr std::string_view functions[] = {"silu", "copy", "swiglu", "add"};
      BodyStep step;
      step.function = functions[below(4)];
      for (int i = find_body_function(step.function)->args; i > 0; --i) {
        const auto steps = static_cast<int64_t>(p.body.steps.size());
        if (steps > 0 && coin()) {
          step.args.push_back(BodyArg::step(static_cast<int>(below(steps))));
        } else if (coin()) {
          const auto count = static_cast<int64_t>(p.operands.size());
          step.args.push_back(BodyArg::operand(static_cast<int>(below(count))));
        } else {
          step.args.push_back(
              BodyArg::value(std::uniform_real_distribution<double>(-1e9, 1e9)(random_)));
        }
      }
      step.dtype = kAllDTypes[static_cast<size_t>(below(5))];
      p.body.steps.push_back(step);
    }
    return p;
  }
  Program program() {
    Program p;
    p.name = text();
    p.stage = static_cast<Stage>(below(4));
    p.world = integer();
    p.target = text();
    p.board = text();
    p.ctas = narrow<int32_t>();
    if (coin()) p.arena_bytes = integer();
    if (coin()) p.symmetric_bytes = integer();
    if (coin())
      p.uses = {narrow<int32_t>(), narrow<int32_t>(), narrow<int32_t>(), narrow<int32_t>(),
                narrow<int32_t>(), narrow<int32_t>(), narrow<int32_t>(), integer(),
                integer(),         narrow<int32_t>(), integer()};
    if (coin()) p.limits = {narrow<int32_t>(), narrow<int32_t>(), narrow<int32_t>(), integer()};
    if (coin()) p.limits.symmetric_bytes = integer();
    for (int64_t n = below(3); n > 0; --n) {
      CtaRange range{coin() ? Role::Compute : Role::Comm, narrow<int32_t>(), narrow<int32_t>(), {}};
      for (int64_t k = below(3); k > 0; --k) range.ops.push_back(text());
      p.roles.push_back(range);
    }
    const Expr exprs[] = {Expr(7), Expr::var("tokens"), Expr::var("in") + Expr(1),
                          Expr::var("x") * Expr::var("max")};
    for (int64_t n = below(3); n > 0; --n) {
      p.variables.push_back({text(), {integer(), integer()}, coin()});
      if (coin()) p.variables.back().typical = integer();
    }
    if (coin()) p.graph = small_graph(below(5));
    for (int64_t n = 1 + below(3); n > 0; --n)
      p.values.push_back({exprs[below(4)], {integer(), integer()}});
    for (int64_t n = 1 + below(4); n > 0; --n) {
      Buffer b;
      b.name = text();
      b.kind = static_cast<BufferKind>(below(6));
      b.dtype = kAllDTypes[static_cast<size_t>(below(7))];
      b.rows = exprs[below(4)];
      b.max_rows = coin() ? b.rows.constant().value_or(5) : integer();
      b.cols = integer();
      if (coin()) b.tensor = text();
      if (coin()) b.rotation = integer();
      b.packets = coin();
      if (coin()) b.offset = integer();
      p.buffers.push_back(b);
    }
    for (int64_t n = 1 + below(3); n > 0; --n) {
      Call c{text(), text(), text(), {}, {}, {}, {}, {}, {}};
      for (int64_t k = below(3); k > 0; --k) c.stages.push_back(text());
      for (int64_t k = below(3); k > 0; --k)
        c.loads.push_back(
            {narrow<uint32_t>(), narrow<uint32_t>(), integer(), integer(), box(), coin()});
      for (int64_t k = below(3); k > 0; --k) c.transfers.push_back(transfer());
      for (int64_t k = below(5); k > 0; --k) c.params.push_back(param(p.values.size()));
      for (int64_t k = below(4); k > 0; --k) c.operands.push_back(id<BufferId>(p.buffers.size()));
      p.calls.push_back(c);
    }
    for (int64_t n = below(3); n > 0; --n) {
      Collective c{.op = text(), .kind = static_cast<CollectiveKind>(below(kCollectiveKinds))};
      if (c.kind != CollectiveKind::Barrier)
        c.in = id<BufferId>(p.buffers.size()), c.out = id<BufferId>(p.buffers.size());
      if (c.kind == CollectiveKind::Zeros) c.in = c.out;
      c.reduce = static_cast<Reduction>(below(4));
      if (coin()) c.peer = integer();
      if (coin()) c.sender = text();
      if (coin()) c.ranks = static_cast<uint64_t>(integer());
      p.collectives.push_back(c);
    }
    for (int64_t n = 1 + below(3); n > 0; --n)
      p.events.push_back({text(), static_cast<EventKind>(below(3)), narrow<uint32_t>(),
                          coin() ? std::optional(static_cast<Scope>(below(2))) : std::nullopt});
    for (int64_t n = below(5); n > 0; --n) {
      Task t;
      t.call = id<CallId>(p.calls.size());
      t.tile = narrow<uint32_t>();
      t.role = coin() ? Role::Compute : Role::Comm;
      t.priority = static_cast<Priority>(below(3));
      if (coin()) t.ranks = static_cast<uint64_t>(integer());
      if (coin()) t.sm = narrow<int32_t>();
      if (coin()) t.place = narrow<int32_t>();
      for (int64_t k = below(4); k > 0; --k) {
        Region r{id<BufferId>(p.buffers.size()),
                 0,
                 integer(),
                 integer(),
                 integer(),
                 integer(),
                 {},
                 ranks()};
        r.pitch = coin() ? p[r.buffer].cols : integer();
        if (coin()) r.block = {.ref = ranks(), .rows = 1 + below(100)};
        if (coin() && !p.values.empty())
          r.block = {.ref = ranks(),
                     .value = static_cast<uint32_t>(below(static_cast<int64_t>(p.values.size())))};
        if (coin() && !p.values.empty())
          r.from = static_cast<uint32_t>(below(static_cast<int64_t>(p.values.size())));
        t.accesses.push_back({static_cast<AccessKind>(below(3)), r});
      }
      for (int64_t k = below(3); k > 0; --k) t.after.push_back(id<CallId>(p.calls.size()));
      for (int64_t k = below(3); k > 0; --k)
        t.waits.push_back(
            {id<EventId>(p.events.size()), ranks(), coin() ? 0 : narrow<uint32_t>(), coin()});
      for (int64_t k = below(3); k > 0; --k)
        t.signals.push_back({id<EventId>(p.events.size()), ranks(), coin()});
      p.tasks.push_back(t);
    }
    return p;
  }

 private:
  std::mt19937 random_;
};

TEST_CASE("printing and parsing loses nothing, whatever the fields hold") {
  for (uint32_t seed = 0; seed < 3000; ++seed) {
    const Program program = Random(seed).program();
    const std::string text = print(program);
    Parsed parsed = parse(text);
    INFO("seed " << seed << "\n" << text << parsed.diagnostics.render());
    REQUIRE(parsed.program);
    REQUIRE(*parsed.program == program);
    REQUIRE(print(*parsed.program) == text);
  }
}

TEST_CASE("every error is reported, at its place") {
  Parsed parsed = parse(
      "program p stage=tiled world=1 target=cpu ctas=0 {\n"
      "  buffer h0 : f33[1 x 1] temp\n"
      "  buffer hidden : f32[64 x 8] temp\n"
      "  buffer h : f32[64 x 8] tmp\n"
      "  call c0 = f op=a kind=k (hiden, #9)\n"
      "  event e local count=4294967296\n"
      "  task t0 c1#0 compute: read hidden[0:1 0:1]\n"
      "  bufer q : f32[1 x 1] temp\n"
      "  task t1 c0#0 compute: read hidden[0:1, 0:1]; wait\n"
      "  task t2 c0#0 compute: red hidden[0:1, 0:1]\n"
      "  call c2 = f op=a kind=k { b=body(full f32, acc i32) \"t0 = silu(%0) : f32\" } (hidden)\n"
      "  call c3 = f op=a kind=k { b=body(full i32) \"t0 = silu(%0) : f32\" } (hidden)\n"
      "  call c4 = f op=a kind=k { b=body(whole f32) \"t0 = silu(%0) : f32\" } (hidden)\n"
      "  call c5 = f op=a kind=k { b=body(full f32) \"t0 = silu(%0)\" } (hidden)\n"
      "  call c6 = f op=a kind=k { b=table [0x1, true] } (hidden)\n"
      "  task t3 c0#0 compute: read hidden[0:1, 0:1 block=shift(3)*0]\n"
      "}\n");
  CHECK_FALSE(parsed.program);
  std::vector<std::string> found;
  for (const Diagnostic& d : parsed.diagnostics.all())
    found.push_back(std::to_string(d.loc.line) + ":" + std::to_string(d.loc.column) + ": " +
                    d.message);
  const std::vector<std::string> wanted = {
      "2:15: expected a dtype, found 'f33'",
      "4:26: expected a kind of buffer (input, param, state, output, temp, slot), found 'tmp'; did "
      "you mean 'temp'?",
      "5:28: unknown buffer 'hiden'; did you mean 'hidden'?",
      "5:35: there is no buffer #9: the text has 1 so far",
      "6:23: 4294967296 is out of range",
      "7:11: unknown call 'c1'",
      "7:41: expected ',', found '0'",
      "8:3: expected 'uses', 'limits', 'roles', 'dim', 'scalar', 'value', 'buffer', 'call', "
      "'collective', 'event', "
      "'task' or '}', found 'bufer'",
      "10:3: expected an event, found the reserved word 'task'; as a name it is written \"task\"",
      "10:25: expected 'read', 'write', 'may', 'wait' or 'signal', found 'red'",
      "11:35: the body: operand %1 is an accumulator, which only the first ones may be",
      "12:35: the body: 'silu' is not defined for i32; cast it to a float type first",
      "13:36: expected how an operand is spread (full, column, single, acc), found 'whole'",
      "14:35: the body: expected ':' and a dtype at offset 13 of 't0 = silu(%0)'",
      "15:43: expected a number, found 'true'",
      "16:61: a block has at least one row",
  };
  CHECK(found == wanted);
}

TEST_CASE("a damaged text is refused or read, never a crash") {
  std::mt19937 random(7);
  const std::string original = kExample;
  const std::string alphabet = "{}[]():;,.#%\"\\=/ \n0129-xeabct\x01\xff";
  int refused = 0;
  for (int round = 0; round < 5000; ++round) {
    std::string text = original;
    for (int n = 1 + static_cast<int>(random() % 4); n > 0; --n) {
      const size_t at = random() % text.size();
      switch (random() % 4) {
        case 0: text.erase(at, 1 + random() % 20); break;
        case 1: text.insert(at, 1, alphabet[random() % alphabet.size()]); break;
        case 2: text[at] = alphabet[random() % alphabet.size()]; break;
        default: text.insert(at, original.substr(random() % original.size(), 30));
      }
    }
    if (round % 10 == 0) text.resize(random() % text.size());
    Parsed parsed = parse(text);
    INFO(text);
    REQUIRE(parsed.program.has_value() != parsed.diagnostics.has_errors());
    if (parsed.program) {
      REQUIRE(*parse(print(*parsed.program)).program == *parsed.program);
    } else {
      ++refused;
    }
  }
  CHECK(refused > 2000);
}

TEST_CASE("a Program holds the graph behind it") {
  const std::string graph = print(small_graph(3));
  const Parsed parsed = parse(kExample + graph);
  INFO(parsed.diagnostics.render());
  REQUIRE(parsed.program);
  REQUIRE(parsed.program->graph);
  CHECK(*parsed.program->graph == small_graph(3));
  CHECK(print(*parsed.program) == kExample + graph);

  // A copy has the same one; it compares by what the graph says.
  Program copy = *parsed.program;
  CHECK(copy.graph.same(parsed.program->graph));
  copy.graph = small_graph(3);
  CHECK(copy == *parsed.program);
  copy.graph = small_graph(4);
  CHECK_FALSE(copy == *parsed.program);
  copy.graph = {};
  CHECK_FALSE(copy == *parsed.program);
  CHECK(print(copy) == kExample);

  // Who brings no parser gets the Program alone.
  Diagnostics d;
  const auto alone = parse_program(d.add_file("p.txt", kExample + graph), d);
  REQUIRE(alone);
  CHECK_FALSE(alone->graph);
}

TEST_CASE("what is wrong with the graph is told where it stands in the Program's text") {
  const Parsed parsed = parse(std::string(kExample) + "graph g {\n  output y = rleu(x)\n}\n");
  CHECK_FALSE(parsed.program);
  const auto line = 2 + std::count(kExample, kExample + std::string_view(kExample).size(), '\n');
  CHECK_THAT(parsed.diagnostics.render(), test::Contains(fmt::format("p.txt:{}:14: error", line)));
}

}  // namespace
}  // namespace maco::ir
