// Parses the DSL into the tree that JSON would give. Only the syntax is handled here
// (docs/language.md has the grammar); build.cpp gives the statements their meaning.
#include <fmt/format.h>

#include <charconv>

#include "compiler/frontend/build.h"
#include "compiler/frontend/dsl_hints.h"
#include "compiler/frontend/dsl_scanner.h"
#include "compiler/frontend/frontend.h"
#include "compiler/ops/op.h"
#include "compiler/ops/other_names.h"
#include "ir/expr.h"

namespace maco::frontend {

namespace {

constexpr int kMaxDepth = 100;
constexpr int64_t kVersion = 1;  // of the graph format, where the text names none

const std::vector<std::string>& statement_words() {
  static const std::vector<std::string> words = {"dim",    "scalar",   "input", "param",
                                                 "state",  "output",   "phase", "region",
                                                 "repeat", "pipeline", "set"};
  return words;
}

Raw raw_string(const Word& word, int32_t shift = 0) {
  Raw raw;
  raw.kind = Raw::Kind::String;
  raw.loc = word.loc;
  raw.text = word.text;
  raw.text_column_shift = shift;
  return raw;
}

Raw raw_int(int64_t value, ir::Loc loc) {
  Raw raw;
  raw.kind = Raw::Kind::Int;
  raw.loc = loc;
  raw.integer = value;
  return raw;
}

Raw raw_list(ir::Loc loc) {
  Raw raw;
  raw.kind = Raw::Kind::List;
  raw.loc = loc;
  return raw;
}

Raw raw_map(ir::Loc loc) {
  Raw raw;
  raw.kind = Raw::Kind::Map;
  raw.loc = loc;
  raw.map.reserve(ir::kUsualKeys);
  return raw;
}

void add(Raw& map, std::string key, ir::Loc key_loc, Raw value) {
  map.map.push_back({std::move(key), key_loc, std::move(value)});
}

/// What a graph or the body of a `repeat` collects.
struct Block {
  Raw tensors, ops;
};

/// Where statements stand.
enum class Place : uint8_t { Graph, Collective };

class Parser {
 public:
  Parser(int32_t file, ir::Diagnostics& diagnostics, size_t begin = 0)
      : diagnostics_(diagnostics), scan_(file, diagnostics, begin) {}

  std::optional<Raw> run() {
    const int errors_before = diagnostics_.errors();
    try {
      graph();
    } catch (DslSyntaxError&) {  // outside of any statement: no place to continue from
    }
    if (diagnostics_.errors() > errors_before) return std::nullopt;
    return std::move(root_);
  }
  /// The collectives at the beginning of a file, as a map.
  std::optional<Raw> only_collectives() {
    const int errors_before = diagnostics_.errors();
    try {
      scan_.refuse_zero_bytes();
      scan_.skip_lines();
      root_ = raw_map(scan_.here());
      collectives();
      // A graph that uses them may follow, as in an imported plan.
      if (scan_.peek() != '\0' && !scan_.at_name_before_name("graph"))
        scan_.expected("'collective NAME(of = ...) {'");
      add(root_, "collectives", root_.loc, std::move(collectives_));
    } catch (DslSyntaxError&) {
    }
    if (diagnostics_.errors() > errors_before) return std::nullopt;
    return std::move(root_);
  }
  /// A value and nothing else.
  std::optional<Raw> lone_value() {
    const int errors_before = diagnostics_.errors();
    try {
      scan_.refuse_zero_bytes();
      Raw raw = value();
      scan_.skip_lines();
      if (scan_.peek() != '\0') scan_.expected("the end of the value");
      if (diagnostics_.errors() > errors_before) return std::nullopt;
      return raw;
    } catch (DslSyntaxError&) {
      return std::nullopt;
    }
  }
  /// After errors: the tree without the faulty statements; nothing if statements can't be told
  /// apart.
  std::optional<Raw> rest() {
    if (!statements_end_) return std::nullopt;
    // The header was read; without a world in it, the world is one.
    if (root_.find("world") == nullptr) {
      Raw one;
      one.kind = Raw::Kind::Int;
      one.integer = 1;
      one.loc = root_.loc;
      root_.map.push_back({"world", root_.loc, std::move(one)});
    }
    return std::move(root_);
  }

