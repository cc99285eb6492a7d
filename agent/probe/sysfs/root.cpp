// SPDX-License-Identifier: Apache-2.0
#include "agent/probe/sysfs/root.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>

namespace paceline::agent {
namespace {

constexpr std::size_t kMaxFileBytes = 1U << 20;
constexpr std::size_t kMaxLogBytes = 8U << 20;
constexpr int kMaxCpus = 65536;
constexpr std::size_t kMaxNames = 16384;

template <typename Number>
std::optional<Number> to_number(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

/// Digits compare as numbers, everything else as text.
bool counts_before(std::string_view a, std::string_view b) {
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < a.size() && j < b.size()) {
    if (is_digit(a[i]) && is_digit(b[j])) {
      const std::size_t start_a = i;
      const std::size_t start_b = j;
      while (i < a.size() && is_digit(a[i])) ++i;
      while (j < b.size() && is_digit(b[j])) ++j;
      std::string_view number_a = a.substr(start_a, i - start_a);
      std::string_view number_b = b.substr(start_b, j - start_b);
      number_a.remove_prefix(std::min(number_a.find_first_not_of('0'), number_a.size()));
      number_b.remove_prefix(std::min(number_b.find_first_not_of('0'), number_b.size()));
      if (number_a.size() != number_b.size()) return number_a.size() < number_b.size();
      if (number_a != number_b) return number_a < number_b;
      continue;
    }
    if (a[i] != b[j]) return a[i] < b[j];
    ++i;
    ++j;
  }
  if (i == a.size() && j == b.size()) return a < b;
  return i == a.size();
}

}  // namespace

bool is_pci_address(std::string_view name) {
  // dddd:bb:dd.f, the domain possibly longer than four digits (VMD).
  if (name.size() < 12 || name.size() > 16) return false;
  const std::string_view tail = name.substr(name.size() - 8);
  if (tail[0] != ':' || tail[3] != ':' || tail[6] != '.') return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return std::isxdigit(static_cast<unsigned char>(c)) != 0 || c == ':' || c == '.';
  });
}

bool pci_address_before(std::string_view a, std::string_view b) {
  // The digits are lower case and padded, so equally long addresses sort as text.
  return a.size() != b.size() ? a.size() < b.size() : a < b;
}

std::optional<std::string> read_bytes(const std::filesystem::path& file, std::size_t most) {
  // Open without blocking and read regular files only: a recording may hold a pipe or a device in
  // place of a sysfs file.
  const int descriptor = open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (descriptor < 0) return std::nullopt;
  struct stat kind{};
  std::optional<std::string> text;
  if (fstat(descriptor, &kind) == 0 && S_ISREG(kind.st_mode)) {
    text.emplace(std::min<std::size_t>(most, 4096), '\0');
    std::size_t length = 0;
    while (length < most) {
      if (length == text->size()) text->resize(std::min(text->size() * 2, most));
      const ssize_t got = read(descriptor, text->data() + length, text->size() - length);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) text.reset();
      if (got <= 0) break;
      length += static_cast<std::size_t>(got);
    }
    if (text) text->resize(length);
  }
  close(descriptor);
  return text;
}

std::optional<std::string> read_kernel_log(const std::filesystem::path& file) {
  const int descriptor = open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (descriptor < 0) return std::nullopt;
  struct stat kind{};
  std::optional<std::string> log;
  if (fstat(descriptor, &kind) == 0 && (S_ISREG(kind.st_mode) || S_ISCHR(kind.st_mode))) {
    log.emplace();
    std::array<char, 8192> record{};  // a read returns one message, and fails if it does not fit
    while (log->size() < kMaxLogBytes) {
      const ssize_t got = read(descriptor, record.data(), record.size());
      // EPIPE: the message was overwritten meanwhile, and the next read returns the oldest left.
      if (got < 0 && (errno == EINTR || errno == EPIPE)) continue;
      if (got < 0 && errno != EAGAIN) log.reset();
      if (got <= 0) break;
      log->append(record.data(), static_cast<std::size_t>(got));
    }
  }
  close(descriptor);
  return log;
}

std::optional<std::string> read_text(const std::filesystem::path& file) {
  auto text = read_bytes(file, kMaxFileBytes);
  while (text && !text->empty() && std::isspace(static_cast<unsigned char>(text->back())) != 0)
    text->pop_back();
  return text;
}

std::optional<std::int64_t> read_number(const std::filesystem::path& file) {
  const auto text = read_text(file);
  return text ? to_number<std::int64_t>(*text) : std::nullopt;
}

std::vector<std::string> list_names(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (auto entry = std::filesystem::directory_iterator(folder, error);
       !error && entry != std::filesystem::directory_iterator() && names.size() < kMaxNames;
       entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  std::sort(names.begin(), names.end(), counts_before);
  return names;
}

std::optional<std::filesystem::path> resolve(const std::filesystem::path& link) {
  std::error_code error;
  auto target = std::filesystem::canonical(link, error);
  if (error) return std::nullopt;
  return target;
}

std::optional<std::string> pci_address(const std::filesystem::path& device) {
  const auto real = resolve(device);
  if (!real) return std::nullopt;
  std::optional<std::string> last;
  for (const auto& part : *real) {
    if (is_pci_address(part.string())) last = part.string();
  }
  return last;
}

std::optional<int> pci_numa_node(const Root& root, std::string_view address) {
  const auto node = read_number(root.sys() / "bus/pci/devices" / address / "numa_node");
  if (!node || *node < 0 || *node > kMaxCpus) return std::nullopt;
  return static_cast<int>(*node);
}

std::optional<std::vector<int>> parse_cpu_list(std::string_view text) {
  std::vector<int> cpus;
  while (!text.empty()) {
    const std::string_view range = text.substr(0, text.find(','));
    text.remove_prefix(std::min(range.size() + 1, text.size()));
    const auto dash = range.find('-');
    const auto first = to_number<int>(range.substr(0, dash));
    const auto last =
        dash == std::string_view::npos ? first : to_number<int>(range.substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first || *last >= kMaxCpus) return std::nullopt;
    for (int cpu = *first; cpu <= *last; ++cpu) cpus.push_back(cpu);
    if (cpus.size() > kMaxCpus) return std::nullopt;
  }
  return cpus;
}

}  // namespace paceline::agent
