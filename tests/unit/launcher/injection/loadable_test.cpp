// SPDX-License-Identifier: Apache-2.0
#include "launcher/process/loadable.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace paceline::process {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

TEST(Loadable, WhatTheLoaderResolvesIsLoadable) {
  const auto loads = check_loadable("/proc/self/exe", {});
  EXPECT_TRUE(loads) << loads.error().message;
}

TEST(Loadable, WhatIsNoLibraryIsNot) {
  const auto loads = check_loadable("/etc/passwd", {});
  ASSERT_FALSE(loads);
  EXPECT_THAT(loads.error().message, HasSubstr("/etc/passwd cannot be loaded here: "));
}

TEST(Loadable, AMissingVersionIsFoundThoughTheLoaderSucceeds) {
  const fs::path loader = fs::path(::testing::TempDir()) / "loader-of-an-old-image";
  std::ofstream(loader)
      << "#!/bin/sh\n"
         "echo 'x.so: libc.so.6: version GLIBC_2.28 not found (needed by x.so)' >&2\n";
  fs::permissions(loader, fs::perms::owner_all);
  const auto loads = check_loadable("x.so", {}, loader);
  fs::remove(loader);
  ASSERT_FALSE(loads);
  EXPECT_THAT(loads.error().message,
              HasSubstr("x.so cannot be loaded here: x.so: libc.so.6: version"));
}

TEST(Loadable, AContainerWithoutTheLoaderSaysSo) {
  const auto loads = check_loadable("x.so", {}, "/nonexistent/ld.so");
  ASSERT_FALSE(loads);
  EXPECT_THAT(loads.error().message, HasSubstr("/nonexistent/ld.so"));
}

}  // namespace
}  // namespace paceline::process
