// SPDX-License-Identifier: Apache-2.0
// The room records reads rows of NumPy's files, for `paceline.loader.RecordShards`.
//
// Samples that are rows: of the arrays in NumPy's files (all arrays of a file have the same first
// axis), or records of one size in files without a header. Every file has the same arrays but for
// the length of that axis.
//
// Ownership: of the source and of a few numbers for each file. Threads: immutable once made.
// Failure: text that names the file and the reason.
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
  // `raw`: files of such records; without it, NumPy's.
  static std::expected<std::unique_ptr<Records>, std::string> open(std::unique_ptr<Source> source,
                                                                   const Column* raw);

  std::span<const std::uint64_t> counts() const { return counts_; }  // samples of each file
  std::uint64_t samples() const { return begins_.back(); }
  std::span<const Column> columns() const { return columns_; }
  // Of the columns and counts: tells whether these are the records that a checkpoint speaks of.
  std::uint64_t identity() const;

  // All of the row; `target` has room for it.
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
  std::vector<std::uint64_t> begins_{0};  // of each file's samples, and their end
  std::vector<std::uint64_t> offsets_;    // for each file, of each column
};

}  // namespace paceline::loader
