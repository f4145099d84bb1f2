// SPDX-License-Identifier: Apache-2.0
// Copies that go on while the caller does something else, on a fake libcuda: their order, how their end is seen, and failures.
#include "memory/copy_stream.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>
#include <utility>
#include <vector>

#include "gigabar/memory.hpp"
#include "memory/cuda_context.hpp"
#include "memory/cuda_copy_stream.hpp"
#include "support/expect_log.hpp"
#include "support/fake_session.hpp"
#include "support/isolated.hpp"

namespace gigabar {
namespace {

using test::FakeSession;
using test::pattern;

constexpr std::size_t kBytes = 4096;
constexpr unsigned kCopies = 100;

struct Ends {
  Result<HostMemory> host = HostMemory::allocate(kBytes);
  Result<DeviceMemory> device = DeviceMemory::allocate(0, kBytes);

  Result<std::uint64_t> post_in(CopyStream& stream) const {
    return stream.post(CopyWay::to_device, device->address(), host->address(), kBytes);
  }
};

bool comes_to(CopyStream& stream, std::uint64_t ticket) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (std::chrono::steady_clock::now() < deadline) {
    const auto done = stream.done();
    if (!done) return false;
    if (*done >= ticket) return true;
    std::this_thread::yield();
  }
  return false;
}

void expect_copies_both_ways() {
  const Ends ends;
  ASSERT_TRUE(ends.host && ends.device);
  auto stream = CopyStream::open(0);
  ASSERT_TRUE(stream) << stream.error().message();
  auto* const bytes = static_cast<unsigned char*>(ends.host->address());
  for (unsigned turn = 0; turn < kCopies; ++turn) {
    const auto sent = pattern(kBytes, turn);
    std::ranges::copy(sent, bytes);
    const auto in = (*stream)->post(CopyWay::to_device, ends.device->address(), bytes, kBytes);
    ASSERT_TRUE(in) << in.error().message();
    EXPECT_EQ(*in, 2 * turn + 1);
    ASSERT_TRUE(comes_to(**stream, *in));
    std::fill_n(bytes, kBytes, static_cast<unsigned char>(0));
    const auto out = (*stream)->post(CopyWay::from_device, bytes, ends.device->address(), kBytes);
    ASSERT_TRUE(out) << out.error().message();
    ASSERT_TRUE(comes_to(**stream, *out));
    EXPECT_TRUE(std::ranges::equal(sent, std::vector<unsigned char>(bytes, bytes + kBytes))) << "turn " << turn;
  }
}

ISOLATED_TEST(CopyStream, CopiesBothWaysAndTellsByAWord) {
  FakeSession session;
  session.start();
  expect_copies_both_ways();
  EXPECT_EQ(FakeSession::counts().host_allocations, 0u) << "the word is given back";
}

ISOLATED_TEST(CopyStream, EventsStandInForTheWord) {
  FakeSession session;
  session.plant(fake::Call::cuda, "cuStreamWriteValue32", CUDA_ERROR_NOT_SUPPORTED);
  session.start();
  expect_copies_both_ways();
  EXPECT_EQ(FakeSession::counts().host_allocations, 0u);
}

ISOLATED_TEST(CopyStream, AnOldDriverHasNoSuchFunction) {
  FakeSession session;
  std::snprintf(session.machine().hidden_symbol, sizeof session.machine().hidden_symbol, "cuStreamWriteValue32");
  session.start();
  expect_copies_both_ways();
}

// A word is never written by a stream that failed: the driver is asked now and then.
ISOLATED_TEST(CopyStream, AFailureIsToldForGood) {
  FakeSession session;
  session.start();
  const Ends ends;
  ASSERT_TRUE(ends.host && ends.device);
  auto stream = CopyStream::open(0);
  ASSERT_TRUE(stream);
  session.plant(fake::Call::cuda, "cuStreamQuery", CUDA_ERROR_ILLEGAL_ADDRESS);
  const auto posted = ends.post_in(**stream);
  ASSERT_TRUE(posted);
  EXPECT_FALSE(comes_to(**stream, *posted));
  EXPECT_EQ((*stream)->done().status(), Status::device_error);
  session.remove_faults();
  const auto again = ends.post_in(**stream);
  EXPECT_EQ(again.status(), Status::device_error);
  EXPECT_EQ(again.error().record().native.name, "CUDA_ERROR_ILLEGAL_ADDRESS");
  stream->reset();
  const auto log = test::take_log();
  ASSERT_EQ(log.size(), 1u);
  EXPECT_NE(log.front().find("left to them"), std::string::npos) << log.front();
}

ISOLATED_TEST(CopyStream, ACopyThatDoesNotStartIsAnError) {
  FakeSession session;
  session.start();
  const Ends ends;
  ASSERT_TRUE(ends.host && ends.device);
  // What cannot be marked has started, and is left to itself.
  for (const auto& [call, logged] : {std::pair{"cuMemcpyHtoDAsync", 0u}, std::pair{"cuStreamWriteValue32", 1u}}) {
    auto stream = CopyStream::open(0);
    ASSERT_TRUE(stream);
    session.plant(fake::Call::cuda, call, CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_EQ(ends.post_in(**stream).status(), Status::device_error) << call;
    session.remove_faults();
    stream->reset();
    EXPECT_EQ(test::take_log().size(), logged) << call;
  }
  session.plant(fake::Call::cuda, "cuMemHostAlloc", CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(CopyStream::open(0).status(), Status::out_of_memory);
}

// --- The stream itself, with the context current
// ----------------------------------------------------------------------------------

ISOLATED_TEST(CudaCopyStream, TellsEachTimedPointOnceAndInOrder) {
  FakeSession session;
  session.start();
  const Ends ends;
  ASSERT_TRUE(ends.host && ends.device);
  const cuda::Functions& functions = cuda::driver().functions;
  const ContextGuard guard(functions, *primary_context(0));
  CudaCopyStream stream;
  ASSERT_EQ(stream.open(functions, CudaCopyStream::Points::timed_events, 7), CUDA_SUCCESS);
  const auto copy = [&] { return stream.copy(CopyWay::to_device, ends.device->address(), ends.host->address(), kBytes); };
  std::vector<std::uint64_t> told;
  const auto tell = [&](std::uint64_t number, CUevent event) {
    float elapsed_ms = -1;
    EXPECT_EQ(functions.cuEventElapsedTime(&elapsed_ms, event, event), CUDA_SUCCESS) << "it has a time";
    told.push_back(number);
    return CUDA_SUCCESS;
  };
  for (const unsigned copies : {0U, 2U, 1U}) {
    for (unsigned i = 0; i < copies; ++i) ASSERT_EQ(copy(), CUDA_SUCCESS);
    ASSERT_EQ(stream.record(), CUDA_SUCCESS);
  }
  EXPECT_EQ(stream.events_under_way(), 3U);
  EXPECT_EQ(stream.under_way(), 3U);
  while (stream.events_under_way() != 0) ASSERT_EQ(stream.look_at_events(tell), CUDA_SUCCESS);
  EXPECT_EQ(told, (std::vector<std::uint64_t>{7, 9, 10}));
  EXPECT_EQ(stream.finished(), 10U);
  // A point whose time cannot be told has not been passed.
  ASSERT_EQ(copy(), CUDA_SUCCESS);
  EXPECT_EQ(stream.behind_last_point(), 1U);
  ASSERT_EQ(stream.record(), CUDA_SUCCESS);
  EXPECT_EQ(stream.look_at_events([](std::uint64_t, CUevent) { return CUDA_ERROR_UNKNOWN; }), CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(stream.finished(), 10U);
  EXPECT_EQ(stream.look_at_events(tell), CUDA_SUCCESS);
  EXPECT_EQ(told.back(), 11U);
  stream.close();
}

ISOLATED_TEST(CudaCopyStream, WaitsWithoutAPointUntilItIsGivenUp) {
  FakeSession session;
  session.start();
  const Ends ends;
  ASSERT_TRUE(ends.host && ends.device);
  const cuda::Functions& functions = cuda::driver().functions;
  const ContextGuard guard(functions, *primary_context(0));
  CudaCopyStream stream;
  ASSERT_EQ(stream.open(functions, CudaCopyStream::Points::words), CUDA_SUCCESS);
  ASSERT_EQ(stream.copy(CopyWay::to_device, ends.device->address(), ends.host->address(), kBytes), CUDA_SUCCESS);
  session.plant(fake::Call::cuda, "cuStreamQuery", CUDA_ERROR_NOT_READY);
  unsigned asked = 0;
  EXPECT_EQ(stream.wait([&] { return ++asked == 3; }), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(asked, 3U);
  session.remove_faults();
  EXPECT_EQ(stream.wait([] { return true; }), CUDA_SUCCESS);
  EXPECT_EQ(stream.record(), CUDA_SUCCESS);
  while (stream.under_way() != 0) {
    ASSERT_EQ(stream.check(), CUDA_SUCCESS);
    ASSERT_EQ(stream.look(), CUDA_SUCCESS);
  }
  stream.close();
}

}  // namespace
}  // namespace gigabar
