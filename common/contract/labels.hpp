// SPDX-License-Identifier: Apache-2.0
// Labels, annotations, names and numbers that the parts of Paceline share through the Kubernetes
// API, in one place.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace paceline::contract {

inline constexpr std::string_view kGroup = "paceline.dev";
inline constexpr std::string_view kVersion = "v1alpha1";
inline constexpr std::string_view kApiVersion = "paceline.dev/v1alpha1";
inline constexpr std::string_view kManagedBy = "paceline.dev/operator";
inline constexpr std::string_view kFieldManager = "paceline-operator";

// Labels of pods, Services and Secrets that belong to a job.
inline constexpr std::string_view kLabelJob = "paceline.dev/job";
inline constexpr std::string_view kLabelJobUid = "paceline.dev/job-uid";
inline constexpr std::string_view kLabelRole = "paceline.dev/role";
inline constexpr std::string_view kLabelReplicaIndex = "paceline.dev/replica-index";
inline constexpr std::string_view kLabelNodeRank = "paceline.dev/node-rank";
inline constexpr std::string_view kLabelIncarnation = "paceline.dev/incarnation";
inline constexpr std::string_view kLabelAttempt = "paceline.dev/attempt";

// Labels and taint of nodes, where they are asked for.
inline constexpr std::string_view kLabelGpuHealthy = "paceline.dev/gpu-healthy";
inline constexpr std::string_view kLabelFabricHealthy = "paceline.dev/fabric-healthy";
inline constexpr std::string_view kLabelGpuDirectReady = "paceline.dev/gpu-direct-ready";
inline constexpr std::string_view kUnhealthyTaint = "paceline.dev/unhealthy";

/// An agent's Lease is named after its node.
inline constexpr std::string_view kAgentLeasePrefix = "paceline-agent-";
/// Where they are, unless the chart was told otherwise.
inline constexpr std::string_view kAgentNamespace = "paceline-agents";

inline constexpr std::string_view kGangGate = "paceline.dev/gang";
inline constexpr std::string_view kFinalizer = "paceline.dev/cleanup";

inline constexpr std::string_view kTrainerContainer = "trainer";
inline constexpr std::string_view kRuntimeInitContainer = "paceline-runtime";
inline constexpr std::string_view kRuntimeVolume = "paceline-runtime";
inline constexpr std::string_view kRuntimeMount = "/opt/paceline";
inline constexpr std::string_view kStateVolume = "paceline-state";
inline constexpr std::string_view kStateMount = "/run/paceline";

inline constexpr std::uint16_t kRendezvousPort = 29400;
inline constexpr std::uint16_t kLauncherHttpPort = 29401;
inline constexpr std::uint16_t kMasterPortBase = 29500;  // + attempt mod 100

/// Exit codes of the launcher. A rank's own code is in the termination message.
inline constexpr int kExitOk = 0;
// the job is over: budget spent or a failure that no restart mends
inline constexpr int kExitJobFailed = 64;
// command or environment cannot be honoured: says which and what to write
inline constexpr int kExitBadContract = 65;
inline constexpr int kExitRendezvous = 66;  // the gang did not gather in time
inline constexpr int kExitPreflight =
    67;  // what the job requires of this pod is not there: says which check and what helps
// asked to stop from outside: drain, preemption, deletion
inline constexpr int kExitTerminated = 143;

/// Largest termination message, bytes (the kubelet cuts at 4096).
inline constexpr std::size_t kTerminationMessageBytes = 4096;

}  // namespace paceline::contract
