// SPDX-License-Identifier: Apache-2.0
// The functions of shards.h. Each checks its arguments and makes one call; no exception leaves it.
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "loader/order/order.hpp"
#include "loader/order/order_abi.hpp"
#include "loader/shards/handle.hpp"
#include "loader/shards/shards.hpp"
#include "loader/source/reason.hpp"
#include "paceline/shards.h"

namespace loader = paceline::loader;

namespace {

using loader::say;

const loader::Sample* sample_of(const paceline_shards* shards, std::uint64_t sample) {
  return shards != nullptr && sample < shards->it->samples().size() ? &shards->it->samples()[sample]
                                                                    : nullptr;
}

const loader::Member* member_of(const paceline_shards* shards, std::uint64_t sample,
                                std::uint32_t member) {
  const loader::Sample* found = sample_of(shards, sample);
  return found != nullptr && member < found->members ? &shards->it->members(*found)[member]
                                                     : nullptr;
}

}  // namespace

extern "C" {

int paceline_shards_open(const char* const* paths, uint32_t count, uint32_t threads,
                         struct paceline_shards** shards, char* why, uint64_t why_size) {
  if (shards == nullptr || (paths == nullptr && count > 0)) return PACELINE_EINVAL;
  try {
    auto source =
        std::make_unique<loader::FileSource>(std::vector<std::string>(paths, paths + count));
    auto opened = loader::Shards::open(std::move(source), threads);
    if (!opened) {
      say(opened.error(), why, why_size);
      return PACELINE_ESYSTEM;
    }
    *shards = new paceline_shards{std::move(*opened)};
    return PACELINE_OK;
  } catch (const std::bad_alloc&) {
    say("no memory for the index of the shards", why, why_size);
    return PACELINE_ESYSTEM;
  }
}

void paceline_shards_close(struct paceline_shards* shards) { delete shards; }

uint64_t paceline_shards_samples(const struct paceline_shards* shards) {
  return shards == nullptr ? 0 : shards->it->samples().size();
}

uint64_t paceline_shards_identity(const struct paceline_shards* shards) {
  return shards == nullptr ? 0 : shards->it->identity();
}

int paceline_shards_sample(const struct paceline_shards* shards, uint64_t sample, const char** key,
                           uint32_t* members) {
  const loader::Sample* found = sample_of(shards, sample);
  if (found == nullptr || key == nullptr || members == nullptr) return PACELINE_EINVAL;
  *key = shards->it->key(*found);
  *members = found->members;
  return PACELINE_OK;
}

int paceline_shards_member(const struct paceline_shards* shards, uint64_t sample, uint32_t member,
                           const char** extension, uint64_t* size) {
  const loader::Member* found = member_of(shards, sample, member);
  if (found == nullptr || extension == nullptr || size == nullptr) return PACELINE_EINVAL;
  *extension = shards->it->extension(*found).c_str();
  *size = found->size;
  return PACELINE_OK;
}

int paceline_shards_read(const struct paceline_shards* shards, uint64_t sample, uint32_t member,
                         void* buffer, uint64_t size, char* why, uint64_t why_size) {
  const loader::Member* found = member_of(shards, sample, member);
  if (found == nullptr || size != found->size || (buffer == nullptr && size > 0))
    return PACELINE_EINVAL;
  try {
    const auto read = shards->it->read(*sample_of(shards, sample), *found, buffer);
    if (read) return PACELINE_OK;
    say(read.error(), why, why_size);
  } catch (const std::bad_alloc&) {
    say("no memory for a message", why, why_size);
  }
  return PACELINE_ESYSTEM;
}

int paceline_shards_length(const struct paceline_shards* shards, const struct paceline_order* order,
                           uint64_t* length) {
  if (shards == nullptr || !loader::valid(order) || length == nullptr) return PACELINE_EINVAL;
  *length = loader::length_of(loader::order_of(*order), shards->it->samples().size());
  return PACELINE_OK;
}

int paceline_shards_order(const struct paceline_shards* shards, const struct paceline_order* order,
                          uint64_t first, uint64_t count, uint64_t* samples) {
  if (shards == nullptr) return PACELINE_EINVAL;
  return loader::give_order(shards->it->counts(), shards->it->samples().size(), order,
                            {first, count}, samples);
}

}  // extern "C"
