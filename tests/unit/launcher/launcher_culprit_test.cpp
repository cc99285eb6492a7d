// SPDX-License-Identifier: Apache-2.0
#include <fstream>

#include "tests/unit/launcher/launcher_process.hpp"

namespace paceline::launcher {
namespace {

// Ranks of real Python with the runtime's own sitecustomize. Rank 2 raises and takes long to exit;
// the others lose it and exit at once.
TEST_F(LauncherProcess, TheCulpritIsTheRankThatRaisedFirstAndNotTheSurvivorThatEndedFirst) {
  const std::string program = R"(
import atexit, os, pathlib, subprocess, sys, time
folder = pathlib.Path(os.environ['DIR'])
if os.environ['RANK'] == '2':
    subprocess.run([sys.executable, '-c', 'raise SystemError'], check=False)
    atexit.register(time.sleep, 30)
    atexit.register((folder / 'lost').touch)
    atexit.register(time.sleep, 0.2)
    raise ValueError('the reason')
while not (folder / 'lost').exists():
    time.sleep(0.01)
raise RuntimeError('Connection closed by peer')
)";
  std::ofstream(dir / "train.py") << program;
  const std::map<std::string, std::string> more{
      {"PACELINE_RUNTIME_DIR", PACELINE_SOURCE_DIR "/accel"}, {"PACELINE_MAX_RESTARTS", "0"}};
  for (int node = 0; node < 2; ++node) launch(node, "exec python3 $DIR/train.py", more);
  for (int node = 0; node < 2; ++node) {
    EXPECT_EQ(wait(node), contract::kExitJobFailed) << log(node);
    const auto culprit = message(node)["culprit"];
    EXPECT_EQ(culprit["rank"], 2) << culprit;
    EXPECT_EQ(culprit["exitCode"], 1);
    EXPECT_EQ(culprit["lastLines"].back(), "ValueError: the reason");
  }
  EXPECT_NE(log(0).find("rank 2 on job-worker-1 exited with code 1; all 0 restarts"),
            std::string::npos)
      << log(0) << log(1);
}

struct Culprit {
  std::string name;
  std::string script;  // of every rank
  std::string
      // train.py: only rank 2 calls `fail`, when all ranks are there; the others exit silently
      program;
  std::string key;  // how rank 2 ended
  int value;
};

struct CulpritTest : LauncherProcess, ::testing::WithParamInterface<Culprit> {};

// Failures of helper processes, and failures that were handled, name no rank. Neither does an
// exception of another rank before one is killed.
TEST_P(CulpritTest, IsTheRankWhoseProgramEndedTheJob) {
  const std::string begin = R"(
import atexit, os, pathlib, signal, subprocess, sys, time
folder, rank = pathlib.Path(os.environ['DIR']), os.environ['RANK']
def here(name): (folder / f'{name}-{rank}').touch()
def all_here(name, ranks='0123'):
    while not all((folder / f'{name}-{other}').exists() for other in ranks):
        time.sleep(0.01)
)";
  const std::string end = R"(
here('up')
if rank == '2':
    all_here('up')
    fail()
time.sleep(60)
)";
  std::ofstream(dir / "train.py") << begin << GetParam().program << end;
  std::ofstream(dir / "helper.py") << begin << "all_here('up', rank)\nraise SystemError\n";
  const std::map<std::string, std::string> more{
      {"PACELINE_RUNTIME_DIR", PACELINE_SOURCE_DIR "/accel"}, {"PACELINE_MAX_RESTARTS", "0"}};
  for (int node = 0; node < 2; ++node) launch(node, GetParam().script, more);
  for (int node = 0; node < 2; ++node) {
    EXPECT_EQ(wait(node), contract::kExitJobFailed) << log(node);
    const auto culprit = message(node)["culprit"];
    EXPECT_EQ(culprit["rank"], 2) << culprit << log(node);
    EXPECT_EQ(culprit[GetParam().key], GetParam().value) << culprit;
  }
}

const std::string kRaises = "def fail(): raise ValueError('the reason')\n";
const std::string kIsKilled = "def fail(): os.kill(os.getpid(), signal.SIGKILL)\n";
// Rank 3 raised before and takes long to exit.
const std::string kAnotherRaisedBefore = R"(
if rank == '3':
    atexit.register(time.sleep, 60)
    atexit.register(here, 'raised')
    here('up')
    raise RuntimeError('the other end is gone')
def fail():
    all_here('raised', '3')
    os.kill(os.getpid(), signal.SIGKILL)
)";

INSTANTIATE_TEST_SUITE_P(
    LauncherProcess, CulpritTest,
    ::testing::Values(
        Culprit{"AfterAProgramThatRaisedAndWasGotOver",
                "python3 -c 'raise SystemError' || true; exec python3 $DIR/train.py", kRaises,
                "exitCode", 1},
        Culprit{"KilledAfterAProgramThatRaisedAndWasGotOver",
                "python3 -c 'raise SystemError' || true; exec python3 $DIR/train.py", kIsKilled,
                "signal", SIGKILL},
        Culprit{"BesideAHelperThatRaised",
                "if [ $RANK != 2 ]; then (python3 $DIR/helper.py; touch $DIR/helped-$RANK) & fi; "
                "exec python3 "
                "$DIR/train.py",
                "def fail():\n    all_here('helped', '013')\n    raise ValueError('the reason')\n",
                "exitCode", 1},
        Culprit{"BesideErrorsThatWereReportedAndMended", "exec python3 $DIR/train.py",
                "try: raise SystemError\nexcept SystemError: sys.excepthook(*sys.exc_info())\n" +
                    kRaises,
                "exitCode", 1},
        Culprit{"KilledWhileItEndedByAnException", "exec python3 $DIR/train.py",
                kAnotherRaisedBefore +
                    "kill = fail\ndef fail():\n    atexit.register(kill)\n    all_here('raised', "
                    "'3')\n    raise ValueError\n",
                "signal", SIGKILL},
        Culprit{"KilledBelowAShellThatSaysSo", "python3 $DIR/train.py; exit $?",
                kAnotherRaisedBefore, "exitCode", 128 + SIGKILL}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace paceline::launcher
