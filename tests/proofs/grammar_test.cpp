// Programs of the compiler's, changed by an author who knows only the grammar of their text. Those
// that the proofs accept are run, and must be right.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <map>
#include <set>
#include <sstream>

#include "ir/manifest.h"
#include "runtime/cpu/compile.h"
#include "tests/catch.h"
#include "tests/proofs/grammar.h"
#include "tests/proofs/grammar_judge.h"
#include "tests/proofs/grammar_subjects.h"
#include "tests/tier.h"

namespace maco::proofs {
namespace {

constexpr int kWorkers = 2;
constexpr int kRunSeconds = 60, kJudgeSeconds = 60;
constexpr size_t kJudgedAtOnce = 20, kCompiledAtOnce = 8;

uint64_t number_of(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

/// One mutant and its result.
struct Made {
  size_t subject = 0;
  uint64_t seed = 0;
  std::string word, code, why;  // `code`: the hash of its kernel
  std::string wrong;            // what happened when it ran
};

class Run {
 public:
  Run(const std::vector<GraphSubject>& subjects, std::vector<Made> made)
      : subjects_(subjects), mutator_(texts_of(subjects)), made_(std::move(made)) {}

  void run() {
    judge_all();
    run_accepted();
  }

  /// All that is wrong, for people.
  std::string wrong() const {
    std::string s;
    for (const Made& m : made_)
      if (!m.wrong.empty()) s += story(m);
    return s;
  }
  std::string story(const Made& m) const {
    const GraphSubject& subject = subjects_[m.subject];
    const Mutant mutant = mutator_.make(m.subject, m.seed);
    std::string s =
        fmt::format("MACO_GRAMMAR_ONLY={}:{} ({}, {}): {}\n", subject.name, m.seed, mutant.kind,
                    mutant.place, m.wrong.empty() ? m.word + " " + m.why : m.wrong);
    for (const std::string& change : mutant.changes) s += "  " + change + "\n";
    // What crashed may have said anything.
    for (char& c : s)
      if ((c < ' ' && c != '\n') || c == '\x7f') c = '?';
    return s;
  }
  std::string text(const Made& m) const { return mutator_.make(m.subject, m.seed).text; }
  const std::vector<Made>& made() const { return made_; }

  std::string table() const {
    std::map<std::string, size_t> words;
    std::map<std::string, std::map<std::string, size_t>> kinds;
    const std::vector<std::string> columns = {"made", "refused", "same", "right", "wrong"};
    for (const Made& m : made_) {
      ++words[m.word];
      const bool accepted = m.word == "accepted";
      const std::string column = !m.wrong.empty()              ? "wrong"
                                 : accepted                    ? "right"
                                 : m.word.starts_with("same ") ? "same"
                                                               : "refused";
      auto& row = kinds[mutator_.make(m.subject, m.seed).kind];
      ++row["made"];
      ++row[column];
    }
    std::string s = fmt::format("{} mutants of {} Programs, seed {}\n", made_.size(),
                                subjects_.size(), number_of("MACO_GRAMMAR_SEED", 1));
    for (const auto& [word, n] : words) s += fmt::format("  {:<24}{:>7}\n", word, n);
    s += fmt::format("{} kernels compiled\n{:<32}", kernels_, "kind of mutation");
    for (const std::string& c : columns) s += fmt::format("{:>9}", c);
    s += "\n";
    for (auto& [kind, row] : kinds) {
      s += fmt::format("{:<32}", kind);
      for (const std::string& c : columns) {
        const auto n = row.find(c);
        s += fmt::format("{:>9}", n == row.end() ? "." : fmt::to_string(n->second));
      }
      s += "\n";
    }
    return s;
  }

 private:
  static std::vector<std::string> texts_of(const std::vector<GraphSubject>& subjects) {
    std::vector<std::string> texts;
    for (const GraphSubject& s : subjects) texts.push_back(s.program);
    return texts;
  }
  Verdict verdict(const Made& m) const { return judge(subjects_[m.subject], text(m)); }

  /// Lines of: verdict, hash of the kernel, why.
  std::string judged(size_t first, size_t last) const {
    std::string said;
    for (size_t i = first; i < last; ++i) {
      Verdict v = verdict(made_[i]);
      std::replace(v.why.begin(), v.why.end(), '\n', ' ');
      said +=
          v.word + "\t" + (v.kernel.empty() ? "" : ir::code_hash(v.kernel)) + "\t" + v.why + "\n";
    }
    return said;
  }
  void judge_all() {
    const size_t chunks = (made_.size() + kJudgedAtOnce - 1) / kJudgedAtOnce;
    const auto said = in_workers(chunks, kWorkers, [&](size_t chunk) {
      const size_t first = chunk * kJudgedAtOnce;
      const size_t last = std::min(made_.size(), first + kJudgedAtOnce);
      const Ended all = in_child([&] { return judged(first, last); }, kJudgeSeconds);
      if (all.fault.empty() && !all.said.starts_with("exception")) return all.said;
      std::string lines;  // which of them?
      for (size_t i = first; i < last; ++i) {
        const Ended one = in_child([&] { return judged(i, i + 1); }, kJudgeSeconds);
        const bool threw = one.said.starts_with("exception");
        lines += one.fault.empty() && !threw
                     ? one.said
                     : "compiler\t\t" + (threw ? one.said : one.fault) + "\n";
      }
      return lines;
    });
    size_t i = 0;
    for (const std::string& chunk : said) {
      std::istringstream lines(chunk);
      for (std::string line; std::getline(lines, line); ++i) {
        Made& m = made_.at(i);
        const size_t tab = line.find('\t'), next = line.find('\t', tab + 1);
        m.word = line.substr(0, tab);
        m.code = line.substr(tab + 1, next - tab - 1);
        m.why = line.substr(next + 1);
        if (m.word == "compiler") m.wrong = "the compiler: " + m.why;
      }
    }
    REQUIRE(i == made_.size());
  }

  /// Accepted mutants, all of whose kernels are tried, one each.
  using Group = std::vector<size_t>;

  /// For each mutant of the groups, in their order: what went wrong, and a zero.
  std::string ran(const std::vector<Group>& groups, size_t first, size_t last) const {
    std::vector<std::string> kernels;
    for (size_t g = first; g < last; ++g) kernels.push_back(verdict(made_[groups[g][0]]).kernel);
    const runtime::CpuCompileOptions options = {.check_access = true, .quick = true};
    runtime::Status status;
    const auto library = runtime::compile_cpu_kernels(kernels, options, status);
    if (!library && last - first > 1) {  // which of them?
      std::string said;
      for (size_t g = first; g < last; ++g) said += ran(groups, g, g + 1);
      return said;
    }
    std::string said;
    for (size_t g = first; g < last; ++g)
      for (const size_t i : groups[g])
        said += (library ? ran(made_[i], library, g - first) : status.message) + '\0';
    return said;
  }
  std::string ran(const Made& m, const std::shared_ptr<runtime::CpuLibrary>& library,
                  size_t index) const {
    const Ended e = in_child(
        [&] {
          Verdict v = verdict(m);
          return proofs::run({&subjects_[m.subject], std::move(*v.program), v.kernel, m.seed},
                             library, index);
        },
        kRunSeconds);
    return e.fault.empty() ? e.said : e.fault;
  }
  void run_accepted() {
    std::map<std::string, Group> by_code;
    for (size_t i = 0; i < made_.size(); ++i)
      if (made_[i].word == "accepted") by_code[made_[i].code].push_back(i);
    std::vector<Group> groups;
    for (auto& [code, group] : by_code) groups.push_back(std::move(group));
    kernels_ = groups.size();
    const size_t batches = (groups.size() + kCompiledAtOnce - 1) / kCompiledAtOnce;
    const auto last_of = [&](size_t batch) {
      return std::min(groups.size(), (batch + 1) * kCompiledAtOnce);
    };
    const auto said = in_workers(batches, kWorkers, [&](size_t batch) {
      return ran(groups, batch * kCompiledAtOnce, last_of(batch));
    });
    for (size_t batch = 0; batch < batches; ++batch) {
      std::istringstream words(said[batch]);
      for (size_t g = batch * kCompiledAtOnce; g < last_of(batch); ++g)
        for (const size_t i : groups[g]) REQUIRE(std::getline(words, made_[i].wrong, '\0'));
    }
  }

  const std::vector<GraphSubject>& subjects_;
  const Mutator mutator_;
  std::vector<Made> made_;
  size_t kernels_ = 0;
};

}  // namespace

TEST_CASE("what the proofs accept of Programs by another author runs and is right") {
  const std::vector<GraphSubject> subjects = graph_subjects();
  CHECK(subjects.size() >= 60);
  CHECK(missing_of(subjects) == "");
  if (const char* only = std::getenv("MACO_GRAMMAR_ONLY")) {
    const std::string name = only;
    const size_t colon = name.find(':');
    REQUIRE(colon != std::string::npos);
    const auto subject = std::find_if(subjects.begin(), subjects.end(), [&](const auto& s) {
      return s.name == name.substr(0, colon);
    });
    REQUIRE(subject != subjects.end());
    Made m;
    m.subject = static_cast<size_t>(subject - subjects.begin());
    m.seed = std::strtoull(name.c_str() + colon + 1, nullptr, 10);
    Run run(subjects, {m});
    run.run();
    std::cout << run.text(m) << run.story(run.made()[0]);
    CHECK(run.made()[0].wrong == "");
    return;
  }
  const uint64_t seed = number_of("MACO_GRAMMAR_SEED", 1);
  const uint64_t most = test::wants_more() ? 3000 : 1000;
  std::vector<Made> made;
  for (uint64_t i = 0; i < number_of("MACO_GRAMMAR_MUTANTS", most); ++i)
    made.push_back({i % subjects.size(), seed * 1000000 + i, {}, {}, {}, {}});
  Run run(subjects, std::move(made));
  run.run();
  std::cout << run.table();
  const std::string wrong = run.wrong();
  std::cout << wrong << std::flush;
  CHECK(wrong.empty());
}

}  // namespace maco::proofs
