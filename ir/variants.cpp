#include "ir/variants.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/manifest.h"

namespace maco::ir {

namespace {

// Begins the line before each variant; the variant's condition, if any, follows it.
constexpr std::string_view kMark = "//@maco-variant";
constexpr std::string_view kEnd = "#endif  // of a variant";
// The hash of all conditions.
constexpr std::string_view kHash = "//@maco-variants ";

std::string_view take_line(std::string_view& text) {
  const size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end);
  return line;
}
std::string_view without_end(std::string_view line) {
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.remove_suffix(1);
  return line;
}
std::string hash_of(const std::vector<KernelVariant>& variants) {
  std::string text;
  for (const KernelVariant& v : variants) text += (v.condition ? v.condition->str() : "") + "\n";
  return text_hash(text);
}

}  // namespace

std::string join_variants(const std::vector<KernelVariant>& variants) {
  if (variants.size() == 1) return variants[0].kernel;
  std::string s = fmt::format(
      "{}{}\n// Each launch runs the first of these kernels whose condition holds. A compiler of "
      "this file takes one:\n#ifndef MACO_VARIANT\n#define MACO_VARIANT 1\n#endif\n"
      "#if MACO_VARIANT < 1 || MACO_VARIANT > {}\n#error there is no such variant\n#endif\n",
      kHash, hash_of(variants), variants.size());
  for (size_t i = 0; i < variants.size(); ++i) {
    const auto& condition = variants[i].condition;
    s += fmt::format("{}{}\n#if MACO_VARIANT == {}\n", kMark,
                     condition ? fmt::format(" if {}", condition->str()) : " else", i + 1);
    s += variants[i].kernel;
    if (s.back() != '\n') s += '\n';
    s += fmt::format("{}\n", kEnd);
  }
  return s;
}

VariantsResult split_variants(std::string_view source) {
  VariantsResult result;
  const auto fail = [&](std::string why) {
    result.variants.clear();
    result.error = std::move(why);
    return result;
  };
  std::vector<KernelVariant>& list = result.variants;
  bool inside = false;
  std::string_view hash;
  for (std::string_view rest = source; !rest.empty();) {
    const std::string_view line = take_line(rest);
    if (inside && without_end(line) != kEnd) {
      list.back().kernel += line;
    } else if (inside) {
      inside = false;
    } else if (line.substr(0, kHash.size()) == kHash) {
      hash = without_end(line).substr(kHash.size());
    } else if (line.substr(0, kMark.size()) == kMark) {
      const std::string_view condition = without_end(line).substr(kMark.size());
      if (!list.empty() && !list.back().condition) return fail("a variant comes after 'else'");
      list.emplace_back();
      if (condition.substr(0, 4) == " if ") {
        ParseExprResult parsed = parse_expr(condition.substr(4));
        if (!parsed.expr)
          return fail(fmt::format("the condition of variant {}: {}", list.size(), parsed.error));
        list.back().condition = std::move(*parsed.expr);
      } else if (condition != " else") {
        return fail(fmt::format("variant {} has no condition", list.size()));
      }
      if (rest.substr(0, 3) != "#if")
        return fail(fmt::format("variant {} has no kernel", list.size()));
      take_line(rest);
      inside = true;
    }
  }
  if (list.empty())
    list.push_back({std::nullopt, std::string(source)});
  else
    result.edited = hash_of(list) != hash;
  if (inside) return fail("the file ends within a variant");
  if (list.back().condition) return fail("the last variant has a condition");
  return result;
}

}  // namespace maco::ir
