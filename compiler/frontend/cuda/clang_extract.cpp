// Lines and columns stay in place, so that compilers' messages about the texts point into the
// user's file.
#include "compiler/frontend/cuda/clang_extract.h"

#include <clang/AST/RecursiveASTVisitor.h>
#include <clang/Lex/Lexer.h>
#include <fmt/format.h>
#include <llvm/Support/ConvertUTF.h>

#include <algorithm>
#include <cstring>

#include "compiler/frontend/cuda/clang_keys.h"
#include "compiler/frontend/cuda/clang_layout.h"
#include "compiler/frontend/cuda/clang_origins.h"
#include "compiler/frontend/cuda/unit_words.h"

namespace maco::frontend::cuda {

using namespace clang;  // NOLINT: its names are all over this file

namespace {

/// A declaration of the user's outside of functions and classes, or several that share their text.
struct Item {
  FileID file;
  unsigned begin = 0, end = 0;  // including preceding attributes and its semicolon
  unsigned first = 0;           // of its own words
  std::vector<Decl*> decls;
  bool needed = false;
};

class Extractor final : public Extraction, private Editor {
 public:
  Extractor(Kernel& kernel, const Preprocessed& seen, const Said& said,
            const KernelRequest& request, KernelReply& reply, Reports& reports, Again& again)
      : Editor(kernel.context, seen, reports, again),
        kernel_(kernel),
        said_(said),
        request_(request),
        reply_(reply) {}

  void find_needed() override {
    collect(context_.getTranslationUnitDecl());
    need(kernel_.function);
    // What the graph's template arguments name.
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
      Needs(*this, is_users(sources_, decl->getLocation())).TraverseDecl(decl);
    }
    for (const Preprocessed::Use& use : seen_.uses)
      if (is_needed(use.at) && !in_directive(use.at))
        origins_.use_macro(use.name, use.defined, use.at);
    for (const std::string& name : seen_.macros) check_name(name, kernel_.function->getLocation());
    kernel_.reachable.assign(functions_.begin(), functions_.end());
    const auto first =
        std::find(kernel_.reachable.begin(), kernel_.reachable.end(), kernel_.function);
    if (first != kernel_.reachable.end()) std::rotate(kernel_.reachable.begin(), first, first + 1);
  }

  bool is_broken() const override {
    // A declaration that names a wrong one is left out without a message.
    std::set<StringRef> wrong;
    for (const Item& item : items_)
      for (const Decl* d : item.decls)
        if (const auto* named = dyn_cast<NamedDecl>(d);
            named && named->isInvalidDecl() && named->getDeclName().isIdentifier())
          wrong.insert(named->getName());
    return broken_ ||
           (!wrong.empty() && std::any_of(items_.begin(), items_.end(), [&](const Item& i) {
             return i.needed && names_one_of(i, wrong);
           }));
  }
  bool is_needed(SourceLocation at) const override {
    const Item* item = item_at(at);
    return item && item->needed && offset(at) >= item->first;
  }

  void write() override {
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
    reply_.original = "template <class T> using maco_type = T;\n" + groups + overloads() +
                      given_macros() + clean(text(sources_.getMainFileID(), original_)) +
                      entry(true) + undefine;
    reply_.device = laid_out(includes + declarations() + groups + early_places_ + overloads() +
                             given_macros() + clean(text(sources_.getMainFileID(), device_)) +
                             late_places_ + entry(false) + undefine);
  }

 private:
  // ---- what is needed --------------------------------------------------------------------------

