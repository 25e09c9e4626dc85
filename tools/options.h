// Command-line options that several tools share. Include it once in a tool: CLI11 is a heavy
// header.
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "compiler/cost/machine.h"
#include "compiler/ops/op.h"
#include "compiler/passes/fuse/rules.h"
#include "compiler/pipeline/options.h"
#include "tools/driver.h"
#include "tools/environment.h"
#include "tools/pass_output.h"
#include "tools/shell.h"
#include "tools/version.h"

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

/// "2 or 3 operands", "1 or more results".
inline std::string count_text(int least, int most, const std::string& what) {
  const std::string many = what + (most == 1 ? "" : "s");
  if (most < 0) return std::to_string(least) + " or more " + many;
  if (most == 0) return "no " + many;
  if (least == most) return std::to_string(least) + " " + many;
  return std::to_string(least) + (most == least + 1 ? " or " : " to ") + std::to_string(most) +
         " " + many;
}
/// "transpose_b = false", "activation = none, relu, silu or gelu", "head_dim (required)".
inline std::string attr_text(const ops::OpDef& op, const ops::AttrSpec& attr) {
  std::string text = attr.name;
  if (attr.required) text += " (required)";
  if (!attr.default_text.empty()) text += " = " + attr.default_text;
  const std::vector<std::string> words = ops::words_of(op, attr);
  for (size_t i = 0; i < words.size(); ++i)
    text += (i == 0 ? " (" : i + 1 < words.size() ? ", " : " or ") + words[i];
  return text + (words.empty() ? "" : ")");
}
/// Prints all ops with operands, results and attributes.
inline void list_ops() {
  for (const ops::OpDef& d : ops::all_ops()) {
    if (d.internal) continue;
    std::printf("%-16s %s\n%17s%s", d.kind.c_str(), d.summary.c_str(), "",
                count_text(d.min_in, d.max_in, "operand").c_str());
    if (d.min_out != 1 || d.max_out != 1)
      std::printf(", %s", count_text(d.min_out, d.max_out, "result").c_str());
    for (const ops::AttrSpec& a : d.attrs)
      if (!a.internal) std::printf("; %s", attr_text(d, a).c_str());
    std::printf("\n");
  }
}
inline void list_passes() {
  for (const passes::Pass& p : passes::registry()) {
    std::printf("%-20s %s\n", p.name.c_str(), p.summary.c_str());
    if (p.name != "fuse") continue;
    for (const passes::FuseRule& rule : passes::fuse_rules())
      std::printf("  %-18s %s\n", rule.name.c_str(), rule.summary.c_str());
  }
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
/// Prints all boards; each figure has its source.
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
    figure("by one SM", m.sm_memory_rate, 1e9, "GB/s");
    figure("without loader", m.sm_plain_rate, 1e9, "GB/s");
    figure("one SM to peers", m.sm_link_rate, 1e9, "GB/s");
    figure("hand-over", m.hand_over, 1, "us");
    figure("with packets", m.packet_hand_over, 1, "us");
    figure("hop to a peer", m.hop, 1, "us");
    figure("any task", m.task, 1, "us");
    figure("f32 reached", m.f32_reached, 1, "of the rate");
    figure("NCCL", m.nccl, 1, "us");
  }
}

/// `--help` in 100 columns. An option's argument stands behind its name if it was given by
/// option_text. Allowed values aren't listed: a wrong value's message lists them.
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

/// The text behind the options in every --help.
inline std::string help_footer() {
  return "\nExit status: 0 done; 1 the graph is wrong or can't be compiled; 2 the command line or "
         "a "
         "file is;\n  3 a result failed its check; 4 a run failed or was stopped; 70 a fault of "
         "MACO's.\n" +
         environment_text();
}

/// Accepts one of these words. For another word it says which one is similar, or lists them all if
/// they are few or none is similar. `others`: other projects' names for them.
inline CLI::Validator one_of(const std::vector<std::string>& words,
                             const std::map<std::string, std::string>& others = {}) {
  return CLI::Validator(
      [words, others](std::string& text) -> std::string {
        if (std::find(words.begin(), words.end(), text) != words.end()) return {};
        const auto other = others.find(text);
        const std::string near = other == others.end() ? ir::did_you_mean(text, words)
                                                       : "; did you mean '" + other->second + "'?";
        const bool few = words.size() <= 5 || near.empty();
        return "'" + text + "' is " + (few ? "none of " + joined(words, ", ") : "unknown") + near;
      },
      "{" + joined(words, ",") + "}");
}

