// SPDX-License-Identifier: Apache-2.0
// Runs a fuzz target over files without libFuzzer: REPLAY FILE|FOLDER… Every input is also tried
// with its end cut off and with a flipped bit, so that a small corpus gives many cases.
// Deterministic.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz.hpp"

namespace {

void feed(const std::string& input) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
}

void feed_variants(const std::string& input) {
  constexpr std::size_t kCuts = 16;
  feed(input);
  for (std::size_t i = 1; i < kCuts; ++i) {
    const std::size_t at = input.size() * i / kCuts;
    feed(input.substr(0, at));
    std::string turned = input;
    if (at < turned.size()) turned[at] = static_cast<char>(turned[at] ^ (1 << i % 8));
    feed(turned);
  }
}

}  // namespace

int main(int count, char** arguments) {
  std::vector<std::filesystem::path> files;
  for (int i = 1; i < count; ++i) {
    if (!std::filesystem::is_directory(arguments[i])) {
      files.emplace_back(arguments[i]);
      continue;
    }
    for (const auto& entry : std::filesystem::directory_iterator(arguments[i]))
      files.push_back(entry.path());
  }
  std::ranges::sort(files);
  feed({});
  for (const auto& file : files) {
    std::ifstream stream(file, std::ios::binary);
    if (!stream) {
      std::cerr << file << " cannot be read\n";
      return 2;
    }
    feed_variants({std::istreambuf_iterator<char>(stream), {}});
  }
  std::cout << files.size() << " inputs\n";
  return files.empty() ? 2 : 0;
}
