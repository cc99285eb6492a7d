// SPDX-License-Identifier: Apache-2.0
#include "testing/runtime_fixture.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>
#include <iterator>

namespace paceline::agent {

Scratch::Scratch() {
  std::string name = (std::filesystem::temp_directory_path() / "paceline-XXXXXX").string();
  EXPECT_NE(::mkdtemp(name.data()), nullptr);
  folder_ = name;
}

Scratch::~Scratch() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

void make_runtime(const std::filesystem::path& folder, const std::string& content) {
  namespace fs = std::filesystem;
  for (const char* part : {"bin", "lib", "python/paceline", "kernels"})
    fs::create_directories(folder / part);
  std::ofstream(folder / "bin" / "paceline-launcher") << "launcher " << content;
  std::ofstream(folder / "lib" / "libpaceline.so.1") << std::string(300'000, content[0]);
  std::ofstream(folder / "python" / "paceline" / "__init__.py") << "# " << content << "\n";
  std::ofstream(folder / "kernels" / "optim-cuda13-sm_90.cubin") << "module " << content;
  std::ofstream(folder / ".complete") << "0.1.0\n";
  fs::permissions(folder / "bin" / "paceline-launcher", fs::perms(0755));
  if (!fs::is_symlink(folder / "lib" / "libpaceline.so"))
    fs::create_symlink("libpaceline.so.1", folder / "lib" / "libpaceline.so");
}

std::map<std::string, std::string> picture(const std::filesystem::path& folder) {
  std::map<std::string, std::string> result;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    std::string& text = result[entry.path().lexically_relative(folder).string()];
    if (entry.is_symlink()) {
      text = "-> " + std::filesystem::read_symlink(entry.path()).string();
    } else if (entry.is_directory()) {
      text = "<folder>";
    } else {
      std::ifstream file(entry.path());
      text = std::to_string(static_cast<int>(entry.status().permissions())) + " " +
             std::string(std::istreambuf_iterator<char>(file), {});
    }
  }
  return result;
}

}  // namespace paceline::agent
