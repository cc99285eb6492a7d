// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "comm/transport/rdma/nic_queue.hpp"
#include "comm/transport/rdma/rdma.hpp"

namespace paceline::comm {
namespace {

class OpenDevice {
 public:
  OpenDevice(const Verbs& verbs, ibv_device* device)
      : verbs_(verbs), context_(verbs.open_device(device)) {
    if (context_ != nullptr) domain_ = verbs.alloc_pd(context_);
  }
  OpenDevice(OpenDevice&& other) noexcept
      : verbs_(other.verbs_),
        context_(std::exchange(other.context_, nullptr)),
        domain_(std::exchange(other.domain_, nullptr)) {}
  OpenDevice& operator=(OpenDevice&&) = delete;
  ~OpenDevice() {
    if (domain_ != nullptr) verbs_.dealloc_pd(domain_);
    if (context_ != nullptr) verbs_.close_device(context_);
  }
  ibv_context* context() const { return context_; }
  ibv_pd* domain() const { return domain_; }

 private:
  const Verbs& verbs_;
  ibv_context* context_ = nullptr;
  ibv_pd* domain_ = nullptr;
};

class VerbsNics final : public Rdma {
 public:
  VerbsNics(const Verbs& verbs, RdmaSettings settings)
      : verbs_(verbs), settings_(std::move(settings)) {}
  void find(const std::filesystem::path& root);
  const std::string& why() const { return why_; }

  std::size_t nics() const override { return ports_.size(); }
  std::string name(std::size_t nic) const override { return ports_[nic].name; }
  std::expected<std::unique_ptr<NicQueue>, std::string> make_queue(
      std::size_t nic, bool sends, std::size_t slot_bytes) const override {
    return VerbsQueue::make(verbs_, settings_, ports_[nic], sends, slot_bytes);
  }
  std::vector<int> files() const override {
    std::vector<int> all;
    for (const OpenDevice& device : devices_)
      all.insert(all.end(), {device.context()->cmd_fd, device.context()->async_fd});
    return all;
  }

 private:
  void add_device(ibv_device* device, const std::filesystem::path& root);
  // Returns why the port cannot be used, or an empty text.
  std::string add_port(const OpenDevice& device, const std::string& name, int number,
                       const std::filesystem::path& root);
  void refuse(const std::string& why) { why_ += (why_.empty() ? "" : "; ") + why; }

  Verbs verbs_;
  const RdmaSettings settings_;
  std::vector<OpenDevice> devices_;
  std::vector<NicPort> ports_;
  std::string why_;
};

std::string VerbsNics::add_port(const OpenDevice& device, const std::string& name, int number,
                                const std::filesystem::path& root) {
  NicPort port{.context = device.context(),
               .domain = device.domain(),
               .name = number == 1 ? name : name + ":" + std::to_string(number),
               .number = static_cast<std::uint8_t>(number),
               .gid_index = -1,
               .address = {}};
  ibv_port_attr attributes{};
  if (const int error = verbs_.query_port(device.context(), port.number, &attributes); error != 0)
    return port.name + ": " + refused("ibv_query_port", error);
  if (attributes.state != IBV_PORT_ACTIVE) return port.name + " is not ACTIVE";
  port.address.lid = attributes.lid;
  port.address.mtu = static_cast<std::uint8_t>(attributes.active_mtu);
  port.address.ethernet = attributes.link_layer == IBV_LINK_LAYER_ETHERNET ? 1 : 0;
  if (port.address.ethernet != 0) {
    port.gid_index = settings_.gid_index;
    if (port.gid_index < 0) {
      const auto found = gid_index_of(root, name, number);
      if (!found) return found.error();
      port.gid_index = *found;
    }
    ibv_gid gid{};
    if (verbs_.query_gid(device.context(), port.number, port.gid_index, &gid) != 0)
      return port.name + " has no GID " + std::to_string(port.gid_index) +
             ": see NCCL_IB_GID_INDEX";
    std::memcpy(port.address.gid.data(), &gid, port.address.gid.size());
  }
  if (ports_.size() < kMostNics) ports_.push_back(std::move(port));
  return "";
}

void VerbsNics::add_device(ibv_device* device, const std::filesystem::path& root) {
  const std::string name = verbs_.get_device_name(device);
  errno = 0;
  OpenDevice open(verbs_, device);
  if (open.domain() == nullptr)
    return refuse(name + ": " +
                  refused(open.context() == nullptr ? "ibv_open_device" : "ibv_alloc_pd", errno));
  ibv_device_attr attributes{};
  if (const int error = verbs_.query_device(open.context(), &attributes); error != 0)
    return refuse(name + ": " + refused("ibv_query_device", error));
  const std::size_t before = ports_.size();
  for (int number = 1; number <= attributes.phys_port_cnt; ++number) {
    if (!is_wanted(settings_.devices, name, number)) continue;
    if (const std::string why = add_port(open, name, number, root); !why.empty()) refuse(why);
  }
  if (ports_.size() > before) devices_.push_back(std::move(open));
}

void VerbsNics::find(const std::filesystem::path& root) {
  // Call it before opening a device, so that a child that a data loader forks takes no pages from
  // it.
  verbs_.fork_init();
  int count = 0;
  ibv_device** const list = verbs_.get_device_list(&count);
  // Sort by name, so that NIC i of one host connects to NIC i of another.
  std::vector<ibv_device*> devices(list, list + (list == nullptr ? 0 : count));
  std::ranges::sort(devices, {}, [this](ibv_device* device) {
    return std::string(verbs_.get_device_name(device));
  });
  for (ibv_device* const device : devices) add_device(device, root);
  if (list != nullptr) verbs_.free_device_list(list);
  if (why_.empty())
    why_ = devices.empty()
               ? "no RDMA device"
               : "NCCL_IB_HCA=" + settings_.devices + " names no RDMA device that is here";
}

}  // namespace

std::expected<std::unique_ptr<Rdma>, std::string> open_rdma(const RdmaSettings& settings,
                                                            const std::filesystem::path& root) {
  if (settings.disabled) return std::unexpected("NCCL_IB_DISABLE=1");
  const auto verbs = Verbs::load();
  if (!verbs) return std::unexpected(verbs.error());
  auto nics = std::make_unique<VerbsNics>(*verbs, settings);
  nics->find(root);
  if (nics->nics() == 0) return std::unexpected(nics->why());
  return nics;
}

}  // namespace paceline::comm
