// Evaluates the integers of a kernel for each thread of some blocks, as far as they follow from the
// block, the thread and the graph's constants. If a thread's path is known, this shows accesses
// outside of what the graph declares, and barriers that other threads of the block don't reach.
// What depends on data, or takes too long to follow, isn't judged.
#include <clang/AST/DynamicRecursiveASTVisitor.h>
#include <clang/AST/ExprCXX.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "compiler/frontend/cuda/facts.h"

namespace maco::frontend::cuda {

using namespace clang;  // NOLINT: its names are all over this file

namespace {

/// A number, a place in a tensor, or unknown.
struct Value {
  enum class Kind : uint8_t { Unknown, Int, Pointer };
  Kind kind = Kind::Unknown;
  int64_t number = 0;  // Int; Pointer: offset in the tensor, in bytes
  size_t arg = 0;      // Pointer
  static Value of(int64_t n) { return {Kind::Int, n, 0}; }
  bool is_int() const { return kind == Kind::Int; }
  bool is_pointer() const { return kind == Kind::Pointer; }
};

/// How a thread leaves a statement.
enum class Flow : uint8_t { On, Break, Continue, Return, Lost };

/// What a thread encountered.
struct Trace {
  std::vector<SourceLocation> barriers;
  bool known = true;      // all of its path, and so every barrier that it reached
  bool returned = false;  // by a return before the end
};

constexpr int64_t kMostSteps = 200'000, kMostOfThread = 20'000;

class Thread {
 public:
  Thread(const Kernel& kernel, const KernelRequest& request, const BlockSample& sample,
         std::array<int64_t, 3> at, int64_t& steps, Reports* reports,
         std::vector<int64_t>* touched = nullptr)
      : context_(kernel.context),
        request_(request),
        sample_(sample),
        at_(at),
        steps_(steps),
        reports_(reports),
        touched_(touched) {
    const FunctionDecl& f = *kernel.function;
    for (size_t i = 0; i < request.args.size() && i < f.getNumParams(); ++i) {
      const KernelArg& arg = request.args[i];
      Value v;
      if (arg.kind == KernelArg::Kind::Tensor)
        v = {Value::Kind::Pointer, 0, i};
      else if (arg.kind == KernelArg::Kind::Integer && arg.integer)
        v = Value::of(*arg.integer);
      variables_[f.getParamDecl(static_cast<unsigned>(i))] = v;
    }
    const Flow flow = run(f.getBody());
    trace.returned = flow == Flow::Return && !at_end_;
    if (flow == Flow::Lost) trace.known = false;
  }
  Trace trace;

 private:
  // ---- statements ------------------------------------------------------------------------------

  bool tired() {
    ++own_steps_;
    return ++steps_ > kMostSteps || own_steps_ > kMostOfThread;
  }

  Flow run(const Stmt* s) {
    if (!s) return Flow::On;
    if (tired()) return Flow::Lost;
    if (const auto* c = dyn_cast<CompoundStmt>(s)) {
      for (const Stmt* child : c->body()) {
        const bool last = depth_ == 0 && child == c->body_back() && nesting_ == 0;
        ++nesting_;
        const Flow flow = run(child);
        --nesting_;
        if (flow == Flow::Return && last && isa<ReturnStmt>(child)) at_end_ = true;
        if (flow != Flow::On) return flow;
      }
      return Flow::On;
    }
    if (const auto* d = dyn_cast<DeclStmt>(s)) {
      for (const Decl* decl : d->decls())
        if (const auto* var = dyn_cast<VarDecl>(decl)) declare(*var);
      return Flow::On;
    }
    if (const auto* e = dyn_cast<Expr>(s)) {
      value(e);
      return lost_ ? Flow::Lost : Flow::On;
    }
    if (const auto* r = dyn_cast<ReturnStmt>(s)) {
      result_ = r->getRetValue() ? value(r->getRetValue()) : Value();
      return lost_ ? Flow::Lost : Flow::Return;
    }
    if (isa<NullStmt>(s)) return Flow::On;
    if (isa<BreakStmt>(s)) return Flow::Break;
    if (isa<ContinueStmt>(s)) return Flow::Continue;
    if (const auto* a = dyn_cast<AttributedStmt>(s)) return run(a->getSubStmt());
    if (const auto* i = dyn_cast<IfStmt>(s)) return branch(*i);
    if (const auto* f = dyn_cast<ForStmt>(s)) {
      if (f->getInit() && run(f->getInit()) == Flow::Lost) return Flow::Lost;
      return loop(s, f->getCond(), f->getBody(), f->getInc(), false);
    }
    if (const auto* w = dyn_cast<WhileStmt>(s))
      return loop(s, w->getCond(), w->getBody(), nullptr, false);
    if (const auto* d = dyn_cast<DoStmt>(s))
      return loop(s, d->getCond(), d->getBody(), nullptr, true);
    return unknown(s);
  }

