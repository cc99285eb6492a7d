// SPDX-License-Identifier: Apache-2.0
// NCCL's topology files, as it reads (NCCL_TOPO_FILE) and writes (NCCL_TOPO_DUMP_FILE) them. For
// `paceline fabric --export-nccl-topo` and `--nccl-topo`.
//
// NCCL keeps every second PCI component, leaves out root ports and the lower ports of switches, and
// has no host bridges. The export does the same and adds an attribute `sysfs` with the omitted
// components. NCCL ignores that attribute and the import reads it, so that an exported file gives
// the same matrix. In a file without it all devices of one CPU count as below one host bridge, as
// in NCCL: PHB where sysfs would give NODE.
//
// Pure. An Error names the element, its attribute, the value and what is expected.
#pragma once

#include <string>
#include <string_view>

#include "agent/probe/hardware/hardware.hpp"
#include "common/base/error.hpp"

namespace paceline::agent {

/// Error messages call the text `file`.
Result<Hardware> read_nccl_xml(std::string_view text, std::string_view file);

std::string nccl_xml_text(const Hardware& hardware);

}  // namespace paceline::agent
