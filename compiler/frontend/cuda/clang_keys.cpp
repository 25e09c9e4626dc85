#include "compiler/frontend/cuda/clang_keys.h"

#include <clang/AST/DeclTemplate.h>
#include <clang/AST/DynamicRecursiveASTVisitor.h>
#include <fmt/format.h>

#include <algorithm>

namespace maco::frontend::cuda {

using namespace clang;  // NOLINT: its names are all over this file

namespace {

PrintingPolicy policy(const ASTContext& context) {
  PrintingPolicy p(context.getLangOpts());
  p.Bool = true;
  p.SuppressUnwrittenScope = true;
  return p;
}

}  // namespace

bool needed_soon(const FunctionDecl& f) {
  if (const auto* method = dyn_cast<CXXMethodDecl>(&f); method && method->getParent()->isLambda()) {
    const auto* outer =
        dyn_cast_or_null<FunctionDecl>(method->getParent()->getParentFunctionOrMethod());
    const bool with_outer = !f.getPrimaryTemplate() || (outer && !scopes_of(*outer).empty());
    if (with_outer) return outer && needed_soon(*outer);
  }
  const FunctionDecl* pattern = f.getTemplateInstantiationPattern();
  return (pattern ? pattern : &f)->getReturnType()->getContainedDeducedType() != nullptr;
}

std::vector<Scope> scopes_of(const Decl& inner) {
  std::vector<Scope> scopes;
  // Includes the parameters of classes if a member is defined outside of them, where it may rename
  // them.
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
          outer     ? outer
          : partial ? partial->getTemplateParameters()
                    : (written ? written : spec->getSpecializedTemplate())->getTemplateParameters();
      scopes.push_back({names, &spec->getTemplateInstantiationArgs()});
    }
  }
  return scopes;
}

Key Keys::key_of(const std::vector<Scope>& scopes, SourceLocation at) {
  const auto id = ids_.try_emplace(editor_.sources().getSpellingLoc(at), ids_.size()).first->second;
  Key key;
  for (const Scope& scope : scopes)
    for (unsigned i = 0; i < scope.names->size() && i < scope.values->size(); ++i)
      add_to_key(key, *scope.names->getParam(i), scope.values->get(i));
  key.name = fmt::format("maco_key<{}{}>", id, key.name);
  key.value = fmt::format("maco_key<{}{}>", id, key.value);
  return key;
}

void Keys::add_to_key(Key& key, const NamedDecl& parameter, const TemplateArgument& arg) {
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
    a.print(policy(editor_.context()), out, true);
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

std::optional<std::string> Keys::name_of(QualType type, bool& users) {
  type = type.getCanonicalType();
  struct Finder : DynamicRecursiveASTVisitor {
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
    bool VisitTagType(TagType* t) override {
      look(t->getDecl());
      return true;
    }
    bool TraverseTemplateArgument(const TemplateArgument& a) override {
      users = users || a.getKind() == TemplateArgument::Declaration ||
              a.getKind() == TemplateArgument::Template;
      return DynamicRecursiveASTVisitor::TraverseTemplateArgument(a);
    }
    const SourceManager& sources;
    bool nameless = false, users = false;
  } finder(editor_.sources());
  finder.TraverseType(type);
  if (!finder.nameless) {
    users = users || finder.users;
    return type_text(editor_.context(), type);
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
  if (!is_users(editor_.sources(), begin)) return std::nullopt;
  const Key key = key_of(scopes_of(*record), begin);
  if (settled_)
    editor_.enclose(device_, begin, end, fmt::format("maco_lambda<{}>(", key.name), ")");
  users = users || key.users;
  return key.value;
}

}  // namespace maco::frontend::cuda
