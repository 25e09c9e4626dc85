// Prints ir::Program: one line an entity. An entity is referred to by its name if that is unique,
// else by '#index'.
#include <charconv>
#include <cmath>
#include <unordered_map>

#include "ir/graph_text.h"
#include "ir/program_syntax.h"
#include "ir/program_text.h"

namespace maco::ir {
namespace {

class Printer {
 public:
  explicit Printer(const Program& program) : p_(program) {
    buffer_refs_ = refs(p_.buffers);
    event_refs_ = refs(p_.events);
  }

  std::string run() {
    // Tasks make nearly all of the text; their lines have 150 to 250 bytes.
    out_.reserve(256 * (p_.tasks.size() + p_.calls.size()) + 4096);
    put("program ");
    put_name(p_.name);
    put(" stage=");
    put(name(p_.stage));
    put_field(" world=", p_.world);
    put(" target=");
    put_name(p_.target);
    if (!p_.board.empty()) {
      put(" board=");
      put_name(p_.board);
    }
    put_field(" ctas=", p_.ctas);
    if (p_.arena_bytes != 0) put_field(" arena=", p_.arena_bytes);
    if (p_.symmetric_bytes != 0) put_field(" symmetric=", p_.symmetric_bytes);
    put(" {\n");
    if (p_.uses != Resources{}) uses();
    if (p_.limits != Limits{}) limits();
    if (!p_.roles.empty()) roles();
    for (const Variable& v : p_.variables) variable(v);
    for (size_t i = 0; i < p_.values.size(); ++i) value(i);
    for (const Buffer& b : p_.buffers) buffer(b);
    for (size_t i = 0; i < p_.calls.size(); ++i) call(i);
    for (const Collective& c : p_.collectives) collective(c);
    for (const Event& e : p_.events) event(e);
    for (size_t i = 0; i < p_.tasks.size(); ++i) task(i);
    put("}\n");
    if (p_.graph) put(print(*p_.graph));
    return std::move(out_);
  }

 private:
  // How entities are referred to: by name if only one has it, else by index.
  template <class T>
  static std::vector<std::string> refs(const std::vector<T>& entities) {
    std::unordered_map<std::string_view, int> uses;
    for (const T& e : entities) ++uses[e.name];
    std::vector<std::string> result;
    result.reserve(entities.size());
    for (size_t i = 0; i < entities.size(); ++i) {
      if (uses[entities[i].name] == 1) {
        result.emplace_back();
        append_name(result.back(), entities[i].name);
      } else {
        result.emplace_back("#").append(std::to_string(i));
      }
    }
    return result;
  }

  void put(std::string_view text) { out_.append(text); }
  void put_name(std::string_view text) { append_name(out_, text); }
  template <class Int>
  void put_int(Int n) {
    char digits[24];
    const auto end = std::to_chars(digits, digits + sizeof digits, n).ptr;
    out_.append(digits, end);
  }
  template <class Int>
  void put_field(std::string_view label, Int n) {
    put(label);
    put_int(n);
  }
  void put_bits(uint64_t bits) {
    char digits[24];
    put("0x");
    out_.append(digits, std::to_chars(digits, digits + sizeof digits, bits, 16).ptr);
  }
  void put_ref(const std::vector<std::string>& names, size_t i) {
    if (i < names.size()) {
      put(names[i]);
    } else {
      put_field("#", i);
    }
  }
  void put_double(double d) {
    if (std::isnan(d)) return put("nan");
    if (std::isinf(d)) return put(d < 0 ? "-inf" : "inf");
    char digits[40];
    const auto end = std::to_chars(digits, digits + sizeof digits, d).ptr;
    const std::string_view text(digits, static_cast<size_t>(end - digits));
    put(text);
    // A double always shows that it is one.
    if (text.find_first_of(".e") == std::string_view::npos) put(".0");
  }
  void put_ranks(RankRef ref) {
    switch (ref.kind) {
      case RankRef::Kind::Self: return put("self");
      case RankRef::Kind::Others: return put("others");
      case RankRef::Kind::All: return put("all");
      case RankRef::Kind::Rank: put_field("rank(", ref.n); return put(")");
      case RankRef::Kind::Shift: put_field("shift(", ref.n); return put(")");
    }
  }

