// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <set>

#include "agent/probe/fabric/fabric.hpp"
#include "common/base/printable.hpp"

namespace paceline::agent {
namespace {

struct ClassName {
  PathClass kind;
  std::string_view name;
  std::string_view meaning;
};

constexpr std::array<ClassName, 12> kClasses{{
    {PathClass::kLoc, "X", "the device itself"},
    {PathClass::kNvl, "NV#", "# bonded NVLinks, direct or through NVSwitches"},
    {PathClass::kXgmi, "XG#", "# bonded xGMI links"},
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

std::string numa_text(const FabricDevice& device) {
  return device.numa_node ? std::to_string(*device.numa_node) : "-";
}

/// What the matrix calls each NIC: its name, or NIC0, NIC1… if a name is too long for a column.
std::vector<std::string> nic_labels(const Fabric& fabric) {
  constexpr std::size_t kMaxLabel = 8;
  const bool short_names =
      std::all_of(fabric.nics.begin(), fabric.nics.end(),
                  [](const FabricDevice& nic) { return nic.label.size() <= kMaxLabel; });
  std::vector<std::string> labels;
  for (const auto& nic : fabric.nics)
    labels.push_back(short_names ? nic.label : "NIC" + std::to_string(labels.size()));
  return labels;
}

/// Rows and columns of all devices: GPUs first.
class Matrix {
 public:
  Matrix(const Fabric& fabric, const std::vector<std::string>& nics)
      : fabric_(fabric), labels_(nics) {
    std::vector<std::string> gpus;
    for (const auto& gpu : fabric.gpus) gpus.push_back(gpu.label);
    labels_.insert(labels_.begin(), gpus.begin(), gpus.end());
    // A machine with many devices has lines that no terminal is wide enough for.
    constexpr std::size_t kMany = 24;
    const std::size_t gap = labels_.size() > kMany ? 1 : 2;
    for (std::size_t column = 0; column < labels_.size(); ++column) {
      std::size_t width = labels_[column].size();
      for (std::size_t row = 0; row < labels_.size(); ++row)
        width = std::max(width, to_string(cell(row, column)).size());
      widths_.push_back(width + gap);
      label_width_ = std::max(label_width_, labels_[column].size() + gap);
    }
  }

  std::string text() const {
    std::string table;
    std::string head;
    std::size_t cpus = std::string_view("CPUs").size();
    for (std::size_t row = 0; row < labels_.size(); ++row)
      cpus = std::max(cpus, device(row).cpus.size());
    add_cell(head, "", label_width_);
    for (std::size_t column = 0; column < labels_.size(); ++column)
      add_cell(head, labels_[column], widths_[column]);
    add_cell(head, "CPUs", cpus + 2);
    end_line(table, head + "NUMA");
    for (std::size_t row = 0; row < labels_.size(); ++row) {
      std::string line;
      add_cell(line, labels_[row], label_width_);
      for (std::size_t column = 0; column < labels_.size(); ++column)
        add_cell(line, to_string(cell(row, column)), widths_[column]);
      add_cell(line, device(row).cpus.empty() ? "-" : device(row).cpus, cpus + 2);
      end_line(table, line + numa_text(device(row)));
    }
    return table;
  }

 private:
  const FabricDevice& device(std::size_t at) const {
    const std::size_t gpus = fabric_.gpus.size();
    return at < gpus ? fabric_.gpus[at] : fabric_.nics[at - gpus];
  }
  const Path& cell(std::size_t row, std::size_t column) const {
    const std::size_t gpus = fabric_.gpus.size();
    if (row < gpus && column < gpus) return fabric_.gpu_gpu[row][column];
    if (row < gpus) return fabric_.gpu_nic[row][column - gpus];
    if (column < gpus) return fabric_.gpu_nic[column][row - gpus];
    return fabric_.nic_nic[row - gpus][column - gpus];
  }

  const Fabric& fabric_;
  std::vector<std::string> labels_;
  std::vector<std::size_t> widths_;
  std::size_t label_width_ = 6;
};

/// "nearest mlx5_0, mlx5_1 (PXB)"; empty if no NIC with RDMA serves this GPU.
std::string nearest_text(const Fabric& fabric, std::size_t gpu) {
  const auto rails = rails_near(fabric, fabric.gpus[gpu]);
  if (rails.empty()) return {};
  std::string text = "; nearest ";
  for (std::size_t i = 0; i < rails.size(); ++i) text += (i == 0 ? "" : ", ") + rails[i]->nic;
  for (std::size_t nic = 0; nic < fabric.nics.size(); ++nic) {
    if (fabric.nics[nic].label == rails.front()->nic)
      text += " (" + to_string(fabric.gpu_nic[gpu][nic]) + ")";
  }
  return text;
}

std::string netdevs_text(const FabricDevice& nic) {
  std::string text;
  for (const auto& name : nic.netdevs) text += (text.empty() ? ", " : " ") + name;
  return text;
}

/// One line for each device, which also explains the labels of the matrix.
std::string device_list(const Fabric& fabric, const std::vector<std::string>& nics) {
  std::size_t label = 4;
  std::size_t name = 0;
  for (const auto& gpu : fabric.gpus) label = std::max(label, gpu.label.size());
  for (std::size_t i = 0; i < nics.size(); ++i) {
    label = std::max(label, nics[i].size());
    if (nics[i] != fabric.nics[i].label) name = std::max(name, fabric.nics[i].label.size() + 2);
  }
  std::string list;
  const auto add = [&](const std::string& called, const FabricDevice& device,
                       const std::string& more) {
    std::string line;
    add_cell(line, called, label + 2);
    add_cell(line, called == device.label ? "" : device.label, name);
    add_cell(line, device.address, 14);
    end_line(list, line + "NUMA " + numa_text(device) + "  " + device.model + more);
  };
  for (std::size_t i = 0; i < fabric.gpus.size(); ++i)
    add(fabric.gpus[i].label, fabric.gpus[i], nearest_text(fabric, i));
  for (std::size_t i = 0; i < nics.size(); ++i)
    add(nics[i], fabric.nics[i], netdevs_text(fabric.nics[i]));
  return list;
}

/// Names come from devices and files; a line break in one would look like a line of the table.
Fabric for_terminal(Fabric fabric) {
  for (auto* devices : {&fabric.gpus, &fabric.nics}) {
    for (auto& device : *devices) {
      for (auto* text : {&device.label, &device.model, &device.address, &device.cpus})
        *text = printable(std::move(*text));
      for (auto& name : device.netdevs) name = printable(std::move(name));
    }
  }
  for (auto& rail : fabric.rails) {
    rail.nic = printable(std::move(rail.nic));
    for (auto& gpu : rail.gpus) gpu = printable(std::move(gpu));
  }
  for (auto& group : fabric.nvlink_groups) {
    for (auto& gpu : group) gpu = printable(std::move(gpu));
  }
  fabric.nvlink_domain = printable(std::move(fabric.nvlink_domain));
  return fabric;
}

}  // namespace

std::string to_string(const Path& path) {
  if (path.kind == PathClass::kNvl) return "NV" + std::to_string(path.nvlinks);
  if (path.kind == PathClass::kXgmi) return "XG" + std::to_string(path.nvlinks);
  return std::string(class_name(path.kind).name);
}

std::string_view explain(PathClass kind) { return class_name(kind).meaning; }

std::string matrix_text(const Fabric& raw) {
  if (raw.gpus.empty() && raw.nics.empty())
    return "no accelerator and no NIC with hardware behind it\n";
  const Fabric fabric = for_terminal(raw);
  const auto nics = nic_labels(fabric);
  std::string table;
  if (!fabric.gpus.empty()) table = Matrix(fabric, nics).text() + "\n";
  table += device_list(fabric, nics);
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
  for (const auto* rows : {&fabric.gpu_gpu, &fabric.gpu_nic, &fabric.nic_nic}) {
    if (fabric.gpus.empty()) break;  // then there is no matrix
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
        "Note: every device lies on a root bus or behind an emulated port, as a hypervisor shows "
        "them: the PCI classes here do not tell how the machine is built. A topology file of the "
        "provider does: --root / --nccl-topo FILE.\n";
  if (fabric.gpus_left_out + fabric.nics_left_out > 0) {
    text += "Note: " + std::to_string(fabric.gpus_left_out) + " accelerators and " +
            std::to_string(fabric.nics_left_out) +
            " NICs are not shown: the matrix holds at most " + std::to_string(kMostFabricDevices) +
            " of each.\n";
  }
  if (unknown_numa)
    text +=
        "Note: \"-\" under NUMA: firmware or hypervisor gives no node; with several nodes such a "
        "device counts as "
        "far.\n";
  return text;
}

}  // namespace paceline::agent
