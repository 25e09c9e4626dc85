// chunk_print.cpp: prints the statements of all ranks as one text.
//
// It goes thread block by thread block. As long as all ranks with the block have the same kind of
// statement, on as many chunks of the same buffers, it prints one statement whose numbers are
// formulas. Where ranks differ, those with the same continuation are printed together, if a
// condition can say which ranks these are. What has no formula is printed rank by rank. A rank's
// own statements keep their order throughout.

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "compiler/frontend/chunk_statements.h"
#include "compiler/frontend/rank_formula.h"

namespace maco::frontend {

namespace {

using Kind = ChunkStatement::Kind;

constexpr const char* kKindNames[] = {"copy", "put",     "get",     "reduce", "signal",
                                      "wait", "acquire", "release", "barrier"};
/// How many sets of ranks keep their formulas; each set takes some 100 KiB in a world of 64.
constexpr size_t kMaxKept = 64;

constexpr const char* kBufferNames[] = {"input", "output", "scratch"};

/// What statements must have in common to be printed as one; the rest are numbers.
std::vector<int64_t> shape_of(const ChunkStatement& s, int32_t rank) {
  std::vector<int64_t> shape = {static_cast<int64_t>(s.kind),
                                s.packets,
                                s.relaxed,
                                s.unit,
                                static_cast<int64_t>(s.to.size()),
                                s.kind == Kind::Barrier ? static_cast<int64_t>(s.blocks) : 0};
  for (const auto* refs : {&s.to, &s.from})
    for (const ChunkRef& r : *refs) {
      shape.push_back(static_cast<int64_t>(r.buffer));
      shape.push_back(r.rank == rank);
      shape.push_back(r.count);
    }
  return shape;
}

/// The condition for these ranks (in ascending order) in a world of `world`: "" for all ranks,
/// nothing if no short condition says it.
std::optional<std::string> condition_of(const std::vector<int32_t>& ranks, int32_t world) {
  const auto n = static_cast<int32_t>(ranks.size());
  if (n == world) return "";
  if (n == 1) return fmt::format("rank == {}", ranks[0]);
  if (n == world - 1) {
    int32_t missing = 0;
    while (missing < n && ranks[static_cast<size_t>(missing)] == missing) ++missing;
    return fmt::format("rank != {}", missing);
  }
  if (ranks.back() - ranks.front() == n - 1) {
    if (ranks.front() == 0) return fmt::format("rank < {}", n);
    if (ranks.back() == world - 1) return fmt::format("rank >= {}", ranks.front());
    return fmt::format("rank >= {} && rank <= {}", ranks.front(), ranks.back());
  }
  const int32_t stride = ranks[1] - ranks[0];
  if (ranks[0] >= stride || n != (world - ranks[0] + stride - 1) / stride) return std::nullopt;
  for (int32_t i = 0; i < n; ++i)
    if (ranks[static_cast<size_t>(i)] != ranks[0] + i * stride) return std::nullopt;
  return fmt::format("rank % {} == {}", stride, ranks[0]);
}

class Printer {
 public:
  explicit Printer(const ChunkProgram& program) : program_(program) {}

  std::string run() {
    header();
    size_t blocks = 0;
    for (const auto& rank : program_.ranks) blocks = std::max(blocks, rank.size());
    for (block_ = 0; block_ < blocks; ++block_) {
      std::vector<int32_t> ranks;
      for (int32_t r = 0; r < program_.world; ++r)
        if (!statements(r).empty()) ranks.push_back(r);
      if (ranks.empty()) continue;
      if (blocks > 1) out_ += fmt::format("  # thread block {}\n", block_);
      print_block(ranks);
    }
    return out_ + "}\n";
  }

 private:
  const std::vector<ChunkStatement>& statements(int32_t rank) const {
    static const std::vector<ChunkStatement> none;
    const auto& blocks = program_.ranks[static_cast<size_t>(rank)];
    return block_ < blocks.size() ? blocks[block_] : none;
  }
  const ChunkStatement& statement(int32_t rank, size_t at) const { return statements(rank)[at]; }

  void header() {
    const ChunkProgram& p = program_;
    out_ += fmt::format("collective {}(of = {}, world = {}, chunks = {}", p.name, p.of, p.world,
                        p.chunks);
    if (p.scratch > 0) out_ += fmt::format(", scratch = {}", p.scratch);
    if (p.in_place) out_ += ", in_place = true";
    if (!p.semaphores.empty())
      out_ += fmt::format(", semaphores = [{}]", fmt::join(p.semaphores, ", "));
    out_ += ") {\n";
  }

