// SPDX-License-Identifier: Apache-2.0
#include "agent/inspect/machine.hpp"

#include <array>
#include <filesystem>
#include <fstream>
#include <utility>

#include "agent/probe/formats/nccl_xml.hpp"
#include "agent/probe/formats/nvml_json.hpp"
#include "agent/probe/probe.hpp"

namespace paceline::agent {

namespace fs = std::filesystem;

Result<std::string> read_input(const std::string& option, const std::string& file) {
  constexpr std::size_t kMaxInputBytes = 16U << 20U;
  // A person may give a pipe: --nccl-topo <(ssh node cat topo.xml).
  std::ifstream stream(file, std::ios::binary);
  std::string text;
  std::array<char, 65536> part{};
  while (stream && text.size() <= kMaxInputBytes) {
    stream.read(part.data(), part.size());
    text.append(part.data(), static_cast<std::size_t>(stream.gcount()));
  }
  if (!stream.eof() && text.size() <= kMaxInputBytes)
    return fail(Code::kNotFound, Origin::kConfig,
                option + " " + file + " cannot be read: give an existing file");
  if (text.size() > kMaxInputBytes)
    return fail(
        Code::kInvalid, Origin::kConfig,
        option + " " + file + " is larger than 16 MiB: give the file that the option asks for");
  return text;
}

Result<std::unique_ptr<GpuLibrary>> open_gpus(const MachineOptions& options) {
  std::string file = options.nvml;
  std::error_code error;
  const bool here = options.root.empty() || options.root == "/";
  if (file.empty() && !here) {
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
  std::optional<Hardware> file;
  if (!options.nccl_topo.empty()) {
    if (options.root.empty() && !options.nvml.empty()) {
      return fail(Code::kInvalid, Origin::kConfig,
                  "--nvml " + options.nvml +
                      " describes no machine beside --nccl-topo: add --root, or leave out --nvml");
    }
    const auto text = read_input("--nccl-topo", options.nccl_topo);
    if (!text) return std::unexpected(text.error());
    auto hardware = read_nccl_xml(*text, options.nccl_topo);
    if (!hardware) return std::unexpected(hardware.error());
    if (options.root.empty()) return Machine{std::move(*hardware), std::nullopt};
    file = std::move(*hardware);
  }
  auto root = open_root(options);
  if (!root) return std::unexpected(root.error());
  const auto library = open_gpus(options);
  if (!library) return std::unexpected(library.error());
  Machine machine{probe_hardware(*root, **library), std::move(*root)};
  if (file && place_by(*file, machine.hardware) == 0) {
    return fail(Code::kInvalid, Origin::kConfig,
                "--nccl-topo " + options.nccl_topo + " names no PCI device of --root " +
                    options.root + ": give the file of this kind of machine");
  }
  return machine;
}

}  // namespace paceline::agent
