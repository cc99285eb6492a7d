// SPDX-License-Identifier: Apache-2.0
// Values read with privilege and judged without: a machine whose configuration space is shown as to
// a process without a capability, with and without a snapshot.
#include "agent/checks/privileged_scan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <string>

#include "agent/checks/check.hpp"
#include "agent/probe/formats/nvml_json.hpp"
#include "agent/probe/probe.hpp"
#include "cli/doctor/command.hpp"
#include "testing/node_tree.hpp"

namespace paceline::agent {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using namespace std::chrono_literals;

constexpr const char* kHiddenChecks[] = {"acs", "pcie-mps", "pcie-mrrs", "pcie-relaxed-ordering"};
const WallTime kThen = std::chrono::sys_days(std::chrono::year(2026) / 3 / 1) + 7h;

/// A fixture, its snapshot in `snapshot`, and what a process without a capability sees of it.
class Unprivileged {
 public:
  explicit Unprivileged(const char* fixture) : tree_(fixture), nvml_(NodeTree::nvml_json(fixture)) {
    before_ = findings({});
    const auto written = write_pci_snapshot(tree_.root(), snapshot(), kThen);
    EXPECT_TRUE(written) << to_string(written.error());
    for (const auto& entry : fs::recursive_directory_iterator(tree_.folder() / "sys/devices")) {
      if (entry.is_regular_file() && entry.path().filename() == "config")
        fs::resize_file(entry.path(), 64);
    }
  }

  fs::path snapshot() const { return tree_.folder() / "look/pci-config"; }
  fs::path config(const std::string& address) const {
    return tree_.folder() / "sys/bus/pci/devices" / address / "config";
  }
  const NodeTree& tree() const { return tree_; }
  /// As a privileged process sees it.
  const std::vector<Finding>& before() const { return before_; }

  std::vector<Finding> findings(const PciSnapshot& from) const {
    const auto library = read_nvml_json(nvml_, "nvml");
    const auto hardware = probe_hardware(tree_.root(), **library);
    return run_checks(Node(hardware, read_settings(tree_.root(), hardware, from)));
  }

