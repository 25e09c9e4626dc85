// What the pass fuse and other ops (a matmul's epilogue) need to know of elementwise ops.
#pragma once

#include <map>
#include <optional>
#include <string_view>

#include "compiler/ops/op.h"
#include "ir/body.h"
#include "ir/graph.h"

namespace maco::ops {

/// Whether element i of the result depends only on element i of the first operand and of operands
/// broadcast to its shape: add ... exp, swiglu, cast, copy, fused.
bool is_elementwise(std::string_view kind);

/// The body of an elementwise op of an inferred graph; %i is op.in[i].
ir::Body body_of(const ir::Graph& graph, const ir::Op& op);

/// Appends the steps of `op`, an elementwise op, to `body`. `known`: where the body has each of the
/// op's operands; gets the op's result too.
void append_body(const ir::Graph& graph, const ir::Op& op, ir::Body& body,
                 std::map<ir::TensorId, ir::BodyArg>& known);

/// How an operand's elements correspond to those of a result of shape `out`: one for each element,
/// one for each column ([N]), or a single one ([1]); nothing if the shapes don't fit.
std::optional<ir::Spread> spread_of(const ir::Shape& out, const ir::Shape& operand);

}  // namespace maco::ops
