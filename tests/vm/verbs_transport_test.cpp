// SPDX-License-Identifier: Apache-2.0
// The verbs transport over a real kernel's RDMA: soft-RoCE (rxe0, rxe1) and soft-iWARP (siw0, siw1), two processes. Runs in the
// guest; each test skips where the devices are not there.
#include <poll.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "transport/verbs/ledger.hpp"
#include "transport/verbs/open.hpp"
#include "transport/verbs/wire.hpp"
#include "vm/verbs_link.hpp"

namespace gigabar {
namespace {

using transport::Posted;

constexpr std::byte kGuard{0xa5};
constexpr std::size_t kGuardBytes = 64;

std::byte pattern(std::uint64_t seed, std::size_t offset) {
  return static_cast<std::byte>((seed * 0x9e3779b97f4a7c15ULL >> 32 ^ offset * 31) + offset / 251);
}
void fill(std::span<std::byte> bytes, std::uint64_t seed) {
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = pattern(seed, i);
}
// The first place that is wrong, or the size.
std::size_t first_wrong(std::span<const std::byte> bytes, std::uint64_t seed) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != pattern(seed, i)) return i;
  }
  return bytes.size();
}

// `bytes` with guard bytes on both sides.
struct Guarded {
  explicit Guarded(std::size_t count) : all(count + 2 * kGuardBytes, kGuard) {}
  std::span<std::byte> inside() { return std::span(all).subspan(kGuardBytes, all.size() - 2 * kGuardBytes); }
  bool is_intact() const {
    const auto is_guard = [](std::byte byte) { return byte == kGuard; };
    return std::all_of(all.begin(), all.begin() + kGuardBytes, is_guard) &&
           std::all_of(all.end() - kGuardBytes, all.end(), is_guard);
  }
  std::vector<std::byte> all;
};

TEST_P(VerbsLink, MessagesOfAllSizesArriveInOrder) {
  test::run_two([](Side& side) {
    open(side);
    ASSERT_NO_FATAL_FAILURE(side.connect());
    EXPECT_GE(side.link->limits().payload_bytes, 4096u);
    EXPECT_GE(side.link->limits().quick_payload_bytes, 32u);
    EXPECT_EQ(side.link->rail(), rail(side.index()) + "/1");
    std::uint64_t next = 0;
    std::size_t wrong = 0;
    const auto size_of = [](std::uint64_t number) -> std::size_t {
      return number < 4200 ? std::min<std::size_t>(number, 4096) : number * 7 % 129;
    };
    side.on_message = [&](std::uint64_t number, std::span<const std::byte> payload) {
      wrong += number != next || payload.size() != size_of(number) || first_wrong(payload, number) != payload.size();
      ++next;
    };
    constexpr std::uint64_t kCount = 20000;
    std::vector<std::byte> payload(4096);
    for (std::uint64_t number = 0; number < kCount; ++number) {
      const auto part = std::span(payload).first(size_of(number));
      fill(part, number);
      ASSERT_TRUE(side.send(number, part)) << number << ": " << side.broken_text;
    }
    EXPECT_TRUE(side.run_until([&] { return next == kCount; })) << next << " " << side.broken_text;
    EXPECT_EQ(wrong, 0u);
    side.tell("done");
    // The other may still need our credits.
    ASSERT_EQ(side.hear(), "done");
    EXPECT_EQ(side.broken_count, 0) << side.broken_text;
  });
}

