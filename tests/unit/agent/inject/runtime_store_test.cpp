// SPDX-License-Identifier: Apache-2.0
#include "agent/inject/runtime_store.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <string>

#include "testing/runtime_fixture.hpp"

namespace paceline::agent {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

/// Runs in its own process; returns its status as wait gives it.
int in_child(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return status;
}

class RuntimeStoreTest : public testing::Test {
 protected:
  RuntimeStoreTest() { make_runtime(source_, "one"); }

  std::vector<std::string> names() const {
    std::vector<std::string> result;
    if (!fs::exists(folder_)) return result;
    for (const auto& entry : fs::directory_iterator(folder_))
      result.push_back(entry.path().filename().string());
    return result;
  }

  Scratch scratch_;
  const fs::path source_ = scratch_ / "image";
  const fs::path folder_ = scratch_ / "node/runtimes";
};

TEST_F(RuntimeStoreTest, ACopyIsWholeReadableByAllAndNamedByVersionAndContent) {
  RuntimeStore store(folder_);
  const auto name = store.stage(source_);
  ASSERT_TRUE(name) << name.error().message;
  EXPECT_THAT(*name, testing::MatchesRegex("0\\.1\\.0-[0-9a-f]+"));
  EXPECT_EQ(picture(store.path_of(*name)), picture(source_));
  EXPECT_EQ(fs::status(store.path_of(*name)).permissions(), fs::perms(0755));
  EXPECT_TRUE(store.intact());
  EXPECT_THAT(names(), ElementsAre(*name));
}

TEST_F(RuntimeStoreTest, WhatLiesThereIsNeverWrittenAgain) {
  RuntimeStore store(folder_);
  const std::string name = store.stage(source_).value();
  struct stat before{};
  ASSERT_EQ(::stat((store.path_of(name) / "lib/libpaceline.so.1").c_str(), &before), 0);
  RuntimeStore restarted(folder_, [](std::string_view what) { ADD_FAILURE() << what; });
  EXPECT_EQ(restarted.stage(source_).value(), name);
  struct stat after{};
  ASSERT_EQ(::stat((store.path_of(name) / "lib/libpaceline.so.1").c_str(), &after), 0);
  EXPECT_EQ(before.st_ino, after.st_ino);
  EXPECT_EQ(before.st_ctim.tv_nsec, after.st_ctim.tv_nsec);
}

TEST_F(RuntimeStoreTest, AnotherBuildOfTheSameVersionLiesBesideIt) {
  RuntimeStore store(folder_);
  const std::string one = store.stage(source_).value();
  make_runtime(source_, "two");
  const std::string two = store.stage(source_).value();
  EXPECT_NE(one, two);
  EXPECT_THAT(store.versions(), SizeIs(2));
  EXPECT_THAT(picture(store.path_of(one)).at("bin/paceline-launcher"), HasSubstr("launcher one"));
  // An execute bit and a link with another target differ too.
  fs::permissions(source_ / "bin/paceline-launcher", fs::perms(0644));
  const std::string three = store.stage(source_).value();
  fs::remove(source_ / "lib/libpaceline.so");
  fs::create_symlink("elsewhere", source_ / "lib/libpaceline.so");
  EXPECT_EQ((std::set{one, two, three, store.stage(source_).value()}.size()), 4U);
}

TEST_F(RuntimeStoreTest, HalfASourceIsRefused) {
  fs::remove(source_ / ".complete");
  const auto missing = RuntimeStore(folder_).stage(source_);
  ASSERT_FALSE(missing);
  EXPECT_THAT(missing.error().message, HasSubstr("paceline-launcher install"));
  for (const char* version : {"", "../../etc", ".hidden", "a b"}) {
    std::ofstream(source_ / ".complete") << version << "\n";
    EXPECT_FALSE(RuntimeStore(folder_).stage(source_)) << version;
  }
  std::ofstream(source_ / ".complete") << std::string(1000, '1') << "\n";
  EXPECT_FALSE(RuntimeStore(folder_).stage(source_));
  std::ofstream(source_ / ".complete") << "0.1.0\n";
  ASSERT_EQ(::mkfifo((source_ / "lib/pipe").c_str(), 0600), 0);
  const auto pipe = RuntimeStore(folder_).stage(source_);
  ASSERT_FALSE(pipe);  // and does not hang on it
  EXPECT_THAT(pipe.error().message, HasSubstr("lib/pipe"));
  EXPECT_THAT(names(), IsEmpty());
}

TEST_F(RuntimeStoreTest, KilledAtAnyPointLeavesNoHalfVersionAndTheNextOneMendsIt) {
  const auto whole = picture(source_);
  int killed = 0;
  for (bool done = false; !done; ++killed) {
    ASSERT_LT(killed, 200);
    fs::remove_all(folder_);
    int left = killed;
    const int status = in_child([&] {
      RuntimeStore store(folder_, [&](std::string_view) {
        if (left-- == 0) ::raise(SIGKILL);
      });
      return store.stage(source_) ? 0 : 1;
    });
    done = WIFEXITED(status);
    if (done) {
      EXPECT_EQ(WEXITSTATUS(status), 0);
    }
    RuntimeStore next(folder_);
    for (const std::string& name : next.versions())
      EXPECT_EQ(picture(next.path_of(name)), whole) << "kill " << killed;
    const auto name = next.stage(source_);
    ASSERT_TRUE(name) << "kill " << killed << ": " << name.error().message;
    EXPECT_EQ(picture(next.path_of(*name)), whole) << "kill " << killed;
    ASSERT_TRUE(next.collect({}));
    EXPECT_THAT(names(), ElementsAre(*name)) << "kill " << killed;
  }
  EXPECT_GT(killed, 10);
}

TEST_F(RuntimeStoreTest, KilledWhileCollectingTheNextOneEndsIt) {
  int killed = 0;
  for (bool done = false; !done; ++killed) {
    ASSERT_LT(killed, 50);
    fs::remove_all(folder_);
    make_runtime(source_, "old");
    const std::string old = RuntimeStore(folder_).stage(source_).value();
    make_runtime(source_, "new");
    int left = killed;
    const int status = in_child([&] {
      RuntimeStore store(folder_);
      if (!store.stage(source_)) return 1;
      RuntimeStore collector(folder_, [&](std::string_view) {
        if (left-- == 0) ::raise(SIGKILL);
      });
      return collector.collect({}) ? 0 : 1;
    });
    done = WIFEXITED(status);
    RuntimeStore next(folder_);
    for (const std::string& name : next.versions())
      EXPECT_THAT(picture(next.path_of(name)), SizeIs(picture(source_).size()))
          << name << ", kill " << killed;
    const std::string current = next.stage(source_).value();
    ASSERT_TRUE(next.collect({}));
    EXPECT_THAT(names(), ElementsAre(current)) << "kill " << killed;
  }
  EXPECT_EQ(killed, 3);  // before the name is taken, before the files are, not at all
}

TEST_F(RuntimeStoreTest, AFullDiskNamesTheFileLeavesNothingAndIsTriedAgain) {
  int out[2];
  ASSERT_EQ(::pipe(out), 0);
  const int status = in_child([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    // the kernel refuses further writes, as on a full disk
    const rlimit limit{100'000, 100'000};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 2;
    const auto staged = RuntimeStore(folder_).stage(source_);
    if (staged) return 3;
    const std::string& said = staged.error().message;
    return ::write(out[1], said.data(), said.size()) > 0 ? 0 : 4;
  });
  ASSERT_TRUE(WIFEXITED(status));
  ASSERT_EQ(WEXITSTATUS(status), 0);
  std::string said(4096, '\0');
  const ssize_t size = ::read(out[0], said.data(), said.size());
  ASSERT_GT(size, 0);
  said.resize(static_cast<std::size_t>(size));
  EXPECT_THAT(said, HasSubstr("lib/libpaceline.so.1"));
  EXPECT_THAT(names(), IsEmpty());
  EXPECT_TRUE(RuntimeStore(folder_).stage(source_));
  ::close(out[0]);
  ::close(out[1]);
}

TEST_F(RuntimeStoreTest, StoppingEndsACopyAndLeavesNothing) {
  std::stop_source stopping;
  RuntimeStore store(folder_, [&](std::string_view what) {
    if (what == "copy lib/libpaceline.so") stopping.request_stop();
  });
  const auto stopped = store.stage(source_, stopping.get_token());
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, Code::kCancelled);
  EXPECT_THAT(names(), IsEmpty());
}

