#include "compiler/api/dump.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/frontend/dumps.h"
#include "compiler/ops/op.h"
#include "ir/diagnostics.h"

namespace maco::api {

namespace {

// An attribute of the op that no user's graph can have, or "".
std::string key_of_passes(const ir::Op& op, const ops::OpDef& def) {
  for (const auto& [key, value] : op.attrs) {
    const auto spec = std::find_if(def.attrs.begin(), def.attrs.end(),
                                   [&](const ops::AttrSpec& a) { return a.name == key; });
    if (spec == def.attrs.end() ? key == "method" || key == "tile" : spec->internal) return key;
  }
  return "";
}

}  // namespace

std::string passes_made(const std::string& text, const std::vector<std::string>& algorithms) {
  ir::Diagnostics diagnostics;
  const auto graph =
      frontend::parse_dump(diagnostics.add_file("dump", text), diagnostics, algorithms);
  if (!graph) return "";
  for (const ir::Op& op : graph->ops) {
    const ops::OpDef* def = ops::find_op(op.kind);
    if (!def) continue;
    const std::string key = key_of_passes(op, *def);
    if (!def->internal && key.empty()) continue;
    const std::string what = op.out.empty() ? op.kind : (*graph)[op.out[0]].name;
    return fmt::format(
        "graph '{}', in which '{}' {}", graph->name, what,
        def->internal ? fmt::format("is a '{}'", op.kind) : fmt::format("has '{}'", key));
  }
  return "";
}

}  // namespace maco::api
