// SPDX-License-Identifier: Apache-2.0
// NVIDIA's driver through dlopen: the few functions of libcuda.so.1 that load a kernel module and
// launch it, and those that measure time on the device. Nothing of CUDA is linked or included, so
// one library runs with any driver, and without one.
//
// Ownership: the driver stays loaded, and the primary context of each opened device stays retained,
// until the process ends. The framework uses the same context, and a captured graph may replay a
// module at any time. Threads: any; opening is serialised. Failure: text with the driver's answer,
// or a negative PACELINE_E*. Nothing is retried.
#pragma once

#include <array>
#include <cstddef>
#include <expected>
#include <string>
#include <string_view>
#include <vector>

namespace paceline::cuda {

using Context = void*;
using Module = void*;
using Function = void*;
using Stream = void*;
using Event = void*;

inline constexpr int kSuccess = 0;
inline constexpr int kNotReady = 600;      // CUDA_ERROR_NOT_READY
inline constexpr int kMostDevices = 64;    // most devices of a process
inline constexpr int kRelaxedCapture = 2;  // CU_STREAM_CAPTURE_MODE_RELAXED

class Driver {
 public:
  // The driver of the process. It is opened once, and a failure is cached.
  static std::expected<const Driver*, std::string> get();

  [[nodiscard]] int version() const { return version_; }
  [[nodiscard]] std::string error_name(int status) const;

  int (*device_get)(int* device, int ordinal) = nullptr;
  int (*device_get_attribute)(int* value, int attribute, int device) = nullptr;
  int (*context_retain)(Context* context, int device) = nullptr;
  int (*context_push)(Context context) = nullptr;
  int (*context_pop)(Context* context) = nullptr;
  int (*module_load)(Module* module, const void* image) = nullptr;
  int (*module_function)(Function* function, Module module, const char* name) = nullptr;
  int (*launch)(Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                Stream stream, void** parameters, void** extra) = nullptr;

  int (*capture_mode)(int* mode) = nullptr;  // exchanges the capture mode of this thread
  int (*stream_is_capturing)(Stream stream, int* status) = nullptr;  // status 0: it is not

  int (*context_current)(Context* context) = nullptr;
  int (*context_device)(int* device) = nullptr;
  int (*device_pci_address)(char* text, int size, int device) = nullptr;
  int (*event_create)(Event* event, unsigned flags) = nullptr;
  int (*event_record)(Event event, Stream stream) = nullptr;
  int (*event_query)(Event event) = nullptr;
  int (*event_elapsed)(float* milliseconds, Event from, Event to) = nullptr;

 private:
  std::string load();

  int (*init_)(unsigned flags) = nullptr;
  int (*version_get_)(int* version) = nullptr;
  int (*error_name_)(int status, const char** name) = nullptr;
  int version_ = 0;
};

// Makes a context the current one of this thread while the object lives. The previous context is
// current again afterwards. If the driver refuses, the calls in between fail. The calls stay out of
// graphs that other threads capture: such a capture forbids most calls to threads that did not
// choose the relaxed mode.
class Current {
 public:
  Current(const Driver& driver, Context context)
      : driver_(driver), pushed_(driver.context_push(context) == kSuccess) {
    driver_.capture_mode(&mode_);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
  ~Current() {
    driver_.capture_mode(&mode_);
    Context ours = nullptr;
    if (pushed_) driver_.context_pop(&ours);
  }

 private:
  const Driver& driver_;
  bool pushed_;
  int mode_ = kRelaxedCapture;
};

// The context of a device, and the kernels of the module that fits it.
class Kernels {
 public:
  // Loads <folder>/<name>-cuda<major>-sm_<architecture>.cubin for the architecture of the device.
  // The major version is the driver's, else an older one. `functions` are the names of its kernels.
  static std::expected<Kernels, std::string> open(int ordinal, std::string_view folder,
                                                  std::string_view name,
                                                  const std::vector<std::string>& functions);

  // Launches a kernel in the primary context of the device. `function` is an index into the names
  // that were passed to open(). Returns the status of the driver.
  [[nodiscard]] int launch(std::size_t function, unsigned blocks, unsigned threads, Stream stream,
                           void* parameter) const;

  [[nodiscard]] const std::string& module_name() const { return module_name_; }
  [[nodiscard]] const Driver& driver() const { return *driver_; }
  [[nodiscard]] Current current() const { return {*driver_, context_}; }

 private:
  const Driver* driver_ = nullptr;
  Context context_ = nullptr;
  std::vector<Function> functions_;
  std::string module_name_;
};

}  // namespace paceline::cuda
