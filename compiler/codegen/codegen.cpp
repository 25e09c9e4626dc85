#include "compiler/codegen/codegen.h"

#include <algorithm>
#include <limits>

#include "compiler/codegen/cuda_units.h"
#include "compiler/codegen/device_sources.h"
#include "compiler/codegen/emitter.h"
#include "compiler/codegen/expressions.h"
#include "compiler/codegen/manifest.h"
#include "compiler/codegen/params.h"
#include "compiler/codegen/tables.h"
#include "compiler/functions/function.h"
#include "ir/check.h"
#include "ir/graph_text.h"

namespace maco::codegen {

namespace {

// A kind has one loader, which serves all its loads at once.
bool loads_ahead(const ir::Call& call) {
  return !call.loads.empty() && std::all_of(call.loads.begin(), call.loads.end(),
                                            [](const ir::Load& l) { return l.ahead; });
}

// Some ahead and some not, of a loader that tells them apart.
bool loads_apart(const ir::Program& program, const ir::Call& call) {
  const functions::Function* function = functions::find_function(call);
  return !loads_ahead(call) &&
         std::any_of(call.loads.begin(), call.loads.end(),
                     [](const ir::Load& l) { return l.ahead; }) &&
         function && function->loads_apart && function->loads_apart({program, call});
}

// Letters, digits and '_' only, not too long: for names of functions that a reader can find again.
std::string plain(std::string_view name) {
  std::string s;
  for (char c : name.substr(0, 24)) s += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return s;
}

// The code of one kind of tasks, or of several that differ in one parameter.
struct Code {
  std::string name;     // of its function and config
  std::string members;  // of its config
  const ir::Call* call = nullptr;
  std::vector<std::string> ops = {};
  struct Kind {
    size_t number;
    int64_t value;  // of that parameter
  };
  std::vector<Kind> kinds = {};
};

// The parameter in which kinds of a code may differ, and the members that tell of it.
struct Differs {
  std::string name;
  bool integer = false;  // else a Value
  int64_t value = 0;
  std::string members;
};
std::string differing(const Differs& differs, const Code& code) {
  std::string choice;
  for (size_t k = 1; k < code.kinds.size(); ++k)
    choice += fmt::format("ctx.kind == {} ? {} : ", code.kinds[k].number, code.kinds[k].value);
  choice += fmt::format("{}", code.kinds.front().value);
  if (differs.integer)
    return differs.members +
           fmt::format("static MACO_FN i64 {}_of(const Context& ctx) {{ return (void)ctx, {}; }}\n",
                       differs.name, choice);
  if (code.kinds.size() == 1) return differs.members;
  return fmt::format(
      "struct {} {{\n"
      "  static constexpr bool is_constant = false;\n"
      "  static MACO_FN i64 get(const Context& ctx) {{ return {}; }}\n"
      "}};\n",
      differs.name, choice);
}

std::vector<std::string> task_parameters(bool sender) {
  return {"Context& ctx", sender ? "const SenderArgs& args" : "const Args& args", "u32 tile"};
}

class Generator {
 public:
  Generator(const ir::Graph& graph, const ir::Program& program, const Options& options,
            ir::Diagnostics& diagnostics)
      : graph_(graph),
        text_(ir::print_with_lines(graph)),
        p_(program),
        options_(options),
        diagnostics_(diagnostics),
        events_(number_events(program)),
        tables_(program, events_, maps_) {}

  std::string run() {
    if (!check_calls(p_, diagnostics_)) return "";
    maps_ = number_maps(p_);
    find_kinds();
    if (!check_limits() || !check_sync() || !functions::check_mates(p_, diagnostics_) ||
        !functions::check_touches(p_, diagnostics_))
      return "";
    std::vector<const ir::CudaUnit*> units;
    if (!used_units(units)) return "";
    e_.block(cta_source(p_.uses, p_.world, scouts(p_)) +
             device_sources(used_functions(), used_methods(), p_.uses.prepared() > 0) +
             cuda_unit_sources(units));
    e_.raw(kGeneratedMarker);
    e_.raw("");
    {
      auto ns = e_.name_space("maco_program");
      e_.raw("using namespace maco;");
      e_.raw("");
      constants();
      configs();
      tables_.emit(e_, kind_of_call_);
      kernel();
    }
    e_.raw("");
    const std::string launch = "MACO_PARAM maco::Launch launch";
    e_.function(fmt::format("MACO_KERNEL {}maco_kernel", tables_.has_mates() ? "MACO_PAIRS " : ""),
                {launch}, {"maco::worker<maco_program::Kernel>(launch);"});
    e_.function("MACO_KERNEL maco_reset", {launch},
                {"maco::reset_memory<maco_program::Kernel>(launch);"});
    const std::string body = e_.take();
    ir::Manifest m = make_manifest(graph_, text_.text, p_, events_, maps_, options_);
    m.code_hash = ir::code_hash(body);
    std::string text = ir::print_manifest(m);
    text += body;
    return text;
  }

