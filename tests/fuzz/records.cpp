// SPDX-License-Identifier: Apache-2.0
// A file of NumPy's in a training job's data set (`paceline.loader.RecordShards`), read from memory.
#include "accel/src/loader/records.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "tests/fuzz/fuzz.hpp"

namespace {

using namespace paceline;

class Bytes final : public loader::Source {
 public:
  explicit Bytes(std::string_view bytes) : bytes_(bytes) {}
  std::size_t count() const override { return 1; }
  const std::string& name(std::size_t) const override { return name_; }
  std::expected<std::uint64_t, std::string> size(std::size_t) const override { return bytes_.size(); }
  std::expected<std::size_t, std::string> pread(std::size_t, std::uint64_t offset, void* target,
                                                std::size_t size) const override {
    if (offset >= bytes_.size()) return 0;
    const std::size_t count = std::min<std::size_t>(size, bytes_.size() - offset);
    std::memcpy(target, bytes_.data() + offset, count);
    return count;
  }

 private:
  std::string_view bytes_;
  std::string name_ = "fuzz.npz";
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto records = loader::Records::open(std::make_unique<Bytes>(fuzz::text(data, size)), nullptr);
  if (!records) {
    fuzz::require(records.error().starts_with("fuzz.npz: "), "a refusal names the file");
    return 0;
  }
  const std::uint64_t samples = (*records)->samples();
  for (std::size_t column = 0; column < (*records)->columns().size(); ++column) {
    const std::uint64_t bytes = (*records)->columns()[column].bytes;
    fuzz::require(bytes == 0 || samples <= size / bytes, "rows lie within the file");
    std::string row(bytes, '\0');
    for (const std::uint64_t sample : {std::uint64_t{0}, samples / 2, samples - 1})
      if (sample < samples)
        fuzz::require((*records)->read(sample, column, row.data()).has_value(), "what is indexed can be read");
  }
  return 0;
}
