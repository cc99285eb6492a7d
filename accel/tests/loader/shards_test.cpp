// SPDX-License-Identifier: Apache-2.0
// Tar shards: what is a sample, archives that lie, and the order that ranks divide. Archives by
// Python's tarfile and GNU tar are read in test_loader_shards.py.
#include "paceline/shards.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "check.hpp"
#include "loader/order/order.hpp"
#include "loader/shards/shards.hpp"
#include "loader/shards/tar.hpp"

namespace {

using paceline::loader::length_of;
using paceline::loader::Order;
using paceline::loader::samples_at;
using paceline::loader::Shards;
using paceline::loader::Source;

// Archives in memory, each read in small pieces.
class Memory final : public Source {
 public:
  explicit Memory(std::vector<std::string> archives) : archives_(std::move(archives)) {}
  std::size_t count() const override { return archives_.size(); }
  const std::string& name(std::size_t) const override { return name_; }
  std::expected<std::uint64_t, std::string> size(std::size_t object) const override {
    return archives_[object].size();
  }
  std::expected<std::size_t, std::string> pread(std::size_t object, std::uint64_t offset,
                                                void* target, std::size_t size) const override {
    const std::string& archive = archives_[object];
    if (offset >= archive.size()) return 0;
    const std::size_t count = std::min<std::size_t>(size, archive.size() - offset);
    std::memcpy(target, archive.data() + offset, count);
    return count;
  }

 private:
  std::vector<std::string> archives_;
  std::string name_ = "shard";
};

std::string sealed(std::string block) {
  block.replace(148, 8, 8, ' ');
  unsigned sum = 0;
  for (const char c : block) sum += static_cast<unsigned char>(c);
  char text[9];
  std::snprintf(text, sizeof text, "%06o", sum);
  block.replace(148, 7, text, 7);
  return block;
}

std::string header(const std::string& name, std::uint64_t size, char type = '0') {
  std::string block(512, '\0');
  block.replace(0, name.size(), name);
  char text[13];
  std::snprintf(text, sizeof text, "%011llo", static_cast<unsigned long long>(size));
  block.replace(124, 12, text, 12);
  block[156] = type;
  block.replace(257, 8,
                std::string("ustar\0"
                            "00",
                            8));
  return sealed(block);
}

std::string padded(std::string data) {
  data.resize((data.size() + 511) / 512 * 512, '\0');
  return data;
}

std::string file(const std::string& name, const std::string& data, char type = '0') {
  return header(name, data.size(), type) + padded(data);
}

const std::string kEnd(1024, '\0');

std::expected<std::unique_ptr<Shards>, std::string> opened(std::vector<std::string> archives) {
  return Shards::open(std::make_unique<Memory>(std::move(archives)), 3);
}

// "key:ext=data,ext=data key:…", or what is wrong.
std::string described(std::vector<std::string> archives) {
  const auto shards = opened(std::move(archives));
  if (!shards) return shards.error();
  std::string text;
  for (const auto& sample : (*shards)->samples()) {
    text += (text.empty() ? "" : " ") + std::string((*shards)->key(sample)) + ":";
    for (const auto& member : (*shards)->members(sample)) {
      std::string data(member.size, '\0');
      if (!(*shards)->read(sample, member, data.data())) return "unreadable";
      text += (text.ends_with(':') ? "" : ",") + (*shards)->extension(member) + "=" + data;
    }
  }
  return text;
}

bool refused(const std::string& archive, const char* why) {
  const std::string said = described({archive});
  const bool good = said.starts_with("shard: at byte ") && said.find(why) != std::string::npos;
  if (!good) std::fprintf(stderr, "said: %s\n", said.c_str());
  return good;
}

std::string pax(const std::string& key, const std::string& value) {
  const std::size_t rest = key.size() + value.size() + 3;
  std::size_t length = rest + 1;
  while (rest + std::to_string(length).size() != length) ++length;
  return std::to_string(length) + " " + key + "=" + value + "\n";
}

}  // namespace

CASE(shards_group_files_into_samples) {
  CHECK_EQ(described({file("a/0.JPG", "j") + file("a/0.cls", "7") + file("a/", "", '5') +
                          file("b/0.jpg", "k") + file("README", "no") + file(".hidden", "no") +
                          file("__meta__", "no") + file("b/1.seg.png", "") + kEnd,
                      file("c.txt", std::string(513, 'c')), kEnd, ""}) ==
               "a/0:jpg=j,cls=7 b/0:jpg=k b/1:seg.png= c:txt=" + std::string(513, 'c'),
           true);
}

