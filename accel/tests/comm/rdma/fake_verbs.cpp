// SPDX-License-Identifier: Apache-2.0
// A libibverbs.so.1 without a device: the functions that paceline uses, over fake_device.cpp. Tests
// load it before the library looks for the real one, which then finds it under that name. It is
// stricter than a device: a message that finds no receive posted is an error of its sender at once.
//
// Tests control it by these functions:
// - fake_verbs_set(name, value) changes a setting of this process alone.
// - fake_verbs_sent(device) returns how many messages this process has sent.
// - fake_verbs_dropped() returns how many messages with data all processes have lost, as a device
//   may: their queue pair was destroyed before it completed them.
//
// The settings:
// - "devices": how many there are (1).
// - "down" 1: their ports are down. "ethernet" 1: their ports are Ethernet's.
// - "open_device", "reg_mr", "create_qp", "rtr", "post_recv": the errno with which this step fails.
// - "lose" 1: messages vanish. "break" n: all messages after the nth fail.
#include <infiniband/verbs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "fake_device.hpp"

#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr

#define FAKE extern "C" __attribute__((visibility("default")))

using paceline::fake_verbs::add_region;
using paceline::fake_verbs::Channel;
using paceline::fake_verbs::Context;
using paceline::fake_verbs::Device;
using paceline::fake_verbs::devices;
using paceline::fake_verbs::End;
using paceline::fake_verbs::goes;
using paceline::fake_verbs::kChannels;
using paceline::fake_verbs::kEnds;
using paceline::fake_verbs::kFirstNumber;
using paceline::fake_verbs::kMostDevices;
using paceline::fake_verbs::kShared;
using paceline::fake_verbs::messages_sent;
using paceline::fake_verbs::Pair;
using paceline::fake_verbs::poll_cq;
using paceline::fake_verbs::post_recv;
using paceline::fake_verbs::post_send;
using paceline::fake_verbs::Queue;
using paceline::fake_verbs::remove_region;
using paceline::fake_verbs::req_notify_cq;
using paceline::fake_verbs::told;

FAKE void fake_verbs_set(const char* name, int value) { paceline::fake_verbs::set(name, value); }

FAKE int fake_verbs_dropped() { return *kShared.dropped; }

FAKE int fake_verbs_sent(int device) { return messages_sent(static_cast<std::size_t>(device)); }

