#include "compiler/functions/function.h"

#include <algorithm>

#include "ir/check.h"

namespace maco::functions {

namespace {

template <class T>
const T& get(const ir::Call& call, std::string_view name) {
  for (const ir::Param& p : call.params)
    if (p.name == name)
      if (const T* v = std::get_if<T>(&p.value)) return *v;
  ir::internal_error(__FILE__, __LINE__,
                     call.function + " has no parameter " + std::string(name) + " of that type");
}

}  // namespace

bool CallView::flag(std::string_view name) const { return get<bool>(call_, name); }
int64_t CallView::integer(std::string_view name) const { return get<int64_t>(call_, name); }
double CallView::number(std::string_view name) const { return get<double>(call_, name); }
ir::DType CallView::dtype(std::string_view name) const { return get<ir::DType>(call_, name); }
const std::string& CallView::word(std::string_view name) const {
  return get<ir::Word>(call_, name).text;
}
bool CallView::has(std::string_view stage) const { return has_stage(call_, stage); }
ir::Interval CallView::range(std::string_view name) const {
  const auto& v = get<ir::ValueRef>(call_, name).v;
  if (const int64_t* n = std::get_if<int64_t>(&v)) return {*n, *n};
  return program_.values[std::get<uint32_t>(v)].range;
}

int64_t CallView::typical(std::string_view name) const {
  const auto& v = get<ir::ValueRef>(call_, name).v;
  if (const int64_t* n = std::get_if<int64_t>(&v)) return *n;
  const ir::Value& value = program_.values[std::get<uint32_t>(v)];
  return ir::typical_value(
      value.expr, [this](std::string_view n) { return program_.typical_of(n); }, value.range);
}

const ParamSpec* Function::find_param(std::string_view param) const {
  const auto it = std::find_if(params.begin(), params.end(), [&](const ParamSpec& p) {
    if (!p.repeated) return p.name == param;
    const size_t n = p.name.size();
    return param.substr(0, n) == p.name && param.size() > n &&
           param.find_first_not_of("0123456789", n) == std::string_view::npos;
  });
  return it == params.end() ? nullptr : &*it;
}

const OperandSpec* Function::operand(size_t i, size_t count) const {
  for (const OperandSpec& o : operands) {
    const size_t others = operands.size() - 1;
    const size_t n = o.count == Count::One ? 1 : count < others ? 0 : count - others;
    if (i < n) return o.count == Count::Optional && n > 1 ? nullptr : &o;
    i -= n;
  }
  return nullptr;
}

size_t Function::index_of(std::string_view operand) const {
  const auto at = std::find_if(operands.begin(), operands.end(),
                               [&](const OperandSpec& o) { return o.name == operand; });
  MACO_CHECK(at != operands.end(), std::string(operand));
  return static_cast<size_t>(at - operands.begin());
}

size_t Function::first_of_many() const {
  size_t i = 0;
  while (i < operands.size() && operands[i].count != Count::Many) ++i;
  return i;
}

bool divides_registers(const ir::Program& program) {
  bool many = false;
  for (const ir::Call& call : program.calls) {
    const Function* f = find_function(call);
    if (!f || f->calls_functions || !f->source.text.empty() || !f->source.more.empty())
      return false;
    if (const Method* m = method_of(call); m && !m->source.text.empty()) return false;
    many = many || (f->many_registers && f->many_registers(CallView(program, call)));
  }
  return many;
}

bool has_stage(const ir::Call& call, std::string_view stage) {
  return std::find(call.stages.begin(), call.stages.end(), stage) != call.stages.end();
}

bool sends(const ir::Program& program, const ir::Call& call) {
  const Function* function = find_function(call);
  return function && function->sends && function->sends(CallView(program, call));
}

double microseconds(const ir::Program& program, const ir::Task& task,
                    const cost::Machine& machine) {
  const ir::Call& call = program[task.call];
  const Function* function = find_function(call);
  return cost::microseconds(function && function->work
                                ? function->work(CallView(program, call), task, machine)
                                : cost::streaming(program, task, machine),
                            machine);
}

}  // namespace maco::functions
