// SPDX-License-Identifier: Apache-2.0
#include "common/telemetry/ring/amendment_merger.hpp"

#include <algorithm>
#include <chrono>

namespace paceline::telemetry {
namespace {

constexpr std::size_t kWindowSteps = 64;
constexpr std::chrono::nanoseconds kWindowTime = std::chrono::seconds(5);
constexpr std::chrono::nanoseconds kLongestWindow = std::chrono::minutes(2);

std::chrono::nanoseconds window_of(const paceline_step_record& record) {
  const std::chrono::nanoseconds wall(static_cast<std::int64_t>(record.wall_ns));
  return std::clamp(wall < kLongestWindow ? 2 * wall : kLongestWindow, kWindowTime, kLongestWindow);
}

}  // namespace

void apply_amendment(paceline_step_record& step, const paceline_step_record& amendment) {
  const std::uint64_t valid = amendment.valid;
#define PACELINE_TAKE(bit, field) \
  if ((valid & (bit)) != 0) step.field = amendment.field
  PACELINE_TAKE(PACELINE_VALID_USER_STEP, user_step);
  if ((valid & PACELINE_VALID_HOST_NS) != 0)
    std::copy(std::begin(amendment.host_ns), std::end(amendment.host_ns), step.host_ns);
  if ((valid & PACELINE_VALID_DEVICE_NS) != 0)
    std::copy(std::begin(amendment.device_ns), std::end(amendment.device_ns), step.device_ns);
  PACELINE_TAKE(PACELINE_VALID_DEVICE_WINDOW_NS, device_window_ns);
  PACELINE_TAKE(PACELINE_VALID_COMM_TOTAL_NS, comm_total_ns);
  PACELINE_TAKE(PACELINE_VALID_COMM_EXPOSED_NS, comm_exposed_ns);
  PACELINE_TAKE(PACELINE_VALID_COMM_PEER_WAIT_NS, comm_peer_wait_ns);
  PACELINE_TAKE(PACELINE_VALID_COMM_PAYLOAD_BYTES, comm_payload_bytes);
  PACELINE_TAKE(PACELINE_VALID_COMM_WIRE_BYTES, comm_wire_bytes);
  PACELINE_TAKE(PACELINE_VALID_COLLECTIVE_SEQ_LAST, collective_seq_last);
  PACELINE_TAKE(PACELINE_VALID_COMM_OPS, comm_ops);
  PACELINE_TAKE(PACELINE_VALID_GROUP_COUNT, group_count);
  PACELINE_TAKE(PACELINE_VALID_SAMPLES, samples);
  PACELINE_TAKE(PACELINE_VALID_TOKENS, tokens);
  PACELINE_TAKE(PACELINE_VALID_H2D_BYTES, h2d_bytes);
  PACELINE_TAKE(PACELINE_VALID_DEVICE_MEM_PEAK, device_mem_peak);
  PACELINE_TAKE(PACELINE_VALID_MICRO_BATCHES, micro_batches);
  PACELINE_TAKE(PACELINE_VALID_OPTIMIZERS_STEPPED, optimizers_stepped);
  PACELINE_TAKE(PACELINE_VALID_PP_STAGE, pp_stage);
  PACELINE_TAKE(PACELINE_VALID_VPP_CHUNKS, vpp_chunks);
  PACELINE_TAKE(PACELINE_VALID_KERNELS, kernels);
  PACELINE_TAKE(PACELINE_VALID_GRAPH_LAUNCHES, graph_launches);
  PACELINE_TAKE(PACELINE_VALID_LOADER_READY, loader_ready);
  PACELINE_TAKE(PACELINE_VALID_LOADER_MISSES, loader_misses);
  PACELINE_TAKE(PACELINE_VALID_LOSS_SCALE, loss_scale);
  PACELINE_TAKE(PACELINE_VALID_LOADER_WAIT_MAX_US, loader_wait_max_us);
  PACELINE_TAKE(PACELINE_VALID_RSS_MIB, rss_mib);
  PACELINE_TAKE(PACELINE_VALID_OVERHEAD_NS, overhead_ns);
  PACELINE_TAKE(PACELINE_VALID_LOST_EVENTS, lost_events);
#undef PACELINE_TAKE
  // Each group of four bits belongs to one partition and changes only with it.
  for (std::size_t phase = 0; phase < PACELINE_PHASE_COUNT; ++phase) {
    unsigned source = step.source[phase];
    if ((valid & PACELINE_VALID_HOST_NS) != 0)
      source = (source & 0xf0u) | (amendment.source[phase] & 0x0fu);
    if ((valid & PACELINE_VALID_DEVICE_NS) != 0)
      source = (source & 0x0fu) | (amendment.source[phase] & 0xf0u);
    step.source[phase] = static_cast<std::uint8_t>(source);
  }
  step.valid |= valid & ~PACELINE_VALID_AMENDS_SEQ;
  step.flags |= amendment.flags;
}

void AmendmentMerger::add(const paceline_step_record& record, SteadyTime now, const Take& take) {
  if (record.kind == PACELINE_KIND_AMENDMENT) {
    const auto same = std::find_if(waiting_.rbegin(), waiting_.rend(), [&](const Waiting& waiting) {
      return waiting.record.step == record.step && waiting.record.attempt == record.attempt &&
             waiting.record.ring_epoch == record.ring_epoch;
    });
    if (same == waiting_.rend()) {
      ++late_;
    } else {
      apply_amendment(same->record, record);
    }
    return;
  }
  if (record.kind != PACELINE_KIND_STEP) return;
  if (!expects_amendments_) {
    take(record);
    return;
  }
  waiting_.push_back({record, now});
  if (waiting_.size() > kWindowSteps) {
    take(waiting_.front().record);
    waiting_.pop_front();
  }
}

void AmendmentMerger::expire(SteadyTime now, const Take& take) {
  while (!waiting_.empty() && now - waiting_.front().since >= window_of(waiting_.front().record)) {
    take(waiting_.front().record);
    waiting_.pop_front();
  }
}

void AmendmentMerger::flush(const Take& take) {
  for (const Waiting& waiting : waiting_) take(waiting.record);
  waiting_.clear();
}

}  // namespace paceline::telemetry
