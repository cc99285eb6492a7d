// SPDX-License-Identifier: Apache-2.0
// Verbs, preconditions and errors.
#include <set>

#include "tests/conformance/target.hpp"

namespace paceline::kube {
namespace {

class Objects : public Conformance {};

TEST_P(Objects, CreatedObjectCanBeReadAndHasIdentity) {
  const Document created = create(kConfigMaps, config_map("a"));
  EXPECT_FALSE(created["metadata"]["uid"].get<std::string>().empty());
  const auto read = api_->get(kConfigMaps, ns_, "a");
  ASSERT_TRUE(read) << to_string(read.error());
  EXPECT_EQ(Document::parse(*read)["metadata"]["uid"], created["metadata"]["uid"]);
  EXPECT_EQ(Document::parse(*read)["data"]["key"], "1");
}

TEST_P(Objects, AbsentObjectIsNotFound) {
  for (const auto& code : {api_->get(kConfigMaps, ns_, "none").error().code,
                           api_->remove(kConfigMaps, ns_, "none").error().code,
                           api_->patch(kConfigMaps, ns_, "none", "{}").error().code,
                           api_->update(kConfigMaps, ns_, "none",
                                        [&] {
                                          auto o = config_map("none");
                                          o["metadata"]["resourceVersion"] = "1";
                                          return o;
                                        }()
                                            .dump())
                               .error()
                               .code}) {
    // An update that carries a version of an object that is gone may also be told as a conflict.
    EXPECT_TRUE(code == Code::kNotFound || code == Code::kConflict);
  }
  EXPECT_EQ(api_->get(kConfigMaps, ns_, "none").error().code, Code::kNotFound);
}

TEST_P(Objects, SecondCreateAlreadyExistsAndNamesTheObject) {
  create(kConfigMaps, config_map("a"));
  const auto again = api_->create(kConfigMaps, ns_, config_map("a").dump());
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, Code::kAlreadyExists);
  EXPECT_NE(again.error().message.find("\"a\""), std::string::npos) << again.error().message;
}

TEST_P(Objects, UpdateFromAnOldVersionConflicts) {
  Document first = create(kConfigMaps, config_map("a"));
  Document second = first;
  second["data"]["key"] = "2";
  ASSERT_TRUE(api_->update(kConfigMaps, ns_, "a", second.dump()));
  first["data"]["key"] = "3";
  const auto stale = api_->update(kConfigMaps, ns_, "a", first.dump());
  ASSERT_FALSE(stale);
  EXPECT_EQ(stale.error().code, Code::kConflict);
  EXPECT_TRUE(stale.error().retry);
  EXPECT_EQ(Document::parse(*api_->get(kConfigMaps, ns_, "a"))["data"]["key"], "2");
}

TEST_P(Objects, WriteThatChangesNothingKeepsTheVersion) {
  const Document first = create(kConfigMaps, config_map("a"));
  const auto same = api_->update(kConfigMaps, ns_, "a", first.dump());
  ASSERT_TRUE(same) << to_string(same.error());
  EXPECT_EQ(version_text(Document::parse(*same)), version_text(first));
}

TEST_P(Objects, MergePatchChangesAddsAndRemoves) {
  create(kConfigMaps, config_map("a"));
  const auto patched = api_->patch(kConfigMaps, ns_, "a", R"({"data":{"key":null,"new":"x"}})");
  ASSERT_TRUE(patched) << to_string(patched.error());
  const Document object = Document::parse(*patched);
  EXPECT_FALSE(object["data"].contains("key"));
  EXPECT_EQ(object["data"]["new"], "x");
}

TEST_P(Objects, MergePatchWithAnOldVersionConflicts) {
  const Document first = create(kConfigMaps, config_map("a"));
  ASSERT_TRUE(api_->patch(kConfigMaps, ns_, "a", R"({"data":{"key":"2"}})"));
  const Document patch = {{"metadata", {{"resourceVersion", version_text(first)}}},
                          {"data", {{"key", "3"}}}};
  const auto stale = api_->patch(kConfigMaps, ns_, "a", patch.dump());
  ASSERT_FALSE(stale);
  EXPECT_EQ(stale.error().code, Code::kConflict);
}

TEST_P(Objects, ApplyCreatesThenChanges) {
  PatchOptions options;
  options.type = PatchType::kApply;
  options.field_manager = "conformance";
  options.force = true;
  ASSERT_TRUE(api_->patch(kConfigMaps, ns_, "a", config_map("a", "1").dump(), options));
  const auto applied = api_->patch(kConfigMaps, ns_, "a", config_map("a", "2").dump(), options);
  ASSERT_TRUE(applied) << to_string(applied.error());
  EXPECT_EQ(Document::parse(*applied)["data"]["key"], "2");
}

TEST_P(Objects, DeleteHonoursItsPreconditions) {
  const Document object = create(kConfigMaps, config_map("a"));
  const auto other_life =
      api_->remove(kConfigMaps, ns_, "a", {.uid = "11111111-2222-4333-8444-555555555555"});
  ASSERT_FALSE(other_life);
  EXPECT_EQ(other_life.error().code, Code::kConflict);
  const auto other_version = api_->remove(
      kConfigMaps, ns_, "a", {.uid = object["metadata"]["uid"], .resource_version = "1"});
  ASSERT_FALSE(other_version);
  EXPECT_EQ(other_version.error().code, Code::kConflict);
  EXPECT_TRUE(
      api_->remove(kConfigMaps, ns_, "a",
                   {.uid = object["metadata"]["uid"], .resource_version = version_text(object)}));
  EXPECT_EQ(api_->get(kConfigMaps, ns_, "a").error().code, Code::kNotFound);
}

TEST_P(Objects, DryRunIsValidatedAndNotStored) {
  ASSERT_TRUE(api_->create(kConfigMaps, ns_, config_map("a").dump(), {.dry_run = true}));
  EXPECT_EQ(api_->get(kConfigMaps, ns_, "a").error().code, Code::kNotFound);
  Document wrong = pod("p");
  wrong["spec"]["containers"] = Document::array();
  const auto refused = api_->create(kPods, ns_, wrong.dump(), {.dry_run = true});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kInvalid);
  EXPECT_NE(refused.error().message.find("spec.containers"), std::string::npos)
      << refused.error().message;
}

