// SPDX-License-Identifier: Apache-2.0
// Finds the arrays in NumPy's files: .npy, and .npz as numpy.savez writes it. It reads headers
// only.
//
// Ownership: the caller's. Threads: pure. Failure: text that names the file, the place and the
// remedy. No header is trusted: offsets outside the file are refused. Compressed archives,
// column-major arrays and dtypes that are no plain numbers are refused, too.
#pragma once

#include <cstdint>
#include <expected>
#include <string>
#include <vector>

#include "loader/source/source.hpp"

namespace paceline::loader {

struct Array {
  std::string name;   // empty in an .npy file
  std::string dtype;  // NumPy's text, e.g. "<f4"
  std::vector<std::uint64_t> shape;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;  // of the whole array
};

// Returns the bytes of one number, or 0 if the dtype is no plain little-endian number.
std::uint32_t size_of_dtype(const std::string& dtype);

std::expected<std::vector<Array>, std::string> read_arrays(const Source& source,
                                                           std::size_t object);

}  // namespace paceline::loader
