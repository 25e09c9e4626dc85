// mscclpp_plan.cpp: turns the JSON of an execution plan (schema versions 0.8 and 0.9) into a
// collective.
//
// It reads first what each rank has, then the operations of its thread blocks, then checks these
// together; printing finds what the ranks have in common.

#include "compiler/frontend/mscclpp_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "compiler/frontend/chunk_statements.h"
#include "compiler/frontend/frontend.h"
#include "compiler/frontend/mscclpp_checks.h"
#include "compiler/frontend/mscclpp_ops.h"

namespace maco::frontend {

namespace {

using mscclpp::Gpu;
using mscclpp::index;

constexpr size_t kMaxName = 64;

class Importer {
 public:
  Importer(const Raw& root, const PlanOptions& options, ir::Diagnostics& diagnostics)
      : root_(root), options_(options), values_(diagnostics) {}

  std::optional<std::string> run() {
    if (!values_.object(root_, "a plan") || is_old()) return std::nullopt;
    read_head();
    const Raw* gpus = values_.required(root_, "gpus", Raw::Kind::List);
    if (gpus != nullptr) gpus_ = mscclpp::read_ranks(*gpus, values_, program_);
    if (gpus_.empty()) return std::nullopt;
    check_chunks();
    reduce_ = mscclpp::read_ops(gpus_, values_, program_);
    if (!values_.has_errors()) mscclpp::refine(gpus_, values_, program_);
    if (!values_.has_errors()) mscclpp::check_packets(gpus_, values_, program_);
    if (!values_.has_errors()) mscclpp::check_signals(values_, program_);
    const std::string graph = print_graph();
    if (values_.has_errors()) return std::nullopt;
    return print_chunk_program(program_) + graph;
  }

 private:
  int32_t world() const { return static_cast<int32_t>(gpus_.size()); }

  /// Whether the plan has the previous schema, which the rest doesn't fit; reports that.
  bool is_old() {
    const Raw* gpus = root_.find("gpus");
    if (gpus == nullptr) return false;
    for (const Raw& gpu : gpus->list)
      if (gpu.find("input_chunks") == nullptr && gpu.find("inputChunks") != nullptr) {
        values_.error(gpu.loc,
                      "this is a plan of an older MSCCL++; write it with version 0.8 to 0.9");
        return true;
      }
    return false;
  }

  void read_head() {
    if (const Raw* name = values_.required(root_, "name", Raw::Kind::String))
      program_.name = identifier(name->text);
    if (const Raw* in_place = values_.required(root_, "inplace", Raw::Kind::Bool))
      program_.in_place = in_place->boolean;
    collective_ = values_.required(root_, "collective", Raw::Kind::String);
    if (collective_ == nullptr) return;
    static const std::map<std::string, const char*> kinds = {{"allreduce", "allreduce"},
                                                             {"allgather", "allgather"},
                                                             {"reducescatter", "reduce_scatter"},
                                                             {"reduce_scatter", "reduce_scatter"},
                                                             {"alltoall", "alltoall"},
                                                             {"broadcast", "broadcast"}};
    const auto kind = kinds.find(collective_->text);
    if (kind == kinds.end())
      values_.error(collective_->loc,
                    fmt::format("there is no collective '{}' here; there are allreduce, allgather, "
                                "reducescatter, alltoall and broadcast",
                                collective_->text));
    else
      program_.of = kind->second;
  }

  static std::string identifier(const std::string& text) {
    std::string name;
    for (char c : text.substr(0, kMaxName)) {
      const bool word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
      name += word ? c : '_';
    }
    if (name.empty() || (name[0] >= '0' && name[0] <= '9')) name.insert(0, "plan_");
    // Words that mean something else where the name stands in a graph.
    static const std::set<std::string> taken = {"auto", "oneshot", "twoshot",    "ring", "nccl",
                                                "true", "false",   "collective", "graph"};
    if (taken.count(name) > 0) name += "_plan";
    return name;
  }

