#include "compiler/frontend/cuda/clang_writes.h"

#include <clang/AST/DynamicRecursiveASTVisitor.h>
#include <clang/AST/ExprCXX.h>

#include <algorithm>
#include <set>

#include "compiler/frontend/cuda/facts.h"

namespace maco::frontend::cuda {

using namespace clang;  // NOLINT: its names are all over this file

namespace {

using Set = std::set<const ValueDecl*>;

bool mentions(const Stmt* e, const Set& aliases) {
  if (!e) return false;
  if (const auto* ref = dyn_cast<DeclRefExpr>(e)) return aliases.count(ref->getDecl()) > 0;
  return std::any_of(e->child_begin(), e->child_end(),
                     [&](const Stmt* child) { return mentions(child, aliases); });
}
bool is_plain(QualType type) { return type->isPointerType() || type->isReferenceType(); }
// The alias from which a pointer or an lvalue is made. `through`: whether it is dereferenced.
const DeclRefExpr* base(const Expr* e, const Set& set, bool& through) {
  for (;;) {
    e = e->IgnoreParenCasts();
    if (const auto* index = dyn_cast<ArraySubscriptExpr>(e)) {
      through = true;
      e = index->getBase();
    } else if (const auto* member = dyn_cast<MemberExpr>(e)) {
      through = through || member->isArrow();
      e = member->getBase();
    } else if (const auto* unary = dyn_cast<UnaryOperator>(e)) {
      through = through || unary->getOpcode() == UO_Deref;
      e = unary->getSubExpr();
    } else if (const auto* binary = dyn_cast<BinaryOperator>(e)) {
      e = binary->getLHS()->getType()->isPointerType() || binary->isAssignmentOp()
              ? binary->getLHS()
              : binary->getRHS();
    } else if (const auto* choice = dyn_cast<ConditionalOperator>(e)) {
      e = mentions(choice->getTrueExpr(), set) ? choice->getTrueExpr() : choice->getFalseExpr();
    } else {
      const auto* ref = dyn_cast<DeclRefExpr>(e);
      return ref && set.count(ref->getDecl()) > 0 ? ref : nullptr;
    }
  }
}
/// Finds pointers and references to where an alias points.
struct Aliases : DynamicRecursiveASTVisitor {
  explicit Aliases(Set& s) : set(s) {}
  bool VisitVarDecl(VarDecl* var) override {
    bool through = var->getType()->isReferenceType();
    if (var->getInit() && is_plain(var->getType()) && base(var->getInit(), set, through))
      set.insert(var);
    return true;
  }
  bool VisitBinaryOperator(BinaryOperator* o) override {
    bool through = false;
    if (o->getOpcode() != BO_Assign || !o->getLHS()->getType()->isPointerType()) return true;
    if (auto* ref = dyn_cast<DeclRefExpr>(o->getLHS()->IgnoreParenCasts());
        ref && base(o->getRHS(), set, through))
      set.insert(ref->getDecl());
    return true;
  }
  Set& set;
};
/// All that points where a parameter of a function with this body does, including the parameter.
Set aliases_of(const FunctionDecl* body, const ParmVarDecl* parameter) {
  Set aliases = {parameter};
  for (size_t before = 0; before != aliases.size();) {
    before = aliases.size();
    Aliases more(aliases);
    more.TraverseStmt(body->getBody());
  }
  return aliases;
}
/// The same parameter in the declaration with the body.
const ParmVarDecl* with_body(const FunctionDecl* f, const FunctionDecl* body,
                             const ParmVarDecl* parameter) {
  for (unsigned i = 0; i < f->getNumParams() && i < body->getNumParams(); ++i)
    if (f->getParamDecl(i) == parameter) return body->getParamDecl(i);
  return parameter;
}

class Search {
 public:
  explicit Search(const SourceManager& sources) : sources_(sources) {}

  Writes found;

  void look(const FunctionDecl* f, const ParmVarDecl* parameter) {
    const FunctionDecl* body = nullptr;
    if (!f->hasBody(body) || !is_users(sources_, f->getLocation())) {
      found.maybe = true;
      return;
    }
    const ParmVarDecl* own = with_body(f, body, parameter);
    if (!asked_.insert(own).second) return;
    const Set aliases = aliases_of(body, own);
    Finder(*this, aliases).TraverseStmt(body->getBody());
  }

