#include "runtime/host/sockets.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>

#include "runtime/host/sha256.h"

namespace maco::runtime {
namespace {

using Clock = SocketClock;

constexpr uint32_t kMostBytes = 64u << 20;

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
  static constexpr size_t kMost = CMSG_SPACE(sizeof(int) * Group::kMostRanks);
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

// Whether a signal or a debugger has stopped the process.
bool is_stopped(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::string text;
  std::getline(file, text);
  const size_t name_end = text.rfind(')');
  return name_end != std::string::npos && name_end + 2 < text.size() &&
         (text[name_end + 2] == 'T' || text[name_end + 2] == 't');
}

}  // namespace

Socket::Socket() : file(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {}
Socket::~Socket() {
  if (file >= 0) ::close(file);
}

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

Went send_message(int socket, Head head, const std::string& body, Clock::time_point end,
                  const std::vector<int>& files) {
  head.bytes = static_cast<uint32_t>(body.size());
  head.files = static_cast<uint32_t>(files.size());
  Went went = send_all(socket, &head, sizeof head, end);
  if (went == Went::Well) went = send_all(socket, body.data(), body.size(), end);
  return went == Went::Well ? send_files(socket, files, end) : went;
}

Went receive_message(int socket, Head& head, std::string& body, Clock::time_point end,
                     std::vector<int>* files) {
  Went went = receive_all(socket, &head, sizeof head, end);
  if (went != Went::Well) return went;
  if (head.magic != Head{}.magic || head.bytes > kMostBytes ||
      head.files > size_t{Group::kMostRanks})
    return Went::Gone;
  body.resize(head.bytes);
  went = receive_all(socket, body.data(), body.size(), end);
  if (went != Went::Well || head.files == 0) return went;
  std::vector<int> unexpected;
  went = receive_files(socket, head.files, files ? *files : unexpected, end);
  close_all(unexpected);
  return went;
}

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

pid_t owner_of(int socket) {
  ucred other{};
  socklen_t length = sizeof other;
  const bool ours = ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &other, &length) == 0 &&
                    other.uid == ::geteuid();
  return ours ? other.pid : 0;
}

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

}  // namespace maco::runtime
