// SPDX-License-Identifier: Apache-2.0
// Where a job of several hosts listens: fabric/job/addresses.hpp.
#include "fabric/job/addresses.hpp"

#include <gtest/gtest.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "base/errors.hpp"
#include "support/interface_address.hpp"
#include "support/isolated.hpp"
#include "support/launched.hpp"
#include "unit/fabric/job/jobs.hpp"

namespace gigabar {
namespace {

using fabric::Job;
using fabric::outer_address_list;
using fabric::outer_addresses;
using fabric::SocketAddress;
using test::Launched;
using test::make_job;

std::vector<std::string> names(const Result<std::vector<SocketAddress>>& found) {
  std::vector<std::string> all;
  EXPECT_TRUE(found) << found.error().message();
  if (found)
    for (const SocketAddress& address : *found) all.push_back(address.name);
  return all;
}

Job at(const std::string& master) {
  Job job = make_job(1, 2, 4711);
  job.master_address = master;
  return job;
}

TEST(OuterAddresses, AreThoseThatTheVariableNames) {
  Launched launched({{"GIGABAR_INTERFACES", "127.0.0.1"}});
  EXPECT_EQ(names(outer_addresses(at("192.0.2.1"))), std::vector<std::string>{"127.0.0.1:0"});
  launched.set("GIGABAR_INTERFACES", "127.0.0.0/8");
  EXPECT_EQ(names(outer_addresses(at("192.0.2.1"))).front(), "127.0.0.1:0");
  launched.set("GIGABAR_INTERFACES", "lo,127.0.0.1");
  const auto all = names(outer_addresses(at("192.0.2.1")));
  EXPECT_EQ(std::ranges::count(all, "127.0.0.1:0"), 1) << "each once";
  for (const char* wrong : {"", ",", "no-such-one", "lo,no-such-one", "192.0.2.1", "127.0.0.1:80", "240.0.0.0/8", "127.0.0.0/33"}) {
    launched.set("GIGABAR_INTERFACES", wrong);
    const auto refused = outer_addresses(at("192.0.2.1"));
    ASSERT_FALSE(refused) << wrong;
    EXPECT_EQ(refused.status(), Status::invalid_argument);
    EXPECT_EQ(refused.error().record().object, "GIGABAR_INTERFACES");
    EXPECT_FALSE(refused.error().record().remedy.empty());
  }
}

// The transport tcp listens at what the user named, and not at all that the interface has.
TEST(OuterAddresses, AreWrittenAsAddresses) {
  Launched launched({{"GIGABAR_INTERFACES", "127.0.0.1"}});
  const auto list = outer_address_list(at("192.0.2.1"));
  ASSERT_TRUE(list) << list.error().message();
  EXPECT_EQ(*list, "127.0.0.1");
  launched.set("GIGABAR_INTERFACES", "no-such-one");
  EXPECT_EQ(outer_address_list(at("192.0.2.1")).status(), Status::invalid_argument);
}

TEST(OuterAddresses, AreNeverLoopbackUnlessItIsNamed) {
  const Launched launched({});
  for (const char* master : {"127.1", "192.0.2.1", ""}) {
    const auto found = outer_addresses(at(master));
    if (!found) {
      EXPECT_EQ(found.status(), Status::unavailable) << found.error().message();
      EXPECT_NE(found.error().record().remedy.find("GIGABAR_INTERFACES"), std::string::npos);
      continue;
    }
    for (const SocketAddress& address : *found) EXPECT_FALSE(fabric::is_loopback(address)) << address.name;
  }
  EXPECT_EQ(outer_addresses(at("no-such-host.invalid")).status(), Status::unavailable);
}

TEST(OuterAddresses, LoopbackIsToldByTheText) {
  for (const char* written : {"127.0.0.1", "127.255.0.9", "::1", "localhost"})
    EXPECT_TRUE(fabric::is_written_as_loopback(written)) << written;
  for (const char* written : {"127.1", "128.0.0.1", "::2", "localhost.", ""})
    EXPECT_FALSE(fabric::is_written_as_loopback(written)) << written;
}

// In a network of its own: two addresses beside loopback and no route. Rank 0 takes its own address, who knows nothing all of them.
ISOLATED_TEST(OuterAddresses, AreThoseOfTheWayToRankZero) {
  const Launched launched({});
  ASSERT_EQ(::unshare(::geteuid() == 0 ? CLONE_NEWNET : CLONE_NEWUSER | CLONE_NEWNET), 0) << std::strerror(errno);
  test::set_address("lo", "127.0.0.1");
  EXPECT_EQ(outer_addresses(at("127.1")).status(), Status::unavailable) << "there is loopback only";
  test::set_address("lo:1", "10.77.0.1");
  test::set_address("lo:2", "10.78.0.1");
  EXPECT_EQ(names(outer_addresses(at("10.77.0.1"))), std::vector<std::string>{"10.77.0.1:0"});
  EXPECT_EQ(names(outer_addresses(at("10.78.0.1"))), std::vector<std::string>{"10.78.0.1:0"});
  const std::vector<std::string> both{"10.77.0.1:0", "10.78.0.1:0"};
  for (const char* master : {"", "127.1"}) {
    auto all = names(outer_addresses(at(master)));
    std::ranges::sort(all);
    EXPECT_EQ(all, both) << master;
  }
}

// A host with net.ipv4.ip_nonlocal_bind: a process can bind every address there.
ISOLATED_TEST(OuterAddresses, OfThisHostAreItsOwnThoughOthersCanBeBound) {
  ASSERT_EQ(::unshare(::geteuid() == 0 ? CLONE_NEWNET : CLONE_NEWUSER | CLONE_NEWNET), 0) << std::strerror(errno);
  test::set_address("lo", "127.0.0.1");
  test::set_address("lo:1", "10.77.0.1");
  for (const bool is_nonlocal : {false, true}) {
    for (const char* family : {"ipv4", "ipv6"}) {
      std::ofstream file(text("/proc/sys/net/", family, "/ip_nonlocal_bind"));
      ASSERT_TRUE(file << is_nonlocal << std::flush) << family;
    }
    const auto is_own = [](const char* written) { return fabric::is_of_this_host(fabric::resolve(written, 4711)->front()); };
    for (const char* own : {"10.77.0.1", "::ffff:10.77.0.1", "127.0.0.1", "127.9.9.9", "::ffff:127.0.0.1", "::1"})
      EXPECT_TRUE(is_own(own)) << own << ", " << is_nonlocal;
    for (const char* other : {"198.51.100.7", "::ffff:198.51.100.7", "192.0.2.1", "2001:db8::1", "2001:db8::2", "fe80::1%lo"})
      EXPECT_FALSE(is_own(other)) << other << ", " << is_nonlocal;
  }
}

}  // namespace
}  // namespace gigabar
