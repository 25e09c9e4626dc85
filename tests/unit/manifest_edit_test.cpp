// Edits of a kernel's manifest: whatever is edited, the kernel is refused with a reason, or all
// that its code was compiled for is as it was and the edit is told.
#include <fmt/format.h>

#include <filesystem>
#include <regex>

#include "compiler/api/compile.h"
#include "compiler/api/match.h"
#include "compiler/frontend/frontend.h"
#include "ir/manifest.h"
#include "tests/catch.h"
#include "tests/paths.h"

namespace maco::ir {
namespace {

using test::Contains;

const std::string kGraph = R"(graph small(world = 2) {
  dim n <= 6
  scalar pos in [0, 4)
  input  x : f32[n, 8]
  param  w : f32[8, 8]
  state  s : f32[n, 8]
  h = matmul(x, w)
  p = allreduce(h, reduce = sum)
  s = add(s, p)
  output y = rope(s, head_dim = 8, position = pos)
  output z = mul(x, value = 3)
})";

std::string kernel_of(const std::string& path, const std::string& text) {
  Diagnostics d;
  const auto graph = frontend::parse_graph(d.add_file(path, text), d);
  INFO(d.render());
  REQUIRE(graph);
  api::Options options;
  options.target = "cpu";
  const auto compiled = api::compile(*graph, options, d);
  INFO(d.render());
  REQUIRE(compiled);
  return compiled->kernel;
}

struct Kernel {
  std::vector<std::string> lines;  // of the manifest
  std::string code;
  explicit Kernel(const std::string& source) {
    for (size_t at = 0; at < source.size();) {
      const size_t end = source.find('\n', at) + 1;
      if (source.compare(at, 8, "//@maco ") == 0)
        lines.push_back(source.substr(at, end - at));
      else
        code += source.substr(at, end - at);
      at = end;
    }
  }
  std::string manifest() const {
    std::string text;
    for (const std::string& line : lines) text += line;
    return text;
  }
};

// As maco-run reads a kernel.
struct Read {
  std::optional<Manifest> manifest;
  std::optional<Graph> graph;
  bool edited = false;
  std::string error;
};
Read read(const std::string& source) {
  Read r;
  ManifestResult result = parse_manifest(source);
  r.error = result.error;
  r.edited = result.edited;
  if (!result.manifest) return r;
  Diagnostics d;
  r.graph = frontend::parse_dsl(d.add_file("its graph", result.manifest->graph), d);
  if (!r.graph)
    r.error = d.render();
  else
    r.error = api::check_manifest(*r.graph, *result.manifest, d) ? "" : d.render();
  r.manifest = std::move(result.manifest);
  return r;
}

// What the code depends on.
std::string bound(Manifest m) {
  m.name = m.options = m.graph = m.code_hash = m.program_hash = "";
  m.calls.clear();
  m.local_names.clear();
  m.peer_names.clear();
  return print_manifest(m);
}

struct Edits {
  const Kernel kernel{kernel_of("small.maco", kGraph)};
  const Manifest original = *parse_manifest(kernel.manifest() + kernel.code).manifest;
  int refused = 0, told = 0;

  void check(const std::string& manifest, const std::string& edit) {
    INFO(edit);
    const Read r = read(manifest + kernel.code);
    if (!r.error.empty()) {
      ++refused;
      return;
    }
    if (!r.manifest) FAIL("neither a manifest nor a reason");
    if (bound(*r.manifest) != bound(original))
      FAIL("it would run with another value than the code was compiled for");
    if (!r.edited && print_manifest(*r.manifest) != print_manifest(original))
      FAIL("nobody is told");
    told += r.edited;
    for (const ManifestTensor& t : r.manifest->tensors) {
      const auto id = r.graph->find_tensor(t.name);
      if (!id || max_elements(*r.graph, (*r.graph)[*id].shape) != t.max_elements)
        FAIL("its graph has another '" + t.name + "'");
    }
  }
  // Every match of `what` in the manifest's lines replaced by each of what `with` makes of it.
  void replace_each(const std::string& what,
                    const std::function<std::vector<std::string>(const std::string&)>& with) {
    const std::string text = kernel.manifest();
    const std::regex pattern(what);
    int matches = 0;
    for (std::sregex_iterator at(text.begin(), text.end(), pattern), end; at != end;
         ++at, ++matches)
      for (const std::string& other : with(at->str())) {
        std::string edited = text;
        edited.replace(static_cast<size_t>(at->position()), static_cast<size_t>(at->length()),
                       other);
        if (edited != text)
          check(edited, fmt::format("'{}' at {} becomes '{}'", at->str(), at->position(), other));
      }
    REQUIRE(matches > 0);
  }
};

}  // namespace

TEST_CASE("a kernel reads as it was written, and its graph says the same") {
  std::vector<std::pair<std::string, std::string>> graphs = {{"small.maco", kGraph}};
  for (const auto& entry :
       std::filesystem::directory_iterator(test::source_path("examples/graphs"))) {
    std::string error;
    const std::string path = entry.path().string();
    if (std::filesystem::file_size(path) < 2000)
      graphs.emplace_back(path, api::read_file(path, error).value_or(""));
  }
  REQUIRE(graphs.size() > 3);
  for (const auto& [path, text] : graphs) {
    INFO(path);
    const Read r = read(kernel_of(path, text));
    CHECK(r.error == "");
    CHECK(!r.edited);
  }
}

