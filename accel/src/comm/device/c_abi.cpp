// SPDX-License-Identifier: Apache-2.0
// The exported functions (comm_device.h): arguments checked, then one call. No exception leaves.
#include "../c_abi.hpp"

#include <vector>

#include "paceline/comm_device.h"

namespace comm_core = paceline::comm;

namespace {

struct Given {
  const void* in;
  void* out;
  uint64_t count;
  uint64_t pieces;  // of an array, at most
  uint32_t root;
};

int start(paceline_comm* comm, comm_core::Kind kind, const Given& given, uint32_t dtype,
          void* stream, uint64_t* ticket) {
  const bool usable = ticket != nullptr &&
                      ((given.in != nullptr && given.out != nullptr) || given.count == 0) &&
                      comm_core::fits(given.count, dtype, given.pieces) && comm != nullptr &&
                      given.root < comm->it->ranks();
  return comm_core::guarded(comm, usable, [&](comm_core::Communicator& it) {
    const auto started =
        it.start_on_device(kind,
                           {.type = comm_core::Type{dtype},
                            .in = reinterpret_cast<paceline::cuda::Address>(given.in),
                            .out = reinterpret_cast<paceline::cuda::Address>(given.out),
                            .count = given.count},
                           given.root, stream);
    if (!started) return started.error();
    *ticket = *started;
    return PACELINE_OK + 0;
  });
}

// Null counts: all are `count`.
struct GivenSwap {
  const void* in;
  const uint64_t* in_counts;
  void* out;
  const uint64_t* out_counts;
  uint64_t count;
};

// One behind the other. Empty where they are more than memory has, or there is no memory.
std::vector<comm_core::Part> parts_of(const void* data, const uint64_t* counts, uint64_t count,
                                      std::uint32_t ranks, uint32_t dtype) {
  std::vector<comm_core::Part> parts;
  uint64_t at = 0;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    const uint64_t one = counts == nullptr ? count : counts[rank];
    if (!comm_core::fits(one, dtype, 1) || !comm_core::fits(at + one, dtype, 1)) return {};
    parts.push_back({.begin = at, .count = one});
    at += one;
  }
  return data != nullptr || at == 0 ? parts : std::vector<comm_core::Part>{};
}

int start_swap(paceline_comm* comm, const GivenSwap& given, uint32_t dtype, void* stream,
               uint64_t* ticket) {
  const bool usable = ticket != nullptr && comm_core::is_type(dtype);
  return comm_core::guarded(comm, usable, [&](comm_core::Communicator& it) -> int {
    const comm_core::device::Swap swap{
        .type = comm_core::Type{dtype},
        .in = reinterpret_cast<paceline::cuda::Address>(given.in),
        .out = reinterpret_cast<paceline::cuda::Address>(given.out),
        .given = parts_of(given.in, given.in_counts, given.count, it.ranks(), dtype),
        .taken = parts_of(given.out, given.out_counts, given.count, it.ranks(), dtype),
        .most = given.count};
    const std::uint32_t rank = it.rank();
    if (swap.given.empty() || swap.taken.empty() ||
        swap.given[rank].count != swap.taken[rank].count)
      return PACELINE_EINVAL;
    const auto started = it.start_swap_on_device(swap, given.in_counts == nullptr, stream);
    if (!started) return started.error();
    *ticket = *started;
    return PACELINE_OK;
  });
}

}  // namespace

extern "C" {

int paceline_comm_device_open(struct paceline_comm* comm, int32_t device, const char* folder,
                              struct paceline_comm_device* used, char* why, uint64_t why_bytes) {
  const bool usable = folder != nullptr && (used == nullptr || used->size == sizeof *used);
  return comm_core::guarded(comm, usable, [&](comm_core::Communicator& it) {
    if (auto opened = it.open_device(device, folder); !opened) {
      comm_core::copy_text(opened.error().text, why, why_bytes);
      return opened.error().code;
    }
    const comm_core::DeviceUse use = it.device_use();
    if (used != nullptr)
      *used = {
          .size = sizeof *used, .reserved = 0, .pool_bytes = use.pool_bytes, .stream = use.stream};
    return PACELINE_OK + 0;
  });
}

int paceline_comm_device_allreduce_start(struct paceline_comm* comm, void* data, uint64_t count,
                                         uint32_t dtype, void* stream, uint64_t* ticket) {
  return start(comm, comm_core::Kind::kAllreduce,
               {.in = data, .out = data, .count = count, .pieces = 1, .root = 0}, dtype, stream,
               ticket);
}

int paceline_comm_device_reduce_scatter_start(struct paceline_comm* comm, const void* in, void* out,
                                              uint64_t count, uint32_t dtype, void* stream,
                                              uint64_t* ticket) {
  return start(comm, comm_core::Kind::kReduceScatter,
               {.in = in, .out = out, .count = count, .pieces = PACELINE_COMM_MAX_RANKS, .root = 0},
               dtype, stream, ticket);
}

int paceline_comm_device_allgather_start(struct paceline_comm* comm, const void* in, void* out,
                                         uint64_t count, uint32_t dtype, void* stream,
                                         uint64_t* ticket) {
  return start(comm, comm_core::Kind::kAllgather,
               {.in = in, .out = out, .count = count, .pieces = PACELINE_COMM_MAX_RANKS, .root = 0},
               dtype, stream, ticket);
}

int paceline_comm_device_broadcast_start(struct paceline_comm* comm, void* data, uint64_t count,
                                         uint32_t dtype, uint32_t root, void* stream,
                                         uint64_t* ticket) {
  return start(comm, comm_core::Kind::kBroadcast,
               {.in = data, .out = data, .count = count, .pieces = 1, .root = root}, dtype, stream,
               ticket);
}

int paceline_comm_device_reduce_start(struct paceline_comm* comm, void* data, uint64_t count,
                                      uint32_t dtype, uint32_t root, void* stream,
                                      uint64_t* ticket) {
  return start(comm, comm_core::Kind::kReduce,
               {.in = data, .out = data, .count = count, .pieces = 1, .root = root}, dtype, stream,
               ticket);
}

int paceline_comm_device_alltoall_start(struct paceline_comm* comm, const void* in, void* out,
                                        uint64_t count, uint32_t dtype, void* stream,
                                        uint64_t* ticket) {
  return start_swap(
      comm, {.in = in, .in_counts = nullptr, .out = out, .out_counts = nullptr, .count = count},
      dtype, stream, ticket);
}

int paceline_comm_device_alltoallv_start(struct paceline_comm* comm, const void* in,
                                         const uint64_t* in_counts, void* out,
                                         const uint64_t* out_counts, uint32_t dtype, void* stream,
                                         uint64_t* ticket) {
  if (in_counts == nullptr || out_counts == nullptr) return PACELINE_EINVAL;
  return start_swap(
      comm, {.in = in, .in_counts = in_counts, .out = out, .out_counts = out_counts, .count = 0},
      dtype, stream, ticket);
}

int paceline_comm_device_wait(struct paceline_comm* comm, uint64_t ticket, void* stream) {
  return comm_core::guarded(
      comm, true, [&](comm_core::Communicator& it) { return it.wait_device(ticket, stream); });
}

}  // extern "C"
