// Completions for shells and man pages, from the same options as --help. Include through options.h.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "tools/version.h"

namespace maco::tools {

/// An option as shells see it.
struct ShellOption {
  std::vector<std::string> names;  // "-o", "--output"
  std::string argument;            // "FILE"; empty: it takes none
  std::string description;
  std::vector<std::string> words;  // allowed values of the argument, if it has a list
};

inline std::vector<ShellOption> shell_options(const CLI::App& app) {
  std::vector<ShellOption> list;
  for (const CLI::Option* o : app.get_options()) {
    if (o->get_positional()) continue;
    ShellOption made;
    for (const std::string& name : o->get_snames()) made.names.push_back("-" + name);
    for (const std::string& name : o->get_lnames()) made.names.push_back("--" + name);
    made.argument = o->get_option_text();
    made.description = o->get_description();
    // CLI11 writes a list as "TEXT:{a,b}".
    const std::string type = o->get_type_name();
    const size_t open = type.find('{'), close = type.find('}', open);
    if (open != std::string::npos && close != std::string::npos) {
      std::string word;
      for (char c : type.substr(open + 1, close - open - 1) + ",") {
        if (c != ',') {
          word += c;
        } else {
          made.words.push_back(word);
          word.clear();
        }
      }
    }
    list.push_back(std::move(made));
  }
  return list;
}

inline std::string joined(const std::vector<std::string>& words, const char* between) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}
/// For a string in single quotes; a backslash is put before the characters of `also`.
inline std::string shell_quoted(const std::string& text, const std::string& also) {
  std::string out;
  for (char c : text) {
    if (c == '\'') {
      out += "'\\''";
      continue;
    }
    if (also.find(c) != std::string::npos) out += '\\';
    out += c;
  }
  return out;
}

inline std::string bash_completion(const CLI::App& app) {
  const std::string& name = app.get_name();
  std::string function = "_" + name, cases, all;
  for (char& c : function)
    if (c == '-') c = '_';
  for (const ShellOption& o : shell_options(app)) {
    all += joined(o.names, " ") + " ";
    if (o.words.empty()) continue;
    cases += "    " + joined(o.names, "|") + ") COMPREPLY=($(compgen -W '" + joined(o.words, " ") +
             "' -- \"$cur\")); return ;;\n";
  }
  return function +
         "() {\n  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n" +
         "  [[ $prev == = ]] && prev=${COMP_WORDS[COMP_CWORD-2]}\n  [[ $cur == = ]] && cur= && "
         "prev=${COMP_WORDS[COMP_CWORD-1]}\n  case $prev in\n" +
         cases + "  esac\n  if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W '" + all +
         "' -- \"$cur\"))\n  else COMPREPLY=($(compgen -f -- \"$cur\")); fi\n}\n" +
         "complete -o filenames -F " + function + " " + name + "\n";
}

inline std::string zsh_completion(const CLI::App& app) {
  std::string text = "#compdef " + app.get_name() + "\n_arguments \\\n";
  for (const ShellOption& o : shell_options(app))
    for (const std::string& name : o.names) {
      const bool is_long = name.rfind("--", 0) == 0;
      text += "  '" + name +
              (o.argument.empty() ? ""
               : is_long          ? "="
                                  : "+") +
              "[" + shell_quoted(o.description, "[]") + "]";
      if (!o.argument.empty())
        text += ":" + o.argument + ":" +
                (o.words.empty() ? "_files" : "(" + joined(o.words, " ") + ")");
      text += "' \\\n";
    }
  return text + "  '*:file:_files'\n";
}

inline std::string fish_completion(const CLI::App& app) {
  std::string text;
  for (const ShellOption& o : shell_options(app)) {
    text += "complete -c " + app.get_name();
    for (const std::string& name : o.names)
      text += name.rfind("--", 0) == 0 ? " -l " + name.substr(2) : " -s " + name.substr(1);
    text += " -d '" + shell_quoted(o.description, "") + "'";
    if (!o.words.empty())
      text += " -xa '" + joined(o.words, " ") + "'";
    else if (!o.argument.empty())
      text += " -r";
    text += "\n";
  }
  return text;
}

/// Text for a man page: its control characters are escaped.
inline std::string roff(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool first = i == 0 || text[i - 1] == '\n';
    if (first && (text[i] == '.' || text[i] == '\'')) out += "\\&";
    if (text[i] == '-') {
      out += "\\-";
    } else if (text[i] == '\\') {
      out += "\\e";
    } else {
      out += text[i];
    }
  }
  return out;
}

inline std::string man_page(const CLI::App& app, const std::string& footer) {
  const std::string& name = app.get_name();
  std::string upper;
  for (char c : name) upper += c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  const std::string about = app.get_description();
  const size_t end = about.find('\n');
  std::string positional;
  for (const CLI::Option* o : app.get_options())
    if (o->get_positional()) positional += " [\\fI" + o->get_name() + "\\fR]";
  std::string text = ".TH " + upper + " 1 \"\" \"maco " + version() + "\"\n.SH NAME\n" +
                     roff(name) + " \\- " + roff(about.substr(0, end)) + "\n.SH SYNOPSIS\n.B " +
                     roff(name) + "\n[\\fIOPTIONS\\fR]" + positional + "\n";
  if (end != std::string::npos)
    text += ".SH EXAMPLES\n.nf\n" + roff(about.substr(end + 1)) + "\n.fi\n";
  text += ".SH OPTIONS\n";
  for (const CLI::Option* o : app.get_options())
    if (o->get_positional())
      text += ".TP\n\\fI" + o->get_name() + "\\fR\n" + roff(o->get_description()) + "\n";
  for (const ShellOption& o : shell_options(app)) {
    text += ".TP\n\\fB" + roff(joined(o.names, ", ")) + "\\fR";
    if (!o.argument.empty()) text += " \\fI" + roff(o.argument) + "\\fR";
    text += "\n" + roff(o.description) + "\n";
  }
  return text + ".SH NOTES\n.nf\n" + roff(footer) + ".fi\n";
}

}  // namespace maco::tools
