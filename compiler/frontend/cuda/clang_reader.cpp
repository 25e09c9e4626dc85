// Reads a CUDA kernel with Clang: finds it, checks it against the graph and against what can't be a
// task, and takes it out of its file.
#include <clang/AST/Attr.h>
#include <clang/AST/DeclTemplate.h>
#include <clang/AST/DynamicRecursiveASTVisitor.h>
#include <clang/Frontend/CompilerInstance.h>
#include <clang/Frontend/FrontendAction.h>
#include <clang/Lex/Lexer.h>
#include <clang/Tooling/Tooling.h>
#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "compiler/frontend/cuda/clang_extract.h"
#include "compiler/frontend/cuda/clang_prelude.h"
#include "compiler/frontend/cuda/clang_said.h"
#include "compiler/frontend/cuda/facts.h"
#include "ir/diagnostics.h"

namespace maco::frontend::cuda {

using namespace clang;  // NOLINT: its names are all over this file

namespace {

class Consumer : public ASTConsumer {
 public:
  Consumer(const KernelRequest& request, KernelReply& reply, const Preprocessed& seen,
           const Said& said, Again& again)
      : request_(request), reply_(reply), seen_(seen), said_(said), again_(again) {}

  void HandleTranslationUnit(ASTContext& context) override {
    reply_.read = true;
    Reports reports(context.getSourceManager(), reply_);
    if (request_.shape_only) {
      describe(context, reports);
      if (reports.any()) explain(context);
      return;
    }
    Kernel kernel{.context = context, .function = nullptr, .reachable = {}};
    kernel.function = find(context, reports);
    if (reports.any() && !own_fault_) explain(context);
    if (!kernel.function || reports.any() || again_.any()) return;
    if (!said_.behind().empty()) {
      // The kernel is the right one, so a declaration before it hasn't ended.
      reports.in_graph(
          "source", fmt::format("'{}' isn't complete: {}", request_.path, said_.behind().front()));
      explain(context);
      return;
    }
    const auto extraction =
        make_extraction(kernel, seen_, said_, request_, reply_, reports, again_);
    extraction->find_needed();
    if (reports.any()) return;
    const SourceManager& sources = context.getSourceManager();
    said_.report(sources, [&](SourceLocation at) { return extraction->is_needed(at); }, reply_);
    if (!reports.any() && extraction->is_broken()) said_.report_all(reply_);
    if (reports.any() && escape_registers(sources)) return;
    if (reports.any()) {
      missing_headers(sources);
      return;
    }
    check_signature(kernel, request_, reports);
    check_refusals(kernel, request_, reports);
    if (reports.any()) return;
    check_samples(kernel, request_, reports);
    if (reports.any()) return;
    extraction->write();
    for (const auto& [at, name] : seen_.missing)
      reports.warning(
          at, fmt::format("'{}' was not found; '{}' compiles without it", name, request_.kernel));
  }

 private:
  /// Puts Clang's errors before those that follow from them.
  void explain(const ASTContext& context) {
    const std::vector<KernelError> own = std::move(reply_.errors);
    reply_.errors.clear();
    said_.report_all(reply_);
    if (said_.any()) missing_headers(context.getSourceManager());
    reply_.errors.insert(reply_.errors.end(), own.begin(), own.end());
  }
  /// Clang needs %%laneid where nvcc also takes %laneid: reads the file again with that change.
  /// Returns false if something else is wrong, too.
  bool escape_registers(const SourceManager& sources) {
    const auto is_escape = [](const KernelError& e) {
      return e.message == "invalid % escape in inline assembly string";
    };
    if (!std::all_of(reply_.errors.begin(), reply_.errors.end(), is_escape)) return false;
    for (const SourceLocation at : said_.places()) {
      // The error's place is a little behind the %.
      const auto [file, behind] = sources.getDecomposedLoc(sources.getFileLoc(at));
      const auto entry = sources.getFileEntryRefForID(file);
      const StringRef before = sources.getBufferData(file).take_front(behind + 1);
      const size_t place = before.rfind('%');
      if (!entry || place == StringRef::npos || before.size() - place > 4) continue;
      const auto offset = static_cast<unsigned>(place);
      again_.expansions.insert({.path = entry->getName().str(),
                                .begin = offset,
                                .end = offset,
                                .text = "%",
                                .exact = true});
    }
    if (!again_.any()) return false;
    reply_.errors.clear();
    return true;
  }
  /// Why there is no such instance of a template, if that is known.
  std::string why_not() const {
    for (const std::string& text : said_.behind())
      if (text.find(kMeant) == std::string::npos) return "; " + text;
    return "";
  }
  /// Puts headers that weren't found first: they may contain missing declarations.
  void missing_headers(const SourceManager& sources) {
    KernelReply before;
    Reports reports(sources, before);
    for (const auto& [at, name] : seen_.missing)
      reports.error(at, fmt::format("'{}' was not found; -I names the folder that it is in", name));
    reply_.errors.insert(reply_.errors.begin(), before.errors.begin(), before.errors.end());
  }