  void print_block(const std::vector<int32_t>& ranks) {
    // The statements that all ranks have in common.
    size_t at = 0;
    const auto alike = [&] {
      for (int32_t r : ranks)
        if (at >= statements(r).size() ||
            shape_of(statement(r, at), r) != shape_of(statement(ranks[0], at), ranks[0]))
          return false;
      return true;
    };
    if (condition_of(ranks, program_.world))
      while (alike()) at += print_some(ranks, at);
    // Ranks with the same continuation, in the order of their first ranks.
    std::map<std::vector<std::vector<int64_t>>, std::vector<int32_t>> classes;
    for (int32_t r : ranks) {
      std::vector<std::vector<int64_t>> shapes;
      for (size_t i = at; i < statements(r).size(); ++i)
        shapes.push_back(shape_of(statement(r, i), r));
      if (!shapes.empty()) classes[std::move(shapes)].push_back(r);
    }
    std::map<int32_t, std::vector<int32_t>> by_first;
    for (auto& [shapes, members] : classes) {
      const int32_t first = members[0];
      by_first.emplace(first, std::move(members));
    }
    for (const auto& [first, members] : by_first)
      if (condition_of(members, program_.world)) {
        for (size_t i = at; i < statements(first).size();) i += print_some(members, i);
      } else {
        for (int32_t r : members)
          for (size_t i = at; i < statements(r).size(); ++i) print_together({r}, i);
      }
  }

  /// Prints statement `at` of these ranks, which has the same shape on all of them; or, if there is
  /// one such statement for each other rank, it and those behind it. Returns how many statements
  /// were printed.
  size_t print_some(const std::vector<int32_t>& ranks, size_t at) {
    const auto each = static_cast<size_t>(program_.world) - 1;
    bool all = each >= 2 && (statement(ranks[0], at).kind == Kind::Signal ||
                             statement(ranks[0], at).kind == Kind::Wait);
    for (size_t i = 0; all && i < ranks.size(); ++i) all = has_others(ranks[i], at, each);
    print_together(ranks, at, all);
    return all ? each : 1;
  }
  /// Whether these statements of the rank are alike, and together name all other ranks, each once.
  bool has_others(int32_t rank, size_t at, size_t each) const {
    if (at + each > statements(rank).size()) return false;
    const ChunkStatement& first = statement(rank, at);
    std::vector<bool> met(static_cast<size_t>(program_.world), false);
    for (size_t i = at; i < at + each; ++i) {
      const ChunkStatement& s = statement(rank, i);
      if (shape_of(s, rank) != shape_of(first, rank) || s.number != first.number ||
          s.peer == rank || met[static_cast<size_t>(s.peer)])
        return false;
      met[static_cast<size_t>(s.peer)] = true;
    }
    return true;
  }

  /// Prints statement `at` of these ranks, as one if formulas are found. `others`: the statement
  /// names each other rank.
  void print_together(const std::vector<int32_t>& ranks, size_t at, bool others = false) {
    if (ranks.size() == 1) {
      out_ += text_of(ranks, at, others, [](const std::vector<int64_t>& values) {
        return fmt::format("{}", values[0]);
      });
      return;
    }
    if (formulas_.size() > kMaxKept) formulas_.clear();
    RankFormulas& formulas = formulas_.try_emplace(ranks, ranks, program_.world).first->second;
    bool found = true;
    const std::string text = text_of(ranks, at, others, [&](const std::vector<int64_t>& values) {
      const auto& formula = formulas.find(values);
      found = found && formula;
      return formula ? formula->text() : "";
    });
    if (found) {
      out_ += text;
      return;
    }
    for (int32_t r : ranks) print_together({r}, at, others);
  }

