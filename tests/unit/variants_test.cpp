// Kernels of several variants: their text, and sessions that choose one for each launch.
#include "ir/variants.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/api/compile.h"
#include "runtime/cpu/session.h"
#include "runtime/host/variants.h"
#include "tests/catch.h"

namespace maco {

namespace {

using runtime::LaunchValues;
using runtime::Session;
using runtime::SessionOptions;
using runtime::Status;

const char* const kGraph = R"(graph sums(world = 2) {
  dim n <= 8
  scalar k in [0, 4)
  set sm_roles = {when: [{if: "n <= 2", roles: {compute: 2, comm: 1}},
                         {if: "n * k == 24", roles: auto}, {else: {compute: 3, comm: 2}}]}
  input x : f32[n, 24]
  state total : f32[8, 24]
  s = softmax(x)
  output y = allreduce(s, algorithm = twoshot)
  total = kv_append(total, y, at = k * (n <= 2))
}
)";

std::optional<api::Compiled> compiled(const std::string& text, ir::Diagnostics& d,
                                      int64_t variant = 0) {
  auto graph = api::read_graph("g.maco", text, d);
  REQUIRE(graph);
  api::Options options;
  options.target = "cpu";
  options.variant = variant;
  return api::compile(std::move(*graph), options, d);
}

std::unique_ptr<Session> on_cpu(const std::string& kernel, const SessionOptions& options,
                                Status& status) {
  return runtime::make_cpu_session(kernel, options, status);
}

/// A session that records the calls it gets.
class Teller final : public Session {
 public:
  Teller(ir::Manifest manifest, std::string name, std::string& said)
      : manifest_(std::move(manifest)), name_(std::move(name)), said_(said) {}
  const ir::Manifest& manifest() const override { return manifest_; }
  Status bind(int, size_t, void*) override { return {}; }
  Status allocate(int, size_t) override { return {}; }
  void* address(int, size_t) const override { return nullptr; }
  Status write_at(int, size_t, size_t, const void*, size_t) override { return {}; }
  Status read_at(int, size_t, size_t, void*, size_t) override { return {}; }
  Status launch(const LaunchValues&) override { return say("launch"); }
  Status enqueue(const LaunchValues&, const runtime::LaunchAddresses&,
                 std::span<void* const> streams, runtime::TensorPlaces) override {
    return say(streams.empty() ? "enqueue" : "enqueue on a stream");
  }
  Status wait() override { return say("wait"); }
  void stop() override { static_cast<void>(say("stop")); }
  Status ended(bool& all) override {
    all = name_ != "2";
    return {};
  }
  Status bench(const LaunchValues&, int, double&) override { return say("bench"); }
  Status stamps(std::vector<runtime::RankStamps>&) override { return {}; }

 private:
  Status say(const char* what) {
    said_ += fmt::format("{} {}; ", name_, what);
    return {};
  }
  const ir::Manifest manifest_;
  const std::string name_;
  std::string& said_;
};

}  // namespace

TEST_CASE("a file of variants and its parts") {
  const std::vector<ir::KernelVariant> variants = {{*ir::parse_expr("n <= 2 && k > 0").expr, "a\n"},
                                                   {std::nullopt, "b\n#if 1\n#endif\n"}};
  const std::string text = ir::join_variants(variants);
  const auto again = ir::split_variants(text);
  CHECK(again.error == "");
  REQUIRE(again.variants.size() == 2);
  CHECK(again.variants[0].condition->str() == "n <= 2 && k > 0");
  CHECK(!again.variants[1].condition);
  CHECK(again.variants[0].kernel == "a\n");
  CHECK(again.variants[1].kernel == variants[1].kernel);

  CHECK(ir::join_variants({{std::nullopt, "alone"}}) == "alone");
  REQUIRE(ir::split_variants("alone").variants.size() == 1);
  CHECK(ir::split_variants("alone").variants[0].kernel == "alone");

  const auto damaged = [&](const std::string& from, const std::string& to) {
    std::string t = text;
    t.replace(t.find(from), from.size(), to);
    const auto result = ir::split_variants(t);
    CHECK(result.variants.empty() == !result.error.empty());
    return result.error;
  };
  CHECK(damaged(" if n <= 2", " if n <=") ==
        "the condition of variant 1: expected an operand, found '&'");
  CHECK(damaged(" if n <= 2", " for n <= 2") == "variant 1 has no condition");
  CHECK(damaged(" if n <= 2 && k > 0", " else") == "a variant comes after 'else'");
  CHECK(damaged(" else", " if n") == "the last variant has a condition");
  CHECK(damaged("#if MACO_VARIANT == 1", "") == "variant 1 has no kernel");
  const size_t last = text.rfind("#endif  // of");
  CHECK(ir::split_variants(text.substr(0, last)).error == "the file ends within a variant");
}

