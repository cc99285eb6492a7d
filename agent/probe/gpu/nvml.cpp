// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <iterator>
#include <optional>
#include <utility>

#include "agent/probe/gpu/gpu_library.hpp"
#include "agent/probe/gpu/nvml_abi.hpp"
#include "agent/probe/hardware/accelerator.hpp"

namespace paceline::agent {
namespace {

using nvml::Device;
using nvml::kSuccess;

std::string bus_id(nvml::PciInfo pci) {
  pci.bus_id[sizeof pci.bus_id - 1] = '\0';
  return sysfs_address(pci.bus_id);
}

class Nvml final : public GpuLibrary {
 public:
  explicit Nvml(std::string file) : file_(std::move(file)) {}
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;
  ~Nvml() override { close(); }

  Result<std::vector<Gpu>> devices() override {
    std::vector<Gpu> gpus;
    const auto done = each(
        [&](unsigned int index, Device device, const nvml::Memory& memory, std::string address) {
          std::array<char, 96> name{};
          if (call_.name(device, name.data(), name.size()) != kSuccess) return;
          name.back() = '\0';
          Gpu gpu;
          gpu.index = static_cast<int>(index);
          gpu.model = name.data();
          gpu.memory_mib = memory.total >> 20U;
          gpu.pci_address = std::move(address);
          read_details(device, gpu);
          gpus.push_back(std::move(gpu));
        });
    if (!done) return std::unexpected(done.error());
    return gpus;
  }

  Result<std::vector<std::string>> present() override {
    std::vector<std::string> addresses;
    const auto done = each([&](unsigned int, Device, const nvml::Memory&, std::string address) {
      addresses.push_back(std::move(address));
    });
    if (!done) return std::unexpected(done.error());
    return addresses;
  }

 private:
  /// Calls `visit` for every GPU that answers. A GPU that fell off the bus must not hide the
  /// others; the comparison with the PCI bus finds it.
  template <typename Visit>
  Status each(Visit visit) {
    if (auto opened = open(); !opened) return opened;
    unsigned int count = 0;
    if (const nvml::Return code = call_.count(&count); code != kSuccess) {
      auto failure = fail(Code::kUnavailable, Origin::kCuda,
                          std::string("nvmlDeviceGetCount: ") + call_.error(code), true);
      close();  // after a driver reload every call fails until the library is initialised again
      return failure;
    }
    nvml::Return refused = kSuccess;
    bool any = false;
    for (unsigned int index = 0; index < count; ++index) {
      Device device = nullptr;
      nvml::Memory memory{};
      nvml::PciInfo pci{};
      nvml::Return code = call_.by_index(index, &device);
      if (code == kSuccess) code = call_.memory(device, &memory);
      if (code == kSuccess) code = call_.pci(device, &pci);
      if (code != kSuccess) {
        refused = code;
        continue;
      }
      any = true;
      visit(index, device, memory, bus_id(pci));
    }
    if (any || refused != nvml::kNoPermission) return {};
    // `systemctl daemon-reload` takes device files from containers whose runtime gave them.
    auto failure = fail(Code::kUnavailable, Origin::kCuda,
                        std::string("no GPU can be opened here: ") + call_.error(refused) +
                            "; restart this pod, whose container may have lost the device files",
                        true);
    close();
    return failure;
  }

  void read_details(Device device, Gpu& gpu) const {
    int major = 0;
    int minor = 0;
    if (call_.capability != nullptr && call_.capability(device, &major, &minor) == kSuccess)
      gpu.compute_capability = major * 10 + minor;
    nvml::Memory bar1{};
    if (call_.bar1 != nullptr && call_.bar1(device, &bar1) == kSuccess)
      gpu.bar1_mib = bar1.total >> 20U;
    unsigned int c2c = 0;
    gpu.c2c = call_.c2c != nullptr && call_.c2c(device, &c2c) == kSuccess && c2c != 0;
    nvml::FabricInfo fabric;
    if (call_.fabric != nullptr && call_.fabric(device, &fabric) == kSuccess) {
      gpu.nvlink_fabric = NvLinkFabric{fabric.state, fabric.status, fabric.health_mask};
      if (fabric.status == kSuccess && fabric.state == nvml::kFabricCompleted)
        gpu.nvlink_domain = nvlink_domain_key(fabric.cluster_uuid, fabric.clique);
    }
    gpu.uuid = uuid_of(device);
    gpu.condition = condition_of(device);
    read_links(device, gpu);
    read_mig(device, gpu);
  }

