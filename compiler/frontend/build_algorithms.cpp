// build_algorithms.cpp: collectives that users write chunk by chunk. The meaning of their
// statements together is checked where they are used (compiler/ops/collectives/chunk_flow.h).

#include <fmt/format.h>

#include <algorithm>

#include "compiler/frontend/build.h"
#include "compiler/ops/collectives/algorithms.h"

namespace maco::frontend {

namespace {

using ir::ChunkOp;
using ir::ChunkRange;
using ir::Expr;
using ir::UserAlgorithm;

std::vector<std::string> collective_kinds() {
  std::vector<std::string> kinds;
  for (const ops::OpDef& op : ops::all_ops())
    if (ops::takes_user_algorithms(op.kind)) kinds.push_back(op.kind);
  return kinds;
}

/// An expression over rank and world.
std::optional<Expr> read_ranked(BuildContext& c, const Raw& raw, const std::string& what,
                                const Expr* guard) {
  auto e = read_expr(c, raw, what, ExprUse::Attribute, guard);
  if (!e) return std::nullopt;
  for (const std::string& name : e->vars())
    if (name != "rank" && name != "world") {
      c.error(raw.loc, fmt::format("'{}' can't stand in {}, which is the same in every launch; use "
                                   "rank and world",
                                   name, what));
      return std::nullopt;
    }
  return e;
}
/// As read_ranked, or a name for several ranks.
std::optional<Expr> read_ranks(BuildContext& c, const Raw& raw, const std::string& what,
                               const Expr* guard) {
  if (raw.kind == Raw::Kind::String && (raw.text == ir::kAllRanks || raw.text == ir::kOtherRanks))
    return Expr::var(raw.text);
  return read_ranked(c, raw, what, guard);
}
std::optional<Expr> read_worldly(BuildContext& c, const Raw& raw, const std::string& what) {
  return read_expr(c, raw, what, ExprUse::Constant);
}

/// Characters [begin, end) of a text.
Raw part(const Raw& raw, size_t begin, size_t end) {
  while (begin < end && raw.text[begin] == ' ') ++begin;
  while (end > begin && raw.text[end - 1] == ' ') --end;
  Raw result;
  result.kind = Raw::Kind::String;
  result.text = raw.text.substr(begin, end - begin);
  result.loc = raw.loc;
  if (raw.loc.length == static_cast<int32_t>(raw.text.size()) + 2 * raw.text_column_shift) {
    result.loc.column += raw.text_column_shift + static_cast<int32_t>(begin);
    result.loc.length = static_cast<int32_t>(std::max<size_t>(end - begin, 1));
  }
  return result;
}

/// "scratch[2:4] @ (rank + 1) % world"
std::optional<ChunkRange> read_chunks(BuildContext& c, const Raw& raw, const std::string& what,
                                      const Expr* guard) {
  if (!expect(c, raw, Raw::Kind::String, what, "chunks, such as 'input[0]'")) return std::nullopt;
  const std::string& text = raw.text;
  const size_t open = text.find('['), close = text.find(']'), colon = text.find(':');
  const size_t at = close == std::string::npos ? close : text.find_first_not_of(' ', close + 1);
  if (open == std::string::npos || close == std::string::npos || close < open ||
      (at != std::string::npos && text[at] != '@')) {
    c.error(raw.loc, fmt::format("{} must be chunks, such as 'input[0]', 'scratch[2:4]' or "
                                 "'output[rank] @ (rank + 1) % world', found {}",
                                 what, quoted(text)));
    return std::nullopt;
  }
  ChunkRange range;
  range.loc = raw.loc;
  const Raw buffer = part(raw, 0, open);
  range.buffer = buffer.text;
  if (const std::vector<std::string> buffers{"input", "output", "scratch"};
      std::find(buffers.begin(), buffers.end(), range.buffer) == buffers.end()) {
    c.error(buffer.loc,
            fmt::format("unknown buffer {}; chunks are of {}{}", quoted(range.buffer),
                        list_words(buffers), graph::suggest(c.check, range.buffer, buffers)));
    return std::nullopt;
  }
  const bool several = colon != std::string::npos && colon > open && colon < close;
  const auto begin =
      read_ranked(c, part(raw, open + 1, several ? colon : close), "the number of a chunk", guard);
  std::optional<Expr> end, rank;
  if (several) end = read_ranked(c, part(raw, colon + 1, close), "the end of the chunks", guard);
  if (at != std::string::npos)
    rank = read_ranks(c, part(raw, at + 1, text.size()), "the rank behind '@'", guard);
  if (!begin || (several && !end) || (at != std::string::npos && !rank)) return std::nullopt;
  range.begin = *begin;
  range.end = std::move(end);
  range.rank = std::move(rank);
  return range;
}

std::vector<ChunkRange> read_all_chunks(BuildContext& c, const Raw& op, const std::string& key,
                                        const std::string& what, const Expr* guard) {
  std::vector<ChunkRange> ranges;
  const Raw* found = op.find(key);
  if (found == nullptr) return ranges;
  const auto one = [&](const Raw& raw) {
    if (auto range = read_chunks(c, raw, fmt::format("'{}' of {}", key, what), guard))
      ranges.push_back(std::move(*range));
  };
  if (found->kind == Raw::Kind::List)
    for (const Raw& raw : found->list) one(raw);
  else
    one(*found);
  return ranges;
}

/// The attributes of a kind of statement, besides those of all statements.
std::vector<std::string> attributes_of(const std::string& kind) {
  if (kind == "signal") return {"to", "tag", "relaxed"};
  if (kind == "wait") return {"from", "tag", "relaxed"};
  if (kind == "acquire" || kind == "release") return {"semaphore"};
  if (kind == "barrier") return {"blocks"};
  return {"in", "out", "packets"};
}

void check_numbers(BuildContext& c, const ChunkOp& op) {
  const auto counts = [&](size_t from, size_t least_from, size_t most_from) {
    if (from < least_from || from > most_from)
      c.error(
          op.loc,
          fmt::format("'{}' reads {}, not {}", op.kind,
                      most_from > 1 ? "one range of chunks or more" : "one range of chunks", from));
    if (op.to.empty())
      c.error(op.loc, fmt::format("'{0}' writes nothing: write 'output[0] = {0}(...)'", op.kind));
  };
  if (op.kind == "copy" || op.kind == "put" || op.kind == "get") counts(op.from.size(), 1, 1);
  if (op.kind == "reduce") counts(op.from.size(), 1, SIZE_MAX);
  const auto own = [&](const std::vector<ChunkRange>& ranges, const char* does,
                       const char* instead) {
    for (const ChunkRange& r : ranges)
      if (r.rank)
        c.error(r.loc, fmt::format("'{}' {} memory of its own rank only; use '{}'", op.kind, does,
                                   instead));
  };
  if (op.kind == "copy" || op.kind == "put") own(op.from, "reads", "get");
  if (op.kind == "copy" || op.kind == "get") own(op.to, "writes", "put");
}

/// Whether statements of that kind name chunks.
bool moves_chunks(const std::string& kind) { return attributes_of(kind)[0] == "in"; }

void check_statement_keys(BuildContext& c, const Raw& raw, const std::string& kind) {
  std::vector<std::string> keys = attributes_of(kind);
  keys.insert(keys.end(), {"op", "if", "block", "unit"});
  if (!moves_chunks(kind)) {
    // The DSL always names the buffer.
    for (const char* key : {"in", "out"})
      if (const Raw* found = raw.find(key); found != nullptr) {
        keys.emplace_back(key);
        if (found->kind != Raw::Kind::List || !found->list.empty())
          c.error(found->loc, fmt::format("'{}' moves no chunks", kind));
      }
  }
  check_keys(c, raw, "'" + kind + "'", keys);
}

bool read_statement(BuildContext& c, const Raw& raw, ChunkOp& op) {
  const int before = c.report.errors();
  op.loc = raw.loc;
  if (!expect(c, raw, Raw::Kind::Map, "a statement", "a map of keys")) return false;
  const Raw* kind = require(c, raw, "the statement", "op");
  if (kind == nullptr) return false;
  const std::vector<std::string> kinds(std::begin(ir::kChunkOps), std::end(ir::kChunkOps));
  const auto word = read_word(c, *kind, "'op' of a collective's statement", kinds);
  if (!word) return false;
  op.kind = *word;
  op.loc = kind->loc;
  const std::string what = "'" + op.kind + "'";
  check_statement_keys(c, raw, op.kind);

  const Expr* guard = nullptr;
  const auto expr = [&](const char* key, std::optional<Expr>& value) {
    if (const Raw* found = raw.find(key))
      value = read_ranked(c, *found, fmt::format("'{}' of {}", key, what), guard);
  };
  const auto flag = [&](const char* key, bool& value) {
    const Raw* found = raw.find(key);
    if (found != nullptr && expect(c, *found, Raw::Kind::Bool, fmt::format("'{}' of {}", key, what),
                                   graph::kTrueOrFalse))
      value = found->boolean;
  };
  expr("if", op.condition);
  if (op.condition) guard = &*op.condition;
  expr("block", op.block);
  expr("unit", op.unit);
  expr("tag", op.tag);
  expr("semaphore", op.semaphore);
  flag("relaxed", op.relaxed);
  flag("packets", op.packets);
  if (op.kind == "signal" || op.kind == "wait") {
    const char* key = op.kind == "signal" ? "to" : "from";
    if (const Raw* found = require(c, raw, what, key))
      op.peer = read_ranks(c, *found, fmt::format("'{}' of {}", key, what), guard);
  }
  if (op.kind == "acquire" || op.kind == "release") require(c, raw, what, "semaphore");
  if (const Raw* blocks = raw.find("blocks"); blocks != nullptr && op.kind == "barrier")
    if (expect(c, *blocks, Raw::Kind::List, "'blocks' of 'barrier'", "a list of thread blocks")) {
      op.blocks.emplace();
      for (const Raw& block : blocks->list)
        if (auto e = read_ranked(c, block, "an entry of 'blocks'", guard))
          op.blocks->push_back(std::move(*e));
    }
  if (moves_chunks(op.kind)) {
    op.from = read_all_chunks(c, raw, "in", what, guard);
    op.to = read_all_chunks(c, raw, "out", what, guard);
    if (c.report.errors() == before) check_numbers(c, op);
  }
  return c.report.errors() == before;
}

void add_statement(BuildContext& c, const Raw& raw, bool sound) {
  ChunkOp op;
  if (sound && read_statement(c, raw, op)) c.graph.algorithms.back().ops.push_back(std::move(op));
}

void build_algorithm(BuildContext& c, const Raw& raw) {
  if (!expect(c, raw, Raw::Kind::Map, "a collective", "a map of keys")) return;
  UserAlgorithm algorithm;
  algorithm.loc = raw.loc;
  const Raw* name = require(c, raw, "the collective", "name");
  const auto text = name ? read_name(c, *name, "the name of the collective") : std::nullopt;
  if (!text) return;
  algorithm.name = *text;
  algorithm.loc = name->loc;
  const std::string what = fmt::format("collective '{}'", *text);
  check_keys(c, raw, what,
             {"name", "of", "world", "chunks", "scratch", "in_place", "semaphores", "ops"});
  if (const std::string taken = ops::taken_algorithm_word(*text); !taken.empty())
    c.error(name->loc, fmt::format("{} can't be called so: {}", what, taken));
  if (const UserAlgorithm* other = c.graph.find_algorithm(*text))
    if (c.error(name->loc, fmt::format("{} is defined twice", what)))
      c.note(other->loc, "the other is here");
  if (const Raw* of = require(c, raw, what, "of"))
    if (const auto kind = read_word(c, *of, "'of' of " + what, collective_kinds()))
      algorithm.of = *kind;
  const auto number = [&](const char* key, auto& value) {
    if (const Raw* found = raw.find(key))
      if (auto e = read_worldly(c, *found, fmt::format("'{}' of {}", key, what)))
        value = std::move(*e);
  };
  number("world", algorithm.world);
  number("chunks", algorithm.chunks);
  number("scratch", algorithm.scratch);
  if (const Raw* found = raw.find("in_place"))
    if (expect(c, *found, Raw::Kind::Bool, "'in_place' of " + what, graph::kTrueOrFalse))
      algorithm.in_place = found->boolean;
  if (const Raw* found = raw.find("semaphores"))
    if (expect(c, *found, Raw::Kind::List, "'semaphores' of " + what, "a list of first values"))
      for (const Raw& value : found->list)
        if (auto e = read_worldly(c, value, "an entry of 'semaphores'"))
          algorithm.semaphores.push_back(std::move(*e));
  c.graph.algorithms.push_back(std::move(algorithm));
  const Raw* ops = require(c, raw, what, "ops");
  if (ops != nullptr &&
      expect(c, *ops, Raw::Kind::List, "'ops' of " + what, "a list of statements"))
    unroll_ops(c, *ops, {}, add_statement);
}

/// Whether an op has `algorithm = name`.
bool names_algorithm(const Raw& ops, const std::string& name) {
  if (ops.kind != Raw::Kind::List) return false;
  return std::any_of(ops.list.begin(), ops.list.end(), [&](const Raw& op) {
    if (op.kind != Raw::Kind::Map) return false;
    if (const Raw* inner = op.find("ops"); inner != nullptr && is_repeat(op))
      return names_algorithm(*inner, name);
    const Raw* word = op.find("algorithm");
    // A word with '{i}' may be any name.
    return word != nullptr && (word->text == name || word->text.find('{') != std::string::npos);
  });
}

}  // namespace

void build_algorithms(BuildContext& c, const Raw& root) {
  if (const Raw* own = root.find("collectives"))
    if (expect(c, *own, Raw::Kind::List, "'collectives'", "a list of collectives"))
      for (const Raw& raw : own->list) build_algorithm(c, raw);
  if (const Raw* ops = root.find("ops"))
    build_named_algorithms(c, [&](const std::string& name) { return names_algorithm(*ops, name); });
}

void build_named_algorithms(BuildContext& c, const std::function<bool(const std::string&)>& named) {
  for (const Raw& file : c.options.collectives)
    if (const Raw* list = file.find("collectives");
        list != nullptr && list->kind == Raw::Kind::List)
      for (const Raw& raw : list->list) {
        const Raw* name = raw.kind == Raw::Kind::Map ? raw.find("name") : nullptr;
        if (name == nullptr || name->kind != Raw::Kind::String || named(name->text))
          build_algorithm(c, raw);
      }
}

}  // namespace maco::frontend
