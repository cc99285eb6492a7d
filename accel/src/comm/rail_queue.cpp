// SPDX-License-Identifier: Apache-2.0
#include "rail_queue.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace paceline::comm {
namespace {

// What waking up costs; longer would take the processor from a rank that has work.
constexpr std::chrono::microseconds kLooking{10};
constexpr std::uint8_t kForever = 7;      // retries where no receive is ready: credits see to it that one is
constexpr std::uint8_t kReadyAgain = 12;  // 0.64 ms until such a retry

constexpr std::uint64_t kSending = 1;
constexpr std::uint64_t kReceiving = 2;

// Registered memory counts as locked.
std::string out_of_memory(const std::string& what, int error) {
  std::string text = refused(what, error);
  rlimit limit{};
  if (error != ENOMEM || ::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return text;
  return text + ": this process may lock " + std::to_string(limit.rlim_cur / 1024) + " KiB; raise ulimit -l";
}

}  // namespace

std::expected<std::unique_ptr<RailQueue>, std::string> VerbsQueue::make(const Verbs& verbs,
                                                                        const RdmaSettings& settings,
                                                                        const RailPort& port, bool sends,
                                                                        std::size_t slot_bytes) {
  std::unique_ptr<VerbsQueue> made(new VerbsQueue(verbs, settings, port, sends, slot_bytes));
  if (const std::string why = made->prepare(); !why.empty()) return std::unexpected(port.name + ": " + why);
  return made;
}

std::string VerbsQueue::prepare() {
  void* const memory = ::mmap(nullptr, ring_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return refused("memory", errno);
  memory_ = static_cast<std::byte*>(memory);
  // Or a page that a forked child makes this process copy would no longer be the device's.
  ::madvise(memory, ring_bytes(), MADV_DONTFORK);
  region_ = verbs_.reg_mr(port_.domain, memory, ring_bytes(), IBV_ACCESS_LOCAL_WRITE);
  if (region_ == nullptr) return out_of_memory("cannot register " + std::to_string(ring_bytes()) + " bytes", errno);
  channel_ = verbs_.create_comp_channel(port_.context);
  if (channel_ == nullptr) return refused("ibv_create_comp_channel", errno);
  ::fcntl(channel_->fd, F_SETFL, ::fcntl(channel_->fd, F_GETFL) | O_NONBLOCK);
  completions_ = verbs_.create_cq(port_.context, static_cast<int>(2 * kSlots), nullptr, channel_, 0);
  if (completions_ == nullptr) return out_of_memory("ibv_create_cq", errno);
  ibv_qp_init_attr wanted{};
  wanted.send_cq = wanted.recv_cq = completions_;
  wanted.cap = {
      .max_send_wr = kSlots, .max_recv_wr = kSlots, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
  wanted.qp_type = IBV_QPT_RC;
  wanted.sq_sig_all = 1;
  pair_ = verbs_.create_qp(port_.domain, &wanted);
  if (pair_ == nullptr) return out_of_memory("ibv_create_qp", errno);
  ::syscall(SYS_getrandom, &sequence_, sizeof sequence_, 0);
  sequence_ &= 0xffffffU;
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = port_.number;
  const int error =
      verbs_.modify_qp(pair_, &attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  return error == 0 ? "" : refused("ibv_modify_qp to INIT", error);
}

VerbsQueue::~VerbsQueue() {
  if (pair_ != nullptr) verbs_.destroy_qp(pair_);
  if (completions_ != nullptr) verbs_.destroy_cq(completions_);
  if (channel_ != nullptr) verbs_.destroy_comp_channel(channel_);
  if (region_ != nullptr) verbs_.dereg_mr(region_);
  if (memory_ != nullptr) ::munmap(memory_, ring_bytes());
}

RailAddress VerbsQueue::address() const {
  RailAddress address = port_.address;
  address.number = pair_->qp_num;
  address.sequence = sequence_;
  return address;
}

std::string VerbsQueue::connect(const RailAddress& peer) {
  if (peer.ethernet != port_.address.ethernet)
    return port_.name + " is " + (port_.address.ethernet != 0 ? "Ethernet" : "InfiniBand") + ", the peer's port is not";
  while (awaited_ < kSlots && broken_.empty()) receive_again();
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = static_cast<ibv_mtu>(std::min(peer.mtu, port_.address.mtu));
  attributes.dest_qp_num = peer.number;
  attributes.rq_psn = peer.sequence;
  attributes.max_dest_rd_atomic = 1;
  attributes.min_rnr_timer = kReadyAgain;
  attributes.ah_attr.port_num = port_.number;
  attributes.ah_attr.dlid = peer.lid;
  attributes.ah_attr.sl = static_cast<std::uint8_t>(settings_.service_level);
  if (peer.ethernet != 0) {
    attributes.ah_attr.is_global = 1;
    std::memcpy(&attributes.ah_attr.grh.dgid, peer.gid.data(), peer.gid.size());
    attributes.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(port_.gid_index);
    attributes.ah_attr.grh.hop_limit = 255;
    attributes.ah_attr.grh.traffic_class = static_cast<std::uint8_t>(settings_.traffic_class);
  }
  int error = verbs_.modify_qp(pair_, &attributes,
                               IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (error != 0) return port_.name + ": " + refused("no way to the peer's port: ibv_modify_qp to RTR", error);
  attributes = {};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = static_cast<std::uint8_t>(settings_.timeout);
  attributes.retry_cnt = static_cast<std::uint8_t>(settings_.retries);
  attributes.rnr_retry = kForever;
  attributes.sq_psn = sequence_;
  attributes.max_rd_atomic = 1;
  error = verbs_.modify_qp(
      pair_, &attributes,
      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  if (error != 0) return port_.name + ": " + refused("ibv_modify_qp to RTS", error);
  return broken_;
}

void VerbsQueue::fail(const std::string& why) {
  if (broken_.empty()) broken_ = "RDMA by " + port_.name + ": " + why;
}

ibv_sge VerbsQueue::piece(std::uint64_t number, std::size_t bytes) {
  return {.addr = reinterpret_cast<std::uintptr_t>(slot(number)),
          .length = static_cast<std::uint32_t>(bytes),
          .lkey = region_->lkey};
}

void VerbsQueue::send(std::size_t bytes) {
  ibv_sge data = piece(sent_, bytes);
  ibv_send_wr request{};
  ibv_send_wr* bad = nullptr;
  request.wr_id = kSending;
  request.opcode = IBV_WR_SEND;
  request.sg_list = &data;
  request.num_sge = bytes > 0 ? 1 : 0;
  if (const int error = ::ibv_post_send(pair_, &request, &bad); error != 0)
    return fail(refused("ibv_post_send", error));
  ++sent_;
}

void VerbsQueue::receive_again() {
  ibv_sge data = piece(awaited_, slot_bytes_);
  ibv_recv_wr request{};
  ibv_recv_wr* bad = nullptr;
  request.wr_id = kReceiving;
  request.sg_list = &data;
  request.num_sge = sends_ ? 0 : 1;
  if (const int error = ::ibv_post_recv(pair_, &request, &bad); error != 0)
    return fail(refused("ibv_post_recv", error));
  ++awaited_;
}

void VerbsQueue::take(const ibv_wc& done) {
  if (done.status != IBV_WC_SUCCESS) return fail(verbs_.wc_status_str(done.status));
  if (done.wr_id == kSending) {
    ++delivered_;
    return;
  }
  lengths_[arrived_ % kSlots] = done.byte_len;
  ++arrived_;
  // A credit has no slot that anybody would read.
  if (sends_) receive_again();
}

bool VerbsQueue::look() {
  std::array<ibv_wc, 2 * kSlots> done;
  const int count = ::ibv_poll_cq(completions_, static_cast<int>(done.size()), done.data());
  if (count < 0) fail("ibv_poll_cq failed");
  for (int i = 0; i < count; ++i) take(done[static_cast<std::size_t>(i)]);
  return count != 0;
}

void VerbsQueue::wait(Clock::time_point until, int abort_fd) {
  const auto begin = Clock::now();
  do {
    if (look()) return;
  } while (Clock::now() - begin < kLooking);
  if (const int error = ::ibv_req_notify_cq(completions_, 0); error != 0)
    return fail(refused("ibv_req_notify_cq", error));
  // What came before that would wake nobody.
  if (look()) return;
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
  std::array<pollfd, 2> files{
      {{.fd = channel_->fd, .events = POLLIN, .revents = 0}, {.fd = abort_fd, .events = POLLIN, .revents = 0}}};
  ::poll(files.data(), files.size(), static_cast<int>(std::clamp<std::int64_t>(left, 0, 1'000'000)) + 1);
  ibv_cq* which = nullptr;
  void* context = nullptr;
  if (files[0].revents != 0 && verbs_.get_cq_event(channel_, &which, &context) == 0) verbs_.ack_cq_events(which, 1);
  look();
}

}  // namespace paceline::comm
