#include "tools/processes.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

extern char** environ;

namespace maco::tools {
namespace {

using Clock = std::chrono::steady_clock;

// The environment with what identifies a process of this group, in place of older values.
std::vector<std::string> environment_of(int rank, int ranks, const std::string& group) {
  const std::vector<std::pair<std::string, std::string>> own = {
      {"RANK", std::to_string(rank)},
      {"WORLD_SIZE", std::to_string(ranks)},
      {"LOCAL_RANK", std::to_string(rank)},
      {"LOCAL_WORLD_SIZE", std::to_string(ranks)},
      {"MACO_GROUP", group}};
  std::vector<std::string> all;
  for (char** e = environ; *e; ++e) {
    const std::string_view entry = *e;
    const bool ours = std::any_of(own.begin(), own.end(), [&](const auto& o) {
      return entry.substr(0, o.first.size() + 1) == o.first + "=";
    });
    if (!ours) all.emplace_back(entry);
  }
  for (const auto& [name, value] : own) {
    all.push_back(name);
    all.back().append("=").append(value);
  }
  return all;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> list;
  for (std::string& text : texts) list.push_back(text.data());
  list.push_back(nullptr);
  return list;
}

// Returns -1 if it couldn't be started.
pid_t start(const std::vector<std::string>& arguments, std::vector<std::string> environment) {
  std::vector<std::string> texts = {"maco-run"};
  texts.insert(texts.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv = pointers(texts), envp = pointers(environment);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child != 0) return child;
  // Ends with its parent: nobody is left to wait for it then.
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(kRunFailed);
  ::execve("/proc/self/exe", argv.data(), envp.data());
  ::_exit(kRunFailed);
}

}  // namespace

int run_processes(int ranks, const std::vector<std::string>& arguments, uint64_t grace_ms,
                  const Console& console) {
  const auto now = Clock::now().time_since_epoch().count();
  const std::string group = fmt::format("{}.{}", ::getpid(), now);
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t child = start(arguments, environment_of(rank, ranks, group));
    if (child < 0) {
      console.error(
          fmt::format("can't start a process for rank {}: {}", rank, std::strerror(errno)));
      for (const pid_t other : children) ::kill(other, SIGTERM);
      break;
    }
    children.push_back(child);
  }
  int worst = static_cast<int>(children.size()) == ranks ? kOk : kRunFailed;
  std::optional<Clock::time_point> end;  // set once one has ended badly
  std::vector<bool> stopped(children.size()), killed(children.size());
  const auto ended = [&](size_t rank, int status) {
    if (WIFSIGNALED(status)) {
      if (!killed[rank])
        console.error(fmt::format("rank {}: its process was ended by signal {} ({})", rank,
                                  WTERMSIG(status), ::strsignal(WTERMSIG(status))));
      worst = std::max<int>(worst, kRunFailed);
    } else {
      worst = std::max(worst, WEXITSTATUS(status));
    }
    if (worst != kOk && !end) end = Clock::now() + std::chrono::milliseconds(grace_ms);
  };
  const auto kill_rank = [&](size_t rank, const std::string& why) {
    if (children[rank] <= 0 || killed[rank]) return;
    console.error(fmt::format("rank {}: its process {}, and is ended now", rank, why));
    killed[rank] = true;
    ::kill(children[rank], SIGKILL);
  };
  size_t left = children.size();
  while (left > 0) {
    bool some = false;
    for (size_t rank = 0; rank < children.size(); ++rank) {
      int status = 0;
      if (children[rank] <= 0 ||
          ::waitpid(children[rank], &status, WNOHANG | WUNTRACED | WCONTINUED) != children[rank])
        continue;
      some = true;
      if (WIFSTOPPED(status) || WIFCONTINUED(status)) {
        stopped[rank] = WIFSTOPPED(status);
        continue;
      }
      children[rank] = 0;
      --left;
      ended(rank, status);
    }
    bool all_stopped = true;
    for (size_t rank = 0; rank < children.size(); ++rank)
      all_stopped = all_stopped && (children[rank] == 0 || stopped[rank]);
    // The remaining processes are stopped by a signal, and can't find out about the failure.
    if (end && all_stopped)
      for (size_t rank = 0; rank < children.size(); ++rank) kill_rank(rank, "was stopped");
    if (end && Clock::now() > *end)
      for (size_t rank = 0; rank < children.size(); ++rank)
        kill_rank(rank,
                  fmt::format("has not ended within {} s of another's failure", grace_ms / 1000));
    if (!some) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return worst;
}

}  // namespace maco::tools
