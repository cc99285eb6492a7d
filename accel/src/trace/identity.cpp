// SPDX-License-Identifier: Apache-2.0
#include "identity.hpp"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <limits>

#include "../contract.hpp"
#include "base/clock.hpp"
#include "base/fd.hpp"

namespace paceline::trace {
namespace {

std::uint64_t realtime_ns() {
  timespec time{};
  ::clock_gettime(CLOCK_REALTIME, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000U +
         static_cast<std::uint64_t>(time.tv_nsec);
}

template <std::size_t Size>
void read_file(const char* path, char (&text)[Size]) {
  text[0] = '\0';
  const base::Fd fd(::open(path, O_RDONLY | O_CLOEXEC));
  if (!fd) return;
  const ssize_t got = ::read(fd.get(), text, Size - 1);
  text[got > 0 ? got : 0] = '\0';
}

template <std::size_t Size>
void copy_text(char (&to)[Size], const char* from) {
  if (from != nullptr) std::snprintf(to, Size, "%s", from);
}

// Reads field 22 of /proc/self/stat. The command (field 2) may hold spaces and parentheses, so
// fields are counted from the last parenthesis.
std::uint64_t start_ticks() {
  char text[1024];
  read_file("/proc/self/stat", text);
  const char* at = std::strrchr(text, ')');
  for (int field = 2; at != nullptr && field < 22; ++field) {
    at = std::strchr(at + 1, ' ');
  }
  return at == nullptr ? 0 : std::strtoull(at + 1, nullptr, 10);
}

// torchrun's variable, or else the one that Open MPI or MPICH gives a rank.
std::int32_t place_from(Getenv environment, const char* name, const char* open_mpi,
                        const char* mpich, std::int32_t low) {
  constexpr std::int32_t kMax = std::numeric_limits<std::int32_t>::max();
  const std::int32_t by_mpi = number_from(environment, open_mpi, mpich, low, kMax, -1);
  return number_from(environment, name, nullptr, low, kMax, by_mpi);
}

}  // namespace

const char* process_environment(const char* name) { return std::getenv(name); }

std::int32_t number_from(Getenv environment, const char* first, const char* second,
                         std::int32_t low, std::int32_t high, std::int32_t fallback) {
  for (const char* name : {first, second}) {
    const char* text = name == nullptr ? nullptr : environment(name);
    if (text == nullptr || *text == '\0') continue;
    char* end = nullptr;
    const long value = std::strtol(text, &end, 10);
    if (*end == '\0' && value >= low && value <= high) return static_cast<std::int32_t>(value);
  }
  return fallback;
}

paceline_ring_header identify(Getenv environment, const paceline_options& options,
                              std::uint32_t ring_epoch) {
  constexpr std::int32_t kMax = std::numeric_limits<std::int32_t>::max();
  paceline_ring_header header{};
  header.ring_epoch = ring_epoch;
  header.attempt = static_cast<std::uint32_t>(
      number_from(environment, runtime_env::kAttempt, nullptr, 0, kMax, 0));
  header.pid = static_cast<std::uint32_t>(::getpid());
  header.process_start_ticks = start_ticks();
  header.monotonic_ns = base::monotonic_ns();
  header.realtime_ns = realtime_ns();
  read_file("/proc/sys/kernel/random/boot_id", header.boot_id);
  header.boot_id[std::strcspn(header.boot_id, "\n")] = '\0';
  header.world_rank = place_from(environment, "RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", 0);
  header.local_rank =
      place_from(environment, "LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", 0);
  header.node_rank = number_from(environment, runtime_env::kNodeRank, "GROUP_RANK", 0, kMax, -1);
  header.world_size = place_from(environment, "WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", 1);
  header.local_world_size = place_from(environment, "LOCAL_WORLD_SIZE",
                                       "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", 1);
  for (paceline_coordinate* coordinate :
       {&header.dp, &header.tp, &header.pp, &header.ep, &header.cp})
    *coordinate = {-1, 0};
  header.device_kind = options.device_kind;
  header.framework_id = options.framework_id;
  copy_text(header.framework_version, options.framework_version);
  copy_text(header.pci_address, options.pci_address);
  header.capabilities = options.capabilities;
  return header;
}

}  // namespace paceline::trace
