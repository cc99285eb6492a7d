// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/shm/memory_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "comm/transport/address.hpp"

namespace paceline::comm {
namespace {

constexpr unsigned kCloseOnExec = 1;    // MFD_CLOEXEC
constexpr unsigned kAllowSealing = 2;   // MFD_ALLOW_SEALING
constexpr unsigned kNoExecutables = 8;  // MFD_NOEXEC_SEAL, since Linux 6.3; some systems require it
constexpr int kLocalBacklog = 4096;

// Room for one descriptor.
union Control {
  cmsghdr align;
  std::array<char, CMSG_SPACE(sizeof(int))> bytes;
};

}  // namespace

base::Fd make_memory_file(const char* name, std::size_t size) {
  base::Fd file(static_cast<int>(
      ::syscall(SYS_memfd_create, name, kCloseOnExec | kAllowSealing | kNoExecutables)));
  if (!file && errno == EINVAL)
    file =
        base::Fd(static_cast<int>(::syscall(SYS_memfd_create, name, kCloseOnExec | kAllowSealing)));
  if (!file) return {};
  if (::ftruncate(file.get(), static_cast<off_t>(size)) != 0) return {};
  if (::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) return {};
  return file;
}

std::unique_ptr<Mapping> Mapping::taken(void* base, std::size_t size) {
  if (base == MAP_FAILED) return nullptr;
  ::madvise(base, size, MADV_DONTDUMP);
  return std::unique_ptr<Mapping>(new Mapping(static_cast<std::byte*>(base), size));
}

std::unique_ptr<Mapping> Mapping::of(const base::Fd& file, std::size_t size) {
  struct stat told{};
  if (::fstat(file.get(), &told) != 0) return nullptr;
  // Require the seal: if the file shrank, access to its mapping would end this process with SIGBUS.
  const int seals = ::fcntl(file.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || static_cast<std::size_t>(told.st_size) != size) {
    errno = EPROTO;
    return nullptr;
  }
  return taken(
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file.get(), 0),
      size);
}

std::unique_ptr<Mapping> Mapping::alone(std::size_t size) {
  return taken(::mmap(nullptr, size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0),
               size);
}

Mapping::~Mapping() { ::munmap(base_, size_); }

base::Fd listen_local(const std::string& name) {
  const Address local = abstract_address(name);
  base::Fd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener || ::bind(listener.get(), local.get(), local.length) != 0 ||
      ::listen(listener.get(), kLocalBacklog) != 0)
    return {};
  return listener;
}

base::Fd dial_local(const std::string& name) {
  const Address where = abstract_address(name);
  base::Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket || ::connect(socket.get(), where.get(), where.length) != 0) return {};
  if (is_own_user(socket)) return socket;
  errno = EACCES;
  return {};
}

bool is_own_user(const base::Fd& socket) {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  return ::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &length) == 0 &&
         credentials.uid == ::geteuid();
}

bool send_file(const base::Fd& socket, const base::Fd& file, const void* said, std::size_t size) {
  iovec data{.iov_base = const_cast<void*>(said), .iov_len = size};
  Control control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes.data();
  message.msg_controllen = control.bytes.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  const int number = file.get();
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof number);
  std::memcpy(CMSG_DATA(header), &number, sizeof number);
  return ::sendmsg(socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(size);
}

base::Fd receive_file(const base::Fd& socket, void* heard, std::size_t size) {
  iovec data{.iov_base = heard, .iov_len = size};
  Control control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes.data();
  message.msg_controllen = control.bytes.size();
  const ssize_t got = ::recvmsg(socket.get(), &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (got < 0) return {};
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  errno = EPROTO;
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS) return {};
  int number = -1;
  std::memcpy(&number, CMSG_DATA(header), sizeof number);
  base::Fd file(number);
  return got == static_cast<ssize_t>(size) ? std::move(file) : base::Fd();
}

}  // namespace paceline::comm
