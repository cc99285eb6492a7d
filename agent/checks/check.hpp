// SPDX-License-Identifier: Apache-2.0
// The checks: whether GPUDirect RDMA can work on a node, and what to change if it cannot. One
// table, and one pure function for each check, over the probes' values and the attempts of
// paceline-probe. `paceline doctor`, the agent's report and its /v1/checks run them. What only a
// job's pod can show has its row in the table too, with the place where it is checked, and is never
// guessed.
//
// Pure; thread-safe as any value is. Nothing fails: what cannot be decided is `kUnknown`, and its
// evidence says what was missing.
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "agent/probe/fabric/fabric.hpp"
#include "agent/probe/hardware/hardware.hpp"
#include "agent/probe/settings.hpp"
#include "agent/registration/registrations.hpp"

namespace paceline::agent {

/// Ordered from best to worst; skip and unknown say nothing about the node.
enum class Verdict { kSkip, kPass, kUnknown, kWarn, kFail };
std::string_view to_string(Verdict verdict);

/// Where a check is made.
enum class Place {
  kDaemon,  // by the agent, without privilege
  kConfig,  // by a process that may read PCI configuration space: root with CAP_SYS_ADMIN
  // by using the devices: registering GPU memory, loading a link; without that, the part that files
  // tell is judged
  kProbe,
  kPod,  // in the job's pod, whose limits and environment differ
};
std::string_view to_string(Place place);

/// Which condition of NodeFabric becomes False by a failure.
enum class Concern { kNone, kGpuDirect, kFabric, kGpu };

struct Finding {
  std::string id;
  std::string subject;  // "GPU0", "0000:17:00.0", "mlx5_0/1"; empty: the node
  Verdict verdict = Verdict::kUnknown;
  std::string evidence;
  std::string remedy;  // empty if there is nothing to change
  bool operator==(const Finding&) const = default;
};

/// Earlier counters, for the checks that look for increases.
struct EarlierCounters {
  std::chrono::seconds age{0};
  Counters counters;
};

/// A GPU and a NIC that jobs use, where no other NIC is nearer to the GPU.
struct Pair {
  const FabricDevice* gpu = nullptr;
  const FabricDevice* nic = nullptr;
  PathClass kind = PathClass::kSys;
  std::vector<std::string>
      // addresses from the GPU to the NIC with the bridges between, without what is above both;
      // empty if they share only a host bridge or less
      way;
};

/// Everything that the checks read. Points into itself, so it cannot be copied.
struct Node {
  Node(Hardware machine, Settings setup, std::optional<EarlierCounters> before = {},
       std::optional<Registrations> tried = {});
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  const Hardware hardware;
  const Settings settings;
  const std::optional<EarlierCounters> earlier;
  const std::optional<Registrations> registrations;  // nullopt: nothing was tried
  const Fabric fabric;
  std::vector<Pair> pairs;
  std::vector<const RdmaDevice*> compute_nics;
  bool nvidia = false;      // has NVIDIA's GPUs
  bool is_virtual = false;  // is a virtual machine

  const PciFunction* function(std::string_view address) const;
  const FunctionSettings* setup(const std::string& address) const;
  bool is_compute(const RdmaDevice& device) const;
};

/// The NICs that jobs use: those of the rails. Without accelerators: those with a link.
std::vector<const RdmaDevice*> compute_nics_of(const Hardware& hardware, const Fabric& fabric);

struct Check;

/// Collects the findings of one check.
class Findings {
 public:
  Findings(const Check& check, std::vector<Finding>& all) : check_(check), all_(all) {}
  void pass(std::string_view subject, std::string evidence) {
    add(Verdict::kPass, subject, std::move(evidence));
  }
  void warn(std::string_view subject, std::string evidence) {
    add(Verdict::kWarn, subject, std::move(evidence));
  }
  /// A failure or a warning, as the check's severity says.
  void bad(std::string_view subject, std::string evidence);
  void unknown(std::string_view subject, std::string evidence) {
    add(Verdict::kUnknown, subject, std::move(evidence));
  }
  /// For a value that cannot be read without privilege.
  void hidden(std::string_view subject, const FunctionSettings* setup);
  void skip(std::string evidence) { add(Verdict::kSkip, "", std::move(evidence)); }
  /// For a device that the check leaves out, so that a person sees why.
  void set_aside(std::string_view subject, std::string evidence) {
    add(Verdict::kSkip, subject, std::move(evidence));
  }

 private:
  void add(Verdict verdict, std::string_view subject, std::string evidence);

  const Check& check_;
  std::vector<Finding>& all_;
};

struct Check {
  std::string_view id;
  std::string_view title;
  Place place;
  Verdict severity;  // the worst verdict: kFail, kWarn, or kPass for a check that only informs
  Concern concern;
  std::string_view reads;
  std::string_view remedy;
  std::string_view link;  // documentation by the vendor; empty if there is none in public
  void (*run)(const Node& node, Findings& found);
};

/// The table, ordered by the importance of a failure.
std::span<const Check> checks();
const Check* find_check(std::string_view id);

/// Runs every check of the table; each has at least one finding.
std::vector<Finding> run_checks(const Node& node);

/// The exit code of `paceline doctor`: 1 if a check fails, 2 if the GPUs could not be read, else 0.
int exit_code(const std::vector<Finding>& findings);

/// A check's result: the worst of its findings.
Verdict worst(const std::vector<Finding>& findings, std::string_view id);

}  // namespace paceline::agent
