// Runs work in processes of its own, so that a crash or hang affects only one mutant.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <new>
#include <stdexcept>

#include "tests/proofs/grammar_judge.h"

namespace maco::proofs {
namespace {

void write_all(int fd, const std::string& bytes) {
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t n = write(fd, bytes.data() + at, bytes.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) _exit(1);
    at += static_cast<size_t>(n);
  }
}

pid_t forked() {
  std::fflush(nullptr);
  const pid_t pid = fork();
  if (pid < 0) throw std::runtime_error("cannot fork");
  return pid;
}

int ended(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

}  // namespace

Ended in_child(const std::function<std::string()>& work, int seconds) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("cannot make a pipe");
  const pid_t pid = forked();
  if (pid == 0) {
    close(ends[0]);
    // What crashes says so itself, too.
    if (const int nothing = open("/dev/null", O_WRONLY | O_CLOEXEC); nothing >= 0)
      dup2(nothing, STDERR_FILENO);
    for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT})
      std::signal(signal, SIG_DFL);
    // The last byte says that all was said.
    std::string said;
    try {
      said = work();
    } catch (const std::exception& e) {
      said = std::string("exception: ") + e.what();
    }
    write_all(ends[1], said + '\0');
    _exit(0);
  }
  close(ends[1]);
  using Clock = std::chrono::steady_clock;
  const auto until = Clock::now() + std::chrono::seconds(seconds);
  Ended result;
  bool open = true;
  while (open) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now());
    pollfd ready{ends[0], POLLIN, 0};
    if (left.count() <= 0 || poll(&ready, 1, static_cast<int>(left.count())) == 0) {
      result.fault = fmt::format("hung: no result after {} s", seconds);
      kill(pid, SIGKILL);
      break;
    }
    char buffer[4096];
    const ssize_t n = read(ends[0], buffer, sizeof buffer);
    if (n > 0) result.said.append(buffer, static_cast<size_t>(n));
    open = n > 0 || (n < 0 && errno == EINTR);
  }
  close(ends[0]);
  const int status = ended(pid);
  if (!result.fault.empty()) return result;
  if (!result.said.empty() && result.said.back() == '\0')
    result.said.pop_back();
  else
    result.fault = WIFSIGNALED(status) ? fmt::format("crashed: signal {}", WTERMSIG(status))
                                       : fmt::format("ended early: status {}", WEXITSTATUS(status));
  return result;
}

std::vector<std::string> in_workers(size_t count, int workers,
                                    const std::function<std::string(size_t)>& work) {
  void* shared = mmap(nullptr, sizeof(std::atomic<size_t>), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) throw std::runtime_error("cannot map memory");
  auto* next = new (shared) std::atomic<size_t>(0);
  std::vector<std::pair<pid_t, std::FILE*>> started;
  for (int w = 0; w < workers; ++w) {
    std::FILE* file = std::tmpfile();
    if (!file) throw std::runtime_error("cannot make a temporary file");
    const pid_t pid = forked();
    if (pid == 0) {
      for (size_t i = (*next)++; i < count; i = (*next)++) {
        std::string said;
        try {
          said = work(i);
        } catch (const std::exception& e) {
          std::fprintf(stderr, "%s\n", e.what());
          _exit(1);
        }
        write_all(fileno(file), fmt::format("{} {}\n", i, said.size()) + said);
      }
      _exit(0);
    }
    started.emplace_back(pid, file);
  }
  std::vector<std::string> results(count);
  std::string failed;
  for (const auto& [pid, file] : started) {
    if (const int status = ended(pid); status != 0)
      failed = fmt::format("a worker ended with status {}", status);
    std::rewind(file);
    size_t i = 0, size = 0;
    while (std::fscanf(file, "%zu %zu", &i, &size) == 2) {
      std::fgetc(file);  // the line's end
      results.at(i).resize(size);
      if (std::fread(results[i].data(), 1, size, file) != size) failed = "a result was cut short";
    }
    std::fclose(file);
  }
  munmap(shared, sizeof(std::atomic<size_t>));
  if (!failed.empty()) throw std::runtime_error(failed);
  return results;
}

}  // namespace maco::proofs
