#include "compiler/frontend/cuda_kernels.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "compiler/frontend/cuda_reader.h"
#include "ir/check.h"
#include "ir/cuda_op.h"
#include "ir/to_raw.h"

namespace maco::frontend {

namespace {

namespace fs = std::filesystem;
using cuda::KernelArg;
using cuda::KernelError;
using cuda::KernelReply;
using cuda::KernelRequest;

constexpr const char* kReader = "libmaco_clang.so";

/// The shared object with Clang, opened when it is first needed.
struct Reader {
  cuda::ReadKernel read = nullptr;
  std::string path, why;  // where it is; why there is none
};

/// The file of this code, a program or a library, wherever and under whatever name it was started;
/// "" if that can't be found out.
fs::path own_file() {
  const auto here = reinterpret_cast<uintptr_t>(&own_file);
  // The loader knows libraries by the names under which they were loaded, and the program by none.
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    unsigned long long begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%llx-%llx", &begin, &end) != 2 || here < begin || here >= end)
      continue;
    const size_t name = line.find('/');
    if (name != line.npos) return line.substr(name);
  }
  Dl_info info{};
  std::error_code code;
  if (dladdr(reinterpret_cast<const void*>(here), &info) == 0 || !info.dli_fname) return {};
  const fs::path file = fs::canonical(info.dli_fname, code);
  return code ? fs::path() : file;
}

// Places beside this program or library, and where it was installed with it.
std::vector<fs::path> places() {
  if (const char* given = std::getenv("MACO_CLANG"); given && *given)
    return {fs::absolute(given)};  // the loader would search elsewhere for a bare name
  std::vector<fs::path> list;
  const fs::path file = own_file();
  if (file.empty()) return list;
  const fs::path installed = fs::path("..") / MACO_LIBDIR / "maco";
  // (../_lib: the Python package, which has programs and libraries in folders of its own)
  for (const fs::path& below : {fs::path("maco"), fs::path("."), installed, fs::path("../lib/maco"),
                                fs::path("../lib"), fs::path("../../lib"), fs::path("../_lib")})
    list.push_back(file.parent_path() / below / kReader);
  return list;
}

Reader open_reader() {
  Reader reader;
  std::error_code code;
  for (const fs::path& path : places()) {
    if (!fs::exists(path, code)) continue;
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
      const char* why = dlerror();
      reader.why = fmt::format("'{}' was found but doesn't load: {}", path.string(),
                               why ? why : "the loader doesn't say why");
      continue;
    }
    const auto interface = reinterpret_cast<int (*)()>(dlsym(handle, "maco_reader_interface"));
    reader.read = reinterpret_cast<cuda::ReadKernel>(dlsym(handle, "maco_read_kernel"));
    if (reader.read && interface && interface() == cuda::kReaderInterface) {
      reader.path = path.lexically_normal();
      return reader;
    }
    reader.read = nullptr;
    reader.why = fmt::format("'{}' was found but is of another version", path.string());
    dlclose(handle);
  }
  if (!reader.why.empty()) return reader;
  if (const char* given = std::getenv("MACO_CLANG"); given && *given)
    reader.why = fmt::format("MACO_CLANG says '{}', and there is no such file", given);
  else
    reader.why = std::string(kReader) +
                 " was not found; install Clang 22's development files (libclang-cpp22-dev, "
                 "libclang-22-dev) and build MACO again";
  return reader;
}
const Reader& reader() {
  static const Reader opened = open_reader();
  return opened;
}

std::string find_toolkit() {
  std::vector<std::string> folders;
  for (const char* name : {"CUDA_HOME", "CUDA_PATH"})
    if (const char* value = std::getenv(name); value && *value) folders.emplace_back(value);
  folders.emplace_back("/usr/local/cuda");
  std::error_code code;
  if (fs::is_directory("/usr/local", code))
    for (const fs::directory_entry& e : fs::directory_iterator("/usr/local", code))
      if (e.path().filename().string().rfind("cuda-", 0) == 0) folders.push_back(e.path());
  for (const std::string& folder : folders)
    if (fs::exists(fs::path(folder) / "include/cuda.h", code)) return folder;
  return "";
}

/// The folder of the graph's file, to which sources are relative.
fs::path folder_of(const ir::Op& op, const ir::Diagnostics& diagnostics) {
  if (op.loc.file < 0) return {};
  return fs::path(diagnostics.file_name(op.loc.file)).parent_path();
}

