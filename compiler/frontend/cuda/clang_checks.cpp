// Checks what a user's kernel may not do as a task, and its parameters against the graph's
// arguments; finds who writes what.
#include <clang/AST/Attr.h>
#include <clang/AST/DeclTemplate.h>
#include <clang/AST/DynamicRecursiveASTVisitor.h>
#include <clang/AST/ExprCXX.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "compiler/frontend/cuda/clang_writes.h"
#include "compiler/frontend/cuda/facts.h"

namespace maco::frontend::cuda {

using namespace clang;  // NOLINT: its names are all over this file

namespace {

bool is_one_of(llvm::StringRef name, std::initializer_list<const char*> list) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

bool is_groups(const Decl* d) {
  for (const DeclContext* c = d->getDeclContext(); c; c = c->getParent())
    if (const auto* ns = dyn_cast<NamespaceDecl>(c); ns && ns->getName() == "cooperative_groups")
      return true;
  return false;
}

// ---- refusals ----------------------------------------------------------------------------------

class Refusals : public DynamicRecursiveASTVisitor {
 public:
  Refusals(Kernel& kernel, const KernelRequest& request, Reports& reports)
      : kernel_(kernel), request_(request), reports_(reports) {}

  void run(const FunctionDecl* f) { TraverseStmt(f->getBody()); }

  void report_groups() {
    // Report the place that waits for a grid or cluster, else the place that names it.
    if (!group_sync_.empty())
      group(group_sync_.front().first, group_sync_.front().second);
    else if (!group_named_.empty())
      group(group_named_.front().first, group_named_.front().second);
  }