TEST_P(VerbsLink, AReceiverThatDoesNotPollStopsTheSenderOnly) {
  test::run_two([](Side& side) {
    open(side);
    ASSERT_NO_FATAL_FAILURE(side.connect());
    std::uint64_t next = 0, most_sent = 0;
    side.on_message = [&](std::uint64_t number, std::span<const std::byte>) { next += number == next; };
    for (int round = 0; round < 5; ++round) {
      ASSERT_NO_FATAL_FAILURE(side.meet());
      next = 0;
      // Both fill the other's receives, and nobody looks.
      std::uint64_t sent = 0;
      transport::Header header{};
      const std::vector<std::byte> payload(round % 2 == 0 ? 8 : 4000);
      for (;; ++sent) {
        std::memcpy(header.data(), &sent, sizeof sent);
        if (side.link->post_message(header, payload) != Posted::ok) break;
      }
      EXPECT_TRUE(round > 0 || sent == transport::rdma::kFirstCredits)
          << sent << "; later it has not seen all that the other returned";
      EXPECT_LE(sent, transport::rdma::kCredits);
      most_sent = std::max(most_sent, sent);
      ::usleep(200'000);
      constexpr std::uint64_t kMore = 500;
      for (; sent < kMore; ++sent) ASSERT_TRUE(side.send(sent, payload)) << side.broken_text;
      EXPECT_TRUE(side.run_until([&] { return next >= kMore; })) << next << " " << side.broken_text;
      // One direction only, which piggybacks nothing.
      if (side.index() == 0) {
        for (; sent < 2 * kMore; ++sent) ASSERT_TRUE(side.send(sent, payload)) << side.broken_text;
        side.tell("sent");
      } else {
        EXPECT_TRUE(side.run_until([&] { return next == 2 * kMore; })) << next << " " << side.broken_text;
        EXPECT_EQ(side.hear(), "sent");
      }
    }
    EXPECT_GT(most_sent, transport::rdma::kFirstCredits) << "it was short, and got more";
    side.tell("end");  // the other may be through before us, and close
    EXPECT_EQ(side.hear(), "end");
    EXPECT_EQ(side.broken_count, 0) << side.broken_text;
  });
}

TEST_P(VerbsLink, WritesAndReadsOfAllSizes) {
  test::run_two([](Side& side) {
    open(side);
    ASSERT_NO_FATAL_FAILURE(side.connect());
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{2}, std::size_t{63}, std::size_t{4095}, std::size_t{4096},
                                    std::size_t{4097}, std::size_t{65536}, (std::size_t{1} << 20) + 1, std::size_t{8} << 20,
                                    (std::size_t{8} << 20) + 1, std::size_t{64} << 20}) {
      Guarded memory(bytes);
      const auto region =
          side.register_host(memory.inside().data(), bytes, bytes % 2 == 0 ? MemoryKind::stand_in : MemoryKind::host_pageable);
      ASSERT_NE(region, nullptr);
      if (side.index() == 0) {
        const auto remote = side.open_told();
        ASSERT_NE(remote, nullptr);
        ASSERT_EQ(remote->bytes(), bytes);
        const transport::Reach reach = side.link->reach(transport::Direction::write, *region, *remote);
        ASSERT_TRUE(reach.can) << reach.reason;
        EXPECT_EQ(reach.path, bytes % 2 == 0 ? TransferPath::gdr : TransferPath::host);
        fill(memory.inside(), bytes);
        side.done_count = 0;
        ASSERT_TRUE(side.post([&] { return side.link->post_write(*region, 0, *remote, 0, bytes, bytes); }));
        ASSERT_TRUE(side.run_until([&] { return side.done_count == 1; })) << bytes << " " << side.broken_text;
        EXPECT_EQ(side.last_status, Status::ok) << side.last_text;
        EXPECT_EQ(side.last_cookie, bytes);
        ASSERT_TRUE(side.send(bytes));
        // It has checked them and puts others in their place.
        ASSERT_EQ(side.hear(), "changed");
        std::uint64_t done_count = 1;
        for (std::size_t at = 0, part = 0; at < bytes; at += part) {
          part = std::min<std::size_t>(bytes - at, side.link->limits().read_bytes);
          ASSERT_TRUE(side.post([&] { return side.link->post_read(*region, at, *remote, at, part, bytes + 1); }));
          ASSERT_TRUE(side.run_until([&] { return side.done_count == done_count + 1; })) << bytes << " " << side.broken_text;
          EXPECT_EQ(side.last_status, Status::ok) << side.last_text;
          EXPECT_EQ(side.last_cookie, bytes + 1);
          ++done_count;
        }
        EXPECT_EQ(first_wrong(memory.inside(), bytes + 7), bytes) << "read";
        EXPECT_TRUE(memory.is_intact()) << bytes;
        side.tell("read");
      } else {
        side.tell_key(*region);
        const std::uint64_t before = side.message_count;
        ASSERT_TRUE(side.run_until([&] { return side.message_count == before + 1; })) << bytes << " " << side.broken_text;
        EXPECT_EQ(first_wrong(memory.inside(), bytes), bytes) << "written";
        EXPECT_TRUE(memory.is_intact()) << bytes;
        fill(memory.inside(), bytes + 7);
        side.tell("changed");
        ASSERT_EQ(side.hear(), "read");
      }
    }
    EXPECT_EQ(side.broken_count, 0) << side.broken_text;
  });
}

