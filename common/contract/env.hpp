// SPDX-License-Identifier: Apache-2.0
// Every environment variable of Paceline's own, in one place. Outside a container Paceline sets
// only these; what frameworks read (PET_*, MASTER_ADDR, PYTHONPATH, NCCL_*) is composed by the
// launcher inside, where the image's and the user's values are visible.
//
// Written by operator/render (in a pod) and by `paceline run` (on one machine), read by launcher/
// and accel/.
#pragma once

#include <array>
#include <string_view>

namespace paceline::env {

struct Variable {
  std::string_view name;
  std::string_view meaning;
};

// Identity of the job and of this replica.
inline constexpr Variable kJobName{"PACELINE_JOB_NAME", "name of the TrainingJob"};
inline constexpr Variable kJobNamespace{"PACELINE_JOB_NAMESPACE", "its namespace"};
inline constexpr Variable kJobUid{"PACELINE_JOB_UID", "its UID"};
inline constexpr Variable kRole{"PACELINE_ROLE", "name of this replica's role"};
inline constexpr Variable kReplicaIndex{"PACELINE_REPLICA_INDEX",
                                        "index of this replica in its role, from 0"};
inline constexpr Variable kNodeRank{
    "PACELINE_NODE_RANK",
    "index of this replica in the gang, over all roles in their order, from 0"};
inline constexpr Variable kNodeCount{"PACELINE_NODE_COUNT", "replicas in the gang"};
inline constexpr Variable kIncarnation{"PACELINE_INCARNATION",
                                       "how many pods this replica has had before this one"};
inline constexpr Variable kPodName{"PACELINE_POD_NAME", "name of this pod"};
inline constexpr Variable kPodIp{"PACELINE_POD_IP",
                                 "address of this pod, as other replicas reach it"};
inline constexpr Variable kNodeName{"PACELINE_NODE_NAME", "node that this pod runs on"};

// What to start.
inline constexpr Variable kFramework{"PACELINE_FRAMEWORK", "spec.framework.type"};
inline constexpr Variable kFrameworkLauncher{"PACELINE_FRAMEWORK_LAUNCHER",
                                             "spec.framework.launcher: Paceline or Passthrough"};
inline constexpr Variable kProcessesPerReplica{
    "PACELINE_PROCESSES_PER_REPLICA",
    "ranks in this replica, resolved (never Auto); what a kept launcher is told"};
inline constexpr Variable kCpuLimit{
    "PACELINE_CPU_LIMIT",
    "whole CPUs of the trainer container (for OMP_NUM_THREADS), absent if unlimited"};

inline constexpr Variable kGpuDirect{"PACELINE_GPU_DIRECT",
                                     "spec.network.gpuDirect: Required or Preferred, for a replica "
                                     "with accelerators, or Disabled; absent: as it comes"};

// Rendezvous.
inline constexpr Variable kRendezvousAddress{"PACELINE_RENDEZVOUS_ADDRESS",
                                             "ip:port where rank 0's launcher is reached"};
inline constexpr Variable kRendezvousListen{"PACELINE_RENDEZVOUS_LISTEN",
                                            "ip:port where node rank 0's launcher listens"};
inline constexpr Variable kMasterPort{
    "PACELINE_MASTER_PORT",
    "port of rank 0's framework; 0: a free one each attempt; absent: 29500 + attempt mod 100"};
inline constexpr Variable kToken{
    "PACELINE_TOKEN", "secret of this job: launchers, summary readers and the operator show it"};
inline constexpr Variable kStartupTimeout{"PACELINE_STARTUP_TIMEOUT",
                                          "how long the gang may take to gather, a duration"};

// Supervision.
inline constexpr Variable kAttempt{
    "PACELINE_ATTEMPT", "attempt that the gang is at, as the operator last knew it, from 0"};
inline constexpr Variable kRestarts{
    "PACELINE_RESTARTS", "restarts already spent of the budget, as the operator last knew it"};
inline constexpr Variable kMaxRestarts{"PACELINE_MAX_RESTARTS", "spec.failurePolicy.maxRestarts"};
inline constexpr Variable kBackoff{
    "PACELINE_BACKOFF", "spec.failurePolicy.backoff: pause before a restart in place, a duration"};
inline constexpr Variable kGracePeriod{
    "PACELINE_GRACE_PERIOD", "spec.failurePolicy.gracePeriod: SIGTERM to SIGKILL, a duration"};
inline constexpr Variable kSuccessPolicy{"PACELINE_SUCCESS_POLICY",
                                         "spec.successPolicy: AllRanks or RankZero"};

// Places.
inline constexpr Variable kRuntimeDir{
    "PACELINE_RUNTIME_DIR", "directory that holds bin/, lib/, python/ and kernels/ of the runtime"};
inline constexpr Variable kStateDir{
    "PACELINE_STATE_DIR", "writable directory of this replica: sockets, rank table, report"};
inline constexpr Variable kSlotDir{
    "PACELINE_SLOT_DIR",
    "folder of this pod's slot on its node, set by the node's agent; absent: no slot"};
inline constexpr Variable kTerminationLog{"PACELINE_TERMINATION_LOG",
                                          "file for the termination message, at most 4 KiB"};
inline constexpr Variable kHttpListen{
    "PACELINE_HTTP_LISTEN", "ip:port of the launcher's /metrics, /v1/summary and /healthz"};

// Seen by the ranks.
inline constexpr Variable kRankTable{"PACELINE_RANK_TABLE", "path of the rank table, JSON"};
inline constexpr Variable kTelemetrySocket{"PACELINE_TELEMETRY_SOCKET",
                                           "unix socket that takes a rank's ring"};
inline constexpr Variable kFailureFile{
    "PACELINE_FAILURE_FILE",
    "file in which a rank's Python says at once that an exception ends it"};
inline constexpr Variable kDisable{
    "PACELINE_DISABLE", "1: nothing is injected into the training process (kill switch)"};
inline constexpr Variable kLibrary{"PACELINE_LIBRARY",
                                   "path of libpaceline.so, instead of the runtime's"};
inline constexpr Variable kKernels{
    "PACELINE_KERNELS", "folder with the modules of GPU kernels, instead of the runtime's"};
inline constexpr Variable kOptimizer{"PACELINE_OPTIMIZER",
                                     "Auto: PyTorch's Adam, AdamW and SGD are updated by the "
                                     "library; Disabled (default): as they are"};
inline constexpr Variable kLoader{"PACELINE_LOADER",
                                  "Auto: workers of PyTorch's DataLoader write into shared slabs; "
                                  "Disabled (default): as they are"};
inline constexpr Variable kLoaderDeviceCopies{
    "PACELINE_LOADER_DEVICE_COPIES",
    "Auto: the next batch is copied to the GPU before the program asks, which must write to "
    "batches in no way that "
    "PyTorch cannot see; Disabled (default): only where the program says so of a loader"};
inline constexpr Variable kCommunication{
    "PACELINE_COMMUNICATION",
    "Auto: gradients of PyTorch's DistributedDataParallel on the CPU go over the "
    "library's communicator; Disabled (default): gloo"};
inline constexpr Variable kCommunicationPlan{
    "PACELINE_COMMUNICATION_PLAN",
    "pins how these gradients are summed: what paceline.explain() prints, e.g. algorithm=flat "
    "chunk=1048576"};
inline constexpr Variable kSocketIfname{"PACELINE_SOCKET_IFNAME",
                                        "network devices that the library's communicator connects "
                                        "through, all of them, named as NCCL_SOCKET_IFNAME has "
                                        "them; default: those that gloo and NCCL are told to use"};
inline constexpr Variable kCommunicationCompression{
    "PACELINE_COMMUNICATION_COMPRESSION",
    "FP16, BF16, Int8, TopK:ratio=0.01 or PowerSGD:rank=1,start=1000: "
    "these gradients go in fewer bytes between hosts, where "
    "PACELINE_NUMERICS is Lossy; Disabled (default): as they are"};
inline constexpr Variable kPrecision{"PACELINE_PRECISION",
                                     "TF32: float32 products on a GPU by TF32; O1: models under "
                                     "torch.autocast in bfloat16; O2: with 16-bit weights, in "
                                     "a "
                                     "program that calls paceline.accelerate; where "
                                     "PACELINE_NUMERICS is Lossy. Disabled (default): as they are"};
inline constexpr Variable kCudaGraph{"PACELINE_CUDA_GRAPH",
                                     "Disabled: steps of paceline.graph.WholeStep are made as "
                                     "always; Auto (default): captured and replayed"};
inline constexpr Variable kNumerics{
    "PACELINE_NUMERICS",
    "Bitwise, Reordered (default) or Lossy: nothing that is on exceeds this class"};
inline constexpr Variable kSimd{
    "PACELINE_SIMD",
    "scalar or avx2: a lesser instruction set than the processor's best; the same results"};

// What a person may set, in a template or around `paceline run`; all others are Paceline's own.
inline constexpr std::array kUsers{kDisable,
                                   kLibrary,
                                   kKernels,
                                   kOptimizer,
                                   kLoader,
                                   kLoaderDeviceCopies,
                                   kCommunication,
                                   kCommunicationPlan,
                                   kCommunicationCompression,
                                   kSocketIfname,
                                   kPrecision,
                                   kCudaGraph,
                                   kNumerics,
                                   kSimd};

constexpr bool is_users(std::string_view name) {
  for (const Variable& variable : kUsers)
    if (variable.name == name) return true;
  return false;
}

inline constexpr std::array kAll{
    kJobName,
    kJobNamespace,
    kJobUid,
    kRole,
    kReplicaIndex,
    kNodeRank,
    kNodeCount,
    kIncarnation,
    kPodName,
    kPodIp,
    kNodeName,
    kFramework,
    kFrameworkLauncher,
    kProcessesPerReplica,
    kCpuLimit,
    kGpuDirect,
    kRendezvousAddress,
    kRendezvousListen,
    kMasterPort,
    kToken,
    kStartupTimeout,
    kAttempt,
    kRestarts,
    kMaxRestarts,
    kBackoff,
    kGracePeriod,
    kSuccessPolicy,
    kRuntimeDir,
    kStateDir,
    kSlotDir,
    kTerminationLog,
    kHttpListen,
    kRankTable,
    kTelemetrySocket,
    kFailureFile,
    kDisable,
    kLibrary,
    kKernels,
    kOptimizer,
    kLoader,
    kLoaderDeviceCopies,
    kCommunication,
    kCommunicationPlan,
    kCommunicationCompression,
    kSocketIfname,
    kPrecision,
    kCudaGraph,
    kNumerics,
    kSimd,
};

}  // namespace paceline::env
