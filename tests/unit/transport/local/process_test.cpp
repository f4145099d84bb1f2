// SPDX-License-Identifier: Apache-2.0
// Two ranks in two processes: messages and writes under load, memory that only the kernel can reach, refusals, sleeping.
#include <sys/prctl.h>

#include <algorithm>
#include <cstdio>

#include "gigabar/memory.hpp"
#include "support/scoped_environment.hpp"
#include "support/stop_process.hpp"
#include "unit/transport/local/processes.hpp"

namespace gigabar::transport {
namespace {

using namespace test;

TEST(LocalProcesses, AMillionMessagesOfMixedSizesKeepTheirOrder) {
  constexpr std::uint64_t kMessages = 1'000'000;
  const auto bytes = pattern_of(5000, 1);
  const auto size_of = [](std::uint64_t number) { return number % 97 == 0 ? number % 5000 : number % 60; };
  run_two(
      [&](int socket, pid_t other) {
        RankProcess rank(socket, 0, other);
        for (std::uint64_t number = 0; number < kMessages; ++number)
          rank.post(header_of(number), std::span(bytes.data(), size_of(number)));
        rank.meet();
      },
      [&](int socket, pid_t other) {
        RankProcess rank(socket, 1, other);
        std::uint64_t next = 0;
        std::uint64_t wrong = 0;
        rank.sink.on_message = [&](Link&, const Header& header, std::span<const std::byte> payload) {
          wrong += header != header_of(next) || payload.size() != size_of(next) ||
                   !std::equal(payload.begin(), payload.end(), bytes.begin());
          ++next;
        };
        EXPECT_TRUE(rank.poll_until([&] { return next == kMessages; })) << next;
        EXPECT_EQ(wrong, 0U);
        rank.meet();
      });
}

// Every message tells which write came before it on the link: what is in place must be that one or a later one.
void write_and_tell(RankProcess& rank, std::uint64_t count) {
  constexpr std::size_t kSlots = 64;
  constexpr std::size_t kWords = 64;
  std::vector<std::uint64_t> memory(kSlots * kWords);
  const auto local = must(rank.transport->register_memory(
      {memory.data(), memory.size() * sizeof(std::uint64_t), MemoryKind::host_pageable, -1, -1, 0}));
  const auto remote = rank.open_shown();
  const std::size_t bytes = kWords * sizeof(std::uint64_t);
  for (std::uint64_t number = 1; number <= count; ++number) {
    const std::size_t slot = number % kSlots;
    std::fill_n(memory.data() + slot * kWords, kWords, number);
    const auto posted = [&] {
      return rank.link->post_write(*local, slot * bytes, *remote, slot * bytes, bytes, number) == Posted::ok;
    };
    ASSERT_TRUE(rank.poll_until(posted));
    rank.post(header_of(number));
  }
  EXPECT_TRUE(rank.poll_until([&] { return rank.sink.dones.size() == count; }));
  for (std::uint64_t number = 1; number <= count; ++number) EXPECT_EQ(rank.sink.dones[number - 1], std::pair(number, Status::ok));
  rank.meet();
}

void expect_told(RankProcess& rank, std::uint64_t count, const std::uint64_t* memory) {
  std::uint64_t next = 1;
  std::uint64_t wrong = 0;
  rank.sink.on_message = [&](Link&, const Header& header, std::span<const std::byte>) {
    const std::uint64_t number = number_of(header);
    wrong += number != next++;
    for (std::size_t word = 0; word < 64; ++word)
      wrong += reinterpret_cast<const volatile std::uint64_t*>(memory)[number % 64 * 64 + word] < number;
  };
  EXPECT_TRUE(rank.poll_until([&] { return next > count; })) << next;
  EXPECT_EQ(wrong, 0U);
  rank.meet();
}

TEST(LocalProcesses, MessagesComeAfterTheWritesBeforeThem) {
  constexpr std::uint64_t kWrites = 200'000;
  const SharedMemory memory(64 * 64 * sizeof(std::uint64_t));
  run_two(
      [&](int socket, pid_t other) {
        RankProcess rank(socket, 0, other);
        write_and_tell(rank, kWrites);
      },
      [&](int socket, pid_t other) {
        RankProcess rank(socket, 1, other);
        const auto region = must(rank.transport->register_memory(memory.range()));
        rank.show(*region);
        expect_told(rank, kWrites, reinterpret_cast<const std::uint64_t*>(memory.data()));
        EXPECT_TRUE(memory.are_guards_whole());
      });
}

// True when this process may do to another what the test needs; a kernel can forbid it to everybody.
bool is_permitted(const Reach& reach) {
  if (!reach.can) std::printf("    not permitted here: %s\n", reach.reason.c_str());
  return reach.can;
}

TEST(LocalProcesses, PlainMemoryIsReachedThroughTheKernel) {
  constexpr std::uint64_t kWrites = 20'000;
  run_two(
      [&](int socket, pid_t other) {
        RankProcess rank(socket, 0, other);
        std::vector<std::byte> memory = pattern_of(3'000'000, 5);
        const auto local = must(rank.transport->register_memory(plain_range(memory)));
        const auto remote = rank.open_shown();
        const Reach reach = rank.link->reach(Direction::write, *local, *remote);
        if (!is_permitted(reach)) throw std::runtime_error("CMA is not permitted on this machine: " + reach.reason);
        EXPECT_EQ(reach.path, TransferPath::host);
        EXPECT_NE(reach.reason.find("kernel"), std::string::npos);
        ASSERT_EQ(rank.link->post_write(*local, 0, *remote, 100, memory.size(), 1), Posted::ok);
        rank.post(header_of(1));
        std::vector<std::byte> back(memory.size());
        const auto landing = must(rank.transport->register_memory(plain_range(back)));
        ASSERT_TRUE(rank.poll_until([&] { return rank.sink.dones.size() == 1; }));
        ASSERT_EQ(rank.link->post_read(*landing, 0, *remote, 100, back.size(), 2), Posted::ok);
        ASSERT_TRUE(rank.poll_until([&] { return rank.sink.dones.size() == 2; }));
        EXPECT_EQ(back, memory);
        rank.sink.dones.clear();
        rank.meet();
        write_and_tell(rank, kWrites);
      },
      [&](int socket, pid_t other) {
        RankProcess rank(socket, 1, other);
        std::vector<std::byte> memory(3'000'200, std::byte{0x33});
        const auto region = must(rank.transport->register_memory(plain_range(memory)));
        EXPECT_EQ(region->how(), "process_vm");
        rank.show(*region);
        const auto expected = pattern_of(3'000'000, 5);
        EXPECT_TRUE(rank.poll_until([&] { return !rank.sink.messages.empty(); }));
        EXPECT_EQ(std::memcmp(memory.data() + 100, expected.data(), expected.size()), 0);
        EXPECT_EQ(memory[99], std::byte{0x33});
        EXPECT_EQ(memory[3'000'100], std::byte{0x33});
        rank.meet();
        std::vector<std::uint64_t> words(64 * 64);
        const auto second =
            must(rank.transport->register_memory({words.data(), words.size() * 8, MemoryKind::host_pageable, -1, -1, 0}));
        rank.show(*second);
        expect_told(rank, kWrites, words.data());
      });
}

TEST(LocalProcesses, AProcessThatIsNotDumpableIsNoReachAndSaysWhy) {
  constexpr uid_t kNobody = 65534;
  run_two(
      [&](int socket, pid_t other) {
        // Root may look at everybody, so the looking is done by a child that is not root.
        run_two([](int, pid_t) {},
                [&](int, pid_t) {
                  if (::getuid() == 0 && ::setresuid(kNobody, kNobody, kNobody) != 0) throw std::runtime_error("setresuid");
                  RankProcess rank(socket, 0, other);
                  std::vector<std::byte> memory(100);
                  const auto local = must(rank.transport->register_memory(plain_range(memory)));
                  const auto remote = rank.open_shown();
                  const Reach reach = rank.link->reach(Direction::write, *local, *remote);
                  EXPECT_FALSE(reach.can);
                  EXPECT_NE(reach.reason.find("ptrace scope"), std::string::npos) << reach.reason;
                  ASSERT_EQ(rank.link->post_write(*local, 0, *remote, 0, 8, 1), Posted::ok);
                  EXPECT_TRUE(rank.poll_until([&] { return rank.sink.dones.size() == 1; }));
                  EXPECT_EQ(rank.sink.dones.at(0).second, Status::not_supported);
                  EXPECT_EQ(rank.link->state(), LinkState::ready);
                  rank.meet();
                });
      },
      [&](int socket, pid_t other) {
        if (::getuid() == 0 && ::setresuid(kNobody, kNobody, kNobody) != 0) throw std::runtime_error("setresuid");
        ::prctl(PR_SET_DUMPABLE, 0);
        RankProcess rank(socket, 1, other);
        std::vector<std::byte> memory(100, std::byte{7});
        const auto region = must(rank.transport->register_memory(plain_range(memory)));
        rank.show(*region);
        rank.meet();
        EXPECT_EQ(memory[0], std::byte{7});
      });
}

TEST(LocalProcesses, MemoryOfADeadProcessIsAnErrorAndBreaksOnlyItsLink) {
  run_two(
      [&](int socket, pid_t other) {
        RankProcess rank(socket, 0, other);
        std::vector<std::byte> memory(4096);
        const auto local = must(rank.transport->register_memory(plain_range(memory)));
        const auto remote = rank.open_shown();
        if (!is_permitted(rank.link->reach(Direction::write, *local, *remote))) return;
        siginfo_t ended{};
        ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(other), &ended, WEXITED | WNOWAIT), 0);
        ASSERT_EQ(rank.link->post_write(*local, 0, *remote, 0, 4096, 1), Posted::ok);
        EXPECT_TRUE(rank.poll_until([&] { return rank.sink.broken_count == 1; }));
        EXPECT_EQ(rank.sink.dones.at(0), std::pair(std::uint64_t{1}, Status::peer_lost));
      },
      [&](int socket, pid_t other) {
        RankProcess rank(socket, 1, other);
        std::vector<std::byte> memory(4096);
        const auto region = must(rank.transport->register_memory(plain_range(memory)));
        rank.show(*region);
      });
}

