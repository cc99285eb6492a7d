// SPDX-License-Identifier: Apache-2.0
#include "loader/shards/tar.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <optional>
#include <vector>

namespace paceline::loader {
namespace {

constexpr std::size_t kBlock = 512;
constexpr std::uint64_t kMostOfExtension = 1 << 20;  // a long name, or a set of attributes

using Block = std::array<unsigned char, kBlock>;

std::string_view text_of(const Block& block, std::size_t at, std::size_t size) {
  const char* begin = reinterpret_cast<const char*>(block.data()) + at;
  return {begin, ::strnlen(begin, size)};
}

// Reads a number: octal digits between spaces, or 63 bits of binary after a first byte of 0x80.
std::optional<std::uint64_t> number_of(const Block& block, std::size_t at, std::size_t size) {
  if (block[at] == 0x80) {
    std::uint64_t value = 0;
    for (std::size_t i = at + 1; i < at + size; ++i) {
      if (value >> 55 != 0) return std::nullopt;
      value = value << 8 | block[i];
    }
    return value;
  }
  std::string_view text = text_of(block, at, size);
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 8);
  if (text.empty()) return 0;
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool checksum_is_right(const Block& block) {
  constexpr std::size_t kAt = 148;
  std::uint64_t sum = 8 * ' ';
  for (std::size_t i = 0; i < kBlock; ++i)
    if (i < kAt || i >= kAt + 8) sum += block[i];
  return number_of(block, kAt, 8) == sum;
}

// Reads headers through a window of several blocks, because small files lie close together.
class Window {
 public:
  Window(const Source& source, std::size_t object) : source_(source), object_(object) {}

  // Reads the block at `at`. Returns false at the end of the archive.
  std::expected<bool, std::string> block(std::uint64_t at, Block& block) {
    if (at < begin_ || at + kBlock > begin_ + size_) {
      const auto got = source_.pread(object_, at, bytes_.data(), bytes_.size());
      if (!got) return std::unexpected(got.error());
      begin_ = at;
      size_ = *got;
      if (size_ < kBlock) return false;
    }
    std::memcpy(block.data(), bytes_.data() + (at - begin_), kBlock);
    return true;
  }

 private:
  const Source& source_;
  std::size_t object_;
  std::array<unsigned char, 8 * kBlock> bytes_{};
  std::uint64_t begin_ = 0;
  std::uint64_t size_ = 0;
};

// What extended headers say about the next file.
struct Extended {
  std::optional<std::string> name;
  std::optional<std::uint64_t> size;
};

// Reads the records of a pax header: "LENGTH KEY=VALUE\n". The length is decimal and counts the
// whole record. Returns what is wrong, or an empty string.
std::string read_pax(std::string_view records, Extended& extended) {
  while (!records.empty() && records.front() != '\0') {
    std::size_t length = 0;
    const auto [end, error] =
        std::from_chars(records.data(), records.data() + records.size(), length);
    const auto digits = static_cast<std::size_t>(end - records.data());
    if (error != std::errc{} || length < digits + 3 || length > records.size() || *end != ' ' ||
        records[length - 1] != '\n')
      return "an extended header cannot be read";
    const std::string_view record = records.substr(digits + 1, length - digits - 2);
    const std::size_t equals = record.find('=');
    if (equals == std::string_view::npos) return "an extended header without a value";
    const std::string_view key = record.substr(0, equals);
    const std::string_view value = record.substr(equals + 1);
    if (key == "path") extended.name = std::string(value);
    if (key.starts_with("GNU.sparse"))
      return "a sparse file, which is not supported: write it without --sparse";
    if (key == "size") {
      std::uint64_t size = 0;
      const auto read = std::from_chars(value.data(), value.data() + value.size(), size);
      if (read.ec != std::errc{} || read.ptr != value.data() + value.size())
        return "a size that is no number";
      extended.size = size;
    }
    records.remove_prefix(length);
  }
  return {};
}

std::string name_of(const Block& block) {
  const std::string_view name = text_of(block, 0, 100);
  const std::string_view prefix = text_of(block, 345, 155);
  // GNU's own format stores other fields where ustar has a prefix.
  if (prefix.empty() || std::memcmp(block.data() + 257, "ustar\0", 6) != 0)
    return std::string(name);
  return std::string(prefix) + "/" + std::string(name);
}

bool compressed(const Block& block) {
  constexpr std::array<std::string_view, 4> kMagic = {"\x1f\x8b", "\x28\xb5\x2f\xfd", "BZh",
                                                      "\xfd"
                                                      "7zXZ"};
  const std::string_view text(reinterpret_cast<const char*>(block.data()), kBlock);
  return std::any_of(kMagic.begin(), kMagic.end(),
                     [&](std::string_view magic) { return text.starts_with(magic); });
}

}  // namespace

std::expected<void, std::string> read_tar(const Source& source, std::size_t object,
                                          const EachFile& file) {
  const auto total = source.size(object);
  if (!total) return std::unexpected(total.error());
  Window window(source, object);
  Block block{};
  Extended extended;
  std::uint64_t at = 0;
  const auto wrong = [&](const std::string& what) {
    return std::unexpected(source.name(object) + ": at byte " + std::to_string(at) + ": " + what);
  };
  for (;;) {
    const auto there = window.block(at, block);
    if (!there) return std::unexpected(there.error());
    if (!*there && at < *total) return wrong("the archive ends within a header: it was cut off");
    if (!*there ||
        std::all_of(block.begin(), block.end(), [](unsigned char byte) { return byte == 0; }))
      return {};
    if (!checksum_is_right(block))
      return wrong(at == 0 && compressed(block) ? "it is compressed: shards are plain tar archives"
                                                : "no tar header is there (its checksum is wrong)");
    const auto size = number_of(block, 124, 12);
    const char type = static_cast<char>(block[156]);
    const bool is_file = type == '0' || type == '\0' || type == '7';
    if (!size) return wrong("a size that is no number");
    // Links, folders and devices have no data, whatever their size field says.
    const bool no_data = type >= '1' && type <= '6';
    const std::uint64_t bytes = no_data ? 0 : is_file && extended.size ? *extended.size : *size;
    const std::uint64_t data = at + kBlock;
    const bool has_data = is_file || type == 'x' || type == 'g' || type == 'L' || type == 'K';
    if (type == 'S')
      return wrong("a sparse file, which is not supported: write it without --sparse");
    if (bytes > *total || data > *total - bytes)
      return wrong(std::to_string(bytes) + " bytes follow, but the archive has " +
                   std::to_string(*total) + ": it was cut off");
    if (has_data && !is_file) {
      if (bytes > kMostOfExtension)
        return wrong("an extended header of " + std::to_string(bytes) + " bytes");
      std::string text(bytes, '\0');
      const auto got = source.pread(object, data, text.data(), text.size());
      if (!got) return std::unexpected(got.error());
      if (*got != bytes) return wrong("the archive became shorter while it was read");
      if (type == 'L') extended.name = text.substr(0, text.find('\0'));
      if (type == 'x')
        if (const std::string what = read_pax(text, extended); !what.empty()) return wrong(what);
    } else {
      if (is_file) {
        const std::string name = extended.name ? *extended.name : name_of(block);
        // Early versions of tar marked folders only by a slash at the end.
        const std::string what = name.ends_with('/') ? "" : file(name, data, bytes);
        if (!what.empty()) return wrong(what);
      }
      extended = {};
    }
    at = data + (bytes + kBlock - 1) / kBlock * kBlock;
  }
}

}  // namespace paceline::loader