/// Accepts a board's name, or a file that describes one.
inline CLI::Validator a_board() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        std::string why;
        if (cost::find_board(text, why)) return {};
        return why.empty() ? one_of(board_names())(text) : "board file '" + text + "' " + why;
      },
      "BOARD");
}

/// For counts: CLI11's own validator would print the largest double.
inline CLI::Validator positive_number() {
  return CLI::Validator(
      [](std::string& text) {
        int64_t value = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        const bool good = error == std::errc() && end == text.data() + text.size() && value > 0;
        return good ? std::string() : "'" + text + "' is no whole number of at least 1";
      },
      "NUMBER");
}

/// Options of every tool: messages, lists, version.
struct CommonOptions {
  std::string color = "auto";
  bool quiet = false, verbose = false;
  int max_errors = 20, max_warnings = 20;
  bool ops = false, passes = false, targets = false, boards = false, man = false;
  std::string completion;        // a shell
  const CLI::App* of = nullptr;  // the tool with these options

  void add(CLI::App& app) {
    of = &app;
    app.formatter(std::make_shared<HelpFormatter>());
    app.add_option("--color", color, "auto, always or never")
        ->option_text("WHEN")
        ->check(one_of({"auto", "always", "never"}));
    app.add_flag("-q,--quiet", quiet, "errors only");
    app.add_flag("-v,--verbose", verbose, "say what is being done");
    app.add_option("--max-errors", max_errors, "errors of a graph to show (20); 0: all")
        ->option_text("N")
        ->check(CLI::Range(0, 1000000));
    app.add_option("--max-warnings", max_warnings, "warnings of a kind to show (20); 0: all")
        ->option_text("N")
        ->check(CLI::Range(0, 1000000));
    app.add_flag("--list-ops", ops, "list the ops and exit");
    app.add_flag("--list-passes", passes, "list the passes and exit");
    app.add_flag("--list-targets", targets, "list the targets and exit");
    app.add_flag("--list-boards", boards, "list the boards, with the source of each figure");
    app.add_option("--completion", completion, "print completions for bash, zsh or fish")
        ->option_text("SHELL")
        ->check(one_of({"bash", "fish", "zsh"}));
    app.add_flag("--man", man, "print the man page");
    app.set_version_flag("--version", version_text,
                         "print the version, and what was found on this machine");
    app.set_help_flag("-h,--help", "print this and exit");
  }
  /// Returns the exit status if there is nothing else to do, because a list, completions or a man
  /// page was printed, or the environment is wrong, which is reported; else -1.
  int ended() const {
    if (ops) list_ops();
    if (passes) list_passes();
    if (targets) list_targets();
    if (boards) list_boards();
    const auto print = [](const std::string& text) { std::fputs(text.c_str(), stdout); };
    if (completion == "bash") print(bash_completion(*of));
    if (completion == "zsh") print(zsh_completion(*of));
    if (completion == "fish") print(fish_completion(*of));
    if (man) print(man_page(*of, help_footer()));
    if (ops || passes || targets || boards || man || !completion.empty()) return kOk;
    const runtime::Status environment = check_environment();
    if (!environment) console().error(environment.message);
    return environment ? -1 : kBadUsage;
  }
  Console console() const { return {use_color(color), quiet, verbose, max_errors, max_warnings}; }
};

/// Options that shape a kernel.
struct PipelineFlags {
  bool no_load_ahead = false, no_prune = false, no_packets = false;
  std::vector<std::string> no_fuse;  // rules of `fuse`, or "all"