// A message comes after all that was written before it, on parts of different lengths.
TEST_P(VerbsLink, AMessageFollowsItsWrites) {
  test::run_two([](Side& side) {
    open(side);
    ASSERT_NO_FATAL_FAILURE(side.connect());
    constexpr std::size_t kBytes = 256 * 1024, kParts = 8;
    constexpr std::uint64_t kRounds = 150;
    Guarded memory(kBytes);
    const auto region = side.register_host(memory.inside().data(), kBytes);
    ASSERT_NE(region, nullptr);
    side.tell_key(*region);
    const auto remote = side.open_told();
    ASSERT_NE(remote, nullptr);
    if (side.index() == 0) {
      for (std::uint64_t round = 0; round < kRounds; ++round) {
        fill(memory.inside(), round);
        side.done_count = 0;
        std::size_t at = 0;
        for (std::size_t part = 0; part < kParts; ++part) {
          const std::size_t end = part + 1 == kParts ? kBytes : at + 1 + (round * 977 + part * 4099) % 60000;
          const std::size_t stop = std::min(end, kBytes);
          if (stop > at) {
            ASSERT_TRUE(side.post([&] { return side.link->post_write(*region, at, *remote, at, stop - at, part); }))
                << side.broken_text;
          } else {
            ++side.done_count;
          }
          at = stop;
        }
        ASSERT_TRUE(side.send(round));
        // Not before its buffer is ours again and the other has looked.
        ASSERT_TRUE(side.run_until([&] { return side.done_count == kParts && side.message_count == round + 1; }))
            << side.broken_text;
      }
    } else {
      std::uint64_t wrong = 0;
      side.on_message = [&](std::uint64_t round, std::span<const std::byte>) {
        wrong += first_wrong(memory.inside(), round) != kBytes;
        EXPECT_EQ(side.link->post_message({}, {}), Posted::ok);
      };
      ASSERT_TRUE(side.run_until([&] { return side.message_count == kRounds; })) << side.message_count << " " << side.broken_text;
      EXPECT_EQ(wrong, 0u);
      EXPECT_TRUE(memory.is_intact());
    }
    ASSERT_NO_FATAL_FAILURE(side.meet());
  });
}

// More than any queue holds, everything at once, in both directions.
TEST_P(VerbsLink, QueuesNeverOverflow) {
  test::run_two([](Side& side) {
    open(side);
    ASSERT_NO_FATAL_FAILURE(side.connect());
    constexpr std::size_t kBytes = 65536;
    constexpr std::uint64_t kCount = 6000;
    Guarded memory(3 * kBytes);  // what is sent, what is read into, what the peer writes to
    const auto region = side.register_host(memory.inside().data(), 3 * kBytes);
    ASSERT_NE(region, nullptr);
    side.tell_key(*region);
    const auto remote = side.open_told();
    ASSERT_NE(remote, nullptr);
    std::uint64_t failed = 0, sent = 0, next = 0;
    side.on_done = [&](std::uint64_t, const Result<void>& outcome) { failed += !outcome.is_ok(); };
    side.on_message = [&](std::uint64_t number, std::span<const std::byte>) { next += number == next; };
    std::vector<std::byte> payload(3000);
    for (std::uint64_t i = 0; i < kCount; ++i) {
      const std::size_t bytes = 1 + i * 37 % 500, offset = i * 191 % (kBytes - 500);
      if (i % 3 == 0) {
        ASSERT_TRUE(side.post([&] { return side.link->post_write(*region, offset, *remote, 2 * kBytes + offset, bytes, i); }));
      } else if (i % 3 == 1) {
        ASSERT_TRUE(side.post([&] { return side.link->post_read(*region, kBytes + offset, *remote, offset, bytes, i); }));
      } else {
        ASSERT_TRUE(side.send(sent++, std::span(payload).first(i % 2 == 0 ? 8 : payload.size()))) << side.broken_text;
      }
    }
    EXPECT_TRUE(side.run_until([&] { return side.done_count == kCount / 3 * 2 && next == kCount / 3; }))
        << side.done_count << " " << next << " " << side.broken_text;
    EXPECT_EQ(failed, 0u);
    EXPECT_TRUE(memory.is_intact());
    ASSERT_NO_FATAL_FAILURE(side.meet());
    EXPECT_EQ(side.broken_count, 0) << side.broken_text;
  });
}

