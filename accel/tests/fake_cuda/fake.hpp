// SPDX-License-Identifier: Apache-2.0
// The fake driver of fake_cuda.cpp, loaded under the name of the real one, and a folder with
// modules that it takes. One for each process, before the first device is opened. Throws where the
// machine refuses.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "paceline/ops_device.h"
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

  // The same for the operators of vision models.
  std::string open_operators(int device = 0) {
    char why[512];
    const int status = paceline_ops_device_open(device, folder_.c_str(), why, sizeof why);
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
  // Queues work that takes the device so long.
  void work(void* stream, std::uint64_t ns) {
    function<void(void*, std::uint64_t)>("fake_cuda_work")(stream, ns);
  }
  // Moves the clock of the device.
  void advance(std::uint64_t ns) { function<void(std::uint64_t)>("fake_cuda_advance")(ns); }
  // How many events were created.
  int events() { return function<int()>("fake_cuda_events")(); }
  // Makes the context of a device the current one of this thread, as the program itself does.
  void push_context(int device) {
    function<int(void*)>("cuCtxPushCurrent_v2")(
        reinterpret_cast<void*>(static_cast<std::uintptr_t>(device) + 1));
  }
  void pop_context() {
    void* context = nullptr;
    function<int(void**)>("cuCtxPopCurrent_v2")(&context);
  }
  // How often a call has ended a capture of another thread.
  int captures_broken() { return function<int(const char*)>("fake_cuda_value")("captures broken"); }
  // How often a function was called, by the log.
  int calls(const std::string& name) {
    const std::string text = "\n" + log();
    int count = 0;
    for (std::size_t at = 0; (at = text.find("\n" + name, at)) != std::string::npos; ++at) ++count;
    return count;
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
