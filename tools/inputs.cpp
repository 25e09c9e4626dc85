#include "tools/inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "ir/check.h"
#include "runtime/host/settings.h"

namespace maco::tools {
namespace {

bool is_bound(ir::TensorKind kind) {
  return kind == ir::TensorKind::Input || kind == ir::TensorKind::Param ||
         kind == ir::TensorKind::State;
}
const char* name_of(ir::TensorKind kind) {
  return kind == ir::TensorKind::Param ? "param" : "input";
}

/// A tensor that is missing, and the ranks where it is.
struct Missing {
  const ir::Tensor* tensor;
  std::vector<int> ranks;
};
// In the graph's order.
std::vector<Missing> by_tensor(const ir::Graph& graph, const MissingInputs& missing) {
  std::vector<Missing> all;
  for (const ir::Tensor& t : graph.tensors) {
    Missing one{&t, {}};
    for (const auto& [rank, names] : missing)
      if (std::find(names.begin(), names.end(), t.name) != names.end()) one.ranks.push_back(rank);
    if (!one.ranks.empty()) all.push_back(std::move(one));
  }
  return all;
}

}  // namespace

std::string wrong_placeholder(const std::string& option, const std::string& pattern) {
  std::error_code code;
  if (std::filesystem::exists(pattern, code)) return "";  // a file has this very name
  for (size_t at = pattern.find('{'); at != std::string::npos; at = pattern.find('{', at + 1)) {
    const size_t end = pattern.find('}', at);
    if (end == std::string::npos) return "";
    const std::string word = pattern.substr(at + 1, end - at - 1);
    const bool is_word = !word.empty() && std::all_of(word.begin(), word.end(), [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
    });
    if (!is_word || word == "rank") continue;
    const std::string near = ir::did_you_mean("{" + word + "}", {"{rank}"});
    return fmt::format("{}: '{{{}}}' in '{}' is no placeholder{}", option, word, pattern,
                       near.empty() ? "; there is '{rank}' alone" : near);
  }
  return "";
}

runtime::Status RankInputs::open(const ir::Graph& graph, const std::vector<std::string>& patterns,
                                 int rank) {
  for (const std::string& pattern : patterns) {
    if (pattern.empty()) return runtime::Status::failure("--inputs: the name of a file is empty");
    File& added = files_.emplace_back();
    std::error_code code;
    const bool so_called = std::filesystem::exists(pattern, code);
    added.path = so_called ? pattern : reference::rank_file(pattern, rank);
    if (const auto opened = added.file.open(added.path); !opened) {
      const std::string first = pattern.substr(0, pattern.find(','));
      const bool list = first.size() < pattern.size() && std::filesystem::exists(first, code);
      return runtime::Status::failure(
          opened.message + (list ? "; --inputs takes one file, and can be repeated" : ""));
    }
    for (const auto& entry : added.file.entries()) {
      const auto id = graph.find_tensor(entry.name);
      if (!id || !is_bound(graph[*id].kind)) {
        unknown_.emplace_back(entry.name, added.path);
        continue;
      }
      if (loaded_.count(entry.name) > 0)
        return runtime::Status::failure(fmt::format(
            "'{}' is in '{}', and comes from the checkpoint of --weights", entry.name, added.path));
      const auto [at, fresh] = files_of_.emplace(entry.name, files_.size() - 1);
      if (!fresh)
        return runtime::Status::failure(
            fmt::format("'{}' is in two files of --inputs: '{}' and '{}'", entry.name,
                        files_[at->second].path, added.path));
    }
  }
  return {};
}

const std::string& RankInputs::path_of(const std::string& tensor) const {
  return files_[files_of_.at(tensor)].path;
}

runtime::Status RankInputs::read(const std::string& tensor, reference::Tensor& value) const {
  const reference::SafetensorsFile& file = files_[files_of_.at(tensor)].file;
  const auto* entry = file.find(tensor);
  MACO_CHECK(entry, tensor);
  return file.read(*entry, value);
}

std::vector<std::string> RankInputs::missing(const ir::Graph& graph) const {
  std::vector<std::string> names;
  for (const ir::Tensor& t : graph.tensors)
    if ((t.kind == ir::TensorKind::Input || t.kind == ir::TensorKind::Param) && !has(t.name) &&
        loaded_.count(t.name) == 0)
      names.push_back(t.name);
  return names;
}

bool check_inputs(const ir::Graph& graph, const std::vector<std::string>& patterns, bool required,
                  const std::set<std::string>& loaded, const std::vector<int>& ranks,
                  const Console& console) {
  MissingInputs missing;
  for (const int rank : ranks) {
    RankInputs inputs(loaded);
    if (const auto status = inputs.open(graph, patterns, rank); !status) {
      console.error(status.message);
      return false;
    }
    missing[rank] = inputs.missing(graph);
  }
  if (!required) return true;
  const std::vector<Missing> all = by_tensor(graph, missing);
  const size_t most =
      console.max_errors == 0 ? all.size() : static_cast<size_t>(console.max_errors);
  for (size_t i = 0; i < all.size() && i < most; ++i) {
    const bool everywhere = all[i].ranks.size() == ranks.size() && ranks.size() > 1;
    console.error(fmt::format(
        "--require-inputs: no file binds {} '{}'{}", name_of(all[i].tensor->kind),
        all[i].tensor->name,
        graph.world == 1 || everywhere ? "" : " on " + runtime::ranks_text(all[i].ranks)));
  }
  if (all.size() > most)
    console.error(fmt::format("and {} more inputs and params", all.size() - most));
  return all.empty();
}

std::string filled_text(const ir::Graph& graph, const MissingInputs& missing, uint64_t seed) {
  constexpr size_t kNames = 8;
  const std::vector<Missing> all = by_tensor(graph, missing);
  if (all.empty()) return "";
  size_t inputs = 0;
  std::string names;
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].tensor->kind == ir::TensorKind::Input) ++inputs;
    if (i >= kNames) continue;
    names += (i == 0 ? "" : ", ") + all[i].tensor->name;
    if (all[i].ranks.size() < missing.size())
      names += fmt::format(" ({})", runtime::ranks_text(all[i].ranks));
  }
  if (all.size() > kNames) names += fmt::format(" and {} more", all.size() - kNames);
  const auto count = [](size_t n, const char* what) {
    return n == 0 ? std::string() : fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
  };
  const size_t params = all.size() - inputs;
  return fmt::format("{}{}{} {} filled with random values (seed {}): {}", count(inputs, "input"),
                     inputs > 0 && params > 0 ? " and " : "", count(params, "param"),
                     all.size() == 1 ? "was" : "were", seed, names);
}

}  // namespace maco::tools
