// SPDX-License-Identifier: Apache-2.0
// A fabric is opened where the system refuses: a host name that UCX does not survive, threads that cannot be started, a network
// that nobody vouches for. Nothing of it ends the program, and what a job of one host does not need is not opened at all.
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "base/descriptor.hpp"
#include "device/soft_hca/soft_hca.hpp"
#include "fault/doors.hpp"
#include "gigabar/copy.hpp"
#include "gigabar/device_session.hpp"
#include "gigabar/fabric.hpp"
#include "gigabar/memory.hpp"
#include "gigabar/streams.hpp"
#include "support/free_port.hpp"
#include "support/isolated.hpp"
#include "support/refused_threads.hpp"
#include "support/scoped_environment.hpp"

namespace gigabar {
namespace {

using test::refuse_threads;
using test::ScopedEnvironment;

FabricOptions alone() {
  FabricOptions options;
  options.rank = 0;
  options.rank_count = 1;
  return options;
}

// Rank 0 of a job of two, which waits for nobody until it has something to say.
FabricOptions first_of_two(const char* address) {
  FabricOptions options;
  options.rank = 0;
  options.rank_count = 2;
  options.master_address = address;
  options.master_port = test::free_port();
  options.job_key = "a key of sixteen bytes, and more";
  return options;
}

bool has_opened(const char* library) {
  return read_small_file("/proc/self/maps", 16 << 20).value_or("").find(library) != std::string::npos;
}

// The sum of a barrier, a write and a message of this rank to itself.
void expect_it_works(Fabric& fabric) {
  std::vector<char> memory(8192, 'a');
  ASSERT_TRUE(fabric.register_segment(1, memory.data(), memory.size()));
  memory[0] = 'b';
  const auto written = fabric.write_notify({1, 0}, {0, 1, 4096}, 1, 5, 7);
  ASSERT_TRUE(written) << written.message();
  ASSERT_TRUE(fabric.notification_wait(1, 5, 1, std::chrono::seconds(10)));
  EXPECT_EQ(memory[4096], 'b');
  EXPECT_TRUE(fabric.barrier({}, std::chrono::seconds(10)));
  EXPECT_TRUE(fabric.deregister_segment(1, std::chrono::seconds(10)));
}

// --- What is opened --------------------------------------------------------------------------------------------------------------

ISOLATED_TEST(FabricOpen, OneHostOpensNeitherUcxNorVerbs) {
  auto fabric = Fabric::open(alone());
  ASSERT_TRUE(fabric) << fabric.message();
  expect_it_works(*fabric);
  auto pair = Fabric::open(first_of_two("127.0.0.1"));
  ASSERT_TRUE(pair) << pair.message();
  for (const char* library : {"libucp.so", "libibverbs.so", "librdmacm.so"}) EXPECT_FALSE(has_opened(library)) << library;
}

// torchrun, Slurm and PMIx tell how many ranks are of this host, whatever address rank 0 has.
ISOLATED_TEST(FabricOpen, AllRanksHereByTheLaunchersWord) {
  const ScopedEnvironment rank("RANK", "0"), count("WORLD_SIZE", "2"), local("LOCAL_RANK", "0"), here("LOCAL_WORLD_SIZE", "2");
  const ScopedEnvironment address("MASTER_ADDR", "localhost"), port("MASTER_PORT", std::to_string(test::free_port()).c_str());
  const ScopedEnvironment key("GIGABAR_JOB_KEY", "00112233445566778899aabbccddeeff"), trust("GIGABAR_UCX_TRUST_NETWORK", "1");
  const auto fabric = Fabric::open({});
  ASSERT_TRUE(fabric) << fabric.message();
  for (const char* library : {"libucp.so", "libibverbs.so", "librdmacm.so"}) EXPECT_FALSE(has_opened(library)) << library;
}

// Its ports are open to every user of the host.
ISOLATED_TEST(FabricOpen, UcxOnOneHostAsksForTrust) {
  FabricOptions options = alone();
  options.transports = {TransportKind::ucx};
  const auto refused = Fabric::open(options);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message().find("users of this host are trusted"), std::string::npos) << refused.error().message();
  EXPECT_FALSE(has_opened("libucp.so"));
}

// Of another host's address rank 0 is none, but it is opened there all the same: the directory listens everywhere.
ISOLATED_TEST(FabricOpen, UcxBetweenHostsAsksForTrust) {
  FabricOptions options = first_of_two("192.0.2.1");  // an address of documentation's
  options.transports = {TransportKind::ucx};
  const auto refused = Fabric::open(options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.status(), Status::unavailable);
  EXPECT_NE(refused.error().message().find("GIGABAR_UCX_TRUST_NETWORK=1"), std::string::npos) << refused.error().message();
  EXPECT_FALSE(has_opened("libucp.so"));
}

// Where it is trusted it listens where the job does, and nowhere else.
ISOLATED_TEST(FabricOpen, TrustedUcxListensWhereTheJobDoes) {
  const ScopedEnvironment interfaces("GIGABAR_INTERFACES", "lo");
  FabricOptions options = first_of_two("127.1");  // not written as loopback: a job of several hosts
  options.transports = {TransportKind::ucx};
  options.ucx_trust_network = true;
  const auto fabric = Fabric::open(options);
  ASSERT_TRUE(fabric) << fabric.message();
  EXPECT_TRUE(has_opened("libucp.so"));
  const test::Doors doors = test::doors_of(::getpid());
  EXPECT_FALSE(doors.tcp_ports.empty());
  for (const std::string& address : doors.tcp_addresses)
    EXPECT_TRUE(address == "0100007F" || address == "00000000000000000000000001000000") << address;
}

// --- Limits ----------------------------------------------------------------------------------------------------------------------

ISOLATED_TEST(FabricLimits, MessagesAndReportsOfOneRank) {
  auto fabric = Fabric::open(alone());
  ASSERT_TRUE(fabric) << fabric.message();
  constexpr std::size_t kMaxMessages = 65536, kRecords = 4096;
  Result<Operation> posted = fabric->post_recv(0, 1, ~Tag{0}, nullptr, 0);
  ASSERT_TRUE(posted) << posted.message();
  const Operation first = *posted;
  for (std::size_t count = 1; count < kMaxMessages && posted; ++count) posted = fabric->post_recv(0, 1, ~Tag{0}, nullptr, 0);
  ASSERT_TRUE(posted) << posted.message();
  for (const auto& refused : {fabric->post_recv(0, 1, ~Tag{0}, nullptr, 0), fabric->post_send(0, 1, nullptr, 0)}) {
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.status(), Status::busy);
    EXPECT_NE(refused.error().message().find("65536 are not waited for"), std::string::npos) << refused.error().message();
  }
  EXPECT_TRUE(fabric->cancel_recv(*posted));
  EXPECT_TRUE(fabric->post_recv(0, 1, ~Tag{0}, nullptr, 0)) << "one of them is over";
  const auto report = fabric->report(first);
  ASSERT_FALSE(report);
  EXPECT_NE(report.error().message().find("only the last " + std::to_string(kRecords)), std::string::npos)
      << report.error().message();
}