 private:
  struct Finder : DynamicRecursiveASTVisitor {
    Finder(Search& s, const Set& a) : search(s), writes(s.found), set(a) {}
    void written(const Expr* place, SourceLocation loc) {
      bool through = false;
      const DeclRefExpr* ref = base(place, set, through);
      if (ref && (through || ref->getDecl()->getType()->isReferenceType()) && writes.at.isInvalid())
        writes.at = loc;
    }
    bool VisitBinaryOperator(BinaryOperator* o) override {
      if (o->isAssignmentOp()) written(o->getLHS(), o->getBeginLoc());
      return true;
    }
    bool VisitUnaryOperator(UnaryOperator* o) override {
      if (o->isIncrementDecrementOp()) written(o->getSubExpr(), o->getBeginLoc());
      return true;
    }
    bool VisitCXXConstructExpr(CXXConstructExpr* e) override {
      for (const Expr* arg : e->arguments()) writes.maybe = writes.maybe || mentions(arg, set);
      return true;
    }
    bool VisitInitListExpr(InitListExpr* e) override {
      if (e->getType()->isRecordType()) writes.maybe = writes.maybe || mentions(e, set);
      return true;
    }
    bool VisitLambdaExpr(LambdaExpr* e) override {
      writes.maybe = writes.maybe || mentions(e->getBody(), set);
      return true;
    }
    bool VisitCallExpr(CallExpr* call) override {
      const FunctionDecl* f = call->getDirectCallee();
      const auto* operation = dyn_cast<CXXOperatorCallExpr>(call);
      const bool member = operation && f && isa<CXXMethodDecl>(f);
      if (operation && operation->isAssignmentOp()) written(call->getArg(0), call->getBeginLoc());
      for (unsigned i = 0; i < call->getNumArgs(); ++i) {
        const unsigned p = member ? i - 1 : i;
        const Expr* arg = call->getArg(i);
        if ((member && i == 0) || !mentions(arg, set)) continue;
        if (!f || p >= f->getNumParams()) {
          writes.maybe = true;
          continue;
        }
        const QualType type = f->getParamDecl(p)->getType();
        if (!is_plain(type)) {
          writes.maybe = writes.maybe || type->isRecordType();
          continue;
        }
        bool through = true;
        if (!base(arg, set, through)) continue;
        if (is_users(search.sources_, f->getLocation())) {
          search.look(f, f->getParamDecl(p));
        } else if (!type->getPointeeType().isConstQualified()) {
          if (f->getIdentifier() &&
              (f->getName().starts_with("atomic") || f->getName().starts_with("__st"))) {
            if (writes.at.isInvalid()) writes.at = call->getBeginLoc();
          } else {
            writes.maybe = true;
          }
        }
      }
      return true;
    }
    Search& search;
    Writes& writes;
    const Set& set;
  };

  const SourceManager& sources_;
  std::set<const ParmVarDecl*> asked_;
};

/// Finds the first access through a parameter in the order of the text. This is the order of
/// execution except for loops and branches.
class FirstAccess {
 public:
  explicit FirstAccess(const SourceManager& sources) : sources_(sources) {}

  enum class Kind : uint8_t { None, Read, Write, Unknown };
  Kind kind = Kind::None;
  SourceLocation at;

  void look(const FunctionDecl* f, const ParmVarDecl* parameter) {
    const FunctionDecl* body = nullptr;
    if (!f->hasBody(body) || !is_users(sources_, f->getLocation()))
      return found(Kind::Unknown, f->getLocation());
    const ParmVarDecl* own = with_body(f, body, parameter);
    if (!asked_.insert(own).second) return;
    const Set outer = std::move(set_);
    set_ = aliases_of(body, own);
    walk(body->getBody());
    set_ = outer;
  }

