// SPDX-License-Identifier: Apache-2.0
// The room records reads rows of NumPy's files, for `paceline.loader.RecordShards`.
//
// A sample is one row of the arrays in NumPy's files, or one record of a fixed size in files
// without a header. All arrays of a file have the same length along the first axis. Every file has
// the same arrays, except for that length.
//
// Ownership: owns the source and a few numbers for each file. Threads: immutable after
// construction. Failure: text that names the file and the reason.
#pragma once

#include <cstdint>
#include <expected>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "loader/records/npy.hpp"
#include "loader/source/source.hpp"

namespace paceline::loader {

struct Column {
  std::string name;
  std::string dtype;
  std::vector<std::uint64_t> shape;  // of a row
  std::uint64_t bytes = 0;           // of a row

  bool operator==(const Column&) const = default;
};

class Records {
 public:
  // With `raw`, the files consist of records of that size; without it, they are NumPy's.
  static std::expected<std::unique_ptr<Records>, std::string> open(std::unique_ptr<Source> source,
                                                                   const Column* raw);

  std::span<const std::uint64_t> counts() const { return counts_; }  // the samples of each file
  std::uint64_t samples() const { return begins_.back(); }
  std::span<const Column> columns() const { return columns_; }
  // A digest of the columns and counts. It tells whether a checkpoint was made with these records.
  std::uint64_t identity() const;

  // Reads a whole row. `target` has room for it.
  std::expected<void, std::string> read(std::uint64_t sample, std::size_t column,
                                        void* target) const;

 private:
  explicit Records(std::unique_ptr<Source> source) : source_(std::move(source)) {}
  std::expected<std::vector<Array>, std::string> arrays(std::size_t object,
                                                        const Column* raw) const;
  std::string append(std::size_t object, const std::vector<Array>& arrays);

  std::unique_ptr<Source> source_;
  std::vector<Column> columns_;
  std::vector<std::uint64_t> counts_;
  std::vector<std::uint64_t> begins_{0};  // the first sample of each file, and the end
  std::vector<std::uint64_t> offsets_;    // of each column of each file
};

}  // namespace paceline::loader
