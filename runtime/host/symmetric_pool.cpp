#include "runtime/host/symmetric_pool.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

namespace maco::runtime {
namespace {

constexpr size_t kPiece = size_t{16} << 20, kUnit = size_t{64} << 10;

// The free bytes of a piece: from, to.
using Ranges = std::map<size_t, size_t>;

std::optional<size_t> first_fit(const Ranges& free, size_t bytes) {
  for (const auto& [begin, end] : free)
    if (end - begin >= bytes) return begin;
  return std::nullopt;
}

Ranges common(const Ranges& a, const Ranges& b) {
  Ranges both;
  for (const auto& [begin, end] : a)
    for (const auto& [other_begin, other_end] : b)
      if (std::max(begin, other_begin) < std::min(end, other_end))
        both[std::max(begin, other_begin)] = std::min(end, other_end);
  return both;
}

class Piece {
 public:
  Piece(std::string id, std::unique_ptr<SymmetricMemory> memory)
      : id_(std::move(id)), memory_(std::move(memory)), free_{{0, kPiece}} {}
  /// All ranks have the same id.
  const std::string& id() const { return id_; }
  const SymmetricMemory& memory() const { return *memory_; }

  Ranges free() const {
    const std::lock_guard lock(mutex_);
    return free_;
  }
  /// Returns false if a part of it is taken.
  bool take(size_t begin, size_t bytes) {
    const std::lock_guard lock(mutex_);
    auto it = free_.upper_bound(begin);
    if (it == free_.begin()) return false;
    const auto [from, to] = *--it;
    if (to < begin + bytes) return false;
    free_.erase(it);
    if (from < begin) free_[from] = begin;
    if (begin + bytes < to) free_[begin + bytes] = to;
    return true;
  }
  void give(size_t begin, size_t bytes) {
    const std::lock_guard lock(mutex_);
    size_t end = begin + bytes;
    if (const auto next = free_.find(end); next != free_.end()) {
      end = next->second;
      free_.erase(next);
    }
    auto it = free_.upper_bound(begin);
    if (it != free_.begin() && std::prev(it)->second == begin)
      std::prev(it)->second = end;
    else
      free_[begin] = end;
  }

 private:
  const std::string id_;
  const std::unique_ptr<SymmetricMemory> memory_;
  mutable std::mutex mutex_;
  Ranges free_;
};

class Part : public SymmetricMemory {
 public:
  Part(std::shared_ptr<Piece> piece, size_t begin, size_t bytes)
      : piece_(std::move(piece)), begin_(begin), bytes_(bytes) {}
  ~Part() override { piece_->give(begin_, bytes_); }
  cuda::DevicePtr address(int owner, int viewer) const override {
    return piece_->memory().address(owner, viewer) + begin_;
  }

