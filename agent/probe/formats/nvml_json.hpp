// SPDX-License-Identifier: Apache-2.0
// A recorded answer of NVML as JSON, in the form that `paceline fabric --record` writes. `--nvml
// FILE` reads it:
//
//   {"version": 1, "problem": "why NVML did not answer", "devices": [{"index", "pciAddress",
//    "name", "memoryMiB", "bar1MiB", "computeCapability": "9.0", "c2c": true,
//    "fabric": {"clusterUuid", "cliqueId", "state": 0..3, "status", "healthMask"},
//    "mig": ["1g.10gb"],  (in MIG mode, even without MIG devices)
//    "nvlinks": [{"link", "active", "remote": "gpu|switch|unknown", "remotePciAddress",
//    "errors"}]}]}
//
// Required are `version`, `devices`, `index` and `pciAddress`; unknown fields are ignored. Pure. An
// Error names the field, its value and what is expected.
#pragma once

#include <memory>
#include <string_view>

#include "agent/probe/gpu/gpu_library.hpp"

namespace paceline::agent {

/// A library that returns the recorded answer. Error messages call the text `file`.
Result<std::unique_ptr<GpuLibrary>> read_nvml_json(std::string_view text, std::string_view file);

}  // namespace paceline::agent
