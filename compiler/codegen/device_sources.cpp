#include "compiler/codegen/device_sources.h"

#include <map>
#include <string_view>
#include <vector>

#include "cmake/embedded.h"
#include "ir/check.h"

extern const maco::EmbeddedFile maco_device_sources[];
extern const size_t maco_device_sources_count;

namespace maco::codegen {

namespace {

constexpr std::string_view kRoot = "runtime/device/";
constexpr std::string_view kCore[] = {"words.cuh", "abi.cuh",   "numbers.cuh", "context.cuh",
                                      "sync.cuh",  "pages.cuh", "worker.cuh"};

const std::map<std::string, std::string, std::less<>>& files() {
  static const auto table = [] {
    std::map<std::string, std::string, std::less<>> t;
    for (size_t i = 0; i < maco_device_sources_count; ++i)
      t[std::string(maco_device_sources[i].name).substr(kRoot.size())] =
          maco_device_sources[i].text;
    return t;
  }();
  return table;
}

void add(const std::string& name, std::vector<std::string>& order, std::set<std::string>& done) {
  if (!done.insert(name).second) return;
  auto it = files().find(name);
  MACO_CHECK(it != files().end(), name);
  const std::string& text = it->second;
  constexpr std::string_view needs = "// Needs ";
  for (size_t at = text.find(needs); at != std::string::npos; at = text.find(needs, at + 1)) {
    const size_t begin = at + needs.size(), end = text.find(".cuh", begin);
    MACO_CHECK(end != std::string::npos, name);
    add(text.substr(begin, end - begin + 4), order, done);
  }
  order.push_back(name);
}

// Those of ops/ that define a function.
std::vector<std::string> headers_of(std::string_view function) {
  const std::string definition = "MACO_OP void " + std::string(function) + "(Context&";
  std::vector<std::string> names;
  for (const auto& [name, text] : files())
    if (name.rfind("ops/", 0) == 0 && text.find(definition) != std::string::npos)
      names.push_back(name);
  return names;
}

}  // namespace

bool has_device_function(std::string_view name) { return !headers_of(name).empty(); }

std::string device_sources(const std::set<std::string>& functions) {
  std::vector<std::string> order;
  std::set<std::string> done;
  for (std::string_view core : kCore) add(std::string(core), order, done);
  for (const std::string& f : functions) {
    const auto defining = headers_of(f);
    MACO_CHECK(!defining.empty(), "no device function '" + f + "'");
    for (const std::string& name : defining) add(name, order, done);
  }
  std::string out;
  for (const std::string& name : order)
    out += "// -------- " + std::string(kRoot) + name + " --------\n" + files().find(name)->second +
           "\n";
  return out;
}

}  // namespace maco::codegen