 private:
  NodeTree tree_;
  std::string nvml_;
  std::vector<Finding> before_;
};

std::vector<Finding> of_check(const std::vector<Finding>& all, const std::string& id) {
  std::vector<Finding> found;
  for (const auto& finding : all) {
    if (finding.id == id) found.push_back(finding);
  }
  return found;
}

class PciSnapshotOf : public testing::TestWithParam<const char*> {};

TEST_P(PciSnapshotOf, LetsTheChecksSayWhatThePrivilegeSaw) {
  const Unprivileged machine(GetParam());
  const auto blind = machine.findings({});
  const auto seeing = machine.findings(PciSnapshot(machine.snapshot()));
  for (const char* id : kHiddenChecks) {
    EXPECT_EQ(of_check(seeing, id), of_check(machine.before(), id)) << id;
    EXPECT_NE(worst(machine.before(), id), Verdict::kUnknown) << id;
    EXPECT_EQ(worst(blind, id), Verdict::kUnknown) << id;
  }
  EXPECT_EQ(seeing, machine.before());
}

INSTANTIATE_TEST_SUITE_P(Fixtures, PciSnapshotOf,
                         testing::Values("dgx-h100-like", "dgx-h100-broken"));

TEST(PciSnapshot, PassesAndFailsWhereItWasUnknown) {
  const Unprivileged well("dgx-h100-like");
  const Unprivileged ill("dgx-h100-broken");
  EXPECT_EQ(worst(well.findings(PciSnapshot(well.snapshot())), "acs"), Verdict::kPass);
  EXPECT_EQ(worst(ill.findings(PciSnapshot(ill.snapshot())), "acs"), Verdict::kFail);
}

TEST(PciSnapshot, SaysNothingOfAnotherDeviceInThePlace) {
  const Unprivileged machine("dgx-h100-like");
  const std::string bridge = "0000:17:00.0";
  const auto verdict = [&] {
    for (const auto& finding : machine.findings(PciSnapshot(machine.snapshot()))) {
      if (finding.id == "acs" && finding.subject == bridge) return finding.verdict;
    }
    return Verdict::kSkip;
  };
  EXPECT_EQ(verdict(), Verdict::kPass);
  {
    std::fstream header(machine.config(bridge), std::ios::in | std::ios::out | std::ios::binary);
    header.seekp(2).put('\x01').put('\x02');
  }
  EXPECT_EQ(verdict(), Verdict::kUnknown);
  // A GPU that fell off the bus has no configuration, even if it was recorded.
  std::ofstream(machine.config(bridge), std::ios::binary) << std::string(64, '\xff');
  EXPECT_EQ(PciSnapshot(machine.snapshot()).config_of(bridge, std::string(64, '\xff')), "");
}

TEST(PciSnapshot, OneThatIsNotWholeIsNone) {
  const Unprivileged machine("dgx-h100-like");
  EXPECT_EQ(PciSnapshot(machine.snapshot()).taken(), kThen);
  fs::remove(machine.snapshot() / "taken");
  EXPECT_FALSE(PciSnapshot(machine.snapshot()).taken());
  EXPECT_EQ(worst(machine.findings(PciSnapshot(machine.snapshot())), "acs"), Verdict::kUnknown);
  std::ofstream(machine.snapshot() / "taken") << "yesterday\n";
  EXPECT_FALSE(PciSnapshot(machine.snapshot()).taken());
  EXPECT_FALSE(PciSnapshot("/nowhere").taken());
}

TEST(PciSnapshot, ReplacesAnOlderOne) {
  const Unprivileged machine("dgx-h100-like");
  std::ofstream(machine.snapshot() / "0000:ff:00.0") << "gone since";
  std::set<std::string> before;
  for (const auto& name : list_names(machine.snapshot())) before.insert(name);
  ASSERT_TRUE(write_pci_snapshot(machine.tree().root(), machine.snapshot(), kThen + 1h));
  EXPECT_FALSE(fs::exists(machine.snapshot() / "0000:ff:00.0"));
  EXPECT_EQ(list_names(machine.snapshot()).size(), before.size() - 1);
  EXPECT_EQ(PciSnapshot(machine.snapshot()).taken(), kThen + 1h);
}

TEST(PciSnapshot, NamesTheFileThatItCannotWrite) {
  const NodeTree tree("dgx-h100-like");
  tree.write("occupied", "a file");
  const auto written = write_pci_snapshot(tree.root(), tree.folder() / "occupied", kThen);
  ASSERT_FALSE(written);
  EXPECT_THAT(written.error().message, HasSubstr("occupied"));
  EXPECT_THAT(written.error().message, HasSubstr("has room"));
}

TEST(LookedBefore, SaysHowOldItIs) {
  const Unprivileged machine("dgx-h100-like");
  const PrivilegedScanFiles files{machine.snapshot(),
                                  machine.tree().folder() / "look/registrations.json"};
  EXPECT_EQ(ages_text(files, read_privileged_scan(files), kThen + 90min),
            "PCI configuration of 1h30m ago, no registrations");
  Registrations tried;
  tried.taken = kThen + 1h;
  machine.tree().write("look/registrations.json", registrations_json(tried));
  EXPECT_EQ(ages_text(files, read_privileged_scan(files), kThen + 90min),
            "PCI configuration of 1h30m ago, registrations of 30m ago");
  // The clock was set back since then.
  EXPECT_EQ(ages_text(files, read_privileged_scan(files), kThen),
            "PCI configuration of 0s ago, registrations of 0s ago");
  tried.taken.reset();
  machine.tree().write("look/registrations.json", registrations_json(tried));
  EXPECT_THAT(ages_text(files, read_privileged_scan(files), kThen),
              HasSubstr("registrations of an unknown time"));
  EXPECT_EQ(ages_text({}, read_privileged_scan({}), kThen), "");
  machine.tree().write("look/registrations.json", "{");
  EXPECT_THAT(read_privileged_scan(files).problem,
              HasSubstr("registrations.json: this is no report of paceline-probe"));
}

/// The program of the agent's one-shot container.
int look(const Unprivileged& machine, const std::string& more) {
  const std::string line = std::string(PACELINE_PROBE) + " --verbs libnowhere.so --sys " +
                           (machine.tree().folder() / "sys").string() + " --pci-config " +
                           machine.snapshot().string() + " --output " +
                           (machine.tree().folder() / "look/registrations.json").string() + " " +
                           more + " 2>/dev/null";
  const int status =
      std::system(line.c_str());  // NOLINT(concurrency-mt-unsafe): a test has one thread
  return WEXITSTATUS(status);
}

TEST(PrivilegedLook, EndsWellWhateverItFinds) {
  const Unprivileged machine("dgx-h100-like");
  const PrivilegedScanFiles files{machine.snapshot(),
                                  machine.tree().folder() / "look/registrations.json"};
  const auto before = std::chrono::floor<std::chrono::seconds>(SystemClock().wall());
  EXPECT_EQ(look(machine, "--exit-zero"), 0);
  const PrivilegedScan scan = read_privileged_scan(files);
  const auto after = SystemClock().wall();
  ASSERT_TRUE(scan.registrations && scan.registrations_taken() && scan.pci.taken());
  EXPECT_THAT(scan.registrations->problem, HasSubstr("libnowhere.so"));
  EXPECT_TRUE(*scan.pci.taken() >= before && *scan.pci.taken() <= after);
  EXPECT_TRUE(*scan.registrations_taken() >= before && *scan.registrations_taken() <= after);
  EXPECT_EQ(look(machine, ""), 2);  // for a person it could not look
  // If the report cannot be written, the older one is removed, so that no reader takes it for this
  // one.
  fs::create_directory(machine.tree().folder() / "look/registrations.json.new");
  fs::remove_all(machine.snapshot());
  machine.tree().write("look/pci-config", "a file");
  EXPECT_EQ(look(machine, "--exit-zero"), 0);
  EXPECT_FALSE(read_privileged_scan(files).registrations);
  EXPECT_FALSE(read_privileged_scan(files).pci.taken());
}

TEST(DoctorCommand, JudgesASnapshotAndSaysItsAge) {
  const Unprivileged machine("dgx-h100-broken");
  machine.tree().write("nvml.json", NodeTree::nvml_json("dgx-h100-broken"));
  cli::DoctorOptions options;
  options.machine.root = machine.tree().folder().string();
  options.pci_config = machine.snapshot().string();
  std::ostringstream out;
  std::ostringstream err;
  EXPECT_EQ(cli::doctor_command(options, out, err), 1);
  EXPECT_THAT(out.str(), HasSubstr("FAIL  acs"));
  EXPECT_THAT(err.str(), HasSubstr("recorded inputs: PCI configuration of "));
  options.pci_config = "/nowhere";
  EXPECT_EQ(cli::doctor_command(options, out, err), 2);
  EXPECT_THAT(
      err.str(),
      HasSubstr(
          "--pci-config /nowhere is not a complete recording: run paceline-probe --pci-config"));
}

}  // namespace
}  // namespace paceline::agent