  void declare(const VarDecl& var) {
    if (var.getType()->isReferenceType()) {
      variables_[&var] = Value();
      bind(var, var.getInit());
      if (!var.getType()->getPointeeType().isConstQualified()) share(var.getInit());
      return;
    }
    variables_[&var] = var.getInit() ? fit(value(var.getInit()), var.getType()) : Value();
  }

  Flow branch(const IfStmt& s) {
    if (s.getInit()) run(s.getInit());
    if (s.getConditionVariable()) declare(*s.getConditionVariable());
    const Value c = s.getCond() ? value(s.getCond()) : Value();
    if (lost_) return Flow::Lost;
    if (c.is_int()) return run(c.number != 0 ? s.getThen() : s.getElse());
    const Flow then = unknown(s.getThen()), other = unknown(s.getElse());
    return then == Flow::Lost || other == Flow::Lost ? Flow::Lost : Flow::On;
  }

  Flow loop(const Stmt* whole, const Expr* condition, const Stmt* body, const Expr* step,
            bool first) {
    for (bool again = false;; again = true) {
      if (tired()) return Flow::Lost;
      if (condition && (again || !first)) {
        const Value c = value(condition);
        if (lost_) return Flow::Lost;
        if (!c.is_int()) return unknown(whole);
        if (c.number == 0) return Flow::On;
      }
      const Flow flow = run(body);
      if (flow == Flow::Break) return Flow::On;
      if (flow == Flow::Return || flow == Flow::Lost) return flow;
      if (step) value(step);
      if (lost_) return Flow::Lost;
    }
  }

  /// The statement may run any number of times, or not at all: variables that it assigns become
  /// unknown. If it may leave the statement around it, the thread's path is unknown, too.
  Flow unknown(const Stmt* s) {
    if (!s) return Flow::On;
    struct Finder : DynamicRecursiveASTVisitor {
      bool TraverseLambdaExpr(LambdaExpr*) override { return true; }
      bool VisitBinaryOperator(BinaryOperator* o) override {
        if (o->isAssignmentOp()) assigned(o->getLHS());
        return true;
      }
      bool VisitUnaryOperator(UnaryOperator* o) override {
        if (o->isIncrementDecrementOp() || o->getOpcode() == UO_AddrOf) assigned(o->getSubExpr());
        return true;
      }
      bool VisitVarDecl(VarDecl* var) override {
        set.insert(var);
        return true;
      }
      bool VisitCallExpr(CallExpr* call) override {
        for (Expr* arg : call->arguments()) assigned(arg);
        if (const FunctionDecl* f = call->getDirectCallee()) barriers = barriers || waits(f, 0);
        return true;
      }
      bool VisitReturnStmt(ReturnStmt*) override { return leaves = true; }
      bool VisitGotoStmt(GotoStmt*) override { return leaves = true; }
      bool VisitBreakStmt(BreakStmt*) override { return leaves = true; }
      bool VisitContinueStmt(ContinueStmt*) override { return leaves = true; }
      void assigned(Expr* e) {
        if (auto* ref = dyn_cast<DeclRefExpr>(e->IgnoreParenCasts()))
          if (auto* var = dyn_cast<VarDecl>(ref->getDecl())) set.insert(var);
      }
      static bool waits(const FunctionDecl* f, int depth) {
        if (is_block_barrier(f)) return true;
        const FunctionDecl* body = nullptr;
        if (depth > 8 || !f->hasBody(body)) return false;
        struct Calls : DynamicRecursiveASTVisitor {
          bool VisitCallExpr(CallExpr* call) override {
            if (const FunctionDecl* callee = call->getDirectCallee())
              found = found || waits(callee, depth + 1);
            return true;
          }
          int depth = 0;
          bool found = false;
        } calls;
        calls.depth = depth;
        calls.TraverseStmt(body->getBody());
        return calls.found;
      }
      std::set<const VarDecl*> set;
      bool leaves = false, barriers = false;
    } finder;
    finder.TraverseStmt(const_cast<Stmt*>(s));  // NOLINT: visitors take no const
    for (const VarDecl* var : finder.set) variables_[var] = Value();
    if (finder.barriers) trace.known = false;
    return finder.leaves ? Flow::Lost : Flow::On;
  }

  // ---- values ----------------------------------------------------------------------------------

  /// The value as the type holds it.
  Value fit(Value v, QualType type) const {
    if (!v.is_int()) return type->isPointerType() || v.is_int() ? v : Value();
    if (type->isBooleanType()) return Value::of(v.number != 0 ? 1 : 0);
    if (!type->isIntegralOrEnumerationType() || type->isDependentType()) return Value();
    const auto bits = static_cast<unsigned>(context_.getIntWidth(type));
    if (bits >= 64) return type->isUnsignedIntegerType() && v.number < 0 ? Value() : v;
    const uint64_t mask = (uint64_t{1} << bits) - 1;
    uint64_t n = static_cast<uint64_t>(v.number) & mask;
    if (type->isSignedIntegerType() && (n >> (bits - 1)) != 0) n |= ~mask;
    return Value::of(static_cast<int64_t>(n));
  }

