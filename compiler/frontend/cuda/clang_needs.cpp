// clang_needs.cpp: the declarations that a kernel needs.
#include "compiler/frontend/cuda/clang_extractor.h"

#include <clang/AST/DeclFriend.h>
#include <clang/AST/DeclTemplate.h>
#include <clang/AST/DynamicRecursiveASTVisitor.h>
#include <clang/AST/ExprCXX.h>
#include <clang/Lex/Lexer.h>
#include <fmt/format.h>

#include <algorithm>

#include "compiler/frontend/cuda/unit_words.h"

namespace maco::frontend::cuda {

/// Marks the declarations to which a declaration refers.
class Extractor::Needs : public DynamicRecursiveASTVisitor {
 public:
  /// `users`: the text is the user's, so that kernel.cu has to name whatever the text names.
  Needs(Extractor& extractor, bool users) : e_(extractor), users_(users) {
    ShouldVisitTemplateInstantiations = true;
    ShouldVisitImplicitCode = true;
  }
  bool TraverseDecl(Decl* d) override {
    return (d && is_hosts(*d)) || DynamicRecursiveASTVisitor::TraverseDecl(d);
  }
  bool VisitDeclRefExpr(DeclRefExpr* ref) override {
    e_.need(ref->getDecl());
    e_.need(ref->getFoundDecl());
    named(ref->getFoundDecl(), ref->getLocation());
    return true;
  }
  bool VisitMemberExpr(MemberExpr* ref) override {
    e_.need(ref->getMemberDecl());
    return true;
  }
  bool VisitOverloadExpr(OverloadExpr* ref) override {
    for (NamedDecl* d : ref->decls()) e_.need(d);
    if (ref->getNumDecls() > 0) named(*ref->decls_begin(), ref->getNameLoc());
    return true;
  }
  bool VisitCXXConstructExpr(CXXConstructExpr* expr) override {
    e_.need(expr->getConstructor());
    return true;
  }
  bool VisitVarDecl(VarDecl* var) override {
    e_.need(var->getType());
    return true;
  }
  bool VisitNamedDecl(NamedDecl* decl) override {
    if (users_ && !decl->isImplicit() && decl->getDeclName().isIdentifier())
      e_.check_name(decl->getName(), decl->getLocation());
    return true;
  }
  bool VisitExpr(Expr* expr) override {
    e_.broken_ = e_.broken_ || (users_ && isa<RecoveryExpr>(expr));
    e_.need(expr->getType());
    return true;
  }
  bool VisitTypeLoc(TypeLoc type) override {
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
  bool TraverseNestedNameSpecifierLoc(NestedNameSpecifierLoc loc) override {
    const NestedNameSpecifier name = loc.getNestedNameSpecifier();
    if (name.getKind() == NestedNameSpecifier::Kind::Namespace)
      e_.need(name.getAsNamespaceAndPrefix().Namespace);
    return DynamicRecursiveASTVisitor::TraverseNestedNameSpecifierLoc(loc);
  }

 private:
  void named(const NamedDecl* decl, SourceLocation at) {
    if (decl && users_ && is_users(e_.sources_, at)) e_.origins_.use(*decl, at);
  }
  Extractor& e_;
  const bool users_;
};

void Extractor::find_needed() {
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

bool Extractor::is_broken() const {
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

bool Extractor::is_needed(SourceLocation at) const {
  const Item* item = item_at(at);
  return item && item->needed && offset(at) >= item->first;
}

void Extractor::need(QualType type) {
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

void Extractor::need(const TemplateName& name) {
  if (const UsingShadowDecl* use = name.getAsUsingShadowDecl()) need(use);
  if (const TemplateDecl* d = name.getAsTemplateDecl()) need(d);
}

void Extractor::need(const TemplateArgument& arg) {
  if (arg.getKind() == TemplateArgument::Type) need(arg.getAsType());
  if (arg.getKind() == TemplateArgument::Declaration) need(arg.getAsDecl());
  if (arg.getKind() == TemplateArgument::Template)
    if (const TemplateDecl* d = arg.getAsTemplate().getAsTemplateDecl()) need(d);
  if (arg.getKind() == TemplateArgument::Pack)
    for (const TemplateArgument& a : arg.pack_elements()) need(a);
}

void Extractor::need(const Decl* decl) {
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

bool Extractor::is_global_function(const Decl& decl) {
  const auto* named = dyn_cast<NamedDecl>(&decl);
  return named && (isa<FunctionDecl>(decl) || isa<FunctionTemplateDecl>(decl)) &&
         named->getDeclName().isIdentifier() &&
         decl.getDeclContext()->getRedeclContext()->isTranslationUnit();
}

void Extractor::check_name(StringRef name, SourceLocation at) {
  if (is_unit_word(name) && name != kMeant && is_users(sources_, at) &&
      told_.insert(name.str()).second)
    reports_.error(at,
                   fmt::format("'{}' means something else in kernel.cu: nothing that comes along "
                               "with the kernel can have this name",
                               name.str()));
}

std::string Extractor::overloads() const {
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

void Extractor::mark(SourceLocation loc) {
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

bool Extractor::in_directive(SourceLocation loc) const {
  const auto [file, at] = sources_.getDecomposedExpansionLoc(loc);
  const auto seen = seen_.files.find(file);
  return seen != seen_.files.end() &&
         std::any_of(seen->second.cuts.begin(), seen->second.cuts.end(),
                     [at = at](const FileText::Cut& c) { return at >= c.begin && at < c.end; });
}

const Item* Extractor::item_at(SourceLocation loc) const {
  if (!loc.isValid() || !is_users(sources_, loc)) return nullptr;
  const auto [file, at] = sources_.getDecomposedExpansionLoc(loc);
  for (const Item& item : items_)
    if (item.file == file && at >= item.begin && at < item.end) return &item;
  return nullptr;
}

bool Extractor::names_one_of(const Item& item, const std::set<StringRef>& names) const {
  const StringRef data = sources_.getBufferData(item.file);
  Lexer lexer(sources_.getLocForStartOfFile(item.file), context_.getLangOpts(), data.begin(),
              data.begin() + item.first, data.end());
  for (Token token; !lexer.LexFromRawLexer(token) && offset(token.getLocation()) < item.end;)
    if (token.is(tok::raw_identifier) && names.count(token.getRawIdentifier()) > 0) return true;
  return false;
}

unsigned Extractor::end_of(SourceLocation loc) const {
  SourceLocation end = sources_.getExpansionRange(loc).getEnd();
  end = Lexer::getLocForEndOfToken(end, 0, sources_, context_.getLangOpts());
  const auto next = Lexer::findNextToken(sources_.getExpansionRange(loc).getEnd(), sources_,
                                         context_.getLangOpts());
  if (next && next->is(tok::semi) && file_of(next->getLocation()) == file_of(loc))
    end = next->getEndLoc();
  return offset(end);
}

void Extractor::collect(DeclContext* scope) {
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

unsigned Extractor::brace(SourceLocation loc) const {
  SourceLocation at = sources_.getExpansionLoc(loc);
  while (const auto next = Lexer::findNextToken(at, sources_, context_.getLangOpts())) {
    at = next->getLocation();
    if (next->is(tok::l_brace)) break;
  }
  return offset(Lexer::getLocForEndOfToken(at, 0, sources_, context_.getLangOpts()));
}

unsigned Extractor::linkage_begin(const LinkageSpecDecl* spec) const {
  if (spec->hasBraces()) return brace(spec->getExternLoc());
  const auto language = Lexer::findNextToken(sources_.getExpansionLoc(spec->getExternLoc()),
                                             sources_, context_.getLangOpts());
  return language ? offset(language->getEndLoc()) : offset(spec->getExternLoc());
}

bool Extractor::known_namespace(const NamespaceDecl* ns) const {
  if (!ns) return false;
  for (const NamespaceDecl* d : ns->redecls())
    if (is_users(sources_, d->getLocation())) return true;
  const std::string name = ns->getQualifiedNameAsString();
  return name == "cooperative_groups" || name.rfind("nvcuda", 0) == 0;
}

bool Extractor::stays(const Decl* d) const {
  if (const auto* use = dyn_cast<UsingDirectiveDecl>(d))
    return known_namespace(use->getNominatedNamespace());
  if (const auto* alias = dyn_cast<NamespaceAliasDecl>(d))
    return known_namespace(alias->getNamespace());
  if (isa<CXXDeductionGuideDecl>(d)) return true;
  if (const auto* t = dyn_cast<FunctionTemplateDecl>(d))
    return isa<CXXDeductionGuideDecl>(t->getTemplatedDecl());
  return false;
}

bool Extractor::is_hosts(const Decl& d) {
  const Decl* decl = &d;
  if (const auto* a_friend = dyn_cast<FriendDecl>(decl)) decl = a_friend->getFriendDecl();
  const auto* record = dyn_cast<CXXRecordDecl>(d.getLexicalDeclContext());
  return decl && record && !record->isLambda() && runs_on_host(*decl);
}

}  // namespace maco::frontend::cuda
