// SPDX-License-Identifier: Apache-2.0
// Messages of rings between kernels of two ranks, on the hardware.
#include "gigabar/device/message.hpp"
#include "gpu/device_ranks.cuh"

namespace gigabar::test {
namespace {

constexpr std::uint32_t kRings = 64;
constexpr std::uint32_t kRingBytes = 16384, kPieceBytes = kRingBytes / 2 / 16 * 12 - 4;
constexpr std::uint64_t kRoomBytes = kSpan / kRings;  // of a scope's messages, in either segment

__device__ std::uint32_t scrambled(std::uint32_t a, std::uint32_t b) {
  const std::uint32_t mixed = (a * 0x9e3779b9U ^ b) * 0x85ebca6bU;
  return mixed ^ mixed >> 15;
}

__device__ std::uint32_t index_of(const gpu::Thread&) { return blockIdx.x * blockDim.x + threadIdx.x; }
__device__ std::uint32_t index_of(const gpu::Warp&) { return (blockIdx.x * blockDim.x + threadIdx.x) / 32; }
__device__ std::uint32_t index_of(const gpu::Block&) { return blockIdx.x; }

__device__ bool open_both(const DeviceFabric& fabric, Report* report, std::uint32_t unit, gpu::SendRing& to, gpu::RecvRing& from) {
  const Rank peer = 1 - fabric.rank;
  return is_ok(report, open_ring(fabric, peer, unit, to), 0) && is_ok(report, open_ring(fabric, peer, unit, from), 0);
}

// Messages in turn, of all sizes up to two pieces and at any address, into memory whose other bytes stay.
template <class Scope>
__global__ void __launch_bounds__(512, 1)
    exchange(DeviceFabric fabric, Report* report, std::uint8_t* sent, std::uint8_t* came, std::uint32_t rounds) {
  const Scope scope;
  const Rank peer = 1 - fabric.rank;
  const std::uint32_t unit = index_of(scope);
  gpu::SendRing to;
  gpu::RecvRing from;
  if (!open_both(fabric, report, unit, to, from)) return;
  sent += unit * kRoomBytes;
  came += unit * kRoomBytes;
  Status status = Status::ok;
  for (std::uint32_t round = 0; round < rounds && status == Status::ok; ++round) {
    const std::uint32_t size =
        round < 128 ? round : scrambled(unit, round) % static_cast<std::uint32_t>(2 * kPieceBytes / (round % 3 + 1) + 1);
    const std::uint32_t skew = round % 2 == 0 ? 4 : round % 7, room = size + round % 5 * 8, seed = unit << 16 | round;
    for (std::uint32_t turn = 0; turn < 2 && status == Status::ok; ++turn) {
      if ((turn == 0) == (fabric.rank == 0)) {
        for (std::uint32_t i = scope.rank(); i < size; i += scope.size()) {
          sent[skew + i] = static_cast<std::uint8_t>(scrambled(seed + fabric.rank, i));
        }
        scope.sync();
        status = send(scope, to, sent + skew, size, kLong);
        continue;
      }
      for (std::uint32_t i = scope.rank(); i < skew + room + 8; i += scope.size()) came[i] = 0xc5;
      scope.sync();
      std::uint64_t bytes = 0;
      status = recv(scope, from, came + skew, room, bytes, kLong);
      unsigned long long wrong = bytes != size ? 1 : 0;
      for (std::uint32_t i = scope.rank(); i < skew + room + 8; i += scope.size()) {
        const bool is_data = i >= skew && i < skew + size;
        wrong += came[i] != (is_data ? static_cast<std::uint8_t>(scrambled(seed + peer, i - skew)) : 0xc5) ? 1 : 0;
      }
      if (status == Status::ok && wrong != 0) atomicAdd(&report->wrong_count, wrong);
      scope.sync();
    }
    if (status != Status::ok) is_ok(report, status, round);
  }
  to.close(scope);
  from.close(scope);
}

// Values from rank 0 to rank 1 as fast as they go, around the ring many times. Short ones leave words of their line unused.
template <class Scope, class T>
__global__ void __launch_bounds__(512, 1) stream_values(DeviceFabric fabric, Report* report, std::uint32_t count) {
  const Scope scope;
  const std::uint32_t unit = index_of(scope);
  gpu::SendRing to;
  gpu::RecvRing from;
  if (!open_both(fabric, report, unit, to, from)) return;
  Status status = Status::ok;
  for (std::uint32_t i = 0; i < count && status == Status::ok; ++i) {
    const auto value = static_cast<T>(std::uint64_t{scrambled(unit, i)} << 16 ^ i);
    if (fabric.rank == 0) {
      status = send_value(scope, to, value, kLong);
      continue;
    }
    T found = 0;
    status = recv_value(scope, from, found, kLong);
    if (status == Status::ok && found != value) atomicAdd(&report->wrong_count, 1ULL);
  }
  if (status != Status::ok) is_ok(report, status, 1);
  to.close(scope);
  from.close(scope);
}

// Messages of one piece from rank 0 to rank 1 as fast as the ring lets them.
template <class Scope>
__global__ void __launch_bounds__(512, 1)
    stream_messages(DeviceFabric fabric, Report* report, std::uint8_t* memory, std::uint32_t count) {
  const Scope scope;
  const std::uint32_t unit = index_of(scope);
  gpu::SendRing to;
  gpu::RecvRing from;
  if (!open_both(fabric, report, unit, to, from)) return;
  auto* const came = reinterpret_cast<std::uint32_t*>(memory + unit * kRoomBytes);
  Status status = Status::ok;
  for (std::uint32_t i = 0; i < count && status == Status::ok; ++i) {
    const std::uint32_t words = 1 + scrambled(unit, i) % (i % 8 == 0 ? kPieceBytes / 4 : 200U), seed = unit << 20 ^ i;
    if (fabric.rank == 0) {
      status = send_words(scope, to, words * 4, [=](std::uint32_t word) { return scrambled(seed, word); }, kLong);
      continue;
    }
    std::uint64_t bytes = 0;
    status = recv(scope, from, came, kPieceBytes, bytes, kLong);
    unsigned long long wrong = bytes != words * 4 ? 1 : 0;
    for (std::uint32_t word = scope.rank(); word < words; word += scope.size())
      wrong += came[word] != scrambled(seed, word) ? 1 : 0;
    if (status == Status::ok && wrong != 0) atomicAdd(&report->wrong_count, wrong);
    scope.sync();
  }
  if (status != Status::ok) is_ok(report, status, 1);
  to.close(scope);
  from.close(scope);
}

// Rank 1 answers each word of rank 0's messages.
template <class Scope>
__global__ void __launch_bounds__(512, 1) reply(DeviceFabric fabric, Report* report, std::uint8_t* memory, std::uint32_t count) {
  const Scope scope;
  const std::uint32_t unit = index_of(scope);
  gpu::SendRing to;
  gpu::RecvRing from;
  if (!open_both(fabric, report, unit, to, from)) return;
  auto* const came = reinterpret_cast<std::uint32_t*>(memory + unit * kRoomBytes);
  Status status = Status::ok;
  for (std::uint32_t i = 0; i < count && status == Status::ok; ++i) {
    const std::uint32_t words = scrambled(unit, i) % (i % 8 == 0 ? kPieceBytes / 4 + 1 : 200U), seed = unit << 20 ^ i;
    const auto answer = [=](std::uint32_t word, std::uint32_t found) { return scrambled(found, word); };
    std::uint64_t bytes = 0;
    unsigned long long wrong = 0;
    if (fabric.rank == 1) {
      status = reply_words(scope, from, to, answer, bytes, kLong);
    } else {
      status = send_words(scope, to, words * 4, [=](std::uint32_t word) { return scrambled(seed, word); }, kLong);
      if (status == Status::ok) status = recv(scope, from, came, kPieceBytes, bytes, kLong);
      for (std::uint32_t word = scope.rank(); word < words; word += scope.size())
        wrong += came[word] != scrambled(scrambled(seed, word), word) ? 1 : 0;
      scope.sync();
    }
    wrong += bytes != words * 4 ? 1 : 0;
    if (status == Status::ok && wrong != 0) atomicAdd(&report->wrong_count, wrong);
  }
  if (status != Status::ok) is_ok(report, status, 1);
  to.close(scope);
  from.close(scope);
}

// Rank 0 sends one message of 100 bytes.
__global__ void __launch_bounds__(512, 1) receive_in_vain(DeviceFabric fabric, Report* report, std::uint8_t* memory) {
  const gpu::Block scope;
  gpu::SendRing to;
  gpu::RecvRing from;
  if (!open_both(fabric, report, 0, to, from)) return;
  if (fabric.rank == 0) {
    is_ok(report, send(scope, to, memory, 100, kLong), 1);
  } else {
    std::uint64_t bytes = 0;
    const Status too_small = recv(scope, from, memory, 96, bytes, kLong);
    const bool is_told = too_small == Status::out_of_range && bytes == 100;
    is_ok(report, recv(scope, from, memory, 100, bytes, kLong), 2);
    const bool is_whole = bytes == 100;
    const Status nothing = recv(scope, from, memory, 100, bytes, {50'000'000});
    if (!is_told || !is_whole || nothing != Status::timed_out || bytes != 0) atomicAdd(&report->wrong_count, 1ULL);
  }
  to.close(scope);
  from.close(scope);
}

template <class W>
class DeviceMessageTest : public DeviceFabricTest<W> {
 public:
  DeviceMessageTest() {
    for (TestRank& rank : this->ranks_) {
      rank.ring_count = kRings;
      rank.ring_bytes = kRingBytes;
    }
  }
};
using MessageWays =
    testing::Types<Way<gpu::Thread, QueueUse::never>, Way<gpu::Warp, QueueUse::never>, Way<gpu::Block, QueueUse::never>>;
TYPED_TEST_SUITE(DeviceMessageTest, MessageWays);

TYPED_TEST(DeviceMessageTest, EveryByteOfEverySizeArrives) {
  using Scope = typename TypeParam::Scope;
  constexpr bool kIsBlock = std::is_same_v<Scope, gpu::Block>, kIsWarp = std::is_same_v<Scope, gpu::Warp>;
  this->load(exchange<Scope>);
  for (const unsigned threads : {32U, 96U, 512U}) {
    const unsigned units = kIsBlock ? 1 : kIsWarp ? threads / 32 : threads;
    if (units > kRings) continue;
    for (const TestRank& rank : this->ranks_) {
      this->launch_at(rank, exchange<Scope>, kRings / units < 4 ? 1 : 4, threads,
                      static_cast<std::uint8_t*>(rank.origin->address()), static_cast<std::uint8_t*>(rank.target->address()),
                      kIsBlock || kIsWarp ? 600 : 200);
    }
    for (const TestRank& rank : this->ranks_) rank.expect_ok();
  }
}

TYPED_TEST(DeviceMessageTest, ManyStreamsOfValuesAtOnce) {
  using Scope = typename TypeParam::Scope;
  constexpr bool kIsBlock = std::is_same_v<Scope, gpu::Block>;
  const unsigned threads = std::is_same_v<Scope, gpu::Thread> ? 8 : 256, blocks = kIsBlock ? 32 : 8;
  this->load(stream_values<Scope, std::uint16_t>);
  this->load(stream_values<Scope, std::uint32_t>);
  this->load(stream_values<Scope, std::uint64_t>);
  this->launch(stream_values<Scope, std::uint16_t>, blocks, threads, 20000U);
  for (const TestRank& rank : this->ranks_) rank.expect_ok();
  this->launch(stream_values<Scope, std::uint32_t>, blocks, threads, 200000U);
  for (const TestRank& rank : this->ranks_) rank.expect_ok();
  this->launch(stream_values<Scope, std::uint64_t>, blocks, threads, 20000U);
  for (const TestRank& rank : this->ranks_) rank.expect_ok();
}

TYPED_TEST(DeviceMessageTest, ManyStreamsOfMessagesAtOnce) {
  using Scope = typename TypeParam::Scope;
  constexpr bool kIsBlock = std::is_same_v<Scope, gpu::Block>;
  const unsigned threads = std::is_same_v<Scope, gpu::Thread> ? 8 : 256, blocks = kIsBlock ? 32 : 8;
  this->load(stream_messages<Scope>);
  for (const TestRank& rank : this->ranks_) {
    this->launch_at(rank, stream_messages<Scope>, blocks, threads, static_cast<std::uint8_t*>(rank.target->address()),
                    std::is_same_v<Scope, gpu::Thread> ? 2000U : 20000U);
  }
  for (const TestRank& rank : this->ranks_) rank.expect_ok();
}

TYPED_TEST(DeviceMessageTest, EveryWordIsAnswered) {
  using Scope = typename TypeParam::Scope;
  constexpr bool kIsBlock = std::is_same_v<Scope, gpu::Block>;
  this->load(reply<Scope>);
  for (const unsigned threads : {32U, 256U}) {
    const unsigned used = std::is_same_v<Scope, gpu::Thread> ? 8 : threads, blocks = kIsBlock ? 32 : 8;
    for (const TestRank& rank : this->ranks_) {
      this->launch_at(rank, reply<Scope>, blocks, used, static_cast<std::uint8_t*>(rank.target->address()),
                      std::is_same_v<Scope, gpu::Thread> ? 2000U : 20000U);
    }
    for (const TestRank& rank : this->ranks_) rank.expect_ok();
  }
}

using MessageTest = DeviceMessageTest<Way<gpu::Block, QueueUse::never>>;
TEST_F(MessageTest, TooLongAMessageStaysAndAWaitEnds) {
  this->load(receive_in_vain);
  for (const TestRank& rank : this->ranks_) {
    this->launch_at(rank, receive_in_vain, 1, 64, static_cast<std::uint8_t*>(rank.target->address()));
  }
  for (const TestRank& rank : this->ranks_) rank.expect_ok();
}

}  // namespace
}  // namespace gigabar::test
