// SPDX-License-Identifier: Apache-2.0
// The threads of a GPU's block as fibers of one thread: each runs until it comes to a barrier or to
// its end, then the next, in an order that changes from barrier to barrier. So a kernel that lacks
// a barrier, or counts on an order, computes something else. One thread at a time, which need not
// be the same. The sanitizers are told of every change of stacks.
#pragma once

#include <ucontext.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace paceline::device_test {

class Fibers {
 public:
  explicit Fibers(int count) : fibers_(static_cast<std::size_t>(count)) {
    for (std::size_t i = 0; i < fibers_.size(); ++i) {
      Fiber& fiber = fibers_[i];
      // 64 MiB in all, of which little is ever used: writing it takes ThreadSanitizer seconds of
      // every stream's thread.
      fiber.stack = std::make_unique_for_overwrite<std::byte[]>(kStack);
      ::getcontext(&fiber.context);
      fiber.context.uc_stack.ss_sp = fiber.stack.get();
      fiber.context.uc_stack.ss_size = kStack;
      fiber.context.uc_link = nullptr;
      current() = this;
      ::makecontext(&fiber.context, &Fibers::enter, 0);
#if defined(__SANITIZE_THREAD__)
      fiber.tsan = __tsan_create_fiber(0);
#endif
      order_.push_back(i);
    }
  }

  Fibers(const Fibers&) = delete;
  Fibers& operator=(const Fibers&) = delete;

  ~Fibers() {
#if defined(__SANITIZE_THREAD__)
    for (Fiber& fiber : fibers_) __tsan_destroy_fiber(fiber.tsan);
#endif
  }

  // Runs work(number) as every fiber. Answers whether all of them came to the same number of
  // barriers.
  bool run(const std::function<void(int)>& work) {
    current() = this;
    work_ = &work;
    for (Fiber& fiber : fibers_) fiber.ended = false;
    bool even = true;
    for (std::size_t ended = 0; ended < fibers_.size();) {
      std::shuffle(order_.begin(), order_.end(), random_);
      const std::size_t before = ended;
      for (const std::size_t number : order_) {
        if (fibers_[number].ended) continue;
        running_ = number;
        to_fiber(fibers_[number]);
        ended += fibers_[number].ended ? 1 : 0;
      }
      // Some have ended, and others wait at a barrier that those never come to.
      even = even && (ended == before || ended == fibers_.size());
    }
    return even;
  }

  // Called by a fiber: until all others are here too.
  void barrier() { to_main(fibers_[running_], false); }

  [[nodiscard]] int running() const { return static_cast<int>(running_); }

  static Fibers*& current() {
    static Fibers* fibers = nullptr;
    return fibers;
  }

 private:
  static constexpr std::size_t kStack = 256 * 1024;

  struct Fiber {
    ucontext_t context;
    std::unique_ptr<std::byte[]> stack;
    bool ended = false;
    void* fake_stack = nullptr;
    void* tsan = nullptr;
  };

  static void enter() {
    Fibers& all = *current();
    all.arrived(nullptr);
    for (;;) {
      (*all.work_)(all.running());
      // The same fiber serves the next block.
      all.to_main(all.fibers_[all.running_], true);
    }
  }

  void to_fiber(Fiber& fiber) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&main_fake_stack_, fiber.stack.get(), kStack);
#endif
#if defined(__SANITIZE_THREAD__)
    main_tsan_ = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(fiber.tsan, 0);
#endif
    ::swapcontext(&main_, &fiber.context);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(main_fake_stack_, nullptr, nullptr);
#endif
  }

  void to_main(Fiber& fiber, bool ended) {
    fiber.ended = ended;
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&fiber.fake_stack, main_stack_, main_stack_size_);
#endif
#if defined(__SANITIZE_THREAD__)
    __tsan_switch_to_fiber(main_tsan_, 0);
#endif
    ::swapcontext(&fiber.context, &main_);
    arrived(fiber.fake_stack);
  }

  // On a fiber's stack, coming from the main one.
  void arrived([[maybe_unused]] void* fake_stack) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(fake_stack, &main_stack_, &main_stack_size_);
#endif
  }

  std::vector<Fiber> fibers_;
  std::vector<std::size_t> order_;
  std::mt19937 random_{5};
  ucontext_t main_{};
  const std::function<void(int)>* work_ = nullptr;
  std::size_t running_ = 0;
  [[maybe_unused]] void* main_fake_stack_ = nullptr;
  [[maybe_unused]] const void* main_stack_ = nullptr;
  [[maybe_unused]] std::size_t main_stack_size_ = 0;
  [[maybe_unused]] void* main_tsan_ = nullptr;
};

}  // namespace paceline::device_test
