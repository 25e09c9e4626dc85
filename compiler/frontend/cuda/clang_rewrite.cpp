// clang_rewrite.cpp: changes that make functions of a task of the kernel's.
#include "compiler/frontend/cuda/clang_extractor.h"

#include <clang/AST/Attr.h>
#include <clang/AST/DynamicRecursiveASTVisitor.h>
#include <clang/AST/ExprCXX.h>
#include <clang/Lex/Lexer.h>

#include <algorithm>

namespace maco::frontend::cuda {

void Extractor::leaving_edits() {
  if (!kernel_.has_warp_word) return;
  const auto* body = dyn_cast<CompoundStmt>(kernel_.function->getBody());
  if (!body) return;
  leaving_block(*body);
  struct Jumps : DynamicRecursiveASTVisitor {
    bool VisitGotoStmt(GotoStmt*) override {
      found = true;
      return false;
    }
    bool found = false;
  } jumps;
  jumps.TraverseStmt(kernel_.function->getBody());
  // Some lanes may pass by the place where the others agree.
  if (leaving_ && jumps.found) nested_return(body);
}

bool Extractor::leaving_block(const CompoundStmt& block) {
  return std::all_of(block.body_begin(), block.body_end(),
                     [&](const Stmt* s) { return leaving_statement(s); });
}

bool Extractor::leaving_statement(const Stmt* s) {
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

const ReturnStmt* Extractor::find_return(const Stmt* s) const {
  struct Finder : DynamicRecursiveASTVisitor {
    explicit Finder(const ASTContext& c) : context(c) {}
    bool TraverseLambdaExpr(LambdaExpr*) override { return true; }
    bool TraverseCXXRecordDecl(CXXRecordDecl*) override { return true; }
    bool TraverseIfStmt(IfStmt* branch) override {
      if (!branch->isConstexpr()) return DynamicRecursiveASTVisitor::TraverseIfStmt(branch);
      const auto taken = branch->getNondiscardedCase(context);
      return !taken || !*taken || TraverseStmt(*taken);
    }
    bool VisitReturnStmt(ReturnStmt* r) override {
      found = r;
      return false;
    }
    const ASTContext& context;
    const ReturnStmt* found = nullptr;
  } finder(context_);
  finder.TraverseStmt(const_cast<Stmt*>(s));  // NOLINT: visitors take no const
  return finder.found;
}

bool Extractor::ends_with_return(const Stmt* s) const {
  if (isa<ReturnStmt>(s)) return true;
  const auto* block = dyn_cast<CompoundStmt>(s);
  if (!block || block->body_empty() || !isa<ReturnStmt>(block->body_back())) return false;
  for (const Stmt* child : block->body())
    if (child != block->body_back() && returns(child)) return false;
  return true;
}

void Extractor::nested_return(const Stmt* s) {
  if (request_.arch == 0) return;
  reports_.error(find_return(s)->getReturnLoc(),
                 "a thread may return here while others of its warp go on to shuffle or vote; "
                 "return at the outermost level of the kernel, in an 'if' without 'else'");
}

void Extractor::function_edits() {
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

void Extractor::global_words(const FunctionDecl& f) {
  SourceLocation at = sources_.getExpansionLoc(f.getBeginLoc());
  const unsigned name = offset(f.getLocation());
  while (const auto next = Lexer::findNextToken(at, sources_, context_.getLangOpts())) {
    at = next->getLocation();
    if (file_of(at) != file_of(f.getLocation()) || offset(at) >= name) return;
    if (next->is(tok::raw_identifier) && next->getRawIdentifier() == "__global__")
      edit(device_, at, at, "__device__");
  }
}

void Extractor::lambda_edits() {
  struct Finder : DynamicRecursiveASTVisitor {
    bool VisitLambdaExpr(LambdaExpr* lambda) override {
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

SourceLocation Extractor::first_word(const Decl& d) const {
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

void Extractor::host_edits() {
  struct Finder : DynamicRecursiveASTVisitor {
    bool VisitCXXRecordDecl(CXXRecordDecl* record) override {
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

void Extractor::linkage_edits() {
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

}  // namespace maco::frontend::cuda