FAKE ibv_device** ibv_get_device_list(int* count) {
  *count = told("devices");
  auto** const list = new ibv_device*[kMostDevices];
  for (std::size_t i = 0; i < kMostDevices; ++i) {
    list[i] = &devices.at(i);
    std::strcpy(devices.at(i).name, ("fake" + std::to_string(i)).c_str());
  }
  // Reverse the order, since callers must not depend on it.
  std::reverse(list, list + *count);
  return list;
}
FAKE void ibv_free_device_list(ibv_device** list) { delete[] list; }
FAKE const char* ibv_get_device_name(ibv_device* device) { return device->name; }
FAKE int ibv_fork_init() { return 0; }
FAKE ibv_context* ibv_open_device(ibv_device* device) {
  if (!goes("open_device")) return nullptr;
  auto* const context = new Context{};
  context->device = static_cast<std::size_t>(static_cast<Device*>(device) - devices.data());
  context->cmd_fd = context->async_fd = -1;
  context->ops.post_send = post_send;
  context->ops.post_recv = post_recv;
  context->ops.poll_cq = poll_cq;
  context->ops.req_notify_cq = req_notify_cq;
  return context;
}
FAKE int ibv_close_device(ibv_context* context) {
  delete static_cast<Context*>(context);
  return 0;
}
FAKE int ibv_query_device(ibv_context* /*context*/, ibv_device_attr* attributes) {
  *attributes = {};
  attributes->phys_port_cnt = 1;
  return 0;
}
FAKE int ibv_query_port(ibv_context* /*context*/, std::uint8_t /*port*/,
                        _compat_ibv_port_attr* place) {
  auto* const attributes = reinterpret_cast<ibv_port_attr*>(place);
  attributes->state = told("down") != 0 ? IBV_PORT_DOWN : IBV_PORT_ACTIVE;
  attributes->link_layer =
      told("ethernet") != 0 ? IBV_LINK_LAYER_ETHERNET : IBV_LINK_LAYER_INFINIBAND;
  attributes->active_mtu = IBV_MTU_4096;
  attributes->lid = 1;
  return 0;
}
FAKE int ibv_query_gid(ibv_context* /*context*/, std::uint8_t /*port*/, int index, ibv_gid* gid) {
  std::memset(gid, index, sizeof *gid);
  return 0;
}
FAKE ibv_pd* ibv_alloc_pd(ibv_context* context) {
  auto* const domain = new ibv_pd{};
  domain->context = context;
  return domain;
}
FAKE int ibv_dealloc_pd(ibv_pd* domain) {
  delete domain;
  return 0;
}
FAKE ibv_mr* ibv_reg_mr(ibv_pd* domain, void* address, std::size_t length, int /*access*/) {
  if (!goes("reg_mr")) return nullptr;
  return add_region(domain, {reinterpret_cast<std::uintptr_t>(address), length});
}
FAKE int ibv_dereg_mr(ibv_mr* region) {
  remove_region(region);
  return 0;
}
FAKE ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  for (std::size_t i = 0; i < kChannels; ++i) {
    if (kShared.listeners[i].used.exchange(true)) continue;
    kShared.listeners[i].armed = false;
    auto* const channel = new Channel{};
    channel->context = context;
    channel->fd = kShared.events[i];
    channel->number = i;
    return channel;
  }
  errno = ENOSPC;
  return nullptr;
}
FAKE int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  auto* const ours = static_cast<Channel*>(channel);
  std::uint64_t rings = 0;
  if (read(ours->fd, &rings, sizeof rings) < 0) errno = 0;
  kShared.listeners[ours->number].used = false;
  delete ours;
  return 0;
}
FAKE ibv_cq* ibv_create_cq(ibv_context* context, int /*entries*/, void* /*own*/,
                           ibv_comp_channel* channel, int /*vector*/) {
  auto* const queue = new Queue{};
  queue->context = context;
  queue->channel = channel;
  return queue;
}
FAKE int ibv_destroy_cq(ibv_cq* queue) {
  delete static_cast<Queue*>(queue);
  return 0;
}
FAKE int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** /*queue*/, void** /*own*/) {
  std::uint64_t rings = 0;
  return read(channel->fd, &rings, sizeof rings) == sizeof rings ? 0 : -1;
}
FAKE void ibv_ack_cq_events(ibv_cq* /*queue*/, unsigned /*count*/) {}
FAKE ibv_qp* ibv_create_qp(ibv_pd* domain, ibv_qp_init_attr* wanted) {
  if (!goes("create_qp")) return nullptr;
  auto* const queue = static_cast<Queue*>(wanted->send_cq);
  for (std::size_t i = 0; i < kEnds; ++i) {
    End& end = kShared.ends[i];
    if (end.used.exchange(true)) continue;
    end.ready = false;
    end.channel = static_cast<Channel*>(queue->channel)->number;
    end.receives = end.came = end.taken = 0;
    auto* const pair = new Pair{};
    pair->context = domain->context;
    pair->send_cq = pair->recv_cq = queue;
    pair->end = i;
    pair->qp_num = kFirstNumber + static_cast<std::uint32_t>(i);
    queue->pairs.push_back(pair);
    return pair;
  }
  errno = ENOSPC;
  return nullptr;
}
FAKE int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attributes, int /*mask*/) {
  End& end = kShared.ends[static_cast<Pair*>(qp)->end];
  if (attributes->qp_state == IBV_QPS_RTR) {
    if (!goes("rtr")) return errno;
    end.peer = attributes->dest_qp_num;
    end.ready = true;
  }
  return 0;
}
FAKE int ibv_destroy_qp(ibv_qp* qp) {
  auto* const pair = static_cast<Pair*>(qp);
  kShared.ends[pair->end].ready = false;
  kShared.ends[pair->end].used = false;
  *kShared.dropped += pair->untold;
  std::erase(static_cast<Queue*>(pair->send_cq)->pairs, pair);
  delete pair;
  return 0;
}
FAKE const char* ibv_wc_status_str(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_RNR_RETRY_EXC_ERR: return "RNR retry counter exceeded";
    case IBV_WC_LOC_LEN_ERR: return "local length error";
    case IBV_WC_LOC_PROT_ERR: return "local protection error";
    default: return "transport retry counter exceeded";
  }
}
