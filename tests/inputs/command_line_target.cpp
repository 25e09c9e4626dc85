// Arguments of macoc (after a first line that isn't "run") or maco-run, a line each.
#include <vector>

#include "tests/inputs/target.h"
#include "tools/compile_arguments.h"
#include "tools/run_arguments.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace maco;
  std::vector<std::string> words(1);
  for (const char c : inputs::text_of(data, size)) {
    if (c == 0) return 0;  // no argument has one
    if (c == '\n')
      words.emplace_back();
    else
      words.back() += c;
  }
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  const int count = static_cast<int>(arguments.size());
  arguments.push_back(nullptr);
  int status = 0;
  if (words[0] == "run") {
    tools::RunCommand command;
    tools::Console console;
    status = tools::read_run_arguments(count, arguments.data(), command, console);
  } else {
    tools::CompileArguments compile;
    status = tools::read_compile_arguments(count, arguments.data(), compile);
  }
  inputs::require(status == -1 || status == tools::kOk || status == tools::kBadUsage,
                  "a command line is right or wrong");
  return 0;
}
