// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/shm/shm_link.hpp"

#include <algorithm>

namespace paceline::comm {
namespace {

// Copy at most a quarter of the pipe at a time, so that one side copies in while the other copies
// out.
constexpr std::size_t kPiece = kPipeBytes / 4;

void left_alone(FailureDetector& detector, std::uint32_t peer, const char* what) {
  detector.fail(static_cast<int>(peer),
                "rank " + std::to_string(peer) + " has left the communicator, and " + what);
}

}  // namespace

base::Fd PairMemory::create() { return make_memory_file("paceline-comm-pair", kHead + kPipeBytes); }

std::unique_ptr<PairMemory> PairMemory::map(const base::Fd& file) {
  auto mapping = Mapping::of(file, kHead + kPipeBytes);
  if (mapping == nullptr) return nullptr;
  return std::unique_ptr<PairMemory>(new PairMemory(std::move(mapping)));
}

ShmSender::ShmSender(PipeView pipe, std::uint32_t peer, FailureDetector& detector)
    : pipe_(pipe.pipe),
      bytes_(pipe.pipe.cursors, pipe.bytes, kPipeBytes),
      peer_(peer),
      detector_(detector) {
  detector_.on_change([this] { pipe_.space.ring(); });
}

ShmSender::ShmSender(std::unique_ptr<PairMemory> memory, std::uint32_t peer,
                     FailureDetector& detector)
    : ShmSender(memory->pipe(), peer, detector) {
  memory_ = std::move(memory);
}

bool ShmSender::send(const std::byte* data, std::size_t size) {
  while (size > 0) {
    const std::uint32_t seen = pipe_.space.count.load(std::memory_order_acquire);
    const bool left = memory_ != nullptr && detector_.has_left(peer_);
    const std::size_t written = bytes_.write(data, std::min(size, kPiece));
    data += written;
    size -= written;
    if (written > 0) {
      pipe_.data.ring();
      continue;
    }
    if (left) left_alone(detector_, peer_, "does not take what it was sent");
    if (!detector_.wait(pipe_.space, seen, peer_)) return false;
  }
  return !detector_.failed();
}

ShmReceiver::ShmReceiver(PipeView pipe, std::uint32_t peer, FailureDetector& detector)
    : pipe_(pipe.pipe),
      bytes_(pipe.pipe.cursors, pipe.bytes, kPipeBytes),
      peer_(peer),
      detector_(detector) {
  detector_.on_change([this] { pipe_.data.ring(); });
}

ShmReceiver::ShmReceiver(std::unique_ptr<PairMemory> memory, std::uint32_t peer,
                         FailureDetector& detector)
    : ShmReceiver(memory->pipe(), peer, detector) {
  memory_ = std::move(memory);
}

bool ShmReceiver::receive(std::byte* data, std::size_t size) {
  while (size > 0) {
    const std::uint32_t seen = pipe_.data.count.load(std::memory_order_acquire);
    // Read this before the pipe: all that the peer sent before it left is in the pipe then.
    const bool left = memory_ != nullptr && detector_.has_left(peer_);
    const std::size_t read = bytes_.read(data, std::min(size, kPiece));
    data += read;
    size -= read;
    if (read > 0) {
      pipe_.space.ring();
      continue;
    }
    if (left) left_alone(detector_, peer_, "sent no more");
    if (!detector_.wait(pipe_.data, seen, peer_)) return false;
  }
  return !detector_.failed();
}

}  // namespace paceline::comm
