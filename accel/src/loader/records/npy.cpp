// SPDX-License-Identifier: Apache-2.0
#include "loader/records/npy.hpp"

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <span>
#include <string_view>

namespace paceline::loader {
namespace {

using Failure = std::unexpected<std::string>;

constexpr std::uint64_t kMostOfHeader = 1 << 20;
constexpr std::uint64_t kMostOfDirectory = 16 << 20;
constexpr std::string_view kArray("\x93NUMPY", 6);
constexpr std::string_view kRemedy = "; write it with numpy.savez or numpy.save";

std::uint64_t little(std::string_view bytes, std::size_t at, std::size_t size) {
  std::uint64_t value = 0;
  for (std::size_t i = size; i > 0; --i)
    value = value << 8 | static_cast<std::uint8_t>(bytes[at + i - 1]);
  return value;
}

// Reads a file, and checks that all the asked bytes are there.
class File {
 public:
  File(const Source& source, std::size_t object, std::uint64_t total)
      : source_(source), object_(object), total_(total) {}

  std::expected<std::string, std::string> bytes(std::uint64_t at, std::uint64_t size) const {
    if (at > total_ || size > total_ - at) return wrong(at, "the file ends there: it was cut off");
    std::string text(size, '\0');
    const auto got = source_.pread(object_, at, text.data(), size);
    if (!got) return Failure(got.error());
    if (*got != size) return wrong(at, "the file became shorter while it was read");
    return text;
  }

  Failure wrong(std::uint64_t at, std::string_view what) const {
    return Failure(source_.name(object_) + ": at byte " + std::to_string(at) + ": " +
                   std::string(what));
  }
  std::uint64_t total() const { return total_; }

 private:
  const Source& source_;
  std::size_t object_;
  std::uint64_t total_;
};

// The text of a header: a dictionary as Python prints it.
class Header {
 public:
  explicit Header(std::string_view text) : text_(text) {}

  // Returns the text after 'key':, or nullopt.
  std::optional<std::string_view> after(std::string_view key) const {
    const std::size_t at = text_.find("'" + std::string(key) + "'");
    if (at == std::string_view::npos) return std::nullopt;
    std::string_view rest = text_.substr(at + key.size() + 2);
    const std::size_t begin = rest.find_first_not_of(": ");
    return begin == std::string_view::npos ? std::nullopt : std::optional(rest.substr(begin));
  }

  std::optional<std::string> dtype() const {
    const auto rest = after("descr");
    if (!rest || rest->front() != '\'') return std::nullopt;  // a list: named columns
    const std::size_t end = rest->find('\'', 1);
    if (end == std::string_view::npos) return std::nullopt;
    return std::string(rest->substr(1, end - 1));
  }

  std::optional<std::vector<std::uint64_t>> shape() const {
    auto rest = after("shape");
    if (!rest || rest->front() != '(') return std::nullopt;
    std::vector<std::uint64_t> shape;
    std::string_view text = rest->substr(1);
    for (;;) {
      text.remove_prefix(std::min(text.find_first_not_of(", "), text.size()));
      if (text.empty() || shape.size() > 32) return std::nullopt;
      if (text.front() == ')') return shape;
      std::uint64_t side = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), side);
      if (error != std::errc{}) return std::nullopt;
      shape.push_back(side);
      text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    }
  }

  bool columns_first() const {
    const auto rest = after("fortran_order");
    return !rest || !rest->starts_with("False");
  }

 private:
  std::string_view text_;
};

std::expected<Array, std::string> read_array(const File& file, std::uint64_t at, std::uint64_t size,
                                             std::string name) {
  constexpr std::uint64_t kPrefix = 12;  // of versions 2 and 3; 10 in version 1
  const auto prefix = file.bytes(at, std::min<std::uint64_t>(size, kPrefix));
  if (!prefix) return Failure(prefix.error());
  if (prefix->size() < kPrefix || !prefix->starts_with(kArray))
    return file.wrong(at, "no array in NumPy's format");
  const int version = (*prefix)[6];
  if (version < 1 || version > 3) return file.wrong(at, "unknown version of NumPy's format");
  const std::uint64_t begin = version == 1 ? 10 : 12;
  const std::uint64_t length = little(*prefix, 8, begin - 8);
  if (length > kMostOfHeader || begin + length > size)
    return file.wrong(at, "a header longer than the array");
  const auto text = file.bytes(at + begin, length);
  if (!text) return Failure(text.error());
  const Header header(*text);
  const auto dtype = header.dtype();
  const auto shape = header.shape();
  if (!dtype || !shape) return file.wrong(at, "a header without a plain dtype and a shape");
  const std::uint64_t one = size_of_dtype(*dtype);
  if (one == 0)
    return file.wrong(
        at, "dtype " + *dtype + ": numbers must be plain and little-endian" + std::string(kRemedy));
  if (shape->empty())
    return file.wrong(at, "an array without a first axis, along which samples lie");
  if (header.columns_first() && shape->size() > 1)
    return file.wrong(at, "the array is column-major: store numpy.ascontiguousarray(array)");
  std::uint64_t bytes = one;
  for (const std::uint64_t side : *shape) {
    if (side != 0 && bytes > std::numeric_limits<std::uint64_t>::max() / side)
      return file.wrong(at, "a shape too large");
    bytes *= side;
  }
  if (bytes > size - begin - length)
    return file.wrong(at, "the array ends early: the file was cut off");
  return Array{.name = std::move(name),
               .dtype = *dtype,
               .shape = *shape,
               .offset = at + begin + length,
               .bytes = bytes};
}

