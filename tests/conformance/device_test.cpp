// SPDX-License-Identifier: Apache-2.0
// What kernels do by themselves, here with threads of the CPU as their lanes: the functions of gigabar/device/fabric.hpp between
// processes, from their header.
#include <algorithm>
#include <cstring>
#include <vector>

#include "conformance/device_kernels.hpp"
#include "gigabar/device/channel.hpp"
#include "gigabar/device/message.hpp"

namespace gigabar::test {
namespace {

using device::Channel;
using device::CpuTeam;
using device::Order;

// --- Mapped segments -------------------------------------------------------------------------------------------------------------

RANK_BODY(map_by_hand) {
  RankSegment target(fabric, kTarget, MemoryChoice::stand_in, kSpan), host(fabric, kOrigin, MemoryChoice::host, 4096);
  ASSERT_TRUE(me.meet());
  const Rank peer = next_of(me);
  auto mapped = fabric.map_segment(peer, kTarget, kPatience);
  ASSERT_TRUE(is_ok(mapped));
  auto again = fabric.map_segment(peer, kTarget, kPatience);
  ASSERT_TRUE(is_ok(again));
  EXPECT_EQ(*again, *mapped);
  const auto own = fabric.map_segment(me.rank(), kTarget, kPatience);
  ASSERT_TRUE(is_ok(own));
  EXPECT_EQ(*own, target.address());
  EXPECT_TRUE(refuses(fabric.map_segment(peer, kNowhere, kPatience)));
  EXPECT_TRUE(refuses(fabric.map_segment(me.rank(), kNowhere, kPatience)));
  EXPECT_TRUE(refuses(fabric.map_segment(99, kTarget, kPatience)));
  if (me.rank_count() > 1) {
    EXPECT_TRUE(fails(fabric.map_segment(peer, kOrigin, kPatience), Status::not_supported, "segment 1"));
    EXPECT_TRUE(fails(fabric.map_segment(peer, kOrigin, kPatience, MappedFor::cpu), Status::not_supported, "segment 1"));
  }
  // A mapping of its own, to be unmapped by itself.
  EXPECT_TRUE(is_ok(fabric.map_segment(peer, kTarget, kPatience, MappedFor::cpu)));
  EXPECT_TRUE(is_ok(fabric.unmap_segment(peer, kTarget, MappedFor::cpu)));
  EXPECT_TRUE(refuses(fabric.unmap_segment(peer, kTarget, MappedFor::cpu), "not mapped"));
  EXPECT_TRUE(refuses(fabric.unmap_segment(peer, kNowhere), "not mapped"));
  EXPECT_TRUE(fails(fabric.close(kPatience), Status::busy, "mapped"));

  fill_pattern(*mapped, kSpan, peer);
  ASSERT_TRUE(me.meet());
  EXPECT_TRUE(target.holds_pattern(0, kSpan, me.rank(), 0));
  EXPECT_TRUE(target.are_guards_whole());
  // As long as somebody has it mapped there is no quiet.
  EXPECT_TRUE(fails(fabric.quiesce(kTarget, Timeout::of(std::chrono::milliseconds(50))), Status::timed_out));
  ASSERT_TRUE(me.meet());
  EXPECT_TRUE(is_ok(fabric.unmap_segment(me.rank(), kTarget)));
  EXPECT_TRUE(is_ok(fabric.unmap_segment(peer, kTarget)));
  if (me.rank_count() > 1) {
    EXPECT_TRUE(fails(fabric.quiesce(kTarget, Timeout::of(std::chrono::milliseconds(50))), Status::timed_out));
  }
  ASSERT_TRUE(me.meet());
  EXPECT_TRUE(is_ok(fabric.unmap_segment(peer, kTarget)));
  EXPECT_TRUE(refuses(fabric.unmap_segment(peer, kTarget), "not mapped"));
  EXPECT_TRUE(is_ok(fabric.quiesce(kTarget, kPatience)));
  ASSERT_TRUE(me.meet());
}

// --- One-sided -------------------------------------------------------------------------------------------------------------------

// One exchange with both neighbours: of `bytes` at that place, then back by a read.
void exchange(const CpuTeam::Member& lane, const DeviceFabric& fabric, Rank to, std::uint64_t at, std::uint64_t from,
              std::uint64_t bytes, std::uint32_t round) {
  const auto id = static_cast<NotificationId>(round % 7);
  EXPECT_EQ(write_notify(lane, fabric, {kOrigin, from}, {to, kTarget, at}, bytes, id, round), Status::ok);
  NotificationId found = 0;
  EXPECT_EQ(notification_wait(lane, fabric, kTarget, 0, 7, kLong, found), Status::ok);
  EXPECT_EQ(found, id);
  std::uint32_t value = 0;
  EXPECT_EQ(notification_reset(lane, fabric, kTarget, found, value), Status::ok);
  EXPECT_EQ(value, round);
}

RANK_BODY(write_all_sizes) {
  constexpr std::size_t kSmallSpan = 80 * 1024;
  Kernels kernels(me, fabric, kSmallSpan);
  ASSERT_TRUE(kernels.session);
  const std::vector<std::uint64_t> sizes{0, 1, 2, 3, 4, 7, 8, 12, 15, 16, 17, 31, 64, 100, 255, 1000, 4096, 65536 + 5};
  kernels.origin.put_pattern(0, kSmallSpan, me.rank(), 0);
  // By queues the places are the fabric's matter: a few will do.
  const bool is_by_queue = me.setup().word == kByQueues;
  const std::vector<std::uint64_t> places =
      is_by_queue ? std::vector<std::uint64_t>{0, 13} : std::vector<std::uint64_t>{0, 1, 8, 333};
  const std::vector<std::uint64_t> sources = is_by_queue ? std::vector<std::uint64_t>{11} : std::vector<std::uint64_t>{0, 4, 11};
  std::uint32_t round = 0;
  for (const std::uint64_t bytes : sizes) {
    for (const std::uint64_t at : places) {
      for (const std::uint64_t from : sources) {
        ++round;
        kernels.target.fill();
        run_block(3, [&](const CpuTeam::Member& lane) {
          EXPECT_EQ(barrier(lane, kernels.handle(), kLong), Status::ok);
          exchange(lane, kernels.handle(), next_of(me), at, from, bytes, round);
        });
        ASSERT_TRUE(kernels.target.holds_pattern(at, bytes, previous_of(me), from)) << bytes << " bytes at " << at;
        ASSERT_TRUE(kernels.target.is_untouched_around(at, bytes)) << bytes << " bytes at " << at;
        // And read from the one who wrote: it holds its origin.
        run_block(2, [&](const CpuTeam::Member& lane) {
          EXPECT_EQ(barrier(lane, kernels.handle(), kLong), Status::ok);
          EXPECT_EQ(read(lane, kernels.handle(), {kTarget, at}, {previous_of(me), kOrigin, from}, bytes), Status::ok);
          EXPECT_EQ(wait(lane, kernels.handle(), 0, kLong), Status::ok);
        });
        ASSERT_TRUE(kernels.target.holds_pattern(at, bytes, previous_of(me), from)) << "read of " << bytes << " bytes at " << at;
        ASSERT_TRUE(kernels.target.is_untouched_around(at, bytes));
      }
    }
  }
  EXPECT_TRUE(is_ok(fabric.barrier({}, kPatience))) << "a neighbour may still be reading from here";
  EXPECT_TRUE(is_ok(kernels.session->close(kPatience)));
}

// The payload is whole whenever its notification is seen.
RANK_BODY(never_before_its_payload) {
  Kernels kernels(me, fabric);
  ASSERT_TRUE(kernels.session);
  const DeviceFabric& handle = kernels.handle();
  constexpr std::size_t kWords = 64;
  auto* const out = reinterpret_cast<std::uint64_t*>(kernels.origin.address());
  const auto* const in = reinterpret_cast<const std::uint64_t*>(kernels.target.address());
  const device::Thread thread;
  for (std::uint32_t round = 1; round <= me.setup().amount; ++round) {
    std::fill(out, out + kWords, round);
    // What one call wrote is covered by the next call's notification too.
    ASSERT_EQ(write(thread, handle, {kOrigin, 0}, {next_of(me), kTarget, 0}, kWords * 4), Status::ok);
    ASSERT_EQ(write(thread, handle, {kOrigin, kWords * 4}, {next_of(me), kTarget, kWords * 4}, kWords * 4), Status::ok);
    ASSERT_EQ(notify(thread, handle, next_of(me), kTarget, 1, round, Order::after_writes, round * 3), Status::ok);
    NotificationId found = 0;
    ASSERT_EQ(notification_wait(thread, handle, kTarget, 1, 1, kLong, found, previous_of(me)), Status::ok);
    ASSERT_EQ(std::count(in, in + kWords, round), static_cast<std::ptrdiff_t>(kWords));
    std::uint32_t value = 0;
    std::uint64_t payload = 0;
    ASSERT_EQ(notification_reset(thread, handle, kTarget, 1, value, &payload), Status::ok);
    ASSERT_EQ(value, round);
    ASSERT_EQ(payload, std::uint64_t{round} * 3);
    // The other has seen this round's: its words may be written again.
    ASSERT_EQ(notify(thread, handle, previous_of(me), kTarget, 2, 1, Order::none), Status::ok);
    ASSERT_EQ(notification_wait(thread, handle, kTarget, 2, 1, kLong, found), Status::ok);
    ASSERT_EQ(notification_reset(thread, handle, kTarget, 2, value), Status::ok);
  }
  EXPECT_TRUE(is_ok(kernels.session->close(kPatience)));
}

constexpr std::uint64_t kOdd = 0x9e37'79b9'7f4a'7c15U;

// Numbers that grow are waited for and stay, until they are taken down.
RANK_BODY(wait_for_numbers) {
  Kernels kernels(me, fabric);
  ASSERT_TRUE(kernels.session);
  const DeviceFabric& handle = kernels.handle();
  run_block(3, [&](const CpuTeam::Member& lane) {
    std::uint32_t value = 0;
    for (std::uint32_t round = 10; round <= 500; round += 10) {
      EXPECT_EQ(write_notify(lane, handle, {kOrigin, 0}, {next_of(me), kTarget, 0}, 512, 3, round), Status::ok);
      // What is asked for lies between two that are sent.
      EXPECT_EQ(notification_wait_until(lane, handle, kTarget, 3, round - 5, kLong, value, previous_of(me)), Status::ok);
      EXPECT_EQ(value, round);
      EXPECT_EQ(notification_wait_until(lane, handle, kTarget, 3, round + 1, device::Timeout{}, value), Status::timed_out);
      // Seen: the next round's may come.
      EXPECT_EQ(notify(lane, handle, previous_of(me), kTarget, 4, round, Order::none, round * kOdd), Status::ok);
      std::uint64_t payload = 0;
      EXPECT_EQ(notification_wait_until(lane, handle, kTarget, 4, round, kLong, value, next_of(me), &payload), Status::ok);
      EXPECT_EQ(payload, round * kOdd);
    }
    EXPECT_EQ(notification_reset(lane, handle, kTarget, 3, value), Status::ok);
    EXPECT_EQ(value, 500U);
    EXPECT_EQ(notification_wait_until(lane, handle, kTarget, 3, 1, kShort, value), Status::timed_out);
  });
  EXPECT_TRUE(is_ok(kernels.session->close(kPatience)));
}

// Rounds of every size over a channel that scopes of one kind use at all ranks.
template <class Scope>
void speak(const Scope& scope, RankProcess& me, Kernels& kernels, std::uint32_t rounds) {
  const DeviceFabric& handle = kernels.handle();
  Channel next, waiting;
  EXPECT_EQ(Channel::open(scope, handle, next_of(me), kTarget, kOrigin, 0, next), Status::ok);
  // Sends nothing, and is not closed: its queue is the same one where there are two ranks.
  EXPECT_EQ(Channel::open(scope, handle, previous_of(me), kTarget, kTarget, 0, waiting), Status::ok);
  const std::vector<std::uint64_t> sizes{4, 8, 24, 28, 32, 4096, 100'000};
  constexpr std::uint64_t kCount = 8;  // of a word that this rank alone changes, at the next one
  std::uint64_t count = 0, old = 0;
  EXPECT_EQ(next.atomic_fetch_add(scope, kCount, 0, kLong, count), Status::ok);
  for (std::uint32_t round = 1; round <= rounds && !testing::Test::HasFailure(); ++round) {
    const std::uint64_t bytes = sizes[round % sizes.size()];
    EXPECT_EQ(next.atomic_fetch_add(scope, kCount, round, kLong, old), Status::ok);
    EXPECT_EQ(old, count);
    EXPECT_EQ(next.compare_swap(scope, kCount, count, 0, kLong, old), Status::ok);
    EXPECT_EQ(old, count + round);
    EXPECT_EQ(next.compare_swap(scope, kCount, count + round, kOdd * round, kLong, old), Status::ok);
    EXPECT_EQ(old, count + round);
    count = kOdd * round;
    EXPECT_EQ(next.write(scope, 8 * round, 4096, bytes, kLong), Status::ok);
    EXPECT_EQ(next.write_notify(scope, 16 * round, 120'000, bytes, 1, round, kLong), Status::ok);
    NotificationId found = 0;
    std::uint32_t value = 0;
    std::uint64_t payload = 0;
    EXPECT_EQ(notification_wait(scope, handle, kTarget, 1, 1, kLong, found, previous_of(me)), Status::ok);
    EXPECT_EQ(notification_reset(scope, handle, kTarget, 1, value), Status::ok);
    EXPECT_EQ(value, round);
    EXPECT_TRUE(kernels.target.holds_pattern(4096, bytes, previous_of(me), 8 * round));
    EXPECT_TRUE(kernels.target.holds_pattern(120'000, bytes, previous_of(me), 16 * round));
    EXPECT_EQ(next.wait(scope, kLong), Status::ok);
    // Seen: the next round's may come.
    EXPECT_EQ(next.notify(scope, 2, round, Order::after_writes, round * 5, kLong), Status::ok);
    EXPECT_EQ(waiting.notification_wait_until(scope, 2, round, kLong, value, &payload), Status::ok);
    EXPECT_EQ(value, round);
    EXPECT_EQ(payload, std::uint64_t{round} * 5);
    EXPECT_EQ(notification_reset(scope, handle, kTarget, 2, value, &payload), Status::ok);
    EXPECT_EQ(payload, std::uint64_t{round} * 5);
    const bool have_met = scope.rank() != 0 || me.meet();
    EXPECT_TRUE(have_met);
    scope.sync();
  }
  next.close(scope);
  EXPECT_EQ(barrier(scope, handle, kLong), Status::ok);
}

// What a channel refuses does nothing; afterwards its queue is others'.
RANK_BODY(speak_through_channels) {
  Kernels kernels(me, fabric);
  ASSERT_TRUE(kernels.session);
  const DeviceFabric& handle = kernels.handle();
  kernels.origin.put_pattern(0, kSpan, me.rank(), 0);
  const device::Thread thread;
  Channel next, none;
  std::uint32_t value = 0;
  ASSERT_EQ(Channel::open(thread, handle, next_of(me), kTarget, kOrigin, 0, next), Status::ok);
  EXPECT_EQ(Channel::open(thread, handle, 99, kTarget, kOrigin, 0, none), Status::out_of_range);
  EXPECT_EQ(Channel::open(thread, handle, next_of(me), kNowhere, kOrigin, 0, none), Status::out_of_range);
  EXPECT_EQ(Channel::open(thread, handle, next_of(me), kTarget, kNowhere, 0, none), Status::out_of_range);
  EXPECT_EQ(next.write(thread, kSpan - 7, 0, 8, kLong), Status::out_of_range);
  EXPECT_EQ(next.write_notify(thread, 0, kSpan - 7, 8, 1, 1, kLong), Status::out_of_range);
  EXPECT_EQ(next.write_notify(thread, 0, 0, 8, 1024, 1, kLong), Status::out_of_range);
  EXPECT_EQ(next.write_notify(thread, 0, 0, 8, 1, 0, kLong), Status::invalid_argument);
  std::uint64_t old = 0;
  EXPECT_EQ(next.atomic_fetch_add(thread, kSpan, 1, kLong, old), Status::out_of_range);
  EXPECT_EQ(next.atomic_fetch_add(thread, 4, 1, kLong, old), Status::invalid_argument);
  EXPECT_EQ(next.compare_swap(thread, ~std::uint64_t{7}, 0, 1, kLong, old), Status::out_of_range);
  EXPECT_EQ(next.compare_swap(thread, 1, 0, 1, kLong, old), Status::invalid_argument);
  EXPECT_EQ(next.notify(thread, 1024, 1, Order::none, 0, kLong), Status::out_of_range);
  EXPECT_EQ(next.notify(thread, 1, 0, Order::none, 0, kLong), Status::invalid_argument);
  EXPECT_EQ(next.notification_wait_until(thread, 1024, 1, kLong, value), Status::out_of_range);
  EXPECT_EQ(next.notification_wait_until(thread, 1, 0, kLong, value), Status::invalid_argument);
  EXPECT_EQ(next.notification_wait_until(thread, 5, 1, kShort, value), Status::timed_out);
  next.close(thread);
  speak(thread, me, kernels, 70);
  run_block(3, [&](const CpuTeam::Member& lane) { speak(lane, me, kernels, 14); });
  EXPECT_TRUE(kernels.target.are_guards_whole());
  EXPECT_TRUE(is_ok(kernels.session->close(kPatience)));
}

// Around the ranks by two rings at once, forwards by one and backwards by the other: messages of many sizes and values.
void pass_messages(const CpuTeam::Member& lane, const DeviceFabric& handle, Rank next, Rank previous, RankSegment& origin,
                   RankSegment& target) {
  device::SendRing forwards, backwards;
  device::RecvRing from_previous, from_next;
  ASSERT_EQ(open_ring(handle, next, 0, forwards), Status::ok);
  ASSERT_EQ(open_ring(handle, previous, 1, backwards), Status::ok);
  ASSERT_EQ(open_ring(handle, previous, 0, from_previous), Status::ok);
  ASSERT_EQ(open_ring(handle, next, 1, from_next), Status::ok);
  constexpr std::uint64_t kPiece = 380;  // each way at once, before anybody receives
  for (std::uint64_t i = 0; i < 200; ++i) {
    const std::uint64_t bytes = i * 37 % kPiece;
    ASSERT_EQ(send(lane, forwards, origin.address() + i, bytes, kLong), Status::ok);
    ASSERT_EQ(send_value(lane, backwards, i << 32 | handle.rank, kLong), Status::ok);
    std::uint64_t got = 0, value = 0;
    ASSERT_EQ(recv(lane, from_previous, target.address(), kPiece, got, kLong), Status::ok);
    ASSERT_EQ(recv_value(lane, from_next, value, kLong), Status::ok);
    ASSERT_EQ(got, bytes);
    ASSERT_EQ(value, i << 32 | next);
    if (lane.rank() == 0) {
      ASSERT_TRUE(target.holds_pattern(0, bytes, previous, i)) << i;
      ASSERT_TRUE(target.is_untouched_around(0, bytes)) << i;
      target.fill();
    }
    lane.sync();
  }
  forwards.close(lane);
  backwards.close(lane);
  from_previous.close(lane);
  from_next.close(lane);
}

RANK_BODY(send_messages) {
  Kernels kernels(me, fabric, 4096);
  ASSERT_TRUE(kernels.session);
  const DeviceFabric& handle = kernels.handle();
  device::SendRing ring;
  EXPECT_EQ(open_ring(handle, me.rank_count(), 0, ring), Status::out_of_range);
  EXPECT_EQ(open_ring(handle, 0, 2, ring), Status::out_of_range);
  if (me.setup().word == kByQueues) {
    EXPECT_EQ(open_ring(handle, next_of(me), 0, ring), Status::unavailable);
    ASSERT_TRUE(me.meet());
    EXPECT_TRUE(is_ok(kernels.session->close(kPatience)));
    return;
  }
  kernels.origin.put_pattern(0, 4096, me.rank(), 0);
  // Several kernels one after another: a ring goes on where the one before left it.
  for (const std::uint32_t size : {1U, 3U, 2U}) {
    run_block(size, [&](const CpuTeam::Member& lane) {
      pass_messages(lane, handle, next_of(me), previous_of(me), kernels.origin, kernels.target);
    });
  }
  ASSERT_TRUE(me.meet());
  EXPECT_TRUE(is_ok(kernels.session->close(kPatience)));
}

RANK_BODY(add_and_swap) {
  Kernels kernels(me, fabric);
  ASSERT_TRUE(kernels.session);
  const DeviceFabric& handle = kernels.handle();
  std::memset(kernels.target.address(), 0, 64);
  const std::uint64_t rounds = me.setup().amount;
  run_block(2, [&](const CpuTeam::Member& lane) {
    EXPECT_EQ(barrier(lane, handle, kLong), Status::ok);
    std::uint64_t old = 0;
    for (std::uint64_t i = 0; i < rounds; ++i)
      EXPECT_EQ(atomic_fetch_add(lane, handle, {0, kTarget, 8}, 3, kLong, old), Status::ok);
    // A lock in rank 0's memory around a sum that is no atomic.
    for (std::uint64_t i = 0; i < rounds; ++i) {
      const std::uint64_t name = me.rank() + 1;
      do {
        EXPECT_EQ(compare_swap(lane, handle, {0, kTarget, 16}, 0, name, kLong, old), Status::ok);
      } while (old != 0);
      EXPECT_EQ(read(lane, handle, {kOrigin, 0}, {0, kTarget, 24}, 8), Status::ok);
      EXPECT_EQ(wait(lane, handle, 0, kLong), Status::ok);
      if (lane.rank() == 0) ++*reinterpret_cast<std::uint64_t*>(kernels.origin.address());
      lane.sync();
      EXPECT_EQ(write(lane, handle, {kOrigin, 0}, {0, kTarget, 24}, 8), Status::ok);
      EXPECT_EQ(flush(lane, handle, 0, kLong), Status::ok);
      EXPECT_EQ(compare_swap(lane, handle, {0, kTarget, 16}, name, 0, kLong, old), Status::ok);
      EXPECT_EQ(old, name);
    }
    EXPECT_EQ(barrier(lane, handle, kLong), Status::ok);
  });
  if (me.rank() == 0) {
    const auto* const words = reinterpret_cast<const std::uint64_t*>(kernels.target.address());
    EXPECT_EQ(words[1], 3 * rounds * me.rank_count());
    EXPECT_EQ(words[3], rounds * me.rank_count());
  }
  EXPECT_TRUE(is_ok(kernels.session->close(kPatience)));
}

RANK_BODY(meet_at_barriers) {
  Kernels kernels(me, fabric);
  ASSERT_TRUE(kernels.session);
  const DeviceFabric& handle = kernels.handle();
  const auto* const counts = reinterpret_cast<const std::uint64_t*>(kernels.target.address());
  std::memset(kernels.target.address(), 0, 8 * me.rank_count());
  ASSERT_TRUE(me.meet());
  for (std::uint64_t round = 1; round <= me.setup().amount; ++round) {
    *reinterpret_cast<std::uint64_t*>(kernels.origin.address()) = round;
    const device::Thread thread;
    for (Rank rank = 0; rank < me.rank_count(); ++rank) {
      ASSERT_EQ(write(thread, handle, {kOrigin, 0}, {rank, kTarget, 8 * me.rank()}, 8), Status::ok);
    }
    ASSERT_EQ(barrier(thread, handle, kLong), Status::ok);
    for (Rank rank = 0; rank < me.rank_count(); ++rank) ASSERT_EQ(counts[rank], round) << "rank " << rank;
    ASSERT_EQ(barrier(thread, handle, kLong), Status::ok);
  }
  // One that is out of time is called again and goes on.
  if (me.rank() == 0) {
    ASSERT_TRUE(me.meet());
    ASSERT_EQ(barrier(device::Thread(), handle, kLong), Status::ok);
  } else {
    ASSERT_EQ(barrier(device::Thread(), handle, kShort), Status::timed_out);
    ASSERT_TRUE(me.meet());
    ASSERT_EQ(barrier(device::Thread(), handle, kLong), Status::ok);
  }
  EXPECT_TRUE(is_ok(kernels.session->close(kPatience)));
}

// --- Queues that fail ------------------------------------------------------------------------------------------------------------

// Puts the first queue to `peer` in error, by a write behind the end of its segment, which fabric.hpp would refuse.
void break_queue(const DeviceFabric& handle, Rank peer) {
  device::Queue& queue = handle.queues[peer][0].queue;
  const device::Remote end = handle.segments[peer * handle.segment_count + kTarget].remote;
  device::Ticket ticket;
  const Status posted = device::post_inline_write<device::Sharing::device>(
      device::Thread{}, queue, {end.address + (1ULL << 40), end.key}, device::inline_value(1), ticket, kLong);
  EXPECT_EQ(posted, Status::ok);
  EXPECT_EQ(device::wait<device::Sharing::device>(device::Thread{}, queue, ticket, kLong), Status::peer_lost);
}

// One rank after the other makes its queue anew, whose peer knows nothing of it; what is not broken is made anew as well.
RANK_BODY(make_queues_anew) {
  Kernels kernels(me, fabric);
  ASSERT_TRUE(kernels.session);
  const DeviceFabric& handle = kernels.handle();
  const device::Thread thread;
  kernels.origin.put_pattern(0, kSpan, me.rank(), 0);
  const bool is_by_queue = me.setup().word == kByQueues;
  for (std::uint32_t round = 1; round <= 6; ++round) {
    const Rank peer = next_of(me);
    if (peer != me.rank() && round % me.rank_count() == me.rank()) {
      if (is_by_queue && round > 2) {
        break_queue(handle, peer);
        EXPECT_EQ(write(thread, handle, {kOrigin, 0}, {peer, kTarget, 0}, 8), Status::peer_lost);
        if (me.rank_count() > 2) {
          EXPECT_EQ(write(thread, handle, {kOrigin, 0}, {previous_of(me), kTarget, 0}, 8), Status::ok) << "another rank's queue";
        }
      }
      EXPECT_TRUE(is_ok(kernels.session->recover(peer, kPatience)));
    }
    const std::uint64_t bytes = round % 2 == 0 ? 24 : 100'000;
    EXPECT_EQ(write_notify(thread, handle, {kOrigin, round}, {peer, kTarget, 4096}, bytes, 7, round), Status::ok);
    std::uint32_t value = 0;
    EXPECT_EQ(notification_wait_until(thread, handle, kTarget, 7, round, kLong, value, previous_of(me)), Status::ok);
    EXPECT_TRUE(kernels.target.holds_pattern(4096, bytes, previous_of(me), round)) << "round " << round;
    device::SendRing to;
    device::RecvRing from;
    if (!is_by_queue) {  // rings go on
      ASSERT_EQ(open_ring(handle, peer, 0, to), Status::ok);
      ASSERT_EQ(open_ring(handle, previous_of(me), 0, from), Status::ok);
      EXPECT_EQ(send_value(thread, to, round, kLong), Status::ok);
      EXPECT_EQ(recv_value(thread, from, value, kLong), Status::ok);
      EXPECT_EQ(value, round);
      to.close(thread);
      from.close(thread);
    }
    EXPECT_EQ(barrier(thread, handle, kLong), Status::ok);
  }
  EXPECT_TRUE(fails(kernels.session->recover(me.rank(), kPatience), Status::invalid_argument));
  EXPECT_TRUE(is_ok(kernels.session->close(kPatience)));
}

// --- Lifetime --------------------------------------------------------------------------------------------------------------------

// A session outlives its Fabric object.
BARE_RANK_BODY(outlive_the_fabric) {
  auto opened = Fabric::open(me.options());
  ASSERT_TRUE(is_ok(opened));
  std::optional<Fabric> fabric(std::move(*opened));
  EXPECT_TRUE(fails(DeviceSession::open(*opened), Status::unavailable, "moved from"));
  RankMemory memory(MemoryChoice::stand_in, kSpan);
  ASSERT_TRUE(is_ok(fabric->register_segment(kTarget, memory.address(), kSpan)));
  auto session = DeviceSession::open(*fabric);
  ASSERT_TRUE(is_ok(session));
  fabric.reset();
  fill_pattern(memory.address(), 512, me.rank());
  ASSERT_TRUE(me.meet());
  ASSERT_EQ(write(device::Thread(), session->handle(), {kTarget, 0}, {next_of(me), kTarget, 4096}, 512), Status::ok);
  ASSERT_EQ(barrier(device::Thread(), session->handle(), kLong), Status::ok);
  EXPECT_TRUE(memory.holds_pattern(4096, 512, previous_of(me), 0));
  ASSERT_TRUE(me.meet());
  EXPECT_TRUE(is_ok(session->close(kPatience)));
  ASSERT_TRUE(me.meet());
}

// --- The tests -------------------------------------------------------------------------------------------------------------------

// Without the local transport there are none.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(FabricDeviceDirect);
class FabricDeviceDirect : public testing::TestWithParam<RankSetup> {};
TEST_P(FabricDeviceDirect, SegmentsAreMapped) { run_ranks("map_by_hand", GetParam()); }
TEST_P(FabricDeviceDirect, SessionsKeepTheirFabric) { run_ranks("outlive_the_fabric", GetParam()); }
INSTANTIATE_TEST_SUITE_P(Ranks, FabricDeviceDirect, testing::ValuesIn(direct_setups({1, 2, 3})), setup_name);

class FabricDevice : public testing::TestWithParam<RankSetup> {};
TEST_P(FabricDevice, WritesAndReadsOfAllSizes) { run_ranks("write_all_sizes", GetParam()); }
TEST_P(FabricDevice, NotificationsComeBehindTheirPayload) {
  RankSetup setup = GetParam();
  setup.amount = rounds(setup.word == kByQueues ? 300 : 1000);
  run_ranks("never_before_its_payload", setup);
}
TEST_P(FabricDevice, NumbersThatGrow) { run_ranks("wait_for_numbers", GetParam()); }
TEST_P(FabricDevice, Messages) { run_ranks("send_messages", GetParam()); }
TEST_P(FabricDevice, Channels) { run_ranks("speak_through_channels", GetParam()); }
TEST_P(FabricDevice, Atomics) {
  RankSetup setup = GetParam();
  setup.amount = rounds(setup.word == kByQueues ? 20 : 100);
  run_ranks("add_and_swap", setup);
}
TEST_P(FabricDevice, Barriers) {
  RankSetup setup = GetParam();
  setup.amount = rounds(setup.word == kByQueues ? 30 : 300);
  run_ranks("meet_at_barriers", setup);
}
TEST_P(FabricDevice, QueuesAreMadeAnew) { run_ranks("make_queues_anew", GetParam()); }
INSTANTIATE_TEST_SUITE_P(Ranks, FabricDevice, testing::ValuesIn(device_setups({1, 2, 3})), setup_name);

}  // namespace
}  // namespace gigabar::test