  struct Candidates : DynamicRecursiveASTVisitor {
    bool VisitFunctionDecl(FunctionDecl* f) override {
      // Specialisations belong to their template.
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
    std::vector<FunctionDecl*> kernels;
    std::copy_if(c.found.begin(), c.found.end(), std::back_inserter(kernels),
                 [](const FunctionDecl* f) { return f->hasAttr<CUDAGlobalAttr>(); });
    if (kernels.size() == 1) {
      const FunctionDecl& f = *kernels[0];
      if (f.getDescribedFunctionTemplate() && request_.template_args.empty())
        again_.template_args = guess_template(context, f);
      if (again_.any()) {
        reply_.shape.emplace().name = written_name(f);
        return;
      }
      const FunctionDecl* instance = request_.template_args.empty() ? nullptr : meant(context);
      const FunctionDecl* body = nullptr;
      if (!instance && f.hasBody(body)) instance = body;
      reply_.shape = shape_of(context, f, instance ? *instance : f);
      if (meant(context)) reply_.shape->template_args = request_.template_args;
    } else if (kernels.size() > 1) {
      reports.in_graph(
          "kernel", fmt::format("'{}' of '{}' is overloaded, and nothing says which one is meant",
                                c.wanted, request_.path));
    } else if (c.kernels.empty()) {
      reports.in_graph("kernel", fmt::format("'{}' has no kernel", request_.path));
    } else {
      reports.in_graph(
          "kernel", fmt::format("{}; '{}' has {}",
                                c.wanted.empty() ? "no kernel is named"
                                                 : fmt::format("there is no kernel '{}'", c.wanted),
                                request_.path, fmt::join(c.kernels, ", ")));
    }
  }

