// SPDX-License-Identifier: Apache-2.0
// Topology files as NCCL reads (NCCL_TOPO_FILE) and writes (NCCL_TOPO_DUMP_FILE) them.
//
// NCCL keeps every second PCI component (it leaves out root ports and the lower ports of switches)
// and no host bridge. The export does so too, and adds an attribute `sysfs` with what was left out,
// which NCCL passes over and the import uses; so an export gives the same matrix again. In a file
// without it all devices of one CPU count as below one host bridge, as they do for NCCL: PHB where
// sysfs would tell NODE.
//
// Pure. Failure names the element, its attribute, what that holds and what belongs there.
#pragma once

#include <string>
#include <string_view>

#include "agent/probe/hardware/hardware.hpp"
#include "common/base/error.hpp"

namespace paceline::agent {

/// `file` is what messages call it.
Result<Hardware> read_nccl_xml(std::string_view text, std::string_view file);

std::string nccl_xml_text(const Hardware& hardware);

}  // namespace paceline::agent