  void uses() {
    const Resources& u = p_.uses;
    put("  uses");
    if (u.consumers != 0) put_field(" consumers=", u.consumers);
    if (u.loaders != 0) put_field(" loaders=", u.loaders);
    if (u.signallers != 0) put_field(" signallers=", u.signallers);
    if (u.registers != 0) put_field(" registers=", u.registers);
    if (u.spare != 0) put_field(" spare=", u.spare);
    if (u.consumer_registers != 0) put_field(" consumer_registers=", u.consumer_registers);
    if (u.loader_registers != 0) put_field(" loader_registers=", u.loader_registers);
    if (u.head_bytes != 0) put_field(" head=", u.head_bytes);
    if (u.scratch_bytes != 0) put_field(" scratch=", u.scratch_bytes);
    if (u.pages != 0) put_field(" pages=", u.pages);
    if (u.page_bytes != 0) put_field(" page_bytes=", u.page_bytes);
    put("\n");
  }
  void limits() {
    const Limits& l = p_.limits;
    put("  limits");
    if (l.sms != 0) put_field(" sms=", l.sms);
    if (l.threads != 0) put_field(" threads=", l.threads);
    if (l.registers != 0) put_field(" registers=", l.registers);
    if (l.shared_bytes != 0) put_field(" shared=", l.shared_bytes);
    if (l.symmetric_bytes) put_field(" symmetric=", *l.symmetric_bytes);
    put("\n");
  }

  void roles() {
    put("  roles");
    const char* separator = " ";
    for (const CtaRange& range : p_.roles) {
      put(separator);
      separator = ", ";
      put(name(range.role));
      put_field(" ", range.begin);
      put_field("..", range.end);
      if (range.ops.empty()) continue;
      const char* bracket = " [";
      for (const std::string& op : range.ops) {
        put(bracket);
        put_name(op);
        bracket = ", ";
      }
      put("]");
    }
    put("\n");
  }

  void range(Interval range) {
    put_field(" in [", range.lo);
    put_field(", ", range.hi);
    put("]");
  }
  void variable(const Variable& v) {
    put(v.scalar ? "  scalar " : "  dim ");
    put_name(v.name);
    range(v.range);
    if (v.typical) put_field(" typical ", *v.typical);
    put("\n");
  }
  void value(size_t i) {
    const Value& v = p_.values[i];
    put_field("  value %", i);
    put(" = ");
    put(v.expr.str());
    range(v.range);
    put("\n");
  }

  void buffer(const Buffer& b) {
    put("  buffer ");
    put_name(b.name);
    put(" : ");
    put(name(b.dtype));
    put("[");
    put(b.rows.str());
    if (b.rows.constant() != b.max_rows) put_field(" max ", b.max_rows);
    put_field(" x ", b.cols);
    put("] ");
    put(name(b.kind));
    if (!b.tensor.empty()) {
      put(" tensor=");
      put_name(b.tensor);
    }
    if (b.rotation != 1) put_field(" rotation=", b.rotation);
    if (b.packets) put(" packets");
    if (b.wire) put(" wire");
    if (b.use != 0) put_field(" use=", b.use);
    if (b.offset) put_field(" offset=", *b.offset);
    put("\n");
  }

