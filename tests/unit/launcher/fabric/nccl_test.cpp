// SPDX-License-Identifier: Apache-2.0
#include "launcher/fabric/nccl.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "tests/unit/launcher/fabric/machines.hpp"

namespace paceline::fabric {
namespace {

/// Eight GPUs with `groups`, and a pod's address on eth0.
Machine machine_of(const std::vector<Group>& groups, std::int64_t mbps = 10'000,
                   const std::string& vendor = "") {
  return {ports_of(groups), {"eth0", vendor, mbps}, 8};
}

/// Settings beyond the interface, as NAME=VALUE; one line each.
std::string set_by(const Machine& machine, const Job& job) {
  std::string text;
  for (const Setting& setting : advise(machine, job).settings) {
    if (!setting.name.ends_with("_IFNAME")) text += setting.name + "=" + setting.value + "\n";
  }
  return text;
}

Job job_of(int hosts = 4, int cpus = 12) { return {.hosts = hosts, .cpus = cpus}; }

const std::vector<Group> kAzure{{8, "ib", 400}, {1, "an", 100, "Ethernet"}};
const std::string kAzureList = "NCCL_IB_HCA==ib0:1,ib1:1,ib2:1,ib3:1,ib4:1,ib5:1,ib6:1,ib7:1\n";

TEST(NcclAdvice, TheInterfaceIsToldOnOneHostToo) {
  const Advice advice = advise(machine_of(kAzure), job_of(1));
  ASSERT_EQ(advice.settings.size(), 2U);
  EXPECT_EQ(advice.settings[0],
            (Setting{"GLOO_SOCKET_IFNAME", "eth0", "it has this pod's address"}));
  EXPECT_EQ(advice.settings[1],
            (Setting{"NCCL_SOCKET_IFNAME", "=eth0", "it has this pod's address"}));
  EXPECT_EQ(advice.transport, "");
  Job off = job_of(1);
  off.gpu_direct_off = true;
  EXPECT_EQ(set_by(machine_of({}), off), "NCCL_NET_GDR_LEVEL=LOC\n");
  EXPECT_TRUE(advise(Machine{}, job_of()).settings.empty());
}

TEST(NcclAdvice, RanksWithGpusGetTheProfilerPluginUnlessTheUserHasOne) {
  const std::string plugin = "/opt/paceline/lib/libpaceline_nccl.so";
  Job job = job_of(1);
  EXPECT_EQ(set_by(machine_of({}), job), "");
  job.profiler = plugin;
  const Advice advice = advise(machine_of({}), job);
  EXPECT_EQ(advice.settings.back(),
            (Setting{"NCCL_PROFILER_PLUGIN", plugin, "it counts and times NCCL's collectives"}));
  EXPECT_TRUE(advise(Machine{}, job).settings.empty());  // no GPU
  // It changes no ring, so it is set where NCCL's way to other hosts is left alone.
  job = job_of();
  job.profiler = plugin;
  job.left_alone = "spec.acceleration.numerics is Bitwise";
  EXPECT_EQ(set_by(machine_of({}), job), "NCCL_PROFILER_PLUGIN=" + plugin + "\n");
  job.user_sets = {{"NCCL_PROFILER_PLUGIN", "inspector"}};
  EXPECT_EQ(set_by(machine_of({}), job), "");
}

TEST(NcclAdvice, RdmaPortsAreChosenBetweenHostsOfGpus) {
  const Advice advice = advise(machine_of(kAzure), job_of());
  EXPECT_EQ(set_by(machine_of(kAzure), job_of()), kAzureList);
  EXPECT_EQ(advice.settings.back().reason, "left out: an0:1 (Ethernet beside InfiniBand)");
  EXPECT_EQ(advice.transport, "RDMA over 8 ports");
  Machine without_gpus = machine_of(kAzure);
  without_gpus.gpus = 0;
  EXPECT_EQ(set_by(without_gpus, job_of()), "");
}

TEST(NcclAdvice, ReasonsToLeaveNcclAlone) {
  struct Case {
    NcclSettings user_sets;
    std::string left_alone;
    std::string transport;
  };
  const std::vector<Case> cases{
      {{}, "PACELINE_DISABLE=1", "left to NCCL: PACELINE_DISABLE=1"},
      {{{"NCCL_IB_HCA", "an"}}, "", "RDMA over NCCL_IB_HCA=an"},
      {{{"NCCL_NET", "AWS Libfabric"}}, "", "the plugin of NCCL_NET=AWS Libfabric decides"},
      {{{"NCCL_NET_PLUGIN", "gib"}}, "", "the plugin of NCCL_NET_PLUGIN=gib decides"},
      {{{"NCCL_IB_DISABLE", "1"}}, "", "TCP over eth0: RDMA is turned off"},
      {{{"NCCL_NET", "socket"}}, "", "TCP over eth0: RDMA is turned off"},
  };
  for (const Case& one : cases) {
    Job job = job_of();
    job.user_sets = one.user_sets;
    job.left_alone = one.left_alone;
    EXPECT_EQ(set_by(machine_of(kAzure), job), "") << one.transport;
    EXPECT_EQ(advise(machine_of(kAzure), job).transport, one.transport);
  }
  Job words = job_of();
  words.user_sets = {{"NCCL_IB_DISABLE", "0"}, {"NCCL_NET_PLUGIN", "none"}, {"NCCL_NET", "ib"}};
  EXPECT_EQ(set_by(machine_of(kAzure), words), kAzureList);
  words.user_sets = {{"NCCL_IB_DISABLE", ""}, {"NCCL_NET_PLUGIN", ""}, {"NCCL_NET", ""}};
  EXPECT_EQ(set_by(machine_of(kAzure), words), kAzureList);
}

TEST(NcclAdvice, EfaBelongsToItsPlugin) {
  Machine machine = machine_of({{16, "rdmap", 200, "Unknown"}}, 100'000);
  for (RdmaPort& port : machine.ports) port.efa = true;
  EXPECT_EQ(set_by(machine, job_of()), "");
  EXPECT_EQ(advise(machine, job_of()).transport, "EFA: the plugin aws-ofi-nccl decides");
}

TEST(NcclAdvice, Ipv6IsToldOnlyWhereNoPortHasIpv4) {
  Machine machine = machine_of({{2, "roce", 200, "Ethernet"}});
  EXPECT_EQ(set_by(machine, job_of()), "");
  EXPECT_EQ(advise(machine, job_of()).old_gid_index, 3);
  for (RdmaPort& port : machine.ports) {
    port.ipv6_gid = true;
    port.ipv4_gid.reset();
  }
  EXPECT_EQ(set_by(machine, job_of()), "NCCL_IB_ADDR_FAMILY=AF_INET6\n");
  for (const char* name : {"NCCL_IB_GID_INDEX", "NCCL_IB_ADDR_FAMILY"}) {
    Job job = job_of();
    job.user_sets = {{name, "5"}};
    EXPECT_EQ(set_by(machine, job), "") << name;
    EXPECT_EQ(advise(machine_of({{2, "roce", 200, "Ethernet"}}), job).old_gid_index, -1) << name;
  }
}

TEST(NcclAdvice, ThreadsAndSocketsFollowSpeedAndCpus) {
  struct Case {
    std::string about;
    std::int64_t mbps;
    int cpus;
    std::string vendor;
    int number;  // of threads, and of sockets of each; 0: not set
  };
  const std::vector<Case> cases{
      {"100 Gbit/s, as NCCL's documentation says", 100'000, 12, "0x15b3", 4},
      {"more is not documented", 400'000, 24, "0x15b3", 4},
      {"a bond or a VLAN, with no PCI device behind it", 100'000, 12, "", 4},
      {"half the speed", 50'000, 12, "0x15b3", 2},
      {"25 Gbit/s: NCCL's default", 25'000, 12, "0x15b3", 0},
      {"a pair of virtual devices says 10 Gbit/s", 10'000, 12, "", 0},
      {"speed not known", 0, 12, "0x1af4", 0},
      {"four CPUs a rank", 100'000, 4, "0x15b3", 2},
      {"too few CPUs", 100'000, 3, "0x15b3", 0},
      {"AWS: NCCL chooses", 100'000, 12, "0x1d0f", 0},
      {"Google: NCCL chooses", 100'000, 12, "0x1ae0", 0},
  };
  for (const Case& one : cases) {
    const std::string number = std::to_string(one.number);
    EXPECT_EQ(set_by(machine_of({}, one.mbps, one.vendor), job_of(4, one.cpus)),
              one.number == 0
                  ? ""
                  : "NCCL_SOCKET_NTHREADS=" + number + "\nNCCL_NSOCKS_PERTHREAD=" + number + "\n")
        << one.about;
  }
  const Advice advice = advise(machine_of({}, 100'000), job_of());
  EXPECT_EQ(advice.settings.back().reason, "TCP over eth0 of 100 Gbit/s, with 12 CPUs a rank");
  EXPECT_EQ(advice.transport, "TCP over eth0: no RDMA device can be opened in this container");
}

TEST(NcclAdvice, ThreadsAndSocketsStayWhereTheUserDecidesOrRdmaActs) {
  const Machine fast = machine_of({}, 100'000);
  for (const char* name : {"NCCL_SOCKET_NTHREADS", "NCCL_NSOCKS_PERTHREAD", "NCCL_SOCKET_IFNAME"}) {
    Job job = job_of();
    job.user_sets = {{name, "1"}};
    EXPECT_EQ(set_by(fast, job), "") << name;
  }
  Job rdma_wanted = job_of();
  rdma_wanted.user_sets = {{"NCCL_NET", "IB"}};
  EXPECT_EQ(set_by(fast, rdma_wanted), "");
  EXPECT_EQ(set_by(machine_of({{8, "ib", 400}}, 100'000), job_of()), "");
  Machine down = machine_of({{8, "ib", 400}}, 100'000);
  for (RdmaPort& port : down.ports) port.active = false;
  EXPECT_EQ(advise(down, job_of()).transport, "TCP over eth0: no RDMA port here is active");
}

struct UserSettings : ::testing::Test {
  ~UserSettings() override { std::filesystem::remove_all(root); }
  void write(const std::string& file, const std::string& text) const {
    std::filesystem::create_directories((root / file).parent_path());
    std::ofstream(root / file) << text;
  }
  const std::filesystem::path root =
      std::filesystem::temp_directory_path() / ("pln-" + std::to_string(::getpid()));
};

TEST_F(UserSettings, TheEnvironmentIsBeforeTheUsersFileAndThatBeforeTheImages) {
  write("etc/nccl.conf",
        "NCCL_NET=IB\nNCCL_IB_HCA=image\n NCCL_DEBUG = WARN\r\n#NCCL_X=1\nNCCL_Y\n");
  write("home/me/.nccl.conf", "NCCL_IB_HCA==mlx5_1\nNCCL_NET=Socket\n");
  write("my.conf", "NCCL_NET=own\n");
  EXPECT_EQ(
      user_settings({{"HOME", "/home/me"}, {"NCCL_NET", "env"}, {"PATH", "/bin"}}, root),
      (NcclSettings{{"NCCL_NET", "env"}, {"NCCL_IB_HCA", "=mlx5_1"}, {"NCCL_DEBUG", "WARN"}}));
  EXPECT_EQ(user_settings({{"HOME", "/home/me"}, {"NCCL_CONF_FILE", "/my.conf"}}, root),
            (NcclSettings{{"NCCL_CONF_FILE", "/my.conf"},
                          {"NCCL_NET", "own"},
                          {"NCCL_IB_HCA", "image"},
                          {"NCCL_DEBUG", "WARN"}}));
  EXPECT_EQ(user_settings({}, root / "nothing"), NcclSettings{});
}

TEST_F(UserSettings, AnInterfaceOfTheImagesFileIsNotReplaced) {
  write("etc/nccl.conf", "NCCL_SOCKET_IFNAME=ib0\n");
  Job job = job_of(1);
  job.user_sets = user_settings({}, root);
  const Advice advice = advise(machine_of({}), job);
  ASSERT_EQ(advice.settings.size(), 1U);
  EXPECT_EQ(advice.settings[0].name, "GLOO_SOCKET_IFNAME");
}

}  // namespace
}  // namespace paceline::fabric
