// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <memory>
#include <vector>

#include "agent/probe/formats/nccl_xml.hpp"
#include "agent/probe/sysfs/root.hpp"

namespace paceline::agent {
namespace {

constexpr const char* kHidden = "fffffff:ffff:ff";

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '<')
      result += "&lt;";
    else if (c == '&')
      result += "&amp;";
    else if (c == '"')
      result += "&quot;";
    else
      result +=
          static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e ? '?' : c;
  }
  return result;
}

std::string attribute(std::string_view name, std::string_view value) {
  return " " + std::string(name) + "=\"" + escaped(value) + "\"";
}
std::string attribute(std::string_view name, long value) {
  return attribute(name, std::to_string(value));
}

std::string hex(std::uint32_t value, int digits) {
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), "0x%0*x", digits, value);
  return text.data();
}

/// The kernel's list "16-47" as a mask, highest word first.
std::string mask_of_cpus(std::string_view list) {
  const auto cpus = parse_cpu_list(list).value_or(std::vector<int>{});
  std::vector<std::uint32_t> words(cpus.empty() ? 1
                                                : static_cast<std::size_t>(cpus.back()) / 32 + 1);
  for (const int cpu : cpus)
    words.at(static_cast<std::size_t>(cpu) / 32) |= 1U << (static_cast<unsigned>(cpu) % 32);
  std::string mask;
  for (auto word = words.rbegin(); word != words.rend(); ++word)
    mask += (mask.empty() ? "" : ",") + hex(*word, 8).substr(2);
  return mask;
}

/// One <pci> element: its place, its content, and the elements below it.
struct Element {
  const PciFunction* function = nullptr;
  std::string between;  // the components above it that NCCL omits
  std::string content;
  std::map<std::string, std::unique_ptr<Element>> below;
};
using Elements = std::map<std::string, std::unique_ptr<Element>>;

class Writer {
 public:
  explicit Writer(const Hardware& hardware) : hardware_(hardware) {
    for (const auto& function : hardware.pci) by_address_.emplace(function.address, &function);
  }

  std::string write() {
    // Of a device that is known by its class alone, NCCL finds the rest on the machine.
    for (const auto& gpu : hardware_.gpu.gpus)
      add(gpu.pci_address, gpu.class_only ? "" : gpu_text(gpu));
    int index = 0;
    for (const auto& device : hardware_.rdma) {
      if (device.ports.empty()) add(device.pci_address, "");
      for (const auto& port : device.ports)
        add(device.pci_address, net_text(device.name, index++, port.rate_mbps.value_or(0),
                                         port.number, gdr_text(device.nccl_gdr)));
    }
    for (const auto& nic : hardware_.nics) {
      const bool known =
          std::any_of(hardware_.rdma.begin(), hardware_.rdma.end(),
                      [&](const auto& device) { return device.pci_address == nic.pci_address; });
      if (!known)
        add(nic.pci_address, net_text(nic.name, index++, nic.speed_mbps.value_or(0), 0, ""));
    }
    for (const auto& node : hardware_.cpu.numa_nodes) {
      if (!node.cpus.empty()) cpus_[node.id];  // also list a node without devices
    }
    std::string text = "<system version=\"1\">\n";
    for (const auto& [numa, elements] : cpus_) text += cpu_text(numa, elements);
    return text + "</system>\n";
  }

 private:
  void add(const std::string& address, const std::string& content) {
    const auto found = by_address_.find(address);
    if (found == by_address_.end()) return;
    const auto& path = found->second->path;
    // NCCL goes up two components at a time: the device, the upper port of its switch, the upper
    // port of the next switch.
    std::vector<std::size_t> kept;
    for (std::size_t at = path.size() - 1; at >= 1; at -= 2) {
      kept.insert(kept.begin(), at);
      if (at < 3) break;
    }
    Elements* level = &cpus_[found->second->numa_node.value_or(-1)];
    Element* element = nullptr;
    std::size_t done = 0;
    for (const std::size_t at : kept) {
      auto& slot = (*level)[path[at]];
      if (slot == nullptr) {
        slot = std::make_unique<Element>();
        const auto function = by_address_.find(path[at]);
        slot->function = function == by_address_.end() ? nullptr : function->second;
        for (std::size_t skipped = done; skipped < at; ++skipped)
          slot->between += (slot->between.empty() ? "" : "/") + path[skipped];
        if (slot->between.empty()) slot->between = "-";
      }
      done = at + 1;
      element = slot.get();
      level = &element->below;
    }
    element->content += content;
  }

