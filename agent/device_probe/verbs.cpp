// SPDX-License-Identifier: Apache-2.0
#include "agent/device_probe/verbs.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace paceline::agent {
namespace {

constexpr int kAccess = 1 | 2 | 4;  // local write, remote write, remote read
constexpr int kMostDevices = 64;

Refusal refused(const char* call) {
  const int error = errno;
  return {error, std::string(call) + ": " +
                     (error == 0 ? "refused without a reason" : std::strerror(error))};
}

}  // namespace

Verbs::Verbs(const std::string& file) : library_(file) {
  library_.find("ibv_get_device_list", call_.get_device_list);
  library_.find("ibv_free_device_list", call_.free_device_list);
  library_.find("ibv_get_device_name", call_.get_device_name);
  library_.find("ibv_open_device", call_.open_device);
  library_.find("ibv_close_device", call_.close_device);
  library_.find("ibv_alloc_pd", call_.alloc_pd);
  library_.find("ibv_dealloc_pd", call_.dealloc_pd);
  library_.find("ibv_reg_mr", call_.reg_mr);
  library_.find("ibv_dereg_mr", call_.dereg_mr);
  library_.find("ibv_reg_dmabuf_mr", call_.reg_dmabuf_mr, true);
  library_.find("ibv_query_port", call_.query_port, true);
}

Verbs::~Verbs() {
  if (devices_ != nullptr) call_.free_device_list(devices_);
}

Refusal Verbs::list(std::vector<std::string>& names) {
  errno = 0;
  devices_ = call_.get_device_list(&count_);
  if (devices_ == nullptr) return refused("ibv_get_device_list");
  count_ = std::clamp(count_, 0, kMostDevices);
  for (int i = 0; i < count_; ++i) {
    const char* name = call_.get_device_name(devices_[i]);
    names.emplace_back(name == nullptr ? "" : name);
  }
  return {};
}

std::unique_ptr<Verbs::Nic> Verbs::open(std::size_t index, Refusal& refusal) const {
  errno = 0;
  void* context = call_.open_device(devices_[index]);
  if (context == nullptr) {
    refusal = refused("ibv_open_device");
    return nullptr;
  }
  errno = 0;
  void* domain = call_.alloc_pd(context);
  if (domain == nullptr) {
    refusal = refused("ibv_alloc_pd");
    call_.close_device(context);
    return nullptr;
  }
  return std::make_unique<Nic>(*this, context, domain);
}

Verbs::Nic::~Nic() {
  verbs_.call_.dealloc_pd(domain_);
  verbs_.call_.close_device(context_);
}

Refusal Verbs::Nic::query_port(int number, Port& port) const {
  if (verbs_.call_.query_port == nullptr) return {EINVAL, "libibverbs has no ibv_query_port"};
  // The layout of the ABI: the state and the two sizes come first. Newer releases of the library
  // have more fields and write more bytes.
  struct alignas(8) {
    int state = 0;
    int max_mtu = 0;
    int active_mtu = 0;
    std::array<char, 500> rest{};
  } attributes;
  const int error =
      verbs_.call_.query_port(context_, static_cast<std::uint8_t>(number), &attributes);
  if (error != 0) return {error, std::string("ibv_query_port: ") + std::strerror(error)};
  // 1 is 256 bytes, 5 is 4096.
  const auto bytes = [](int code) { return code >= 1 && code <= 5 ? 128 << code : 0; };
  port = {bytes(attributes.active_mtu), bytes(attributes.max_mtu)};
  return {};
}

Refusal Verbs::Nic::register_pointer(void* address, std::size_t size) const {
  errno = 0;
  void* region = verbs_.call_.reg_mr(domain_, address, size, kAccess);
  if (region == nullptr) return refused("ibv_reg_mr");
  verbs_.call_.dereg_mr(region);
  return {};
}

Refusal Verbs::Nic::register_dmabuf(int descriptor, std::uint64_t address, std::size_t size) const {
  if (verbs_.call_.reg_dmabuf_mr == nullptr)
    return {EOPNOTSUPP, "libibverbs has no ibv_reg_dmabuf_mr: rdma-core 34 or later has it"};
  errno = 0;
  void* region = verbs_.call_.reg_dmabuf_mr(domain_, 0, size, address, descriptor, kAccess);
  if (region == nullptr) return refused("ibv_reg_dmabuf_mr");
  verbs_.call_.dereg_mr(region);
  return {};
}

Refusal Verbs::Nic::knows_dmabuf() const {
  auto refusal = register_dmabuf(-1, 0, 0);
  if (refusal.error == EOPNOTSUPP || refusal.error == EPROTONOSUPPORT) return refusal;
  return {};
}

}  // namespace paceline::agent