TEST_P(VerbsLink, OutOfRangeIsAnErrorOfTheOperation) {
  test::run_two([](Side& side) {
    open(side);
    ASSERT_NO_FATAL_FAILURE(side.connect());
    std::vector<std::byte> memory(8192);
    const auto region = side.register_host(memory.data(), memory.size());
    ASSERT_NE(region, nullptr);
    side.tell_key(*region);
    const auto remote = side.open_told();
    ASSERT_NE(remote, nullptr);
    const std::uint64_t huge = UINT64_MAX;
    struct Place {
      std::uint64_t local, remote, bytes;
    };
    for (const auto& [local, there, bytes] : {Place{0, 1, 8192}, Place{1, 0, 8192}, Place{0, 0, 8193}, Place{0, huge, 2},
                                              Place{huge, 0, 2}, Place{0, 0, 0}, Place{0, 0, huge}}) {
      for (const bool is_read : {false, true}) {
        side.done_count = 0;
        const Posted posted = is_read ? side.link->post_read(*region, local, *remote, there, bytes, 5)
                                      : side.link->post_write(*region, local, *remote, there, bytes, 5);
        EXPECT_EQ(posted, Posted::ok);
        EXPECT_TRUE(side.run_until([&] { return side.done_count == 1; }));
        EXPECT_EQ(side.last_status, Status::out_of_range) << local << " " << there << " " << bytes;
        EXPECT_EQ(side.last_cookie, 5u);
      }
    }
    ASSERT_TRUE(side.send(1));
    EXPECT_TRUE(side.run_until([&] { return side.message_count == 1; })) << "the link goes on";
    ASSERT_NO_FATAL_FAILURE(side.meet());
  });
}

// The peer's memory is not what its key says (deregistered, or the key is forged): the connection ends, the memory is untouched.
TEST_P(VerbsLink, AWrongKeyEndsTheLink) {
  test::run_two([](Side& side) {
    open(side);
    ASSERT_NO_FATAL_FAILURE(side.connect());
    Guarded memory(8192);
    std::fill(memory.inside().begin(), memory.inside().end(), std::byte{0x11});
    const auto region = side.register_host(memory.inside().data(), 8192);
    ASSERT_NE(region, nullptr);
    if (side.index() == 0) {
      auto key = transport::rdma::read_key(side.hear());
      ASSERT_TRUE(key);
      key->keys[0] ^= 0x5a00;
      const auto remote = side.transport->open_region({}, {transport::rdma::write_key(*key), {}});
      ASSERT_TRUE(remote);
      std::uint64_t posted = 0;  // the refusal of the first may be there before the last
      while (posted < 40 && side.link->post_write(*region, 0, **remote, 0, 8192, posted) == Posted::ok) ++posted;
      ASSERT_TRUE(side.run_until([&] { return side.broken_count == 1; })) << "the link is to break";
      EXPECT_EQ(side.done_count, posted) << "each exactly once";
      EXPECT_TRUE(is_iwarp() || side.broken_status == Status::no_permission) << side.broken_text;
      EXPECT_EQ(side.link->post_message({}, {}), Posted::broken);
      side.run_for(20'000'000);
      EXPECT_EQ(side.broken_count, 1);
      side.tell("broken");
    } else {
      side.tell_key(*region);
      ASSERT_TRUE(side.run_until([&] { return side.broken_count == 1; }));
      EXPECT_EQ(side.hear(), "broken");
      EXPECT_TRUE(
          std::all_of(memory.inside().begin(), memory.inside().end(), [](std::byte byte) { return byte == std::byte{0x11}; }));
      EXPECT_TRUE(memory.is_intact());
    }
  });
}

