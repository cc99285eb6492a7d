// SPDX-License-Identifier: Apache-2.0
// Names and numbers that the parts of Paceline share through the Kubernetes API. Made by
// scripts/contract from common/contract/contract.yaml: edit that file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace paceline::contract {

// API.
/// API group.
inline constexpr std::string_view kGroup = "paceline.dev";
/// API version.
inline constexpr std::string_view kVersion = "v1alpha1";
/// ApiVersion of every object.
inline constexpr std::string_view kApiVersion = "paceline.dev/v1alpha1";
/// Default of spec.managedBy.
inline constexpr std::string_view kManagedBy = "paceline.dev/operator";
/// Field manager of the operator's writes.
inline constexpr std::string_view kFieldManager = "paceline-operator";

// Labels of pods, Services and Secrets of a job.
/// Name of the job.
inline constexpr std::string_view kLabelJob = "paceline.dev/job";
/// UID of the job.
inline constexpr std::string_view kLabelJobUid = "paceline.dev/job-uid";
/// Role of the pod.
inline constexpr std::string_view kLabelRole = "paceline.dev/role";
/// Index of the replica in its role.
inline constexpr std::string_view kLabelReplicaIndex = "paceline.dev/replica-index";
/// Node rank of the replica.
inline constexpr std::string_view kLabelNodeRank = "paceline.dev/node-rank";
/// Number of pods that the replica had before.
inline constexpr std::string_view kLabelIncarnation = "paceline.dev/incarnation";
/// Attempt of the gang.
inline constexpr std::string_view kLabelAttempt = "paceline.dev/attempt";

// Labels of the pods that hold room for a job.
/// Name of the job that waits.
inline constexpr std::string_view kLabelPlaceholder = "paceline.dev/placeholder-for";
/// Node rank whose room it holds.
inline constexpr std::string_view kLabelPlaceholderRank = "paceline.dev/placeholder-rank";
/// Fingerprint of the job's spec.
inline constexpr std::string_view kLabelPlaceholderShape = "paceline.dev/placeholder-shape";

// Labels and taint of nodes, where the operator is asked to set them.
/// Whether the node's GPUs are healthy.
inline constexpr std::string_view kLabelGpuHealthy = "paceline.dev/gpu-healthy";
/// Whether the node's NICs and links are healthy.
inline constexpr std::string_view kLabelFabricHealthy = "paceline.dev/fabric-healthy";
/// Whether NICs of the node can read and write GPU memory.
inline constexpr std::string_view kLabelGpuDirectReady = "paceline.dev/gpu-direct-ready";
/// Taint of a node that is not healthy.
inline constexpr std::string_view kUnhealthyTaint = "paceline.dev/unhealthy";

// Resource, gate and finalizer.
/// Resource that stands for a slot of the node's agent.
inline constexpr std::string_view kRuntimeResource = "paceline.dev/runtime";
/// Scheduling gate that holds pods until the whole gang is placed.
inline constexpr std::string_view kGangGate = "paceline.dev/gang";
/// Finalizer of a TrainingJob.
inline constexpr std::string_view kFinalizer = "paceline.dev/cleanup";

// Objects, containers and volumes.
/// The name of an agent's Lease: this and the node's name.
inline constexpr std::string_view kAgentLeasePrefix = "paceline-agent-";
/// Namespace of the agents' Leases, unless the chart was told otherwise.
inline constexpr std::string_view kAgentNamespace = "paceline-agents";
/// Container of a pod template that trains.
inline constexpr std::string_view kTrainerContainer = "trainer";
/// Init container that copies the runtime.
inline constexpr std::string_view kRuntimeInitContainer = "paceline-runtime";
/// Volume that holds the runtime.
inline constexpr std::string_view kRuntimeVolume = "paceline-runtime";
/// Volume of the replica's state.
inline constexpr std::string_view kStateVolume = "paceline-state";

// Places in a container.
/// Where the runtime lies.
inline constexpr std::string_view kRuntimeMount = "/opt/paceline";
/// Where the state folder lies.
inline constexpr std::string_view kStateMount = "/run/paceline";
/// Where the folder of a pod's slot lies.
inline constexpr std::string_view kSlotMount = "/run/paceline-slot";

// Ports.
/// Rendezvous of the launchers.
inline constexpr std::uint16_t kRendezvousPort = 29400;
/// Launcher: /metrics, /v1/summary and /healthz.
inline constexpr std::uint16_t kLauncherHttpPort = 29401;
/// The framework's rank 0: this and the attempt mod 100.
inline constexpr std::uint16_t kMasterPortBase = 29500;
/// Agent: /metrics and /healthz.
inline constexpr std::uint16_t kAgentMetricsPort = 9464;
/// Agent: /v1/fabric, /v1/checks and /v1/links, where they are served.
inline constexpr std::uint16_t kAgentApiPort = 9465;
/// Operator: /metrics and /healthz.
inline constexpr std::uint16_t kOperatorHttpPort = 8080;

// Exit codes of the launcher. A rank's own exit code is in the termination message.
/// The job succeeded.
inline constexpr int kExitOk = 0;
/// The job failed: its restarts are spent, or no restart would help.
inline constexpr int kExitJobFailed = 64;
/// The command or a variable cannot be honoured; the message says which one, and what to write.
inline constexpr int kExitBadContract = 65;
/// The gang did not gather in time.
inline constexpr int kExitRendezvous = 66;
/// The pod lacks what the job requires; the message names the check and the remedy.
inline constexpr int kExitPreflight = 67;
/// A failure rule wants this replica on another node.
inline constexpr int kExitReplaceNode = 68;
/// Asked to stop from outside: drain, preemption or deletion.
inline constexpr int kExitTerminated = 143;

// Bounds.
/// Largest termination message; the kubelet cuts at this size.
inline constexpr std::size_t kTerminationMessageBytes = 4096;

}  // namespace paceline::contract
