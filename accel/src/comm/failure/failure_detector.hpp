// SPDX-License-Identifier: Apache-2.0
// Detects failures of the other ranks of a communicator, on a thread of its own and over a
// connection with each rank. Every link and collective waits through it, so that a lost rank ends
// each wait.
//
// Heartbeats say that a rank lives, which call it is in and which rank it waits for. A closed
// connection says that the rank has ended. The first failure is final. The detector tells it to all
// peers, with the rank to blame, and wakes every wait of this rank.
//
// Ownership: of the connections and the thread; the callbacks that it wakes outlive it. Threads:
// any. Failure: every wait returns false after a failure; failure() has the text.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/doorbell.hpp"
#include "base/fd.hpp"
#include "comm/failure/call.hpp"

namespace paceline::comm {

using Clock = std::chrono::steady_clock;

struct Failure {
  int rank = -1;
  std::string text;
};

class FailureDetector {
 public:
  // `connections`: one for each rank, none for this one.
  FailureDetector(std::uint32_t rank, std::vector<base::Fd> connections,
                  std::chrono::milliseconds heartbeat_timeout);
  ~FailureDetector();
  FailureDetector(const FailureDetector&) = delete;
  FailureDetector& operator=(const FailureDetector&) = delete;

  // False where the communicator has failed, or a rank that this call needs has left.
  bool begin(const Call& call, Clock::time_point deadline);
  void end();
  // The same for what two ranks do by themselves, which the others need not know of; `what` for
  // errors.
  bool begin_pairwise(std::string what, Clock::time_point deadline);
  bool has_left(std::uint32_t rank) const;  // has said goodbye
  // Its process or its communicator has ended: it has no connection with this one any more.
  bool is_disconnected(std::uint32_t rank) const;
  void stop();  // says goodbye, or why not
  // in a child, which has no thread but its own: closes the connections
  void forked();

  bool failed() const { return failed_.load(std::memory_order_acquire); }
  Failure failure() const;
  void fail(int rank, std::string text);
  void give_up(const std::string& why);  // of this rank's own
  // The connection with `rank` that carries data broke. Waits for the peer's own failure report,
  // and reports the broken connection if none comes.
  void connection_broke(std::uint32_t rank, const std::string& why);
  // The time of the call in progress is over while `rank` was waited for: it is to blame, or
  // whoever it waits for itself by its latest heartbeat, and so on.
  void blame_late(std::uint32_t rank);
  // Beats tell that the thread of the call waits for `rank`; who waits on another thread tells
  // nothing.
  void waits_for(std::uint32_t rank);
  // The same, and whether there is time left to; else it is late.
  bool may_wait(std::uint32_t rank);
  // False after it has failed for a difference.
  bool same(std::uint32_t rank, const Call& theirs);

  int abort_fd() const { return abort_.get(); }  // readable once failed
  Clock::time_point deadline() const { return deadline_; }
  std::chrono::milliseconds heartbeat_timeout() const { return heartbeat_timeout_; }
  void on_change(std::function<void()> wake);  // woken by a failure, and where a rank leaves

  // Waits for a ring of `bell` since `seen`, at most until the call's time is over:
  // then `rank` is late. False: failed.
  bool wait(base::Doorbell& bell, std::uint32_t seen, std::uint32_t rank);

 private:
  struct Peer;
  struct Frame;

  void run();
  bool same(std::uint32_t rank, const Call& theirs, const Call& mine);
  std::uint32_t cause(std::uint32_t rank) const;
  void send(Peer& peer, std::uint32_t type);
  void receive(std::uint32_t rank, Clock::time_point now);
  void hear(std::uint32_t rank, const Frame& frame);
  void judge(Clock::time_point now);
  void poll_peers(int timeout_ms);

  const std::uint32_t rank_;
  const std::chrono::milliseconds heartbeat_timeout_;
  std::vector<Peer> peers_;
  base::Fd abort_;
  base::Fd wake_;
  std::atomic<bool> failed_{false};
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Failure failure_;
  Call current_;
  std::string pairwise_;  // empty but for what is no call of all
  bool busy_ = false;
  bool stopping_ = false;
  Clock::time_point deadline_;  // of the caller, for its threads
  std::thread::id caller_;
  std::atomic<std::uint32_t> awaited_;  // the rank that the caller waits for; this one: none
  std::vector<std::function<void()>> wakes_;
  std::thread thread_;
};

}  // namespace paceline::comm
