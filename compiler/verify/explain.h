// Why one task happens before another, told edge by edge.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/verify/precedence.h"
#include "ir/diagnostics.h"
#include "ir/program.h"

namespace maco::verify {

/// The task that `text` names:
///   t12, 12                    by its label in the Program's text
///   down, 'down tile 3'        by the op of the graph, and the tile if there are several
///   'y (put) tile 0'           and the device function if the op has several
///   "matmul 'down' tile 3"     as reports say it
/// followed by @RANK (else the first rank that runs it) and +LAUNCH (else 0), or by what reports
/// add: "(rank 1, launch 2)". Nothing if there is none such or several; `error` says so and lists
/// what may be meant.
std::optional<Instance> find_instance(const ir::Program& program, std::string_view text,
                                      std::string& error);

struct Explanation {
  bool ordered = false;  // `a` happens before `b`
  std::string text;      // lines
};

/// A shortest path by which `a` happens before `b`, without packets if there is such a path. If
/// there is no path, one from `b` to `a`; if there is none either, the last task that happens
/// before both and the first that both happen before. `program` is synced and its structure right
/// (check_explainable).
Explanation explain(const ir::Program& program, Instance a, Instance b);

/// Whether the Program can be asked; reports if not.
bool check_explainable(const ir::Program& program, ir::Diagnostics& diagnostics);

}  // namespace maco::verify
