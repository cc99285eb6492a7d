// SPDX-License-Identifier: Apache-2.0
// Runs the ranks of a communicator as forked processes of a test, with a store in shared memory.
// Each is given the name of a host. They communicate over loopback and real shared memory.
//
// Ownership: a World ends its processes before it ends. Threads: one. Failure: exit codes, and
// messages of CHECK.
#pragma once

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "paceline/comm.h"

namespace paceline::comm_test {

// A map in memory that parent and children share. Keys are set once.
class SharedStore {
 public:
  SharedStore()
      : table_(static_cast<Table*>(::mmap(nullptr, sizeof(Table), PROT_READ | PROT_WRITE,
                                          MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  ~SharedStore() { ::munmap(table_, sizeof(Table)); }
  SharedStore(const SharedStore&) = delete;
  SharedStore& operator=(const SharedStore&) = delete;

  paceline_comm_store functions() { return {.context = this, .set = &set, .get = &get}; }

  static int set(void* context, const char* key, const void* value, uint64_t size) {
    Table& table = *static_cast<SharedStore*>(context)->table_;
    Entry& entry = table.entries[table.used.fetch_add(1)];
    std::strncpy(entry.key.data(), key, entry.key.size() - 1);
    std::memcpy(entry.value.data(), value, size);
    entry.size.store(size, std::memory_order_release);
    return 0;
  }

  static int get(void* context, const char* key, void* value, uint64_t capacity, uint64_t* size,
                 int32_t timeout_ms) {
    Table& table = *static_cast<SharedStore*>(context)->table_;
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
    do {
      for (Entry& entry : table.entries) {
        const uint64_t there = entry.size.load(std::memory_order_acquire);
        if (there == 0 || std::strcmp(entry.key.data(), key) != 0) continue;
        if (there > capacity) return -1;
        std::memcpy(value, entry.value.data(), there);
        *size = there;
        return 0;
      }
      ::usleep(500);
    } while (std::chrono::steady_clock::now() < until);
    return 1;
  }

 private:
  struct Entry {
    std::array<char, 64> key;
    std::array<char, 1024> value;
    std::atomic<uint64_t> size;
  };
  struct Table {
    std::atomic<uint32_t> used;
    std::array<Entry, 128> entries;
  };
  Table* table_;
};

// A number that the parent and all children share.
struct SharedFlag {
  SharedFlag()
      : value(*static_cast<std::atomic<uint32_t>*>(
            ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  ~SharedFlag() { ::munmap(&value, 4096); }
  SharedFlag(const SharedFlag&) = delete;
  SharedFlag& operator=(const SharedFlag&) = delete;
  std::atomic<uint32_t>& value;
};

// Counts the lines of a file that contain a text.
inline std::size_t mentions(const char* path, const std::string& what) {
  std::ifstream lines(path);
  std::size_t count = 0;
  for (std::string line; std::getline(lines, line);)
    count += line.find(what) != std::string::npos ? 1 : 0;
  return count;
}

// Returns one value of a rank's peer info in the store.
inline std::string value_of(const std::string& info, const std::string& key) {
  const std::size_t at = info.find(key + "=") + key.size() + 1;
  return info.substr(at, info.find('\n', at) - at);
}

struct Shape {
  std::vector<int> hosts;  // each rank's host
  std::string plan;
  int heartbeat_timeout_ms = 20'000;
  int timeout_ms = 50'000;
  std::vector<std::string> addresses{};  // each host's; empty: loopback
};

// One rank, in its process. `comm` is null if it could not be created.
struct Member {
  paceline_comm* comm = nullptr;
  uint32_t rank = 0;
  uint32_t ranks = 0;
  SharedStore* store = nullptr;
  std::string error;
  int code = 0;

  std::string why(int32_t* named = nullptr) const {
    std::array<char, 1024> text{};
    if (comm != nullptr) paceline_comm_error(comm, text.data(), text.size(), named);
    return text.data();
  }
};

inline Member join(SharedStore& store, const Shape& shape, uint32_t rank,
                   const std::string& name = "world") {
  Member member;
  member.rank = rank;
  member.ranks = static_cast<uint32_t>(shape.hosts.size());
  member.store = &store;
  const std::string host = "host-" + std::to_string(shape.hosts[rank]);
  paceline_comm_options options{};
  options.size = sizeof options;
  options.rank = rank;
  options.ranks = member.ranks;
  options.name = name.c_str();
  options.host = host.c_str();
  const std::string address = shape.addresses.empty()
                                  ? "127.0.0.1"
                                  : shape.addresses[static_cast<std::size_t>(shape.hosts[rank])];
  options.address = address.c_str();
  options.plan = shape.plan.c_str();
  options.heartbeat_timeout_ms = shape.heartbeat_timeout_ms;
  options.timeout_ms = shape.timeout_ms;
  const paceline_comm_store functions = store.functions();
  std::array<char, 1024> text{};
  member.code = paceline_comm_create(&options, &functions, &member.comm, text.data(), text.size());
  member.error = text.data();
  return member;
}

// Waits until all ranks have their communicators. If a rank ended earlier, another's create could
// fail.
inline void wait_for_all(const Member& member) {
  const std::string mine = "joined/" + std::to_string(member.rank);
  SharedStore::set(member.store, mine.c_str(), "", 1);
  for (uint32_t rank = 0; rank < member.ranks; ++rank) {
    char value = 0;
    uint64_t size = 0;
    SharedStore::get(member.store, ("joined/" + std::to_string(rank)).c_str(), &value, 1, &size,
                     50'000);
  }
}

class World {
 public:
  using Body = std::function<bool(Member&)>;

  ~World() {
    for (const pid_t child : children_) {
      ::kill(child, SIGKILL);
      ::waitpid(child, nullptr, 0);
    }
  }

  SharedStore& store() { return store_; }
  pid_t pid(std::size_t rank) const { return children_[rank]; }

  // Forks all ranks. Each exits with 0 if `body` returns true. Bodies print to standard error what
  // is wrong.
  void start(const Shape& shape, const Body& body) {
    for (uint32_t rank = 0; rank < shape.hosts.size(); ++rank)
      spawn([&, rank] {
        Member member = join(store_, shape, rank);
        if (member.code != PACELINE_OK)
          std::cerr << "rank " << rank << ": create: " << member.error << "\n";
        const bool good = member.code == PACELINE_OK && body(member);
        if (!good) std::cerr << "rank " << rank << " ends badly: " << member.why() << "\n";
        paceline_comm_destroy(member.comm);
        return good;
      });
  }
  void spawn(const std::function<bool()>& body) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(body() ? 0 : 1);
    children_.push_back(child);
  }

  // Waits for all ranks, and returns how many did not exit with 0.
  int finish() {
    int bad = 0;
    for (const pid_t child : children_) {
      int status = 0;
      if (::waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
        ++bad;
    }
    children_.clear();
    return bad;
  }

  static int run(const Shape& shape, const Body& body) {
    World world;
    world.start(shape, body);
    return world.finish();
  }

 private:
  SharedStore store_;
  std::vector<pid_t> children_;
};

}  // namespace paceline::comm_test
