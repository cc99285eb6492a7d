// SPDX-License-Identifier: Apache-2.0
#include "verbs_messages.hpp"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace paceline::comm {
namespace {

// What a request's number says when it is done: of which pair, and which way.
constexpr std::uint64_t number_of(std::size_t pair, bool receives) {
  return 2 * pair + (receives ? 1 : 0);
}

}  // namespace

std::expected<std::unique_ptr<Messages>, std::string> VerbsMessages::make(
    const Verbs& verbs, const RdmaSettings& settings, const RailPort& port,
    std::span<const DeviceRange> ranges, std::size_t pairs, std::uint32_t depth) {
  std::unique_ptr<VerbsMessages> made(new VerbsMessages(verbs, settings, port));
  if (const std::string why = made->prepare(ranges, pairs, depth); !why.empty())
    return std::unexpected(port.name + ": " + why);
  return made;
}

std::string VerbsMessages::add(const DeviceRange& range) {
  std::string why = range.refusal;
  ibv_mr* region = nullptr;
  if (range.dma_buf >= 0 && verbs_.reg_dmabuf_mr == nullptr) {
    why = "libibverbs has no ibv_reg_dmabuf_mr";
  } else if (range.dma_buf >= 0) {
    region = verbs_.reg_dmabuf_mr(port_.domain, 0, range.bytes, range.address, range.dma_buf,
                                  IBV_ACCESS_LOCAL_WRITE);
    if (region == nullptr) why = refused("ibv_reg_dmabuf_mr", errno);
  }
  if (region == nullptr)
    region = verbs_.reg_mr(port_.domain, reinterpret_cast<void*>(range.address), range.bytes,
                           IBV_ACCESS_LOCAL_WRITE);
  if (region == nullptr) {
    // The kernel counts such memory as locked before it asks whose it is.
    const std::string by_address = out_of_memory("ibv_reg_mr", errno);
    return "cannot register " + std::to_string(range.bytes) +
           " bytes of the GPU: by dma-buf: " + why +
           "; by peer memory (nvidia_peermem): " + by_address;
  }
  registered_.push_back(
      {.begin = range.address, .end = range.address + range.bytes, .region = region});
  return "";
}

std::string VerbsMessages::prepare(std::span<const DeviceRange> ranges, std::size_t pairs,
                                   std::uint32_t depth) {
  for (const DeviceRange& range : ranges)
    if (std::string why = add(range); !why.empty()) return why;
  channel_ = verbs_.create_comp_channel(port_.context);
  if (channel_ == nullptr) return refused("ibv_create_comp_channel", errno);
  ::fcntl(channel_->fd, F_SETFL, ::fcntl(channel_->fd, F_GETFL) | O_NONBLOCK);
  completions_ =
      verbs_.create_cq(port_.context, static_cast<int>(2 * depth * pairs), nullptr, channel_, 0);
  if (completions_ == nullptr) return out_of_memory("ibv_create_cq", errno);
  for (std::size_t i = 0; i < pairs; ++i) {
    pairs_.push_back({.queue = {verbs_, settings_, port_}});
    if (std::string why = pairs_.back().queue.make(completions_, depth, QueuePair::Into::kGpu);
        !why.empty())
      return why;
  }
  return "";
}

VerbsMessages::~VerbsMessages() {
  pairs_.clear();
  if (completions_ != nullptr) verbs_.destroy_cq(completions_);
  if (channel_ != nullptr) verbs_.destroy_comp_channel(channel_);
  for (const Registered& one : registered_) verbs_.dereg_mr(one.region);
}

ibv_sge VerbsMessages::registered(const DevicePiece& piece) const {
  const auto has = [&](const Registered& one) {
    return one.begin <= piece.address && piece.address + piece.bytes <= one.end;
  };
  const auto found = std::ranges::find_if(registered_, has);
  return {.addr = piece.address,
          .length = static_cast<std::uint32_t>(piece.bytes),
          .lkey = piece.bytes == 0 || found == registered_.end() ? 0 : found->region->lkey};
}

void VerbsMessages::fail(std::optional<std::size_t> pair, const std::string& why) {
  if (!fault_) fault_ = {.pair = pair, .why = "GPUDirect RDMA by " + port_.name + ": " + why};
}

void VerbsMessages::send(std::size_t pair, const DevicePiece& head, const DevicePiece& piece) {
  const std::string why =
      pairs_[pair].queue.send(number_of(pair, false), {registered(head), registered(piece)});
  if (!why.empty()) fail(std::nullopt, why);
}

void VerbsMessages::receive(std::size_t pair, const DevicePiece& into) {
  const std::string why = pairs_[pair].queue.receive(number_of(pair, true), registered(into));
  if (!why.empty()) fail(std::nullopt, why);
}

bool VerbsMessages::look() {
  std::array<ibv_wc, 16> done;
  const int count = ::ibv_poll_cq(completions_, static_cast<int>(done.size()), done.data());
  if (count < 0) fail(std::nullopt, "ibv_poll_cq failed");
  for (int i = 0; i < count; ++i) {
    const ibv_wc& one = done[static_cast<std::size_t>(i)];
    const std::size_t pair = one.wr_id / 2;
    if (one.status != IBV_WC_SUCCESS) {
      fail(is_own(one.status) ? std::nullopt : std::optional(pair),
           verbs_.wc_status_str(one.status));
    } else if (one.wr_id == number_of(pair, true)) {
      ++pairs_[pair].arrived;
    } else {
      ++pairs_[pair].delivered;
    }
  }
  return count > 0;
}

void VerbsMessages::listen() {
  if (const int error = ::ibv_req_notify_cq(completions_, 0); error != 0)
    fail(std::nullopt, refused("ibv_req_notify_cq", error));
}

void VerbsMessages::heard() {
  ibv_cq* which = nullptr;
  void* context = nullptr;
  if (verbs_.get_cq_event(channel_, &which, &context) == 0) verbs_.ack_cq_events(which, 1);
}

}  // namespace paceline::comm
