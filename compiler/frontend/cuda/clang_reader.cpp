// Reads a CUDA kernel with Clang: finds it and what it uses, leaves the rest of the file out, and
// makes functions of a task of it. Lines and columns stay where they are, so that what compilers
// say of the texts can be found in the user's file.
#include <clang/AST/RecursiveASTVisitor.h>
#include <clang/Frontend/CompilerInstance.h>
#include <clang/Frontend/FrontendAction.h>
#include <clang/Lex/Lexer.h>
#include <clang/Lex/PPCallbacks.h>
#include <clang/Lex/Preprocessor.h>
#include <clang/Tooling/Tooling.h>
#include <fmt/format.h>
#include <llvm/Support/ConvertUTF.h>
#include <pthread.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "compiler/frontend/cuda/facts.h"
#include "ir/diagnostics.h"

namespace maco::frontend::cuda {

using namespace clang;  // NOLINT: its names are all over this file

namespace {

// Behind the user's text: makes an instance of a template, and says which function is meant.
constexpr const char* kMeant = "maco_kernel_that_is_meant";

/// What the preprocessor saw of one file each time it was entered. Offsets are into that file.
struct FileText {
  struct Cut {
    unsigned begin = 0, end = 0;
  };
  struct Include {
    unsigned begin = 0, end = 0;  // the directive
    FileID file;                  // entered, of the user's; invalid otherwise
    std::string system;           // "<cuda_fp16.h>", of the system's
  };
  std::vector<Cut> cuts;  // conditions, and what they leave out
  std::vector<Include> includes;
  std::vector<Cut> macros;  // #define and #undef
};

struct Preprocessed {
  /// A directive of the user's: #define with all its text, or #undef.
  struct Macro {
    SourceLocation at;
    std::string name, text;
  };
  std::map<FileID, FileText> files;
  std::set<std::string> macros;          // that the user's files define
  std::vector<Macro> directives;         // in their order
  std::map<std::string, int> entered;    // how often a file is included, by its name
  std::vector<SourceLocation> clusters;  // __cluster_dims__
};

/// A name as others may write it: without namespaces that have none, and inline ones if wanted.
std::string written_name(const NamedDecl& decl, bool inline_too = true) {
  std::string name = decl.getNameAsString();
  for (const DeclContext* c = decl.getDeclContext(); c; c = c->getParent()) {
    const auto* outer = dyn_cast<NamedDecl>(c);
    const auto* ns = dyn_cast<NamespaceDecl>(c);
    if (!outer || (ns && (ns->isAnonymousNamespace() || (ns->isInline() && !inline_too)))) continue;
    name = outer->getNameAsString() + "::" + name;
  }
  return name;
}

class Watcher : public PPCallbacks {
 public:
  Watcher(Preprocessor& pp, Preprocessed& seen)
      : pp_(pp), sources_(pp.getSourceManager()), seen_(seen) {}

  void InclusionDirective(SourceLocation hash, const Token&, StringRef name, bool angled,
                          CharSourceRange name_range, OptionalFileEntryRef file, StringRef,
                          StringRef, const clang::Module*, bool,
                          SrcMgr::CharacteristicKind kind) override {
    if (!is_users(sources_, hash)) return;
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
    // What directs the unrolling of loops stays.
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
  void MacroExpands(const Token& name, const MacroDefinition&, SourceRange range,
                    const MacroArgs*) override {
    if (name.getIdentifierInfo()->getName() == "__cluster_dims__" &&
        is_users(sources_, range.getBegin()))
      seen_.clusters.push_back(range.getBegin());
  }
  void MacroUndefined(const Token& name, const MacroDefinition&, const MacroDirective*) override {
    if (is_users(sources_, name.getLocation()))
      keep(name.getLocation(), name.getLocation(), name.getIdentifierInfo()->getName().str());
  }

 private:
  // The end of the line that `loc` is on, with lines that a backslash joins.
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
  // From the # of the line.
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
  FileID last_;  // with the directive whose file is entered next
  size_t last_index_ = 0;
};

/// A declaration of the user's outside of functions and classes, or several that share their text.
struct Item {
  FileID file;
  unsigned begin = 0, end = 0;  // with what stands before it and its semicolon
  unsigned first = 0;           // of its own words
  std::vector<Decl*> decls;
  bool needed = false;
};

/// A change of the text.
struct Edit {
  unsigned begin = 0, end = 0;
  std::string text;
  // What is put in stands before what is replaced at the same place.
  bool operator<(const Edit& other) const {
    if (begin != other.begin || end != other.end)
      return begin != other.begin ? begin < other.begin : end < other.end;
    return begin == end && text < other.text;
  }
};

/// What has to be read otherwise before a kernel's text can be written.
struct Again {
  struct Expansion {
    std::string path;
    unsigned begin = 0, end = 0;  // of what a macro of the user's makes
    std::string text;             // what it makes
    bool operator<(const Expansion& other) const {
      return std::tie(path, begin) < std::tie(other.path, other.begin);
    }
  };
  std::set<Expansion> expansions;
  bool brackets = false;  // the kernel is a template whose parameters all have defaults
  bool any() const { return brackets || !expansions.empty(); }
};

class Extractor {
 public:
  Extractor(Kernel& kernel, const Preprocessed& seen, const KernelRequest& request,
            KernelReply& reply, Reports& reports, Again& again)
      : context_(kernel.context),
        sources_(kernel.context.getSourceManager()),
        kernel_(kernel),
        seen_(seen),
        request_(request),
        reply_(reply),
        reports_(reports),
        again_(again) {}

  /// Which items the kernel needs, and which functions it may call.
  void find_needed() {
    collect(context_.getTranslationUnitDecl());
    need(kernel_.function);
    // What the graph's arguments of a template name.
    for (Decl* d : context_.getTranslationUnitDecl()->decls())
      if (auto* var = dyn_cast<VarDecl>(d); var && var->getName() == kMeant) work_.push_back(var);
    for (const SourceLocation at : seen_.clusters)
      for (const Item& item : items_)
        if (item.needed && item.file == file_of(at) && offset(at) >= item.begin &&
            offset(at) < item.end)
          reports_.error(at, "clusters of blocks can't be had: a task's blocks are in none");
    while (!work_.empty()) {
      Decl* decl = work_.back();
      work_.pop_back();
      Needs(*this).TraverseDecl(decl);
    }
    kernel_.reachable.assign(functions_.begin(), functions_.end());
    const auto first =
        std::find(kernel_.reachable.begin(), kernel_.reachable.end(), kernel_.function);
    if (first != kernel_.reachable.end()) std::rotate(kernel_.reachable.begin(), first, first + 1);
  }

  void write() {
    leaving_edits();
    shared_edits();
    function_edits();
    lambda_edits();
    host_edits();
    linkage_edits();
    if (reports_.any() || again_.any()) return;
    const std::string includes = system_includes();
    const std::string undefine = undefined();
    const std::string groups = cooperative_groups();
    reply_.original = "template <class T> using maco_type = T;\n" + groups +
                      clean(text(sources_.getMainFileID(), original_)) + entry(true) + undefine;
    reply_.device = includes + declarations() + groups + early_places_ +
                    clean(text(sources_.getMainFileID(), device_)) + late_places_ + entry(false) +
                    undefine;
  }

 private:
  // ---- what is needed --------------------------------------------------------------------------

  /// Marks what a declaration refers to.
  class Needs : public RecursiveASTVisitor<Needs> {
   public:
    explicit Needs(Extractor& extractor) : e_(extractor) {}
    bool shouldVisitTemplateInstantiations() const { return true; }
    bool shouldVisitImplicitCode() const { return true; }
    bool TraverseDecl(Decl* d) {
      return (d && is_hosts(*d)) || RecursiveASTVisitor::TraverseDecl(d);
    }
    bool VisitDeclRefExpr(DeclRefExpr* ref) {
      e_.need(ref->getDecl());
      e_.need(ref->getFoundDecl());
      return true;
    }
    bool VisitMemberExpr(MemberExpr* ref) {
      e_.need(ref->getMemberDecl());
      return true;
    }
    bool VisitOverloadExpr(OverloadExpr* ref) {
      for (NamedDecl* d : ref->decls()) e_.need(d);
      return true;
    }
    bool VisitCXXConstructExpr(CXXConstructExpr* expr) {
      e_.need(expr->getConstructor());
      return true;
    }
    bool VisitVarDecl(VarDecl* var) {
      e_.need(var->getType());
      return true;
    }
    bool VisitExpr(Expr* expr) {
      e_.need(expr->getType());
      return true;
    }
    bool VisitTypeLoc(TypeLoc type) {
      e_.need(type.getType());
      return true;
    }
    bool VisitCXXBaseSpecifier(CXXBaseSpecifier* base) {
      e_.need(base->getType());
      return true;
    }
    bool TraverseNestedNameSpecifierLoc(NestedNameSpecifierLoc loc) {
      const NestedNameSpecifier name = loc.getNestedNameSpecifier();
      if (name.getKind() == NestedNameSpecifier::Kind::Namespace)
        e_.need(name.getAsNamespaceAndPrefix().Namespace);
      return RecursiveASTVisitor::TraverseNestedNameSpecifierLoc(loc);
    }

   private:
    Extractor& e_;
  };
  friend class Needs;

