// SPDX-License-Identifier: Apache-2.0
// The checks that say whether GPUDirect RDMA can work on a node, and what to do where it cannot:
// one table, and one pure function per check over what the probes read and what paceline-probe
// tried. What only a job's pod shows stands in the table as well, with where it is looked at, and
// is never guessed.
//
// Pure; thread-safe as any value is. Nothing fails: what cannot be told is `kUnknown`, and its
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

/// Worst last, but for skip and unknown, which say nothing about the node.
enum class Verdict { kSkip, kPass, kUnknown, kWarn, kFail };
std::string_view to_string(Verdict verdict);

/// Where a check is looked at.
enum class Place {
  kDaemon,  // by the agent, without a privilege
  kConfig,  // by whoever may read PCI configuration space: root with CAP_SYS_ADMIN
  // by using the devices: a registration of GPU memory, a link under load; what files tell is
  // judged without
  kProbe,
  kPod,  // in the job's pod, whose limits and environment differ
};
std::string_view to_string(Place place);

/// Which condition of NodeFabric a failure makes False.
enum class Concern { kNone, kGpuDirect, kFabric, kGpu };

struct Finding {
  std::string id;
  std::string subject;  // "GPU0", "0000:17:00.0", "mlx5_0/1"; empty: the node
  Verdict verdict = Verdict::kUnknown;
  std::string evidence;
  std::string remedy;  // empty where there is nothing to mend
  bool operator==(const Finding&) const = default;
};

/// Counters of some time ago, for the checks that look at what rose.
struct EarlierCounters {
  std::chrono::seconds age{0};
  Counters counters;
};

/// A GPU and a NIC that jobs use and none is nearer to it.
struct Pair {
  const FabricDevice* gpu = nullptr;
  const FabricDevice* nic = nullptr;
  PathClass kind = PathClass::kSys;
  std::vector<std::string>
      // addresses from the GPU to the NIC, bridges between, without what lies above both; empty
      // across hosts
      way;
};

/// All that the checks look at. Borrows nothing but from itself: not to be copied.
struct Node {
  Node(Hardware machine, Settings setup, std::optional<EarlierCounters> before = {},
       std::optional<Registrations> tried = {});
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  const Hardware hardware;
  const Settings settings;
  const std::optional<EarlierCounters> earlier;
  const std::optional<Registrations> registrations;  // absent: nobody tried
  const Fabric fabric;
  std::vector<Pair> pairs;
  std::vector<const RdmaDevice*> compute_nics;
  bool nvidia = false;      // has NVIDIA's GPUs
  bool is_virtual = false;  // is a virtual machine

  const PciFunction* function(std::string_view address) const;
  const FunctionSettings* setup(const std::string& address) const;
};

/// The NICs that jobs use: those of the rails, and those of the same board that fell behind;
/// without accelerators those with a link.
std::vector<const RdmaDevice*> compute_nics_of(const Hardware& hardware, const Fabric& fabric);

struct Check;

/// Where a check puts what it found.
class Findings {
 public:
  Findings(const Check& check, std::vector<Finding>& all) : check_(check), all_(all) {}
  void pass(std::string_view subject, std::string evidence) {
    add(Verdict::kPass, subject, std::move(evidence));
  }
  void warn(std::string_view subject, std::string evidence) {
    add(Verdict::kWarn, subject, std::move(evidence));
  }
  /// As bad as the check's severity says.
  void bad(std::string_view subject, std::string evidence);
  void unknown(std::string_view subject, std::string evidence) {
    add(Verdict::kUnknown, subject, std::move(evidence));
  }
  /// For an answer that the missing privilege hides.
  void hidden(std::string_view subject, const FunctionSettings* setup);
  void skip(std::string evidence) { add(Verdict::kSkip, "", std::move(evidence)); }

 private:
  void add(Verdict verdict, std::string_view subject, std::string evidence);

  const Check& check_;
  std::vector<Finding>& all_;
};

struct Check {
  std::string_view id;
  std::string_view title;
  Place place;
  Verdict severity;  // the worst that it says: kFail, kWarn, or kPass for what only informs
  Concern concern;
  std::string_view reads;
  std::string_view remedy;
  std::string_view link;  // who made the thing describes it there; empty: nowhere in public
  void (*run)(const Node& node, Findings& found);
};

/// The table, in the order in which failures matter.
std::span<const Check> checks();
const Check* find_check(std::string_view id);

/// Every check of the table; at least one finding of each.
std::vector<Finding> run_checks(const Node& node);

/// What a look is worth as an exit code: 1 something fails, 2 the GPUs could not be looked at, 0
/// else.
int exit_code(const std::vector<Finding>& findings);

/// A check's answer: the worst of its findings.
Verdict worst(const std::vector<Finding>& findings, std::string_view id);

}  // namespace paceline::agent
