#include "runtime/cpu/shared_object.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "cmake/embedded.h"
#include "runtime/cpu/intrinsics/cpu_context.h"
#include "runtime/cpu/toolchain.h"
#include "runtime/host/cubin_cache.h"
#include "runtime/host/sha256.h"

extern const maco::EmbeddedFile maco_cpu_intrinsics[];
extern const size_t maco_cpu_intrinsics_count;

namespace maco::runtime {
namespace {

namespace fs = std::filesystem;

std::string key_of(const std::vector<SourceFile>& files, const std::vector<std::string>& command) {
  Sha256 hash;
  hash.add_field(fmt::format("MACOCPU{} {}", maco_cpu::kInterface, identity_of(command[0])));
  hash.add_field(fmt::to_string(command.size()));
  for (const std::string& word : command) hash.add_field(word);
  for (size_t i = 0; i < maco_cpu_intrinsics_count; ++i)
    hash.add_field(maco_cpu_intrinsics[i].text);
  for (const SourceFile& file : files) hash.add_field(file.text);
  return hash.hex();
}

bool write_file(const fs::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  return file.good();
}

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// A folder of its own, which is removed with its contents.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::error_code error;
    fs::path root = fs::temp_directory_path(error);
    std::string name = ((error ? fs::path("/tmp") : root) / "maco-XXXXXX").string();
    if (mkdtemp(name.data())) path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// The word in the user's text that only a GPU has, according to the compiler's output; "" if the
// error is something else.
std::string missing_word(const std::string& output) {
  const auto is_letter = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
  };
  // The first identifier that begins at or behind `at`.
  const auto word_behind = [&](const std::string& line, size_t at) {
    const auto begin =
        std::find_if(line.begin() + static_cast<ptrdiff_t>(at), line.end(), is_letter);
    return std::string(begin, std::find_if_not(begin, line.end(), is_letter));
  };
  if (output.find("Assembler messages:") != std::string::npos) return "inline PTX";
  const std::string error = "error: ";
  const size_t first = output.find(error);
  if (first == std::string::npos) return "";
  const std::string line = output.substr(first, output.find('\n', first) - first);
  const std::string clang = "use of undeclared identifier";
  if (line.find("was not declared in this scope") != std::string::npos)
    return fmt::format("'{}'", word_behind(line, error.size()));
  if (const size_t at = line.find(clang); at != std::string::npos)
    return fmt::format("'{}'", word_behind(line, at + clang.size()));
  const size_t in_asm = line.find("asm");
  const bool whole = in_asm != std::string::npos && !is_letter(line[in_asm - 1]) &&
                     (in_asm + 3 == line.size() || !is_letter(line[in_asm + 3]));
  return whole ? "inline PTX" : "";
}

Status compile_image(const std::vector<SourceFile>& files, std::vector<std::string> command,
                     const fs::path& folder, std::string& image) {
  bool written = true;
  for (size_t i = 0; i < maco_cpu_intrinsics_count; ++i)
    written &= write_file(folder / fs::path(maco_cpu_intrinsics[i].name).filename(),
                          maco_cpu_intrinsics[i].text);
  for (const SourceFile& file : files) written &= write_file(folder / file.name, file.text);
  if (!written)
    return Status::failure(
        fmt::format("cannot write to '{}' to compile the kernel there", folder.string()));
  const fs::path object = folder / "kernels.so";
  for (const std::string& word :
       {(folder / files[0].name).string(), std::string("-o"), object.string()})
    command.push_back(word);
  std::string output;
  if (!run_command(command, output)) {
    const bool users = std::any_of(files.begin(), files.end(), [](const SourceFile& file) {
      return file.text.find("\nnamespace cuda_units {") != std::string::npos ||
             file.text.find("\nnamespace maco_original {") != std::string::npos;
    });
    if (const std::string word = users ? missing_word(output) : ""; !word.empty())
      return Status::failure(fmt::format(
          "a kernel of a user's uses {}, which the CPU target doesn't have: run it on a GPU",
          word));
    return Status::failure(
        fmt::format("'{}' could not compile the kernel for the CPU:\n{}", command[0], output));
  }
  image = read_file(object);
  return image.empty() ? Status::failure(fmt::format("'{}' wrote no shared object", command[0]))
                       : Status{};
}

// Opens an image through a file in `folder`.
Status load_image(const std::string& image, const std::string& key, const fs::path& folder,
                  const std::function<Status(const std::string&)>& load) {
  fs::path path = folder / "loaded.so";
#ifdef MACO_KERNEL_SANITIZE
  // Sanitizers read the file again for their reports, so it is kept.
  static std::atomic<int> loaded{0};
  path = fs::temp_directory_path() / fmt::format("maco-kernels-{}", getuid()) /
         fmt::format("{}.{}.{}.so", key, getpid(), loaded++);
  std::error_code ignored;
  fs::create_directories(path.parent_path(), ignored);
#else
  (void)key;
#endif
  if (!write_file(path, image))
    return Status::failure(fmt::format("cannot write '{}'", path.string()));
  return load(path.string());
}

}  // namespace

Status compile_and_load(const std::vector<SourceFile>& files, std::vector<std::string> command,
                        bool verbose, const std::function<Status(const std::string& path)>& load) {
  const auto say = [&](const std::string& what) {
    if (verbose && !what.empty()) fmt::print(stderr, "maco: {}\n", what);
  };
  TemporaryFolder folder;
  if (folder.path().empty())
    return Status::failure(
        "cannot make a temporary folder to compile the kernel in; set TMPDIR to one that can be "
        "written");
  const std::string key = key_of(files, command);
  Status usable;
  const CubinCache cache = CubinCache::standard(usable);
  MACO_TRY(usable);
  std::string note;
  if (const std::optional<std::string> image = cache.load(key, note)) {
    const Status status = load_image(*image, key, folder.path(), load);
    if (status) {
      say(note);
      return status;
    }
    say("the cached kernel does not load: " + status.message);
  } else {
    say(note);
  }

  const auto start = std::chrono::steady_clock::now();
  std::string image;
  if (Status status = compile_image(files, command, folder.path(), image); !status) return status;
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  say(fmt::format("compiled for the CPU with {} in {:.2f} s: {} bytes", command[0], seconds.count(),
                  image.size()));
  const Status status = load_image(image, key, folder.path(), load);
  if (status && !cache.folder().empty()) {
    cache.store(key, image, note);
    say(note);
  }
  return status;
}

}  // namespace maco::runtime
