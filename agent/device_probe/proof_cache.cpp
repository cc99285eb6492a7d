// SPDX-License-Identifier: Apache-2.0
#include "agent/device_probe/proof_cache.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <set>
#include <utility>

#include "agent/probe/hardware/accelerator.hpp"
#include "agent/probe/settings.hpp"
#include "agent/probe/sysfs/devices.hpp"
#include "agent/registration/attempt_json.hpp"
#include "common/base/unique_fd.hpp"

namespace paceline::agent {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxBytes = std::size_t{4} << 20U;
/// Tolerance for a clock that was set back a little.
constexpr std::chrono::seconds kSlack{60};

bool is_way(const Attempt& attempt) {
  return attempt.step == Step::kDmaBuf || attempt.step == Step::kPeerMemory;
}

/// The text of a file that only this user can write; else `why` says why not. Both are empty if
/// there is no file.
std::optional<std::string> read_own(const std::filesystem::path& file, std::string& why) {
  const UniqueFd open(
      ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY));
  if (open.get() < 0) {
    if (errno != ENOENT) why = std::strerror(errno);
    return std::nullopt;
  }
  struct stat kind{};
  if (::fstat(open.get(), &kind) != 0 || !S_ISREG(kind.st_mode)) {
    why = "it is no regular file";
  } else if (kind.st_uid != ::geteuid() || (kind.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    why = "others may write it";
  } else if (kind.st_size < 0 || static_cast<std::size_t>(kind.st_size) > kMaxBytes) {
    why = "it is larger than " + std::to_string(kMaxBytes) + " bytes";
  }
  if (!why.empty()) return std::nullopt;
  std::string text(static_cast<std::size_t>(kind.st_size), '\0');
  std::size_t length = 0;
  while (length < text.size()) {
    const ssize_t got = ::read(open.get(), text.data() + length, text.size() - length);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    length += static_cast<std::size_t>(got);
  }
  text.resize(length);
  return text;
}

/// Returns why the text is no valid cache of this machine; empty if it was read.
std::string take_over(const std::string& text, const std::string& machine, WallTime now,
                      std::vector<Attempt>& all) {
  const json document = json::parse(text, nullptr, false);
  if (!document.is_object() || document.value("version", json()) != 1)
    return "it is no proof cache";
  const auto state = document.find("machine");
  if (state == document.end() || !state->is_string()) return "it names no machine";
  if (state->get_ref<const std::string&>() != machine)
    return "the machine was booted since, or has another kernel, driver, module or device";
  const auto attempts = document.find("attempts");
  if (attempts == document.end() || !attempts->is_array() || attempts->size() > kMaxAttempts)
    return "attempts is not a list of at most " + std::to_string(kMaxAttempts);
  for (const auto& entry : *attempts) {
    auto attempt = read_attempt(entry);
    if (!attempt || !attempt->taken || attempt->gpu.empty()) return "it holds a malformed attempt";
    if (*attempt->taken > now + kSlack) return "its time is in the future";
    if (attempt->outcome != Outcome::kDone && attempt->outcome != Outcome::kRefused)
      return "it holds a malformed attempt";
    all.push_back(std::move(*attempt));
  }
  return {};
}

/// Whether each open NIC can reach this GPU's memory in some way.
bool proved(const Registrations& report, const std::string& gpu) {
  const auto& all = report.attempts;
  bool any = false;
  for (const auto& open : all) {
    if (open.step != Step::kOpen || open.outcome != Outcome::kDone) continue;
    any = true;
    const bool reached = std::any_of(all.begin(), all.end(), [&](const Attempt& attempt) {
      return is_way(attempt) && attempt.gpu == gpu && attempt.nic == open.nic &&
             attempt.outcome == Outcome::kDone;
    });
    if (!reached) return false;
  }
  return any;
}

std::unexpected<Error> cannot_write(const std::filesystem::path& file) {
  return fail(Code::kInternal, Origin::kSystem,
              "cannot write " + file.string() + ": " + std::strerror(errno) +
                  "; give a folder of this user that can be written and has room");
}

}  // namespace

