// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "agent/registration/registrations.hpp"
#include "cli/doctor/command.hpp"
#include "cli/fabric/command.hpp"
#include "testing/node_tree.hpp"

namespace paceline::agent {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

struct Answer {
  int code = 0;
  std::string out;
  std::string err;
};

Answer doctor(const std::filesystem::path& root, bool as_json = false) {
  cli::DoctorOptions options;
  options.machine.root = root.string();
  options.json = as_json;
  std::ostringstream out;
  std::ostringstream err;
  const int code = cli::doctor_command(options, out, err);
  return {code, out.str(), err.str()};
}

class GoldenDoctor : public testing::TestWithParam<const char*> {};

/// tests/fixtures/nodes/NAME.doctor holds the output of `paceline doctor --root`; its last line is
/// the exit code.
TEST_P(GoldenDoctor, SaysWhatIsWrongAndWhatToType) {
  const NodeTree tree(GetParam());
  tree.write("nvml.json", NodeTree::nvml_json(GetParam()));
  std::ifstream file(std::string(PACELINE_SOURCE_DIR) + "/tests/fixtures/nodes/" + GetParam() +
                     ".doctor");
  const std::string golden{std::istreambuf_iterator<char>(file), {}};
  const Answer answer = doctor(tree.folder());
  EXPECT_EQ(answer.out + "exit " + std::to_string(answer.code) + "\n", golden);
}

TEST_P(GoldenDoctor, SaysTheSameOfARecording) {
  const NodeTree tree(GetParam());
  tree.write("nvml.json", NodeTree::nvml_json(GetParam()));
  cli::FabricOptions options;
  options.machine.root = tree.folder().string();
  options.record = (tree.folder() / "recorded").string();
  std::ostringstream said;
  ASSERT_EQ(cli::fabric_command(options, said, said), 0) << said.str();
  const Answer before = doctor(tree.folder());
  const Answer after = doctor(options.record);
  EXPECT_EQ(after.code, before.code);
  EXPECT_EQ(after.out, before.out);
}

INSTANTIATE_TEST_SUITE_P(Fixtures, GoldenDoctor,
                         testing::Values("dgx-h100-like", "dgx-h100-broken", "dgx-a100-like",
                                         "gb200-like", "two-socket-pcie", "cloud-vm-gpu", "h200-vm",
                                         "cloud-vm-rdma", "xe9680-spare-ports", "aws-p5en-half",
                                         "cloud-vm", "nothing"));

/// The status of each check in doctor's JSON.
std::map<std::string, std::string> statuses(const Answer& answer) {
  std::map<std::string, std::string> found;
  const json document = json::parse(answer.out);
  for (const auto& check : document["checks"]) found[check["id"]] = check["status"];
  return found;
}

/// For what a topology file tells, the result is as on the machine; for the rest it is unknown, and
/// never worse.
TEST_P(GoldenDoctor, TellsOfATopologyFileNoMoreThanIsInIt) {
  const NodeTree tree(GetParam());
  tree.write("nvml.json", NodeTree::nvml_json(GetParam()));
  cli::FabricOptions exported;
  exported.machine.root = tree.folder().string();
  exported.export_nccl_topo = true;
  std::ostringstream topology;
  std::ostringstream said;
  ASSERT_EQ(cli::fabric_command(exported, topology, said), 0) << said.str();
  tree.write("topo.xml", topology.str());
  cli::DoctorOptions options;
  options.machine.nccl_topo = (tree.folder() / "topo.xml").string();
  options.json = true;
  std::ostringstream out;
  const int code = cli::doctor_command(options, out, said);
  const auto here = statuses(doctor(tree.folder(), true));
  // NCCL lists neither a port that is down nor a NIC's board, so such a NIC is missing in the file.
  const std::set<std::string> of_missing_nics{"port-state", "port-rate", "gpu-nic-distance"};
  const bool misses_nics = here.at("port-state") == "fail";
  int same = 0;
  for (const auto& [id, status] : statuses({code, out.str(), {}})) {
    const bool untold =
        status == "unknown" || status == "skip" || (misses_nics && of_missing_nics.contains(id));
    // A file tells a narrow link, and not whether the slot could do more.
    const bool milder = id == "pcie-link" && status == "warn" && here.at(id) == "fail";
    EXPECT_TRUE(untold || milder || status == here.at(id))
        << id << " is " << status << ", on the machine " << here.at(id);
    same += untold ? 0 : 1;
  }
  if (std::string_view(GetParam()) == "dgx-h100-like") {
    EXPECT_GE(same, 2) << out.str();
  }
}

TEST(DoctorCommand, EndsWithOneOnlyWhereSomethingFails) {
  const NodeTree tree("dgx-a100-like");
  tree.write("nvml.json", NodeTree::nvml_json("dgx-a100-like"));
  const Answer warned = doctor(tree.folder());
  EXPECT_EQ(warned.code, 0);
  EXPECT_THAT(warned.out, HasSubstr("WARN  dmabuf"));
  tree.write("sys/class/infiniband/mlx5_3/ports/1/state", "1: DOWN\n");
  const Answer failed = doctor(tree.folder());
  EXPECT_EQ(failed.code, 1);
  EXPECT_THAT(
      failed.out,
      testing::StartsWith("FAIL  port-state              mlx5_3/1: DOWN, LinkUp\n      remedy: "));
}

TEST(DoctorCommand, GivesProgramsEveryFinding) {
  const NodeTree tree("dgx-h100-broken");
  tree.write("nvml.json", NodeTree::nvml_json("dgx-h100-broken"));
  const Answer answer = doctor(tree.folder(), true);
  EXPECT_EQ(answer.code, 1);
  const json view = json::parse(answer.out);
  EXPECT_EQ(view["version"], 1);
  EXPECT_EQ(view["warned"], 4);
  int failed = 0;
  for (const auto& check : view["checks"]) {
    failed += check["status"] == "fail" ? 1 : 0;
    EXPECT_FALSE(check["findings"].empty()) << check["id"];
    EXPECT_EQ(check.contains("remedy"), check["status"] == "fail" || check["status"] == "warn")
        << check["id"];
    if (check["id"] != "port-rate") continue;
    EXPECT_EQ(check["where"], "daemon");
    EXPECT_EQ(check["findings"].size(), 7U);  // all NICs but the one that is down
    EXPECT_EQ(check["findings"][2]["subject"], "mlx5_2/1");
    EXPECT_EQ(check["findings"][2]["status"], "fail");
    EXPECT_EQ(check["findings"][0]["status"], "pass");
  }
  EXPECT_EQ(view["failed"], failed);
}

TEST(DoctorCommand, WithoutPrivilegeItSaysWhatItCouldNotSee) {
  const NodeTree tree("dgx-h100-like");
  tree.write("nvml.json", NodeTree::nvml_json("dgx-h100-like"));
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(tree.folder() / "sys/devices")) {
    if (entry.is_regular_file() && entry.path().filename() == "config")
      std::filesystem::resize_file(entry.path(), 64);
  }
  const Answer answer = doctor(tree.folder());
  EXPECT_THAT(
      answer.out,
      HasSubstr(
          "  acs                     0000:16:00.0, 0000:17:00.0, 0000:17:02.0, 0000:3e:00.0 and "
          "20 more: only 64 bytes of its configuration space can be read: that takes root"));
  EXPECT_THAT(answer.out, Not(HasSubstr("FAIL  acs")));
}