 private:
  void found(Kind what, SourceLocation where) {
    if (kind != Kind::None) return;
    kind = what;
    at = where;
  }
  /// Whether it is a place behind the pointer.
  bool is_place(const Expr* e) const {
    bool through = false;
    const DeclRefExpr* ref = base(e, set_, through);
    return ref && (through || ref->getDecl()->getType()->isReferenceType());
  }
  void walk_children(const Stmt* s) {
    for (const Stmt* child : s->children()) walk(child);
  }
  void walk(const Stmt* s) {
    if (!s || kind != Kind::None) return;
    if (isa<LambdaExpr>(s)) {
      if (mentions(cast<LambdaExpr>(s)->getBody(), set_)) found(Kind::Unknown, s->getBeginLoc());
      return;
    }
    if (const auto* o = dyn_cast<BinaryOperator>(s); o && o->isAssignmentOp()) {
      walk(o->getRHS());
      walk_children(o->getLHS());
      if (is_place(o->getLHS()))
        found(o->isCompoundAssignmentOp() ? Kind::Read : Kind::Write, o->getBeginLoc());
      return;
    }
    if (const auto* o = dyn_cast<UnaryOperator>(s)) {
      walk_children(o);
      if (o->isIncrementDecrementOp() && is_place(o->getSubExpr()))
        found(Kind::Read, o->getBeginLoc());
      return;
    }
    if (const auto* cast = dyn_cast<CastExpr>(s)) {
      walk_children(cast);
      if (cast->getCastKind() == CK_LValueToRValue && is_place(cast->getSubExpr()))
        found(Kind::Read, cast->getBeginLoc());
      return;
    }
    if (const auto* call = dyn_cast<CallExpr>(s)) return walk_call(*call);
    if (const auto* made = dyn_cast<CXXConstructExpr>(s)) {
      walk_children(made);
      for (const Expr* arg : made->arguments())
        if (mentions(arg, set_))
          found(is_place(arg) ? Kind::Read : Kind::Unknown, made->getBeginLoc());
      return;
    }
    walk_children(s);
  }
  void walk_call(const CallExpr& call) {
    const auto* operation = dyn_cast<CXXOperatorCallExpr>(&call);
    const FunctionDecl* f = call.getDirectCallee();
    if (operation && operation->isAssignmentOp() && call.getNumArgs() == 2) {
      walk(call.getArg(1));
      walk_children(call.getArg(0));
      if (is_place(call.getArg(0)))
        found(operation->getOperator() == OO_Equal ? Kind::Write : Kind::Read, call.getBeginLoc());
      return;
    }
    for (const Expr* arg : call.arguments()) walk(arg);
    const bool member = operation && f && isa<CXXMethodDecl>(f);
    for (unsigned i = member ? 1 : 0; i < call.getNumArgs() && kind == Kind::None; ++i) {
      const unsigned p = member ? i - 1 : i;
      const Expr* arg = call.getArg(i);
      if (!mentions(arg, set_)) continue;
      if (!f || p >= f->getNumParams()) return found(Kind::Unknown, call.getBeginLoc());
      bool through = true;
      if (!is_plain(f->getParamDecl(p)->getType()) || !base(arg, set_, through)) continue;
      const llvm::StringRef name = f->getIdentifier() ? f->getName() : llvm::StringRef();
      if (is_users(sources_, f->getLocation())) {
        look(f, f->getParamDecl(p));
        if (kind == Kind::Read) at = call.getBeginLoc();
      } else if (name.starts_with("atomic") || name.starts_with("__ld")) {
        found(name.starts_with("atomicExch") ? Kind::Write : Kind::Read, call.getBeginLoc());
      } else {
        found(name.starts_with("__st") ? Kind::Write : Kind::Unknown, call.getBeginLoc());
      }
    }
  }

  const SourceManager& sources_;
  Set set_;
  std::set<const ParmVarDecl*> asked_;
};

}  // namespace

Writes writes_through(const SourceManager& sources, const FunctionDecl& f,
                      const ParmVarDecl& parameter) {
  Search search(sources);
  search.look(&f, &parameter);
  return search.found;
}

SourceLocation first_read(const SourceManager& sources, const FunctionDecl& f,
                          const ParmVarDecl& parameter) {
  FirstAccess first(sources);
  first.look(&f, &parameter);
  return first.kind == FirstAccess::Kind::Read ? first.at : SourceLocation();
}

}  // namespace maco::frontend::cuda
