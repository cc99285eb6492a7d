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
#include <optional>
#include <string>
#include <thread>
#include <utility>
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
  // `connections` has one for each rank, and an empty one for this rank.
  FailureDetector(std::uint32_t rank, std::vector<base::Fd> connections,
                  std::chrono::milliseconds heartbeat_timeout);
  ~FailureDetector();
  FailureDetector(const FailureDetector&) = delete;
  FailureDetector& operator=(const FailureDetector&) = delete;

  // False if the communicator has failed, or a rank that this call needs has left.
  bool begin(const Call& call, Clock::time_point deadline);
  void end();
  // The same for a call between two ranks, which the other ranks need not know of. `what` names it
  // in errors.
  bool begin_pairwise(std::string what, Clock::time_point deadline);
  bool has_left(std::uint32_t rank) const;  // whether the rank has said goodbye
  // Whether the rank's process or communicator has ended, so that its connection is closed.
  bool is_disconnected(std::uint32_t rank) const;
  void stop();  // says goodbye, or tells the peers the failure
  // In a forked child, which has only its own thread: closes the connections.
  void forked();

  bool failed() const { return failed_.load(std::memory_order_acquire); }
  Failure failure() const;
  void fail(int rank, std::string text);
  void give_up(const std::string& why);  // fails for a reason of this rank
  // The connection with `rank` that carries data broke. Waits for the peer's own failure report,
  // and reports the broken connection if none comes.
  void connection_broke(std::uint32_t rank, const std::string& why);
  // The call ran out of time while this rank waited for `rank`. Follow the latest heartbeats from
  // `rank` to the rank that it waits for, and so on, and blame the last.
  void blame_late(std::uint32_t rank);
  // While it lives, heartbeats report that this rank waits for `rank`. Afterwards they report that
  // this rank works: if its thread hangs between two waits, this rank is the one to blame. A wait
  // that the end of the call's time ends stays reported, since all threads and ranks judge then.
  // Only waits of the call's own thread are reported.
  class Wait {
   public:
    Wait(FailureDetector& detector, std::uint32_t rank);
    ~Wait();
    Wait(Wait&& other) noexcept : detector_(std::exchange(other.detector_, nullptr)) {}
    Wait& operator=(Wait&&) = delete;

   private:
    FailureDetector* detector_;  // null in another thread than the call's
  };
  // Returns the wait for `rank` that begins now. If the call has no time left, it blames that rank
  // and returns nothing.
  std::optional<Wait> may_wait(std::uint32_t rank);
  // Compares the two calls. False after the communicator has failed because they differ.
  bool same(std::uint32_t rank, const Call& theirs);

  int abort_fd() const { return abort_.get(); }  // readable after a failure
  Clock::time_point deadline() const { return deadline_; }
  std::chrono::milliseconds heartbeat_timeout() const { return heartbeat_timeout_; }
  void on_change(
      std::function<void()> wake);  // `wake` is called on a failure and when a rank leaves

  // Waits until `bell` rings after `seen`. At the end of the call's time, `rank` is late. Returns
  // false after a failure.
  bool wait(base::Doorbell& bell, std::uint32_t seen, std::uint32_t rank);

 private:
  struct Peer;
  struct Frame;

  void run();
  bool same(std::uint32_t rank, const Call& theirs, const Call& mine);
  std::uint32_t cause(std::uint32_t rank) const;
  void send(Peer& peer, std::uint32_t type);
  void receive(std::uint32_t rank, Clock::time_point now);
  void handle(std::uint32_t rank, const Frame& frame);
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
  std::string pairwise_;  // the name of a call between two ranks; empty otherwise
  bool busy_ = false;
  bool stopping_ = false;
  Clock::time_point deadline_;  // set by the caller's thread, read by its other threads
  std::atomic<std::thread::id> caller_;
  std::atomic<std::uint32_t> awaited_;  // the rank that the caller waits for; this rank: none
  std::vector<std::function<void()>> wakes_;
  std::thread thread_;
};

}  // namespace paceline::comm
