// SPDX-License-Identifier: Apache-2.0
// A library with libibverbs' symbols, for the child of paceline-probe. FAKE_NICS lists its devices
// ("mlx5_0 mlx5_1"; `none`: a kernel without RDMA), FAKE_PORTS is the number of ports of each. Its
// calls for FAKE_RULES are open, host, peer (a pointer into a GPU of fake_cuda), port, driver
// (whether it supports dma-buf), dmabuf. It ends the process if a resource was not released.
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "tests/unit/agent/fakes/fake_rules.hpp"

namespace {

struct FakeNic {
  std::string name;
  int regions = 0;
  bool open = false;
  bool domain = false;
};
std::vector<FakeNic> nics;
std::vector<void*> pointers;

FakeNic* nic_of(void* pointer) { return static_cast<FakeNic*>(pointer); }

void* refuse_or(FakeNic* nic, const char* call) {
  errno = paceline::agent::fake::rule(call, nic->name);
  if (errno != 0) return nullptr;
  ++nic->regions;
  return nic;
}

}  // namespace

extern "C" {
void** ibv_get_device_list(int* count) {
  const char* names = std::getenv("FAKE_NICS");
  const std::string all = names == nullptr ? "mlx5_0 mlx5_1" : names;
  if (all == "none") {
    errno = ENOSYS;
    return nullptr;
  }
  std::istringstream words(all);
  for (std::string name; words >> name;) nics.push_back({name});
  for (auto& nic : nics) pointers.push_back(&nic);
  pointers.push_back(nullptr);
  *count = static_cast<int>(nics.size());
  return pointers.data();
}
void ibv_free_device_list(void**) {
  for (const auto& nic : nics) {
    if (nic.open || nic.domain || nic.regions != 0) std::abort();
  }
}
const char* ibv_get_device_name(void* device) { return nic_of(device)->name.c_str(); }
void* ibv_open_device(void* device) {
  errno = paceline::agent::fake::rule("open", nic_of(device)->name);
  if (errno != 0) return nullptr;
  nic_of(device)->open = true;
  return device;
}
int ibv_close_device(void* context) {
  nic_of(context)->open = false;
  return 0;
}
void* ibv_alloc_pd(void* context) {
  nic_of(context)->domain = true;
  return context;
}
int ibv_dealloc_pd(void* domain) {
  nic_of(domain)->domain = false;
  return 0;
}
void* ibv_reg_mr(void* domain, void* address, std::size_t, int) {
  const bool gpu = reinterpret_cast<std::uintptr_t>(address) >> 44U == 3;
  return refuse_or(nic_of(domain), gpu ? "peer" : "host");
}
void* ibv_reg_dmabuf_mr(void* domain, std::uint64_t, std::size_t, std::uint64_t, int descriptor,
                        int) {
  if (descriptor >= 0) return refuse_or(nic_of(domain), "dmabuf");
  errno = paceline::agent::fake::rule("driver", nic_of(domain)->name);
  if (errno == 0) errno = EBADF;
  return nullptr;
}
int ibv_query_port(void* context, std::uint8_t port, void* attributes) {
  const auto* nic = nic_of(context);
  const char* most = std::getenv("FAKE_PORTS");
  if (port < 1 || port > (most == nullptr ? 1 : std::atoi(most))) return EINVAL;
  if (const int error = paceline::agent::fake::rule("port", nic->name); error != 0) return error;
  const int known[] = {4, 5, 3};  // active; up to 4096 bytes, now 1024
  std::memcpy(attributes, known, sizeof known);
  return 0;
}
int ibv_dereg_mr(void* region) {
  --nic_of(region)->regions;
  return 0;
}
}