 private:
  const std::shared_ptr<Piece> piece_;
  const size_t begin_, bytes_;
};

// The pieces of this process, by the key of their users.
class Pieces {
 public:
  std::vector<std::shared_ptr<Piece>> of(const std::string& key) {
    const std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<Piece>> found;
    auto& all = pieces_[key];
    for (const auto& weak : all)
      if (auto piece = weak.lock()) found.push_back(std::move(piece));
    std::erase_if(all, [](const auto& weak) { return weak.expired(); });
    return found;
  }
  void add(const std::string& key, const std::shared_ptr<Piece>& piece) {
    const std::lock_guard lock(mutex_);
    pieces_[key].push_back(piece);
  }
  std::string new_id() {
    const std::lock_guard lock(mutex_);
    return fmt::format("{}.{}", ::getpid(), ++made_);
  }
  /// Pieces outlive the session that made them, and so need a driver of their own.
  const cuda::Driver* driver(Status& status) {
    const std::lock_guard lock(mutex_);
    if (!driver_) driver_ = cuda::Driver::load(status);
    return driver_.get();
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::vector<std::weak_ptr<Piece>>> pieces_;
  std::unique_ptr<cuda::Driver> driver_;
  int made_ = 0;
};

Pieces& pieces() {
  static auto* const all = new Pieces;  // sessions may end after main
  return *all;
}

std::string key_of(const SymmetricProvider& provider, const SymmetricRequest& request,
                   const std::string& group) {
  std::string key = fmt::format("{} {}", provider.name, group);
  if (request.group) key += fmt::format(" {}/{}", request.group->rank(), request.group->size());
  for (const SymmetricRank& rank : request.ranks)
    key += fmt::format(" {}:{}", rank.device_index, fmt::ptr(rank.context));
  return key;
}

// One line "id begin end ..." for each piece.
std::string text_of(const std::vector<std::shared_ptr<Piece>>& all, size_t bytes) {
  std::string text;
  for (const auto& piece : all) {
    std::string line;
    for (const auto& [begin, end] : piece->free())
      if (end - begin >= bytes) line += fmt::format(" {} {}", begin, end);
    if (!line.empty()) text += piece->id() + line + "\n";
  }
  return text;
}
std::vector<std::pair<std::string, Ranges>> pieces_in(const std::string& text) {
  std::vector<std::pair<std::string, Ranges>> found;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    auto& [id, free] = found.emplace_back();
    words >> id;
    for (size_t begin = 0, end = 0; words >> begin >> end;) free[begin] = end;
  }
  return found;
}

// A part that is free on every rank: its piece and begin. All ranks find the same one.
std::optional<std::pair<std::string, size_t>> free_everywhere(const std::vector<std::string>& texts,
                                                              size_t bytes) {
  for (auto& [id, free] : pieces_in(texts[0])) {
    for (size_t r = 1; r < texts.size(); ++r) {
      Ranges theirs;
      for (const auto& [name, ranges] : pieces_in(texts[r]))
        if (name == id) theirs = ranges;
      free = common(free, theirs);
    }
    if (const auto begin = first_fit(free, bytes)) return std::pair(id, *begin);
  }
  return std::nullopt;
}

Status agree(const SymmetricRequest& request, const Status& mine) {
  return request.group ? request.group->agree(mine) : mine;
}

Status clear(const SymmetricRequest& request, const SymmetricMemory& memory, size_t bytes) {
  for (size_t r = 0; r < request.ranks.size(); ++r) {
    const int owner = request.group ? request.group->rank() : static_cast<int>(r);
    const cuda::Driver& driver = request.driver;
    MACO_TRY(driver.check(driver.context_set(request.ranks[r].context), "switch devices"));
    MACO_TRY(driver.check(driver.fill(memory.address(owner, owner), 0, bytes, nullptr),
                          "clear symmetric memory"));
    MACO_TRY(driver.check(driver.stream_synchronize(nullptr), "clear symmetric memory"));
  }
  return {};
}

// A part of an existing piece; null if no piece has room on all ranks, or `status` fails.
std::unique_ptr<Part> find_part(const SymmetricRequest& request, const std::string& key,
                                size_t bytes, Status& status) {
  const auto here = pieces().of(key);
  std::vector<std::string> texts = {text_of(here, bytes)};
  if (request.group) {
    const std::string mine = texts[0];
    status = request.group->exchange(mine, texts);
    if (!status) return nullptr;
  }
  const auto place = free_everywhere(texts, bytes);
  if (!place) return nullptr;
  std::unique_ptr<Part> part;
  for (const auto& piece : here)
    if (piece->id() == place->first && piece->take(place->second, bytes))
      part = std::make_unique<Part>(piece, place->second, bytes);
  // Other threads may open sessions meanwhile.
  if (!agree(request, part ? Status{} : Status::failure("another session was quicker")))
    return nullptr;
  status = agree(request, clear(request, *part, bytes));
  return status ? std::move(part) : nullptr;
}

}  // namespace

std::unique_ptr<SymmetricMemory> allocate_pooled(const SymmetricProvider& provider,
                                                 const SymmetricRequest& request,
                                                 const std::string& group, Status& status) {
  const size_t bytes = (request.bytes + kUnit - 1) / kUnit * kUnit;
  if (bytes > kPiece / 2) return provider.allocate(request, status);
  const cuda::Driver* driver = pieces().driver(status);
  if (status = agree(request, status); !status) return nullptr;
  const std::string key = key_of(provider, request, group);
  if (auto part = find_part(request, key, bytes, status); part || !status) return part;

  std::vector<std::string> ids = {pieces().new_id()};
  if (request.group) {
    const std::string mine = ids[0];
    status = request.group->exchange(mine, ids);
    if (!status) return nullptr;
  }
  auto memory = provider.allocate({*driver, request.ranks, kPiece, request.group}, status);
  if (!memory) return nullptr;
  const auto piece = std::make_shared<Piece>(ids[0], std::move(memory));
  piece->take(0, bytes);
  pieces().add(key, piece);
  return std::make_unique<Part>(piece, 0, bytes);
}

}  // namespace maco::runtime
