// SPDX-License-Identifier: Apache-2.0
// The text of a plan: what is read is printed again, and what makes no sense is refused by name.
#include "comm/plan/plan.hpp"

#include <string>

#include "check.hpp"

CASE(comm_plans_are_read_and_refused_by_name) {
  using paceline::comm::parse_plan;
  for (const std::string text :
       {"algorithm=flat chunk=8192 order=2,0,1",
        "algorithm=hierarchical chunk=65536 choice=0:flat,4096:hierarchical/8192 memory=tcp "
        "order=0,1,2",
        "algorithm=flat chunk=8192 transport=rdma",
        "algorithm=flat chunk=8192 memory=tcp transport=tcp order=0,1,2",
        "algorithm=flat chunk=65536 choice=0:tree,4096:doubling,8192:flat",
        "algorithm=hierarchical chunk=65536 choice=0:flat@1,4096:hierarchical/8192@3,9000:flat "
        "flows=4 memory=tcp"})
    CHECK(paceline::comm::print_plan(*parse_plan(text, 3)) == text);
  CHECK(parse_plan("", 3).has_value() &&
        parse_plan("chunk=8192 # what=is for=readers", 3)->chunk == 8192);
  for (const char* bad : {"algorithm=star",
                          "chunk=1",
                          "chunk=4097",
                          "chunk=",
                          "order=0,1",
                          "order=0,0,1",
                          "order=0,1,3",
                          "order=a,b,c",
                          "speed=3",
                          "flat",
                          "memory=shm",
                          "transport=roce",
                          "choice=",
                          "choice=flat",
                          "choice=1:flat",
                          "choice=0:flat/4096",
                          "choice=0:hierarchical",
                          "choice=0:hierarchical/2097152",
                          "choice=0:star",
                          "choice=0:tree/4096",
                          "choice=0:tree@1",
                          "choice=0:flat@0",
                          "choice=0:flat@17",
                          "choice=0:flat@",
                          "choice=0:hierarchical@2",
                          "flows=0",
                          "flows=17",
                          "flows=two",
                          "choice=0:hierarchical/4097"}) {
    const auto read = parse_plan(bad, 3);
    const std::string value = std::string(bad).substr(0, std::string(bad).find(','));
    CHECK(!read.has_value() && read.error().find(value) != std::string::npos);
  }
}