  /// The name for these ranks ("all", "others"), and how many references from `i` on it replaces,
  /// if on each of the ranks these references are the same chunks of all ranks, or of all others.
  /// Otherwise "".
  std::pair<std::string, size_t> several(const std::vector<int32_t>& ranks, size_t at,
                                         std::vector<ChunkRef> ChunkStatement::* side,
                                         size_t i) const {
    const auto world = static_cast<size_t>(program_.world);
    for (const size_t count : {world, world - 1}) {
      if (count < 2) continue;
      bool good = true;
      for (int32_t r : ranks) {
        const std::vector<ChunkRef>& refs = statement(r, at).*side;
        std::vector<bool> met(world, false);
        if (count < world) met[static_cast<size_t>(r)] = true;
        for (size_t k = i; good && k < i + count; ++k) {
          good = k < refs.size() && refs[k].buffer == refs[i].buffer &&
                 refs[k].begin == refs[i].begin && refs[k].count == refs[i].count &&
                 !met[static_cast<size_t>(refs[k].rank)];
          if (good) met[static_cast<size_t>(refs[k].rank)] = true;
        }
      }
      if (good) return {count == world ? "all" : "others", count};
    }
    return {"", 1};
  }

  /// Calls `formula` for each number, with its values on the ranks.
  template <typename Formula>
  std::string text_of(const std::vector<int32_t>& ranks, size_t at, bool others,
                      const Formula& formula) const {
    const ChunkStatement& first = statement(ranks[0], at);
    const auto number = [&](const auto& of_rank) {
      std::vector<int64_t> values;
      for (int32_t r : ranks) values.push_back(of_rank(statement(r, at)));
      return formula(values);
    };
    const auto refs = [&](std::vector<ChunkRef> ChunkStatement::* side) {
      std::vector<std::string> texts;
      for (size_t i = 0; i < (first.*side).size();) {
        const ChunkRef& ref = (first.*side)[i];
        const auto [name, count] = several(ranks, at, side, i);
        std::string text = kBufferNames[static_cast<size_t>(ref.buffer)];
        text += "[" + number([&](const ChunkStatement& s) { return (s.*side)[i].begin; });
        if (ref.count > 1)
          text += ":" + number([&](const ChunkStatement& s) {
                    return (s.*side)[i].begin + (s.*side)[i].count;
                  });
        text += "]";
        if (!name.empty())
          text += " @ " + name;
        else if (ref.rank != ranks[0])
          text +=
              " @ " + number([&](const ChunkStatement& s) -> int64_t { return (s.*side)[i].rank; });
        texts.push_back(std::move(text));
        i += count;
      }
      return fmt::format("{}", fmt::join(texts, ", "));
    };

    std::vector<std::string> arguments;
    if (!first.from.empty()) arguments.push_back(refs(&ChunkStatement::from));
    const auto peer = [&]() -> std::string {
      if (others) return "others";
      return number([](const ChunkStatement& s) -> int64_t { return s.peer; });
    };
    const auto its_number = [&] {
      return number([](const ChunkStatement& s) { return s.number; });
    };
    switch (first.kind) {
      case Kind::Signal:
      case Kind::Wait:
        arguments.push_back((first.kind == Kind::Signal ? "to = " : "from = ") + peer());
        arguments.push_back("tag = " + its_number());
        break;
      case Kind::Acquire:
      case Kind::Release: arguments.push_back("semaphore = " + its_number()); break;
      case Kind::Barrier:
        arguments.push_back(
            fmt::format("blocks = [{}]", fmt::join(program_.block_lists[first.blocks], ", ")));
        break;
      case Kind::Copy:
      case Kind::Put:
      case Kind::Get:
      case Kind::Reduce: break;
    }
    if (first.packets) arguments.emplace_back("packets = true");
    if (first.relaxed) arguments.emplace_back("relaxed = true");
    if (first.unit > 0) arguments.push_back(fmt::format("unit = {}", first.unit));
    // A barrier without a block is one of all blocks that meet.
    if (block_ > 0 || first.kind == Kind::Barrier)
      arguments.push_back(fmt::format("block = {}", block_));
    if (const std::string condition = *condition_of(ranks, program_.world); !condition.empty())
      arguments.push_back("if = " + condition);
    return fmt::format("  {}{}({})\n", first.to.empty() ? "" : refs(&ChunkStatement::to) + " = ",
                       kKindNames[static_cast<size_t>(first.kind)], fmt::join(arguments, ", "));
  }

  const ChunkProgram& program_;
  size_t block_ = 0;
  std::map<std::vector<int32_t>, RankFormulas> formulas_;
  std::string out_;
};

}  // namespace

std::string print_chunk_program(const ChunkProgram& program) { return Printer(program).run(); }

}  // namespace maco::frontend