 private:
  void graph() {
    scan_.refuse_zero_bytes();
    scan_.skip_lines();
    collectives();
    const ir::Loc start = scan_.here();
    const std::string what = collectives_.list.empty() ? "'graph NAME {' at the beginning"
                                                       : "'graph NAME {' behind the collectives";
    if (!scan_.at_name()) scan_.expected(what);
    if (const Word word = scan_.name("'graph'"); word.text != "graph")
      scan_.fail(start, fmt::format("expected {}, found '{}'", what, word.text));
    const Word name = scan_.name("the graph's name after 'graph'");
    root_ = raw_map(start);
    dims_ = raw_map(start);
    phases_ = regions_ = raw_list(start);
    Block block{raw_map(start), raw_list(start)};
    add(root_, "name", start, raw_string(name));
    bool header = true;
    try {
      if (scan_.peek() == '(') arguments();
    } catch (DslSyntaxError&) {
      scan_.recover_at('{');
      header = false;
    }
    block_of(block, start, Place::Graph);
    scan_.skip_lines();
    if (scan_.peek() != '\0') scan_.expected("the end of the file after the graph's '}'");

    if (root_.find("maco") == nullptr)
      root_.map.insert(root_.map.begin(), {"maco", start, raw_int(kVersion, start)});
    if (!collectives_.list.empty())
      add(root_, "collectives", collectives_.loc, std::move(collectives_));
    if (!dims_.map.empty()) add(root_, "dims", dims_.loc, std::move(dims_));
    add(root_, "tensors", start, std::move(block.tensors));
    add(root_, "ops", start, std::move(block.ops));
    if (!regions_.list.empty()) add(root_, "overlap_regions", regions_.loc, std::move(regions_));
    if (!phases_.list.empty()) add(root_, "phases", phases_.loc, std::move(phases_));
    statements_end_ = header;
  }

  /// None or more of "collective NAME(of = allreduce, chunks = world) { statements }".
  void collectives() {
    collectives_ = raw_list(scan_.here());
    while (scan_.at_name_before_name("collective")) {
      const Word keyword = scan_.name("'collective'");
      const Word name = scan_.name("the name of a collective");
      Raw entry = raw_map(keyword.loc);
      add(entry, "name", name.loc, raw_string(name));
      if (scan_.peek() != '(') scan_.expected(fmt::format("'(of = ...)' after '{}'", name.text));
      scan_.open('(');
      while (scan_.peek() != ')') {
        const Word key = scan_.name("a key of the collective");
        for (const char* own : {"name", "ops"})
          if (key.text == own) scan_.fail(key.loc, fmt::format("'{}' is no key here", own));
        scan_.expect("=", fmt::format("'=' after '{}'", key.text));
        add(entry, key.text, key.loc, value());
        if (!scan_.take(",")) break;
      }
      scan_.close(')');
      Block body{raw_map(keyword.loc), raw_list(keyword.loc)};
      block_of(body, keyword.loc, Place::Collective);
      add(entry, "ops", keyword.loc, std::move(body.ops));
      collectives_.list.push_back(std::move(entry));
      scan_.skip_lines();
    }
  }

  /// "scratch[0] @ rank + 1, output[0] = reduce(input[0], scratch[0], block = 1)"
  void chunk_statement(Block& block) {
    const Word keyword = scan_.at_name_before('(') || scan_.at_name_before('[')
                             ? Word{}
                             : scan_.name("a statement of the collective");
    if (keyword.text == "repeat") return repeat(block, keyword, Place::Collective);
    if (!keyword.text.empty())
      scan_.fail(keyword.loc,
                 fmt::format("expected 'buffer[chunk] = ...', a call such as 'signal(to = 1)', or "
                             "'repeat', found '{}'",
                             keyword.text));
    std::vector<Word> to;
    if (scan_.at_name_before('[')) {
      do to.push_back(scan_.chunks());
      while (scan_.take(","));
      scan_.expect("=", "'='");
    }
    const Word kind = scan_.name("'copy', 'put', 'get' or 'reduce'");
    if (scan_.peek() != '(') scan_.expected(fmt::format("'(' after '{0}'", kind.text));
    call(block, std::move(to), kind, Place::Collective);
  }

