// Parses the text of ir::Program (grammar: ir/program_syntax.h) in one pass over the characters,
// without a list of tokens: a text of 100,000 tasks is read in a fraction of a second. After an
// error the parser goes on with the next line that starts an entity.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <unordered_map>

#include "ir/program_syntax.h"
#include "ir/program_text.h"
#include "ir/text_cursor.h"

namespace maco::ir {
namespace {

class Parser : private TextCursor {
 public:
  Parser(int32_t file, Diagnostics& diagnostics, const GraphParser& parse_graph)
      : TextCursor(file, diagnostics), parse_graph_(parse_graph) {}

  std::optional<Program> run() {
    if (header()) {
      while (errors_ < kMaxErrors && !at_end() && peek() != '}')
        if (!entity()) recover();
      if (errors_ < kMaxErrors && expect('}')) graph();
    }
    if (errors_ > 0) return std::nullopt;
    return std::move(p_);
  }

 private:
  bool at_entity() {
    const std::string_view word = peek_word();
    for (const Entity& e : kEntities)
      if (word == e.word) return true;
    return false;
  }
  size_t column(size_t at) const { return static_cast<size_t>(loc(at, 1).column); }
  void recover() {
    // The error may already lie on the next line, where something was missing at the end of this
    // one.
    if (at_entity() && at_ != entity_at_) return;
    while (at_ < text_.size()) {
      at_ = std::min(text_.find('\n', at_), text_.size());
      // A line that is indented deeper belongs to the faulty entity.
      if (peek() == '}' || at_entity() || column(at_) <= column(entity_at_)) return;
    }
  }

  // Names to entities

  struct Names {
    std::unordered_map<std::string, uint32_t> index;
    static constexpr uint32_t kSeveral = ~uint32_t{0};
    void add(const std::string& entity, size_t i) {
      const auto [at, fresh] = index.emplace(entity, static_cast<uint32_t>(i));
      if (!fresh) at->second = kSeveral;
    }
  };
  /// NAME or #N. An unknown reference is reported and read as 0, so that the line is checked to its
  /// end.
  template <class Id>
  bool reference(Id& id, const Names& names, size_t count, std::string_view kind) {
    const size_t start = (skip(), at_);
    uint32_t i = 0;
    id = Id{};
    if (accept('#')) {
      if (!number(i)) return false;
      if (i < count) {
        id = id_of<Id>(i);
      } else {
        error(start, at_ - start,
              fmt::format("there is no {} #{}: the text has {} so far", kind, i, count));
      }
      return true;
    }
    if (!read_name(scratch_, kind == "event" ? "an event" : "a buffer")) return false;
    const auto found = names.index.find(scratch_);
    if (found == names.index.end()) {
      std::string hint;
      if (count <= 10000 && errors_ < 20) {
        std::vector<std::string> known;
        for (const auto& entry : names.index) known.push_back(entry.first);
        std::sort(known.begin(), known.end());
        hint = did_you_mean(scratch_, known);
      }
      error(start, at_ - start, fmt::format("unknown {} '{}'{}", kind, scratch_, hint));
    } else if (found->second == Names::kSeveral) {
      error(start, at_ - start,
            fmt::format("several {}s are called '{}': write '#' and an index", kind, scratch_));
    } else {
      id = id_of<Id>(found->second);
    }
    return true;
  }
  bool buffer_ref(BufferId& id) { return reference(id, buffers_, p_.buffers.size(), "buffer"); }
  bool event_ref(EventId& id) { return reference(id, events_, p_.events.size(), "event"); }
  bool call_ref(CallId& id) {
    const std::string_view label = peek_word();
    if (label.empty()) return expected("a call");
    const auto found = calls_.find(label);
    if (found != calls_.end()) {
      id = found->second;
    } else {
      error(at_, label.size(), fmt::format("unknown call '{}'", label));
    }
    at_ += label.size();
    return true;
  }
  /// A number: hexadecimal behind 0x, else decimal.
  bool bits(uint64_t& result) {
    skip();
    const bool hex = text_.substr(at_, 2) == "0x";
    if (hex) at_ += 2;
    return number(result, "a number", hex ? 16 : 10);
  }
  bool value_index(uint32_t& i) { return expect('%') && number(i); }
  bool known_value(uint32_t& i) {
    const size_t start = (skip(), at_);
    if (!value_index(i)) return false;
    if (i >= p_.values.size()) error(start, at_ - start, fmt::format("unknown value %{}", i));
    return true;
  }

