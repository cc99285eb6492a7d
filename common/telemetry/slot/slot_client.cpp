// SPDX-License-Identifier: Apache-2.0
#include "common/telemetry/slot/slot_client.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/telemetry/ring/ring_view.hpp"
#include "common/telemetry/slot/descriptor_message.hpp"

namespace paceline::telemetry {
namespace {

constexpr std::chrono::seconds kFirstPause{1};
constexpr std::chrono::seconds kLongestPause{30};
constexpr std::size_t kMostRings = 1024;
/// The number of kept rings of ended ranks. Each takes half a MiB of the pod's memory.
constexpr std::size_t kMostKept = 64;
/// Keys of loss reports start here; keys of rings start at 1.
constexpr std::uint64_t kLosses = 1ULL << 63U;

template <std::size_t Size>
void copy_name(std::array<char, Size>& to, const std::string& from) {
  from.copy(to.data(), Size - 1);
}

}  // namespace

SlotClient::SlotClient(const std::filesystem::path& folder, const SlotClaim& claim,
                       const Clock& clock)
    : path_(folder.empty() ? "" : (folder / kSlotSocket).string()),
      clock_(clock),
      try_at_(clock.steady()) {
  copy_name(begin_.job, claim.job);
  copy_name(begin_.role, claim.role);
  begin_.replica_index = claim.replica_index;
  begin_.incarnation = claim.incarnation;
  begin_.features = kSlotHandsOver;
  begin_.kind = static_cast<std::uint16_t>(SlotKind::kBegin);
}

void SlotClient::begin_attempt(std::uint32_t attempt, int node_rank, int first_rank,
                               int processes) {
  const std::lock_guard lock(mutex_);
  // Records that no agent has counted yet wait for this agent or its successor. An agent that does
  // not know kPast gets no past rings.
  const bool forget = taken_ && !hands_over_;
  std::erase_if(rings_, [&](const auto& entry) { return forget || entry.second.refused; });
  for (auto& [key, ring] : rings_) ring.past = ring.gone = true;
  refused_.clear();
  keep_few();
  begin_.size = sizeof begin_;
  begin_.attempt = attempt;
  begin_.node_rank = node_rank;
  begin_.first_rank = first_rank;
  begin_.processes = processes;
  if (!socket_.valid() || send_message(socket_.get(), &begin_, sizeof begin_, -1)) return;
  hear();  // read what the agent sent before it closed
  lose();
}

void SlotClient::add(std::uint64_t key, const paceline_ring_offer& offer, int fd) {
  const std::lock_guard lock(mutex_);
  if (path_.empty()) return;
  Ring ring;
  ring.offer = offer;
  ring.fd.reset(::fcntl(fd, F_DUPFD_CLOEXEC, 3));
  struct stat is{};
  if (!ring.fd.valid() || rings_.size() >= kMostRings || ::fstat(ring.fd.get(), &is) != 0) {
    refused_.insert(offer.world_rank);
    return;
  }
  ring.device = is.st_dev;
  ring.inode = is.st_ino;
  // A rank that reconnects offers the same ring again: keep one number for it.
  for (auto at = rings_.begin(); at != rings_.end(); ++at) {
    if (!at->second.fd.valid() || at->second.device != ring.device ||
        at->second.inode != ring.inode)
      continue;
    ring.start = at->second.start;
    ring.known = at->second.known;
    rings_.erase(at);
    break;
  }
  rings_.insert_or_assign(key, std::move(ring));
  send_rings();
}

void SlotClient::remove(std::uint64_t key) {
  const std::lock_guard lock(mutex_);
  const auto ring = rings_.find(key);
  if (ring == rings_.end()) return;
  // A ring that was never handed over is kept, so that a rank that lived only while the agent was
  // away is counted too.
  ring->second.gone = true;
  keep_few();
  send_rings();
}

/// Keeps the newest of the rings without a writer. For the others only the number of their records
/// is kept.
void SlotClient::keep_few() {
  auto kept = static_cast<std::size_t>(std::ranges::count_if(
      rings_, [](const auto& entry) { return entry.second.gone && entry.second.fd.valid(); }));
  for (auto at = rings_.begin(); at != rings_.end() && kept > kMostKept;) {
    const Ring& ring = at->second;
    if (!ring.gone || !ring.fd.valid()) {
      ++at;
      continue;
    }
    const auto view = RingView::open(ring.fd.get());
    const std::uint64_t end = view && !ring.sent ? view->write_index() : 0;
    if (end > ring.start) {
      const int rank = ring.offer.world_rank;
      const auto same = std::ranges::find_if(rings_, [&](const auto& entry) {
        return !entry.second.fd.valid() && !entry.second.sent &&
               entry.second.offer.world_rank == rank;
      });
      Ring& loss = same != rings_.end() ? same->second : rings_[kLosses + losses_++];
      loss.offer.world_rank = rank;
      loss.start += end - ring.start;
      loss.past = loss.gone = true;
    }
    at = rings_.erase(at);
    --kept;
  }
}

void SlotClient::tend() {
  const std::lock_guard lock(mutex_);
  if (path_.empty() || begin_.size == 0) return;
  if (socket_.valid() && !hear()) lose();
  if (!socket_.valid() && clock_.steady() >= try_at_) connect();
  send_findings();
  send_rings();
}

void SlotClient::report(std::vector<SlotFinding> findings) {
  const std::lock_guard lock(mutex_);
  findings_ = std::move(findings);
  if (findings_.size() > kMostFindings) findings_.resize(kMostFindings);
  told_ = 0;
  if (begin_.size != 0 || findings_.empty()) return;
  // No attempt has begun: send only the identity of this pod.
  begin_.size = sizeof begin_;
  begin_.processes = 1;
}

bool SlotClient::reported() const {
  const std::lock_guard lock(mutex_);
  return path_.empty() || told_ == findings_.size();
}

void SlotClient::send_findings() {
  while (taken_ && hears_ && told_ < findings_.size()) {
    SlotFrame frame;
    frame.size = sizeof frame;
    frame.kind = static_cast<std::uint16_t>(SlotKind::kFinding);
    const std::string text = pack(findings_[told_]);
    std::array<char, kMostSlotFrame> message{};
    std::memcpy(message.data(), &frame, sizeof frame);
    text.copy(message.data() + sizeof frame, text.size());
    if (!send_message(socket_.get(), message.data(), sizeof frame + text.size(), -1)) return;
    ++told_;
  }
}

void SlotClient::connect() {
  try_at_ = clock_.steady() + kFirstPause;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path_.size() >= sizeof address.sun_path) return;
  path_.copy(address.sun_path, sizeof address.sun_path - 1);
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return;
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return;
  socket_ = std::move(socket);
  if (!send_message(socket_.get(), &begin_, sizeof begin_, -1)) lose();
}

