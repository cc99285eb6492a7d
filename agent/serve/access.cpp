// SPDX-License-Identifier: Apache-2.0
#include "agent/serve/access.hpp"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "common/kube/api/resource.hpp"

namespace paceline::agent {
namespace {

using nlohmann::json;

constexpr std::chrono::seconds kSecond{1};

/// Sends a review and returns its status.
Result<json> answer_of(kube::Api& api, const kube::Resource& kind, json spec) {
  const json question{
      {"apiVersion", kind.api_version()}, {"kind", kind.kind}, {"spec", std::move(spec)}};
  const auto answered = api.create(kind, "", question.dump());
  if (!answered) return std::unexpected(answered.error());
  const json answer = json::parse(*answered, nullptr, false);
  if (!answer.is_object() || !answer.contains("status") || !answer["status"].is_object())
    return fail(Code::kInternal, Origin::kKube,
                std::string(kind.kind) + " was answered without a status", true);
  return answer["status"];
}

bool is_true(const json& status, const char* field) {
  const auto found = status.find(field);
  return found != status.end() && found->is_boolean() && found->get<bool>();
}

/// For a pod's token its node: all agents have one account.
std::string name_of(const json& user) {
  const json extra = user.value("extra", json::object());
  const auto node =
      extra.is_object() ? extra.find("authentication.kubernetes.io/node-name") : extra.end();
  if (extra.is_object() && node != extra.end() && node->is_array() && node->size() == 1 &&
      node->front().is_string())
    return "node " + node->front().get<std::string>();
  const auto account = user.find("username");
  return account != user.end() && account->is_string() ? account->get<std::string>()
                                                       : std::string();
}

}  // namespace

AccessReview::AccessReview(kube::Api& api, const Clock& clock, AccessOptions options)
    : api_(api), clock_(clock), options_(std::move(options)), second_began_(clock.steady()) {}

Result<Visitor> AccessReview::review(const std::string& token, Wish wish) {
  const std::string key = (wish == Wish::kRead ? "read " : "measure ") + token;
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(kept_,
                  [now = clock_.steady()](const auto& entry) { return entry.second.until <= now; });
    if (const auto known = kept_.find(key); known != kept_.end()) return known->second.visitor;
    if (const auto counted = count_question(); !counted) return std::unexpected(counted.error());
  }
  auto visitor = ask(token, wish);
  if (!visitor) return visitor;
  const std::lock_guard lock(mutex_);
  if (kept_.size() >= options_.max_kept) {
    kept_.erase(
        std::ranges::min_element(kept_, {}, [](const auto& entry) { return entry.second.until; }));
  }
  const auto keep = visitor->access == Access::kGranted ? options_.keep : options_.keep_refusals;
  kept_.insert_or_assign(key, Kept{*visitor, clock_.steady() + keep});
  return visitor;
}

Status AccessReview::count_question() {
  const SteadyTime now = clock_.steady();
  if (now - second_began_ >= kSecond) {
    second_began_ = now;
    questions_ = 0;
  }
  if (++questions_ > options_.max_questions_per_second)
    return fail(Code::kExhausted, Origin::kConfig, "too many new tokens within a second", true);
  return {};
}

Result<Visitor> AccessReview::ask(const std::string& token, Wish wish) {
  auto known =
      answer_of(api_, kube::kTokenReviews, {{"token", token}, {"audiences", {options_.audience}}});
  if (!known) return std::unexpected(known.error());
  // A server without support for audiences omits the field: the token may then be for any audience.
  const json audiences = known->value("audiences", json::array());
  const bool for_us = audiences.is_array() &&
                      std::ranges::find(audiences, json(options_.audience)) != audiences.end();
  const json user = known->value("user", json::object());
  if (!is_true(*known, "authenticated") || !for_us || !user.is_object()) return Visitor{};

  json spec{{"user", user.value("username", "")},
            {"resourceAttributes",
             {{"group", kube::kNodeFabrics.group},
              {"resource", kube::kNodeFabrics.plural},
              {"verb", wish == Wish::kRead ? "get" : "create"},
              {"name", options_.node_name}}}};
  if (wish == Wish::kMeasure) spec["resourceAttributes"]["subresource"] = "links";
  for (const char* field : {"uid", "groups", "extra"}) {
    if (const auto found = user.find(field); found != user.end()) spec[field] = *found;
  }
  const auto allowed = answer_of(api_, kube::kSubjectAccessReviews, std::move(spec));
  if (!allowed) return std::unexpected(allowed.error());
  if (!is_true(*allowed, "allowed")) return Visitor{Access::kDenied};
  return Visitor{Access::kGranted, name_of(user)};
}

}  // namespace paceline::agent
