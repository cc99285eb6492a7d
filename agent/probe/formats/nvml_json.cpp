// SPDX-License-Identifier: Apache-2.0
#include "agent/probe/formats/nvml_json.hpp"

#include <charconv>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "agent/probe/hardware/accelerator.hpp"
#include "agent/probe/sysfs/root.hpp"

namespace paceline::agent {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxGpus = 1024;
constexpr std::size_t kMaxLinks = 256;
constexpr std::size_t kMaxText = 128;
constexpr std::uint64_t kMaxMib = 1ULL << 40U;

/// Reads the fields of one object and keeps the first error.
class Fields {
 public:
  Fields(const json& object, std::string where, std::string& complaint)
      : object_(object), where_(std::move(where)), complaint_(complaint) {
    if (!object.is_object()) complain("", object, "an object");
  }

  const json* find(const char* name) const {
    if (!object_.is_object()) return nullptr;
    const auto field = object_.find(name);
    return field == object_.end() || field->is_null() ? nullptr : &*field;
  }
  std::string text(const char* name) const {
    const json* value = find(name);
    if (value == nullptr) return {};
    if (!value->is_string() || value->get_ref<const std::string&>().size() > kMaxText) {
      complain(name, *value, "a text of at most 128 bytes");
      return {};
    }
    return value->get<std::string>();
  }
  std::optional<std::uint64_t> number(const char* name, std::uint64_t most) const {
    const json* value = find(name);
    if (value == nullptr) return std::nullopt;
    if (!value->is_number_unsigned() || value->get<std::uint64_t>() > most) {
      complain(name, *value, "a whole number from 0 to " + std::to_string(most));
      return std::nullopt;
    }
    return value->get<std::uint64_t>();
  }
  bool flag(const char* name) const {
    const json* value = find(name);
    if (value == nullptr) return false;
    if (!value->is_boolean()) complain(name, *value, "true or false");
    return value->is_boolean() && value->get<bool>();
  }
  const json& list(const char* name, std::size_t most) const {
    static const json kNone = json::array();
    const json* value = find(name);
    if (value == nullptr) return kNone;
    if (value->is_array() && value->size() <= most) return *value;
    complain(name, *value, "a list of at most " + std::to_string(most) + " entries");
    return kNone;
  }
  std::string address(const char* name) const {
    const std::string value = sysfs_address(text(name));
    if (!value.empty() && !is_pci_address(value))
      complain(name, value, "a PCI address such as 0000:3b:00.0");
    return value;
  }
  void require(const char* name) const {
    if (complaint_.empty() && find(name) == nullptr)
      complaint_ = "field " + where_ + name + " is missing";
  }
  void complain(std::string_view name, const json& value, std::string_view wanted) const {
    if (!complaint_.empty()) return;
    std::string shown = value.dump(-1, ' ', true, json::error_handler_t::replace);
    if (shown.size() > 60) shown = shown.substr(0, 57) + "...";
    complaint_ = "field " + where_ + std::string(name) + " is " + shown + ", but must be " +
                 std::string(wanted);
  }
  const std::string& where() const { return where_; }

