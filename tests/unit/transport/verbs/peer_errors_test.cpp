// SPDX-License-Identifier: Apache-2.0
// Wrong arguments, peers that break the protocol or fall silent, and routes that lead elsewhere: each is an error that says so, and
// no other link is harmed.
#include <cerrno>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "gigabar/fabric.hpp"
#include "support/free_port.hpp"
#include "support/in_child.hpp"
#include "support/isolated.hpp"
#include "transport/verbs/ledger.hpp"
#include "transport/verbs/wire.hpp"
#include "unit/transport/verbs/fake_rdma.hpp"

namespace gigabar::transport {
namespace {

using test::alive;
using test::End;
using test::FakeMachine;
using test::Pair;
using test::Told;

constexpr const char* kTwo = "a0 10.9.0.1; a1 10.9.0.2";

void expect_error(const std::optional<Error>& error, Status status, const std::string& part) {
  ASSERT_TRUE(error) << part;
  EXPECT_EQ(error->status(), status) << error->message();
  EXPECT_NE(error->message().find(part), std::string::npos) << error->message();
}

template <class T>
std::optional<Error> error_of(const Result<T>& result) {
  if (result) return {};
  return result.error();
}

// --- Arguments -------------------------------------------------------------------------------------------------------------------

ISOLATED_TEST(VerbsArguments, Memory) {
  const FakeMachine machine(kTwo);
  End end;
  TransportOptions options;
  options.stand_in_registration = false;
  ASSERT_FALSE(end.open("a0", options));
  std::vector<std::byte> bytes(4096);
  struct Case {
    void* address;
    std::size_t bytes;
    MemoryKind kind;
    Status status;
    const char* part;
  };
  for (const Case& one :
       {Case{nullptr, 4096, MemoryKind::host_pageable, Status::invalid_argument, "no memory to register"},
        Case{bytes.data(), 0, MemoryKind::host_pageable, Status::invalid_argument, "no memory to register"},
        Case{bytes.data(), 4096, MemoryKind::managed, Status::not_supported, "moves between CPU and GPU"},
        Case{bytes.data(), 4096, MemoryKind::stand_in, Status::not_supported, "does not reach stand-in memory"}}) {
    expect_error(error_of(end.transport->register_memory({one.address, one.bytes, one.kind, -1, -1, 0})), one.status, one.part);
  }
  expect_error(error_of(end.transport->open_region({}, Parcel{"no key", {}})), Status::bad_file, "the key of its region");
}

ISOLATED_TEST(VerbsArguments, OffersAndAnswers) {
  const FakeMachine machine("a0 10.9.0.1; a1 10.9.0.2; w0 10.9.0.3 iwarp");
  {
    Pair pair;
    ASSERT_NO_FATAL_FAILURE(pair.open());
    End iwarp;
    ASSERT_FALSE(iwarp.open("w0"));
    Parcel offer, answer;
    expect_error(error_of(pair.first.transport->offer({}, 1, offer)), Status::out_of_range, "there are 1 rail");
    expect_error(error_of(pair.second.transport->accept({}, Parcel{"no offer", {}}, answer)), Status::bad_file, "malformed");
    auto offered = iwarp.transport->offer({}, 0, offer);
    ASSERT_TRUE(offered) << offered.message();
    expect_error(error_of(pair.second.transport->accept({}, std::move(offer), answer)), Status::not_supported,
                 "no rail here speaks");
    Told& told = iwarp.add(std::move(*offered));
    expect_error(error_of(told.link->complete(Parcel{"no answer", {}})), Status::bad_file, "answer to the offer is malformed");
    iwarp.poll();
    EXPECT_EQ(told.broken, 1);
    ASSERT_TRUE(pair.begin());
    expect_error(error_of(pair.here->link->complete(Parcel{"once more", {}})), Status::invalid_argument, "offered, and once");
    EXPECT_TRUE(pair.run_until([&] { return pair.here->ready + pair.there->ready == 2; })) << "the link itself is well";
    iwarp.links.clear();
  }
  EXPECT_EQ(alive(), 0);
}

ISOLATED_TEST(VerbsArguments, RangesOutsideOfRegions) {
  const FakeMachine machine(kTwo);
  {
    Pair pair;
    ASSERT_NO_FATAL_FAILURE(pair.open());
    ASSERT_NO_FATAL_FAILURE(pair.connect());
    Told& here = *pair.here;
    std::vector<std::byte> bytes(8192);
    const auto local = pair.first.register_host(bytes.data(), 4096);
    const auto peers = pair.second.register_host(bytes.data() + 4096, 4096);
    const auto remote = pair.first.open_region(*peers);
    EXPECT_EQ(here.link->post_write(*local, 0, *remote, 1, 4096, 1), Posted::ok);
    EXPECT_EQ(here.link->post_read(*local, 1, *remote, 0, 4096, 2), Posted::ok);
    ASSERT_TRUE(pair.run_until([&] { return here.done_wrong == 2; }));
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(here.failures.at(i).status(), Status::out_of_range);
      EXPECT_NE(here.failures[i].message().find(i == 0 ? "a write of 4096 bytes" : "a read of 4096 bytes"), std::string::npos)
          << here.failures[i].message();
    }
    EXPECT_EQ(test::writes(), 0);
    EXPECT_TRUE(pair.works(here, *pair.there)) << "the link is not harmed";
    const std::vector<std::byte> long_one(here.link->limits().payload_bytes + 1);
    EXPECT_EQ(here.link->post_message({}, long_one), Posted::broken);
    ASSERT_TRUE(pair.run_until([&] { return here.broken == 1; }));
    expect_error(here.errors.at(0), Status::invalid_argument, "is longer than 4096");
  }
  EXPECT_EQ(alive(), 0);
}

// --- Connecting ------------------------------------------------------------------------------------------------------------------

constexpr int kTokenAt = 20;  // in what both sides of a connection say
constexpr int kFirstReceives = static_cast<int>(rdma::kControlReceives + rdma::kFirstCredits);

// What each end is told; empty: it waits for its deadline.
struct Attempt {
  const char* knob;
  int value, skip;
  Status status;
  const char* first;
  const char* second;
};

ISOLATED_TEST(VerbsPeers, ThatBreakTheProtocolWhileConnecting) {
  const FakeMachine machine(kTwo);
  {
    Pair pair;
    TransportOptions options;
    options.traffic_class = 26;
    ASSERT_NO_FATAL_FAILURE(pair.open(options));
    ASSERT_NO_FATAL_FAILURE(pair.connect());
    Told& here = *pair.here;
    Told& there = *pair.there;
    const int before = alive();
    for (const Attempt& one : {Attempt{"message", 9, 0, Status::peer_lost, "", "bytes that are no message"},
                               Attempt{"message", 2, 0, Status::peer_lost, "", "a message before its greeting"},
                               Attempt{"private_data", 0, 0, Status::peer_lost, "it does not expect this connection", ""},
                               Attempt{"private_data", kTokenAt, 0, Status::peer_lost, "it does not expect this connection", ""},
                               Attempt{"private_data", kTokenAt, 1, Status::no_permission, "who accepted is not the rank", ""},
                               Attempt{"set_option", EINVAL, 0, Status::device_error, "rdma_set_option(TOS)", ""},
                               Attempt{"route", 0, 0, Status::unavailable, "does not go through this rail", ""},
                               Attempt{"request_route", 0, 0, Status::device_error, "", "came through another device"},
                               Attempt{"post_recv", EINVAL, kFirstReceives, Status::device_error, "", "ibv_post_recv"},
                               Attempt{"post_send", EINVAL, 0, Status::device_error, "ibv_post_send", ""}}) {
      pair.refused.reset();
      test::fail(one.knob, one.value, one.skip);
      ASSERT_TRUE(pair.begin()) << one.knob;
      Told& told = *one.first != '\0' ? *pair.here : *pair.there;
      if (!pair.refused) {
        ASSERT_TRUE(pair.run_until([&] { return told.broken == 1; })) << one.knob << " " << one.value;
        pair.refused = told.errors.at(0);
      }
      expect_error(pair.refused, one.status, *one.first != '\0' ? one.first : one.second);
      pair.first.links.pop_back();
      pair.second.links.pop_back();
      EXPECT_EQ(alive(), before) << one.knob << " " << one.value;
      ASSERT_TRUE(pair.works(here, there)) << one.knob;
    }
  }
  EXPECT_EQ(alive(), 0);
}

ISOLATED_TEST(VerbsPeers, ThatAreGoneBeforeTheirGreeting) {
  const FakeMachine machine(kTwo);
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(pair.open());
  ASSERT_TRUE(pair.begin());
  // The acceptor has accepted the request; the initiator goes before it hears of that.
  const auto end = Deadline::after_ns(2'000'000'000);
  while (!pair.second.transport->poll(pair.second) && !end.has_passed()) pair.first.transport->poll(pair.first);
  pair.first.links.pop_back();
  Told& there = *pair.there;
  ASSERT_TRUE(pair.run_until([&] { return there.broken == 1; }));
  expect_error(there.errors.at(0), Status::peer_lost, "the peer closed the connection");
}

ISOLATED_TEST(VerbsPeers, ThatGreetTwice) {
  const FakeMachine machine(kTwo);
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(pair.open());
  ASSERT_NO_FATAL_FAILURE(pair.connect());
  test::fail("message", static_cast<int>(rdma::MessageKind::hello));
  ASSERT_EQ(pair.send(*pair.here), Posted::ok);
  ASSERT_TRUE(pair.run_until([&] { return pair.there->broken == 1; }));
  expect_error(pair.there->errors.at(0), Status::peer_lost, "greeted at the wrong time");
}

// --- Silence ---------------------------------------------------------------------------------------------------------------------

void open_with_deadline(Pair& pair, std::int64_t deadline_ns) {
  TransportOptions options;
  options.connect_deadline_ns = deadline_ns;
  for (const auto& [end, rail] : {std::pair{&pair.first, "a0"}, std::pair{&pair.second, "a1"}}) {
    options.rails = {rail};
    auto opened = open_verbs(options);
    ASSERT_TRUE(opened) << opened.message();
    end->transport = std::move(*opened);
  }
}

ISOLATED_TEST(VerbsPeers, ThatDoNotAcceptInTime) {
  const FakeMachine machine(kTwo);
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(open_with_deadline(pair, 50'000'000));
  ASSERT_TRUE(pair.begin());
  const auto end = Deadline::after_ns(5'000'000'000);
  while (pair.here->broken == 0 && !end.has_passed()) pair.first.poll();
  ASSERT_EQ(pair.here->broken, 1);
  expect_error(pair.here->errors.at(0), Status::timed_out, "the last step was the request, which was not answered");
  pair.second.poll();  // it takes the request, and finds nobody behind it
}

ISOLATED_TEST(VerbsPeers, WhoseAdapterDoesNotAnswer) {
  const FakeMachine machine(kTwo);
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(open_with_deadline(pair, 500'000'000));
  ASSERT_NO_FATAL_FAILURE(pair.connect());
  test::fail("completion", 0);  // of the first question whether it is there, one quiet second later
  ASSERT_TRUE(pair.run_until([&] { return pair.here->broken + pair.there->broken > 0; }));
  expect_error((pair.here->broken > 0 ? pair.here : pair.there)->errors.at(0), Status::peer_lost, "has not answered for 500 ms");
}

// The question waits behind all of the writes, for longer than the deadline: 16 of them complete in a turn.
ISOLATED_TEST(VerbsPeers, ThatTakeMuchAreNotSilent) {
  const FakeMachine machine(kTwo);
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(open_with_deadline(pair, 500'000'000));
  ASSERT_NO_FATAL_FAILURE(pair.connect());
  constexpr int kWrites = 120;
  std::vector<std::byte> bytes(8192);
  const auto local = pair.first.register_host(bytes.data(), 4096);
  const auto peers = pair.second.register_host(bytes.data() + 4096, 4096);
  const auto remote = pair.first.open_region(*peers);
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  for (int i = 0; i < kWrites; ++i) ASSERT_EQ(pair.here->link->post_write(*local, 0, *remote, 0, 4096, 1), Posted::ok);
  for (int turn = 0; turn < 20 && pair.here->done < kWrites && pair.here->broken == 0; ++turn) {
    pair.first.transport->arm();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    pair.first.transport->poll(pair.first);
  }
  EXPECT_EQ(pair.here->broken, 0);
  EXPECT_EQ(pair.here->done, kWrites);
}

// --- Networks that swallow packets -----------------------------------------------------------------------------------------------

constexpr Timeout kPatience = Timeout::of(std::chrono::seconds(20));

Result<Fabric> open_rank(Rank rank, const char* rail, std::uint16_t port) {
  FabricOptions options;
  options.rank = rank;
  options.rank_count = 2;
  options.master_address = "127.0.0.1";
  options.master_port = port;
  options.transports = {TransportKind::verbs, TransportKind::tcp};
  options.rails = {rail};
  options.connect_timeout = Timeout::of(std::chrono::seconds(6));
  return Fabric::open(options);
}

// Each process has a fake network of its own. In that of rank 0 somebody who never looks listens where rank 1 said that it does:
// the first port of its process.
ISOLATED_TEST(VerbsPeers, ThatVerbsDoesNotReachInHalfOfTheTimeAreReachedOverTcp) {
  const FakeMachine machine(kTwo);
  const std::uint16_t port = gigabar::test::free_port();
  const auto rank_1 = [&] {
    auto fabric = open_rank(1, "a1", port);
    if (!fabric || !fabric->connect(0, kPatience)) return 1;
    return fabric->barrier({}, kPatience) && fabric->close(kPatience) ? 0 : 2;
  };
  const auto rank_0 = [&] {
    End silent;
    ASSERT_FALSE(silent.open("a1"));
    auto fabric = open_rank(0, "a0", port);
    ASSERT_TRUE(fabric) << fabric.error().message();
    const Result<void> connected = fabric->connect(1, kPatience);
    ASSERT_TRUE(connected) << connected.message();
    EXPECT_EQ(fabric->peers().at(0).transport, TransportKind::tcp);
    EXPECT_TRUE(fabric->barrier({}, kPatience));
    EXPECT_TRUE(fabric->close(kPatience));
    silent.poll();  // the fake network keeps what was asked until somebody looks
  };
  const gigabar::test::ChildEnd end = gigabar::test::run_in_child(rank_1, rank_0);
  EXPECT_TRUE(end.is_exit(0)) << end.to_string();
}

// --- Posts -----------------------------------------------------------------------------------------------------------------------

ISOLATED_TEST(VerbsPosts, ThatFailInTheMiddleOrBeforeSleep) {
  const FakeMachine machine(kTwo);
  {
    Pair pair;
    ASSERT_NO_FATAL_FAILURE(pair.open());
    ASSERT_NO_FATAL_FAILURE(pair.connect());
    constexpr std::size_t kTwoPieces = std::size_t{9} << 20;
    std::vector<std::byte> bytes(2 * kTwoPieces);
    const auto local = pair.first.register_host(bytes.data(), kTwoPieces);
    const auto peers = pair.second.register_host(bytes.data() + kTwoPieces, kTwoPieces);
    const auto remote = pair.first.open_region(*peers);
    test::fail("post_send", EINVAL, 1);
    EXPECT_EQ(pair.here->link->post_write(*local, 0, *remote, 0, kTwoPieces, 1), Posted::ok) << "one piece is under way";
    ASSERT_TRUE(pair.run_until([&] { return pair.here->broken == 1; }));
    EXPECT_EQ(pair.here->done, 0);
    EXPECT_EQ(pair.here->done_wrong, 1);
    expect_error(pair.here->errors.at(0), Status::device_error, "ibv_post_send failed");
    ASSERT_NO_FATAL_FAILURE(pair.connect());
    test::fail("req_notify_cq", EIO);
    EXPECT_FALSE(pair.first.transport->arm());
    ASSERT_TRUE(pair.run_until([&] { return pair.here->broken == 1; }));
    expect_error(pair.here->errors.at(0), Status::device_error, "ibv_req_notify_cq failed");
  }
  EXPECT_EQ(alive(), 0);
}

}  // namespace
}  // namespace gigabar::transport
