// clang_shared.cpp: variables in shared memory, which get places in the task's memory.
#include "compiler/frontend/cuda/clang_extractor.h"

#include <clang/AST/Attr.h>
#include <clang/AST/DynamicRecursiveASTVisitor.h>
#include <clang/AST/ExprCXX.h>
#include <clang/Lex/Lexer.h>
#include <fmt/format.h>

#include <algorithm>

namespace maco::frontend::cuda {

void Extractor::shared_edits() {
  struct Finder : DynamicRecursiveASTVisitor {
    // Lambdas and classes are visited as functions of their own.
    bool TraverseLambdaExpr(LambdaExpr*) override { return true; }
    bool TraverseCXXRecordDecl(CXXRecordDecl*) override { return true; }
    bool VisitDeclStmt(DeclStmt* stmt) override {
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

unsigned Extractor::behind_parentheses(SourceLocation word) const {
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

void Extractor::alignment_edits() {
  struct Finder : DynamicRecursiveASTVisitor {
    bool VisitVarDecl(VarDecl* var) override {
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

void Extractor::shared_of_files() {
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
      if (var->hasExternalStorage()) original_[item.file].insert({first_token(*var), item.end, ""});
    }
  }
  if (places.empty()) return;
  struct Finder : DynamicRecursiveASTVisitor {
    bool VisitDeclRefExpr(DeclRefExpr* ref) override {
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

unsigned Extractor::first_token(const VarDecl& var) const {
  return std::min(offset(var.getBeginLoc()), offset(var.getAttr<CUDASharedAttr>()->getLocation()));
}

int64_t Extractor::allot(const VarDecl& var) {
  const int64_t align = std::max<int64_t>(context_.getDeclAlign(&var).getQuantity(), 16);
  reply_.static_shared = (reply_.static_shared + align - 1) / align * align;
  const int64_t at = reply_.static_shared;
  reply_.static_shared += context_.getTypeSizeInChars(var.getType()).getQuantity();
  return at;
}

std::string Extractor::source_text(SourceLocation begin, SourceLocation end) const {
  return Lexer::getSourceText(CharSourceRange::getCharRange(begin, end), sources_,
                              context_.getLangOpts())
      .str();
}

std::string Extractor::without_storage(const std::string& text) {
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

void Extractor::shared_statement(const FunctionDecl& f, DeclStmt& stmt) {
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
    const SourceLocation behind = Lexer::getLocForEndOfToken(
        sources_.getExpansionRange(var->getEndLoc()).getEnd(), 0, sources_, context_.getLangOpts());
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

std::string Extractor::place_of(const FunctionDecl& f, const VarDecl& var) {
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
      "template <> struct maco_place<{}> {{ static constexpr int maco_value = {}; }};\n", key.value,
      at);
  return fmt::format("(maco_place<{}>::maco_value)", key.name);
}

std::string Extractor::called(const FunctionDecl& f) {
  const auto* method = dyn_cast<CXXMethodDecl>(&f);
  return method && method->getParent()->isLambda() ? "a lambda"
                                                   : fmt::format("'{}'", f.getNameAsString());
}

}  // namespace maco::frontend::cuda
