// SPDX-License-Identifier: Apache-2.0
// Memory without a name that processes share: a memory file. It is sealed, so that no process can
// shrink it under another. Its descriptor goes through an abstract socket, to processes of the same
// user only. Nothing is left behind, however a process ends.
//
// Ownership: the caller's. Threads: pure functions. Blocking: none. Failure: an empty Fd, false or
// null, and errno.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "base/fd.hpp"

namespace paceline::comm {

base::Fd make_memory_file(const char* name, std::size_t size);

// Maps a file made by make_memory_file, of exactly this size; EPROTO for any other file.
class Mapping {
 public:
  static std::unique_ptr<Mapping> of(const base::Fd& file, std::size_t size);
  static std::unique_ptr<Mapping> alone(
      std::size_t size);  // memory of this process only, without a file
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();
  std::byte* base() const { return base_; }

 private:
  Mapping(std::byte* base, std::size_t size) : base_(base), size_(size) {}
  static std::unique_ptr<Mapping> taken(void* base, std::size_t size);

  std::byte* base_;
  std::size_t size_;
};

// Listens at an abstract name, or connects to it; neither waits. EACCES: the socket belongs to
// another user.
base::Fd listen_local(const std::string& name);
base::Fd dial_local(const std::string& name);
bool is_own_user(const base::Fd& socket);
// Sends a file and a few bytes, which the send buffer of a new connection has room for.
bool send_file(const base::Fd& socket, const base::Fd& file, const void* said, std::size_t size);
// EAGAIN if nothing has arrived yet.
base::Fd receive_file(const base::Fd& socket, void* heard, std::size_t size);

}  // namespace paceline::comm
