// SPDX-License-Identifier: Apache-2.0
// A tar shard of a training job's data set (`paceline.loader.TarShards`), read from memory.
#include "accel/src/loader/shards/shards.hpp"

#include <cstring>
#include <memory>
#include <string>

#include "accel/tests/loader/memory_source.hpp"
#include "tests/fuzz/fuzz.hpp"

namespace {

using namespace paceline;

constexpr std::size_t kBlock = 512;

// A wrong checksum ends an archive at its first header, so blocks that claim to be headers get the
// right one.
std::string with_checksums(std::string bytes) {
  for (std::size_t at = 0; at + kBlock <= bytes.size(); at += kBlock) {
    char* block = bytes.data() + at;
    if (std::memcmp(block + 257, "ustar", 5) != 0) continue;
    std::memset(block + 148, ' ', 8);
    unsigned sum = 0;
    for (std::size_t i = 0; i < kBlock; ++i) sum += static_cast<unsigned char>(block[i]);
    char text[8];
    std::snprintf(text, sizeof text, "%06o", sum);
    std::memcpy(block + 148, text, 7);
  }
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes = with_checksums(std::string(fuzz::text(data, size)));
  const auto shards =
      loader::Shards::open(std::make_unique<loader::MemorySource>("fuzz.tar", bytes), 1);
  if (!shards) {
    fuzz::require(shards.error().starts_with("fuzz.tar: "), "a refusal names the archive");
    return 0;
  }
  std::uint64_t members = 0;
  for (const loader::Sample& sample : (*shards)->samples()) {
    fuzz::require(sample.members > 0 && std::strlen((*shards)->key(sample)) <= size,
                  "a sample has a key and members");
    for (const loader::Member& member : (*shards)->members(sample)) {
      fuzz::require(member.size <= size, "a member lies within the archive");
      std::string content(member.size, '\0');
      fuzz::require((*shards)->read(sample, member, content.data()).has_value(),
                    "what is indexed can be read");
      fuzz::require(std::memcmp(content.data(), bytes.data() + member.offset, content.size()) == 0,
                    "and is what is there");
      ++members;
    }
  }
  fuzz::require(members <= size / kBlock, "every member has a header");
  return 0;
}
