#include "compiler/codegen/cuda_units.h"

#include <fmt/format.h>

#include <set>
#include <string_view>

#include "compiler/codegen/device_sources.h"

namespace maco::codegen {

namespace {

constexpr std::string_view kInclude = "#include ", kGroups = "//@cooperative_groups\n";

// The directives that a unit's text begins with; `text` is what follows.
std::set<std::string> includes_of(std::string_view& text) {
  std::set<std::string> includes;
  while (text.substr(0, kInclude.size()) == kInclude) {
    const size_t end = text.find('\n');
    includes.emplace(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  return includes;
}

// Words end with the units: the rest of the kernel has them as CUDA says.
std::string undefined(std::string_view words) {
  constexpr std::string_view define = "#define ";
  std::string out = "#ifndef MACO_CPU\n";
  for (size_t at = words.find("#else"); (at = words.find(define, at)) != std::string_view::npos;) {
    at += define.size();
    out += fmt::format("#undef {}\n", words.substr(at, words.find_first_of(" (", at) - at));
  }
  return out +
         "#else\n#undef __shared__\n#endif\n#undef maco_static_shared\n#undef "
         "maco_dynamic_shared\n#undef maco_leaves\n";
}

}  // namespace

std::string cuda_unit_sources(const std::vector<const ir::CudaUnit*>& units) {
  if (units.empty()) return "";
  std::set<std::string> includes;
  std::string texts;
  for (const ir::CudaUnit* unit : units) {
    std::string_view device = unit->device;
    includes.merge(includes_of(device));
    std::string text(device);
    if (const size_t at = text.find(kGroups); at != std::string::npos) {
      // It is read once a unit.
      const std::string groups =
          "#undef MACO_COOPERATIVE_GROUPS\n" + device_header("cuda/cooperative_groups.cuh");
      text.replace(at, kGroups.size(), groups);
    }
    texts += fmt::format("namespace {} {{\n{}}}  // namespace {}\n", unit->name, text, unit->name);
  }
  std::string out = "// -------- kernels of the user's --------\n";
  if (!includes.empty()) {
    out += "#ifndef MACO_CPU\n";
    constexpr std::string_view standard = "#include <std/";
    std::string of_c, of_cuda;
    for (const std::string& include : includes)
      if (include.compare(0, standard.size(), standard) == 0) {
        of_c += "#include <" + include.substr(standard.size()) + "\n";
        of_cuda += "#include <cuda/std/" + include.substr(standard.size()) + "\n";
      } else {
        out += include + "\n";
      }
    // NVRTC has no standard headers; CUDA has some of its own.
    if (!of_c.empty())
      out += fmt::format(
          "#ifdef __CUDACC_RTC__\n{}namespace std {{\nusing namespace "
          "cuda::std;\n}}\n#else\n{}#endif\n",
          of_cuda, of_c);
    out += "#endif\n";
  }
  // What NVRTC gets of standard.cuh.
  out += "#if !defined(__CUDACC_RTC__) && !defined(MACO_CPU)\n";
  for (const char* header : {"cfloat", "climits", "cstddef", "cstdint"})
    out += fmt::format("#include <{}>\n", header);
  out += "#endif\n";
  const std::string words = device_header("cuda/words.cuh");
  return out + device_header("cuda/standard.cuh") + words + "namespace cuda_units {\n" + texts +
         "}  // namespace cuda_units\n" + undefined(words) + "\n";
}

}  // namespace maco::codegen
