// SPDX-License-Identifier: Apache-2.0
// Reads the launcher's requests for a window: a number in the file that PACELINE_TRACE_REQUEST
// names, which grows with each request (docs/designs/traces.md).
//
// Owns a descriptor. It reads, and does not map, since a file that is cut short must not end the
// program. One thread. Without the file, or if it cannot be read, nothing is ever asked.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

#include "../contract.hpp"

namespace paceline::cupti {

class WindowRequest {
 public:
  WindowRequest() {
    const char* const path = std::getenv(runtime_env::kTraceRequest);
    if (path != nullptr) file_ = ::open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    seen_ = number();
  }
  ~WindowRequest() {
    if (file_ >= 0) ::close(file_);
  }
  WindowRequest(const WindowRequest&) = delete;
  WindowRequest& operator=(const WindowRequest&) = delete;

  /// Whether the launcher has asked since the last call.
  bool is_new() {
    const std::uint64_t now = number();
    const bool grown = now > seen_;
    seen_ = now;
    return grown;
  }

 private:
  static constexpr off_t kAt = 24;

  std::uint64_t number() const {
    std::uint64_t number = 0;
    const bool read = file_ >= 0 && ::pread(file_, &number, sizeof number, kAt) == sizeof number;
    return read ? number : seen_;
  }

  int file_ = -1;
  std::uint64_t seen_ = 0;
};

}  // namespace paceline::cupti