  int64_t size_of(QualType type) const {
    if (type->isIncompleteType() || type->isDependentType() || type->isFunctionType()) return 1;
    return std::max<int64_t>(1, context_.getTypeSizeInChars(type).getQuantity());
  }

  /// Notes what a reference refers to, if that is a place in a tensor.
  void bind(const ValueDecl& reference, const Expr* to) {
    references_.erase(&reference);
    if (!to) return;
    const Value at = address(to);
    if (at.is_pointer()) references_[&reference] = at;
  }

  Value builtin(llvm::StringRef base, llvm::StringRef member) const {
    if (member != "x" && member != "y" && member != "z") return {};
    const size_t axis = member == "x" ? 0 : member == "y" ? 1 : 2;
    if (base == "threadIdx") return Value::of(at_[axis]);
    if (base == "blockIdx") return Value::of(sample_.block[axis]);
    if (base == "blockDim") return Value::of(request_.block[axis]);
    if (base == "gridDim") return Value::of(sample_.grid[axis]);
    return {};
  }

  Value value(const Expr* e) {
    if (!e || lost_) return {};
    if (tired()) {
      lost_ = true;
      return {};
    }
    if (const auto* p = dyn_cast<ParenExpr>(e)) return value(p->getSubExpr());
    if (const auto* c = dyn_cast<FullExpr>(e)) return value(c->getSubExpr());
    if (const auto* n = dyn_cast<IntegerLiteral>(e))
      return Value::of(static_cast<int64_t>(n->getValue().getLimitedValue()));
    if (const auto* b = dyn_cast<CXXBoolLiteralExpr>(e)) return Value::of(b->getValue() ? 1 : 0);
    if (const auto* cast = dyn_cast<CastExpr>(e)) return converted(*cast);
    if (const auto* unary = dyn_cast<UnaryOperator>(e)) return unary_value(*unary);
    if (const auto* binary = dyn_cast<BinaryOperator>(e)) return binary_value(*binary);
    if (const auto* choice = dyn_cast<ConditionalOperator>(e)) {
      const Value c = value(choice->getCond());
      if (c.is_int()) return value(c.number != 0 ? choice->getTrueExpr() : choice->getFalseExpr());
      return {};
    }
    if (const auto* call = dyn_cast<CallExpr>(e)) return called(*call);
    if (const auto* made = dyn_cast<CXXConstructExpr>(e)) return constructed(*made);
    if (const auto* t = dyn_cast<MaterializeTemporaryExpr>(e)) return value(t->getSubExpr());
    if (const auto* t = dyn_cast<CXXBindTemporaryExpr>(e)) return value(t->getSubExpr());
    if (const auto* list = dyn_cast<InitListExpr>(e)) {
      for (const Expr* one : list->inits()) value(one);
      return {};
    }
    if (const auto* member = dyn_cast<MemberExpr>(e); member && !member->isArrow()) {
      if (!member->isGLValue() || isa<MaterializeTemporaryExpr>(member->getBase()->IgnoreParens()))
        value(member->getBase());
      return {};
    }
    if (const auto* s = dyn_cast<SubstNonTypeTemplateParmExpr>(e))
      return value(s->getReplacement());
    if (const auto* d = dyn_cast<CXXDefaultArgExpr>(e)) return value(d->getExpr());
    if (const auto* ref = dyn_cast<DeclRefExpr>(e)) return variable(*ref);
    Expr::EvalResult constant;
    if (!e->isValueDependent() && e->getType()->isIntegralOrEnumerationType() &&
        e->EvaluateAsInt(constant, context_))
      return Value::of(constant.Val.getInt().getExtValue());
    // Its parts may contain accesses, but it isn't known whether these are reached.
    return {};
  }

  /// threadIdx.x, blockDim.y and so on.
  std::optional<Value> place_of_thread(const Expr* e) const {
    const auto* member = dyn_cast<MemberExpr>(e);
    const auto* base =
        member ? dyn_cast<DeclRefExpr>(member->getBase()->IgnoreParenCasts()) : nullptr;
    if (!base || is_users(context_.getSourceManager(), base->getDecl()->getLocation()))
      return std::nullopt;
    const Value v = builtin(base->getDecl()->getName(), member->getMemberDecl()->getName());
    return v.is_int() ? std::optional(v) : std::nullopt;
  }

