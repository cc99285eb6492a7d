// SPDX-License-Identifier: Apache-2.0
#include "publisher.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <system_error>

#include "base/clock.hpp"

namespace paceline::trace {
namespace {

// Rare enough to cost nothing and often enough for a live table. The queue has room for 256 steps
// meanwhile.
constexpr auto kPeriod = std::chrono::milliseconds(50);

}  // namespace

Publisher::Publisher(RingWriter& ring, const paceline_ring_header& identity,
                     std::string socket_path, DeviceTimeline* timeline)
    : ring_(ring),
      identity_(identity),
      socket_path_(std::move(socket_path)),
      timeline_(timeline),
      statm_(::open("/proc/self/statm", O_RDONLY | O_CLOEXEC)) {
  // `amend` must not allocate: a callback of a driver may call it.
  amendments_.reserve(kAmendments);
  waiting_.reserve(2 * kAmendments);
}

Publisher::~Publisher() {
  if (thread_.joinable()) {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }
  drain();
}

bool Publisher::start() {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  if (::pthread_sigmask(SIG_SETMASK, &all, &before) != 0) return false;
  bool started = true;
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error&) {
    started = false;  // no thread (a pids limit): the caller continues without telemetry
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return started;
}

void Publisher::take(const paceline_step_record& record) {
  const std::uint32_t tail = tail_.load(std::memory_order_relaxed);
  if (tail - head_.load(std::memory_order_acquire) == kQueue) {
    lost_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  paceline_step_record& slot = queue_[tail % kQueue];
  slot = record;
  slot.lost_events = lost_.exchange(0, std::memory_order_relaxed);
  slot.valid |= PACELINE_VALID_LOST_EVENTS;
  tail_.store(tail + 1, std::memory_order_release);
}

void Publisher::amend(const paceline_step_record& facts) {
  const std::lock_guard lock(amend_mutex_);
  if (amendments_.size() == kAmendments) {
    lost_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  paceline_step_record& record = amendments_.emplace_back(facts);
  record.version = PACELINE_RECORD_VERSION;
  record.bytes = sizeof(record);
  record.kind = PACELINE_KIND_AMENDMENT;
  record.attempt = identity_.attempt;
  record.ring_epoch = identity_.ring_epoch;
}

void Publisher::ask_device() {
  if (timeline_ == nullptr) return;
  timeline_->poll([this](const paceline_step_record& facts) {
    if (facts.ring_epoch == identity_.ring_epoch) amend(facts);
  });
  if (!device_lost_ && timeline_->lost()) {
    device_lost_ = true;
    ring_.withdraw(PACELINE_CAPABILITY_DEVICE_EVENTS);
  }
}

void Publisher::drain() {
  ask_device();
  publish_steps();
  publish_amendments();
}

void Publisher::publish_steps() {
  std::uint32_t head = head_.load(std::memory_order_relaxed);
  const std::uint32_t tail = tail_.load(std::memory_order_acquire);
  for (; head != tail; ++head) {
    paceline_step_record& record = queue_[head % kQueue];
    record.attempt = identity_.attempt;
    record.ring_epoch = identity_.ring_epoch;
    record.rss_mib = resident_mib();
    if (record.rss_mib != 0) record.valid |= PACELINE_VALID_RSS_MIB;
    ring_.publish(record);
    published_step_ = record.step;
    head_.store(head + 1, std::memory_order_release);
  }
}

void Publisher::publish_amendments() {
  {
    const std::lock_guard lock(amend_mutex_);
    const std::size_t room = 2 * kAmendments - waiting_.size();
    const std::size_t taken = std::min(room, amendments_.size());
    waiting_.insert(waiting_.end(), amendments_.begin(),
                    amendments_.begin() + static_cast<std::ptrdiff_t>(taken));
    lost_.fetch_add(static_cast<std::uint32_t>(amendments_.size() - taken),
                    std::memory_order_relaxed);
    amendments_.clear();
  }
  std::erase_if(waiting_, [this](const paceline_step_record& record) {
    if (record.step > published_step_) return false;
    ring_.publish(record);
    return true;
  });
}

std::uint32_t Publisher::resident_mib() {
  const std::uint64_t now = base::monotonic_ns();
  if (!statm_ || (resident_ns_ != 0 && now - resident_ns_ < kSecond)) return resident_;
  resident_ns_ = now;
  char text[128];
  const ssize_t got = ::pread(statm_.get(), text, sizeof(text) - 1, 0);
  text[got > 0 ? got : 0] = '\0';
  unsigned long size = 0;
  unsigned long resident = 0;
  if (std::sscanf(text, "%lu %lu", &size, &resident) == 2) {
    resident_ = static_cast<std::uint32_t>(
        resident * static_cast<unsigned long>(::sysconf(_SC_PAGESIZE)) >> 20U);
  }
  return resident_;
}

void Publisher::run() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    lock.unlock();
    const std::uint64_t now = base::monotonic_ns();
    if (beaten_ns_ == 0 || now - beaten_ns_ >= kSecond) {
      beaten_ns_ = now;
      ring_.beat(now);
    }
    drain();
    tend_socket(now);
    lock.lock();
    wake_.wait_for(lock, kPeriod, [this] { return stop_; });
  }
  // Offer the ring now if it was not offered yet, as in a job shorter than a second.
  lock.unlock();
  drain();
  if (!offered_) {
    tried_ns_ = 0;
    tend_socket(base::monotonic_ns());
  }
  ring_.beat(0);
}

void Publisher::tend_socket(std::uint64_t now_ns) {
  if (socket_path_.empty()) return;
  if (offered_) {
    char byte;
    const ssize_t got = ::recv(socket_.get(), &byte, 1, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
    if (got > 0) return;  // the receiver never answers, so any bytes are dropped
    disconnect();
  }
  if (tried_ns_ != 0 && now_ns - tried_ns_ < kSecond) return;
  tried_ns_ = now_ns;
  offer();
}

void Publisher::offer() {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket_path_.size() >= sizeof(address.sun_path)) return;
  std::memcpy(address.sun_path, socket_path_.c_str(), socket_path_.size() + 1);
  socket_ = base::Fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket_) return;
  if (::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    disconnect();
    return;
  }
  paceline_ring_offer offer{};
  offer.magic = PACELINE_OFFER_MAGIC;
  offer.version = PACELINE_OFFER_VERSION;
  offer.size = sizeof(offer);
  offer.world_rank = identity_.world_rank;
  offer.local_rank = identity_.local_rank;
  offer.pid = identity_.pid;
  offer.ring_epoch = identity_.ring_epoch;
  offer.attempt = identity_.attempt;
  iovec part{&offer, sizeof(offer)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int));
  const int fd = ring_.fd();
  std::memcpy(CMSG_DATA(rights), &fd, sizeof(fd));
  if (::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT) !=
      static_cast<ssize_t>(sizeof(offer))) {
    disconnect();
    return;
  }
  offered_ = true;
}

void Publisher::disconnect() {
  socket_ = {};
  offered_ = false;
}

void Publisher::abandon() {
  disconnect();
  statm_ = {};
}

}  // namespace paceline::trace
