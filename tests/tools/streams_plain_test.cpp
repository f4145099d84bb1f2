// SPDX-License-Identifier: Apache-2.0
// streams --plain on a fake GPU: the command as it is, and a run-time of CUDA that this test plays. What it copies, how often, and
// what is printed and written of it.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cuda/runtime.hpp"
#include "gigabar/mapping.hpp"
#include "gigabar/memory.hpp"
#include "streams/command.hpp"
#include "support/failure.hpp"
#include "support/fake_session.hpp"
#include "support/isolated.hpp"
#include "support/options.hpp"
#include "support/temporary_folder.hpp"

namespace gigabar::tool {
namespace {

struct PlainCopy {
  int device;
  bool is_to_device;
  HostPages pages;
  std::size_t bytes;
  std::uint64_t count;
};
std::vector<PlainCopy> plain_copies;
bool fails = false;

bool is_device_memory(const void* address) {
  const auto info = describe(address);
  EXPECT_TRUE(info);
  return info && info->device >= 0;
}

}  // namespace

// In place of CUDA's run-time: 10 GB/s to the device and 20 from it, 1 GB/s more with each call for the same direction.
Result<double> plain_copy_rate(int device, void* destination, const void* source, std::size_t bytes, std::uint64_t count) {
  if (fails)
    return Error({.status = Status::device_error,
                  .operation = "time copies",
                  .object = "cudaMemcpyAsync",
                  .native = {},
                  .cause = "the bus is gone",
                  .remedy = {}});
  const bool is_to_device = is_device_memory(destination);
  EXPECT_NE(is_device_memory(source), is_to_device);
  const auto host = describe(is_to_device ? source : destination);
  const bool is_pinned = host && host->kind == MemoryKind::host_pinned;
  double rate = is_to_device ? 10 : 20;
  for (const PlainCopy& before : plain_copies) rate += before.is_to_device == is_to_device ? 1 : 0;
  plain_copies.push_back({device, is_to_device, is_pinned ? HostPages::pinned : HostPages::pageable, bytes, count});
  return rate;
}

namespace streams {
namespace {

using test::FakeSession;
using Json = nlohmann::json;

Options options_of(std::vector<Argument> arguments) {
  Options options;
  options.arguments = std::move(arguments);
  options.bytes = 64 << 10;
  options.iterations = 20;
  options.repeat_count = 2;
  options.times_plain_copies = true;
  return options;
}

void start(FakeSession& session) {
  session.machine().gpu_count = 2;
  session.start();
}

struct Outcome {
  std::string text;
  std::string failure;  // how the command ended when all was not well
};

Outcome outcome_of(const Options& options) {
  Outcome outcome;
  testing::internal::CaptureStdout();
  try {
    run(options, Invocation{{"gigabar", "streams"}});
  } catch (const CommandFailure& failure) {
    outcome.failure = std::to_string(failure.exit_status()) + ": " + failure.what();
  }
  outcome.text = testing::internal::GetCapturedStdout();
  return outcome;
}

std::string text_of(const Options& options) {
  Outcome outcome = outcome_of(options);
  EXPECT_EQ(outcome.failure, "");
  if (testing::Test::HasFailure()) std::fputs(outcome.text.c_str(), stderr);  // and what failed while it was captured
  return std::move(outcome.text);
}

// The line of the transfer's plain copies; empty when there is none.
std::string plain_line(const std::string& text, std::size_t transfer) {
  const std::string begin = "\n" + std::to_string(transfer) + ": plain cudaMemcpyAsync, alone: ";
  const std::size_t at = text.find(begin);
  return at == std::string::npos ? "" : text.substr(at + begin.size(), text.find('\n', at + 1) - at - begin.size());
}

ISOLATED_TEST(StreamsPlain, PrintsWhatPlainCopiesReachAndTheTransfersPartOfIt) {
  FakeSession session;
  start(session);
  using Kind = Argument::Kind;
  const std::string text =
      text_of(options_of({{Kind::host_to_device, "0"}, {Kind::device_to_host, "1"}, {Kind::device_to_device, "1,0"}}));
  // Two samples before the run and two after it: the median of 10 to 13 and of 20 to 23, and their range.
  for (const auto& [transfer, figures] :
       {std::pair{0U, "11.500 GB/s (10.000..13.000)"}, std::pair{1U, "21.500 GB/s (20.000..23.000)"}}) {
    const std::string line = plain_line(text, transfer);
    EXPECT_TRUE(line.starts_with(std::string(figures) + "; this transfer: ")) << text;
    EXPECT_TRUE(line.ends_with(" of it")) << line;
  }
  EXPECT_EQ(plain_line(text, 2), "") << "a copy between GPUs has no plain form";
  EXPECT_NE(text.find("gpu0->gpu1 ce-pull"), std::string::npos) << text;
  EXPECT_EQ(text.find("stand-in"), std::string::npos) << text;

  ASSERT_EQ(plain_copies.size(), 8U);
  for (std::size_t i = 0; i < plain_copies.size(); ++i) {
    EXPECT_EQ(plain_copies[i].is_to_device, i % 2 == 0) << "one after the other";
    EXPECT_EQ(plain_copies[i].device, i % 2 == 0 ? 0 : 1);
    EXPECT_EQ(plain_copies[i].pages, HostPages::pinned);
    EXPECT_EQ(plain_copies[i].bytes, std::size_t{64} << 10);
    EXPECT_EQ(plain_copies[i].count, 20U);
  }
}

ISOLATED_TEST(StreamsPlain, CopiesAsManyAsOneRepeatHasWithinAHundredOverTheSameKindOfMemory) {
  FakeSession session;
  start(session);
  using Kind = Argument::Kind;
  Options options = options_of({{Kind::text, "host->gpu0 iterations=200 pages=pageable"},
                                {Kind::text, "host->gpu0 seconds=0.01"},
                                {Kind::text, "host->gpu0 cpu"}});
  options.repeat_count = 1;
  const std::string text = text_of(options);
  ASSERT_EQ(plain_copies.size(), 4U);
  EXPECT_EQ(plain_copies[0].count, 100U);
  EXPECT_EQ(plain_copies[0].pages, HostPages::pageable);
  EXPECT_EQ(plain_copies[1].count, 1U) << "a transfer of seconds has no count";
  EXPECT_EQ(plain_copies[1].pages, HostPages::pinned);
  EXPECT_EQ(plain_line(text, 2), "") << "CPU threads have no plain form";
  trim_mapping_cache(0);
}

ISOLATED_TEST(StreamsPlain, IsInTheDocumentWithEverySample) {
  FakeSession session;
  start(session);
  const test::TemporaryFolder folder;
  using Kind = Argument::Kind;
  Options options = options_of({{Kind::device_to_device, "1,0"}, {Kind::device_to_host, "0"}});
  options.json_path = folder.path() + "/streams.json";
  text_of(options);
  std::ifstream file(options.json_path);
  const Json transfers = Json::parse(file)["results"][0]["transfers"];
  EXPECT_FALSE(transfers[0].contains("plain_cudaMemcpyAsync_gb_per_s"));
  EXPECT_EQ(transfers[1]["plain_cudaMemcpyAsync_gb_per_s"],
            (Json{{"median", 21.5}, {"min", 20}, {"max", 23}, {"samples", {20, 21, 22, 23}}}));
}

ISOLATED_TEST(StreamsPlain, AFailureEndsTheCommandWithItsCause) {
  FakeSession session;
  start(session);
  fails = true;
  const Outcome outcome = outcome_of(options_of({{Argument::Kind::host_to_device, "0"}}));
  EXPECT_EQ(outcome.failure, "1: time copies: cudaMemcpyAsync: the bus is gone");
  EXPECT_EQ(plain_line(outcome.text, 0), "");
}

}  // namespace
}  // namespace streams
}  // namespace gigabar::tool