  /// Checks that the numbers of chunks agree with each other and with the collective.
  void check_chunks() {
    const Gpu* first = nullptr;
    for (int32_t r = 0; r < world(); ++r) {
      const Gpu& g = gpus_[index(r)];
      if (g.raw == nullptr) continue;
      if (first == nullptr) first = &g;
      for (const auto& [key, i] : {std::pair{"input_chunks", 0}, std::pair{"output_chunks", 1}})
        if (g.chunks[index(i)] != first->chunks[index(i)]) {
          values_.error(g.raw->find(key)->loc,
                        fmt::format("'{}' must be the same on all ranks: it is {} on rank {} and "
                                    "{} on rank {}",
                                    key, first->chunks[index(i)], first - gpus_.data(),
                                    g.chunks[index(i)], r));
          return;
        }
    }
    if (first == nullptr || program_.of.empty()) return;
    const int64_t input = first->chunks[0], output = first->chunks[1], n = world();
    program_.chunks = input;
    const auto wrong = [&](const std::string& rule) {
      values_.error(first->raw->find("output_chunks")->loc,
                    fmt::format("'{}' on {} ranks must have {}, found {} and {}", collective_->text,
                                n, rule, input, output));
    };
    if (program_.of == "allgather") {
      if (output != input * n) wrong(fmt::format("{} output chunks for an input chunk", n));
    } else if (program_.of == "reduce_scatter") {
      if (input != output * n) wrong(fmt::format("{} input chunks for an output chunk", n));
    } else if (input != output) {
      wrong("as many output chunks as input chunks");
    }
    if (program_.of == "alltoall" && input % n != 0)
      values_.error(first->raw->find("input_chunks")->loc,
                    fmt::format("'alltoall' on {0} ranks must have a multiple of {0} chunks, "
                                "found {1}",
                                n, input));
  }

  std::string print_graph() {
    if (collective_ == nullptr || program_.of.empty()) return "";
    const int64_t n = world();
    const bool blocks = program_.of == "reduce_scatter" || program_.of == "alltoall";
    int64_t elements = options_.elements.value_or(blocks ? (64 * 1024 + n - 1) / n * n : 64 * 1024);
    if (elements < 1)
      values_.error(collective_->loc,
                    fmt::format("the number of elements must be at least 1, found {}", elements));
    else if (blocks && elements % n != 0)
      values_.error(
          collective_->loc,
          fmt::format("the number of elements must be a multiple of {} for '{}' on as many "
                      "ranks, found {}",
                      n, program_.of, elements));
    if (values_.has_errors()) return "";
    std::string arguments;
    if (program_.of == "allreduce" || program_.of == "reduce_scatter")
      arguments = fmt::format("reduce = {}, ", reduce_.empty() ? "sum" : reduce_);
    if (program_.of == "broadcast") {
      const auto root = find_root(gpus_, values_, program_, collective_->loc);
      if (!root) return "";
      arguments = fmt::format("root = {}, ", *root);
    }
    return fmt::format(
        "graph {0}(world = {1}) {{\n  input x : {2}[{3}]\n  output y = {4}(x, {5}algorithm = "
        "{0})\n}}\n",
        program_.name, n, ir::name(options_.dtype), elements, program_.of, arguments);
  }

  const Raw& root_;
  const PlanOptions& options_;
  mscclpp::Values values_;
  const Raw* collective_ = nullptr;
  std::vector<Gpu> gpus_;
  ChunkProgram program_;
  std::string reduce_;  // empty: nothing reduces
};

/// Plans without a limit contain "max_message_size": 18446744073709551615, which doesn't fit the
/// tree. The number isn't used: the text gets zeros and blanks in its place.
std::string without_message_sizes(std::string text) {
  for (const std::string_view key : {"\"max_message_size\"", "\"min_message_size\""})
    for (size_t at = text.find(key); at != std::string::npos; at = text.find(key, at)) {
      at = text.find_first_not_of(" \t\r\n", at + key.size());
      if (at == std::string::npos || text[at] != ':') continue;
      at = text.find_first_not_of(" \t\r\n", at + 1);
      if (at == std::string::npos) break;
      const size_t end = std::min(text.find_first_not_of("0123456789", at), text.size());
      if (end - at < 19) continue;
      text.replace(at, end - at, end - at, ' ');
      text[at] = '0';
    }
  return text;
}

}  // namespace

std::optional<std::string> import_plan(int32_t file, const PlanOptions& options,
                                       ir::Diagnostics& diagnostics) {
  // The places of both texts are the same, so that `diagnostics` can show them.
  ir::Diagnostics reading;
  for (int32_t i = 0; i < file; ++i) reading.add_file("", "");
  const std::string text = without_message_sizes(diagnostics.file_text(file));
  const auto root = parse_json_raw(reading.add_file(diagnostics.file_name(file), text), reading);
  for (const ir::Diagnostic& d : reading.all()) switch (d.severity) {
      case ir::Severity::Error: diagnostics.error(d.loc, d.message); break;
      case ir::Severity::Warning: diagnostics.warning(d.loc, d.message); break;
      case ir::Severity::Note: diagnostics.note(d.loc, d.message); break;
    }
  if (!root) return std::nullopt;
  return Importer(*root, options, diagnostics).run();
}

}  // namespace maco::frontend
