// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/rdma/verbs.hpp"

#include <dlfcn.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstring>
#include <type_traits>

namespace paceline::comm {
std::string refused(const std::string& what, int error) {
  return what + ": " + std::strerror(error);
}

std::string out_of_memory(const std::string& what, int error) {
  std::string text = refused(what, error);
  rlimit limit{};
  if (error != ENOMEM || ::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 ||
      limit.rlim_cur == RLIM_INFINITY)
    return text;
  return text + ": this process may lock " + std::to_string(limit.rlim_cur / 1024) +
         " KiB; raise ulimit -l";
}

std::expected<Verbs, std::string> Verbs::load() {
  void* const library = ::dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = ::dlerror();
    return std::unexpected(std::string("no libibverbs: ") + (why == nullptr ? "" : why));
  }
  Verbs verbs;
  std::string missing;
  const auto find = [&](auto& function, const char* name) {
    function =
        reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
    if (function == nullptr && missing.empty()) missing = name;
  };
  find(verbs.get_device_list, "ibv_get_device_list");
  find(verbs.free_device_list, "ibv_free_device_list");
  find(verbs.get_device_name, "ibv_get_device_name");
  find(verbs.fork_init, "ibv_fork_init");
  find(verbs.open_device, "ibv_open_device");
  find(verbs.close_device, "ibv_close_device");
  find(verbs.query_device, "ibv_query_device");
  find(verbs.query_port, "ibv_query_port");
  find(verbs.query_gid, "ibv_query_gid");
  find(verbs.alloc_pd, "ibv_alloc_pd");
  find(verbs.dealloc_pd, "ibv_dealloc_pd");
  find(verbs.reg_mr, "ibv_reg_mr");
  find(verbs.dereg_mr, "ibv_dereg_mr");
  find(verbs.create_comp_channel, "ibv_create_comp_channel");
  find(verbs.destroy_comp_channel, "ibv_destroy_comp_channel");
  find(verbs.create_cq, "ibv_create_cq");
  find(verbs.destroy_cq, "ibv_destroy_cq");
  find(verbs.get_cq_event, "ibv_get_cq_event");
  find(verbs.ack_cq_events, "ibv_ack_cq_events");
  find(verbs.create_qp, "ibv_create_qp");
  find(verbs.modify_qp, "ibv_modify_qp");
  find(verbs.destroy_qp, "ibv_destroy_qp");
  find(verbs.wc_status_str, "ibv_wc_status_str");
  if (!missing.empty()) return std::unexpected("libibverbs has no " + missing);
  return verbs;
}

}  // namespace paceline::comm
