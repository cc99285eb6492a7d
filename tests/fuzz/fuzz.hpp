// SPDX-License-Identifier: Apache-2.0
// What all fuzz targets share. A target is one function over any bytes. libFuzzer calls it in the
// preset `fuzz`; in every other build replay.cpp calls it with the corpus. So the unit tests and
// the sanitizers repeat every input that was found once.
//
// A target must not crash, hang, or read out of bounds; `require` ends the process if the code
// breaks a guarantee.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

// NOLINTNEXTLINE(readability-identifier-naming): the name is libFuzzer's
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace paceline::fuzz {

inline std::string_view text(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

inline void require(bool holds, const char* promise) {
  if (holds) return;
  std::fprintf(stderr, "broken promise: %s\n", promise);
  std::abort();
}

/// Takes bytes from the front; zeros if none are left.
class Bytes {
 public:
  Bytes(const std::uint8_t* data, std::size_t size) : data_(data), left_(size) {}
  bool empty() const { return left_ == 0; }
  std::uint8_t byte() {
    if (left_ == 0) return 0;
    --left_;
    return *data_++;
  }
  std::uint32_t number(int bytes) {
    std::uint32_t value = 0;
    for (int i = 0; i < bytes; ++i) value = value << 8 | byte();
    return value;
  }
  std::string_view take(std::size_t count) {
    count = count < left_ ? count : left_;
    const std::string_view piece = text(data_, count);
    data_ += count;
    left_ -= count;
    return piece;
  }
  std::string_view rest() { return take(left_); }

 private:
  const std::uint8_t* data_;
  std::size_t left_;
};

}  // namespace paceline::fuzz
