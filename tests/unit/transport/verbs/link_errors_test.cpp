// SPDX-License-Identifier: Apache-2.0
// What goes wrong under a link, call by call and completion by completion: the error names its object, cause and remedy, the link
// breaks once, others work on, and nothing is left behind.
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <optional>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "driver/rdmacm/rdmacm.hpp"
#include "support/expect_log.hpp"
#include "support/isolated.hpp"
#include "unit/transport/verbs/fake_rdma.hpp"

namespace gigabar::transport {
namespace {

using test::alive;
using test::End;
using test::FakeMachine;
using test::Pair;
using test::Told;

constexpr const char* kTwo = "a0 10.9.0.1; a1 10.9.0.2";

void expect_whole(const Error& error, Status status, const std::string& part) {
  EXPECT_EQ(error.status(), status) << error.message();
  EXPECT_FALSE(error.record().object.empty()) << error.message();
  EXPECT_FALSE(error.record().cause.empty()) << error.message();
  EXPECT_FALSE(error.record().remedy.empty()) << error.message();
  EXPECT_NE(error.message().find(part), std::string::npos) << error.message();
}

ISOLATED_TEST(VerbsErrors, OpeningSaysWhichCallFailedAndLeavesNothing) {
  const FakeMachine machine(kTwo);
  struct Case {
    const char* call;
    int error;
    Status status;
    const char* part;
  };
  for (const Case& one :
       {Case{"create_event_channel", EACCES, Status::no_permission, "rdma_cm"},
        Case{"create_event_channel", ENODEV, Status::unavailable, "modprobe rdma_ucm"},
        Case{"query_device", EIO, Status::device_error, "ibv_query_device"},
        Case{"alloc_pd", ENOMEM, Status::out_of_memory, "ibv_alloc_pd"},
        Case{"create_comp_channel", EMFILE, Status::out_of_descriptors, "ibv_create_comp_channel"},
        Case{"reg_mr", ENOMEM, Status::out_of_memory, "on a0"}, Case{"listen", EADDRINUSE, Status::device_error, "rdma_listen"}}) {
    test::fail(one.call, one.error);
    End end;
    const auto error = end.open("a0");
    ASSERT_TRUE(error) << one.call;
    expect_whole(*error, one.status, one.part);
    EXPECT_EQ(alive(), 0) << one.call;
  }
  End end;
  EXPECT_FALSE(end.open("a0")) << "and the next time it opens";
}

ISOLATED_TEST(VerbsErrors, ALinkThatCannotBeMadeHarmsNoOther) {
  const FakeMachine machine(kTwo);
  {
    Pair pair;
    ASSERT_NO_FATAL_FAILURE(pair.open());
    ASSERT_NO_FATAL_FAILURE(pair.connect());
    Told& here = *pair.here;
    Told& there = *pair.there;
    const int before = alive();
    struct Case {
      const char* call;
      int error, skip;
      Status status;
      const char* part;
    };
    // The acceptor has slots of its own, after the offerer's.
    for (const Case& one :
         {Case{"reg_mr", ENOMEM, 0, Status::out_of_memory, "a0"}, Case{"reg_mr", ENOMEM, 2, Status::out_of_memory, "a1"},
          Case{"create_cq", ENOMEM, 0, Status::out_of_memory, "ibv_create_cq"},
          Case{"create_cq", EINVAL, 1, Status::device_error, "a1/1"},
          Case{"create_id", ENOMEM, 0, Status::out_of_memory, "rdma_create_id"},
          Case{"resolve_addr", ENETUNREACH, 0, Status::device_error, "rdma_resolve_addr"},
          Case{"resolve_route", EINVAL, 0, Status::device_error, "rdma_resolve_route"},
          Case{"route_event", EHOSTUNREACH, 0, Status::peer_lost, "ROUTE_ERROR"},
          Case{"create_qp", EPERM, 0, Status::no_permission, "rdma_create_qp"},
          Case{"post_recv", EINVAL, 10, Status::device_error, "ibv_post_recv"},
          Case{"connect", EINVAL, 0, Status::device_error, "rdma_connect"},
          Case{"create_qp", EPERM, 1, Status::peer_lost, "it has no resources"},
          Case{"accept", EIO, 0, Status::peer_lost, "it has no resources"}}) {
      pair.refused.reset();
      test::fail(one.call, one.error, one.skip);
      const bool began = pair.begin();
      if (began && !pair.refused) {
        ASSERT_TRUE(pair.run_until([&] { return pair.here->broken == 1; })) << one.call;
        pair.refused = pair.here->errors.at(0);
      }
      ASSERT_TRUE(pair.refused) << one.call;
      expect_whole(*pair.refused, one.status, one.part);
      if (began) {
        // The other side waits for its deadline, as it would for a peer that is gone.
        pair.first.links.pop_back();
        pair.second.links.pop_back();
      }
      EXPECT_EQ(alive(), before) << one.call << " of skip " << one.skip;
      ASSERT_TRUE(pair.works(here, there)) << one.call;
    }
    // A device with less room for inline takes less.
    test::fail("create_qp", ENOMEM);
    ASSERT_NO_FATAL_FAILURE(pair.connect());
    EXPECT_LT(pair.here->link->limits().quick_payload_bytes, here.link->limits().quick_payload_bytes);
    EXPECT_TRUE(pair.works(*pair.here, *pair.there));
  }
  EXPECT_EQ(alive(), 0);
}

// Memory on both sides that the first writes from and to.
struct Writing {
  explicit Writing(Pair& pair) : bytes(8192) {
    local = pair.first.register_host(bytes.data(), 4096);
    peers = pair.second.register_host(bytes.data() + 4096, 4096);
    remote = pair.first.open_region(*peers);
  }
  Posted post(Told& told) const { return told.link->post_write(*local, 0, *remote, 0, 4096, 7); }
  std::vector<std::byte> bytes;
  std::unique_ptr<Region> local, peers;
  std::unique_ptr<RemoteRegion> remote;
};

ISOLATED_TEST(VerbsErrors, ACopiedWriteIsTakenAtOnceOrNotAtAll) {
  const FakeMachine machine(kTwo);
  {
    Pair pair;
    ASSERT_NO_FATAL_FAILURE(pair.open());
    ASSERT_NO_FATAL_FAILURE(pair.connect());
    const Writing writing(pair);
    Told& here = *pair.here;
    const std::size_t most = here.link->limits().copied_write_bytes;
    ASSERT_GE(most, 8U);
    std::vector<std::byte> source(most + 1, std::byte{7});
    const auto post = [&](std::size_t bytes, std::uint64_t offset) {
      return here.link->post_copied_write({source.data(), bytes}, *writing.remote, offset, false);
    };
    const auto arrived = [&](std::size_t offset, std::byte value) {
      return pair.run_until([&] { return writing.bytes[4096 + offset] == value; });
    };
    std::uint8_t value = 7;
    for (const std::size_t bytes : {std::size_t{8}, most / 2, most}) {  // from the request itself, and from a slot
      source.assign(source.size(), std::byte{value});
      ASSERT_EQ(post(bytes, 0), Posted::ok);
      source.assign(source.size(), std::byte{0xff});  // it has been taken
      EXPECT_TRUE(arrived(bytes - 1, std::byte{value++}));
    }
    EXPECT_EQ(post(most + 1, 0), Posted::full) << "more than is copied";
    EXPECT_EQ(post(8, 4096 - 7), Posted::full) << "beyond the region";
    EXPECT_EQ(post(0, 0), Posted::full);
    EXPECT_EQ(here.done, 0);
    // More than the queue holds, in turns with others: room comes back without anybody's done().
    for (int number = 0; number < 2000; ++number) {
      ASSERT_TRUE(pair.run_until([&] {
        return post(number % 3 == 0 ? 1000 : 8, static_cast<std::uint64_t>(number % 300) * 8) == Posted::ok;
      })) << number;
    }
    EXPECT_TRUE(pair.works(here, *pair.there));
    test::fail("post_send", EINVAL);
    EXPECT_EQ(post(8, 0), Posted::broken);
    EXPECT_TRUE(pair.run_until([&] { return here.broken == 1; }));
    EXPECT_EQ(post(8, 0), Posted::broken);
    EXPECT_EQ(here.done, 0);
  }
  EXPECT_EQ(alive(), 0);
}

// One link that has to work on, whatever becomes of those made after it, and memory to write to over any of them.
struct KeptPair : Pair {
  void make() {
    ASSERT_NO_FATAL_FAILURE(open());
    ASSERT_NO_FATAL_FAILURE(connect());
    kept = here;
    kept_too = there;
    writing.emplace(*this);
    before = alive();
  }
  // The link made last goes, with everything of it.
  void drop_last() {
    first.links.pop_back();
    second.links.pop_back();
    EXPECT_EQ(alive(), before);
    ASSERT_TRUE(works(*kept, *kept_too));
  }
  Told* kept = nullptr;
  Told* kept_too = nullptr;
  std::optional<Writing> writing;
  int before = 0;
};

ISOLATED_TEST(VerbsErrors, CompletionsWithErrorsBreakTheirLinkOnly) {
  const FakeMachine machine(kTwo);
  {
    KeptPair pair;
    ASSERT_NO_FATAL_FAILURE(pair.make());
    const Writing& writing = *pair.writing;
    struct Case {
      ibv_wc_status completion;
      Status status;
      const char* part;
    };
    for (const Case& one :
         {Case{IBV_WC_WR_FLUSH_ERR, Status::peer_lost, "connect anew"},
          Case{IBV_WC_RETRY_EXC_ERR, Status::peer_lost, "did not answer"},
          Case{IBV_WC_RNR_RETRY_EXC_ERR, Status::peer_lost, "a message or write failed"},
          Case{IBV_WC_REM_ACCESS_ERR, Status::no_permission, "deregistered"},
          Case{IBV_WC_REM_INV_REQ_ERR, Status::no_permission, "a message or write failed"},
          Case{IBV_WC_LOC_PROT_ERR, Status::device_error, "dmesg"}, Case{IBV_WC_FATAL_ERR, Status::device_error, "dmesg"},
          Case{IBV_WC_GENERAL_ERR, Status::device_error, "dmesg"}}) {
      ASSERT_NO_FATAL_FAILURE(pair.connect());
      test::complete(one.completion);
      EXPECT_EQ(writing.post(*pair.here), Posted::ok);
      ASSERT_TRUE(pair.run_until([&] { return pair.here->broken + pair.there->broken == 2; })) << one.completion;
      EXPECT_EQ(pair.here->done_wrong, 1) << "the write is told once";
      EXPECT_EQ(pair.here->done, 0);
      const Error& error = pair.here->errors.at(0);
      expect_whole(error, one.status, one.part);
      EXPECT_EQ(error.record().native.code, one.completion);
      EXPECT_NE(error.message().find("a0/1 with 10.9.0.2"), std::string::npos) << "who with: " << error.message();
      EXPECT_EQ(pair.send(*pair.here), Posted::broken);
      EXPECT_EQ(writing.post(*pair.here), Posted::broken);
      ASSERT_NO_FATAL_FAILURE(pair.drop_last()) << one.completion;
    }
  }
  EXPECT_EQ(alive(), 0);
}

ISOLATED_TEST(VerbsErrors, PostsThatAreRefused) {
  const FakeMachine machine(kTwo);
  {
    KeptPair pair;
    ASSERT_NO_FATAL_FAILURE(pair.make());
    Told& kept = *pair.kept;
    Told& kept_too = *pair.kept_too;
    const Writing& writing = *pair.writing;
    struct Case {
      int result;
      Status status;
      const char* part;
    };
    // As an errno and as minus an errno: providers do both.
    for (const Case& one :
         {Case{EINVAL, Status::device_error, "ibv_post_send"}, Case{-EINVAL, Status::device_error, "ibv_post_send"},
          Case{ENOMEM, Status::out_of_memory, "ibv_post_send"}, Case{ENOTCONN, Status::peer_lost, "connect anew"},
          Case{-ECONNRESET, Status::peer_lost, "connect anew"}}) {
      for (const bool is_write : {true, false}) {
        ASSERT_NO_FATAL_FAILURE(pair.connect());
        ASSERT_EQ(writing.post(*pair.here), Posted::ok);
        ASSERT_TRUE(pair.run_until([&] { return pair.here->done == 1; })) << "nothing is under way";
        test::fail("post_send", one.result);
        EXPECT_EQ(is_write ? writing.post(*pair.here) : pair.send(*pair.here), Posted::broken) << one.result;
        ASSERT_TRUE(pair.run_until([&] { return pair.here->broken + pair.there->broken == 2; }));
        EXPECT_EQ(pair.here->done_wrong, 0) << "what was not posted has no done()";
        expect_whole(pair.here->errors.at(0), one.status, one.part);
        ASSERT_NO_FATAL_FAILURE(pair.drop_last());
      }
    }
    // With work under way no room means later.
    ASSERT_EQ(writing.post(kept), Posted::ok);
    test::fail("post_send", ENOMEM);
    EXPECT_EQ(writing.post(kept), Posted::full);
    EXPECT_EQ(writing.post(kept), Posted::ok);
    EXPECT_TRUE(pair.run_until([&] { return kept.done == 2; }));
    EXPECT_TRUE(pair.works(kept, kept_too));
    // A message that was refused costs nothing: more of them than the peer has receives, and the next one goes.
    for (int i = 0; i < 100; ++i) {
      const int done = kept.done;
      ASSERT_EQ(writing.post(kept), Posted::ok) << i;
      test::fail("post_send", ENOMEM);
      ASSERT_EQ(pair.send(kept), Posted::full) << i;
      ASSERT_TRUE(pair.run_until([&] { return kept.done == done + 1; })) << i;
    }
    EXPECT_TRUE(pair.works(kept, kept_too));
    // And the queue itself.
    test::fail("poll_cq", -EIO);
    ASSERT_TRUE(pair.run_until([&] { return kept.broken + kept_too.broken == 2; }));
    const Error& error = kept.errors.at(0).status() == Status::device_error ? kept.errors[0] : kept_too.errors.at(0);
    expect_whole(error, Status::device_error, "ibv_poll_cq");
  }
  EXPECT_EQ(alive(), 0);
}

// Two devices on the first side: what happens to one of them is nothing to the other.
// Two links that stand, of a transport with the rails a0 and a2 to one with a1.
struct TwoLinks {
  void open() {
    TransportOptions options;
    options.rails = {"a0", "a2"};
    ASSERT_FALSE(pair.first.open("", options));
    ASSERT_FALSE(pair.second.open("a1"));
    ASSERT_TRUE(pair.begin(0));
    over_a0 = pair.here;
    ASSERT_TRUE(pair.begin(1));
    over_a2 = pair.here;
    there = pair.there;
    ASSERT_TRUE(pair.run_until([&] { return over_a0->ready == 1 && over_a2->ready == 1 && there->ready == 1; }));
  }

