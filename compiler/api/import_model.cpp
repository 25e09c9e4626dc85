#include "compiler/api/import_model.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "compiler/api/compile.h"
#include "compiler/frontend/huggingface/read.h"

namespace maco::api {

std::optional<ImportedModel> import_model(const std::string& folder,
                                          const std::string& architecture, ImportOptions options,
                                          ir::Diagnostics& diagnostics) {
  namespace huggingface = frontend::huggingface;
  const auto fail = [&](const std::string& message) {
    diagnostics.error({}, message);
    return std::nullopt;
  };
  huggingface::Checkpoint checkpoint;
  if (const std::string wrong = huggingface::read_checkpoint(folder, checkpoint); !wrong.empty())
    return fail(wrong);
  std::vector<std::string> paths;
  if (!architecture.empty()) {
    paths.push_back(architecture);
    options.only_own = true;
  } else {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(folder, error))
      if (entry.path().extension() == ".arch") paths.push_back(entry.path().string());
    std::sort(paths.begin(), paths.end());
  }
  for (const std::string& path : paths) {
    std::string error;
    auto text = read_file(path, error);
    if (!text) return fail(error);
    options.own.push_back({path, std::move(*text)});
  }
  return huggingface::import_checkpoint(checkpoint, options, diagnostics);
}

}  // namespace maco::api