  /// "(world = 2)" after the graph's name.
  void arguments() {
    scan_.open('(');
    while (scan_.peek() != ')') {
      setting(scan_.name("the name of a graph-level key"));
      if (!scan_.take(",")) break;
    }
    scan_.close(')');
  }

  /// "key = value" of the graph.
  void setting(const Word& key) {
    for (const char* own : {"name", "dims", "tensors", "ops"})
      if (key.text == own)
        scan_.fail(key.loc, fmt::format("'{}' is not set but follows from the statements", own));
    scan_.expect("=", fmt::format("'=' after '{}'", key.text));
    add(root_, key.text, key.loc, value());
  }

  /// "{ statements }"
  void block_of(Block& block, ir::Loc opener, Place place, bool in_repeat = false) {
    scan_.expect("{", "'{'", scan_.peek() == ':' ? "; blocks stand in braces" : "");
    while (true) {
      scan_.skip_lines();
      if (scan_.take("}")) return;
      if (scan_.peek() == '\0') {
        diagnostics_.error(scan_.here(), "expected '}', found the end of the file");
        diagnostics_.note(opener, in_repeat               ? "the 'repeat' begins here"
                                  : place == Place::Graph ? "the graph begins here"
                                                          : "the collective begins here");
        throw DslSyntaxError();
      }
      const int depth = depth_;
      try {
        if (place == Place::Graph)
          statement(block, !in_repeat);
        else
          chunk_statement(block);
        scan_.end_statement();
      } catch (DslSyntaxError&) {
        scan_.recover();
        depth_ = depth;
      }
    }
  }

  void statement(Block& block, bool top) {
    const Word first = scan_.name("a statement");
    // 'input = relu(x)' defines a tensor called 'input': a word is a keyword only where nothing
    // else fits.
    const char next = scan_.peek();
    const bool call = next == '(' && !is_control(first.text);
    if (next == '=' || next == ',' || call) return op_statement(block, first);
    if (first.text == "input" || first.text == "param" || first.text == "state")
      return tensor(block, first);
    if (first.text == "output") return output(block, first);
    if (first.text == "scalar") return scalar(block, first);
    if (first.text == "repeat") return repeat(block, first, Place::Graph);
    if (first.text == "collective")
      scan_.fail(first.loc, "a collective is defined ahead of the graph, outside of its braces");
    for (const std::string& word : statement_words())
      if (!top && first.text == word)
        scan_.fail(first.loc,
                   fmt::format("'{}' belongs to the graph and can't stand in 'repeat'", word));
    if (first.text == "dim") return dim(first);
    if (first.text == "phase") return phase(first);
    if (first.text == "region") return region(first);
    if (first.text == "pipeline") return pipeline(first);
    if (first.text == "set")
      return setting(scan_.name("the name of a graph-level key after 'set'"));
    const std::string hint =
        hint_for_statement(first.text, scan_.rest_of_line(), statement_words());
    if (scan_.at_line_end() && hint.empty())
      scan_.fail(first.loc, fmt::format("expected '=' or '(' after '{}'", first.text));
    scan_.fail(first.loc, fmt::format("unknown statement '{}'{}", first.text, hint));
  }

  // Declarations.

