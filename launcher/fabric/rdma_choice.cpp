// SPDX-License-Identifier: Apache-2.0
#include "launcher/fabric/rdma_choice.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace paceline::fabric {
namespace {

using Ports = std::vector<const RdmaPort*>;

// How many times the rate of the ports that are left out the others must have together. A few fast
// ports for storage must not push out many slower ones that carry the training.
constexpr std::int64_t kClearPart = 2;
constexpr std::int64_t kClearSpeed = 4;
// NCCL has room for no more.
constexpr std::size_t kMostListed = 32;

constexpr auto kInfiniband = "InfiniBand";
constexpr auto kEthernet = "Ethernet";

std::int64_t total(const Ports& ports) {
  std::int64_t sum = 0;
  for (const RdmaPort* port : ports) sum += port->gbps;
  return sum;
}

std::string name_of(const RdmaPort& port) {
  return port.device + ":" + std::to_string(port.number);
}

std::string joined(const Ports& ports) {
  std::string text;
  for (const RdmaPort* port : ports) text += (text.empty() ? "" : ",") + name_of(*port);
  return text;
}

bool has_address(const RdmaPort& port) { return port.ipv4_gid || port.ipv6_gid; }

/// Moves ports from those that are kept to those that are left out, reason by reason.
class Selection {
 public:
  explicit Selection(const std::vector<RdmaPort>& all) : all_(all) {
    for (const RdmaPort& port : all) {
      if (port.active && (port.layer == kInfiniband || port.layer == kEthernet))
        kept_.push_back(&port);
    }
  }

  void run() {
    std::set<std::string> present;
    for (const RdmaPort* port : kept_) present.insert(port->address);
    leave("manage NVSwitches", 0, [](const RdmaPort& port) { return port.manages_switches; });
    leave("virtual functions of devices that are here, too", 0, [&](const RdmaPort& port) {
      return !port.physical.empty() && present.contains(port.physical);
    });
    leave("software beside hardware", 0, [](const RdmaPort& port) { return port.address.empty(); });
    leave_other_layer();
    leave_slower_kinds();
    leave("without a RoCE v2 address in this container", kClearPart,
          [](const RdmaPort& port) { return port.layer == kEthernet && !has_address(port); });
  }

  const Ports& kept() const { return kept_; }
  const std::string& left_out() const { return left_out_; }

  /// The ports that are kept, and those of the same kinds without a link: NCCL passes over them as
  /// long as they are down.
  Ports with_spares() const {
    std::set<std::string> kinds;
    for (const RdmaPort* port : kept_) kinds.insert(port->kind);
    Ports ports;
    for (const RdmaPort& port : all_) {
      const bool kept = std::ranges::find(kept_, &port) != kept_.end();
      if (kept || (!port.active && kinds.contains(port.kind))) ports.push_back(&port);
    }
    return ports;
  }

 private:
  /// Leaves out the ports that `is_wrong`, if the others have at least `times` their rate. There
  /// must be others.
  template <typename Rule>
  void leave(const std::string& why, std::int64_t times, const Rule& is_wrong) {
    Ports wrong;
    Ports right;
    for (const RdmaPort* port : kept_) (is_wrong(*port) ? wrong : right).push_back(port);
    if (wrong.empty() || right.empty() || total(right) < times * total(wrong)) return;
    left_out_ += (left_out_.empty() ? "" : "; ") + joined(wrong) + " (" + why + ")";
    kept_ = std::move(right);
  }

  /// InfiniBand and RoCE cannot reach each other.
  void leave_other_layer() {
    std::map<std::string, std::int64_t> rates;
    for (const RdmaPort* port : kept_) rates[port->layer] += port->gbps;
    if (rates.size() < 2 || rates[kInfiniband] == 0 || rates[kEthernet] == 0) return;
    const std::string other = rates[kInfiniband] > rates[kEthernet] ? kEthernet : kInfiniband;
    leave(other + " beside " + (other == kEthernet ? kInfiniband : kEthernet), kClearPart,
          [&](const RdmaPort& port) { return port.layer == other; });
  }

  /// A link that came up slower than others of its kind is a fault, and is no reason to leave it
  /// out.
  void leave_slower_kinds() {
    std::map<std::string, std::int64_t> rates;
    std::int64_t fastest = 0;
    for (const RdmaPort* port : kept_) {
      if (port->gbps == 0) return;
      std::int64_t& rate = rates[port->kind];
      rate = std::max(rate, port->gbps);
      fastest = std::max(fastest, rate);
    }
    leave("slower than the " + std::to_string(fastest) + " Gbit/s of the others", kClearSpeed,
          [&](const RdmaPort& port) { return rates[port.kind] * 2 <= fastest; });
  }

  const std::vector<RdmaPort>& all_;
  Ports kept_;
  std::string left_out_;
};

int common_gid_index(const Ports& ports) {
  for (const RdmaPort* port : ports) {
    if (port->layer != kEthernet || !port->ipv4_gid || *port->ipv4_gid != *ports[0]->ipv4_gid)
      return -1;
  }
  return *ports[0]->ipv4_gid;
}

}  // namespace

RdmaChoice choose_ports(const std::vector<RdmaPort>& ports) {
  Selection selection(ports);
  selection.run();
  const Ports& kept = selection.kept();
  RdmaChoice choice;
  choice.taken = static_cast<int>(kept.size());
  if (kept.empty()) return choice;
  choice.only_ipv6 = std::ranges::all_of(kept, [](const RdmaPort* port) {
    return port->layer == kEthernet && port->ipv6_gid && !port->ipv4_gid;
  });
  choice.gid_index = common_gid_index(kept);
  const Ports listed = selection.with_spares();
  if (!selection.left_out().empty() && listed.size() <= kMostListed) {
    choice.list = "=" + joined(listed);
    choice.reason = "left out: " + selection.left_out();
  }
  choice.summary = "RDMA over " + std::to_string(kept.size()) + " ports" +
                   (choice.list.empty() ? ", which NCCL chooses by itself" : "");
  return choice;
}

}  // namespace paceline::fabric
