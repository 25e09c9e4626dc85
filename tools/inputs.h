// The files of --inputs, and the tensors that they don't have.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ir/graph.h"
#include "runtime/reference/safetensors.h"
#include "tools/driver.h"

namespace maco::tools {

/// "--inputs: '{rnak}' in 'in.{rnak}.st' is no placeholder; did you mean '{rank}'?", or "".
std::string wrong_placeholder(const std::string& option, const std::string& pattern);

/// The files of one rank.
class RankInputs {
 public:
  /// `loaded`: params that come from a checkpoint, and must not be in files; it must outlive the
  /// object.
  explicit RankInputs(const std::set<std::string>& loaded) : loaded_(loaded) {}
  /// Opens the files that the patterns name. Fails if one can't be read, or two of them have the
  /// same input, param or state of the graph.
  runtime::Status open(const ir::Graph& graph, const std::vector<std::string>& patterns, int rank);

  /// Whether a file has the tensor.
  bool has(const std::string& tensor) const { return files_of_.count(tensor) > 0; }
  /// The file that has it.
  const std::string& path_of(const std::string& tensor) const;
  runtime::Status read(const std::string& tensor, reference::Tensor& value) const;
  /// Tensors in files that the graph doesn't have: name and file.
  const std::vector<std::pair<std::string, std::string>>& unknown() const { return unknown_; }
  /// Inputs and params that neither a file nor the checkpoint has, in the graph's order. States
  /// begin with zeros.
  std::vector<std::string> missing(const ir::Graph& graph) const;

 private:
  struct File {
    std::string path;
    reference::SafetensorsFile file;
  };
  const std::set<std::string>& loaded_;
  std::vector<File> files_;
  std::map<std::string, size_t> files_of_;  // tensors of the graph
  std::vector<std::pair<std::string, std::string>> unknown_;
};

/// By rank: the inputs and params that no file binds there.
using MissingInputs = std::map<int, std::vector<std::string>>;

/// Opens the files of these ranks once, before anything is compiled. `required`: a missing tensor
/// is an error. `loaded`: as in RankInputs. Returns false if an error was reported.
bool check_inputs(const ir::Graph& graph, const std::vector<std::string>& patterns, bool required,
                  const std::set<std::string>& loaded, const std::vector<int>& ranks,
                  const Console& console);

/// "2 inputs and 14 params were filled with random values (seed 1): x, ids, w1 (rank 2), ..., and 3
/// more"; "" if none was missing.
std::string filled_text(const ir::Graph& graph, const MissingInputs& missing, uint64_t seed);

}  // namespace maco::tools