  void param(const Param& param) {
    put_name(param.name);
    put("=");
    const auto& v = param.value;
    if (const bool* b = std::get_if<bool>(&v)) {
      put(*b ? "true" : "false");
    } else if (const int64_t* n = std::get_if<int64_t>(&v)) {
      put_int(*n);
    } else if (const double* d = std::get_if<double>(&v)) {
      put_double(*d);
    } else if (const DType* t = std::get_if<DType>(&v)) {
      put(name(*t));
    } else if (const Word* word = std::get_if<Word>(&v)) {
      const bool taken = std::find(std::begin(kParamWords), std::end(kParamWords), word->text) !=
                             std::end(kParamWords) ||
                         dtype_from_name(word->text);
      if (taken || !is_plain_name(word->text)) {
        put("word ");
        append_quoted(out_, word->text);
      } else {
        put(word->text);
      }
    } else if (const Table* table = std::get_if<Table>(&v)) {
      put("table [");
      for (size_t i = 0; i < table->words.size(); ++i) {
        if (i > 0) put(", ");
        put_bits(table->words[i]);
      }
      put("]");
    } else if (const BodyParam* body = std::get_if<BodyParam>(&v)) {
      put("body(");
      for (size_t i = 0; i < body->operands.size(); ++i) {
        if (i > 0) put(", ");
        put(name(body->operands[i].spread));
        put(" ");
        put(name(body->operands[i].dtype));
      }
      put(") ");
      append_quoted(out_, ir::print(body->body));
    } else {
      const ValueRef& ref = std::get<ValueRef>(v);
      if (const int64_t* c = std::get_if<int64_t>(&ref.v)) {
        put_field("const ", *c);
      } else {
        put_field("value %", std::get<uint32_t>(ref.v));
      }
    }
  }

  void call(size_t i) {
    const Call& c = p_.calls[i];
    put_field("  call c", i);
    put(" = ");
    put_name(c.function);
    for (size_t k = 0; k < c.stages.size(); ++k) {
      put(k == 0 ? " with " : ", ");
      put_name(c.stages[k]);
    }
    put(" op=");
    put_name(c.op);
    put(" kind=");
    put_name(c.op_kind);
    if (!c.params.empty()) {
      put(" {");
      for (const Param& p : c.params) {
        put(" ");
        param(p);
      }
      put(" }");
    }
    put(" (");
    const char* separator = "";
    for (BufferId b : c.operands) {
      put(separator);
      separator = ", ";
      put_ref(buffer_refs_, index(b));
    }
    put(")");
    separator = " loads ";
    for (const Load& l : c.loads) {
      put_field(separator, l.operand);
      separator = ", ";
      put_field(" ring=", l.ring);
      put_field(" pages=", l.pages);
      put_field(" page_bytes=", l.page_bytes);
      if (l.box) {
        put_field(" box_rows=", l.box->rows);
        put_field(" box_cols=", l.box->cols);
        put_field(" pitch=", l.box->pitch);
        if (l.box->run != 0) put_field(" run=", l.box->run);
      }
      put(l.ahead ? " ahead" : " behind");
    }
    separator = " moves ";
    for (const Transfer& t : c.transfers) {
      put(separator);
      separator = ", ";
      transfer(t);
    }
    put("\n");
  }

  void transfer(const Transfer& t) {
    if (t.kind == Transfer::Kind::Reduce) {
      put("reduce ");
      put(name(t.reduce));
    } else {
      put(t.kind == Transfer::Kind::Copy ? "copy" : "clear");
    }
    if (t.from.empty()) put("(");
    const char* separator = "(";
    for (uint32_t a : t.from) {
      put_field(separator, a);
      separator = ", ";
    }
    separator = t.from.empty() ? "-> " : " -> ";
    for (uint32_t a : t.to) {
      put_field(separator, a);
      separator = ", ";
    }
    put(")");
  }

  void collective(const Collective& c) {
    put("  collective ");
    put_name(c.op);
    put(" ");
    put(name(c.kind));
    if (c.kind != CollectiveKind::Barrier && c.kind != CollectiveKind::Zeros) {
      put(" in=");
      put_ref(buffer_refs_, index(c.in));
    }
    if (c.kind != CollectiveKind::Barrier) {
      put(" out=");
      put_ref(buffer_refs_, index(c.out));
    }
    if (c.reduce != Reduction::Sum) {
      put(" reduce=");
      put(name(c.reduce));
    }
    if (c.peer != 0) put_field(" peer=", c.peer);
    if (!c.sender.empty()) {
      put(" sender=");
      put_name(c.sender);
    }
    if (c.ranks != ~uint64_t{0}) {
      put(" ranks=");
      put_bits(c.ranks);
    }
    put("\n");
  }

