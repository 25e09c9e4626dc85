#include "compiler/ops/collectives/push.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/ops/attrs.h"
#include "compiler/ops/collectives/exchange_tasks.h"
#include "compiler/ops/collectives/scatter.h"
#include "compiler/ops/matmul_stage.h"
#include "compiler/ops/matmul_tiles.h"
#include "compiler/ops/rowwise.h"
#include "ir/check.h"

namespace maco::ops {

namespace {

constexpr int64_t kMostTileRows = 128;  // of a matmul on tensor cores

bool scatters(const ir::Op& op) { return op.kind == "reduce_scatter"; }
// A matmul of few rows sends packets, element by element: no lane has two results side by side.
bool sends_packets(const Cut& product) { return product.method == "dot"; }

// The matrix whose tiles the collective exchanges.
Mat operand_of(const TileContext& c) {
  return scatters(c.op()) ? by_blocks(c, c.op().in[0], c.world()) : c.in(0);
}
ir::Expr rows_of(const TileContext& c, const Mat& x) {
  if (adds_up(c)) return ir::Expr(x.max_rows / c.world());
  return scatters(c.op()) ? block_rows(c, x) : x.rows;
}

}  // namespace

bool moves_as_made(const ir::Op& op) { return attr_flag(op, "pushed", false); }
void move_as_made(ir::Op& product, ir::Op& collective) {
  collective.attrs["pushed"] = product.attrs["pushed"] = {true, collective.loc};
}
AttrSpec as_made_attr() { return {"pushed", AttrType::Bool, false, "false", {}, true}; }

// Searches backwards from the collective: the matmul usually stands right before it.
std::optional<ir::OpId> product_of(const ir::Graph& graph, const ir::Op& collective) {
  for (auto i = static_cast<size_t>(&collective - graph.ops.data()); i-- > 0;) {
    const ir::Op& op = graph.ops[i];
    if (std::find(op.out.begin(), op.out.end(), collective.in[0]) == op.out.end()) continue;
    if (op.kind == "matmul") return ir::id_of<ir::OpId>(i);
    return std::nullopt;
  }
  return std::nullopt;
}

std::optional<ir::OpId> gather_of(const ir::Graph& graph, const ir::Op& product) {
  for (auto i = static_cast<size_t>(&product - graph.ops.data()); i-- > 0;) {
    const ir::Op& op = graph.ops[i];
    if (std::find(op.out.begin(), op.out.end(), product.in[0]) == op.out.end()) continue;
    if (op.kind != "allgather" || attr_word(op, "algorithm", "auto") != "oneshot" ||
        graph.world < 2 || graph[op.out[0]].kind == ir::TensorKind::State)
      return std::nullopt;
    return ir::id_of<ir::OpId>(i);
  }
  return std::nullopt;
}

bool is_one_shot_sum(const ir::Op& collective) {
  return collective.kind == "allreduce" && attr_word(collective, "algorithm", "auto") == "oneshot";
}

bool is_sum_of_tiles(const ir::Op& collective) {
  return is_one_shot_sum(collective) || (collective.kind == "allreduce" &&
                                         attr_word(collective, "algorithm", "auto") == "twoshot");
}

std::optional<ir::OpId> pushed_to(const ir::Graph& graph, ir::OpId product) {
  if (!moves_as_made(graph[product])) return std::nullopt;
  const ir::TensorId y = graph[product].out[0];
  for (size_t i = index(product) + 1; i < graph.ops.size(); ++i)
    if (const ir::Op& op = graph.ops[i]; !op.in.empty() && op.in[0] == y && moves_as_made(op))
      return ir::id_of<ir::OpId>(i);
  return std::nullopt;
}

std::string refuse_push(const ir::Graph& graph, const ir::Op& collective,
                        const cost::Machine& machine, bool may_mate) {
  const std::string algorithm = attr_word(collective, "algorithm", "auto");
  if (!is_sum_of_tiles(collective) && !(scatters(collective) && algorithm == "oneshot"))
    return fmt::format("{} '{}' isn't put tile by tile", collective.kind, algorithm);
  const auto id = product_of(graph, collective);
  if (!id) return "no product makes what it moves";
  const ir::Op& product = graph[*id];
  if (pushed_to(graph, *id)) return "the product sends to another collective";
  if (graph[collective.in[0]].kind == ir::TensorKind::State) return "what it moves is a state";
  if (std::string why =
          refuse_to_send(graph, product, machine, is_one_shot_sum(collective), may_mate);
      !why.empty())
    return why;
  if (!method_takes(graph, product, machine, "send")) return "the product's method can't send";
  const ir::Shape& x = graph[collective.in[0]].shape;
  const auto rows_of_x =
      ir::bounds(leading(x), [&](std::string_view name) { return graph.range_of(name); });
  const int64_t rows = rows_of_x ? rows_of_x->hi : 0;
  if (scatters(collective) && rows_of_x && rows_of_x->lo != rows_of_x->hi)
    return "dims decide the product's rows";
  if (scatters(collective) && (x.size() < 2 || rows % (graph.world * kMostTileRows) != 0))
    return fmt::format("blocks of {} rows aren't whole tiles", rows / graph.world);
  return "";
}

namespace {

// An upper limit of a tensor's bytes, in a graph that may be wrong.
std::optional<double> most_bytes(const ir::Graph& graph, ir::TensorId id) {
  ir::Expr bytes(ir::size_of(graph[id].dtype));
  for (const ir::Expr& extent : graph[id].shape) bytes = bytes * extent;
  const auto range = ir::bounds(bytes, [&](std::string_view name) { return graph.range_of(name); });
  if (!range) return std::nullopt;
  return static_cast<double>(range->hi);
}
// Whether the op's tiles travel through slots, by tasks that may run on SMs of either role. Users'
// algorithms, handed-over collectives and those that wait for others' tasks have SMs of their own.
bool exchanges_tiles(const ir::Graph& graph, const ir::Op& op) {
  if (graph.backend == ir::Backend::Nccl || op.in.size() != 1 || op.out.size() != 1) return false;
  const auto at = op.attrs.find("algorithm");
  if (at == op.attrs.end()) return op.kind == "alltoall";
  const auto* word = std::get_if<std::string>(&at->second.value);
  return word &&
         (*word == "oneshot" || *word == "twoshot" || (*word == "auto" && op.kind == "alltoall"));
}

// Whether matmuls take much longer than what else travels. In the time that a byte takes on a link,
// an H200 does some 2,200 matrix operations; in the time that it reads a byte from memory, 167
// (cost/boards.cpp). For large tensors a third as many SMs are set aside as are left; overlap would
// have to hide at least as much.
bool products_outweigh(const ir::Graph& graph) {
  constexpr double kRead = 167, kSent = 2200, kAside = 0.32;
  double products = 0, sent = 0;
  for (const ir::Op& op : graph.ops) {
    const OpDef* def = find_op(op.kind);
    if (op.kind == "matmul" && op.in.size() > 1 && !op.out.empty()) {
      const ir::Tensor &b = graph[op.in[1]], &y = graph[op.out[0]];
      const auto weights = most_bytes(graph, op.in[1]), results = most_bytes(graph, op.out[0]);
      const int64_t columns = y.shape.empty() ? 0 : y.shape.back().constant().value_or(0);
      if (!weights || !results || columns < 1) return false;
      const double rows = *results / static_cast<double>(columns * ir::size_of(y.dtype));
      products += *weights * std::max(kRead, 2 * rows / static_cast<double>(ir::size_of(b.dtype)));
    }
    if (!def || !def->collective || moves_as_made(op)) continue;
    if (!exchanges_tiles(graph, op)) return false;
    const auto in = most_bytes(graph, op.in[0]), out = most_bytes(graph, op.out[0]);
    if (!in || !out) return false;
    sent += std::max(*in, *out);
  }
  return sent > 0 && sent * kSent < kAside * products;
}

// Whether matmuls push something, and the graph communicates little besides.
bool little_is_left(const ir::Graph& graph) {
  constexpr double kLittle = 256 * 1024;  // bytes, which travel in packets
  bool sent = false;
  for (const ir::Op& op : graph.ops) {
    const OpDef* def = find_op(op.kind);
    if (!def || !def->collective) continue;
    if (moves_as_made(op)) {
      sent = true;
      continue;
    }
    if ((op.kind != "allreduce" && op.kind != "allgather") || !exchanges_tiles(graph, op))
      return false;
    const auto bytes = most_bytes(graph, op.in[0]);
    if (!bytes || *bytes > kLittle) return false;
  }
  return sent;
}

}  // namespace

bool all_compute(const ir::Graph& graph) {
  return little_is_left(graph) || products_outweigh(graph);
}

void check_as_made(InferContext& c) {
  if (!moves_as_made(c.op())) return;
  const std::string algorithm = c.word("algorithm", "auto");
  const auto product = product_of(c.graph(), c.op());
  if (!product || !moves_as_made(c.graph()[*product]))
    c.error_attr("pushed", fmt::format("'pushed' of '{}' needs a product that is pushed, too, "
                                       "behind its operand",
                                       c.op().kind));
  else if (algorithm != "oneshot" && (scatters(c.op()) || algorithm != "twoshot"))
    c.error_attr("pushed",
                 fmt::format("'pushed' of '{}' isn't for algorithm '{}'", c.op().kind, algorithm));
}

Cut cut_as_made(const TileContext& c) {
  const auto product = product_of(c.graph(), c.op());
  MACO_CHECK(product, c.op().name);
  const TileContext beside = TileContext(c).beside(*product);
  Cut cut = cut_of(c.graph()[*product]);
  if (cut.tile.empty()) cut = beside.cut();
  return {sends_packets(cut) ? "packets" : "stores",
          {cut.tile[0], has_mates(beside, cut) ? cut.tile[1] / 2 : cut.tile[1]}};
}

Arrivals begin_arrivals(TileContext& c) {
  const Mat x = operand_of(c);
  const bool packets = in_packets(c);
  Exchanger tiles(c, boxes_of(c, x, rows_of(c, x)), x.dtype, x.dtype, packets);
  Arrivals pushed{tiles.base(), {}, {}};
  functions::Exchange& e = pushed.exchange;
  // Each result goes out as one packet, from whoever has it.
  if (packets) e.sent = ir::DType::F32;
  const bool in_two = c.word("algorithm", "auto") == "twoshot", blocks = adds_up(c);
  // `rows` counts rows of the matmul; a block has some of them.
  if (!blocks) e.rows = std::get<ir::ValueRef>(c.value("rows", x.rows).value);
  if (in_two && !blocks) e.slot_div = c.world();
  e.mode = blocks             ? functions::PeerMode::Each
           : in_two           ? functions::PeerMode::Owner
           : scatters(c.op()) ? functions::PeerMode::Block
                              : functions::PeerMode::Others;
  pushed.slots = tiles.slots(in_two ? "parts" : "slots", e, e.sent);
  for (int64_t t = 0; t < tiles.tiles(); ++t)
    pushed.arrived.push_back(
        tiles.arrival(fmt::format("{}.{}", in_two ? "part" : "arrived", t), packets));
  // The collective's tile rule finds the slots by its own geometry.
  c.messages().channel(c.id()) = Messages::Channel{pushed.slots, 2, pushed.arrived, {}};
  return pushed;
}

Arrivals arrivals(TileContext& c) {
  const std::optional<Messages::Channel>& made = c.messages().channel(c.id());
  if (!made) return begin_arrivals(c);
  return {{}, made->slots, made->arrived};
}

}  // namespace maco::ops
