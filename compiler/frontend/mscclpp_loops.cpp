// mscclpp_loops.cpp: the loops of a plan.

#include "compiler/frontend/mscclpp_reader.h"

#include <utility>

namespace maco::frontend::mscclpp {

namespace {

using Kind = ChunkStatement::Kind;

}  // namespace

bool OpsReader::outside_loop(const Raw& op, const Loop* loop) {
  if (loop == nullptr) return true;
  values_.error(op.loc, fmt::format("{} can't be in a pipeline: it would move all of its chunks "
                                    "each time round",
                                    quoted(op)));
  return false;
}

bool OpsReader::fits_loop(const Raw& op, const Loop* loop, int64_t count) {
  if (loop == nullptr) return true;
  int64_t slices = 1;
  if (const Raw* slice = op.find("tbg_info")) slices = slice->find("tbg_size")->integer;
  loop_moves_ = true;
  if (count == loop->chunks * slices) return true;
  values_.error(op.loc,
                fmt::format("{} has {}, but the pipeline goes over {}", quoted(op),
                            slices == 1 ? fmt::format("{} chunks", count)
                                        : fmt::format("a {}-th of {} chunks", slices, count),
                            loop->chunks));
  return false;
}

void OpsReader::pipeline(const Raw& op, const Block& block, const Loop* outer, Statements& out) {
  if (outer != nullptr) {
    values_.error(op.loc, "a pipeline can't be inside of another");
    return;
  }
  const Raw* context = values_.required(op, "iter_context", Raw::Kind::Map);
  const Raw* ops = values_.required(op, "ops", Raw::Kind::List);
  if (context == nullptr || ops == nullptr || !values_.object(*context, "'iter_context'")) return;
  const auto unit = values_.integer(*context, "unit_size", 1, INT32_MAX);
  const auto chunks = values_.integer(*context, "num_chunks", 1, kMaxChunks);
  if (!unit || !chunks) return;
  const Loop loop{*unit, *chunks};
  // Two adjacent loops would be read as one. A barrier of the block with itself separates them.
  if (!out.empty() && out.back().unit == loop.unit) {
    ChunkStatement s;
    s.kind = Kind::Barrier;
    s.blocks = program_.block_lists.size();
    program_.block_lists.push_back({block.id});
    add(out, std::move(s), op, nullptr);
  }
  const size_t before = out.size();
  loop_moves_ = false;
  for (const Raw& inner : ops->list) {
    if (stop()) return;
    read_op(inner, block, &loop, out);
  }
  if (out.size() > before && !loop_moves_ && !values_.has_errors())
    values_.error(op.loc,
                  "nothing in this pipeline moves chunks, so its number of iterations is "
                  "unknown");
}

}  // namespace maco::frontend::mscclpp
