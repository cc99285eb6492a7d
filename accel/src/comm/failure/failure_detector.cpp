// SPDX-License-Identifier: Apache-2.0
#include "comm/failure/failure_detector.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace paceline::comm {
namespace {

using std::chrono::milliseconds;

constexpr std::uint32_t kMagic = 0x4d4f4350;
enum FrameType : std::uint32_t { kHeartbeat = 1, kFailed = 2, kBye = 3 };

void signal(const base::Fd& event) {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(event.get(), &one, sizeof one);
}

}  // namespace

struct FailureDetector::Frame {
  std::uint32_t magic = kMagic;
  std::uint32_t type = 0;
  std::int32_t culprit = -1;
  std::uint32_t awaited = 0;  // the rank that this rank waits for, plus 1; 0: none
  Call call;
  std::array<char, 208> text{};
};

struct FailureDetector::Peer {
  base::Fd connection;
  std::array<char, sizeof(Frame)> bytes{};
  std::size_t got = 0;
  Clock::time_point heard;
  Call told;
  std::uint32_t awaits = 0;  // the rank that this peer waits for; the peer itself: none
  bool clogged = false;      // it has not read for many heartbeats, so this rank sends no more
  bool left = false;
  bool met = false;  // it has sent a heartbeat; before the first it may still be connecting
};

FailureDetector::FailureDetector(std::uint32_t rank, std::vector<base::Fd> connections,
                                 milliseconds heartbeat_timeout)
    : rank_(rank),
      heartbeat_timeout_(heartbeat_timeout),
      abort_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      awaited_(rank) {
  peers_.resize(connections.size());
  for (std::size_t i = 0; i < connections.size(); ++i) {
    peers_[i].connection = std::move(connections[i]);
    peers_[i].heard = Clock::now();
    peers_[i].awaits = static_cast<std::uint32_t>(i);
  }
  if (peers_.size() > 1) thread_ = std::thread([this] { run(); });
}

FailureDetector::~FailureDetector() { stop(); }

void FailureDetector::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  signal(wake_);
  if (thread_.joinable()) thread_.join();
}

void FailureDetector::forked() {
  // Do not take the lock: another thread may have held it at the fork.
  for (const Peer& peer : peers_)
    if (peer.connection) ::close(peer.connection.get());
}

void FailureDetector::on_change(std::function<void()> wake) {
  const std::lock_guard lock(mutex_);
  wakes_.push_back(std::move(wake));
  if (failed()) wakes_.back()();
}

bool FailureDetector::begin(const Call& call, Clock::time_point deadline) {
  {
    const std::lock_guard lock(mutex_);
    current_ = call;
    pairwise_.clear();
    busy_ = true;
    deadline_ = deadline;
    caller_ = std::this_thread::get_id();
    awaited_.store(rank_, std::memory_order_relaxed);
  }
  // Wake the thread now: a peer that has already left sends no heartbeat that would wake it.
  signal(wake_);
  return !failed();
}

bool FailureDetector::begin_pairwise(std::string what, Clock::time_point deadline) {
  const std::lock_guard lock(mutex_);
  pairwise_ = std::move(what);
  deadline_ = deadline;
  caller_ = std::thread::id{};
  return !failed();
}

bool FailureDetector::has_left(std::uint32_t rank) const {
  const std::lock_guard lock(mutex_);
  return peers_[rank].left;
}

bool FailureDetector::is_disconnected(std::uint32_t rank) const {
  const std::lock_guard lock(mutex_);
  if (!peers_[rank].connection) return true;
  // Poll sees the end of the connection even if unread data comes before it.
  pollfd end{.fd = peers_[rank].connection.get(), .events = POLLRDHUP, .revents = 0};
  return ::poll(&end, 1, 0) > 0;
}

void FailureDetector::end() {
  const std::lock_guard lock(mutex_);
  busy_ = false;
  awaited_.store(rank_, std::memory_order_relaxed);
}

Failure FailureDetector::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void FailureDetector::fail(int rank, std::string text) {
  const std::lock_guard lock(mutex_);
  if (failed()) return;
  failure_ = {rank, std::move(text)};
  failed_.store(true, std::memory_order_release);
  signal(abort_);
  signal(wake_);
  for (const auto& wake : wakes_) wake();
  changed_.notify_all();
}

void FailureDetector::give_up(const std::string& why) {
  fail(static_cast<int>(rank_), "rank " + std::to_string(rank_) + " gave up: " + why);
}

