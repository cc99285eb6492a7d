// SPDX-License-Identifier: Apache-2.0
// The room shards reads samples of tar archives, for `paceline.loader.TarShards` and for the room
// pictures.
//
// Tar shards as a list of samples, in webdataset's convention: neighbouring files whose names are
// equal up to the first dot of the last part are one sample, and what follows that dot, in lower
// case, is the member's extension. Files without a dot, beginning with one, or named __like_this__
// at the top belong to none.
//
// Ownership: of the source and of the index: 24 bytes a member, 24 and its key a sample. Threads:
// immutable once made. Failure: text that names the shard and the reason.
#pragma once

#include <cstdint>
#include <expected>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "loader/source/source.hpp"

namespace paceline::loader {

struct Member {
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  std::uint32_t extension = 0;
};

struct Sample {
  std::uint64_t first_member = 0;
  std::uint64_t key = 0;  // where it begins in the text of keys
  std::uint32_t shard = 0;
  std::uint32_t members = 0;
};

class Shards {
 public:
  // Reads every header, `threads` shards at a time; a thread that the system refuses is done
  // without.
  static std::expected<std::unique_ptr<Shards>, std::string> open(std::unique_ptr<Source> source,
                                                                  std::uint32_t threads);

  std::span<const std::uint64_t> counts() const { return counts_; }  // samples of each shard
  std::span<const Sample> samples() const { return samples_; }
  std::span<const Member> members(const Sample& sample) const {
    return std::span(members_).subspan(sample.first_member, sample.members);
  }
  const char* key(const Sample& sample) const { return keys_.data() + sample.key; }
  const std::string& extension(const Member& member) const { return extensions_[member.extension]; }
  // Its shard and key, for what is said of it.
  std::string name(const Sample& sample) const {
    return source_->name(sample.shard) + ": " + key(sample);
  }
  // Of keys, extensions and sizes, in order: tells whether these are the shards that a checkpoint
  // speaks of.
  std::uint64_t identity() const { return identity_; }

  // All of the member; `target` has room for it.
  std::expected<void, std::string> read(const Sample& sample, const Member& member,
                                        void* target) const;

 private:
  struct Part;
  static std::expected<Part, std::string> index(const Source& source, std::size_t shard);
  explicit Shards(std::unique_ptr<Source> source) : source_(std::move(source)) {}
  void append(std::uint32_t shard, const Part& part);

  std::unique_ptr<Source> source_;
  std::vector<std::uint64_t> counts_;
  std::vector<Sample> samples_;
  std::vector<Member> members_;
  std::vector<std::string> extensions_;
  std::string keys_;  // each ends with a zero
  std::uint64_t identity_ = 0;
};

}  // namespace paceline::loader