  GpuCondition condition_of(Device device) const {
    GpuCondition condition;
    unsigned long long errors = 0;
    if (call_.ecc_errors != nullptr &&
        call_.ecc_errors(device, nvml::kUncorrected, nvml::kVolatile, &errors) == kSuccess)
      condition.uncorrected_errors = errors;
    unsigned int corrected = 0;
    unsigned int uncorrected = 0;
    unsigned int pending = 0;
    unsigned int failed = 0;
    if (call_.remapped_rows != nullptr &&
        call_.remapped_rows(device, &corrected, &uncorrected, &pending, &failed) == kSuccess) {
      condition.remapped_uncorrected = uncorrected;
      condition.remapping_pending = pending != 0;
      condition.remapping_failed = failed != 0;
    }
    nvml::FieldValue action;
    action.field = nvml::kRecoveryAction;
    if (call_.fields != nullptr && call_.fields(device, 1, &action) == kSuccess &&
        action.result == kSuccess && action.type == nvml::kUnsignedInt)
      condition.recovery_action = static_cast<int>(action.value.word);
    return condition;
  }

  std::string uuid_of(Device device) const {
    std::array<char, 96> uuid{};
    if (call_.uuid == nullptr || call_.uuid(device, uuid.data(), uuid.size()) != kSuccess)
      return {};
    uuid.back() = '\0';
    return uuid.data();
  }

  /// Reads the counters of NVLink 1 to 4, else the fields of NVLink 5; nullopt if neither is
  /// available.
  std::optional<std::uint64_t> errors_of(Device device, unsigned int link) const {
    std::optional<std::uint64_t> sum;
    for (int kind = 0; call_.link_errors != nullptr && kind < nvml::kLinkErrorKinds; ++kind) {
      unsigned long long errors = 0;
      if (call_.link_errors(device, link, kind, &errors) == kSuccess)
        sum = sum.value_or(0) + errors;
    }
    if (sum || call_.fields == nullptr) return sum;
    std::array<nvml::FieldValue, std::size(nvml::kLinkErrorFields)> fields{};
    for (std::size_t i = 0; i < fields.size(); ++i) {
      fields[i].field = nvml::kLinkErrorFields[i];
      fields[i].scope = link;
    }
    if (call_.fields(device, static_cast<int>(fields.size()), fields.data()) != kSuccess)
      return sum;
    for (const auto& field : fields) {
      if (field.result != kSuccess) continue;
      if (field.type == nvml::kUnsignedInt) sum = sum.value_or(0) + field.value.word;
      if (field.type == nvml::kUnsignedLong || field.type == nvml::kUnsignedLongLong)
        sum = sum.value_or(0) + field.value.number;
    }
    return sum;
  }

  void read_links(Device device, Gpu& gpu) const {
    if (call_.link_state == nullptr || call_.link_remote == nullptr) return;
    for (int link = 0; link < nvml::kMaxLinks; ++link) {
      const auto number = static_cast<unsigned int>(link);
      int active = 0;
      // Links are numbered from 0; the first that is refused ends the list.
      if (call_.link_state(device, number, &active) != kSuccess) break;
      unsigned int peer_to_peer = 1;
      // On some boards links lead to the CPU; they carry no traffic between GPUs.
      if (call_.link_can != nullptr && active != 0 &&
          call_.link_can(device, number, nvml::kP2pSupported, &peer_to_peer) == kSuccess &&
          peer_to_peer == 0) {
        continue;
      }
      NvLink found{link, active != 0, NvLinkRemote::kUnknown, {}};
      found.errors = errors_of(device, number);
      nvml::PciInfo remote{};
      int type = -1;
      if (found.active && call_.link_remote(device, number, &remote) == kSuccess) {
        found.remote_address = bus_id(remote);
        // NVML gives an address of all ones if a virtual machine may not see the far end.
        if (found.remote_address.starts_with("ffff")) found.remote_address.clear();
      }
      if (found.active && call_.link_remote_type != nullptr &&
          call_.link_remote_type(device, number, &type) == kSuccess) {
        if (type == nvml::kRemoteGpu) found.remote = NvLinkRemote::kGpu;
        if (type == nvml::kRemoteSwitch) found.remote = NvLinkRemote::kSwitch;
      }
      gpu.nvlinks.push_back(std::move(found));
    }
  }

