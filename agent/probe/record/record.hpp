// SPDX-License-Identifier: Apache-2.0
// Records what the probes read on this machine, so that others can read it in its place: `sys/` and
// `proc/` below one folder, and NVML's answer as `nvml.json`. What identifies the machine or its
// owner is left out or replaced: serial numbers, hardware and network addresses, UUIDs, host names,
// and of the kernel's command line all but what concerns PCI and IOMMU. Needs the standard library
// alone.
//
// Plain values and functions; thread-safe for different folders. What cannot be read is absent from
// the recording, as it was for the probes; failure to write is an Error that names the file.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "agent/probe/gpu/gpu_library.hpp"
#include "agent/probe/sysfs/root.hpp"
#include "common/base/error.hpp"

namespace paceline::agent {

struct RecordedFile {
  std::string path;  // "sys/bus/pci/devices/…", relative to the recording
  std::string text;  // the file's bytes, or where the link leads
  bool link = false;
  bool operator==(const RecordedFile&) const = default;
};

/// The machine below `root`, scrubbed; the last file is nvml.json.
std::vector<RecordedFile> record_machine(const Root& root, GpuLibrary& library);

/// Writes the files below `folder`, which must be empty or not exist.
Status write_recording(const std::vector<RecordedFile>& files, const std::filesystem::path& folder);

/// NVML's answer in the form that read_nvml_json reads.
std::string nvml_json_text(const Result<std::vector<Gpu>>& answer);

}  // namespace paceline::agent