  void dim(const Word& keyword) {
    if (dims_.map.empty()) dims_.loc = keyword.loc;
    std::optional<Raw> low;
    if (!scan_.at_name()) {
      low = classify(scan_.expression("the name of a dim", false));
      scan_.expect("<=", "'<=' after the dim's minimum");
    }
    const Word name = scan_.name("the name of a dim");
    Raw entry = raw_map(name.loc);
    scan_.expect("<=", fmt::format("'<=' and the maximum of '{}'", name.text));
    const ir::Loc at = scan_.here();
    add(entry, "max", at, classify(scan_.expression("the dim's maximum", false)));
    if (low) add(entry, "min", low->loc, *low);
    typical(entry);
    add(dims_, name.text, name.loc, std::move(entry));
  }

  void scalar(Block& block, const Word& keyword) {
    const Word name = scan_.name("the name of a scalar");
    Raw entry = raw_map(name.loc);
    add(entry, "kind", keyword.loc, raw_string(keyword));
    const ir::Loc in = scan_.here();
    if (!scan_.at_name_before('[') || scan_.name("'in'").text != "in")
      scan_.fail(in, fmt::format("expected 'in [lowest, end)' after '{}'", name.text));
    Raw range = raw_list(scan_.here());
    scan_.expect("[", "'['");
    range.list.push_back(classify(scan_.expression("the lowest value")));
    scan_.expect(",", "',' after the lowest value");
    range.list.push_back(classify(scan_.expression("the end of the range")));
    scan_.expect(")", "')' (a scalar's range does not include its end)");
    add(entry, "range", range.loc, range);
    typical(entry);
    add(block.tensors, name.text, name.loc, std::move(entry));
  }

  /// "typical 512", or nothing.
  void typical(Raw& entry) {
    const ir::Loc at = scan_.here();
    if (scan_.at_line_end() || scan_.peek() == '}') return;
    if (!scan_.at_name() || scan_.name("'typical'").text != "typical")
      scan_.fail(at, "expected 'typical' or the end of the line");
    add(entry, "typical", at, classify(scan_.expression("the typical value")));
  }

  /// ": bf16[64, 1024]"
  void type(Raw& entry) {
    const Word dtype = scan_.name("an element type");
    add(entry, "dtype", dtype.loc, raw_string(dtype));
    const std::string hint = "; a type is written 'f32[64, 1024]'";
    const char next = scan_.peek();
    if (next != '[') scan_.expected("'[' and the shape", next == '<' || next == '(' ? hint : "");
    const ir::Loc at = scan_.here();
    add(entry, "shape", at, list());
    if (scan_.peek() == '[') scan_.expected("the end of the line", hint);
  }

  void tensor(Block& block, const Word& keyword) {
    const Word name = scan_.name(fmt::format("a name after '{}'", keyword.text));
    Raw entry = raw_map(name.loc);
    add(entry, "kind", keyword.loc, raw_string(keyword));
    scan_.expect(":", fmt::format("':' and the type of '{}'", name.text),
                 scan_.peek() == ',' ? "; a declaration has one name" : "");
    type(entry);
    add(block.tensors, name.text, name.loc, std::move(entry));
  }

  /// "output y : bf16[64] = op(...)", where the type or the op may be absent.
  void output(Block& block, const Word& keyword) {
    std::vector<Word> names;
    bool typed = true;
    do {
      names.push_back(scan_.name("the name of an output"));
      Raw entry = raw_map(names.back().loc);
      add(entry, "kind", keyword.loc, raw_string(keyword));
      if (scan_.take(":"))
        type(entry);
      else
        typed = false;
      add(block.tensors, names.back().text, names.back().loc, std::move(entry));
    } while (scan_.take(","));
    if (scan_.peek() == '=') return op_of(block, std::move(names));
    if (!typed)
      scan_.expected(fmt::format("':' and the type of '{0}', or '=' and the op that gives it",
                                 names.back().text));
  }

  // Ops.

  void op_statement(Block& block, const Word& first) {
    if (scan_.peek() == '(') return call(block, {}, first, Place::Graph);
    std::vector<Word> outs = {first};
    while (scan_.take(",")) outs.push_back(scan_.name("the name of a tensor"));
    op_of(block, std::move(outs));
  }

