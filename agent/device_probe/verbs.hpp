// SPDX-License-Identifier: Apache-2.0
// libibverbs, opened at run time: opens an RDMA device and registers memory with it. Declares the
// functions itself instead of including the vendor's header: they are exported unchanged since
// rdma-core 1.1 (ibv_reg_dmabuf_mr since 34), and the pointers they return are passed on unread.
//
// Belongs to one thread and may hang in a driver, so only the child process of paceline-probe uses
// it. A refusal holds the errno and the call that was refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "agent/device_probe/shared_library.hpp"

namespace paceline::agent {

/// An errno and the refused call; both empty if the call succeeded.
struct Refusal {
  int error = 0;
  std::string why;
  bool refused() const { return !why.empty(); }
};

class Verbs {
 public:
  explicit Verbs(const std::string& file);
  Verbs(const Verbs&) = delete;
  Verbs& operator=(const Verbs&) = delete;
  ~Verbs();

  /// Empty if the library can be used.
  const std::string& problem() const { return library_.problem(); }

  /// Names of the devices, in the library's order.
  Refusal list(std::vector<std::string>& names);

  /// An open device with a protection domain; the destructor closes both.
  class Nic {
   public:
    Nic(const Verbs& verbs, void* context, void* domain)
        : verbs_(verbs), context_(context), domain_(domain) {}
    Nic(const Nic&) = delete;
    Nic& operator=(const Nic&) = delete;
    ~Nic();

    /// A port's MTUs in bytes; 0 if unknown.
    struct Port {
      int active_mtu = 0;
      int max_mtu = 0;
    };
    Refusal query_port(int number, Port& port) const;
    /// Registers memory and undoes it.
    Refusal register_pointer(void* address, std::size_t size) const;
    Refusal register_dmabuf(int descriptor, std::uint64_t address, std::size_t size) const;
    /// NCCL's test for dma-buf: an empty registration must fail, but not with the error of a driver
    /// that does not support it.
    Refusal knows_dmabuf() const;

   private:
    const Verbs& verbs_;
    void* context_;
    void* domain_;
  };
  std::unique_ptr<Nic> open(std::size_t index, Refusal& refusal) const;

 private:
  struct Calls {
    void** (*get_device_list)(int* count) = nullptr;
    void (*free_device_list)(void** list) = nullptr;
    const char* (*get_device_name)(void* device) = nullptr;
    void* (*open_device)(void* device) = nullptr;
    int (*close_device)(void* context) = nullptr;
    void* (*alloc_pd)(void* context) = nullptr;
    int (*dealloc_pd)(void* domain) = nullptr;
    void* (*reg_mr)(void* domain, void* address, std::size_t length, int access) = nullptr;
    void* (*reg_dmabuf_mr)(void* domain, std::uint64_t offset, std::size_t length,
                           std::uint64_t iova, int descriptor, int access) = nullptr;
    int (*dereg_mr)(void* region) = nullptr;
    int (*query_port)(void* context, std::uint8_t port, void* attributes) = nullptr;
  };

  SharedLibrary library_;
  Calls call_;
  void** devices_ = nullptr;
  int count_ = 0;
};

}  // namespace paceline::agent