 private:
  const json& object_;
  std::string where_;
  std::string& complaint_;
};

std::optional<int> capability(const Fields& fields) {
  const std::string text = fields.text("computeCapability");
  if (text.empty()) return std::nullopt;
  int major = 0;
  int minor = 0;
  const char* end = text.data() + text.size();
  const auto [dot, error] = std::from_chars(text.data(), end, major);
  if (error != std::errc{} || dot == end || *dot != '.' || major < 0 || major > 99 ||
      std::from_chars(dot + 1, end, minor).ptr != end || minor < 0 || minor > 9) {
    fields.complain("computeCapability", text, "a text such as \"9.0\"");
    return std::nullopt;
  }
  return major * 10 + minor;
}

std::string domain(const Fields& gpu, std::string& complaint) {
  const json* value = gpu.find("fabric");
  if (value == nullptr) return {};
  const Fields fields(*value, gpu.where() + "fabric.", complaint);
  const std::string uuid = fields.text("clusterUuid");
  if (uuid.find_first_not_of("0-") == std::string::npos) return {};
  if (uuid.size() != 36 || uuid.find_first_not_of("0123456789abcdef-") != std::string::npos)
    fields.complain("clusterUuid", uuid, "a UUID in lower case");
  return uuid + "/" + std::to_string(fields.number("cliqueId", UINT32_MAX).value_or(0));
}

std::optional<NvLinkFabric> registration(const Fields& gpu, std::string& complaint) {
  const json* value = gpu.find("fabric");
  if (value == nullptr) return std::nullopt;
  const Fields fields(*value, gpu.where() + "fabric.", complaint);
  const auto state = fields.number("state", 3);
  if (!state) return std::nullopt;
  return NvLinkFabric{
      static_cast<int>(*state), static_cast<int>(fields.number("status", INT32_MAX).value_or(0)),
      static_cast<std::uint32_t>(fields.number("healthMask", UINT32_MAX).value_or(0))};
}

NvLink read_link(const json& entry, const std::string& where, std::string& complaint) {
  const Fields fields(entry, where, complaint);
  NvLink link;
  link.link = static_cast<int>(fields.number("link", kMaxLinks).value_or(0));
  link.active = fields.flag("active");
  link.remote_address = fields.address("remotePciAddress");
  link.errors = fields.number("errors", UINT64_MAX / kMaxLinks);
  const std::string remote = fields.text("remote");
  if (remote == "gpu") {
    link.remote = NvLinkRemote::kGpu;
  } else if (remote == "switch") {
    link.remote = NvLinkRemote::kSwitch;
  } else if (!remote.empty() && remote != "unknown") {
    fields.complain("remote", remote, "gpu, switch or unknown");
  }
  return link;
}

GpuCondition condition(const Fields& gpu) {
  const auto flag = [&](const char* name) -> std::optional<bool> {
    return gpu.find(name) == nullptr ? std::nullopt : std::optional(gpu.flag(name));
  };
  GpuCondition found;
  found.uncorrected_errors = gpu.number("uncorrectedErrors", UINT64_MAX);
  found.remapped_uncorrected = gpu.number("remappedUncorrected", UINT64_MAX);
  found.remapping_pending = flag("remappingPending");
  found.remapping_failed = flag("remappingFailed");
  if (const auto action = gpu.number("recoveryAction", INT32_MAX))
    found.recovery_action = static_cast<int>(*action);
  return found;
}

Gpu read_gpu(const json& entry, const std::string& where, std::string& complaint) {
  const Fields fields(entry, where, complaint);
  fields.require("index");
  fields.require("pciAddress");
  Gpu gpu;
  gpu.index = static_cast<int>(fields.number("index", kMaxGpus).value_or(0));
  gpu.pci_address = fields.address("pciAddress");
  gpu.model = fields.text("name");
  gpu.memory_mib = fields.number("memoryMiB", kMaxMib).value_or(0);
  gpu.bar1_mib = fields.number("bar1MiB", kMaxMib);
  gpu.compute_capability = capability(fields);
  gpu.c2c = fields.flag("c2c");
  gpu.nvlink_domain = domain(fields, complaint);
  gpu.nvlink_fabric = registration(fields, complaint);
  gpu.condition = condition(fields);
  for (const auto& link : fields.list("nvlinks", kMaxLinks))
    gpu.nvlinks.push_back(
        read_link(link, where + "nvlinks[" + std::to_string(gpu.nvlinks.size()) + "].", complaint));
  gpu.mig = fields.find("mig") != nullptr;
  for (const auto& profile : fields.list("mig", kMaxLinks)) {
    if (profile.is_string() && profile.get_ref<const std::string&>().size() <= kMaxText) {
      gpu.mig_profiles.push_back(profile.get<std::string>());
    } else {
      fields.complain("mig", profile, "a list of profiles such as \"1g.10gb\"");
    }
  }
  return gpu;
}

}  // namespace

Result<std::unique_ptr<GpuLibrary>> read_nvml_json(std::string_view text, std::string_view file) {
  const auto refuse = [&](const std::string& why) {
    return fail(
        Code::kInvalid, Origin::kConfig,
        std::string(file) + ": " + why + "; `paceline fabric --record DIR` writes such a file");
  };
  const json document = json::parse(text, nullptr, false);
  if (document.is_discarded()) return refuse("is not JSON, or was cut off");
  std::string complaint;
  const Fields fields(document, "", complaint);
  fields.require("version");
  fields.require("devices");
  if (const auto version = fields.number("version", 1); version == 0U)
    fields.complain("version", *fields.find("version"), "1");
  std::vector<Gpu> gpus;
  std::set<std::string> seen;
  for (const auto& entry : fields.list("devices", kMaxGpus)) {
    const std::string where = "devices[" + std::to_string(gpus.size()) + "].";
    gpus.push_back(read_gpu(entry, where, complaint));
    if (complaint.empty() && !seen.insert(gpus.back().pci_address).second)
      complaint =
          "field " + where + "pciAddress names " + gpus.back().pci_address + " a second time";
  }
  const std::string problem = fields.text("problem");
  if (!complaint.empty()) return refuse(complaint);
  return replay_gpus(std::move(gpus), problem);
}

}  // namespace paceline::agent
