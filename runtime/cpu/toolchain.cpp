#include "runtime/cpu/toolchain.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <sstream>

extern char** environ;

namespace maco::runtime {
namespace {

bool is_program(const std::string& path) {
  struct stat s{};
  return stat(path.c_str(), &s) == 0 && S_ISREG(s.st_mode) && access(path.c_str(), X_OK) == 0;
}

// The path of `name` as a shell would find it, or "".
std::string which(const std::string& name) {
  if (name.find('/') != std::string::npos) return is_program(name) ? name : "";
  const char* path = std::getenv("PATH");
  std::istringstream folders(path ? path : "/usr/local/bin:/usr/bin:/bin");
  for (std::string folder; std::getline(folders, folder, ':');) {
    std::string candidate = (folder.empty() ? "." : folder) + "/" + name;
    if (is_program(candidate)) return candidate;
  }
  return "";
}

std::vector<std::string> split_at_blanks(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> parts;
  for (std::string part; in >> part;) parts.push_back(part);
  return parts;
}

}  // namespace

std::vector<std::string> find_cpu_compiler(Status& status) {
  for (const char* variable : {"MACO_CXX", "CXX"}) {
    const char* value = std::getenv(variable);
    std::vector<std::string> command = split_at_blanks(value ? value : "");
    if (command.empty()) continue;
    const std::string program = which(command[0]);
    if (program.empty()) {
      status = Status::failure(fmt::format("no program '{}', which ${} names as the C++ compiler",
                                           command[0], variable));
      return {};
    }
    command[0] = program;
    return command;
  }
  for (const char* name : {"c++", "g++", "clang++"}) {
    if (std::string program = which(name); !program.empty()) return {program};
  }
  status = Status::failure(
      "running on the CPU needs a C++ compiler, and there is no c++, g++ or clang++ on PATH; set "
      "MACO_CXX to one");
  return {};
}

std::vector<std::string> cpu_kernel_flags(bool check_access, bool profile) {
  // Not -march=native: the flags are part of the cache's key, and machines may share a cache.
  // Hidden visibility: otherwise static tables of functions in classes would be shared by all
  // kernels of the process.
  std::vector<std::string> flags = {
      "-std=c++20",      "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-ffp-contract=off",
      "-fno-math-errno", "-w"};
  // Device code stores vectors of one width to shared memory and loads them with another width, as
  // GPU compilers allow.
  flags.push_back("-fno-strict-aliasing");
  // If a difference and a sum of products stand side by side, GCC 12 may make vfmaddsub of them in
  // spite of -ffp-contract=off: the bits of a rope depended on other ops' code.
  flags.push_back("-fno-tree-slp-vectorize");
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    flags.insert(flags.end(), {"-mavx2", "-mfma"});
#endif
#ifdef MACO_KERNEL_SANITIZE
  flags.insert(flags.end(), {"-fsanitize=" MACO_KERNEL_SANITIZE, "-fno-omit-frame-pointer", "-g1"});
#endif
  if (check_access) flags.push_back("-DMACO_CHECK_ACCESS");
  if (profile) flags.push_back("-DMACO_PROFILE=1");
  return flags;
}

void add_flags(std::vector<std::string>& command, std::vector<std::string> flags) {
  const auto is_option = [](const std::string& word) { return word.starts_with('-'); };
  command.insert(std::find_if(command.begin(), command.end(), is_option),
                 std::make_move_iterator(flags.begin()), std::make_move_iterator(flags.end()));
}

std::string standard_headers(std::string_view text) {
  const bool uses = text.find("std::") != text.npos || text.find("namespace std") != text.npos;
  return uses ? "#include <algorithm>\n#include <functional>\n" : "";
}

std::string identity_of(const std::string& program) {
  struct stat s{};
  if (stat(program.c_str(), &s) != 0) return program;
  return fmt::format("{} {} {}.{}", program, s.st_size, s.st_mtim.tv_sec, s.st_mtim.tv_nsec);
}

bool run_command(const std::vector<std::string>& command, std::string& output) {
  output.clear();
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    output = std::strerror(errno);
    return false;
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  pid_t child = 0;
  const int failed =
      posix_spawn(&child, command[0].c_str(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (failed != 0) {
    close(ends[0]);
    output = std::strerror(failed);
    return false;
  }
  char buffer[4096];
  for (;;) {
    const ssize_t n = read(ends[0], buffer, sizeof buffer);
    if (n > 0) {
      output.append(buffer, static_cast<size_t>(n));
    } else if (n == 0 || errno != EINTR) {
      break;
    }
  }
  close(ends[0]);
  int state = 0;
  while (waitpid(child, &state, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(state)) output += fmt::format("killed by signal {}\n", WTERMSIG(state));
  return WIFEXITED(state) && WEXITSTATUS(state) == 0;
}

}  // namespace maco::runtime
