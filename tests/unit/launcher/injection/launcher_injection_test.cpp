// SPDX-License-Identifier: Apache-2.0
// Whether the ranks of a launcher get the library of kernel windows.
#include <dlfcn.h>

#include "tests/unit/launcher/fabric/container.hpp"
#include "tests/unit/launcher/launcher_process.hpp"

namespace paceline::launcher {
namespace {

struct LauncherInjection : LauncherProcess {
  LauncherInjection() {
    nodes = 1;
    fs::create_directories(library.parent_path());
    // Any library that this machine can load.
    Dl_info found{};
    EXPECT_NE(::dladdr(reinterpret_cast<void*>(&std::terminate), &found), 0);
    fs::create_symlink(fs::canonical(found.dli_fname), library);
  }

  /// What the ranks of a machine with so many GPUs find in CUDA_INJECTION64_PATH.
  std::string told(int gpus, const std::map<std::string, std::string>& more = {}) {
    const fabric::Container container{"xe9680-spare-ports", gpus};
    std::map<std::string, std::string> variables{
        {"PACELINE_DEVICE_ROOT", container.root().string()},
        {"PACELINE_RUNTIME_DIR", (dir / "runtime").string()},
        {"PACELINE_KERNEL_WINDOWS", "Auto"}};
    for (const auto& [name, value] : more) variables[name] = value;
    launch(0, "echo \"$CUDA_INJECTION64_PATH\" > $DIR/told-$RANK", variables);
    EXPECT_EQ(wait(0), contract::kExitOk) << log(0);
    const std::string first = slurp(dir / "told-0");
    EXPECT_EQ(slurp(dir / "told-1"), first);
    return first.substr(0, first.find('\n'));
  }

  const fs::path library = dir / "runtime/lib/libpaceline_cupti.so";
};

TEST_F(LauncherInjection, RanksWithAGpuGetTheLibrary) {
  EXPECT_EQ(told(2), library.string());
  EXPECT_NE(log(0).find("CUDA_INJECTION64_PATH=" + library.string()), std::string::npos) << log(0);
}

TEST_F(LauncherInjection, RanksWithoutAGpuDoNot) { EXPECT_EQ(told(0), ""); }

TEST_F(LauncherInjection, TheUsersLibraryStays) {
  EXPECT_EQ(told(2, {{"CUDA_INJECTION64_PATH", "/theirs.so"}}), "/theirs.so");
}

TEST_F(LauncherInjection, TheSwitchesKeepItAway) {
  EXPECT_EQ(told(2, {{"PACELINE_KERNEL_WINDOWS", "Disabled"}}), "");
  EXPECT_EQ(told(2, {{"PACELINE_KERNEL_WINDOWS", ""}}), "") << "off where the job says nothing";
  EXPECT_EQ(told(2, {{"PACELINE_DISABLE", "1"}}), "");
}

// The CUDA driver may refuse to start with a library that it cannot load.
TEST_F(LauncherInjection, ALibraryThatCannotBeLoadedIsNotTold) {
  fs::remove(library);
  std::ofstream(library) << "not a library";
  EXPECT_EQ(told(2), "");
  EXPECT_NE(log(0).find("[paceline] kernel windows are off: " + library.string() +
                        " cannot be loaded here: "),
            std::string::npos)
      << log(0);
}

TEST_F(LauncherInjection, AnOlderRuntimeHasNone) {
  fs::remove(library);
  EXPECT_EQ(told(2), "");
  EXPECT_EQ(log(0).find("kernel windows"), std::string::npos) << log(0);
}

}  // namespace
}  // namespace paceline::launcher