/// False if the connection was closed.
bool SlotClient::hear() {
  bool reset = false;
  while (true) {
    SlotFrame frame;
    const Received received = receive_message(socket_.get(), &frame, sizeof frame);
    if (received.again()) return !reset;
    // If the agent closed before it read our frames, the kernel reports that error once, before it
    // delivers the agent's last frames.
    if (received.size < 0 && errno == ECONNRESET && !std::exchange(reset, true)) continue;
    if (received.size < static_cast<ssize_t>(offsetof(SlotFrame, attempt)) ||
        frame.magic != kSlotMagic)
      return false;
    if (frame.kind == static_cast<std::uint16_t>(SlotKind::kTaken)) {
      taken_ = true;
      const std::uint32_t features = received.size >= static_cast<ssize_t>(kLeastSlotFrame)
                                         ? frame.features
                                         : std::uint32_t{0};
      hands_over_ = (features & kSlotHandsOver) != 0;
      hears_ = (features & kSlotFindings) != 0;
      pause_ = kFirstPause;
    } else if (received.size >= static_cast<ssize_t>(sizeof frame)) {
      heed(frame);
    }
  }
}

/// Handles a frame about a ring. Unknown kinds, of a later release, are ignored.
void SlotClient::heed(const SlotFrame& frame) {
  const auto at = rings_.find(frame.ring);
  if (at == rings_.end() || !at->second.sent) return;
  Ring& ring = at->second;
  switch (static_cast<SlotKind>(frame.kind)) {
    case SlotKind::kRead:
      // Positions only move forward: counted records stay counted. A position beyond the ring's end
      // is corrected when the ring is handed over.
      if (!ring.fd.valid()) return;
      ring.start = std::max(ring.start, frame.start);
      ring.known = std::max({ring.known, ring.start, frame.read});
      return;
    case SlotKind::kDone:
      if (ring.gone) rings_.erase(at);
      return;
    case SlotKind::kRefused:
      ring.refused = true;
      if (!ring.past) refused_.insert(ring.offer.world_rank);
      if (ring.gone) rings_.erase(at);
      return;
    default: return;
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
    frame.read = ring->known;
    frame.offer = ring->offer;
  }
  return send_message(socket_.get(), &frame, sizeof frame, ring == nullptr ? -1 : ring->fd.get());
}