TEST_CASE("each launch runs the first variant whose condition holds") {
  ir::Diagnostics d;
  const auto kernel = compiled(kGraph, d);
  INFO(d.render());
  REQUIRE(kernel);
  REQUIRE(kernel->variants.size() == 3);
  std::string said;
  int opened = 0;
  Status status;
  SessionOptions options;
  options.allocate_tensors = false;
  const auto session = runtime::open_session(
      kernel->kernel, options,
      [&](const std::string& source, const SessionOptions& o, Status&) {
        CHECK(!o.allocate_tensors);
        return std::make_unique<Teller>(*ir::parse_manifest(source).manifest,
                                        std::to_string(++opened), said);
      },
      status);
  REQUIRE(session);
  CHECK(opened == 3);
  const auto after = [&](const Status& s) {
    CHECK(s.message == "");
    return std::exchange(said, "");
  };
  CHECK(after(session->launch({{"n", 2}, {"k", 0}})) == "1 launch; ");
  CHECK(after(session->launch({{"k", 3}})) == "2 launch; ");  // n has its maximum
  CHECK(after(session->enqueue({{"n", 3}, {"k", 3}}, {}, {})) == "3 enqueue; ");
  CHECK(after(session->enqueue({{"n", 4}, {"k", 3}}, {}, {})) == "3 enqueue; ");
  void* const streams[] = {nullptr, nullptr};
  CHECK(after(session->enqueue({{"n", 1}, {"k", 3}}, {}, streams)) ==
        "3 wait; 1 enqueue on a stream; ");
  double median = 0;
  CHECK(after(session->bench({{"n", 1}, {"k", 3}}, 3, median)) == "1 bench; ");
  CHECK(after(session->wait()) == "1 wait; ");
  CHECK(after(session->launch({{"k", 3}})) == "2 launch; ");
  bool all = true;
  CHECK(session->ended(all).ok);
  CHECK(!all);
  const int32_t n = 1;
  CHECK(session->enqueue({{"k", 3}}, {{"n", {{&n, &n}}}}, {}).message ==
        "'n' says which SMs do what ('sm_roles'): it has to be a number, not in memory");
}

TEST_CASE("variants share their tensors, and give the bits of any of them") {
  ir::Diagnostics d;
  const auto kernel = compiled(kGraph, d);
  const auto alone = compiled(kGraph, d, 3);
  INFO(d.render());
  REQUIRE((kernel && alone));
  CHECK(alone->variants.empty());
  Status status;
  std::vector<std::vector<float>> results;
  for (const std::string& source : {kernel->kernel, alone->kernel}) {
    const auto session = runtime::open_session(source, {}, on_cpu, status);
    INFO(status.message);
    REQUIRE(session);
    const auto tensor = [&](const char* name) {
      const auto& tensors = session->manifest().tensors;
      return static_cast<size_t>(std::find_if(tensors.begin(), tensors.end(),
                                              [&](const auto& t) { return t.name == name; }) -
                                 tensors.begin());
    };
    std::vector<float>& result = results.emplace_back();
    for (const auto& [n, k] : {std::pair{8, 1}, {1, 2}, {8, 3}, {2, 1}, {5, 0}, {1, 3}}) {
      for (int rank = 0; rank < 2; ++rank) {
        std::vector<float> x(8 * 24);
        for (size_t i = 0; i < x.size(); ++i)
          x[i] = static_cast<float>((i * 7 + static_cast<size_t>(rank * n + k)) % 13) / 4;
        REQUIRE(session->write(rank, tensor("x"), x.data(), x.size() * 4).ok);
      }
      REQUIRE(session->launch({{"n", n}, {"k", k}}).message == "");
      std::vector<float> total(8 * 24);
      REQUIRE(session->read(1, tensor("total"), total.data(), total.size() * 4).ok);
      result.insert(result.end(), total.begin(), total.end());
    }
  }
  CHECK(results[0] == results[1]);
}

TEST_CASE("a variant that isn't there") {
  for (const auto& [text, why] :
       {std::pair{std::string(kGraph), "'sm_roles' has 3 variants: there is no variant 4"},
        {std::string("graph g { input x : f32[4]\n output y = relu(x) }"),
         "'sm_roles' of this graph has no variants"}}) {
    ir::Diagnostics d;
    CHECK(!compiled(text, d, 4));
    CHECK(d.render().find(why) != std::string::npos);
  }
}

}  // namespace maco
