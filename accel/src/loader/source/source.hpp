// SPDX-License-Identifier: Apache-2.0
// The room source reads files for the rooms records, shards and pictures. No program imports it by
// itself.
//
// A Source is a numbered list of objects. Each has a size and can be read at any offset. Readers
// rely on nothing else, so an object store or a node's cache can implement it. FileSource
// implements it for files on disk.
//
// Ownership: a FileSource keeps the first kKept files that it opened until it is destroyed. Threads
// and forks: any thread of any forked process may read, without locks. Failure: text that names the
// object and the reason.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <string>
#include <vector>

#include "base/fd.hpp"

namespace paceline::loader {

class Source {
 public:
  Source() = default;
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;
  virtual ~Source() = default;

  virtual std::size_t count() const = 0;
  virtual const std::string& name(std::size_t object) const = 0;
  virtual std::expected<std::uint64_t, std::string> size(std::size_t object) const = 0;
  // Returns the number of bytes read, which is less than asked only at the end of the object.
  virtual std::expected<std::size_t, std::string> pread(std::size_t object, std::uint64_t offset,
                                                        void* target, std::size_t size) const = 0;
};

class FileSource final : public Source {
 public:
  explicit FileSource(std::vector<std::string> paths);
  ~FileSource() override;

  std::size_t count() const override { return paths_.size(); }
  const std::string& name(std::size_t object) const override { return paths_[object]; }
  std::expected<std::uint64_t, std::string> size(std::size_t object) const override;
  std::expected<std::size_t, std::string> pread(std::size_t object, std::uint64_t offset,
                                                void* target, std::size_t size) const override;

 private:
  static constexpr std::size_t kKept = 256;  // a process may have only 1,024 descriptors
  struct Opened {
    int number;
    base::Fd own;  // empty if the file is one of those that are kept
  };
  std::expected<Opened, std::string> opened(std::size_t object) const;

  std::vector<std::string> paths_;
  mutable std::array<std::atomic<int>, kKept> kept_;  // -1: not open
};

}  // namespace paceline::loader
