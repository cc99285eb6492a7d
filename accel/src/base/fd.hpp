// SPDX-License-Identifier: Apache-2.0
// Owns one file descriptor and closes it. The one owner of descriptors in accel/.
//
// Ownership: unique. Threads: as any value. Nothing fails.
#pragma once

#include <unistd.h>

#include <utility>

namespace paceline::base {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int number) : number_(number) {}
  Fd(Fd&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Fd() {
    if (number_ >= 0) ::close(number_);
  }
  int get() const { return number_; }
  // Returns the number; its caller closes it.
  [[nodiscard]] int release() { return std::exchange(number_, -1); }
  explicit operator bool() const { return number_ >= 0; }

 private:
  int number_ = -1;
};

}  // namespace paceline::base
