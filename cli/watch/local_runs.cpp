// SPDX-License-Identifier: Apache-2.0
#include "cli/watch/local_runs.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "cli/watch/document.hpp"
#include "cli/watch/lenient.hpp"
#include "common/base/printable.hpp"
#include "common/base/unique_fd.hpp"
#include "common/http/beast/transport.hpp"
#include "common/net/address.hpp"

namespace paceline::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kNote = "run.json";
constexpr std::size_t kMostFile = 64 * 1024 * 1024;
constexpr std::size_t kMostKept = 100;
constexpr std::chrono::seconds kSummaryWait{2};

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Status write_file(const std::string& path, const std::string& text) {
  const std::string fresh = path + ".new";
  const UniqueFd fd(
      ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.valid()) return fail_errno("write " + fresh, errno);
  std::string_view rest = text;
  while (!rest.empty()) {
    const ssize_t written = ::write(fd.get(), rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return fail_errno("write " + fresh, errno);
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
  if (::rename(fresh.c_str(), path.c_str()) != 0) return fail_errno("rename " + fresh, errno);
  return {};
}

/// A regular file of at most kMostFile bytes; with `own`, one that no other user can have written.
Result<json> read_json_file(const std::string& path, bool own) {
  const UniqueFd fd(
      ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | (own ? O_NOFOLLOW : 0)));
  struct stat about{};
  if (!fd.valid() || ::fstat(fd.get(), &about) != 0) return fail_errno("read " + path, errno);
  const bool foreign = own && (about.st_uid != ::geteuid() || (about.st_mode & 077U) != 0);
  if (!S_ISREG(about.st_mode) || foreign || about.st_size < 0 ||
      static_cast<std::size_t>(about.st_size) > kMostFile)
    return fail(Code::kInvalid, Origin::kConfig, path + " is no file that can be read here");
  std::string text(static_cast<std::size_t>(about.st_size), '\0');
  std::size_t got = 0;
  while (got < text.size()) {
    const ssize_t more = ::read(fd.get(), text.data() + got, text.size() - got);
    if (more < 0 && errno == EINTR) continue;
    if (more <= 0) break;
    got += static_cast<std::size_t>(more);
  }
  text.resize(got);
  json document = json::parse(text, nullptr, false);
  if (!document.is_object())
    return fail(Code::kInvalid, Origin::kConfig, path + " is no JSON object");
  return document;
}

std::optional<LocalNote> read_note(const fs::path& folder) {
  const auto note = read_own_document(folder.string(), kNote);
  if (!note) return std::nullopt;
  const json& document = lenient::member(*note, "document");
  const json& pid = lenient::member(*note, "pid");
  const std::int64_t process = pid.is_number_integer() ? pid.get<std::int64_t>() : 0;
  std::vector<std::uint16_t> ports;
  for (const json& launcher : lenient::member(*note, "launchers")) {
    const auto address = launcher.is_string() ? net::parse_address(launcher.get<std::string>())
                                              : Result<net::Address>(net::Address{});
    if (!address || address->port == 0) return std::nullopt;
    ports.push_back(address->port);
  }
  if (process <= 0 || process > 1 << 30 || ports.empty() || !document.is_object() ||
      ::kill(static_cast<pid_t>(process), 0) != 0)
    return std::nullopt;
  return LocalNote{static_cast<int>(process),       std::move(ports), lenient::text(*note, "token"),
                   lenient::text(*note, "program"), document,         (folder / kNote).string()};
}

bool is_file_name(const std::string& name) {
  return !name.empty() && name.size() <= 200 && !name.starts_with('.') &&
         name.find('/') == std::string::npos && name.find('\0') == std::string::npos;
}

}  // namespace

Status write_note(const std::string& state_dir, const LocalNote& note) {
  json text{{"version", 1},
            {"pid", note.pid},
            {"token", note.token},
            {"program", note.launcher},
            {"launchers", json::array()},
            {"document", note.document}};
  for (const std::uint16_t port : note.ports)
    text["launchers"].push_back("127.0.0.1:" + std::to_string(port));
  return write_file(state_dir + "/" + kNote, dump(text));
}

std::string state_base() {
  const std::string temporary = environment("TMPDIR");
  return temporary.empty() ? "/tmp" : temporary;
}

