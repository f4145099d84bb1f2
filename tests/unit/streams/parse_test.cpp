// SPDX-License-Identifier: Apache-2.0
// The text form of transfers: what it means, where it is refused, and that it never does anything else.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <string>
#include <vector>

#include "base/options.hpp"
#include "streams/plan.hpp"

namespace gigabar {
namespace {

constexpr int kDevices = 4;
constexpr int kHost = StreamPlace::kHost;

bool has(const std::string& line, std::string_view part) { return line.find(part) != std::string::npos; }

std::vector<Transfer> parsed(std::string_view text, const Transfer& defaults = {}, int device_count = kDevices) {
  auto transfers = parse_transfers(text, defaults, device_count);
  EXPECT_TRUE(transfers.is_ok()) << text << ": " << transfers.error().message();
  return transfers ? std::move(transfers).value() : std::vector<Transfer>();
}

Transfer parsed_one(std::string_view text, const Transfer& defaults = {}) {
  const auto transfers = parsed(text, defaults);
  EXPECT_EQ(transfers.size(), 1U) << text;
  return transfers.empty() ? Transfer{} : transfers.front();
}

// "0>1 0>h": the ends, for tests of expansion.
std::string routes(std::string_view text, int device_count = kDevices) {
  const auto name = [](const StreamPlace& place) { return place.is_host() ? std::string("h") : std::to_string(place.device); };
  std::string line;
  for (const Transfer& transfer : parsed(text, {}, device_count)) {
    line += (line.empty() ? "" : " ") + name(transfer.source) + ">" + name(transfer.destination);
  }
  return line;
}

// Refused at `column`, with `part` in the cause and a remedy.
void refuse(std::string_view text, std::size_t column, std::string_view part, int device_count = kDevices) {
  const auto transfers = parse_transfers(text, {}, device_count, 7);
  ASSERT_FALSE(transfers.is_ok()) << text;
  const ErrorRecord& record = transfers.error().record();
  EXPECT_EQ(record.status, Status::invalid_argument);
  EXPECT_EQ(record.operation, "read transfer");
  EXPECT_EQ(record.object, "7:" + std::to_string(column)) << text << ": " << record.message();
  EXPECT_TRUE(has(record.cause, part)) << text << ": " << record.message();
  EXPECT_FALSE(record.remedy.empty()) << text;
}

TEST(Parse, TakesWhatIsNotSaidFromTheDefaults) {
  Transfer from_gpu;
  from_gpu.source.device = 1;
  EXPECT_EQ(parsed_one("gpu1->host"), from_gpu);
  Transfer defaults;
  defaults.executor = StreamExecutor::kernel;
  defaults.side = StreamSide::destination;
  defaults.worker_count = 12;
  defaults.bytes = 4096;
  defaults.iterations = 0;
  defaults.seconds = 3;
  defaults.delay_seconds = 1;
  defaults.group = "all";
  defaults.is_background = defaults.is_latency = defaults.may_stage = true;
  defaults.source.pages = HostPages::huge;
  defaults.source.numa_node = StreamPlace::kAnyNode;
  Transfer expected = defaults;
  expected.destination.device = 2;
  EXPECT_EQ(parsed_one("host->gpu2", defaults), expected);
}

TEST(Parse, ReadsEveryExecutor) {
  const auto reads = [](std::string_view word, StreamExecutor executor, StreamSide side, unsigned workers = 0) {
    const Transfer transfer = parsed_one("host->gpu0 " + std::string(word));
    EXPECT_EQ(transfer.executor, executor) << word;
    EXPECT_EQ(transfer.side, side) << word;
    EXPECT_EQ(transfer.worker_count, workers) << word;
  };
  reads("ce", StreamExecutor::copy_engine, StreamSide::automatic);
  reads("ce-push", StreamExecutor::copy_engine, StreamSide::source);
  reads("ce-pull", StreamExecutor::copy_engine, StreamSide::destination);
  reads("sm", StreamExecutor::kernel, StreamSide::automatic);
  reads("sm:64", StreamExecutor::kernel, StreamSide::automatic, 64);
  reads("sm-push", StreamExecutor::kernel, StreamSide::source);
  reads("sm-pull:65535", StreamExecutor::kernel, StreamSide::destination, 65535);
  reads("cpu", StreamExecutor::cpu, StreamSide::automatic);
  reads("cpu:256", StreamExecutor::cpu, StreamSide::automatic, 256);
  reads("flag", StreamExecutor::flag, StreamSide::automatic);
  reads("chase", StreamExecutor::pointer_chase, StreamSide::automatic);
}

TEST(Parse, KeepsTheDefaultWorkersForTheSameExecutorOnly) {
  Transfer defaults;
  defaults.executor = StreamExecutor::kernel;
  defaults.worker_count = 12;
  EXPECT_EQ(parsed_one("host->gpu0 sm-pull", defaults).worker_count, 12U);
  EXPECT_EQ(parsed_one("host->gpu0 cpu", defaults).worker_count, 0U);
}

TEST(Parse, ReadsEveryKeyAndWordInAnyOrder) {
  const Transfer transfer =
      parsed_one("host:3->gpu0 latency group=a.b bytes=3k sm stage iterations=7 delay=0.25 background pages=wc");
  EXPECT_EQ(transfer.source, (StreamPlace{kHost, HostPages::write_combined, 3}));
  EXPECT_EQ(transfer.destination, StreamPlace{.device = 0});
  EXPECT_EQ(transfer.executor, StreamExecutor::kernel);
  EXPECT_EQ(transfer.bytes, 3072U);
  EXPECT_EQ(transfer.iterations, 7U);
  EXPECT_EQ(transfer.delay_seconds, 0.25);
  EXPECT_EQ(transfer.group, "a.b");
  EXPECT_TRUE(transfer.is_background && transfer.is_latency && transfer.may_stage);
}

TEST(Parse, ReadsHostPlaces) {
  EXPECT_EQ(parsed_one("host->gpu0").source.numa_node, StreamPlace::kNearestNode);
  EXPECT_EQ(parsed_one("host:any->gpu0").source.numa_node, StreamPlace::kAnyNode);
  EXPECT_EQ(parsed_one("gpu0->host:1").destination.numa_node, 1);
  EXPECT_EQ(parsed_one("gpu0->host pages=pageable").destination.pages, HostPages::pageable);
  EXPECT_EQ(parsed_one("gpu0->host pages=huge").source, StreamPlace{.device = 0}) << "pages are the host end's";
  const Transfer both = parsed_one("host->host cpu pages=huge");
  EXPECT_EQ(both.source.pages, HostPages::huge);
  EXPECT_EQ(both.destination.pages, HostPages::huge);
  const Transfer different = parsed_one("host->host cpu pages=pageable,pinned");
  EXPECT_EQ(different.source.pages, HostPages::pageable);
  EXPECT_EQ(different.destination.pages, HostPages::pinned);
}

TEST(Parse, TheLengthThatIsWrittenReplacesTheOther) {
  const Transfer timed = parsed_one("gpu0->host seconds=2.5");
  EXPECT_EQ(timed.iterations, 0U);
  EXPECT_EQ(timed.seconds, 2.5);
  const Transfer counted = parsed_one("gpu0->host iterations=5", timed);
  EXPECT_EQ(counted.iterations, 5U);
  EXPECT_EQ(counted.seconds, 0);
  const Transfer both = parsed_one("gpu0->host seconds=1e-3 iterations=0");
  EXPECT_EQ(both.iterations, 0U);
  EXPECT_EQ(both.seconds, 0.001);
}

TEST(Parse, ExpandsSetsToPairsOfDifferentDevices) {
  EXPECT_EQ(routes("gpu*->host"), "0>h 1>h 2>h 3>h");
  EXPECT_EQ(routes("host->gpu[0,2]"), "h>0 h>2");
  EXPECT_EQ(routes("host->gpu[3,0..1]"), "h>3 h>0 h>1");
  EXPECT_EQ(routes("gpu[0..1]->gpu[1..2]"), "0>1 0>2 1>2");
  EXPECT_EQ(routes("gpu*->gpu*", 3), "0>1 0>2 1>0 1>2 2>0 2>1");
  EXPECT_EQ(routes("gpu0->gpu*"), "0>1 0>2 0>3");
  EXPECT_EQ(routes("gpu1->gpu1"), "1>1");
  EXPECT_EQ(routes("gpu[0]->gpu1"), "0>1");
  EXPECT_EQ(routes("gpu*->host", 1), "0>h");
}

TEST(Parse, CountRepeatsEachPair) {
  EXPECT_EQ(routes("gpu[0,1]->host count=2"), "0>h 0>h 1>h 1>h");
  const auto transfers = parsed("gpu0->host count=4096");
  ASSERT_EQ(transfers.size(), 4096U);
  EXPECT_EQ(transfers.front(), transfers.back());
}

TEST(Parse, ReadsSeveralAndComments) {
  EXPECT_EQ(routes("gpu0->host ; host->gpu1;gpu1->gpu2 # gpu9->nowhere ; host"), "0>h h>1 1>2");
  EXPECT_EQ(routes("\t gpu0->host;; \r\n"), "0>h");
  EXPECT_EQ(routes("gpu0->host#without a space"), "0>h");
}

TEST(Parse, EmptyLinesGiveNothing) {
  for (const std::string_view text : {"", "   ", "\n", "# only this", ";", " ; ;# x", "\t\r\n"}) {
    EXPECT_TRUE(parsed(text).empty()) << "'" << text << "'";
  }
  EXPECT_TRUE(parsed("", {}, 0).empty());
}

TEST(Refuse, DevicesThatAreNot) {
  refuse("gpu9->host", 1, "\"gpu9\" does not exist; this machine has gpu0 to gpu1", 2);
  refuse("host->gpu4", 7, "gpu4");
  refuse("  gpu0->gpu1; host->gpu7", 21, "gpu7");
  refuse("gpu[0,5]->host", 7, "\"5\" does not exist");
  refuse("gpu[0..5]->host", 8, "\"5\" does not exist");
  refuse("gpu99999999999999999999->host", 1, "does not exist");
  refuse("gpu0->host", 1, "shows no GPUs", 0);
  refuse("gpu*->host", 1, "shows no GPUs", 0);
  refuse("gpu0->gpu1", 7, "gpu0 only", 1);
  refuse("gpu0->host", 1, "shows no GPUs", -5);
}

TEST(Refuse, Places) {
  refuse("gpu->host", 1, "no device");
  refuse("gpu-1->host", 1, "no device");
  refuse("gpux->host", 1, "no device");
  refuse("cpu0->host", 1, "no place; expected gpuN");
  refuse("->host", 1, "no place");
  refuse("gpu0->", 7, "no place");
  refuse("gpu0->host->gpu1", 7, "no place");
  refuse("gpu0->hosts", 7, "no place");
  refuse("gpu0->host:", 12, "no NUMA node");
  refuse("gpu0->host:-1", 12, "no NUMA node");
  refuse("gpu0->host:1024", 12, "no NUMA node");
  refuse("gpu0->host:1x", 12, "no NUMA node");
  refuse("gpu0", 1, "no pair of ends");
  refuse("gpu0-", 1, "no pair of ends");  // what a shell leaves of it
  refuse("gpu0 -> host", 1, "without spaces");
  refuse("ce gpu0->host", 1, "no pair of ends");
}

TEST(Refuse, Sets) {
  refuse("gpu[]->host", 5, "no device");
  refuse("gpu[->host", 1, "not closed");
  refuse("gpu[0->host", 1, "not closed");
  refuse("gpu[0,]->host", 7, "no device");
  refuse("gpu[,0]->host", 5, "no device");
  refuse("gpu[0..]->host", 8, "no device");
  refuse("gpu[..1]->host", 5, "no device");
  refuse("gpu[0..1..2]->host", 8, "no device");
  refuse("gpu[2..1]->host", 5, "backwards");
  refuse("gpu[0,1,0]->host", 9, "second time");
  refuse("gpu[0..2,1]->host", 10, "second time");
  refuse("gpu[0]->gpu0", 1, "no pair of different devices");
  refuse("gpu*->gpu*", 1, "no pair of different devices", 1);
}

TEST(Refuse, UnknownWordsAndKeys) {
  refuse("gpu0->host dma", 12, "expected an executor (ce, ce-push");
  refuse("gpu0->host ce fast", 15, "background, latency, stage");
  refuse("gpu0->host bites=4", 12, "expected bytes, iterations, seconds, delay, pages, group, count");
  refuse("gpu0->host =4", 12, "unknown key");
  refuse("gpu0->host bytes", 12, "KEY=VALUE");
  refuse("gpu0->host CE", 12, "unknown");
}

TEST(Refuse, RepeatedWordsAndKeys) {
  refuse("gpu0->host bytes=4 bytes=4", 20, "second time");
  refuse("gpu0->host ce sm", 15, "second executor");
  refuse("gpu0->host latency latency", 20, "second time");
  refuse("gpu0->host iterations=5 seconds=1", 33, "second length");
}

TEST(Refuse, Values) {
  refuse("gpu0->host bytes=", 18, "no size");
  refuse("gpu0->host bytes=0", 18, "no size");
  refuse("gpu0->host bytes=4T", 18, "no size");
  refuse("gpu0->host bytes=65537G", 18, "no size");
  refuse("gpu0->host bytes=99999999999999999999G", 18, "no size");
  refuse("gpu0->host bytes=-1", 18, "no size");
  refuse("gpu0->host iterations=1.5", 23, "no number");
  refuse("gpu0->host iterations=18446744073709551616", 23, "no number");
  refuse("gpu0->host seconds=0", 20, "no duration");
  refuse("gpu0->host seconds=-1", 20, "no duration");
  refuse("gpu0->host seconds=86401", 20, "no duration");
  refuse("gpu0->host seconds=nan", 20, "no duration");
  refuse("gpu0->host seconds=inf", 20, "no duration");
  refuse("gpu0->host seconds=1e999", 20, "no duration");
  refuse("gpu0->host seconds=5s", 20, "no duration");
  refuse("gpu0->host delay=3601", 18, "no delay");
  refuse("gpu0->host pages=large", 18, "pinned, pageable, wc or huge");
  refuse("gpu0->host pages=pinned,huge", 18, "more kinds");
  refuse("host->host pages=pinned,", 25, "no kind of host pages");
  refuse("gpu0->gpu1 pages=pinned", 18, "neither end");
  refuse("gpu0->host group=", 18, "no name");
  refuse("gpu0->host group=" + std::string(65, 'x'), 18, "no name");
  refuse("gpu0->host group=a\x1b", 18, "\"a?\"");
  refuse("gpu0->host count=0", 18, "no count");
  refuse("gpu0->host count=4097", 18, "no count");
}

TEST(Refuse, WorkerCounts) {
  refuse("gpu0->host sm:", 15, "1 to 65535");
  refuse("gpu0->host sm:0", 15, "1 to 65535");
  refuse("gpu0->host sm-push:65536", 20, "1 to 65535");
  refuse("gpu0->host cpu:257", 16, "1 to 256");
  refuse("gpu0->host ce:2", 12, "no blocks or threads");
  refuse("gpu0->host flag:2", 12, "no blocks or threads");
}

TEST(Refuse, MoreTransfersThanOneLineMayMake) {
  refuse("gpu[0,1]->host count=4096", 1, "more than 4096");
  refuse("gpu0->host count=4096; host->gpu0", 24, "more than 4096");
  refuse("gpu*->gpu*", 1, "more than 4096", 100);
  refuse("gpu*->host", 1, "more than 4096", 2000000000);
  refuse("gpu[0..1999999999]->host", 5, "more than 4096", 2000000000);
}

TEST(Refuse, LineBreaks) { refuse("# first\ngpu0->host", 8, "line break"); }

// --- properties

class RandomText {
 public:
  explicit RandomText(unsigned seed) : engine_(seed) {}

