#include "tools/run_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <span>

#include "ir/check.h"

namespace maco::tools {
namespace {

using runtime::Status;
using Clock = std::chrono::steady_clock;

const ir::Tensor* find(const ir::Graph& graph, const char* name, ir::TensorKind kind) {
  const auto id = graph.find_tensor(name);
  return id && graph[*id].kind == kind ? &graph[*id] : nullptr;
}

// One more than the last position at which the graph can be launched.
int64_t positions(const ir::Graph& graph) {
  return find(graph, "pos", ir::TensorKind::Scalar)->range_hi;
}
// The most ids that a launch takes.
int64_t chunk_of(const ir::Graph& graph) {
  return ir::max_elements(graph, find(graph, "tokens", ir::TensorKind::Input)->shape);
}

// What a graph of this kind must have and this one lacks, or "".
std::string wrong_graph(const ir::Graph& graph, const char* kind, bool rows) {
  const auto wrong = [&](const char* what) {
    return fmt::format("'{}' has no {}: it is no {} graph of macoc import", graph.name, what, kind);
  };
  if (!find(graph, "pos", ir::TensorKind::Scalar)) return wrong("scalar 'pos'");
  const ir::Tensor* tokens = find(graph, "tokens", ir::TensorKind::Input);
  if (!tokens || tokens->dtype != ir::DType::I32 || tokens->shape.size() != 1)
    return wrong("input 'tokens' of ids");
  const ir::Tensor* next = find(graph, "next", ir::TensorKind::Output);
  if (!next || next->dtype != ir::DType::I32 || next->shape.size() != 1 ||
      ir::max_elements(graph, next->shape) != 1)
    return wrong("output 'next' of one id");
  if (rows && !graph.find_dim("rows")) return wrong("dim 'rows'");
  if (!rows && (!graph.dims.empty() || chunk_of(graph) != 1))
    return wrong("input 'tokens' of one id");
  return "";
}

// A graph's session, as a function from ids to the next id.
class Part {
 public:
  Part(const ir::Graph& graph, runtime::Session& session) : session_(session) {
    const auto& tensors = session.manifest().tensors;
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].name == "tokens") tokens_ = i;
      if (tensors[i].name == "next") next_ = i;
    }
    has_rows_ = graph.find_dim("rows") != nullptr;
  }

  Status run(std::span<const int32_t> ids, int64_t pos, int32_t& next) {
    const runtime::RanksHere here = session_.here();
    for (int rank = here.first; here.has(rank); ++rank)
      MACO_TRY(session_.write(rank, tokens_, ids.data(), ids.size_bytes()));
    runtime::LaunchValues values = {{"pos", pos}};
    if (has_rows_) values["rows"] = static_cast<int64_t>(ids.size());
    MACO_TRY(session_.launch(values));
    return session_.read(here.first, next_, &next, sizeof next);
  }

 private:
  runtime::Session& session_;
  size_t tokens_ = 0, next_ = 0;
  bool has_rows_ = false;
};

std::string milliseconds(Clock::duration time) {
  return fmt::format("{:.3g} ms", std::chrono::duration<double, std::milli>(time).count());
}
std::string count(size_t n, const char* what) {
  return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
}

}  // namespace

std::string wrong_model(const ir::Graph& prefill, const ir::Graph& decode,
                        const runtime::WeightMap& map, const ModelOptions& options) {
  if (std::string why = wrong_graph(decode, "decode", false); !why.empty()) return why;
  if (std::string why = wrong_graph(prefill, "prefill", true); !why.empty()) return why;
  if (prefill.world != decode.world)
    return fmt::format("prefill has {} ranks, and decode {}", prefill.world, decode.world);
  for (const ir::Tensor& t : prefill.tensors) {
    if (t.kind != ir::TensorKind::Param && t.kind != ir::TensorKind::State) continue;
    const ir::Tensor* other = find(decode, t.name.c_str(), t.kind);
    if (!other || other->dtype != t.dtype || other->shape != t.shape)
      return fmt::format("'{}' of prefill isn't the same in decode: import the model again",
                         t.name);
  }
  if (options.tokens.empty()) return "--tokens: the prompt is empty";
  if (map.vocabulary == 0) return "weights.json has no 'vocabulary', which --tokens needs";
  for (const int64_t id : options.tokens)
    if (id < 0 || id >= map.vocabulary)
      return fmt::format("--tokens: {} is outside of the vocabulary, [0, {})", id, map.vocabulary);
  const int64_t rows = positions(decode);
  if (static_cast<int64_t>(options.tokens.size()) > rows)
    return fmt::format(
        "--tokens: the prompt has {} ids, but the caches {} rows: import the model "
        "with a larger --max-seq",
        options.tokens.size(), rows);
  return "";
}

int run_model(const ir::Graph& prefill, runtime::Session& prefill_session, const ir::Graph& decode,
              runtime::Session& decode_session, const runtime::WeightMap& map,
              const ModelOptions& options, runtime::Group* group, const Console& console) {
  const bool speaks = !group || group->speaks();
  const std::vector<int32_t> prompt(options.tokens.begin(), options.tokens.end());
  const std::span<const int32_t> all(prompt);
  Part many(prefill, prefill_session), one(decode, decode_session);
  const auto failed = [&](const Status& status) {
    if (speaks) console.error(status.message);
    return kRunFailed;
  };

  // A launch of prefill may write its maximum number of rows: at the end of the caches decode does
  // the rest.
  const auto begin = Clock::now();
  int32_t next = 0;
  size_t pos = 0;
  while (pos < all.size()) {
    const bool fits = static_cast<int64_t>(pos) < positions(prefill);
    const size_t rows =
        fits ? std::min(all.size() - pos, static_cast<size_t>(chunk_of(prefill))) : 1;
    const Status ran =
        (fits ? many : one).run(all.subspan(pos, rows), static_cast<int64_t>(pos), next);
    if (!ran) return failed(ran);
    pos += rows;
  }
  const auto read = Clock::now();

  std::vector<int32_t> made;
  const auto rows = static_cast<size_t>(positions(decode));
  const auto most = static_cast<size_t>(options.max_new_tokens);
  const char* why = "";
  while (true) {
    made.push_back(next);
    if (std::find(map.eos.begin(), map.eos.end(), next) != map.eos.end()) break;
    if (made.size() == most) break;
    if (pos == rows) {
      why = "; the caches are full";
      break;
    }
    if (const Status ran = one.run({&next, 1}, static_cast<int64_t>(pos), next); !ran)
      return failed(ran);
    ++pos;
  }
  if (!speaks) return kOk;
  std::printf("%s\n", fmt::format("{}", fmt::join(made, ",")).c_str());
  console.say(fmt::format("{} in {}, then {} in {}{}", count(all.size(), "id"),
                          milliseconds(read - begin), count(made.size(), "new one"),
                          milliseconds(Clock::now() - read), why));
  return kOk;
}

}  // namespace maco::tools
