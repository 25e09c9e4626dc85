// What takes a kernel out of its file (clang_extract.h): what it needs, how that is rewritten, and
// the texts that come of it, each in a file of its own.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "compiler/frontend/cuda/clang_extract.h"
#include "compiler/frontend/cuda/clang_keys.h"
#include "compiler/frontend/cuda/clang_origins.h"

namespace maco::frontend::cuda {

using namespace clang;  // NOLINT: its names are all over these files

/// A declaration of the user's outside of functions and classes, or several that share their text.
struct Item {
  FileID file;
  unsigned begin = 0, end = 0;  // including preceding attributes and its semicolon
  unsigned first = 0;           // of its own words
  std::vector<Decl*> decls;
  bool needed = false;
};

class Extractor final : public Extraction, private Editor {
 public:
  Extractor(Kernel& kernel, const Preprocessed& seen, const Said& said,
            const KernelRequest& request, KernelReply& reply, Reports& reports, Again& again)
      : Editor(kernel.context, seen, reports, again),
        kernel_(kernel),
        said_(said),
        request_(request),
        reply_(reply) {}

  void find_needed() override;

  bool is_broken() const override;
  bool is_needed(SourceLocation at) const override;

  void write() override;

 private:
  // What is needed.

  class Needs;
  friend class Needs;

  void need(QualType type);
  void need(const TemplateName& name);
  void need(const TemplateArgument& arg);
  void need(const Decl* decl);
  static bool is_global_function(const Decl& decl);
  /// The user's text can't give a thing the name of one of kernel.cu's macros.
  void check_name(StringRef name, SourceLocation at);
  /// Functions of the user's in a namespace would hide CUDA's functions that they overload.
  std::string overloads() const;
  void mark(SourceLocation loc);

  /// Whether the place is in a condition of the preprocessor, or in text that a condition leaves
  /// out.
  bool in_directive(SourceLocation loc) const;
  const Item* item_at(SourceLocation loc) const;

  bool names_one_of(const Item& item, const std::set<StringRef>& names) const;

  // The offset behind the token at `loc`, and behind a semicolon that follows.
  unsigned end_of(SourceLocation loc) const;

  // Collects items, which are disjoint and in order. Each begins where the previous one ends, or
  // where the scope begins.
  void collect(DeclContext* scope);
  // The offset behind a namespace's opening brace.
  unsigned brace(SourceLocation loc) const;
  // The offset behind extern "C", and behind a brace that follows.
  unsigned linkage_begin(const LinkageSpecDecl* spec) const;

  bool known_namespace(const NamespaceDecl* ns) const;
  /// Whether a declaration stays although nobody refers to it by name.
  bool stays(const Decl* d) const;

  /// Whether a class of the device's has it for the host alone.
  static bool is_hosts(const Decl& d);

  // Edits.

  template <class Finder>
  void traverse_needed(Finder& finder) {
    for (const Item& item : items_)
      for (Decl* d : item.decls)
        if (item.needed) finder.TraverseDecl(d);
  }

  /// Lanes that return early leave other lanes of their warp behind. Those must know this for what
  /// a warp does together. All lanes that are left reach a return at the outermost level, and agree
  /// there.
  void leaving_edits();
  /// Edits statements of the outermost level. Returns false if nothing more need be looked at.
  bool leaving_block(const CompoundStmt& block);
  bool leaving_statement(const Stmt* s);
  const ReturnStmt* find_return(const Stmt* s) const;
  bool returns(const Stmt* s) const { return find_return(s) != nullptr; }
  // Whether the statement is a return, or a block that ends with one and has none before it.
  bool ends_with_return(const Stmt* s) const;
  // On a GPU the warp's other lanes would wait for a lane that returned; the CPU target knows which
  // lanes have returned.
  void nested_return(const Stmt* s);

  void function_edits();

  /// Removes `__global__` before a function's name.
  void global_words(const FunctionDecl& f);

  /// Lambdas don't say where they run. Inside device functions that is clear; code for NVRTC needs
  /// it everywhere.
  void lambda_edits();

  /// The first word of a declaration: attributes may stand before the location that Clang reports.
  SourceLocation first_word(const Decl& d) const;

  /// Leaves out functions of the host, in classes too.
  void host_edits();

  void linkage_edits();

  // Shared memory.

  /// Makes arrays in shared memory references into the task's memory.
  void shared_edits();

  /// The offset behind a word and the parentheses that follow it.
  unsigned behind_parentheses(SourceLocation word) const;

  /// Moves 'alignas' before the other words of a declaration, where a host's compiler needs it.
  void alignment_edits();

  /// Shared memory that is declared outside of functions: each reference to it gets the place where
  /// it lies.
  void shared_of_files();
  unsigned first_token(const VarDecl& var) const;
  /// Allots aligned bytes of static memory to a variable.
  int64_t allot(const VarDecl& var);

  std::string source_text(SourceLocation begin, SourceLocation end) const;

  /// `text` without the words that say where a variable lies and how it is aligned.
  static std::string without_storage(const std::string& text);

  void shared_statement(const FunctionDecl& f, DeclStmt& stmt);

  /// Where a variable in shared memory lies: a number or, in a template, an expression for each
  /// instance.
  std::string place_of(const FunctionDecl& f, const VarDecl& var);
  static std::string called(const FunctionDecl& f);

  // Texts.

  /// A file's text with its includes, without unneeded declarations.
  std::string text(FileID id, const Edits& edits) const;

  /// Makes the text valid UTF-8 without NUL, as compilers and graphs' texts need. Bytes in literals
  /// are kept as escapes; elsewhere other bytes have no meaning.
  std::string clean(std::string text) const;

  /// Explicit instantiations in the file ("template __global__ void k<float>(...);"), which Clang
  /// doesn't report as declarations. They stand between declarations, in the text or made by a
  /// macro.
  std::vector<FileText::Cut> instantiations(FileID id) const;

  std::string system_includes() const;
  // The place of the text for cooperative groups, which needs the unit's block.
  std::string cooperative_groups() const;
  /// Macros from the graph or a command line.
  std::string given_macros() const;
  std::string undefined() const;
  /// The lambdas' types, by their keys.
  std::string naming() const;
  std::string declarations() const;

  /// Code that runs the kernel with its arguments: for the reference a function of pointers and
  /// numbers, for a task a Unit.
  std::string entry(bool original) const;

  Kernel& kernel_;
  const Said& said_;
  const KernelRequest& request_;
  KernelReply& reply_;
  std::vector<Item> items_;
  std::vector<LinkageSpecDecl*> linkages_;
  std::set<const Decl*> decls_;
  std::set<const clang::Type*> types_;
  std::vector<Decl*> work_;
  struct ByPlace {
    bool operator()(const FunctionDecl* a, const FunctionDecl* b) const {
      return a->getID() < b->getID();
    }
  };
  std::set<const FunctionDecl*, ByPlace> functions_;
  Edits original_, device_;
  Origins origins_{sources_, reports_};
  Keys keys_{*this, device_};
  std::string early_places_, late_places_;  // before the user's text, and behind it
  std::set<std::string> places_;            // keys that have a place
  std::set<StringRef> others_;              // functions of CUDA's that the kernel names
  std::set<std::string> told_;              // forbidden names that were reported
  bool broken_ = false;                     // the kernel has expressions that Clang couldn't parse
  bool leaving_ = false;                    // lanes return while others of their warp go on
};

}  // namespace maco::frontend::cuda
