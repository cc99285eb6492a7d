// SPDX-License-Identifier: Apache-2.0
#include "launcher/diagnosis/stack_text.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

namespace paceline::diagnosis {
namespace {

struct Frame {
  std::string_view file;
  std::string_view line;
  std::string_view function;
};

/// `  File "PATH", line N in FUNCTION`
std::optional<Frame> frame_of(std::string_view line) {
  constexpr std::string_view kFile = "  File \"";
  constexpr std::string_view kLine = "\", line ";
  if (!line.starts_with(kFile)) return std::nullopt;
  line.remove_prefix(kFile.size());
  const std::size_t end = line.find(kLine);
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view rest = line.substr(end + kLine.size());
  const std::size_t in = rest.find(" in ");
  if (in == std::string_view::npos) return std::nullopt;
  return Frame{line.substr(0, end), rest.substr(0, in), rest.substr(in + 4)};
}

/// The frames of the thread that faulthandler lists last: the main thread, which is the oldest.
std::vector<Frame> main_thread(std::string_view text) {
  std::vector<Frame> frames;
  bool last_was_frame = false;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const auto frame = frame_of(text.substr(0, end));
    if (frame) {
      if (!last_was_frame) frames.clear();
      frames.push_back(*frame);
    }
    last_was_frame = frame.has_value();
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return frames;
}

// The public functions of torch.distributed in which a rank waits for others.
constexpr std::array<std::string_view, 20> kCollectives{"all_reduce",
                                                        "all_reduce_coalesced",
                                                        "all_gather",
                                                        "all_gather_coalesced",
                                                        "all_gather_into_tensor",
                                                        "all_gather_object",
                                                        "all_to_all",
                                                        "all_to_all_single",
                                                        "barrier",
                                                        "monitored_barrier",
                                                        "broadcast",
                                                        "broadcast_object_list",
                                                        "gather",
                                                        "gather_object",
                                                        "reduce",
                                                        "reduce_scatter",
                                                        "reduce_scatter_tensor",
                                                        "scatter",
                                                        "recv",
                                                        "send"};

bool is_library(std::string_view file) {
  constexpr std::array<std::string_view, 5> kParts{"/site-packages/", "/dist-packages/",
                                                   "/lib/python3", "/paceline/", "<"};
  return std::ranges::any_of(kParts, [&](std::string_view part) {
    return part == "<" ? file.starts_with(part) : file.find(part) != std::string_view::npos;
  });
}

std::string_view base_name(std::string_view file) { return file.substr(file.rfind('/') + 1); }

}  // namespace

StackFacts read_stack(std::string_view text) {
  StackFacts facts;
  for (const Frame& frame : main_thread(text)) {
    // The outermost of them is the one that the program called.
    if (frame.file.find("torch/distributed/") != std::string_view::npos &&
        std::ranges::find(kCollectives, frame.function) != kCollectives.end())
      facts.collective = frame.function;
    if (!is_library(frame.file)) {
      facts.where = std::string(base_name(frame.file)) + ":" + std::string(frame.line) + " in " +
                    std::string(frame.function);
      break;
    }
  }
  return facts;
}

}  // namespace paceline::diagnosis