  /// From here on the variable may also change through something other than its name.
  void share(const Expr* place) {
    if (const auto* ref = place ? dyn_cast<DeclRefExpr>(place->IgnoreParenImpCasts()) : nullptr)
      shared_.insert(ref->getDecl());
  }

  Value variable(const DeclRefExpr& ref) {
    if (shared_.count(ref.getDecl()) > 0) return {};
    const auto found = variables_.find(ref.getDecl());
    if (found != variables_.end()) return found->second;
    Expr::EvalResult constant;
    if (!ref.isValueDependent() && ref.getType()->isIntegralOrEnumerationType() &&
        ref.EvaluateAsInt(constant, context_))
      return Value::of(constant.Val.getInt().getExtValue());
    return {};
  }

  Value converted(const CastExpr& cast) {
    const Expr* sub = cast.getSubExpr();
    switch (cast.getCastKind()) {
      case CK_LValueToRValue: {
        const Expr* place = sub->IgnoreParens();
        if (const auto* ref = dyn_cast<DeclRefExpr>(place); ref && !refers(*ref))
          return variable(*ref);
        if (const auto index = place_of_thread(place)) return *index;
        access(place, false);
        return {};
      }
      case CK_ArrayToPointerDecay: return address(sub);
      case CK_IntegralCast:
      case CK_IntegralToBoolean:
      case CK_BooleanToSignedIntegral: return fit(value(sub), cast.getType());
      case CK_NoOp:
      case CK_BitCast:
      case CK_ConstructorConversion:
      case CK_UserDefinedConversion: return value(sub);
      default: value(sub); return {};
    }
  }

  Value unary_value(const UnaryOperator& o) {
    const Expr* sub = o.getSubExpr();
    switch (o.getOpcode()) {
      case UO_Plus: return value(sub);
      case UO_Minus: {
        const Value v = value(sub);
        return v.is_int()
                   ? fit(Value::of(static_cast<int64_t>(0 - static_cast<uint64_t>(v.number))),
                         o.getType())
                   : Value();
      }
      case UO_Not: {
        const Value v = value(sub);
        return v.is_int() ? fit(Value::of(~v.number), o.getType()) : Value();
      }
      case UO_LNot: {
        const Value v = value(sub);
        return v.is_int() ? Value::of(v.number == 0 ? 1 : 0) : Value();
      }
      case UO_Deref: return {};
      case UO_AddrOf: {
        Value place = address(sub);
        if (!place.is_pointer()) share(sub);
        return place;
      }
      case UO_PreInc:
      case UO_PreDec:
      case UO_PostInc:
      case UO_PostDec: {
        const bool up = o.isIncrementOp(), prefix = o.isPrefix();
        const auto* ref = dyn_cast<DeclRefExpr>(sub->IgnoreParens());
        if (!ref || refers(*ref)) {
          access(sub, true);
          return {};
        }
        const Value before = variable(*ref);
        const Value after = moved(before, up ? 1 : -1, sub->getType());
        variables_[ref->getDecl()] = after;
        return prefix ? after : before;
      }
      default: value(sub); return {};
    }
  }

  Value moved(const Value& v, int64_t n, QualType type) const {
    if (v.is_int()) return fit(Value::of(v.number + n), type);
    if (v.is_pointer() && type->isPointerType())
      return {Value::Kind::Pointer, v.number + n * size_of(type->getPointeeType()), v.arg};
    return {};
  }

  static std::optional<int64_t> computed(BinaryOperatorKind op, int64_t a, int64_t b) {
    int64_t r = 0;
    switch (op) {
      case BO_Add: return __builtin_add_overflow(a, b, &r) ? std::nullopt : std::optional(r);
      case BO_Sub: return __builtin_sub_overflow(a, b, &r) ? std::nullopt : std::optional(r);
      case BO_Mul: return __builtin_mul_overflow(a, b, &r) ? std::nullopt : std::optional(r);
      case BO_Div:
        return b == 0 || (a == INT64_MIN && b == -1) ? std::nullopt : std::optional(a / b);
      case BO_Rem:
        return b == 0 || (a == INT64_MIN && b == -1) ? std::nullopt : std::optional(a % b);
      case BO_Shl:
        return a < 0 || b < 0 || b > 31 || a > INT32_MAX ? std::nullopt : std::optional(a << b);
      case BO_Shr: return b < 0 || b > 63 ? std::nullopt : std::optional(a >> b);
      case BO_And: return a & b;
      case BO_Or: return a | b;
      case BO_Xor: return a ^ b;
      case BO_LT: return a < b;
      case BO_GT: return a > b;
      case BO_LE: return a <= b;
      case BO_GE: return a >= b;
      case BO_EQ: return a == b;
      case BO_NE: return a != b;
      default: return std::nullopt;
    }
  }

