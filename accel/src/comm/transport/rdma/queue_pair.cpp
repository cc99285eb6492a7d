// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/rdma/queue_pair.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace paceline::comm {
namespace {

// Retry without a limit if no receive is ready: a sender knows that one will be.
constexpr std::uint8_t kForever = 7;
constexpr std::uint8_t kReadyAgain = 12;  // 0.64 ms until such a retry

}  // namespace

bool is_own(ibv_wc_status status) {
  return status == IBV_WC_LOC_LEN_ERR || status == IBV_WC_LOC_QP_OP_ERR ||
         status == IBV_WC_LOC_EEC_OP_ERR || status == IBV_WC_LOC_PROT_ERR ||
         status == IBV_WC_LOC_ACCESS_ERR || status == IBV_WC_LOC_RDD_VIOL_ERR ||
         status == IBV_WC_FATAL_ERR;
}

std::string QueuePair::make(ibv_cq* completions, std::uint32_t depth) {
  ibv_qp_init_attr wanted{};
  wanted.send_cq = wanted.recv_cq = completions;
  wanted.cap = {.max_send_wr = depth,
                .max_recv_wr = depth,
                .max_send_sge = 1,
                .max_recv_sge = 1,
                .max_inline_data = 0};
  wanted.qp_type = IBV_QPT_RC;
  wanted.sq_sig_all = 1;
  pair_ = verbs_.create_qp(port_.domain, &wanted);
  if (pair_ == nullptr) return out_of_memory("ibv_create_qp", errno);
  ::syscall(SYS_getrandom, &sequence_, sizeof sequence_, 0);
  sequence_ &= 0xffffffU;
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = port_.number;
  const int error = verbs_.modify_qp(
      pair_, &attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  return error == 0 ? "" : refused("ibv_modify_qp to INIT", error);
}

QueuePairAddress QueuePair::address() const {
  QueuePairAddress address = port_.address;
  address.number = pair_->qp_num;
  address.sequence = sequence_;
  return address;
}

std::string QueuePair::connect(const QueuePairAddress& peer) {
  if (peer.ethernet != port_.address.ethernet)
    return port_.name + " is " + (port_.address.ethernet != 0 ? "Ethernet" : "InfiniBand") +
           ", the peer's port is not";
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
  int error =
      verbs_.modify_qp(pair_, &attributes,
                       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                           IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (error != 0)
    return port_.name + ": " + refused("no way to the peer's port: ibv_modify_qp to RTR", error);
  attributes = {};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = static_cast<std::uint8_t>(settings_.timeout);
  attributes.retry_cnt = static_cast<std::uint8_t>(settings_.retries);
  attributes.rnr_retry = kForever;
  attributes.sq_psn = sequence_;
  attributes.max_rd_atomic = 1;
  error = verbs_.modify_qp(pair_, &attributes,
                           IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                               IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  return error == 0 ? "" : port_.name + ": " + refused("ibv_modify_qp to RTS", error);
}

std::string QueuePair::send(std::uint64_t id, ibv_sge piece) {
  ibv_send_wr request{};
  ibv_send_wr* bad = nullptr;
  request.wr_id = id;
  request.opcode = IBV_WR_SEND;
  request.sg_list = &piece;
  request.num_sge = piece.length > 0 ? 1 : 0;
  const int error = ::ibv_post_send(pair_, &request, &bad);
  return error == 0 ? "" : refused("ibv_post_send", error);
}

std::string QueuePair::receive(std::uint64_t id, ibv_sge piece) {
  ibv_recv_wr request{};
  ibv_recv_wr* bad = nullptr;
  request.wr_id = id;
  request.sg_list = &piece;
  request.num_sge = piece.length > 0 ? 1 : 0;
  const int error = ::ibv_post_recv(pair_, &request, &bad);
  return error == 0 ? "" : refused("ibv_post_recv", error);
}

}  // namespace paceline::comm
