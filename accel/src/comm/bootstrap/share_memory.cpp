// SPDX-License-Identifier: Apache-2.0
#include "comm/bootstrap/share_memory.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <thread>

#include "comm/bootstrap/handshake.hpp"

namespace paceline::comm {
namespace {

constexpr const char* kShares = "shares";

std::string system_text(const std::string& what) {
  const int error = errno;
  return what + ": " + std::strerror(error);
}

// Hands a file to every mate that connects and shows the nonce, until this object is destroyed.
class HandOut {
 public:
  HandOut(const base::Fd& file, const PeerInfo& info, const base::Fd& listener)
      : file_(file),
        info_(info),
        listener_(listener),
        stop_(::eventfd(0, EFD_CLOEXEC)),
        thread_([this] { run(); }) {}
  HandOut(const HandOut&) = delete;
  HandOut& operator=(const HandOut&) = delete;
  ~HandOut() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(stop_.get(), &one, sizeof one);
    thread_.join();
  }

 private:
  void run() {
    for (;;) {
      std::vector<pollfd> files{{.fd = stop_.get(), .events = POLLIN, .revents = 0},
                                {.fd = listener_.get(), .events = POLLIN, .revents = 0}};
      for (const PendingConnection& one : callers_)
        files.push_back({.fd = one.socket.get(), .events = POLLIN, .revents = 0});
      if (::poll(files.data(), files.size(), -1) < 0) continue;
      if (files[0].revents != 0) return;
      for (std::size_t i = 0; i < callers_.size(); ++i)
        if (files[2 + i].revents != 0) serve(callers_[i]);
      std::erase_if(callers_, [](const PendingConnection& one) { return !one.socket; });
      if (files[1].revents != 0) accept_one();
    }
  }
  void accept_one() {
    base::Fd socket = accept_next(listener_);
    if (!socket || !is_own_user(socket)) return;
    // Cap pending unauthenticated connections, so that they cannot use up the memory: drop the
    // oldest.
    if (callers_.size() > PACELINE_COMM_MAX_RANKS) callers_.erase(callers_.begin());
    callers_.push_back({std::move(socket), {}, 0});
  }
  void serve(PendingConnection& caller) {
    Handshake handshake;
    const HandshakeRead read = read_handshake(caller, info_, handshake);
    if (read == HandshakeRead::kIncomplete) return;
    const base::Fd socket = std::move(caller.socket);
    const char byte = 'm';
    if (read == HandshakeRead::kComplete && handshake.purpose == kMemory)
      send_file(socket, file_, &byte, 1);
  }

  const base::Fd& file_;
  const PeerInfo& info_;
  const base::Fd& listener_;
  const base::Fd stop_;
  std::vector<PendingConnection> callers_;
  std::thread thread_;
};

// Returns an empty Fd and sets `why` on failure.
base::Fd ask_for(const PeerInfo& info, const Topology& topology, Clock::time_point deadline,
                 std::string& why) {
  const std::uint32_t first = topology.mates().front();
  const std::string who = "rank " + std::to_string(first);
  if (info.listener.empty()) {
    why = who + " cannot hand over memory";
    return {};
  }
  const base::Fd socket = dial_local(info.listener);
  const Handshake handshake = handshake_to(info, topology.rank, kMemory, 0);
  if (!socket || ::send(socket.get(), &handshake, sizeof handshake, MSG_NOSIGNAL) !=
                     static_cast<ssize_t>(sizeof handshake)) {
    why = system_text("asking " + who + " for memory");
    return {};
  }
  for (;;) {
    char byte = 0;
    base::Fd file = receive_file(socket, &byte, 1);
    if (file) return file;
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (errno != EAGAIN || left <= 0) {
      why = system_text(who + " gave no memory");
      return {};
    }
    pollfd one{.fd = socket.get(), .events = POLLIN, .revents = 0};
    ::poll(&one, 1, static_cast<int>(std::min<std::int64_t>(left, 1'000'000)) + 1);
  }
}

std::string key_of(std::uint32_t rank) { return "memory/" + std::to_string(rank); }

}  // namespace

std::expected<Shared, Error> share_region(const Store& store, const Topology& topology,
                                          const std::vector<PeerInfo>& peers, base::Fd& listener,
                                          std::size_t chunk, Clock::time_point deadline) {
  Shared shared{.region = nullptr, .refusals = std::vector<std::string>(topology.ranks())};
  const auto ranks = static_cast<std::uint32_t>(topology.mates().size());
  base::Fd file;
  std::optional<HandOut> handing;
  if (ranks > 1) {
    std::string why;
    if (topology.local == 0) {
      file = listener ? Region::create(ranks, chunk) : base::Fd();
      if (!file) why = listener ? system_text("a memory file") : "no local sockets";
    } else {
      file = ask_for(peers[topology.mates().front()], topology, deadline, why);
    }
    if (file) {
      shared.region = Region::map(file, ranks, chunk);
      if (shared.region == nullptr) why = system_text("mapping a memory file");
    }
    if (topology.local == 0) {
      // Close the listener, so that mates that wait for memory learn of the failure.
      if (shared.region == nullptr) listener = base::Fd();
      if (shared.region != nullptr) handing.emplace(file, peers[topology.rank], listener);
    }
    if (auto told = tell(store, key_of(topology.rank), shared.region != nullptr ? kShares : why);
        !told)
      return std::unexpected(told.error());
  }
  for (const auto& group : topology.groups) {
    for (const std::uint32_t rank : group) {
      if (group.size() == 1) continue;
      const auto said = read_key(store, key_of(rank), rank, deadline);
      if (!said) return std::unexpected(said.error());
      if (*said == kShares) continue;
      shared.refusals[rank] = said->empty() ? "it does not say why" : *said;
      if (&group == &topology.mates()) shared.region = nullptr;
    }
  }
  return shared;
}

}  // namespace paceline::comm
