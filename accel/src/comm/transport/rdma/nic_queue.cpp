// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/rdma/nic_queue.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

namespace paceline::comm {
namespace {

// About the cost of waking up. Polling longer would take the processor from a rank that has work.
constexpr std::chrono::microseconds kLooking{10};
constexpr std::uint64_t kSending = 1;
constexpr std::uint64_t kReceiving = 2;

}  // namespace

std::expected<std::unique_ptr<NicQueue>, std::string> VerbsQueue::make(const Verbs& verbs,
                                                                       const RdmaSettings& settings,
                                                                       const NicPort& port,
                                                                       bool sends,
                                                                       std::size_t slot_bytes) {
  std::unique_ptr<VerbsQueue> made(new VerbsQueue(verbs, settings, port, sends, slot_bytes));
  if (const std::string why = made->prepare(); !why.empty())
    return std::unexpected(port.name + ": " + why);
  return made;
}

std::string VerbsQueue::prepare() {
  void* const memory =
      ::mmap(nullptr, ring_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return refused("memory", errno);
  memory_ = static_cast<std::byte*>(memory);
  // Otherwise a fork could make this process copy a page, and the device would keep the old one.
  ::madvise(memory, ring_bytes(), MADV_DONTFORK);
  region_ = verbs_.reg_mr(port_.domain, memory, ring_bytes(), IBV_ACCESS_LOCAL_WRITE);
  if (region_ == nullptr)
    return out_of_memory("cannot register " + std::to_string(ring_bytes()) + " bytes", errno);
  channel_ = verbs_.create_comp_channel(port_.context);
  if (channel_ == nullptr) return refused("ibv_create_comp_channel", errno);
  ::fcntl(channel_->fd, F_SETFL, ::fcntl(channel_->fd, F_GETFL) | O_NONBLOCK);
  completions_ =
      verbs_.create_cq(port_.context, static_cast<int>(2 * kSlots), nullptr, channel_, 0);
  if (completions_ == nullptr) return out_of_memory("ibv_create_cq", errno);
  return pair_.make(completions_, kSlots);
}

VerbsQueue::~VerbsQueue() {
  pair_.end();
  if (completions_ != nullptr) verbs_.destroy_cq(completions_);
  if (channel_ != nullptr) verbs_.destroy_comp_channel(channel_);
  if (region_ != nullptr) verbs_.dereg_mr(region_);
  if (memory_ != nullptr) ::munmap(memory_, ring_bytes());
}

std::string VerbsQueue::connect(const QueuePairAddress& peer) {
  while (awaited_ < kSlots && broken_.empty()) receive_again();
  if (std::string why = pair_.connect(peer); !why.empty()) return why;
  return broken_;
}

void VerbsQueue::fail(End end, const std::string& why) {
  if (!broken_.empty()) return;
  broken_ = "RDMA by " + port_.name + ": " + why;
  broken_here_ = end == End::kHere;
}

ibv_sge VerbsQueue::piece(std::uint64_t number, std::size_t bytes) {
  return {.addr = reinterpret_cast<std::uintptr_t>(slot(number)),
          .length = static_cast<std::uint32_t>(bytes),
          .lkey = region_->lkey};
}

void VerbsQueue::send(std::size_t bytes) {
  if (const std::string why = pair_.send(kSending, piece(sent_, bytes)); !why.empty())
    return fail(End::kHere, why);
  ++sent_;
}

void VerbsQueue::receive_again() {
  // A credit carries no data, so it needs no slot.
  const std::size_t bytes = sends_ ? 0 : slot_bytes_;
  if (const std::string why = pair_.receive(kReceiving, piece(awaited_, bytes)); !why.empty())
    return fail(End::kHere, why);
  ++awaited_;
}

void VerbsQueue::take(const ibv_wc& done) {
  if (done.status != IBV_WC_SUCCESS)
    return fail(is_own(done.status) ? End::kHere : End::kThere, verbs_.wc_status_str(done.status));
  if (done.wr_id == kSending) {
    ++delivered_;
    return;
  }
  lengths_[arrived_ % kSlots] = done.byte_len;
  ++arrived_;
  // A credit's slot holds no data to read, so post it again at once.
  if (sends_) receive_again();
}

bool VerbsQueue::look() {
  std::array<ibv_wc, 2 * kSlots> done;
  const int count = ::ibv_poll_cq(completions_, static_cast<int>(done.size()), done.data());
  if (count < 0) fail(End::kHere, "ibv_poll_cq failed");
  for (int i = 0; i < count; ++i) take(done[static_cast<std::size_t>(i)]);
  return count != 0;
}

void VerbsQueue::wait(Clock::time_point until, int abort_fd) {
  const auto begin = Clock::now();
  do {
    if (look()) return;
  } while (Clock::now() - begin < kLooking);
  if (const int error = ::ibv_req_notify_cq(completions_, 0); error != 0)
    return fail(End::kHere, refused("ibv_req_notify_cq", error));
  // Look again: a completion from before the request for a wake-up wakes nothing.
  if (look()) return;
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
  std::array<pollfd, 2> files{{{.fd = channel_->fd, .events = POLLIN, .revents = 0},
                               {.fd = abort_fd, .events = POLLIN, .revents = 0}}};
  ::poll(files.data(), files.size(),
         static_cast<int>(std::clamp<std::int64_t>(left, 0, 1'000'000)) + 1);
  ibv_cq* which = nullptr;
  void* context = nullptr;
  if (files[0].revents != 0 && verbs_.get_cq_event(channel_, &which, &context) == 0)
    verbs_.ack_cq_events(which, 1);
  look();
}

}  // namespace paceline::comm