  void op_of(Block& block, std::vector<Word> outs) {
    scan_.expect("=", "'='");
    const std::string_view text = scan_.rest_of_line();
    const ir::Loc at = scan_.here();
    const auto refuse = [&](const std::string& what) {
      const std::string hint = hint_for_expression(text);
      if (hint.empty()) scan_.expected(what);
      scan_.fail(
          at, fmt::format("expected a call of an op after '=', found {}; {}", quoted(text), hint));
    };
    if (!scan_.at_name()) refuse("an op after '='");
    const Word kind = scan_.name("an op after '='");
    if (scan_.peek() != '(') refuse(fmt::format("'(' after the op '{0}'", kind.text));
    call(block, std::move(outs), kind, Place::Graph);
  }

  void call(Block& block, std::vector<Word> outs, const Word& kind, Place place) {
    Raw op = raw_map(kind.loc);
    add(op, "op", kind.loc, raw_string(kind));
    Raw in = raw_list(scan_.here());
    Raw attributes = raw_map(kind.loc);
    scan_.open('(');
    while (scan_.peek() != ')') {
      if (scan_.at_name_before('=')) {
        attribute(attributes, kind);
      } else if (scan_.at_name()) {
        if (!attributes.map.empty()) scan_.fail(scan_.here(), "operands stand before attributes");
        in.list.push_back(raw_string(place == Place::Graph ? operand(kind) : scan_.chunks()));
      } else if (place == Place::Collective) {
        scan_.expected("'buffer[chunk]' or 'attribute = value'");
      } else {
        no_operand(kind);
      }
      if (!scan_.take(",")) break;
    }
    scan_.close(')');
    add(op, "in", in.loc, in);
    if (outs.size() == 1) {
      add(op, "out", outs[0].loc, raw_string(outs[0]));
    } else {
      Raw out = raw_list(outs.empty() ? kind.loc : outs[0].loc);
      for (const Word& word : outs) out.list.push_back(raw_string(word));
      add(op, "out", out.loc, out);
    }
    const ir::Loc at = scan_.here();
    if (scan_.take("@")) add(op, "name", at, raw_string(scan_.name("the op's name after '@'")));
    // 'relu(x) -> y': no second error is needed about the missing result.
    if (outs.empty()) scan_.end_statement();
    for (Raw::Entry& entry : attributes.map) op.map.push_back(std::move(entry));
    block.ops.list.push_back(std::move(op));
  }

  /// The name of a tensor, with nothing behind it that would make it an expression.
  Word operand(const Word& kind) {
    const ir::Loc at = scan_.here();
    const std::string_view text = scan_.rest_of_line();
    const Word name = scan_.name("the name of a tensor");
    const char next = scan_.peek();
    if (next == '(')
      scan_.fail(at, fmt::format("'{}' takes tensors by name, found a call of '{}'; write 't = "
                                 "{}(...)' in a line of its own before it, and 't' here",
                                 kind.text, name.text, name.text));
    if (next == '[')
      scan_.fail(at, fmt::format("'{0}' takes tensors by name, found '{1}[...]'; write 't = "
                                 "slice({1}, ...)' in a line of its own before it, and 't' here",
                                 kind.text, name.text));
    if (next == ':')
      scan_.expected("',' or ')'", fmt::format("; write '{} = ...' for an attribute", name.text));
    if (std::string_view("+-*/@%").find(next) != std::string_view::npos) {
      const std::string hint = hint_for_expression(text.substr(0, text.find_first_of(",)")));
      scan_.fail(at, fmt::format("'{}' takes tensors by name, found an expression{}", kind.text,
                                 hint.empty() ? "; operators are ops, one a line"
                                              : "; " + hint + " in a line of its own before it"));
    }
    return name;
  }
  /// Reports something else in place of an operand. Does nothing if the op is unknown, which is
  /// reported.
  void no_operand(const Word& kind) {
    const char next = scan_.peek();
    const bool value = next == '[' || next == '-' || (next >= '0' && next <= '9');
    if (value && ops::find_op(kind.text) == nullptr) {
      this->value();
      return;
    }
    scan_.expected("the name of a tensor or 'attribute = value'",
                   hint_for_operand(kind.text, scan_.rest_of_line()));
  }