 private:
  // By name, so that their order doesn't depend on that of calls.
  std::vector<const functions::Function*> used_functions() const {
    std::map<std::string, const functions::Function*> used;
    for (const Code& k : codes_)
      used.emplace(ir::function_text(*k.call), functions::find_function(*k.call));
    std::vector<const functions::Function*> list;
    for (const auto& entry : used) list.push_back(entry.second);
    return list;
  }

  std::vector<const functions::Method*> used_methods() const {
    std::map<std::string, const functions::Method*> used;
    for (const Code& k : codes_)
      if (const functions::Method* m = functions::method_of(*k.call))
        used.emplace(fmt::format("{} {}", m->function, m->name), m);
    std::vector<const functions::Method*> list;
    for (const auto& entry : used) list.push_back(entry.second);
    return list;
  }

  // In the graph's order.
  bool used_units(std::vector<const ir::CudaUnit*>& units) {
    std::map<std::string, bool> used;
    for (const Code& k : codes_) {
      const functions::Function& function = *functions::find_function(*k.call);
      for (const ir::Param& param : k.call->params)
        if (function.find_param(param.name)->type == functions::ParamType::Unit)
          used[std::get<ir::Word>(param.value).text] = true;
    }
    for (const ir::CudaUnit& unit : graph_.cuda_units)
      if (used.erase(unit.name) > 0) units.push_back(&unit);
    for (const auto& [name, unknown] : used)
      diagnostics_.error(graph_.loc, fmt::format("the graph has no unit '{}'", name));
    return used.empty();
  }

  // Is it one that calls of a code may differ in? `differs` is told of it.
  bool differs_in(const functions::Function& function, const ir::Call& call, const ir::Param& param,
                  Differs& differs) const {
    if (!function.shared_over) return false;
    const auto names = function.shared_over({p_, call});
    const auto it = std::find(names.begin(), names.end(), param.name);
    if (it == names.end()) return false;
    const auto* integer = std::get_if<int64_t>(&param.value);
    const auto* value = std::get_if<ir::ValueRef>(&param.value);
    const auto* constant = value ? std::get_if<int64_t>(&value->v) : integer;
    if (!constant) return false;
    if (it == names.begin()) {
      differs.name = param.name;
      differs.integer = integer != nullptr;
      differs.value = *constant;
    }
    return true;
  }

  // What the code of a function with stages asks its config for.
  static std::string stage_members(const functions::Function& function, const ir::Call& call,
                                   const std::string& code) {
    std::string members;
    for (const std::string& stage : function.asks)
      members += fmt::format("static constexpr bool has_{} = {};\n", stage,
                             functions::has_stage(call, stage));
    for (const functions::Slot& slot : function.slots)
      members += fmt::format("using {} = {}<{}_config>;\n", slot.name, slot.fill, code);
    if (members.empty()) return "";
    for (size_t i = 0; i < function.first_of_many(); ++i)
      members += fmt::format("static constexpr int {}_at = {};\n", function.operands[i].name, i);
    return members;
  }