/// An agent may send any position. Limit it to the written records, so that no future record is
/// skipped.
void SlotClient::cut(Ring& ring) {
  const auto view = RingView::open(ring.fd.get());
  const std::uint64_t end = view ? view->write_index() : 0;
  ring.start = std::min(ring.start, end);
  ring.known = std::clamp(ring.known, ring.start, end);
}

/// False if the socket is full or broken. Advances `at` to the next ring.
bool SlotClient::send_ring(Rings::iterator& at) {
  auto& [key, ring] = *at;
  if (!ring.sent) {
    const SlotKind kind = !ring.fd.valid() ? SlotKind::kLost
                          : ring.past      ? SlotKind::kPast
                                           : SlotKind::kRing;
    if (kind != SlotKind::kRing && !hands_over_) {
      at = rings_.erase(at);
      return true;
    }
    if (ring.fd.valid()) cut(ring);
    if (!send(kind, key, &ring)) return false;
    ring.sent = true;
  }
  if (ring.gone && !ring.past && !ring.told_gone && !ring.refused) {
    if (!send(SlotKind::kGone, key, nullptr)) return false;
    ring.told_gone = true;
  }
  const bool over = ring.refused ? ring.gone : ring.told_gone && !hands_over_;
  at = over ? rings_.erase(at) : std::next(at);
  return true;
}

void SlotClient::send_rings() {
  if (!taken_) return;
  // If the socket is full, the next call continues; if it is broken, `hear` finds out.
  for (auto at = rings_.begin(); at != rings_.end();) {
    if (!send_ring(at)) return;
  }
}

void SlotClient::lose() {
  socket_.reset();
  // Reconnect at once to an agent that had accepted this pod, and later to one that refused it.
  if (!taken_) pause_ = std::min(pause_ * 2, kLongestPause);
  try_at_ = clock_.steady() + (taken_ ? std::chrono::seconds(0) : pause_);
  for (auto& [key, ring] : rings_) {
    const bool sent = std::exchange(ring.sent, false);
    ring.told_gone = ring.refused = false;
    if (!sent || hands_over_ || !ring.fd.valid()) continue;
    // An agent that does not report positions is assumed to have read up to here.
    if (const auto view = RingView::open(ring.fd.get())) ring.start = view->write_index();
  }
  taken_ = false;
  hands_over_ = hears_ = false;
  told_ = 0;
  refused_.clear();
}

bool SlotClient::held() const {
  const std::lock_guard lock(mutex_);
  return taken_;
}

std::optional<std::set<int>> SlotClient::served_here() const {
  const std::lock_guard lock(mutex_);
  return taken_ ? std::optional(refused_) : std::nullopt;
}

}  // namespace paceline::telemetry
