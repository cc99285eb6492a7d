// SPDX-License-Identifier: Apache-2.0
// What job and RuntimeProfile say together about acceleration.
#include "operator/api/acceleration.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "operator/api/features/compression.hpp"
#include "operator/api/parse.hpp"
#include "tests/unit/operator/api/job_document.hpp"

namespace paceline {
namespace {

std::string shown(const std::optional<api::Acceleration>& acceleration) {
  if (!acceleration) return "nothing";
  const auto& features = acceleration->features;
  const auto switched = [&](api::Feature feature, const char* name) {
    return features[feature] == "Auto" ? std::string(" ") + name : "";
  };
  const auto named = [&](api::Feature feature) {
    return features[feature] == "Disabled" ? "" : " " + features[feature];
  };
  return acceleration->profile + " " + std::string(api::to_string(acceleration->numerics)) +
         switched(api::Feature::kLoader, "loader") +
         switched(api::Feature::kOptimizer, "optimizer") +
         switched(api::Feature::kCommunication, "communication") +
         named(api::Feature::kCompression) + named(api::Feature::kPrecision) +
         (features[api::Feature::kCudaGraph] == "Auto" ? "" : " no graphs");
}

/// A way to compress without settings.
nlohmann::json way(const char* member) { return {{member, nlohmann::json::object()}}; }

TEST(RuntimeProfile, SaysWhatTheJobLeavesUnset) {
  struct Case {
    nlohmann::json profile;  // null: there is none
    nlohmann::json job;      // null: the job says nothing
    std::string expected;
  };
  const nlohmann::json empty = nlohmann::json::object();
  const nlohmann::json lossy = {
      {"mode", "Manual"}, {"numerics", "Lossy"}, {"compression", way("int8")}};
  const nlohmann::json precise = {{"mode", "Manual"}, {"numerics", "Lossy"}, {"precision", "O2"}};
  const Case cases[] = {
      {nullptr, nullptr, " Reordered loader optimizer communication"},
      {nullptr, empty, " Reordered loader optimizer communication"},
      {empty, nullptr, "p Reordered loader optimizer communication"},
      {{{"mode", "Disabled"}}, nullptr, "nothing"},
      {{{"mode", "Disabled"}}, empty, "nothing"},
      {{{"mode", "Disabled"}}, {{"loader", "Auto"}}, "p Reordered loader"},
      {{{"mode", "Disabled"}}, {{"mode", "Auto"}}, "p Reordered loader optimizer communication"},
      {{{"numerics", "Bitwise"}, {"optimizer", "Disabled"}},
       nullptr,
       "p Bitwise loader communication"},
      {{{"numerics", "Bitwise"}, {"optimizer", "Disabled"}},
       {{"numerics", "Reordered"}},
       "p Reordered loader communication"},
      {{{"loader", "Auto"}, {"optimizer", "Auto"}}, {{"mode", "Disabled"}}, "nothing"},
      {{{"mode", "Manual"}, {"loader", "Auto"}}, {{"loader", "Disabled"}}, "nothing"},
      {{{"mode", "Manual"}, {"loader", "Auto"}},
       {{"optimizer", "Auto"}},
       "p Reordered loader optimizer"},
      // Compression: never unless it is named, in its class alone, and with what carries it.
      {nullptr, {{"numerics", "Lossy"}}, " Lossy loader optimizer communication"},
      {nullptr, lossy, " Lossy communication Int8"},
      {{{"communication", "Disabled"}}, lossy, "p Lossy communication Int8"},
      {lossy, nullptr, "p Lossy communication Int8"},
      {lossy, {{"loader", "Auto"}}, "p Lossy loader communication Int8"},
      {lossy, {{"compression", way("disabled")}}, "nothing"},
      {lossy, {{"communication", "Disabled"}}, "nothing"},
      {lossy, {{"numerics", "Reordered"}, {"optimizer", "Auto"}}, "p Reordered optimizer"},
      {lossy, {{"numerics", "Lossy"}, {"compression", way("fp16")}}, "p Lossy communication FP16"},
      {{{"mode", "Disabled"}}, lossy, "p Lossy communication Int8"},
      // Precision: likewise never unless it is named, and in its class alone.
      {nullptr, precise, " Lossy O2"},
      {precise, nullptr, "p Lossy O2"},
      {precise, {{"precision", "Disabled"}}, "nothing"},
      {precise, {{"numerics", "Lossy"}, {"precision", "TF32"}}, "p Lossy TF32"},
      {precise, {{"numerics", "Reordered"}, {"loader", "Auto"}}, "p Reordered loader"},
      {precise, {{"numerics", "Bitwise"}}, "nothing"},
      // Graphs: on unless they are turned off.
      {nullptr, {{"mode", "Manual"}, {"cudaGraph", "Disabled"}}, " Reordered no graphs"},
      {{{"cudaGraph", "Disabled"}},
       {{"numerics", "Bitwise"}, {"mode", "Manual"}},
       "p Bitwise no graphs"},
      {{{"cudaGraph", "Disabled"}, {"mode", "Manual"}}, {{"cudaGraph", "Auto"}}, "nothing"},
      {{{"cudaGraph", "Disabled"}}, {{"mode", "Disabled"}}, "nothing"},
  };
  for (const Case& test : cases) {
    auto document = minimal();
    if (!test.job.is_null()) document["spec"]["acceleration"] = test.job;
    const auto job = api::parse_training_job(document);
    ASSERT_TRUE(job.has_value()) << error_of(document);
    std::expected<api::RuntimeProfile, api::FieldErrors> profile;
    if (!test.profile.is_null())
      profile = api::parse_runtime_profile(
          {{"metadata", {{"name", "p"}}}, {"spec", {{"acceleration", test.profile}}}});
    ASSERT_TRUE(profile.has_value()) << test.profile;
    EXPECT_EQ(
        shown(api::resolve(job->spec.acceleration, test.profile.is_null() ? nullptr : &*profile)),
        test.expected)
        << test.profile << test.job;
  }
}

/// The text that a program gets of spec.acceleration.compression, or what is wrong with it.
std::string text_of(const nlohmann::json& compression) {
  auto document = minimal();
  document["spec"]["acceleration"] = {{"numerics", "Lossy"}, {"compression", compression}};
  const auto job = api::parse_training_job(document);
  if (!job) return error_of(document);
  return job->spec.acceleration.features[api::Feature::kCompression].value_or("unset");
}

TEST(Compression, IsAnObjectThatTheProgramGetsAsAText) {
  const auto& rule = contract::kFeatures.at(static_cast<std::size_t>(api::Feature::kCompression));
  const struct {
    const char* object;
    const char* text;
  } cases[] = {
      {R"({"disabled": {}})", "Disabled"},
      {R"({"fp16": {}})", "FP16"},
      {R"({"bf16": {"startStep": 2}})", "BF16:start=2"},
      {R"({"int8": {"startStep": 100}})", "Int8:start=100"},
      {R"({"topK": {}})", "TopK"},
      {R"({"topK": {"ratio": "0.000001"}})", "TopK:ratio=0.000001"},
      {R"({"topK": {"startStep": 7}})", "TopK:start=7"},
      {R"({"topK": {"startStep": 10, "ratio": "0.5"}})", "TopK:ratio=0.5,start=10"},
      {R"({"powerSGD": {"rank": 4}})", "PowerSGD:rank=4"},
      {R"({"powerSGD": {"rank": 1, "startStep": 999999999}})", "PowerSGD:rank=1,start=999999999"},
  };
  for (const auto& [object, text] : cases) {
    const auto value = nlohmann::json::parse(object);
    EXPECT_EQ(text_of(value), text);
    EXPECT_TRUE(api::is_allowed(rule, text)) << text;
    EXPECT_EQ(api::compression_object(text), value);
    EXPECT_EQ(api::compression_in({{"compression", value}}), text);
  }
  EXPECT_EQ(text_of(nullptr), "unset");
  EXPECT_EQ(text_of({{"fp16", nlohmann::json::object()}, {"int8", nullptr}}), "FP16");
}

TEST(Compression, AWrongOneIsRefusedByTheNameOfTheField) {
  const struct {
    const char* object;
    const char* said;
  } cases[] = {
      {R"("Int8")", "compression: \"Int8\" is no way to compress; write exactly one of disabled"},
      {"{}", "compression: {} names no way; write exactly one of disabled, fp16"},
      {R"({"fp16": {}, "int8": {}})", "names several ways; write exactly one of"},
      {R"({"zip": {}})", "compression.zip: is an unknown field"},
      {R"({"fp16": true})", "compression.fp16: true is not an object"},
      {R"({"fp16": {"ratio": "0.1"}})", "compression.fp16.ratio: is an unknown field"},
      {R"({"disabled": {"startStep": 2}})",
       "compression.disabled.startStep: is an unknown field; remove it"},
      {R"({"fp16": {"startStep": 1}})",
       "startStep: 1 is out of range; write a whole number from 2"},
      {R"({"int8": {"startStep": 1000000000}})", "is out of range"},
      {R"({"int8": {"startStep": "2"}})", "is not a whole number"},
      {R"({"powerSGD": {"rank": 0}})", "compression.powerSGD.rank: 0 is out of range"},
      {R"({"topK": {"ratio": 0.1}})", "compression.topK.ratio: 0.1 is not a string; put it in"},
      {R"({"topK": {"ratio": "1"}})", "is no share of the values; write a number from 0.000001"},
      {R"({"topK": {"ratio": "0."}})", "is no share"},
      {R"({"topK": {"ratio": "0.0"}})", "is no share"},
      {R"({"topK": {"ratio": ".1"}})", "is no share"},
      {R"({"topK": {"ratio": "0.10"}})", "is no share"},
      {R"({"topK": {"ratio": "0.1e"}})", "is no share"},
      {R"({"topK": {"ratio": "0.0000001"}})", "is too long"},
  };
  for (const auto& [object, said] : cases) {
    const auto value = nlohmann::json::parse(object);
    EXPECT_THAT(text_of(value), testing::HasSubstr(said));
    EXPECT_EQ(api::compression_in({{"compression", value}}), std::nullopt) << object;
  }
}

TEST(Compression, RefusedWhereItContradicts) {
  const auto wrong = [](const nlohmann::json& acceleration) {
    auto document = minimal();
    document["spec"]["acceleration"] = acceleration;
    return error_of(document);
  };
  const nlohmann::json int8 = way("int8");
  const nlohmann::json fp16 = way("fp16");
  const nlohmann::json off = way("disabled");
  EXPECT_THAT(wrong({{"compression", int8}}),
              testing::HasSubstr("spec.acceleration.compression: {\"int8\":{}} loses precision, "
                                 "which only numerics: Lossy "
                                 "allows; write numerics: Lossy beside it"));
  EXPECT_THAT(wrong({{"compression", fp16}, {"numerics", "Lossy"}, {"mode", "Disabled"}}),
              testing::HasSubstr("contradicts mode: Disabled"));
  EXPECT_THAT(wrong({{"compression", fp16}, {"numerics", "Lossy"}, {"communication", "Disabled"}}),
              testing::HasSubstr("contradicts communication: Disabled"));
  EXPECT_EQ(wrong({{"compression", off}, {"mode", "Disabled"}}), "");
}

TEST(Precision, RefusedWhereItContradicts) {
  const auto wrong = [](const nlohmann::json& acceleration) {
    auto document = minimal();
    document["spec"]["acceleration"] = acceleration;
    return error_of(document);
  };
  EXPECT_THAT(wrong({{"precision", "O1"}}),
              testing::HasSubstr(
                  "spec.acceleration.precision: \"O1\" loses precision, which only numerics: Lossy "
                  "allows; write numerics: Lossy beside it"));
  EXPECT_THAT(wrong({{"precision", "TF32"}, {"numerics", "Reordered"}}),
              testing::HasSubstr("loses precision"));
  EXPECT_THAT(wrong({{"precision", "O2"}, {"numerics", "Lossy"}, {"mode", "Disabled"}}),
              testing::HasSubstr("contradicts mode: Disabled"));
  EXPECT_THAT(wrong({{"precision", "O3"}, {"numerics", "Lossy"}}),
              testing::HasSubstr("Disabled, TF32, O1, O2"));
  EXPECT_THAT(wrong({{"precision", true}}),
              testing::HasSubstr("spec.acceleration.precision: true"));
  EXPECT_THAT(wrong({{"cudaGraph", "Auto"}, {"mode", "Disabled"}}),
              testing::HasSubstr("contradicts mode: Disabled"));
  EXPECT_THAT(wrong({{"cudaGraph", "On"}}),
              testing::HasSubstr("spec.acceleration.cudaGraph: \"On\""));
  EXPECT_EQ(wrong({{"precision", "Disabled"}, {"cudaGraph", "Disabled"}, {"mode", "Disabled"}}),
            "");
}

TEST(LoaderWorkers, NeedTheLoaderAndTakeANumber) {
  const auto told = [](const nlohmann::json& acceleration) {
    auto document = minimal();
    document["spec"]["acceleration"] = acceleration;
    const auto job = api::parse_training_job(document);
    if (!job) return error_of(document);
    const auto resolved = api::resolve(job->spec.acceleration, nullptr);
    if (!resolved) return std::string("nothing");
    return resolved->features[api::Feature::kLoader] + " " +
           resolved->features[api::Feature::kLoaderWorkers];
  };
  EXPECT_EQ(told(nlohmann::json::object()), "Auto Auto");
  EXPECT_EQ(told({{"loaderWorkers", "4"}}), "Auto 4");
  EXPECT_EQ(told({{"loaderWorkers", "Disabled"}}), "Auto Disabled");
  EXPECT_EQ(told({{"loader", "Disabled"}}), "Disabled Disabled");
  EXPECT_EQ(told({{"mode", "Manual"}, {"loader", "Auto"}}), "Auto Disabled");
  EXPECT_EQ(told({{"mode", "Manual"}, {"loaderWorkers", "99"}}), "Auto 99");
  for (const char* text : {"0", "100", "-1", "2.5", "auto", "", "02"})
    EXPECT_THAT(told({{"loaderWorkers", text}}),
                testing::HasSubstr("is no number of workers; write Auto, Disabled, or a number"))
        << text;
  EXPECT_THAT(told({{"loaderWorkers", 4}}), testing::HasSubstr("loaderWorkers: 4 is not a string"));
  EXPECT_THAT(told({{"loaderWorkers", "4"}, {"loader", "Disabled"}}),
              testing::HasSubstr("contradicts loader: Disabled"));
}

TEST(RuntimeProfile, BadOneNamesTheField) {
  const auto wrong = [](const nlohmann::json& document) {
    const auto profile = api::parse_runtime_profile(document);
    return profile ? std::string("fine") : api::to_error(profile.error()).message;
  };
  const nlohmann::json named = {{"name", "p"}};
  EXPECT_THAT(wrong({{"metadata", named}, {"spec", {{"acceleration", {{"loader", "On"}}}}}}),
              testing::HasSubstr(
                  "spec.acceleration.loader: \"On\" is not known; write one of Auto, Disabled"));
  EXPECT_THAT(
      wrong({{"metadata", named}, {"spec", {{"acceleration", {{"runtimeProfileName", "q"}}}}}}),
      testing::HasSubstr("spec.acceleration.runtimeProfileName"));
  EXPECT_THAT(wrong({{"metadata", named}, {"spec", {{"numerics", "Bitwise"}}}}),
              testing::HasSubstr("spec.numerics"));
  EXPECT_THAT(wrong({{"metadata", {{"name", 7}}}}), testing::HasSubstr("metadata.name"));
  EXPECT_THAT(wrong("text"), testing::HasSubstr("object"));
}

}  // namespace
}  // namespace paceline