  void need(QualType type) {
    if (type.isNull() || !types_.insert(type.getTypePtr()).second) return;
    const clang::Type* t = type.getTypePtr();
    if (const auto* alias = t->getAs<TypedefType>()) need(alias->getDecl());
    if (const auto* spec = t->getAs<TemplateSpecializationType>()) {
      if (const TemplateDecl* d = spec->getTemplateName().getAsTemplateDecl()) need(d);
      for (const TemplateArgument& arg : spec->template_arguments()) need(arg);
    }
    if (const TagDecl* tag = t->getAsTagDecl()) {
      need(tag);
      if (const auto* spec = dyn_cast<ClassTemplateSpecializationDecl>(tag))
        for (const TemplateArgument& arg : spec->getTemplateArgs().asArray()) need(arg);
    }
    if (!t->getPointeeType().isNull()) need(t->getPointeeType());
    if (const auto* array = context_.getAsArrayType(type)) need(array->getElementType());
    if (const auto* function = t->getAs<clang::FunctionProtoType>()) {
      need(function->getReturnType());
      for (const QualType p : function->param_types()) need(p);
    }
  }
  void need(const TemplateArgument& arg) {
    if (arg.getKind() == TemplateArgument::Type) need(arg.getAsType());
    if (arg.getKind() == TemplateArgument::Declaration) need(arg.getAsDecl());
    if (arg.getKind() == TemplateArgument::Template)
      if (const TemplateDecl* d = arg.getAsTemplate().getAsTemplateDecl()) need(d);
    if (arg.getKind() == TemplateArgument::Pack)
      for (const TemplateArgument& a : arg.pack_elements()) need(a);
  }
  void need(const Decl* decl) {
    if (!decl || !decls_.insert(decl).second) return;
    // Sets of overloads name functions of the host, too.
    if (is_users(sources_, decl->getLocation()) && runs_on_host(*decl)) return;
    if (decl->isInStdNamespace()) uses_std_ = true;
    if (const auto* f = dyn_cast<FunctionDecl>(decl)) {
      const FunctionDecl* body = nullptr;
      if (f->hasBody(body) && functions_.insert(body).second)
        work_.push_back(const_cast<FunctionDecl*>(body));  // NOLINT: visitors take no const
      if (const TemplateArgumentList* args = f->getTemplateSpecializationArgs())
        for (const TemplateArgument& arg : args->asArray()) need(arg);
      if (const auto* method = dyn_cast<CXXMethodDecl>(f)) need(method->getParent());
      // A lambda that becomes a pointer to a function.
      if (const auto* conversion = dyn_cast<CXXConversionDecl>(f);
          conversion && conversion->getParent()->isLambda())
        need(conversion->getParent()->getLambdaCallOperator());
    }
    if (const auto* record = dyn_cast<CXXRecordDecl>(decl))
      if (const CXXRecordDecl* definition = record->getDefinition())
        if (definition->hasUserDeclaredDestructor()) need(definition->getDestructor());
    for (const Decl* redecl : decl->redecls()) mark(redecl->getLocation());
    mark(decl->getLocation());
  }
  void mark(SourceLocation loc) {
    if (!loc.isValid() || !is_users(sources_, loc)) return;
    const auto [file, offset] = sources_.getDecomposedExpansionLoc(loc);
    for (Item& item : items_)
      if (!item.needed && item.file == file && offset >= item.begin && offset < item.end) {
        item.needed = true;
        for (Decl* d : item.decls) {
          decls_.insert(d);
          // Bodies of functions count where they are called: instances of templates differ.
          work_.push_back(d);
        }
      }
  }

  unsigned offset(SourceLocation loc) const {
    return sources_.getDecomposedExpansionLoc(loc).second;
  }
  FileID file_of(SourceLocation loc) const { return sources_.getDecomposedExpansionLoc(loc).first; }
  // Behind the token at `loc`, with a semicolon that follows.
  unsigned end_of(SourceLocation loc) const {
    SourceLocation end = sources_.getExpansionRange(loc).getEnd();
    end = Lexer::getLocForEndOfToken(end, 0, sources_, context_.getLangOpts());
    const auto next = Lexer::findNextToken(sources_.getExpansionRange(loc).getEnd(), sources_,
                                           context_.getLangOpts());
    if (next && next->is(tok::semi) && file_of(next->getLocation()) == file_of(loc))
      end = next->getEndLoc();
    return offset(end);
  }

  // Items are disjoint and in order; each begins where the one before, or the scope, does.
  void collect(DeclContext* scope) {
    std::map<FileID, unsigned> begins;
    if (const auto* ns = dyn_cast<NamespaceDecl>(scope))
      begins[file_of(ns->getLocation())] = brace(ns->getBeginLoc());
    if (const auto* spec = dyn_cast<LinkageSpecDecl>(scope))
      begins[file_of(spec->getLocation())] = linkage_begin(spec);
    for (Decl* d : scope->decls()) {
      if (d->isImplicit() || !is_users(sources_, d->getLocation())) continue;
      const FileID file = file_of(d->getLocation());
      unsigned& begin = begins[file];
      if (auto* inner = dyn_cast<NamespaceDecl>(d)) {
        collect(inner);
        begin = end_of(inner->getRBraceLoc());
        continue;
      }
      if (auto* inner = dyn_cast<LinkageSpecDecl>(d)) {
        linkages_.push_back(inner);
        collect(inner);
        begin = end_of(inner->getEndLoc());
        continue;
      }
      const unsigned end = end_of(d->getEndLoc());
      if (!items_.empty() && items_.back().file == file &&
          offset(d->getBeginLoc()) < items_.back().end &&
          offset(d->getBeginLoc()) >= items_.back().begin) {
        items_.back().end = std::max(items_.back().end, end);
        items_.back().decls.push_back(d);
      } else {
        Item item;
        item.file = file;
        item.begin = begin;
        item.end = end;
        item.first = std::max(begin, offset(d->getBeginLoc()));
        item.decls.push_back(d);
        item.needed = stays(d);
        items_.push_back(std::move(item));
        if (items_.back().needed) work_.push_back(d);
      }
      begin = items_.back().end;
    }
  }
  // Behind the opening brace of a namespace.
  unsigned brace(SourceLocation loc) const {
    SourceLocation at = sources_.getExpansionLoc(loc);
    while (const auto next = Lexer::findNextToken(at, sources_, context_.getLangOpts())) {
      at = next->getLocation();
      if (next->is(tok::l_brace)) break;
    }
    return offset(Lexer::getLocForEndOfToken(at, 0, sources_, context_.getLangOpts()));
  }
  // Behind extern "C", and a brace behind it.
  unsigned linkage_begin(const LinkageSpecDecl* spec) const {
    if (spec->hasBraces()) return brace(spec->getExternLoc());
    const auto language = Lexer::findNextToken(sources_.getExpansionLoc(spec->getExternLoc()),
                                               sources_, context_.getLangOpts());
    return language ? offset(language->getEndLoc()) : offset(spec->getExternLoc());
  }

  bool known_namespace(const NamespaceDecl* ns) const {
    if (!ns) return false;
    for (const NamespaceDecl* d : ns->redecls())
      if (is_users(sources_, d->getLocation())) return true;
    const std::string name = ns->getQualifiedNameAsString();
    return name == "cooperative_groups" || name.rfind("nvcuda", 0) == 0;
  }
  /// Declarations that nobody refers to by name.
  bool stays(const Decl* d) const {
    if (const auto* use = dyn_cast<UsingDirectiveDecl>(d))
      return known_namespace(use->getNominatedNamespace());
    if (const auto* alias = dyn_cast<NamespaceAliasDecl>(d))
      return known_namespace(alias->getNamespace());
    if (isa<CXXDeductionGuideDecl>(d)) return true;
    if (const auto* t = dyn_cast<FunctionTemplateDecl>(d))
      return isa<CXXDeductionGuideDecl>(t->getTemplatedDecl());
    return false;
  }

  /// Does a class of the device's have it for the host alone?
  static bool is_hosts(const Decl& d) {
    const Decl* decl = &d;
    if (const auto* a_friend = dyn_cast<FriendDecl>(decl)) decl = a_friend->getFriendDecl();
    const auto* record = dyn_cast<CXXRecordDecl>(d.getLexicalDeclContext());
    return decl && record && !record->isLambda() && runs_on_host(*decl);
  }
  static bool runs_on_host(const Decl& d) {
    const FunctionDecl* f = d.getAsFunction();
    return f && !f->hasAttr<CUDADeviceAttr>() && !f->hasAttr<CUDAGlobalAttr>() &&
           !f->isDefaulted() && !f->isDeletedAsWritten() && !f->isImplicit() && !f->isPureVirtual();
  }

  // ---- edits -----------------------------------------------------------------------------------

  using Edits = std::map<FileID, std::set<Edit>>;

