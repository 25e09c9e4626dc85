// assign_roles.cpp: turns `sm_roles` into ranges of SMs. Counts and ranges are obeyed exactly or
// refused. With `auto`, communication gets the few SMs that saturate the links. It gets none if
// nothing communicates, only pushed collectives do, or matmuls far outweigh the rest: SMs that
// compute then communicate too. If all collectives leave the kernel, one SM hands them over, and
// the others are left to the library.

#include <fmt/format.h>

#include <algorithm>

#include "compiler/graph/roles.h"
#include "compiler/ops/collectives/algorithms.h"
#include "compiler/ops/collectives/push.h"
#include "compiler/ops/op.h"
#include "compiler/passes/passes.h"

namespace maco::passes {

namespace {

ir::Loc roles_loc(const ir::Graph& graph) {
  auto it = graph.key_loc.find("sm_roles");
  return it == graph.key_loc.end() ? graph.loc : it->second;
}

// Whether SMs that communicate would have work.
bool communicates(const ir::Graph& graph) {
  return std::any_of(graph.ops.begin(), graph.ops.end(), [](const ir::Op& op) {
    return ops::find_op(op.kind)->collective && !ops::moves_as_made(op);
  });
}
// Whether large tensors travel as stores. Their tasks wait for memory most of the time, so that
// twice as many SMs are needed if other SMs compute
// (docs/benchmarks/logs/product-allreduce-h100-x2.txt).
bool communicates_much(const ir::Graph& graph) {
  constexpr int64_t kMuch = 512 * 1024;  // bytes
  return std::any_of(graph.ops.begin(), graph.ops.end(), [&](const ir::Op& op) {
    if (!ops::find_op(op.kind)->collective || ops::moves_as_made(op) ||
        ops::is_handed_over(graph, op) || op.in.empty())
      return false;
    const ir::Tensor& x = graph[op.in[0]];
    return ir::max_elements(graph, x.shape) * ir::size_of(x.dtype) >= kMuch;
  });
}
bool leaves_all(const ir::Graph& graph) {
  return graph.world > 1 && std::all_of(graph.ops.begin(), graph.ops.end(), [&](const ir::Op& op) {
           return !ops::find_op(op.kind)->collective || ops::is_handed_over(graph, op);
         });
}
bool computes(const ir::Graph& graph) {
  return std::any_of(graph.ops.begin(), graph.ops.end(),
                     [](const ir::Op& op) { return !ops::find_op(op.kind)->collective; });
}

std::vector<ir::RoleRange> ranges_of(int64_t compute, int64_t comm) {
  std::vector<ir::RoleRange> r;
  if (compute > 0) r.push_back({0, compute, "compute", {}, {}});
  if (comm > 0) r.push_back({compute, compute + comm, "comm", {}, {}});
  return r;
}

// "board 'h200' has 132", or how many SMs a rank may use.
std::string available(const PassContext& context) {
  if (context.available_sms == context.machine.sms)
    return fmt::format("board '{}' has {}", context.machine.board, context.machine.sms);
  return fmt::format("a rank may use {} of the {} of board '{}'", context.available_sms,
                     context.machine.sms, context.machine.board);
}

bool check_ranges(const ir::Graph& graph, const std::vector<ir::RoleRange>& ranges,
                  const PassContext& context, ir::Diagnostics& d) {
  const int before = d.errors();
  std::vector<const ir::RoleRange*> owner(static_cast<size_t>(context.available_sms), nullptr);
  for (const ir::RoleRange& r : ranges) {
    const ir::Loc loc = r.loc.known() ? r.loc : roles_loc(graph);
    if (r.end > context.available_sms) {
      d.error(loc, fmt::format("'sm_roles' names SMs [{}, {}), but {}", r.begin, r.end,
                               available(context)));
      continue;
    }
    for (int64_t sm = r.begin; sm < r.end; ++sm) {
      const ir::RoleRange*& o = owner[static_cast<size_t>(sm)];
      if (o) {
        d.error(loc, fmt::format("SM {} is in two ranges, [{}, {}) and [{}, {})", sm, o->begin,
                                 o->end, r.begin, r.end));
        break;
      }
      o = &r;
    }
    for (const std::string& kind : r.tasks) {
      const ops::OpDef* def = ops::find_op(kind);
      if (def && def->collective != (r.role == "comm"))
        d.error(loc, fmt::format("'{}' is {}, which SMs of role '{}' don't run", kind,
                                 def->collective ? "communication" : "computation", r.role));
    }
  }
  std::vector<ir::RoleRange> used = ranges;
  std::erase_if(used, [](const ir::RoleRange& r) { return r.begin >= r.end; });
  for (const ir::OpId id : graph::homeless(graph, used)) {
    const ir::Op& op = graph[id];
    d.error(roles_loc(graph),
            fmt::format("no SM runs '{}': 'sm_roles' gives no range of role '{}' that takes it",
                        op.kind, graph::role_of(op.kind)));
    d.note(op.loc, fmt::format("'{}' is used here", op.kind));
  }
  return d.errors() == before;
}

}  // namespace

bool assign_roles(ir::Graph& graph, PassContext& context) {
  ir::Diagnostics& d = context.diagnostics;
  const int64_t sms = context.available_sms;
  auto& roles = std::get<ir::Roles>(graph.sm_roles.value);
  const bool needs_comm = communicates(graph), needs_compute = computes(graph);
  const int64_t share = context.machine.default_comm * (communicates_much(graph) ? 2 : 1);
  const int64_t usual =
      std::clamp<int64_t>(share * sms / context.machine.sms, 1, std::max<int64_t>(1, sms - 1));
  std::vector<ir::RoleRange> ranges;
  if (std::holds_alternative<ir::RoleAuto>(roles)) {
    const int64_t comm = !needs_comm || ops::all_compute(graph) ? 0 : needs_compute ? usual : sms;
    ranges = ranges_of(needs_compute || !needs_comm ? std::max<int64_t>(1, sms - comm) : 0,
                       needs_comm && leaves_all(graph) ? 1 : comm);
    if (comm > 0 && needs_compute && sms < 2) {
      d.error(roles_loc(graph), "one SM can't both compute and communicate: two are needed");
      return false;
    }
  } else if (const auto* counts = std::get_if<ir::RoleCounts>(&roles)) {
    if (counts->scheduler.value_or(0) > 0) {
      d.error(roles_loc(graph),
              "'scheduler' SMs are of use with schedule 'dynamic' only; remove the count or set "
              "\"schedule\": \"dynamic\"");
      return false;
    }
    const int64_t compute = counts->compute.value_or(
        std::max<int64_t>(0, sms - counts->comm.value_or(needs_comm ? usual : 0)));
    int64_t comm = counts->comm.value_or(needs_comm ? std::min(usual, sms - compute) : 0);
    // With an odd number of SMs one has no mate.
    if (!counts->comm && comm > 0 && (compute + comm) % 2 != 0 && compute + comm < sms) ++comm;
    if (compute + comm > sms) {
      d.error(roles_loc(graph), fmt::format("'sm_roles' asks for {} + {} SMs, but {}", compute,
                                            comm, available(context)));
      return false;
    }
    ranges = ranges_of(compute, comm);
  } else {
    ranges = std::get<std::vector<ir::RoleRange>>(roles);
    std::stable_sort(ranges.begin(), ranges.end(),
                     [](const auto& a, const auto& b) { return a.begin < b.begin; });
  }
  if (!check_ranges(graph, ranges, context, d)) return false;
  roles = ranges;
  return true;
}

bool has_roles(const ir::Graph& graph, const PassContext& context) {
  const auto* roles = std::get_if<ir::Roles>(&graph.sm_roles.value);
  const auto* ranges = roles ? std::get_if<std::vector<ir::RoleRange>>(roles) : nullptr;
  ir::Diagnostics unseen;
  return ranges && check_ranges(graph, *ranges, context, unseen);
}

}  // namespace maco::passes
