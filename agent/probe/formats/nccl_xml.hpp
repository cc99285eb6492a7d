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
// The files that clouds ship for their virtual machines hold no <gpu> and no <net>. The devices are
// then known by their PCI class alone, and place_by() brings the places to a machine's own devices.
//
// A file tells places and no states: Hardware::from_topology_file says so to the checks.
//
// Pure. An Error names the element, its attribute, the value and what is expected.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "agent/probe/hardware/hardware.hpp"
#include "common/base/error.hpp"

namespace paceline::agent {

/// Error messages call the text `file`.
Result<Hardware> read_nccl_xml(std::string_view text, std::string_view file);

/// Gives the machine's devices the places that the file gives them, as NCCL does with
/// NCCL_TOPO_FILE: a hypervisor shows all devices on one bus. Returns how many devices of the
/// machine the file names.
std::size_t place_by(const Hardware& file, Hardware& machine);

std::string nccl_xml_text(const Hardware& hardware);

}  // namespace paceline::agent