  /// Does a macro of the user's make it?
  bool made_by_macro(SourceLocation loc) const {
    while (loc.isMacroID()) {
      const StringRef name = Lexer::getImmediateMacroName(loc, sources_, context_.getLangOpts());
      if (seen_.macros.count(name.str()) > 0) return true;
      if (sources_.isMacroArgExpansion(loc) && made_by_macro(sources_.getImmediateSpellingLoc(loc)))
        return true;
      loc = sources_.getImmediateExpansionRange(loc).getBegin();
    }
    return false;
  }
  /// Where a token stands in its file: that of a macro of CUDA's with the macro, unless it is part
  /// of an argument.
  SourceLocation in_file(SourceLocation loc, bool end) const {
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
  /// Can the text be changed there? Macros of the user's stand for other text elsewhere, so that
  /// what they make is written out first, and all read again.
  bool editable(SourceLocation loc) {
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
    const unsigned last =
        sources_.getFileOffset(range.getEnd()) +
        Lexer::MeasureTokenLength(range.getEnd(), sources_, context_.getLangOpts());
    again_.expansions.insert(
        {path, begin, last,
         expanded(range.getBegin(), sources_.getBufferData(file).slice(begin, last))});
    return false;
  }
  bool editable(SourceLocation begin, SourceLocation end) {
    const bool at_begin = editable(begin), at_end = editable(end);
    return at_begin && at_end;
  }

  /// What the user's macros make of a text; those of CUDA's stay.
  std::string expanded(SourceLocation at, StringRef text) const {
    std::map<std::string, std::string> defined;
    for (const Preprocessed::Macro& m : seen_.directives)
      if (sources_.isBeforeInTranslationUnit(m.at, at)) defined[m.name] = m.text;
    std::string source;
    for (const auto& [name, directive] : defined) source += directive + "\n";
    // A number that no other text has.
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

  void edit(Edits& edits, SourceLocation begin, SourceLocation end, std::string text) {
    if (!is_users(sources_, begin) || !editable(begin, end)) return;
    const SourceLocation from = in_file(begin, false), to = in_file(end, true);
    const unsigned last = sources_.getFileOffset(to) +
                          Lexer::MeasureTokenLength(to, sources_, context_.getLangOpts());
    edits[sources_.getFileID(from)].insert({sources_.getFileOffset(from), last, std::move(text)});
  }
  /// Puts texts before and behind an expression.
  void enclose(Edits& edits, SourceLocation begin, SourceLocation end, std::string before,
               std::string behind) {
    if (!editable(begin, end)) return;
    const SourceLocation from = in_file(begin, false), to = in_file(end, true);
    const unsigned first = sources_.getFileOffset(from),
                   last = sources_.getFileOffset(to) +
                          Lexer::MeasureTokenLength(to, sources_, context_.getLangOpts());
    edits[sources_.getFileID(from)].insert({first, first, std::move(before)});
    edits[sources_.getFileID(to)].insert({last, last, std::move(behind)});
  }

  /// Lanes that return early leave those of their warp that go on: these have to know, for what a
  /// warp does together. All that are left come to a return at the outermost level, and agree
  /// there.
  void leaving_edits() {
    if (!kernel_.has_warp_word) return;
    const auto* body = dyn_cast<CompoundStmt>(kernel_.function->getBody());
    if (!body) return;
    leaving_block(*body);
    struct Jumps : RecursiveASTVisitor<Jumps> {
      bool VisitGotoStmt(GotoStmt*) {
        found = true;
        return false;
      }
      bool found = false;
    } jumps;
    jumps.TraverseStmt(kernel_.function->getBody());
    // Some may pass by where the others agree.
    if (leaving_ && jumps.found) nested_return(body);
  }
  /// Statements of the outermost level. False: nothing more need be looked at.
  bool leaving_block(const CompoundStmt& block) {
    return std::all_of(block.body_begin(), block.body_end(),
                       [&](const Stmt* s) { return leaving_statement(s); });
  }
  bool leaving_statement(const Stmt* s) {
    if (const auto* block = dyn_cast<CompoundStmt>(s)) return leaving_block(*block);
    if (isa<ReturnStmt>(s)) return false;
    const auto* branch = dyn_cast<IfStmt>(s);
    if (branch && branch->isConstexpr()) {
      // What isn't taken isn't there.
      const auto taken = branch->getNondiscardedCase(context_);
      return !taken || !*taken || leaving_statement(*taken);
    }
    if (!returns(s)) return true;
    const bool plain = branch && !branch->getElse() && !branch->getInit() &&
                       !branch->getConditionVariable() && ends_with_return(branch->getThen());
    if (!plain) {
      nested_return(s);
      return false;
    }
    leaving_ = true;
    // The blank keeps them apart from what else may be put around the same expression.
    enclose(device_, branch->getCond()->getBeginLoc(), branch->getCond()->getEndLoc(),
            " maco_leaves(", " )");
    return true;
  }
  const ReturnStmt* find_return(const Stmt* s) const {
    struct Finder : RecursiveASTVisitor<Finder> {
      explicit Finder(const ASTContext& c) : context(c) {}
      bool TraverseLambdaExpr(LambdaExpr*) { return true; }
      bool TraverseCXXRecordDecl(CXXRecordDecl*) { return true; }
      bool TraverseIfStmt(IfStmt* branch) {
        if (!branch->isConstexpr()) return RecursiveASTVisitor::TraverseIfStmt(branch);
        const auto taken = branch->getNondiscardedCase(context);
        return !taken || !*taken || TraverseStmt(*taken);
      }
      bool VisitReturnStmt(ReturnStmt* r) {
        found = r;
        return false;
      }
      const ASTContext& context;
      const ReturnStmt* found = nullptr;
    } finder(context_);
    finder.TraverseStmt(const_cast<Stmt*>(s));  // NOLINT: visitors take no const
    return finder.found;
  }
  bool returns(const Stmt* s) const { return find_return(s) != nullptr; }
  // A return, alone or behind statements without any.
  bool ends_with_return(const Stmt* s) const {
    if (isa<ReturnStmt>(s)) return true;
    const auto* block = dyn_cast<CompoundStmt>(s);
    if (!block || block->body_empty() || !isa<ReturnStmt>(block->body_back())) return false;
    for (const Stmt* child : block->body())
      if (child != block->body_back() && returns(child)) return false;
    return true;
  }
  // On a GPU the others of the warp would wait for it; the CPU target sees who has returned.
  void nested_return(const Stmt* s) {
    if (request_.arch == 0) return;
    reports_.error(find_return(s)->getReturnLoc(),
                   "a thread may return here while others of its warp go on to shuffle or vote; "
                   "return at the outermost level of the kernel, in an 'if' without 'else'");
  }

  void function_edits() {
    for (const Item& item : items_) {
      if (!item.needed) continue;
      for (Decl* d : item.decls) {
        FunctionDecl* f = d->getAsFunction();
        if (!f) continue;
        if (const auto* attr = f->getAttr<CUDAGlobalAttr>()) {
          edit(device_, attr->getLocation(), attr->getLocation(), "__device__");
        }
        if (const auto* attr = f->getAttr<CUDALaunchBoundsAttr>()) {
          edit(device_, attr->getRange().getBegin(), attr->getRange().getEnd(), "");
        }
        for (ParmVarDecl* p : f->parameters())
          if (const auto* attr = p->getAttr<CUDAGridConstantAttr>()) {
            edit(device_, attr->getLocation(), attr->getLocation(), "");
          }
      }
    }
  }

  /// Lambdas don't say where they run: in functions of the device that is clear, and where NVRTC
  /// compiles it is anywhere.
  void lambda_edits() {
    struct Finder : RecursiveASTVisitor<Finder> {
      bool VisitLambdaExpr(LambdaExpr* lambda) {
        lambdas.push_back(lambda);
        return true;
      }
      std::vector<const LambdaExpr*> lambdas;
    } finder;
    for (const Item& item : items_)
      for (Decl* d : item.decls)
        if (item.needed) finder.TraverseDecl(d);
    for (const LambdaExpr* lambda : finder.lambdas) {
      const CXXMethodDecl* call = lambda->getCallOperator();
      const auto leave_out = [&](const Attr* attr) {
        if (attr && !attr->isImplicit() && attr->getLocation().isValid())
          edit(device_, attr->getLocation(), attr->getLocation(), "");
      };
      leave_out(call->getAttr<CUDADeviceAttr>());
      leave_out(call->getAttr<CUDAHostAttr>());
    }
  }

  /// Functions of the host stay behind, in classes too.
  void host_edits() {
    struct Finder : RecursiveASTVisitor<Finder> {
      bool VisitCXXRecordDecl(CXXRecordDecl* record) {
        if (!record->isThisDeclarationADefinition() || record->isLambda()) return true;
        for (Decl* d : record->decls())
          if (is_hosts(*d)) found.push_back(d);
        return true;
      }
      std::vector<Decl*> found;
    } finder;
    for (const Item& item : items_)
      for (Decl* d : item.decls)
        if (item.needed) finder.TraverseDecl(d);
    for (const Decl* d : finder.found) {
      const SourceLocation begin = in_file(d->getBeginLoc(), false);
      if (!is_users(sources_, begin) || !editable(d->getBeginLoc(), d->getEndLoc())) continue;
      for (Edits* edits : {&original_, &device_})
        (*edits)[file_of(begin)].insert({offset(begin), end_of(d->getEndLoc()), ""});
    }
  }

  void linkage_edits() {
    for (const LinkageSpecDecl* spec : linkages_) {
      if (!editable(spec->getExternLoc()) || (spec->hasBraces() && !editable(spec->getRBraceLoc())))
        continue;
      const SourceLocation from = sources_.getExpansionLoc(spec->getExternLoc());
      for (auto* edits : {&original_, &device_}) {
        (*edits)[file_of(from)].insert({offset(from), linkage_begin(spec), ""});
        if (spec->hasBraces()) {
          const SourceLocation brace = sources_.getExpansionLoc(spec->getRBraceLoc());
          (*edits)[file_of(brace)].insert({offset(brace), offset(brace) + 1, ""});
        }
      }
    }
  }

  /// Arrays in shared memory become references into the task's.
  void shared_edits() {
    struct Finder : RecursiveASTVisitor<Finder> {
      // These are functions of their own.
      bool TraverseLambdaExpr(LambdaExpr*) { return true; }
      bool TraverseCXXRecordDecl(CXXRecordDecl*) { return true; }
      bool VisitDeclStmt(DeclStmt* stmt) {
        for (Decl* d : stmt->decls())
          if (auto* var = dyn_cast<VarDecl>(d); var && var->hasAttr<CUDASharedAttr>()) {
            statements.push_back(stmt);
            break;
          }
        return true;
      }
      std::vector<DeclStmt*> statements;
    };
    // Each instance of a template has memory of its own; the text is the same.
    std::vector<std::pair<const FunctionDecl*, DeclStmt*>> found;
    for (const FunctionDecl* f : functions_) {
      if (!is_users(sources_, f->getLocation())) continue;
      Finder finder;
      finder.TraverseStmt(f->getBody());
      for (DeclStmt* stmt : finder.statements) found.emplace_back(f, stmt);
    }
    // What one instance can't say of a parameter, none says.
    size_t before = 0;
    do {
      before = unsaid_.size();
      for (const auto& [f, stmt] : found) (void)key_of(scopes_of(*f), stmt->getBeginLoc());
    } while (unsaid_.size() != before);
    settled_ = true;
    for (const auto& [f, stmt] : found) shared_statement(*f, *stmt);
    shared_of_files();
    alignment_edits();
  }

  /// Behind a word and what stands in parentheses after it.
  unsigned behind_parentheses(SourceLocation word) const {
    int depth = 0;
    unsigned end = offset(word);
    while (const auto next = Lexer::findNextToken(word, sources_, context_.getLangOpts())) {
      word = next->getLocation();
      end = offset(next->getEndLoc());
      depth += next->is(tok::l_paren) ? 1 : next->is(tok::r_paren) ? -1 : 0;
      if (depth <= 0) break;
    }
    return end;
  }

  /// 'alignas' stands before other words of a declaration: a host's compiler wants it there.
  void alignment_edits() {
    struct Finder : RecursiveASTVisitor<Finder> {
      bool VisitVarDecl(VarDecl* var) {
        if (var->hasAttr<CUDASharedAttr>()) found.push_back(var);
        return true;
      }
      std::vector<const VarDecl*> found;
    } finder;
    for (const Item& item : items_)
      for (Decl* d : item.decls)
        if (item.needed) finder.TraverseDecl(d);
    for (const VarDecl* var : finder.found)
      for (const auto* attr : var->specific_attrs<AlignedAttr>()) {
        const SourceLocation word = in_file(var->getAttr<CUDASharedAttr>()->getLocation(), false),
                             begin = in_file(attr->getLocation(), false);
        if (!attr->isAlignas() || file_of(word) != file_of(begin) || offset(word) > offset(begin))
          continue;
        if (!editable(var->getAttr<CUDASharedAttr>()->getLocation(), attr->getLocation())) continue;
        const unsigned last = behind_parentheses(begin);
        const std::string text =
            sources_.getBufferData(file_of(begin)).slice(offset(begin), last).str();
        for (Edits* edits : {&original_, &device_}) {
          std::set<Edit>& list = (*edits)[file_of(begin)];
          const bool replaced = std::any_of(list.begin(), list.end(), [&](const Edit& e) {
            return e.begin <= offset(word) && e.end > offset(word);
          });
          if (replaced) continue;
          list.insert({offset(word), offset(word), text + " "});
          list.insert({offset(begin), last, ""});
        }
      }
  }

  /// Shared memory declared outside of functions: what refers to it says where it lies instead.
  void shared_of_files() {
    std::map<const VarDecl*, std::string> places;
    for (Item& item : items_) {
      if (!item.needed) continue;
      for (Decl* d : item.decls) {
        auto* var = dyn_cast<VarDecl>(d);
        if (!var || !var->hasAttr<CUDASharedAttr>()) continue;
        if (item.decls.size() > 1) {
          reports_.error(var->getLocation(),
                         "shared memory outside of functions stands in a declaration of its own");
          return;
        }
        if (!editable(var->getBeginLoc(), var->getEndLoc())) continue;
        const auto* array = context_.getAsArrayType(var->getType());
        places[var->getCanonicalDecl()] =
            var->hasExternalStorage() && array
                ? fmt::format("((maco_type<{}>*)maco_dynamic_shared())",
                              type_text(context_, array->getElementType()))
                : fmt::format("(*(maco_type<{}>*)maco_static_shared({}))",
                              type_text(context_, var->getType()), allot(*var));
        device_[item.file].insert({first_token(*var), item.end, ""});
        if (var->hasExternalStorage())
          original_[item.file].insert({first_token(*var), item.end, ""});
      }
    }
    if (places.empty()) return;
    struct Finder : RecursiveASTVisitor<Finder> {
      bool VisitDeclRefExpr(DeclRefExpr* ref) {
        refs.push_back(ref);
        return true;
      }
      std::vector<DeclRefExpr*> refs;
    } finder;
    for (const FunctionDecl* f : functions_) finder.TraverseStmt(f->getBody());
    for (DeclRefExpr* ref : finder.refs) {
      const auto* var = dyn_cast<VarDecl>(ref->getDecl());
      const auto found = var ? places.find(var->getCanonicalDecl()) : places.end();
      if (found == places.end()) continue;
      edit(device_, ref->getBeginLoc(), ref->getEndLoc(), found->second);
      if (var->hasExternalStorage())
        edit(original_, ref->getBeginLoc(), ref->getEndLoc(), found->second);
    }
  }
  unsigned first_token(const VarDecl& var) const {
    return std::min(offset(var.getBeginLoc()),
                    offset(var.getAttr<CUDASharedAttr>()->getLocation()));
  }
  /// Bytes of static memory, aligned.
  int64_t allot(const VarDecl& var) {
    const int64_t align = std::max<int64_t>(context_.getDeclAlign(&var).getQuantity(), 16);
    reply_.static_shared = (reply_.static_shared + align - 1) / align * align;
    const int64_t at = reply_.static_shared;
    reply_.static_shared += context_.getTypeSizeInChars(var.getType()).getQuantity();
    return at;
  }

  std::string source_text(SourceLocation begin, SourceLocation end) const {
    return Lexer::getSourceText(CharSourceRange::getCharRange(begin, end), sources_,
                                context_.getLangOpts())
        .str();
  }

  /// The words of `text` that say where a variable lies, and how it is aligned, left out.
  static std::string without_storage(const std::string& text) {
    std::string out;
    for (size_t at = 0; at < text.size();) {
      if (!std::isalpha(static_cast<unsigned char>(text[at])) && text[at] != '_') {
        out += text[at++];
        continue;
      }
      size_t end = at;
      while (end < text.size() &&
             (std::isalnum(static_cast<unsigned char>(text[end])) || text[end] == '_'))
        ++end;
      const std::string word = text.substr(at, end - at);
      if (word == "alignas" || word == "__align__" || word == "__builtin_align__") {
        // With what stands in parentheses behind it.
        size_t depth = 0, at_close = end;
        while (at_close < text.size() && (text[at_close] != ')' || --depth != 0)) {
          depth += text[at_close] == '(' ? 1 : 0;
          ++at_close;
        }
        if (at_close < text.size()) end = at_close + 1;
      } else if (word != "__shared__" && word != "static" && word != "extern" &&
                 word != "__device__") {
        out += word;
      }
      at = end;
    }
    return out;
  }

  void shared_statement(const FunctionDecl& f, DeclStmt& stmt) {
    const SourceLocation begin = stmt.getBeginLoc(), end = stmt.getEndLoc();
    bool plain = editable(begin, end);
    for (Decl* d : stmt.decls()) plain = editable(d->getBeginLoc(), d->getEndLoc()) && plain;
    if (!plain) return;
    // From the first of its words: attributes may stand before what Clang takes for its beginning.
    SourceLocation from = in_file(begin, false);
    for (const Decl* d : stmt.decls())
      for (const Attr* attr : d->attrs()) {
        const SourceLocation at = in_file(attr->getLocation(), false);
        if (at.isValid() && file_of(at) == file_of(from) && offset(at) < offset(from)) from = at;
      }
    std::string specifiers, replaced, replaced_original;
    SourceLocation previous;
    bool first = true;
    for (Decl* d : stmt.decls()) {
      auto* var = dyn_cast<VarDecl>(d);
      if (!var) continue;
      const std::string name = var->getName().str();
      const SourceLocation at = var->getLocation();
      std::string before = source_text(first ? from : previous, at);
      if (first) {
        before = without_storage(before);
        specifiers = before.substr(0, before.find_first_of("*&("));
      } else {
        before = specifiers + " " + before.substr(before.find(',') + 1);
      }
      const SourceLocation behind_name =
          Lexer::getLocForEndOfToken(at, 0, sources_, context_.getLangOpts());
      const SourceLocation behind =
          Lexer::getLocForEndOfToken(sources_.getExpansionRange(var->getEndLoc()).getEnd(), 0,
                                     sources_, context_.getLangOpts());
      std::string after = source_text(behind_name, behind);
      previous = behind;
      first = false;
      const bool dynamic = var->hasExternalStorage();
      if (dynamic) {
        // "[]": a pointer to what the launch gives.
        const size_t open = after.find('[');
        const size_t close = after.find(']', open);
        const std::string rest = close == std::string::npos ? "" : after.substr(close + 1);
        const std::string pointer =
            rest.empty() ? fmt::format("*{}", name) : fmt::format("(*{}){}", name, rest);
        const std::string cast = rest.empty() ? "*" : fmt::format("(*){}", rest);
        replaced +=
            fmt::format("{} {} = ({} {})maco_dynamic_shared(); ", before, pointer, before, cast);
        replaced_original = replaced;
        continue;
      }
      const std::string type = fmt::format("maco_type_of_{}", name);
      replaced += fmt::format("typedef {} {}{}; {}& {} = *({}*)maco_static_shared({}); ", before,
                              type, after, type, name, type, place_of(f, *var));
    }
    const unsigned b = offset(from), e = offset(sources_.getExpansionLoc(end)) + 1;
    device_[file_of(from)].insert({b, e, replaced});
    if (!replaced_original.empty()) original_[file_of(from)].insert({b, e, replaced_original});
  }

  /// Where a variable in shared memory lies: a number, or in a template what says it of each
  /// instance.
  std::string place_of(const FunctionDecl& f, const VarDecl& var) {
    const int64_t at = allot(var);
    const std::vector<Scope> scopes = scopes_of(f);
    if (scopes.empty()) return std::to_string(at);
    const Key key = key_of(scopes, var.getLocation());
    if (!places_.insert(key.value).second) {
      reports_.error(var.getLocation(),
                     fmt::format("'{}' would be the same memory in several instances of {}, which "
                                 "differ in what has no name outside of functions",
                                 var.getNameAsString(), called(f)));
      return "0";
    }
    if (key.users && needed_soon(f))
      reports_.error(var.getLocation(),
                     fmt::format("shared memory of {}, whose body says what it returns: where it "
                                 "is made with types of the file, it has to say that before",
                                 called(f)));
    (key.users ? late_places_ : early_places_) +=
        fmt::format("template <> struct maco_place<{}> {{ static constexpr int value = {}; }};\n",
                    key.value, at);
    return fmt::format("(maco_place<{}>::value)", key.name);
  }
  static std::string called(const FunctionDecl& f) {
    const auto* method = dyn_cast<CXXMethodDecl>(&f);
    return method && method->getParent()->isLambda() ? "a lambda"
                                                     : fmt::format("'{}'", f.getNameAsString());
  }
  /// Is an instance made before the text ends? Its body may say what it returns.
  static bool needed_soon(const FunctionDecl& f) {
    if (const auto* method = dyn_cast<CXXMethodDecl>(&f);
        method && method->getParent()->isLambda()) {
      const auto* outer =
          dyn_cast_or_null<FunctionDecl>(method->getParent()->getParentFunctionOrMethod());
      const bool with_outer = !f.getPrimaryTemplate() || (outer && !scopes_of(*outer).empty());
      if (with_outer) return outer && needed_soon(*outer);
    }
    const FunctionDecl* pattern = f.getTemplateInstantiationPattern();
    return (pattern ? pattern : &f)->getReturnType()->getContainedDeducedType() != nullptr;
  }

  /// Parameters of a template that a function is in, by the names that its text has for them, and
  /// what they are in one instance.
  struct Scope {
    const TemplateParameterList* names = nullptr;
    const TemplateArgumentList* values = nullptr;
  };
  /// From within.
  static std::vector<Scope> scopes_of(const Decl& inner) {
    std::vector<Scope> scopes;
    // Those of classes, where a member is defined outside of them: it may name them otherwise.
    std::vector<const TemplateParameterList*> outside;
    const DeclContext* c = dyn_cast<FunctionDecl>(&inner);
    if (!c) c = inner.getDeclContext();
    for (; c && !c->isFileContext(); c = c->getParent()) {
      const TemplateParameterList* outer = nullptr;
      if (isa<CXXRecordDecl>(c) && !cast<CXXRecordDecl>(c)->isLambda() && !outside.empty() &&
          isa<ClassTemplateSpecializationDecl>(c)) {
        outer = outside.back();
        outside.pop_back();
      }
      if (const auto* f = dyn_cast<FunctionDecl>(c)) {
        const FunctionDecl* pattern = f->getTemplateInstantiationPattern();
        if (!pattern) continue;
        for (unsigned i = 0; i < pattern->getNumTemplateParameterLists(); ++i)
          outside.push_back(pattern->getTemplateParameterList(i));
        if (!f->getPrimaryTemplate()) continue;
        const FunctionTemplateDecl* written = pattern->getDescribedFunctionTemplate();
        scopes.push_back({(written ? written : f->getPrimaryTemplate())->getTemplateParameters(),
                          f->getTemplateSpecializationArgs()});
      } else if (const auto* spec = dyn_cast<ClassTemplateSpecializationDecl>(c)) {
        if (!isTemplateInstantiation(spec->getSpecializationKind())) continue;
        const CXXRecordDecl* pattern = spec->getTemplateInstantiationPattern();
        const auto* partial = dyn_cast_or_null<ClassTemplatePartialSpecializationDecl>(pattern);
        const ClassTemplateDecl* written = pattern ? pattern->getDescribedClassTemplate() : nullptr;
        const TemplateParameterList* names =
            outer ? outer
            : partial
                ? partial->getTemplateParameters()
                : (written ? written : spec->getSpecializedTemplate())->getTemplateParameters();
        scopes.push_back({names, &spec->getTemplateInstantiationArgs()});
      }
    }
    return scopes;
  }

  /// A type that stands for an instance: as the text of the template says it, and by its arguments.
  struct Key {
    std::string name, value;
    bool users = false;  // the value names something of the user's
  };
  Key key_of(const std::vector<Scope>& scopes, SourceLocation at) {
    const auto id = ids_.try_emplace(sources_.getSpellingLoc(at), ids_.size()).first->second;
    Key key;
    for (const Scope& scope : scopes)
      for (unsigned i = 0; i < scope.names->size() && i < scope.values->size(); ++i)
        add_to_key(key, *scope.names->getParam(i), scope.values->get(i));
    key.name = fmt::format("maco_key<{}{}>", id, key.name);
    key.value = fmt::format("maco_key<{}{}>", id, key.value);
    return key;
  }
  /// What can't be said of a parameter is left out: instances may be told apart by the others.
  void add_to_key(Key& key, const NamedDecl& parameter, const TemplateArgument& arg) {
    const bool type = isa<TemplateTypeParmDecl>(parameter);
    const bool named = !parameter.getName().empty() && !parameter.isImplicit();
    if (!named || (!type && !isa<NonTypeTemplateParmDecl>(parameter))) return;
    if (unsaid_.count(&parameter) > 0) return;
    std::string values;
    bool users = key.users;
    const auto add = [&](const TemplateArgument& a) {
      if (a.getKind() == TemplateArgument::Type) {
        const std::optional<std::string> name = name_of(a.getAsType(), users);
        values += ", " + name.value_or("");
        return name.has_value();
      }
      if (a.getKind() != TemplateArgument::Integral ||
          !a.getIntegralType()->isSpecificBuiltinType(BuiltinType::Bool))
        users = users || a.getKind() != TemplateArgument::Integral ||
                a.getIntegralType()->isEnumeralType();
      std::string text;
      llvm::raw_string_ostream out(text);
      a.print(policy(), out, true);
      values += fmt::format(", maco_constant<({})>", out.str());
      return true;
    };
    const llvm::ArrayRef<TemplateArgument> args =
        arg.getKind() == TemplateArgument::Pack ? arg.pack_elements() : llvm::ArrayRef(arg);
    if (!std::all_of(args.begin(), args.end(), add)) {
      unsaid_.insert(&parameter);
      return;
    }
    key.users = users;
    key.value += values;
    const std::string name = parameter.getName().str();
    key.name += type ? fmt::format(", typename maco_name<{}>::type", name)
                     : fmt::format(", maco_constant<{}>", name);
    if (parameter.isParameterPack()) key.name += "...";
  }

  /// What maco_name makes of a type: the type, or a key for a lambda's. Nothing if it has no name
  /// outside of functions.
  std::optional<std::string> name_of(QualType type, bool& users) {
    type = type.getCanonicalType();
    struct Finder : RecursiveASTVisitor<Finder> {
      explicit Finder(const SourceManager& s) : sources(s) {}
      void look(const TagDecl* tag) {
        const bool is_lambda = isa<CXXRecordDecl>(tag) && cast<CXXRecordDecl>(tag)->isLambda();
        nameless = nameless || is_lambda || tag->getParentFunctionOrMethod() ||
                   (tag->getName().empty() && !tag->getTypedefNameForAnonDecl());
        users = users || is_users(sources, tag->getLocation());
        if (const auto* spec = dyn_cast<ClassTemplateSpecializationDecl>(tag)) {
          for (const TemplateArgument& a : spec->getTemplateArgs().asArray())
            TraverseTemplateArgument(a);
        }
        if (const auto* outer = dyn_cast<TagDecl>(tag->getDeclContext())) look(outer);
      }
      bool VisitTagType(TagType* t) {
        look(t->getDecl());
        return true;
      }
      bool TraverseTemplateArgument(const TemplateArgument& a) {
        users = users || a.getKind() == TemplateArgument::Declaration ||
                a.getKind() == TemplateArgument::Template;
        return RecursiveASTVisitor::TraverseTemplateArgument(a);
      }
      const SourceManager& sources;
      bool nameless = false, users = false;
    } finder(sources_);
    finder.TraverseType(type);
    if (!finder.nameless) {
      users = users || finder.users;
      return type_text(context_, type);
    }
    const auto with = [&](QualType inner, const char* behind) -> std::optional<std::string> {
      const std::optional<std::string> name = name_of(inner, users);
      if (!name) return std::nullopt;
      return *name + behind;
    };
    if (type->isLValueReferenceType()) return with(type->getPointeeType(), "&");
    if (type->isRValueReferenceType()) return with(type->getPointeeType(), "&&");
    if (type->isPointerType() && !type.hasQualifiers()) return with(type->getPointeeType(), "*");
    if (type.isConstQualified() && !type.isVolatileQualified())
      return with(type.getUnqualifiedType(), " const");
    const CXXRecordDecl* record = type->getAsCXXRecordDecl();
    if (!record || !record->isLambda() || type.hasQualifiers()) return std::nullopt;
    const CXXMethodDecl* call = record->getLambdaCallOperator();
    const SourceLocation begin = record->getLocation(), end = call->getBody()->getEndLoc();
    if (!is_users(sources_, begin)) return std::nullopt;
    const Key key = key_of(scopes_of(*record), begin);
    if (settled_) enclose(device_, begin, end, fmt::format("maco_lambda<{}>(", key.name), ")");
    users = users || key.users;
    return key.value;
  }

  PrintingPolicy policy() const {
    PrintingPolicy p(context_.getLangOpts());
    p.Bool = true;
    p.SuppressUnwrittenScope = true;
    return p;
  }

  // ---- texts -----------------------------------------------------------------------------------

  /// A file with what it includes, without what isn't needed.
  std::string text(FileID id, const std::map<FileID, std::set<Edit>>& edits) const {
    const StringRef data = sources_.getBufferData(id);
    const auto seen = seen_.files.find(id);
    std::vector<bool> dropped(data.size(), false);
    const auto drop = [&](unsigned begin, unsigned end, bool value) {
      for (unsigned i = begin; i < end && i < dropped.size(); ++i) dropped[i] = value;
    };
    for (const Item& item : items_)
      if (item.file == id && !item.needed) drop(item.begin, item.end, true);
    for (const FileText::Cut& c : instantiations(id)) drop(c.begin, c.end, true);
    if (seen != seen_.files.end()) {
      for (const FileText::Cut& m : seen->second.macros) drop(m.begin, m.end, false);
      for (const FileText::Cut& c : seen->second.cuts) drop(c.begin, c.end, true);
    }
    // What was put behind the user's text.
    if (id == sources_.getMainFileID())
      if (const size_t at = data.rfind("\n#line 1 \"maco\""); at != StringRef::npos)
        drop(static_cast<unsigned>(at), static_cast<unsigned>(data.size()), true);
    std::map<unsigned, const FileText::Include*> includes;
    if (seen != seen_.files.end())
      for (const FileText::Include& i : seen->second.includes) includes[i.begin] = &i;
    const auto changes = edits.find(id);
    auto change =
        changes == edits.end() ? std::set<Edit>::const_iterator() : changes->second.begin();
    const auto no_change = [&] {
      return changes == edits.end() || change == changes->second.end();
    };
    std::string out;
    // Without the mark of UTF-8, which may stand at a file's beginning only.
    for (unsigned at = data.starts_with("\xef\xbb\xbf") ? 3 : 0; at < data.size();) {
      while (!no_change() && change->begin < at) ++change;
      const auto include = includes.find(at);
      if (include != includes.end()) {
        // What is included within a declaration is part of it.
        const bool within = std::any_of(items_.begin(), items_.end(), [&](const Item& item) {
          return item.file == id && !item.needed && at >= item.first && at < item.end;
        });
        if (include->second->file.isValid() && !within) out += text(include->second->file, edits);
        at = include->second->end;
        continue;
      }
      if (!no_change() && change->begin == at && !dropped[at]) {
        out += change->text;
        if (change->end == at) {
          ++change;
          continue;
        }
        // The lines that the change takes away.
        for (unsigned i = at; i < change->end; ++i)
          if (data[i] == '\n') out += '\n';
        at = std::max(change->end, at + 1);
        ++change;
        continue;
      }
      if (!dropped[at] || data[at] == '\n') out += data[at];
      ++at;
    }
    if (!out.empty() && out.back() != '\n') out += '\n';
    return out;
  }

  /// In UTF-8 and without NUL: what compilers, and texts of graphs, take. Literals stay what they
  /// are; elsewhere other bytes say nothing.
  std::string clean(std::string text) const {
    const auto is_clean = [](StringRef part) {
      const auto* begin = reinterpret_cast<const llvm::UTF8*>(part.data());
      return part.find('\0') == StringRef::npos &&
             llvm::isLegalUTF8String(&begin, begin + part.size());
    };
    if (is_clean(text)) return text;
    Lexer lexer(SourceLocation(), context_.getLangOpts(), text.data(), text.data(),
                text.data() + text.size());
    lexer.SetCommentRetentionState(true);
    std::string out;
    size_t at = 0;
    // Each character that isn't one, and bytes of those.
    const auto put = [&](size_t end, bool literal) {
      while (at < end) {
        const auto* bytes = reinterpret_cast<const llvm::UTF8*>(text.data() + at);
        const size_t length = std::min<size_t>(llvm::getNumBytesForUTF8(*bytes), end - at);
        if (text[at] != '\0' && llvm::isLegalUTF8Sequence(bytes, bytes + length)) {
          out.append(text, at, length);
          at += length;
        } else {
          out += literal            ? fmt::format("\\{:03o}", static_cast<unsigned char>(text[at]))
                 : text[at] == '\0' ? " "
                                    : "?";
          ++at;
        }
      }
    };
    for (Token token; !lexer.LexFromRawLexer(token);) {
      const size_t begin =
          static_cast<size_t>(lexer.getBufferLocation() - text.data()) - token.getLength();
      put(begin, false);
      put(begin + token.getLength(),
          tok::isStringLiteral(token.getKind()) || token.is(tok::char_constant));
    }
    put(text.size(), false);
    return out;
  }

  /// Instances that the file asks for ("template __global__ void k<float>(...);"), which are no
  /// declarations to Clang: between those that are, in the text or made by a macro.
  std::vector<FileText::Cut> instantiations(FileID id) const {
    const StringRef data = sources_.getBufferData(id);
    std::vector<bool> known(data.size(), false);
    const auto is_known = [&](unsigned begin, unsigned end) {
      for (unsigned i = begin; i < end && i < known.size(); ++i) known[i] = true;
    };
    for (const Item& item : items_)
      if (item.file == id) is_known(item.first, item.end);
    if (const auto seen = seen_.files.find(id); seen != seen_.files.end()) {
      for (const FileText::Cut& c : seen->second.cuts) is_known(c.begin, c.end);
      for (const FileText::Cut& c : seen->second.macros) is_known(c.begin, c.end);
      for (const FileText::Include& i : seen->second.includes) is_known(i.begin, i.end);
    }
    const SourceLocation start = sources_.getLocForStartOfFile(id);
    Lexer lexer(start, context_.getLangOpts(), data.begin(), data.begin(), data.end());
    std::vector<Token> tokens;
    for (Token token; !lexer.LexFromRawLexer(token);)
      if (!known[offset(token.getLocation())]) tokens.push_back(token);
    const auto spelling = [&](size_t i) {
      return i < tokens.size() ? data.substr(offset(tokens[i].getLocation()), tokens[i].getLength())
                               : StringRef();
    };
    std::vector<FileText::Cut> cuts;
    bool begins = true;  // a declaration
    for (size_t i = 0; i < tokens.size(); ++i) {
      const unsigned begin = offset(tokens[i].getLocation());
      if (tokens[i].isOneOf(tok::semi, tok::l_brace, tok::r_brace)) {
        begins = true;
        continue;
      }
      if (!begins) continue;
      begins = false;
      const size_t word = spelling(i) == "extern" ? i + 1 : i;
      size_t last = tokens.size();
      if (spelling(word) == "template" && spelling(word + 1) != "<") {
        for (last = word; last < tokens.size() && tokens[last].isNot(tok::semi);) ++last;
      } else if (seen_.macros.count(spelling(i).str()) > 0) {
        size_t end = i;
        if (spelling(i + 1) == "(") {
          int depth = 0;
          do {
            ++end;
            depth += spelling(end) == "(" ? 1 : spelling(end) == ")" ? -1 : 0;
          } while (depth > 0 && end + 1 < tokens.size());
        }
        if (end >= tokens.size()) break;
        const std::string made =
            expanded(tokens[i].getLocation(), data.slice(begin, offset(tokens[end].getEndLoc())));
        const StringRef text = StringRef(made).starts_with("extern ")
                                   ? StringRef(made).drop_front(7)
                                   : StringRef(made);
        if (!text.starts_with("template ") || text.starts_with("template <")) continue;
        last = spelling(end + 1) == ";" ? end + 1 : end;
      }
      if (last >= tokens.size()) continue;
      cuts.push_back({begin, offset(tokens[last].getEndLoc())});
      i = last;
      begins = true;
    }
    return cuts;
  }

  std::string system_includes() const {
    std::set<std::string> names;
    for (const auto& [id, file] : seen_.files)
      for (const FileText::Include& i : file.includes)
        if (!i.system.empty()) names.insert(i.system);
    std::string out;
    // What a task takes from CUDA's headers; standard headers, the runtime's and cooperative groups
    // are MACO's own.
    for (const std::string& name : names)
      for (const char* kept : {"cuda_fp16", "cuda_bf16", "cuda_fp8", "cuda_fp6", "cuda_fp4",
                               "mma.h", "math_constants.h", "cuda/std/"})
        if (name.compare(1, std::strlen(kept), kept) == 0) {
          out += "#include <" + name.substr(1, name.size() - 2) + ">\n";
          break;
        }
    for (const char* header : {"array", "cmath", "cstddef", "cstdint", "functional",
                               "initializer_list", "limits", "tuple", "type_traits", "utility"})
      if (uses_std_ && names.count(fmt::format("<{}>", header)) > 0)
        out += fmt::format("#include <std/{}>\n", header);
    return out;
  }
  // Where the text of cooperative groups has to stand: it knows the unit's block.
  std::string cooperative_groups() const {
    for (const auto& [id, file] : seen_.files)
      for (const FileText::Include& i : file.includes)
        if (i.system.find("cooperative_groups") != std::string::npos)
          return "//@cooperative_groups\n";
    return "";
  }
  std::string undefined() const {
    std::string out;
    for (const std::string& name : seen_.macros) out += "#undef " + name + "\n";
    return out;
  }
  /// Lambdas by the keys that they are given.
  std::string naming() const {
    if (places_.empty()) return "";
    return "template <class Key, class F> struct maco_closure : F {};\n"
           "template <class Key, class F> MACO_FN constexpr maco_closure<Key, F> maco_lambda(F f) "
           "{ return {f}; }\n"
           "template <class T> struct maco_name { using type = T; };\n"
           "template <class T> struct maco_name<const T> { using type = const typename "
           "maco_name<T>::type; };\n"
           "template <class T> struct maco_name<T&> { using type = typename maco_name<T>::type&; "
           "};\n"
           "template <class T> struct maco_name<T&&> { using type = typename maco_name<T>::type&&; "
           "};\n"
           "template <class T> struct maco_name<T*> { using type = typename maco_name<T>::type*; "
           "};\n"
           "template <class Key, class F> struct maco_name<maco_closure<Key, F>> "
           "{ using type = Key; };\n";
  }
  std::string declarations() const {
    return fmt::format(
        "constexpr int maco_block_x = {}, maco_block_y = {}, maco_block_z = {};\n"
        "constexpr int maco_static_bytes = {}, maco_dynamic_bytes = {};\n"
        "constexpr bool maco_leaving = {};\n"
        "template <class T> using maco_type = T;\n"
        "template <auto value> struct maco_constant {{}};\n"
        "template <int id, class... Parameters> struct maco_key {{}};\n"
        "template <class Key> struct maco_place;\n{}",
        request_.block[0], request_.block[1], request_.block[2], reply_.static_shared,
        request_.shared, leaving_, naming());
  }

  /// What runs the kernel with its arguments: for the reference a function of pointers and numbers,
  /// for a task a Unit.
  std::string entry(bool original) const {
    const FunctionDecl* f = kernel_.function;
    std::string call = written_name(*f);
    if (!request_.template_args.empty())
      call += fmt::format("<{}>", fmt::join(request_.template_args, ", "));
    std::string args;
    size_t tensors = 0, numbers = 0;
    for (size_t i = 0; i < request_.args.size() && i < f->getNumParams(); ++i) {
      const KernelArg& arg = request_.args[i];
      const std::string type = type_text(
          context_, f->getParamDecl(static_cast<unsigned>(i))->getType().getUnqualifiedType());
      args += i > 0 ? ", " : "";
      if (arg.kind == KernelArg::Kind::Tensor)
        args += original ? fmt::format("({})maco_tensors[{}]", type, tensors++)
                         : fmt::format("({})args.template ptr<char>({})", type, tensors++);
      else if (arg.kind == KernelArg::Kind::Integer && arg.wide && !original) {
        args += fmt::format(
            "({})(C::arg{}::get(ctx) * 4294967296ll + C::arg{}::get(ctx) + 2147483648ll)", type,
            numbers, numbers + 1);
        numbers += 2;
      } else if (arg.kind == KernelArg::Kind::Integer)
        args += original ? fmt::format("({})maco_numbers[{}]", type, numbers++)
                         : fmt::format("({})C::arg{}::get(ctx)", type, numbers++);
      else
        args += fmt::format("({}){}", type, fmt::format("{:.17g}", arg.number));
    }
    if (original)
      return fmt::format(
          "static void maco_launch(char* const* maco_tensors, const long long* maco_numbers) {{\n"
          "  (void)maco_tensors, (void)maco_numbers;\n  {}({});\n}}\n",
          call, args);
    return fmt::format(
        "struct maco_unit {{\n"
        "  static constexpr int kX = maco_block_x, kY = maco_block_y, kZ = maco_block_z, kThreads "
        "= kX * kY * kZ;\n"
        "  static constexpr int kStaticBytes = maco_static_bytes, kDynamicBytes = "
        "maco_dynamic_bytes;\n"
        "  template <class C>\n"
        "  static MACO_FN void maco_run(const ::maco::Context& ctx, const ::maco::Args& args) {{\n"
        "    (void)ctx, (void)args;\n    {}({});\n  }}\n}};\n",
        call, args);
  }

  ASTContext& context_;
  SourceManager& sources_;
  Kernel& kernel_;
  const Preprocessed& seen_;
  const KernelRequest& request_;
  KernelReply& reply_;
  Reports& reports_;
  Again& again_;
  std::vector<Item> items_;
  std::vector<LinkageSpecDecl*> linkages_;
  std::set<const Decl*> decls_;
  std::set<const clang::Type*> types_;
  std::vector<Decl*> work_;
  struct ByPlace {
    bool operator()(const FunctionDecl* a, const FunctionDecl* b) const {
      return a->getID() < b->getID();
    }
  };
  std::set<const FunctionDecl*, ByPlace> functions_;
  std::map<FileID, std::set<Edit>> original_, device_;
  std::string early_places_, late_places_;  // before the user's text, and behind it
  std::map<SourceLocation, size_t> ids_;    // of places in the text that keys are of
  std::set<std::string> places_;            // keys that have one
  std::set<const NamedDecl*> unsaid_;       // parameters of templates that keys leave out
  bool settled_ = false;                    // those are known
  bool uses_std_ = false;                   // names of namespace std
  bool leaving_ = false;                    // lanes return while others of their warp go on
};

/// Collects what Clang says.
class Listener : public DiagnosticConsumer {
 public:
  explicit Listener(KernelReply& reply) : reply_(reply) {}
  void HandleDiagnostic(DiagnosticsEngine::Level level, const Diagnostic& info) override {
    DiagnosticConsumer::HandleDiagnostic(level, info);
    const bool note = level == DiagnosticsEngine::Note && told_;
    if (level < DiagnosticsEngine::Error && !note) {
      told_ = false;
      return;
    }
    llvm::SmallString<256> text;
    info.FormatDiagnostic(text);
    KernelError error;
    error.message = text.str().str();
    error.note = note;
    if (info.hasSourceManager() && info.getLocation().isValid()) {
      const PresumedLoc at = info.getSourceManager().getPresumedLoc(
          info.getSourceManager().getFileLoc(info.getLocation()));
      if (at.isValid()) {
        error.file = at.getFilename();
        error.line = static_cast<int32_t>(at.getLine());
        error.column = static_cast<int32_t>(at.getColumn());
      }
    }
    // What was put behind the user's text: the use in the graph is wrong, as is found out there.
    if (error.file == "maco") {
      if (!note) reply_.behind.push_back(error.message);
      told_ = false;
      return;
    }
    told_ = true;
    reply_.errors.push_back(std::move(error));
  }

 private:
  KernelReply& reply_;
  bool told_ = false;
};

class Consumer : public ASTConsumer {
 public:
  Consumer(const KernelRequest& request, KernelReply& reply, const Preprocessed& seen, Again& again)
      : request_(request), reply_(reply), seen_(seen), again_(again) {}

  void HandleTranslationUnit(ASTContext& context) override {
    if (!reply_.errors.empty()) return;
    Reports reports(context.getSourceManager(), reply_);
    if (request_.shape_only) {
      describe(context, reports);
      return;
    }
    Kernel kernel{.context = context, .function = nullptr, .reachable = {}};
    kernel.function = find(context, reports);
    if (!kernel.function || reports.any() || again_.any()) return;
    if (!reply_.behind.empty()) {
      // The kernel is meant rightly, so that what comes before it hasn't ended.
      reports.in_graph(
          "source", fmt::format("'{}' isn't complete: {}", request_.path, reply_.behind.front()));
      return;
    }
    check_signature(kernel, request_, reports);
    Extractor extractor(kernel, seen_, request_, reply_, reports, again_);
    extractor.find_needed();
    check_refusals(kernel, request_, reports);
    if (reports.any()) return;
    check_samples(kernel, request_, reports);
    if (reports.any()) return;
    extractor.write();
  }

 private:
  struct Candidates : RecursiveASTVisitor<Candidates> {
    bool VisitFunctionDecl(FunctionDecl* f) {
      // Specialisations are the template's.
      if (!is_users(sources, f->getLocation()) || f->isFunctionTemplateSpecialization())
        return true;
      if (f->hasAttr<CUDAGlobalAttr>()) kernels.insert(written_name(*f));
      if (written_name(*f) == wanted || written_name(*f, false) == wanted) {
        const auto same = [&](const FunctionDecl* other) {
          return other->getCanonicalDecl() == f->getCanonicalDecl();
        };
        if (std::none_of(found.begin(), found.end(), same)) found.push_back(f);
      }
      if (f->getNameAsString() == wanted) elsewhere.insert(written_name(*f));
      return true;
    }
    explicit Candidates(const SourceManager& s) : sources(s) {}
    const SourceManager& sources;
    std::string wanted;
    std::vector<FunctionDecl*> found;
    std::set<std::string> kernels, elsewhere;
  };

  void describe(ASTContext& context, Reports& reports) {
    Candidates c(context.getSourceManager());
    c.wanted = request_.kernel;
    c.TraverseDecl(context.getTranslationUnitDecl());
    if (c.wanted.empty() && c.kernels.size() == 1) {
      c.wanted = *c.kernels.begin();
      c.TraverseDecl(context.getTranslationUnitDecl());
    }
    const bool one = c.found.size() == 1 && c.found[0]->hasAttr<CUDAGlobalAttr>();
    if (one) {
      reply_.shape = shape_of(context, *c.found[0]);
    } else if (c.kernels.empty()) {
      reports.in_graph("kernel", fmt::format("'{}' has no kernel", request_.path));
    } else {
      reports.in_graph(
          "kernel", fmt::format("{}; '{}' has {}",
                                c.wanted.empty() ? "which kernel is meant isn't said"
                                                 : fmt::format("there is no kernel '{}'", c.wanted),
                                request_.path, fmt::join(c.kernels, ", ")));
    }
  }

  const FunctionDecl* find(ASTContext& context, Reports& reports) {
    Candidates c(context.getSourceManager());
    c.wanted = request_.kernel;
    c.TraverseDecl(context.getTranslationUnitDecl());
    if (c.found.empty()) {
      std::string hint;
      if (c.elsewhere.size() == 1) {
        hint = fmt::format("; did you mean '{}'?", *c.elsewhere.begin());
      } else {
        hint = ir::did_you_mean(request_.kernel, {c.kernels.begin(), c.kernels.end()});
        if (hint.empty() && !c.kernels.empty())
          hint = fmt::format("; it has {}", fmt::join(c.kernels, ", "));
        if (c.kernels.empty()) hint = "; it has no kernel at all";
      }
      reports.in_graph(
          "kernel", fmt::format("'{}' has no kernel '{}'{}", request_.path, request_.kernel, hint));
      return nullptr;
    }
    if (c.found.size() > 1) {
      reports.in_graph("kernel",
                       fmt::format("'{}' of '{}' is overloaded: which one is meant can't be said",
                                   request_.kernel, request_.path));
      for (const FunctionDecl* f : c.found) reports.note(f->getLocation(), "it may be this one");
      return nullptr;
    }
    FunctionDecl* f = c.found[0];
    if (!f->hasAttr<CUDAGlobalAttr>()) {
      reports.in_graph("kernel",
                       fmt::format("'{}' is no kernel: it isn't '__global__'", request_.kernel));
      reports.note(f->getLocation(), "it is defined here");
      return nullptr;
    }
    const bool is_template = f->getDescribedFunctionTemplate() != nullptr;
    if (is_template != !request_.template_args.empty()) {
      const FunctionTemplateDecl* t = f->getDescribedFunctionTemplate();
      if (!is_template || t->getTemplateParameters()->getMinRequiredArguments() > 0) {
        reports.in_graph(
            is_template ? "kernel" : "template",
            is_template ? fmt::format("'{}' is a template: 'template' has to say its arguments",
                                      request_.kernel)
                        : fmt::format("'{}' is no template, and takes no arguments of one",
                                      request_.kernel));
        reports.note(f->getLocation(), "it is defined here");
        return nullptr;
      }
      again_.brackets = true;
      return nullptr;
    }
    if (!is_template) {
      const FunctionDecl* body = nullptr;
      if (f->hasBody(body)) return body;
      reports.in_graph("kernel", fmt::format("'{}' is declared, but not defined", request_.kernel));
      reports.note(f->getLocation(), "it is declared here");
      return nullptr;
    }
    for (Decl* d : context.getTranslationUnitDecl()->decls()) {
      auto* var = dyn_cast<VarDecl>(d);
      if (!var || var->getName() != kMeant || !var->getInit()) continue;
      struct Reference : RecursiveASTVisitor<Reference> {
        bool VisitDeclRefExpr(DeclRefExpr* ref) {
          if (auto* function = dyn_cast<FunctionDecl>(ref->getDecl())) meant = function;
          return true;
        }
        const FunctionDecl* meant = nullptr;
      } reference;
      reference.TraverseStmt(var->getInit());
      const FunctionDecl* body = nullptr;
      if (reference.meant && reference.meant->hasBody(body)) return body;
    }
    const bool given = !request_.template_args.empty() && !request_.template_args[0].empty();
    reports.in_graph(
        given ? "template" : "kernel",
        fmt::format(
            "'{}' can't be made of these arguments: {}", request_.kernel,
            given ? fmt::format("<{}>", fmt::join(request_.template_args, ", ")) : "it has none"));
    reports.note(f->getLocation(), "it is defined here");
    return nullptr;
  }

  const KernelRequest& request_;
  KernelReply& reply_;
  const Preprocessed& seen_;
  Again& again_;
};

class Action : public ASTFrontendAction {
 public:
  Action(const KernelRequest& request, KernelReply& reply, Again& again)
      : request_(request), reply_(reply), again_(again) {}
  std::unique_ptr<ASTConsumer> CreateASTConsumer(CompilerInstance& compiler, StringRef) override {
    compiler.getPreprocessor().addPPCallbacks(
        std::make_unique<Watcher>(compiler.getPreprocessor(), seen_));
    return std::make_unique<Consumer>(request_, reply_, seen_, again_);
  }

 private:
  const KernelRequest& request_;
  KernelReply& reply_;
  Again& again_;
  Preprocessed seen_;
};

std::vector<std::string> arguments(const KernelRequest& request) {
  std::vector<std::string> args = {
      "maco",
      "-fsyntax-only",
      "-x",
      "cuda",
      "--cuda-device-only",
      fmt::format("--cuda-gpu-arch=sm_{}", request.arch ? request.arch : 90),
      "-std=c++17",
      "-nocudalib",
      "-Wno-everything",
      "-ferror-limit=20",
      "-fno-caret-diagnostics",
      "-fgpu-rdc",
      "-resource-dir",
      MACO_CLANG_RESOURCES};
  if (request.cuda_folder.empty())
    args.insert(args.end(), {"-nocudainc"});
  else
    // Newer ones than Clang knows launch kernels as those do that it knows.
    args.insert(args.end(),
                {"--cuda-path=" + request.cuda_folder, "-Xclang", "-target-sdk-version=12.8",
                 "-isystem", request.cuda_folder + "/include/cccl"});
  args.push_back(request.path);
  return args;
}

}  // namespace

bool is_users(const SourceManager& sources, SourceLocation loc) {
  if (loc.isInvalid()) return false;
  loc = sources.getExpansionLoc(loc);
  return !sources.isInSystemHeader(loc) && !sources.isWrittenInBuiltinFile(loc) &&
         !sources.isWrittenInCommandLineFile(loc);
}

void Reports::add(SourceLocation loc, std::string message, bool note) {
  KernelError error;
  error.message = std::move(message);
  error.note = note;
  const PresumedLoc at = sources_.getPresumedLoc(sources_.getFileLoc(loc));
  if (at.isValid()) {
    error.file = at.getFilename();
    error.line = static_cast<int32_t>(at.getLine());
    error.column = static_cast<int32_t>(at.getColumn());
    error.length = static_cast<int32_t>(
        std::max(1u, Lexer::MeasureTokenLength(sources_.getFileLoc(loc), sources_, LangOptions())));
  }
  reply_.errors.push_back(std::move(error));
}
void Reports::in_graph(std::string attribute, std::string message) {
  KernelError error;
  error.attribute = std::move(attribute);
  error.message = std::move(message);
  reply_.errors.push_back(std::move(error));
}
void Reports::in_arg(size_t arg, std::string message) {
  KernelError error;
  error.attribute = "args";
  error.arg = arg;
  error.message = std::move(message);
  reply_.errors.push_back(std::move(error));
}

std::string type_text(const ASTContext& context, QualType type) {
  PrintingPolicy policy(context.getLangOpts());
  policy.Bool = true;
  policy.FullyQualifiedName = true;
  policy.SuppressUnwrittenScope = true;  // namespaces without a name
  return type.getCanonicalType().getAsString(policy);
}

}  // namespace maco::frontend::cuda

extern "C" __attribute__((visibility("default"))) int maco_reader_interface() {
  return maco::frontend::cuda::kReaderInterface;
}
namespace maco::frontend::cuda {
namespace {

/// The user's files as they are to be read, where that isn't as they are.
using Texts = std::map<std::string, std::string>;

void parse(const KernelRequest& request, const Texts& texts, KernelReply& reply, Again& again) {
  auto overlay =
      llvm::makeIntrusiveRefCnt<llvm::vfs::OverlayFileSystem>(llvm::vfs::getRealFileSystem());
  auto memory = llvm::makeIntrusiveRefCnt<llvm::vfs::InMemoryFileSystem>();
  overlay->pushOverlay(memory);
  for (const auto& [path, text] : texts) {
    std::string behind;
    if (path == request.path && !request.shape_only) {
      std::string meant = "::" + request.kernel;
      if (!request.template_args.empty())
        meant += fmt::format("<{}>", fmt::join(request.template_args, ", "));
      behind = fmt::format("\n#line 1 \"maco\"\nstatic auto* const {} = &{};\n", kMeant, meant);
    }
    memory->addFile(path, 0, llvm::MemoryBuffer::getMemBufferCopy(text + behind));
  }
  auto files = llvm::makeIntrusiveRefCnt<clang::FileManager>(clang::FileSystemOptions(), overlay);
  Listener listener(reply);
  clang::tooling::ToolInvocation invocation(
      arguments(request), std::make_unique<Action>(request, reply, again), files.get());
  invocation.setDiagnosticConsumer(&listener);
  if (!invocation.run() && reply.errors.empty() && !again.any()) {
    KernelError error;
    error.attribute = "source";
    error.message = fmt::format("'{}' can't be read", request.path);
    reply.errors.push_back(std::move(error));
  }
}

/// Writes out what macros make there. Lines stay where they are.
bool expand(Texts& texts, const std::set<Again::Expansion>& expansions) {
  for (auto e = expansions.rbegin(); e != expansions.rend(); ++e) {
    auto found = texts.find(e->path);
    if (found == texts.end()) {
      const auto file = llvm::MemoryBuffer::getFile(e->path);
      if (!file) return false;
      found = texts.emplace(e->path, (*file)->getBuffer().str()).first;
    }
    std::string& text = found->second;
    if (e->begin > e->end || e->end > text.size()) return false;
    const auto lines = std::count(text.begin() + e->begin, text.begin() + e->end, '\n');
    text.replace(e->begin, e->end - e->begin,
                 " " + e->text + " " + std::string(static_cast<size_t>(lines), '\n'));
  }
  return true;
}

void read_kernel(const KernelRequest& given, KernelReply& reply) {
  const auto file = llvm::MemoryBuffer::getFile(given.path);
  if (!file) {
    KernelError error;
    error.attribute = "source";
    error.message = fmt::format("can't read '{}': {}", given.path, file.getError().message());
    reply.errors.push_back(std::move(error));
    return;
  }
  KernelRequest request = given;
  Texts texts = {{given.path, (*file)->getBuffer().str()}};
  constexpr int most = 8;  // once for brackets, once for macros, and more for what those bring
  for (int i = 0; i < most; ++i) {
    reply = KernelReply();
    Again again;
    parse(request, texts, reply, again);
    if (!reply.errors.empty() || !again.any()) return;
    if (again.brackets) request.template_args = {""};
    if (!expand(texts, again.expansions)) break;
  }
  KernelError error;
  error.attribute = "source";
  error.message = fmt::format("'{}' makes its kernel by macros that can't be followed", given.path);
  reply.errors.push_back(std::move(error));
}

}  // namespace
}  // namespace maco::frontend::cuda

extern "C" __attribute__((visibility("default"))) void maco_read_kernel(
    const maco::frontend::cuda::KernelRequest& request, maco::frontend::cuda::KernelReply& reply) {
  // Syntax trees are as deep as expressions are nested, and walked by recursion: so on a thread
  // with room for it, of which only what is used takes memory.
  struct Work {
    const maco::frontend::cuda::KernelRequest& request;
    maco::frontend::cuda::KernelReply& reply;
  } work{request, reply};
  constexpr size_t stack_bytes = size_t{1} << 30;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, stack_bytes);
  const auto run = [](void* argument) -> void* {
    auto& w = *static_cast<Work*>(argument);
    maco::frontend::cuda::read_kernel(w.request, w.reply);
    return nullptr;
  };
  pthread_t thread{};
  const int failed = pthread_create(&thread, &attributes, run, &work);
  pthread_attr_destroy(&attributes);
  if (failed == 0)
    pthread_join(thread, nullptr);
  else
    run(&work);
}