  static std::string gdr_text(const std::optional<bool>& gdr) {
    return gdr ? attribute("gdr", *gdr ? 1 : 0) : "";
  }

  std::string gpu_text(const Gpu& gpu) const {
    std::string text = "<gpu" + attribute("dev", gpu.index);
    if (gpu.compute_capability) text += attribute("sm", *gpu.compute_capability);
    text += attribute("rank", gpu.index) + gdr_text(gpu.nccl_gdr) + ">";
    std::map<std::pair<std::string, bool>, int> targets;
    std::map<std::string, int> xgmi;
    for (const auto& link : gpu.nvlinks) {
      if (!link.active) continue;
      if (link.kind == LinkKind::kXgmi) {
        ++xgmi[link.remote_address];
        continue;
      }
      const bool peer =
          link.remote != NvLinkRemote::kSwitch &&
          std::any_of(hardware_.gpu.gpus.begin(), hardware_.gpu.gpus.end(),
                      [&](const Gpu& other) { return other.pci_address == link.remote_address; });
      if (!peer && link.remote == NvLinkRemote::kGpu) continue;
      ++targets[{link.remote_address.empty() ? kHidden : link.remote_address, peer}];
    }
    for (const auto& [target, count] : targets) {
      text += "<nvlink" + attribute("target", target.first) + attribute("count", count) +
              attribute("tclass", target.second ? "0x030200" : "0x068000") + "/>";
    }
    for (const auto& [target, count] : xgmi) {
      text += "<xgmi" + attribute("target", target) + attribute("count", count) +
              attribute("tclass", "0x120000") + "/>";
    }
    if (gpu.c2c) text += "<c2c/>";
    return text + "</gpu>";
  }

  static std::string net_text(const std::string& name, int index, std::int64_t mbps, int port,
                              const std::string& more) {
    return "<nic><net" + attribute("name", name) + attribute("dev", index) +
           attribute("speed", mbps) + attribute("port", port) + more + "/></nic>";
  }

  std::string cpu_text(int numa, const Elements& elements) const {
    std::string text = "  <cpu" + attribute("numaid", numa);
    for (const auto& node : hardware_.cpu.numa_nodes) {
      if (node.id == numa) text += attribute("affinity", mask_of_cpus(node.cpus));
    }
    const std::string& model = hardware_.cpu.model;
    const auto is = [&model](std::string_view word) {
      return model.find(word) != std::string::npos;
    };
    if (is("Intel"))
      text += attribute("arch", "x86_64") + attribute("vendor", "GenuineIntel");
    else if (is("AMD"))
      text += attribute("arch", "x86_64") + attribute("vendor", "AuthenticAMD");
    else if (is("Arm ") || is("ARM"))
      text += attribute("arch", "arm64") + attribute("vendor", "ARM");
    text += ">\n";
    for (const auto& [address, element] : elements) text += pci_text(address, *element, 4);
    return text + "  </cpu>\n";
  }

  static std::string pci_text(const std::string& address, const Element& element,
                              std::size_t indent) {
    const std::string margin(indent, ' ');
    std::string text = margin + "<pci" + attribute("busid", address);
    if (element.function != nullptr) {
      text += attribute("class", hex(element.function->class_code, 6)) +
              attribute("vendor", hex(element.function->vendor, 4)) +
              attribute("device", hex(element.function->device, 4));
      if (!element.function->link_speed.empty())
        text += attribute("link_speed", element.function->link_speed);
      if (!element.function->link_width.empty())
        text += attribute("link_width", element.function->link_width);
    }
    text += attribute("sysfs", element.between) + ">\n";
    if (!element.content.empty()) text += margin + "  " + element.content + "\n";
    for (const auto& [below, child] : element.below) text += pci_text(below, *child, indent + 2);
    return text + margin + "</pci>\n";
  }

  const Hardware& hardware_;
  std::map<std::string, const PciFunction*> by_address_;
  std::map<int, Elements> cpus_;
};

}  // namespace

std::string nccl_xml_text(const Hardware& hardware) { return Writer(hardware).write(); }

}  // namespace paceline::agent
