// SPDX-License-Identifier: Apache-2.0
#include "agent/probe/probe.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <string>

#include "agent/probe/gpu/probe_gpus.hpp"
#include "agent/probe/hardware/accelerator.hpp"
#include "agent/probe/sysfs/devices.hpp"
#include "testing/node_tree.hpp"

namespace paceline::agent {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// Sets the answers of the fake NVML for one test.
class FakeNvml {
 public:
  explicit FakeNvml(const char* gpus, const char* fail = nullptr) {
    setenv("FAKE_NVML_GPUS", gpus, 1);
    break_call(fail);
  }
  ~FakeNvml() {
    unsetenv("FAKE_NVML_GPUS");
    unsetenv("FAKE_NVML_FAIL");
  }
  static void break_call(const char* call) {
    call == nullptr ? unsetenv("FAKE_NVML_FAIL") : setenv("FAKE_NVML_FAIL", call, 1);
  }
};

TEST(CpuList, ReadsRangesAndRefusesNonsense) {
  EXPECT_THAT(parse_cpu_list("0-2,8").value(), ElementsAre(0, 1, 2, 8));
  EXPECT_THAT(parse_cpu_list("").value(), ElementsAre());
  for (const char* bad : {"3-1", "a", "-1", "0-", "1,,2", "0-99999999", "1 2"})
    EXPECT_FALSE(parse_cpu_list(bad)) << bad;
}

TEST(Files, NumbersInNamesCountAsNumbers) {
  const NodeTree tree("cloud-vm");
  for (const char* name : {"node10", "node9", "node2", "node", "other"})
    tree.write(std::string("sys/names/") + name, "");
  EXPECT_THAT(list_names(tree.root().sys() / "names"),
              ElementsAre("node", "node2", "node9", "node10", "other"));
}

TEST(Files, WhatCannotBeReadIsAbsent) {
  const NodeTree tree("cloud-vm");
  tree.write("sys/huge", std::string(3U << 20U, 'x'));
  EXPECT_EQ(read_text(tree.root().sys() / "huge").value().size(), 1U << 20U);
  EXPECT_FALSE(read_text(tree.root().sys() / "absent"));
  EXPECT_FALSE(read_text(tree.root().sys()));
  EXPECT_FALSE(read_number(tree.root().sys() / "huge"));
  EXPECT_FALSE(resolve(tree.root().sys() / "absent"));
}

TEST(CpuProbe, ReadsACloudMachine) {
  const NodeTree tree("cloud-vm");
  const Cpu cpu = probe_cpu(tree.root());
  EXPECT_EQ(cpu.model, "Intel(R) Xeon(R) Processor @ 2.50GHz");
  EXPECT_EQ(cpu.cores, 2);
  EXPECT_EQ(cpu.threads, 2);
  // 13199576 kB, rounded to 64 MiB
  EXPECT_THAT(cpu.numa_nodes, ElementsAre(NumaNode{0, "0-1", 12864}));
}

TEST(CpuProbe, CountsCoresOfBothSocketsOnce) {
  const NodeTree tree("dgx-h100-like");
  const Cpu cpu = probe_cpu(tree.root());
  EXPECT_EQ(cpu.cores, 8);
  EXPECT_EQ(cpu.threads, 16);
  ASSERT_EQ(cpu.numa_nodes.size(), 2U);
  EXPECT_EQ(cpu.numa_nodes[1].cpus, "4-7,12-15");
}

TEST(CpuProbe, KeepsNodesThatAreMemoryOnlyAndNamesArmParts) {
  const NodeTree tree("gb200-like");
  const Cpu cpu = probe_cpu(tree.root());
  EXPECT_EQ(cpu.model, "Arm implementer 0x41 part 0xd4f");
  ASSERT_EQ(cpu.numa_nodes.size(), 6U);
  EXPECT_EQ(cpu.numa_nodes[5], (NumaNode{5, "", 192000}));
}

TEST(CpuProbe, AKernelWithoutNumaIsOneNode) {
  const NodeTree tree("cloud-vm");
  tree.remove("sys/devices/system/node");
  EXPECT_THAT(probe_cpu(tree.root()).numa_nodes, ElementsAre(NumaNode{0, "0-1", 24128}));
}

TEST(CpuProbe, MemoryThatDiffersALittleIsTheSame) {
  const NodeTree tree("cloud-vm");
  const Cpu before = probe_cpu(tree.root());
  tree.write("sys/devices/system/node/node0/meminfo", "Node 0 MemTotal:       13199900 kB\n");
  EXPECT_EQ(probe_cpu(tree.root()), before);
}

TEST(NicProbe, LeavesOutWhatHasNoHardware) {
  const NodeTree tree("cloud-vm");
  const auto nics = probe_nics(tree.root());
  ASSERT_EQ(nics.size(), 1U);
  EXPECT_EQ(nics[0],
            (Nic{"eth0", "virtio_net", std::nullopt, 1400, std::nullopt, "0000:00:03.0", true}));
}

TEST(NicProbe, ReadsInfinibandAndLeavesOutVirtualFunctions) {
  const NodeTree tree("dgx-h100-like");
  const auto nics = probe_nics(tree.root());
  ASSERT_EQ(nics.size(), 9U);
  EXPECT_EQ(nics[0].name, "eth0");
  EXPECT_EQ(nics[1], (Nic{"ibs0", "mlx5_core", 400000, 4092, 0, "0000:18:00.0", true}));
  EXPECT_EQ(nics[6], (Nic{"ibs5", "mlx5_core", std::nullopt, 4092, 1, "0000:c0:00.0", false}));
}

TEST(GpuProbe, ReadsEveryGpuThroughTheLibrary) {
  const FakeNvml nvml("8");
  const NodeTree tree("dgx-h100-like");
  const auto library = open_nvml(PACELINE_FAKE_NVML);
  const GpuReport report = probe_gpus(probe_pci(tree.root()), *library);
  EXPECT_EQ(report.problem, "");
  ASSERT_EQ(report.gpus.size(), 8U);
  Gpu fifth{4, "NVIDIA H100 80GB HBM3", 81559, 1, "0000:9d:00.0", "nvidia.com/gpu"};
  fifth.uuid = "GPU-4";
  EXPECT_EQ(report.gpus[4], fifth);
}

TEST(GpuProbe, AddsTheErrorsOfALinkThatTheLibraryCounts) {
  const FakeNvml nvml("1");
  const auto library = open_nvml(PACELINE_FAKE_NVML);
  EXPECT_TRUE(library->devices()->front().nvlinks.empty());
  ::setenv("FAKE_NVML_ERRORS", "5", 1);
  const auto links = library->devices()->front().nvlinks;
  ::setenv("FAKE_NVML_FIELDS", "1", 1);
  const auto fifth = library->devices()->front().nvlinks;
  ::unsetenv("FAKE_NVML_FIELDS");
  ::unsetenv("FAKE_NVML_ERRORS");
  ASSERT_EQ(links.size(), 2U);
  EXPECT_EQ(links[1].errors, 15U);
  ASSERT_EQ(fifth.size(), 2U);
  EXPECT_EQ(fifth[1].errors, 25U);
}

TEST(GpuProbe, ReadsTheConditionOfAGpuWhereItTellsOne) {
  const FakeNvml nvml("1");
  const auto library = open_nvml(PACELINE_FAKE_NVML);
  EXPECT_EQ(library->devices()->front().condition, GpuCondition{});
  ::setenv("FAKE_NVML_RECOVERY", "2", 1);
  const GpuCondition condition = library->devices()->front().condition;
  ::unsetenv("FAKE_NVML_RECOVERY");
  EXPECT_EQ(condition, (GpuCondition{.uncorrected_errors = 5,
                                     .remapped_uncorrected = 2,
                                     .remapping_pending = true,
                                     .remapping_failed = false,
                                     .recovery_action = 2}));
}

TEST(GpuProbe, NamesAGpuThatFellOffTheBus) {
  const FakeNvml nvml("8", "gpu3");
  const NodeTree tree("dgx-h100-like");
  const auto library = open_nvml(PACELINE_FAKE_NVML);
  const GpuReport report = probe_gpus(probe_pci(tree.root()), *library);
  EXPECT_EQ(report.gpus.size(), 7U);
  EXPECT_THAT(report.problem, HasSubstr("not shown by NVML: 0000:61:00.0;"));
}

TEST(GpuProbe, GpusWithoutTheLibraryAreAProblemWithItsRemedy) {
  const NodeTree tree("dgx-h100-like");
  const auto library = open_nvml("libnvidia-ml-that-is-nowhere.so.1");
  const GpuReport report = probe_gpus(probe_pci(tree.root()), *library);
  EXPECT_TRUE(report.gpus.empty());
  EXPECT_THAT(report.problem, HasSubstr("8 NVIDIA GPU(s)"));
  EXPECT_THAT(report.problem, HasSubstr("libnvidia-ml-that-is-nowhere.so.1"));
  EXPECT_THAT(report.problem, HasSubstr("NVIDIA_DRIVER_CAPABILITIES=utility"));
}

TEST(GpuProbe, ANodeWithoutGpusHasNothingToMend) {
  const NodeTree tree("cloud-vm");
  const auto library = open_nvml("libnvidia-ml-that-is-nowhere.so.1");
  EXPECT_EQ(probe_gpus(probe_pci(tree.root()), *library), GpuReport{});
}

TEST(Nvml, StartsAgainAfterTheDriverWasReloaded) {
  const FakeNvml nvml("2", "init");
  const auto library = open_nvml(PACELINE_FAKE_NVML);
  const auto refused = library->devices();
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("Driver Not Loaded"));
  FakeNvml::break_call(nullptr);
  EXPECT_EQ(library->devices().value().size(), 2U);
  FakeNvml::break_call("count");
  ASSERT_FALSE(library->devices());
  FakeNvml::break_call(nullptr);
  EXPECT_EQ(library->devices().value().size(), 2U);
}

