// SPDX-License-Identifier: Apache-2.0
// Compares the PCI classes of every fixture with hwloc's. hwloc builds the tree from the bus
// numbers in the bridges' configuration space, and places host bridges by CPU masks. Paceline uses
// sysfs paths and numa_node.
#include <gtest/gtest.h>
#include <hwloc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>

#include "agent/probe/fabric/fabric.hpp"
#include "agent/probe/formats/nvml_json.hpp"
#include "agent/probe/probe.hpp"
#include "testing/node_tree.hpp"

namespace paceline::agent {
namespace {

struct Destroy {
  void operator()(hwloc_topology* topology) const { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<hwloc_topology, Destroy>;

Topology load(const NodeTree& tree) {
  setenv("HWLOC_FSROOT", tree.folder().c_str(), 1);
  setenv("HWLOC_THISSYSTEM", "0", 1);
  setenv("HWLOC_COMPONENTS", "linux,stop", 1);
  hwloc_topology_t raw = nullptr;
  EXPECT_EQ(hwloc_topology_init(&raw), 0);
  Topology topology(raw);
  hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_ALL);
  EXPECT_EQ(hwloc_topology_load(raw), 0);
  for (const char* name : {"HWLOC_FSROOT", "HWLOC_THISSYSTEM", "HWLOC_COMPONENTS"}) unsetenv(name);
  return topology;
}

int depth_of(hwloc_obj_t object) {
  int depth = 0;
  for (; object != nullptr; object = object->parent) ++depth;
  return depth;
}

/// hwloc's own function needs depths, which PCI objects do not have.
hwloc_obj_t common_ancestor(hwloc_obj_t a, hwloc_obj_t b) {
  while (depth_of(a) > depth_of(b)) a = a->parent;
  while (depth_of(b) > depth_of(a)) b = b->parent;
  while (a != b) {
    a = a->parent;
    b = b->parent;
  }
  return a;
}

bool is_host_bridge(hwloc_obj_t object) {
  return object->type == HWLOC_OBJ_BRIDGE &&
         object->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_HOST;
}

std::string class_by_hwloc(hwloc_topology_t topology, const std::string& a, const std::string& b) {
  hwloc_obj_t first = hwloc_get_pcidev_by_busidstring(topology, a.c_str());
  hwloc_obj_t second = hwloc_get_pcidev_by_busidstring(topology, b.c_str());
  if (first == nullptr || second == nullptr) return "hwloc does not know " + a + " or " + b;
  hwloc_obj_t common = common_ancestor(first, second);
  if (common->type != HWLOC_OBJ_BRIDGE) {
    hwloc_obj_t near_first = hwloc_get_non_io_ancestor_obj(topology, first);
    hwloc_obj_t near_second = hwloc_get_non_io_ancestor_obj(topology, second);
    const bool one_node = hwloc_bitmap_isequal(near_first->nodeset, near_second->nodeset) != 0 &&
                          hwloc_bitmap_weight(near_first->nodeset) == 1;
    return one_node ? "NODE" : "SYS";
  }
  if (is_host_bridge(common)) return "PHB";
  const int levels = std::max(depth_of(first), depth_of(second)) - depth_of(common);
  return levels <= 2 ? "PIX" : "PXB";
}

class Hwloc : public testing::TestWithParam<const char*> {};

TEST_P(Hwloc, SeesTheSamePciClasses) {
  const NodeTree tree(GetParam());
  const auto library = read_nvml_json(NodeTree::nvml_json(GetParam()), GetParam());
  ASSERT_TRUE(library) << library.error().message;
  Hardware hardware = probe_hardware(tree.root(), **library);
  // PCI only, without NVLink and C2C.
  for (auto& gpu : hardware.gpu.gpus) {
    gpu.nvlinks.clear();
    gpu.c2c = false;
  }
  const Fabric fabric = relate(hardware);
  const Topology topology = load(tree);
  std::size_t compared = 0;
  for (std::size_t a = 0; a < fabric.gpus.size(); ++a) {
    for (std::size_t b = 0; b < fabric.gpus.size(); ++b) {
      if (a == b) continue;
      EXPECT_EQ(to_string(fabric.gpu_gpu[a][b]),
                class_by_hwloc(topology.get(), fabric.gpus[a].address, fabric.gpus[b].address))
          << fabric.gpus[a].label << " " << fabric.gpus[b].label;
      ++compared;
    }
    for (std::size_t b = 0; b < fabric.nics.size(); ++b) {
      EXPECT_EQ(to_string(fabric.gpu_nic[a][b]),
                class_by_hwloc(topology.get(), fabric.gpus[a].address, fabric.nics[b].address))
          << fabric.gpus[a].label << " " << fabric.nics[b].label;
      ++compared;
    }
  }
  EXPECT_GE(compared, 12U);
}

INSTANTIATE_TEST_SUITE_P(Fixtures, Hwloc,
                         testing::Values("dgx-h100-like", "dgx-a100-like", "gb200-like",
                                         "two-socket-pcie", "cloud-vm-gpu", "cloud-vm-rdma",
                                         "xe9680-spare-ports", "aws-p5en-half"));

}  // namespace
}  // namespace paceline::agent
