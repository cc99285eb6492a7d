// SPDX-License-Identifier: Apache-2.0
#include "common/subprocess/line_splitter.hpp"

namespace paceline::process {
namespace {

constexpr std::size_t kLongestLine = 16 * 1024;
constexpr std::size_t kRememberedLines = 20;
constexpr std::size_t kRememberedBytes = 400;

}  // namespace

void LineSplitter::emit(std::string_view line, std::string& out) {
  out += prefix_;
  out += line;
  out += '\n';
  // A progress bar overwrites its line with carriage returns; remember only its last state.
  if (line.ends_with('\r')) line.remove_suffix(1);
  const std::size_t overwritten = line.rfind('\r');
  if (overwritten != std::string_view::npos) line.remove_prefix(overwritten + 1);
  if (line.empty()) return;
  last_.emplace_back(line.substr(0, kRememberedBytes));
  if (last_.size() > kRememberedLines) last_.pop_front();
}

std::string LineSplitter::push(std::string_view bytes) {
  std::string out;
  while (!bytes.empty()) {
    const std::size_t newline = bytes.find('\n');
    partial_ += bytes.substr(0, newline);
    bytes.remove_prefix(newline == std::string_view::npos ? bytes.size() : newline + 1);
    std::string_view rest = partial_;
    while (rest.size() > kLongestLine) {
      emit(rest.substr(0, kLongestLine), out);
      rest.remove_prefix(kLongestLine);
    }
    if (newline != std::string_view::npos) {
      emit(rest, out);
      partial_.clear();
    } else {
      partial_ = std::string(rest);
    }
  }
  return out;
}

std::string LineSplitter::finish() {
  std::string out;
  if (!partial_.empty()) emit(partial_, out);
  partial_.clear();
  return out;
}

}  // namespace paceline::process
