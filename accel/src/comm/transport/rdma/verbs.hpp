// SPDX-License-Identifier: Apache-2.0
// The functions of libibverbs that links use, found by dlopen. Its header (BSD) is compiled
// against, since posting and polling are inline functions there. Nothing is linked.
//
// Ownership: the library stays loaded. Threads: any. Failure: a text.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <expected>
#include <string>

namespace paceline::comm {

struct Verbs {
  static std::expected<Verbs, std::string> load();
  ibv_device** (*get_device_list)(int* count) = nullptr;
  decltype(&::ibv_free_device_list) free_device_list = nullptr;
  decltype(&::ibv_get_device_name) get_device_name = nullptr;
  decltype(&::ibv_fork_init) fork_init = nullptr;
  decltype(&::ibv_open_device) open_device = nullptr;
  decltype(&::ibv_close_device) close_device = nullptr;
  decltype(&::ibv_query_device) query_device = nullptr;
  int (*query_port)(ibv_context* context, std::uint8_t port, ibv_port_attr* attributes) = nullptr;
  decltype(&::ibv_query_gid) query_gid = nullptr;
  decltype(&::ibv_alloc_pd) alloc_pd = nullptr;
  decltype(&::ibv_dealloc_pd) dealloc_pd = nullptr;
  ibv_mr* (*reg_mr)(ibv_pd* domain, void* address, std::size_t length, int access) = nullptr;
  decltype(&::ibv_dereg_mr) dereg_mr = nullptr;
  decltype(&::ibv_create_comp_channel) create_comp_channel = nullptr;
  decltype(&::ibv_destroy_comp_channel) destroy_comp_channel = nullptr;
  decltype(&::ibv_create_cq) create_cq = nullptr;
  decltype(&::ibv_destroy_cq) destroy_cq = nullptr;
  decltype(&::ibv_get_cq_event) get_cq_event = nullptr;
  decltype(&::ibv_ack_cq_events) ack_cq_events = nullptr;
  decltype(&::ibv_create_qp) create_qp = nullptr;
  decltype(&::ibv_modify_qp) modify_qp = nullptr;
  decltype(&::ibv_destroy_qp) destroy_qp = nullptr;
  decltype(&::ibv_wc_status_str) wc_status_str = nullptr;
};

// For example "ibv_reg_mr: Cannot allocate memory".
std::string refused(const std::string& what, int error);
// As refused. If the limit on locked memory may be the cause, the text includes it.
std::string out_of_memory(const std::string& what, int error);

}  // namespace paceline::comm