TEST(DoctorCommand, AGpuWithoutItsLibraryIsSaidFirst) {
  const NodeTree tree("dgx-h100-like");
  const Answer answer = doctor(tree.folder());
  EXPECT_THAT(answer.err, HasSubstr("warning: 8 NVIDIA GPU(s) on the PCI bus"));
  EXPECT_THAT(answer.out, HasSubstr("nvlink                  NVML shows no GPU"));
  EXPECT_EQ(answer.code, 1);  // its port without a link
  tree.remove("sys/class/infiniband");
  EXPECT_EQ(doctor(tree.folder()).code, 2);
  EXPECT_THAT(doctor(tree.folder(), true).err, HasSubstr("NVML does not answer"));
}

TEST(DoctorCommand, AGpuThatFellOffTheBusFails) {
  const NodeTree tree("cloud-vm-rdma");
  tree.write("nvml.json", NodeTree::nvml_json("cloud-vm-rdma"));
  EXPECT_EQ(doctor(tree.folder()).code, 0);
  tree.write("sys/bus/pci/devices/0000:00:05.0/config", std::string(64, '\xff'));
  const Answer answer = doctor(tree.folder());
  EXPECT_EQ(answer.code, 1);
  EXPECT_THAT(answer.out,
              testing::StartsWith("FAIL  gpu-health              GPU1: fell off the PCI bus"));
  const json view = json::parse(doctor(tree.folder(), true).out);
  EXPECT_EQ(view["checks"][0]["id"], "gpu-health");
  EXPECT_THAT(view["checks"][0]["remedy"].get<std::string>(), HasSubstr("Xid 79"));
}

