// What an importer gets of a checkpoint, and what it makes of it. runtime/weights reads the files
// themselves.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ir/diagnostics.h"
#include "ir/dtype.h"

namespace maco::frontend::huggingface {

/// A tensor of a checkpoint, as its file's header describes it.
struct Source {
  std::string dtype;  // "BF16"
  std::vector<int64_t> shape;
  size_t file = 0;     // index into Checkpoint::files
  uint64_t begin = 0;  // of its bytes in the file
};

struct Checkpoint {
  std::string config;      // text of config.json
  std::string generation;  // text of generation_config.json; "": there is none
  std::vector<std::pair<std::string, uint64_t>> files;  // names within the folder, and bytes
  std::map<std::string, Source> sources;                // by the tensor's name
};

/// The text of an architecture, and its name in messages.
struct ArchitectureFile {
  std::string name, text;
};

struct ImportOptions {
  int64_t world = 1;                  // ranks that share the model
  std::optional<ir::DType> dtype;     // f32, f16 or bf16; nothing: the checkpoint's
  int64_t max_seq = 0;                // rows of the caches; 0: 4096, or the model's maximum
  int64_t chunk = 0;                  // the most rows of a prefill launch; 0: 512, or max_seq
  int64_t verify_rows = 0;            // rows of a verify launch; 0: 8, or max_seq
  std::vector<std::string> kinds;     // of kKinds; empty: all
  std::vector<ArchitectureFile> own;  // searched before those of MACO
  bool only_own = false;              // use the first of `own` and no other
};

inline constexpr const char* kKinds[] = {"decode", "prefill", "verify"};

struct ImportedModel {
  std::map<std::string, std::string> graphs;  // by kind: text of the DSL
  std::string weights;                        // text of weights.json (docs/models.md)
};

/// Makes graphs and weights.json from a checkpoint. Returns nothing, after reporting, if the
/// checkpoint isn't as its architecture says, or isn't supported.
std::optional<ImportedModel> import_checkpoint(const Checkpoint& checkpoint,
                                               const ImportOptions& options,
                                               ir::Diagnostics& diagnostics);

/// The names of MACO's architectures in config.json, in order.
std::vector<std::string> architecture_names();

}  // namespace maco::frontend::huggingface