  Pair pair;
  Told* over_a0 = nullptr;
  Told* over_a2 = nullptr;
  Told* there = nullptr;  // the other end of over_a2
};

ISOLATED_TEST(VerbsErrors, ADeviceThatFailsOrGoesTakesItsOwnLinks) {
  const FakeMachine machine("a0 10.9.0.1; a1 10.9.0.2; a2 10.9.0.3");
  for (const bool is_removed : {false, true}) {
    {
      TwoLinks links;
      ASSERT_NO_FATAL_FAILURE(links.open());
      Pair& pair = links.pair;
      Told &first = *links.over_a0, &second = *links.over_a2, &second_too = *links.there;
      EXPECT_EQ(second.link->rail(), "a2/1");
      test::raise("a0", IBV_EVENT_PORT_ERR);
      test::raise("a0", IBV_EVENT_COMM_EST);
      ASSERT_TRUE(pair.works(second, second_too));
      EXPECT_EQ(first.broken, 0) << "a port may come back";
      if (is_removed) {
        test::remove("a0");
      } else {
        test::raise("a0", IBV_EVENT_DEVICE_FATAL);
      }
      ASSERT_TRUE(pair.run_until([&] { return first.broken == 1; }));
      expect_whole(first.errors.at(0), Status::device_error, is_removed ? "the RDMA device was removed" : "reported a fatal error");
      EXPECT_TRUE(pair.works(second, second_too));
      const auto lines = gigabar::test::take_log();
      ASSERT_EQ(lines.size(), 1u);
      EXPECT_NE(lines[0].find("a0/1"), std::string::npos) << lines[0];
      Parcel offer;
      const auto again = pair.first.transport->offer({}, 0, offer);
      ASSERT_FALSE(again);
      expect_whole(again.error(), Status::unavailable, "a0/1");
    }
    EXPECT_EQ(alive(), 0);
  }
}

// The descriptor of the device's events is in error from now on, as that of a removed one is: a pipe's end that nobody reads.
void put_in_error(const char* address, const Transport& transport) {
  const auto& cm = rdmacm::functions();
  rdma_cm_id* id = nullptr;
  ASSERT_EQ(cm.rdma_create_id(nullptr, &id, nullptr, RDMA_PS_TCP), 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = ::inet_addr(address);
  ASSERT_EQ(cm.rdma_bind_addr(id, reinterpret_cast<sockaddr*>(&at)), 0);
  const int events = id->verbs->async_fd;  // all who use the device have this context
  cm.rdma_destroy_id(id);
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  ::close(ends[0]);
  ASSERT_EQ(::dup2(ends[1], events), events);
  ::close(ends[1]);
  // With the old one it has left the set.
  epoll_event watched{};
  watched.events = EPOLLIN;
  ASSERT_EQ(::epoll_ctl(transport.wake_descriptor(), EPOLL_CTL_ADD, events, &watched), 0);
}

// Memory is registered with the other one, over which it is reached, and sleepers are not woken for the one that is gone.
ISOLATED_TEST(VerbsErrors, ADeviceThatIsGoneIsLeft) {
  const FakeMachine machine("a0 10.9.0.1; a1 10.9.0.2; a2 10.9.0.3");
  enum class Sign : std::uint8_t { fatal_event, removal, descriptor };
  for (const Sign sign : {Sign::fatal_event, Sign::removal, Sign::descriptor}) {
    {
      TwoLinks links;
      ASSERT_NO_FATAL_FAILURE(links.open());
      Pair& pair = links.pair;
      Told &lost = *links.over_a0, &here = *links.over_a2, &there = *links.there;
      if (sign == Sign::fatal_event) test::raise("a0", IBV_EVENT_DEVICE_FATAL);
      if (sign == Sign::descriptor) put_in_error("10.9.0.1", *pair.first.transport);
      if (sign == Sign::removal) {
        test::remove("a0");
        ASSERT_TRUE(pair.run_until([&] { return lost.broken == 1; }));  // of the others a registration hears at once
      }
      ASSERT_FALSE(testing::Test::HasFatalFailure());
      std::vector<std::byte> bytes(8192);
      const std::size_t before = test::registered();
      const auto local = pair.first.register_host(bytes.data(), 4096);
      EXPECT_EQ(test::registered() - before, 4096U) << "with one device";
      ASSERT_TRUE(pair.run_until([&] { return lost.broken == 1; }));
      expect_whole(lost.errors.at(0), Status::device_error,
                   sign == Sign::fatal_event ? "the RDMA device reported a fatal error" : "the RDMA device was removed");
      EXPECT_EQ(gigabar::test::take_log().size(), 1U);
      const auto peers = pair.second.register_host(bytes.data() + 4096, 4096);
      EXPECT_EQ(here.link->post_write(*local, 0, *pair.first.open_region(*peers), 0, 4096, 1), Posted::ok);
      EXPECT_EQ(there.link->post_write(*peers, 0, *pair.second.open_region(*local), 0, 4096, 1), Posted::ok);
      EXPECT_TRUE(pair.run_until([&] { return here.done == 1 && there.done == 1; }));
      if (sign != Sign::descriptor) test::raise("a0", IBV_EVENT_PORT_ERR);
      ASSERT_TRUE(pair.run_until([&] { return pair.first.transport->arm(); }));
      pollfd waited{pair.first.transport->wake_descriptor(), POLLIN, 0};
      EXPECT_EQ(::poll(&waited, 1, 0), 0) << "a sleeper would be woken again and again";
    }
    EXPECT_EQ(alive(), 0);
  }
}

// Asleep, an event of the device wakes.
ISOLATED_TEST(VerbsErrors, AFatalEventWakesASleeper) {
  const FakeMachine machine(kTwo);
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(pair.open());
  ASSERT_NO_FATAL_FAILURE(pair.connect());
  ASSERT_TRUE(pair.run_until([&] { return pair.first.transport->arm(); }));
  pollfd waited{pair.first.transport->wake_descriptor(), POLLIN, 0};
  EXPECT_EQ(::poll(&waited, 1, 0), 0);
  test::raise("a0", IBV_EVENT_DEVICE_FATAL);
  EXPECT_EQ(::poll(&waited, 1, 2000), 1);
  pair.first.transport->poll(pair.first);
  EXPECT_EQ(pair.here->broken, 1);
  EXPECT_EQ(gigabar::test::take_log().size(), 1u);
  std::vector<std::byte> bytes(4096);
  const auto registered = pair.first.transport->register_memory({bytes.data(), bytes.size(), MemoryKind::host_pageable, -1, -1, 0});
  ASSERT_FALSE(registered);
  expect_whole(registered.error(), Status::device_error, "every RDMA device was removed or failed");
}

// Everything that may be posted is, on both sides and without a look at completions: they find room.
ISOLATED_TEST(VerbsErrors, CompletionQueuesAreNeverOverrun) {
  const FakeMachine machine(kTwo);
  {
    Pair pair;
    ASSERT_NO_FATAL_FAILURE(pair.open());
    ASSERT_NO_FATAL_FAILURE(pair.connect());
    const Writing writing(pair);
    for (int round = 0; round < 20; ++round) {
      int messages = 0, messages_too = 0, writes = 0;
      const int before = pair.here->messages, before_too = pair.there->messages, done = pair.here->done;
      while (pair.send(*pair.here) == Posted::ok) ++messages;
      while (writing.post(*pair.here) == Posted::ok) ++writes;
      while (pair.send(*pair.there) == Posted::ok) ++messages_too;
      EXPECT_EQ(test::overflows(), 0);
      EXPECT_GT(writes, 100);
      EXPECT_GT(messages + messages_too, 0);
      ASSERT_TRUE(pair.run_until([&] {
        return pair.here->messages == before + messages_too && pair.there->messages == before_too + messages &&
               pair.here->done == done + writes;
      })) << round;
    }
    EXPECT_EQ(test::overflows(), 0);
    EXPECT_EQ(pair.here->broken + pair.there->broken, 0);
  }
  EXPECT_EQ(alive(), 0);
}

}  // namespace
}  // namespace gigabar::transport