  void attribute(Raw& attributes, const Word& kind) {
    const Word key = scan_.name("an attribute");
    for (const char* own : {"op", "in", "out", "repeat"})
      if (key.text == own) {
        const std::string hint = ops::hint_for_attr(kind.text, own);
        scan_.fail(key.loc,
                   fmt::format("'{}' is no attribute{}", own,
                               hint.empty() ? ": inputs stand first in the parentheses, outputs "
                                              "before '='"
                                            : hint));
      }
    scan_.expect("=", "'='");
    add(attributes, key.text, key.loc, value());
  }

  void repeat(Block& block, const Word& keyword, Place place) {
    if (!scan_.at_name())
      scan_.expected("the name of a variable after 'repeat'", "; write 'repeat i in 0..4 {'");
    const Word variable = scan_.name("the name of a variable after 'repeat'");
    const ir::Loc in = scan_.here();
    if (!scan_.at_name() || scan_.name("'in'").text != "in")
      scan_.fail(in, fmt::format("expected 'in' after '{}'", variable.text));
    Raw from = classify(scan_.expression("the first value"));
    scan_.expect("..", "'..'", scan_.peek() == '(' || scan_.peek() == '{' ? "; write '0..N'" : "");
    Raw to = classify(scan_.expression("the end of the range"));
    if (scan_.peek() != '{') scan_.expected("'{'");
    if (++depth_ > kMaxDepth) scan_.fail(keyword.loc, "'repeat' is nested too deeply");
    Block body{raw_map(keyword.loc), raw_list(keyword.loc)};
    block_of(body, keyword.loc, place, true);
    --depth_;
    Raw op = raw_map(keyword.loc);
    add(op, "repeat", keyword.loc, raw_string(variable));
    add(op, "from", from.loc, from);
    add(op, "to", to.loc, to);
    if (!body.tensors.map.empty()) add(op, "tensors", keyword.loc, std::move(body.tensors));
    add(op, "ops", keyword.loc, std::move(body.ops));
    block.ops.list.push_back(std::move(op));
  }

  // Statements about the graph as a whole.

  void phase(const Word& keyword) {
    if (phases_.list.empty()) phases_.loc = keyword.loc;
    const Word name = scan_.name("the name of a phase");
    Raw entry = raw_map(name.loc);
    add(entry, "name", name.loc, raw_string(name));
    if (!scan_.at_line_end() && scan_.peek() != '}') {
      const ir::Loc at = scan_.here();
      if (!scan_.at_name() || scan_.name("'depends_on'").text != "depends_on")
        scan_.fail(at, "expected 'depends_on' or the end of the line");
      Raw names = raw_list(scan_.here());
      do names.list.push_back(raw_string(scan_.name("the name of a phase")));
      while (scan_.take(","));
      add(entry, "depends_on", at, std::move(names));
    }
    phases_.list.push_back(std::move(entry));
  }

  void region(const Word& keyword) {
    if (regions_.list.empty()) regions_.loc = keyword.loc;
    const Word name = scan_.name("the name of a region");
    Raw entry = raw_map(name.loc);
    add(entry, "name", name.loc, raw_string(name));
    scan_.expect("=", fmt::format("'=' after '{}'", name.text));
    if (scan_.peek() != '[') scan_.expected("'[' and names of ops");
    const ir::Loc at = scan_.here();
    add(entry, "ops", at, list());
    regions_.list.push_back(std::move(entry));
  }

  void pipeline(const Word& keyword) {
    Raw entry = raw_map(keyword.loc);
    if (scan_.peek() != '[') scan_.expected("'[' and the stages");
    const ir::Loc at = scan_.here();
    add(entry, "stages", at, list());
    if (!scan_.at_line_end() && scan_.peek() != '}') {
      const ir::Loc word = scan_.here();
      if (!scan_.at_name() || scan_.name("'microbatches'").text != "microbatches")
        scan_.fail(word, "expected 'microbatches' or the end of the line");
      add(entry, "microbatches", word, classify(scan_.expression("the number of microbatches")));
    }
    add(root_, "pipeline", keyword.loc, std::move(entry));
  }

