// SPDX-License-Identifier: Apache-2.0
// The fake driver of fake_cuda.cpp, loaded under the name of the real one, and a folder with
// modules that it takes. One for each process, before the first device is opened. Throws where the
// machine refuses.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "paceline/optim_device.h"

namespace paceline::device_test {

class FakeCuda {
 public:
  explicit FakeCuda(const std::vector<std::string>& modules = {"optim-cuda12-sm_90.cubin"})
      : library_(::dlopen(PACELINE_FAKE_CUDA, RTLD_NOW | RTLD_GLOBAL)) {
    if (library_ == nullptr) throw std::runtime_error(::dlerror());
    char folder[] = "/tmp/paceline-modules-XXXXXX";
    if (::mkdtemp(folder) == nullptr) throw std::runtime_error("no folder for modules");
    folder_ = folder;
    for (const std::string& module : modules)
      std::ofstream(folder_ + "/" + module) << module.substr(module.find('-') + 1);
  }

  FakeCuda(const FakeCuda&) = delete;
  FakeCuda& operator=(const FakeCuda&) = delete;
  ~FakeCuda() { std::filesystem::remove_all(folder_); }

  // Empty, or why not.
  std::string open(int device = 0) {
    char why[512];
    const int status = paceline_optim_device_open(device, folder_.c_str(), why, sizeof why);
    if ((status == PACELINE_OK) != (why[0] == '\0'))
      return "the code and the reason contradict each other";
    return why;
  }

  // Where its modules lie.
  [[nodiscard]] const std::string& folder() const { return folder_; }

  void set(const char* name, int value) {
    function<void(const char*, int)>("fake_cuda_set")(name, value);
  }
  void forget() { function<void()>("fake_cuda_forget")(); }
  std::string log() { return function<const char*()>("fake_cuda_log")(); }
  // Of this thread: a CUstreamCaptureMode.
  int capture_mode() {
    int mode = 0;
    const auto exchange = function<int(int*)>("cuThreadExchangeStreamCaptureMode");
    exchange(&mode);
    const int own = mode;
    exchange(&mode);
    return own;
  }
  // How often kernels have read or written several elements at once.
  long wide() { return function<long()>("fake_cuda_wide")(); }
  bool uneven() { return function<int()>("fake_cuda_uneven")() != 0; }

 private:
  template <typename F>
  F* function(const char* name) {
    return reinterpret_cast<F*>(::dlsym(library_, name));
  }

  void* library_;
  std::string folder_;
};

}  // namespace paceline::device_test
