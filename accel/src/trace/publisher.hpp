// SPDX-License-Identifier: Apache-2.0
// The one thread that writes the ring of a rank and hands it over. It takes finished steps from a
// bounded queue, adds what needs system calls (resident memory), publishes them, and sends
// heartbeats. It connects to the telemetry socket and offers the ring again after every broken
// connection, at most once a second.
//
// Facts of a step that become known after it (device, NCCL, CUPTI) are published as amendments,
// after the record of their step: a reader drops an amendment whose step it does not know.
//
// Borrows the RingWriter, which must outlive it. One thread at a time may call `take`; any thread
// may call `amend`. Neither blocks: if a queue is full, the step or the amendment is dropped and
// counted in lost_events of the next step.
// No call waits for the socket; if the receiver is absent, full or broken, the thread tries again
// later. The destructor publishes the queued steps and joins.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.hpp"
#include "device_timeline.hpp"
#include "phase_machine.hpp"
#include "ring_writer.hpp"

namespace paceline::trace {

class Publisher final : public StepSink {
 public:
  /// `timeline`, if given, is asked for the device's times; it must outlive this.
  Publisher(RingWriter& ring, const paceline_ring_header& identity, std::string socket_path,
            DeviceTimeline* timeline = nullptr);
  ~Publisher() override;
  Publisher(const Publisher&) = delete;
  Publisher& operator=(const Publisher&) = delete;

  /// Starts the thread with all signals blocked, so that they go to the threads of the training
  /// program.
  bool start();
  void take(const paceline_step_record& record) override;
  /// Adds facts to step `facts.step` of this ring: exactly the fields whose bit of `valid` is set.
  /// Kind, version, attempt and ring epoch are filled in here. The step may still be running; the
  /// amendment then waits for it.
  void amend(const paceline_step_record& facts);

  /// Publishes the queued steps, then the amendments of published steps. The thread calls it; it is
  /// public for tests that run without a thread.
  void drain();
  /// Offers the ring if it is not offered, else checks whether the receiver is gone. Never blocks.
  void tend_socket(std::uint64_t now_ns);
  bool offered() const { return offered_; }

  /// Call in a forked child: closes descriptors and gives up the thread handle. It does not touch
  /// what the thread owned.
  void abandon();

 private:
  static constexpr std::uint32_t kQueue = 256;
  static constexpr std::size_t kAmendments = 256;
  static constexpr std::uint64_t kSecond = 1'000'000'000;

  void run();
  void ask_device();
  void publish_steps();
  void publish_amendments();
  void offer();
  void disconnect();
  std::uint32_t resident_mib();

  RingWriter& ring_;
  const paceline_ring_header identity_;
  const std::string socket_path_;
  DeviceTimeline* const timeline_;
  bool device_lost_ = false;
  std::array<paceline_step_record, kQueue> queue_;
  std::atomic<std::uint32_t> head_{0};  // next to take, moved by the thread
  std::atomic<std::uint32_t> tail_{0};  // next to fill, moved by the marks
  std::atomic<std::uint32_t> lost_{0};
  std::mutex amend_mutex_;
  std::vector<paceline_step_record> amendments_;  // under amend_mutex_
  std::vector<paceline_step_record> waiting_;     // of the thread: their step is not published
  std::uint64_t published_step_ = 0;              // of the thread
  base::Fd socket_;
  base::Fd statm_;
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
