// SPDX-License-Identifier: Apache-2.0
// The kernels of one source for every device of the process. The module of a device is opened when
// it is first needed, and the result is cached.
//
// Ownership: a static object of the source that launches the kernels, which stay loaded until the
// process ends. Threads: any; opening is serialised for each device. Failure: text that says why a
// device has no kernels.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "driver.hpp"

namespace paceline::cuda {

class KernelSet {
 public:
  static bool is_device(int device) { return device >= 0 && device < kMostDevices; }

  // `name` is that of the source, as in the names of its modules. `functions` are in the order of
  // the indices of launch().
  KernelSet(std::string name, std::vector<std::string> functions)
      : name_(std::move(name)), functions_(std::move(functions)) {}
  KernelSet(const KernelSet&) = delete;
  KernelSet& operator=(const KernelSet&) = delete;

  // Opens the module of a device. Returns an empty string, or why the device has none. `folder`
  // holds the modules; only the folder of the first call is used.
  std::string open(int device, const std::string& folder) {
    if (!is_device(device))
      return "device " + std::to_string(device) + ": there may be " + std::to_string(kMostDevices);
    Opened& opened = devices_[static_cast<std::size_t>(device)];
    std::call_once(opened.once, [&] {
      auto kernels = Kernels::open(device, folder, name_, functions_);
      if (kernels) {
        opened.kernels = std::make_unique<const Kernels>(std::move(*kernels));
      } else {
        opened.problem = kernels.error();
      }
    });
    return opened.problem;
  }

  // Returns null before open() has found them.
  [[nodiscard]] const Kernels* on(int device) const {
    return is_device(device) ? devices_[static_cast<std::size_t>(device)].kernels.get() : nullptr;
  }

 private:
  struct Opened {
    std::once_flag once;
    std::string problem;
    std::unique_ptr<const Kernels> kernels;
  };

  const std::string name_;
  const std::vector<std::string> functions_;
  std::array<Opened, kMostDevices> devices_;
};

}  // namespace paceline::cuda
