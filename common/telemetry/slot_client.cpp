// SPDX-License-Identifier: Apache-2.0
#include "common/telemetry/slot_client.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "common/telemetry/descriptor_message.hpp"
#include "common/telemetry/ring_view.hpp"

namespace paceline::telemetry {
namespace {

constexpr std::chrono::seconds kFirstPause{1};
constexpr std::chrono::seconds kLongestPause{30};
/// Rings that wait to be handed over, those of ranks that are gone included.
constexpr std::size_t kMostRings = 1024;

template <std::size_t Size>
void copy_name(std::array<char, Size>& to, const std::string& from) {
  from.copy(to.data(), Size - 1);
}

}  // namespace

SlotClient::SlotClient(const std::filesystem::path& folder, const SlotClaim& claim, const Clock& clock)
    : path_(folder.empty() ? "" : (folder / kSlotSocket).string()), clock_(clock), try_at_(clock.steady()) {
  copy_name(begin_.job, claim.job);
  copy_name(begin_.role, claim.role);
  begin_.replica_index = claim.replica_index;
  begin_.incarnation = claim.incarnation;
  begin_.kind = static_cast<std::uint16_t>(SlotKind::kBegin);
}

void SlotClient::begin_attempt(std::uint32_t attempt, int node_rank, int first_rank, int processes) {
  const std::lock_guard lock(mutex_);
  rings_.clear();
  begin_.size = sizeof begin_;
  begin_.attempt = attempt;
  begin_.node_rank = node_rank;
  begin_.first_rank = first_rank;
  begin_.processes = processes;
  if (socket_.valid() && !send_message(socket_.get(), &begin_, sizeof begin_, -1)) lose();
}

void SlotClient::add(std::uint64_t key, const paceline_ring_offer& offer, int fd) {
  const std::lock_guard lock(mutex_);
  if (path_.empty() || rings_.size() >= kMostRings) return;
  Ring ring{offer, UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, 3))};
  if (!ring.fd.valid()) return;
  rings_.insert_or_assign(key, std::move(ring));
  send_rings();
}

void SlotClient::remove(std::uint64_t key) {
  const std::lock_guard lock(mutex_);
  const auto ring = rings_.find(key);
  if (ring == rings_.end()) return;
  // One that was never handed over waits for it: a rank shorter than the agent's absence counts, too.
  ring->second.gone = true;
  send_rings();
}

void SlotClient::tend() {
  const std::lock_guard lock(mutex_);
  if (path_.empty() || begin_.size == 0) return;
  if (socket_.valid() && !hear()) lose();
  if (!socket_.valid() && clock_.steady() >= try_at_) connect();
  send_rings();
}

void SlotClient::connect() {
  try_at_ = clock_.steady() + kFirstPause;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path_.size() >= sizeof address.sun_path) return;
  path_.copy(address.sun_path, sizeof address.sun_path - 1);
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return;
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return;
  socket_ = std::move(socket);
  if (!send_message(socket_.get(), &begin_, sizeof begin_, -1)) lose();
}

/// False when the connection is over.
bool SlotClient::hear() {
  while (true) {
    SlotFrame frame;
    const Received received = receive_message(socket_.get(), &frame, sizeof frame);
    if (received.again()) return true;
    if (received.size < static_cast<ssize_t>(offsetof(SlotFrame, attempt)) || frame.magic != kSlotMagic) return false;
    if (frame.kind != static_cast<std::uint16_t>(SlotKind::kTaken)) continue;  // of a later release
    taken_ = true;
    pause_ = kFirstPause;
  }
}

bool SlotClient::send(SlotKind kind, std::uint64_t key, const Ring* ring) {
  SlotFrame frame;
  frame.size = sizeof frame;
  frame.kind = static_cast<std::uint16_t>(kind);
  frame.attempt = begin_.attempt;
  frame.ring = key;
  if (ring != nullptr) {
    frame.start = ring->start;
    frame.offer = ring->offer;
  }
  return send_message(socket_.get(), &frame, sizeof frame, ring == nullptr ? -1 : ring->fd.get());
}

void SlotClient::send_rings() {
  if (!taken_) return;
  for (auto at = rings_.begin(); at != rings_.end();) {
    auto& [key, ring] = *at;
    ring.sent = ring.sent || send(SlotKind::kRing, key, &ring);
    if (ring.sent && ring.gone && send(SlotKind::kGone, key, nullptr)) {
      at = rings_.erase(at);
      continue;
    }
    // A full socket is waited for; a broken one is noticed by `hear`.
    if (!ring.sent || ring.gone) return;
    ++at;
  }
}

void SlotClient::lose() {
  socket_.reset();
  // An agent that took us and is gone is looked for at once, one that sends us away is not.
  if (!taken_) pause_ = std::min(pause_ * 2, kLongestPause);
  try_at_ = clock_.steady() + (taken_ ? std::chrono::seconds(0) : pause_);
  taken_ = false;
  for (auto& [key, ring] : rings_) {
    if (!ring.sent) continue;
    ring.sent = false;
    // Until here the agent that is gone has counted; from here on its successor.
    if (const auto view = RingView::open(ring.fd.get())) ring.start = view->write_index();
  }
}

bool SlotClient::held() const {
  const std::lock_guard lock(mutex_);
  return taken_;
}

}  // namespace paceline::telemetry