  // Entities

  struct Entity {
    std::string_view word;
    bool (Parser::*parse)();
  };
  static const Entity kEntities[11];

  /// The graph behind the Program; its language is parsed elsewhere.
  void graph() {
    if (at_end()) return;
    if (peek_word() != "graph" && peek_word() != "collective") {
      error(at_, 1, "expected a graph or the end of the text after '}'");
      return;
    }
    if (!parse_graph_) return;
    if (auto graph = parse_graph_(file_, at_, diagnostics_))
      p_.graph = std::move(*graph);
    else
      ++errors_;
  }

  bool header() {
    return (accept_word("program") || expected("'program'")) && read_name(p_.name) &&
           (accept_key("stage") || expected("'stage='")) && word_of(p_.stage, 4, "a stage") &&
           field("world", p_.world) && (accept_key("target") || expected("'target='")) &&
           read_name(p_.target) && (!accept_key("board") || read_name(p_.board)) &&
           field("ctas", p_.ctas) && optional_field("arena", p_.arena_bytes) &&
           optional_field("symmetric", p_.symmetric_bytes) && expect('{');
  }

  bool entity() {
    const std::string_view word = peek_word();
    entity_at_ = at_;
    for (const Entity& e : kEntities) {
      if (word != e.word) continue;
      at_ += word.size();
      return (this->*e.parse)();
    }
    return expected(
        "'uses', 'limits', 'roles', 'dim', 'scalar', 'value', 'buffer', 'call', 'collective', "
        "'event', 'task' or '}'");
  }

  bool uses() {
    Resources& u = p_.uses;
    return optional_field("consumers", u.consumers) && optional_field("loaders", u.loaders) &&
           optional_field("signallers", u.signallers) && optional_field("registers", u.registers) &&
           optional_field("spare", u.spare) &&
           optional_field("consumer_registers", u.consumer_registers) &&
           optional_field("loader_registers", u.loader_registers) &&
           optional_field("head", u.head_bytes) && optional_field("scratch", u.scratch_bytes) &&
           optional_field("pages", u.pages) && optional_field("page_bytes", u.page_bytes);
  }
  bool limits() {
    Limits& l = p_.limits;
    if (!optional_field("sms", l.sms) || !optional_field("threads", l.threads) ||
        !optional_field("registers", l.registers) || !optional_field("shared", l.shared_bytes))
      return false;
    const size_t start = (skip(), at_);
    if (!accept_key("symmetric")) return true;
    if (!number(l.symmetric_bytes.emplace())) return false;
    l.symmetric_loc = loc(start, at_ - start);
    return true;
  }

  bool roles() {
    do {
      CtaRange range;
      if (!word_of(range.role, 2, "a role") || !number(range.begin) || !expect('.') ||
          !expect('.') || !number(range.end))
        return false;
      if (accept('[')) {
        do {
          if (!read_name(range.ops.emplace_back())) return false;
        } while (accept(','));
        if (!expect(']')) return false;
      }
      p_.roles.push_back(std::move(range));
    } while (accept(','));
    return true;
  }

  bool range(Interval& range) {
    return (accept_word("in") || expected("'in'")) && expect('[') && number(range.lo) &&
           expect(',') && number(range.hi) && expect(']');
  }
  bool variable(bool scalar) {
    Variable v;
    v.scalar = scalar;
    if (!read_name(v.name) || !range(v.range)) return false;
    if (accept_word("typical") && !number(v.typical.emplace())) return false;
    p_.variables.push_back(std::move(v));
    return true;
  }
  bool dim() { return variable(false); }
  bool scalar() { return variable(true); }

  bool value() {
    const size_t start = (skip(), at_);
    uint32_t i = 0;
    Value v;
    if (!value_index(i)) return false;
    if (i != p_.values.size())
      error(start, at_ - start,
            fmt::format("values are numbered in order: expected %{}, found %{}", p_.values.size(),
                        i));
    if (!expect('=') || !expression(v.expr) || !range(v.range)) return false;
    p_.values.push_back(std::move(v));
    return true;
  }

  bool dtype(DType& result) {
    const std::string_view word = peek_word();
    if (const auto type = dtype_from_name(word)) {
      result = *type;
      at_ += word.size();
      return true;
    }
    return expected("a dtype");
  }

