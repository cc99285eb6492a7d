// SPDX-License-Identifier: Apache-2.0
#include "agent/probe/pci/pci_config.hpp"

#include <gtest/gtest.h>

#include <string>

namespace paceline::agent {
namespace {

/// A device with a PCI Express capability after another one, and ACS after ATS.
std::string whole_space() {
  std::string space(4096, '\0');
  space[0] = '\x86';
  space[6] = 0x10;
  space[0x34] = 0x50;
  space[0x50] = 0x05;  // MSI
  space[0x51] = 0x70;
  space[0x70] = 0x10;
  space[0x78] = 0x30;  // payload 256, relaxed ordering
  space[0x79] = 0x50;  // reads of 4096
  space[0x100] = 0x0f;
  space[0x102] = 1;
  space[0x103] = 0x20;  // next at 0x200
  space[0x107] = '\x80';
  space[0x200] = 0x0d;
  space[0x202] = 1;
  space[0x206] = 0x1d;
  return space;
}

TEST(PciConfigSpace, ReadsWhatTheCapabilitiesSay) {
  const PciConfig config = parse_pci_config(whole_space());
  EXPECT_EQ(config.pcie, (PcieControl{256, 4096, true}));
  EXPECT_EQ(config.ats, true);
  ASSERT_TRUE(config.acs);
  EXPECT_EQ(config.acs->word, 0x1d);
  EXPECT_TRUE(config.acs->detours());
  EXPECT_TRUE(config.shows_extended());
  // validation, blocking, egress and direct translation redirect nothing
  EXPECT_FALSE(AcsControl{0x63}.detours());
  // what pci=disable_acs_redir leaves on: validation and upstream forwarding
  EXPECT_FALSE(AcsControl{0x11}.detours());
  EXPECT_TRUE(AcsControl{0x04}.detours());
  EXPECT_TRUE(AcsControl{0x08}.detours());
}

TEST(PciConfigSpace, WhatIsNotShownIsNotAbsent) {
  const PciConfig header = parse_pci_config(whole_space().substr(0, 64));
  EXPECT_EQ(header.bytes, 64U);
  EXPECT_FALSE(header.pcie || header.acs || header.shows_capabilities());
  const PciConfig plain = parse_pci_config(whole_space().substr(0, 256));
  EXPECT_TRUE(plain.pcie && plain.shows_capabilities());
  EXPECT_FALSE(plain.acs || plain.shows_extended());
  EXPECT_EQ(parse_pci_config(std::string(4096, '\xff')), PciConfig{});
  EXPECT_EQ(parse_pci_config(""), PciConfig{});
}

TEST(PciConfigSpace, EveryCutAndEveryCircleEnds) {
  std::string space = whole_space();
  for (std::size_t cut = 0; cut <= space.size(); cut += 3) parse_pci_config(space.substr(0, cut));
  space[0x71] = 0x50;   // the list of capabilities runs in a circle
  space[0x203] = 0x10;  // so does the other
  const PciConfig config = parse_pci_config(space);
  EXPECT_TRUE(config.pcie && config.acs);
  space[0x78] = '\xe0';  // a reserved payload size
  EXPECT_FALSE(parse_pci_config(space).pcie);
  space[0x34] = '\xfc';  // the last word: a capability that does not fit
  space[0xfc] = 0x10;
  EXPECT_FALSE(parse_pci_config(space.substr(0, 256)).pcie);
}

}  // namespace
}  // namespace paceline::agent
