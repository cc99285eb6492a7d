// SPDX-License-Identifier: Apache-2.0
#include "cli/fabric/command.hpp"

#include <filesystem>
#include <memory>
#include <utility>

#include <nlohmann/json.hpp>

#include "agent/probe/fabric.hpp"
#include "agent/probe/formats/nccl_xml.hpp"
#include "agent/probe/formats/nvml_json.hpp"
#include "agent/probe/probe.hpp"
#include "agent/probe/record.hpp"
#include "cli/fabric/view.hpp"

namespace paceline::cli {
namespace {

namespace fs = std::filesystem;
constexpr int kExitInput = 2;
constexpr std::size_t kMaxInputBytes = 16U << 20U;

Result<std::string> read_input(const std::string& option, const std::string& file) {
  auto text = agent::read_bytes(file, kMaxInputBytes + 1);
  if (!text)
    return fail(Code::kNotFound, Origin::kConfig, option + " " + file + " cannot be read: give an existing file");
  if (text->size() > kMaxInputBytes)
    return fail(Code::kInvalid, Origin::kConfig, option + " " + file + " is larger than 16 MiB: it is no such file");
  return std::move(*text);
}

Result<std::unique_ptr<agent::GpuLibrary>> choose_library(const FabricOptions& options) {
  std::string file = options.nvml;
  std::error_code error;
  if (file.empty() && !options.root.empty()) {
    file = (fs::path(options.root) / "nvml.json").string();
    // What this machine's library says is not about that machine.
    if (!fs::exists(file, error))
      return agent::replay_gpus({}, "the recording has no nvml.json; give one with --nvml FILE");
  }
  if (file.empty()) return agent::open_nvml();
  const auto text = read_input("--nvml", file);
  if (!text) return std::unexpected(text.error());
  return agent::read_nvml_json(*text, file);
}

Result<agent::Root> choose_root(const FabricOptions& options) {
  if (options.root.empty()) return agent::Root("/sys", "/proc");
  std::error_code error;
  if (!fs::is_directory(fs::path(options.root) / "sys", error)) {
    return fail(
        Code::kNotFound, Origin::kConfig,
        "--root " + options.root +
            " has no folder sys: give a folder that `paceline fabric --record` wrote, or / of a mounted machine");
  }
  return agent::Root::at(options.root);
}

Result<agent::Hardware> read_hardware(const FabricOptions& options) {
  if (!options.nccl_topo.empty()) {
    if (!options.root.empty() || !options.nvml.empty()) {
      return fail(Code::kInvalid, Origin::kConfig,
                  "--nccl-topo describes a whole machine: leave out --root and --nvml");
    }
    const auto text = read_input("--nccl-topo", options.nccl_topo);
    if (!text) return std::unexpected(text.error());
    return agent::read_nccl_xml(*text, options.nccl_topo);
  }
  const auto root = choose_root(options);
  if (!root) return std::unexpected(root.error());
  auto library = choose_library(options);
  if (!library) return std::unexpected(library.error());
  return agent::probe_hardware(*root, **library);
}

int record(const FabricOptions& options, std::ostream& out, std::ostream& err) {
  const auto root = choose_root(options);
  auto library = root ? choose_library(options) : std::unexpected(root.error());
  if (!library) {
    err << "paceline fabric: " << library.error().message << "\n";
    return kExitInput;
  }
  const auto files = agent::record_machine(*root, **library);
  if (const auto written = agent::write_recording(files, options.record); !written) {
    err << "paceline fabric: --record: " << written.error().message << "\n";
    return written.error().code == Code::kAlreadyExists ? kExitInput : 1;
  }
  out << files.size()
      << " files recorded; serial numbers, hardware and network addresses and UUIDs are left out or replaced.\n"
      << "Read it with: paceline fabric --root " << options.record << " --nvml " << options.record << "/nvml.json\n";
  return 0;
}

}  // namespace

int fabric_command(const FabricOptions& options, std::ostream& out, std::ostream& err) {
  if (!options.record.empty()) return record(options, out, err);
  const auto hardware = read_hardware(options);
  if (!hardware) {
    err << "paceline fabric: " << hardware.error().message << "\n";
    return kExitInput;
  }
  if (options.export_nccl_topo) {
    out << agent::nccl_xml_text(*hardware);
    return 0;
  }
  const auto fabric = agent::relate(*hardware);
  if (options.json) {
    out << fabric_view(*hardware, fabric).dump(2, ' ', true, nlohmann::json::error_handler_t::replace) << "\n";
    return 0;
  }
  if (!hardware->gpu.problem.empty()) err << "warning: " << hardware->gpu.problem << "\n";
  out << agent::matrix_text(fabric);
  if (const std::string legend = agent::legend_text(fabric); !legend.empty()) out << "\n" << legend;
  return 0;
}

}  // namespace paceline::cli
