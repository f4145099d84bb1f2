// SPDX-License-Identifier: Apache-2.0
// Where ranks leave their addresses and find the others': open_directory() of fabric/job/job.hpp.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <ifaddrs.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/errors.hpp"
#include "fabric/job/directories.hpp"
#include "fabric/job/job.hpp"
#include "platform/network.hpp"
#include "secure/sockets.hpp"
#include "support/interface_address.hpp"
#include "support/isolated.hpp"
#include "support/temporary_folder.hpp"
#include "unit/fabric/job/keeping.hpp"

namespace gigabar {
namespace {

using fabric::Job;
using fabric::open_directory;
using test::FreePort;
using test::in_seconds;
using test::Keeping;
using test::make_job;
using test::wait_for_rank_address;

bool is_readable(int descriptor, int wait_ms) {
  pollfd entry{descriptor, POLLIN, 0};
  return ::poll(&entry, 1, wait_ms) == 1;
}

std::unique_ptr<fabric::Directory> join(const Job& job) {
  auto opened = open_directory(job, in_seconds(20));
  EXPECT_TRUE(opened) << opened.error().message();
  return opened ? std::move(*opened) : nullptr;
}

// What opening fails with; a test failure when it succeeds.
ErrorRecord refusal(const Job& job, std::int64_t deadline_ns) {
  auto opened = open_directory(job, deadline_ns);
  EXPECT_FALSE(opened);
  return opened ? ErrorRecord{} : opened.error().record();
}

TEST(Directory, OfOneRankIsItsOwn) {
  const auto directory = join(make_job(0, 1, 0));
  ASSERT_TRUE(directory);
  EXPECT_FALSE(*directory->rank_address(0));
  EXPECT_TRUE(directory->publish("mine"));
  EXPECT_EQ(**directory->rank_address(0), "mine");
  EXPECT_TRUE(directory->poll());
  EXPECT_EQ(directory->rank_address(1).status(), Status::out_of_range);
  EXPECT_EQ(directory->publish("again").status(), Status::invalid_argument);
}

TEST(Directory, GivesEveryRankEveryAddress) {
  const FreePort port;
  const Keeping server(make_job(0, 3, port.number()));
  const auto first = join(make_job(1, 3, port.number()));
  const auto second = join(make_job(2, 3, port.number()));
  ASSERT_TRUE(first && second);
  const std::string longest(fabric::kMaxRankAddressBytes, '\0');
  EXPECT_TRUE(first->publish("address 1"));
  EXPECT_TRUE(second->publish(longest));
  for (const auto* directory : {&first, &second}) {
    EXPECT_EQ(wait_for_rank_address(**directory, 0), "address 0");
    EXPECT_EQ(wait_for_rank_address(**directory, 1), "address 1");
    EXPECT_EQ(wait_for_rank_address(**directory, 2), longest);
  }
}

Job on_one_host(Job job) {
  job.is_on_one_host = true;
  return job;
}

TEST(Directory, WorksWithoutAKeyOnOneHost) {
  const FreePort port;
  const Keeping server(make_job(0, 2, port.number(), ""));
  const auto member = join(make_job(1, 2, port.number(), ""));
  ASSERT_TRUE(member);
  EXPECT_EQ(wait_for_rank_address(*member, 0), "address 0");
}

// Where all ranks are here, nothing listens at the port: with a key and without one.
TEST(Directory, OfOneHostIsNoTcpPort) {
  for (const char* key : {"", "sixteen bytes or more"}) {
    const FreePort port;
    const Keeping server(on_one_host(make_job(0, 3, port.number(), key)));
    const auto member = join(on_one_host(make_job(1, 3, port.number(), key)));
    ASSERT_TRUE(member);
    EXPECT_EQ(wait_for_rank_address(*member, 0), "address 0");
    EXPECT_FALSE(test::Stranger(port.number()).is_connected()) << "key '" << key << "'";
    const std::int64_t start_ns = now_ns();
    const std::string no_key_or_another = *key == '\0' ? "another key, long enough" : "";
    for (const std::string& wrong : {std::string("yet another key of many bytes"), no_key_or_another})
      EXPECT_EQ(refusal(on_one_host(make_job(2, 3, port.number(), wrong)), in_seconds(20)).status, Status::no_permission);
    EXPECT_LT(now_ns() - start_ns, 10 * test::kSecondNs) << "it is told at once";
    EXPECT_EQ(refusal(on_one_host(make_job(2, 3, 1, key)), now_ns() + test::kSecondNs / 5).status, Status::timed_out);
    const ErrorRecord taken = refusal(on_one_host(make_job(0, 3, port.number(), key)), in_seconds(20));
    EXPECT_EQ(taken.status, Status::unavailable);
    EXPECT_EQ(taken.native.name, "EADDRINUSE");
    EXPECT_NE(taken.remedy.find("MASTER_PORT"), std::string::npos);
  }
}

// Somebody else has the name by which ranks with a wrong key are told: those with the right one find each other all the same. Where
// the test cannot become somebody else it is another job of this user, and that is an error.
TEST(Directory, AStrangerWhoTakesTheKnownNameKeepsNobodyOut) {
  const FreePort port;
  const uid_t user = ::geteuid();
  std::array<int, 2> ready{}, over{};
  ASSERT_EQ(::pipe2(ready.data(), O_CLOEXEC), 0);
  ASSERT_EQ(::pipe2(over.data(), O_CLOEXEC), 0);
  const pid_t squatter = ::fork();
  if (squatter == 0) {
    ::close(over[1]);
    if (user == 0 && ::setuid(65534) != 0) ::_exit(1);
    const Descriptor socket = secure::listen_at(network::unix_address(text("gigabar-directory-", user, "-", port.number())));
    char byte = socket.is_open() ? 'r' : 'x';
    if (::write(ready[1], &byte, 1) != 1) ::_exit(1);
    ::_exit(::read(over[0], &byte, 1) == 0 ? 0 : 1);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  ASSERT_EQ(byte, 'r');
  if (user == 0) {
    const Keeping server(on_one_host(make_job(0, 2, port.number())));
    const auto member = join(on_one_host(make_job(1, 2, port.number())));
    ASSERT_TRUE(member);
    EXPECT_EQ(wait_for_rank_address(*member, 0), "address 0");
    // Without a key it is told who has the name.
    const ErrorRecord refused = refusal(make_job(1, 2, port.number(), ""), in_seconds(20));
    EXPECT_EQ(refused.status, Status::no_permission);
    EXPECT_NE(refused.remedy.find("GIGABAR_JOB_KEY"), std::string::npos) << refused.remedy;
  } else {
    EXPECT_EQ(refusal(on_one_host(make_job(0, 2, port.number())), in_seconds(20)).native.name, "EADDRINUSE");
  }
  EXPECT_EQ(refusal(make_job(0, 2, port.number(), ""), in_seconds(20)).native.name, "EADDRINUSE");
  for (const int end : {ready[0], ready[1], over[0], over[1]}) ::close(end);
  ::waitpid(squatter, nullptr, 0);
}

// The same, with a queue that is full: a rank that comes before rank 0 is turned away there, and goes on trying both names.
TEST(Directory, AStrangerWhoseQueueIsFullKeepsNobodyOut) {
  const FreePort port;
  const auto known = network::unix_address(text("gigabar-directory-", ::geteuid(), "-", port.number()));
  const Descriptor squatter(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::bind(squatter.get(), known.get(), known.bytes), 0);
  ASSERT_EQ(::listen(squatter.get(), 0), 0);
  std::vector<Descriptor> queue;
  do {
    queue.push_back(secure::start_connect(known));
  } while (queue.back().is_open() && queue.size() < 100);
  ASSERT_FALSE(queue.back().is_open());
  ASSERT_EQ(errno, EAGAIN);
  std::unique_ptr<fabric::Directory> member;
  std::thread early([&] {
    auto joined = fabric::open_member(on_one_host(make_job(1, 2, port.number())), in_seconds(5));
    EXPECT_TRUE(joined) << joined.error().message();
    if (joined) member = std::move(*joined);
  });
  ::poll(nullptr, 0, 200);
  const Keeping server(on_one_host(make_job(0, 2, port.number())));
  early.join();
  ASSERT_TRUE(member);
  EXPECT_EQ(wait_for_rank_address(*member, 0), "address 0");
}

// An address of this host other than loopback; empty when it has none.
std::string outer_address() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return {};
  std::string found;
  for (const ifaddrs* entry = list; entry != nullptr && found.empty(); entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET) continue;
    const in_addr address = reinterpret_cast<const sockaddr_in*>(entry->ifa_addr)->sin_addr;
    std::array<char, INET_ADDRSTRLEN> name{};
    if ((ntohl(address.s_addr) >> 24) != 127) found = ::inet_ntop(AF_INET, &address, name.data(), name.size());
  }
  ::freeifaddrs(list);
  return found;
}

TEST(Directory, IsFoundAtAnOuterAddressOfTheHost) {
  const std::string address = outer_address();
  if (address.empty()) GTEST_SKIP() << "this host has no address but loopback";
  for (const char* key : {"", "sixteen bytes or more"}) {
    const FreePort port;
    Job server_job = make_job(0, 2, port.number(), key);
    Job member_job = make_job(1, 2, port.number(), key);
    server_job.master_address = member_job.master_address = address;
    const Keeping server(server_job);
    const auto member = join(member_job);
    ASSERT_TRUE(member) << "key '" << key << "'";
    EXPECT_EQ(wait_for_rank_address(*member, 0), "address 0");
    // Without a key nobody can even connect.
    Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in outer = test::loopback(port.number());
    ASSERT_EQ(::inet_pton(AF_INET, address.c_str(), &outer.sin_addr), 1);
    EXPECT_EQ(::connect(socket.get(), reinterpret_cast<sockaddr*>(&outer), sizeof outer) == 0, *key != '\0');
  }
}

TEST(Directory, RanksMayComeBeforeRankZero) {
  const FreePort port;
  std::unique_ptr<fabric::Directory> member;
  std::thread early([&] { member = join(make_job(1, 2, port.number())); });
  ::poll(nullptr, 0, 200);
  const Keeping server(make_job(0, 2, port.number()));
  early.join();
  ASSERT_TRUE(member);
  EXPECT_EQ(wait_for_rank_address(*member, 0), "address 0");
}

TEST(Directory, AnAddressThatHasNotComeWaitsAtTheServerAndWakesWhoAsked) {
  const FreePort port;
  const Keeping server(make_job(0, 3, port.number()));
  const auto asker = join(make_job(1, 3, port.number()));
  ASSERT_TRUE(asker);
  ASSERT_TRUE(asker->rank_address(2));
  EXPECT_FALSE(*asker->rank_address(2));
  ASSERT_EQ(wait_for_rank_address(*asker, 0), "address 0");
  EXPECT_TRUE(asker->poll());
  EXPECT_FALSE(is_readable(asker->wake_descriptor(), 100)) << "nothing is there to be read";
  const auto late = join(make_job(2, 3, port.number()));
  ASSERT_TRUE(late);
  EXPECT_TRUE(late->publish("late address"));
  EXPECT_TRUE(is_readable(asker->wake_descriptor(), 10'000));
  EXPECT_EQ(wait_for_rank_address(*asker, 2), "late address");
}

TEST(Directory, TheServerItselfSeesTheAddresses) {
  const FreePort port;
  auto server = open_directory(make_job(0, 2, port.number()), in_seconds(1));
  ASSERT_TRUE(server) << server.error().message();
  std::thread member([&] {
    const auto directory = join(make_job(1, 2, port.number()));
    ASSERT_TRUE(directory);
    EXPECT_TRUE(directory->publish("address 1"));
    EXPECT_EQ(wait_for_rank_address(*directory, 0), "address 0");
  });
  EXPECT_EQ(wait_for_rank_address(**server, 1), "address 1");
  EXPECT_FALSE(*(*server)->rank_address(0));
  EXPECT_TRUE((*server)->publish("address 0"));
  EXPECT_EQ(**(*server)->rank_address(0), "address 0");
  // Until the member has it.
  std::atomic<bool> is_over{false};
  std::thread ends([&] {
    member.join();
    is_over = true;
  });
  EXPECT_TRUE(test::eventually([&] { return !(*server)->poll() || is_over; }));
  ends.join();
}

TEST(Directory, RefusesAddressesAndRanksThatCannotBe) {
  const FreePort port;
  const Keeping server(make_job(0, 2, port.number()));
  const auto member = join(make_job(1, 2, port.number()));
  ASSERT_TRUE(member);
  EXPECT_EQ(member->publish(std::string(fabric::kMaxRankAddressBytes + 1, 'x')).status(), Status::invalid_argument);
  EXPECT_TRUE(member->publish("")) << "an empty address is one";
  EXPECT_EQ(member->publish("again").status(), Status::invalid_argument);
  EXPECT_EQ(wait_for_rank_address(*member, 1), "");
  EXPECT_EQ(member->rank_address(2).status(), Status::out_of_range);
  EXPECT_EQ(member->rank_address(kAnyRank).status(), Status::out_of_range);
  Job wrong = make_job(2, 2, port.number());
  EXPECT_EQ(refusal(wrong, in_seconds(1)).status, Status::invalid_argument);
}

TEST(Directory, AServerThatIsGoneIsALostPeer) {
  const FreePort port;
  Keeping server(make_job(0, 3, port.number()));
  const auto member = join(make_job(1, 3, port.number()));
  ASSERT_TRUE(member);
  ASSERT_EQ(wait_for_rank_address(*member, 0), "address 0");
  ASSERT_TRUE(member->rank_address(2));
  server.end();
  EXPECT_TRUE(is_readable(member->wake_descriptor(), 10'000));
  EXPECT_TRUE(test::eventually([&] { return !member->poll() || !member->rank_address(2); }));
  const auto lost = member->rank_address(2);
  ASSERT_FALSE(lost);
  EXPECT_EQ(lost.status(), Status::peer_lost);
  EXPECT_NE(lost.error().message().find("rank 0"), std::string::npos);
  EXPECT_TRUE(member->poll());
  EXPECT_FALSE(is_readable(member->wake_descriptor(), 0)) << "it would wake for ever";
  EXPECT_EQ(**member->rank_address(0), "address 0") << "what is known stays known";
  EXPECT_EQ(member->publish("address 1").status(), Status::peer_lost);
}

TEST(Directory, ARankThatIsStartedAnewBringsANewAddress) {
  const FreePort port;
  const Keeping server(make_job(0, 3, port.number()));
  auto first = join(make_job(1, 3, port.number()));
  ASSERT_TRUE(first);
  EXPECT_TRUE(first->publish("old"));
  const auto other = join(make_job(2, 3, port.number()));
  ASSERT_TRUE(other);
  EXPECT_EQ(wait_for_rank_address(*other, 1), "old");
  // Over TCP it may be one whose host is gone: it is told at the deadline.
  const ErrorRecord taken = refusal(make_job(1, 3, port.number()), in_seconds(2));
  EXPECT_EQ(taken.status, Status::invalid_argument);
  EXPECT_NE(taken.cause.find("rank 1 is there already"), std::string::npos) << taken.cause;
  std::thread ends([&] {
    ::poll(nullptr, 0, 500);
    first.reset();
  });
  const auto again = join(make_job(1, 3, port.number()));
  ends.join();
  ASSERT_TRUE(again);
  EXPECT_TRUE(again->publish("new"));
  EXPECT_EQ(wait_for_rank_address(*again, 0), "address 0");
}

// Two lines of /etc/hosts.
ISOLATED_TEST(Directory, ListensOnceAtAnAddressThatIsListedTwice) {
  ASSERT_EQ(::unshare((::geteuid() == 0 ? 0 : CLONE_NEWUSER) | CLONE_NEWNS | CLONE_NEWNET), 0) << std::strerror(errno);
  ASSERT_EQ(::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0) << std::strerror(errno);
  const test::TemporaryFolder folder;
  folder.write("hosts", "127.0.0.1 rank-zero.test\n127.0.0.1 rank-zero.test\n");
  ASSERT_EQ(::mount((folder.path() + "/hosts").c_str(), "/etc/hosts", nullptr, MS_BIND, nullptr), 0) << std::strerror(errno);
  test::set_address("lo", "127.0.0.1");
  const FreePort port;
  Job server_job = make_job(0, 2, port.number());
  Job member_job = make_job(1, 2, port.number());
  server_job.master_address = member_job.master_address = "rank-zero.test";
  const Keeping server(server_job);
  const auto member = join(member_job);
  ASSERT_TRUE(member);
  EXPECT_EQ(wait_for_rank_address(*member, 0), "address 0");
}

// --- Who cannot join ------------------------------------------------------------------------------------------------------------

TEST(Directory, RefusesAnotherKeyAnotherJobAndAnotherRankCount) {
  const FreePort port;
  const Keeping server(make_job(0, 2, port.number()));
  // What a stranger says over TCP is told at the deadline, when nothing better was heard.
  EXPECT_EQ(refusal(make_job(1, 2, port.number(), "another key, long enough"), in_seconds(3)).status, Status::no_permission);
  Job other = make_job(1, 2, port.number());
  other.id = "other";
  EXPECT_EQ(refusal(other, in_seconds(3)).status, Status::no_permission);
  const std::int64_t start_ns = now_ns();
  const ErrorRecord count = refusal(make_job(2, 3, port.number()), in_seconds(20));
  EXPECT_EQ(count.status, Status::invalid_argument);
  EXPECT_NE(count.cause.find("rank 0 counts 2 ranks, rank 2 counts 3"), std::string::npos) << count.cause;
  EXPECT_LT(now_ns() - start_ns, 10 * test::kSecondNs) << "it is told at once";
  EXPECT_TRUE(join(make_job(1, 2, port.number()))) << "others are not disturbed";
}

// A rank of rank 0's host that has no key where there is one is told so at once, at its own Unix socket: what listens there is a
// process of this user. One that has a key where there is none comes to that socket too, but rank 0 may still be about to listen at
// MASTER_ADDR: it is told at the deadline.
TEST(Directory, TellsARankOfItsHostThatOnlyOneOfThemHasAKey) {
  for (const auto& [servers, ranks] : {std::pair("sixteen bytes or more", ""), std::pair("", "sixteen bytes or more")}) {
    const FreePort port;
    const Keeping server(make_job(0, 2, port.number(), servers));
    const bool is_own = *ranks == '\0';
    const std::int64_t start_ns = now_ns();
    const ErrorRecord refused = refusal(make_job(1, 2, port.number(), ranks), in_seconds(is_own ? 60 : 3));
    EXPECT_EQ(refused.status, Status::no_permission) << refused.cause;
    EXPECT_NE(refused.cause.find(is_own ? "this rank has none" : "another job key or none"), std::string::npos) << refused.cause;
    EXPECT_NE(refused.remedy.find("GIGABAR_JOB_KEY"), std::string::npos) << refused.remedy;
    EXPECT_EQ((refused.cause + refused.remedy).find("sixteen"), std::string::npos) << "the key is in the text";
    EXPECT_LT(now_ns() - start_ns, 30 * test::kSecondNs) << "it is not told at the deadline";
  }
}

// Ranks of one host that are in different network name spaces do not meet; the error says so, and what helps.
TEST(Directory, OfOneHostSaysWhatContainersNeed) {
  const FreePort port;
  const ErrorRecord late = refusal(on_one_host(make_job(1, 2, port.number())), now_ns() + test::kSecondNs / 5);
  EXPECT_EQ(late.status, Status::timed_out);
  EXPECT_NE(late.cause.find("network name space"), std::string::npos) << late.cause;
  EXPECT_NE(late.remedy.find("GIGABAR_INTERFACES"), std::string::npos) << late.remedy;
}

TEST(Directory, APortThatIsTakenIsUnavailable) {
  const FreePort port;
  const Keeping server(make_job(0, 2, port.number()));
  const ErrorRecord taken = refusal(make_job(0, 2, port.number()), in_seconds(20));
  EXPECT_EQ(taken.status, Status::unavailable);
  EXPECT_EQ(taken.native.name, "EADDRINUSE");
  EXPECT_NE(taken.remedy.find("MASTER_PORT"), std::string::npos);
}

TEST(Directory, ARankZeroThatNeverComesIsTimedOut) {
  const FreePort port;
  const std::int64_t start_ns = now_ns();
  const ErrorRecord late = refusal(make_job(1, 2, port.number()), now_ns() + test::kSecondNs / 5);
  EXPECT_EQ(late.status, Status::timed_out);
  EXPECT_NE(late.cause.find("refused"), std::string::npos) << late.cause;
  EXPECT_NE(late.object.find(std::to_string(port.number())), std::string::npos);
  EXPECT_GE(now_ns() - start_ns, test::kSecondNs / 5);
}

// Rank 0 too: else it would wait for ranks that cannot come.
TEST(Directory, AnAddressThatNobodyKnowsIsToldAtEveryRankAtOnce) {
  const FreePort port;
  for (const char* key : {"", "sixteen bytes or more"}) {
    for (const Rank rank : {0U, 1U}) {
      Job job = make_job(rank, 2, port.number(), key);
      for (const char* address : {"no-such-host.invalid", "1:2:3", "::g"}) {
        job.master_address = address;
        const std::int64_t start_ns = now_ns();
        const ErrorRecord unknown = refusal(job, in_seconds(60));
        EXPECT_EQ(unknown.status, Status::unavailable);
        EXPECT_EQ(unknown.object, address);
        EXPECT_NE(unknown.remedy.find("MASTER_ADDR"), std::string::npos);
        EXPECT_LT(now_ns() - start_ns, 40 * test::kSecondNs) << "a resolver may try for a while, the directory does not";
      }
    }
  }
}

TEST(Directory, AnotherHostNeedsAKey) {
  const FreePort port;
  for (const Rank rank : {0U, 1U}) {
    Job job = make_job(rank, 2, port.number(), "");
    job.master_address = "192.0.2.1";
    const ErrorRecord refused = refusal(job, in_seconds(20));
    EXPECT_EQ(refused.status, Status::no_permission);
    EXPECT_NE(refused.remedy.find("GIGABAR_JOB_KEY"), std::string::npos);
  }
}

TEST(Directory, IsFoundAtTheLoopbackAddressOfIpv6) {
  for (const char* key : {"", "sixteen bytes or more"}) {
    const FreePort port;
    Job server_job = make_job(0, 2, port.number(), key);
    Job member_job = make_job(1, 2, port.number(), key);
    server_job.master_address = member_job.master_address = "::1";
    const Keeping server(server_job);
    const auto member = join(member_job);
    ASSERT_TRUE(member);
    EXPECT_EQ(wait_for_rank_address(*member, 0), "address 0");
  }
}

TEST(Directory, MessagesWriteIpv6AddressesInBrackets) {
  const FreePort port;
  Job job = make_job(1, 2, port.number());
  job.master_address = "::1";
  const ErrorRecord late = refusal(job, now_ns() + test::kSecondNs / 5);
  EXPECT_NE(late.object.find("[::1]:" + std::to_string(port.number())), std::string::npos) << late.object;
}

// --- Many -----------------------------------------------------------------------------------------------------------------------

TEST(Directory, HoldsHundredsOfRanks) {
  const test::DescriptorLimit limit;
  constexpr Rank kRanks = 300;
  constexpr Rank kThreads = 8;
  const FreePort port;
  std::vector<std::unique_ptr<fabric::Directory>> members(kRanks);
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (Rank thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (Rank rank = 1 + thread; rank < kRanks; rank += kThreads) {
        members[rank] = join(make_job(rank, kRanks, port.number()));
        ASSERT_TRUE(members[rank]);
        // Asked for before most of them are there.
        EXPECT_TRUE(members[rank]->rank_address((rank * 7 + 1) % kRanks));
        EXPECT_TRUE(members[rank]->publish("address " + std::to_string(rank)));
      }
    });
  }
  const Keeping server(make_job(0, kRanks, port.number()));
  for (std::thread& thread : threads) thread.join();
  for (Rank rank = 1; rank < kRanks; ++rank) {
    ASSERT_TRUE(members[rank]);
    for (const Rank other : {(rank * 7 + 1) % kRanks, (rank + 1) % kRanks, Rank{0}, kRanks - 1})
      ASSERT_EQ(wait_for_rank_address(*members[rank], other), "address " + std::to_string(other)) << rank;
  }
  // One that asks for all at once.
  for (Rank other = 0; other < kRanks; ++other) ASSERT_TRUE(members[1]->rank_address(other));
  for (Rank other = 0; other < kRanks; ++other)
    ASSERT_EQ(wait_for_rank_address(*members[1], other), "address " + std::to_string(other));
}

}  // namespace
}  // namespace gigabar
