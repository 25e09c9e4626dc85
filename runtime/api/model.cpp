#include "maco/model.h"

#include "compiler/api/import_model.h"
#include "runtime/api/convert.h"

namespace maco {

Result<Model> import_model(const std::string& folder, const ModelOptions& options) {
  return guarded([&]() -> Result<Model> {
    api::ImportOptions given;
    given.world = options.world;
    if (options.dtype) given.dtype = ir_type(*options.dtype);
    given.max_seq = options.max_seq;
    given.chunk = options.chunk;
    given.verify_rows = options.verify_rows;
    ir::Diagnostics diagnostics;
    auto model = api::import_model(folder, options.architecture, given, diagnostics);
    if (!model) return graph_error(diagnostics);
    return Model{std::move(model->graphs), std::move(model->weights)};
  });
}

}  // namespace maco