ISOLATED_TEST(FabricLimits, ASegmentEndsWithItsAllocation) {
  const ScopedEnvironment stand_in("GIGABAR_STAND_IN", "1");
  auto fabric = Fabric::open(alone());
  ASSERT_TRUE(fabric) << fabric.message();
  const auto memory = DeviceMemory::allocate(0, 65536);
  ASSERT_TRUE(memory) << memory.message();
  const Result<void> refused = fabric->register_segment(1, memory->address(), memory->bytes() + 1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.status(), Status::invalid_argument);
  EXPECT_NE(refused.message().find("it leaves its allocation of"), std::string::npos) << refused.message();
}

// --- A long host name ------------------------------------------------------------------------------------------------------------

void live_with_a_long_host_name() {
  const int user = ::geteuid() == 0 ? 0 : CLONE_NEWUSER;
  ASSERT_EQ(::unshare(CLONE_NEWUTS | user), 0) << std::strerror(errno) << ": the test needs root, or a user name space of its own";
  const std::string name(64, 'h');
  ASSERT_EQ(::sethostname(name.data(), name.size()), 0) << std::strerror(errno);
}

ISOLATED_TEST(FabricHostName, OfTheMostBytes) {
  ASSERT_NO_FATAL_FAILURE(live_with_a_long_host_name());
  auto fabric = Fabric::open(alone());
  ASSERT_TRUE(fabric) << fabric.message();
  expect_it_works(*fabric);
  // UCX 1.13 dies of it; another one may not. In neither case does this process.
  FabricOptions options = alone();
  options.transports = {TransportKind::ucx};
  options.ucx_trust_network = true;
  const auto over_ucx = Fabric::open(options);
  if (over_ucx) return;
  EXPECT_EQ(over_ucx.status(), Status::unavailable);
  const std::string said = over_ucx.error().message();
  EXPECT_TRUE(said.find("libucp ended a probe process with SIGABRT") != std::string::npos ||
              said.find("libucp.so.0: cannot open") != std::string::npos || said.find("no support for UCX") != std::string::npos)
      << said;
  options.transports = {TransportKind::ucx, TransportKind::local};
  auto next = Fabric::open(options);
  ASSERT_TRUE(next) << next.message();
  expect_it_works(*next);
}

