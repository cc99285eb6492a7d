// SPDX-License-Identifier: Apache-2.0
// The real program paceline-probe with fake driver libraries: its report on devices that work,
// refuse, hang and crash.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "agent/registration/probe_process.hpp"
#include "testing/node_tree.hpp"

namespace paceline::agent {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

constexpr const char* kGpu0 = "0000:1b:00.0";

/// Sets the answers of the libraries for one test.
class FakeDrivers {
 public:
  FakeDrivers(const char* variable, const std::string& value) : variable_(variable) {
    ::setenv(variable, value.c_str(), 1);
  }
  FakeDrivers(const FakeDrivers&) = delete;
  FakeDrivers& operator=(const FakeDrivers&) = delete;
  ~FakeDrivers() { ::unsetenv(variable_); }

 private:
  const char* variable_;
};

// Also a busy machine ends a process within this.
constexpr std::chrono::seconds kUntilDead{60};

ProbeCommand probe_command() {
  ProbeCommand command;
  command.program = PACELINE_PROBE;
  command.arguments = {"--child",          "--verbs", PACELINE_FAKE_IBVERBS, "--cuda",
                       PACELINE_FAKE_CUDA, "--nvml",  PACELINE_FAKE_NVML};
  command.until_dead = kUntilDead;
  return command;
}

/// The attempt of this step; the test fails if there is none.
Attempt find(const Registrations& found, Step step, const std::string& nic = {},
             const std::string& gpu = {}) {
  for (const auto& attempt : found.attempts) {
    if (attempt.step == step && attempt.nic == nic && attempt.gpu == gpu) return attempt;
  }
  ADD_FAILURE() << "no attempt: " << describe({step, nic, gpu, Outcome::kDone, 0, {}});
  return {};
}

TEST(Registration, TriesEveryPairInBothWays) {
  const auto found = run_probe_process(probe_command());
  EXPECT_EQ(found.problem, "");
  // Devices; for each NIC open, host memory, port, driver; GPUs; for each GPU its memory, its link,
  // its NVLink domain and two ways to two NICs.
  EXPECT_EQ(found.attempts.size(), 1U + 2 * 4 + 1 + 2 * (1 + 1 + 1 + 2 * 2));
  EXPECT_EQ(find(found, Step::kPort, "mlx5_0").saw, "port 1 MTU 1024 of 4096");
  for (const auto& attempt : found.attempts) {
    // sysfs does not have these GPUs.
    EXPECT_EQ(attempt.outcome,
              attempt.step == Step::kLinkLoad ? Outcome::kNotTried : Outcome::kDone)
        << describe(attempt);
  }
  EXPECT_FALSE(any_failed(found));
  find(found, Step::kPeerMemory, "mlx5_1", "0000:43:00.0");
}

TEST(Registration, ARefusalHasItsErrnoAndTheOthersGoOn) {
  const FakeDrivers drivers("FAKE_RULES", "open mlx5_0 13;peer * 14;driver mlx5_1 95");
  const auto found = run_probe_process(probe_command());
  EXPECT_EQ(find(found, Step::kOpen, "mlx5_0"),
            (Attempt{Step::kOpen, "mlx5_0", "", Outcome::kRefused, 13,
                     "ibv_open_device: Permission denied"}));
  EXPECT_EQ(find(found, Step::kDmaBuf, "mlx5_1", kGpu0).outcome, Outcome::kDone);
  EXPECT_EQ(find(found, Step::kPeerMemory, "mlx5_1", kGpu0).why, "ibv_reg_mr: Bad address");
  EXPECT_EQ(find(found, Step::kDmaBufDriver, "mlx5_1").error, 95);
  EXPECT_TRUE(any_failed(found));
}

TEST(Registration, ReadsAGpusLinkUnderLoad) {
  const NodeTree machine("dgx-h100-like");
  auto command = probe_command();
  command.arguments.insert(command.arguments.end(), {"--sys", (machine.folder() / "sys").string()});
  EXPECT_EQ(find(run_probe_process(command), Step::kLinkLoad, "", kGpu0).saw, "32.0 GT/s PCIe x16");
  {
    const FakeDrivers drivers("FAKE_RULES", "copy * 700");
    const auto found = run_probe_process(command);
    EXPECT_EQ(find(found, Step::kLinkLoad, "", kGpu0).why, "cuMemcpyHtoD: CUDA_ERROR_UNKNOWN");
    EXPECT_TRUE(any_failed(found));
  }
  // A job's pod does not spend time on it.
  const FakeDrivers pod("PACELINE_JOB_NAME", "resnet");
  for (const auto& attempt : run_probe_process(command).attempts)
    EXPECT_NE(attempt.step, Step::kLinkLoad);
}

TEST(Registration, SharesAGpusMemoryWithItsNvlinkDomain) {
  EXPECT_EQ(find(run_probe_process(probe_command()), Step::kFabricMemory, "", kGpu0).outcome,
            Outcome::kDone);
  {
    const FakeDrivers drivers("FAKE_RULES", "share 0000:1B:00.0 800;import 0000:43:00.0 801");
    const auto found = run_probe_process(probe_command());
    EXPECT_EQ(find(found, Step::kFabricMemory, "", kGpu0).why,
              "cuMemExportToShareableHandle: CUDA_ERROR_NOT_PERMITTED");
    EXPECT_EQ(find(found, Step::kFabricMemory, "", "0000:43:00.0").why,
              "cuMemImportFromShareableHandle: CUDA_ERROR_NOT_SUPPORTED");
    // A GPU may support domains on a node that is in none: the check judges that, not the probe.
    EXPECT_FALSE(any_failed(found));
  }
  const FakeDrivers none("FAKE_RULES", "domain * 1");
  EXPECT_EQ(find(run_probe_process(probe_command()), Step::kFabricMemory, "", kGpu0).outcome,
            Outcome::kNotTried);
}

TEST(Registration, OneWayIsEnough) {
  const FakeDrivers drivers("FAKE_RULES", "supported * 1");
  const auto found = run_probe_process(probe_command());
  EXPECT_THAT(find(found, Step::kDmaBuf, "mlx5_0", kGpu0).why, HasSubstr("cannot do dma-buf"));
  EXPECT_FALSE(any_failed(found));
  const FakeDrivers neither("FAKE_RULES", "export * 801;peer mlx5_1 14");
  const auto worse = run_probe_process(probe_command());
  EXPECT_EQ(find(worse, Step::kDmaBuf, "mlx5_1", kGpu0).why,
            "cuMemGetHandleForAddressRange: CUDA_ERROR_NOT_SUPPORTED");
  EXPECT_TRUE(any_failed(worse));
}

TEST(Registration, ADriverThatHangsIsNamedAndEndsAtTheLimit) {
  const FakeDrivers drivers("FAKE_RULES", "dmabuf mlx5_1 hang");
  auto command = probe_command();
  command.silence = std::chrono::seconds(8);  // a busy machine starts a program within this
  const auto found = run_probe_process(command);
  ASSERT_FALSE(found.attempts.empty());
  EXPECT_EQ(found.attempts.back(),
            (Attempt{Step::kDmaBuf, "mlx5_1", kGpu0, Outcome::kHung, 0, "no answer within 8 s"}));
  EXPECT_EQ(find(found, Step::kDmaBuf, "mlx5_0", kGpu0).outcome, Outcome::kDone);
  EXPECT_TRUE(any_failed(found));
}

TEST(Registration, ALibraryThatCrashesIsTheStepUnderWay) {
  const FakeDrivers drivers("FAKE_RULES", "open mlx5_1 die");
  const auto found = run_probe_process(probe_command());
  EXPECT_EQ(find(found, Step::kOpen, "mlx5_0").outcome, Outcome::kDone);
  EXPECT_EQ(found.attempts.back(), (Attempt{Step::kOpen, "mlx5_1", "", Outcome::kRefused, 0,
                                            "the process ended by signal 9 (Killed)"}));
}

TEST(Registration, LeavesGpusAloneThatWorkForOthers) {
  const FakeDrivers drivers("FAKE_NVML_BUSY", kGpu0);
  auto command = probe_command();
  const auto found = run_probe_process(command);
  EXPECT_THAT(find(found, Step::kGpuMemory, "", kGpu0).why,
              StartsWith("processes use it; with --even-busy"));
  for (const auto& attempt : found.attempts)
    EXPECT_TRUE(attempt.gpu != kGpu0 || attempt.step == Step::kGpuMemory);
  find(found, Step::kDmaBuf, "mlx5_0", "0000:43:00.0");
  EXPECT_FALSE(any_failed(found));
  command.arguments.emplace_back("--even-busy");
  find(run_probe_process(command), Step::kDmaBuf, "mlx5_0", kGpu0);
  // Without NVML no GPU counts as idle.
  command = probe_command();
  command.arguments.back() = "libnvidia-ml-that-is-nowhere.so.1";
  EXPECT_THAT(find(run_probe_process(command), Step::kGpuMemory, "", kGpu0).why,
              HasSubstr("NVML does not answer"));
}

TEST(Registration, SaysPlainlyThatThereIsNoDevice) {
  const FakeDrivers none("FAKE_NICS", "");
  EXPECT_EQ(run_probe_process(probe_command()).problem, "no RDMA device: libibverbs lists none");
  const FakeDrivers kernel("FAKE_NICS", "none");
  EXPECT_EQ(run_probe_process(probe_command()).problem,
            "no RDMA device: this kernel has no RDMA (ib_uverbs is not loaded)");
  auto command = probe_command();
  command.arguments[2] = "libibverbs-that-is-nowhere.so.1";
  const auto found = run_probe_process(command);
  EXPECT_THAT(found.problem, HasSubstr("libibverbs-that-is-nowhere.so.1"));
  EXPECT_THAT(found.problem, HasSubstr("install rdma-core"));
  for (const auto& attempt : found.attempts) EXPECT_EQ(attempt.nic, "");
  command.arguments[4] = "libcuda-that-is-nowhere.so.1";
  EXPECT_THAT(run_probe_process(command).attempts, IsEmpty());
}

TEST(Registration, ReadsAGpusLinkWithoutANicAsWell) {
  const NodeTree machine("dgx-h100-like");
  const FakeDrivers none("FAKE_NICS", "");
  auto command = probe_command();
  command.arguments.insert(command.arguments.end(), {"--sys", (machine.folder() / "sys").string()});
  const auto found = run_probe_process(command);
  EXPECT_EQ(find(found, Step::kLinkLoad, "", kGpu0).saw, "32.0 GT/s PCIe x16");
  EXPECT_EQ(found.problem, "no RDMA device: libibverbs lists none");
  const FakeDrivers pod("PACELINE_JOB_NAME", "resnet");
  for (const auto& attempt : run_probe_process(command).attempts)
    EXPECT_EQ(attempt.step, Step::kDevices);
}

TEST(Registration, AsksEveryPortAndAPortThatRefusesIsNoFailure) {
  const NodeTree machine("nothing");
  for (const char* port : {"1", "2", "3"})
    machine.write(std::string("sys/class/infiniband/mlx5_0/ports/") + port + "/state",
                  "4: ACTIVE\n");
  auto command = probe_command();
  command.arguments.insert(command.arguments.end(), {"--sys", (machine.folder() / "sys").string()});
  const FakeDrivers two("FAKE_PORTS", "2");
  const FakeDrivers drivers("FAKE_RULES", "port mlx5_1 5");
  const auto found = run_probe_process(command);
  std::vector<std::string> saw;
  for (const auto& attempt : found.attempts) {
    if (attempt.step == Step::kPort && attempt.nic == "mlx5_0" && !attempt.saw.empty())
      saw.push_back(attempt.saw);
  }
  EXPECT_EQ(saw, (std::vector<std::string>{"port 1 MTU 1024 of 4096", "port 2 MTU 1024 of 4096"}));
  EXPECT_EQ(find(found, Step::kPort, "mlx5_1").outcome, Outcome::kRefused);
  EXPECT_FALSE(any_failed(found));
}

TEST(Registration, TellsOfAPodWhatDecidesThere) {
  const NodeTree machine("dgx-h100-like");
  const FakeDrivers pod("PACELINE_JOB_NAME", "resnet");
  auto command = probe_command();
  command.arguments.insert(command.arguments.end(), {"--sys", (machine.folder() / "sys").string(),
                                                     "--nccl", PACELINE_FAKE_CUDA});
  const FakeDrivers library("FAKE_NCCL", "22105");
  EXPECT_FALSE(run_probe_process(command).nccl_version);  // nothing asks for it
  const FakeDrivers index("NCCL_IB_GID_INDEX", "3");
  const auto found = run_probe_process(command);
  EXPECT_EQ(found.nccl_version, 22105);
  EXPECT_EQ(found.job_nics.size(), 8U);
  EXPECT_TRUE(parse_cpu_list(found.cpus)) << found.cpus;
}

TEST(Registration, TriesHostMemoryWhereThereIsNoGpu) {
  auto command = probe_command();
  command.arguments[4] = "libcuda-that-is-nowhere.so.1";
  const auto found = run_probe_process(command);
  EXPECT_EQ(find(found, Step::kHostMemory, "mlx5_1").outcome, Outcome::kDone);
  EXPECT_EQ(find(found, Step::kGpus).outcome, Outcome::kNotTried);
  EXPECT_FALSE(any_failed(found));
  const FakeDrivers empty("FAKE_RULES", "init cuda 100");
  EXPECT_EQ(find(run_probe_process(probe_command()), Step::kGpus).outcome, Outcome::kNotTried);
  const FakeDrivers broken("FAKE_RULES", "init cuda 999");
  EXPECT_EQ(find(run_probe_process(probe_command()), Step::kGpus).outcome, Outcome::kRefused);
}

TEST(Registration, KnowsThatItRunsInAPodOfAJob) {
  EXPECT_FALSE(run_probe_process(probe_command()).in_pod);
  EXPECT_TRUE(run_probe_process(probe_command()).nccl.empty());
  const FakeDrivers pod("PACELINE_JOB_NAME", "resnet");
  const FakeDrivers nccl("NCCL_IB_DISABLE", "1");
  const auto found = run_probe_process(probe_command());
  EXPECT_TRUE(found.in_pod);
  EXPECT_THAT(found.nccl,
              testing::Contains(NcclSetting{"NCCL_IB_DISABLE", "1", "the environment"}));
  EXPECT_THAT(found.netdevs, testing::Contains("lo"));
}

TEST(RegistrationChild, AnswersOfAnotherProgramAreNone) {
  ProbeCommand command;
  command.until_dead = kUntilDead;
  command.program = "/nowhere/paceline-probe";
  EXPECT_THAT(run_probe_process(command).problem,
              HasSubstr("cannot start /nowhere/paceline-probe: No such file"));
  command.program = "/bin/sh";
  const std::map<std::string, std::string> scripts{
      {"exit 3", "exit code 3"},
      {"echo hello", "not a report of paceline-probe"},
      {"echo '{\"end\":{\"step\":\"open\",\"outcome\":\"so so\"}}'",
       "not a report of paceline-probe"},
      {"head -c 100000 /dev/zero | tr '\\0' x", "not a report of paceline-probe"}};
  for (const auto& [script, says] : scripts) {
    command.arguments = {"-c", script};
    const auto found = run_probe_process(command);
    EXPECT_THAT(found.problem, HasSubstr(says)) << script;
    EXPECT_THAT(found.attempts, IsEmpty()) << script;
  }
}

TEST(RegistrationChild, EndsOneThatTalksForEverWithItsChildren) {
  const NodeTree place("nothing");
  const std::string alive = (place.folder() / "alive").string();
  ASSERT_EQ(::mkfifo(alive.c_str(), 0600), 0);
  const int writers = ::open(alive.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  ProbeCommand command;
  command.until_dead = kUntilDead;
  command.program = "/bin/sh";
  command.arguments = {
      "-c", "exec 3>" + alive +
                "; sleep 1000 & while :; do "
                "echo '{\"begin\":{\"step\":\"open\",\"nic\":\"x\",\"outcome\":\"not-tried\"}}'; "
                "sleep 0.1; done"};
  command.whole = std::chrono::seconds(10);
  const auto found = run_probe_process(command);
  ASSERT_EQ(found.attempts.size(), 1U);
  EXPECT_EQ(found.attempts[0],
            (Attempt{Step::kOpen, "x", "", Outcome::kHung, 0, "not done within 10 s"}));
  // The shell and its child have it open; it hangs up when both are gone.
  pollfd waiting{writers, POLLIN, 0};
  EXPECT_EQ(::poll(&waiting, 1, 30000), 1);
  EXPECT_NE(waiting.revents & POLLHUP, 0);
  ::close(writers);
}

TEST(RegistrationReport, IsReadAsItWasWritten) {
  Registrations found;
  found.in_pod = true;
  found.memlock_bytes = 65536;
  found.attempts = {
      {Step::kDevices, "", "", Outcome::kDone, 0, ""},
      {Step::kDmaBuf, "mlx5_0", kGpu0, Outcome::kRefused, 95, "ibv_reg_dmabuf_mr: no"},
      {Step::kPeerMemory, "mlx5_0", kGpu0, Outcome::kHung, 0, "no answer"}};
  found.nccl = {{"NCCL_IB_HCA", "mlx5_1", "/etc/nccl.conf"}};
  found.netdevs = {"lo", "eth0"};
  found.job_nics = {"mlx5_1"};
  found.cpus = "0-3";
  found.nccl_version = 22105;
  found.attempts[1].taken = WallTime(std::chrono::seconds(1'740'000'000));
  found.taken = WallTime(std::chrono::seconds(1'750'000'000));
  EXPECT_EQ(read_registrations(registrations_json(found)).value(), found);
  found = {};
  found.problem = "no RDMA device";
  EXPECT_EQ(read_registrations(registrations_json(found)).value(), found);
}

TEST(RegistrationReport, NonsenseIsNamed) {
  for (const auto& [text, says] : std::map<std::string, std::string>{
           {"", "not a JSON object"},
           {"[1]", "not a JSON object"},
           {"{}", "version is not 1"},
           {R"({"version":2,"attempts":[]})", "version is not 1"},
           {R"({"version":1})", "attempts is not a list"},
           {R"({"version":1,"attempts":[],"memlockBytes":-1})", "memlockBytes is -1"},
           {R"({"version":1,"attempts":["x"]})", "an attempt is not an object"},
           {R"({"version":1,"attempts":[],"taken":"noon"})", "taken is \"noon\""},
           {R"({"version":1,"attempts":[],"nccl":{}})", "nccl is not a list"},
           {R"({"version":1,"attempts":[],"nccl":[1]})", "a setting in nccl is not an object"},
           {R"({"version":1,"attempts":[],"netdevs":[1]})", "a name in netdevs is not a text"},
           {R"({"version":1,"attempts":[],"jobNics":"mlx5_0"})", "jobNics is not a list"},
           {R"({"version":1,"attempts":[],"ncclVersion":"2"})", "ncclVersion is \"2\""},
           {R"({"version":1,"attempts":[{"step":"open","outcome":"done","taken":3}]})",
            "taken is 3"},
           {R"({"version":1,"attempts":[{"step":"jump","outcome":"done"}]})", "step is \"jump\""},
           {R"({"version":1,"attempts":[{"step":"open","outcome":7}]})", "outcome is \"\""}}) {
    const auto report = read_registrations(text);
    ASSERT_FALSE(report) << text;
    EXPECT_THAT(report.error().message, HasSubstr(says));
  }
}

/// Runs the program as a person does; returns its exit code and its report.
struct ProbeRun {
  int code = 0;
  std::string report;
};

ProbeRun run_probe(const NodeTree& place, const std::string& verbs) {
  const std::string file = (place.folder() / "report.json").string();
  const std::string line = std::string(PACELINE_PROBE) + " --verbs " + verbs + " --cuda " +
                           PACELINE_FAKE_CUDA + " --nvml " + PACELINE_FAKE_NVML + " --output " +
                           file + " 2>/dev/null";
  const int status =
      std::system(line.c_str());  // NOLINT(concurrency-mt-unsafe): a test has one thread
  std::ifstream text(file);
  return {WEXITSTATUS(status), {std::istreambuf_iterator<char>(text), {}}};
}

TEST(RegistrationProgram, EndsAsItsReportSays) {
  const NodeTree place("nothing");
  const ProbeRun good = run_probe(place, PACELINE_FAKE_IBVERBS);
  EXPECT_EQ(good.code, 0);
  EXPECT_EQ(read_registrations(good.report).value().attempts.size(), 24U);
  {
    const FakeDrivers drivers("FAKE_RULES", "host mlx5_1 12");
    const ProbeRun bad = run_probe(place, PACELINE_FAKE_IBVERBS);
    EXPECT_EQ(bad.code, 1);
    EXPECT_THAT(bad.report, HasSubstr("Cannot allocate memory"));
  }
  {
    const FakeDrivers drivers("FAKE_NICS", "");
    EXPECT_EQ(run_probe(place, PACELINE_FAKE_IBVERBS).code, 0);
  }
  EXPECT_EQ(run_probe(place, "libnowhere.so").code, 2);
  // If a report cannot be written, no older one stays.
  std::filesystem::remove(place.folder() / "report.json");
  std::filesystem::create_directory(place.folder() / "report.json.new");
  EXPECT_EQ(run_probe(place, PACELINE_FAKE_IBVERBS).code, 2);
  EXPECT_FALSE(std::filesystem::exists(place.folder() / "report.json"));
}

}  // namespace
}  // namespace paceline::agent
