// SPDX-License-Identifier: Apache-2.0
// Arrays so small that steps cost more than bytes: allreduces by halving and doubling or along a
// tree, and broadcasts along a tree, in log2 n steps where a ring has n. What is added has a fixed
// order, lower positions first, so all ranks have the same bits.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "comm/communicator/communicator.hpp"

namespace paceline::comm {
namespace {

constexpr std::uint64_t kWhole =
    2048;  // from this many bytes on, sending halves pays for its extra steps

// Only a power of two of the ranks, the core, takes part in the steps. Each other rank first gives
// its array to a neighbour in the core.
struct Folded {
  std::uint32_t core;   // how many ranks take part in the steps
  std::uint32_t extra;  // how many do not: the odd positions below 2 * extra

  explicit Folded(std::uint32_t ranks) : core(std::bit_floor(ranks)), extra(ranks - core) {}
  bool folds(std::uint32_t position) const { return position < 2 * extra; }
  std::uint32_t number(std::uint32_t position) const {
    return folds(position) ? position / 2 : position - extra;
  }
  std::uint32_t position(std::uint32_t number) const {
    return number < extra ? 2 * number : number + extra;
  }
};

}  // namespace

// Sends the call's header and the bytes as one message, because a small transfer costs by the
// message.
bool Communicator::send_message(std::uint32_t position, const Call& call, const std::byte* data,
                                std::uint64_t bytes) {
  SendLink* const link = direct_->to(at(position), Channel::kTogether);
  if (link == nullptr) return false;
  out_buffer_.resize(sizeof call + bytes);
  std::memcpy(out_buffer_.data(), &call, sizeof call);
  if (bytes > 0) std::memcpy(out_buffer_.data() + sizeof call, data, bytes);
  return link->send(out_buffer_.data(), out_buffer_.size()) && link->flush();
}

bool Communicator::receive_message(std::uint32_t position, std::byte* data, std::uint64_t bytes) {
  const std::uint32_t peer = at(position);
  ReceiveLink* const link = direct_->from(peer, Channel::kTogether);
  Call theirs;
  if (link == nullptr || !link->receive(reinterpret_cast<std::byte*>(&theirs), sizeof theirs))
    return false;
  return detector_->same(peer, theirs) && (bytes == 0 || link->receive(data, bytes));
}

// Exchanges data with one peer. If the link cannot buffer the data, a second thread sends it.
// Without it both ranks would wait for each other to read.
bool Communicator::exchange_with(std::uint32_t position, const Call& call, const std::byte* out,
                                 std::uint64_t out_bytes, std::byte* in, std::uint64_t in_bytes) {
  SendLink* const link = direct_->to(at(position), Channel::kTogether);
  if (link == nullptr) return false;
  if (sizeof call + out_bytes <= link->buffer_bytes())
    return send_message(position, call, out, out_bytes) && receive_message(position, in, in_bytes);
  sender_.start([&] { send_message(position, call, out, out_bytes); });
  const bool received = receive_message(position, in, in_bytes);
  const FailureDetector::Wait waiting(*detector_, at(position));
  sender_.wait();
  return received && !detector_->failed();
}

// held = lower + higher. One of them is in `held`, the other was received.
void Communicator::add_received(Type type, std::byte* held, std::uint64_t count,
                                bool received_is_higher) {
  std::array<const std::byte*, 2> both{held, in_buffer_.data()};
  if (!received_is_higher) std::swap(both[0], both[1]);
  sum(type, held, both, count);
}

bool Communicator::sum_doubling(const Call& call, std::byte* data, std::uint64_t count, Type type) {
  const std::size_t size = size_of(type);
  const Folded fold(ranks());
  const std::uint32_t position = topology_.position;
  in_buffer_.resize(count * size);
  if (fold.folds(position) && position % 2 == 1)
    return send_message(position - 1, call, data, count * size) &&
           receive_message(position - 1, data, count * size);
  if (fold.folds(position)) {
    if (!receive_message(position + 1, in_buffer_.data(), count * size)) return false;
    add_received(type, data, count, true);
  }
  const std::uint32_t number = fold.number(position);
  const bool halved = count * size >= kWhole && count >= fold.core;
  std::vector<Part> parts{{.begin = 0, .count = count}};  // this rank's part in each step
  for (std::uint32_t mask = fold.core / 2; mask > 0; mask /= 2) {
    const bool lower = (number & mask) == 0;
    const Part whole = parts.back();
    const Part low{.begin = whole.begin,
                   .count = halved ? part_of(whole.count, 2, 0).count : whole.count};
    const Part high =
        halved ? Part{.begin = low.begin + low.count, .count = whole.count - low.count} : whole;
    const Part keep = lower ? low : high;
    const Part give = lower ? high : low;
    if (!exchange_with(fold.position(number ^ mask), call, data + give.begin * size,
                       give.count * size, in_buffer_.data(), keep.count * size))
      return false;
    add_received(type, data + keep.begin * size, keep.count, lower);
    parts.push_back(keep);
  }
  for (std::uint32_t mask = 1; halved && mask < fold.core; mask *= 2) {
    const Part mine = parts.back();
    parts.pop_back();
    const Part whole = parts.back();
    const bool lower = (number & mask) == 0;
    const Part other{.begin = lower ? mine.begin + mine.count : whole.begin,
                     .count = whole.count - mine.count};
    if (!exchange_with(fold.position(number ^ mask), call, data + mine.begin * size,
                       mine.count * size, data + other.begin * size, other.count * size))
      return false;
  }
  return !fold.folds(position) || send_message(position + 1, call, data, count * size);
}

bool Communicator::reduce_tree(const Call& call, std::byte* data, std::uint64_t count, Type type,
                               std::uint32_t root) {
  const std::uint64_t bytes = count * size_of(type);
  const std::uint32_t n = ranks();
  // Positions are counted from the root.
  const std::uint32_t mine = (topology_.position + n - root) % n;
  in_buffer_.resize(bytes);
  for (std::uint32_t mask = 1; mask < n; mask *= 2) {
    if ((mine & mask) != 0) return send_message((mine - mask + root) % n, call, data, bytes);
    if (mine + mask >= n) continue;
    if (!receive_message((mine + mask + root) % n, in_buffer_.data(), bytes)) return false;
    add_received(type, data, count, true);
  }
  return true;
}

bool Communicator::broadcast_tree(const Call& call, std::byte* data, std::uint64_t bytes,
                                  std::uint32_t root) {
  const std::uint32_t n = ranks();
  // Positions are counted from the root.
  const std::uint32_t mine = (topology_.position + n - root) % n;
  const auto place = [&](std::uint32_t number) { return (number + root) % n; };
  std::uint32_t mask = mine == 0 ? std::bit_ceil(n) : mine & (~mine + 1);
  if (mine != 0 && !receive_message(place(mine - mask), data, bytes)) return false;
  for (mask /= 2; mask > 0; mask /= 2)
    if (mine + mask < n && !send_message(place(mine + mask), call, data, bytes)) return false;
  return true;
}

bool Communicator::sum_tree(const Call& call, std::byte* data, std::uint64_t count, Type type) {
  return reduce_tree(call, data, count, type, 0) &&
         broadcast_tree(call, data, count * size_of(type), 0);
}

}  // namespace paceline::comm
