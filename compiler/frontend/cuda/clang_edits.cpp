#include "compiler/frontend/cuda/clang_edits.h"

#include <clang/Frontend/CompilerInstance.h>
#include <clang/Frontend/FrontendAction.h>
#include <clang/Lex/Lexer.h>
#include <clang/Tooling/Tooling.h>
#include <fmt/format.h>

namespace maco::frontend::cuda {

using namespace clang;  // NOLINT: its names are all over this file

namespace {

class Watcher : public PPCallbacks {
 public:
  Watcher(Preprocessor& pp, Preprocessed& seen)
      : pp_(pp), sources_(pp.getSourceManager()), seen_(seen) {}

  void InclusionDirective(SourceLocation hash, const Token&, StringRef name, bool angled,
                          CharSourceRange name_range, OptionalFileEntryRef file, StringRef,
                          StringRef, const clang::Module*, bool,
                          SrcMgr::CharacteristicKind kind) override {
    if (!is_users(sources_, hash)) return;
    if (!file) seen_.missing.emplace_back(hash, name.str());
    FileText::Include include;
    include.begin = sources_.getFileOffset(hash);
    include.end = line_end(name_range.getEnd());
    const bool system = SrcMgr::isSystem(kind) || !file;
    if (system) include.system = angled ? "<" + name.str() + ">" : "\"" + name.str() + "\"";
    auto& list = seen_.files[sources_.getFileID(hash)].includes;
    list.push_back(std::move(include));
    last_ = system ? FileID() : sources_.getFileID(hash);
    last_index_ = list.size() - 1;
  }
  // A part that the kernel doesn't reach may need the file.
  bool FileNotFound(StringRef) override { return true; }
  void FileChanged(SourceLocation loc, FileChangeReason reason, SrcMgr::CharacteristicKind,
                   FileID) override {
    if (reason != EnterFile) return;
    const FileID entered = sources_.getFileID(loc);
    const SourceLocation from = sources_.getIncludeLoc(entered);
    if (!from.isValid() || !is_users(sources_, loc)) return;
    if (const auto name = sources_.getNonBuiltinFilenameForID(entered))
      ++seen_.entered[name->str()];
    if (last_.isValid() && sources_.getFileID(from) == last_)
      seen_.files[last_].includes[last_index_].file = entered;
    last_ = FileID();
  }
  void SourceRangeSkipped(SourceRange range, SourceLocation) override {
    if (is_users(sources_, range.getBegin())) cut(range.getBegin(), range.getEnd());
  }
  void If(SourceLocation loc, SourceRange range, ConditionValueKind) override {
    directive(loc, range.getEnd());
  }
  void Elif(SourceLocation loc, SourceRange range, ConditionValueKind, SourceLocation) override {
    directive(loc, range.getEnd());
  }
  void Ifdef(SourceLocation loc, const Token& name, const MacroDefinition&) override {
    directive(loc, name.getLocation());
  }
  void Ifndef(SourceLocation loc, const Token& name, const MacroDefinition&) override {
    directive(loc, name.getLocation());
  }
  void Else(SourceLocation loc, SourceLocation) override { directive(loc, loc); }
  void Endif(SourceLocation loc, SourceLocation) override { directive(loc, loc); }
  void PragmaDirective(SourceLocation loc, PragmaIntroducerKind kind) override {
    if (kind != PIK_HashPragma || !is_users(sources_, loc)) return;
    // Directives for the unrolling of loops stay.
    const FileID file = sources_.getFileID(loc);
    const unsigned begin = sources_.getFileOffset(loc), end = line_end(loc);
    const StringRef line = sources_.getBufferData(file).substr(begin, end - begin);
    if (!line.contains("unroll")) seen_.files[file].cuts.push_back({begin, end});
  }
  void MacroDefined(const Token& name, const MacroDirective* directive) override {
    if (!is_users(sources_, name.getLocation())) return;
    const MacroInfo* info = directive->getMacroInfo();
    if (!info->isBuiltinMacro()) {
      const std::string text = name.getIdentifierInfo()->getName().str();
      seen_.macros.insert(text);
      keep(name.getLocation(), info->getDefinitionEndLoc(), text);
    }
  }
  void MacroExpands(const Token& token, const MacroDefinition& macro, SourceRange range,
                    const MacroArgs*) override {
    if (!is_users(sources_, range.getBegin())) return;
    const StringRef name = token.getIdentifierInfo()->getName();
    if (name == "__cluster_dims__" || name == "__block_size__")
      seen_.clusters.push_back(range.getBegin());
    const MacroInfo* info = macro.getMacroInfo();
    if (info && !info->isBuiltinMacro() && !is_users(sources_, info->getDefinitionLoc()))
      seen_.uses.push_back({range.getBegin(), info->getDefinitionLoc(), name.str()});
  }
  void MacroUndefined(const Token& name, const MacroDefinition&, const MacroDirective*) override {
    if (is_users(sources_, name.getLocation()))
      keep(name.getLocation(), name.getLocation(), name.getIdentifierInfo()->getName().str());
  }

