// SPDX-License-Identifier: Apache-2.0
// A file of NumPy's in a training job's data set (`paceline.loader.RecordShards`), read from
// memory.
#include "accel/src/loader/records/records.hpp"

#include <memory>
#include <string>

#include "accel/tests/loader/memory_source.hpp"
#include "tests/fuzz/fuzz.hpp"

using namespace paceline;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto records = loader::Records::open(
      std::make_unique<loader::MemorySource>("fuzz.npz", std::string(fuzz::text(data, size))),
      nullptr);
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
        fuzz::require((*records)->read(sample, column, row.data()).has_value(),
                      "what is indexed can be read");
  }
  return 0;
}