struct Entry {
  std::string name;
  std::uint64_t at = 0;  // offset of its local header
  std::uint64_t size = 0;
};

// Reads sizes and offsets that do not fit 32 bits from the further field that holds them.
void widen(std::string_view extra, Entry& entry) {
  constexpr std::uint64_t kElsewhere = 0xFFFFFFFF;
  while (extra.size() >= 4) {
    const std::uint64_t length = little(extra, 2, 2);
    if (length + 4 > extra.size()) return;
    if (little(extra, 0, 2) == 1) {
      const std::string_view wide = extra.substr(4, length);
      std::size_t at = 0;
      if (entry.size == kElsewhere) {
        if (at + 8 <= wide.size()) entry.size = little(wide, at, 8);
        at += 16;  // the compressed size follows, and is the same
      }
      if (entry.at == kElsewhere && at + 8 <= wide.size()) entry.at = little(wide, at, 8);
      return;
    }
    extra.remove_prefix(length + 4);
  }
}

std::expected<std::vector<Entry>, std::string> read_directory(const File& file) {
  constexpr std::uint64_t kEnd = 22;
  constexpr std::uint64_t kMostOfEnd = kEnd + 65535 + 20;
  constexpr std::size_t kEntry = 46;
  const std::uint64_t size = std::min(file.total(), kMostOfEnd);
  const auto tail = file.bytes(file.total() - size, size);
  if (!tail) return Failure(tail.error());
  const std::size_t end = tail->rfind("PK\5\6");
  if (end == std::string::npos || end + kEnd > tail->size())
    return file.wrong(file.total(), "the archive has no directory: it was cut off");
  std::uint64_t length = little(*tail, end + 12, 4);
  std::uint64_t at = little(*tail, end + 16, 4);
  if (end >= 20 && std::string_view(*tail).substr(end - 20, 4) == "PK\6\7") {
    const auto wide = file.bytes(little(*tail, end - 12, 8), 56);
    if (!wide) return Failure(wide.error());
    length = little(*wide, 40, 8);
    at = little(*wide, 48, 8);
  }
  if (length > kMostOfDirectory) return file.wrong(at, "a directory of more than 16 MiB");
  const auto text = file.bytes(at, length);
  if (!text) return Failure(text.error());
  std::vector<Entry> entries;
  for (std::string_view left = *text; !left.empty();) {
    if (left.size() < kEntry || !left.starts_with("PK\1\2"))
      return file.wrong(at, "the directory has no entry here");
    const std::size_t name = little(left, 28, 2);
    const std::size_t extra = little(left, 30, 2);
    const std::size_t whole = kEntry + name + extra + little(left, 32, 2);
    if (whole > left.size()) return file.wrong(at, "an entry ends behind its directory");
    if (little(left, 10, 2) != 0 || (little(left, 8, 2) & 1) != 0)
      return file.wrong(at, "it is compressed or encrypted" + std::string(kRemedy));
    Entry entry{.name = std::string(left.substr(kEntry, name)),
                .at = little(left, 42, 4),
                .size = little(left, 24, 4)};
    widen(left.substr(kEntry + name, extra), entry);
    entries.push_back(std::move(entry));
    left.remove_prefix(whole);
  }
  return entries;
}

std::expected<Array, std::string> read_entry(const File& file, Entry entry) {
  constexpr std::uint64_t kLocal = 30;
  const auto local = file.bytes(entry.at, kLocal);
  if (!local) return Failure(local.error());
  if (!local->starts_with("PK\3\4")) return file.wrong(entry.at, "no entry of an archive is there");
  const std::uint64_t at = entry.at + kLocal + little(*local, 26, 2) + little(*local, 28, 2);
  if (at > file.total() || entry.size > file.total() - at)
    return file.wrong(entry.at, "an entry ends behind its file");
  if (entry.name.ends_with(".npy")) entry.name.resize(entry.name.size() - 4);
  return read_array(file, at, entry.size, std::move(entry.name));
}

}  // namespace

std::uint32_t size_of_dtype(const std::string& dtype) {
  if (dtype == "|b1" || dtype == "|i1" || dtype == "|u1") return 1;
  if (dtype.size() != 3 || dtype[0] != '<') return 0;
  const char kind = dtype[1];
  const int size = dtype[2] - '0';
  const bool whole = (kind == 'i' || kind == 'u') && (size == 2 || size == 4 || size == 8);
  const bool real = kind == 'f' && (size == 2 || size == 4 || size == 8);
  return whole || real ? static_cast<std::uint32_t>(size) : 0;
}

std::expected<std::vector<Array>, std::string> read_arrays(const Source& source,
                                                           std::size_t object) {
  const auto total = source.size(object);
  if (!total) return Failure(total.error());
  const File file(source, object, *total);
  const auto magic = file.bytes(0, std::min<std::uint64_t>(*total, kArray.size()));
  if (!magic) return Failure(magic.error());
  std::vector<Array> arrays;
  if (*magic == kArray) {
    auto array = read_array(file, 0, *total, {});
    if (!array) return Failure(array.error());
    arrays.push_back(std::move(*array));
    return arrays;
  }
  if (!magic->starts_with("PK")) return file.wrong(0, "it is neither an .npy nor an .npz file");
  auto entries = read_directory(file);
  if (!entries) return Failure(entries.error());
  for (Entry& entry : *entries) {
    auto array = read_entry(file, std::move(entry));
    if (!array) return Failure(array.error());
    arrays.push_back(std::move(*array));
  }
  if (arrays.empty()) return file.wrong(0, "an archive without an array");
  return arrays;
}

}  // namespace paceline::loader
