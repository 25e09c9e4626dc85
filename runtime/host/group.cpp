#include "runtime/host/group.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "runtime/host/sockets.h"

namespace maco::runtime {
namespace {

using Clock = SocketClock;

// How much later than rank 0 the others learn of a failure, at most.
constexpr uint64_t kGraceMs = 5000;
// How long the last run's process of this rank may take to end.
constexpr uint64_t kSeatMs = 5000;

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

// Why nothing came from a rank.
std::string lost(int rank, Went went, uint64_t patience_ms) {
  if (went == Went::Stopped) return fmt::format("rank {} says nothing: it has been stopped", rank);
  return went == Went::Late
             ? fmt::format("rank {} has said nothing for {}", rank, seconds_text(patience_ms))
             : fmt::format("rank {} is gone: its process has ended", rank);
}

}  // namespace

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
  all.assign(static_cast<size_t>(place_.size), "");
  // Rank 0 finds out who is late, and tells the others.
  if (place_.rank != 0) return ask(call, mine, file, all, files, patience_ms + kGraceMs);
  return gather(call, mine, file, all, files, patience_ms);
}

Status Group::ask(Call call, const std::string& mine, int file, std::vector<std::string>& all,
                  std::vector<int>* files, uint64_t patience_ms) {
  const auto end = Clock::now() + std::chrono::milliseconds(patience_ms);
  Head head;
  head.call = call;
  std::string body;
  // Rank 0's answer may be there already: that some process is gone.
  static_cast<void>(
      send_message(sockets_[0], head, mine, end, files ? std::vector{file} : std::vector<int>()));
  Went went = await_message(sockets_[0], processes_[0], end);
  if (went == Went::Well) went = receive_message(sockets_[0], head, body, end, files);
  if (went != Went::Well) {
    lost_zero_ = true;
    return fail(lost(0, went, patience_ms));
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

Status Group::gather(Call call, const std::string& mine, int file, std::vector<std::string>& all,
                     std::vector<int>* files, uint64_t patience_ms) {
  const auto end = Clock::now() + std::chrono::milliseconds(patience_ms);
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
    if (went != Went::Well) return fail_all(lost(r, went, patience_ms));
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
    if (went != Went::Well) return fail_all(lost(r, went, patience_ms));
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