  void read_mig(Device device, Gpu& gpu) const {
    unsigned int current = 0;
    unsigned int pending = 0;
    unsigned int most = 0;
    if (call_.mig_mode == nullptr || call_.mig_mode(device, &current, &pending) != kSuccess ||
        current == 0)
      return;
    gpu.mig = true;
    if (call_.mig_count == nullptr || call_.mig_device == nullptr ||
        call_.mig_count(device, &most) != kSuccess)
      return;
    for (unsigned int index = 0; index < std::min(most, 64U); ++index) {
      Device part = nullptr;
      std::array<char, 96> name{};
      if (call_.mig_device(device, index, &part) != kSuccess ||
          call_.name(part, name.data(), name.size()) != kSuccess)
        continue;
      name.back() = '\0';
      const std::string_view full = name.data();  // "NVIDIA H100 80GB HBM3 MIG 1g.10gb"
      const auto at = full.rfind(" MIG ");
      if (at != std::string_view::npos) gpu.mig_profiles.emplace_back(full.substr(at + 5));
      if (auto uuid = uuid_of(part); !uuid.empty()) gpu.mig_uuids.push_back(std::move(uuid));
    }
    std::sort(gpu.mig_profiles.begin(), gpu.mig_profiles.end());
  }

  Status open() {
    if (handle_ != nullptr) return {};
    handle_ = dlopen(file_.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ == nullptr) {
      const char* why = dlerror();
      return fail(Code::kNotFound, Origin::kCuda,
                  why == nullptr ? file_ + " cannot be opened" : why);
    }
    if (!call_.bind(handle_)) {
      unload();
      return fail(Code::kInvalid, Origin::kCuda,
                  file_ +
                      " lacks a function of NVML: it belongs to a driver older than 450; update "
                      "the driver");
    }
    if (const nvml::Return code = call_.init(); code != kSuccess) {
      auto failure = fail(Code::kUnavailable, Origin::kCuda,
                          std::string("nvmlInit: ") + call_.error(code), true);
      unload();
      return failure;
    }
    return {};
  }

  void close() {
    if (handle_ == nullptr) return;
    call_.shutdown();
    unload();
  }

  void unload() {
    dlclose(handle_);
    handle_ = nullptr;
    call_ = {};
  }

  std::string file_;
  void* handle_ = nullptr;
  nvml::Functions call_;
};

class Replay final : public GpuLibrary {
 public:
  Replay(std::vector<Gpu> gpus, std::string problem)
      : gpus_(std::move(gpus)), problem_(std::move(problem)) {}
  Result<std::vector<Gpu>> devices() override {
    if (!problem_.empty()) return fail(Code::kNotFound, Origin::kCuda, problem_);
    return gpus_;
  }

 private:
  const std::vector<Gpu> gpus_;
  const std::string problem_;
};

}  // namespace

std::unique_ptr<GpuLibrary> replay_gpus(std::vector<Gpu> gpus, std::string problem) {
  return std::make_unique<Replay>(std::move(gpus), std::move(problem));
}

std::unique_ptr<GpuLibrary> open_nvml(std::string file) {
  return std::make_unique<Nvml>(std::move(file));
}

std::string nvlink_domain_key(const unsigned char (&cluster_uuid)[16], unsigned int clique) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string key;
  bool zero = true;
  for (std::size_t i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) key += '-';
    key += kHex[cluster_uuid[i] >> 4U];
    key += kHex[cluster_uuid[i] & 15U];
    zero = zero && cluster_uuid[i] == 0;
  }
  return zero ? std::string{} : key + "/" + std::to_string(clique);
}

}  // namespace paceline::agent
