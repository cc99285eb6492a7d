// SPDX-License-Identifier: Apache-2.0
#include "agent/probe/pci/pci_snapshot.hpp"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>
#include <utility>

#include "agent/probe/gpu/probe_gpus.hpp"
#include "agent/probe/pci/pci_config.hpp"
#include "agent/probe/sysfs/devices.hpp"
#include "common/base/timestamp.hpp"

namespace paceline::agent {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTaken = "taken";
constexpr std::size_t kWholeBytes = 4096;
constexpr std::size_t kHeaderBytes = 64;

std::unexpected<Error> refuse(const fs::path& file, const std::string& why) {
  return fail(Code::kInternal, Origin::kSystem,
              "cannot write " + file.string() + ": " + why +
                  "; give a folder that can be written and has room");
}

Status write_whole(const fs::path& file, std::string_view bytes) {
  std::ofstream out(file, std::ios::binary);
  out << bytes;
  out.close();
  if (!out) return refuse(file, std::strerror(errno));
  return {};
}

/// Compares vendor, device, revision, class and header type, which stay the same while a device is
/// at an address.
bool same_device(std::string_view a, std::string_view b) {
  if (a.size() < kHeaderBytes || b.size() < kHeaderBytes) return false;
  constexpr std::size_t kHeaderType = 0x0e;
  return a.substr(0, 4) == b.substr(0, 4) && a.substr(8, 4) == b.substr(8, 4) &&
         a[kHeaderType] == b[kHeaderType];
}

}  // namespace

std::set<std::string> functions_on_gpu_nic_paths(const Hardware& hardware) {
  std::set<std::string> ends;
  for (const auto* gpus : {&hardware.gpu.gpus, &hardware.gpu.unreadable}) {
    for (const auto& gpu : *gpus) ends.insert(gpu.pci_address);
  }
  for (const auto& device : hardware.rdma) ends.insert(device.pci_address);
  std::set<std::string> all;
  for (const auto& function : hardware.pci) {
    if (!ends.contains(function.address)) continue;
    for (const auto& step : function.path) {
      if (is_pci_address(step)) all.insert(step);
    }
  }
  return all;
}

Status write_pci_snapshot(const Root& root, const fs::path& folder, WallTime now) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return refuse(folder, error.message());
  // Without this file, readers ignore the folder.
  fs::remove(folder / kTaken, error);
  if (error) return refuse(folder / kTaken, error.message());
  for (const auto& name : list_names(folder)) {
    if (is_pci_address(name)) fs::remove(folder / name, error);
  }
  Hardware hardware;
  hardware.pci = probe_pci(root);
  hardware.rdma = probe_rdma(root);
  // From the bus alone: a GPU has its place even without its library.
  const auto no_library = replay_gpus({}, "not asked");
  hardware.gpu = probe_gpus(hardware.pci, *no_library);
  for (const auto& address : functions_on_gpu_nic_paths(hardware)) {
    auto config = read_bytes(root.sys() / "bus/pci/devices" / address / "config", kWholeBytes);
    if (!config || config->size() < kHeaderBytes) continue;
    if (auto written = write_whole(folder / address, scrub_config(std::move(*config))); !written)
      return written;
  }
  const fs::path half = folder / (std::string(kTaken) + ".new");
  if (auto written = write_whole(half, format_time(now) + "\n"); !written) return written;
  fs::rename(half, folder / kTaken, error);
  if (error) return refuse(folder / kTaken, error.message());
  return {};
}

PciSnapshot::PciSnapshot(fs::path folder) : folder_(std::move(folder)) {
  if (folder_.empty()) return;
  const auto text = read_text(folder_ / kTaken);
  if (!text) return;
  if (const auto time = parse_time(*text)) taken_ = *time;
}

std::string PciSnapshot::config_of(std::string_view address, std::string_view shown) const {
  if (!taken_ || !is_pci_address(address)) return {};
  auto recorded = read_bytes(folder_ / address, kWholeBytes);
  if (!recorded || !same_device(*recorded, shown)) return {};
  return std::move(*recorded);
}

}  // namespace paceline::agent