  bool VisitCallExpr(CallExpr* call) override {
    const FunctionDecl* f = call->getDirectCallee();
    if (!f) return true;
    const llvm::StringRef name = f->getIdentifier() ? f->getName() : llvm::StringRef();
    const SourceLocation at = call->getBeginLoc();
    const bool users = is_users(sources(), f->getLocation());
    if (isa<CUDAKernelCallExpr>(call)) {
      reports_.error(at,
                     "a kernel is launched by device code: a task launches no others; make it an "
                     "op of the graph");
      return true;
    }
    if (is_groups(f)) group_call(*call, *f, name);
    if (is_warp_word(f, name)) kernel_.has_warp_word = true;
    if (users) {
      const FunctionDecl* body = nullptr;
      if (!f->hasBody(body) && !f->isPureVirtual() && !f->getBuiltinID() && !f->isDefaulted() &&
          !f->isTemplateInstantiation())
        reports_.error(
            at, fmt::format("'{}' is declared but not defined in the file", f->getNameAsString()));
      return true;
    }
    if (is_groups(f)) {
      if (is_one_of(name, {"this_multi_grid", "this_cluster"}))
        group_named_.emplace_back(at, name == "this_cluster");
      else if (is_one_of(name, {"memcpy_async", "wait", "wait_prior"}))
        reports_.error(
            at, fmt::format("'{}' of cooperative groups can't be had in a task", name.str()));
      return true;
    }
    if (is_one_of(name,
                  {"malloc", "free", "calloc", "realloc", "cudaMalloc", "cudaFree", "alloca"}))
      reports_.error(
          at, fmt::format("'{}' in device code: a task's memory is that of its tensors and its "
                          "block's shared memory",
                          name.str()));
    else if (is_one_of(name, {"printf", "vprintf", "puts", "putchar", "fprintf"}))
      reports_.error(at, fmt::format("'{}' in device code: a task can't print", name.str()));
    else if (is_one_of(name, {"__shfl", "__shfl_up", "__shfl_down", "__shfl_xor", "__any", "__all",
                              "__ballot"}))
      reports_.error(
          at, fmt::format("'{0}' is gone since sm_70: '{0}_sync' takes a mask first", name.str()));
    else if (name.starts_with("tex1D") || name.starts_with("tex2D") || name.starts_with("tex3D") ||
             name.starts_with("texCubemap"))
      reports_.error(at, "textures aren't tensors: a task can't read them");
    else if (name.starts_with("surf1D") || name.starts_with("surf2D") ||
             name.starts_with("surf3D") || name.starts_with("surfCubemap"))
      reports_.error(at, "surfaces aren't tensors: a task can't use them");
    else if (is_one_of(name, {"__trap", "__brkpt", "exit", "abort"}))
      reports_.error(at, fmt::format("'{}' would end every task of the GPU", name.str()));
    else if (name.starts_with("__pipeline_") || name.starts_with("__cluster_"))
      reports_.error(at, fmt::format("'{}' can't be had in a task", name.str()));
    else if (name.starts_with("cudaStream") || name.starts_with("cudaEvent") ||
             name == "cudaDeviceSynchronize" || name.starts_with("cudaLaunch") ||
             name.starts_with("cudaMemcpy"))
      reports_.error(
          at, fmt::format("'{}' in device code: a task launches nothing and waits for nothing",
                          name.str()));
    return true;
  }
  bool VisitCXXMemberCallExpr(CXXMemberCallExpr* call) override {
    const CXXRecordDecl* record = call->getRecordDecl();
    if (record && is_groups(record) && record->getIdentifier() &&
        is_one_of(record->getName(), {"grid_group", "multi_grid_group", "cluster_group"})) {
      const CXXMethodDecl* method = call->getMethodDecl();
      const bool sync = method && method->getIdentifier() && method->getName() == "sync";
      // A grid's other members may be asked for.
      if (sync || record->getName() != "grid_group")
        (sync ? group_sync_ : group_named_)
            .emplace_back(call->getBeginLoc(), record->getName() == "cluster_group");
    }
    return true;
  }
  bool VisitCXXNewExpr(CXXNewExpr* e) override {
    if (e->getNumPlacementArgs() == 0)
      reports_.error(e->getBeginLoc(),
                     "'new' in device code: a task's memory is that of its tensors and "
                     "its block's shared memory");
    return true;
  }
  bool VisitCXXDeleteExpr(CXXDeleteExpr* e) override {
    reports_.error(e->getBeginLoc(), "'delete' in device code: a task frees nothing");
    return true;
  }
  bool VisitGCCAsmStmt(GCCAsmStmt* statement) override {
    const std::string text = statement->getAsmString();
    struct RefusedWord {
      const char *text, *why;
    };
    constexpr RefusedWord words[] = {
        {"bar.", "barriers belong to the worker; use __syncthreads"},
        {"barrier.", "barriers belong to the worker; use __syncthreads"},
        {"%tid", "it is not the thread of the block; use threadIdx"},
        {"%ntid", "it is not the block's extent; use blockDim"},
        {"%ctaid", "it is the worker, not the block; use blockIdx"},
        {"%nctaid", "it is the number of workers; use gridDim"},
        {"%warpid", "it is not a warp of the block; use threadIdx"},
        {"%nwarpid", "it is not the block's; use blockDim"},
        {"%smid", "results would depend on where a task runs"},
        {"%nsmid", "results would depend on where a task runs"},
        {"%gridid", "a task is no launch"},
        {"%cluster", "a task is in no cluster"},
        {"%dynamic_smem_size", "it is the worker's; the graph says 'shared'"},
        {"%total_smem_size", "it is the worker's; the graph says 'shared'"},
        {"exit", "it would end the worker; use return"},
        {"trap", "it would end every task of the GPU"},
        {"brkpt", "it would stop every task of the GPU"},
        {"setmaxnreg", "registers belong to the worker"},
        {"griddepcontrol", "a task is no launch"},
        {"ld.global.nc", "another task may write it in the same launch; use ld.global"},
        {"multimem.", "tasks don't use multicast memory"},
    };
    for (const RefusedWord& w : words) {
      const size_t at = text.find(w.text);
      const auto in_word = [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.';
      };
      if (at == std::string::npos || (at > 0 && in_word(text[at - 1]))) continue;
      std::string word = w.text;
      for (size_t i = at + word.size(); i < text.size() && in_word(text[i]); ++i) word += text[i];
      reports_.error(statement->getAsmLoc(), fmt::format("inline PTX with '{}': {}", word, w.why));
      return true;
    }
    // An empty instruction only keeps compilers from moving accesses; any compiler takes it.
    const bool nothing =
        text.find_first_not_of(" \t\n;") == std::string::npos &&
        statement->getNumOutputs() + statement->getNumInputs() + statement->getNumLabels() == 0;
    if (request_.arch == 0 && !nothing)
      reports_.error(statement->getAsmLoc(),
                     "inline PTX can't run on the CPU target; a GPU runs it");
    return true;
  }
  bool VisitVarDecl(VarDecl* var) override {
    if (group_name(var->getType()) == "block_tile_memory") several_warps(var->getLocation());
    return true;
  }
  bool VisitDeclRefExpr(DeclRefExpr* ref) override {
    const auto* var = dyn_cast<VarDecl>(ref->getDecl());
    if (!var || !var->hasGlobalStorage() || !is_users(sources(), var->getLocation())) return true;
    const std::string name = var->getNameAsString();
    const SourceLocation at = ref->getBeginLoc();
    if (var->hasAttr<CUDASharedAttr>()) {
      if (var->hasExternalStorage() && request_.shared == 0 && !told_shared_) {
        told_shared_ = true;
        reports_.in_graph(
            "kernel",
            fmt::format("the kernel uses dynamic shared memory, '{}', but 'shared' is 0", name));
        reports_.note(var->getLocation(), fmt::format("'{}' is declared here", name));
      }
      return true;
    }
    if (var->getType().isConstQualified() || var->isConstexpr()) return true;
    const auto state = [&](const char* what) {
      if (!told_.insert(var->getCanonicalDecl()).second) return;
      reports_.error(var->isStaticLocal() ? var->getLocation() : at,
                     fmt::format("'{}' is {}: what stays between launches is a state of the graph",
                                 name, what));
    };
    if (var->hasAttr<HIPManagedAttr>()) {
      state("managed memory");
    } else if (var->hasAttr<CUDAConstantAttr>()) {
      if (!var->hasInit() && told_.insert(var->getCanonicalDecl()).second)
        reports_.error(
            at, fmt::format("'{}' has no initialiser: only a host program could fill it; make it "
                            "a param of the graph",
                            name));
    } else if (var->isStaticLocal()) {
      state("a static local variable");
    } else if (!var->hasInit() || written_.count(var->getCanonicalDecl()) > 0) {
      state("a variable of the device");
    }
    return true;
  }
  /// Notes variables of files that some function writes, or whose address it takes.
  void note_written(const FunctionDecl* f) {
    struct Finder : DynamicRecursiveASTVisitor {
      explicit Finder(std::set<const VarDecl*>& s) : set(s) {}
      void base(Expr* e) {
        for (;;) {
          e = e->IgnoreParenCasts();
          if (auto* index = dyn_cast<ArraySubscriptExpr>(e))
            e = index->getBase();
          else if (auto* member = dyn_cast<MemberExpr>(e))
            e = member->getBase();
          else
            break;
        }
        if (auto* ref = dyn_cast<DeclRefExpr>(e))
          if (auto* var = dyn_cast<VarDecl>(ref->getDecl()); var && var->hasGlobalStorage())
            set.insert(var->getCanonicalDecl());
      }
      bool VisitBinaryOperator(BinaryOperator* o) override {
        if (o->isAssignmentOp()) base(o->getLHS());
        return true;
      }
      bool VisitUnaryOperator(UnaryOperator* o) override {
        if (o->isIncrementDecrementOp() || o->getOpcode() == UO_AddrOf) base(o->getSubExpr());
        return true;
      }
      bool VisitCallExpr(CallExpr* call) override {
        // An array that is passed as a pointer to non-constant elements.
        for (Expr* arg : call->arguments())
          if (arg->getType()->isPointerType() &&
              !arg->getType()->getPointeeType().isConstQualified() &&
              arg->IgnoreParenCasts()->getType()->isArrayType())
            base(arg);
        return true;
      }
      std::set<const VarDecl*>& set;
    } finder(written_);
    finder.TraverseStmt(f->getBody());
  }