CASE(shards_names_may_be_long) {
  const std::string name = std::string(120, 'n') + "/x.txt";
  const std::string size_of_next = file("ignored", pax("path", name) + pax("mtime", "1.5"), 'x');
  CHECK(described({size_of_next + file("short.txt", "1") + file("y.txt", "2") + kEnd}) ==
        std::string(120, 'n') + "/x:txt=1 y:txt=2");
  CHECK(described({file("././@LongLink", name + '\0', 'L') + file("short.txt", "1") + kEnd}) ==
        std::string(120, 'n') + "/x:txt=1");
  std::string prefixed = header("x.txt", 1);
  prefixed.replace(345, 3, "a/b");
  CHECK(described({sealed(prefixed) + padded("1")}) == "a/b/x:txt=1");
  std::string binary = header("x.txt", 0);
  binary.replace(124, 12, std::string("\x80\0\0\0\0\0\0\0\0\0\0\2", 12));
  CHECK(described({sealed(binary) + padded("ab")}) == "x:txt=ab");
  CHECK(described({file("x", pax("size", "2"), 'x') + header("x.txt", 0) + padded("ab") + kEnd}) ==
        "x:txt=ab");
}

CASE(shards_refuse_archives_that_lie) {
  const std::string good = file("a.txt", "1");
  CHECK(refused(good + header("b.txt", 5000), "it was cut off"));
  CHECK(refused(good + header("b.txt", 0).substr(0, 200), "it was cut off"));
  CHECK(refused(good + std::string(512, 'x'), "checksum"));
  CHECK(refused("\x1f\x8b" + std::string(510, 'x'), "compressed"));
  CHECK(refused(good + file("a.TXT", "2"), "a second a.TXT in one sample"));
  CHECK(refused(file("a.txt", "1", 'S'), "sparse"));
  CHECK(refused(file("x", pax("GNU.sparse.major", "1"), 'x') + good, "sparse"));
  CHECK(refused(file("x", pax("size", "99999"), 'x') + good, "it was cut off"));
  CHECK(refused(file("x", pax("size", "18446744073709551615"), 'x') + good, "it was cut off"));
  CHECK(refused(file("x", pax("size", "-1"), 'x') + good, "no number"));
  CHECK(refused(file("x", "99 path=a\n", 'x') + good, "extended header"));
  CHECK(refused(file("x", "3 \n", 'x') + good, "extended header"));
  CHECK(refused(file("x", pax("path", std::string("a\0b.txt", 7)), 'x') + good, "zero byte"));
  std::string octal = header("b.txt", 1);
  octal[130] = '9';
  CHECK(refused(sealed(octal), "no number"));
  std::string huge = header("b.txt", 1);
  huge.replace(124, 12, std::string("\x80\0\0\0") + std::string(8, '\xff'));
  CHECK(refused(sealed(huge), ""));
  std::string many;
  for (int i = 0; i < 1001; ++i)
    many += header("a" + std::to_string(i) + ".x" + std::to_string(i), 0);
  CHECK(refused(many, "1000 extensions"));
}

// Every byte of the headers of a good archive, changed: another index, or a refusal, within the
// archive.
CASE(shards_read_nothing_outside_the_archive) {
  const std::string good =
      file("x", pax("path", "long.txt"), 'x') + file("a.txt", "1") + file("b.txt", "22") + kEnd;
  for (std::size_t at = 0; at < good.size(); ++at) {
    for (const int change : {1, 0x80, 0xff}) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ change);
      // With the right checksum, or it would be refused at once.
      const std::size_t block = at / 512 * 512;
      if (block == 0 || block == 1024 || block == 2048)
        bad.replace(block, 512, sealed(bad.substr(block, 512)));
      described({bad});
    }
    described({good.substr(0, at)});
  }
}