  Value binary_value(const BinaryOperator& o) {
    const BinaryOperatorKind op = o.getOpcode();
    if (op == BO_LAnd || op == BO_LOr) {
      const Value a = value(o.getLHS());
      if (a.is_int() && (a.number != 0) == (op == BO_LOr)) return Value::of(op == BO_LOr ? 1 : 0);
      if (!a.is_int()) {
        // Only the left value could decide whether the right side is reached, and it isn't known.
        return {};
      }
      const Value b = value(o.getRHS());
      return b.is_int() ? Value::of(b.number != 0 ? 1 : 0) : Value();
    }
    if (op == BO_Comma) {
      value(o.getLHS());
      return value(o.getRHS());
    }
    if (o.isAssignmentOp()) {
      const auto* ref = dyn_cast<DeclRefExpr>(o.getLHS()->IgnoreParens());
      Value right = value(o.getRHS());
      if (!ref || refers(*ref)) {
        access(o.getLHS(), true);
        return right;
      }
      if (o.isCompoundAssignmentOp()) {
        const Value left = variable(*ref);
        const BinaryOperatorKind plain = BinaryOperator::getOpForCompoundAssignment(op);
        if (left.is_pointer() && right.is_int() && (plain == BO_Add || plain == BO_Sub)) {
          right =
              moved(left, plain == BO_Add ? right.number : -right.number, o.getLHS()->getType());
        } else {
          const auto n = left.is_int() && right.is_int()
                             ? computed(plain, left.number, right.number)
                             : std::nullopt;
          right = n ? Value::of(*n) : Value();
        }
      }
      return variables_[ref->getDecl()] = fit(right, o.getLHS()->getType());
    }
    const Value a = value(o.getLHS()), b = value(o.getRHS());
    if (op == BO_Add && a.is_pointer() && b.is_int()) return moved(a, b.number, o.getType());
    if (op == BO_Add && b.is_pointer() && a.is_int()) return moved(b, a.number, o.getType());
    if (op == BO_Sub && a.is_pointer() && b.is_int()) return moved(a, -b.number, o.getType());
    if (!a.is_int() || !b.is_int()) return {};
    const auto n = computed(op, a.number, b.number);
    return n ? fit(Value::of(*n), o.getType()) : Value();
  }

  /// Whether the function comes from the user's own text, with all that it does. Copies that C++
  /// generates don't.
  bool is_users_own(const FunctionDecl& f) const {
    const auto* method = dyn_cast<CXXMethodDecl>(&f);
    return is_users(context_.getSourceManager(), f.getLocation()) &&
           (!method || method->isUserProvided());
  }

  /// Counts a read of the whole object, if it lies in a tensor.
  void read_whole(const Expr* e) {
    if (e->IgnoreParenNoopCasts(context_)->isGLValue() &&
        !isa<MaterializeTemporaryExpr>(e->IgnoreParenNoopCasts(context_)))
      access(e, false);
    else
      value(e->IgnoreParenNoopCasts(context_));
  }

  /// Constructors copy vectors and other objects.
  Value constructed(const CXXConstructExpr& made) {
    const CXXConstructorDecl& constructor = *made.getConstructor();
    const bool users = is_users_own(constructor);
    if (constructor.isCopyOrMoveConstructor() && made.getNumArgs() > 0) {
      if (!users) read_whole(made.getArg(0));
      return {};
    }
    for (unsigned i = 0; i < made.getNumArgs() && i < constructor.getNumParams(); ++i)
      if (!constructor.getParamDecl(i)->getType()->isReferenceType())
        value(made.getArg(i));
      else if (!users)
        read_whole(made.getArg(i));
    return {};
  }

  /// An operator of a class that CUDA's headers define or C++ generates.
  Value operated(const CXXOperatorCallExpr& call, const FunctionDecl& f) {
    const OverloadedOperatorKind op = call.getOperator();
    const bool member = isa<CXXMethodDecl>(f);
    const bool assigns = call.isAssignmentOp() || op == OO_PlusPlus || op == OO_MinusMinus;
    const bool hands_out = op == OO_Subscript || op == OO_Call || op == OO_Arrow || op == OO_Star;
    for (unsigned i = 0; i < call.getNumArgs(); ++i) {
      if (i == 0 && (assigns || (member && hands_out))) continue;
      const unsigned p = member ? i - 1 : i;
      const bool object = member && i == 0;
      if (object || (p < f.getNumParams() && f.getParamDecl(p)->getType()->isReferenceType()))
        read_whole(call.getArg(i));
      else
        value(call.getArg(i));
    }
    if (assigns) access(call.getArg(0), true);
    return {};
  }

