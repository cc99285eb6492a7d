// SPDX-License-Identifier: Apache-2.0
// A topology file of NCCL (`paceline fabric --nccl-topo FILE`).
#include <string>

#include "agent/probe/fabric/fabric.hpp"
#include "agent/probe/formats/nccl_xml.hpp"
#include "tests/fuzz/fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace paceline;
  const auto hardware = agent::read_nccl_xml(fuzz::text(data, size), "topo.xml");
  if (!hardware) {
    fuzz::require(hardware.error().message.starts_with("topo.xml: "), "a refusal names the file");
    fuzz::require(hardware.error().message.size() < 512, "a refusal is short");
    return 0;
  }
  const auto fabric = agent::relate(*hardware);
  fuzz::require(fabric.gpu_nic.size() == fabric.gpus.size(), "every GPU has a row");
  for (const auto& row : fabric.gpu_nic)
    fuzz::require(row.size() == fabric.nics.size(), "every row tells of every NIC");
  fuzz::require(agent::matrix_text(fabric).ends_with('\n'), "the table is whole lines");
  const auto again = agent::read_nccl_xml(agent::nccl_xml_text(*hardware), "again.xml");
  fuzz::require(again || again.error().message.find("is not XML") == std::string::npos,
                "an export is XML");
  return 0;
}