CASE(shards_order_gives_every_sample_once_and_ranks_their_share) {
  const std::vector<std::uint64_t> counts = {5, 0, 17, 1, 9, 30, 2};
  constexpr std::uint64_t kTotal = 64;
  for (const bool shuffle : {false, true}) {
    for (const std::uint32_t window : {1U, 3U, 100U}) {
      for (const std::uint32_t ranks : {1U, 3U, 7U, 64U, 100U}) {
        for (const bool drop : {false, true}) {
          std::map<std::uint64_t, int> seen;
          for (std::uint32_t rank = 0; rank < ranks; ++rank) {
            const Order order{.seed = 7,
                              .epoch = 2,
                              .rank = rank,
                              .ranks = ranks,
                              .window = window,
                              .shuffle = shuffle,
                              .drop_last = drop};
            std::vector<std::uint64_t> samples(length_of(order, kTotal));
            CHECK_EQ(samples.size(), drop ? kTotal / ranks : (kTotal + ranks - 1) / ranks);
            samples_at(order, counts, 0, samples);
            for (const std::uint64_t sample : samples) ++seen[sample];
            // Any place is gone on from.
            for (const std::uint64_t first : {samples.size() / 2, samples.size()}) {
              std::vector<std::uint64_t> rest(samples.size() - first);
              samples_at(order, counts, first, rest);
              CHECK(std::equal(rest.begin(), rest.end(),
                               samples.begin() + static_cast<std::ptrdiff_t>(first)));
            }
          }
          CHECK(seen.empty() || seen.rbegin()->first < kTotal);
          CHECK_EQ(seen.size(), drop ? kTotal / ranks * ranks : kTotal);
        }
      }
    }
  }
}

CASE(shards_order_is_that_of_every_release) {
  const std::vector<std::uint64_t> counts = {3, 4, 5};
  const auto of = [&](std::uint64_t seed, std::uint64_t epoch, std::uint32_t window) {
    std::string text;
    std::vector<std::uint64_t> samples(12);
    samples_at({.seed = seed, .epoch = epoch, .window = window, .shuffle = true}, counts, 0,
               samples);
    for (const std::uint64_t sample : samples) text += static_cast<char>('a' + sample);
    return text;
  };
  CHECK(of(1, 0, 1) == "defghjlkicab");
  CHECK(of(1, 0, 3) == "jiclgedfbahk");
  CHECK(of(1, 1, 1) == "efgdacbilkhj");
  CHECK(of(2, 0, 1) == "bacdgefjihlk");
}

// Of 2,000 seeds, each of the 24 orders of 4 samples about as often: 83 times, give or take five
// standard deviations.
CASE(shards_orders_are_all_as_likely) {
  std::map<std::vector<std::uint64_t>, int> seen;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    std::vector<std::uint64_t> samples(4);
    samples_at({.seed = seed, .window = 4, .shuffle = true}, std::vector<std::uint64_t>{4}, 0,
               samples);
    ++seen[samples];
  }
  CHECK_EQ(seen.size(), 24UL);
  for (const auto& [order, times] : seen) CHECK(times > 83 - 45 && times < 83 + 45);
}

CASE(shards_that_are_not_there_are_named) {
  const char* paths[] = {"/nowhere/a.tar"};
  paceline_shards* shards = nullptr;
  char why[32];
  CHECK_EQ(paceline_shards_open(paths, 1, 4, &shards, why, sizeof why), PACELINE_ESYSTEM);
  CHECK(shards == nullptr &&
        std::string(why) == std::string("/nowhere/a.tar: cannot be opened: No").substr(0, 31));
  const char* folder[] = {"/"};
  CHECK_EQ(paceline_shards_open(folder, 1, 4, &shards, why, sizeof why), PACELINE_ESYSTEM);
  CHECK(std::string(why) == "/: is not a file");
  CHECK_EQ(paceline_shards_open(nullptr, 0, 4, &shards, why, sizeof why), PACELINE_OK);
  CHECK_EQ(paceline_shards_samples(shards), 0UL);
  const char* key = nullptr;
  std::uint32_t members = 0;
  CHECK_EQ(paceline_shards_sample(shards, 0, &key, &members), PACELINE_EINVAL);
  std::uint64_t length = 0;
  paceline_order order{.size = sizeof order,
                       .flags = 0,
                       .seed = 0,
                       .epoch = 0,
                       .rank = 1,
                       .ranks = 1,
                       .window = 1,
                       .reserved = 0};
  CHECK_EQ(paceline_shards_length(shards, &order, &length), PACELINE_EINVAL);
  order.rank = 0;
  CHECK_EQ(paceline_shards_length(shards, &order, &length), PACELINE_OK);
  CHECK_EQ(paceline_shards_order(shards, &order, 0, 1, &length), PACELINE_EINVAL);
  paceline_shards_close(shards);
}
