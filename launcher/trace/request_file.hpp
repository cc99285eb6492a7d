// SPDX-License-Identifier: Apache-2.0
// RequestFile: the small file by which a launcher asks its ranks to record steps. Each rank maps it
// and compares one number at a step boundary (paceline/_core/on_demand.py), so nothing is polled.
// The ranks write what they recorded into the same folder. The thread of kernel windows reads
// another number of it (accel/src/cupti/window_request.hpp).
//
// Owns the descriptor; one thread. The folder is open to all users, like /tmp, because ranks may
// run as another user than the launcher. Failure: an Error that names the path.
#pragma once

#include <cstdint>
#include <filesystem>

#include "common/base/error.hpp"
#include "common/base/unique_fd.hpp"

namespace paceline::traces {

class RequestFile {
 public:
  /// Makes the folder, and an empty request in it. What an earlier launcher left there is removed.
  static Result<RequestFile> make(const std::filesystem::path& folder);
  static std::filesystem::path path_in(const std::filesystem::path& folder) {
    return folder / "request";
  }

  /// Asks for `steps` steps from this one on; 0 steps end what was asked for before. The sequence
  /// number of the request, which ranks repeat, is `sequence()` then.
  Status ask(std::uint64_t start_step, std::uint64_t steps);
  std::uint64_t sequence() const { return sequence_; }
  /// Asks for a kernel window now.
  Status ask_for_window();

 private:
  explicit RequestFile(UniqueFd file) : file_(std::move(file)) {}
  UniqueFd file_;
  std::uint64_t sequence_ = 0;
  std::uint64_t windows_ = 0;  // that were asked for
};

}  // namespace paceline::traces