  bool buffer() {
    Buffer b;
    if (!read_name(b.name) || !expect(':') || !dtype(b.dtype) || !expect('[') ||
        !expression(b.rows))
      return false;
    if (accept_word("max")) {
      if (!number(b.max_rows)) return false;
    } else if (const auto rows = b.rows.constant()) {
      b.max_rows = *rows;
    } else {
      return expected("'max' and the maximal number of rows");
    }
    if (!(accept_word("x") || expected("'x'")) || !number(b.cols) || !expect(']') ||
        !word_of(b.kind, 6, "a kind of buffer"))
      return false;
    if (accept_key("tensor") && !read_name(b.tensor)) return false;
    if (!optional_field("rotation", b.rotation)) return false;
    b.packets = accept_word("packets");
    b.wire = accept_word("wire");
    if (!optional_field("use", b.use)) return false;
    if (accept_key("offset") && !number(b.offset.emplace())) return false;
    buffers_.add(b.name, p_.buffers.size());
    p_.buffers.push_back(std::move(b));
    return true;
  }

  bool param(Param& result) {
    if (!read_name(result.name) || !expect('=')) return false;
    const std::string_view word = peek_word();
    auto& v = result.value;
    if (word.empty()) {
      // An integer, unless a character of a floating-point number follows.
      const char* begin = text_.data() + at_;
      const char* end = text_.data() + text_.size();
      int64_t integer = 0;
      const auto [stop, status] = std::from_chars(begin, end, integer);
      const bool fraction = stop != end && (*stop == '.' || *stop == 'e' || *stop == 'E' ||
                                            *stop == 'i' || *stop == 'n');
      if (status == std::errc() && !fraction) {
        v = integer;
        at_ += static_cast<size_t>(stop - begin);
        return true;
      }
      if (status == std::errc::result_out_of_range && !fraction) return number(integer);
      return floating(v.emplace<double>());
    }
    if (word == "true" || word == "false") {
      at_ += word.size();
      v = word == "true";
      return true;
    }
    if (word == "inf" || word == "nan") return floating(v.emplace<double>());
    if (accept_word("const")) {
      int64_t n = 0;
      if (!number(n)) return false;
      v = ValueRef{n};
      return true;
    }
    if (accept_word("value")) {
      uint32_t i = 0;
      if (!known_value(i)) return false;
      v = ValueRef{i};
      return true;
    }
    if (accept_word("table")) return table(v.emplace<Table>());
    if (accept_word("body")) return body(v.emplace<BodyParam>());
    if (accept_word("word")) {
      if (peek() != '"') return expected("a string");
      return quoted(v.emplace<Word>().text);
    }
    if (dtype_from_name(word)) return dtype(v.emplace<DType>());
    return read_name(v.emplace<Word>().text, "the value of a parameter");
  }
  bool table(Table& result) {
    if (!expect('[')) return false;
    if (accept(']')) return true;
    do {
      if (!bits(result.words.emplace_back())) return false;
    } while (accept(','));
    return expect(']');
  }
  bool body(BodyParam& result) {
    const size_t start = (skip(), at_);
    if (!expect('(')) return false;
    if (!accept(')')) {
      do {
        BodyOperand& o = result.operands.emplace_back();
        if (!word_of(o.spread, 4, "how an operand is spread") || !dtype(o.dtype)) return false;
      } while (accept(','));
      if (!expect(')')) return false;
    }
    if (peek() != '"') return expected("a string");
    std::string text, why;
    if (!quoted(text)) return false;
    if (auto steps = parse_body(text, why)) {
      result.body = std::move(*steps);
      why = check_body(result);
    }
    // The rest of the line is still checked.
    if (!why.empty()) error(start, at_ - start, fmt::format("the body: {}", why));
    return true;
  }
  bool floating(double& value) {
    const char* begin = text_.data() + at_;
    const auto [stop, status] = std::from_chars(begin, text_.data() + text_.size(), value);
    if (status == std::errc::result_out_of_range)
      return error(at_, static_cast<size_t>(stop - begin), "the number is out of range");
    if (status != std::errc()) return expected("the value of a parameter");
    at_ += static_cast<size_t>(stop - begin);
    return true;
  }

