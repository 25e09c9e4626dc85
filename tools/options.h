// Command-line options that several tools take. Include once a tool: CLI11 is a heavy header.
#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdio>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "compiler/cost/machine.h"
#include "compiler/ops/op.h"
#include "compiler/passes/options.h"
#include "tools/driver.h"
#include "tools/pass_output.h"

namespace maco::tools {

inline std::vector<std::string> target_names() {
  std::vector<std::string> names;
  for (const cost::Architecture& a : cost::all_architectures()) names.push_back(a.target);
  return names;
}
inline std::vector<std::string> board_names() {
  std::vector<std::string> names;
  for (const cost::Board& b : cost::all_boards()) names.push_back(b.board);
  return names;
}

inline void list_ops() {
  for (const ops::OpDef& d : ops::all_ops())
    if (!d.internal) std::printf("%-16s %s\n", d.kind.c_str(), d.summary.c_str());
}
inline void list_passes() {
  for (const passes::Pass& p : passes::registry())
    std::printf("%-20s %s\n", p.name.c_str(), p.summary.c_str());
}
inline void list_targets() {
  for (const cost::Architecture& a : cost::all_architectures()) {
    std::string boards;
    for (const cost::Board& b : cost::all_boards())
      if (b.of_target == a.target) boards += (boards.empty() ? "" : ", ") + b.board;
    std::printf("%-8s boards: %s%s\n", a.target.c_str(), boards.c_str(),
                a.target == "sm_90a" ? " (the default target)" : "");
  }
}
/// Each figure with its source.
inline void list_boards() {
  const auto figure = [](const char* what, const cost::Figure& f, double unit, const char* name) {
    std::printf("  %-16s %6.4g %s (%s)\n", what, f.value / unit, name, f.source.c_str());
  };
  for (const cost::Machine& m : cost::all_machines()) {
    std::printf("%-13s %s, target %s%s\n", m.board.c_str(), m.description.c_str(), m.target.c_str(),
                m.default_board == m.board ? " (its default)" : "");
    std::printf("  %-16s %6d (%s)\n", "SMs", m.sms, m.sms_source.c_str());
    figure("matrix products", m.flops, 1e12, "TFLOP/s");
    figure("f32", m.f32_flops, 1e12, "TFLOP/s");
    figure("device memory", m.memory_rate, 1e9, "GB/s");
    figure("to peers", m.link_rate, 1e9, "GB/s");
  }
}

/// `--help` in 100 columns. What an option takes stands behind its name if it was given by
/// option_text; the values that are allowed are not listed: who gives another is told them.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool positional) const override {
    constexpr size_t kText = 27, kWidth = 100;
    std::string out, line = "  " + make_option_name(option, positional);
    if (!option->get_option_text().empty()) line += " " + option->get_option_text();
    const auto next_line = [&] {
      out += line + "\n";
      line.clear();
    };
    if (line.size() + 2 > kText) next_line();
    std::istringstream words(option->get_description());
    for (std::string word; words >> word;) {
      if (line.size() + 1 + word.size() > kWidth) next_line();
      if (line.size() < kText)
        line.resize(kText, ' ');
      else
        line += ' ';
      line += word;
    }
    next_line();
    return out;
  }
};

/// Options of every tool: messages, lists, version.
struct CommonOptions {
  std::string color = "auto";
  bool quiet = false, verbose = false;
  bool ops = false, passes = false, targets = false, boards = false;

  void add(CLI::App& app) {
    app.formatter(std::make_shared<HelpFormatter>());
    app.add_option("--color", color, "auto, always or never")
        ->option_text("WHEN")
        ->check(CLI::IsMember({"auto", "always", "never"}));
    app.add_flag("-q,--quiet", quiet, "errors only");
    app.add_flag("-v,--verbose", verbose, "say what is being done");
    app.add_flag("--list-ops", ops, "list the ops and exit");
    app.add_flag("--list-passes", passes, "list the passes and exit");
    app.add_flag("--list-targets", targets, "list the targets and exit");
    app.add_flag("--list-boards", boards, "list the boards, with the source of each figure");
    app.set_version_flag("--version", std::string("maco ") + kVersion,
                         "print the version and exit");
    app.set_help_flag("-h,--help", "print this and exit");
  }
  /// True if a list was printed: there is nothing else to do.
  bool listed() const {
    if (ops) list_ops();
    if (passes) list_passes();
    if (targets) list_targets();
    if (boards) list_boards();
    return ops || passes || targets || boards;
  }
  Console console() const { return {use_color(color), quiet, verbose}; }
};

/// Options that shape a kernel.
struct PipelineFlags {
  bool no_load_ahead = false, no_fuse = false, no_prune = false;

  void add(CLI::App& app, passes::PipelineOptions& p) {
    auto* target = app.add_option("--target", p.target, "what code may use (--list-targets)")
                       ->option_text("NAME")
                       ->check(CLI::IsMember(target_names()));
    app.add_option("--board", p.board, "what it runs on (--list-boards); implies its target")
        ->option_text("NAME")
        ->check(CLI::IsMember(board_names()))
        ->each([&p, target](const std::string& board) {
          if (target->count() == 0) p.target = cost::find_board(board)->target;
        });
    app.add_option("--sms", p.sms, "SMs that a rank may use, if not all of the board's")
        ->option_text("N")
        ->check(CLI::PositiveNumber);
    app.add_flag("--no-load-ahead", no_load_ahead,
                 "don't read params before a task's waits are over");
    app.add_flag("--no-fuse", no_fuse, "leave elementwise ops apart");
    app.add_flag("--no-prune", no_prune, "keep waits that others imply");
  }
  /// The first of them that the command line has, or "".
  std::string given(const CLI::App& app) const {
    for (const char* option :
         {"--target", "--board", "--sms", "--no-load-ahead", "--no-fuse", "--no-prune"})
      if (app.count(option) > 0) return option;
    return "";
  }
  void apply(passes::PipelineOptions& p) const {
    p.load_ahead = !no_load_ahead;
    p.fuse = !no_fuse;
    p.prune = !no_prune;
  }
};

inline std::vector<std::string> pass_names() {
  std::vector<std::string> names;
  for (const passes::Pass& p : passes::registry()) names.push_back(p.name);
  return names;
}

/// Options that show what passes do.
struct PassFlags {
  PassOutput output;

  void add(CLI::App& app, passes::PipelineOptions& p) {
    std::vector<std::string> names = pass_names();
    names.emplace_back("all");
    app.add_option("--print-after", p.print_after, "print the IR after these passes, or all")
        ->option_text("PASS,...")
        ->delimiter(',')
        ->check(CLI::IsMember(names));
    app.add_flag("--print-changed", p.print_changed,
                 "print the IR after each pass that changed it");
    app.add_option("--dump-dir", output.dump_dir, "write the IR after each pass into this folder")
        ->option_text("FOLDER");
    app.add_flag("--reparse", p.reparse, "print and parse the IR between all passes");
    app.add_flag("--time-passes", output.time_passes, "say how long each pass took");
  }
};

/// For options that take a number of 64 bits without a sign: CLI11 would take "-1" for the largest.
inline CLI::Validator unsigned_number() {
  return CLI::Validator(
      [](std::string& text) {
        uint64_t value = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        return error != std::errc() || end != text.data() + text.size()
                   ? "'" + text + "' is no number from 0 to 2^64 - 1"
                   : std::string();
      },
      "NUMBER");
}

/// Parses; returns the exit status if the tool is to end now (--help, --version, a wrong command
/// line), else -1.
inline int parse(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? kOk : kBadUsage;
  }
  return -1;
}

}  // namespace maco::tools
