#include "compiler/codegen/params.h"

#include <fmt/format.h>

#include <cmath>

#include "compiler/codegen/body.h"
#include "compiler/codegen/emitter.h"

namespace maco::codegen {

namespace {

std::string number_text(double v) {
  if (std::isnan(v)) return "__builtin_nan(\"\")";
  if (std::isinf(v)) return v > 0 ? "__builtin_huge_val()" : "-__builtin_huge_val()";
  std::string s = fmt::format("{}", v);
  return s.find_first_of(".e") == std::string::npos ? s + ".0" : s;
}

// A function of the index: arrays can't be members of a config that device code reads.
std::string table_text(const std::string& name, const ir::Table& table) {
  std::vector<std::string> words;
  for (uint64_t word : table.words) words.push_back(fmt::format("{:#x}ull", word));
  std::string text = fmt::format("static MACO_FN u64 {}(int index) {{\n  {}\n", name, kFormatOff);
  text += filled(2, fmt::format("  static const u64 table[{}] = {{", words.size()), words, "};");
  return text + fmt::format("\n  {}\n  return table[index];\n}}\n", kFormatOn);
}

}  // namespace

std::string_view device_type(ir::DType dtype) {
  return dtype == ir::DType::F32 ? "float" : ir::name(dtype);
}

std::string members(const functions::Function& function, const ir::Param& param,
                    const std::function<bool(size_t)>& packets) {
  struct Visitor {
    const functions::Function& function;
    const std::string& name;
    const std::function<bool(size_t)>& packets;
    std::string operator()(bool v) const {
      return fmt::format("static constexpr bool {} = {};\n", name, v);
    }
    std::string operator()(int64_t v) const {
      return fmt::format("static constexpr i64 {} = {};\n", name, v);
    }
    std::string operator()(double v) const {
      return fmt::format("static constexpr double {} = {};\n", name, number_text(v));
    }
    std::string operator()(ir::DType v) const {
      return fmt::format("using {} = {};\n", name, device_type(v));
    }
    std::string operator()(const ir::ValueRef& v) const {
      if (const auto* i = std::get_if<uint32_t>(&v.v))
        return fmt::format("using {} = Value<{}>;\n", name, *i);
      return fmt::format("using {} = Const<{}>;\n", name, std::get<int64_t>(v.v));
    }
    std::string operator()(const ir::Word& v) const {
      const functions::ParamType type = function.find_param(name)->type;
      if (type == functions::ParamType::Unit)
        return fmt::format("using {} = cuda_units::{}::maco_unit;\n", name, v.text);
      if (type == functions::ParamType::Method)
        return fmt::format("using {} = {};\n", name,
                           functions::find_method(function.name, v.text)->code);
      return fmt::format("static constexpr auto {} = {}::{};\n", name,
                         function.find_param(name)->word_type, v.text);
    }
    std::string operator()(const ir::Table& v) const { return table_text(name, v); }
    std::string operator()(const ir::BodyParam& v) const {
      return v.has_accumulator() ? finish_members(v, function.first_of_many(), packets)
                                 : element_members(v);
    }
  };
  return std::visit(Visitor{function, param.name, packets}, param.value);
}

}  // namespace maco::codegen