  bool call() {
    Call c;
    const size_t start = entity_at_;
    const std::string_view label = peek_word();
    if (label.empty() || is_reserved(label)) return expected("a label such as 'c0'");
    const size_t label_at = at_;
    at_ += label.size();
    if (!expect('=') || !read_name(c.function)) return false;
    if (accept_word("with")) {
      do {
        if (!read_name(c.stages.emplace_back())) return false;
      } while (accept(','));
    }
    if (!(accept_key("op") || expected("'op='")) || !read_name(c.op) ||
        !(accept_key("kind") || expected("'kind='")) || !read_name(c.op_kind))
      return false;
    if (accept('{')) {
      while (!accept('}'))
        if (!param(c.params.emplace_back())) return false;
    }
    if (!expect('(')) return false;
    if (!accept(')')) {
      do {
        if (!buffer_ref(c.operands.emplace_back())) return false;
      } while (accept(','));
      if (!expect(')')) return false;
    }
    if (accept_word("loads")) {
      do {
        if (!load(c.loads.emplace_back())) return false;
      } while (accept(','));
    }
    if (accept_word("moves")) {
      do {
        if (!transfer(c.transfers.emplace_back())) return false;
      } while (accept(','));
    }
    c.loc = loc(start, label_at + label.size() - start);
    if (!calls_.emplace(label, id_of<CallId>(p_.calls.size())).second)
      error(label_at, label.size(), fmt::format("the label '{}' is used twice", label));
    p_.calls.push_back(std::move(c));
    return true;
  }

  bool load(Load& l) {
    if (!number(l.operand) || !field("ring", l.ring) || !field("pages", l.pages) ||
        !field("page_bytes", l.page_bytes))
      return false;
    if (accept_key("box_rows")) {
      Load::Box& box = l.box.emplace();
      if (!number(box.rows) || !field("box_cols", box.cols) || !field("pitch", box.pitch))
        return false;
      if (accept_key("run") && !number(box.run)) return false;
    }
    l.ahead = accept_word("ahead");
    return l.ahead || accept_word("behind") || expected("'ahead' or 'behind'");
  }

  bool transfer(Transfer& t) {
    if (accept_word("reduce")) {
      t.kind = Transfer::Kind::Reduce;
      if (!word_of(t.reduce, 4, "a reduction")) return false;
    } else if (accept_word("clear")) {
      t.kind = Transfer::Kind::Clear;
    } else if (!accept_word("copy")) {
      return expected("'copy', 'reduce' or 'clear'");
    }
    if (!expect('(')) return false;
    if (t.kind != Transfer::Kind::Clear) {
      do {
        if (!number(t.from.emplace_back())) return false;
      } while (accept(','));
    }
    if (!expect('-') || !expect('>')) return false;
    do {
      if (!number(t.to.emplace_back())) return false;
    } while (accept(','));
    return expect(')');
  }

  bool collective() {
    Collective c;
    if (!read_name(c.op) || !word_of(c.kind, kCollectiveKinds, "a kind of collective"))
      return false;
    const bool barrier = c.kind == CollectiveKind::Barrier, zeros = c.kind == CollectiveKind::Zeros;
    if (!barrier && !zeros && (!(accept_key("in") || expected("'in='")) || !buffer_ref(c.in)))
      return false;
    if (!barrier && (!(accept_key("out") || expected("'out='")) || !buffer_ref(c.out)))
      return false;
    if (zeros) c.in = c.out;
    if (accept_key("reduce") && !word_of(c.reduce, 4, "a reduction")) return false;
    if (!optional_field("peer", c.peer)) return false;
    if (accept_key("sender") && !read_name(c.sender)) return false;
    if (accept_key("ranks") && !bits(c.ranks)) return false;
    p_.collectives.push_back(std::move(c));
    return true;
  }

  bool event() {
    Event e;
    if (!read_name(e.name) || !word_of(e.kind, 4, "a kind of event") ||
        !optional_field("count", e.count))
      return false;
    if (accept_key("scope") && !word_of(e.scope.emplace(), 2, "a scope")) return false;
    events_.add(e.name, p_.events.size());
    p_.events.push_back(std::move(e));
    return true;
  }

  bool ranks(RankRef& ref) {
    const std::string_view word = peek_word();
    constexpr std::string_view words[] = {"self", "others", "all", "rank", "shift"};
    for (size_t i = 0; i < std::size(words); ++i) {
      if (word != words[i]) continue;
      at_ += word.size();
      ref = {static_cast<RankRef::Kind>(i), 0};
      return i < 3 || (expect('(') && number(ref.n) && expect(')'));
    }
    return expected("'self', 'others', 'all', 'rank(N)' or 'shift(N)'");
  }