  void add(CLI::App& app, passes::PipelineOptions& p) {
    auto* target = app.add_option("--target", p.target, "what code may use (--list-targets)")
                       ->option_text("NAME")
                       ->check(one_of(target_names()));
    app.add_option("--board", p.board,
                   "what it runs on: a name (--list-boards), or a file that describes it; implies "
                   "its target")
        ->option_text("NAME or FILE")
        ->check(a_board())
        ->each([&p, target](const std::string& board) {
          if (target->count() == 0) p.target = cost::find_board(board)->target;
        });
    app.add_option("--sms", p.sms, "SMs that a rank may use, if not all of the board's")
        ->option_text("N")
        ->check(positive_number());
    app.add_option("--algorithms", p.algorithms,
                   "collectives that ops may name, besides the graph's own")
        ->option_text("FILE,...")
        ->delimiter(',');
    app.add_option("-I", p.include_folders, "where sources of ops 'cuda' find headers")
        ->option_text("FOLDER")
        ->allow_extra_args(false);
    app.add_option("-D", p.defines, "a macro for sources of ops 'cuda'")
        ->option_text("NAME[=VALUE]")
        ->allow_extra_args(false);
    app.add_option("--variant", p.variant, "only this one, from 1, of the variants of 'sm_roles'")
        ->option_text("N")
        ->check(positive_number());
    app.add_flag("--no-load-ahead", no_load_ahead,
                 "don't read params before a task's waits are over");
    std::vector<std::string> rules = passes::fuse_rule_names();
    rules.emplace_back(passes::kAllRules);
    app.add_flag("--no-fuse{all}", no_fuse,
                 "leave ops apart that would be joined; --no-fuse=NAME,...: by these rules "
                 "(--list-passes)")
        ->delimiter(',')
        ->check(one_of(rules));
    app.add_flag("--no-prune", no_prune, "keep waits that others imply");
    app.add_flag("--no-packets", no_packets, "hand small temporaries over by events alone");
  }
  /// The first of these options on the command line, or "".
  std::string given(const CLI::App& app) const {
    for (const char* option : {"--target", "--board", "--sms", "--algorithms", "-I", "-D",
                               "--no-load-ahead", "--no-fuse", "--no-prune", "--no-packets"})
      if (app.count(option) > 0) return option;
    return "";
  }
  void apply(passes::PipelineOptions& p) const {
    p.load_ahead = !no_load_ahead;
    p.fuse = std::find(no_fuse.begin(), no_fuse.end(), passes::kAllRules) == no_fuse.end();
    if (p.fuse) p.no_fuse = no_fuse;
    p.prune = !no_prune;
    p.packets = !no_packets;
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
        ->check(one_of(names));
    app.add_flag("--print-changed", p.print_changed, "print what each pass changed, line by line");
    app.add_option("--dump-dir", output.dump_dir, "write the IR after each pass into this folder")
        ->option_text("FOLDER");
    app.add_flag("--reparse", p.reparse, "print and parse the IR between all passes");
    app.add_flag("--time-passes", output.time_passes, "say how long each pass took");
  }
};

/// For options that take an unsigned 64-bit number: CLI11 would take "-1" for the largest one.
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

/// The message for arguments that no option takes: "unknown option '--smss'; did you mean
/// '--sms'?".
inline std::string unknown_arguments(const CLI::App& app) {
  std::vector<std::string> options;
  for (const CLI::Option* o : app.get_options())
    for (const std::string& name : o->get_lnames()) options.push_back("--" + name);
  std::string text;
  for (const std::string& argument : app.remaining()) {
    const std::string name = argument.substr(0, argument.find('='));
    if (!text.empty()) text += "; ";
    text += name.rfind('-', 0) == 0
                ? "unknown option '" + name + "'" + ir::did_you_mean(name, options)
                : "unexpected argument '" + argument + "'";
  }
  return text;
}

/// Parses the command line. Returns the exit status if the tool is to end now (--help, --version, a
/// wrong command line, which it reports), else -1.
inline int parse(CLI::App& app, int argc, char** argv) {
  app.footer(help_footer());
  std::string wrong;
  try {
    app.parse(argc, argv);
    return -1;
  } catch (const CLI::ExtrasError&) {
    wrong = unknown_arguments(app);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e) == 0 ? kOk : kBadUsage;
    wrong = e.what();
  }
  const Console console{use_color("auto")};
  console.error(wrong);
  console.say("try " + app.get_name() + " --help");
  return kBadUsage;
}

}  // namespace maco::tools
