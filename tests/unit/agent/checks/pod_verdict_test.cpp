// SPDX-License-Identifier: Apache-2.0
// What a job's pod is told before its first step: the verdict on the attempts made there, and the
// effect of NCCL's settings.
#include "agent/checks/pod_verdict.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>

#include <nlohmann/json.hpp>

#include "testing/node_tree.hpp"

namespace paceline::agent {
namespace {

using nlohmann::json;
using testing::HasSubstr;

/// Two GPUs and two NICs; both ways of registration work.
Registrations pod_that_works() {
  Registrations tried;
  tried.in_pod = true;
  tried.netdevs = {"lo", "eth0"};
  tried.attempts.push_back({Step::kDevices, "", "", Outcome::kDone, 0, ""});
  for (const char* nic : {"mlx5_0", "mlx5_1"}) {
    for (const Step step : {Step::kOpen, Step::kHostMemory, Step::kDmaBufDriver})
      tried.attempts.push_back({step, nic, "", Outcome::kDone, 0, ""});
  }
  tried.attempts.push_back({Step::kGpus, "", "", Outcome::kDone, 0, ""});
  for (const char* gpu : {"0000:1b:00.0", "0000:43:00.0"}) {
    tried.attempts.push_back({Step::kGpuMemory, "", gpu, Outcome::kDone, 0, ""});
    for (const char* nic : {"mlx5_0", "mlx5_1"}) {
      for (const Step step : {Step::kDmaBuf, Step::kPeerMemory})
        tried.attempts.push_back({step, nic, gpu, Outcome::kDone, 0, ""});
    }
  }
  return tried;
}

/// Gives these attempts this outcome.
void spoil(Registrations& tried, const std::function<bool(const Attempt&)>& which, Outcome outcome,
           const char* why) {
  for (auto& attempt : tried.attempts) {
    if (!which(attempt)) continue;
    attempt.outcome = outcome;
    attempt.why = why;
  }
}

std::function<bool(const Attempt&)> is(Step step, std::string nic = {}) {
  return [=](const Attempt& attempt) {
    return attempt.step == step && (nic.empty() || attempt.nic == nic);
  };
}

TEST(PodVerdict, ReadyWhereEveryPairHasOneWay) {
  auto tried = pod_that_works();
  EXPECT_EQ(judge_pod(tried), (PodVerdict{true, "", "", ""}));
  spoil(tried, is(Step::kPeerMemory), Outcome::kRefused, "ibv_reg_mr: Bad address");
  EXPECT_EQ(judge_pod(tried).ready, true);
  // The pointer works for a pair that dma-buf refuses.
  tried = pod_that_works();
  spoil(tried, is(Step::kDmaBufDriver), Outcome::kRefused, "Operation not supported");
  spoil(tried, is(Step::kDmaBuf), Outcome::kRefused, "Operation not supported");
  EXPECT_EQ(judge_pod(tried).ready, true);
}

TEST(PodVerdict, IsOfTheDevicesThatTrainingUses) {
  // A third device, for storage: it opens but does not support GPU memory.
  auto tried = pod_that_works();
  for (const Step step : {Step::kOpen, Step::kHostMemory, Step::kDmaBufDriver})
    tried.attempts.push_back({step, "bnxt_re0", "", Outcome::kDone, 0, ""});
  for (const char* gpu : {"0000:1b:00.0", "0000:43:00.0"}) {
    for (const Step step : {Step::kDmaBuf, Step::kPeerMemory})
      tried.attempts.push_back(
          {step, "bnxt_re0", gpu, Outcome::kRefused, 95, "Operation not supported"});
  }
  EXPECT_EQ(judge_pod(tried).ready, false);
  tried.job_nics = {"mlx5_0", "mlx5_1", "mlx5_2"};
  EXPECT_EQ(judge_pod(tried).ready, true);
  // NCCL's own setting has precedence.
  tried.nccl = {{"NCCL_IB_HCA", "bnxt_re", "the environment"}};
  EXPECT_EQ(judge_pod(tried).ready, false);
  tried.job_nics.clear();
  tried.nccl = {{"NCCL_IB_HCA", "^bnxt_re0", "the environment"}};
  EXPECT_EQ(judge_pod(tried).ready, true);
  // This pod has only functions of a NIC that are on no rail of the node.
  tried.nccl.clear();
  tried.job_nics = {"mlx5_6"};
  EXPECT_EQ(judge_pod(tried).ready, false);
  // A device that hangs does not matter if training does not use it.
  spoil(tried, is(Step::kHostMemory, "bnxt_re0"), Outcome::kHung, "no answer within 30 s");
  tried.job_nics = {"mlx5_0"};
  EXPECT_EQ(judge_pod(tried).ready, true);
}

TEST(PodVerdict, NamesTheCheckTheEvidenceAndTheRemedy) {
  struct Case {
    std::function<void(Registrations&)> change;
    std::optional<bool> ready;
    const char* check;
    const char* evidence;
    const char* remedy;
  };
  const Case cases[] = {
      {[](Registrations& tried) {
         tried.attempts.clear();
         tried.problem = "no RDMA device: libibverbs lists none";
       },
       false, "uverbs-access", "no RDMA device: libibverbs lists none",
       "ask for the RDMA device plugin's resource"},
      {[](Registrations& tried) {
         spoil(tried, is(Step::kOpen), Outcome::kRefused, "Permission denied");
       },
       false, "uverbs-access", "opening mlx5_0: Permission denied", "RDMA device plugin"},
      {[](Registrations& tried) {
         tried.memlock_bytes = 65536;
         // Only the cause is reported, not its consequences.
         spoil(tried, is(Step::kDmaBuf), Outcome::kRefused, "Cannot allocate memory");
         spoil(tried, is(Step::kPeerMemory), Outcome::kRefused, "Cannot allocate memory");
       },
       false, "memlock", "locked memory is limited to 64 KiB", "LimitMEMLOCK=infinity"},
      {[](Registrations& tried) { tried.nccl = {{"NCCL_IB_DISABLE", "1", "/etc/nccl.conf"}}; },
       false, "nccl-env", "NCCL_IB_DISABLE=1 (/etc/nccl.conf) turns RDMA off",
       "unset NCCL_IB_DISABLE"},
      {[](Registrations& tried) {
         const auto pair = [](Step step) {
           return [step](const Attempt& attempt) {
             return attempt.step == step && attempt.nic == "mlx5_1";
           };
         };
         spoil(tried, pair(Step::kDmaBuf), Outcome::kRefused,
               "ibv_reg_dmabuf_mr: Operation not supported");
         spoil(tried, pair(Step::kPeerMemory), Outcome::kRefused, "ibv_reg_mr: Bad address");
       },
       false, "dmabuf",
       "registering memory of 0000:1b:00.0 with mlx5_1 as dma-buf: ibv_reg_dmabuf_mr: Operation "
       "not supported; by its "
       "pointer: ibv_reg_mr: Bad address",
       "open kernel modules"},
      {[](Registrations& tried) {
         spoil(tried, is(Step::kPeerMemory, "mlx5_1"), Outcome::kHung, "no answer within 30 s");
       },
       false, "peermem-effective", "by its pointer: no answer within 30 s",
       "load the RDMA driver before the module"},
      {[](Registrations& tried) {
         spoil(tried, is(Step::kGpuMemory), Outcome::kRefused, "cuMemAlloc: error 2");
       },
       false, "dmabuf", "allocating memory of 0000:1b:00.0: cuMemAlloc: error 2",
       "open kernel modules"},
      {[](Registrations& tried) {
         std::erase_if(tried.attempts, [](const Attempt& attempt) { return !attempt.gpu.empty(); });
         spoil(tried, is(Step::kGpus), Outcome::kNotTried, "libcuda.so.1: cannot open");
       },
       std::nullopt, "dmabuf", "finding the GPUs: libcuda.so.1: cannot open",
       "open kernel modules"},
      {[](Registrations& tried) {
         std::erase_if(tried.attempts, [](const Attempt& attempt) { return !attempt.gpu.empty(); });
       },
       std::nullopt, "dmabuf", "no GPU's memory was tried", "open kernel modules"},
  };
  for (const Case& test : cases) {
    auto tried = pod_that_works();
    test.change(tried);
    const PodVerdict verdict = judge_pod(tried);
    EXPECT_EQ(verdict.ready, test.ready) << test.evidence;
    EXPECT_EQ(verdict.check, test.check) << test.evidence;
    EXPECT_THAT(verdict.evidence, HasSubstr(test.evidence));
    EXPECT_THAT(verdict.remedy, HasSubstr(test.remedy)) << test.evidence;
  }
}

TEST(PodFindings, AnswerWhatOnlyAPodCan) {
  auto tried = pod_that_works();
  for (const Finding& finding : pod_findings(tried)) {
    EXPECT_EQ(finding.verdict, Verdict::kPass) << finding.id << " " << finding.evidence;
    EXPECT_EQ(find_check(finding.id)->place, Place::kPod) << finding.id;
  }
  tried.memlock_bytes = 65536;
  tried.nccl = {{"NCCL_IB_DISABLE", "1", "/etc/nccl.conf"}};
  spoil(tried, is(Step::kOpen, "mlx5_1"), Outcome::kRefused, "Permission denied");
  std::vector<std::string> bad;
  for (const Finding& finding : pod_findings(tried)) {
    if (finding.verdict == Verdict::kPass) continue;
    bad.push_back(finding.id + " " + finding.subject + ": " + finding.evidence);
    EXPECT_EQ(finding.remedy, find_check(finding.id)->remedy);
  }
  EXPECT_THAT(bad,
              testing::ElementsAre("uverbs-access mlx5_1: Permission denied",
                                   "memlock : locked memory is limited to 64 KiB",
                                   "nccl-env : NCCL_IB_DISABLE=1 (/etc/nccl.conf) turns RDMA off"));
  const json line = json::parse(pod_verdict_json(judge_pod(tried), pod_findings(tried)));
  EXPECT_EQ(line["findings"].size(), pod_findings(tried).size());
  EXPECT_EQ(line["findings"].back()["check"], "nccl-env");

  Registrations none;
  none.problem = "libibverbs.so.1 cannot be opened";
  EXPECT_EQ(pod_findings(none).front().evidence, none.problem);
}

TEST(PodVerdict, IsOneLineOfJson) {
  EXPECT_EQ(pod_verdict_json({true, "", "", ""}), "{\"ready\":true,\"version\":1}\n");
  const auto line = pod_verdict_json({std::nullopt, "dmabuf", "bytes \xff and\nlines", "mend it"});
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
  EXPECT_TRUE(json::parse(line)["ready"].is_null());
  EXPECT_EQ(json::parse(line)["check"], "dmabuf");
}

TEST(NcclSettings, TheFirstThatSetsANameWins) {
  const NodeTree place("nothing");
  place.write(
      "etc/nccl.conf",
      "# of the image\nNCCL_IB_DISABLE=1\nNCCL_DEBUG=INFO\nNCCL_NET_GDR_LEVEL = 2\nnonsense\n");
  place.write("home/me/.nccl.conf", "NCCL_IB_HCA=mlx5_1 \nNCCL_IB_DISABLE=0\n");
  place.write("mine.conf", "NCCL_NET=Socket\n");
  std::map<std::string, std::string> environment{{"HOME", "/home/me"}, {"NCCL_IB_GID_INDEX", "3"}};
  const auto read = [&] {
    return read_nccl_settings(
        [&](const std::string& name) {
          return environment.contains(name) ? environment.at(name) : std::string();
        },
        place.folder());
  };
  EXPECT_EQ(read(), (std::vector<NcclSetting>{{"NCCL_IB_GID_INDEX", "3", "the environment"},
                                              {"NCCL_IB_HCA", "mlx5_1", "/home/me/.nccl.conf"},
                                              {"NCCL_IB_DISABLE", "0", "/home/me/.nccl.conf"}}));
  environment["NCCL_CONF_FILE"] = "/mine.conf";
  environment["NCCL_IB_DISABLE"] = "0";
  EXPECT_EQ(read(), (std::vector<NcclSetting>{{"NCCL_IB_DISABLE", "0", "the environment"},
                                              {"NCCL_IB_GID_INDEX", "3", "the environment"},
                                              {"NCCL_NET", "Socket", "/mine.conf"}}));
}

TEST(NcclSettings, AGidIsChosenByHandBeforeNcclDoesItself) {
  const std::vector<NcclSetting> set{{"NCCL_IB_GID_INDEX", "3", "the environment"}};
  EXPECT_TRUE(nccl_troubles(set, {}, {}, 22005).empty());
  EXPECT_TRUE(nccl_troubles(set, {}, {}, 2804).empty());
  const auto troubles = nccl_troubles(set, {}, {}, 22105);
  ASSERT_EQ(troubles.size(), 1U);
  EXPECT_THAT(troubles[0].evidence, HasSubstr("from 2.21 on, 2.21.5 here"));
  EXPECT_EQ(nccl_troubles(set, {}, {}).size(), 1U);  // not known
}

TEST(NcclSettings, TheLibraryIsLookedForInPackagesOfPython) {
  const NodeTree place("nothing");
  place.write("usr/local/lib/python3.11/site-packages/nvidia/nccl/lib/libnccl.so.2", "");
  place.write("usr/local/lib/python2/site-packages/nvidia/nccl/lib/libnccl.so.2", "");
  const auto files = nccl_libraries("libnccl.so.2", place.folder());
  ASSERT_EQ(files.size(), 2U);
  EXPECT_EQ(files[0], "libnccl.so.2");
  EXPECT_THAT(files[1], testing::EndsWith("python3.11/site-packages/nvidia/nccl/lib/libnccl.so.2"));
}

TEST(NcclSettings, WhatIsWrongWithEach) {
  const std::vector<std::string> nics{"mlx5_0", "mlx5_1", "mlx5_10"};
  const std::vector<std::string> netdevs{"lo", "eth0", "ens1"};
  struct Case {
    const char* name;
    const char* value;
    const char* says;  // empty: nothing
    bool forbids;
  };
  for (const Case& test :
       {Case{"NCCL_IB_DISABLE", "0", "", false},
        {"NCCL_IB_DISABLE", "1", "turns RDMA off", true},
        {"NCCL_NET", "IB", "", false},
        {"NCCL_NET", "Socket", "sockets instead of RDMA", true},
        {"NCCL_NET", "socket", "sockets instead of RDMA", true},  // NCCL compares without case
        {"NCCL_DMABUF_ENABLE", "1", "", false},
        {"NCCL_DMABUF_ENABLE", "0", "turns dma-buf off", false},
        {"NCCL_NET_GDR_LEVEL", "PXB", "", false},
        {"NCCL_NET_GDR_LEVEL", "LOC", "turns GPUDirect RDMA off", true},
        {"NCCL_NET_GDR_LEVEL", "0", "turns GPUDirect RDMA off", true},
        {"NCCL_NET_GDR_LEVEL", "4", "is a number", false},
        {"NCCL_IB_HCA", "mlx5_1", "mlx5_1 also means mlx5_10", false},
        {"NCCL_IB_HCA", "=mlx5_1:1", "", false},
        {"NCCL_IB_HCA", "mlx5_0,mlx5_10", "", false},
        {"NCCL_IB_HCA", "mlx5", "", false},
        {"NCCL_IB_HCA", "^mlx5_1", "mlx5_1 also means mlx5_10", false},
        {"NCCL_IB_HCA", "^mlx5", "chooses none of the RDMA devices", true},
        {"NCCL_IB_HCA", "=mlx4_0", "chooses none of the RDMA devices", true},
        {"NCCL_IB_GID_INDEX", "3", "in the way of NCCL's own choice", false},
        {"NCCL_SOCKET_IFNAME", "eth", "", false},
        {"NCCL_SOCKET_IFNAME", "^lo", "", false},
        {"NCCL_SOCKET_IFNAME", "=eth", "chooses none of the network devices", false}}) {
    const auto troubles =
        nccl_troubles({{test.name, test.value, "the environment"}}, nics, netdevs);
    const std::string what = std::string(test.name) + "=" + test.value;
    EXPECT_EQ(troubles.size(), *test.says == '\0' ? 0U : 1U) << what;
    for (const auto& trouble : troubles) {
      EXPECT_THAT(trouble.evidence,
                  testing::AllOf(HasSubstr(what + " (the environment)"), HasSubstr(test.says)));
      EXPECT_EQ(trouble.forbids, test.forbids) << what;
    }
  }
}

}  // namespace
}  // namespace paceline::agent
