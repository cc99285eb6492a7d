// SPDX-License-Identifier: Apache-2.0
#include "comm/collective/ring.hpp"

#include <algorithm>
#include <array>
#include <limits>

namespace paceline::comm {
namespace {

// Small enough to stay in the cache between receiving and adding; a multiple of every element's
// size.
constexpr std::size_t kBlockBytes = 64UL * 1024;
constexpr std::size_t kMostAtOnce = 256UL * 1024;
constexpr std::uint64_t kOpen = std::numeric_limits<std::uint64_t>::max();

std::vector<std::uint64_t> begins_of(const std::vector<Step>& steps, std::size_t Step::* bytes) {
  std::vector<std::uint64_t> begins;
  std::uint64_t at = 0;
  for (const Step& step : steps) {
    begins.push_back(at);
    at += step.*bytes;
  }
  return begins;
}

}  // namespace

Part part_of(std::uint64_t count, std::uint64_t n, std::uint64_t i) {
  const std::uint64_t each = count / n;
  const std::uint64_t more = count % n;
  return {.begin = each * i + std::min(i, more), .count = each + (i < more ? 1 : 0)};
}

void add_all_reduce(std::vector<Step>& steps, std::byte* data, std::uint64_t count,
                    std::size_t size, std::uint32_t n, std::uint32_t position, std::uint64_t gate) {
  for (std::uint32_t s = 0; s < 2 * (n - 1); ++s) {
    // Part p starts at rank p, is complete at rank p - 1, and then goes around once more.
    const Part out = part_of(count, n, (position + 2 * n - s) % n);
    const Part in = part_of(count, n, (position + 2 * n - s - 1) % n);
    std::byte* const target = data + in.begin * size;
    const auto index = static_cast<std::int64_t>(steps.size());
    steps.push_back({.out = data + out.begin * size,
                     .out_bytes = out.count * size,
                     .after = s == 0 ? -1 : index - 1,
                     .in = target,
                     .over = s < n - 1 ? -1 : index + 1 - n,
                     .in_bytes = in.count * size,
                     .own = s < n - 1 ? target : nullptr,
                     .gate = gate});
  }
}

Ring::Ring(std::unique_ptr<SendLink> next, std::unique_ptr<ReceiveLink> previous,
           FailureDetector& detector)
    : next_(std::move(next)),
      previous_(std::move(previous)),
      detector_(detector),
      opened_to_sender_(detector),
      opened_to_receiver_(detector),
      received_(detector),
      sent_(detector),
      block_(kBlockBytes) {}

void Ring::stripe(std::uint32_t flows) {
  next_->stripe(flows);
  previous_->stripe(flows);
}

void Ring::open(std::uint64_t chunks) {
  opened_to_sender_.set(chunks);
  opened_to_receiver_.set(chunks);
}

bool Ring::send_step(const std::vector<Step>& steps, const Step& step, std::uint64_t& position) {
  const std::uint64_t begin = step.after < 0 ? 0 : in_begins_[static_cast<std::size_t>(step.after)];
  for (std::size_t at = 0; at < step.out_bytes;) {
    std::size_t ready = std::min(step.out_bytes - at, kMostAtOnce);
    if (step.after >= 0) {
      const std::size_t least = std::min(step.out_bytes - at, kBlockBytes);
      if (!received_.wait(begin + at + least, previous_->peer())) return false;
      const Step& from = steps[static_cast<std::size_t>(step.after)];
      ready = std::min<std::uint64_t>(
          ready, std::min(received_.get(), begin + from.in_bytes) - begin - at);
    }
    if (!next_->send(step.out + at, ready)) return false;
    at += ready;
    position += ready;
    sent_.set(position);
  }
  return true;
}

bool Ring::send_all(const Call& call, const std::vector<Step>& steps, const Hooks& hooks) {
  if (!next_->send(reinterpret_cast<const std::byte*>(&call), sizeof call)) return false;
  std::uint64_t position = 0;
  std::uint64_t done = 0;
  for (const Step& step : steps) {
    if (!opened_to_sender_.wait(step.gate, previous_->peer()) || !send_step(steps, step, position))
      return false;
    ++done;
    if (hooks.sent) hooks.sent(done);
  }
  return next_->flush();
}

void Ring::take_coded(const Step& step, std::size_t at, std::size_t size) {
  const Grain grain = grain_of(step.coding->codec);
  const std::size_t head =
      grain.bytes - grain.values;  // overhead of a grain, whatever the number of its values
  const std::size_t left = size % grain.bytes;
  const std::size_t begin = at / grain.bytes * grain.values;
  const std::size_t count = grain.values == 1
                                ? size / grain.bytes
                                : size / grain.bytes * grain.values + (left == 0 ? 0 : left - head);
  recode(*step.coding, block_.data(), reinterpret_cast<const float*>(step.own) + begin,
         step.residual + begin, step.in + at, count);
}

bool Ring::receive_step(Type type, const Step& step, std::uint64_t& position) {
  for (std::size_t at = 0; at < step.in_bytes;) {
    // Coded values are received in whole grains, which decode on their own.
    const std::size_t most =
        step.coding == nullptr
            ? kBlockBytes
            : kBlockBytes / grain_of(step.coding->codec).bytes * grain_of(step.coding->codec).bytes;
    const std::size_t size = std::min(step.in_bytes - at, most);
    std::byte* const target = step.in + at;
    // Wait until the bytes have been sent before they are replaced. This orders the two threads.
    // What has not been sent waits for the next rank to read.
    if (step.over >= 0 &&
        !sent_.wait(out_begins_[static_cast<std::size_t>(step.over)] + at + size, next_->peer()))
      return false;
    if (!previous_->receive(step.own == nullptr ? target : block_.data(), size)) return false;
    if (step.coding != nullptr) {
      take_coded(step, at, size);
    } else if (step.own != nullptr) {
      sum(type, target, std::array<const std::byte*, 2>{block_.data(), step.own + at},
          size / size_of(type));
    }
    at += size;
    position += size;
    received_.set(position);
  }
  return true;
}

bool Ring::receive_all(Type type, const std::vector<Step>& steps, const Hooks& hooks) {
  Call theirs;
  if (!previous_->receive(reinterpret_cast<std::byte*>(&theirs), sizeof theirs)) return false;
  if (!detector_.same(previous_->peer(), theirs)) return false;
  std::uint64_t position = 0;
  std::uint64_t done = 0;
  for (const Step& step : steps) {
    if (!opened_to_receiver_.wait(step.gate, previous_->peer()) ||
        !receive_step(type, step, position))
      return false;
    ++done;
    if (hooks.received) hooks.received(done);
  }
  return true;
}

void Ring::prepare(const std::vector<Step>& steps) {
  received_.set(0);
  sent_.set(0);
  in_begins_ = begins_of(steps, &Step::in_bytes);
  out_begins_ = begins_of(steps, &Step::out_bytes);
}

bool Ring::run(const Call& call, Type type, const std::vector<Step>& steps) {
  open(kOpen);
  prepare(steps);
  sender_.start([&] { send_all(call, steps, {}); });
  receive_all(type, steps, {});
  finish();
  return !detector_.failed();
}

void Ring::start(const Call& call, Type type, std::vector<Step> steps, Hooks hooks) {
  open(0);
  steps_ = std::move(steps);
  prepare(steps_);
  hooks_ = std::move(hooks);
  sender_.start([this, call] { send_all(call, steps_, hooks_); });
  receiver_.start([this, type] { receive_all(type, steps_, hooks_); });
}

void Ring::finish() {
  // All has been received, or the call has failed. Only the next rank can still delay the sender.
  const FailureDetector::Wait waiting(detector_, next_->peer());
  sender_.wait();
  receiver_.wait();
}

}  // namespace paceline::comm
