// The list of all passes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compiler/passes/passes.h"
#include "compiler/pipeline/options.h"

namespace maco::passes {

struct Pass {
  std::string name;
  std::string summary;
  Form takes_from, takes_to;  // the pass takes these forms and all between them
  Form gives;                 // at least
  /// Returns false if an error was reported. Exactly one of the three is set.
  bool (*on_graph)(ir::Graph&, PassContext&) = nullptr;
  bool (*lower)(const ir::Graph&, ir::Program&, PassContext&) = nullptr;
  bool (*on_program)(ir::Program&, PassContext&) = nullptr;
  /// The option without which the pipeline leaves the pass out; null if it never does.
  bool PipelineOptions::* asked = nullptr;
};

/// All passes, in the order of the pipeline (pipeline.cpp).
const std::vector<Pass>& registry();
/// Null if there is no such pass.
const Pass* find_pass(std::string_view name);

/// Whether `unit` has a form between these two and, if it is a Program, the structure that its
/// stage promises: ids and bounds hold, so that passes needn't check them again. Reports if not.
/// `who` takes it: "pass 'tile'". `structured`: the structure was looked at before an earlier pass,
/// and the proofs look at it in the end.
bool check_form(std::string_view who, Form from, Form to, const Unit& unit, PassContext& context,
                bool structured = false);

/// Applies `pass` to `unit`; refuses what the pass doesn't take (check_form).
bool apply(const Pass& pass, Unit& unit, PassContext& context, bool structured = false);

}  // namespace maco::passes
