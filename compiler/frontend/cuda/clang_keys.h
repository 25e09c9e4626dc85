// Keys of templates' instances: types that a template's text spells with its parameters, and the
// text behind it with their values, so that both mean the same.
#pragma once

#include <clang/AST/DeclTemplate.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compiler/frontend/cuda/clang_edits.h"

namespace maco::frontend::cuda {

/// A function's template parameters, under the names in the function's text, and their arguments in
/// one instance.
struct Scope {
  const clang::TemplateParameterList* names = nullptr;
  const clang::TemplateArgumentList* values = nullptr;
};
/// The scopes of all templates around a function or a class, innermost first.
std::vector<Scope> scopes_of(const clang::Decl& inner);
/// Whether Clang must instantiate `f` before the end of the translation unit: its body may decide
/// the type that it returns.
bool needed_soon(const clang::FunctionDecl& f);

/// A type that identifies an instance: as the template's text spells it, and spelt with its
/// arguments.
struct Key {
  std::string name, value;
  bool users = false;  // whether the value names something of the user's
};

class Keys {
 public:
  /// Lambdas that are part of keys get their keys in `device`.
  Keys(Editor& editor, Edits& device) : editor_(editor), device_(device) {}

  /// The key for a thing that stands at `at` in all instances. If a parameter can't be named in one
  /// of them, it is left out of keys asked for later: ask again until the result stays the same.
  Key key_of(const std::vector<Scope>& scopes, clang::SourceLocation at);
  size_t unsaid() const { return unsaid_.size(); }
  /// Lambdas get their keys from here on.
  void settle() { settled_ = true; }

 private:
  /// A parameter that can't be named is left out: the others may still distinguish instances.
  void add_to_key(Key& key, const clang::NamedDecl& parameter, const clang::TemplateArgument& arg);
  /// The name of a type for maco_name: the type itself, or a lambda's key. Nothing if it has no
  /// name outside of functions.
  std::optional<std::string> name_of(clang::QualType type, bool& users);

  Editor& editor_;
  Edits& device_;
  std::map<clang::SourceLocation, size_t> ids_;  // by place in the text: the number of its key
  std::set<const clang::NamedDecl*> unsaid_;     // template parameters that keys leave out
  bool settled_ = false;
};

}  // namespace maco::frontend::cuda
