// SPDX-License-Identifier: Apache-2.0
// The one thread that writes a rank's ring and hands it over: takes finished steps from a bounded
// queue, adds what needs system calls (resident memory), publishes, beats, connects to the
// telemetry socket and offers the ring again after every broken connection, at most once a second.
//
// Borrows the RingWriter, which must outlive it. `take` is for one thread at a time and never
// blocks: a full queue drops the step and counts it in the next record's lost_events. The socket is
// never waited for; a receiver that is absent, full or broken is tried again later. The destructor
// publishes what is queued and joins.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

#include "phase_machine.hpp"
#include "ring_writer.hpp"

namespace paceline::trace {

class Publisher final : public StepSink {
 public:
  Publisher(RingWriter& ring, const paceline_ring_header& identity, std::string socket_path);
  ~Publisher() override;
  Publisher(const Publisher&) = delete;
  Publisher& operator=(const Publisher&) = delete;

  /// Starts the thread, with every signal blocked: signals stay with the training program's
  /// threads.
  bool start();
  void take(const paceline_step_record& record) override;

  /// Publishes what is queued. Called by the thread; public for tests without one.
  void drain();
  /// Offers the ring if it is not offered, or finds out that the receiver is gone. Never blocks.
  void tend_socket(std::uint64_t now_ns);
  bool offered() const { return offered_; }

  /// In a forked child: gives up descriptors and the thread handle without touching what the thread
  /// owned.
  void abandon();

 private:
  static constexpr std::uint32_t kQueue = 256;
  static constexpr std::uint64_t kSecond = 1'000'000'000;

  void run();
  void offer();
  void disconnect();
  std::uint32_t resident_mib();

  RingWriter& ring_;
  const paceline_ring_header identity_;
  const std::string socket_path_;
  std::array<paceline_step_record, kQueue> queue_;
  std::atomic<std::uint32_t> head_{0};  // taken by the thread
  std::atomic<std::uint32_t> tail_{0};  // filled by the marks
  std::uint32_t lost_ = 0;
  int socket_ = -1;
  int statm_ = -1;
  bool offered_ = false;
  std::uint64_t tried_ns_ = 0;
  std::uint64_t beaten_ns_ = 0;
  std::uint64_t resident_ns_ = 0;
  std::uint32_t resident_ = 0;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace paceline::trace
