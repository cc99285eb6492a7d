// SPDX-License-Identifier: Apache-2.0
#include "agent/collect/slot_listener.hpp"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "common/telemetry/slot/slot_link.hpp"

namespace paceline::agent {
namespace {

constexpr int kBacklog = 8;

/// The identity of the file that a name leads to; empty if it is no socket.
std::string identity_of(const std::string& path) {
  struct stat is{};
  if (::lstat(path.c_str(), &is) != 0 || !S_ISSOCK(is.st_mode)) return {};
  return std::to_string(is.st_dev) + ":" + std::to_string(is.st_ino) + ":" +
         std::to_string(is.st_ctim.tv_sec) + "." + std::to_string(is.st_ctim.tv_nsec);
}

}  // namespace

SlotListener::SlotListener(const CollectLimits& limits, SteadyTime now)
    : connections_(limits.connections_per_second, limits.connections_at_once, now),
      frames_(limits.frames_per_second, limits.frames_at_once, now) {}

Status SlotListener::open(const std::filesystem::path& folder) {
  const std::string path = (folder / telemetry::kSlotSocket).string();
  if (fd_.valid() && identity_of(path) == identity_) return {};
  const std::string partial = path + ".new";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (partial.size() >= sizeof address.sun_path) {
    return fail(Code::kInvalid, Origin::kConfig,
                "the slot's socket " + partial +
                    " is longer than the kernel takes (107 bytes); choose a shorter folder for "
                    "runtimes and slots");
  }
  partial.copy(address.sun_path, sizeof address.sun_path - 1);
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return fail_errno("a slot's socket", errno);
  if (::unlink(partial.c_str()) != 0 && errno != ENOENT)
    return fail_errno("remove " + partial, errno);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return fail_errno("bind " + partial, errno);
  if (::listen(fd.get(), kBacklog) != 0) return fail_errno("listen " + partial, errno);
  // Containers run as any user.
  if (::chmod(partial.c_str(), 0666) != 0) return fail_errno("chmod " + partial, errno);
  if (::rename(partial.c_str(), path.c_str()) != 0) return fail_errno("rename to " + path, errno);
  fd_ = std::move(fd);
  identity_ = identity_of(path);
  return {};
}

UniqueFd SlotListener::accept(SteadyTime now) {
  UniqueFd peer(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (peer.valid()) connections_.take(now);
  return peer;
}

}  // namespace paceline::agent
