#include "runtime/host/group.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <thread>

#include "runtime/host/sha256.h"

namespace maco::runtime {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kMagic = 0x4d41434f;  // "MACO"
constexpr uint32_t kMostBytes = 64u << 20;
constexpr int kMostRanks = 64;
// How much later than rank 0 the others learn of a failure, at most.
constexpr uint64_t kGraceMs = 5000;
// How long the last run's process of this rank may take to end.
constexpr uint64_t kSeatMs = 5000;

struct Head {
  uint32_t magic = kMagic;
  uint32_t failure = 0;  // 1: the body says why nothing goes on
  uint32_t bytes = 0;
  uint32_t files = 0;  // how many follow the body
  Group::Call call = Group::Call::Exchange;
  int32_t rank = 0;  // in a hello: the sender's rank, and of how many
  int32_t size = 0;
};

int milliseconds_to(Clock::time_point end) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count() + 1, 0, 1 << 30));
}

bool wait_for(int socket, short what, Clock::time_point end) {
  while (true) {
    pollfd one{socket, what, 0};
    const int left = milliseconds_to(end);
    const int ready = ::poll(&one, 1, left);
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
    if (ready == 0 && left == 0) return false;
    if (ready == 0 && Clock::now() >= end) return false;
  }
}

// Waits until one of two sockets has something to read, or the time is over.
bool wait_for_either(int one, int other, Clock::time_point end) {
  while (true) {
    pollfd both[] = {{one, POLLIN, 0}, {other, POLLIN, 0}};
    const int left = milliseconds_to(end);
    const int ready = ::poll(both, 2, left);
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
    if (ready == 0 && (left == 0 || Clock::now() >= end)) return false;
  }
}

enum class Went : uint8_t { Well, Gone, Late, Stopped };

Went send_all(int socket, const void* data, size_t bytes, Clock::time_point end) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t sent = ::send(socket, at, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      at += sent;
      bytes -= static_cast<size_t>(sent);
    } else if (errno == EAGAIN || errno == EINTR) {
      if (!wait_for(socket, POLLOUT, end)) return Went::Late;
    } else {
      return Went::Gone;
    }
  }
  return Went::Well;
}
Went receive_all(int socket, void* data, size_t bytes, Clock::time_point end) {
  char* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t got = ::recv(socket, at, bytes, MSG_DONTWAIT);
    if (got > 0) {
      at += got;
      bytes -= static_cast<size_t>(got);
    } else if (got == 0) {
      return Went::Gone;
    } else if (errno == EAGAIN || errno == EINTR) {
      if (!wait_for(socket, POLLIN, end)) return Went::Late;
    } else {
      return Went::Gone;
    }
  }
  return Went::Well;
}

void close_all(std::vector<int>& files) {
  for (const int file : files)
    if (file >= 0) ::close(file);
  files.clear();
}

// A socket on this host, closed at the end. It doesn't block.
struct Socket {
  Socket() : file(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {}
  explicit Socket(int socket) : file(socket) {}
  ~Socket() {
    if (file >= 0) ::close(file);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  const int file;
};

// A byte, and the open files that travel with it.
struct ByteWithFiles {
  explicit ByteWithFiles(size_t control_bytes) {
    message.msg_iov = &one;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = control_bytes;
  }
  ByteWithFiles(const ByteWithFiles&) = delete;
  ByteWithFiles& operator=(const ByteWithFiles&) = delete;
  static constexpr size_t kMost = CMSG_SPACE(sizeof(int) * kMostRanks);
  alignas(cmsghdr) char control[kMost] = {};
  char byte = 0;
  iovec one{&byte, 1};
  msghdr message{};
};

Went send_files(int socket, const std::vector<int>& files, Clock::time_point end) {
  if (files.empty()) return Went::Well;
  ByteWithFiles sent(CMSG_SPACE(sizeof(int) * files.size()));
  msghdr& message = sent.message;
  cmsghdr* rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int) * files.size());
  std::memcpy(CMSG_DATA(rights), files.data(), sizeof(int) * files.size());
  while (::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) != 1) {
    if (errno != EAGAIN && errno != EINTR) return Went::Gone;
    if (!wait_for(socket, POLLOUT, end)) return Went::Late;
  }
  return Went::Well;
}

