// SPDX-License-Identifier: Apache-2.0
#include "operator/api/roles.hpp"

#include <gtest/gtest.h>

#include "operator/api/validate.hpp"

namespace paceline::api {
namespace {

using enum RoleKind;

Role role(std::string name, RoleKind kind, int replicas = 1, std::optional<int> processes = {}) {
  Role made;
  made.name = std::move(name);
  made.kind = kind;
  made.replicas = replicas;
  made.processes = processes;
  return made;
}

std::string problems(FrameworkType type, std::vector<Role> roles,
                     FrameworkLauncher launcher = FrameworkLauncher::kPaceline) {
  Spec spec;
  spec.framework.type = type;
  spec.framework.launcher = launcher;
  spec.roles = std::move(roles);
  FieldErrors errors;
  check_roles(spec, errors);
  return errors.empty() ? "" : to_error(errors).message;
}

const Role kWorkers = role("worker", kWorker, 2);
const Role kServers = role("ps", kParameterServer, 2);

TEST(Roles, EveryShapeOfAFrameworkIsTaken) {
  using enum FrameworkType;
  EXPECT_EQ(problems(kPyTorch, {role("master", kCoordinator), kWorkers}), "");
  EXPECT_EQ(problems(kTensorFlow, {kWorkers}), "");
  EXPECT_EQ(problems(kTensorFlow, {role("chief", kCoordinator), kServers, kWorkers,
                                   role("evaluator", kEvaluator)}),
            "");
  EXPECT_EQ(problems(kPaddlePaddle, {kServers, kWorkers, role("heter", kWorker, 2)}), "");
  EXPECT_EQ(problems(kMindSpore, {role("scheduler", kScheduler), kWorkers, kServers}), "");
  EXPECT_EQ(problems(kMindSpore, {kWorkers}, FrameworkLauncher::kPassthrough), "");
  EXPECT_EQ(problems(kMpi, {role("launcher", kLauncher), kWorkers}), "");
  EXPECT_EQ(problems(kHorovod, {kWorkers}), "");
  EXPECT_EQ(problems(kBytePs, {role("scheduler", kScheduler), kServers, kWorkers}), "");
  EXPECT_EQ(problems(kXgBoost, {role("master", kCoordinator), kWorkers}), "");
  EXPECT_EQ(problems(kCustom, {kServers, kWorkers, role("watch", kEvaluator, 3)}), "");
}

TEST(Roles, AKindThatTheFrameworkDoesNotKnow) {
  EXPECT_EQ(problems(FrameworkType::kPyTorch, {kWorkers, role("e", kEvaluator)}),
            "spec.roles[1].kind: Evaluator is no kind that PyTorch knows; write one of "
            "Coordinator, Worker");
  EXPECT_EQ(problems(FrameworkType::kJax, {role("l", kLauncher), kWorkers}),
            "spec.roles[0].kind: Launcher is no kind that JAX knows; write one of Coordinator, "
            "Worker, or framework.type: MPI");
}

TEST(Roles, TwoChiefs) {
  EXPECT_EQ(problems(FrameworkType::kTensorFlow, {role("chief", kCoordinator, 2), kWorkers}),
            "spec.roles[0].replicas: 2 is too large: TensorFlow has at most one chief; write 1");
  EXPECT_EQ(problems(FrameworkType::kTensorFlow, {role("chief", kCoordinator, 1, 2), kWorkers}),
            "spec.roles[0].processes: 2 is too large: TensorFlow has at most one chief; write "
            "processes: 1");
  EXPECT_EQ(problems(FrameworkType::kTensorFlow,
                     {role("chief", kCoordinator), role("boss", kCoordinator), kWorkers}),
            "spec.roles[1].kind: Coordinator is the kind of an earlier role, and TensorFlow has at "
            "most one chief; remove one of the two roles, or give it another kind");
}

TEST(Roles, OneSchedulerAndOneEvaluator) {
  EXPECT_EQ(problems(FrameworkType::kMindSpore, {role("s", kScheduler, 2), kWorkers}),
            "spec.roles[0].replicas: 2 is too large: MindSpore has at most one scheduler; write 1");
  EXPECT_EQ(problems(FrameworkType::kMindSpore, {kWorkers}),
            "spec.roles: have no role of kind Scheduler: every process of MindSpore meets the "
            "others there; add a role with kind: Scheduler");
  EXPECT_EQ(
      problems(FrameworkType::kTensorFlow, {kWorkers, role("e", kEvaluator, 2)}),
      "spec.roles[1].replicas: 2 is too large: TensorFlow has at most one evaluator; write 1");
}

TEST(Roles, ServersWithoutWorkersAndWorkersWithoutServers) {
  EXPECT_EQ(problems(FrameworkType::kTensorFlow, {role("chief", kCoordinator), kServers}),
            "spec.roles: have no role of kind Worker: parameter servers serve workers; add a role "
            "with kind: Worker");
  EXPECT_EQ(problems(FrameworkType::kBytePs, {role("s", kScheduler), kWorkers}),
            "spec.roles: have no role of kind ParameterServer: workers of BytePS exchange "
            "gradients through servers; add a role with kind: ParameterServer");
  EXPECT_EQ(problems(FrameworkType::kPaddlePaddle, {kWorkers, role("heter", kWorker)}),
            "spec.roles[1].name: heter names heterogeneous trainers, which train with parameter "
            "servers alone; add a role with kind: ParameterServer, or rename this one");
}

TEST(Roles, SomeRoleMustTrain) {
  EXPECT_EQ(problems(FrameworkType::kMpi, {role("launcher", kLauncher)}),
            "spec.roles: have no role that trains; add a role with kind: Worker, or remove the "
            "kind of a role");
}

}  // namespace
}  // namespace paceline::api