  void find_kinds() {
    std::map<std::string, size_t> known;
    std::vector<Differs> all_differ;  // by code
    for (const ir::Call& c : p_.calls) {
      const functions::Function& function = *functions::find_function(c);
      std::string members;
      Differs differs;
      const auto packets = [&](size_t i) {
        return i < c.operands.size() && p_[c.operands[i]].own_packets();
      };
      for (const ir::Param& param : c.params)
        (differs_in(function, c, param, differs) ? differs.members : members) +=
            codegen::members(function, param, packets);
      if (function.takes_packets)
        for (size_t i = 0; i < function.first_of_many(); ++i)
          if (function.operands[i].packets)
            members += fmt::format("static constexpr bool {}_packets = {};\n",
                                   function.operands[i].name, packets(i));
      for (const ir::Load& l : c.loads) {
        const std::string& name = function.operand(l.operand, c.operands.size())->name;
        members += fmt::format("static constexpr i64 {}_page_bytes = {};\n", name, l.page_bytes);
        members += fmt::format("static constexpr bool {}_ahead = {};\n", name, l.ahead);
        if (l.box)
          members += fmt::format("static constexpr i64 {0}_box_rows = {1}, {0}_box_cols = {2};\n",
                                 name, l.box->rows, l.box->cols);
      }
      const std::string key =
          fmt::format("{}\n{}{}", ir::function_text(c), loads_ahead(c), members);
      auto [it, fresh] = known.try_emplace(key, codes_.size());
      if (fresh) {
        const std::string code = fmt::format("{}_{}_{}", c.function, plain(c.op), kinds_);
        codes_.push_back({code, stage_members(function, c, code) + members, &c});
        all_differ.push_back(differs);
      }
      Code& code = codes_[it->second];
      auto kind = std::find_if(code.kinds.begin(), code.kinds.end(),
                               [&](const Code::Kind& k) { return k.value == differs.value; });
      if (kind == code.kinds.end()) kind = code.kinds.insert(kind, {kinds_++, differs.value});
      kind_of_call_.push_back(kind->number);
      if (code.ops.empty() || code.ops.back() != c.op) code.ops.push_back(c.op);
    }
    for (size_t i = 0; i < codes_.size(); ++i)
      codes_[i].members = differing(all_differ[i], codes_[i]) + codes_[i].members;
  }

  bool check_limits() {
    const auto limit = [&](int64_t n, int64_t most, const char* what) {
      if (n <= most) return true;
      diagnostics_.error(
          graph_.loc,
          fmt::format("the kernel would have {} {}, but its tables hold {}", n, what, most));
      return false;
    };
    for (const Tables::Limit& l : tables_.limits())
      if (!limit(l.n, l.most, l.what)) return false;
    return limit(static_cast<int64_t>(kinds_), 1 << 16, "kinds of tasks") &&
           limit(static_cast<int64_t>(p_.values.size()), 256, "different run-time values") &&
           limit(p_.uses.pages, kMostPages, "pages a CTA");
  }

  // The verifier refuses these too; there is no instruction that they could become.
  bool check_sync() {
    const auto relaxed = [&](size_t task, const char* what, ir::EventId event) {
      diagnostics_.error(
          p_[p_.tasks[task].call].loc,
          fmt::format("{} {} event '{}' relaxed, which no kernel does",
                      ir::describe(p_, ir::id_of<ir::TaskId>(task)), what, p_[event].name));
      return false;
    };
    for (size_t t = 0; t < p_.tasks.size(); ++t) {
      for (const ir::Wait& w : p_.tasks[t].waits)
        if (w.relaxed) return relaxed(t, "waits for", w.event);
      for (const ir::Signal& g : p_.tasks[t].signals)
        if (g.relaxed) return relaxed(t, "signals", g.event);
    }
    return true;
  }

  void constants() {
    e_.line("constexpr int kWorld = {}, kCtas = {}, kLocalEvents = {}, kPeerEvents = {};", p_.world,
            p_.ctas, events_.local, events_.peer);
    e_.line("constexpr i64 kSymmetricBytes = {};", p_.symmetric_bytes);
    e_.line("constexpr u32 kPacketUses = {};", p_.packet_uses());
    e_.line("constexpr i64 kPacketBytes = {};", p_.packet_bytes());
    e_.line(
        "static_assert(Cta::kConsumers == {} && Cta::kLoaders == {}, \"the manifest's threads\");",
        p_.uses.consumers, p_.uses.loaders);
    e_.line(
        "static_assert(Cta::kSignallers == {} && Cta::kSpare == {}, \"the manifest's threads\");",
        p_.uses.signallers, p_.uses.spare);
    e_.raw("constexpr int kRingBytes = Cta::kPages * Cta::kPageBytes;");
    e_.raw("constexpr int kSharedBytes = Cta::kHeadBytes + Cta::kScratchBytes + kRingBytes;");
    e_.line("static_assert(kSharedBytes == {}, \"the manifest's shared_bytes\");",
            p_.uses.shared_bytes());
    e_.raw("");
  }

