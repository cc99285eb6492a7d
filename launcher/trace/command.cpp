// SPDX-License-Identifier: Apache-2.0
#include "launcher/trace/command.hpp"

#include <signal.h>

#include <charconv>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "common/contract/host_ports.hpp"
#include "common/contract/labels.hpp"
#include "common/json/fields.hpp"
#include "launcher/config.hpp"
#include "launcher/rendezvous/rank_table.hpp"
#include "launcher/trace/service.hpp"

namespace paceline::traces {
namespace {

using nlohmann::json;

constexpr int kExitInput = 2;
constexpr std::int64_t kLongestLimit = 2400;  // seconds

struct Arguments {
  TraceOptions options;
  std::string run_file;
};

std::unexpected<Error> wrong(const std::string& what) {
  return fail(Code::kInvalid, Origin::kConfig, what);
}

Result<std::int64_t> number(const std::string& name, const std::string& text, std::int64_t most) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && value >= 1 && value <= most)
    return value;
  return wrong(name + " " + text + ": must be a whole number from 1 to " + std::to_string(most));
}

Result<Arguments> read_arguments(const std::vector<std::string>& words) {
  Arguments arguments;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& name = words[i];
    if (name == "--records") {
      arguments.options.records_only = true;
      continue;
    }
    if (i + 1 == words.size()) return wrong(name + ": its value is missing");
    const std::string& value = words[++i];
    if (name == "--steps") {
      const auto steps = number(name, value, static_cast<std::int64_t>(kMostSteps));
      if (!steps) return std::unexpected(steps.error());
      arguments.options.steps = static_cast<std::uint64_t>(*steps);
    } else if (name == "--timeout") {
      const auto seconds = number(name, value, kLongestLimit);
      if (!seconds) return std::unexpected(seconds.error());
      arguments.options.time_limit = std::chrono::seconds(*seconds);
    } else if (name == "--by") {
      arguments.options.by = value.substr(0, 128);
    } else if (name == "--run") {
      arguments.run_file = value;
    } else {
      return wrong("there is no option " + name);
    }
  }
  return arguments;
}

json read_json(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return json::parse(text, nullptr, false);
}

/// From the file of a `paceline run`: {"token": …, "launchers": ["127.0.0.1:4000", …]}.
Result<Launchers> launchers_of_run(const std::string& path) {
  const json document = read_json(path);
  std::string problem;
  JsonFields fields(document, problem);
  Launchers launchers;
  launchers.token = fields.text("token");
  for (const json& entry : fields.array("launchers", rendezvous::kMostNodes)) {
    const auto address = net::parse_address(entry.is_string() ? entry.get<std::string>() : "");
    if (!address) return wrong(path + ": " + address.error().message);
    launchers.addresses.push_back(*address);
  }
  if (!problem.empty()) return wrong(path + ": " + problem);
  return launchers;
}

}  // namespace

Result<Launchers> launchers_of_pod(const Result<frameworks::Environment>& environment) {
  if (!environment) return std::unexpected(environment.error());
  const auto config = launcher::read_config(*environment);
  if (!config) return std::unexpected(config.error());
  const std::string path = config->state_dir + "/rank-table.json";
  const json table = read_json(path);
  std::string problem;
  JsonFields fields(table, problem);
  Launchers launchers;
  launchers.token = config->token;
  for (const json& node : fields.array("nodes", rendezvous::kMostNodes)) {
    JsonFields row(node, problem);
    // In the network of its node a launcher has a port of its own.
    const auto base = row.optional_integer("portBase", 0, contract::kLastPortBase).value_or(0);
    const auto own = contract::host_http_port(static_cast<std::uint16_t>(base));
    // The pod that asks may be of a role in another network than this one.
    const std::uint16_t usual =
        config->port_base == 0 ? config->http.port : contract::kLauncherHttpPort;
    launchers.addresses.push_back({row.text("address"), base == 0 ? usual : own});
  }
  if (!problem.empty() || launchers.addresses.empty())
    return wrong(path + " is no rank table: the replicas of the job have not gathered yet");
  return launchers;
}

int trace_command(const std::vector<std::string>& arguments,
                  const Result<frameworks::Environment>& environment) {
  ::signal(SIGPIPE, SIG_IGN);
  const TraceSink sink = [](const json& line) -> Status {
    std::cout << line.dump(-1, ' ', false, json::error_handler_t::replace) << std::endl;
    if (std::cout) return {};
    return fail(Code::kCancelled, Origin::kSystem, "nobody reads the trace any more");
  };
  const auto read = read_arguments(arguments);
  const auto launchers = !read                    ? std::unexpected(read.error())
                         : read->run_file.empty() ? launchers_of_pod(environment)
                                                  : launchers_of_run(read->run_file);
  const Status done =
      launchers ? collect(*launchers, read->options, sink) : std::unexpected(launchers.error());
  if (done) return 0;
  (void)sink({{"type", "problem"}, {"text", done.error().message}});
  return done.error().code == Code::kInvalid ? kExitInput : 1;
}

}  // namespace paceline::traces
