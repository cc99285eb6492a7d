// SPDX-License-Identifier: Apache-2.0
#include "operator/api/roles.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "operator/api/template/containers.hpp"

namespace paceline::api {
namespace {

using enum RoleKind;

std::vector<RoleKind> kinds_of(FrameworkType type) {
  switch (type) {
    case FrameworkType::kTensorFlow: return {kCoordinator, kWorker, kParameterServer, kEvaluator};
    case FrameworkType::kPaddlePaddle: return {kCoordinator, kWorker, kParameterServer};
    case FrameworkType::kMindSpore:
    case FrameworkType::kBytePs: return {kWorker, kScheduler, kParameterServer};
    case FrameworkType::kMpi: return {kCoordinator, kWorker, kLauncher};
    case FrameworkType::kCustom:
      return {kCoordinator, kWorker, kScheduler, kParameterServer, kEvaluator};
    case FrameworkType::kPyTorch:
    case FrameworkType::kDeepSpeed:
    case FrameworkType::kHorovod:
    case FrameworkType::kJax:
    case FrameworkType::kXgBoost: break;
  }
  return {kCoordinator, kWorker};
}

std::string path_of(std::size_t role, std::string_view field) {
  return "spec.roles[" + std::to_string(role) + "]." + std::string(field);
}

std::string named(const Spec& spec) { return std::string(to_string(spec.framework.type)); }

bool has(const Spec& spec, RoleKind kind) {
  return std::ranges::any_of(spec.roles, [&](const Role& role) { return role.kind == kind; });
}

void check_kinds(const Spec& spec, FieldErrors& errors) {
  const auto known = kinds_of(spec.framework.type);
  std::string list;
  for (const RoleKind kind : known)
    list += (list.empty() ? "" : ", ") + std::string(contract::to_string(kind));
  for (std::size_t i = 0; i < spec.roles.size(); ++i) {
    const RoleKind kind = spec.roles[i].kind;
    if (std::ranges::find(known, kind) != known.end()) continue;
    std::string remedy = "write one of " + list;
    if (kind == kLauncher) remedy += ", or framework.type: MPI";
    errors.push_back({path_of(i, "kind"), std::string(contract::to_string(kind)),
                      "is no kind that " + named(spec) + " knows", remedy});
  }
}

/// `what` is the framework's own word for a process of this kind.
void check_one(const Spec& spec, RoleKind kind, const std::string& what, FieldErrors& errors) {
  bool found = false;
  for (std::size_t i = 0; i < spec.roles.size(); ++i) {
    const Role& role = spec.roles[i];
    if (role.kind != kind) continue;
    const std::string only = named(spec) + " has at most one " + what;
    if (found) {
      errors.push_back({path_of(i, "kind"), std::string(contract::to_string(kind)),
                        "is the kind of an earlier role, and " + only,
                        "remove one of the two roles, or give it another kind"});
    } else if (role.replicas > 1) {
      errors.push_back({path_of(i, "replicas"), std::to_string(role.replicas),
                        "is too large: " + only, "write 1"});
    } else if (const int processes = processes_of(spec, role); processes > 1) {
      errors.push_back({path_of(i, "processes"), std::to_string(processes), "is too large: " + only,
                        "write processes: 1"});
    }
    found = true;
  }
}

void require(const Spec& spec, RoleKind kind, const std::string& why, FieldErrors& errors) {
  if (has(spec, kind)) return;
  const std::string text(contract::to_string(kind));
  errors.push_back({"spec.roles", "", "have no role of kind " + text + ": " + why,
                    "add a role with kind: " + text});
}

void check_parameter_servers(const Spec& spec, FieldErrors& errors) {
  if (has(spec, kParameterServer))
    require(spec, kWorker, "parameter servers serve workers", errors);
  if (spec.framework.type == FrameworkType::kBytePs)
    require(spec, kParameterServer, "workers of BytePS exchange gradients through servers", errors);
  if (spec.framework.type != FrameworkType::kPaddlePaddle || has(spec, kParameterServer)) return;
  const auto heter = std::ranges::find_if(
      spec.roles, [](const Role& role) { return role.name.starts_with("heter"); });
  if (heter != spec.roles.end()) {
    errors.push_back({path_of(static_cast<std::size_t>(heter - spec.roles.begin()), "name"),
                      heter->name,
                      "names heterogeneous trainers, which train with parameter servers alone",
                      "add a role with kind: ParameterServer, or rename this one"});
  }
}

}  // namespace

void check_roles(const Spec& spec, FieldErrors& errors) {
  check_kinds(spec, errors);
  if (std::ranges::none_of(spec.roles,
                           [](const Role& role) { return contract::trains(role.kind); })) {
    errors.push_back({"spec.roles", "", "have no role that trains",
                      "add a role with kind: Worker, or remove the kind of a role"});
  }
  const FrameworkType type = spec.framework.type;
  if (type == FrameworkType::kTensorFlow) {
    check_one(spec, kCoordinator, "chief", errors);
    check_one(spec, kEvaluator, "evaluator", errors);
  }
  if (type == FrameworkType::kMindSpore || type == FrameworkType::kBytePs) {
    check_one(spec, kScheduler, "scheduler", errors);
    // A kept launcher (msrun) starts a scheduler itself.
    if (spec.framework.launcher == FrameworkLauncher::kPaceline || type == FrameworkType::kBytePs)
      require(spec, kScheduler, "every process of " + named(spec) + " meets the others there",
              errors);
  }
  if (type == FrameworkType::kMpi) check_one(spec, kLauncher, "launcher", errors);
  check_parameter_servers(spec, errors);
}

bool workers_fail_alone(const Spec& spec) {
  const bool servers = has(spec, kParameterServer) &&
                       contract::keeps_without_a_worker(to_string(spec.framework.type));
  return contract::fails_alone(kWorker, servers, has(spec, kScheduler));
}

}  // namespace paceline::api