  std::size_t below(std::size_t count) { return std::uniform_int_distribution<std::size_t>(0, count - 1)(engine_); }
  bool is_heads() { return below(2) == 0; }
  template <class Item, std::size_t kCount>
  const Item& one_of(const std::array<Item, kCount>& items) {
    return items[below(kCount)];
  }

  double seconds() { return std::uniform_real_distribution<double>(1e-9, 3600)(engine_); }

  StreamPlace place() {
    StreamPlace place;
    if (is_heads()) {
      place.device = static_cast<int>(below(16));
      return place;
    }
    place.pages = one_of(std::array{HostPages::pinned, HostPages::pageable, HostPages::write_combined, HostPages::huge});
    place.numa_node = static_cast<int>(below(6)) - 2;
    return place;
  }

  // Any transfer that says nothing that is not used.
  Transfer transfer() {
    Transfer transfer;
    transfer.source = place();
    transfer.destination = place();
    transfer.executor = static_cast<StreamExecutor>(below(kStreamExecutorCount));
    const bool is_kernel = transfer.executor == StreamExecutor::kernel;
    if (is_kernel || transfer.executor == StreamExecutor::copy_engine) transfer.side = static_cast<StreamSide>(below(3));
    if (is_kernel || transfer.executor == StreamExecutor::cpu) transfer.worker_count = static_cast<unsigned>(below(257));
    transfer.bytes = (1 + below(1 << 16)) << below(31);
    transfer.iterations = is_heads() ? 0 : below(std::size_t{1} << 60);
    if (transfer.iterations == 0 && is_heads()) transfer.seconds = seconds();
    if (is_heads()) transfer.delay_seconds = seconds();
    if (is_heads()) transfer.group = one_of(std::array<std::string, 3>{"a", "=->gpu*", "n\u00e4her"});
    transfer.is_background = is_heads();
    transfer.is_latency = is_heads();
    transfer.may_stage = is_heads();
    return transfer;
  }

