// Runs a target on files and their mutants, where there is no libFuzzer:
//   inputs-TARGET [-runs=N] [-seed=N] [-seconds=N] [-megabytes=N] FILE|FOLDER...
// Each file runs as it is, then as N mutants: bytes are changed, removed or doubled, numbers made
// extreme, pieces of other files inserted. Prints its progress once a minute, and when it is told
// to stop (SIGINT, SIGTERM), which it does after the current input. Fails if the target crashes or
// takes longer than -seconds (1) of user time, or if the process takes more than -megabytes (1024).
// The input is then left in ./input-<hash>, unless a sanitizer ended the process.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "tests/inputs/target.h"

namespace {

constexpr size_t kMostBytes = 1 << 16;  // of a mutant

std::string current;  // the target's current input
int terminal = 2;     // standard error, of which the target's part goes nowhere

void say(const char* text) {
  if (write(terminal, text, std::strlen(text)) < 0) _exit(1);
}
// Called by the signal handler, so it allocates no memory.
void keep(const char* why) {
  uint64_t hash = 14695981039346656037u;
  for (const char c : current) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  char name[32];
  std::snprintf(name, sizeof name, "input-%016llx", static_cast<unsigned long long>(hash));
  const int file = open(name, O_CREAT | O_TRUNC | O_WRONLY, 0644);
  if (file >= 0 && write(file, current.data(), current.size()) >= 0) close(file);
  say(why);
  say(": see ./");
  say(name);
  say("\n");
}
volatile std::sig_atomic_t told_to_stop = 0;
extern "C" void stop(int) { told_to_stop = 1; }
extern "C" void crashed(int signal) {
  keep(signal == SIGVTALRM ? "an input takes too long" : "an input crashes the target");
  _exit(1);
}

class Mutator {
 public:
  Mutator(const std::vector<std::string>& files, uint64_t seed) : files_(files), random_(seed) {}
  std::string next() {
    std::string text = any();
    for (size_t n = 1 + below(4); n > 0; --n) change(text);
    if (text.size() > kMostBytes) text.resize(kMostBytes);
    return text;
  }

 private:
  size_t below(size_t n) { return n == 0 ? 0 : random_() % n; }
  const std::string& any() { return files_[below(files_.size())]; }
  void change(std::string& text) {
    const size_t at = below(text.size() + 1),
                 length = below(std::min<size_t>(text.size() - at, 40) + 1);
    switch (below(8)) {
      case 0: text.erase(at, length); break;
      case 1: text.insert(at, text.substr(at, length)); break;
      case 2: text.insert(at, 1, static_cast<char>(below(256))); break;
      case 3:
        if (at < text.size()) text[at] = static_cast<char>(text[at] ^ 1 << below(8));
        break;
      case 4: {  // a word of some file
        const std::string& other = any();
        size_t from = below(other.size() + 1);
        while (from > 0 && std::isalnum(static_cast<unsigned char>(other[from - 1]))) --from;
        text.insert(at, other, from, 1 + below(12));
        break;
      }
      case 5: {  // a piece
        const std::string& other = any();
        text.replace(at, length, other, below(other.size() + 1), below(200));
        break;
      }
      case 6: number(text, at); break;
      default: {  // the same piece, often
        const std::string piece = text.substr(at, 1 + below(3));
        for (size_t n = below(2000); n > 0 && text.size() < kMostBytes; --n) text.insert(at, piece);
      }
    }
  }
  void number(std::string& text, size_t at) {
    static const char* const values[] = {"0",
                                         "-1",
                                         "1",
                                         "2147483647",
                                         "2147483648",
                                         "9223372036854775807",
                                         "-9223372036854775808",
                                         "18446744073709551616",
                                         "1e308",
                                         "1152921504606846976"};
    const size_t first = text.find_first_of("0123456789", at);
    if (first == std::string::npos) return;
    const size_t end = std::min(text.find_first_not_of("0123456789", first), text.size());
    text.replace(first, end - first, values[below(std::size(values))]);
  }
  const std::vector<std::string>& files_;
  std::mt19937_64 random_;
};

void run(const std::string& text, long seconds, long megabytes) {
  current = text;
  const itimerval limit = {{0, 0}, {seconds, 0}};
  setitimer(ITIMER_VIRTUAL, &limit, nullptr);
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(current.data()), current.size());
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  if (used.ru_maxrss / 1024 > megabytes) {
    keep("the target takes too much memory");
    _exit(1);
  }
}

std::vector<std::string> read(const std::filesystem::path& path) {
  std::vector<std::filesystem::path> paths;
  if (std::filesystem::is_directory(path)) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path))
      if (entry.is_regular_file()) paths.push_back(entry.path());
  } else {
    paths.push_back(path);
  }
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> texts;
  for (const auto& p : paths) {
    std::ifstream file(p, std::ios::binary);
    if (!file) {
      say(("can't read " + p.string() + "\n").c_str());
      std::exit(2);
    }
    texts.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return texts;
}

}  // namespace

int main(int argc, char** argv) {
  long runs = 0, seconds = 1, megabytes = 1024;
  uint64_t seed = 1;
  std::vector<std::string> files;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const auto number = [&](const char* name) {
      return argument.rfind(name, 0) == 0 ? argv[i] + std::strlen(name) : nullptr;
    };
    if (const char* n = number("-runs=")) {
      runs = std::atol(n);
    } else if (const char* s = number("-seed=")) {
      seed = std::strtoull(s, nullptr, 10);
    } else if (const char* t = number("-seconds=")) {
      seconds = std::atol(t);
    } else if (const char* m = number("-megabytes=")) {
      megabytes = std::atol(m);
    } else {
      for (std::string& text : read(argument)) files.push_back(std::move(text));
    }
  }
  if (files.empty()) {
    say("inputs: no files given\n");
    return 2;
  }
  terminal = dup(2);
  const int nowhere = open("/dev/null", O_WRONLY);
  dup2(nowhere, 1);
#ifndef __SANITIZE_ADDRESS__  // whose reports stand there
  dup2(nowhere, 2);
#endif
  // A stack that overflowed leaves none to handle that on.
  static char stack[1 << 16];
  stack_t other{};
  other.ss_sp = stack;
  other.ss_size = sizeof stack;
  sigaltstack(&other, nullptr);
  struct sigaction action{};
  action.sa_handler = crashed;
  action.sa_flags = SA_ONSTACK;
  for (const int signal : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGVTALRM})
    sigaction(signal, &action, nullptr);
  action.sa_handler = stop;
  for (const int signal : {SIGINT, SIGTERM}) sigaction(signal, &action, nullptr);
  const std::clock_t begin = std::clock();
  const auto report = [&](long mutants) {
    rusage used{};
    getrusage(RUSAGE_SELF, &used);
    char line[160];
    std::snprintf(line, sizeof line, "%zu files and %ld mutants in %.1f s, at most %ld MB\n",
                  files.size(), mutants, static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC,
                  used.ru_maxrss / 1024);
    say(line);
  };
  for (const std::string& text : files) run(text, seconds, megabytes);
  Mutator mutator(files, seed);
  std::time_t said = std::time(nullptr);
  long done = 0;
  for (; done < runs && !told_to_stop; ++done) {
    if (std::time(nullptr) - said >= 60) {
      report(done);
      said = std::time(nullptr);
    }
    run(mutator.next(), seconds, megabytes);
  }
  setitimer(ITIMER_VIRTUAL, nullptr, nullptr);
  report(done);
  return 0;
}