TEST(LocalProcesses, AStoppedPeerOnlyFillsTheRing) {
  run_two(
      [&](int socket, pid_t other) {
        RankProcess rank(socket, 0, other);
        rank.meet();
        ASSERT_TRUE(gigabar::test::stop_process(other));
        std::uint64_t posted = 0;
        while (rank.link->post_message(header_of(posted), {}) == Posted::ok) ++posted;
        for (int turn = 0; turn < 1000; ++turn) {
          EXPECT_EQ(rank.link->post_message(header_of(posted), {}), Posted::full);
          rank.transport->poll(rank.sink);
        }
        ::kill(other, SIGCONT);
        rank.post(header_of(UINT64_MAX));
        rank.meet();
      },
      [&](int socket, pid_t other) {
        RankProcess rank(socket, 1, other);
        rank.meet();
        std::uint64_t last = 0;
        rank.sink.on_message = [&](Link&, const Header& header, std::span<const std::byte>) { last = number_of(header); };
        EXPECT_TRUE(rank.poll_until([&] { return last == UINT64_MAX; }));
        rank.meet();
      });
}

TEST(LocalProcesses, StandInDevicesOfTwoProcessesReachEachOther) {
  const gigabar::test::ScopedEnvironment two("GIGABAR_STAND_IN", "2");
  const auto sent = pattern_of(2'000'000, 9);
  run_two(
      [&](int socket, pid_t other) {
        RankProcess rank(socket, 0, other);
        const auto device = must(DeviceMemory::allocate(0, sent.size()));
        std::memcpy(device.address(), sent.data(), sent.size());
        const auto local =
            must(rank.transport->register_memory({device.address(), device.bytes(), MemoryKind::stand_in, 0, -1, 0}));
        const auto remote = rank.open_shown();
        EXPECT_EQ(rank.link->reach(Direction::write, *local, *remote).path, TransferPath::p2p);
        ASSERT_EQ(rank.link->post_write(*local, 0, *remote, 0, sent.size(), 1), Posted::ok);
        rank.post(header_of(1));
        EXPECT_TRUE(rank.poll_until([&] { return rank.sink.dones.size() == 1; }));
        rank.meet();
      },
      [&](int socket, pid_t other) {
        RankProcess rank(socket, 1, other);
        const auto device = must(DeviceMemory::allocate(1, sent.size()));
        const auto region =
            must(rank.transport->register_memory({device.address(), device.bytes(), MemoryKind::stand_in, 1, -1, 0}));
        rank.show(*region);
        EXPECT_TRUE(rank.poll_until([&] { return !rank.sink.messages.empty(); }));
        EXPECT_EQ(std::memcmp(device.address(), sent.data(), sent.size()), 0);
        rank.meet();
      });
}