std::string machine_state(const Root& root) {
  const std::string boot = read_text(root.proc() / "sys/kernel/random/boot_id").value_or("");
  if (boot.empty()) return {};
  const std::string driver = read_text(root.proc() / "driver/nvidia/version").value_or("");
  std::string state = "boot " + boot + "\nkernel " +
                      read_text(root.proc() / "sys/kernel/osrelease").value_or("") + "\ndriver " +
                      driver.substr(0, driver.find('\n')) + "\n";
  for (const auto& module : peer_memory_modules(root)) state += "peer memory " + module + "\n";
  for (const auto& function : probe_pci(root)) {
    if (accelerator_kind(function) == nullptr) continue;
    std::array<char, 16> kind{};
    std::snprintf(kind.data(), kind.size(), "%04x:%04x", function.vendor & 0xffffU,
                  function.device & 0xffffU);
    state += "gpu " + function.address + " " + kind.data() + "\n";
  }
  for (const auto& nic : probe_rdma(root))
    state += "nic " + nic.name + " " + nic.pci_address + " " + nic.firmware + "\n";
  return state;
}

CachedProofs read_proof_cache(const std::filesystem::path& file, const std::string& machine,
                              WallTime now) {
  CachedProofs kept;
  const auto text = read_own(file, kept.refused);
  if (!text) return kept;
  kept.refused = machine.empty() ? "the kernel does not show the id of this boot"
                                 : take_over(*text, machine, now, kept.attempts);
  if (!kept.refused.empty()) kept.attempts.clear();
  return kept;
}

void apply_cached_proofs(Registrations& report, const std::vector<Attempt>& kept) {
  std::set<std::string> alone;
  for (const auto& attempt : report.attempts) {
    if (attempt.step == Step::kGpuMemory && attempt.outcome == Outcome::kNotTried &&
        std::any_of(kept.begin(), kept.end(),
                    [&](const Attempt& old) { return old.gpu == attempt.gpu; }))
      alone.insert(attempt.gpu);
  }
  std::erase_if(report.attempts, [&](const Attempt& attempt) {
    return attempt.step == Step::kGpuMemory && alone.contains(attempt.gpu);
  });
  for (const auto& attempt : kept) {
    if (alone.contains(attempt.gpu) && report.attempts.size() < kMaxAttempts)
      report.attempts.push_back(attempt);
  }
}

Status write_proof_cache(const std::filesystem::path& file, const std::string& machine,
                         const Registrations& report) {
  if (machine.empty() || report.in_pod || !report.taken) return {};
  json document{{"version", 1}, {"machine", machine}, {"attempts", json::array()}};
  for (auto attempt : report.attempts) {
    // A domain may go up or down without a reboot, so do not cache it.
    if (attempt.step == Step::kFabricMemory) continue;
    if (attempt.gpu.empty() ||
        (attempt.outcome != Outcome::kDone && attempt.outcome != Outcome::kRefused) ||
        !proved(report, attempt.gpu)) {
      continue;
    }
    if (!attempt.taken) attempt.taken = report.taken;
    document["attempts"].push_back(attempt_json(attempt));
  }
  const std::string text = document.dump(-1, ' ', true, json::error_handler_t::replace) + "\n";
  const std::string half = file.string() + ".new";
  ::unlink(half.c_str());
  {
    const UniqueFd open(
        ::open(half.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (open.get() < 0) return cannot_write(half);
    std::size_t length = 0;
    while (length < text.size()) {
      const ssize_t put = ::write(open.get(), text.data() + length, text.size() - length);
      if (put < 0 && errno == EINTR) continue;
      if (put <= 0) return cannot_write(half);
      length += static_cast<std::size_t>(put);
    }
    if (::fsync(open.get()) != 0) return cannot_write(half);
  }
  if (std::rename(half.c_str(), file.c_str()) != 0) return cannot_write(file);
  return {};
}

}  // namespace paceline::agent