  void configs() {
    for (const Code& k : codes_) {
      std::string ops;
      for (size_t i = 0; i < k.ops.size() && i < 6; ++i)
        ops += fmt::format("{}'{}'", i ? ", " : "", k.ops[i]);
      if (k.ops.size() > 6) ops += fmt::format(" and {} more", k.ops.size() - 6);
      const auto line = text_.lines.find(k.ops.front());
      if (line != text_.lines.end())
        ops += fmt::format(", {}line {} of the graph above",
                           k.ops.size() > 1 ? "the first in " : "", line->second);
      e_.line("// {} of op{} {}", k.call->op_kind, k.ops.size() > 1 ? "s" : "", ops);
      if (k.members.empty()) {
        e_.line("struct {}_config {{}};", k.name);
      } else {
        auto s = e_.scope(fmt::format("struct {}_config", k.name), "};");
        e_.lines(k.members);
      }
      const auto function = [&](const char* suffix, bool sender = false) {
        e_.function(fmt::format("MACO_FN void {}{}", k.name, suffix), task_parameters(sender),
                    {filled(e_.indent() + 2,
                            fmt::format("ops::{}{}<{}_config>(", k.call->function, suffix, k.name),
                            {"ctx", "args", "tile"}, ");")});
      };
      function("");
      if (!k.call->loads.empty()) function("_load");
      if (functions::sends(p_, *k.call)) function("_send", true);
      e_.raw("");
    }
  }

  void kernel() {
    auto s = e_.scope("struct Kernel", "};");
    e_.raw("static constexpr int kWorld = maco_program::kWorld, kCtas = maco_program::kCtas;");
    e_.raw("static constexpr int kLocalEvents = maco_program::kLocalEvents;");
    e_.raw("static constexpr int kPeerEvents = maco_program::kPeerEvents;");
    e_.raw("static constexpr i64 kSymmetricBytes = maco_program::kSymmetricBytes;");
    e_.raw("static constexpr u32 kPacketUses = maco_program::kPacketUses;");
    e_.raw("static constexpr i64 kPacketBytes = maco_program::kPacketBytes;");
    e_.line("static constexpr int kMaps = {};", maps_.maps.size());
    e_.line("static constexpr bool kSysCounters = {};",
            std::any_of(p_.events.begin(), p_.events.end(), is_counter_at_sys_scope));
    e_.line("static constexpr bool kHints = {};", tables_.has_hints());
    e_.line("static constexpr bool kMates = {};", tables_.has_mates());
    for (const auto& [type, name] : {std::pair("TaskRow", "tasks"),
                                     {"StreamRow", "streams"},
                                     {"CallRow", "calls"},
                                     {"Operand", "operands"},
                                     {"SyncRow", "syncs"},
                                     {"u64", "guards"},
                                     {"u32", "local_counts"}})
      e_.function(fmt::format("static MACO_FN const {}* {}", type, name), {},
                  {fmt::format("return maco_program::{};", name)});
    dispatch("run", "", [](const Code&) { return true; });
    dispatch("load", "_load", [](const Code& k) { return !k.call->loads.empty(); });
    predicate("paged", [](const Code& k) { return !k.call->loads.empty(); });
    predicate("load_ahead", [](const Code& k) { return loads_ahead(*k.call); });
    predicate("load_apart", [&](const Code& k) { return loads_apart(p_, *k.call); });
    const auto sender = [&](const Code& k) { return functions::sends(p_, *k.call); };
    e_.line("static constexpr bool kSends = {};",
            std::any_of(codes_.begin(), codes_.end(), sender));
    dispatch("send", "_send", sender, true);
    predicate("sends", sender);
    variables();
  }

