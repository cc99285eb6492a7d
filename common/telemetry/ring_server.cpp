// SPDX-License-Identifier: Apache-2.0
#include "common/telemetry/ring_server.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "common/telemetry/slot/descriptor_message.hpp"

namespace paceline::telemetry {
namespace {

constexpr std::size_t kMostConnections = 256;
constexpr int kPollMilliseconds = 250;
constexpr std::size_t kLeastOffer = offsetof(paceline_ring_offer, reserved);

}  // namespace

RingServer::~RingServer() {
  std::error_code ignored;
  if (listener_.valid()) std::filesystem::remove(path_, ignored);
}

Status RingServer::open(const std::filesystem::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string text = path.string();
  if (text.size() >= sizeof address.sun_path) {
    return fail(Code::kInvalid, Origin::kConfig,
                "telemetry socket path " + text +
                    " is longer than 107 bytes; choose a shorter state directory");
  }
  std::copy(text.begin(), text.end(), address.sun_path);
  UniqueFd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener.valid()) return fail_errno("telemetry socket", errno);
  ::unlink(text.c_str());
  if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return fail_errno("bind " + text, errno);
  // Ranks may run as a different user than the launcher.
  if (::chmod(text.c_str(), 0666) != 0) return fail_errno("chmod " + text, errno);
  if (::listen(listener.get(), 64) != 0) return fail_errno("listen " + text, errno);
  const std::lock_guard lock(mutex_);
  listener_ = std::move(listener);
  path_ = path;
  return {};
}

void RingServer::accept_all() {
  while (true) {
    UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.valid()) return;
    if (connections_.size() < kMostConnections) connections_.push_back({std::move(fd)});
  }
}

bool RingServer::receive(Connection& connection) {
  while (true) {
    paceline_ring_offer offer{};
    const Received received = receive_message(connection.fd.get(), &offer, sizeof offer);
    if (received.again()) return true;
    if (received.size <= 0) return false;
    if (connection.key != 0) return false;  // one offer per connection
    if (static_cast<std::size_t>(received.size) < kLeastOffer ||
        offer.magic != PACELINE_OFFER_MAGIC || offer.version != PACELINE_OFFER_VERSION ||
        received.descriptors.size() != 1) {
      return false;
    }
    const int ring = received.descriptors.front().get();
    const auto key = collector_.add(offer, ring);
    if (!key) return false;
    connection.key = *key;
    if (agent_ != nullptr) agent_->add(*key, offer, ring);
  }
}

void RingServer::pump() {
  const std::lock_guard lock(mutex_);
  if (!listener_.valid()) return;
  accept_all();
  std::erase_if(connections_, [&](Connection& connection) {
    if (receive(connection)) return false;
    if (connection.key != 0) collector_.remove(connection.key);
    if (connection.key != 0 && agent_ != nullptr) agent_->remove(connection.key);
    return true;
  });
  collector_.poll();
  if (agent_ != nullptr) agent_->tend();
}

void RingServer::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    std::vector<pollfd> polled;
    {
      const std::lock_guard lock(mutex_);
      if (!listener_.valid()) return;
      polled.push_back({listener_.get(), POLLIN, 0});
      for (const Connection& connection : connections_)
        polled.push_back({connection.fd.get(), POLLIN, 0});
    }
    ::poll(polled.data(), polled.size(), kPollMilliseconds);
    pump();
  }
}

}  // namespace paceline::telemetry
