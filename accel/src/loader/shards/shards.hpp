// SPDX-License-Identifier: Apache-2.0
// The room shards reads samples of tar archives, for `paceline.loader.TarShards` and for the room
// pictures.
//
// The convention is that of webdataset. Neighbouring files form one sample if their names are equal
// up to the first dot after the last slash. The text after that dot, in lower case, is the
// extension of the member. Files whose name has no dot or begins with one belong to no sample.
// Neither do files named __like_this__ at the top level.
//
// Ownership: owns the source and the index, which takes 24 bytes for each member and 24 bytes and
// the key for each sample. Threads: immutable after construction. Failure: text that names the
// shard and the reason.
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
  std::uint64_t key = 0;  // where the key begins in keys_
  std::uint32_t shard = 0;
  std::uint32_t members = 0;
};

class Shards {
 public:
  // Reads every header, `threads` shards at a time. If the system refuses a thread, fewer threads
  // do the work.
  static std::expected<std::unique_ptr<Shards>, std::string> open(std::unique_ptr<Source> source,
                                                                  std::uint32_t threads);

  std::span<const std::uint64_t> counts() const { return counts_; }  // the samples of each shard
  std::span<const Sample> samples() const { return samples_; }
  std::span<const Member> members(const Sample& sample) const {
    return std::span(members_).subspan(sample.first_member, sample.members);
  }
  const char* key(const Sample& sample) const { return keys_.data() + sample.key; }
  const std::string& extension(const Member& member) const { return extensions_[member.extension]; }
  // The shard and the key, for messages about the sample.
  std::string name(const Sample& sample) const {
    return source_->name(sample.shard) + ": " + key(sample);
  }
  // A digest of the keys, extensions and sizes in order. It tells whether a checkpoint was made
  // with these shards.
  std::uint64_t identity() const { return identity_; }

  // Reads a whole member. `target` has room for it.
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