  /// The instance of a template, with its body, that the text behind the file names.
  static const FunctionDecl* meant(const ASTContext& context) {
    for (Decl* d : context.getTranslationUnitDecl()->decls()) {
      auto* var = dyn_cast<VarDecl>(d);
      if (!var || var->getName() != kMeant || !var->getInit()) continue;
      struct Reference : DynamicRecursiveASTVisitor {
        bool VisitDeclRefExpr(DeclRefExpr* ref) override {
          if (auto* function = dyn_cast<FunctionDecl>(ref->getDecl())) meant = function;
          return true;
        }
        const FunctionDecl* meant = nullptr;
      } reference;
      reference.TraverseStmt(var->getInit());
      const FunctionDecl* body = nullptr;
      if (reference.meant && reference.meant->hasBody(body)) return body;
    }
    return nullptr;
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
      // Functions of the host with the same name stay behind.
      const auto kernel = std::find_if(c.found.begin(), c.found.end(), [](const FunctionDecl* f) {
        return f->hasAttr<CUDAGlobalAttr>();
      });
      const bool others_are_hosts = std::all_of(c.found.begin(), c.found.end(), [&](auto* f) {
        return (kernel != c.found.end() && f == *kernel) || runs_on_host(*f);
      });
      if (kernel != c.found.end() && others_are_hosts) {
        for (const FunctionDecl* f : c.found)
          if (f != *kernel) leave_out(context.getSourceManager(), *f);
        if (again_.any()) return nullptr;
        c.found = {*kernel};
      }
    }
    if (c.found.size() > 1) {
      reports.in_graph(
          "kernel", fmt::format("'{}' of '{}' is overloaded, and nothing says which one is meant",
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
    if (const FunctionDecl* instance = meant(context)) return instance;
    const bool given = !request_.template_args.empty() && !request_.template_args[0].empty();
    reports.in_graph(
        given ? "template" : "kernel",
        fmt::format(
            "'{}' can't be made of these arguments: {}{}", request_.kernel,
            given ? fmt::format("<{}>", fmt::join(request_.template_args, ", ")) : "it has none",
            why_not()));
    reports.note(f->getLocation(), "it is defined here");
    said_.report(context.getSourceManager(), [](SourceLocation) { return false; }, reply_);
    own_fault_ = true;
    return nullptr;
  }

  /// Reads the file again without a function's declarations.
  void leave_out(const SourceManager& sources, const FunctionDecl& function) {
    const FunctionTemplateDecl* t = function.getDescribedFunctionTemplate();
    const Decl& whole = t ? static_cast<const Decl&>(*t) : function;
    for (const Decl* d : whole.redecls()) {
      const SourceLocation begin = sources.getExpansionLoc(d->getBeginLoc()),
                           end = sources.getExpansionRange(d->getEndLoc()).getEnd();
      const auto [file, from] = sources.getDecomposedLoc(begin);
      const auto entry = sources.getFileEntryRefForID(file);
      if (!entry) continue;
      const unsigned to =
          sources.getFileOffset(end) + Lexer::MeasureTokenLength(end, sources, LangOptions());
      // Replaces the body's end or the name, as a semicolon may follow.
      again_.expansions.insert(
          {.path = entry->getName().str(), .begin = from, .end = to, .text = ";"});
    }
  }

  const KernelRequest& request_;
  KernelReply& reply_;
  const Preprocessed& seen_;
  const Said& said_;
  Again& again_;
  bool own_fault_ = false;  // an error was found to be the graph's
};

class Action : public ASTFrontendAction {
 public:
  Action(const KernelRequest& request, KernelReply& reply, const Said& said, Again& again)
      : request_(request), reply_(reply), said_(said), again_(again) {}
  std::unique_ptr<ASTConsumer> CreateASTConsumer(CompilerInstance& compiler, StringRef) override {
    compiler.getPreprocessor().addPPCallbacks(watch(compiler.getPreprocessor(), seen_));
    return std::make_unique<Consumer>(request_, reply_, seen_, said_, again_);
  }

 private:
  const KernelRequest& request_;
  KernelReply& reply_;
  const Said& said_;
  Again& again_;
  Preprocessed seen_;
};

std::vector<std::string> arguments(const KernelRequest& request) {
  std::vector<std::string> args = {
      "maco", "-fsyntax-only", "-x", "cuda", "--cuda-device-only",
      fmt::format("--cuda-gpu-arch=sm_{}", request.arch ? request.arch : 90), "-std=c++17",
      "-nocudalib", "-Wno-everything",
      // Constructs that Clang accepts and nvcc refuses as C++17.
      "-Werror=c++20-extensions", "-Werror=c++23-extensions", "-Werror=c++26-extensions",
      // Most errors may be about declarations that aren't needed.
      "-ferror-limit=0", "-fno-caret-diagnostics", "-fgpu-rdc", "-resource-dir",
      MACO_CLANG_RESOURCES};
  if (request.cuda_folder.empty())
    args.insert(args.end(), {"-nocudainc"});
  else
    // CUDA versions newer than Clang knows launch kernels in the same way as those that it knows.
    args.insert(args.end(),
                {"--cuda-path=" + request.cuda_folder, "-Xclang", "-target-sdk-version=12.8",
                 "-isystem", request.cuda_folder + "/include/cccl"});
  for (const std::string& folder : request.include_folders) args.push_back("-I" + folder);
  for (const std::string& macro : request.defines) args.push_back("-D" + macro);
  args.insert(args.end(), {"-include", kPreludeFile});
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

/// A name as other code may write it: without unnamed namespaces and, unless wanted, without inline
/// ones.
std::string written_name(const NamedDecl& decl, bool inline_too) {
  std::string name = decl.getNameAsString();
  for (const DeclContext* c = decl.getDeclContext(); c; c = c->getParent()) {
    const auto* outer = dyn_cast<NamedDecl>(c);
    const auto* ns = dyn_cast<NamespaceDecl>(c);
    if (!outer || (ns && (ns->isAnonymousNamespace() || (ns->isInline() && !inline_too)))) continue;
    name = outer->getNameAsString() + "::" + name;
  }
  return name;
}

std::string type_text(const ASTContext& context, QualType type) {
  PrintingPolicy policy(context.getLangOpts());
  policy.Bool = true;
  policy.FullyQualifiedName = true;
  policy.SuppressUnwrittenScope = true;  // unnamed namespaces
  return type.getCanonicalType().getAsString(policy);
}

}  // namespace maco::frontend::cuda

extern "C" __attribute__((visibility("default"))) int maco_reader_interface() {
  return maco::frontend::cuda::kReaderInterface;
}
namespace maco::frontend::cuda {
namespace {

/// The changed texts of the user's files.
using Texts = std::map<std::string, std::string>;

void parse(const KernelRequest& request, const Texts& texts, KernelReply& reply, Again& again) {
  auto overlay =
      llvm::makeIntrusiveRefCnt<llvm::vfs::OverlayFileSystem>(llvm::vfs::getRealFileSystem());
  auto memory = llvm::makeIntrusiveRefCnt<llvm::vfs::InMemoryFileSystem>();
  overlay->pushOverlay(memory);
  for (const auto& [path, text] : prelude_files(MACO_CLANG_RESOURCES, request.cuda_folder))
    memory->addFile(path, 0, llvm::MemoryBuffer::getMemBufferCopy(text));
  for (const auto& [path, text] : texts) {
    std::string behind;
    if (path == request.path && (!request.shape_only || !request.template_args.empty())) {
      std::string meant = "::" + request.kernel;
      if (!request.template_args.empty())
        meant += fmt::format("<{}>", fmt::join(request.template_args, ", "));
      behind = fmt::format("\n#line 1 \"maco\"\nstatic auto* const {} = &{};\n", kMeant, meant);
    }
    memory->addFile(path, 0, llvm::MemoryBuffer::getMemBufferCopy(text + behind));
  }
  auto files = llvm::makeIntrusiveRefCnt<clang::FileManager>(clang::FileSystemOptions(), overlay);
  Said said;
  clang::tooling::ToolInvocation invocation(
      arguments(request), std::make_unique<Action>(request, reply, said, again), files.get());
  invocation.setDiagnosticConsumer(&said);
  invocation.run();
  if (!reply.read) said.report_all(reply);
  if (!reply.read && reply.errors.empty()) {
    KernelError error;
    error.attribute = "source";
    error.message = fmt::format("'{}' can't be read", request.path);
    reply.errors.push_back(std::move(error));
  }
}

/// Replaces macros by what they make. Lines stay in place.
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
    const std::string blank = e->exact ? "" : " ";
    text.replace(e->begin, e->end - e->begin,
                 blank + e->text + blank + std::string(static_cast<size_t>(lines), '\n'));
  }
  return true;
}

// Clang reads what looks like template arguments twice if it proves to be something else. With
// unknown names each further `<` doubles the time.
std::optional<KernelError> opens_too_often(const std::string& path, StringRef text) {
  constexpr int most = 16;  // 0.3 s
  LangOptions options;
  options.CPlusPlus = true;
  Lexer lexer(SourceLocation(), options, text.begin(), text.begin(), text.end());
  Token token;
  int opened = 0;
  bool name = false;
  do {
    lexer.LexFromRawLexer(token);
    const bool opens = token.is(tok::less);
    if (opens && name && ++opened > most) {
      const StringRef before(text.begin(),
                             static_cast<size_t>(lexer.getBufferLocation() - 1 - text.begin()));
      KernelError error;
      error.file = path;
      error.line = static_cast<int32_t>(before.count('\n')) + 1;
      error.column = static_cast<int32_t>(before.size() - (before.rfind('\n') + 1)) + 1;
      error.length = 1;
      error.message = fmt::format("more than {} '<' follow each other here, one name apart", most);
      return error;
    }
    name = token.is(tok::raw_identifier);
    if (!name && !opens) opened = 0;
  } while (token.isNot(tok::eof));
  return std::nullopt;
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
  if (auto error = opens_too_often(given.path, (*file)->getBuffer())) {
    reply.errors.push_back(std::move(*error));
    return;
  }
  KernelRequest request = given;
  Texts texts = {{given.path, (*file)->getBuffer().str()}};
  constexpr int most = 8;  // for brackets, for macros, and for what these bring
  for (int i = 0; i < most; ++i) {
    reply = KernelReply();
    Again again;
    parse(request, texts, reply, again);
    if (!reply.errors.empty() || !again.any()) return;
    if (again.brackets) request.template_args = {""};
    if (!again.template_args.empty()) request.template_args = again.template_args;
    if (request.kernel.empty() && reply.shape) request.kernel = reply.shape->name;  // the only one
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
  // Syntax trees are as deep as expressions are nested, and are walked by recursion. So the work
  // runs on a thread with a large stack, of which only the used part takes memory.
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