TEST(DoctorCommand, JudgesWhatTheProbeReported) {
  const NodeTree tree("dgx-h100-like");
  tree.write("nvml.json", NodeTree::nvml_json("dgx-h100-like"));
  Registrations found;
  for (int i = 0; i < 8; ++i) {
    found.attempts.push_back({Step::kDmaBuf, "mlx5_" + std::to_string(i), "0000:1b:00.0",
                              i == 3 ? Outcome::kRefused : Outcome::kDone, i == 3 ? 95 : 0,
                              i == 3 ? "ibv_reg_dmabuf_mr: Operation not supported" : ""});
  }
  tree.write("report.json", registrations_json(found));
  cli::DoctorOptions options;
  options.machine.root = tree.folder().string();
  options.registrations = (tree.folder() / "report.json").string();
  std::ostringstream out;
  std::ostringstream err;
  EXPECT_EQ(cli::doctor_command(options, out, err), 1);
  EXPECT_THAT(
      out.str(),
      testing::StartsWith("FAIL  dmabuf                  GPU0 mlx5_3: ibv_reg_dmabuf_mr: Operation "
                          "not supported\n      remedy: install the driver"));
  tree.write("report.json", "{}");
  EXPECT_EQ(cli::doctor_command(options, out, err), 2);
  EXPECT_THAT(err.str(),
              HasSubstr("report.json: this is no report of paceline-probe: version is not 1"));
}

TEST(DoctorCommand, TriesOnlyTheMachineThatItIsOn) {
  const NodeTree tree("nothing");
  tree.write("nvml.json", NodeTree::nvml_json("nothing"));
  cli::DoctorOptions options;
  options.live = true;
  options.machine.root = tree.folder().string();
  std::ostringstream out;
  std::ostringstream err;
  EXPECT_EQ(cli::doctor_command(options, out, err), 2);
  EXPECT_THAT(err.str(), HasSubstr("--live uses the devices of this machine, and --root "));
  // This machine with its devices, and libraries that show none.
  options.machine.root.clear();
  options.probe = PACELINE_PROBE;
  options.probe_arguments = {"--verbs", "libnowhere.so"};
  err.str("");
  cli::doctor_command(options, out, err);
  EXPECT_THAT(err.str(),
              HasSubstr("warning: libibverbs cannot be used (libnowhere.so: cannot open"));
  options.probe = "/nowhere/paceline-probe";
  err.str("");
  cli::doctor_command(options, out, err);
  EXPECT_THAT(
      err.str(),
      HasSubstr("warning: paceline-probe gave no result: cannot start /nowhere/paceline-probe"));
}

TEST(DoctorCommand, EndsWithTwoWhereItCannotLook) {
  const Answer nowhere = doctor("/nowhere");
  EXPECT_EQ(nowhere.code, 2);
  EXPECT_EQ(nowhere.out, "");
  EXPECT_THAT(nowhere.err,
              testing::StartsWith("paceline doctor: --root /nowhere has no folder sys"));
  const NodeTree tree("nothing");
  tree.write("nvml.json", "{\"version\": 3}");
  const Answer broken = doctor(tree.folder());
  EXPECT_EQ(broken.code, 2);
  EXPECT_THAT(broken.err, HasSubstr("nvml.json: field devices is missing"));
}

}  // namespace
}  // namespace paceline::agent
