// SPDX-License-Identifier: Apache-2.0
#include "launcher/install.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace paceline::launcher {
namespace {

namespace fs = std::filesystem;

struct InstallTest : ::testing::Test {
  InstallTest() {
    fs::remove_all(base);
    fs::create_directories(image / "bin");
    fs::create_directories(image / "python/paceline");
    write(image / "bin/paceline-launcher", "program");
    fs::permissions(image / "bin/paceline-launcher", fs::perms::owner_all);
    write(image / "python/paceline/__init__.py", "code");
    fs::create_directories(image / "kernels");
    write(image / "kernels/optim-cuda13-sm_90.cubin", "module");
    write(image / "secret", "not part of the runtime");
  }
  ~InstallTest() override { fs::remove_all(base); }

  static void write(const fs::path& path, const std::string& text) { std::ofstream(path) << text; }
  static std::string read(const fs::path& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  const fs::path base =
      fs::temp_directory_path() / ("paceline-install-" + std::to_string(::getpid()));
  const fs::path image = base / "image";
  const fs::path target = base / "target";
};

TEST_F(InstallTest, CopiesTheRuntimeAndMarksItComplete) {
  ASSERT_TRUE(install(image, target).has_value());
  EXPECT_EQ(read(target / "python/paceline/__init__.py"), "code");
  EXPECT_EQ(read(target / "kernels/optim-cuda13-sm_90.cubin"), "module");
  EXPECT_EQ(::access((target / "bin/paceline-launcher").c_str(), X_OK), 0);
  EXPECT_TRUE(fs::exists(target / ".complete"));
  EXPECT_FALSE(fs::exists(target / "secret"));
  write(image / "bin/paceline-launcher", "newer");
  ASSERT_TRUE(install(image, target).has_value()) << "a container that starts again installs again";
  EXPECT_EQ(read(target / "bin/paceline-launcher"), "newer");
}

TEST_F(InstallTest, ModulesOfAnOlderRuntimeGo) {
  ASSERT_TRUE(install(image, target).has_value());
  write(target / "kernels/notes", "somebody's");
  fs::remove_all(image / "kernels");
  ASSERT_TRUE(install(image, target).has_value());
  EXPECT_FALSE(fs::exists(target / "kernels/optim-cuda13-sm_90.cubin"));
  EXPECT_TRUE(fs::exists(target / "kernels/notes"));
}

TEST_F(InstallTest, AFailureLeavesNoMarker) {
  ASSERT_TRUE(install(image, target).has_value());
  fs::remove_all(target / "python");
  write(target / "python", "a file where a directory must go");
  const auto failed = install(image, target);
  ASSERT_FALSE(failed.has_value());
  EXPECT_NE(failed.error().message.find("python"), std::string::npos);
  EXPECT_FALSE(fs::exists(target / ".complete"));
}

TEST_F(InstallTest, RefusesWhatIsNoRuntimeAndItself) {
  EXPECT_FALSE(install(base / "nowhere", target).has_value());
  EXPECT_FALSE(install(image, image).has_value());
  EXPECT_TRUE(fs::exists(image / "bin/paceline-launcher"));
}

}  // namespace
}  // namespace paceline::launcher