  /// Functions that get places and touch a known number of bytes there.
  void touch(llvm::StringRef name, const FunctionDecl& f, const CallExpr& call,
             const std::vector<Value>& args) {
    const auto at = [&](size_t i, int64_t bytes, bool writes) {
      if (i < args.size() && args[i].is_pointer() && bytes > 0 && !lost_)
        check(args[i], bytes, writes, call.getBeginLoc());
    };
    static constexpr std::array loads{"__ldg", "__ldca", "__ldcg", "__ldcs", "__ldlu", "__ldcv"};
    static constexpr std::array stores{"__stwb", "__stcg", "__stcs", "__stwt"};
    const auto among = [&](const auto& names) {
      return std::find(names.begin(), names.end(), name) != names.end();
    };
    const bool reads = among(loads), writes = name.starts_with("atomic") || among(stores);
    if ((reads || writes) && f.getNumParams() > 0) {
      const QualType to = f.getParamDecl(0)->getType();
      if (to->isPointerType()) at(0, size_of(to->getPointeeType()), writes);
      return;
    }
    name.consume_front("__builtin_");
    const bool copies = name == "memcpy" || name == "memmove";
    if ((!copies && name != "memset") || args.size() < 3 || !args[2].is_int()) return;
    at(0, args[2].number, true);
    if (copies) at(1, args[2].number, false);
  }

  Value called(const CallExpr& call) {
    const FunctionDecl* f = call.getDirectCallee();
    if (const auto* operation = dyn_cast<CXXOperatorCallExpr>(&call);
        operation && f && !is_users_own(*f))
      return operated(*operation, *f);
    if (!f) {
      for (const Expr* arg : call.arguments()) value(arg);
      return {};
    }
    if (is_block_barrier(f)) {
      for (const Expr* arg : call.arguments()) value(arg);
      trace.barriers.push_back(place_.isValid() ? place_ : call.getBeginLoc());
      return {};
    }
    const llvm::StringRef name = f->getIdentifier() ? f->getName() : llvm::StringRef();
    if (const auto* method = dyn_cast<CXXMethodDecl>(f);
        method && method->getParent()->getIdentifier() &&
        method->getParent()->getName() == "thread_block" && name == "thread_rank")
      return Value::of((at_[2] * request_.block[1] + at_[1]) * request_.block[0] + at_[0]);
    std::vector<Value> args;
    std::vector<const Expr*> places;  // of arguments passed by reference
    const bool operation = isa<CXXOperatorCallExpr>(call) && isa<CXXMethodDecl>(f);
    for (unsigned i = 0; i < call.getNumArgs(); ++i) {
      const Expr* arg = call.getArg(i);
      const unsigned p = operation && i > 0 ? i - 1 : i;
      const bool reference = !(operation && i == 0) && p < f->getNumParams() &&
                             f->getParamDecl(p)->getType()->isReferenceType();
      if (operation && i == 0) continue;
      if (!reference) {
        args.push_back(value(arg));
        continue;
      }
      // By reference: the function may change it if it isn't constant.
      places.resize(p + 1);
      if (!isa<MaterializeTemporaryExpr>(arg->IgnoreParenImpCasts())) places[p] = arg;
      const auto* ref = dyn_cast<DeclRefExpr>(arg->IgnoreParenImpCasts());
      args.push_back(ref ? variable(*ref)
                     : isa<MaterializeTemporaryExpr>(arg->IgnoreParenImpCasts())
                         ? value(arg->IgnoreParenImpCasts())
                         : Value());
      if (ref && !f->getParamDecl(p)->getType()->getPointeeType().isConstQualified())
        variables_[ref->getDecl()] = Value();
    }
    const bool users = is_users(context_.getSourceManager(), f->getLocation());
    if (!users && (name == "min" || name == "max") && args.size() == 2) {
      if (!args[0].is_int() || !args[1].is_int()) return {};
      return Value::of(name == "min" ? std::min(args[0].number, args[1].number)
                                     : std::max(args[0].number, args[1].number));
    }
    if (!users) touch(name, *f, call, args);
    const FunctionDecl* body = nullptr;
    if (!f->hasBody(body) || !users || depth_ >= 8 ||
        std::find(calls_.begin(), calls_.end(), body) != calls_.end())
      return {};
    for (unsigned i = 0; i < body->getNumParams(); ++i)
      bind(*body->getParamDecl(i), i < places.size() ? places[i] : nullptr);
    for (unsigned i = 0; i < body->getNumParams(); ++i)
      variables_[body->getParamDecl(i)] =
          i < args.size() ? (body->getParamDecl(i)->getType()->isReferenceType()
                                 ? args[i]
                                 : fit(args[i], body->getParamDecl(i)->getType()))
                          : Value();
    calls_.push_back(body);
    ++depth_;
    const SourceLocation outer = place_;
    // Barriers of helper functions count where the kernel reaches them, and are reported where they
    // stand.
    const int nesting = nesting_;
    const Flow flow = run(body->getBody());
    nesting_ = nesting;
    place_ = outer;
    --depth_;
    calls_.pop_back();
    if (flow == Flow::Lost) {
      lost_ = true;
      return {};
    }
    const Value result = result_;
    result_ = Value();
    return fit(result, f->getReturnType());
  }