/// Adds the command line's settings behind the op's own: its folders are searched later, and its
/// definition of a macro wins.
void add(const CudaSettings& settings, KernelRequest& request) {
  request.include_folders.insert(request.include_folders.end(), settings.include_folders.begin(),
                                 settings.include_folders.end());
  request.defines.insert(request.defines.end(), settings.defines.begin(), settings.defines.end());
  std::vector<std::string> last;
  for (auto it = request.defines.rbegin(); it != request.defines.rend(); ++it)
    if (std::none_of(last.begin(), last.end(), [&](const std::string& later) {
          return ir::macro_name(later) == ir::macro_name(*it);
        }))
      last.push_back(*it);
  request.defines.assign(last.rbegin(), last.rend());
}

/// Checks the macros of a command line.
bool check_macros(const CudaSettings& settings, ir::Diagnostics& diagnostics) {
  for (const std::string& macro : settings.defines) {
    if (!ir::macro_name(macro).empty()) continue;
    diagnostics.error({}, fmt::format("-D must be NAME or NAME=VALUE, found '{}'", macro));
    return false;
  }
  return true;
}

class KernelUse {
 public:
  KernelUse(const ir::Graph& graph, const ir::Op& op, const CudaSettings& settings,
            const ir::Diagnostics& diagnostics)
      : graph_(graph), op_(op), k_(ir::cuda_op(graph, op)) {
    const fs::path source(k_.source);
    request_.path =
        source.is_absolute() ? k_.source : (folder_of(op, diagnostics) / source).string();
    request_.kernel = k_.kernel;
    request_.template_args = k_.template_args;
    request_.block = k_.block;
    request_.shared = k_.shared;
    const std::string& target = settings.target;
    request_.arch =
        target == "cpu" ? 0 : std::atoi(target.c_str() + std::min<size_t>(3, target.size()));
    for (const std::string& name : k_.include_folders)
      request_.include_folders.push_back((folder_of(op, diagnostics) / name).string());
    request_.defines = k_.defines;
    add(settings, request_);
    static const std::string toolkit = find_toolkit();
    request_.cuda_folder = toolkit;
    for (const ir::CudaArg& arg : k_.args) request_.args.push_back(argument(arg));
    samples();
  }
  const KernelRequest& request() const { return request_; }
  const ir::CudaOp& op() const { return k_; }

