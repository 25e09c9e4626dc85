// Keys of instances of templates: types that the text of a template names by its parameters, and
// what stands behind the text by their values, so that both mean the same.
#pragma once

#include <clang/AST/DeclTemplate.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compiler/frontend/cuda/clang_edits.h"

namespace maco::frontend::cuda {

/// Parameters of a template that a function is in, by the names that its text has for them, and
/// what they are in one instance.
struct Scope {
  const clang::TemplateParameterList* names = nullptr;
  const clang::TemplateArgumentList* values = nullptr;
};
/// Those of all templates that a function or a class is in, from within.
std::vector<Scope> scopes_of(const clang::Decl& inner);
/// Is an instance made before the text ends? Its body may say what it returns.
bool needed_soon(const clang::FunctionDecl& f);

/// A type that stands for an instance: as the text of the template says it, and by its arguments.
struct Key {
  std::string name, value;
  bool users = false;  // the value names something of the user's
};

class Keys {
 public:
  /// Lambdas that take part in keys are given theirs in `device`.
  Keys(Editor& editor, Edits& device) : editor_(editor), device_(device) {}

  /// The key for something that stands at `at` in all instances. What can't be said of a parameter
  /// in one of them is left out of those asked for later: ask until it stays the same.
  Key key_of(const std::vector<Scope>& scopes, clang::SourceLocation at);
  size_t unsaid() const { return unsaid_.size(); }
  /// From here on lambdas are given their keys.
  void settle() { settled_ = true; }

 private:
  /// What can't be said of a parameter is left out: instances may be told apart by the others.
  void add_to_key(Key& key, const clang::NamedDecl& parameter, const clang::TemplateArgument& arg);
  /// What maco_name makes of a type: the type, or a key for a lambda's. Nothing if it has no name
  /// outside of functions.
  std::optional<std::string> name_of(clang::QualType type, bool& users);

  Editor& editor_;
  Edits& device_;
  std::map<clang::SourceLocation, size_t> ids_;  // of places in the text that keys are of
  std::set<const clang::NamedDecl*> unsaid_;     // parameters of templates that keys leave out
  bool settled_ = false;
};

}  // namespace maco::frontend::cuda
