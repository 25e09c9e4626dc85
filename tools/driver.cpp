#include "tools/driver.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <iterator>

#include "compiler/api/compile.h"
#include "tools/version.h"

namespace maco::tools {

void Console::show(const ir::Diagnostics& diagnostics) const {
  if (!diagnostics.all().empty() && (!quiet || diagnostics.has_errors()))
    std::cerr << diagnostics.render(color, max_errors, max_warnings);
}
void Console::error(const std::string& message) const {
  // Written at once, as other processes may write too.
  std::cerr << (color ? "\033[1;31merror:\033[0m " : "error: ") + message + '\n';
}
void Console::say(const std::string& message) const {
  if (!quiet) std::cerr << message << '\n';
}
void Console::detail(const std::string& message) const {
  if (verbose) std::cerr << message << '\n';
}

bool use_color(const std::string& mode) {
  if (mode == "always") return true;
  const char* no_color = std::getenv("NO_COLOR");
  return mode == "auto" && !(no_color && *no_color) && isatty(STDERR_FILENO);
}

std::optional<std::string> read_input(const std::string& path, std::string& error) {
  if (path == "-") return std::string(std::istreambuf_iterator<char>(std::cin), {});
  return api::read_file(path, error);
}

std::string input_name(const std::string& path) { return path == "-" ? "<stdin>" : path; }

bool is_kernel(const std::string& text) {
  return text.rfind("//@maco ", 0) == 0 || text.find("\n//@maco ") != std::string::npos;
}

bool is_cuda_source(const std::string& name, const std::string& text) {
  const auto ends = [&](std::string_view end) {
    return name.size() > end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0;
  };
  return (ends(".cu") || ends(".cuh")) && !is_kernel(text);
}

std::string other_file(const std::string& name, const std::string& text) {
  const auto has = [&](const char* word) { return text.find(word) != std::string::npos; };
  if (is_kernel(text))
    return fmt::format(
        "'{}' is a kernel that macoc wrote: maco-run takes it, and this program the "
        "graph that it was made of",
        input_name(name));
  if (is_cuda_source(name, text))
    return fmt::format(
        "'{0}' is CUDA source: 'macoc {0}' prints a graph to begin with, which uses "
        "its kernel",
        input_name(name));
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string::npos && text[first] == '{' && has("\"gpus\"") &&
      has("\"collective\"") && has("\"threadblocks\""))
    return fmt::format(
        "'{0}' is an execution plan of MSCCL++: 'macoc import {0}' makes a graph of it",
        input_name(name));
  return "";
}

std::string dump_text(const std::string& name, const std::string& made) {
  return fmt::format(
      "'{}' is a dump of {}, which only passes make: maco-opt takes it, and this program the graph "
      "that it was made of",
      name, made);
}

int guarded(const char* tool, int (*main)(int, char**), int argc, char** argv) {
  std::string what;
  try {
    const int status = main(argc, argv);
    if ((std::fflush(stdout) == 0 && !std::ferror(stdout)) || status == kBadUsage) return status;
    std::cerr << "error: can't write to standard output\n";
    return kBadUsage;
  } catch (const std::bad_alloc&) {
    std::cerr << tool << ": out of memory\n";
    return kRunFailed;
  } catch (const std::exception& e) {
    what = e.what();
  }
  std::cerr << fmt::format(
      "{}: this is a bug in MACO, not in your graph:\n  {}\nplease report it with the graph and "
      "the command line ({} {})\n",
      tool, what, tool, version());
  return kBug;
}

}  // namespace maco::tools
