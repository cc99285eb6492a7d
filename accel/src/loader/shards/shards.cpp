// SPDX-License-Identifier: Apache-2.0
#include "loader/shards/shards.hpp"

#include <algorithm>
#include <atomic>
#include <new>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>

#include "loader/shards/tar.hpp"
#include "loader/source/digest.hpp"

namespace paceline::loader {

// What one thread reads of one shard. Numbers count from the begin of the shard.
struct Shards::Part {
  std::vector<Sample> samples;
  std::vector<Member> members;
  std::vector<std::string> extensions;
  std::string keys;
};

namespace {

std::uint32_t index_of(std::vector<std::string>& extensions, std::string_view extension) {
  // A linear search: a data set has only a few extensions.
  const auto found =
      std::find(extensions.begin(), extensions.end(), extension) - extensions.begin();
  if (static_cast<std::size_t>(found) == extensions.size()) extensions.emplace_back(extension);
  return static_cast<std::uint32_t>(found);
}

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return result;
}

}  // namespace

std::expected<Shards::Part, std::string> Shards::index(const Source& source, std::size_t shard) {
  constexpr std::size_t kMostExtensions = 1000;
  Part part;
  const auto file = [&](std::string_view name, std::uint64_t offset,
                        std::uint64_t size) -> std::string {
    if (name.find('\0') != std::string_view::npos) return "a name with a zero byte";
    const std::size_t slash = name.rfind('/');
    const std::size_t begin = slash == std::string_view::npos ? 0 : slash + 1;
    const std::size_t dot = name.find('.', begin);
    if (dot == std::string_view::npos || dot == begin) return {};
    if (begin == 0 && name.starts_with("__") && name.ends_with("__")) return {};
    const std::string_view key = name.substr(0, dot);
    if (part.samples.empty() ||
        std::string_view(part.keys.data() + part.samples.back().key) != key) {
      part.samples.push_back({.first_member = part.members.size(),
                              .key = part.keys.size(),
                              .shard = static_cast<std::uint32_t>(shard),
                              .members = 0});
      part.keys.append(key).push_back('\0');
    }
    Sample& sample = part.samples.back();
    const std::uint32_t extension = index_of(part.extensions, lower(name.substr(dot + 1)));
    if (part.extensions.size() > kMostExtensions)
      return "more than 1000 extensions: is what follows the first dot of the names part of their "
             "keys?";
    for (std::uint64_t i = sample.first_member; i < part.members.size(); ++i)
      if (part.members[i].extension == extension)
        return "a second " + std::string(name) + " in one sample";
    part.members.push_back({.offset = offset, .size = size, .extension = extension});
    ++sample.members;
    return {};
  };
  if (auto read = read_tar(source, shard, file); !read)
    return std::unexpected(std::move(read.error()));
  return part;
}

void Shards::append(std::uint32_t shard, const Part& part) {
  std::vector<std::uint32_t> extensions;
  for (const std::string& extension : part.extensions)
    extensions.push_back(index_of(extensions_, extension));
  counts_.push_back(part.samples.size());
  for (Sample sample : part.samples) {
    sample.first_member += members_.size();
    sample.key += keys_.size();
    samples_.push_back(sample);
  }
  std::uint64_t identity = digest(part.keys.data(), part.keys.size(), identity_ + shard);
  for (Member member : part.members) {
    const std::string& extension = part.extensions[member.extension];
    identity = digest(extension.data(), extension.size(), identity ^ member.size);
    member.extension = extensions[member.extension];
    members_.push_back(member);
  }
  identity_ = identity;
  keys_ += part.keys;
}

std::expected<std::unique_ptr<Shards>, std::string> Shards::open(std::unique_ptr<Source> source,
                                                                 std::uint32_t threads) {
  const std::size_t count = source->count();
  std::vector<std::optional<std::expected<Part, std::string>>> parts(count);
  std::atomic<std::size_t> next = 0;
  std::atomic<bool> failed = false;
  const auto work = [&] {
    for (std::size_t shard = next++; shard < count && !failed; shard = next++) {
      try {
        parts[shard] = index(*source, shard);
      } catch (const std::bad_alloc&) {
        parts[shard] = std::unexpected(source->name(shard) + ": no memory for its index");
      }
      if (!parts[shard]->has_value()) failed = true;
    }
  };
  std::vector<std::thread> helpers;
  try {
    for (std::size_t i = 1; i < std::min<std::size_t>(threads, count); ++i)
      helpers.emplace_back(work);
  } catch (const std::system_error&) {
  }
  work();
  for (std::thread& helper : helpers) helper.join();
  for (const auto& part : parts)
    if (part && !part->has_value()) return std::unexpected(part->error());
  std::unique_ptr<Shards> shards(new Shards(std::move(source)));
  for (std::size_t shard = 0; shard < count; ++shard)
    shards->append(static_cast<std::uint32_t>(shard), **parts[shard]);
  return shards;
}

std::expected<void, std::string> Shards::read(const Sample& sample, const Member& member,
                                              void* target) const {
  const auto got = source_->pread(sample.shard, member.offset, target, member.size);
  if (!got) return std::unexpected(got.error());
  if (*got == member.size) return {};
  return std::unexpected(name(sample) + "." + extension(member) +
                         " ends early: the shard became shorter after it was indexed");
}

}  // namespace paceline::loader