  static bool is_warp_word(const FunctionDecl* f, llvm::StringRef name) {
    if (is_groups(f))
      return !is_one_of(name, {"this_thread_block", "thread_rank", "size", "this_grid"});
    return name.starts_with("__shfl") || name.starts_with("__match_") ||
           name.starts_with("__reduce_") ||
           is_one_of(name, {"__any_sync", "__all_sync", "__ballot_sync", "__syncwarp"});
  }
  static bool is_barrier(const FunctionDecl* f) {
    if (!f->getIdentifier()) return false;
    const llvm::StringRef name = f->getName();
    if (name.starts_with("__syncthreads")) return true;
    if (!is_groups(f)) return false;
    if (const auto* method = dyn_cast<CXXMethodDecl>(f))
      return name == "sync" && method->getParent()->getIdentifier() &&
             method->getParent()->getName() == "thread_block";
    return name == "sync" && f->getNumParams() == 1 &&
           group_name(f->getParamDecl(0)->getType()) == "thread_block";
  }
  /// "grid_group" and the like; "" if the type is no group.
  static llvm::StringRef group_name(QualType type) {
    const CXXRecordDecl* record = type.getNonReferenceType()->getAsCXXRecordDecl();
    return record && is_groups(record) && record->getIdentifier() ? record->getName()
                                                                  : llvm::StringRef();
  }