  // ---- accesses --------------------------------------------------------------------------------

  /// The place of an lvalue.
  Value address(const Expr* e) {
    e = e->IgnoreParens();
    if (const auto* index = dyn_cast<ArraySubscriptExpr>(e)) {
      const Value base = value(index->getBase()), i = value(index->getIdx());
      if (!base.is_pointer() || !i.is_int()) return {};
      return {Value::Kind::Pointer, base.number + i.number * size_of(index->getType()), base.arg};
    }
    if (const auto* deref = dyn_cast<UnaryOperator>(e); deref && deref->getOpcode() == UO_Deref)
      return value(deref->getSubExpr());
    if (const auto* member = dyn_cast<MemberExpr>(e)) {
      const auto* field = dyn_cast<FieldDecl>(member->getMemberDecl());
      const Value base = member->isArrow() ? value(member->getBase()) : address(member->getBase());
      if (!base.is_pointer() || !field) return {};
      const auto offset = static_cast<int64_t>(context_.getFieldOffset(field) / 8);
      return {Value::Kind::Pointer, base.number + offset, base.arg};
    }
    if (const auto* cast = dyn_cast<CastExpr>(e);
        cast && (cast->getCastKind() == CK_NoOp || cast->getCastKind() == CK_LValueBitCast))
      return address(cast->getSubExpr());
    if (const auto* ref = dyn_cast<DeclRefExpr>(e)) {
      const auto found = references_.find(ref->getDecl());
      return found == references_.end() ? Value() : found->second;
    }
    if (const auto* choice = dyn_cast<ConditionalOperator>(e)) {
      const Value c = value(choice->getCond());
      if (!c.is_int()) return {};
      return address(c.number != 0 ? choice->getTrueExpr() : choice->getFalseExpr());
    }
    if (const auto* t = dyn_cast<MaterializeTemporaryExpr>(e)) value(t->getSubExpr());
    return {};
  }

  /// Whether it is a reference to a place in a tensor.
  bool refers(const DeclRefExpr& ref) const { return references_.count(ref.getDecl()) > 0; }

  void access(const Expr* place, bool writes) {
    const Value at = address(place);
    if (at.is_pointer() && !lost_)
      check(at, size_of(place->getType()), writes, place->getBeginLoc());
  }

  bool inside(const std::vector<std::array<int64_t, 2>>& ranges, const KernelArg& arg,
              int64_t element) const {
    for (size_t axis = arg.shape.size(); axis-- > 0;) {
      const int64_t i = axis == 0 ? element : element % arg.shape[axis];
      element = axis == 0 ? 0 : element / arg.shape[axis];
      if (axis < ranges.size() && (i < ranges[axis][0] || i >= ranges[axis][1])) return false;
    }
    return true;
  }

  void check(const Value& at, int64_t bytes, bool writes, SourceLocation loc) {
    if (touched_) {
      int64_t& most = (*touched_)[at.arg];
      most = std::max(most, at.number + bytes);
      return;
    }
    if (reports_->any()) return;
    const KernelArg& arg = request_.args[at.arg];
    const int64_t size = ir::size_of(arg.dtype);
    int64_t elements = 1;
    for (const int64_t extent : arg.shape) elements *= extent;
    const int64_t first = at.number >= 0 ? at.number / size : (at.number - size + 1) / size;
    const int64_t last = (at.number + bytes - 1) / size;
    const auto who = [&] {
      return fmt::format("thread ({}, {}, {}) of block ({}, {}, {})", at_[0], at_[1], at_[2],
                         sample_.block[0], sample_.block[1], sample_.block[2]);
    };
    if (first < 0 || last >= elements) {
      reports_->error(loc, fmt::format("{} {} element {} of '{}', which has {}", who(),
                                       writes ? "writes" : "reads", first < 0 ? first : last,
                                       arg.name, elements));
      return;
    }
    // A block may also read what it writes.
    const BlockRegion *own = nullptr, *other = nullptr;
    for (const BlockRegion& r : sample_.regions)
      if (r.arg == at.arg) (r.writes == writes ? own : other) = &r;
    if (!own || (!writes && !other && arg.written)) return;
    for (int64_t i = first; i <= last; ++i) {
      if (inside(own->ranges, arg, i) || (!writes && other && inside(other->ranges, arg, i)))
        continue;
      std::string place;
      int64_t rest = i;
      for (size_t axis = arg.shape.size(); axis-- > 0;) {
        const int64_t n = axis == 0 ? rest : rest % arg.shape[axis];
        rest = axis == 0 ? 0 : rest / arg.shape[axis];
        place = std::to_string(n) + (place.empty() ? "" : ", ") + place;
      }
      reports_->error(
          loc,
          fmt::format("{} {} '{}' at [{}], outside of the region that '{}' gives its block", who(),
                      writes ? "writes" : "reads", arg.name, place, writes ? "writes" : "reads"));
      return;
    }
  }

