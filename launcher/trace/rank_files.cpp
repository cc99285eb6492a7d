// SPDX-License-Identifier: Apache-2.0
#include "launcher/trace/rank_files.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include <nlohmann/json.hpp>

#include "common/base/printable.hpp"
#include "common/base/unique_fd.hpp"
#include "common/json/fields.hpp"

namespace paceline::traces {
namespace {

using nlohmann::json;

constexpr std::uint64_t kMostState = 4096;
constexpr std::int64_t kMostStep = 1LL << 53;

std::filesystem::path file_of(const std::filesystem::path& folder, int rank, const char* ending) {
  return folder / ("rank-" + std::to_string(rank) + ending);
}

/// A regular file of at most `most` bytes, and its size.
struct Opened {
  UniqueFd file;
  std::uint64_t size = 0;
};
Result<Opened> open_file(const std::filesystem::path& path, std::uint64_t most) {
  Opened opened{UniqueFd(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)), 0};
  if (!opened.file.valid()) return fail_errno("open " + path.string(), errno);
  struct stat status{};
  if (::fstat(opened.file.get(), &status) != 0) return fail_errno("stat " + path.string(), errno);
  opened.size = static_cast<std::uint64_t>(status.st_size);
  if (!S_ISREG(status.st_mode) || opened.size > most) {
    return fail(Code::kExhausted, Origin::kSystem,
                path.string() + " is no regular file of at most " + std::to_string(most >> 20U) +
                    " MiB; trace fewer steps");
  }
  return opened;
}

Result<std::string> read_at(const Opened& opened, std::uint64_t offset, std::size_t most) {
  std::string text(most, '\0');
  ssize_t got = 0;
  do {
    got = ::pread(opened.file.get(), text.data(), text.size(), static_cast<off_t>(offset));
  } while (got < 0 && errno == EINTR);
  if (got < 0) return fail_errno("read the trace of a rank", errno);
  text.resize(static_cast<std::size_t>(got));
  return text;
}

}  // namespace

std::optional<RankState> read_state(const std::filesystem::path& folder, int rank,
                                    std::uint64_t sequence) {
  const auto opened = open_file(file_of(folder, rank, ".state"), kMostState);
  const auto text = opened ? read_at(*opened, 0, kMostState) : Result<std::string>("");
  const json document = json::parse(text.value_or(""), nullptr, false);
  std::string problem;
  JsonFields fields(document, problem);
  const auto number = static_cast<std::uint64_t>(fields.integer("sequence", 0, kMostStep));
  RankState state{printable(fields.text("state")), printable(fields.text("reason"))};
  // While the rank overwrites it, the text may be torn. It is read again at the next question.
  if (!problem.empty() || number != sequence) return std::nullopt;
  if (fields.find("firstStep") != nullptr) {
    state.first_step = fields.integer("firstStep", 0, kMostStep);
    state.profiler_step_zero = fields.integer("profilerStepZero", 0, kMostStep);
  }
  if (state.state != "done") return state;
  const auto trace = open_file(file_of(folder, rank, ".json.gz"), kMostTraceBytes);
  if (trace) {
    state.bytes = trace->size;
  } else {
    state.state = "failed";
    state.reason = printable(trace.error().message);
  }
  return state;
}

Result<std::string> read_piece(const std::filesystem::path& folder, int rank,
                               std::uint64_t offset) {
  const auto opened = open_file(file_of(folder, rank, ".json.gz"), kMostTraceBytes);
  if (!opened) return std::unexpected(opened.error());
  return read_at(*opened, offset, kPieceBytes);
}

void remove_files(const std::filesystem::path& folder, int rank) {
  for (const char* ending : {".state", ".json", ".json.gz", ".json.gz.part"})
    ::unlink(file_of(folder, rank, ending).c_str());
}

}  // namespace paceline::traces
