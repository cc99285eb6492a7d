// SPDX-License-Identifier: Apache-2.0
// Moves data around a ring of ranks. Start reading this room here. A collective is a list of steps.
// Each step sends one piece and receives one, which is added to local data or stored. Most steps
// send what the step before received, while it still comes in (cut-through). So the wire idles for
// one latency in all, not for one in each step. A thread of its own sends, so full buffers cannot
// deadlock the ring.
//
// Ownership: of its links and threads; the caller owns buffers. Threads: one call at a time.
// Failure: false; the failure detector has the reason.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "comm/codec/coding.hpp"
#include "comm/codec/sum.hpp"
#include "comm/collective/worker.hpp"
#include "comm/failure/call.hpp"
#include "comm/failure/failure_detector.hpp"
#include "comm/failure/progress.hpp"
#include "comm/transport/link.hpp"

namespace paceline::comm {

struct Step {
  const std::byte* out = nullptr;
  std::size_t out_bytes = 0;
  std::int64_t after = -1;  // the step that received the bytes which this step sends
  std::byte* in = nullptr;
  std::int64_t over = -1;  // the step that sent the bytes which this step replaces
  std::size_t in_bytes = 0;
  const std::byte* own = nullptr;  // in = received + own; if null, in = received
  std::uint64_t gate = 0;          // begins when this many chunks have been opened
  // How received data is coded: in = coded(received + own + residual), all floats. If null, it is
  // added without coding.
  const Coding* coding = nullptr;
  float* residual = nullptr;
};

// Part i of n nearly equal parts, in elements.
struct Part {
  std::uint64_t begin;
  std::uint64_t count;
};
Part part_of(std::uint64_t count, std::uint64_t n, std::uint64_t i);

// Adds the steps of an in-place allreduce to `steps`, for the rank at `position` of `n`.
void add_all_reduce(std::vector<Step>& steps, std::byte* data, std::uint64_t count,
                    std::size_t size, std::uint32_t n, std::uint32_t position,
                    std::uint64_t gate = 0);

class Ring {
 public:
  struct Hooks {
    std::function<void(std::uint64_t)> sent;      // called with the number of steps sent
    std::function<void(std::uint64_t)> received;  // called with the number of steps received
  };

  Ring(std::unique_ptr<SendLink> next, std::unique_ptr<ReceiveLink> previous,
       FailureDetector& detector);

  void stripe(std::uint32_t flows);  // between calls; see link.hpp
  std::uint32_t previous() const { return previous_->peer(); }

  bool run(const Call& call, Type type, const std::vector<Step>& steps);
  // The same in two halves, so that the caller can work meanwhile and open chunks as they become
  // ready.
  void start(const Call& call, Type type, std::vector<Step> steps, Hooks hooks);
  void open(std::uint64_t chunks);
  void finish();

 private:
  void prepare(const std::vector<Step>& steps);
  bool send_all(const Call& call, const std::vector<Step>& steps, const Hooks& hooks);
  bool send_step(const std::vector<Step>& steps, const Step& step, std::uint64_t& position);
  bool receive_all(Type type, const std::vector<Step>& steps, const Hooks& hooks);
  void take_coded(const Step& step, std::size_t at, std::size_t size);
  bool receive_step(Type type, const Step& step, std::uint64_t& position);

  std::unique_ptr<SendLink> next_;
  std::unique_ptr<ReceiveLink> previous_;
  FailureDetector& detector_;
  Progress opened_to_sender_;
  Progress opened_to_receiver_;
  Progress received_;  // in bytes
  Progress sent_;      // in bytes
  std::vector<std::byte> block_;
  std::vector<Step> steps_;
  std::vector<std::uint64_t> in_begins_;   // where each step's received bytes begin
  std::vector<std::uint64_t> out_begins_;  // where each step's sent bytes begin
  Hooks hooks_;
  // Declared last, so that the threads end before what they use.
  Worker sender_;
  Worker receiver_;
};

}  // namespace paceline::comm