  ASTContext& context_;
  const KernelRequest& request_;
  const BlockSample& sample_;
  const std::array<int64_t, 3> at_;
  int64_t& steps_;
  Reports* reports_;               // for accesses outside of what is declared
  std::vector<int64_t>* touched_;  // instead: by tensor: how many bytes are touched from its start
  int64_t own_steps_ = 0;
  std::map<const ValueDecl*, Value> variables_;
  std::map<const ValueDecl*, Value> references_;  // to places in tensors
  std::set<const ValueDecl*> shared_;             // with unknown values: share()
  std::vector<const FunctionDecl*> calls_;
  Value result_;
  SourceLocation place_;
  int depth_ = 0, nesting_ = 0;
  bool lost_ = false, at_end_ = false;
};

/// Checks that threads with known paths reach the same barriers. A thread that returns early misses
/// later ones.
void compare(const std::vector<Trace>& traces, Reports& reports) {
  const Trace* longest = nullptr;
  for (const Trace& t : traces)
    if (t.known && (!longest || t.barriers.size() > longest->barriers.size())) longest = &t;
  if (!longest) return;
  for (const Trace& t : traces) {
    if (!t.known) continue;
    size_t same = 0;
    while (same < t.barriers.size() && t.barriers[same] == longest->barriers[same]) ++same;
    if (same == t.barriers.size() && (t.returned || same == longest->barriers.size())) continue;
    const SourceLocation at =
        same < longest->barriers.size() ? longest->barriers[same] : t.barriers[same];
    reports.error(at, "not all threads of the block come to this barrier");
    return;
  }
}

}  // namespace

void check_samples(const Kernel& kernel, const KernelRequest& request, Reports& reports) {
  int64_t steps = 0;
  for (const BlockSample& sample : request.samples) {
    std::vector<Trace> traces;
    for (int64_t z = 0; z < request.block[2]; ++z)
      for (int64_t y = 0; y < request.block[1]; ++y)
        for (int64_t x = 0; x < request.block[0]; ++x) {
          Thread thread(kernel, request, sample, {x, y, z}, steps, &reports);
          traces.push_back(std::move(thread.trace));
          if (reports.any()) return;
          if (steps > kMostSteps) return;
        }
    compare(traces, reports);
    if (reports.any()) return;
  }
}

void guess_extents(ASTContext& context, const FunctionDecl& instance, KernelShape& shape) {
  using Kind = KernelShape::Parameter::Kind;
  constexpr int64_t most_bytes = int64_t{1} << 26;
  if (!instance.hasBody()) return;
  Kernel kernel{.context = context, .function = &instance, .reachable = {}};
  KernelRequest request;
  request.block = shape.block;
  for (const KernelShape::Parameter& p : shape.parameters) {
    KernelArg arg;
    arg.kind = p.kind == Kind::Tensor    ? KernelArg::Kind::Tensor
               : p.kind == Kind::Integer ? KernelArg::Kind::Integer
                                         : KernelArg::Kind::Number;
    request.args.push_back(std::move(arg));
  }
  std::vector<int64_t> touched;
  for (const int64_t number : {1024, 256, 64, 16, 4, 1}) {
    for (size_t i = 0; i < request.args.size(); ++i)
      request.args[i].integer = std::min<int64_t>(number, shape.parameters[i].most);
    touched.assign(request.args.size(), 0);
    for (const std::array<int64_t, 3>& block : sample_blocks(shape.grid)) {
      const BlockSample sample{.block = block, .grid = shape.grid, .regions = {}};
      int64_t steps = 0;
      for (int64_t z = 0; z < shape.block[2]; ++z)
        for (int64_t y = 0; y < shape.block[1]; ++y)
          for (int64_t x = 0; x < shape.block[0] && steps <= kMostSteps; ++x)
            Thread(kernel, request, sample, {x, y, z}, steps, nullptr, &touched);
    }
    for (KernelShape::Parameter& p : shape.parameters)
      if (p.kind == Kind::Integer) p.number = std::min<int64_t>(number, p.most);
    if (std::all_of(touched.begin(), touched.end(),
                    [](int64_t bytes) { return bytes <= most_bytes; }))
      break;
  }
  for (size_t i = 0; i < touched.size(); ++i) {
    KernelShape::Parameter& p = shape.parameters[i];
    const int64_t size = ir::size_of(p.dtype.value_or(ir::DType::F32));
    if (p.kind == Kind::Tensor)
      p.number = std::max<int64_t>(p.number, (touched[i] + size - 1) / size);
  }
}

}  // namespace maco::frontend::cuda