void FailureDetector::connection_broke(std::uint32_t rank, const std::string& why) {
  {
    std::unique_lock lock(mutex_);
    const auto until = std::chrono::system_clock::now() + heartbeat_timeout_;
    // With two ranks, no third rank can say which of them left first.
    changed_.wait_until(lock, until,
                        [&] { return failed() || (!pairwise_.empty() && peers_[rank].left); });
  }
  fail(static_cast<int>(rank),
       "the connection with rank " + std::to_string(rank) + " broke: " + why);
}

void FailureDetector::blame_late(std::uint32_t rank) {
  std::string what;
  {
    const std::lock_guard lock(mutex_);
    const Call& mine = current_;
    // Blame a peer that has not entered the call, not one that entered it and waits.
    const auto absent = [&](const Peer& peer) {
      return peer.connection && peer.told.sequence < mine.sequence;
    };
    const auto found = std::find_if(peers_.begin(), peers_.end(), absent);
    if (found != peers_.end() && pairwise_.empty())
      rank = static_cast<std::uint32_t>(found - peers_.begin());
    // Between two ranks no third rank can be the cause.
    if (pairwise_.empty()) rank = cause(rank);
    what = pairwise_.empty() ? describe(mine) : pairwise_;
  }
  fail(static_cast<int>(rank), "rank " + std::to_string(rank) +
                                   " lives but has not done its part of " + what +
                                   " in the time that timeout_ms allows");
}

std::uint32_t FailureDetector::cause(std::uint32_t rank) const {
  std::uint32_t last = rank;
  for (std::size_t steps = 0; steps < peers_.size(); ++steps) {
    // A rank that has gone on to another call does not wait for a rank in this one.
    if (last != rank_ && peers_[last].told.sequence > current_.sequence) return last;
    const std::uint32_t next =
        last == rank_ ? awaited_.load(std::memory_order_relaxed) : peers_[last].awaits;
    if (next == last || next >= peers_.size()) return last;
    last = next;
  }
  return rank;  // the ranks wait for each other
}

FailureDetector::Wait::Wait(FailureDetector& detector, std::uint32_t rank)
    : detector_(detector.caller_.load() == std::this_thread::get_id() ? &detector : nullptr) {
  if (detector_ != nullptr) detector_->awaited_.store(rank, std::memory_order_relaxed);
}

FailureDetector::Wait::~Wait() {
  if (detector_ == nullptr || Clock::now() >= detector_->deadline_) return;
  detector_->awaited_.store(detector_->rank_, std::memory_order_relaxed);
}

std::optional<FailureDetector::Wait> FailureDetector::may_wait(std::uint32_t rank) {
  std::optional<Wait> wait(std::in_place, *this, rank);
  if (Clock::now() < deadline_) return wait;
  blame_late(rank);
  return std::nullopt;
}

bool FailureDetector::same(std::uint32_t rank, const Call& theirs) {
  Call mine;
  {
    const std::lock_guard lock(mutex_);
    mine = current_;
  }
  return same(rank, theirs, mine);
}

bool FailureDetector::same(std::uint32_t rank, const Call& theirs, const Call& mine) {
  if (mine == theirs) return true;
  fail(static_cast<int>(rank), "rank " + std::to_string(rank) + " calls " + describe(theirs) +
                                   " where rank " + std::to_string(rank_) + " calls " +
                                   describe(mine) +
                                   ": all ranks must call the same, in the same order");
  return false;
}

bool FailureDetector::wait(base::Doorbell& bell, std::uint32_t seen, std::uint32_t rank) {
  if (failed()) return false;
  const auto waiting = may_wait(rank);
  if (!waiting) return false;
  const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(deadline_ - Clock::now());
  bell.wait(seen, std::max(left, std::chrono::nanoseconds(1)).count());
  return !failed();
}

void FailureDetector::send(Peer& peer, std::uint32_t type) {
  if (!peer.connection || peer.clogged) return;
  Frame frame;
  frame.type = type;
  {
    const std::lock_guard lock(mutex_);
    frame.call = current_;
    frame.awaited = awaited_.load(std::memory_order_relaxed) + 1;
    frame.culprit = failure_.rank;
    failure_.text.copy(frame.text.data(), frame.text.size() - 1);
  }
  const ssize_t sent =
      ::send(peer.connection.get(), &frame, sizeof frame, MSG_DONTWAIT | MSG_NOSIGNAL);
  peer.clogged = sent != static_cast<ssize_t>(sizeof frame);
}

