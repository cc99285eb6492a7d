// SPDX-License-Identifier: Apache-2.0
#include "agent/probe/nvml.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>
#include <utility>

namespace paceline::agent {
namespace {

// The few declarations of NVML that are used, as its ABI has had them since driver 450. Not the header: the agent builds without a toolkit.
using NvmlReturn = int;
using NvmlDevice = void*;
constexpr NvmlReturn kSuccess = 0;

struct NvmlMemory {
  unsigned long long total, free, used;
};

struct NvmlPciInfo {
  char bus_id_legacy[16];
  unsigned int domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};
static_assert(sizeof(NvmlPciInfo) == 68);

class Nvml final : public GpuLibrary {
 public:
  explicit Nvml(std::string file) : file_(std::move(file)) {}
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;
  ~Nvml() override { close(); }

  Result<std::vector<GpuDevice>> devices() override {
    if (auto opened = open(); !opened) return std::unexpected(opened.error());
    auto found = read();
    // After a driver was reloaded every call fails until the library is started again.
    if (!found) close();
    return found;
  }

 private:
  Status open() {
    if (handle_ != nullptr) return {};
    handle_ = dlopen(file_.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ == nullptr) {
      const char* why = dlerror();
      return fail(Code::kNotFound, Origin::kCuda, why == nullptr ? file_ + " cannot be opened" : why);
    }
    const bool complete = bind(init_, "nvmlInit_v2") && bind(shutdown_, "nvmlShutdown") &&
                          bind(count_, "nvmlDeviceGetCount_v2") && bind(by_index_, "nvmlDeviceGetHandleByIndex_v2") &&
                          bind(name_, "nvmlDeviceGetName") && bind(memory_, "nvmlDeviceGetMemoryInfo") &&
                          bind(pci_, "nvmlDeviceGetPciInfo_v3") && bind(error_, "nvmlErrorString");
    if (!complete) {
      unload();
      return fail(Code::kInvalid, Origin::kCuda,
                  file_ + " lacks a function of NVML: it belongs to a driver older than 450; update the driver");
    }
    if (const NvmlReturn code = init_(); code != kSuccess) {
      auto failure = fail(Code::kUnavailable, Origin::kCuda, std::string("nvmlInit: ") + error_(code), true);
      unload();
      return failure;
    }
    return {};
  }

  Result<std::vector<GpuDevice>> read() {
    unsigned int count = 0;
    if (const NvmlReturn code = count_(&count); code != kSuccess) return failed("nvmlDeviceGetCount", code);
    std::vector<GpuDevice> devices;
    for (unsigned int index = 0; index < count; ++index) {
      NvmlDevice device = nullptr;
      // A GPU that fell off the bus must not hide the others: what is missing shows in the comparison with the PCI bus.
      if (by_index_(index, &device) != kSuccess) continue;
      std::array<char, 96> name{};
      NvmlMemory memory{};
      NvmlPciInfo pci{};
      if (name_(device, name.data(), name.size()) != kSuccess || memory_(device, &memory) != kSuccess ||
          pci_(device, &pci) != kSuccess) {
        continue;
      }
      name.back() = '\0';
      pci.bus_id[sizeof pci.bus_id - 1] = '\0';
      devices.push_back({static_cast<int>(index), name.data(), memory.total >> 20U, sysfs_address(pci.bus_id)});
    }
    return devices;
  }

  std::unexpected<Error> failed(const char* call, NvmlReturn code) {
    return fail(Code::kUnavailable, Origin::kCuda, std::string(call) + ": " + error_(code), true);
  }

  template <typename Function>
  bool bind(Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(handle_, name));
    return function != nullptr;
  }

  void close() {
    if (handle_ == nullptr) return;
    shutdown_();
    unload();
  }

  void unload() {
    dlclose(handle_);
    handle_ = nullptr;
  }

  std::string file_;
  void* handle_ = nullptr;
  NvmlReturn (*init_)() = nullptr;
  NvmlReturn (*shutdown_)() = nullptr;
  NvmlReturn (*count_)(unsigned int*) = nullptr;
  NvmlReturn (*by_index_)(unsigned int, NvmlDevice*) = nullptr;
  NvmlReturn (*name_)(NvmlDevice, char*, unsigned int) = nullptr;
  NvmlReturn (*memory_)(NvmlDevice, NvmlMemory*) = nullptr;
  NvmlReturn (*pci_)(NvmlDevice, NvmlPciInfo*) = nullptr;
  const char* (*error_)(NvmlReturn) = nullptr;
};

}  // namespace

std::unique_ptr<GpuLibrary> open_nvml(std::string file) { return std::make_unique<Nvml>(std::move(file)); }

std::string sysfs_address(std::string_view nvml_bus_id) {
  std::string address(nvml_bus_id);
  std::transform(address.begin(), address.end(), address.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  // NVML pads the domain to eight digits, sysfs to four.
  while (address.size() > 12 && address.starts_with('0')) address.erase(0, 1);
  return address;
}

}  // namespace paceline::agent
