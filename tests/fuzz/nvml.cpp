// SPDX-License-Identifier: Apache-2.0
// A recorded answer of NVML (`paceline fabric --nvml FILE`).
#include <string>

#include "agent/probe/fabric/fabric.hpp"
#include "agent/probe/formats/nvml_json.hpp"
#include "agent/probe/record/record.hpp"
#include "tests/fuzz/fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace paceline;
  const auto library = agent::read_nvml_json(fuzz::text(data, size), "nvml.json");
  if (!library) {
    fuzz::require(library.error().message.starts_with("nvml.json: "), "a refusal names the file");
    fuzz::require(library.error().message.size() < 512, "a refusal is short");
    return 0;
  }
  const auto answer = (*library)->devices();
  agent::Hardware hardware;
  if (answer) hardware.gpu.gpus = *answer;
  const auto fabric = agent::relate(hardware);
  for (std::size_t a = 0; a < fabric.gpus.size(); ++a) {
    fuzz::require(fabric.gpu_gpu[a].size() == fabric.gpus.size(), "the matrix is square");
    fuzz::require(fabric.gpu_gpu[a][a].kind == agent::PathClass::kLoc,
                  "a GPU is no way from itself");
    for (std::size_t b = 0; b < a; ++b)
      fuzz::require(fabric.gpu_gpu[a][b] == fabric.gpu_gpu[b][a], "the matrix is symmetric");
  }
  const auto again = agent::read_nvml_json(agent::nvml_json_text(answer), "again.json");
  fuzz::require(again.has_value(), "what is written can be read");
  return 0;
}