  /// What determines the text of a unit: uses with equal keys share a unit.
  std::string key() const {
    std::string key =
        fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n{}\n", request_.path, k_.kernel,
                    fmt::join(k_.template_args, ","), fmt::join(k_.block, ","), k_.shared,
                    fmt::join(request_.include_folders, ","), fmt::join(request_.defines, ","));
    for (const KernelArg& arg : request_.args)
      key += arg.kind == KernelArg::Kind::Number ? fmt::format("{:.17g},", arg.number)
             : arg.kind == KernelArg::Kind::Tensor
                 ? fmt::format("t{}{},", static_cast<int>(arg.dtype), arg.written)
             : arg.wide ? "w,"
                        : "i,";
    return key;
  }

  /// What determines whether a use is right: uses with equal keys are right or wrong together.
  std::string whole_key() const {
    std::string text = key();
    for (const KernelArg& arg : request_.args)
      text +=
          fmt::format("\n{} {} {} {}", arg.read, arg.least, arg.most, fmt::join(arg.shape, ","));
    for (const cuda::BlockSample& s : request_.samples) {
      text += fmt::format("\n{} {}", fmt::join(s.block, ","), fmt::join(s.grid, ","));
      for (const cuda::BlockRegion& r : s.regions) {
        text += fmt::format(" {} {}", r.arg, r.writes);
        for (const auto& range : r.ranges) text += fmt::format(" {}:{}", range[0], range[1]);
      }
    }
    return text;
  }

  ir::Loc loc_of(const KernelError& error) const {
    if (error.arg && *error.arg < k_.args.size()) return k_.args[*error.arg].loc;
    const auto attr = op_.attrs.find(error.attribute);
    return attr != op_.attrs.end() && attr->second.loc.known() ? attr->second.loc : op_.loc;
  }

 private:
  int64_t most(const ir::Expr& e) const {
    const auto range = ir::bounds(e, [&](std::string_view n) { return graph_.range_of(n); });
    return range ? range->hi : 1;
  }
  KernelArg argument(const ir::CudaArg& arg) const {
    KernelArg a;
    if (const ir::TensorId* id = arg.tensor()) {
      a.kind = KernelArg::Kind::Tensor;
      const ir::Tensor& t = graph_[*id];
      a.name = t.name;
      a.dtype = t.dtype;
      for (const ir::Expr& e : t.shape) a.shape.push_back(most(e));
      const auto has = [&](const std::vector<ir::TensorId>& list) {
        return std::find(list.begin(), list.end(), *id) != list.end();
      };
      a.read = has(op_.in);
      a.written = has(op_.out);
    } else if (const ir::Expr* e = std::get_if<ir::Expr>(&arg.value)) {
      a.integer = e->constant();
      if (const auto range =
              ir::bounds(*e, [&](std::string_view n) { return graph_.range_of(n); })) {
        a.least = range->lo;
        a.most = range->hi;
      }
      a.wide = ir::is_wide_argument(graph_, *e);
    } else {
      a.kind = KernelArg::Kind::Number;
      a.number = std::get<double>(arg.value);
    }
    return a;
  }

  // Samples the first block, the last, and some between, if every launch has the same grid.
  void samples() {
    std::array<int64_t, 3> grid{};
    for (size_t a = 0; a < 3; ++a) {
      const auto n = k_.grid[a].constant();
      if (!n) return;
      grid[a] = *n;
    }
    for (const auto& block : cuda::sample_blocks(grid)) {
      cuda::BlockSample sample{.block = block, .grid = grid, .regions = {}};
      for (size_t i = 0; i < k_.args.size(); ++i)
        if (const ir::TensorId* id = k_.args[i].tensor())
          for (const bool writes : {false, true})
            if (const ir::CudaRegion* r =
                    ir::CudaOp::find(writes ? k_.writes : k_.reads, graph_[*id].name))
              add_region(sample, i, writes, *r);
      request_.samples.push_back(std::move(sample));
    }
  }
  void add_region(cuda::BlockSample& sample, size_t arg, bool writes,
                  const ir::CudaRegion& r) const {
    cuda::BlockRegion region{.arg = arg, .writes = writes, .ranges = {}};
    for (const ir::CudaRange& range : r.ranges) {
      const auto at = [&](std::string_view n) -> std::optional<ir::Interval> {
        if (n == "bx") return ir::Interval{sample.block[0], sample.block[0]};
        if (n == "by") return ir::Interval{sample.block[1], sample.block[1]};
        if (n == "bz") return ir::Interval{sample.block[2], sample.block[2]};
        return graph_.range_of(n);
      };
      const auto begin = ir::bounds(range.begin, at), end = ir::bounds(range.end, at);
      if (!begin || !end) return;
      region.ranges.push_back({begin->lo, end->hi});
    }
    sample.regions.push_back(std::move(region));
  }

  const ir::Graph& graph_;
  const ir::Op& op_;
  const ir::CudaOp k_;
  KernelRequest request_;
};

/// The user's sources as files of the diagnostics.
class Files {
 public:
  explicit Files(ir::Diagnostics& diagnostics) : diagnostics_(diagnostics) {}
  ir::Loc loc_of(const KernelError& error) {
    ir::Loc loc;
    if (error.file.empty()) return loc;
    loc.file = file(error.file);
    loc.line = error.line;
    loc.column = error.column;
    loc.length = error.length;
    return loc;
  }
  void report(const KernelError& error, const KernelUse& use) {
    const ir::Loc loc = error.file.empty() ? use.loc_of(error) : loc_of(error);
    if (error.note)
      diagnostics_.note(loc, error.message);
    else
      diagnostics_.error(loc, error.message);
  }

 private:
  int32_t file(const std::string& path) {
    const auto [it, fresh] = files_.try_emplace(path, -1);
    if (fresh) {
      std::string text;
      if (FILE* f = std::fopen(path.c_str(), "rb")) {
        char buffer[1 << 14];
        while (const size_t n = std::fread(buffer, 1, sizeof buffer, f)) text.append(buffer, n);
        std::fclose(f);
      }
      it->second = diagnostics_.add_file(path, std::move(text));
    }
    return it->second;
  }
  ir::Diagnostics& diagnostics_;
  std::map<std::string, int32_t> files_;
};