  void event(const Event& e) {
    put("  event ");
    put_name(e.name);
    put(" ");
    put(name(e.kind));
    if (e.count != 1) put_field(" count=", e.count);
    if (e.scope) {
      put(" scope=");
      put(name(*e.scope));
    }
    put("\n");
  }

  void region(const Region& r) {
    put_ref(buffer_refs_, index(r.buffer));
    put_field("[", r.r0);
    put_field(":", r.r1);
    put_field(", ", r.c0);
    put_field(":", r.c1);
    if (index(r.buffer) >= p_.buffers.size() || r.pitch != p_[r.buffer].cols)
      put_field(" pitch=", r.pitch);
    if (r.block.any()) {
      put(" block=");
      put_ranks(r.block.ref);
      if (r.block.value)
        put_field("*%", *r.block.value);
      else
        put_field("*", r.block.rows);
    }
    if (r.from) put_field(" from=%", *r.from);
    if (r.where != RankRef::self()) {
      put(" on=");
      put_ranks(r.where);
    }
    put("]");
  }

  void task(size_t i) {
    const Task& t = p_.tasks[i];
    put_field("  task t", i);
    put_field(" c", index(t.call));
    put_field("#", t.tile);
    put(" ");
    put(name(t.role));
    if (t.sm != -1) put_field(" sm=", t.sm);
    if (t.place != -1) put_field(" place=", t.place);
    if (t.mated) put(" mated");
    if (t.ranks != ~uint64_t{0}) {
      put(" ranks=");
      put_bits(t.ranks);
    }
    if (t.priority != Priority::Normal) {
      put(" priority=");
      put(name(t.priority));
    }
    if (!t.after.empty()) {
      const char* separator = " after(c";
      for (CallId c : t.after) {
        put_field(separator, index(c));
        separator = ", c";
      }
      put(")");
    }
    clause_ = ": ";
    for (size_t a = 0; a < t.accesses.size(); ++a) {
      const AccessKind kind = t.accesses[a].kind;
      if (a == 0 || kind != t.accesses[a - 1].kind) {
        constexpr std::string_view words[] = {"read", "write", "may"};
        clause(words[static_cast<size_t>(kind)]);
      }
      put(" ");
      region(t.accesses[a].region);
    }
    for (size_t w = 0; w < t.waits.size(); ++w) {
      if (w == 0) clause("wait");
      put(w == 0 ? " " : ", ");
      if (t.waits[w].relaxed) put("relaxed ");
      put_ref(event_refs_, index(t.waits[w].event));
      if (t.waits[w].from != RankRef::self()) {
        put(" from ");
        put_ranks(t.waits[w].from);
      }
      if (t.waits[w].lag != 0) put_field(" lag ", t.waits[w].lag);
    }
    for (size_t s = 0; s < t.signals.size(); ++s) {
      if (s == 0) clause("signal");
      put(s == 0 ? " " : ", ");
      if (t.signals[s].relaxed) put("relaxed ");
      put_ref(event_refs_, index(t.signals[s].event));
      if (t.signals[s].to != RankRef::self()) {
        put(" to ");
        put_ranks(t.signals[s].to);
      }
    }
    put("\n");
  }
  void clause(std::string_view word) {
    put(clause_);
    clause_ = "; ";
    put(word);
  }

  const Program& p_;
  std::vector<std::string> buffer_refs_, event_refs_;
  std::string out_;
  std::string_view clause_;
};

}  // namespace

std::string print(const Program& program) { return Printer(program).run(); }

}  // namespace maco::ir
