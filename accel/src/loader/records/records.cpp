// SPDX-License-Identifier: Apache-2.0
#include "loader/records/records.hpp"

#include <algorithm>

#include "loader/source/digest.hpp"

namespace paceline::loader {

std::expected<std::vector<Array>, std::string> Records::arrays(std::size_t object,
                                                               const Column* raw) const {
  if (raw == nullptr) return read_arrays(*source_, object);
  const auto total = source_->size(object);
  if (!total) return std::unexpected(total.error());
  if (*total % raw->bytes != 0)
    return std::unexpected(source_->name(object) + ": its " + std::to_string(*total) +
                           " bytes are no whole number of records of " +
                           std::to_string(raw->bytes) + " bytes");
  Array array{
      .name = raw->name, .dtype = raw->dtype, .shape = raw->shape, .offset = 0, .bytes = *total};
  array.shape.insert(array.shape.begin(), *total / raw->bytes);
  return std::vector<Array>{std::move(array)};
}

// Adds a file. Returns what is wrong with it, or an empty string.
std::string Records::append(std::size_t object, const std::vector<Array>& arrays) {
  const std::uint64_t count = arrays.front().shape.front();
  std::vector<Column> columns;
  std::vector<std::uint64_t> offsets;
  for (const Array& array : arrays) {
    if (array.shape.front() != count)
      return "array " + array.name + " has " + std::to_string(array.shape.front()) + " rows, and " +
             arrays.front().name + " has " + std::to_string(count) +
             ": one row of each is a sample";
    columns.push_back({.name = array.name,
                       .dtype = array.dtype,
                       .shape = {array.shape.begin() + 1, array.shape.end()},
                       .bytes = count == 0 ? 0 : array.bytes / count});
    offsets.push_back(array.offset);
  }
  if (object == 0) columns_ = columns;
  // A file of 0 rows does not tell how long a row is, so the bytes are not compared.
  const auto same = [&](const Column& one, const Column& other) {
    return one.name == other.name && one.dtype == other.dtype && one.shape == other.shape;
  };
  if (!std::equal(columns.begin(), columns.end(), columns_.begin(), columns_.end(), same))
    return "it has other arrays than " + source_->name(0) +
           ": names, dtypes and shapes but for the first axis must be the same";
  for (std::size_t i = 0; i < columns.size(); ++i)
    columns_[i].bytes = std::max(columns_[i].bytes, columns[i].bytes);
  counts_.push_back(count);
  begins_.push_back(begins_.back() + count);
  offsets_.insert(offsets_.end(), offsets.begin(), offsets.end());
  return {};
}

std::expected<std::unique_ptr<Records>, std::string> Records::open(std::unique_ptr<Source> source,
                                                                   const Column* raw) {
  std::unique_ptr<Records> records(new Records(std::move(source)));
  for (std::size_t object = 0; object < records->source_->count(); ++object) {
    const auto arrays = records->arrays(object, raw);
    if (!arrays) return std::unexpected(arrays.error());
    if (const std::string wrong = records->append(object, *arrays); !wrong.empty())
      return std::unexpected(records->source_->name(object) + ": " + wrong);
  }
  return records;
}

std::uint64_t Records::identity() const {
  std::uint64_t identity = digest(counts_.data(), counts_.size() * sizeof counts_[0], 0);
  for (const Column& column : columns_) {
    identity = digest(column.name.data(), column.name.size(), identity);
    identity = digest(column.dtype.data(), column.dtype.size(), identity);
    identity = digest(column.shape.data(), column.shape.size() * sizeof column.shape[0], identity);
  }
  return identity;
}

std::expected<void, std::string> Records::read(std::uint64_t sample, std::size_t column,
                                               void* target) const {
  const auto file = static_cast<std::size_t>(
      std::upper_bound(begins_.begin(), begins_.end(), sample) - begins_.begin() - 1);
  const std::uint64_t size = columns_[column].bytes;
  const std::uint64_t at =
      offsets_[file * columns_.size() + column] + (sample - begins_[file]) * size;
  const auto got = source_->pread(file, at, target, size);
  if (!got) return std::unexpected(got.error());
  if (*got == size) return {};
  return std::unexpected(source_->name(file) + ": row " + std::to_string(sample - begins_[file]) +
                         " ends early: the file became shorter after it was opened");
}

}  // namespace paceline::loader
