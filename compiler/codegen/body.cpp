#include "compiler/codegen/body.h"

#include <fmt/format.h>

#include <limits>

#include "compiler/codegen/params.h"
#include "ir/check.h"

namespace maco::codegen {

using ir::BodyArg;
using ir::DType;
using ir::Spread;

namespace {

std::string literal(double v, bool is_float) {
  if (!is_float) {
    // The most negative integer has no literal of its own.
    const auto n = static_cast<int64_t>(v);
    return n == std::numeric_limits<int32_t>::min() ? "(-2147483647 - 1)" : std::to_string(n);
  }
  std::string s = fmt::format("{:.9g}", static_cast<double>(static_cast<float>(v)));
  if (s.find_first_of(".e") == std::string::npos) s += ".0";
  return s + "f";
}

std::string_view acc(bool is_float) { return is_float ? "float" : "i32"; }

std::string expression(const ir::BodyStep& s, bool in_float) {
  std::vector<std::string> args;
  for (const BodyArg& a : s.args) {
    switch (a.kind) {
      case BodyArg::Kind::Operand: args.push_back(fmt::format("v{}", a.index)); break;
      case BodyArg::Kind::Step: args.push_back(fmt::format("t{}", a.index)); break;
      case BodyArg::Kind::Constant: args.push_back(literal(a.constant, in_float)); break;
    }
  }
  if (s.function == "cast" || s.function == "copy") return args[0];
  if (s.function == "swiglu") return fmt::format("fn::mul(fn::silu({}), {})", args[0], args[1]);
  return args.size() == 2 ? fmt::format("fn::{}({}, {})", s.function, args[0], args[1])
                          : fmt::format("fn::{}({})", s.function, args[0]);
}

// "ops::Full<bf16>": how the device finds an operand's element.
std::string operand_type(const ir::BodyOperand& operand) {
  const char* form = operand.spread == Spread::Full     ? "Full"
                     : operand.spread == Spread::Column ? "Column"
                                                        : "Single";
  return fmt::format("ops::{}<{}>", form, device_type(operand.dtype));
}

}  // namespace

std::string apply_member(const ir::BodyParam& body) {
  const std::vector<DType> operands = body.dtypes();
  const std::vector<ir::BodyStep>& steps = body.body.steps;
  std::string params, code;
  for (size_t i = 0; i < operands.size(); ++i)
    params += fmt::format("{}{} v{}", i ? ", " : "", acc(ir::is_float(operands[i])), i);
  bool result_float = true;
  for (size_t i = 0; i < steps.size(); ++i) {
    const ir::BodyStep& s = steps[i];
    const bool in_float = ir::computes_in_float(body.body, s, operands);
    const std::string e = expression(s, in_float);
    if (i + 1 == steps.size()) {
      code += fmt::format("return {};", e);
      result_float = in_float;
      continue;
    }
    const bool keeps =
        s.dtype == (in_float ? DType::F32 : DType::I32) || ir::keeps_bits(body.body, s, operands);
    code += fmt::format("{} t{} = {}; ", acc(ir::is_float(s.dtype)), i,
                        keeps ? e : fmt::format("round_to<{}>({})", device_type(s.dtype), e));
  }
  return fmt::format("static MACO_FN {} apply({}) {{ {} }}\n", acc(result_float), params, code);
}

std::string element_members(const ir::BodyParam& body) {
  std::string types;
  for (const ir::BodyOperand& o : body.operands)
    types += (types.empty() ? "" : ", ") + operand_type(o);
  return fmt::format("using operands = ops::Operands<{}>;\nstatic constexpr bool moves = {};\n",
                     types, ir::moves(body.body, body.dtypes())) +
         apply_member(body);
}

std::string finish_members(const ir::BodyParam& body, size_t first,
                           const std::function<bool(size_t)>& packets) {
  MACO_CHECK(body.has_accumulator(), "a body without an accumulator finishes nothing");
  const size_t sums = body.accumulators();
  std::string params, given, fields, loads, values, run_fields, run_loads, run_values;
  for (size_t i = 0; i < sums; ++i) {
    const std::string sum = i == 0 ? "sum" : fmt::format("sum{}", i + 1);
    params += fmt::format(", {} {}", device_type(body.operands[i].dtype), sum);
    given += ", " + sum;
    values += (i ? ", " : "") + sum;
  }
  for (size_t i = sums; i < body.operands.size(); ++i) {
    const ir::BodyOperand& o = body.operands[i];
    const std::string_view type = device_type(o.dtype), comma = i > sums ? ", " : "";
    const size_t number = first + i - sums;
    const std::string operand = packets(number)
                                    ? fmt::format("received<{}>(args, {})", type, number)
                                    : fmt::format("args.ptr<const {}>({})", type, number);
    const auto at = [&](const char* full) {
      return operand + (o.spread == Spread::Full     ? full
                        : o.spread == Spread::Column ? " + col"
                                                     : "");
    };
    fields += fmt::format(" {} v{};", acc(ir::is_float(o.dtype)), i);
    loads += fmt::format("{}to_acc(gload({}))", comma, at(" + row * N + col"));
    values += fmt::format(", more.v{}", i);
    if (o.spread == Spread::Single) {
      run_fields += fmt::format("  {} v{};\n", type, i);
      run_loads += fmt::format("    v{} = gload({});\n", i, operand);
      run_values += fmt::format("{}to_acc(v{})", comma, i);
    } else {
      run_fields += fmt::format("  Elements<{}, V> v{};\n", type, i);
      run_loads += fmt::format("    v{}.load({});\n", i, at(" + element"));
      run_values += fmt::format("{}to_acc(v{}.get(i))", comma, i);
    }
  }
  return apply_member(body) + fmt::format("struct More {{{} }};\n", fields) +
         "static MACO_FN More fetch(const Args& args, i64 row, i64 col) {\n" +
         "  (void)args, (void)row, (void)col;\n" + fmt::format("  return {{{}}};\n}}\n", loads) +
         "template <int V>\nstruct MoreRun {\n" + run_fields +
         "  MACO_FN void load(const Args& args, i64 element, i64 col) {\n" +
         "    (void)args, (void)element, (void)col;\n" + run_loads +
         "  }\n  MACO_FN More at(int i) const {\n    (void)i;\n" +
         fmt::format("    return {{{}}};\n  }}\n}};\n", run_values) +
         fmt::format("static MACO_FN auto finish(const More& more{}) {{\n", params) +
         fmt::format("  (void)more;\n  return apply({});\n}}\n", values) +
         fmt::format("static MACO_FN auto finish(const Args& args, i64 row, i64 col{}) {{\n",
                     params) +
         fmt::format("  return finish(fetch(args, row, col){});\n}}\n", given);
}

}  // namespace maco::codegen