  // Values.

  Raw value() {
    if (scan_.peek() == '"') return raw_string(scan_.quoted(), 1);
    if (scan_.peek() == '[') return list();
    if (scan_.at_map()) return map();
    return classify(scan_.expression("a value"));
  }

  void enter(ir::Loc loc) {
    if (++depth_ > kMaxDepth) scan_.fail(loc, "the value is nested too deeply");
  }

  Raw list() {
    Raw result = raw_list(scan_.here());
    enter(result.loc);
    scan_.open('[');
    while (scan_.peek() != ']') {
      result.list.push_back(value());
      if (!scan_.take(",")) break;
    }
    scan_.close(']');
    --depth_;
    return result;
  }

  Raw map() {
    Raw result = raw_map(scan_.here());
    enter(result.loc);
    scan_.open('{');
    while (scan_.peek() != '}') {
      const Word key = scan_.peek() == '"' ? scan_.quoted() : scan_.name("a key");
      scan_.expect(":", fmt::format("':' after '{}'", key.text));
      add(result, key.text, key.loc, value());
      if (!scan_.take(",")) break;
    }
    scan_.close('}');
    --depth_;
    return result;
  }

  /// A number, truth value, word or expression from its text.
  Raw classify(const Word& word) {
    const std::string& text = word.text;
    Raw raw = raw_string(word);
    if (text == "true" || text == "false") {
      raw.kind = Raw::Kind::Bool;
      raw.boolean = text == "true";
      raw.text.clear();
      return raw;
    }
    const size_t first = text[0] == '-' ? 1 : 0;
    if (first == text.size() || text[first] < '0' || text[first] > '9') return raw;
    const char* end = text.data() + text.size();
    int64_t integer = 0;
    auto parsed = std::from_chars(text.data(), end, integer);
    if (parsed.ptr == end) {
      if (parsed.ec != std::errc())
        scan_.fail(word.loc, fmt::format("'{}' does not fit in 64 bits", text));
      raw = raw_int(integer, word.loc);
      return raw;
    }
    double number = 0;
    parsed = std::from_chars(text.data(), end, number);
    if (parsed.ptr == end) {
      if (parsed.ec != std::errc())
        scan_.fail(word.loc, fmt::format("'{}' does not fit in a double", text));
      raw.kind = Raw::Kind::Float;
      raw.number = number;
      raw.text.clear();
    }
    return raw;
  }

  ir::Diagnostics& diagnostics_;
  DslScanner scan_;
  Raw root_, dims_, phases_, regions_, collectives_;
  bool statements_end_ = false;  // whether root_ has all that could be read
  int depth_ = 0;                // of values and repeats
};

}  // namespace

std::optional<Raw> parse_dsl_value(int32_t file, ir::Diagnostics& diagnostics) {
  return Parser(file, diagnostics).lone_value();
}

std::optional<Raw> parse_dsl_raw(int32_t file, ir::Diagnostics& diagnostics, size_t begin) {
  return Parser(file, diagnostics, begin).run();
}

std::optional<Raw> parse_dsl_collectives(int32_t file, ir::Diagnostics& diagnostics) {
  return Parser(file, diagnostics).only_collectives();
}

std::optional<ir::Graph> parse_dsl(int32_t file, ir::Diagnostics& diagnostics,
                                   const std::vector<Raw>& collectives) {
  Parser parser(file, diagnostics);
  BuildOptions options;
  options.collectives = collectives;
  options.open_outputs = true;
  if (auto raw = parser.run()) return build(*raw, options, diagnostics);
  // Report all other errors at once.
  options.incomplete = true;
  if (auto raw = parser.rest()) build(*raw, options, diagnostics);
  return std::nullopt;
}

}  // namespace maco::frontend
