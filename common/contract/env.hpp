// SPDX-License-Identifier: Apache-2.0
// Every environment variable of Paceline's own. Frameworks' variables (PET_*, MASTER_ADDR,
// PYTHONPATH, NCCL_*) are composed by the launcher, which sees the values of the image and of the
// user. Made by scripts/contract from common/contract/contract.yaml: edit that file.
#pragma once

#include <array>
#include <string_view>

namespace paceline::env {

struct Variable {
  std::string_view name;
  std::string_view meaning;
  /// What an absent variable means; empty: nothing in particular.
  std::string_view fallback{};
  /// All that may be written, where it is one of a few words; the rest is empty.
  std::array<std::string_view, 4> values{};
  // of a whole number
  int least = 0;
  int most = 0;
};

// Settings of a pod.
inline constexpr Variable kSettings{
    "PACELINE_SETTINGS",
    "variables of this page as one JSON object of texts, whose keys lack the prefix PACELINE_. The "
    "launcher of a pod sets them for itself and its ranks. A pod has the others of them as "
    "variables only where its template refers to them, as $(PACELINE_JOB_NAME)"};

// Identity of the job and of this replica.
inline constexpr Variable kJobName{"PACELINE_JOB_NAME", "name of the TrainingJob"};
inline constexpr Variable kJobNamespace{"PACELINE_JOB_NAMESPACE", "namespace of the TrainingJob"};
inline constexpr Variable kJobUid{"PACELINE_JOB_UID", "UID of the TrainingJob"};
inline constexpr Variable kRole{"PACELINE_ROLE", "name of this replica's role"};
inline constexpr Variable kRoleKind{"PACELINE_ROLE_KIND",
                                    "kind of this replica's role: spec.roles[].kind", "Worker"};
inline constexpr Variable kStartStage{
    "PACELINE_START_STAGE",
    "how many roles must have started before this one, one after another: spec.roles[].startAfter",
    "0",
    {},
    0,
    15};
inline constexpr Variable kReplicaIndex{
    "PACELINE_REPLICA_INDEX", "index of this replica in its role, from 0", "0", {}, 0, 100000};
inline constexpr Variable kNodeRank{
    "PACELINE_NODE_RANK",
    "index of this replica in the gang, over all roles in their order, from 0",
    "0",
    {},
    0,
    100015};
inline constexpr Variable kNodeCount{"PACELINE_NODE_COUNT",
                                     "number of replicas in the gang, spares not included",
                                     "1",
                                     {},
                                     1,
                                     100000};
inline constexpr Variable kSpares{
    "PACELINE_SPARES",
    "replicas that stand by, with the node ranks from the node count on",
    "0",
    {},
    0,
    16};
inline constexpr Variable kIncarnation{"PACELINE_INCARNATION",
                                       "number of pods that this replica had before this one",
                                       "0",
                                       {},
                                       0,
                                       2147483647};
inline constexpr Variable kPodName{"PACELINE_POD_NAME", "name of this pod"};
inline constexpr Variable kPodIp{"PACELINE_POD_IP",
                                 "address of this pod, as other replicas reach it"};
inline constexpr Variable kNodeName{"PACELINE_NODE_NAME", "node that this pod runs on"};
inline constexpr Variable kSubdomain{
    "PACELINE_SUBDOMAIN",
    "domain in which workers have names that their replacements keep, as JOB-ROLE-INDEX.SUBDOMAIN; "
    "absent: members of this job are never replaced alone, or their pods do not use the DNS of the "
    "cluster"};

// What to start.
inline constexpr Variable kFramework{"PACELINE_FRAMEWORK", "spec.framework.type", "PyTorch"};
inline constexpr Variable kFrameworkLauncher{"PACELINE_FRAMEWORK_LAUNCHER",
                                             "spec.framework.launcher",
                                             "Paceline",
                                             {"Paceline", "Passthrough"}};
inline constexpr Variable kProcessesPerReplica{
    "PACELINE_PROCESSES_PER_REPLICA",
    "number of processes in this replica; Auto is already resolved",
    "1",
    {},
    1,
    64};
inline constexpr Variable kCpuLimit{
    "PACELINE_CPU_LIMIT",
    "whole CPUs of the trainer container, for OMP_NUM_THREADS; absent: no limit",
    "",
    {},
    1,
    100000};
inline constexpr Variable kGpuDirect{"PACELINE_GPU_DIRECT",
                                     "spec.network.gpuDirect; Required and Preferred only for a "
                                     "replica with accelerators; absent: NCCL decides",
                                     "",
                                     {"Required", "Preferred", "Disabled"}};

// Rendezvous.
inline constexpr Variable kRendezvousAddress{"PACELINE_RENDEZVOUS_ADDRESS",
                                             "ip:port at which rank 0's launcher is reached"};
inline constexpr Variable kRendezvousListen{"PACELINE_RENDEZVOUS_LISTEN",
                                            "ip:port on which the launcher of node rank 0 listens"};
inline constexpr Variable kMasterPort{
    "PACELINE_MASTER_PORT",
    "port of the framework's rank 0; 0: a free one each attempt; absent: 29500 + attempt mod 100",
    "",
    {},
    0,
    65535};
inline constexpr Variable kPortBase{"PACELINE_PORT_BASE",
                                    "first of 100 ports that this pod has in the network of its "
                                    "node; absent: the pod has an address of its own",
                                    "",
                                    {},
                                    1,
                                    65436};
inline constexpr Variable kToken{
    "PACELINE_TOKEN",
    "secret of this job, which launchers, readers of the summary and the operator present"};
inline constexpr Variable kStartupTimeout{"PACELINE_STARTUP_TIMEOUT",
                                          "how long the gang may take to gather", "10m"};

// Supervision.
inline constexpr Variable kAttempt{
    "PACELINE_ATTEMPT",
    "attempt of the gang, from 0: in a pod as the operator last knew it, in a rank the present one",
    "0",
    {},
    0,
    1073741823};
inline constexpr Variable kRestarts{
    "PACELINE_RESTARTS", "restarts already spent, as the operator last knew", "0", {}, 0,
    1073741823};
inline constexpr Variable kGoodput{
    "PACELINE_GOODPUT",
    "status.goodput as JSON, for node rank 0: what the job's earlier pods used their time for"};
inline constexpr Variable kJobCreated{
    "PACELINE_JOB_CREATED",
    "when the job was created, for node rank 0: where the span of the job begins"};
inline constexpr Variable kJobPlaced{
    "PACELINE_JOB_PLACED",
    "when the job was placed, for node rank 0: where the span `pod start` begins"};
inline constexpr Variable kMaxRestarts{
    "PACELINE_MAX_RESTARTS", "spec.failurePolicy.maxRestarts", "0", {}, 0, 1073741823};
inline constexpr Variable kFailureRules{
    "PACELINE_FAILURE_RULES",
    "spec.failurePolicy.rules as JSON, for node rank 0: what follows when a rank fails"};
inline constexpr Variable kBackoff{
    "PACELINE_BACKOFF", "spec.failurePolicy.backoff: pause before a restart in place", "0s"};
inline constexpr Variable kGracePeriod{
    "PACELINE_GRACE_PERIOD", "spec.failurePolicy.gracePeriod: time from SIGTERM to SIGKILL", "30s"};
inline constexpr Variable kSuccessPolicy{
    "PACELINE_SUCCESS_POLICY", "spec.successPolicy", "AllRanks", {"AllRanks", "RankZero"}};
inline constexpr Variable kHangAfter{
    "PACELINE_HANG_AFTER",
    "how long no rank may get on before the job counts as hung. If its steps are long, ten times "
    "their 95th percentile. Six times as long in evaluations, checkpoints and first steps. 0: "
    "hangs are not looked for",
    "5m"};
inline constexpr Variable kOnHang{
    "PACELINE_ON_HANG",
    "what follows when the job hangs. Report: a finding and the ranks' stacks. Restart: the gang "
    "restarts too, as after a failure",
    "Report",
    {"Report", "Restart"}};
inline constexpr Variable kStandby{
    "PACELINE_STANDBY",
    "Auto: beside each Python rank waits an interpreter that has made the same imports, and "
    "becomes the rank when the gang starts again. Disabled: each start imports",
    "Auto",
    {"Auto", "Disabled"}};
inline constexpr Variable kCheckpointGrace{
    "PACELINE_CHECKPOINT_GRACE",
    "Auto: before a pod goes, ranks that call paceline.save_requested() or train by the Trainer of "
    "Hugging Face or Lightning save at one step, and get SIGTERM then. Disabled: they get SIGTERM "
    "at once",
    "Auto",
    {"Auto", "Disabled"}};
inline constexpr Variable kDiagnosisWindow{
    "PACELINE_DIAGNOSIS_WINDOW",
    "length of the windows in which steps are judged; three in a row make a finding", "20s"};

// Places.
inline constexpr Variable kRuntimeDir{"PACELINE_RUNTIME_DIR",
                                      "folder of the runtime: bin/, lib/, python/ and kernels/"};
inline constexpr Variable kStateDir{"PACELINE_STATE_DIR",
                                    "writable folder of this replica: sockets, rank table, report"};
inline constexpr Variable kSlotDir{
    "PACELINE_SLOT_DIR", "folder of this pod's slot on its node; absent: the pod has no slot"};
inline constexpr Variable kTerminationLog{"PACELINE_TERMINATION_LOG",
                                          "file for the termination message, at most 4 KiB"};
inline constexpr Variable kHttpListen{
    "PACELINE_HTTP_LISTEN", "ip:port of the launcher's /metrics, /v1/summary and /healthz"};

// In the ranks.
inline constexpr Variable kRankTable{"PACELINE_RANK_TABLE", "the rank table, a JSON file"};
inline constexpr Variable kTelemetrySocket{
    "PACELINE_TELEMETRY_SOCKET", "Unix socket to which a rank offers its ring of step records"};
inline constexpr Variable kFailureFile{
    "PACELINE_FAILURE_FILE", "file in which a rank's Python reports an uncaught exception at once"};
inline constexpr Variable kStandbyFile{
    "PACELINE_STANDBY_FILE",
    "file in which a rank's Python writes what it has imported, for its standby"};
inline constexpr Variable kStandbySocket{"PACELINE_STANDBY_SOCKET",
                                         "descriptor by which a standby interpreter hears that its "
                                         "rank starts; other processes have none"};
inline constexpr Variable kExplainFile{
    "PACELINE_EXPLAIN_FILE",
    "file that receives what acted in rank 0 when its training process ends"};
inline constexpr Variable kEffectsFile{"PACELINE_EFFECTS_FILE",
                                       "file in which rank 0's training process says what acts and "
                                       "what it gains, a JSON document of at most 16 KiB"};
inline constexpr Variable kTraceRequest{
    "PACELINE_TRACE_REQUEST",
    "file by which the launcher asks a rank to record steps, or for a kernel window; what the rank "
    "records is written beside it"};
inline constexpr Variable kSaveRequest{"PACELINE_SAVE_REQUEST",
                                       "file by which the launcher asks a rank to save at a step; "
                                       "the rank tells its step in a file beside it"};
inline constexpr Variable kNetwork{
    "PACELINE_NETWORK",
    "how NCCL reaches other hosts, and which of its settings were made and why, a JSON object for "
    "paceline.explain(); absent: without GPUs, or on one host without a profiler plugin"};
inline constexpr Variable kDisable{
    "PACELINE_DISABLE", "1: nothing is changed inside the training process", "", {"1"}};
inline constexpr Variable kTfConfig{
    "PACELINE_TF_CONFIG",
    "form of TF_CONFIG. Sparse: a worker is told of the parameter servers and of itself, a "
    "parameter server of itself. WithEvaluator: the evaluator is in the cluster, too",
    "Full",
    {"Full", "Sparse", "WithEvaluator"}};
inline constexpr Variable kLibrary{"PACELINE_LIBRARY",
                                   "libpaceline.so to load instead of the runtime's"};
inline constexpr Variable kKernels{
    "PACELINE_KERNELS", "folder with the modules of GPU kernels to load instead of the runtime's"};
inline constexpr Variable kLoaderDeviceCopies{
    "PACELINE_LOADER_DEVICE_COPIES",
    "Auto: the next batch is copied to the GPU before the program asks for it. The program must "
    "not write to batches in a way that PyTorch cannot see. Disabled: only for loaders that the "
    "program names",
    "Disabled",
    {"Auto", "Disabled"}};
inline constexpr Variable kTuneAfter{
    "PACELINE_TUNE_AFTER",
    "seconds of training before a change is tried that must first prove its gain", "300"};
inline constexpr Variable kLearnedDir{
    "PACELINE_LEARNED_DIR",
    "folder that keeps what trials of changes have shown, and the code that PyTorch compiled: "
    "later runs begin with it. `paceline run` names one below the user's cache folder, a launcher "
    "one below PACELINE_STATE_DIR, which lasts as long as its pod"};
inline constexpr Variable kCommunicationPlan{
    "PACELINE_COMMUNICATION_PLAN",
    "fixes how gradients are summed: the plan that paceline.explain() prints, for example "
    "algorithm=flat chunk=1048576"};
inline constexpr Variable kSocketIfname{
    "PACELINE_SOCKET_IFNAME",
    "network devices that the communicator connects through, written as for NCCL_SOCKET_IFNAME; "
    "absent: those that gloo and NCCL are told to use"};
inline constexpr Variable kNcclProfiler{
    "PACELINE_NCCL_PROFILER",
    "Auto: NCCL's collectives are counted and timed by libpaceline_nccl.so, in ranks with GPUs. "
    "Disabled: NCCL gets no profiler plugin of Paceline",
    "Auto",
    {"Auto", "Disabled"}};
inline constexpr Variable kKernelWindows{"PACELINE_KERNEL_WINDOWS",
                                         "Auto: for a few steps of every 500 libpaceline_cupti.so "
                                         "records what the GPU does. Disabled: it is not loaded",
                                         "Disabled",
                                         {"Auto", "Disabled"}};
inline constexpr Variable kLogTo{
    "PACELINE_LOG_TO",
    "where rank 0 logs step times, shares and effects, beside Paceline's own metrics: mlflow, "
    "wandb, tensorboard, or several of them with commas. MLflow and W&B need a run that the "
    "program has open"};
inline constexpr Variable kSimd{
    "PACELINE_SIMD",
    "a lesser instruction set than the processor's best, with the same results",
    "",
    {"scalar", "avx2"}};

// Tests of the launcher.
inline constexpr Variable kDeviceRoot{
    "PACELINE_DEVICE_ROOT",
    "folder whose sys, dev and etc describe the network that NCCL's settings follow", "/"};

// Tests of the operator.
inline constexpr Variable kFailpoint{
    "PACELINE_FAILPOINT",
    "ends the process before or after its n-th write to the API server: 3:before or 3:after"};
inline constexpr Variable kFailpointCountFile{"PACELINE_FAILPOINT_COUNT_FILE",
                                              "file that receives the number of writes so far"};

// Acceleration.
inline constexpr Variable kNumerics{
    "PACELINE_NUMERICS",
    "The class that no feature exceeds. Bitwise: results are equal to the bit. Reordered: results "
    "may round differently, as with another number of ranks. Lossy: results may lose precision.",
    "Reordered",
    {"Bitwise", "Reordered", "Lossy"}};
inline constexpr Variable kLoader{
    "PACELINE_LOADER",
    "Auto: workers of PyTorch's DataLoader write batches into shared memory.",
    "Disabled",
    {"Auto", "Disabled"}};
inline constexpr Variable kOptimizer{
    "PACELINE_OPTIMIZER",
    "Auto: PyTorch's Adam, AdamW and SGD are updated by fused code, on the CPU and on GPUs that "
    "the runtime has kernels for.",
    "Disabled",
    {"Auto", "Disabled"}};
inline constexpr Variable kCommunication{
    "PACELINE_COMMUNICATION",
    "Auto: gradients of PyTorch's DistributedDataParallel on the CPU are summed through shared "
    "memory inside a host, and by RDMA or TCP between hosts.",
    "Disabled",
    {"Auto", "Disabled"}};
inline constexpr Variable kCommunicationCompression{
    "PACELINE_COMMUNICATION_COMPRESSION",
    "Those gradients go between hosts in fewer bytes, with error feedback: FP16, BF16, Int8, "
    "TopK:ratio=0.01, or PowerSGD:rank=1,start=1000. With start=N the first N steps are not "
    "compressed.",
    "Disabled"};
inline constexpr Variable kPrecision{
    "PACELINE_PRECISION",
    "TF32: products of float32 matrices on a GPU are computed in TF32. O1: models run under "
    "torch.autocast in bfloat16. O2: 16-bit weights with float32 masters, in a program that calls "
    "paceline.accelerate.",
    "Disabled",
    {"Disabled", "TF32", "O1", "O2"}};
inline constexpr Variable kCudaGraph{
    "PACELINE_CUDA_GRAPH",
    "Auto: steps of paceline.graph.WholeStep are captured as a CUDA graph and replayed. Disabled: "
    "they run as ordinary steps.",
    "Auto",
    {"Auto", "Disabled"}};
inline constexpr Variable kLoaderWorkers{
    "PACELINE_LOADER_WORKERS",
    "Auto: loaders that have no worker processes, or too few, get as many as their measured waits "
    "and the idle processors call for. A number, in quotes: they get that many.",
    "Disabled"};
inline constexpr Variable kCompile{
    "PACELINE_COMPILE",
    "Auto: after some minutes of training PyTorch's compiler is tried on the model, in windows of "
    "steps, and kept only if steps get quicker.",
    "Disabled",
    {"Auto", "Disabled"}};
inline constexpr Variable kOperators{
    "PACELINE_OPERATORS",
    "Auto: operators of models that the runtime knows are computed by fused code: window attention "
    "of Swin and voxels of point clouds on GPUs, and targets of detectors.",
    "Disabled",
    {"Auto", "Disabled"}};

// What a person may set, in a pod template or around `paceline run`. Paceline sets all others.
inline constexpr std::array kUsers{kHangAfter,
                                   kOnHang,
                                   kStandby,
                                   kCheckpointGrace,
                                   kDiagnosisWindow,
                                   kDisable,
                                   kTfConfig,
                                   kLibrary,
                                   kKernels,
                                   kLoaderDeviceCopies,
                                   kTuneAfter,
                                   kLearnedDir,
                                   kCommunicationPlan,
                                   kSocketIfname,
                                   kNcclProfiler,
                                   kKernelWindows,
                                   kLogTo,
                                   kSimd,
                                   kNumerics,
                                   kLoader,
                                   kOptimizer,
                                   kCommunication,
                                   kCommunicationCompression,
                                   kPrecision,
                                   kCudaGraph,
                                   kLoaderWorkers,
                                   kCompile,
                                   kOperators};

constexpr bool is_users(std::string_view name) {
  for (const Variable& variable : kUsers)
    if (variable.name == name) return true;
  return false;
}

inline constexpr std::array kAll{kSettings,
                                 kJobName,
                                 kJobNamespace,
                                 kJobUid,
                                 kRole,
                                 kRoleKind,
                                 kStartStage,
                                 kReplicaIndex,
                                 kNodeRank,
                                 kNodeCount,
                                 kSpares,
                                 kIncarnation,
                                 kPodName,
                                 kPodIp,
                                 kNodeName,
                                 kSubdomain,
                                 kFramework,
                                 kFrameworkLauncher,
                                 kProcessesPerReplica,
                                 kCpuLimit,
                                 kGpuDirect,
                                 kRendezvousAddress,
                                 kRendezvousListen,
                                 kMasterPort,
                                 kPortBase,
                                 kToken,
                                 kStartupTimeout,
                                 kAttempt,
                                 kRestarts,
                                 kGoodput,
                                 kJobCreated,
                                 kJobPlaced,
                                 kMaxRestarts,
                                 kFailureRules,
                                 kBackoff,
                                 kGracePeriod,
                                 kSuccessPolicy,
                                 kHangAfter,
                                 kOnHang,
                                 kStandby,
                                 kCheckpointGrace,
                                 kDiagnosisWindow,
                                 kRuntimeDir,
                                 kStateDir,
                                 kSlotDir,
                                 kTerminationLog,
                                 kHttpListen,
                                 kRankTable,
                                 kTelemetrySocket,
                                 kFailureFile,
                                 kStandbyFile,
                                 kStandbySocket,
                                 kExplainFile,
                                 kEffectsFile,
                                 kTraceRequest,
                                 kSaveRequest,
                                 kNetwork,
                                 kDisable,
                                 kTfConfig,
                                 kLibrary,
                                 kKernels,
                                 kLoaderDeviceCopies,
                                 kTuneAfter,
                                 kLearnedDir,
                                 kCommunicationPlan,
                                 kSocketIfname,
                                 kNcclProfiler,
                                 kKernelWindows,
                                 kLogTo,
                                 kSimd,
                                 kDeviceRoot,
                                 kFailpoint,
                                 kFailpointCountFile,
                                 kNumerics,
                                 kLoader,
                                 kOptimizer,
                                 kCommunication,
                                 kCommunicationCompression,
                                 kPrecision,
                                 kCudaGraph,
                                 kLoaderWorkers,
                                 kCompile,
                                 kOperators};

}  // namespace paceline::env
