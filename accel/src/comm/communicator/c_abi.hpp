// SPDX-License-Identifier: Apache-2.0
// What the exported functions share: the handle, and how exceptions and texts leave the library.
//
// Ownership: the caller of the C ABI owns the handle. Threads: as comm.h says. Failure: a code.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <system_error>

#include "comm/communicator/communicator.hpp"

struct paceline_comm {
  std::unique_ptr<paceline::comm::Communicator> it;
  paceline::comm::Sparse
      sparse;  // the result of the last sparse allreduce, until the caller takes it
};

namespace paceline::comm {

inline void copy_text(const std::string& from, char* text, std::uint64_t capacity) {
  if (text == nullptr || capacity == 0) return;
  const std::size_t size = std::min<std::size_t>(from.size(), capacity - 1);
  std::memcpy(text, from.data(), size);
  text[size] = '\0';
}

inline bool fits(std::uint64_t count, std::uint32_t dtype, std::uint64_t pieces) {
  return is_type(dtype) &&
         count <= std::numeric_limits<std::int64_t>::max() / pieces / size_of(Type{dtype});
}

template <typename Work>
int guarded(paceline_comm* comm, bool usable, const Work& work) {
  if (comm == nullptr || !usable) return PACELINE_EINVAL;
  try {
    return work(*comm->it);
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
    return PACELINE_ESYSTEM;
  } catch (const std::system_error& error) {
    errno = error.code().value();
    return PACELINE_ESYSTEM;
  }
}

}  // namespace paceline::comm
