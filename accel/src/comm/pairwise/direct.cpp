// SPDX-License-Identifier: Apache-2.0
#include "comm/pairwise/direct.hpp"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "comm/bootstrap/inter_node_links.hpp"
#include "comm/transport/shm/shm_link.hpp"
#include "comm/transport/tcp/tcp_link.hpp"

namespace paceline::comm {
namespace {

// how often to check for a peer that has left, since nothing announces that here
constexpr std::int64_t kLookAgainMs = 500;

std::vector<base::Fd> alone(base::Fd socket) {
  std::vector<base::Fd> flows;
  flows.push_back(std::move(socket));
  return flows;
}

std::uint32_t purpose_of(Channel channel) {
  return channel == Channel::kPair ? kDirectly : kTogether;
}

}  // namespace

Direct::Direct(std::uint32_t rank, std::vector<PeerInfo> peers, Listeners listeners,
               std::vector<bool> shares_memory, const InterNode& inter_node,
               FailureDetector& detector)
    : rank_(rank),
      peers_(std::move(peers)),
      listeners_(std::move(listeners)),
      shares_memory_(std::move(shares_memory)),
      inter_node_(inter_node),
      detector_(detector) {
  for (Senders& links : to_) links.resize(peers_.size());
  for (Receivers& links : from_) links.resize(peers_.size());
}

void Direct::forked() {
  for (const auto* files : {&to_files_, &from_files_})
    for (const int file : *files) ::close(file);
  for (const auto* callers : {&callers_, &local_callers_})
    for (const PendingConnection& caller : *callers) ::close(caller.socket.get());
  for (const base::Fd& listener : listeners_.tcp) ::close(listener.get());
  if (listeners_.memory) ::close(listeners_.memory.get());
}

std::string Direct::note() const {
  const std::lock_guard lock(mutex_);
  return note_;
}

// False if no time is left, or the communicator has failed.
bool Direct::await(std::vector<pollfd>& files, std::uint32_t peer) {
  files.push_back({.fd = detector_.abort_fd(), .events = POLLIN, .revents = 0});
  const auto waiting = detector_.may_wait(peer);
  if (!waiting) return false;
  const std::int64_t left =
      std::chrono::duration_cast<std::chrono::milliseconds>(detector_.deadline() - Clock::now())
          .count();
  ::poll(files.data(), files.size(),
         static_cast<int>(std::clamp<std::int64_t>(left, 0, kLookAgainMs)) + 1);
  return !detector_.failed();
}

// Returns null if the two ranks cannot share memory after all; the link then uses TCP.
std::unique_ptr<SendLink> Direct::send_memory(std::uint32_t peer, Channel channel) {
  errno = ENOENT;  // the peer has no listener to connect to
  const base::Fd socket =
      peers_[peer].listener.empty() ? base::Fd() : dial_local(peers_[peer].listener);
  const base::Fd file = socket ? PairMemory::create() : base::Fd();
  auto memory = file ? PairMemory::map(file) : nullptr;
  const Handshake handshake = handshake_to(peers_[peer], rank_, purpose_of(channel), 0);
  if (memory != nullptr && send_file(socket, file, &handshake, sizeof handshake))
    return std::make_unique<ShmSender>(std::move(memory), peer, detector_);
  const std::string why = std::strerror(errno);
  note_first("rank " + std::to_string(rank_) + " sends to rank " + std::to_string(peer) +
             " by TCP: " + why);
  return nullptr;
}

void Direct::note_first(const std::string& note) {
  const std::lock_guard lock(mutex_);
  if (note_.empty()) note_ = note;
}

bool Direct::may_try(std::uint32_t peer) const {
  return inter_node_.rdma != nullptr && why_no_rdma(peers_, rank_, peer).empty();
}

PairTerms Direct::terms_with(std::uint32_t peer, bool sends) {
  const std::uint32_t from = sends ? rank_ : peer;
  const std::uint32_t to = sends ? peer : rank_;
  return {.rank = rank_,
          .peer = peer,
          .rdma = inter_node_.rdma,
          .nic = (rank_ + peer) % std::min(peers_[rank_].nics, peers_[peer].nics),
          .transport = inter_node_.transport,
          .by_tcp = [this, from, to](const std::string& why) {
            note_first("rank " + std::to_string(from) + " sends to rank " + std::to_string(to) +
                       " by TCP: " + why);
          }};
}

std::unique_ptr<SendLink> Direct::connect(std::uint32_t peer, Channel channel) {
  // There are many pairs, so each pair uses one device; pairs are spread over the devices.
  const std::size_t endpoint = (rank_ + peer) % peers_[peer].endpoints.size();
  base::Fd socket = start_connecting(peers_[rank_], peers_[peer], endpoint);
  int error = socket ? EINPROGRESS : errno;
  while (error == EINPROGRESS) {
    std::vector<pollfd> files{{.fd = socket.get(), .events = POLLOUT, .revents = 0}};
    if (!await(files, peer)) return nullptr;
    if (files.front().revents != 0)
      error = send_handshake(socket, peers_[peer], rank_, purpose_of(channel), 0);
  }
  if (error != 0) {
    detector_.connection_broke(peer, "cannot connect to " +
                                         peers_[peer].endpoints[endpoint].address + ": " +
                                         std::strerror(error));
    return nullptr;
  }
  to_files_.push_back(socket.get());
  if (may_try(peer))
    return std::make_unique<PairSender>(std::move(socket), terms_with(peer, true), detector_);
  return std::make_unique<TcpSender>(alone(std::move(socket)), peer, detector_);
}

SendLink* Direct::to(std::uint32_t peer, Channel channel) {
  auto& link = to_[static_cast<std::size_t>(channel)][peer];
  if (link == nullptr && shares_memory_[peer]) link = send_memory(peer, channel);
  if (link == nullptr) link = connect(peer, channel);
  return link.get();
}

void Direct::accept_some(const base::Fd& listener, std::vector<PendingConnection>& callers) {
  for (;;) {
    base::Fd socket = listener ? accept_next(listener) : base::Fd();
    if (!socket) return;
    // Cap pending unauthenticated connections, so that they cannot use up the memory: drop the
    // oldest.
    if (callers.size() > 2 * peers_.size() + 64) callers.erase(callers.begin());
    callers.push_back({std::move(socket), {}, 0});
  }
}

// The place for the link that the handshake asks for. Null if it asks for another purpose, or if
// that link is there already.
std::unique_ptr<ReceiveLink>* Direct::expected(const Handshake& handshake) {
  if (handshake.purpose != kDirectly && handshake.purpose != kTogether) return nullptr;
  Receivers& links = from_[static_cast<std::size_t>(
      handshake.purpose == kDirectly ? Channel::kPair : Channel::kTogether)];
  const bool good =
      handshake.from < links.size() && handshake.from != rank_ && links[handshake.from] == nullptr;
  return good ? &links[handshake.from] : nullptr;
}

void Direct::read_handshakes() {
  for (PendingConnection& caller : callers_) {
    Handshake handshake;
    const HandshakeRead read = read_handshake(caller, peers_[rank_], handshake);
    if (read == HandshakeRead::kIncomplete) continue;
    base::Fd socket = std::move(caller.socket);
    auto* const link = read == HandshakeRead::kComplete ? expected(handshake) : nullptr;
    if (link == nullptr) continue;
    from_files_.push_back(socket.get());
    if (may_try(handshake.from)) {
      *link = std::make_unique<PairReceiver>(std::move(socket), terms_with(handshake.from, false),
                                             detector_);
    } else {
      *link = std::make_unique<TcpReceiver>(alone(std::move(socket)), handshake.from, detector_);
    }
  }
  std::erase_if(callers_, [](const PendingConnection& caller) { return !caller.socket; });
}

void Direct::receive_memory() {
  for (PendingConnection& caller : local_callers_) {
    Handshake handshake;
    errno = EACCES;
    const base::Fd file = is_own_user(caller.socket)
                              ? receive_file(caller.socket, &handshake, sizeof handshake)
                              : base::Fd();
    if (!file && errno == EAGAIN) continue;
    const base::Fd socket = std::move(caller.socket);
    auto* const link =
        file && shows_nonce(handshake, peers_[rank_]) ? expected(handshake) : nullptr;
    if (link == nullptr || !shares_memory_[handshake.from]) continue;
    auto memory = PairMemory::map(file);
    if (memory != nullptr) {
      *link = std::make_unique<ShmReceiver>(std::move(memory), handshake.from, detector_);
    } else {
      detector_.fail(static_cast<int>(rank_),
                     "rank " + std::to_string(rank_) + " cannot map the memory that rank " +
                         std::to_string(handshake.from) + " gave: " + std::strerror(errno));
    }
  }
  std::erase_if(local_callers_, [](const PendingConnection& caller) { return !caller.socket; });
}

ReceiveLink* Direct::from(std::uint32_t peer, Channel channel) {
  auto& link = from_[static_cast<std::size_t>(channel)][peer];
  while (link == nullptr) {
    // Read this before the listeners: a peer that has left may have connected before it left.
    const bool left = detector_.has_left(peer);
    for (const base::Fd& listener : listeners_.tcp) accept_some(listener, callers_);
    accept_some(listeners_.memory, local_callers_);
    read_handshakes();
    receive_memory();
    if (link != nullptr) break;
    if (left) {
      detector_.fail(static_cast<int>(peer), "rank " + std::to_string(peer) +
                                                 " has left the communicator, and sent nothing");
      return nullptr;
    }
    std::vector<pollfd> files{{.fd = listeners_.memory.get(), .events = POLLIN, .revents = 0}};
    for (const base::Fd& listener : listeners_.tcp)
      files.push_back({.fd = listener.get(), .events = POLLIN, .revents = 0});
    for (const auto* callers : {&callers_, &local_callers_})
      for (const PendingConnection& caller : *callers)
        files.push_back({.fd = caller.socket.get(), .events = POLLIN, .revents = 0});
    if (!await(files, peer)) return nullptr;
  }
  return link.get();
}

}  // namespace paceline::comm