// nvidia-container-toolkit issue 48: `systemctl daemon-reload` takes the device files away.
TEST(Nvml, AContainerThatLostTheDeviceFilesKnowsNothingOfTheGpus) {
  const FakeNvml nvml("8", "index");
  const NodeTree tree("dgx-h100-like");
  const auto library = open_nvml(PACELINE_FAKE_NVML);
  const GpuReport report = probe_gpus(probe_pci(tree.root()), *library);
  EXPECT_EQ(report.unreadable.size(), 8U);
  EXPECT_THAT(report.library_problem, HasSubstr("Insufficient Permissions; restart this pod"));
  FakeNvml::break_call(nullptr);
  EXPECT_EQ(library->devices().value().size(), 8U);
}

TEST(Nvml, RefusesALibraryThatIsNotIt) {
  const auto library = open_nvml("libm.so.6");
  const auto devices = library->devices();
  ASSERT_FALSE(devices);
  EXPECT_THAT(devices.error().message, HasSubstr("libm.so.6 lacks a function of NVML"));
}

TEST(Nvml, AddressesAreWrittenAsSysfsWritesThem) {
  EXPECT_EQ(sysfs_address("00000000:3B:00.0"), "0000:3b:00.0");
  EXPECT_EQ(sysfs_address("00010000:01:00.0"), "10000:01:00.0");
  EXPECT_EQ(sysfs_address("00000009:01:00.0"), "0009:01:00.0");
}

}  // namespace
}  // namespace paceline::agent