 private:
  // The end of the line with `loc`, including lines joined by backslashes.
  unsigned line_end(SourceLocation loc) const {
    const StringRef text = sources_.getBufferData(sources_.getFileID(loc));
    size_t at = sources_.getFileOffset(loc);
    for (;;) {
      at = text.find('\n', at);
      if (at == StringRef::npos) return static_cast<unsigned>(text.size());
      size_t before = at;
      while (before > 0 && text[before - 1] == '\r') --before;
      if (before == 0 || text[before - 1] != '\\') return static_cast<unsigned>(at);
      ++at;
    }
  }
  unsigned line_begin(SourceLocation loc) const {
    const StringRef text = sources_.getBufferData(sources_.getFileID(loc));
    const size_t at = text.rfind('\n', sources_.getFileOffset(loc));
    return at == StringRef::npos ? 0 : static_cast<unsigned>(at + 1);
  }
  // A directive begins at the line's #.
  void directive(SourceLocation keyword, SourceLocation end) {
    if (!is_users(sources_, keyword)) return;
    if (sources_.getFileID(end) != sources_.getFileID(keyword)) end = keyword;
    seen_.files[sources_.getFileID(keyword)].cuts.push_back({line_begin(keyword), line_end(end)});
  }
  void cut(SourceLocation begin, SourceLocation end) {
    seen_.files[sources_.getFileID(begin)].cuts.push_back({line_begin(begin), line_end(end)});
  }
  void keep(SourceLocation at, SourceLocation end, const std::string& name) {
    unsigned begin = line_begin(at);
    const StringRef text = sources_.getBufferData(sources_.getFileID(at));
    while (begin >= 2 && text[begin - 2] == '\\') {
      const size_t before = text.rfind('\n', begin - 2);
      begin = before == StringRef::npos ? 0 : static_cast<unsigned>(before + 1);
    }
    seen_.files[sources_.getFileID(at)].macros.push_back({begin, line_end(end)});
    seen_.directives.push_back({at, name, text.slice(begin, line_end(end)).str()});
  }