// --- Figures: printed, not asserted ----------------------------------------------------------------------------------------------

double percentile(std::vector<double>& samples, double part) {
  std::sort(samples.begin(), samples.end());
  return samples.empty() ? 0 : samples[static_cast<std::size_t>(part * static_cast<double>(samples.size() - 1))];
}

TEST(LocalProcesses, LatencyOfAMessageIsPrinted) {
  constexpr std::uint64_t kTurns = 20'000;
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{24}, std::size_t{256}, std::size_t{4096}}) {
    const auto payload = pattern_of(bytes, 1);
    run_two(
        [&](int socket, pid_t other) {
          RankProcess rank(socket, 0, other);
          std::uint64_t last = 0;
          rank.sink.on_message = [&](Link&, const Header& header, std::span<const std::byte>) { last = number_of(header); };
          std::vector<double> samples;
          const std::uint64_t turns = bytes > 256 ? kTurns / 10 : kTurns;
          // On a busy machine fewer: the other rank waits for the end of all of them.
          const Deadline enough = Deadline::after_ns(kLongNs / 4);
          for (std::uint64_t number = 1; number <= turns && !enough.has_passed(); ++number) {
            const std::int64_t begin_ns = now_ns();
            rank.post(header_of(number), payload);
            ASSERT_TRUE(rank.poll_until([&] { return last == number; }));
            samples.push_back(static_cast<double>(now_ns() - begin_ns) / 2);
          }
          rank.post(header_of(0));
          std::printf("    one way, payload %5zu bytes: p50 %.0f ns, p10 %.0f ns, p99 %.0f ns\n", bytes, percentile(samples, 0.5),
                      percentile(samples, 0.1), percentile(samples, 0.99));
          rank.meet();
        },
        [&](int socket, pid_t other) {
          RankProcess rank(socket, 1, other);
          bool is_over = false;
          rank.sink.on_message = [&](Link& link, const Header& header, std::span<const std::byte>) {
            is_over = number_of(header) == 0;
            if (!is_over) link.post_message(header, payload);
          };
          EXPECT_TRUE(rank.poll_until([&] { return is_over; }));
          rank.meet();
        });
  }
}

