#include "compiler/codegen/body.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/codegen/emitter.h"
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

// Members of a config lie two columns to the right.
constexpr size_t kMemberIndent = 2;

std::string indented(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    out.append("  ").append(text.substr(at, end - at)) += '\n';
    at = end + 1;
  }
  return out;
}

// Functions whose result, of their first argument, is multiplied by the second.
constexpr std::pair<std::string_view, std::string_view> kGated[] = {
    {"swiglu", "silu"}, {"geglu", "gelu"}, {"geglu_tanh", "gelu_tanh"}};
// Powers that are products and quotients.
constexpr double kPowers[] = {-1, 2, 3, 4};

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
  // Integers are cut off: 20 must not become 19.999998.
  const bool near = ir::is_float(s.dtype) && ir::size_of(s.dtype) <= 2;
  const auto function = [&](std::string_view name) {
    const bool shorter = near && (name == "silu" || name == "gelu" || name == "gelu_tanh");
    return fmt::format("fn::{}{}", shorter ? "near_" : "", name);
  };
  for (const auto& [gated, gate] : kGated)
    if (s.function == gated)
      return fmt::format("fn::mul({}({}), {})", function(gate), args[0], args[1]);
  if (s.function == "pow" && s.args[1].kind == BodyArg::Kind::Constant)
    for (const double power : kPowers)
      if (s.args[1].constant == power) return fmt::format("fn::power<{}>({})", power, args[0]);
  return fmt::format("{}({})", function(s.function), fmt::join(args, ", "));
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
  std::vector<std::string> params, statements;
  for (size_t i = 0; i < operands.size(); ++i)
    params.push_back(fmt::format("{} v{}", acc(ir::is_float(operands[i])), i));
  bool result_float = true;
  for (size_t i = 0; i < steps.size(); ++i) {
    const ir::BodyStep& s = steps[i];
    const bool in_float = ir::computes_in_float(body.body, s, operands);
    const bool gives_float = ir::gives_float(body.body, s, operands);
    const std::string e = expression(s, in_float);
    if (i + 1 == steps.size()) {
      statements.push_back(fmt::format("return {};", e));
      result_float = gives_float;
      continue;
    }
    const bool keeps = s.dtype == (gives_float ? DType::F32 : DType::I32) ||
                       ir::find_body_function(s.function)->truth ||
                       ir::keeps_bits(body.body, s, operands);
    statements.push_back(
        fmt::format("{} t{} = {};", acc(ir::is_float(s.dtype)), i,
                    keeps ? e : fmt::format("round_to<{}>({})", device_type(s.dtype), e)));
  }
  return function_text(kMemberIndent, fmt::format("static MACO_FN {} apply", acc(result_float)),
                       params, statements);
}

std::string element_members(const ir::BodyParam& body) {
  std::vector<std::string> types;
  for (const ir::BodyOperand& o : body.operands) types.push_back(operand_type(o));
  return filled(kMemberIndent, "using operands = ops::Operands<", types, ">;") +
         fmt::format("\nstatic constexpr bool moves = {};\n", ir::moves(body.body, body.dtypes())) +
         apply_member(body);
}

std::string finish_members(const ir::BodyParam& body, size_t first,
                           const std::function<bool(size_t)>& packets) {
  MACO_CHECK(body.has_accumulator(), "a body without an accumulator finishes nothing");
  using List = std::vector<std::string>;
  const std::string row = "i64 row", col = "i64 col", args = "const Args& args";
  List sums, given = {"fetch(args, row, col)"}, values;
  for (size_t i = 0; i < body.accumulators(); ++i) {
    values.push_back(i == 0 ? "sum" : fmt::format("sum{}", i + 1));
    sums.push_back(fmt::format("{} {}", device_type(body.operands[i].dtype), values.back()));
    given.push_back(values.back());
  }
  List fields, asked, asks = {"(void)args, (void)row, (void)col;"}, taken, run_fields,
                      run_loads = {"(void)args, (void)element, (void)col;"}, run_values;
  for (size_t i = body.accumulators(); i < body.operands.size(); ++i) {
    const ir::BodyOperand& o = body.operands[i];
    const std::string_view type = device_type(o.dtype);
    const size_t number = first + i - body.accumulators();
    const std::string operand = packets(number)
                                    ? fmt::format("received<{}>(args, {})", type, number)
                                    : fmt::format("args.ptr<const {}>({})", type, number);
    const auto at = [&](const char* full) {
      return operand + (o.spread == Spread::Full     ? full
                        : o.spread == Spread::Column ? " + col"
                                                     : "");
    };
    fields.push_back(fmt::format("{} v{};", acc(ir::is_float(o.dtype)), i));
    asked.push_back(packets(number) ? fmt::format("Asked<1, Received<{}>> v{};", type, i)
                                    : fmt::format("Asked<1, const {}*> v{};", type, i));
    asks.push_back(fmt::format("v{}.ask({});", i, at(" + row * N + col")));
    taken.push_back(fmt::format("to_acc(v{}.take(args.ctx, {}).v[0])", i, number));
    values.push_back(fmt::format("more.v{}", i));
    if (o.spread == Spread::Single) {
      run_fields.push_back(fmt::format("{} v{};", type, i));
      run_loads.push_back(fmt::format("v{} = gload({});", i, operand));
      run_values.push_back(fmt::format("to_acc(v{})", i));
    } else {
      run_fields.push_back(fmt::format("Elements<{}, V> v{};", type, i));
      run_loads.push_back(fmt::format("v{}.load({});", i, at(" + element")));
      run_values.push_back(fmt::format("to_acc(v{}.get(i))", i));
    }
  }
  // What the epilogue reads of an element, asked for and taken when it is needed, and of V elements
  // in a row.
  std::string text = apply_member(body);
  text += fields.empty() ? "struct More {};\n"
                         : fmt::format("struct More {{\n  {}\n}};\n", fmt::join(fields, "\n  "));
  std::string of_asks;
  for (const std::string& field : asked) of_asks += field + '\n';
  of_asks += function_text(kMemberIndent + 2, "MACO_FN void ask", {args, row, col}, asks);
  of_asks += function_text(kMemberIndent + 2, "MACO_FN More more", {args},
                           {"(void)args;", filled(kMemberIndent + 4, "return {", taken, "};")});
  text += "struct Asks {\n" + indented(of_asks) + "};\n";
  text += function_text(kMemberIndent, "static MACO_FN More fetch", {args, row, col},
                        {"Asks asks;", "asks.ask(args, row, col);", "return asks.more(args);"});
  std::string run;
  for (const std::string& field : run_fields) run += field + '\n';
  run +=
      function_text(kMemberIndent + 2, "MACO_FN void load", {args, "i64 element", col}, run_loads);
  run += function_text(kMemberIndent + 2, "MACO_FN More at", {"int i"},
                       {"(void)i;", filled(kMemberIndent + 4, "return {", run_values, "};")},
                       "const ");
  text += "template <int V>\nstruct MoreRun {\n" + indented(run) + "};\n";
  List of_more = sums, of_place = sums;
  of_more.insert(of_more.begin(), "const More& more");
  of_place.insert(of_place.begin(), {args, row, col});
  text += function_text(kMemberIndent, "static MACO_FN auto finish", of_more,
                        {"(void)more;", filled(kMemberIndent + 2, "return apply(", values, ");")});
  return text + function_text(kMemberIndent, "static MACO_FN auto finish", of_place,
                              {filled(kMemberIndent + 2, "return finish(", given, ");")});
}

}  // namespace maco::codegen
