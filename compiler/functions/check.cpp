// Checks calls against their functions.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "compiler/functions/function.h"

namespace maco::functions {

namespace {

std::string_view wanted(ParamType type) {
  switch (type) {
    case ParamType::Bool: return "true or false";
    case ParamType::Int: return "an integer";
    case ParamType::Number: return "a floating-point number";
    case ParamType::DType: return "a dtype";
    case ParamType::Value: return "a constant or a run-time value";
    case ParamType::Word: return "a word";
    case ParamType::Table: return "a table";
    case ParamType::Body: return "a body";
    case ParamType::Unit: return "the name of a unit";
    case ParamType::Method: return "the name of a method";
  }
  return "";
}
std::string wanted(const Function& f, const ParamSpec& spec) {
  std::vector<std::string> words = spec.words;
  if (spec.type == ParamType::Method)
    for (const Method* m : methods_of(f.name)) words.push_back(m->name);
  return words.empty() ? std::string(wanted(spec.type))
                       : fmt::format("one of {}", fmt::join(words, ", "));
}

// The parameter's type. The list has the order of the variant.
ParamType type_of(const ir::Param& p) {
  constexpr ParamType types[] = {ParamType::Bool,  ParamType::Int,   ParamType::Number,
                                 ParamType::DType, ParamType::Value, ParamType::Word,
                                 ParamType::Table, ParamType::Body};
  static_assert(std::size(types) == std::variant_size_v<decltype(p.value)>);
  return types[p.value.index()];
}

bool holds(const Function& f, const ParamSpec& spec, const ir::Param& p) {
  const auto* word = std::get_if<ir::Word>(&p.value);
  if (word && spec.type == ParamType::Unit) return true;
  if (word && spec.type == ParamType::Method) return find_method(f.name, word->text) != nullptr;
  return type_of(p) == spec.type &&
         (!word || std::find(spec.words.begin(), spec.words.end(), word->text) != spec.words.end());
}

// Whether the parameter refers to a value that the Program doesn't have.
bool dangles(const ir::Program& program, const ir::Param& p) {
  const auto* value = std::get_if<ir::ValueRef>(&p.value);
  const auto* i = value ? std::get_if<uint32_t>(&value->v) : nullptr;
  return i && *i >= program.values.size();
}

std::string found(const ir::Param& p) {
  if (const auto* word = std::get_if<ir::Word>(&p.value)) return fmt::format("'{}'", word->text);
  return std::string(wanted(type_of(p)));
}

template <class Entities>
std::vector<std::string> names_of(const Entities& entities) {
  std::vector<std::string> names;
  for (const auto& e : entities) names.push_back(e.name);
  return names;
}

void check_params(const ir::Program& program, const ir::Call& call, const Function& f,
                  std::vector<std::string>& wrong) {
  std::set<std::string_view> given;
  for (const ir::Param& p : call.params) {
    const ParamSpec* spec = f.find_param(p.name);
    if (!given.insert(p.name).second)
      wrong.push_back(fmt::format("gives parameter '{}' of '{}' twice", p.name, f.name));
    else if (!spec)
      wrong.push_back(fmt::format("gives '{}' a parameter '{}', which it doesn't have{}", f.name,
                                  p.name, ir::did_you_mean(p.name, names_of(f.params))));
    else if (!holds(f, *spec, p))
      wrong.push_back(fmt::format("gives {} as parameter '{}' of '{}', which is {}", found(p),
                                  p.name, f.name, wanted(f, *spec)));
    else if (dangles(program, p))
      wrong.push_back(fmt::format(
          "gives a run-time value that there isn't as parameter '{}' of '{}'", p.name, f.name));
    else if (const auto* body = std::get_if<ir::BodyParam>(&p.value))
      if (const std::string why = ir::check_body(*body); !why.empty())
        wrong.push_back(
            fmt::format("gives a wrong body as parameter '{}' of '{}': {}", p.name, f.name, why));
  }
  for (const ParamSpec& spec : f.params)
    if (!given.count(spec.name) && !spec.repeated)
      wrong.push_back(
          fmt::format("leaves out parameter '{}' of '{}', {}", spec.name, f.name, wanted(f, spec)));
}

void check_stages(const ir::Call& call, std::vector<std::string>& wrong) {
  const Method* method = method_of(call);
  if (!method) return;
  for (const std::string& stage : call.stages)
    if (!takes_stage(*method, stage))
      wrong.push_back(fmt::format("calls '{}' with '{}', which method '{}' doesn't take",
                                  call.function, stage, method->name));
}

void check_operands(const ir::Call& call, const Function& f, std::vector<std::string>& wrong) {
  size_t least = 0;
  bool many = false, optional = false;
  for (const OperandSpec& o : f.operands) {
    least += o.count == Count::One ? 1 : 0;
    many = many || o.count == Count::Many;
    optional = optional || o.count == Count::Optional;
  }
  const size_t n = call.operands.size();
  if (n < least || (!many && n > least + (optional ? 1 : 0))) {
    wrong.push_back(fmt::format(
        "gives '{}' {} operands, which takes {}{}{}", f.name, n,
        many       ? "at least "
        : optional ? fmt::format("{} or ", least)
                   : "",
        least + (optional ? 1 : 0),
        f.operands.empty() ? "" : fmt::format(": {}", fmt::join(names_of(f.operands), ", "))));
    return;
  }
  for (const ir::Param& p : call.params) {
    const auto* body = std::get_if<ir::BodyParam>(&p.value);
    if (!body) continue;
    const size_t from_memory = body->operands.size() - body->accumulators();
    if (from_memory != n - least)
      wrong.push_back(
          fmt::format("gives '{}' {} operands for a body of {}", f.name, n - least, from_memory));
  }
}

// Each operand that the function's loader brings must have one load; no other operand may have any.
void check_loads(const ir::Call& call, const Function& f, std::vector<std::string>& wrong) {
  std::set<uint32_t> given;
  for (const ir::Load& l : call.loads) {
    const OperandSpec* operand = f.operand(l.operand, call.operands.size());
    if (!operand || operand->loaded == Loaded::Never)
      wrong.push_back(fmt::format("loads operand {} of '{}', which its loader doesn't bring",
                                  l.operand, f.name));
    else if (!given.insert(l.operand).second)
      wrong.push_back(fmt::format("loads operand '{}' of '{}' twice", operand->name, f.name));
  }
  for (size_t i = 0; i < call.operands.size(); ++i) {
    const OperandSpec* operand = f.operand(i, call.operands.size());
    if (operand && operand->loaded == Loaded::Always && !given.count(static_cast<uint32_t>(i)))
      wrong.push_back(
          fmt::format("doesn't say how operand '{}' of '{}' is loaded", operand->name, f.name));
  }
}

std::string boxes(const std::optional<ir::Load::Box>& box) {
  if (!box) return "in no boxes";
  return fmt::format("in boxes of {} x {} with {} columns{}", box->rows, box->cols, box->pitch,
                     box->run == 0 ? "" : fmt::format(" in runs of {}", box->run));
}
// The loads must be those that the function wants of this call. Its parameters and operands are
// right.
void check_load_rules(const ir::Program& program, const ir::Call& call, const Function& f,
                      std::vector<std::string>& wrong) {
  for (size_t i = 0; i < call.operands.size(); ++i) {
    const OperandSpec& operand = *f.operand(i, call.operands.size());
    if (operand.loaded == Loaded::Never) continue;
    const auto load = std::find_if(call.loads.begin(), call.loads.end(),
                                   [&](const ir::Load& l) { return l.operand == i; });
    const bool given = load != call.loads.end();
    const auto rule = f.loads ? f.loads(CallView(program, call), i) : LoadRule{};
    if (rule && !given)
      wrong.push_back(
          fmt::format("doesn't say how operand '{}' of '{}' is loaded", operand.name, f.name));
    else if (!rule && given)
      wrong.push_back(
          fmt::format("loads operand {} of '{}', which its loader doesn't bring here", i, f.name));
    if (!rule || !given) continue;
    if (f.loads && load->pages != rule->pages)
      wrong.push_back(fmt::format("holds {} pages of operand '{}' of '{}', which takes {}",
                                  load->pages, operand.name, f.name, rule->pages));
    if (rule->whole_pages && load->page_bytes != program.uses.page_bytes)
      wrong.push_back(
          fmt::format("fills {} bytes of a page with operand '{}' of '{}', which may "
                      "take all {}",
                      load->page_bytes, operand.name, f.name, program.uses.page_bytes));
    if (load->box != rule->box)
      wrong.push_back(fmt::format("loads operand '{}' of '{}' {}, which comes {}", operand.name,
                                  f.name, boxes(load->box), boxes(rule->box)));
    const ir::Buffer& b = program[call.operands[i]];
    if (load->box && b.kind == ir::BufferKind::Slot)
      wrong.push_back(fmt::format("loads operand '{}' of '{}' in boxes, but '{}' is a slot",
                                  operand.name, f.name, b.name));
  }
}

// The dtype of operand `i`, where the function or its body says one. Parameters and their number
// are right.
std::optional<ir::DType> dtype_of(const CallView& c, const Function& f, size_t i) {
  const std::vector<ir::BufferId>& operands = c.call().operands;
  const OperandSpec& spec = *f.operand(i, operands.size());
  if (f.find_param(spec.dtype)) return c.dtype(spec.dtype);
  if (!spec.dtype.empty() || spec.count != Count::Many) return ir::dtype_from_name(spec.dtype);
  for (const ir::Param& p : c.call().params)
    if (const auto* body = std::get_if<ir::BodyParam>(&p.value))
      return body->operands[i - f.first_of_many() + body->accumulators()].dtype;
  return std::nullopt;
}
void check_dtypes(const ir::Program& program, const ir::Call& call, const Function& f,
                  std::vector<std::string>& wrong) {
  for (size_t i = 0; i < call.operands.size(); ++i) {
    const ir::Buffer& b = program[call.operands[i]];
    const auto dtype = dtype_of(CallView(program, call), f, i);
    if (dtype && *dtype != b.dtype)
      wrong.push_back(fmt::format("takes operand '{}' of '{}' for {}, but '{}' is {}",
                                  f.operand(i, call.operands.size())->name, f.name,
                                  ir::name(*dtype), b.name, ir::name(b.dtype)));
  }
}

void check_wires(const ir::Program& program, const ir::Call& call, const Function& f,
                 std::vector<std::string>& wrong) {
  for (size_t i = 0; i < call.operands.size(); ++i) {
    const ir::Buffer& b = program[call.operands[i]];
    if (b.wire != f.operand(i, call.operands.size())->wire)
      wrong.push_back(fmt::format("takes '{}', which {} a wire", b.name, b.wire ? "is" : "isn't"));
  }
}

void check_packets(const ir::Program& program, const ir::Call& call, const Function& f,
                   std::vector<std::string>& wrong) {
  for (size_t i = 0; i < call.operands.size(); ++i) {
    const ir::Buffer& b = program[call.operands[i]];
    const OperandSpec& operand = *f.operand(i, call.operands.size());
    if (b.own_packets() &&
        !(operand.packets && f.takes_packets && f.takes_packets(CallView(program, call), i)))
      wrong.push_back(fmt::format("takes operand '{}' of '{}' without flags, but '{}' has packets",
                                  operand.name, f.name, b.name));
  }
}

}  // namespace

std::vector<std::string> check(const ir::Program& program, const ir::Call& call) {
  std::vector<std::string> wrong;
  const Function* f = find_function(call);
  if (!f) return {refuse_stages(call)};
  check_params(program, call, *f, wrong);
  check_stages(call, wrong);
  check_operands(call, *f, wrong);
  check_loads(call, *f, wrong);
  if (wrong.empty()) check_load_rules(program, call, *f, wrong);
  if (wrong.empty()) check_dtypes(program, call, *f, wrong);
  if (wrong.empty()) check_wires(program, call, *f, wrong);
  if (wrong.empty()) check_packets(program, call, *f, wrong);
  if (wrong.empty() && f->scratch_bytes)
    if (const int64_t need = f->scratch_bytes(CallView(program, call));
        need > program.uses.scratch_bytes)
      wrong.push_back(fmt::format("needs {} bytes of scratch memory for '{}', but there are {}",
                                  need, f->name, program.uses.scratch_bytes));
  return wrong;
}

bool check_touches(const ir::Program& program, ir::Diagnostics& diagnostics) {
  std::set<std::string_view> checked;
  for (const ir::Call& call : program.calls) {
    const Function* f = find_function(call);
    if (f && f->check_calls && checked.insert(f->name).second &&
        !f->check_calls(program, diagnostics))
      return false;
  }
  const auto wrong = [&](const ir::Call& call, const std::string& what) {
    diagnostics.error(call.loc, what);
    return false;
  };
  std::vector<std::optional<Touches>> of(program.calls.size());
  for (size_t t = 0; t < program.tasks.size(); ++t) {
    const ir::Task& task = program.tasks[t];
    const ir::Call& call = program[task.call];
    auto& touches = of[index(task.call)];
    if (!touches) {
      const Function* f = find_function(call);
      touches = f && f->touches ? f->touches(program, call) : Touches{};
      if (!touches->wrong.empty())
        return wrong(
            call, fmt::format("{} of '{}' {}", ir::function_text(call), call.op, touches->wrong));
    }
    if (touches->moves && !touches->moves(task))
      return wrong(call, fmt::format("{} of '{}' moves other data than it declares",
                                     ir::function_text(call), call.op));
    if (touches->touches && !touches->touches(task))
      return wrong(call, fmt::format("{} touches other regions than it declares",
                                     ir::describe(program, ir::id_of<ir::TaskId>(t))));
  }
  return true;
}

bool check_mates(const ir::Program& program, ir::Diagnostics& diagnostics) {
  if (program.stage < ir::Stage::Scheduled) return true;
  for (size_t t = 0; t < program.tasks.size(); ++t) {
    const ir::Task& task = program.tasks[t];
    const ir::Call& call = program[task.call];
    const Function* function = find_function(call);
    if (!function || function->mates == task.mated) continue;
    diagnostics.error(call.loc,
                      fmt::format("{} {}", ir::describe(program, ir::id_of<ir::TaskId>(t)),
                                  task.mated ? "has a mate, but its code knows none"
                                             : "has no mate, but its code needs one"));
    return false;
  }
  return true;
}

}  // namespace maco::functions
