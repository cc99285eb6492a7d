// SPDX-License-Identifier: Apache-2.0
#include "agent/probe/pci/pci_config.hpp"

#include <algorithm>

namespace paceline::agent {
namespace {

constexpr std::size_t kHeaderBytes = 64;
constexpr std::size_t kPlainBytes = 256;
constexpr std::size_t kWholeBytes = 4096;
constexpr std::uint8_t kPcieId = 0x10;
constexpr std::uint32_t kAcsId = 0x000d;
constexpr std::uint32_t kAtsId = 0x000f;
constexpr std::size_t kDeviceControl = 8;

/// Little-endian numbers in a text; bytes after its end read as zero.
class Words {
 public:
  explicit Words(std::string_view bytes) : bytes_(bytes) {}
  std::uint32_t byte(std::size_t at) const {
    return at < bytes_.size() ? static_cast<std::uint32_t>(static_cast<unsigned char>(bytes_[at]))
                              : 0U;
  }
  std::uint32_t word(std::size_t at) const { return byte(at) | byte(at + 1) << 8U; }
  std::uint32_t dword(std::size_t at) const { return word(at) | word(at + 2) << 16U; }
  bool holds(std::size_t at, std::size_t count) const {
    return at <= bytes_.size() && bytes_.size() - at >= count;
  }

 private:
  std::string_view bytes_;
};

/// 0 means 128 bytes, 5 means 4096; the codes above are reserved.
int size_of(std::uint32_t code) { return code > 5 ? 0 : 128 << code; }

std::optional<PcieControl> read_pcie(const Words& words, std::size_t at) {
  if (!words.holds(at, kDeviceControl + 2)) return std::nullopt;
  const std::uint32_t control = words.word(at + kDeviceControl);
  PcieControl found{size_of(control >> 5U & 7U), size_of(control >> 12U & 7U),
                    (control & 0x10U) != 0};
  if (found.max_payload == 0 || found.max_read_request == 0) return std::nullopt;
  return found;
}

std::uint32_t word_at(const std::string& config, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 4; i-- > 0;)
    value = value << 8U | static_cast<unsigned char>(config[at + i]);
  return value;
}

}  // namespace

PciConfig parse_pci_config(std::string_view bytes) {
  PciConfig config;
  bytes = bytes.substr(0, kWholeBytes);
  const Words words(bytes);
  // A function that fell off the bus reads as all ones: nothing is known about it.
  if (bytes.size() < kHeaderBytes || words.dword(0) == 0xffffffffU) return config;
  config.bytes = bytes.size();
  if ((words.word(6) & 0x10U) != 0) {
    std::size_t at = words.byte(0x34) & 0xfcU;
    // Each entry takes at least four bytes, so a longer list is a loop.
    for (std::size_t steps = 0; steps < (kPlainBytes - kHeaderBytes) / 4 && at >= kHeaderBytes;
         ++steps) {
      if (words.byte(at) == kPcieId && !config.pcie) config.pcie = read_pcie(words, at);
      at = words.byte(at + 1) & 0xfcU;
    }
  }
  std::size_t at = kPlainBytes;
  for (std::size_t steps = 0; steps < (kWholeBytes - kPlainBytes) / 4 && at >= kPlainBytes;
       ++steps) {
    if (!words.holds(at, 4)) break;
    const std::uint32_t head = words.dword(at);
    if (head == 0 || head == 0xffffffffU) break;
    if (words.holds(at, 8)) {
      const auto control = static_cast<std::uint16_t>(words.word(at + 6));
      if ((head & 0xffffU) == kAcsId && !config.acs) config.acs = AcsControl{control};
      if ((head & 0xffffU) == kAtsId && !config.ats) config.ats = (control & 0x8000U) != 0;
    }
    at = head >> 20U & 0xffcU;
  }
  return config;
}

std::string scrub_config(std::string config) {
  const auto wipe = [&](std::size_t at, std::size_t length) {
    for (std::size_t i = at; i < std::min(at + length, config.size()); ++i) config[i] = '\0';
  };
  // The device wrote both lists of offsets, so the number of steps is bounded.
  if (config.size() >= 64 && (config[6] & 0x10) != 0) {
    std::size_t at = static_cast<unsigned char>(config[0x34]) & 0xfcU;
    for (int steps = 0; steps < 48 && at >= 0x40 && at + 8 <= config.size(); ++steps) {
      if (config[at] == 3) wipe(at + 4, 4);
      at = static_cast<unsigned char>(config[at + 1]) & 0xfcU;
    }
  }
  std::size_t at = 0x100;
  for (int steps = 0; steps < 960 && at >= 0x100 && at + 12 <= config.size(); ++steps) {
    const std::uint32_t head = word_at(config, at);
    if (head == 0 || head == 0xffffffffU) break;
    if ((head & 0xffffU) == 3) wipe(at + 4, 8);
    at = head >> 20U & 0xffcU;
  }
  return config;
}

}  // namespace paceline::agent
