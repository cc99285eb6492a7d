// SPDX-License-Identifier: Apache-2.0
// Records the files that the probes read on this machine, so that another machine can read them in
// its place: `sys/` and `proc/` below one folder, and NVML's answer as `nvml.json`. For `paceline
// fabric --record`. What identifies the machine or its owner is omitted or replaced: serial
// numbers, hardware and network addresses, UUIDs, host names, and of the kernel's command line all
// but the parameters of PCI and IOMMU. Needs only the standard library.
//
// Plain values and functions; thread-safe for different folders. A file that cannot be read is
// absent from the recording, as it was for the probes. If writing fails, the Error names the file.
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
  std::string text;  // the file's bytes, or the link's target
  bool link = false;
  bool operator==(const RecordedFile&) const = default;
};

/// The machine below `root`, with identities removed; the last file is nvml.json.
std::vector<RecordedFile> record_machine(const Root& root, GpuLibrary& library);

/// Writes the files below `folder`, which must be empty or not exist.
Status write_recording(const std::vector<RecordedFile>& files, const std::filesystem::path& folder);

/// NVML's answer in the form that read_nvml_json reads.
std::string nvml_json_text(const Result<std::vector<Gpu>>& answer);

}  // namespace paceline::agent
