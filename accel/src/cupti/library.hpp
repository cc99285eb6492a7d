// SPDX-License-Identifier: Apache-2.0
// libcupti through dlopen. The copy that the process has mapped already is used, because a process
// must not run two. Else the one of the driver's major version is loaded.
//
// Ownership: the library stays loaded until the process ends. Threads: any. Failure: text that says
// what is missing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <string>

#include "abi.hpp"

namespace paceline::cupti {

class Library {
 public:
  static std::expected<Library, std::string> find();

  /// The name of an error code.
  [[nodiscard]] std::string error_name(int status) const;

  int (*subscribe)(void** subscriber, Callback callback, void* user) = nullptr;
  int (*unsubscribe)(void* subscriber) = nullptr;
  int (*enable)(std::uint32_t kind) = nullptr;
  int (*disable)(std::uint32_t kind) = nullptr;
  int (*register_callbacks)(RequestBuffer request, CompleteBuffer complete) = nullptr;
  int (*flush)(std::uint32_t flag) = nullptr;
  int (*next_record)(std::uint8_t* buffer, std::size_t valid, Activity** record) = nullptr;
  int (*dropped_records)(void* context, std::uint32_t stream, std::size_t* dropped) = nullptr;
  int (*timestamp)(std::uint64_t* now) = nullptr;
  // nullptr if this release has none.
  int (*latency_timestamps)(std::uint8_t on) = nullptr;

 private:
  int (*result_name_)(int status, const char** name) = nullptr;
};

}  // namespace paceline::cupti
