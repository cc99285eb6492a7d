// SPDX-License-Identifier: Apache-2.0
// The loader's shared memory: streams that wrap, messages larger than a ring, waits that end,
// workers that die, slots.
#include "paceline/loader.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include "check.hpp"
#include "loader/exchange/exchange.hpp"

namespace {

using paceline::base::ByteRing;
using paceline::base::RingCursors;
using paceline::loader::kRingBytes;

constexpr int kLong = 20'000;  // ms: longer than any test may wait

struct Loader {
  explicit Loader(std::uint32_t workers, std::uint32_t slots = 2,
                  std::uint64_t slot_bytes = 1 << 20) {
    if (paceline_loader_create(workers, slots, slot_bytes, &it) != PACELINE_OK) std::abort();
  }
  ~Loader() { paceline_loader_destroy(it); }
  paceline_loader* it = nullptr;
};

std::string collected(const Loader& loader, std::uint32_t& worker, int timeout_ms = kLong) {
  const void* data = nullptr;
  std::uint64_t size = 0;
  const int code = paceline_loader_collect(loader.it, timeout_ms, &worker, &data, &size);
  return code == PACELINE_OK ? std::string(static_cast<const char*>(data), size)
                             : "code " + std::to_string(code);
}

std::string heard(const Loader& loader, std::uint32_t worker, int timeout_ms = kLong) {
  const void* data = nullptr;
  std::uint64_t size = 0;
  const int code = paceline_loader_hear(loader.it, worker, timeout_ms, &data, &size);
  return code == PACELINE_OK ? std::string(static_cast<const char*>(data), size)
                             : "code " + std::to_string(code);
}

int answered(const Loader& loader, std::uint32_t worker, const std::string& text) {
  std::uint64_t sent = 0;
  return paceline_loader_answer(loader.it, worker, text.data(), text.size(), kLong, &sent);
}

std::string random_text(std::mt19937& random, std::size_t size) {
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

bool exited_well(pid_t child) {
  int status = 0;
  const pid_t ended = ::waitpid(child, &status, 0);
  return ended > 0 && (child < 0 || ended == child) && WIFEXITED(status) &&
         WEXITSTATUS(status) == 0;
}

}  // namespace

CASE(loader_ring_keeps_every_byte_in_order) {
  RingCursors cursors{};
  std::byte memory[64];
  ByteRing ring(cursors, memory, sizeof memory);
  std::mt19937 random(1);
  std::uint8_t in = 0;
  std::uint8_t out = 0;
  bool same = true;
  bool bounded = true;
  for (int round = 0; round < 20'000; ++round) {
    std::byte piece[100];
    const std::size_t want = random() % 100;
    for (std::size_t i = 0; i < want; ++i) piece[i] = static_cast<std::byte>(in + i);
    in = static_cast<std::uint8_t>(in + ring.write(piece, want));
    bounded = bounded && ring.readable() <= sizeof memory;
    const std::size_t got = ring.read(piece, random() % 100);
    for (std::size_t i = 0; i < got; ++i) same = same && piece[i] == static_cast<std::byte>(out++);
  }
  CHECK(same);
  CHECK(bounded);
}

CASE(loader_messages_larger_than_a_ring_pass_both_ways) {
  const Loader loader(1);
  std::mt19937 random(2);
  const std::string small = random_text(random, 100);
  const std::string large = random_text(random, 5 * kRingBytes + 7);
  // All of it is told before the worker listens: the maker never waits.
  for (int i = 0; i < 3; ++i) {
    CHECK_EQ(paceline_loader_tell(loader.it, 0, large.data(), large.size()), PACELINE_OK);
    CHECK_EQ(paceline_loader_tell(loader.it, 0, small.data(), small.size()), PACELINE_OK);
  }
  CHECK_EQ(paceline_loader_tell(loader.it, 0, small.data(), 0), PACELINE_OK);
  std::thread worker([&] {
    for (int i = 0; i < 3; ++i) {
      for (const std::string& expected : {large, small}) {
        const std::string got = heard(loader, 0);
        CHECK(got == expected);
        CHECK_EQ(answered(loader, 0, got), PACELINE_OK);
      }
    }
    CHECK(heard(loader, 0).empty());
  });
  std::uint32_t from = 9;
  for (int i = 0; i < 3; ++i) {
    CHECK(collected(loader, from) == large);
    CHECK(collected(loader, from) == small);
    CHECK_EQ(from, 0U);
  }
  // What the maker kept is passed on by its calls.
  std::atomic<bool> done = false;
  std::thread flusher([&] {
    while (!done) collected(loader, from, 1);
  });
  worker.join();
  done = true;
  flusher.join();
}

CASE(loader_answers_of_forked_workers_come_with_what_they_wrote) {
  constexpr std::uint32_t kWorkers = 3;
  constexpr int kBatches = 200;
  const Loader loader(kWorkers);
  pid_t children[kWorkers];
  for (std::uint32_t w = 0; w < kWorkers; ++w) {
    children[w] = ::fork();
    if (children[w] != 0) continue;
    for (int i = 0; i < kBatches; ++i) {
      const std::string order = heard(loader, w);
      std::uint32_t slot = 64;
      while ((slot = paceline_loader_claim(loader.it, w, 0)) == 64) ::usleep(50);
      std::memset(paceline_loader_slot(loader.it, w, slot), order[0] + static_cast<int>(w), 5000);
      if (answered(loader, w, std::string{static_cast<char>(slot), order[0]}) != PACELINE_OK)
        ::_exit(1);
    }
    ::_exit(0);
  }
  for (int i = 0; i < kBatches; ++i) {
    const char order = static_cast<char>(i % 100);
    for (std::uint32_t w = 0; w < kWorkers; ++w) paceline_loader_tell(loader.it, w, &order, 1);
  }
  int count[kWorkers] = {};
  bool good = true;
  for (std::uint32_t i = 0; i < kWorkers * kBatches && good; ++i) {
    std::uint32_t from = 0;
    const std::string message = collected(loader, from);
    good = message.size() == 2 && message[1] == static_cast<char>(count[from]++ % 100);
    if (!good) break;
    const auto slot = static_cast<std::uint32_t>(message[0]);
    const char* batch = static_cast<const char*>(paceline_loader_slot(loader.it, from, slot));
    const std::string expected(5000, static_cast<char>(message[1] + static_cast<char>(from)));
    good = std::memcmp(batch, expected.data(), expected.size()) == 0;
    paceline_loader_release(loader.it, from, slot);
  }
  CHECK(good);
  if (!good)
    for (const pid_t child : children) ::kill(child, SIGKILL);
  for (const pid_t child : children) CHECK(exited_well(child));
}

CASE(loader_a_killed_worker_leaves_the_others_whole) {
  const Loader loader(2);
  const pid_t child = ::fork();
  if (child == 0) {
    // More than fits, so that it is killed in the middle of a message.
    answered(loader, 0, std::string(3 * kRingBytes, 'x'));
    ::_exit(0);
  }
  std::uint32_t from = 9;
  while (collected(loader, from, 10) != "code 1") {
  }
  ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK_EQ(answered(loader, 1, "alive"), PACELINE_OK);
  CHECK(collected(loader, from) == "alive");
  CHECK_EQ(from, 1U);
  CHECK(collected(loader, from, 10) == "code 1");
}

CASE(loader_a_thread_tells_while_another_collects) {
  constexpr int kMessages = 500;
  const Loader loader(1);
  const std::string order(3000, 'o');  // all of them fill the ring many times
  std::thread worker([&] {
    for (int i = 0; i < kMessages; ++i) answered(loader, 0, heard(loader, 0));
  });
  std::thread teller([&] {
    for (int i = 0; i < kMessages; ++i)
      paceline_loader_tell(loader.it, 0, order.data(), order.size());
  });
  bool good = true;
  std::uint32_t from = 9;
  for (int i = 0; i < kMessages && good; ++i) good = collected(loader, from) == order;
  CHECK(good);
  teller.join();
  worker.join();
}

CASE(loader_waits_end_by_time_and_by_a_signal) {
  const Loader loader(1);
  std::uint32_t from = 0;
  CHECK(collected(loader, from, 0) == "code 1");
  const auto began = std::chrono::steady_clock::now();
  CHECK(heard(loader, 0, 30) == "code 1");
  CHECK(std::chrono::steady_clock::now() - began >= std::chrono::milliseconds(29));
  struct sigaction action{};
  action.sa_handler = [](int) {};
  ::sigaction(SIGUSR1, &action, nullptr);
  std::atomic<bool> ended = false;
  const pthread_t waiter = ::pthread_self();
  std::thread signaller([&] {
    while (!ended) {
      ::pthread_kill(waiter, SIGUSR1);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  });
  CHECK(collected(loader, from) == "code 2");
  ended = true;
  signaller.join();
}

CASE(loader_another_process_goes_on_where_a_worker_stopped) {
  const Loader loader(1);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);  // the second one is ours when the first has gone
  for (const char* text : {"one", "two", "three"})
    paceline_loader_tell(loader.it, 0, text, std::strlen(text));
  const pid_t first = ::fork();
  if (first == 0) {
    if (heard(loader, 0) != "one") ::_exit(1);
    const pid_t parent = ::getpid();
    const pid_t second = ::fork();
    if (second == 0) {
      while (::getppid() == parent) ::usleep(100);
      const bool good =
          heard(loader, 0) == "three" && answered(loader, 0, "took over") == PACELINE_OK;
      ::_exit(good ? 0 : 1);
    }
    ::_exit(heard(loader, 0) == "two" ? 0 : 1);
  }
  CHECK(exited_well(first));
  std::uint32_t from = 9;
  CHECK(collected(loader, from) == "took over");
  CHECK(exited_well(-1));
}

CASE(loader_slots_are_taken_once_and_refused_when_all_are) {
  const Loader loader(2, 3, 100);
  CHECK_EQ(paceline_loader_claim(loader.it, 0, 0), 0U);
  CHECK_EQ(paceline_loader_claim(loader.it, 0, 0b010), 2U);
  CHECK_EQ(paceline_loader_claim(loader.it, 1, 0), 0U);
  CHECK_EQ(paceline_loader_claim(loader.it, 0, 0), 1U);
  CHECK_EQ(paceline_loader_claim(loader.it, 0, 0), PACELINE_LOADER_MAX_SLOTS);
  CHECK_EQ(paceline_loader_release(loader.it, 0, 2), PACELINE_OK);
  CHECK_EQ(paceline_loader_claim(loader.it, 0, 0), 2U);
  const auto* a = static_cast<const char*>(paceline_loader_slot(loader.it, 0, 0));
  const auto* b = static_cast<const char*>(paceline_loader_slot(loader.it, 0, 1));
  CHECK_EQ(b - a, 4096L);
}

CASE(loader_a_worker_that_was_not_forked_attaches_the_file_elsewhere) {
  Loader loader(2, 3, 5000);
  paceline_loader_destroy(std::exchange(loader.it, nullptr));
  int32_t file = -1;
  CHECK_EQ(paceline_loader_create_with_file(2, 3, 5000, &file, &loader.it), PACELINE_OK);
  CHECK((::fcntl(file, F_GETFD) & FD_CLOEXEC) != 0);
  Loader other(1);
  paceline_loader_destroy(std::exchange(other.it, nullptr));
  CHECK_EQ(paceline_loader_attach(file, 3, 3, 5000, &other.it), PACELINE_EINVAL);
  CHECK_EQ(paceline_loader_attach(-1, 2, 3, 5000, &other.it), PACELINE_ESYSTEM);
  CHECK_EQ(paceline_loader_attach(file, 2, 3, 5000, &other.it), PACELINE_OK);
  ::close(file);
  CHECK(paceline_loader_slot(other.it, 1, 2) != paceline_loader_slot(loader.it, 1, 2));
  CHECK_EQ(*paceline_loader_word(other.it), 0U);
  *paceline_loader_word(loader.it) = 7;
  CHECK_EQ(*paceline_loader_word(other.it), 7U);
  const std::string large(2 * kRingBytes, 'm');
  std::thread worker([&] {
    const std::string order = heard(other, 1);
    CHECK_EQ(paceline_loader_claim(other.it, 1, 0), 0U);
    std::memset(paceline_loader_slot(other.it, 1, 0), order[0], 5000);
    CHECK_EQ(answered(other, 1, order), PACELINE_OK);
  });
  ::usleep(20'000);  // the worker waits by then
  paceline_loader_tell(loader.it, 1, large.data(), large.size());
  std::uint32_t from = 9;
  CHECK(collected(loader, from) == large);
  CHECK_EQ(from, 1U);
  CHECK(std::memcmp(paceline_loader_slot(loader.it, 1, 0), large.data(), 5000) == 0);
  worker.join();
  CHECK_EQ(paceline_loader_claim(loader.it, 1, 0), 1U);
  paceline_loader_release(loader.it, 1, 0);
  CHECK_EQ(paceline_loader_claim(other.it, 1, 0), 0U);
}

CASE(loader_refuses_what_is_out_of_range) {
  paceline_loader* none = nullptr;
  CHECK_EQ(paceline_loader_create(0, 1, 1, &none), PACELINE_EINVAL);
  CHECK_EQ(paceline_loader_create(1, 65, 1, &none), PACELINE_EINVAL);
  CHECK_EQ(paceline_loader_create(1, 1, 0, &none), PACELINE_EINVAL);
  CHECK_EQ(paceline_loader_create(1000, 64, ~0ULL / 2, &none), PACELINE_EINVAL);
  CHECK(none == nullptr);
  const Loader loader(1, 1);
  CHECK(paceline_loader_slot(loader.it, 0, 1) == nullptr);
  CHECK(paceline_loader_slot(loader.it, 1, 0) == nullptr);
  CHECK_EQ(paceline_loader_tell(loader.it, 1, "", 0), PACELINE_EINVAL);
  CHECK_EQ(paceline_loader_release(loader.it, 0, 1), PACELINE_EINVAL);
  CHECK_EQ(paceline_loader_claim(loader.it, 1, 0), PACELINE_LOADER_MAX_SLOTS);
}

CASE(loader_digest_sees_every_bit_and_the_length) {
  std::mt19937 random(3);
  for (const std::size_t size : {1UL, 31UL, 32UL, 33UL, 100UL}) {
    std::string text = random_text(random, size);
    const std::uint64_t before = paceline_loader_digest(text.data(), size, 7);
    CHECK(before == paceline_loader_digest(std::string(text).data(), size, 7));
    for (std::size_t bit = 0; bit < size * 8; ++bit) {
      text[bit / 8] = static_cast<char>(text[bit / 8] ^ 1 << bit % 8);
      CHECK(before != paceline_loader_digest(text.data(), size, 7));
      text[bit / 8] = static_cast<char>(text[bit / 8] ^ 1 << bit % 8);
    }
    text.push_back('\0');
    CHECK(before != paceline_loader_digest(text.data(), size + 1, 7));
  }
}
