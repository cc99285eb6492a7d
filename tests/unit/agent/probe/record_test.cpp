// SPDX-License-Identifier: Apache-2.0
#include "agent/probe/record/record.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>
#include <string>

#include "agent/probe/fabric/fabric.hpp"
#include "agent/probe/formats/nvml_json.hpp"
#include "agent/probe/pci/pci_config.hpp"
#include "agent/probe/probe.hpp"
#include "agent/probe/sysfs/devices.hpp"
#include "cli/fabric/command.hpp"
#include "testing/node_tree.hpp"

namespace paceline::agent {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

struct Said {
  int code = 0;
  std::string out;
  std::string err;
};

Said fabric(const cli::FabricOptions& options) {
  std::ostringstream out;
  std::ostringstream err;
  const int code = cli::fabric_command(options, out, err);
  return {code, out.str(), err.str()};
}

cli::FabricOptions at(const fs::path& root) {
  cli::FabricOptions options;
  options.machine.root = root.string();
  return options;
}

class Recording : public testing::TestWithParam<const char*> {};

TEST_P(Recording, GivesTheSameMatrixAsTheMachine) {
  const NodeTree tree(GetParam());
  tree.write("nvml.json", NodeTree::nvml_json(GetParam()));
  const Said before = fabric(at(tree.folder()));
  ASSERT_EQ(before.code, 0) << before.err;

  auto options = at(tree.folder());
  options.record = (tree.folder() / "recorded").string();
  const Said recorded = fabric(options);
  ASSERT_EQ(recorded.code, 0) << recorded.err;
  auto again = at(options.record);
  again.machine.nvml = options.record + "/nvml.json";
  const Said after = fabric(again);
  EXPECT_EQ(after.code, 0);
  // The domain's UUID is replaced, on purpose.
  const auto without_domain = [](std::string text) {
    if (const auto line = text.find("NVLink domain:"); line != std::string::npos)
      text.erase(line, text.find('\n', line) - line);
    return text;
  };
  EXPECT_EQ(without_domain(after.out), without_domain(before.out));
  EXPECT_EQ(after.err, before.err);
}

INSTANTIATE_TEST_SUITE_P(Fixtures, Recording,
                         testing::Values("dgx-h100-like", "dgx-a100-like", "gb200-like",
                                         "two-socket-pcie", "cloud-vm-gpu", "h200-vm",
                                         "cloud-vm-rdma", "xe9680-spare-ports", "aws-p5en-half",
                                         "cloud-vm", "nothing"));

TEST(Scrubbing, LeavesNothingThatIdentifies) {
  const NodeTree tree("two-socket-pcie");
  const std::string secret = "0c42a1b7c9d2";
  const std::string nic = "sys/devices/pci0000:a0/0000:a0:01.0/0000:a1:00.0";
  tree.write(nic + "/net/enx" + secret + "/type", "1");
  tree.write(nic + "/net/enx" + secret + "/address", "0c:42:a1:b7:c9:d2");
  fs::create_symlink("../../devices/pci0000:a0/0000:a0:01.0/0000:a1:00.0/net/enx" + secret,
                     tree.folder() / ("sys/class/net/enx" + secret));
  fs::create_symlink("../../../0000:a1:00.0",
                     tree.folder() / (nic + "/net/enx" + secret + "/device"));
  const std::string port = nic + "/infiniband/mlx5_1/ports/1/";
  tree.write(port + "gids/0", "fe80:0000:0000:0000:0e42:a1ff:feb7:c9d2");
  tree.write(port + "gids/3", "0000:0000:0000:0000:0000:ffff:0a11:2233");
  tree.write(port + "gid_attrs/ndevs/3", "enx" + secret);
  tree.write(nic + "/infiniband/mlx5_1/node_guid", "0c42:a1ff:feb7:c9d2");
  tree.write(nic + "/infiniband/mlx5_1/node_desc", "secret-host HCA-1");
  tree.write("proc/cmdline",
             "BOOT_IMAGE=/vmlinuz root=UUID=11112222-3333 intel_iommu=on iommu=pt ip=10.1.2.3");
  std::string config(0x200, '\0');
  config[0] = '\x86';
  config[0x100] = 3;  // serial number
  config[0x102] = 1;
  config.replace(0x104, 8, "SERIALNO");
  tree.write(nic + "/config", config);

  const auto library = read_nvml_json(NodeTree::nvml_json("gb200-like"), "nvml");
  const auto files = record_machine(tree.root(), **library);
  std::string all;
  for (const auto& file : files) all += file.path + "\n" + file.text + "\n";
  for (const char* identifying : {"0c42a1", "0c:42", "0e42:a1", "0c42:a1", "0a11:2233",
                                  "secret-host", "UUID=", "10.1.2.3", "SERIALNO", "5a3c1f6e"}) {
    EXPECT_THAT(all, Not(HasSubstr(identifying)));
  }
  // What the checks need is still there.
  EXPECT_THAT(all, HasSubstr("intel_iommu=on iommu=pt"));
  EXPECT_THAT(all, HasSubstr("0000:0000:0000:0000:0000:ffff:c000:02"));
  EXPECT_THAT(all, HasSubstr("fe80:0000"));
  EXPECT_THAT(all, HasSubstr("\"cliqueId\": 32766"));
  const fs::path folder = tree.folder() / "recorded";
  ASSERT_TRUE(write_recording(files, folder));
  const auto rdma = probe_rdma(Root::at(folder));
  EXPECT_EQ(rdma[1].ports[0].gids[3].netdev, "enx0");
}

TEST(Scrubbing, FollowsNoEndlessCapabilityList) {
  std::string config(4096, '\0');
  config[6] = 0x10;
  config[0x34] = 0x40;
  config[0x40] = 3;
  config[0x41] = 0x40;  // leads to itself
  config.replace(0x44, 4, "DATA");
  config[0x100] = 1;
  config[0x103] = 0x10;  // leads to itself
  const std::string scrubbed = scrub_config(config);
  EXPECT_EQ(scrubbed.substr(0x44, 4), std::string(4, '\0'));
  EXPECT_EQ(scrub_config(std::string(3, '\xff')), std::string(3, '\xff'));
  EXPECT_EQ(scrub_config(std::string(4096, '\xff')).size(), 4096U);
}

TEST(Scrubbing, BytesOfALibraryBecomeJson) {
  Gpu gpu;
  gpu.pci_address = "0000:19:00.0";
  gpu.model = "a \"GPU\"\n\xff";
  const auto library = read_nvml_json(nvml_json_text(std::vector<Gpu>{gpu}), "n");
  ASSERT_TRUE(library) << library.error().message;
  EXPECT_EQ((*library)->devices().value()[0].model, "a \"GPU\"??");
}

TEST(RecordingFolder, MustBeItsOwn) {
  const NodeTree tree("nothing");
  auto options = at(tree.folder());
  options.record = (tree.folder() / "sys").string();
  const Said said = fabric(options);
  EXPECT_EQ(said.code, 2);
  EXPECT_THAT(said.err, HasSubstr("is not empty"));
  EXPECT_THAT(said.err, HasSubstr("give another one"));
}

TEST(RecordingFolder, NothingIsWrittenOutside) {
  const NodeTree tree("nothing");
  const fs::path folder = tree.folder() / "in/recorded";
  ASSERT_TRUE(write_recording({{"../../escaped", "x", false},
                               {"/tmp/escaped", "x", false},
                               {"a/link", "../../../out", true},
                               {"a/b", "y", false}},
                              folder));
  EXPECT_FALSE(fs::exists(tree.folder() / "escaped"));
  EXPECT_FALSE(fs::exists(folder / "a/link"));
  EXPECT_TRUE(fs::exists(folder / "a/b"));
}

TEST(FabricCommand, ExplainsWhatItShows) {
  const NodeTree tree("two-socket-pcie");
  auto options = at(tree.folder());
  const Said bare = fabric(options);
  EXPECT_EQ(bare.code, 0);
  EXPECT_THAT(bare.err, HasSubstr("give one with --nvml FILE"));
  EXPECT_THAT(bare.out, HasSubstr("0000:19:00.0"));
  tree.write("nvml.json", NodeTree::nvml_json("two-socket-pcie"));
  const Said said = fabric(options);
  EXPECT_EQ(said.err, "");
  EXPECT_THAT(said.out, HasSubstr("GPU0    X     PHB   SYS   SYS   PIX     SYS     0"));
  EXPECT_THAT(said.out, HasSubstr("Legend, nearest first:"));
  options.json = true;
  const Said machine = fabric(options);
  EXPECT_THAT(machine.out, HasSubstr("\"gpuToNic\""));
  options.json = false;
  options.export_nccl_topo = true;
  tree.write("topo.xml", fabric(options).out);
  cli::FabricOptions topology;
  topology.machine.nccl_topo = (tree.folder() / "topo.xml").string();
  EXPECT_THAT(fabric(topology).out, HasSubstr("GPU0    X     PHB   SYS   SYS   PIX     SYS     0"));
}

TEST(FabricCommand, NamesTheOptionThatIsWrong) {
  const NodeTree tree("nothing");
  EXPECT_THAT(fabric(at("/nowhere")).err, HasSubstr("--root /nowhere has no folder sys"));
  auto options = at(tree.folder());
  options.machine.nvml = "/nowhere.json";
  EXPECT_THAT(fabric(options).err, HasSubstr("--nvml /nowhere.json cannot be read"));
  options.machine.nccl_topo = "t.xml";
  const Said both = fabric(options);
  EXPECT_EQ(both.code, 2);
  EXPECT_THAT(both.err, HasSubstr("--nccl-topo t.xml cannot be read"));
  options.machine.root.clear();
  EXPECT_THAT(fabric(options).err, HasSubstr("add --root, or leave out --nvml"));
}

}  // namespace
}  // namespace paceline::agent