// Receives as many files as the message announced.
Went receive_files(int socket, size_t count, std::vector<int>& files, Clock::time_point end) {
  ByteWithFiles received(ByteWithFiles::kMost);
  msghdr& message = received.message;
  ssize_t got = 0;
  while ((got = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC)) != 1) {
    if (got == 0 || (errno != EAGAIN && errno != EINTR)) return Went::Gone;
    if (!wait_for(socket, POLLIN, end)) return Went::Late;
  }
  const size_t known = files.size();
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const size_t here = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int), before = files.size();
    files.resize(before + here);
    std::memcpy(files.data() + before, CMSG_DATA(c), here * sizeof(int));
  }
  // Fewer arrived: this process has too many open files.
  return files.size() <= known + count ? Went::Well : Went::Gone;
}

Went send_message(int socket, Head head, const std::string& body, Clock::time_point end,
                  const std::vector<int>& files = {}) {
  head.bytes = static_cast<uint32_t>(body.size());
  head.files = static_cast<uint32_t>(files.size());
  Went went = send_all(socket, &head, sizeof head, end);
  if (went == Went::Well) went = send_all(socket, body.data(), body.size(), end);
  return went == Went::Well ? send_files(socket, files, end) : went;
}
Went receive_message(int socket, Head& head, std::string& body, Clock::time_point end,
                     std::vector<int>* files = nullptr) {
  Went went = receive_all(socket, &head, sizeof head, end);
  if (went != Went::Well) return went;
  if (head.magic != kMagic || head.bytes > kMostBytes || head.files > size_t{kMostRanks})
    return Went::Gone;
  body.resize(head.bytes);
  went = receive_all(socket, body.data(), body.size(), end);
  if (went != Went::Well || head.files == 0) return went;
  std::vector<int> unexpected;
  went = receive_files(socket, head.files, files ? *files : unexpected, end);
  close_all(unexpected);
  return went;
}

// In the abstract namespace: no file can be left behind.
sockaddr_un address_of(const std::string& name, socklen_t& length) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  Sha256 hash;
  hash.add_field(name);
  const std::string full = "maco." + hash.hex();
  const size_t bytes = std::min(full.size(), sizeof(address.sun_path) - 1);
  std::memcpy(address.sun_path + 1, full.data(), bytes);
  length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + bytes);
  return address;
}

// The process at the other end, if it belongs to the same user; else 0.
pid_t owner_of(int socket) {
  ucred other{};
  socklen_t length = sizeof other;
  const bool ours = ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &other, &length) == 0 &&
                    other.uid == ::geteuid();
  return ours ? other.pid : 0;
}
// Whether a signal or a debugger has stopped the process.
bool is_stopped(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::string text;
  std::getline(file, text);
  const size_t name_end = text.rfind(')');
  return name_end != std::string::npos && name_end + 2 < text.size() &&
         (text[name_end + 2] == 'T' || text[name_end + 2] == 't');
}

// Waits for a message from the process; not for long if the process has been stopped.
Went await_message(int socket, pid_t process, Clock::time_point end) {
  constexpr std::chrono::milliseconds kLook{500};
  constexpr std::chrono::seconds kLongest{8};
  Clock::time_point running = Clock::now();
  while (!wait_for(socket, POLLIN, std::min(end, Clock::now() + kLook))) {
    const auto now = Clock::now();
    if (now >= end) return Went::Late;
    if (!is_stopped(process))
      running = now;
    else if (now - running > kLongest)
      return Went::Stopped;
  }
  return Went::Well;
}

// `first` and `second`: process ids, 0 if unknown.
std::string two_of(int rank, pid_t first, pid_t second) {
  const std::string pids =
      first == 0 || second == 0 ? "" : fmt::format(" (processes {} and {})", first, second);
  return fmt::format(
      "two processes say that they are rank {}{}: each wants a RANK of its own, and each group "
      "MASTER_ADDR and MASTER_PORT of its own",
      rank, pids);
}

std::string seconds_text(uint64_t timeout_ms) {
  return timeout_ms % 1000 == 0 ? fmt::format("{} s", timeout_ms / 1000)
                                : fmt::format("{} ms", timeout_ms);
}

