// SPDX-License-Identifier: Apache-2.0
#include "agent/inspect/machine.hpp"

#include <filesystem>
#include <utility>

#include "agent/probe/formats/nccl_xml.hpp"
#include "agent/probe/formats/nvml_json.hpp"
#include "agent/probe/probe.hpp"

namespace paceline::agent {

namespace fs = std::filesystem;

Result<std::string> read_input(const std::string& option, const std::string& file) {
  constexpr std::size_t kMaxInputBytes = 16U << 20U;
  auto text = read_bytes(file, kMaxInputBytes + 1);
  if (!text)
    return fail(Code::kNotFound, Origin::kConfig,
                option + " " + file + " cannot be read: give an existing file");
  if (text->size() > kMaxInputBytes)
    return fail(
        Code::kInvalid, Origin::kConfig,
        option + " " + file + " is larger than 16 MiB: give the file that the option asks for");
  return std::move(*text);
}

Result<std::unique_ptr<GpuLibrary>> open_gpus(const MachineOptions& options) {
  std::string file = options.nvml;
  std::error_code error;
  if (file.empty() && !options.root.empty()) {
    file = (fs::path(options.root) / "nvml.json").string();
    // This machine's library knows nothing about the recorded machine.
    if (!fs::exists(file, error))
      return replay_gpus({}, "the recording has no nvml.json; give one with --nvml FILE");
  }
  if (file.empty()) return open_nvml();
  const auto text = read_input("--nvml", file);
  if (!text) return std::unexpected(text.error());
  return read_nvml_json(*text, file);
}

Result<Root> open_root(const MachineOptions& options) {
  if (options.root.empty()) return Root::at("/");
  std::error_code error;
  if (!fs::is_directory(fs::path(options.root) / "sys", error)) {
    return fail(Code::kNotFound, Origin::kConfig,
                "--root " + options.root +
                    " has no folder sys: give a folder that `paceline fabric --record` wrote, or / "
                    "of a mounted machine");
  }
  return Root::at(options.root);
}

Result<Machine> probe_machine(const MachineOptions& options) {
  if (!options.nccl_topo.empty()) {
    if (!options.root.empty() || !options.nvml.empty()) {
      return fail(Code::kInvalid, Origin::kConfig,
                  "--nccl-topo describes a whole machine: leave out --root and --nvml");
    }
    const auto text = read_input("--nccl-topo", options.nccl_topo);
    if (!text) return std::unexpected(text.error());
    auto hardware = read_nccl_xml(*text, options.nccl_topo);
    if (!hardware) return std::unexpected(hardware.error());
    return Machine{std::move(*hardware), std::nullopt};
  }
  auto root = open_root(options);
  if (!root) return std::unexpected(root.error());
  const auto library = open_gpus(options);
  if (!library) return std::unexpected(library.error());
  return Machine{probe_hardware(*root, **library), std::move(*root)};
}

}  // namespace paceline::agent
