// SPDX-License-Identifier: Apache-2.0
// The CUDA driver, opened at run time: allocates memory of a GPU and gives it as a pointer and as a
// dma-buf. Declares only the calls that are used, as the driver's ABI has them, instead of the
// vendor's header.
//
// Belongs to one thread and may hang in a driver, so only the child process of paceline-probe uses
// it. A refusal names the call that was refused.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "agent/device_probe/shared_library.hpp"
#include "agent/device_probe/verbs.hpp"

namespace paceline::agent {

class Cuda {
 public:
  explicit Cuda(const std::string& file);

  bool is_there() const { return library_.problem().empty(); }

  /// The error of a refusal that means "no GPU here" or "no library".
  static constexpr int kNoGpus = -1;
  /// PCI addresses of the GPUs that this process sees, in CUDA's order.
  Refusal list(std::vector<std::string>& addresses);

  /// Memory of one GPU, allocated in its primary context and freed by the destructor.
  class Memory {
   public:
    Memory(const Cuda& cuda, int device) : cuda_(cuda), device_(device) {}
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;
    ~Memory();

    Refusal allocate();
    /// Copies from host memory to it until the time is over.
    Refusal fill_for(std::chrono::milliseconds time);
    /// Allocates memory, exports it to the GPU's NVLink domain and imports it again. The error is
    /// `kNoDomain` for a GPU without a domain.
    Refusal share_with_domain();
    static constexpr int kNoDomain = -1;
    /// Returns a descriptor that this object closes.
    Refusal export_dmabuf(int& descriptor);
    std::uint64_t address() const { return address_; }
    std::size_t size() const { return kSize; }

   private:
    static constexpr std::size_t kSize = std::size_t{2} << 20U;

    const Cuda& cuda_;
    int device_;
    bool has_context_ = false;
    std::uint64_t address_ = 0;
    int descriptor_ = -1;
  };
  /// Memory of the GPU at this index of the list.
  std::unique_ptr<Memory> memory(std::size_t index) const;

 private:
  using Code = int;
  struct Calls {
    Code (*init)(unsigned int flags) = nullptr;
    Code (*count)(int* count) = nullptr;
    Code (*get)(int* device, int ordinal) = nullptr;
    Code (*bus_id)(char* text, int size, int device) = nullptr;
    Code (*attribute)(int* value, int attribute, int device) = nullptr;
    Code (*retain)(void** context, int device) = nullptr;
    Code (*release)(int device) = nullptr;
    Code (*set_current)(void* context) = nullptr;
    Code (*allocate)(std::uint64_t* address, std::size_t size) = nullptr;
    Code (*free)(std::uint64_t address) = nullptr;
    Code (*to_device)(std::uint64_t address, const void* from, std::size_t size) = nullptr;
    Code (*handle)(void* handle, std::uint64_t address, std::size_t size, int kind,
                   unsigned long long flags) = nullptr;
    Code (*granularity)(std::size_t* bytes, const void* properties, int option) = nullptr;
    Code (*create)(std::uint64_t* handle, std::size_t size, const void* properties,
                   unsigned long long flags) = nullptr;
    Code (*share)(void* shareable, std::uint64_t handle, int kind,
                  unsigned long long flags) = nullptr;
    Code (*import)(std::uint64_t* handle, void* shareable, int kind) = nullptr;
    Code (*let_go)(std::uint64_t handle) = nullptr;
    Code (*error_name)(Code code, const char** text) = nullptr;
  };
  Refusal refused(const char* call, Code code) const;

  SharedLibrary library_;
  Calls call_;
  std::vector<int> devices_;
};

}  // namespace paceline::agent
