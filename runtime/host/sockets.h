// Messages between the processes of one host, through Unix sockets, with open files if need be.
#pragma once

#include <sys/types.h>
#include <sys/un.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/host/group.h"

namespace maco::runtime {

using SocketClock = std::chrono::steady_clock;

/// What goes ahead of a message's body.
struct Head {
  uint32_t magic = 0x4d41434f;  // "MACO"
  uint32_t failure = 0;         // 1: the body says why nothing goes on
  uint32_t bytes = 0;
  uint32_t files = 0;  // how many follow the body
  Group::Call call = Group::Call::Exchange;
  int32_t rank = 0;  // in a hello: the sender's rank, and of how many
  int32_t size = 0;
};

enum class Went : uint8_t { Well, Gone, Late, Stopped };

/// A socket on this host, closed at the end. It doesn't block.
struct Socket {
  Socket();
  explicit Socket(int socket) : file(socket) {}
  ~Socket();
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  const int file;
};

/// Sends or receives all bytes, until `end`.
Went send_all(int socket, const void* data, size_t bytes, SocketClock::time_point end);
Went receive_all(int socket, void* data, size_t bytes, SocketClock::time_point end);
/// Sends `body` behind `head`, whose sizes this sets, and then the open `files`.
Went send_message(int socket, Head head, const std::string& body, SocketClock::time_point end,
                  const std::vector<int>& files = {});
/// Appends received files to `files`, which the caller closes; without it files are refused.
Went receive_message(int socket, Head& head, std::string& body, SocketClock::time_point end,
                     std::vector<int>* files = nullptr);
/// Waits for a message from the process; not for long if the process has been stopped.
Went await_message(int socket, pid_t process, SocketClock::time_point end);
/// Waits until one of two sockets has something to read, or the time is over.
bool wait_for_either(int one, int other, SocketClock::time_point end);
/// The address of a name in the abstract namespace, where no file can be left behind.
sockaddr_un address_of(const std::string& name, socklen_t& length);
/// The process at the other end, if it belongs to the same user; else 0.
pid_t owner_of(int socket);
/// Closes open files, and forgets them.
void close_all(std::vector<int>& files);

}  // namespace maco::runtime