/// "64, 4"; trailing extents of 1 are left out.
std::string extents_text(std::array<int64_t, 3> extents) {
  size_t axes = 3;
  while (axes > 1 && extents[axes - 1] == 1) --axes;
  return fmt::format("{}",
                     fmt::join(extents.begin(), extents.begin() + static_cast<long>(axes), ", "));
}

/// The text of a first draft of a graph.
std::string sample_graph(const std::string& path, const cuda::KernelShape& shape,
                         const CudaSettings& settings) {
  using Kind = cuda::KernelShape::Parameter::Kind;
  std::string inputs, in, args, notes;
  std::vector<std::string> out, states;
  for (size_t i = 0; i < shape.parameters.size(); ++i) {
    const auto& p = shape.parameters[i];
    const std::string name = p.name.empty() ? fmt::format("arg{}", i) : p.name;
    const std::string dtype(ir::name(p.dtype.value_or(ir::DType::F32)));
    args += i > 0 ? ", " : "";
    switch (p.kind) {
      case Kind::Tensor:
        if (!p.dtype)
          notes += fmt::format("# {}: '{}' says no dtype\n", name, p.type);
        else if (p.dtype == ir::DType::U8 && p.type.find("char") == std::string::npos)
          notes += fmt::format("# {}: the bytes of '{}'\n", name, p.type);
        args += name;
        if (p.updated) {
          inputs += fmt::format("  state {} : {}[{}]\n", name, dtype, p.number);
          in += name + ", ";
          states.push_back(name);
        } else if (p.written) {
          out.push_back(fmt::format("{} : {}[{}]", name, dtype, p.number));
        } else {
          inputs += fmt::format("  input {} : {}[{}]\n", name, dtype, p.number);
          in += name + ", ";
        }
        break;
      case Kind::Integer: args += std::to_string(p.number); break;
      case Kind::Number: args += "1.0"; break;
      case Kind::Other:
        args += "?";
        notes += fmt::format("# {}: '{}' can't be an argument of a task\n", name, p.type);
        break;
    }
  }
  const std::string plain =
      shape.name.substr(shape.name.rfind(':') == std::string::npos ? 0 : shape.name.rfind(':') + 1);
  const std::string kernel = plain == shape.name ? plain : '"' + shape.name + '"';
  if (out.empty() && states.empty())
    notes += "# The kernel writes no tensor, and an op has a result.\n";
  std::string given;
  for (const std::string& folder : settings.include_folders)
    given += " " + ir::option_word("-I" + folder);
  for (const std::string& macro : settings.defines) given += " " + ir::option_word("-D" + macro);
  std::string options;
  if (!given.empty()) options = ", options = " + ir::print_quoted(given.substr(1));
  if (!shape.template_parameters.empty()) {
    std::string list;
    for (const std::string& arg :
         shape.template_args.empty() ? shape.template_parameters : shape.template_args) {
      const bool number = arg.find_first_not_of("0123456789") == std::string::npos;
      list += (list.empty() ? "" : ", ") + (number ? arg : '"' + arg + '"');
    }
    options += fmt::format(", template = [{}]", list);
    notes += shape.template_args.empty()
                 ? "# template: the arguments for these parameters\n"
                 : fmt::format("# template: {}\n", fmt::join(shape.template_parameters, ", "));
  }
  if (shape.shared > 0) notes += "# shared: bytes of dynamic shared memory, a guess\n";
  const auto name_of = [](const std::string& declared) {
    return declared.substr(0, declared.find(' '));
  };
  std::string results;
  if (states.empty()) {
    results = out.empty() ? "output y : f32[1024]" : fmt::format("output {}", fmt::join(out, ", "));
  } else {
    for (const std::string& declared : out) inputs += "  output " + declared + "\n";
    std::vector<std::string> names = states;
    std::transform(out.begin(), out.end(), std::back_inserter(names), name_of);
    results = fmt::format("{}", fmt::join(names, ", "));
  }
  // A guess for a kernel whose grid and blocks have one axis.
  std::string guess;
  if (shape.block[1] == 1 && shape.block[2] == 1 && shape.grid[1] == 1 && shape.grid[2] == 1)
    guess = fmt::format(" A guess:\n#   writes = {{{0}: [[{1} * bx, {1} * bx + {1}]]}}",
                        !out.empty()      ? name_of(out[0])
                        : !states.empty() ? states[0]
                                          : "y",
                        shape.block[0]);
  return fmt::format(
      "# A graph with kernel '{}' of {}. Shapes, grid and numbers are guesses, to be filled in{}.\n"
      "# What is updated rather than written is a state, and stands among the inputs, too.\n"
      "# Blocks run side by side where 'reads' and 'writes' say what each touches.{}\n{}"
      "graph {} {{\n{}  {} = cuda({}source = {}, kernel = {}{},\n"
      "    grid = [{}], block = [{}]{}, args = [{}])\n}}\n",
      shape.name, path, shape.launched ? "; the block is that of a launch in the file" : "", guess,
      notes, plain, inputs, results, in, ir::print_quoted(path), kernel, options,
      extents_text(shape.grid), extents_text(shape.block),
      shape.shared > 0 ? fmt::format(", shared = {}", shape.shared) : "", args);
}