std::vector<LocalNote> live_runs(const std::string& base) {
  std::vector<LocalNote> runs;
  std::error_code error;
  for (fs::directory_iterator entry(base, error), end; !error && entry != end;
       entry.increment(error)) {
    if (!entry->path().filename().string().starts_with("paceline-")) continue;
    if (auto note = read_note(entry->path())) runs.push_back(*std::move(note));
  }
  std::ranges::sort(runs, {}, &LocalNote::pid);
  return runs;
}

Result<LocalNote> find_local_run(const std::string& base, const std::string& name) {
  std::vector<LocalNote> runs = live_runs(base);
  const auto name_of = [](const LocalNote& run) { return lenient::text(run.document, "name"); };
  if (!name.empty()) std::erase_if(runs, [&](const auto& run) { return name_of(run) != name; });
  if (runs.size() == 1) return std::move(runs.front());
  if (runs.empty()) {
    return fail(Code::kNotFound, Origin::kSystem,
                "no `paceline run` " +
                    (name.empty() ? "" : "of the name " + printable(name) + " ") +
                    "of this user goes on below " + base);
  }
  std::string names;
  for (const LocalNote& run : runs)
    names += (names.empty() ? "" : ", ") + printable(name_of(run)) + " (process " +
             std::to_string(run.pid) + ")";
  return fail(Code::kInvalid, Origin::kConfig,
              "several runs go on: " + names + "; name one, as in `paceline trace --local " +
                  printable(name_of(runs.front())) + "`, or end the others");
}

json ask_run(const LocalNote& note, const std::stop_token& stop) {
  http::Endpoint endpoint;
  endpoint.host = "127.0.0.1";
  endpoint.port = std::to_string(note.ports.front());
  const auto transport =
      http::make_beast_transport(endpoint, {.max_connections = 1, .max_body_bytes = kMostFile});
  http::Request request;
  request.target = "/v1/summary";
  request.headers = {{"Authorization", "Bearer " + note.token}};
  request.timeout = kSummaryWait;
  json document = note.document;
  const auto answer = transport->send(request, stop);
  if (answer && answer->status == 200)
    add_summary(document, json::parse(answer->body, nullptr, false));
  return document;
}

std::string kept_folder() {
  std::string cache = environment("XDG_CACHE_HOME");
  if (!cache.starts_with('/') && !environment("HOME").empty())
    cache = environment("HOME") + "/.cache";
  return cache.starts_with('/') ? cache + "/paceline/runs" : "";
}

Status keep_run(const std::string& folder, const json& document) {
  const std::string name = lenient::text(document, "name");
  if (folder.empty() || !is_file_name(name)) return {};
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return fail_errno("make " + folder, error.value());
  if (auto written = write_file(folder + "/" + name + ".json", dump(document)); !written)
    return written;
  std::vector<std::pair<fs::file_time_type, fs::path>> kept;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code unknown;
    kept.emplace_back(fs::last_write_time(entry->path(), unknown), entry->path());
  }
  std::ranges::sort(kept);
  for (std::size_t i = 0; i + kMostKept < kept.size(); ++i) fs::remove(kept[i].second, error);
  return {};
}

Result<json> kept_run(const std::string& folder, const std::string& name) {
  const std::string path = folder + "/" + name + ".json";
  std::error_code error;
  if (folder.empty() || !is_file_name(name) || !fs::exists(path, error)) {
    return fail(Code::kNotFound, Origin::kConfig,
                "no run " + name + " lives here or is kept in " +
                    (folder.empty() ? "~/.cache/paceline/runs" : folder) +
                    "; `paceline top --local` lists those that live");
  }
  return read_document(path);
}

Result<json> read_own_document(const std::string& state_dir, const std::string& name) {
  struct stat about{};
  if (::lstat(state_dir.c_str(), &about) != 0 || !S_ISDIR(about.st_mode) ||
      about.st_uid != ::geteuid())
    return fail(Code::kInvalid, Origin::kConfig, state_dir + " is no folder of this user");
  return read_json_file(state_dir + "/" + name, true);
}

Result<json> read_document(const std::string& path) { return read_json_file(path, false); }

}  // namespace paceline::cli