  // What launches work out that number themselves. Dims and scalars have the manifest's order.
  void variables() {
    std::vector<ir::ManifestRange> all = dims_of(graph_);
    for (ir::ManifestRange& scalar : scalars_of(graph_)) all.push_back(std::move(scalar));
    e_.line("static constexpr int kVariables = {}, kValues = {};", all.size(), p_.values.size());
    const auto variable = [&](std::string_view name) {
      if (name == "rank" || name == "world") return std::string(name);
      const auto at = std::find_if(all.begin(), all.end(),
                                   [&](const ir::ManifestRange& v) { return v.name == name; });
      MACO_CHECK(at != all.end(), std::string(name));
      return fmt::format("v[{}]", at - all.begin());
    };
    const auto range = [](int64_t lo, int64_t hi) {
      return fmt::format("{}, {}", source_of(lo), source_of(hi));
    };
    std::vector<std::string> statements = {"(void)f;"};
    for (size_t i = 0; i < all.size(); ++i)
      statements.push_back(fmt::format("f({}, {});", i, range(all[i].lo, all[i].hi)));
    const std::string generic = "template <class F>\nstatic MACO_FN void ";
    e_.function(generic + "each_variable", {"const F& f"}, statements);
    statements = {"constexpr i64 world = kWorld;", "(void)v, (void)rank, (void)world, (void)f;"};
    constexpr std::numeric_limits<int32_t> word;
    for (size_t i = 0; i < p_.values.size(); ++i) {
      const ir::Value& value = p_.values[i];
      statements.push_back(fmt::format("f({}, {}, {});", i, source_of(value.expr, variable),
                                       range(std::max<int64_t>(value.range.lo, word.min()),
                                             std::min<int64_t>(value.range.hi, word.max()))));
    }
    e_.function(generic + "each_value", {"const i64* v", "i64 rank", "const F& f"}, statements);
  }

  template <class F>
  void dispatch(const std::string& name, const std::string& suffix, F wanted, bool sender = false) {
    std::string cases = "switch (kind) {\n";
    std::vector<std::string> lines(kinds_);  // by kind
    for (const Code& code : codes_) {
      if (!wanted(code)) continue;
      std::string& line = lines[code.kinds.back().number];
      for (const Code::Kind& k : code.kinds)
        line += fmt::format("{}case {}:", line.empty() ? "" : "\n  ", k.number);
      line += fmt::format(" {}{}{}(ctx, args, tile); break;",
                          code.kinds.size() > 1 && !sender ? "ctx.kind = kind, " : "", code.name,
                          suffix);
    }
    for (const std::string& line : lines)
      if (!line.empty()) cases += fmt::format("  {}\n", line);
    cases += "  default: break;\n}";
    std::vector<std::string> parameters = task_parameters(sender);
    parameters.insert(parameters.begin(), "int kind");
    e_.function("static MACO_FN void " + name, parameters,
                {"(void)ctx, (void)args, (void)tile;", cases});
  }
  template <class F>
  void predicate(const std::string& name, F holds) {
    std::vector<std::string> cases;
    for (const Code& code : codes_)
      if (holds(code))
        for (const Code::Kind& k : code.kinds) cases.push_back(fmt::format("kind == {}", k.number));
    if (cases.empty()) cases = {"false"};
    e_.function("static MACO_FN bool " + name, {"int kind"},
                {"(void)kind;", filled(e_.indent() + 2, "return ", cases, ";", " ||")});
  }

  const ir::Graph& graph_;
  const ir::GraphText text_;  // of graph_, as the manifest has it
  const ir::Program& p_;
  const Options& options_;
  ir::Diagnostics& diagnostics_;
  EventNumbers events_;
  MapNumbers maps_;
  Tables tables_;
  Emitter e_;
  std::vector<Code> codes_;
  size_t kinds_ = 0;
  std::vector<size_t> kind_of_call_;
};

}  // namespace

bool check_calls(const ir::Program& program, ir::Diagnostics& diagnostics) {
  const int before = diagnostics.errors();
  for (const ir::Call& c : program.calls) {
    for (const std::string& wrong : functions::check(program, c))
      diagnostics.error(c.loc, fmt::format("'{}' {}", c.op, wrong));
    const auto check_source = [&](const std::string& what, const functions::Source& source) {
      if (const std::string header = unknown_header(source); !header.empty())
        diagnostics.error(c.loc, fmt::format("{} needs '{}', which is no header of runtime/device",
                                             what, header));
    };
    if (const functions::Function* f = functions::find_function(c))
      check_source(fmt::format("device function '{}'", f->name), f->source);
    if (const functions::Method* m = functions::method_of(c))
      check_source(fmt::format("method '{}' of '{}'", m->name, m->function), m->source);
  }
  return diagnostics.errors() == before;
}

std::string emit(const ir::Graph& graph, const ir::Program& program, const Options& options,
                 ir::Diagnostics& diagnostics) {
  MACO_CHECK(program.stage == ir::Stage::Synced, "codegen takes a synced Program");
  return Generator(graph, program, options, diagnostics).run();
}

}  // namespace maco::codegen