TEST_CASE("lines of a manifest that are deleted, doubled or swapped") {
  Edits edits;
  for (size_t i = 0; i < edits.kernel.lines.size(); ++i) {
    Kernel k = edits.kernel;
    k.lines.erase(k.lines.begin() + static_cast<std::ptrdiff_t>(i));
    edits.check(k.manifest(), "without " + edits.kernel.lines[i]);
    k = edits.kernel;
    k.lines.insert(k.lines.begin() + static_cast<std::ptrdiff_t>(i), k.lines[i]);
    edits.check(k.manifest(), "twice " + edits.kernel.lines[i]);
    if (i == 0) continue;
    k = edits.kernel;
    std::swap(k.lines[i - 1], k.lines[i]);
    edits.check(k.manifest(), "after the next one " + edits.kernel.lines[i - 1]);
  }
  CHECK(edits.refused > 20);
  CHECK(edits.told > 5);
}

TEST_CASE("numbers, strings, keys and signs of a manifest that are changed") {
  Edits edits;
  edits.replace_each("-?[0-9]+", [](const std::string& n) {
    return std::vector<std::string>{n + "0",
                                    "0",
                                    "1",
                                    "-" + n,
                                    "99999999999",
                                    "100000000000000000000",
                                    "1.5",
                                    "null",
                                    n + n,
                                    n.size() < 9 ? std::to_string(std::stol(n) + 1) : "7",
                                    n.size() < 9 ? std::to_string(std::stol(n) - 1) : "8"};
  });
  edits.replace_each("[a-z_0-9]+", [](const std::string& word) {
    return std::vector<std::string>{"",    word + "x", "x",      "y",     "f16",
                                    "i32", "input",    "output", "state", "none"};
  });
  edits.replace_each("[\\[\\]{}:,\"]", [](const std::string&) {
    return std::vector<std::string>{"", "[", "]", "{", "}", ":", ",", "\"", "0"};
  });
  CHECK(edits.refused > 1000);
  CHECK(edits.told > 100);
}

TEST_CASE("the reason names the key") {
  const Kernel kernel(kernel_of("small.maco", kGraph));
  const auto reason = [&](const std::string& from, const std::string& to) {
    std::string text = kernel.manifest();
    const size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    return read(text.replace(at, from.size(), to) + kernel.code).error;
  };
  CHECK_THAT(reason("\"world\":2", "\"world\":4"), Contains("'world' was edited"));
  CHECK_THAT(reason("\"ctas\":8", "\"ctas\":100000"), Contains("'ctas' was edited"));
  CHECK_THAT(reason("\"f32\"", "\"f16\""), Contains("'tensors' was edited"));
  CHECK_THAT(reason("\"max_elements\":48", "\"max_elements\":47"),
             Contains("'tensors' was edited"));
  CHECK_THAT(reason("\"dims\":[", "\"dims\":[],\"more\":["),
             Contains("'dims' was edited") || Contains("unknown key 'more'"));
  CHECK_THAT(reason("\"world\"", "\"more\":1,\"world\""), Contains("unknown key 'more'"));
  CHECK_THAT(reason("param  w : f32[8, 8]", "param  v : f32[8, 8]"),
             Contains("unknown") || Contains("'w'"));
}

TEST_CASE("what the graph says otherwise is named") {
  Read r = read(kernel_of("small.maco", kGraph));
  const auto reason = [&](const auto& change) {
    Manifest m = *r.manifest;
    change(m);
    Diagnostics d;
    return api::check_manifest(*r.graph, m, d) ? "" : d.render();
  };
  CHECK(reason([](Manifest&) {}) == "");
  CHECK_THAT(reason([](Manifest& m) { m.world = 3; }),
             Contains("for 3 ranks, but the graph for 2"));
  CHECK_THAT(reason([](Manifest& m) { m.dims[0].hi = 7; }), Contains("dims are not those"));
  CHECK_THAT(reason([](Manifest& m) { m.scalars.clear(); }), Contains("scalars are not those"));
  CHECK_THAT(reason([](Manifest& m) { m.tensors.pop_back(); }), Contains("lacks the graph's 'z'"));
  CHECK_THAT(reason([](Manifest& m) { m.tensors.push_back(m.tensors[0]); }),
             Contains("or has it twice"));
  CHECK_THAT(reason([](Manifest& m) { m.tensors[0].name = "h"; }), Contains("has a tensor 'h'"));
  CHECK_THAT(reason([](Manifest& m) { m.tensors[0].kind = "param"; }),
             Contains("takes 'x' as param"));
  CHECK_THAT(reason([](Manifest& m) { m.tensors[0].dtype = DType::F16; }), Contains("48 f16"));
  CHECK_THAT(reason([](Manifest& m) { m.tensors[0].shape[1] = Expr(4); }),
             Contains("'x' has another shape"));
  CHECK_THAT(reason([](Manifest& m) { m.tensors[0].max_elements = 47; }), Contains("of 47 f32"));
}

}  // namespace maco::ir
