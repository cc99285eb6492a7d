// SPDX-License-Identifier: Apache-2.0
#include "common/base/log.hpp"

#include "agent/options.hpp"

#include "common/service/logging.hpp"

namespace paceline::agent {
namespace {

/// Options of measuring links. A chart gives some as environment, so that `paceline-agent measure`
/// has them too when people start it in the container.
void add_links(CLI::App& app, Options& options) {
  app.add_option("--links-port", options.links_port,
                 "port that takes measurements of links while one was asked for; default: links "
                 "are not measured");
  app.add_option("--links-token", options.links.token_file,
                 "file with a token for other agents, of their audience")
      ->envname("AGENT_LINKS_TOKEN");
  app.add_option("--links-ca", options.links.ca_file,
                 "PEM certificates that sign other agents'; default: the system's")
      ->envname("AGENT_LINKS_CA");
  app.add_option(
         "--links-server-name", options.links.server_name,
         "the name that other agents' certificates are issued for; default: their addresses")
      ->envname("AGENT_LINKS_SERVER_NAME");
  CLI::App* measure = app.add_subcommand(
      "measure", "ask the agent that serves in this container to measure the link to another node");
  measure->add_option("--peer", options.ask.peer, "the other node")->required();
  measure->add_flag("--json", options.ask.json, "everything, as JSON");
}

}  // namespace

void add_options(CLI::App& app, Options& options) {
  app.add_option("--node-name", options.node_name, "name of this Node")->envname("NODE_NAME");
  app.add_option("--namespace", options.ns, "namespace of the Lease")
      ->envname("POD_NAMESPACE")
      ->capture_default_str();
  app.add_option("--holder", options.holder, "holder of the Lease; default: the node's name")
      ->envname("POD_NAME");
  app.add_option("--sys", options.sys, "where the node's /sys is mounted")->capture_default_str();
  app.add_option("--proc", options.proc, "where the node's /proc is mounted")
      ->capture_default_str();
  app.add_option("--nvml", options.nvml, "NVIDIA's management library")->capture_default_str();
  app.add_option("--kubeconfig", options.kubeconfig,
                 "default: $KUBECONFIG, then the pod's service account");
  app.add_option("--listen-address", options.listen, "address of /metrics, /healthz, /readyz")
      ->capture_default_str();
  app.add_option("--listen-port", options.port, "its port")->capture_default_str();
  app.add_option("--api-certificate", options.certificate.certificate_file,
                 "PEM certificate of /v1/fabric and /v1/checks, read again when it changes; "
                 "default: they are not served");
  app.add_option("--api-key", options.certificate.key_file, "its PEM key");
  app.add_option("--api-port", options.api_port, "their port")
      ->envname("AGENT_API_PORT")
      ->capture_default_str();
  app.add_option("--api-audience", options.audience,
                 "the audience that readers' tokens are issued for")
      ->capture_default_str();
  add_links(app, options);
  app.add_option("--pod-address", options.pod_address, "where other agents reach this one")
      ->envname("POD_IP");
  app.add_option("--probe-seconds", options.probe_seconds, "pause between two probes")
      ->check(CLI::Range(1, 3600))
      ->capture_default_str();
  app.add_option("--pci-config", options.scan.pci_config,
                 "folder that paceline-probe --pci-config wrote earlier; it may be missing");
  app.add_option("--registrations", options.scan.registrations,
                 "report of paceline-probe (its --output), written before this program started; "
                 "may be absent");
  app.add_option("--runtime", options.inject.source,
                 "folder that `paceline-launcher install` filled; given: pods get the runtime from "
                 "this node, as paceline.dev/runtime of the kubelet's device plugins");
  app.add_option("--runtime-state", options.inject.folder,
                 "folder of the node, under the same path here, for runtimes and slots")
      ->default_val("/var/lib/paceline");
  app.add_option("--runtime-slots", options.inject.slots, "how many pods may have it at a time")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--pod-records-per-second", options.records_per_second,
                 "step records that are read of a pod with a slot; more are counted as dropped")
      ->check(CLI::Range(1.0, 1e9))
      ->capture_default_str();
  app.add_option("--kubelet-dir", options.kubelet,
                 "the kubelet's folder, which holds device-plugins/ and pod-resources/")
      ->capture_default_str();
  app.add_flag("--print", options.print, "print what the probes find, as JSON, and end");
  add_log_options(app);
}

}  // namespace paceline::agent
