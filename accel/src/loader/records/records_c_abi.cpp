// SPDX-License-Identifier: Apache-2.0
// The functions of records.h. Each checks its arguments and makes one call; no exception leaves it.
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "loader/order/order.hpp"
#include "loader/order/order_abi.hpp"
#include "loader/records/records.hpp"
#include "loader/source/reason.hpp"
#include "paceline/records.h"

struct paceline_records {
  std::unique_ptr<paceline::loader::Records> it;
};

extern "C" {

int paceline_records_open(const char* const* paths, uint32_t count, uint64_t raw_bytes,
                          struct paceline_records** records, char* why, uint64_t why_size) {
  if (records == nullptr || (paths == nullptr && count > 0)) return PACELINE_EINVAL;
  try {
    using paceline::loader::Records;
    auto source = std::make_unique<paceline::loader::FileSource>(
        std::vector<std::string>(paths, paths + count));
    const paceline::loader::Column raw{.name = {}, .dtype = {}, .shape = {}, .bytes = raw_bytes};
    auto opened = Records::open(std::move(source), raw_bytes > 0 ? &raw : nullptr);
    if (!opened) {
      paceline::loader::say(opened.error(), why, why_size);
      return PACELINE_ESYSTEM;
    }
    *records = new paceline_records{std::move(*opened)};
    return PACELINE_OK;
  } catch (const std::bad_alloc&) {
    paceline::loader::say("no memory for the headers of the files", why, why_size);
    return PACELINE_ESYSTEM;
  }
}

void paceline_records_close(struct paceline_records* records) { delete records; }

uint64_t paceline_records_samples(const struct paceline_records* records) {
  return records == nullptr ? 0 : records->it->samples();
}

uint64_t paceline_records_identity(const struct paceline_records* records) {
  return records == nullptr ? 0 : records->it->identity();
}

uint32_t paceline_records_columns(const struct paceline_records* records) {
  return records == nullptr ? 0 : static_cast<uint32_t>(records->it->columns().size());
}

int paceline_records_column(const struct paceline_records* records, uint32_t column,
                            const char** name, const char** dtype, const uint64_t** shape,
                            uint32_t* sides, uint64_t* bytes) {
  if (records == nullptr || column >= records->it->columns().size() || name == nullptr ||
      dtype == nullptr || shape == nullptr || sides == nullptr || bytes == nullptr)
    return PACELINE_EINVAL;
  const auto& found = records->it->columns()[column];
  *name = found.name.c_str();
  *dtype = found.dtype.c_str();
  *shape = found.shape.data();
  *sides = static_cast<uint32_t>(found.shape.size());
  *bytes = found.bytes;
  return PACELINE_OK;
}

int paceline_records_read(const struct paceline_records* records, uint64_t sample, uint32_t column,
                          void* buffer, uint64_t size, char* why, uint64_t why_size) {
  if (records == nullptr || sample >= records->it->samples() ||
      column >= records->it->columns().size() || size != records->it->columns()[column].bytes ||
      (buffer == nullptr && size > 0))
    return PACELINE_EINVAL;
  try {
    const auto read = records->it->read(sample, column, buffer);
    if (read) return PACELINE_OK;
    paceline::loader::say(read.error(), why, why_size);
  } catch (const std::bad_alloc&) {
    paceline::loader::say("no memory for a message", why, why_size);
  }
  return PACELINE_ESYSTEM;
}

int paceline_records_length(const struct paceline_records* records,
                            const struct paceline_order* order, uint64_t* length) {
  if (records == nullptr || !paceline::loader::valid(order) || length == nullptr)
    return PACELINE_EINVAL;
  *length = length_of(paceline::loader::order_of(*order), records->it->samples());
  return PACELINE_OK;
}

int paceline_records_order(const struct paceline_records* records,
                           const struct paceline_order* order, uint64_t first, uint64_t count,
                           uint64_t* samples) {
  if (records == nullptr) return PACELINE_EINVAL;
  return paceline::loader::give_order(records->it->counts(), records->it->samples(), order,
                                      {first, count}, samples);
}

}  // extern "C"
