"""What the checks of .clang-tidy find: an example each, pieces of one file behind `HEADER`, which is header.h."""

HEADER = """\
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>
using std::string, std::string_view, std::vector, std::optional;
int defined_in_a_header() { return 1; }
int declared(int);
string made();
void take(int count, bool all);
void keep(string text);
struct Base {
  virtual ~Base() = default;
  virtual void act() {}
  virtual int number() const { return 1; }
  int a = 0;
};
"""
EXAMPLES = {
    "readability-duplicate-include": '#include "header.h"\n#include "header.h"\n',
    "modernize-deprecated-headers": "#include <string.h>\n",
    "misc-definitions-in-headers": "// In the header.\n",
    "bugprone-argument-comment": "void argument_comment() { take(/*number=*/1, /*all=*/true); }\n",
    "bugprone-dangling-handle": "string_view dangling() { string local = made(); return local; }\n",
    "bugprone-infinite-loop": "int infinite() { int i = 0; while (i < 10) declared(1); return i; }\n",
    "bugprone-integer-division": "double division(int a) { return a / 2; }\n",
    "bugprone-nondeterministic-pointer-iteration-order":
        "#include <unordered_set>\nvoid order() { int a = 0; std::unordered_set<int*> s = {&a}; for (int* p : s) declared(*p); }\n",
    "bugprone-optional-value-conversion":
        "void optional_argument(optional<int>);\nvoid wraps(optional<int> v) { optional_argument(v.value()); }\n",
    "bugprone-redundant-branch-condition": "void branch(bool a) { if (a) { declared(1); if (a) declared(2); } }\n",
    "bugprone-return-const-ref-from-parameter": "const string& same(const string& text) { return text; }\n",
    "bugprone-suspicious-semicolon": "void semicolon(bool a) {\n  if (a);\n  declared(1);\n}\n",
    "bugprone-suspicious-string-compare":
        '#include <cstring>\nbool compare(const char* a) { if (strcmp(a, "b")) return true; return false; }\n',
    "bugprone-too-small-loop-variable": "void small(long n) { for (short i = 0; i < n; ++i) declared(i); }\n",
    "bugprone-unused-local-non-trivial-variable": "#include <future>\nvoid unused_local() { std::future<int> nothing; }\n",
    "bugprone-unused-raii": "struct Guard {\n  Guard();\n  ~Guard();\n};\nvoid raii() { Guard(); declared(1); }\n",
    "bugprone-unused-return-value": "void unused_value(std::unique_ptr<int> p) { p.release(); }\n",
    "bugprone-use-after-move": "size_t moved() { string a = made(); string b = std::move(a); keep(b); return a.size(); }\n",
    "bugprone-virtual-near-miss": "struct Near : Base {\n  virtual int numbr() const;\n};\n",
    "cppcoreguidelines-slicing": "struct Larger : Base {\n  int b = 0;\n};\nBase sliced(const Larger& x) { return x; }\n",
    "cppcoreguidelines-virtual-class-destructor": "struct NoDestructor {\n  virtual void act();\n};\n",
    "google-build-using-namespace": "using namespace std;\n",
    "google-explicit-constructor": "struct Implicit {\n  Implicit(int a);\n};\n",
    "misc-redundant-expression": "bool redundant(int a, int b) { return a == 1 || b == 2 || a == 1; }\n",
    "misc-unused-parameters": "static int parameters(int a) { return 1; }\nint uses() { return parameters(2); }\n",
    "modernize-use-nullptr": "int* null() { return 0; }\n",
    "modernize-use-override": "struct Derived : Base {\n  virtual void act();\n};\n",
    "performance-for-range-copy":
        "void copies(const vector<string>& list) { for (const string text : list) declared(int(text.size())); }\n",
    "performance-implicit-conversion-in-loop":
        "void converts(const std::map<int, string>& m) { for (const std::pair<int, string>& p : m) declared(p.first); }\n",
    "performance-move-const-arg": "void moves(const string& a) { keep(std::move(a)); }\n",
    "performance-no-automatic-move": "std::unique_ptr<int> none();\noptional<string> automatic() { const string a = made(); return a; }\n",
    "performance-unnecessary-value-param": "size_t by_value(string text) { return text.size(); }\n",
    "readability-container-size-empty": "bool size_empty(const vector<int>& v) { return v.size() == 0; }\n",
    "readability-else-after-return": "int after_return(bool a) { if (a) { return 1; } else { return 2; } }\n",
    "readability-make-member-function-const":
        "class Member {\n  int* a_ = nullptr;\n  int b_ = 0;\n\n public:\n  int get() { return b_; }\n};\n",
    "readability-misleading-indentation": "void indentation(bool a) {\n  if (a)\n    declared(1);\n    declared(2);\n}\n",
}
