// Elementwise ops: what the fuse pass and other ops (a matmul's epilogue) need to know of them.
#pragma once

#include <map>
#include <optional>
#include <string_view>

#include "compiler/ops/op.h"
#include "ir/body.h"
#include "ir/graph.h"

namespace maco::ops {

/// Does element i of the result depend on element i of the first operand and of operands broadcast
/// to its shape, and on nothing else? add ... exp, swiglu, cast, copy, fused.
bool is_elementwise(std::string_view kind);

/// The body of an elementwise op of an inferred graph; %i is op.in[i].
ir::Body body_of(const ir::Graph& graph, const ir::Op& op);

/// The steps of `op`, an elementwise one, behind those of `body`. `known`: where the body has the
/// op's operands, all of them; its result too from then on.
void append_body(const ir::Graph& graph, const ir::Op& op, ir::Body& body,
                 std::map<ir::TensorId, ir::BodyArg>& known);

/// How an operand's elements follow those of a result of shape `out`: one each, one a column ([N]),
/// a single one ([1]); nothing if it doesn't fit.
std::optional<ir::Spread> spread_of(const ir::Shape& out, const ir::Shape& operand);

}  // namespace maco::ops
