// SPDX-License-Identifier: Apache-2.0
#include "agent/probe/sysfs/counters.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

namespace paceline::agent {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxDevices = 64;
// Data counters of RDMA ports are in words of four bytes.
constexpr unsigned kWord = 4;

constexpr auto kPort = CounterKind::Of::kRdmaPort;
constexpr auto kNet = CounterKind::Of::kNic;
constexpr std::string_view kPortBytes = "paceline_rdma_port_bytes_total";
constexpr std::string_view kPortBytesHelp =
    "Bytes that an RDMA port moved, of RDMA and of everything else.";
constexpr std::string_view kPortPackets = "paceline_rdma_port_packets_total";
constexpr std::string_view kPortPacketsHelp = "Packets that an RDMA port moved.";
constexpr std::string_view kPortErrors = "paceline_rdma_port_errors_total";
constexpr std::string_view kPortErrorsHelp = "Errors that an RDMA port counted, by kind.";
constexpr std::string_view kCongestion = "paceline_rdma_port_congestion_total";
constexpr std::string_view kCongestionHelp =
    "RoCE's congestion control: packets marked by switches, notifications sent for them, "
    "notifications obeyed.";
constexpr std::string_view kBytes = "paceline_nic_bytes_total";
constexpr std::string_view kBytesHelp =
    "Bytes that a network device moved; RDMA past the kernel is not among them.";
constexpr std::string_view kPackets = "paceline_nic_packets_total";
constexpr std::string_view kPacketsHelp = "Packets that a network device moved.";
constexpr std::string_view kErrors = "paceline_nic_errors_total";
constexpr std::string_view kErrorsHelp = "Errors that a network device counted.";
constexpr std::string_view kDrops = "paceline_nic_drops_total";
constexpr std::string_view kDropsHelp = "Packets that a network device or its queues let fall.";

constexpr std::array kKinds{
    CounterKind{kPort, "counters/port_rcv_data", kPortBytes, "direction", "received", kWord,
                kPortBytesHelp},
    CounterKind{kPort, "counters/port_xmit_data", kPortBytes, "direction", "sent", kWord,
                kPortBytesHelp},
    CounterKind{kPort, "counters/port_rcv_packets", kPortPackets, "direction", "received", 1,
                kPortPacketsHelp},
    CounterKind{kPort, "counters/port_xmit_packets", kPortPackets, "direction", "sent", 1,
                kPortPacketsHelp},
    CounterKind{kPort, "counters/link_downed", kPortErrors, "kind", "link_downed", 1,
                kPortErrorsHelp},
    CounterKind{kPort, "counters/link_error_recovery", kPortErrors, "kind", "link_error_recovery",
                1, kPortErrorsHelp},
    CounterKind{kPort, "counters/symbol_error", kPortErrors, "kind", "symbol_error", 1,
                kPortErrorsHelp},
    CounterKind{kPort, "counters/excessive_buffer_overrun_errors", kPortErrors, "kind",
                "excessive_buffer_overrun", 1, kPortErrorsHelp},
    CounterKind{kPort, "counters/local_link_integrity_errors", kPortErrors, "kind",
                "local_link_integrity", 1, kPortErrorsHelp},
    CounterKind{kPort, "counters/port_rcv_errors", kPortErrors, "kind", "receive", 1,
                kPortErrorsHelp},
    CounterKind{kPort, "counters/port_xmit_discards", kPortErrors, "kind", "send_discard", 1,
                kPortErrorsHelp},
    CounterKind{kPort, "hw_counters/rnr_nak_retry_err", kPortErrors, "kind", "rnr_nak_retry", 1,
                kPortErrorsHelp},
    CounterKind{kPort, "hw_counters/out_of_sequence", kPortErrors, "kind", "out_of_sequence", 1,
                kPortErrorsHelp},
    CounterKind{kPort, "hw_counters/packet_seq_err", kPortErrors, "kind", "packet_sequence", 1,
                kPortErrorsHelp},
    CounterKind{kPort, "hw_counters/local_ack_timeout_err", kPortErrors, "kind", "ack_timeout", 1,
                kPortErrorsHelp},
    CounterKind{kPort, "hw_counters/np_ecn_marked_roce_packets", kCongestion, "kind", "marked", 1,
                kCongestionHelp},
    CounterKind{kPort, "hw_counters/np_cnp_sent", kCongestion, "kind", "notified", 1,
                kCongestionHelp},
    CounterKind{kPort, "hw_counters/rp_cnp_handled", kCongestion, "kind", "obeyed", 1,
                kCongestionHelp},
    CounterKind{kNet, "statistics/rx_bytes", kBytes, "direction", "received", 1, kBytesHelp},
    CounterKind{kNet, "statistics/tx_bytes", kBytes, "direction", "sent", 1, kBytesHelp},
    CounterKind{kNet, "statistics/rx_packets", kPackets, "direction", "received", 1, kPacketsHelp},
    CounterKind{kNet, "statistics/tx_packets", kPackets, "direction", "sent", 1, kPacketsHelp},
    CounterKind{kNet, "statistics/rx_errors", kErrors, "direction", "received", 1, kErrorsHelp},
    CounterKind{kNet, "statistics/tx_errors", kErrors, "direction", "sent", 1, kErrorsHelp},
    CounterKind{kNet, "statistics/rx_dropped", kDrops, "direction", "received", 1, kDropsHelp},
    CounterKind{kNet, "statistics/tx_dropped", kDrops, "direction", "sent", 1, kDropsHelp},
    CounterKind{kNet, "carrier_changes", "paceline_nic_link_changes_total", "", "", 1,
                "How often a network device's link came or went."},
};

std::optional<std::uint64_t> read_count(const fs::path& file) {
  const auto text = read_text(file);
  if (!text) return std::nullopt;
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  // A port without the counter says "N/A (no PMA)".
  if (error != std::errc{} || end != text->data() + text->size()) return std::nullopt;
  return value;
}

}  // namespace

std::span<const CounterKind> counter_kinds() { return kKinds; }

std::vector<CounterReading> read_device_counters(const Root& root, const Hardware& hardware) {
  std::vector<CounterReading> readings;
  const auto add = [&](const CounterKind& kind, const fs::path& folder, const std::string& nic,
                       int port) {
    if (const auto value = read_count(folder / kind.file))
      readings.push_back({&kind, nic, port, *value});
  };
  for (const CounterKind& kind : kKinds) {
    if (kind.of == CounterKind::Of::kNic) {
      for (std::size_t i = 0; i < std::min(hardware.nics.size(), kMaxDevices); ++i) {
        const std::string& name = hardware.nics[i].name;
        add(kind, root.sys() / "class/net" / name, name, 0);
      }
      continue;
    }
    for (std::size_t i = 0; i < std::min(hardware.rdma.size(), kMaxDevices); ++i) {
      const RdmaDevice& device = hardware.rdma[i];
      for (const RdmaPort& port : device.ports) {
        add(kind,
            root.sys() / "class/infiniband" / device.name / "ports" / std::to_string(port.number),
            device.name, port.number);
      }
    }
  }
  return readings;
}

}  // namespace paceline::agent
