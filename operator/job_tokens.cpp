// SPDX-License-Identifier: Apache-2.0
#include "operator/job_tokens.hpp"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <array>
#include <utility>

#include <nlohmann/json.hpp>

#include "common/base/base64.hpp"

namespace paceline {
namespace {

using nlohmann::json;

constexpr std::size_t kLeastKeyBytes = 16;
constexpr std::size_t kTokenBytes = 16;

Result<std::string> key_in(const std::string& secret) {
  const json encoded = json::parse(secret, nullptr, false).value("/data/key"_json_pointer, json());
  auto key = decode_base64(encoded.is_string() ? encoded.get<std::string>() : "");
  if (key && key->size() >= kLeastKeyBytes) return key;
  return fail(Code::kInvalid, Origin::kConfig,
              "Secret " + std::string(kTokenKeySecret) + ": data.key has fewer than " +
                  std::to_string(kLeastKeyBytes) +
                  " bytes; delete the Secret, and the operator makes another");
}

std::string hexadecimal(const unsigned char* bytes, std::size_t count) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (std::size_t i = 0; i < count; ++i) {
    text += kDigits[bytes[i] >> 4U];
    text += kDigits[bytes[i] & 15U];
  }
  return text;
}

}  // namespace

JobTokens::JobTokens(kube::Api& api, std::string ns, std::function<std::string()> random)
    : api_(api), ns_(std::move(ns)), random_(std::move(random)) {}

Result<std::string> JobTokens::of(const std::string& job_uid) {
  const auto key = this->key();
  if (!key) return std::unexpected(key.error());
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  const auto* text = reinterpret_cast<const unsigned char*>(job_uid.data());
  if (HMAC(EVP_sha256(), key->data(), static_cast<int>(key->size()), text, job_uid.size(),
           digest.data(), &size) == nullptr)
    return fail(Code::kInternal, Origin::kSystem, "OpenSSL computes no HMAC-SHA256");
  return hexadecimal(digest.data(), kTokenBytes);
}

Result<std::string> JobTokens::key() {
  const std::lock_guard lock(mutex_);
  if (!key_.empty()) return key_;
  auto key = load_key();
  if (key) key_ = *key;
  return key;
}

Result<std::string> JobTokens::load_key() {
  auto found = api_.get(kube::kSecrets, ns_, kTokenKeySecret);
  if (!found && found.error().code == Code::kNotFound) {
    const json secret = {{"apiVersion", "v1"},
                         {"kind", "Secret"},
                         {"metadata", {{"name", kTokenKeySecret}, {"namespace", ns_}}},
                         {"type", "Opaque"},
                         {"immutable", true},
                         {"data", {{"key", encode_base64(random_() + random_())}}}};
    found = api_.create(kube::kSecrets, ns_, secret.dump());
    // another replica of the operator was faster
    if (!found && found.error().code == Code::kAlreadyExists)
      found = api_.get(kube::kSecrets, ns_, kTokenKeySecret);
  }
  if (!found) {
    found.error().message.insert(0, "Secret " + ns_ + "/" + kTokenKeySecret + ": ");
    return std::unexpected(std::move(found.error()));
  }
  return key_in(*found);
}

}  // namespace paceline