  /// Marks the declarations to which a declaration refers.
  class Needs : public RecursiveASTVisitor<Needs> {
   public:
    /// `users`: the text is the user's, so that kernel.cu has to name whatever the text names.
    Needs(Extractor& extractor, bool users) : e_(extractor), users_(users) {}
    bool shouldVisitTemplateInstantiations() const { return true; }
    bool shouldVisitImplicitCode() const { return true; }
    bool TraverseDecl(Decl* d) {
      return (d && is_hosts(*d)) || RecursiveASTVisitor::TraverseDecl(d);
    }
    bool VisitDeclRefExpr(DeclRefExpr* ref) {
      e_.need(ref->getDecl());
      e_.need(ref->getFoundDecl());
      named(ref->getFoundDecl(), ref->getLocation());
      return true;
    }
    bool VisitMemberExpr(MemberExpr* ref) {
      e_.need(ref->getMemberDecl());
      return true;
    }
    bool VisitOverloadExpr(OverloadExpr* ref) {
      for (NamedDecl* d : ref->decls()) e_.need(d);
      if (ref->getNumDecls() > 0) named(*ref->decls_begin(), ref->getNameLoc());
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
    bool VisitNamedDecl(NamedDecl* decl) {
      if (users_ && !decl->isImplicit() && decl->getDeclName().isIdentifier())
        e_.check_name(decl->getName(), decl->getLocation());
      return true;
    }
    bool VisitExpr(Expr* expr) {
      e_.broken_ = e_.broken_ || (users_ && isa<RecoveryExpr>(expr));
      e_.need(expr->getType());
      return true;
    }
    bool VisitTypeLoc(TypeLoc type) {
      e_.need(type.getType());
      const clang::Type* t = type.getTypePtr();
      if (const auto* use = dyn_cast<UsingType>(t)) {
        named(use->getDecl()->getTargetDecl(), type.getBeginLoc());
      } else if (const auto* alias = dyn_cast<TypedefType>(t)) {
        named(alias->getDecl(), type.getBeginLoc());
      } else if (const auto* spec = dyn_cast<TemplateSpecializationType>(t)) {
        named(spec->getTemplateName().getAsTemplateDecl(), type.getBeginLoc());
      } else if (const auto* deduced = dyn_cast<DeducedTemplateSpecializationType>(t)) {
        named(deduced->getTemplateName().getAsTemplateDecl(), type.getBeginLoc());
      } else if (const auto* tag = dyn_cast<TagType>(t)) {
        named(tag->getDecl(), type.getBeginLoc());
      }
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
    void named(const NamedDecl* decl, SourceLocation at) {
      if (decl && users_ && is_users(e_.sources_, at)) e_.origins_.use(*decl, at);
    }
    Extractor& e_;
    const bool users_;
  };
  friend class Needs;

  void need(QualType type) {
    if (type.isNull() || !types_.insert(type.getTypePtr()).second) return;
    const clang::Type* t = type.getTypePtr();
    if (const auto* alias = t->getAs<TypedefType>()) need(alias->getDecl());
    if (const auto* use = t->getAs<UsingType>()) need(use->getDecl());
    if (const auto* deduced = t->getAs<DeducedTemplateSpecializationType>())
      need(deduced->getTemplateName());
    if (const auto* spec = t->getAs<TemplateSpecializationType>()) {
      need(spec->getTemplateName());
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
  void need(const TemplateName& name) {
    if (const UsingShadowDecl* use = name.getAsUsingShadowDecl()) need(use);
    if (const TemplateDecl* d = name.getAsTemplateDecl()) need(d);
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
    // Sets of overloads also name functions of the host.
    if (is_users(sources_, decl->getLocation()) && runs_on_host(*decl)) return;
    if (is_global_function(*decl) && !is_users(sources_, decl->getLocation()))
      others_.insert(cast<NamedDecl>(decl)->getName());
    if (const auto* f = dyn_cast<FunctionDecl>(decl)) {
      const FunctionDecl* body = nullptr;
      if (f->hasBody(body) && functions_.insert(body).second)
        work_.push_back(const_cast<FunctionDecl*>(body));  // NOLINT: visitors take no const
      if (const TemplateArgumentList* args = f->getTemplateSpecializationArgs())
        for (const TemplateArgument& arg : args->asArray()) need(arg);
      if (const auto* method = dyn_cast<CXXMethodDecl>(f)) need(method->getParent());
      // A lambda that is converted to a pointer to function.
      if (const auto* conversion = dyn_cast<CXXConversionDecl>(f);
          conversion && conversion->getParent()->isLambda())
        need(conversion->getParent()->getLambdaCallOperator());
    }
    if (const auto* record = dyn_cast<CXXRecordDecl>(decl))
      if (const CXXRecordDecl* definition = record->getDefinition())
        if (definition->hasUserDeclaredDestructor()) need(definition->getDestructor());
    // Other functions that declare it come along only if they are called.
    for (const Decl* redecl : decl->redecls())
      if (!redecl->getLexicalDeclContext()->isFunctionOrMethod()) mark(redecl->getLocation());
    mark(decl->getLocation());
  }
  static bool is_global_function(const Decl& decl) {
    const auto* named = dyn_cast<NamedDecl>(&decl);
    return named && (isa<FunctionDecl>(decl) || isa<FunctionTemplateDecl>(decl)) &&
           named->getDeclName().isIdentifier() &&
           decl.getDeclContext()->getRedeclContext()->isTranslationUnit();
  }
  /// The user's text can't give a thing the name of one of kernel.cu's macros.
  void check_name(StringRef name, SourceLocation at) {
    if (is_unit_word(name) && name != kMeant && is_users(sources_, at) &&
        told_.insert(name.str()).second)
      reports_.error(at,
                     fmt::format("'{}' means something else in kernel.cu: nothing that comes along "
                                 "with the kernel can have this name",
                                 name.str()));
  }
  /// Functions of the user's in a namespace would hide CUDA's functions that they overload.
  std::string overloads() const {
    std::set<StringRef> names;
    for (const Item& item : items_)
      for (const Decl* d : item.decls)
        if (item.needed && is_global_function(*d)) {
          const StringRef name = cast<NamedDecl>(d)->getName();
          if (others_.count(name) > 0) names.insert(name);
        }
    std::string out;
    for (const StringRef name : names) out += fmt::format("using ::{};\n", name.str());
    return out;
  }
  void mark(SourceLocation loc) {
    if (!loc.isValid() || !is_users(sources_, loc)) return;
    const auto [file, offset] = sources_.getDecomposedExpansionLoc(loc);
    for (Item& item : items_)
      if (!item.needed && item.file == file && offset >= item.begin && offset < item.end) {
        item.needed = true;
        for (Decl* d : item.decls) {
          decls_.insert(d);
          // Bodies of functions count where they are called, since instances of templates differ.
          work_.push_back(d);
        }
      }
  }

  /// Whether the place is in a condition of the preprocessor, or in text that a condition leaves
  /// out.
  bool in_directive(SourceLocation loc) const {
    const auto [file, at] = sources_.getDecomposedExpansionLoc(loc);
    const auto seen = seen_.files.find(file);
    return seen != seen_.files.end() &&
           std::any_of(seen->second.cuts.begin(), seen->second.cuts.end(),
                       [at = at](const FileText::Cut& c) { return at >= c.begin && at < c.end; });
  }
  const Item* item_at(SourceLocation loc) const {
    if (!loc.isValid() || !is_users(sources_, loc)) return nullptr;
    const auto [file, at] = sources_.getDecomposedExpansionLoc(loc);
    for (const Item& item : items_)
      if (item.file == file && at >= item.begin && at < item.end) return &item;
    return nullptr;
  }

  bool names_one_of(const Item& item, const std::set<StringRef>& names) const {
    const StringRef data = sources_.getBufferData(item.file);
    Lexer lexer(sources_.getLocForStartOfFile(item.file), context_.getLangOpts(), data.begin(),
                data.begin() + item.first, data.end());
    for (Token token; !lexer.LexFromRawLexer(token) && offset(token.getLocation()) < item.end;)
      if (token.is(tok::raw_identifier) && names.count(token.getRawIdentifier()) > 0) return true;
    return false;
  }

  // The offset behind the token at `loc`, and behind a semicolon that follows.
  unsigned end_of(SourceLocation loc) const {
    SourceLocation end = sources_.getExpansionRange(loc).getEnd();
    end = Lexer::getLocForEndOfToken(end, 0, sources_, context_.getLangOpts());
    const auto next = Lexer::findNextToken(sources_.getExpansionRange(loc).getEnd(), sources_,
                                           context_.getLangOpts());
    if (next && next->is(tok::semi) && file_of(next->getLocation()) == file_of(loc))
      end = next->getEndLoc();
    return offset(end);
  }

  // Collects items, which are disjoint and in order. Each begins where the previous one ends, or
  // where the scope begins.
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
        item.first = std::max(begin, std::min(offset(d->getBeginLoc()), offset(first_word(*d))));
        item.decls.push_back(d);
        item.needed = stays(d);
        items_.push_back(std::move(item));
        if (items_.back().needed) work_.push_back(d);
      }
      begin = items_.back().end;
    }
  }
  // The offset behind a namespace's opening brace.
  unsigned brace(SourceLocation loc) const {
    SourceLocation at = sources_.getExpansionLoc(loc);
    while (const auto next = Lexer::findNextToken(at, sources_, context_.getLangOpts())) {
      at = next->getLocation();
      if (next->is(tok::l_brace)) break;
    }
    return offset(Lexer::getLocForEndOfToken(at, 0, sources_, context_.getLangOpts()));
  }
  // The offset behind extern "C", and behind a brace that follows.
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
  /// Whether a declaration stays although nobody refers to it by name.
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

