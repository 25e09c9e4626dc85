#include "runtime/cpu/handed.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>

namespace maco::runtime {

namespace {

using ir::CollectiveKind;
using ir::DType;
using ir::ManifestHanded;
using ir::Reduction;
using Bytes = std::vector<std::byte>;

// --- numbers: separate code, since the reference checks these ---

// 8-bit floats by code, without sign: values grow with codes, up to `largest`.
struct Floats8 {
  float values[128];
  int largest;
  Floats8(int mantissa_bits, bool finite) : largest(finite ? 0x7e : 0x7b) {
    const int bias = (1 << (6 - mantissa_bits)) - 1;
    for (int code = 0; code < 128; ++code) {
      const int exponent = code >> mantissa_bits;
      const int fraction = code & ((1 << mantissa_bits) - 1);
      values[code] = exponent == 0
                         ? std::ldexp(static_cast<float>(fraction), 1 - bias - mantissa_bits)
                         : std::ldexp(static_cast<float>(fraction + (1 << mantissa_bits)),
                                      exponent - bias - mantissa_bits);
      if (code > largest)
        values[code] = !finite && fraction == 0 ? std::numeric_limits<float>::infinity()
                                                : std::numeric_limits<float>::quiet_NaN();
    }
  }
  float decode(uint8_t code) const {
    const float v = values[code & 0x7f];
    return code & 0x80 ? -v : v;
  }
  // Rounds to nearest, ties to even codes; too large values saturate.
  uint8_t encode(float value) const {
    const uint8_t sign = std::signbit(value) ? 0x80 : 0;
    if (std::isnan(value)) return sign | 0x7f;
    const float v = std::fabs(value);
    if (v >= values[largest]) return static_cast<uint8_t>(sign | largest);
    const auto above = static_cast<int>(std::upper_bound(values, values + largest + 1, v) - values);
    const int below = above - 1;
    const float down = v - values[below], up = values[above] - v;
    const bool next = up < down || (up == down && (below & 1) != 0);
    return static_cast<uint8_t>(sign | (next ? above : below));
  }
};
const Floats8& e4m3() {
  static const Floats8 floats(3, true);
  return floats;
}
const Floats8& e5m2() {
  static const Floats8 floats(2, false);
  return floats;
}

float decode_f16(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  float v;
  if (exponent == 31)
    v = fraction ? std::numeric_limits<float>::quiet_NaN() : std::numeric_limits<float>::infinity();
  else
    v = exponent ? std::ldexp(static_cast<float>(fraction + 1024), exponent - 25)
                 : std::ldexp(static_cast<float>(fraction), -24);
  return bits & 0x8000 ? -v : v;
}
uint16_t encode_f16(float value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  if (std::isnan(value)) return sign | 0x7e00;
  const float v = std::fabs(value);
  if (v == 0) return sign;
  if (v >= 65520.0f) return sign | 0x7c00;
  int exponent = 0;
  std::frexp(v, &exponent);
  // Units of the last place; a carry runs into the exponent.
  const int unit = std::max(exponent - 11, -24);
  const auto units = static_cast<uint32_t>(std::nearbyint(std::ldexp(v, -unit)));
  const uint32_t base = unit == -24 ? 0 : static_cast<uint32_t>(unit + 24) << 10;
  return static_cast<uint16_t>(sign | (base + units));
}
float decode_bf16(uint16_t bits) {
  const uint32_t word = uint32_t{bits} << 16;
  float v;
  std::memcpy(&v, &word, sizeof v);
  return v;
}
uint16_t encode_bf16(float value) {
  uint32_t word;
  std::memcpy(&word, &value, sizeof word);
  if (std::isnan(value)) return static_cast<uint16_t>(word >> 16 | 0x40);
  return static_cast<uint16_t>((word + 0x7fff + (word >> 16 & 1)) >> 16);
}

template <class T>
T load(const std::byte* from, int64_t i) {
  T v;
  std::memcpy(&v, from + i * static_cast<int64_t>(sizeof v), sizeof v);
  return v;
}
template <class T>
void store(std::byte* to, int64_t i, T v) {
  std::memcpy(to + i * static_cast<int64_t>(sizeof v), &v, sizeof v);
}
float decode(DType type, const std::byte* from, int64_t i) {
  switch (type) {
    case DType::F32: return load<float>(from, i);
    case DType::F16: return decode_f16(load<uint16_t>(from, i));
    case DType::BF16: return decode_bf16(load<uint16_t>(from, i));
    case DType::F8E4M3: return e4m3().decode(load<uint8_t>(from, i));
    default: return e5m2().decode(load<uint8_t>(from, i));
  }
}
void encode(DType type, float v, std::byte* to, int64_t i) {
  switch (type) {
    case DType::F32: return store(to, i, v);
    case DType::F16: return store(to, i, encode_f16(v));
    case DType::BF16: return store(to, i, encode_bf16(v));
    case DType::F8E4M3: return store(to, i, e4m3().encode(v));
    default: return store(to, i, e5m2().encode(v));
  }
}

float combine(Reduction how, float a, float b) {
  if (how == Reduction::Sum || how == Reduction::Avg || std::isnan(a) || std::isnan(b))
    return a + b;
  return how == Reduction::Max ? std::max(a, b) : std::min(a, b);
}
int32_t combine(Reduction how, int32_t a, int32_t b) {
  if (how == Reduction::Max) return std::max(a, b);
  if (how == Reduction::Min) return std::min(a, b);
  return static_cast<int32_t>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
}

// Reduces elements [first, first + n) of all ranks.
void reduce(const ManifestHanded& h, const std::vector<Bytes>& all, int64_t first, int64_t n,
            std::byte* to) {
  const auto ranks = static_cast<float>(all.size());
  for (int64_t i = 0; i < n; ++i) {
    if (ir::is_float(h.dtype)) {
      float sum = decode(h.dtype, all[0].data(), first + i);
      for (size_t r = 1; r < all.size(); ++r)
        sum = combine(h.reduce, sum, decode(h.dtype, all[r].data(), first + i));
      encode(h.dtype, h.reduce == Reduction::Avg ? sum / ranks : sum, to, i);
      continue;
    }
    const auto value = [&](size_t r) -> int32_t {
      return h.dtype == DType::I32 ? load<int32_t>(all[r].data(), first + i)
                                   : load<uint8_t>(all[r].data(), first + i);
    };
    int32_t sum = value(0);
    for (size_t r = 1; r < all.size(); ++r) sum = combine(h.reduce, sum, value(r));
    if (h.reduce == Reduction::Avg) sum /= static_cast<int32_t>(all.size());
    if (h.dtype == DType::I32)
      store(to, i, sum);
    else
      store(to, i, static_cast<uint8_t>(sum));
  }
}

// Computes what each rank gets from what all have handed over.
void carry_out(const ManifestHanded& h, const std::vector<Bytes>& x, int64_t block,
               std::vector<Bytes>& y) {
  const auto world = x.size();
  const size_t bytes = static_cast<size_t>(block * ir::size_of(h.dtype));
  const auto copy = [&](size_t to, size_t at, size_t from, size_t of) {
    if (bytes > 0) std::memcpy(y[to].data() + at * bytes, x[from].data() + of * bytes, bytes);
  };
  for (size_t r = 0; r < world; ++r) {
    y[r].resize(bytes * (h.y_blocks() ? world : 1));
    if (h.kind == CollectiveKind::AllReduce) {
      if (r == 0) reduce(h, x, 0, block, y[0].data());
      if (r > 0) y[r] = y[0];
    } else if (h.kind == CollectiveKind::ReduceScatter) {
      reduce(h, x, static_cast<int64_t>(r) * block, block, y[r].data());
    } else if (h.kind == CollectiveKind::Broadcast) {
      copy(r, 0, static_cast<size_t>(h.peer), 0);
    } else if (h.kind == CollectiveKind::RingShift) {
      copy(r, 0, (r + world - static_cast<size_t>(h.peer)) % world, 0);
    } else {
      for (size_t from = 0; from < world; ++from)
        copy(r, from, from, h.kind == CollectiveKind::AllToAll ? r : 0);
    }
  }
}

// --- sockets ---

// Moves as many bytes as possible at once; returns true when all have moved. A broken socket moves
// nothing: the kernel's own time-out ends the launch.
bool send_some(int socket, const std::byte* data, size_t size, size_t& at, bool& moved) {
  while (at < size) {
    const ssize_t n = ::send(socket, data + at, size - at, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += static_cast<size_t>(n);
    moved = true;
  }
  return true;
}
bool receive_some(int socket, std::byte* data, size_t size, size_t& at, bool& moved) {
  while (at < size) {
    const ssize_t n = ::recv(socket, data + at, size - at, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += static_cast<size_t>(n);
    moved = true;
  }
  return true;
}

int64_t block_elements(const ManifestHanded& h, const Launch& launch) {
  const int64_t rows = h.value < 0 ? h.rows : int64_t{launch.values[static_cast<size_t>(h.value)]};
  return std::clamp<int64_t>(rows, 0, h.rows) * h.cols;
}
size_t bytes_of(const ManifestHanded& h, int64_t block, bool blocks, size_t world) {
  return static_cast<size_t>(block * ir::size_of(h.dtype)) * (blocks ? world : 1);
}

// Each message begins with the collective's number; messages of a rank that is out of step are
// ignored.
constexpr size_t kHead = sizeof(int64_t);

}  // namespace

// A rank's stream of the library: it carries out collectives one after the other.
class HandedOver::Rank {
 public:
  Rank(const ir::Manifest& m, const HandingRank& who, int socket)
      : m_(m), who_(who), socket_(socket) {}
  void begin() { next_ = 0, phase_ = Phase::Waits; }

  bool step(const std::function<void(const void*)>& changed) {
    bool moved = false;
    while (next_ < m_.handed.size() && advance(changed, moved)) moved = true;
    return moved;
  }

 private:
  enum class Phase : uint8_t { Waits, Sends, Receives };

  char* place(int64_t tensor, int64_t offset) const {
    char* base = tensor < 0 ? who_.launch->arena
                            : static_cast<char*>(who_.launch->tensors[static_cast<size_t>(tensor)]);
    return base + (tensor < 0 ? offset : 0);
  }

  // Goes to the next phase, if possible.
  bool advance(const std::function<void(const void*)>& changed, bool& moved) {
    const ManifestHanded& h = m_.handed[next_];
    Handed& words = who_.launch->handed[h.number];
    const auto world = static_cast<size_t>(m_.world);
    const int64_t block = block_elements(h, *who_.launch);
    switch (phase_) {
      case Phase::Waits: {
        std::atomic_ref<u32> ready(words.ready);
        if (ready.load(std::memory_order_acquire) == 0) return false;
        ready.store(0, std::memory_order_relaxed);
        const size_t bytes = bytes_of(h, block, h.x_blocks(), world);
        message_.resize(kHead + bytes);
        store(message_.data(), 0, h.number);
        if (bytes > 0) std::memcpy(message_.data() + kHead, place(h.x, h.x_offset), bytes);
        at_ = 0;
        phase_ = Phase::Sends;
        return true;
      }
      case Phase::Sends:
        if (!send_some(socket_, message_.data(), message_.size(), at_, moved)) return false;
        message_.resize(kHead + bytes_of(h, block, h.y_blocks(), world));
        at_ = 0;
        phase_ = Phase::Receives;
        return true;
      case Phase::Receives:
        if (!receive_some(socket_, message_.data(), message_.size(), at_, moved) ||
            load<int64_t>(message_.data(), 0) != h.number)
          return false;
        if (message_.size() > kHead)
          std::memcpy(place(h.y, h.y_offset), message_.data() + kHead, message_.size() - kHead);
        std::atomic_ref<u32>(words.done).store(1, std::memory_order_release);
        changed(&words.done);
        ++next_;
        phase_ = Phase::Waits;
        return true;
    }
    return false;
  }

  const ir::Manifest& m_;
  const HandingRank who_;
  const int socket_;
  size_t next_ = 0;
  Phase phase_ = Phase::Waits;
  Bytes message_;
  size_t at_ = 0;
};

// Rank 0's work for all ranks: gathers, computes, sends.
class HandedOver::Root {
 public:
  Root(const ir::Manifest& m, const Launch& launch, const std::vector<int>& sockets)
      : m_(m),
        launch_(launch),
        sockets_(sockets),
        in_(sockets.size()),
        out_(sockets.size()),
        at_(sockets.size()) {}
  void begin() {
    next_ = 0;
    sends_ = false;
    prepare();
  }
  bool ended() const { return next_ == m_.handed.size(); }

  bool step() {
    bool moved = false;
    while (!ended() && advance(moved)) moved = true;
    return moved;
  }

 private:
  int64_t block() const { return block_elements(m_.handed[next_], launch_); }
  void prepare() {
    if (ended()) return;
    const ManifestHanded& h = m_.handed[next_];
    for (Bytes& message : in_)
      message.resize(kHead + bytes_of(h, block(), h.x_blocks(), sockets_.size()));
    std::fill(at_.begin(), at_.end(), size_t{0});
  }
  bool advance(bool& moved) {
    const ManifestHanded& h = m_.handed[next_];
    bool all = true;
    for (size_t r = 0; r < sockets_.size(); ++r) {
      Bytes& message = sends_ ? out_[r] : in_[r];
      const bool whole =
          sends_ ? send_some(sockets_[r], message.data(), message.size(), at_[r], moved)
                 : receive_some(sockets_[r], message.data(), message.size(), at_[r], moved) &&
                       load<int64_t>(message.data(), 0) == h.number;
      all = all && whole;
    }
    if (!all) return false;
    if (sends_) {
      ++next_;
      sends_ = false;
      prepare();
      return true;
    }
    std::vector<Bytes> x, y(in_.size());
    for (const Bytes& message : in_) x.emplace_back(message.begin() + kHead, message.end());
    carry_out(h, x, block(), y);
    for (size_t r = 0; r < y.size(); ++r) {
      out_[r].resize(kHead);
      store(out_[r].data(), 0, h.number);
      out_[r].insert(out_[r].end(), y[r].begin(), y[r].end());
      at_[r] = 0;
    }
    sends_ = true;
    return true;
  }

  const ir::Manifest& m_;
  const Launch& launch_;
  const std::vector<int>& sockets_;
  size_t next_ = 0;
  bool sends_ = false;
  std::vector<Bytes> in_, out_;  // by rank
  std::vector<size_t> at_;
};

HandedOver::HandedOver(const ir::Manifest& manifest, std::vector<HandingRank> ranks, Group* group)
    : manifest_(manifest), here_(std::move(ranks)), group_(group) {}
HandedOver::~HandedOver() { close_all(); }

void HandedOver::close_all() {
  ranks_.clear();
  root_.reset();
  for (std::vector<int>* sockets : {&up_, &down_}) {
    for (int& socket : *sockets)
      if (socket >= 0) ::close(std::exchange(socket, -1));
    sockets->clear();
  }
}

Status HandedOver::reset() {
  close_all();
  for (const HandingRank& rank : here_)
    std::memset(rank.launch->handed, 0, manifest_.handed.size() * sizeof(Handed));
  if (Status s = connect(); !s) return s;
  for (const HandingRank& rank : here_) {
    ranks_.push_back(std::make_unique<Rank>(manifest_, rank, up_[static_cast<size_t>(rank.rank)]));
    if (rank.rank == 0) root_ = std::make_unique<Root>(manifest_, *rank.launch, down_);
  }
  return {};
}

// In one process both ends are made at once. With several processes rank 0 listens under an
// abstract name, which isn't a file's.
Status HandedOver::connect() {
  const auto world = static_cast<size_t>(manifest_.world);
  up_.assign(world, -1);
  const auto failed = [] {
    return Status::failure(fmt::format("the ranks can't be connected for what is handed over: {}",
                                       std::strerror(errno)));
  };
  if (here_.front().rank == 0) down_.assign(world, -1);
  if (!group_) {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
      limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, std::max<rlim_t>(limit.rlim_cur, 4096));
      ::setrlimit(RLIMIT_NOFILE, &limit);
    }
    for (size_t r = 0; r < world; ++r) {
      int ends[2];
      if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return failed();
      up_[r] = ends[0], down_[r] = ends[1];
    }
    return {};
  }
  std::vector<std::string> all;
  std::string mine;
  int listener = -1;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  socklen_t length = sizeof(sa_family_t);
  Status status;
  if (group_->rank() == 0) {
    // Without a path the system chooses an abstract name.
    listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || ::bind(listener, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
        ::listen(listener, static_cast<int>(world)) != 0)
      status = failed();
    length = sizeof address;
    if (status && ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) == 0)
      mine.assign(reinterpret_cast<const char*>(&address), length);
  }
  if (Status s = group_->exchange(mine, all); !s) status = s;
  if (status && all[0].empty()) status = Status::failure("rank 0 can't be connected with");
  const auto own = static_cast<size_t>(group_->rank());
  if (status) {
    std::memcpy(&address, all[0].data(), std::min(all[0].size(), sizeof address));
    const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const auto number = static_cast<int32_t>(own);
    if (socket < 0 ||
        ::connect(socket, reinterpret_cast<sockaddr*>(&address),
                  static_cast<socklen_t>(all[0].size())) != 0 ||
        ::send(socket, &number, sizeof number, MSG_NOSIGNAL) != sizeof number)
      status = failed();
    up_[own] = socket;
  }
  // Either all have connected, or none goes on.
  std::vector<std::string> said;
  if (Status s = group_->exchange(status.message, said); !s && status) status = s;
  for (const std::string& one : said)
    if (status && !one.empty()) status = Status::failure(one);
  if (status && group_->rank() == 0)
    for (size_t i = 0; i < world && status; ++i) {
      const int socket = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
      int32_t number = -1;
      if (socket < 0 || ::recv(socket, &number, sizeof number, MSG_WAITALL) != sizeof number ||
          number < 0 || static_cast<size_t>(number) >= world)
        status = failed();
      if (status) down_[static_cast<size_t>(number)] = socket;
    }
  if (listener >= 0) ::close(listener);
  return status;
}

void HandedOver::begin() {
  for (auto& rank : ranks_) rank->begin();
  if (root_) root_->begin();
}

bool HandedOver::step(const std::function<void(const void*)>& changed) {
  bool moved = false;
  for (auto& rank : ranks_) moved = rank->step(changed) || moved;
  return (root_ && root_->step()) || moved;
}

void HandedOver::finish(uint64_t timeout_ms) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  while (root_ && !root_->ended() && std::chrono::steady_clock::now() < end)
    if (!root_->step()) std::this_thread::sleep_for(std::chrono::microseconds(50));
}

}  // namespace maco::runtime
