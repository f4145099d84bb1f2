// SPDX-License-Identifier: Apache-2.0
// The directory among strangers: garbage, silence, floods, replays and servers that are none.
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/errors.hpp"
#include "fabric/job/directories.hpp"
#include "fault/doors.hpp"
#include "support/no_more_descriptors.hpp"
#include "unit/fabric/job/keeping.hpp"

namespace gigabar {
namespace {

using fabric::BootstrapMessageType;
using fabric::Job;
using secure::kChallengeBytes;
using secure::kHelloBytes;
using secure::kPrefixBytes;
using secure::kProofBytes;
using secure::kProtocolVersion;
using secure::Prefix;
using secure::Verdict;
using test::FreePort;
using test::in_seconds;
using test::Keeping;
using test::make_job;
using test::Speaker;
using test::Stranger;

// The directory still works for those of the job.
void expect_works(std::uint16_t port, Rank rank, Rank rank_count) {
  auto member = fabric::open_member(make_job(rank, rank_count, port), in_seconds(20));
  ASSERT_TRUE(member) << member.error().message();
  EXPECT_EQ(test::wait_for_rank_address(**member, 0), "address 0");
}

TEST(HostileMember, GarbageIsCutOffWithoutAnAnswer) {
  const FreePort port;
  const Keeping server(make_job(0, 2, port.number()));
  for (const std::string& bytes :
       {std::string(kHelloBytes, '\0'), std::string("GET / HTTP/1.1\r\nHost: gigabar\r\nAccept: */*\r\n\r\n....."),
        std::string(100'000, '\xff')}) {
    const Stranger stranger(port.number());
    ASSERT_TRUE(stranger.is_connected());
    stranger.send(bytes);
    EXPECT_LE(stranger.receive().size(), kChallengeBytes) << "random bytes, for everybody";
  }
  expect_works(port.number(), 1, 2);
}

TEST(HostileMember, RandomBytesAfterAHelloAreCutOff) {
  const FreePort port;
  const Keeping server(make_job(0, 2, port.number()));
  std::mt19937 random(7);  // NOLINT: the same bytes in every run
  for (int probe = 0; probe < 100; ++probe) {
    Speaker speaker(make_job(1, 2, port.number()));
    ASSERT_TRUE(speaker.send_hello() && speaker.read_hello());
    std::string bytes(kProofBytes + random() % 200, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    // Half of them begin as a proof does.
    if (probe % 2 == 0) bytes.replace(0, kPrefixBytes, encode(Prefix{kProtocolVersion, Verdict::proceed}));
    speaker.stranger().send(bytes);
    const std::string answer = speaker.stranger().receive();
    EXPECT_TRUE(answer.empty() || answer == test::refused());
  }
  expect_works(port.number(), 1, 2);
}

TEST(HostileMember, AnEarlierProofProvesNothing) {
  const FreePort port;
  const Keeping server(make_job(0, 2, port.number()));
  std::string words;
  {
    Speaker member(make_job(1, 2, port.number()));
    EXPECT_TRUE(member.prove()) << "it was the right one";
    words = member.hello + member.proof;
  }
  const Stranger replay(port.number());
  EXPECT_EQ(replay.receive(kChallengeBytes).size(), kChallengeBytes);
  replay.send(words);
  EXPECT_EQ(replay.receive(), test::refused());
}

TEST(HostileMember, AServersOwnWordsProveNothing) {
  const FreePort port;
  const Keeping server(make_job(0, 2, port.number()));
  Speaker first(make_job(1, 2, port.number()));
  ASSERT_TRUE(first.send_hello() && first.read_hello());
  const Stranger second(port.number());
  EXPECT_EQ(second.receive(kChallengeBytes).size(), kChallengeBytes);
  second.send(first.answer);
  EXPECT_EQ(second.receive(), test::refused());
  // Nor does its hello's hash as the proof.
  first.stranger().send(encode(Prefix{kProtocolVersion, Verdict::proceed}) + first.answer.substr(kHelloBytes - 56));
  EXPECT_EQ(first.stranger().receive(), test::refused());
}

TEST(HostileMember, AnotherVersionIsToldOursAndCutOff) {
  const FreePort port;
  const Keeping server(make_job(0, 2, port.number()));
  const Stranger stranger(port.number());
  stranger.send(encode(Prefix{99, Verdict::proceed}));
  const std::string answer = stranger.receive();
  ASSERT_EQ(answer.size(), kChallengeBytes + kPrefixBytes);
  EXPECT_EQ(answer.substr(kChallengeBytes), encode(Prefix{kProtocolVersion, Verdict::version}));
}

TEST(HostileMember, SilenceIsCutOffAfterItsTime) {
  const FreePort port;
  const Keeping server(make_job(0, 2, port.number()), test::kSecondNs / 5);
  const std::int64_t start_ns = now_ns();
  const Stranger silent(port.number());
  const Stranger half(port.number());
  half.send("gigabarW");
  EXPECT_TRUE(silent.is_cut_off());
  EXPECT_TRUE(half.is_cut_off());
  EXPECT_GE(now_ns() - start_ns, test::kSecondNs / 5);
  // A member that has proved itself may be silent.
  auto member = fabric::open_member(make_job(1, 2, port.number()), in_seconds(20));
  ASSERT_TRUE(member);
  ::poll(nullptr, 0, 500);
  EXPECT_EQ(test::wait_for_rank_address(**member, 0), "address 0");
}

TEST(HostileMember, AFloodDoesNotKeepTheJobOut) {
  const FreePort port;
  const Keeping server(make_job(0, 3, port.number()), test::kSecondNs / 2);
  std::vector<std::unique_ptr<Stranger>> flood;
  for (int count = 0; count < 350; ++count) flood.push_back(std::make_unique<Stranger>(port.number()));
  expect_works(port.number(), 1, 3);
  flood.clear();
  expect_works(port.number(), 2, 3);
}

// More than are held, and they stay: each that comes makes the oldest go.
TEST(HostileMember, TwelveHundredSilentOnesDelayNobody) {
  const FreePort port;
  const Keeping server(make_job(0, 3, port.number()), 1000 * test::kSecondNs);  // their time is not over meanwhile
  const test::DescriptorLimit limit;
  std::vector<std::unique_ptr<Stranger>> silent;
  for (int count = 0; count < 1200; ++count) silent.push_back(std::make_unique<Stranger>(port.number()));
  expect_works(port.number(), 1, 3);
  EXPECT_TRUE(silent.front()->is_cut_off());
}

// Who is turned away is counted once; who goes between two words of the handshake is not.
TEST(HostileMember, AreCountedExactly) {
  const FreePort port;
  auto server = fabric::open_bootstrap_server(make_job(0, 3, port.number()), test::kSecondNs / 5);
  ASSERT_TRUE(server);
  const auto poll_until = [&](std::uint64_t count) {
    const bool is_reached = test::eventually([&] { return !(*server)->poll() || (*server)->refused_count() >= count; });
    EXPECT_TRUE(is_reached) << (*server)->refused_count() << " of " << count;
    return (*server)->refused_count() == count;
  };
  const auto accept = [&] {
    for (int round = 0; round < 3; ++round) ASSERT_TRUE((*server)->poll());
  };
  const Job job = make_job(1, 3, port.number());
  {
    const Stranger leaves(port.number());
  }
  {
    Speaker says_hello(job);
    accept();
    EXPECT_TRUE(says_hello.send_hello());
  }
  {
    Speaker breaks_off(job);
    accept();
    ASSERT_TRUE(breaks_off.read_challenge());
    breaks_off.stranger().send(breaks_off.handshake().hello(0).substr(0, 20));
  }
  EXPECT_TRUE(poll_until(1));
  const Stranger garbage(port.number());
  garbage.send("GET / HTTP/1.1\r\n");
  EXPECT_TRUE(poll_until(2));
  Speaker no_proof(job);
  accept();
  ASSERT_TRUE(no_proof.send_hello());
  no_proof.stranger().send(std::string(kProofBytes, 'x'));
  EXPECT_TRUE(poll_until(3));
  const Stranger silent(port.number());
  EXPECT_TRUE(poll_until(4)) << "too slow";
  for (int round = 0; round < 20; ++round) ASSERT_TRUE((*server)->poll());
  EXPECT_EQ((*server)->refused_count(), 4u);
}

// A server that holds sixteen strangers of each kind.
std::unique_ptr<fabric::Directory> open_narrow_server(std::uint16_t port) {
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  const rlimit narrow{64, before.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &narrow);
  auto server = fabric::open_bootstrap_server(make_job(0, 2, port));
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_TRUE(server) << server.error().message();
  return server ? std::move(*server) : nullptr;
}

std::string known_name(std::uint16_t port) { return text("gigabar-directory-", ::geteuid(), "-", port); }

// For longer than strangers have to speak.
void poll_for_a_while(fabric::Directory& server) {
  for (const std::int64_t end_ns = now_ns() + test::kSecondNs / 5; now_ns() < end_ns; ::poll(nullptr, 0, 1))
    ASSERT_TRUE(server.poll());
}

// Those of TCP and those of this host do not take each other's places.
TEST(HostileMember, OverTcpLeaveTheUnixSocketAlone) {
  const FreePort port;
  const auto server = open_narrow_server(port.number());
  ASSERT_TRUE(server);
  std::vector<std::unique_ptr<Stranger>> silent;
  for (int count = 0; count < 16; ++count) silent.push_back(std::make_unique<Stranger>(port.number()));
  ASSERT_NO_FATAL_FAILURE(poll_for_a_while(*server));
  std::vector<Descriptor> of_this_host;
  for (int count = 0; count < 16; ++count) of_this_host.push_back(test::knock_unix(known_name(port.number()), SOCK_STREAM));
  ASSERT_NO_FATAL_FAILURE(poll_for_a_while(*server));
  EXPECT_EQ(server->refused_count(), 0U) << "some had to go";
  silent.push_back(std::make_unique<Stranger>(port.number()));
  ASSERT_NO_FATAL_FAILURE(poll_for_a_while(*server));
  EXPECT_EQ(server->refused_count(), 1U) << "it holds sixteen";
}

// Who is turned away for being another user has put nobody out.
TEST(HostileMember, OfAnotherUserTakesNobodysPlace) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const FreePort port;
  const auto server = open_narrow_server(port.number());
  ASSERT_TRUE(server);
  std::vector<Descriptor> own;
  for (int count = 0; count < 16; ++count) own.push_back(test::knock_unix(known_name(port.number()), SOCK_STREAM));
  ASSERT_NO_FATAL_FAILURE(poll_for_a_while(*server));
  const std::string name = known_name(port.number());
  const pid_t other = ::fork();
  if (other == 0) {
    if (::setgroups(0, nullptr) != 0 || ::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(1);
    for (int count = 0; count < 8; ++count) {
      const Descriptor visitor = test::knock_unix(name, SOCK_STREAM);
      pollfd entry{visitor.get(), POLLIN, 0};
      if (::poll(&entry, 1, 10'000) != 1) ::_exit(2);
    }
    ::_exit(0);
  }
  EXPECT_TRUE(test::eventually([&] { return !server->poll() || server->refused_count() >= 8; }));
  int status = -1;
  ::waitpid(other, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(server->refused_count(), 8U) << "one for each of the other user's, and none of this one's";
}

TEST(HostileMember, ServersOutOfDescriptorsWaitAndGoOn) {
  if (GIGABAR_TEST_CAN_EXHAUST_DESCRIPTORS == 0) GTEST_SKIP() << "the sanitizer needs descriptors";
  const FreePort port;
  auto server = fabric::open_bootstrap_server(make_job(0, 2, port.number()));
  ASSERT_TRUE(server);
  const Stranger waiting(port.number());
  ASSERT_TRUE(waiting.is_connected());
  const bool is_quiet = test::without_descriptors([&] {
    const bool is_ok = (*server)->poll() && (*server)->poll();
    pollfd entry{(*server)->wake_descriptor(), POLLIN, 0};
    return is_ok && ::poll(&entry, 1, 0) == 0;
  });
  EXPECT_TRUE(is_quiet) << "it fails, or it would be woken for ever";
  waiting.send(std::string(kHelloBytes, 'x'));
  std::atomic<bool> is_over{false};
  std::thread polls([&] {
    while (!is_over) {
      pollfd entry{(*server)->wake_descriptor(), POLLIN, 0};
      ::poll(&entry, 1, 20);
      EXPECT_TRUE((*server)->poll());
    }
  });
  EXPECT_TRUE(waiting.is_cut_off());
  is_over = true;
  polls.join();
}

// One that holds the key and breaks the rules afterwards.
class Insider {
 public:
  explicit Insider(std::uint16_t port) : speaker_(make_job(1, 4, port)), is_proved_(speaker_.prove()) {}
  bool is_proved() const { return is_proved_; }
  const Stranger& stranger() const { return speaker_.stranger(); }
  std::string seal(BootstrapMessageType type, Rank rank, const std::string& body = {}) {
    return seal(fabric::frame_of(type, rank, body));
  }
  std::string seal(const secure::Frame& frame) { return speaker_.sealer().seal(frame.type, 0, frame.body); }

 private:
  Speaker speaker_;
  bool is_proved_ = false;
};

TEST(HostileInsider, WhatBreaksTheRulesIsCutOff) {
  const FreePort port;
  const Keeping server(make_job(0, 4, port.number()));
  std::vector<secure::Frame> frames;
  for (const auto& [type, rank] :
       {std::pair{BootstrapMessageType::ask, Rank{4}}, std::pair{BootstrapMessageType::ask, kAnyRank},
        std::pair{BootstrapMessageType::answer, Rank{1}}, std::pair{static_cast<BootstrapMessageType>(4), Rank{1}},
        std::pair{static_cast<BootstrapMessageType>(0), Rank{1}}, std::pair{static_cast<BootstrapMessageType>(255), Rank{1}}})
    frames.push_back(fabric::frame_of(type, rank));
  frames.push_back({1, "abc", {}});  // too short for a rank
  frames.push_back(fabric::frame_of(BootstrapMessageType::publish, 1, std::string(fabric::kMaxRankAddressBytes + 1, 'x')));
  for (const secure::Frame& frame : frames) {
    Insider insider(port.number());
    ASSERT_TRUE(insider.is_proved());
    insider.stranger().send(insider.seal(frame));
    EXPECT_TRUE(insider.stranger().is_cut_off()) << frame.type << ", " << frame.body.size() << " bytes";
    // The bootstrap server knows that the rank has gone before the next one comes with it.
  }
  expect_works(port.number(), 1, 4);
}

TEST(HostileInsider, WhatComesAfterThatIsNotHeard) {
  const FreePort port;
  const Keeping server(make_job(0, 4, port.number()));
  Insider insider(port.number());
  ASSERT_TRUE(insider.is_proved());
  const std::string bad = insider.seal(BootstrapMessageType::ask, 4);
  insider.stranger().send(bad + insider.seal(BootstrapMessageType::publish, 1, "not heard"));
  EXPECT_TRUE(insider.stranger().is_cut_off());
  auto member = fabric::open_member(make_job(2, 4, port.number()), in_seconds(20));
  ASSERT_TRUE(member) << member.error().message();
  ASSERT_TRUE((*member)->rank_address(1));
  EXPECT_EQ(test::wait_for_rank_address(**member, 0), "address 0") << "answered later";
  EXPECT_FALSE((*member)->rank_address(1)->has_value());
}

TEST(HostileInsider, ManyQuestionsWithoutTakingTheAnswersAreHeldBack) {
  const FreePort port;
  const Keeping server(make_job(0, 4, port.number()));
  {
    Insider insider(port.number());
    ASSERT_TRUE(insider.is_proved());
    std::string questions;
    for (int count = 0; count < 50'000; ++count) questions += insider.seal(BootstrapMessageType::ask, 0);
    // All of them are answered in the end, with the bootstrap server holding no more than a part.
    std::thread asks([&] { insider.stranger().send(questions); });
    const std::size_t answer_bytes = secure::kFrameOverheadBytes + 4 + std::string("address 0").size();
    expect_works(port.number(), 2, 4);
    EXPECT_EQ(insider.stranger().receive(50'000 * answer_bytes).size(), 50'000 * answer_bytes);
    asks.join();
  }
  expect_works(port.number(), 3, 4);
}

TEST(BootstrapMessages, AreReadBack) {
  const std::string longest(fabric::kMaxRankAddressBytes, '\x5a');
  for (const auto& [rank, body] : {std::pair<Rank, std::string>{1, "address"}, {0xfffffffe, ""}, {3, longest}}) {
    const auto message = fabric::message_in(fabric::frame_of(BootstrapMessageType::answer, rank, body));
    ASSERT_TRUE(message);
    EXPECT_EQ(message->type, BootstrapMessageType::answer);
    EXPECT_EQ(message->rank, rank);
    EXPECT_EQ(message->rank_address, body);
  }
  EXPECT_FALSE(fabric::message_in(fabric::frame_of(BootstrapMessageType::answer, 3, longest + "x")));
  for (std::size_t bytes = 0; bytes < 4; ++bytes) EXPECT_FALSE(fabric::message_in({3, std::string(bytes, 'x'), {}})) << bytes;
}

// --- Servers that are none ------------------------------------------------------------------------------------------------------

// Listens, and plays `act` with each that connects, until it goes.
class FakeBootstrapServer {
 public:
  FakeBootstrapServer(std::uint16_t port, std::function<void(int)> act)
      : act_(std::move(act)), listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int yes = 1;
    ::setsockopt(listener_.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    const sockaddr_in address = test::loopback(port);
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(listener_.get(), 16), 0);
    thread_ = std::thread([this] { run(); });
  }
  ~FakeBootstrapServer() {
    is_over_ = true;
    thread_.join();
  }
  FakeBootstrapServer(const FakeBootstrapServer&) = delete;
  FakeBootstrapServer& operator=(const FakeBootstrapServer&) = delete;

 private:
  void run() {
    std::vector<Descriptor> held;  // silent ones stay open
    while (!is_over_) {
      pollfd entry{listener_.get(), POLLIN, 0};
      if (::poll(&entry, 1, 10) != 1) continue;
      held.emplace_back(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      act_(held.back().get());
      if (held.size() > 4) held.erase(held.begin());
    }
  }

  std::function<void(int)> act_;
  Descriptor listener_;
  std::atomic<bool> is_over_{false};
  std::thread thread_;
};

std::string receive_from(int socket, std::size_t bytes) {
  std::string all(bytes, '\0');
  return all.substr(0, static_cast<std::size_t>(std::max<ssize_t>(::recv(socket, all.data(), bytes, MSG_WAITALL), 0)));
}

// One that gave up at its deadline hears nothing more.
void send_to(int socket, const std::string& bytes) {
  const ssize_t count = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  EXPECT_TRUE(count == static_cast<ssize_t>(bytes.size()) || errno == EPIPE || errno == ECONNRESET) << std::strerror(errno);
}

ErrorRecord refusal(std::uint16_t port, std::int64_t deadline_ns) {
  const auto member = fabric::open_member(make_job(1, 2, port), deadline_ns);
  EXPECT_FALSE(member);
  return member ? ErrorRecord{} : member.error().record();
}

// The handshake of who listens, played by hand over a socket that waits.
class Listener {
 public:
  Listener(int socket, const Job& job)
      : socket_(socket), identity_(identity_of(job, secure::Purpose::directory)), handshake_(identity_, secure::Role::acceptor) {}
  // The member's hello, whatever is wrong with it.
  std::string read_hello() {
    send_to(socket_, handshake_.challenge());
    std::string hello = receive_from(socket_, kHelloBytes);
    static_cast<void>(handshake_.take_hello(hello));
    return hello;
  }
  void send_hello() { send_to(socket_, handshake_.hello(1)); }
  secure::Handshake& handshake() { return handshake_; }

 private:
  int socket_;
  secure::Identity identity_;
  secure::Handshake handshake_;
};

// Who answers in rank 0's place before it comes does not end a join by refusing it.
TEST(HostileBootstrapServer, OneThatRefusesAndGoesKeepsNobodyOut) {
  const FreePort port;
  std::atomic<int> refused{0};
  auto impostor = std::make_unique<FakeBootstrapServer>(port.number(), [&](int socket) {
    Listener(socket, make_job(0, 2, 1)).read_hello();
    send_to(socket, test::refused());
    ++refused;
  });
  std::string rank_address;
  std::thread joins([&] {
    const auto member = fabric::open_member(make_job(1, 2, port.number()), in_seconds(30));
    EXPECT_TRUE(member) << member.error().message();
    if (member) rank_address = test::wait_for_rank_address(**member, 0).value_or("none");
  });
  EXPECT_TRUE(test::eventually([&] { return refused >= 2; }));
  impostor.reset();
  {
    const Keeping server(make_job(0, 2, port.number()));
    joins.join();
  }
  EXPECT_EQ(rank_address, "address 0");
}

TEST(HostileBootstrapServer, SilenceEndsAtTheDeadline) {
  const FreePort port;
  const FakeBootstrapServer server(port.number(), [](int) {});
  const ErrorRecord late = refusal(port.number(), now_ns() + test::kSecondNs / 5);
  EXPECT_EQ(late.status, Status::timed_out);
}

TEST(HostileBootstrapServer, AnotherProgramIsTriedAgainUntilTheDeadline) {
  const FreePort port;
  std::atomic<int> tries{0};
  const FakeBootstrapServer server(port.number(), [&](int socket) {
    ++tries;
    send_to(socket, std::string(200, 'x'));
  });
  const ErrorRecord late = refusal(port.number(), now_ns() + test::kSecondNs / 2);
  EXPECT_EQ(late.status, Status::timed_out);
  EXPECT_NE(late.cause.find("no directory"), std::string::npos) << late.cause;
  EXPECT_GT(tries, 1);
}

TEST(HostileBootstrapServer, AnotherVersionIsNotSupported) {
  const FreePort port;
  const FakeBootstrapServer server(
      port.number(), [](int socket) { send_to(socket, encode(Prefix{77, Verdict::proceed}) + std::string(32, 'r')); });
  const ErrorRecord other = refusal(port.number(), in_seconds(3));
  EXPECT_EQ(other.status, Status::not_supported);
  EXPECT_NE(other.cause.find("77"), std::string::npos);
  EXPECT_NE(other.cause.find("version 4"), std::string::npos);
}

// It holds the key, and is some other rank.
TEST(HostileBootstrapServer, AnotherRankIsNotTheServer) {
  const FreePort port;
  const FakeBootstrapServer server(port.number(), [](int socket) {
    Listener listener(socket, make_job(2, 3, 1));
    listener.read_hello();
    listener.send_hello();
  });
  const ErrorRecord other = refusal(port.number(), in_seconds(3));
  EXPECT_EQ(other.status, Status::no_permission);
  EXPECT_NE(other.cause.find("rank 2, not 0"), std::string::npos) << other.cause;
}

TEST(HostileBootstrapServer, AnEchoHasNotTheKey) {
  const FreePort port;
  const FakeBootstrapServer server(port.number(),
                                   [](int socket) { send_to(socket, Listener(socket, make_job(0, 2, 1)).read_hello()); });
  EXPECT_EQ(refusal(port.number(), in_seconds(3)).status, Status::no_permission);
}

// A key of its own, and the hello of a rank 0.
TEST(HostileBootstrapServer, OneWithoutTheKeyHearsNoProofAndGivesNone) {
  const FreePort port;
  std::atomic<std::size_t> heard_bytes{0};
  const FakeBootstrapServer server(port.number(), [&](int socket) {
    Listener listener(socket, make_job(0, 2, 1, "a key that was made up"));
    listener.read_hello();
    listener.send_hello();
    heard_bytes += receive_from(socket, kProofBytes).size();
  });
  EXPECT_EQ(refusal(port.number(), in_seconds(3)).status, Status::no_permission);
  EXPECT_EQ(heard_bytes, 0u);
}

// A verdict that comes without a proof is what anybody may have said, and no more.
TEST(HostileBootstrapServer, AVerdictWithoutAProofIsNone) {
  for (const Verdict verdict : {Verdict::occupied, Verdict::wrong_count}) {
    const FreePort port;
    const FakeBootstrapServer server(port.number(), [&](int socket) {
      Listener listener(socket, make_job(0, 2, 1));
      listener.read_hello();
      listener.send_hello();
      receive_from(socket, kProofBytes);
      std::string told = listener.handshake().proof();
      told.replace(0, kPrefixBytes, encode(Prefix{kProtocolVersion, verdict}));
      send_to(socket, told);
    });
    const std::int64_t deadline_ns = in_seconds(3);
    const ErrorRecord doubted = refusal(port.number(), deadline_ns);
    EXPECT_EQ(doubted.status, Status::no_permission) << doubted.cause;
    EXPECT_NE(doubted.cause.find("does not hold this job's key"), std::string::npos) << doubted.cause;
    EXPECT_GE(now_ns(), deadline_ns) << "it is never believed, and told only when nothing better came";
  }
}

// Plays the bootstrap server with the right key, then sends `bytes`.
void play_server(int socket, const Job& job, const std::function<std::string(secure::Sealer&)>& bytes) {
  Listener listener(socket, job);
  listener.read_hello();
  listener.send_hello();
  EXPECT_TRUE(listener.handshake().take_proof(receive_from(socket, kProofBytes)));
  const std::string proof = listener.handshake().proof();
  secure::Sealer sealer = listener.handshake().take_sealer();
  send_to(socket, proof + bytes(sealer));
}

TEST(HostileBootstrapServer, WhatWasNotAskedForEndsTheConnection) {
  for (const auto& [type, rank] :
       {std::pair{BootstrapMessageType::answer, Rank{3}}, std::pair{BootstrapMessageType::answer, kAnyRank},
        std::pair{BootstrapMessageType::ask, Rank{1}}, std::pair{static_cast<BootstrapMessageType>(4), Rank{1}}}) {
    const FreePort port;
    const auto make = [sent = fabric::frame_of(type, rank, "x").body, number = std::uint16_t(type)](secure::Sealer& sealer) {
      return sealer.seal(number, 0, sent);
    };
    const FakeBootstrapServer server(port.number(), [&](int socket) { play_server(socket, make_job(0, 4, 1), make); });
    auto member = fabric::open_member(make_job(1, 4, port.number()), in_seconds(20));
    ASSERT_TRUE(member) << member.error().message();
    EXPECT_TRUE(test::eventually([&] { return !(*member)->poll() || !(*member)->rank_address(2); }));
    EXPECT_EQ((*member)->rank_address(2).status(), Status::peer_lost);
  }
}

TEST(HostileBootstrapServer, ForgedMessagesEndTheConnection) {
  const FreePort port;
  const FakeBootstrapServer server(port.number(), [](int socket) {
    play_server(socket, make_job(0, 2, 1),
                [](secure::Sealer&) { return std::string("\x20\x00\x00\x00", 4) + std::string(64, 'f'); });
  });
  auto member = fabric::open_member(make_job(1, 2, port.number()), in_seconds(20));
  ASSERT_TRUE(member) << member.error().message();
  EXPECT_TRUE(test::eventually([&] { return !(*member)->poll() || !(*member)->rank_address(0); }));
  EXPECT_EQ((*member)->rank_address(0).status(), Status::peer_lost);
}

}  // namespace
}  // namespace gigabar