// Variables that mpirun, torchrun and the like set for the processes that they start.
struct Launcher {
  const char *rank, *size, *local_rank, *local_size;
};
constexpr Launcher kLaunchers[] = {{"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
                                   {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                    "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
                                   {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"}};
constexpr const char* kNames[] = {"MACO_GROUP",          "MASTER_ADDR",    "MASTER_PORT",
                                  "TORCHELASTIC_RUN_ID", "PMIX_NAMESPACE", "PMI_JOBID",
                                  "SLURM_JOB_ID"};
constexpr const char* kAlone =
    "(with --peer-memory threads one process runs all ranks, whatever the environment says)";

std::optional<std::string> value_of(const char* variable) {
  const char* text = std::getenv(variable);
  return text ? std::optional<std::string>(text) : std::nullopt;
}

// The value of a variable that must be a whole number from 0 on; nothing if it isn't set.
std::optional<int> number_of(const char* variable, Status& status) {
  const auto text = value_of(variable);
  if (!text) return std::nullopt;
  int value = 0;
  const char* end = text->data() + text->size();
  const auto [used, error] = std::from_chars(text->data(), end, value);
  if (error == std::errc() && used == end && value >= 0) return value;
  if (status)
    status = Status::failure(fmt::format(
        "{} is '{}', which is no whole number from 0 to 2147483647 {}", variable, *text, kAlone));
  return std::nullopt;
}

// This process's place according to a launcher; nothing, without a failure, if the launcher set
// neither variable.
std::optional<GroupPlace> place_of(const Launcher& l, Status& status) {
  const auto rank = number_of(l.rank, status), size = number_of(l.size, status),
             local_rank = number_of(l.local_rank, status),
             local_size = number_of(l.local_size, status);
  if (!status || (!rank && !size && !local_rank && !local_size)) return std::nullopt;
  const auto fail = [&](const std::string& why) {
    status = Status::failure(why);
    return std::nullopt;
  };
  if (!rank || !size) {
    const char* set = rank ? l.rank : size ? l.size : local_rank ? l.local_rank : l.local_size;
    const std::string missing = rank   ? fmt::format("{} is", l.size)
                                : size ? fmt::format("{} is", l.rank)
                                       : fmt::format("{} and {} are", l.rank, l.size);
    return fail(fmt::format("{} is '{}', but {} not set: a process of a group needs both {}", set,
                            value_of(set).value_or(""), missing, kAlone));
  }
  const std::string both = fmt::format("{} is '{}' and {} is '{}'", l.rank, *rank, l.size, *size);
  if (*size < 1 || *rank >= *size) return fail(both + ": that is no rank of a group");
  if (*size > kMostRanks)
    return fail(
        fmt::format("{} is '{}', but a group has at most {} ranks", l.size, *size, kMostRanks));
  if (local_size && *local_size != *size)
    return fail(
        fmt::format("{} is {} and {} is {}: ranks on several hosts can't map each other's "
                    "memory",
                    l.size, *size, l.local_size, *local_size));
  if (local_rank && *local_rank >= *size)
    return fail(fmt::format("{} is {}, but {} is {}", l.local_rank, *local_rank, l.size, *size));
  return GroupPlace{*rank, *size, ""};
}

}  // namespace

std::vector<std::string> group_variables() {
  std::vector<std::string> all;
  for (const Launcher& l : kLaunchers)
    all.insert(all.end(), {l.rank, l.size, l.local_rank, l.local_size});
  all.insert(all.end(), std::begin(kNames), std::end(kNames));
  return all;
}

std::optional<GroupPlace> group_from_environment(Status& status) {
  std::optional<GroupPlace> place;
  Status first;
  // One launcher may have started another: the first that sets all variables counts.
  for (const Launcher& l : kLaunchers) {
    Status wrong;
    place = place_of(l, wrong);
    if (place) break;
    if (first) first = wrong;
  }
  if (!place) {
    status = first;
    return std::nullopt;
  }
  if (place->size == 1) return std::nullopt;
  const bool address = value_of("MASTER_ADDR").has_value(),
             port = value_of("MASTER_PORT").has_value();
  if (address != port && !value_of("MACO_GROUP")) {
    status = Status::failure(fmt::format(
        "{} is set, but {} is not: a group's name is made of both {}",
        address ? "MASTER_ADDR" : "MASTER_PORT", address ? "MASTER_PORT" : "MASTER_ADDR", kAlone));
    return std::nullopt;
  }
  for (const char* part : kNames) place->name += value_of(part).value_or("") + ".";
  return place;
}

std::unique_ptr<Group> Group::join(const GroupPlace& place, const Settings& told,
                                   uint64_t timeout_ms, Status& status) {
  std::unique_ptr<Group> group(new Group(place));
  status = group->take_seat(timeout_ms);
  if (status)
    status = place.rank == 0 ? group->listen(told, timeout_ms) : group->connect(told, timeout_ms);
  return status ? std::move(group) : nullptr;
}

Group::~Group() {
  if (seat_ >= 0) ::close(seat_);
  for (const int socket : sockets_)
    if (socket >= 0) ::close(socket);
}

Status Group::fail(std::string why) {
  if (broken_.empty()) broken_ = std::move(why);
  return Status::failure(broken_);
}
Status Group::fail_all(std::string why) {
  Head head;
  head.failure = 1;
  for (const int socket : sockets_)
    if (socket >= 0)
      static_cast<void>(send_message(socket, head, why, Clock::now() + std::chrono::seconds(1)));
  return fail(std::move(why));
}

Status Group::take_seat(uint64_t timeout_ms) {
  socklen_t length = 0;
  const sockaddr_un address =
      address_of(fmt::format("{} rank {}", place_.name, place_.rank), length);
  seat_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (seat_ < 0) return fail(fmt::format("no socket: {}", std::strerror(errno)));
  // The process that has the seat answers a knock while its group meets. Later it doesn't answer,
  // and may be the end of an earlier run with the same name.
  const auto end = Clock::now() + std::chrono::milliseconds(std::min(timeout_ms, kSeatMs));
  pid_t owner = 0;
  while (true) {
    if (::bind(seat_, reinterpret_cast<const sockaddr*>(&address), length) == 0 &&
        ::listen(seat_, kMostRanks) == 0)
      return {};
    if (errno != EADDRINUSE)
      return fail(
          fmt::format("rank {} can't meet the others: {}", place_.rank, std::strerror(errno)));
    if (Clock::now() >= end) break;
    const Socket knock;
    if (::connect(knock.file, reinterpret_cast<const sockaddr*>(&address), length) != 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));  // it doesn't listen, or has ended
      continue;
    }
    owner = owner_of(knock.file);
    if (owner == 0)
      return fail(
          fmt::format("rank {} can't meet the others: a process of another user's has the name of "
                      "its group",
                      place_.rank));
    char answer = 0;
    if (receive_all(knock.file, &answer, 1, end) == Went::Well) break;
  }
  const std::string why = two_of(place_.rank, owner, ::getpid());
  Socket door;
  const sockaddr_un meeting = address_of(place_.name, length);
  if (::connect(door.file, reinterpret_cast<const sockaddr*>(&meeting), length) == 0) {
    Head head;
    head.failure = 1;
    static_cast<void>(send_message(door.file, head, why, Clock::now() + std::chrono::seconds(1)));
  }
  return fail(why);
}

Status Group::check_seat() const {
  pollfd knock{seat_, POLLIN, 0};
  if (::poll(&knock, 1, 0) <= 0) return {};
  const Socket other(::accept4(seat_, nullptr, nullptr, SOCK_CLOEXEC));
  const pid_t process = owner_of(other.file);
  if (process == 0) return {};  // another user's process
  const char answer = 1;
  static_cast<void>(send_all(other.file, &answer, 1, Clock::now()));
  return Status::failure(two_of(place_.rank, ::getpid(), process));
}

Status Group::listen(const Settings& told, uint64_t timeout_ms) {
  const auto end = Clock::now() + std::chrono::milliseconds(timeout_ms);
  sockets_.assign(static_cast<size_t>(place_.size), -1);
  processes_.assign(static_cast<size_t>(place_.size), 0);
  socklen_t length = 0;
  const sockaddr_un address = address_of(place_.name, length);
  const Socket door(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (door.file < 0 ||
      ::bind(door.file, reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      ::listen(door.file, kMostRanks) != 0)
    return fail(
        fmt::format("rank 0 can't listen for the others ({}): is another group of this "
                    "name running?",
                    std::strerror(errno)));
  std::vector<Settings> all(static_cast<size_t>(place_.size));
  all[0] = told;
  std::string wrong;
  // After an error, processes that come a little later are told as well.
  auto until = end;
  const auto found_wrong = [&](const std::string& why) {
    if (!wrong.empty()) return;
    wrong = why;
    until = std::min(end, Clock::now() + std::chrono::seconds(1));
  };
  int here = 1;
  while (here < place_.size && wait_for_either(door.file, seat_, until)) {
    if (const Status alone = check_seat(); !alone) found_wrong(alone.message);
    const int socket = ::accept4(door.file, nullptr, nullptr, SOCK_CLOEXEC);
    if (socket < 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      continue;
    }
    Head hello;
    std::string body;
    const pid_t process = owner_of(socket);
    if (process == 0 || receive_message(socket, hello, body, end) != Went::Well) {
      ::close(socket);
      continue;
    }
    if (hello.failure)
      found_wrong(body);
    else if (hello.size != place_.size)
      found_wrong(fmt::format("rank {} is one of {} processes, rank 0 of {}", hello.rank,
                              hello.size, place_.size));
    const auto at = static_cast<size_t>(hello.rank);
    if (hello.rank < 1 || hello.rank >= place_.size || sockets_[at] >= 0) {
      // It has no place here, and doesn't come again.
      Head head;
      head.failure = 1;
      if (!wrong.empty()) static_cast<void>(send_message(socket, head, wrong, end));
      ::close(socket);
      continue;
    }
    sockets_[at] = socket;
    processes_[at] = process;
    ++here;
    if (hello.failure) continue;
    if (auto settings = unpack(body))
      all[at] = std::move(*settings);
    else
      found_wrong(fmt::format("rank {} is run by another version of MACO than rank 0", hello.rank));
  }
  std::vector<int> missing;
  for (int r = 1; r < place_.size; ++r)
    if (sockets_[static_cast<size_t>(r)] < 0) missing.push_back(r);
  if (wrong.empty() && !missing.empty())
    wrong = fmt::format("{} did not come within {}", ranks_text(missing), seconds_text(timeout_ms));
  if (wrong.empty())
    if (const std::string other = differences(all); !other.empty())
      wrong = "the ranks were told different things: " + other;
  if (!wrong.empty()) return fail_all(wrong);
  return meet();
}

Status Group::connect(const Settings& told, uint64_t timeout_ms) {
  const auto end = Clock::now() + std::chrono::milliseconds(timeout_ms);
  socklen_t length = 0;
  const sockaddr_un address = address_of(place_.name, length);
  int socket = -1;
  Status alone;
  while (true) {
    alone = check_seat();
    socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (socket < 0) return fail(fmt::format("no socket: {}", std::strerror(errno)));
    if (::connect(socket, reinterpret_cast<const sockaddr*>(&address), length) == 0 &&
        owner_of(socket) != 0)
      break;
    ::close(socket);
    if (!alone) return fail(alone.message);
    if (Clock::now() >= end)
      return fail(fmt::format("rank 0 did not come within {}", seconds_text(timeout_ms)));
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  sockets_ = {socket};
  processes_ = {owner_of(socket)};
  Head hello;
  hello.rank = place_.rank;
  hello.size = place_.size;
  hello.failure = alone ? 0 : 1;
  if (send_message(socket, hello, alone ? pack(told) : alone.message, end) != Went::Well) {
    lost_zero_ = true;
    return fail("rank 0 is gone");
  }
  if (!alone) return fail(alone.message);
  // Rank 0 may wait as long for others.
  std::vector<std::string> all;
  return exchange("", all, timeout_ms * 2 + kGraceMs);
}

Status Group::meet() {
  std::vector<std::string> all;
  return exchange("", all);
}

Status Group::agree(const Status& mine) {
  std::vector<std::string> all, said;
  // A failure begins with a character that nothing else begins with.
  MACO_TRY(exchange(mine.ok ? "" : "!" + mine.message, all, kPatienceMs, Call::Agree));
  const auto failed = static_cast<size_t>(
      std::count_if(all.begin(), all.end(), [](const std::string& s) { return !s.empty(); }));
  for (size_t r = 0; r < all.size(); ++r) {
    if (all[r].empty()) continue;
    std::string line = all[r].substr(1);
    const bool common = failed == all.size() && all[r] == all[0];
    if (!common && line.rfind("rank ", 0) != 0) line = fmt::format("rank {}: {}", r, line);
    if (std::find(said.begin(), said.end(), line) == said.end()) said.push_back(std::move(line));
  }
  return failed == 0 ? Status{} : Status::failure(fmt::format("{}", fmt::join(said, "\n")));
}

Status Group::exchange(const std::string& mine, std::vector<std::string>& all, uint64_t patience_ms,
                       Call call) {
  return exchange(call, mine, -1, all, nullptr, patience_ms);
}

Status Group::exchange_files(int mine, std::vector<int>& all) {
  std::vector<std::string> none;
  all.clear();
  Status status = exchange(Call::Files, "", mine, none, &all, kPatienceMs);
  if (!status) close_all(all);
  return status;
}

Status Group::exchange(Call call, const std::string& mine, int file, std::vector<std::string>& all,
                       std::vector<int>* files, uint64_t patience_ms) {
  if (!broken_.empty()) return Status::failure(broken_);
  // Rank 0 finds out who is late, and tells the others.
  if (place_.rank != 0) patience_ms += kGraceMs;
  const auto end = Clock::now() + std::chrono::milliseconds(patience_ms);
  const auto lost = [&](int rank, Went went) {
    if (went == Went::Stopped)
      return fmt::format("rank {} says nothing: it has been stopped", rank);
    return went == Went::Late
               ? fmt::format("rank {} has said nothing for {}", rank, seconds_text(patience_ms))
               : fmt::format("rank {} is gone: its process has ended", rank);
  };
  all.assign(static_cast<size_t>(place_.size), "");
  if (place_.rank != 0) {
    Head head;
    head.call = call;
    std::string body;
    Went went = Went::Well;
    // Rank 0's answer may be there already: that some process is gone.
    static_cast<void>(
        send_message(sockets_[0], head, mine, end, files ? std::vector{file} : std::vector<int>()));
    went = await_message(sockets_[0], processes_[0], end);
    if (went == Went::Well) went = receive_message(sockets_[0], head, body, end, files);
    if (went != Went::Well) {
      lost_zero_ = true;
      return fail(lost(0, went));
    }
    if (head.failure) return fail(body);
    size_t at = 0;
    for (std::string& one : all) {
      uint32_t bytes = 0;
      if (body.size() - at < sizeof bytes) return fail("rank 0 sent half a message");
      std::memcpy(&bytes, body.data() + at, sizeof bytes);
      at += sizeof bytes;
      if (body.size() - at < bytes) return fail("rank 0 sent half a message");
      one = body.substr(at, bytes);
      at += bytes;
    }
    if (files && files->size() != all.size())
      return fail(
          "the file descriptors of rank 0 didn't arrive: this process may have too many files "
          "open");
    return {};
  }
  all[0] = mine;
  if (files) files->push_back(::fcntl(file, F_DUPFD_CLOEXEC, 0));
  for (int r = 1; r < place_.size; ++r) {
    Head head;
    // Other processes that end meanwhile are found in turn.
    const auto at = static_cast<size_t>(r);
    Went went = await_message(sockets_[at], processes_[at], end);
    if (went == Went::Well) went = receive_message(sockets_[at], head, all[at], end, files);
    if (went == Went::Well && head.call != call)
      return fail_all(fmt::format(
          "rank {} makes another call than rank 0: all processes make a session's calls in one "
          "order",
          r));
    if (went == Went::Well && files && files->size() != at + 1)
      return fail_all(fmt::format("rank {} sent no file", r));
    if (went != Went::Well) return fail_all(lost(r, went));
  }
  std::string body;
  for (const std::string& one : all) {
    const auto bytes = static_cast<uint32_t>(one.size());
    body.append(reinterpret_cast<const char*>(&bytes), sizeof bytes);
    body += one;
  }
  for (int r = 1; r < place_.size; ++r) {
    const Went went = send_message(sockets_[static_cast<size_t>(r)], {}, body, end,
                                   files ? *files : std::vector<int>());
    if (went != Went::Well) return fail_all(lost(r, went));
  }
  return {};
}

int Group::gone(int wait_ms, int wake) const {
  std::vector<pollfd> all;
  for (const int socket : sockets_) all.push_back({socket, POLLRDHUP, 0});
  all.push_back({wake, POLLIN, 0});
  if (::poll(all.data(), all.size(), wait_ms) <= 0) return -1;
  for (size_t i = 0; i < sockets_.size(); ++i)
    if (all[i].fd >= 0 && (all[i].revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0)
      return place_.rank == 0 ? static_cast<int>(i) : 0;
  return -1;
}

}  // namespace maco::runtime
