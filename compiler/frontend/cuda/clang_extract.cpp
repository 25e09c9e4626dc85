// clang_extract.cpp: the texts of a kernel and of what it uses.
//
// Lines and columns stay in place, so that compilers' messages about the texts point into the
// user's file.
#include "compiler/frontend/cuda/clang_extractor.h"

#include <clang/AST/Attr.h>
#include <clang/Lex/Lexer.h>
#include <fmt/format.h>
#include <llvm/Support/ConvertUTF.h>

#include <algorithm>
#include <cstring>

#include "compiler/frontend/cuda/clang_layout.h"

namespace maco::frontend::cuda {

void Extractor::write() {
  leaving_edits();
  shared_edits();
  function_edits();
  lambda_edits();
  host_edits();
  linkage_edits();
  if (reports_.any() || again_.any()) return;
  const std::string includes = system_includes();
  const std::string undefine = undefined();
  const std::string groups = cooperative_groups();
  reply_.original = "template <class T> using maco_type = T;\n" + groups + overloads() +
                    given_macros() + clean(text(sources_.getMainFileID(), original_)) +
                    entry(true) + undefine;
  reply_.device = laid_out(includes + declarations() + groups + early_places_ + overloads() +
                           given_macros() + clean(text(sources_.getMainFileID(), device_)) +
                           late_places_ + entry(false) + undefine);
}

std::string Extractor::text(FileID id, const Edits& edits) const {
  const StringRef data = sources_.getBufferData(id);
  const auto seen = seen_.files.find(id);
  std::vector<bool> dropped(data.size(), false);
  const auto drop = [&](unsigned begin, unsigned end, bool value) {
    for (unsigned i = begin; i < end && i < dropped.size(); ++i) dropped[i] = value;
  };
  for (const Item& item : items_)
    if (item.file == id && !item.needed) drop(item.begin, item.end, true);
  for (const FileText::Cut& c : instantiations(id)) drop(c.begin, c.end, true);
  // Add text that Clang couldn't parse, if it stands before a needed declaration.
  for (const SourceLocation at : said_.places())
    if (const Item* item = item_at(at);
        item && item->file == id && item->needed && offset(at) < item->first)
      drop(item->begin, item->first, true);
  if (seen != seen_.files.end()) {
    for (const FileText::Cut& m : seen->second.macros) drop(m.begin, m.end, false);
    for (const FileText::Cut& c : seen->second.cuts) drop(c.begin, c.end, true);
  }
  // Leave out the text that was added behind the user's.
  if (id == sources_.getMainFileID())
    if (const size_t at = data.rfind("\n#line 1 \"maco\""); at != StringRef::npos)
      drop(static_cast<unsigned>(at), static_cast<unsigned>(data.size()), true);
  std::map<unsigned, const FileText::Include*> includes;
  if (seen != seen_.files.end())
    for (const FileText::Include& i : seen->second.includes) includes[i.begin] = &i;
  const auto changes = edits.find(id);
  auto change = changes == edits.end() ? std::set<Edit>::const_iterator() : changes->second.begin();
  const auto no_change = [&] { return changes == edits.end() || change == changes->second.end(); };
  std::string out;
  // Leave out the UTF-8 mark, which may stand only at a file's beginning.
  for (unsigned at = data.starts_with("\xef\xbb\xbf") ? 3 : 0; at < data.size();) {
    while (!no_change() && change->begin < at) ++change;
    const auto include = includes.find(at);
    if (include != includes.end()) {
      // A file that is included within a declaration is part of it.
      const bool within = std::any_of(items_.begin(), items_.end(), [&](const Item& item) {
        return item.file == id && !item.needed && at >= item.first && at < item.end;
      });
      if (include->second->file.isValid() && !within) out += text(include->second->file, edits);
      at = include->second->end;
      continue;
    }
    if (!no_change() && change->begin == at && !dropped[at]) {
      out += change->text;
      if (change->end == at) {
        ++change;
        continue;
      }
      // Keep the line ends that the change removes.
      for (unsigned i = at; i < change->end; ++i)
        if (data[i] == '\n') out += '\n';
      at = std::max(change->end, at + 1);
      ++change;
      continue;
    }
    if (!dropped[at] || data[at] == '\n') out += data[at];
    ++at;
  }
  if (!out.empty() && out.back() != '\n') out += '\n';
  return out;
}

std::string Extractor::clean(std::string text) const {
  const auto is_clean = [](StringRef part) {
    const auto* begin = reinterpret_cast<const llvm::UTF8*>(part.data());
    return part.find('\0') == StringRef::npos &&
           llvm::isLegalUTF8String(&begin, begin + part.size());
  };
  if (is_clean(text)) return text;
  Lexer lexer(SourceLocation(), context_.getLangOpts(), text.data(), text.data(),
              text.data() + text.size());
  lexer.SetCommentRetentionState(true);
  std::string out;
  size_t at = 0;
  // Handles each byte or sequence that isn't valid.
  const auto put = [&](size_t end, bool literal) {
    while (at < end) {
      const auto* bytes = reinterpret_cast<const llvm::UTF8*>(text.data() + at);
      const size_t length = std::min<size_t>(llvm::getNumBytesForUTF8(*bytes), end - at);
      if (text[at] != '\0' && llvm::isLegalUTF8Sequence(bytes, bytes + length)) {
        out.append(text, at, length);
        at += length;
      } else {
        out += literal            ? fmt::format("\\{:03o}", static_cast<unsigned char>(text[at]))
               : text[at] == '\0' ? " "
                                  : "?";
        ++at;
      }
    }
  };
  for (Token token; !lexer.LexFromRawLexer(token);) {
    const size_t begin =
        static_cast<size_t>(lexer.getBufferLocation() - text.data()) - token.getLength();
    put(begin, false);
    put(begin + token.getLength(),
        tok::isStringLiteral(token.getKind()) || token.is(tok::char_constant));
  }
  put(text.size(), false);
  return out;
}

std::vector<FileText::Cut> Extractor::instantiations(FileID id) const {
  const StringRef data = sources_.getBufferData(id);
  std::vector<bool> known(data.size(), false);
  const auto is_known = [&](unsigned begin, unsigned end) {
    for (unsigned i = begin; i < end && i < known.size(); ++i) known[i] = true;
  };
  for (const Item& item : items_)
    if (item.file == id) is_known(item.first, item.end);
  if (const auto seen = seen_.files.find(id); seen != seen_.files.end()) {
    for (const FileText::Cut& c : seen->second.cuts) is_known(c.begin, c.end);
    for (const FileText::Cut& c : seen->second.macros) is_known(c.begin, c.end);
    for (const FileText::Include& i : seen->second.includes) is_known(i.begin, i.end);
  }
  const SourceLocation start = sources_.getLocForStartOfFile(id);
  Lexer lexer(start, context_.getLangOpts(), data.begin(), data.begin(), data.end());
  std::vector<Token> tokens;
  for (Token token; !lexer.LexFromRawLexer(token);)
    if (!known[offset(token.getLocation())]) tokens.push_back(token);
  const auto spelling = [&](size_t i) {
    return i < tokens.size() ? data.substr(offset(tokens[i].getLocation()), tokens[i].getLength())
                             : StringRef();
  };
  std::vector<FileText::Cut> cuts;
  bool begins = true;  // of a declaration
  for (size_t i = 0; i < tokens.size(); ++i) {
    const unsigned begin = offset(tokens[i].getLocation());
    if (tokens[i].isOneOf(tok::semi, tok::l_brace, tok::r_brace)) {
      begins = true;
      continue;
    }
    if (!begins) continue;
    begins = false;
    const size_t word = spelling(i) == "extern" ? i + 1 : i;
    size_t last = tokens.size();
    if (spelling(word) == "template" && spelling(word + 1) != "<") {
      for (last = word; last < tokens.size() && tokens[last].isNot(tok::semi);) ++last;
    } else if (seen_.macros.count(spelling(i).str()) > 0) {
      size_t end = i;
      if (spelling(i + 1) == "(") {
        int depth = 0;
        do {
          ++end;
          depth += spelling(end) == "(" ? 1 : spelling(end) == ")" ? -1 : 0;
        } while (depth > 0 && end + 1 < tokens.size());
      }
      if (end >= tokens.size()) break;
      const std::string made =
          expanded(tokens[i].getLocation(), data.slice(begin, offset(tokens[end].getEndLoc())));
      const StringRef text =
          StringRef(made).starts_with("extern ") ? StringRef(made).drop_front(7) : StringRef(made);
      if (!text.starts_with("template ") || text.starts_with("template <")) continue;
      last = spelling(end + 1) == ";" ? end + 1 : end;
    }
    if (last >= tokens.size()) continue;
    cuts.push_back({begin, offset(tokens[last].getEndLoc())});
    i = last;
    begins = true;
  }
  return cuts;
}

std::string Extractor::system_includes() const {
  std::set<std::string> names;
  for (const auto& [id, file] : seen_.files)
    for (const FileText::Include& i : file.includes)
      if (!i.system.empty()) names.insert(i.system);
  std::string out;
  // The headers of CUDA that a task includes. Standard headers, the runtime's and cooperative
  // groups are MACO's own.
  for (const std::string& name : names)
    for (const char* kept : {"cuda_fp16", "cuda_bf16", "cuda_fp8", "cuda_fp6", "cuda_fp4", "mma.h",
                             "math_constants.h", "cuda/std/"})
      if (name.compare(1, std::strlen(kept), kept) == 0) {
        out += "#include <" + name.substr(1, name.size() - 2) + ">\n";
        break;
      }
  for (const std::string& header : origins_.of_cuda()) {
    const std::string line = fmt::format("#include <{}>\n", header);
    if (out.find(line) == std::string::npos) out += line;
  }
  for (const std::string& header : origins_.standard())
    out += fmt::format("#include <std/{}>\n", header);
  return out;
}

std::string Extractor::cooperative_groups() const {
  for (const auto& [id, file] : seen_.files)
    for (const FileText::Include& i : file.includes)
      if (i.system.find("cooperative_groups") != std::string::npos)
        return "//@cooperative_groups\n";
  return "";
}

std::string Extractor::given_macros() const {
  std::string out;
  for (const std::string& macro : request_.defines) {
    const size_t equals = macro.find('=');
    out += fmt::format("#define {} {}\n", macro.substr(0, equals),
                       equals == std::string::npos ? "1" : macro.substr(equals + 1));
  }
  return out;
}

std::string Extractor::undefined() const {
  std::string out;
  for (const std::string& macro : request_.defines)
    out += "#undef " + macro.substr(0, macro.find('=')) + "\n";
  for (const std::string& name : seen_.macros) out += "#undef " + name + "\n";
  return out;
}

std::string Extractor::naming() const {
  if (places_.empty()) return "";
  return "template <class Key, class F> struct maco_closure : F {};\n"
         "template <class Key, class F> MACO_FN constexpr maco_closure<Key, F> maco_lambda(F f) "
         "{ return {f}; }\n"
         "template <class T> struct maco_name { using type = T; };\n"
         "template <class T> struct maco_name<const T> { using type = const typename "
         "maco_name<T>::type; };\n"
         "template <class T> struct maco_name<T&> { using type = typename maco_name<T>::type&; "
         "};\n"
         "template <class T> struct maco_name<T&&> { using type = typename maco_name<T>::type&&; "
         "};\n"
         "template <class T> struct maco_name<T*> { using type = typename maco_name<T>::type*; "
         "};\n"
         "template <class Key, class F> struct maco_name<maco_closure<Key, F>> "
         "{ using type = Key; };\n";
}

std::string Extractor::declarations() const {
  return fmt::format(
      "constexpr int maco_block_x = {}, maco_block_y = {}, maco_block_z = {};\n"
      "constexpr int maco_static_bytes = {}, maco_dynamic_bytes = {};\n"
      "constexpr bool maco_leaving = {};\n"
      "template <class T> using maco_type = T;\n"
      "template <auto value> struct maco_constant {{}};\n"
      "template <int id, class... Parameters> struct maco_key {{}};\n"
      "template <class Key> struct maco_place;\n{}"
      // What entry() needs, which stands behind the user's macros.
      "struct maco_extent {{\n"
      "  static constexpr int kX = maco_block_x, kY = maco_block_y, kZ = maco_block_z, kThreads "
      "= kX * kY * kZ;\n"
      "  static constexpr int kStaticBytes = maco_static_bytes, kDynamicBytes = "
      "maco_dynamic_bytes;\n}};\n"
      "using maco_context = ::maco::Context;\nusing maco_arguments = ::maco::Args;\n"
      "MACO_FN char* maco_tensor(const maco_arguments& arguments, int i) {{ return "
      "arguments.template ptr<char>(i); }}\n"
      "template <class N> MACO_FN long long maco_number(const maco_context& context) {{ return "
      "N::get(context); }}\n",
      request_.block[0], request_.block[1], request_.block[2], reply_.static_shared,
      request_.shared, leaving_, naming());
}

std::string Extractor::entry(bool original) const {
  const FunctionDecl* f = kernel_.function;
  std::string call = written_name(*f);
  if (!request_.template_args.empty())
    call += fmt::format("<{}>", fmt::join(request_.template_args, ", "));
  std::string args;
  size_t tensors = 0, numbers = 0;
  for (size_t i = 0; i < request_.args.size() && i < f->getNumParams(); ++i) {
    const KernelArg& arg = request_.args[i];
    const std::string type = type_text(
        context_, f->getParamDecl(static_cast<unsigned>(i))->getType().getUnqualifiedType());
    args += i > 0 ? ", " : "";
    if (arg.kind == KernelArg::Kind::Tensor)
      args += original ? fmt::format("({})maco_tensors[{}]", type, tensors++)
                       : fmt::format("({})maco_tensor(maco_args, {})", type, tensors++);
    else if (arg.kind == KernelArg::Kind::Integer && arg.wide && !original) {
      args += fmt::format(
          "({})(maco_number<typename maco_c::arg{}>(maco_at) * 4294967296ll + "
          "maco_number<typename maco_c::arg{}>(maco_at) + 2147483648ll)",
          type, numbers, numbers + 1);
      numbers += 2;
    } else if (arg.kind == KernelArg::Kind::Integer)
      args += original ? fmt::format("({})maco_numbers[{}]", type, numbers++)
                       : fmt::format("({})maco_number<typename maco_c::arg{}>(maco_at)", type,
                                     numbers++);
    else
      args += fmt::format("({}){}", type, fmt::format("{:.17g}", arg.number));
  }
  if (original)
    return fmt::format(
        "static void maco_launch(char* const* maco_tensors, const long long* maco_numbers) {{\n"
        "  (void)maco_tensors, (void)maco_numbers;\n  {}({});\n}}\n",
        call, args);
  return fmt::format(
      "struct maco_unit : maco_extent {{\n"
      "  template <class maco_c>\n"
      "  static MACO_FN void maco_run(const maco_context& maco_at, const maco_arguments& "
      "maco_args) {{\n"
      "    (void)maco_at, (void)maco_args;\n    {}({});\n  }}\n}};\n",
      call, args);
}

bool runs_on_host(const Decl& decl) {
  const FunctionDecl* f = decl.getAsFunction();
  return f && !f->hasAttr<CUDADeviceAttr>() && !f->hasAttr<CUDAGlobalAttr>() && !f->isDefaulted() &&
         !f->isDeletedAsWritten() && !f->isImplicit() && !f->isPureVirtual();
}

std::unique_ptr<Extraction> make_extraction(Kernel& kernel, const Preprocessed& seen,
                                            const Said& said, const KernelRequest& request,
                                            KernelReply& reply, Reports& reports, Again& again) {
  return std::make_unique<Extractor>(kernel, seen, said, request, reply, reports, again);
}

}  // namespace maco::frontend::cuda