  bool region(Region& r) {
    if (!buffer_ref(r.buffer) || !expect('[') || !number(r.r0) || !expect(':') || !number(r.r1) ||
        !expect(',') || !number(r.c0) || !expect(':') || !number(r.c1))
      return false;
    r.pitch = p_.buffers.empty() ? 1 : p_[r.buffer].cols;
    if (accept(']')) return true;
    if (!optional_field("pitch", r.pitch) || (accept_key("block") && !block(r.block)) ||
        (accept_key("from") && !known_value(r.from.emplace())) ||
        (accept_key("on") && !ranks(r.where)))
      return false;
    return expect(']');
  }
  bool block(Block& b) {
    if (!ranks(b.ref) || !expect('*')) return false;
    if (peek() == '%') return known_value(b.value.emplace());
    const size_t at = at_;
    if (!number(b.rows)) return false;
    return b.rows > 0 || error(at, at_ - at, "a block has at least one row");
  }

  bool clause(Task& t) {
    const std::string_view word = peek_word();
    constexpr std::string_view accesses[] = {"read", "write", "may"};
    for (size_t i = 0; i < std::size(accesses); ++i) {
      if (word != accesses[i]) continue;
      at_ += word.size();
      do {
        Access& access = t.accesses.emplace_back();
        access.kind = static_cast<AccessKind>(i);
        if (!region(access.region)) return false;
      } while (peek() == '#' || at_name());
      return true;
    }
    if (accept_word("wait")) {
      do {
        Wait& wait = t.waits.emplace_back();
        wait.relaxed = accept_word("relaxed");
        if (!event_ref(wait.event)) return false;
        if (accept_word("from") && !ranks(wait.from)) return false;
        if (accept_word("lag") && !number(wait.lag)) return false;
      } while (accept(','));
      return true;
    }
    if (accept_word("signal")) {
      do {
        Signal& signal = t.signals.emplace_back();
        signal.relaxed = accept_word("relaxed");
        if (!event_ref(signal.event)) return false;
        if (accept_word("to") && !ranks(signal.to)) return false;
      } while (accept(','));
      return true;
    }
    return expected("'read', 'write', 'may', 'wait' or 'signal'");
  }

  bool task() {
    Task& t = p_.tasks.emplace_back();
    const std::string_view label = peek_word();
    if (label.empty() || is_reserved(label)) return expected("a label such as 't0'");
    at_ += label.size();
    if (!call_ref(t.call) || !expect('#') || !number(t.tile) || !word_of(t.role, 2, "a role") ||
        !optional_field("sm", t.sm) || !optional_field("place", t.place))
      return false;
    t.mated = accept_word("mated");
    if (accept_key("ranks") && !bits(t.ranks)) return false;
    if (accept_key("priority") && !word_of(t.priority, 3, "a priority")) return false;
    if (accept_word("after")) {
      if (!expect('(')) return false;
      do {
        if (!call_ref(t.after.emplace_back())) return false;
      } while (accept(','));
      if (!expect(')')) return false;
    }
    if (!accept(':')) return true;
    do {
      if (!clause(t)) return false;
    } while (accept(';'));
    return true;
  }

  const GraphParser& parse_graph_;
  size_t entity_at_ = 0;
  Program p_;
  Names buffers_, events_;
  std::unordered_map<std::string_view, CallId> calls_;
  std::string scratch_;
};

const Parser::Entity Parser::kEntities[11] = {
    {"uses", &Parser::uses},     {"limits", &Parser::limits}, {"roles", &Parser::roles},
    {"dim", &Parser::dim},       {"scalar", &Parser::scalar}, {"value", &Parser::value},
    {"buffer", &Parser::buffer}, {"call", &Parser::call},     {"collective", &Parser::collective},
    {"event", &Parser::event},   {"task", &Parser::task}};

}  // namespace

std::optional<Program> parse_program(int32_t file, Diagnostics& diagnostics,
                                     const GraphParser& parse_graph) {
  return Parser(file, diagnostics, parse_graph).run();
}

bool is_program_text(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    const size_t first = line.find_first_not_of(" \t\r");
    if (first != std::string_view::npos && line[first] != '#' && line.substr(first, 2) != "//")
      return line.substr(first, 8) == "program ";
    at = end + 1;
  }
  return false;
}

}  // namespace maco::ir
