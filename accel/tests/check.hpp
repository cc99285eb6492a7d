// SPDX-License-Identifier: Apache-2.0
// A test framework of one page, since this project builds on machines without GoogleTest.
// CASE(name) {…} defines a test, CHECK(condition) and CHECK_EQ(a, b) judge it. The executable runs
// the cases named on its command line, or all; CMake makes each a test of its own, so every case
// has a process to itself. Not thread-safe.
#pragma once

#include <cstdint>
#include <iostream>
#include <vector>

namespace paceline::check {

struct Case {
  const char* name;
  void (*run)();
};

inline std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}

inline int& failures() {
  static int count = 0;
  return count;
}

struct Registered {
  Registered(const char* name, void (*run)()) { cases().push_back({name, run}); }
};

inline bool judge(bool good, const char* what, const char* file, int line) {
  if (!good) {
    ++failures();
    std::cerr << file << ":" << line << ": failed: " << what << "\n";
  }
  return good;
}

template <typename A, typename B>
void judge_equal(const A& a, const B& b, const char* what, const char* file, int line) {
  if (!judge(a == b, what, file, line)) std::cerr << "  left " << +a << ", right " << +b << "\n";
}

}  // namespace paceline::check

#define CASE(name)                                                         \
  static void name();                                                      \
  static const paceline::check::Registered registered_##name(#name, name); \
  static void name()
#define CHECK(condition) \
  paceline::check::judge(static_cast<bool>(condition), #condition, __FILE__, __LINE__)
#define CHECK_EQ(a, b) paceline::check::judge_equal((a), (b), #a " == " #b, __FILE__, __LINE__)
