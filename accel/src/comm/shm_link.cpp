// SPDX-License-Identifier: Apache-2.0
#include "shm_link.hpp"

namespace paceline::comm {

ShmSender::ShmSender(Region& region, std::uint32_t local, std::uint32_t peer, Watch& watch)
    : pipe_(region.pipe(local)),
      bytes_(pipe_.cursors, region.pipe_bytes(local), kPipeBytes),
      peer_(peer),
      watch_(watch) {
  watch_.on_failure([this] { pipe_.space.ring(); });
}

bool ShmSender::send(const std::byte* data, std::size_t size) {
  while (size > 0) {
    const std::uint32_t seen = pipe_.space.count.load(std::memory_order_acquire);
    const std::size_t written = bytes_.write(data, size);
    data += written;
    size -= written;
    if (written > 0) pipe_.data.ring();
    if (written == 0 && !watch_.wait(pipe_.space, seen, peer_)) return false;
  }
  return !watch_.failed();
}

ShmReceiver::ShmReceiver(Region& region, std::uint32_t local, std::uint32_t peer, Watch& watch)
    : pipe_(region.pipe(local)),
      bytes_(pipe_.cursors, region.pipe_bytes(local), kPipeBytes),
      peer_(peer),
      watch_(watch) {
  watch_.on_failure([this] { pipe_.data.ring(); });
}

bool ShmReceiver::receive(std::byte* data, std::size_t size) {
  while (size > 0) {
    const std::uint32_t seen = pipe_.data.count.load(std::memory_order_acquire);
    const std::size_t read = bytes_.read(data, size);
    data += read;
    size -= read;
    if (read > 0) pipe_.space.ring();
    if (read == 0 && !watch_.wait(pipe_.data, seen, peer_)) return false;
  }
  return !watch_.failed();
}

}  // namespace paceline::comm
