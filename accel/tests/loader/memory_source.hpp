// SPDX-License-Identifier: Apache-2.0
// A Source of one file in memory, for tests and fuzz targets.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "loader/source/source.hpp"

namespace paceline::loader {

class MemorySource : public Source {
 public:
  explicit MemorySource(std::string name, std::string bytes = {})
      : name_(std::move(name)), bytes_(std::move(bytes)) {}
  std::size_t count() const override { return 1; }
  const std::string& name(std::size_t) const override { return name_; }
  std::expected<std::uint64_t, std::string> size(std::size_t) const override {
    return bytes_.size();
  }
  std::expected<std::size_t, std::string> pread(std::size_t, std::uint64_t offset, void* target,
                                                std::size_t size) const override {
    if (offset >= bytes_.size()) return 0;
    const std::size_t count = std::min<std::size_t>(size, bytes_.size() - offset);
    std::memcpy(target, bytes_.data() + offset, count);
    return count;
  }

 protected:
  std::string name_;
  std::string bytes_;
};

}  // namespace paceline::loader