 private:
  const SourceManager& sources() const { return kernel_.context.getSourceManager(); }
  /// A function of cooperative groups.
  void group_call(const CallExpr& call, const FunctionDecl& f, llvm::StringRef name) {
    if (name == "sync" && !isa<CXXMethodDecl>(f) && f.getNumParams() == 1) {
      const llvm::StringRef group = group_name(f.getParamDecl(0)->getType());
      if (is_one_of(group, {"grid_group", "multi_grid_group", "cluster_group"}))
        group_sync_.emplace_back(call.getBeginLoc(), group == "cluster_group");
    }
    const auto* tile = dyn_cast_or_null<ClassTemplateSpecializationDecl>(
        f.getReturnType().getNonReferenceType()->getAsCXXRecordDecl());
    if (!tile || group_name(f.getReturnType()) != "thread_block_tile") return;
    const TemplateArgument& size = tile->getTemplateArgs()[0];
    if (size.getKind() == TemplateArgument::Integral && size.getAsIntegral().getExtValue() > 32)
      several_warps(call.getBeginLoc());
  }
  void several_warps(SourceLocation at) {
    if (!told_tiles_)
      reports_.error(at, "tiles of several warps can't be had: a tile has at most 32 threads");
    told_tiles_ = true;
  }
  void group(SourceLocation at, bool cluster) {
    if (cluster)
      reports_.error(at, "clusters of blocks can't be had: a task's blocks are in none");
    else
      reports_.error(
          at,
          "the grid can't be waited for: its blocks are tasks, which run when there is room; "
          "make what follows another op");
  }

  Kernel& kernel_;
  const KernelRequest& request_;
  Reports& reports_;
  std::set<const VarDecl*> told_, written_;
  std::vector<std::pair<SourceLocation, bool>> group_sync_, group_named_;
  bool told_shared_ = false, told_tiles_ = false;
};

/// Whether a function from headers of CUDA or others asks which thread it is, or waits for the
/// block.
bool asks_for_thread(const FunctionDecl* f) {
  struct Finder : DynamicRecursiveASTVisitor {
    bool VisitDeclRefExpr(DeclRefExpr* ref) override {
      const NamedDecl* d = ref->getDecl();
      if (d->getIdentifier() && is_one_of(d->getName(), {"threadIdx", "blockIdx", "blockDim",
                                                         "gridDim", "__syncthreads"}))
        found = true;
      return true;
    }
    bool found = false;
  } finder;
  finder.TraverseStmt(f->getBody());
  return finder.found;
}

// ---- parameters --------------------------------------------------------------------------------

}  // namespace

// Whether a type holds elements of a dtype. Names of element types stand for a dtype; with "1" to
// "4" behind them some are vectors.
bool holds(const ASTContext& context, QualType type, ir::DType dtype) {
  type = type.getUnqualifiedType().getCanonicalType();
  if (type->isVoidType()) return true;
  while (const auto* array = context.getAsConstantArrayType(type))
    type = array->getElementType().getUnqualifiedType().getCanonicalType();
  const auto bytes = static_cast<int64_t>(context.getTypeSizeInChars(type).getQuantity());
  const bool integer = type->isIntegerType() && !type->isEnumeralType();
  std::string name = type_text(context, type);
  if (name.compare(0, 7, "struct ") == 0) name = name.substr(7);
  const auto vector_of = [&](std::initializer_list<const char*> elements) {
    for (const std::string element : elements)
      for (const char n : {'1', '2', '3', '4'})
        if (name == element + n) return true;
    return false;
  };
  const int64_t size = ir::size_of(dtype);
  switch (dtype) {
    case ir::DType::F32:
      return type->isSpecificBuiltinType(BuiltinType::Float) || vector_of({"float"});
    case ir::DType::F16:
      return name == "__half" || name == "__half2" || name == "_Float16" ||
             (integer && bytes == 2) || vector_of({"ushort", "short"});
    case ir::DType::BF16:
      return name == "__nv_bfloat16" || name == "__nv_bfloat162" || name == "__bf16" ||
             (integer && bytes == 2) || vector_of({"ushort", "short"});
    case ir::DType::F8E4M3:
      return name.compare(0, 13, "__nv_fp8_e4m3") == 0 ||
             name.compare(0, 13, "__nv_fp8x2_e4") == 0 ||
             name.compare(0, 13, "__nv_fp8x4_e4") == 0 || (integer && bytes == 1) ||
             vector_of({"uchar", "char"});
    case ir::DType::F8E5M2:
      return name.compare(0, 13, "__nv_fp8_e5m2") == 0 ||
             name.compare(0, 13, "__nv_fp8x2_e5") == 0 ||
             name.compare(0, 13, "__nv_fp8x4_e5") == 0 || (integer && bytes == 1) ||
             vector_of({"uchar", "char"});
    case ir::DType::I32:
      return (integer && bytes == size && !type->isBooleanType()) || vector_of({"int", "uint"});
    case ir::DType::U8: {
      if ((integer && bytes == size) || vector_of({"uchar", "char"})) return true;
      // Any other type counts as bytes: doubles, integers of 64 bits, structs, whatever has no
      // dtype.
      if (!type->isObjectType() || type->isIncompleteType() || type->isPointerType() ||
          !type.isTriviallyCopyableType(context))
        return false;
      return std::none_of(std::begin(ir::kAllDTypes), std::end(ir::kAllDTypes),
                          [&](ir::DType t) { return t != dtype && holds(context, type, t); });
    }
  }
  return false;
}

namespace {

class Signature {
 public:
  Signature(const Kernel& kernel, const KernelRequest& request, Reports& reports)
      : context_(kernel.context), f_(*kernel.function), request_(request), reports_(reports) {}

