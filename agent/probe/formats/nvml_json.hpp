// SPDX-License-Identifier: Apache-2.0
// A recorded answer of NVML as JSON, the form that `paceline fabric --record` writes:
//
//   {"version": 1, "problem": "why NVML did not answer", "devices": [{"index", "pciAddress",
//   "name", "memoryMiB", "bar1MiB",
//    "computeCapability": "9.0", "c2c": true, "fabric": {"clusterUuid", "cliqueId", "state": 0..3,
//    "status", "healthMask"}, "mig": ["1g.10gb"], "nvlinks": [{"link", "active", "remote":
//    "gpu|switch|unknown", "remotePciAddress", "errors"}]}]}
//
// Only `version`, `devices`, `index` and `pciAddress` must be there; fields that are not known are
// passed over. Pure. Failure names the field, what it holds and what belongs there.
#pragma once

#include <memory>
#include <string_view>

#include "agent/probe/gpu/gpu_library.hpp"

namespace paceline::agent {

/// A library that answers as the recording says. `file` is what messages call it.
Result<std::unique_ptr<GpuLibrary>> read_nvml_json(std::string_view text, std::string_view file);

}  // namespace paceline::agent
