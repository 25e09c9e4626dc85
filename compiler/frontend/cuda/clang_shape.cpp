// What a first draft of a graph says about a kernel: its parameters, and guesses of the rest, taken
// from launches in its file if there are any.
#include <clang/AST/Attr.h>
#include <clang/AST/DeclTemplate.h>
#include <clang/AST/DynamicRecursiveASTVisitor.h>
#include <clang/AST/ExprCXX.h>
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "compiler/frontend/cuda/clang_writes.h"
#include "compiler/frontend/cuda/facts.h"

namespace maco::frontend::cuda {

using namespace clang;  // NOLINT: its names are all over this file

namespace {

constexpr int64_t kThreads = 256;  // the most threads of a task's block

/// An integer that follows from constants, or from variables' initial values.
std::optional<int64_t> number_of(const ASTContext& context, const Expr* e, int depth = 0) {
  if (!e || e->isValueDependent() || depth > 16) return std::nullopt;
  Expr::EvalResult known;
  if (e->getType()->isIntegralOrEnumerationType() && e->EvaluateAsInt(known, context))
    return known.Val.getInt().getExtValue();
  e = e->IgnoreParenCasts();
  if (const auto* d = dyn_cast<CXXDefaultArgExpr>(e))
    return number_of(context, d->getExpr(), depth + 1);
  if (const auto* ref = dyn_cast<DeclRefExpr>(e))
    if (const auto* var = dyn_cast<VarDecl>(ref->getDecl()); var && !isa<ParmVarDecl>(var))
      return number_of(context, var->getInit(), depth + 1);
  if (const auto* binary = dyn_cast<BinaryOperator>(e)) {
    const auto a = number_of(context, binary->getLHS(), depth + 1),
               b = number_of(context, binary->getRHS(), depth + 1);
    if (!a || !b || std::abs(*a) > INT32_MAX || std::abs(*b) > INT32_MAX) return std::nullopt;
    switch (binary->getOpcode()) {
      case BO_Add: return *a + *b;
      case BO_Sub: return *a - *b;
      case BO_Mul: return *a * *b;
      case BO_Div: return *b == 0 ? std::nullopt : std::optional(*a / *b);
      default: return std::nullopt;
    }
  }
  return std::nullopt;
}

/// A dim3, or a value that is converted to one.
std::optional<std::array<int64_t, 3>> extents_of(const ASTContext& context, const Expr* e,
                                                 int depth = 0) {
  if (!e || e->isValueDependent() || depth > 16) return std::nullopt;
  e = e->IgnoreParenImpCasts();
  if (const auto* full = dyn_cast<FullExpr>(e))
    return extents_of(context, full->getSubExpr(), depth + 1);
  if (const auto* temporary = dyn_cast<MaterializeTemporaryExpr>(e))
    return extents_of(context, temporary->getSubExpr(), depth + 1);
  if (const auto* cast = dyn_cast<CastExpr>(e))
    return extents_of(context, cast->getSubExpr(), depth + 1);
  if (const auto* ref = dyn_cast<DeclRefExpr>(e)) {
    const auto* var = dyn_cast<VarDecl>(ref->getDecl());
    if (var && !isa<ParmVarDecl>(var) && var->getType()->isRecordType())
      return extents_of(context, var->getInit(), depth + 1);
  }
  if (const auto* made = dyn_cast<CXXConstructExpr>(e)) {
    if (made->getNumArgs() == 1 && made->getArg(0)->getType()->isRecordType())
      return extents_of(context, made->getArg(0), depth + 1);
    std::array<int64_t, 3> extents{1, 1, 1};
    for (unsigned i = 0; i < made->getNumArgs() && i < 3; ++i) {
      const auto n = number_of(context, made->getArg(i));
      if (!n || *n < 1) return std::nullopt;
      extents[i] = *n;
    }
    return extents;
  }
  if (const auto n = number_of(context, e); n && *n >= 1) return std::array<int64_t, 3>{*n, 1, 1};
  return std::nullopt;
}

/// A launch of the kernel in the file.
struct Launch {
  const FunctionDecl* callee = nullptr;  // for a template: the instance
  std::optional<std::array<int64_t, 3>> grid, block;
  int64_t shared = 0;
};

struct Launches : DynamicRecursiveASTVisitor {
  Launches(const ASTContext& c, const FunctionDecl& f) : context(c), kernel(f) {
    ShouldVisitTemplateInstantiations = true;
  }
  bool VisitCUDAKernelCallExpr(CUDAKernelCallExpr* call) override {
    const FunctionDecl* f = call->getDirectCallee();
    if (!f) return true;
    const FunctionTemplateDecl* of = f->getPrimaryTemplate();
    const bool same =
        of ? kernel.getDescribedFunctionTemplate() &&
                 of->getCanonicalDecl() == kernel.getDescribedFunctionTemplate()->getCanonicalDecl()
           : f->getCanonicalDecl() == kernel.getCanonicalDecl();
    const CallExpr* config = call->getConfig();
    if (!same || !config || config->getNumArgs() < 2) return true;
    Launch launch;
    launch.callee = f;
    launch.grid = extents_of(context, config->getArg(0));
    launch.block = extents_of(context, config->getArg(1));
    if (config->getNumArgs() > 2) launch.shared = number_of(context, config->getArg(2)).value_or(0);
    found.push_back(launch);
    return true;
  }
  const ASTContext& context;
  const FunctionDecl& kernel;
  std::vector<Launch> found;
};

/// What a body, and the functions that it calls, say about threads and blocks.
struct Uses : DynamicRecursiveASTVisitor {
  explicit Uses(const SourceManager& s) : sources(s) {}
  void look(const FunctionDecl* f) {
    const FunctionDecl* body = nullptr;
    if (f->hasBody(body) && is_users(sources, body->getLocation()) && seen.insert(body).second)
      TraverseStmt(body->getBody());
  }
  bool VisitMemberExpr(MemberExpr* member) override {
    const auto* base = dyn_cast<DeclRefExpr>(member->getBase()->IgnoreParenCasts());
    if (!base || !base->getDecl()->getIdentifier() || !member->getMemberDecl()->getIdentifier())
      return true;
    const llvm::StringRef of = base->getDecl()->getName(),
                          axis = member->getMemberDecl()->getName();
    const int i = axis == "y" ? 1 : axis == "z" ? 2 : 0;
    if (of == "threadIdx" || of == "blockDim") thread_axes = std::max(thread_axes, i);
    if (of == "blockIdx") block_axes = std::max(block_axes, i);
    return true;
  }
  bool VisitDeclRefExpr(DeclRefExpr* ref) override {
    const auto* var = dyn_cast<VarDecl>(ref->getDecl());
    if (var && var->hasAttr<CUDASharedAttr>() && var->hasExternalStorage()) dynamic = true;
    return true;
  }
  bool VisitCallExpr(CallExpr* call) override {
    if (const FunctionDecl* f = call->getDirectCallee()) look(f);
    return true;
  }
  const SourceManager& sources;
  std::set<const FunctionDecl*> seen;
  int thread_axes = 0, block_axes = 0;
  bool dynamic = false;  // it uses dynamic shared memory
};

int64_t product(const std::array<int64_t, 3>& extents) {
  int64_t n = 1;
  for (const int64_t e : extents) n *= std::min<int64_t>(e, 1 << 20);
  return n;
}

/// A template argument as a graph writes it; "" if it can't.
std::string written(const ASTContext& context, const TemplateArgument& arg) {
  std::string text;
  if (arg.getKind() == TemplateArgument::Type) {
    text = type_text(context, arg.getAsType());
    for (const char* word : {"struct ", "class ", "enum "})
      if (text.rfind(word, 0) == 0) text = text.substr(std::string(word).size());
  } else if (arg.getKind() == TemplateArgument::Integral) {
    const QualType type = arg.getIntegralType();
    if (type->isBooleanType()) return arg.getAsIntegral().isZero() ? "false" : "true";
    text = std::to_string(arg.getAsIntegral().getExtValue());
    if (type->isEnumeralType()) text = fmt::format("{}({})", type_text(context, type), text);
  }
  return text.find_first_of(";{}#\\\"'\n\r") == std::string::npos &&
                 text.find("lambda") == std::string::npos
             ? text
             : "";
}

/// The arguments of an instance; nothing if one of them can't be written.
std::vector<std::string> written(const ASTContext& context, const FunctionDecl& instance) {
  std::vector<std::string> out;
  const TemplateArgumentList* args = instance.getTemplateSpecializationArgs();
  if (!args) return out;
  const auto add = [&](const TemplateArgument& arg) {
    out.push_back(written(context, arg));
    return !out.back().empty();
  };
  for (const TemplateArgument& arg : args->asArray()) {
    if (arg.getKind() == TemplateArgument::Pack) {
      for (const TemplateArgument& a : arg.pack_elements())
        if (!add(a)) return {};
    } else if (!add(arg)) {
      return {};
    }
  }
  return out;
}

}  // namespace

std::vector<std::string> guess_template(ASTContext& context, const FunctionDecl& kernel) {
  const FunctionTemplateDecl* t = kernel.getDescribedFunctionTemplate();
  if (!t) return {};
  Launches launches(context, kernel);
  launches.TraverseDecl(context.getTranslationUnitDecl());
  // Launches whose block suits a task come first; then any instance that the file makes.
  std::stable_sort(
      launches.found.begin(), launches.found.end(), [](const Launch& a, const Launch& b) {
        const auto fits = [](const Launch& l) { return l.block && product(*l.block) <= kThreads; };
        return fits(a) && !fits(b);
      });
  for (const Launch& l : launches.found) {
    std::vector<std::string> args = written(context, *l.callee);
    // If a block has more threads than a task's, and an argument says how many, the argument
    // becomes the number of a task's threads.
    if (l.block && product(*l.block) > kThreads)
      for (std::string& arg : args)
        if (arg == std::to_string((*l.block)[0])) arg = std::to_string(kThreads);
    if (!args.empty()) return args;
  }
  for (const FunctionDecl* f : t->specializations())
    if (auto args = written(context, *f); !args.empty()) return args;
  std::vector<std::string> args;
  for (const NamedDecl* p : *t->getTemplateParameters()) {
    if (p->isParameterPack()) break;
    if (const auto* type = dyn_cast<TemplateTypeParmDecl>(p)) {
      if (type->hasDefaultArgument()) break;
      args.emplace_back("float");
    } else if (const auto* value = dyn_cast<NonTypeTemplateParmDecl>(p)) {
      if (value->hasDefaultArgument()) break;
      std::string name = value->getName().lower();
      const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
      args.emplace_back(value->getType()->isBooleanType()          ? "true"
                        : has("thread") || name == "blocksize"     ? "256"
                        : has("warp") || has("tile") || has("dim") ? "32"
                                                                   : "16");
    } else {
      return {};
    }
  }
  return args;
}

KernelShape shape_of(ASTContext& context, const FunctionDecl& kernel,
                     const FunctionDecl& instance) {
  KernelShape shape;
  shape.name = written_name(kernel);
  if (const FunctionTemplateDecl* t = kernel.getDescribedFunctionTemplate())
    for (const NamedDecl* p : *t->getTemplateParameters())
      shape.template_parameters.push_back(p->getNameAsString());
  int64_t most = kThreads;
  if (const auto* bounds = instance.getAttr<CUDALaunchBoundsAttr>();
      bounds && !bounds->getMaxThreads()->isValueDependent())
    if (const auto threads = bounds->getMaxThreads()->getIntegerConstantExpr(context))
      most = std::clamp<int64_t>(threads->getExtValue(), 1, kThreads);
  Uses uses(context.getSourceManager());
  uses.look(&instance);
  Launches launches(context, kernel);
  launches.TraverseDecl(context.getTranslationUnitDecl());
  if (uses.thread_axes == 0)
    shape.block = {most, 1, 1};
  else if (uses.thread_axes == 1)
    shape.block = {std::min<int64_t>(16, most),
                   std::max<int64_t>(1, std::min<int64_t>(16, most / 16)), 1};
  else
    shape.block = {std::min<int64_t>(8, most), std::max<int64_t>(1, std::min<int64_t>(8, most / 8)),
                   std::max<int64_t>(1, std::min<int64_t>(4, most / 64))};
  for (const Launch& l : launches.found) {
    if (l.shared > 0 && shape.shared == 0) shape.shared = l.shared;
    if (!l.block || product(*l.block) > most) continue;
    shape.block = *l.block;
    shape.launched = true;
    break;
  }
  if (!uses.dynamic)
    shape.shared = 0;
  else if (shape.shared == 0)
    shape.shared = 16 * product(shape.block);
  shape.grid = {std::max<int64_t>(1, 1024 / shape.block[0]), 1, 1};
  for (int axis = 1; axis <= uses.block_axes; ++axis) shape.grid[static_cast<size_t>(axis)] = 2;

  using Kind = KernelShape::Parameter::Kind;
  for (const ParmVarDecl* p : instance.parameters()) {
    KernelShape::Parameter parameter;
    const QualType type = p->getType();
    parameter.name = p->getNameAsString();
    parameter.type = type.getAsString(PrintingPolicy(context.getLangOpts()));
    if (type->isPointerType() && !type->isFunctionPointerType()) {
      const QualType element = type->getPointeeType();
      parameter.kind = Kind::Tensor;
      if (!element.isConstQualified()) {
        const SourceManager& sources = context.getSourceManager();
        const Writes writes = writes_through(sources, instance, *p);
        parameter.written = writes.at.isValid() || writes.maybe;
        parameter.updated = parameter.written && first_read(sources, instance, *p).isValid();
      }
      if (!element->isDependentType() && !element->isVoidType()) {
        // Types of one byte are taken for bytes rather than for floats of 8 bits.
        for (const ir::DType t : {ir::DType::U8, ir::DType::I32})
          if (!parameter.dtype && element->isIntegerType() && holds(context, element, t))
            parameter.dtype = t;
        for (const ir::DType t : ir::kAllDTypes)
          if (!parameter.dtype && holds(context, element, t)) parameter.dtype = t;
        // The same number of elements, in bytes.
        if (parameter.dtype == ir::DType::U8)
          parameter.number *= context.getTypeSizeInChars(element).getQuantity();
      }
    } else if (type->isIntegralOrEnumerationType()) {
      parameter.kind = Kind::Integer;
      parameter.most = type->isBooleanType()                                       ? 1
                       : !type->isEnumeralType() && context.getIntWidth(type) == 8 ? 100
                                                                                   : INT16_MAX;
      parameter.number = std::min(parameter.number, parameter.most);
    } else if (type->isRealFloatingType() || type->isDependentType()) {
      parameter.kind = Kind::Number;
    }
    shape.parameters.push_back(std::move(parameter));
  }
  guess_extents(context, instance, shape);
  return shape;
}

}  // namespace maco::frontend::cuda
