// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <set>

#include "agent/probe/fabric/fabric.hpp"

namespace paceline::agent {
namespace {

struct ClassName {
  PathClass kind;
  std::string_view name;
  std::string_view meaning;
};

constexpr std::array<ClassName, 11> kClasses{{
    {PathClass::kLoc, "X", "the device itself"},
    {PathClass::kNvl, "NV#", "# bonded NVLinks, direct or through NVSwitches"},
    {PathClass::kNvb, "NVB", "NVLinks through one other GPU"},
    {PathClass::kC2c, "C2C", "NVLink-C2C through the CPU that both belong to"},
    {PathClass::kPix, "PIX", "at most one PCIe switch"},
    {PathClass::kPxb, "PXB", "several PCIe switches, not the host bridge"},
    {PathClass::kP2c, "P2C", "NVLink-C2C to the CPU, PCIe from there"},
    {PathClass::kPxn, "PXN", "NVLink to another GPU, PCIe from there"},
    {PathClass::kPhb, "PHB", "one host bridge of the CPU"},
    {PathClass::kNode, "NODE", "two host bridges of one NUMA node"},
    {PathClass::kSys, "SYS", "the link between NUMA nodes, or not known to be nearer"},
}};

const ClassName& class_name(PathClass kind) { return kClasses.at(static_cast<std::size_t>(kind)); }

void add_cell(std::string& line, std::string_view text, std::size_t width) {
  line += text;
  line.append(width > text.size() ? width - text.size() : 0, ' ');
}

void end_line(std::string& table, std::string line) {
  while (line.ends_with(' ')) line.pop_back();
  table += line + '\n';
}

}  // namespace

std::string to_string(const Path& path) {
  if (path.kind == PathClass::kNvl) return "NV" + std::to_string(path.nvlinks);
  return std::string(class_name(path.kind).name);
}

std::string_view explain(PathClass kind) { return class_name(kind).meaning; }

std::string matrix_text(const Fabric& fabric) {
  if (fabric.gpus.empty() && fabric.nics.empty())
    return "no accelerator and no NIC with hardware behind it\n";
  std::string table;
  std::size_t label = 4;
  std::size_t cell = 4;
  for (const auto& gpu : fabric.gpus) cell = std::max(cell, gpu.label.size());
  for (const auto& nic : fabric.nics) label = std::max(label, nic.label.size());
  label = std::max(label, cell) + 2;
  const std::size_t width = std::max(label, cell + 2);

  if (!fabric.gpus.empty()) {
    std::string head;
    add_cell(head, "", label);
    for (const auto& gpu : fabric.gpus) add_cell(head, gpu.label, cell + 2);
    for (const auto& nic : fabric.nics) add_cell(head, nic.label, width);
    end_line(table, head + "NUMA");
    for (std::size_t row = 0; row < fabric.gpus.size(); ++row) {
      std::string line;
      add_cell(line, fabric.gpus[row].label, label);
      for (const auto& path : fabric.gpu_gpu[row]) add_cell(line, to_string(path), cell + 2);
      for (const auto& path : fabric.gpu_nic[row]) add_cell(line, to_string(path), width);
      end_line(
          table,
          line + (fabric.gpus[row].numa_node ? std::to_string(*fabric.gpus[row].numa_node) : "-"));
    }
    table += '\n';
  }
  for (const auto* devices : {&fabric.gpus, &fabric.nics}) {
    for (const auto& device : *devices) {
      std::string line;
      add_cell(line, device.label, label);
      add_cell(line, device.address, 14);
      end_line(table, line + "NUMA " +
                          (device.numa_node ? std::to_string(*device.numa_node) : "-") + "  " +
                          device.model);
    }
  }
  for (const auto& rail : fabric.rails) {
    std::string line = "rail " + std::to_string(rail.index) + ": " + rail.nic;
    for (const auto& gpu : rail.gpus) line += " " + gpu;
    end_line(table, line);
  }
  for (const auto& group : fabric.nvlink_groups) {
    std::string line = "NVSwitch:";
    for (const auto& gpu : group) line += " " + gpu;
    end_line(table, line);
  }
  if (!fabric.nvlink_domain.empty()) table += "NVLink domain: " + fabric.nvlink_domain + "\n";
  return table;
}

std::string legend_text(const Fabric& fabric) {
  std::set<PathClass> used;
  bool unknown_numa = false;
  for (const auto* rows : {&fabric.gpu_gpu, &fabric.gpu_nic}) {
    for (const auto& row : *rows) {
      for (const auto& path : row) used.insert(path.kind);
    }
  }
  for (const auto* devices : {&fabric.gpus, &fabric.nics}) {
    for (const auto& device : *devices) unknown_numa = unknown_numa || !device.numa_node;
  }
  std::string text;
  for (const PathClass kind : used) {
    std::string line = "  ";
    add_cell(line, class_name(kind).name, 6);
    text += line + std::string(explain(kind)) + "\n";
  }
  if (!text.empty()) text = "Legend, nearest first:\n" + text;
  if (fabric.virtual_topology && !fabric.gpus.empty())
    text +=
        "Note: every device lies directly on a root bus, as a hypervisor shows them: the PCI "
        "classes here do not tell "
        "how the machine is "
        "built. A topology file of the provider (--nccl-topo) does.\n";
  if (unknown_numa)
    text +=
        "Note: \"-\" under NUMA: firmware or hypervisor gives no node; with several nodes such a "
        "device counts as "
        "far.\n";
  return text;
}

}  // namespace paceline::agent