// --- Threads that cannot be started ----------------------------------------------------------------------------------------------

void expect_thread_error(const Result<void>& outcome) {
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.status(), Status::no_permission);
  EXPECT_EQ(outcome.record().native.name, "EPERM");
  EXPECT_NE(outcome.message().find("a thread cannot be started"), std::string::npos) << outcome.message();
  EXPECT_NE(outcome.record().remedy.find("seccomp"), std::string::npos) << outcome.message();
}

ISOLATED_TEST(FabricThreads, RefusedIsAnError) {
  const ScopedEnvironment stand_in("GIGABAR_STAND_IN", "1");
  ASSERT_NO_FATAL_FAILURE(refuse_threads());
  auto pair = Fabric::open(first_of_two("127.0.0.1"));
  ASSERT_FALSE(pair);
  expect_thread_error(std::move(pair).error());
  // Without the thread it is opened.
  FabricOptions options = first_of_two("127.0.0.1");
  options.progress_thread = false;
  EXPECT_TRUE(Fabric::open(options));
  auto fabric = Fabric::open(alone());
  ASSERT_TRUE(fabric) << fabric.message();
  expect_it_works(*fabric);
}

// Nor can the process be started in which UCX would be tried.
ISOLATED_TEST(FabricThreads, RefusedLeaveUcxUnopened) {
  ASSERT_NO_FATAL_FAILURE(refuse_threads());
  FabricOptions options = alone();
  options.transports = {TransportKind::ucx, TransportKind::local};
  options.ucx_trust_network = true;
  auto fabric = Fabric::open(options);
  ASSERT_TRUE(fabric) << fabric.message();
  expect_it_works(*fabric);
  EXPECT_FALSE(has_opened("libucp.so"));
}

ISOLATED_TEST(FabricThreads, RefusedOfDeviceSessions) {
  const ScopedEnvironment stand_in("GIGABAR_STAND_IN", "1");
  auto fabric = Fabric::open(alone());
  ASSERT_TRUE(fabric) << fabric.message();
  ASSERT_NO_FATAL_FAILURE(refuse_threads());
  DeviceSessionOptions options;
  options.segment_count = 2;
  options.queues = QueueUse::out_of_reach;
  options.engine = QueueEngine::software_hca;
  auto session = DeviceSession::open(*fabric, options);
  ASSERT_FALSE(session);
  EXPECT_NE(session.error().message().find("thread that watches the peers"), std::string::npos) << session.error().message();
  expect_thread_error(std::move(session).error());
}

ISOLATED_TEST(FabricThreads, RefusedOfProxies) {
  soft_hca::SoftHca hca;
  ASSERT_NO_FATAL_FAILURE(refuse_threads());
  auto proxies = soft_hca::ProxyThreads::start(hca, 2);
  ASSERT_FALSE(proxies);
  EXPECT_NE(proxies.error().message().find("thread 1 of 2"), std::string::npos) << proxies.error().message();
  expect_thread_error(std::move(proxies).error());
}

ISOLATED_TEST(FabricThreads, RefusedOfCopiesAndStreams) {
  const ScopedEnvironment stand_in("GIGABAR_STAND_IN", "1");
  const auto memory = DeviceMemory::allocate(0, 4 << 20);
  ASSERT_TRUE(memory) << memory.message();
  const auto mapping = map(memory->address(), memory->bytes());
  ASSERT_TRUE(mapping) << mapping.message();
  ASSERT_NO_FATAL_FAILURE(refuse_threads());
  const std::vector<char> bytes(4 << 20, 'c');
  expect_thread_error(copy_to_parallel(*mapping, 0, bytes.data(), bytes.size(), 2));
  const auto transfers = parse_transfers("host->gpu0 cpu:2 iterations=1 bytes=64K", {}, 1);
  ASSERT_TRUE(transfers) << transfers.message();
  StreamPlan plan;
  plan.transfers = *transfers;
  auto report = run_streams(plan);
  ASSERT_FALSE(report);
  expect_thread_error(std::move(report).error());
}

}  // namespace
}  // namespace gigabar