TEST_F(RuntimeStoreTest, TwoAtATimeMakeOneVersionAndTakeNothingFromEachOther) {
  RuntimeStore second(folder_);
  std::string theirs;
  bool entered = false;
  // The other store starts, copies and collects while this one is about to rename its copy.
  RuntimeStore first(folder_, [&](std::string_view what) {
    if (!what.starts_with("rename") || std::exchange(entered, true)) return;
    theirs = second.stage(source_).value();
    ASSERT_TRUE(second.collect({}));
  });
  EXPECT_EQ(first.stage(source_).value(), theirs);
  EXPECT_TRUE(entered);
  EXPECT_TRUE(first.intact());
  EXPECT_TRUE(second.intact());
  EXPECT_THAT(names(), ElementsAre(theirs));
}

TEST_F(RuntimeStoreTest, WhatSomebodyHoldsOrKeepsStays) {
  RuntimeStore holder(folder_);
  const std::string held = holder.stage(source_).value();
  make_runtime(source_, "kept");
  const std::string kept = RuntimeStore(folder_).stage(source_).value();
  make_runtime(source_, "stale");
  const std::string stale = RuntimeStore(folder_).stage(source_).value();
  fs::create_directories(folder_ / "somebody-else's");
  make_runtime(source_, "new");
  RuntimeStore store(folder_);
  const std::string current = store.stage(source_).value();
  EXPECT_EQ(store.collect({kept}).value(), 1);
  EXPECT_THAT(names(), testing::UnorderedElementsAre(held, kept, current, "somebody-else's"));
  EXPECT_TRUE(holder.intact());
  EXPECT_EQ(store.collect({}).value(), 1);
  EXPECT_THAT(names(), testing::UnorderedElementsAre(held, current, "somebody-else's"));
}

TEST_F(RuntimeStoreTest, AFolderThatSomebodyEmptiedIsNoticedAndFilledAgain) {
  RuntimeStore store(folder_);
  const std::string name = store.stage(source_).value();
  fs::remove_all(folder_);
  EXPECT_FALSE(store.intact());
  EXPECT_EQ(store.stage(source_).value(), name);
  EXPECT_TRUE(store.intact());
  EXPECT_EQ(picture(store.path_of(name)), picture(source_));
}

}  // namespace
}  // namespace paceline::agent
