// SPDX-License-Identifier: Apache-2.0
// A file descriptor that is closed with its owner; -1: none. One owner, not thread-safe; closing
// fails silently.
#pragma once

#include <unistd.h>

namespace paceline::agent {

class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { close(); }
  int number() const { return number_; }
  void close() {
    if (number_ >= 0) ::close(number_);
    number_ = -1;
  }

 private:
  int number_;
};

}  // namespace paceline::agent
