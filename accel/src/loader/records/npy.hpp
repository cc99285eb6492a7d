// SPDX-License-Identifier: Apache-2.0
// Where the arrays of NumPy's files lie: .npy, and .npz as numpy.savez writes it. Headers only are
// read.
//
// Ownership: the caller's. Threads: pure. Failure: text that names the file, the place and the
// remedy; a file is believed in nothing: what points outside it is refused, so are compressed
// archives, columns first, and what is no plain number.
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
  std::uint64_t bytes = 0;  // of all of it
};

// Bytes of one number, or 0 for what is no plain little-endian number.
std::uint32_t size_of_dtype(const std::string& dtype);

std::expected<std::vector<Array>, std::string> read_arrays(const Source& source,
                                                           std::size_t object);

}  // namespace paceline::loader