  /// Whether a class of the device's has it for the host alone.
  static bool is_hosts(const Decl& d) {
    const Decl* decl = &d;
    if (const auto* a_friend = dyn_cast<FriendDecl>(decl)) decl = a_friend->getFriendDecl();
    const auto* record = dyn_cast<CXXRecordDecl>(d.getLexicalDeclContext());
    return decl && record && !record->isLambda() && runs_on_host(*decl);
  }

  // ---- edits -----------------------------------------------------------------------------------

  template <class Finder>
  void traverse_needed(Finder& finder) {
    for (const Item& item : items_)
      for (Decl* d : item.decls)
        if (item.needed) finder.TraverseDecl(d);
  }

  /// Lanes that return early leave other lanes of their warp behind. Those must know this for what
  /// a warp does together. All lanes that are left reach a return at the outermost level, and agree
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
    // Some lanes may pass by the place where the others agree.
    if (leaving_ && jumps.found) nested_return(body);
  }
  /// Edits statements of the outermost level. Returns false if nothing more need be looked at.
  bool leaving_block(const CompoundStmt& block) {
    return std::all_of(block.body_begin(), block.body_end(),
                       [&](const Stmt* s) { return leaving_statement(s); });
  }
  bool leaving_statement(const Stmt* s) {
    if (const auto* block = dyn_cast<CompoundStmt>(s)) return leaving_block(*block);
    if (isa<ReturnStmt>(s)) return false;
    const auto* branch = dyn_cast<IfStmt>(s);
    if (branch && branch->isConstexpr()) {
      // A branch that isn't taken doesn't exist.
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
    // The blank separates them from other text around the same expression.
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
  // Whether the statement is a return, or a block that ends with one and has none before it.
  bool ends_with_return(const Stmt* s) const {
    if (isa<ReturnStmt>(s)) return true;
    const auto* block = dyn_cast<CompoundStmt>(s);
    if (!block || block->body_empty() || !isa<ReturnStmt>(block->body_back())) return false;
    for (const Stmt* child : block->body())
      if (child != block->body_back() && returns(child)) return false;
    return true;
  }
  // On a GPU the warp's other lanes would wait for a lane that returned; the CPU target knows which
  // lanes have returned.
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
        // One macro makes several declarations: each is checked by itself.
        if (item.decls.size() > 1 && !editable(d->getBeginLoc())) continue;
        for (const auto* attr : f->specific_attrs<CUDAGlobalAttr>())
          edit(device_, attr->getLocation(), attr->getLocation(), "__device__");
        // A specialisation has its template's attribute, and a `__global__` of its own.
        if (f->isFunctionTemplateSpecialization() && f->hasAttr<CUDAGlobalAttr>()) global_words(*f);
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

  /// Removes `__global__` before a function's name.
  void global_words(const FunctionDecl& f) {
    SourceLocation at = sources_.getExpansionLoc(f.getBeginLoc());
    const unsigned name = offset(f.getLocation());
    while (const auto next = Lexer::findNextToken(at, sources_, context_.getLangOpts())) {
      at = next->getLocation();
      if (file_of(at) != file_of(f.getLocation()) || offset(at) >= name) return;
      if (next->is(tok::raw_identifier) && next->getRawIdentifier() == "__global__")
        edit(device_, at, at, "__device__");
    }
  }

  /// Lambdas don't say where they run. Inside device functions that is clear; code for NVRTC needs
  /// it everywhere.
  void lambda_edits() {
    struct Finder : RecursiveASTVisitor<Finder> {
      bool VisitLambdaExpr(LambdaExpr* lambda) {
        lambdas.push_back(lambda);
        return true;
      }
      std::vector<const LambdaExpr*> lambdas;
    } finder;
    traverse_needed(finder);
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

  /// The first word of a declaration: attributes may stand before the begin that Clang reports.
  SourceLocation first_word(const Decl& d) const {
    SourceLocation first = in_file(d.getBeginLoc(), false);
    const FunctionDecl* f = d.getAsFunction();
    for (const Attr* attr : (f ? f : &d)->attrs()) {
      const auto* inheritable = dyn_cast<InheritableAttr>(attr);
      if (inheritable && inheritable->isInherited()) continue;
      const SourceLocation at = in_file(attr->getLocation(), false);
      if (at.isValid() && file_of(at) == file_of(first) && offset(at) < offset(first)) first = at;
    }
    return first;
  }

  /// Leaves out functions of the host, in classes too.
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
    traverse_needed(finder);
    for (const Decl* d : finder.found) {
      if (!is_users(sources_, d->getBeginLoc()) || !editable(d->getBeginLoc(), d->getEndLoc()))
        continue;
      const SourceLocation begin = first_word(*d);
      unsigned from = offset(begin);
      const StringRef before = sources_.getBufferData(file_of(begin)).take_front(from).rtrim();
      if (before.ends_with("[[")) from = static_cast<unsigned>(before.size() - 2);
      for (Edits* edits : {&original_, &device_})
        (*edits)[file_of(begin)].insert({from, end_of(d->getEndLoc()), ""});
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

  /// Makes arrays in shared memory references into the task's memory.
  void shared_edits() {
    struct Finder : RecursiveASTVisitor<Finder> {
      // Lambdas and classes are visited as functions of their own.
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
    // Each instance of a template has memory of its own, but all share the text.
    std::vector<std::pair<const FunctionDecl*, DeclStmt*>> found;
    for (const FunctionDecl* f : functions_) {
      if (!is_users(sources_, f->getLocation())) continue;
      Finder finder;
      finder.TraverseStmt(f->getBody());
      for (DeclStmt* stmt : finder.statements) found.emplace_back(f, stmt);
    }
    // If one instance can't name a parameter, none does.
    size_t before = 0;
    do {
      before = keys_.unsaid();
      for (const auto& [f, stmt] : found) (void)keys_.key_of(scopes_of(*f), stmt->getBeginLoc());
    } while (keys_.unsaid() != before);
    keys_.settle();
    for (const auto& [f, stmt] : found) shared_statement(*f, *stmt);
    shared_of_files();
    alignment_edits();
  }

  /// The offset behind a word and the parentheses that follow it.
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

  /// Moves 'alignas' before the other words of a declaration, where a host's compiler needs it.
  void alignment_edits() {
    struct Finder : RecursiveASTVisitor<Finder> {
      bool VisitVarDecl(VarDecl* var) {
        if (var->hasAttr<CUDASharedAttr>()) found.push_back(var);
        return true;
      }
      std::vector<const VarDecl*> found;
    } finder;
    traverse_needed(finder);
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

  /// Shared memory that is declared outside of functions: each reference to it gets the place where
  /// it lies.
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
  /// Allots aligned bytes of static memory to a variable.
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

  /// `text` without the words that say where a variable lies and how it is aligned.
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
        // Including the parentheses behind it.
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
    SourceLocation from = in_file(begin, false);
    for (const Decl* d : stmt.decls())
      if (const SourceLocation at = first_word(*d); offset(at) < offset(from)) from = at;
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
        // "[]": a pointer to the memory that the launch gives.
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

  /// Where a variable in shared memory lies: a number or, in a template, an expression for each
  /// instance.
  std::string place_of(const FunctionDecl& f, const VarDecl& var) {
    const int64_t at = allot(var);
    const std::vector<Scope> scopes = scopes_of(f);
    if (scopes.empty()) return std::to_string(at);
    const Key key = keys_.key_of(scopes, var.getLocation());
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
    (key.users ? late_places_ : early_places_) += fmt::format(
        "template <> struct maco_place<{}> {{ static constexpr int maco_value = {}; }};\n",
        key.value, at);
    return fmt::format("(maco_place<{}>::maco_value)", key.name);
  }
  static std::string called(const FunctionDecl& f) {
    const auto* method = dyn_cast<CXXMethodDecl>(&f);
    return method && method->getParent()->isLambda() ? "a lambda"
                                                     : fmt::format("'{}'", f.getNameAsString());
  }
  // ---- texts -----------------------------------------------------------------------------------

  /// A file's text with its includes, without unneeded declarations.
  std::string text(FileID id, const Edits& edits) const {
    const StringRef data = sources_.getBufferData(id);
    const auto seen = seen_.files.find(id);
    std::vector<bool> dropped(data.size(), false);
    const auto drop = [&](unsigned begin, unsigned end, bool value) {
      for (unsigned i = begin; i < end && i < dropped.size(); ++i) dropped[i] = value;
    };
    for (const Item& item : items_)
      if (item.file == id && !item.needed) drop(item.begin, item.end, true);
    for (const FileText::Cut& c : instantiations(id)) drop(c.begin, c.end, true);
    // Add text that Clang couldn't parse, if it stands before a needed declaration.
    for (const SourceLocation at : said_.places())
      if (const Item* item = item_at(at);
          item && item->file == id && item->needed && offset(at) < item->first)
        drop(item->begin, item->first, true);
    if (seen != seen_.files.end()) {
      for (const FileText::Cut& m : seen->second.macros) drop(m.begin, m.end, false);
      for (const FileText::Cut& c : seen->second.cuts) drop(c.begin, c.end, true);
    }
    // Leave out the text that was added behind the user's.
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
    // Leave out the UTF-8 mark, which may stand only at a file's beginning.
    for (unsigned at = data.starts_with("\xef\xbb\xbf") ? 3 : 0; at < data.size();) {
      while (!no_change() && change->begin < at) ++change;
      const auto include = includes.find(at);
      if (include != includes.end()) {
        // A file that is included within a declaration is part of it.
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
        // Keep the line ends that the change removes.
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

  /// Makes the text valid UTF-8 without NUL, as compilers and graphs' texts need. Bytes in literals
  /// are kept as escapes; elsewhere other bytes have no meaning.
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
    // Handles each byte or sequence that isn't valid.
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

  /// Explicit instantiations in the file ("template __global__ void k<float>(...);"), which Clang
  /// doesn't report as declarations. They stand between declarations, in the text or made by a
  /// macro.
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
    bool begins = true;  // of a declaration
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
    // The headers of CUDA that a task includes. Standard headers, the runtime's and cooperative
    // groups are MACO's own.
    for (const std::string& name : names)
      for (const char* kept : {"cuda_fp16", "cuda_bf16", "cuda_fp8", "cuda_fp6", "cuda_fp4",
                               "mma.h", "math_constants.h", "cuda/std/"})
        if (name.compare(1, std::strlen(kept), kept) == 0) {
          out += "#include <" + name.substr(1, name.size() - 2) + ">\n";
          break;
        }
    for (const std::string& header : origins_.of_cuda()) {
      const std::string line = fmt::format("#include <{}>\n", header);
      if (out.find(line) == std::string::npos) out += line;
    }
    for (const std::string& header : origins_.standard())
      out += fmt::format("#include <std/{}>\n", header);
    return out;
  }
  // The place of the text for cooperative groups, which needs the unit's block.
  std::string cooperative_groups() const {
    for (const auto& [id, file] : seen_.files)
      for (const FileText::Include& i : file.includes)
        if (i.system.find("cooperative_groups") != std::string::npos)
          return "//@cooperative_groups\n";
    return "";
  }
  /// Macros from the graph or a command line.
  std::string given_macros() const {
    std::string out;
    for (const std::string& macro : request_.defines) {
      const size_t equals = macro.find('=');
      out += fmt::format("#define {} {}\n", macro.substr(0, equals),
                         equals == std::string::npos ? "1" : macro.substr(equals + 1));
    }
    return out;
  }
  std::string undefined() const {
    std::string out;
    for (const std::string& macro : request_.defines)
      out += "#undef " + macro.substr(0, macro.find('=')) + "\n";
    for (const std::string& name : seen_.macros) out += "#undef " + name + "\n";
    return out;
  }
  /// The lambdas' types, by their keys.
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
        "template <class Key> struct maco_place;\n{}"
        // What entry() needs, which stands behind the user's macros.
        "struct maco_extent {{\n"
        "  static constexpr int kX = maco_block_x, kY = maco_block_y, kZ = maco_block_z, kThreads "
        "= kX * kY * kZ;\n"
        "  static constexpr int kStaticBytes = maco_static_bytes, kDynamicBytes = "
        "maco_dynamic_bytes;\n}};\n"
        "using maco_context = ::maco::Context;\nusing maco_arguments = ::maco::Args;\n"
        "MACO_FN char* maco_tensor(const maco_arguments& arguments, int i) {{ return "
        "arguments.template ptr<char>(i); }}\n"
        "template <class N> MACO_FN long long maco_number(const maco_context& context) {{ return "
        "N::get(context); }}\n",
        request_.block[0], request_.block[1], request_.block[2], reply_.static_shared,
        request_.shared, leaving_, naming());
  }

  /// Code that runs the kernel with its arguments: for the reference a function of pointers and
  /// numbers, for a task a Unit.
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
                         : fmt::format("({})maco_tensor(maco_args, {})", type, tensors++);
      else if (arg.kind == KernelArg::Kind::Integer && arg.wide && !original) {
        args += fmt::format(
            "({})(maco_number<typename maco_c::arg{}>(maco_at) * 4294967296ll + "
            "maco_number<typename maco_c::arg{}>(maco_at) + 2147483648ll)",
            type, numbers, numbers + 1);
        numbers += 2;
      } else if (arg.kind == KernelArg::Kind::Integer)
        args += original ? fmt::format("({})maco_numbers[{}]", type, numbers++)
                         : fmt::format("({})maco_number<typename maco_c::arg{}>(maco_at)", type,
                                       numbers++);
      else
        args += fmt::format("({}){}", type, fmt::format("{:.17g}", arg.number));
    }
    if (original)
      return fmt::format(
          "static void maco_launch(char* const* maco_tensors, const long long* maco_numbers) {{\n"
          "  (void)maco_tensors, (void)maco_numbers;\n  {}({});\n}}\n",
          call, args);
    return fmt::format(
        "struct maco_unit : maco_extent {{\n"
        "  template <class maco_c>\n"
        "  static MACO_FN void maco_run(const maco_context& maco_at, const maco_arguments& "
        "maco_args) {{\n"
        "    (void)maco_at, (void)maco_args;\n    {}({});\n  }}\n}};\n",
        call, args);
  }

  Kernel& kernel_;
  const Said& said_;
  const KernelRequest& request_;
  KernelReply& reply_;
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
  Edits original_, device_;
  Origins origins_{sources_, reports_};
  Keys keys_{*this, device_};
  std::string early_places_, late_places_;  // before the user's text, and behind it
  std::set<std::string> places_;            // keys that have a place
  std::set<StringRef> others_;              // functions of CUDA's that the kernel names
  std::set<std::string> told_;              // forbidden names that were reported
  bool broken_ = false;                     // the kernel has expressions that Clang couldn't parse
  bool leaving_ = false;                    // lanes return while others of their warp go on
};

}  // namespace

bool runs_on_host(const Decl& decl) {
  const FunctionDecl* f = decl.getAsFunction();
  return f && !f->hasAttr<CUDADeviceAttr>() && !f->hasAttr<CUDAGlobalAttr>() && !f->isDefaulted() &&
         !f->isDeletedAsWritten() && !f->isImplicit() && !f->isPureVirtual();
}

std::unique_ptr<Extraction> make_extraction(Kernel& kernel, const Preprocessed& seen,
                                            const Said& said, const KernelRequest& request,
                                            KernelReply& reply, Reports& reports, Again& again) {
  return std::make_unique<Extractor>(kernel, seen, said, request, reply, reports, again);
}

}  // namespace maco::frontend::cuda