std::string unit_name(const ir::Graph& graph, const std::string& kernel) {
  std::string plain =
      kernel.substr(kernel.rfind(':') == std::string::npos ? 0 : kernel.rfind(':') + 1);
  for (char& c : plain)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  std::string name = plain;
  for (int n = 2; graph.find_cuda_unit(name); ++n) name = fmt::format("{}_{}", plain, n);
  return name;
}

}  // namespace

bool read_cuda_kernels(ir::Graph& graph, const CudaSettings& settings,
                       ir::Diagnostics& diagnostics) {
  const int before = diagnostics.errors();
  std::map<std::string, std::pair<std::string, int64_t>> known;  // by key: unit, static memory
  std::set<std::string> right;                                   // uses that were checked
  Files files(diagnostics);
  for (ir::Op& op : graph.ops) {
    if (op.kind != "cuda" || op.attrs.count("unit") > 0) continue;
    if (!reader().read) {
      diagnostics.error(op.loc,
                        fmt::format("'cuda' needs Clang to read its kernel, and {}", reader().why));
      return false;
    }
    if (find_toolkit().empty()) {
      diagnostics.error(
          op.loc,
          "'cuda' needs CUDA's headers to read its kernel, and neither CUDA_HOME, CUDA_PATH "
          "nor /usr/local has a toolkit; install it, or its packages cuda-cudart-dev and cuda-crt");
      return false;
    }
    if (!check_macros(settings, diagnostics)) return false;
    const KernelUse use(graph, op, settings, diagnostics);
    // A use that differs only in regions or numbers has the same unit, but is checked again.
    KernelReply reply;
    if (right.count(use.whole_key()) == 0) {
      reader().read(use.request(), reply);
      for (const KernelError& error : reply.errors) files.report(error, use);
      for (const KernelError& warning : reply.warnings)
        diagnostics.warning(files.loc_of(warning), warning.message);
      if (!reply.errors.empty()) continue;
      right.insert(use.whole_key());
    }
    const auto [it, fresh] = known.try_emplace(use.key());
    if (fresh) {
      it->second = {unit_name(graph, use.op().kernel), reply.static_shared};
      graph.cuda_units.push_back(
          {it->second.first, std::move(reply.original), std::move(reply.device)});
    }
    op.attrs["unit"] = {it->second.first, op.loc};
    op.attrs["static_shared"] = {ir::Expr(it->second.second), op.loc};
  }
  return diagnostics.errors() == before;
}

std::string graph_of_cuda_kernel(const std::string& path, const std::string& kernel,
                                 const CudaSettings& settings, ir::Diagnostics& diagnostics) {
  if (!reader().read) {
    diagnostics.error({}, "reading CUDA needs Clang, and " + reader().why);
    return "";
  }
  if (!check_macros(settings, diagnostics)) return "";
  KernelRequest request;
  request.shape_only = true;
  request.path = path;
  request.kernel = kernel;
  request.cuda_folder = find_toolkit();
  add(settings, request);
  KernelReply reply;
  reader().read(request, reply);
  Files files(diagnostics);
  for (const KernelError& error : reply.errors) {
    const ir::Loc loc = files.loc_of(error);
    if (error.note)
      diagnostics.note(loc, error.message);
    else
      diagnostics.error(loc, error.message);
  }
  if (!reply.shape || !reply.errors.empty()) return "";
  return sample_graph(path, *reply.shape, settings);
}

std::string describe_cuda_reader() {
  return reader().read ? "read by " + reader().path : "not read: " + reader().why;
}

}  // namespace maco::frontend