TEST_P(Objects, StrictRefusesAnUnknownFieldByName) {
  Document typo = pod("p");
  typo["spec"]["containers"][0]["imge"] = "x";
  const auto refused = api_->create(kPods, ns_, typo.dump());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kInvalid);
  EXPECT_NE(refused.error().message.find("spec.containers[0].imge"), std::string::npos)
      << refused.error().message;
  EXPECT_TRUE(api_->create(kPods, ns_, typo.dump(), {.dry_run = true, .strict = false}));
}

TEST_P(Objects, GateIsTakenAwayOnceAndNeverPutBack) {
  create(kPods, pod("p"));
  const auto open = api_->patch(kPods, ns_, "p", R"({"spec":{"schedulingGates":null}})");
  ASSERT_TRUE(open) << to_string(open.error());
  EXPECT_FALSE(Document::parse(*open)["spec"].contains("schedulingGates"));
  const auto back = api_->patch(kPods, ns_, "p",
                                R"({"spec":{"schedulingGates":[{"name":"paceline.dev/gang"}]}})");
  ASSERT_FALSE(back);
  EXPECT_EQ(back.error().code, Code::kInvalid);
}

TEST_P(Objects, StatusIsItsOwnResource) {
  create(kPods, pod("p"));
  const auto through_object = api_->patch(kPods, ns_, "p", R"({"status":{"message":"x"}})");
  ASSERT_TRUE(through_object) << to_string(through_object.error());
  EXPECT_EQ(Document::parse(*through_object)["status"].value("message", ""), "");
  PatchOptions status;
  status.subresource = "status";
  const auto through_status = api_->patch(kPods, ns_, "p", R"({"status":{"message":"x"}})", status);
  ASSERT_TRUE(through_status) << to_string(through_status.error());
  EXPECT_EQ(Document::parse(*through_status)["status"]["message"], "x");
}

TEST_P(Objects, FinalizerHoldsADeletionBack) {
  Document held = config_map("a");
  held["metadata"]["finalizers"] = {"paceline.dev/cleanup"};
  create(kConfigMaps, held);
  ASSERT_TRUE(api_->remove(kConfigMaps, ns_, "a"));
  const auto waiting = api_->get(kConfigMaps, ns_, "a");
  ASSERT_TRUE(waiting) << to_string(waiting.error());
  EXPECT_TRUE(Document::parse(*waiting)["metadata"].contains("deletionTimestamp"));
  ASSERT_TRUE(api_->patch(kConfigMaps, ns_, "a", R"({"metadata":{"finalizers":null}})"));
  EXPECT_EQ(api_->get(kConfigMaps, ns_, "a").error().code, Code::kNotFound);
}

TEST_P(Objects, PagesShareOneVersionAndHoldEverythingOnce) {
  for (int i = 0; i < 7; ++i) create(kConfigMaps, config_map("m" + std::to_string(i)));
  ListOptions options{.field_selector = "metadata.name!=kube-root-ca.crt", .limit = 3};
  std::set<std::string> names;
  std::set<std::string> versions;
  int pages = 0;
  do {
    const auto page = api_->list(kConfigMaps, ns_, options);
    ASSERT_TRUE(page) << to_string(page.error());
    const Document list = Document::parse(*page);
    versions.insert(list["metadata"]["resourceVersion"]);
    for (const auto& item : list["items"])
      EXPECT_TRUE(names.insert(item["metadata"]["name"]).second);
    options.continue_token = list["metadata"].value("continue", "");
    if (++pages == 1) create(kConfigMaps, config_map("later"));
  } while (!options.continue_token.empty() && pages < 10);
  EXPECT_EQ(pages, 3);
  EXPECT_EQ(names.size(), 7U);
  EXPECT_EQ(versions.size(), 1U);
}

TEST_P(Objects, SelectorsNarrowALists) {
  create(kConfigMaps, config_map("a"));
  create(kConfigMaps, config_map("b"));
  const auto count = [&](const ListOptions& options) {
    const auto list = api_->list(kConfigMaps, ns_, options);
    EXPECT_TRUE(list) << to_string(list.error());
    return list ? Document::parse(*list)["items"].size() : 0U;
  };
  EXPECT_EQ(count({.label_selector = "app=a"}), 1U);
  EXPECT_EQ(count({.label_selector = "app in (a,b)"}), 2U);
  EXPECT_EQ(count({.label_selector = "app,app!=a"}), 1U);
  EXPECT_EQ(count({.field_selector = "metadata.name=b"}), 1U);
}

TEST_P(Objects, NameThatIsNoNameIsInvalid) {
  const auto refused = api_->create(kConfigMaps, ns_, config_map("Not A Name").dump());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kInvalid);
  EXPECT_NE(refused.error().message.find("metadata.name"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Api, Objects,
                         testing::Values("memory", "socket_beast", "socket_cpprest", "real_beast",
                                         "real_cpprest"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace paceline::kube
