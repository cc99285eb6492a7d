// SPDX-License-Identifier: Apache-2.0
#include "operator/api/template/containers.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "common/contract/accelerators.hpp"
#include "common/contract/labels.hpp"

namespace paceline::api {
namespace {

const nlohmann::json* member(const nlohmann::json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(std::string(key));
  return it == object.end() ? nullptr : &*it;
}

const nlohmann::json* containers_of(const Role& role) {
  const nlohmann::json* spec = member(role.pod_template, "spec");
  const nlohmann::json* containers = spec == nullptr ? nullptr : member(*spec, "containers");
  return containers != nullptr && containers->is_array() ? containers : nullptr;
}

struct Suffix {
  std::string_view text;
  double factor;
};
constexpr std::array kSuffixes{
    Suffix{"Ki", 1024.0},
    Suffix{"Mi", 1048576.0},
    Suffix{"Gi", 1073741824.0},
    Suffix{"Ti", 1099511627776.0},
    Suffix{"Pi", 1125899906842624.0},
    Suffix{"Ei", 1152921504606846976.0},
    Suffix{"n", 1e-9},
    Suffix{"u", 1e-6},
    Suffix{"m", 1e-3},
    Suffix{"k", 1e3},
    Suffix{"M", 1e6},
    Suffix{"G", 1e9},
    Suffix{"T", 1e12},
    Suffix{"P", 1e15},
    Suffix{"E", 1e18},
};

}  // namespace

int trainer_index(const Role& role) {
  const nlohmann::json* containers = containers_of(role);
  if (containers == nullptr) return -1;
  for (std::size_t i = 0; i < containers->size(); ++i) {
    const nlohmann::json* name = member((*containers)[i], "name");
    if (name != nullptr && *name == std::string(contract::kTrainerContainer))
      return static_cast<int>(i);
  }
  return containers->size() == 1 ? 0 : -1;
}

const nlohmann::json* trainer_of(const Role& role) {
  const int index = trainer_index(role);
  return index < 0 ? nullptr : &(*containers_of(role))[static_cast<std::size_t>(index)];
}

std::vector<std::string> strings_of(const nlohmann::json& container, std::string_view key) {
  std::vector<std::string> strings;
  const nlohmann::json* list = member(container, key);
  if (list == nullptr || !list->is_array()) return strings;
  for (const nlohmann::json& text : *list) {
    if (text.is_string()) strings.push_back(text.get<std::string>());
  }
  return strings;
}

std::vector<std::pair<std::string, std::string>> literal_environment(
    const nlohmann::json& container) {
  std::vector<std::pair<std::string, std::string>> variables;
  const nlohmann::json* list = member(container, "env");
  if (list == nullptr || !list->is_array()) return variables;
  for (const nlohmann::json& entry : *list) {
    const nlohmann::json* name = member(entry, "name");
    const nlohmann::json* value = member(entry, "value");
    if (name == nullptr || !name->is_string() || member(entry, "valueFrom") != nullptr) continue;
    variables.emplace_back(name->get<std::string>(),
                           value != nullptr && value->is_string() ? value->get<std::string>() : "");
  }
  return variables;
}

std::optional<std::int64_t> parse_quantity_milli(const nlohmann::json& quantity) {
  if (quantity.is_string()) return parse_quantity_text(quantity.get_ref<const std::string&>());
  if (quantity.is_number()) return parse_quantity_text(quantity.dump());
  return std::nullopt;
}

std::optional<std::int64_t> parse_quantity_text(std::string_view text) {
  double number = 0;
  const char* end = text.data() + text.size();
  const char* begin = text.data();
  if (begin != end && *begin == '+') ++begin;
  // "1E" means exa and "1E3" is an exponent: from_chars reads an exponent only if digits follow.
  const auto [rest, error] = std::from_chars(begin, end, number);
  if (error != std::errc() || !std::isfinite(number)) return std::nullopt;
  double factor = 1;
  const std::string_view suffix(rest, static_cast<std::size_t>(end - rest));
  if (!suffix.empty()) {
    factor = 0;
    for (const Suffix& known : kSuffixes) {
      if (known.text == suffix) factor = known.factor;
    }
    if (factor == 0) return std::nullopt;
  }
  const double milli = std::ceil(number * factor * 1000.0 - 1e-6);
  constexpr double kMax = 9.2e18;
  if (milli < 0) return std::nullopt;
  return milli > kMax ? std::numeric_limits<std::int64_t>::max() : static_cast<std::int64_t>(milli);
}

std::optional<std::int64_t> resource_milli(const nlohmann::json& container,
                                           std::string_view section, std::string_view resource) {
  const nlohmann::json* resources = member(container, "resources");
  const nlohmann::json* map = resources == nullptr ? nullptr : member(*resources, section);
  const nlohmann::json* value = map == nullptr ? nullptr : member(*map, resource);
  return value == nullptr ? std::nullopt : parse_quantity_milli(*value);
}

int accelerators_of(const nlohmann::json& container) {
  const nlohmann::json* resources = member(container, "resources");
  if (resources == nullptr) return 0;
  const nlohmann::json* limits = member(*resources, "limits");
  if (limits == nullptr) limits = member(*resources, "requests");
  if (limits == nullptr || !limits->is_object()) return 0;
  std::int64_t count = 0;
  for (const auto& [name, value] : limits->items()) {
    if (contract::is_accelerator_resource(name))
      count += parse_quantity_milli(value).value_or(0) / 1000;
  }
  return static_cast<int>(std::min<std::int64_t>(count, 64));
}

bool has_accelerators(const Role& role) {
  const nlohmann::json* trainer = trainer_of(role);
  return trainer != nullptr && accelerators_of(*trainer) > 0;
}

bool uses_host_network(const Role& role) {
  const nlohmann::json* pod = member(role.pod_template, "spec");
  const nlohmann::json* host_network = pod == nullptr ? nullptr : member(*pod, "hostNetwork");
  return host_network != nullptr && *host_network == true;
}

bool uses_cluster_dns(const Spec& spec) {
  return std::ranges::all_of(spec.roles, [](const Role& role) {
    const nlohmann::json* pod = member(role.pod_template, "spec");
    const nlohmann::json* policy = pod == nullptr ? nullptr : member(*pod, "dnsPolicy");
    if (policy == nullptr || *policy == "ClusterFirstWithHostNet") return true;
    // A pod in the network of its node then reads the node's DNS settings.
    return *policy == "ClusterFirst" && !uses_host_network(role);
  });
}

bool requires_gpu_direct(const Spec& spec) {
  return spec.network.gpu_direct == GpuDirect::kRequired;
}

int processes_of(const Spec& spec, const Role& role) {
  if (role.processes) return *role.processes;
  if (!contract::trains(role.kind)) return 1;
  if (spec.framework.processes_per_replica) return *spec.framework.processes_per_replica;
  const nlohmann::json* trainer = trainer_of(role);
  return trainer == nullptr ? 1 : std::max(1, accelerators_of(*trainer));
}

int world_size(const Spec& spec) {
  int size = 0;
  for (const Role& role : spec.roles) {
    if (contract::trains(role.kind))
      size += (role.replicas - role.spares) * processes_of(spec, role);
  }
  return size;
}

}  // namespace paceline::api