TEST_P(VerbsLink, AWrongTokenIsRefused) {
  test::run_two([](Side& side) {
    transport::TransportOptions options;
    options.connect_deadline_ns = 3'000'000'000;
    open(side, options);
    ASSERT_NO_FATAL_FAILURE(side.offer_or_accept([](std::string& offer) { offer.back() = static_cast<char>(offer.back() ^ 1); }));
    ASSERT_TRUE(side.run_until([&] { return side.broken_count == 1; }));
    EXPECT_FALSE(side.is_ready);
    if (side.index() == 0) {
      EXPECT_EQ(side.broken_status, Status::peer_lost) << side.broken_text;
      EXPECT_NE(side.broken_text.find("does not expect"), std::string::npos) << side.broken_text;
    } else {
      EXPECT_EQ(side.broken_status, Status::timed_out) << side.broken_text;
    }
    // The same transports connect afterwards.
    side.link.reset();
    side.broken_count = 0;
    ASSERT_NO_FATAL_FAILURE(side.meet());
    ASSERT_NO_FATAL_FAILURE(side.connect());
    ASSERT_NO_FATAL_FAILURE(side.meet());
  });
}

// Somebody who knows the port but was told no token; and one who takes a token twice.
TEST_P(VerbsLink, StrangersAreRefusedAndHarmNobody) {
  test::run_two([](Side& side) {
    open(side);
    ASSERT_NO_FATAL_FAILURE(side.connect());
    if (side.index() == 0) {
      const auto port = transport::rdma::read_card(side.hear());
      ASSERT_TRUE(port);
      auto good = std::move(side.link);
      for (int i = 0; i < 20; ++i) {
        transport::Parcel unused;
        auto stranger = side.transport->offer({}, 0, unused);
        ASSERT_TRUE(stranger);
        side.is_ready = false;
        side.broken_count = 0;
        ASSERT_TRUE((*stranger)->complete({transport::rdma::write_answer({0, port->front(), {}}), {}}));
        ASSERT_TRUE(side.run_until([&] { return side.broken_count == 1; }));
        EXPECT_FALSE(side.is_ready);
      }
      side.broken_count = 0;
      side.link = std::move(good);
      ASSERT_TRUE(side.send(7));
      side.tell("tried");
    } else {
      side.tell(side.transport->address());
      ASSERT_TRUE(side.run_until([&] { return side.message_count == 1; })) << side.broken_text;
      EXPECT_EQ(side.broken_count, 0);
      EXPECT_EQ(side.hear(), "tried");
    }
    ASSERT_NO_FATAL_FAILURE(side.meet());
  });
}

TEST_P(VerbsLink, AKilledPeerIsLost) {
  test::run_two(
      [](Side& side) {
        open(side);
        ASSERT_NO_FATAL_FAILURE(side.connect());
        std::vector<std::byte> memory(1 << 20);
        const auto region = side.register_host(memory.data(), memory.size());
        ASSERT_NE(region, nullptr);
        side.tell_key(*region);
        const auto remote = side.open_told();
        ASSERT_NE(remote, nullptr);
        if (side.index() == 1) {
          side.run_until([&] { return side.message_count == 1; });
          ::raise(SIGKILL);
        }
        ASSERT_TRUE(side.send(1));
        std::uint64_t posted = 0, failed = 0;
        side.on_done = [&](std::uint64_t, const Result<void>& outcome) { failed += !outcome.is_ok(); };
        // In the middle of writes.
        while (side.broken_count == 0 && posted < 1'000'000) {
          posted += side.link->post_write(*region, 0, *remote, 0, memory.size(), posted) == Posted::ok;
          side.transport->poll(side);
        }
        ASSERT_EQ(side.broken_count, 1);
        // rxe deregisters the memory of a dying process before it ends its connections.
        EXPECT_TRUE(side.broken_status == Status::peer_lost || side.broken_status == Status::no_permission) << side.broken_text;
        EXPECT_EQ(side.done_count, posted);
      },
      1);
}

