// SPDX-License-Identifier: Apache-2.0
// Checks access to the agent's API. A reader needs a token that was issued for the agents' audience
// and must be allowed to `get` the NodeFabric of this node. To measure links, a client must be
// allowed to `create` the `links` of that NodeFabric. The API server decides, by TokenReview and
// SubjectAccessReview; the agent has no list of its own. Because of the audience, a token stolen
// from the agent is useless elsewhere. handler.cpp asks for each request.
//
// Borrows its arguments. Thread-safe. Answers are cached for a minute, at most `max_kept` of them.
// A flood of new tokens is refused (kExhausted) before it becomes a flood of calls to the API
// server. Any other Error means that the API server could not be asked, and access is refused.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <mutex>
#include <string>

#include "common/base/clock.hpp"
#include "common/base/error.hpp"
#include "common/kube/api/api.hpp"

namespace paceline::agent {

enum class Access { kGranted, kUnknown, kDenied };
enum class Wish { kRead, kMeasure };

struct Visitor {
  Access access = Access::kUnknown;
  std::string name = {};  // if granted: "node NAME" for a pod's token, else the account
};

struct AccessOptions {
  std::string node_name;
  std::string audience = "paceline-agent";
  std::chrono::milliseconds keep{60000};
  std::chrono::milliseconds keep_refusals{10000};
  std::size_t max_kept = 256;
  std::size_t max_questions_per_second = 10;
};

class AccessReview {
 public:
  AccessReview(kube::Api& api, const Clock& clock, AccessOptions options);
  Result<Visitor> review(const std::string& token, Wish wish = Wish::kRead);

 private:
  struct Kept {
    Visitor visitor;
    SteadyTime until;
  };
  Result<Visitor> ask(const std::string& token, Wish wish);
  Status count_question();

  kube::Api& api_;
  const Clock& clock_;
  const AccessOptions options_;
  std::mutex mutex_;
  std::map<std::string, Kept> kept_;
  SteadyTime second_began_;
  std::size_t questions_ = 0;
};

}  // namespace paceline::agent