  void run() {
    const size_t given = request_.args.size(), most = f_.getNumParams(),
                 least = f_.getMinRequiredArguments();
    if (given < least || given > most) {
      reports_.in_graph(
          "args", fmt::format("kernel '{}' takes {}{} argument{}, 'args' has {}", request_.kernel,
                              least < most ? fmt::format("{} to ", least) : "", most,
                              most == 1 ? "" : "s", given));
      reports_.note(f_.getLocation(), "it is defined here");
      return;
    }
    if (const auto* bounds = f_.getAttr<CUDALaunchBoundsAttr>())
      if (const auto threads = bounds->getMaxThreads()->getIntegerConstantExpr(context_);
          threads &&
          threads->getExtValue() < request_.block[0] * request_.block[1] * request_.block[2]) {
        reports_.in_graph(
            "block", fmt::format("the kernel has __launch_bounds__({}), but the block {} threads",
                                 threads->getExtValue(),
                                 request_.block[0] * request_.block[1] * request_.block[2]));
        reports_.note(f_.getLocation(), "it is defined here");
      }
    if (f_.isVariadic())
      reports_.error(f_.getLocation(), "a kernel with any number of arguments can't be a task");
    if (f_.hasAttr<CUDAClusterDimsAttr>())
      reports_.error(f_.getLocation(),
                     "clusters of blocks can't be had: a task's blocks are in none");
    for (size_t i = 0; i < given; ++i) parameter(i);
    if (reports_.any()) return;
    for (size_t i = 0; i < given; ++i) writes(i);
  }

 private:
  void wrong(size_t i, const std::string& message) {
    const ParmVarDecl* p = f_.getParamDecl(static_cast<unsigned>(i));
    reports_.in_arg(i, message);
    reports_.note(p->getLocation(), "the parameter is declared here");
  }
  std::string described(size_t i) const {
    const ParmVarDecl* p = f_.getParamDecl(static_cast<unsigned>(i));
    return fmt::format(
        "parameter {} of '{}' is '{}'",
        p->getName().empty() ? std::to_string(i + 1) : fmt::format("'{}'", p->getName().str()),
        request_.kernel, type_text(context_, p->getType()));
  }

  // CUDA's 16-bit floats are structs, to which numbers are converted.
  bool is_half(QualType type) const {
    const std::string name = type_text(context_, type.getUnqualifiedType());
    return name == "__half" || name == "__nv_bfloat16" || name == "struct __half" ||
           name == "struct __nv_bfloat16";
  }