TEST_P(VerbsLink, AnOrderlyEndIsToldAndLinksComeAnew) {
  test::run_two([](Side& side) {
    open(side);
    for (int round = 0; round < 20; ++round) {
      side.broken_count = 0;
      side.message_count = 0;
      ASSERT_NO_FATAL_FAILURE(side.connect());
      if (side.index() == 0) {
        ASSERT_TRUE(side.send(1));
        ASSERT_TRUE(side.run_until([&] { return side.message_count == 1; }));
        side.link.reset();
      } else {
        ASSERT_TRUE(side.run_until([&] { return side.message_count == 1; }));
        ASSERT_TRUE(side.send(2));
        ASSERT_TRUE(side.run_until([&] { return side.broken_count == 1; }));
        EXPECT_EQ(side.broken_status, Status::peer_lost) << side.broken_text;
        side.link.reset();
      }
      ASSERT_NO_FATAL_FAILURE(side.meet());
    }
  });
}

// A process that does not run for longer than any limit is not lost: its adapter answers for it.
TEST_P(VerbsLink, AStoppedPeerIsNotLost) {
  test::run_two([](Side& side) {
    transport::TransportOptions options;
    options.connect_deadline_ns = 2'000'000'000;
    open(side, options);
    ASSERT_NO_FATAL_FAILURE(side.connect());
    if (side.index() == 1) {
      ::sleep(5);
      EXPECT_TRUE(side.run_until([&] { return side.message_count == 1; })) << side.broken_text;
    } else {
      side.run_for(4'500'000'000);
      EXPECT_EQ(side.broken_count, 0) << side.broken_text;
      ASSERT_TRUE(side.send(1));
    }
    ASSERT_NO_FATAL_FAILURE(side.meet());
  });
}

TEST_P(VerbsLink, SleepsUntilSomethingHappens) {
  test::run_two([](Side& side) {
    transport::TransportOptions options;
    options.connect_deadline_ns = 30'000'000'000;
    open(side, options);
    ASSERT_NO_FATAL_FAILURE(side.connect());
    constexpr std::uint64_t kCount = 30;
    std::uint64_t sleeps = 0;
    const auto deadline = Deadline::after_ns(test::kLongNs);
    if (side.index() == 0) {
      for (std::uint64_t i = 0; i < kCount; ++i) {
        ::usleep(20'000);
        ASSERT_TRUE(side.send(i));
        ASSERT_TRUE(side.run_until([&] { return side.message_count == i + 1; })) << side.broken_text;
      }
    } else {
      while (side.message_count < kCount && !deadline.has_passed()) {
        const std::uint64_t before = side.message_count;
        side.transport->poll(side);
        if (side.message_count > before) {
          ASSERT_TRUE(side.send(side.message_count));
        }
        if (side.message_count == kCount || !side.transport->arm()) continue;
        pollfd waited{side.transport->wake_descriptor(), POLLIN, 0};
        ASSERT_EQ(::poll(&waited, 1, 20'000), 1) << "a message did not wake it";
        ++sleeps;
      }
      EXPECT_EQ(side.message_count, kCount) << side.broken_text;
      EXPECT_LE(sleeps, 20 * kCount) << "it hardly slept";
      // The end of the peer wakes too.
    }
    ASSERT_NO_FATAL_FAILURE(side.meet());
    if (side.index() == 0) return;
    while (side.broken_count == 0 && !deadline.has_passed()) {
      side.transport->poll(side);
      if (side.broken_count > 0 || !side.transport->arm()) continue;
      pollfd waited{side.transport->wake_descriptor(), POLLIN, 0};
      ASSERT_EQ(::poll(&waited, 1, 20'000), 1) << "the end of the peer did not wake it";
    }
    EXPECT_EQ(side.broken_count, 1);
  });
}

// The peer never answers.
TEST_P(VerbsLink, TheConnectDeadlineIsKept) {
  test::run_two([](Side& side) {
    if (side.index() == 1) return;
    transport::TransportOptions options;
    options.connect_deadline_ns = 500'000'000;
    open(side, options);
    transport::Parcel offer;
    auto link = side.transport->offer({}, 0, offer);
    ASSERT_TRUE(link);
    const std::int64_t begin = now_ns();
    while (side.broken_count == 0) {
      side.transport->poll(side);
      if (side.broken_count > 0 || !side.transport->arm()) continue;
      pollfd waited{side.transport->wake_descriptor(), POLLIN, 0};
      ::poll(&waited, 1, 100);
    }
    EXPECT_EQ(side.broken_status, Status::timed_out);
    EXPECT_GE(now_ns() - begin, 450'000'000);
  });
}

// GIGABAR_VM_INTERFACE=eth1: takes that interface of side 1 down. Not by itself: the guest's routes go with it.
TEST_P(VerbsLink, ALinkThatGoesDownIsNoticed) {
  const char* const interface = std::getenv("GIGABAR_VM_INTERFACE");
  if (interface == nullptr) GTEST_SKIP() << "GIGABAR_VM_INTERFACE names no interface to take down";
  test::run_two([interface](Side& side) {
    transport::TransportOptions options;
    options.connect_deadline_ns = 5'000'000'000;
    open(side, options);
    ASSERT_NO_FATAL_FAILURE(side.connect());
    ASSERT_NO_FATAL_FAILURE(side.meet());
    if (side.index() == 1) {
      ASSERT_EQ(std::system((std::string("ip link set ") + interface + " down").c_str()), 0);
    }
    const std::int64_t begin = now_ns();
    EXPECT_TRUE(side.run_until([&] { return side.broken_count == 1; }));
    std::printf("side %d: after %.1f s: %s\n", side.index(), static_cast<double>(now_ns() - begin) / 1e9, side.broken_text.c_str());
    EXPECT_LE(now_ns() - begin, 30'000'000'000);
  });
}

// GIGABAR_VM_MEASURE=1: prints latency and bandwidth, to be held against perftest's.
TEST_P(VerbsLink, Speed) {
  if (std::getenv("GIGABAR_VM_MEASURE") == nullptr) GTEST_SKIP() << "GIGABAR_VM_MEASURE is not set";
  test::run_two([](Side& side) {
    open(side);
    ASSERT_NO_FATAL_FAILURE(side.connect());
    constexpr std::size_t kRounds = 1500;
    std::vector<std::byte> payload(8);
    std::vector<double> one_way_us;
    for (std::size_t round = 0; round < kRounds; ++round) {
      const std::int64_t begin = now_ns();
      if (side.index() == 0) {
        ASSERT_EQ(side.link->post_message({}, payload), Posted::ok);
      }
      while (side.message_count == round && side.broken_count == 0) side.transport->poll(side);
      if (side.index() == 1) {
        ASSERT_EQ(side.link->post_message({}, payload), Posted::ok);
      }
      one_way_us.push_back(static_cast<double>(now_ns() - begin) / 2000);
    }
    std::sort(one_way_us.begin(), one_way_us.end());
    if (side.index() == 0) std::printf("%s latency_us %.2f\n", GetParam(), one_way_us[kRounds / 2]);
    std::vector<std::byte> memory(1 << 20);
    const auto region = side.register_host(memory.data(), memory.size());
    side.tell_key(*region);
    const auto remote = side.open_told();
    for (const std::size_t bytes : {std::size_t{65536}, std::size_t{1} << 20}) {
      const std::size_t count = (std::size_t{64} << 20) / bytes;
      ASSERT_NO_FATAL_FAILURE(side.meet());
      if (side.index() == 1) continue;
      side.done_count = 0;
      const std::int64_t begin = now_ns();
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_TRUE(side.post([&] { return side.link->post_write(*region, 0, *remote, 0, bytes, i); }));
      }
      ASSERT_TRUE(side.run_until([&] { return side.done_count == count; }));
      std::printf("%s write_%zu_mb_per_s %.1f\n", GetParam(), bytes,
                  static_cast<double>(count * bytes) / 1048576 / (static_cast<double>(now_ns() - begin) / 1e9));
    }
    ASSERT_NO_FATAL_FAILURE(side.meet());
  });
}

INSTANTIATE_TEST_SUITE_P(Devices, VerbsLink, testing::Values("rxe", "siw"),
                         [](const auto& parameter) { return std::string(parameter.param); });

}  // namespace
}  // namespace gigabar