  Preprocessor& pp_;
  SourceManager& sources_;
  Preprocessed& seen_;
  FileID last_;  // with the directive of the next file to enter
  size_t last_index_ = 0;
};

}  // namespace

std::unique_ptr<PPCallbacks> watch(Preprocessor& pp, Preprocessed& seen) {
  return std::make_unique<Watcher>(pp, seen);
}

/// Whether a macro of the user's makes the text at `loc`.
bool Editor::made_by_macro(SourceLocation loc) const {
  while (loc.isMacroID()) {
    const StringRef name = Lexer::getImmediateMacroName(loc, sources_, context_.getLangOpts());
    if (seen_.macros.count(name.str()) > 0) return true;
    if (sources_.isMacroArgExpansion(loc) && made_by_macro(sources_.getImmediateSpellingLoc(loc)))
      return true;
    loc = sources_.getImmediateExpansionRange(loc).getBegin();
  }
  return false;
}

SourceLocation Editor::in_file(SourceLocation loc, bool end) const {
  while (loc.isMacroID()) {
    if (sources_.isMacroArgExpansion(loc)) {
      loc = sources_.getImmediateSpellingLoc(loc);
    } else {
      const CharSourceRange range = sources_.getImmediateExpansionRange(loc);
      loc = end ? range.getEnd() : range.getBegin();
    }
  }
  return loc;
}

bool Editor::editable(SourceLocation loc) {
  if (!made_by_macro(loc)) return true;
  const CharSourceRange range = sources_.getExpansionRange(loc);
  const auto [file, begin] = sources_.getDecomposedLoc(range.getBegin());
  const auto entry = sources_.getFileEntryRefForID(file);
  const std::string path = entry ? entry->getName().str() : "";
  const auto entered = seen_.entered.find(path);
  if (!entry || (entered != seen_.entered.end() && entered->second > 1)) {
    reports_.error(range.getBegin(),
                   "a macro makes this in a file that is included more than once; write it out");
    return false;
  }
  const unsigned last = sources_.getFileOffset(range.getEnd()) +
                        Lexer::MeasureTokenLength(range.getEnd(), sources_, context_.getLangOpts());
  again_.expansions.insert(
      {.path = path,
       .begin = begin,
       .end = last,
       .text = expanded(range.getBegin(), sources_.getBufferData(file).slice(begin, last))});
  return false;
}

std::string Editor::expanded(SourceLocation at, StringRef text) const {
  std::map<std::string, std::string> defined;
  for (const Preprocessed::Macro& m : seen_.directives)
    if (sources_.isBeforeInTranslationUnit(m.at, at)) defined[m.name] = m.text;
  std::string source;
  for (const auto& [name, directive] : defined) source += directive + "\n";
  // Text elsewhere in the source gets other numbers.
  source += fmt::format("#define __COUNTER__ {}\n", 100000 + sources_.getFileOffset(at));
  const PresumedLoc place = sources_.getPresumedLoc(at);
  if (place.isValid())
    source += fmt::format("#line {} \"{}\"\n", place.getLine(), place.getFilename());
  source += text;
  constexpr StringRef pragma = "_Pragma", hidden = "maco_Pragma";
  for (size_t i = 0; (i = source.find(pragma, i)) != std::string::npos; i += hidden.size())
    source.replace(i, pragma.size(), hidden);
  struct Lexing : PreprocessorFrontendAction {
    explicit Lexing(std::string& o) : out(o) {}
    void ExecuteAction() override {
      Preprocessor& pp = getCompilerInstance().getPreprocessor();
      pp.EnterMainSourceFile();
      Token token;
      for (pp.Lex(token); token.isNot(tok::eof); pp.Lex(token)) {
        const std::string spelling = pp.getSpelling(token);
        out += (out.empty() ? "" : " ") + (spelling == "maco_Pragma" ? "_Pragma" : spelling);
      }
    }
    std::string& out;
  };
  std::string out;
  IgnoringDiagConsumer quiet;
  auto files = llvm::makeIntrusiveRefCnt<llvm::vfs::InMemoryFileSystem>();
  files->addFile("/maco.cpp", 0, llvm::MemoryBuffer::getMemBufferCopy(source));
  auto manager = llvm::makeIntrusiveRefCnt<FileManager>(FileSystemOptions(), files);
  tooling::ToolInvocation invocation(
      {"maco", "-fsyntax-only", "-x", "c++", "-std=c++17", "-undef", "-nostdinc", "/maco.cpp"},
      std::make_unique<Lexing>(out), manager.get());
  invocation.setDiagnosticConsumer(&quiet);
  invocation.run();
  return out;
}

void Editor::edit(Edits& edits, SourceLocation begin, SourceLocation end, std::string text) {
  if (!is_users(sources_, begin) || !editable(begin, end)) return;
  const SourceLocation from = in_file(begin, false), to = in_file(end, true);
  const unsigned last =
      sources_.getFileOffset(to) + Lexer::MeasureTokenLength(to, sources_, context_.getLangOpts());
  edits[sources_.getFileID(from)].insert({sources_.getFileOffset(from), last, std::move(text)});
}

void Editor::enclose(Edits& edits, SourceLocation begin, SourceLocation end, std::string before,
                     std::string behind) {
  if (!editable(begin, end)) return;
  const SourceLocation from = in_file(begin, false), to = in_file(end, true);
  const unsigned first = sources_.getFileOffset(from),
                 last = sources_.getFileOffset(to) +
                        Lexer::MeasureTokenLength(to, sources_, context_.getLangOpts());
  edits[sources_.getFileID(from)].insert({first, first, std::move(before)});
  edits[sources_.getFileID(to)].insert({last, last, std::move(behind)});
}

}  // namespace maco::frontend::cuda