TEST(LocalProcesses, APingPongOfSleepersMissesNothing) {
  constexpr std::uint64_t kTurns = 5000;
  const auto serve = [](RankProcess& rank, bool begins) {
    std::uint64_t last = 0;
    rank.sink.on_message = [&](Link& link, const Header& header, std::span<const std::byte>) {
      last = number_of(header);
      if (last < kTurns) link.post_message(header_of(last + 1), {});
    };
    if (begins) rank.post(header_of(1));
    const std::int64_t begin_ns = now_ns();
    while (last + 1 < kTurns) {
      if (rank.transport->poll(rank.sink) || !rank.transport->arm()) continue;
      if (!becomes_readable(rank.transport->wake_descriptor(), 10'000)) {
        ADD_FAILURE() << "not woken after message " << last;
        return;
      }
    }
    if (begins) std::printf("    one way when both sleep: %.1f us\n", static_cast<double>(now_ns() - begin_ns) / 1000 / kTurns);
  };
  run_two(
      [&](int socket, pid_t other) {
        RankProcess rank(socket, 0, other);
        serve(rank, true);
        rank.meet();
      },
      [&](int socket, pid_t other) {
        RankProcess rank(socket, 1, other);
        serve(rank, false);
        rank.meet();
      });
}

}  // namespace
}  // namespace gigabar::transport