  void parameter(size_t i) {
    const KernelArg& arg = request_.args[i];
    const QualType type = f_.getParamDecl(static_cast<unsigned>(i))->getType();
    if (type->isReferenceType() || (type->isRecordType() && !is_half(type))) {
      wrong(i, fmt::format("{}, a {}: only pointers to tensors and numbers can be given",
                           described(i), type->isReferenceType() ? "reference" : "struct"));
    } else if (arg.kind == KernelArg::Kind::Tensor) {
      if (!type->isPointerType())
        wrong(i, fmt::format("{}, but the argument is tensor '{}'", described(i), arg.name));
      else if (arg.written && type->getPointeeType().isConstQualified())
        wrong(i, fmt::format("{}, but tensor '{}' is an output", described(i), arg.name));
      else if (!holds(context_, type->getPointeeType(), arg.dtype))
        wrong(i, fmt::format("{}, but tensor '{}' is {}", described(i), arg.name,
                             ir::name(arg.dtype)));
    } else if (type->isPointerType()) {
      wrong(i, fmt::format("{}, but the argument is a number", described(i)));
    } else if (arg.kind == KernelArg::Kind::Number) {
      if (!type->isRealFloatingType() && !is_half(type))
        wrong(i, fmt::format("{}, but the argument is {}", described(i), arg.number));
    } else if (!type->isRealFloatingType() && !type->isIntegralOrEnumerationType() &&
               !is_half(type)) {
      wrong(i, fmt::format("{}, which no number can be given to", described(i)));
    } else if (type->isIntegerType() && !type->isBooleanType() && !type->isEnumeralType() &&
               arg.least <= arg.most) {
      const unsigned bits = static_cast<unsigned>(context_.getIntWidth(type));
      const bool is_signed = type->isSignedIntegerType();
      const int64_t low = !is_signed ? 0 : bits >= 64 ? INT64_MIN : -(int64_t{1} << (bits - 1));
      const int64_t high =
          bits >= 64 ? INT64_MAX : (int64_t{1} << (is_signed ? bits - 1 : bits)) - 1;
      if (arg.least < low || arg.most > high)
        wrong(i, fmt::format("{}, but the argument {}", described(i),
                             arg.least == arg.most
                                 ? fmt::format("is {}", arg.least)
                                 : fmt::format("may be {} to {}", arg.least, arg.most)));
    }
  }

  void writes(size_t i) {
    const KernelArg& arg = request_.args[i];
    if (arg.kind != KernelArg::Kind::Tensor) return;
    const ParmVarDecl* p = f_.getParamDecl(static_cast<unsigned>(i));
    const Writes finder = writes_through(context_.getSourceManager(), f_, *p);
    const SourceLocation at = finder.at;
    if (at.isValid() && !arg.written) {
      reports_.error(
          at, fmt::format(
                  "the kernel writes through '{}', which is tensor '{}' of the graph's 'in' only",
                  p->getName().str(), arg.name));
      return;
    }
    if (arg.written && !arg.read)
      if (const SourceLocation read = first_read(context_.getSourceManager(), f_, *p);
          read.isValid())
        reports_.warning(
            read, fmt::format("'{}' is read here before the kernel writes it, but tensor '{}' is "
                              "an output: it holds anything then; a state, in 'in' and 'out', "
                              "keeps its values",
                              p->getName().str(), arg.name));
    if (at.isInvalid() && !finder.maybe && arg.written && !has_asm())
      wrong(i,
            fmt::format("'{}' is an output, but '{}' never writes it", arg.name, request_.kernel));
  }
  bool has_asm() const {
    struct Finder : DynamicRecursiveASTVisitor {
      bool VisitAsmStmt(AsmStmt*) override {
        found = true;
        return true;
      }
      bool found = false;
    } finder;
    finder.TraverseStmt(f_.getBody());
    return finder.found;
  }

  ASTContext& context_;
  const FunctionDecl& f_;
  const KernelRequest& request_;
  Reports& reports_;
};

}  // namespace

bool is_block_barrier(const FunctionDecl* f) { return Refusals::is_barrier(f); }

void check_refusals(Kernel& kernel, const KernelRequest& request, Reports& reports) {
  const SourceManager& sources = kernel.context.getSourceManager();
  Refusals refusals(kernel, request, reports);
  for (const FunctionDecl* f : kernel.reachable)
    if (is_users(sources, f->getLocation())) refusals.note_written(f);
  for (const FunctionDecl* f : kernel.reachable) {
    if (is_users(sources, f->getLocation())) {
      refusals.run(f);
    } else if (!is_groups(f) && asks_for_thread(f)) {
      reports.error(
          kernel.function->getLocation(),
          fmt::format(
              "the kernel uses '{}' of other headers, which asks for its thread or waits for its "
              "block as launches have them; a task has its own",
              f->getQualifiedNameAsString()));
      break;
    }
  }
  refusals.report_groups();
}

void check_signature(const Kernel& kernel, const KernelRequest& request, Reports& reports) {
  Signature(kernel, request, reports).run();
}

}  // namespace maco::frontend::cuda
