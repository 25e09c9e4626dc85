#include "tools/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>

namespace maco::tools {

namespace {
constexpr double kGiB = 1024.0 * 1024 * 1024;

double elements_of(const ir::Graph& graph, const ir::Shape& shape,
                   const std::map<std::string, int64_t>& dims) {
  double elements = 1;
  for (const ir::Expr& extent : shape) {
    const auto value = ir::evaluate(extent, [&](std::string_view name) -> std::optional<int64_t> {
                         if (name == "world") return graph.world;
                         if (const auto it = dims.find(std::string(name)); it != dims.end())
                           return it->second;
                         const ir::Dim* dim = graph.find_dim(name);
                         return dim ? std::optional(dim->max) : std::nullopt;
                       }).value;
    elements *= static_cast<double>(value.value_or(1));
  }
  return elements;
}
}  // namespace

MemoryNeed memory_need(const ir::Graph& graph, const ir::Manifest& manifest, bool on_host,
                       bool check, const std::map<std::string, int64_t>& dims) {
  MemoryNeed need;
  const auto world = static_cast<double>(manifest.world);
  double tensors = 0;
  for (const ir::ManifestTensor& t : manifest.tensors) {
    const double bytes =
        static_cast<double>(t.max_elements) * static_cast<double>(ir::size_of(t.dtype));
    tensors += bytes;
    need.transfer = std::max(need.transfer, bytes);
  }
  if (on_host)
    need.session = world * (tensors + static_cast<double>(manifest.arena_bytes) +
                            static_cast<double>(manifest.symmetric_bytes));
  if (check)
    for (const ir::Tensor& t : graph.tensors)
      if (t.kind != ir::TensorKind::Scalar)
        need.reference +=
            world * elements_of(graph, t.shape, dims) * static_cast<double>(ir::size_of(t.dtype));
  return need;
}

std::optional<double> available_in(std::string_view meminfo) {
  constexpr std::string_view kKey = "MemAvailable:";
  const size_t line = meminfo.find(kKey);
  if (line == std::string_view::npos) return std::nullopt;
  const size_t digits = meminfo.find_first_not_of(' ', line + kKey.size());
  if (digits == std::string_view::npos) return std::nullopt;
  uint64_t kib = 0;
  const auto [end, error] =
      std::from_chars(meminfo.data() + digits, meminfo.data() + meminfo.size(), kib);
  if (error != std::errc() ||
      std::string_view(end, static_cast<size_t>(meminfo.data() + meminfo.size() - end))
              .rfind(" kB", 0) != 0)
    return std::nullopt;
  return static_cast<double>(kib) * 1024;
}

std::optional<double> available_memory() {
  std::ifstream in("/proc/meminfo");
  return available_in(std::string(std::istreambuf_iterator<char>(in), {}));
}

std::string why_too_large(const MemoryNeed& need, std::optional<double> available) {
  if (!available || need.all() <= *available) return "";
  std::string parts;
  const auto add = [&](double bytes, const char* what) {
    if (bytes > 0)
      parts += fmt::format("{}{:.1f} for {}", parts.empty() ? "" : ", ", bytes / kGiB, what);
  };
  add(need.session, "the ranks");
  add(need.reference, "the reference");
  add(need.transfer, "the largest tensor on its way");
  return fmt::format("the run needs {:.1f} GiB of memory ({}), but {:.1f} GiB are available",
                     need.all() / kGiB, parts, *available / kGiB);
}

}  // namespace maco::tools