void FailureDetector::handle(std::uint32_t rank, const Frame& frame) {
  const std::string who = "rank " + std::to_string(rank);
  if (frame.magic != kMagic) return fail(static_cast<int>(rank), who + " speaks another protocol");
  if (frame.type == kFailed) return fail(frame.culprit, std::string(frame.text.data()));
  Call mine;
  {
    const std::lock_guard lock(mutex_);
    peers_[rank].told = frame.call;
    peers_[rank].awaits = frame.awaited == 0 ? rank : frame.awaited - 1;
    peers_[rank].met = true;
    peers_[rank].left = frame.type == kBye;
    if (peers_[rank].left)
      for (const auto& wake : wakes_) wake();
    mine = current_;
    changed_.notify_all();
  }
  // Compare with the call that the heartbeat names: by now another may have begun.
  if (mine.sequence != 0 && mine.sequence == frame.call.sequence) same(rank, frame.call, mine);
}

void FailureDetector::receive(std::uint32_t rank, Clock::time_point now) {
  Peer& peer = peers_[rank];
  for (;;) {
    const ssize_t got = ::recv(peer.connection.get(), peer.bytes.data() + peer.got,
                               peer.bytes.size() - peer.got, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) {
      const std::string why = got < 0 ? std::strerror(errno) : "its connection is closed";
      {
        const std::lock_guard lock(mutex_);
        peer.connection = base::Fd();
      }
      if (!peer.left)
        fail(static_cast<int>(rank),
             "rank " + std::to_string(rank) + " has ended without a goodbye (" + why + ")");
      return;
    }
    peer.heard = now;
    peer.got += static_cast<std::size_t>(got);
    if (peer.got < peer.bytes.size()) continue;
    Frame frame;
    std::memcpy(&frame, peer.bytes.data(), sizeof frame);
    frame.text.back() = '\0';
    peer.got = 0;
    handle(rank, frame);
  }
}

void FailureDetector::judge(Clock::time_point now) {
  std::string silent;
  int first = -1;
  int gone = -1;
  Call mine;
  {
    const std::lock_guard lock(mutex_);
    mine = current_;
    for (std::uint32_t rank = 0; rank < peers_.size(); ++rank) {
      const Peer& peer = peers_[rank];
      if (busy_ && peer.left && peer.told.sequence < mine.sequence && gone < 0)
        gone = static_cast<int>(rank);
      if (!peer.connection || peer.left || !peer.met || now - peer.heard <= heartbeat_timeout_)
        continue;
      silent += (first < 0 ? " " : ", ") + std::to_string(rank);
      if (first < 0) first = static_cast<int>(rank);
    }
  }
  if (first >= 0)
    fail(first, "rank" + silent + " has said nothing for " +
                    std::to_string(heartbeat_timeout_.count()) +
                    " ms: stopped, its host is gone, or the network between is cut");
  if (gone >= 0)
    fail(gone,
         "rank " + std::to_string(gone) + " has left the communicator before " + describe(mine));
}

void FailureDetector::poll_peers(int timeout_ms) {
  std::vector<pollfd> files{{.fd = wake_.get(), .events = POLLIN, .revents = 0}};
  std::vector<std::uint32_t> ranks{rank_};
  for (std::uint32_t rank = 0; rank < peers_.size(); ++rank) {
    if (!peers_[rank].connection) continue;
    files.push_back({.fd = peers_[rank].connection.get(), .events = POLLIN, .revents = 0});
    ranks.push_back(rank);
  }
  if (::poll(files.data(), files.size(), timeout_ms) <= 0) return;
  const auto now = Clock::now();
  if (files[0].revents != 0) {
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t drained = ::read(wake_.get(), &count, sizeof count);
  }
  for (std::size_t i = 1; i < files.size(); ++i)
    if (files[i].revents != 0) receive(ranks[i], now);
}

void FailureDetector::run() {
  const auto interval = std::max(heartbeat_timeout_ / 5, milliseconds(10));
  auto next = Clock::now();
  auto last = Clock::now();
  bool announced = false;
  for (;;) {
    auto now = Clock::now();
    if (now >= next) {
      for (Peer& peer : peers_) send(peer, kHeartbeat);
      next = now + interval;
    }
    const auto left = std::chrono::duration_cast<milliseconds>(next - now).count();
    poll_peers(static_cast<int>(std::max<std::int64_t>(left, 0)) + 1);
    now = Clock::now();
    // This process was stopped itself, so its peers' heartbeats may still be unread. Restart the
    // timeout.
    if (now - last > heartbeat_timeout_ / 2)
      for (Peer& peer : peers_) peer.heard = now;
    last = now;
    judge(now);
    bool stopping = false;
    {
      const std::lock_guard lock(mutex_);
      stopping = stopping_;
    }
    if (failed() && !announced) {
      announced = true;
      for (Peer& peer : peers_) send(peer, kFailed);
    }
    if (!stopping) continue;
    if (!announced)
      for (Peer& peer : peers_) send(peer, kBye);
    return;
  }
}

}  // namespace paceline::comm
