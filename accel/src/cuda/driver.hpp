// SPDX-License-Identifier: Apache-2.0
// NVIDIA's driver through dlopen: the few functions of libcuda.so.1 that loading a kernel module
// and launching it take. Nothing of CUDA is
// linked or included, so one library runs with any driver, and without one. Ownership: the driver
// stays loaded, and the primary context of a device that was opened retained, to the end of the
// process: the framework's context is the same one, and a module must not go while a captured graph
// may replay it. Threads: any; opening is serialised. Failure: text that says what the driver
// answered, or a negative PACELINE_E*. Nothing is retried.
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

inline constexpr int kSuccess = 0;
inline constexpr int kMostDevices = 64;    // of a process
inline constexpr int kRelaxedCapture = 2;  // CU_STREAM_CAPTURE_MODE_RELAXED

class Driver {
 public:
  // The process's driver; opened once, and a failure is remembered.
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

  int (*capture_mode)(int* mode) = nullptr;  // of this thread, exchanged

 private:
  std::string load();

  int (*init_)(unsigned flags) = nullptr;
  int (*version_get_)(int* version) = nullptr;
  int (*error_name_)(int status, const char** name) = nullptr;
  int version_ = 0;
};

// A context as this thread's current one, for as long as the object lives: what came before it is
// current again afterwards. Where it cannot be, the calls in between say so. They are no part of a
// graph that another thread captures, which forbids most of them to a thread that has not said so.
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

// The context of a device, and the kernels of the one module that fits it.
class Kernels {
 public:
  // Loads <folder>/<name>-cuda<major>-sm_<architecture>.cubin: of the driver's major version, else
  // of an older one; for the device's architecture. `functions` are found in it by name.
  static std::expected<Kernels, std::string> open(int ordinal, std::string_view folder,
                                                  std::string_view name,
                                                  const std::vector<std::string>& functions);

  // Empty where such a module lies there for each device that the driver has; else why one has
  // none. No device is touched.
  static std::string why_not_everywhere(std::string_view folder, std::string_view name);

  // Launches by the index into the names that were opened with, in the device's primary context.
  // Answers the driver's status.
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