  std::string bytes(std::size_t most) {
    std::string line(below(most + 1), ' ');
    for (char& c : line) c = static_cast<char>(below(256));
    return line;
  }

  // One or two bytes changed, taken away, or put in, most of them of the kind that the grammar uses.
  std::string mutated(std::string line) {
    static constexpr std::string_view kAlphabet = "gpuhostcem0123456789[]*.,:;=->#KMG \n";
    for (std::size_t left = 1 + below(2); left != 0; --left) {
      const std::size_t at = below(line.size() + 1);
      const char c = is_heads() ? kAlphabet[below(kAlphabet.size())] : static_cast<char>(below(256));
      const std::size_t kind = below(3);
      if (kind == 0) line.insert(at, 1, c);
      if (at == line.size()) continue;
      if (kind == 1) line[at] = c;
      if (kind == 2) line.erase(at, 1 + below(3));
    }
    return line;
  }

 private:
  std::mt19937 engine_;
};

TEST(Property, WhatToStringWritesReadsBackTheSame) {
  RandomText random(1);
  for (int round = 0; round < 5000; ++round) {
    const Transfer transfer = random.transfer();
    const std::string line = to_string(transfer);
    const auto transfers = parse_transfers(line, {}, 16);
    ASSERT_TRUE(transfers.is_ok()) << transfers.error().message();
    ASSERT_EQ(transfers.value(), std::vector{transfer}) << line;
  }
}

// "7:COLUMN" within the text, and one printable line.
void expect_place_in(const ErrorRecord& record, std::string_view text) {
  ASSERT_TRUE(record.object.starts_with("7:")) << record.message();
  ASSERT_TRUE(parse_number(std::string_view(record.object).substr(2), 1, text.size() + 1)) << record.message();
  const std::string message = record.message();
  ASSERT_TRUE(std::all_of(message.begin(), message.end(), [](char c) { return c >= ' ' && c <= '~'; })) << message;
}

// Transfers that can be written again, or an error with its place.
void expect_defined(const std::string& text) {
  const auto transfers = parse_transfers(text, {}, 4, 7);
  if (!transfers) return expect_place_in(transfers.error().record(), text);
  ASSERT_LE(transfers.value().size(), 4096U);
  for (std::size_t i = 0; i < std::min<std::size_t>(transfers.value().size(), 4); ++i) {
    const std::string line = to_string(transfers.value()[i]);
    const auto again = parse_transfers(line, {}, 4);
    ASSERT_TRUE(again.is_ok()) << again.error().message();
    ASSERT_EQ(again.value(), std::vector{transfers.value()[i]}) << line;
  }
}

TEST(Property, RandomBytesGiveTransfersOrAnErrorWithItsPlace) {
  RandomText random(2);
  for (int round = 0; round < 5000; ++round) {
    expect_defined(random.bytes(80));
    if (HasFatalFailure()) return;
  }
}

TEST(Property, MutatedLinesGiveTransfersOrAnErrorWithItsPlace) {
  static const std::array<std::string, 6> kLines = {
      "gpu0->host:0 ce-push bytes=1G iterations=100",
      "gpu*->gpu* sm-pull:64 bytes=3M seconds=2.5 group=mesh count=2",
      "host:any->gpu[0,2..3] cpu:8 delay=0.25 pages=huge background # all of them",
      "host->gpu0 flag latency; gpu1->gpu0 chase bytes=2M; gpu2->gpu2",
      "host->host cpu pages=pageable,wc iterations=0 seconds=1e-3",
      "gpu[0..1]->gpu[1..2] stage bytes=64K;;gpu0->gpu3",
  };
  RandomText random(3);
  std::size_t good = 0;
  for (int round = 0; round < 20000; ++round) {
    const std::string line = random.mutated(random.one_of(kLines));
    good += parse_transfers(line, {}, 4).is_ok() ? 1 : 0;
    expect_defined(line);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(good, 1000U) << "the mutations are too coarse to test anything but refusals";
}

}  // namespace
}  // namespace gigabar
