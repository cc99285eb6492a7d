// SPDX-License-Identifier: Apache-2.0
#include <string_view>

#include "check.hpp"

int main(int argc, char** argv) {
  int ran = 0;
  for (const auto& test : paceline::check::cases()) {
    bool wanted = argc == 1;
    for (int i = 1; i < argc; ++i) wanted = wanted || std::string_view(argv[i]) == test.name;
    if (!wanted) continue;
    std::cout << test.name << "\n";
    test.run();
    ++ran;
  }
  if (ran == 0) std::cerr << "no such case\n";
  return ran > 0 && paceline::check::failures() == 0 ? 0 : 1;
}
