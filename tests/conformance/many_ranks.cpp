// SPDX-License-Identifier: Apache-2.0
// One rank of a large job, for `gigabar run -n N -- many_ranks`: opens its fabric, meets all ranks at a barrier, writes to its
// neighbours and checks what they wrote. Rank 0 says how long that took and what a rank and each of its peers cost.
//
//   many_ranks [--neighbours K] [--fill BYTES] [--seconds S] [--plant-fault RANK]
//
// K neighbours, half of them on each side (default 2). --fill: so many bytes of messages to each new one, so that what a connection
// takes into use as it goes is counted too. S: everything must be done by then (default 60). --plant-fault: what that rank writes
// is wrong, and its neighbours must find it.
#include <dirent.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gigabar/copy.hpp"
#include "gigabar/device.hpp"
#include "gigabar/fabric.hpp"
#include "gigabar/mapping.hpp"
#include "gigabar/memory.hpp"
#include "transport/ucx/probe.hpp"

namespace {

using namespace gigabar;

constexpr SegmentId kOut = 0, kIn = 1;
constexpr std::uint64_t kSlotBytes = 64;  // that each neighbour writes
constexpr std::uint64_t kMessageBytes = 4096;
constexpr Tag kFillTag = 7;

struct Arguments {
  std::uint32_t neighbours = 2;
  std::uint64_t fill_bytes = 0;
  std::uint32_t seconds = 60;
  std::optional<Rank> wrong_rank;
};

struct Failure {
  std::string text;
};

void require(const Result<void>& outcome, const char* what) {
  if (!outcome) throw Failure{std::string(what) + ": " + outcome.message()};
}

template <class T>
T take(Result<T> result, const char* what) {
  if (!result) throw Failure{std::string(what) + ": " + result.error().message()};
  return std::move(result).value();
}

template <class Number>
bool parse(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

std::optional<Arguments> parse_arguments(int count, char** words) {
  Arguments arguments;
  for (int index = 1; index + 1 < count; index += 2) {
    const std::string_view name = words[index], value = words[index + 1];
    bool is_known = false;
    if (name == "--neighbours") is_known = parse(value, arguments.neighbours);
    if (name == "--fill") is_known = parse(value, arguments.fill_bytes);
    if (name == "--seconds") is_known = parse(value, arguments.seconds);
    if (name == "--plant-fault") is_known = parse(value, arguments.wrong_rank.emplace());
    if (!is_known) return {};
  }
  if (count % 2 == 0 || arguments.neighbours == 0 || arguments.neighbours % 2 != 0 || arguments.seconds == 0) return {};
  return arguments;
}

// What this process holds. PSS counts memory that n processes share as an n-th for each of them; RSS as a whole.
struct Footprint {
  std::int64_t pss_bytes = 0, rss_bytes = 0, locked_bytes = 0, descriptors = 0, threads = 0;
};

std::int64_t count_entries(const char* folder) {
  std::int64_t count = 0;
  DIR* const list = ::opendir(folder);
  if (list == nullptr) return 0;
  while (::readdir(list) != nullptr) ++count;
  ::closedir(list);
  return count - 2;  // "." and ".."
}

Footprint footprint() {
  Footprint seen;
  std::ifstream rollup("/proc/self/smaps_rollup");
  for (std::string line; std::getline(rollup, line);) {
    long long kib = 0;
    if (std::sscanf(line.c_str(), "Pss: %lld", &kib) == 1) seen.pss_bytes = kib * 1024;
    if (std::sscanf(line.c_str(), "Rss: %lld", &kib) == 1) seen.rss_bytes = kib * 1024;
  }
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    long long number = 0;
    if (std::sscanf(line.c_str(), "VmLck: %lld", &number) == 1) seen.locked_bytes = number * 1024;
    if (std::sscanf(line.c_str(), "Threads: %lld", &number) == 1) seen.threads = number;
  }
  seen.descriptors = count_entries("/proc/self/fd") - 1;  // that of the look itself
  return seen;
}

class ManyRanks {
 public:
  explicit ManyRanks(const Arguments& arguments)
      : arguments_(arguments), deadline_(Clock::now() + std::chrono::seconds(arguments.seconds)), fabric_(open()) {
    opened_ms_ = elapsed_ms();
    const Rank count = fabric_.rank_count();
    if (arguments.neighbours >= count) throw Failure{"--neighbours: there must be more ranks than that"};
    for (Rank step = 1; step <= arguments.neighbours / 2; ++step) {
      neighbours_.push_back((fabric_.rank() + step) % count);
      neighbours_.push_back((fabric_.rank() + count - step) % count);
    }
    new_peers_ = neighbours_;
  }

  void run() {
    make_segments();
    require(fabric_.barrier({}, left()), "barrier");
    barrier_ms_ = elapsed_ms();
    // The barrier's tree connects both sides or neither.
    for (const PeerState& peer : fabric_.peers()) std::erase(new_peers_, peer.rank);
    const Footprint before = footprint();
    require(fabric_.barrier({}, left()), "barrier");
    connect();
    connected_ms_ = elapsed_ms();
    exchange();
    require(fabric_.barrier({}, left()), "barrier");
    exchanged_ms_ = elapsed_ms();
    fill();
    require(fabric_.barrier({}, left()), "barrier");
    const Footprint after = footprint();
    tell(before, after, told_bytes());
    // Nobody leaves while another still counts.
    require(fabric_.barrier({}, left()), "barrier");
    require(fabric_.close(left()), "close");
  }

 private:
  using Clock = std::chrono::steady_clock;

  Timeout left() const { return Timeout::of(deadline_ - Clock::now()); }
  std::int64_t elapsed_ms() const { return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin_).count(); }

  Fabric open() {
    FabricOptions options;
    options.connect_timeout = left();
    return take(Fabric::open(options), "open");
  }

  // Memory of the rank's device: a stand-in's, where there is no GPU.
  void make_segments() {
    const auto found = take(devices(), "devices");
    const int device = found[fabric_.local_rank() % found.size()].index;
    out_.emplace(take(DeviceMemory::allocate(device, kSlotBytes), "allocate"));
    in_.emplace(take(DeviceMemory::allocate(device, kSlotBytes * arguments_.neighbours), "allocate"));
    std::array<Rank, kSlotBytes / sizeof(Rank)> own{};
    own.fill(fabric_.rank() + 1);
    if (arguments_.wrong_rank == fabric_.rank()) own.back() ^= 1U;
    require(copy_to(take(map(out_->address(), kSlotBytes), "map"), 0, own.data(), sizeof own), "copy");
    require(fabric_.register_segment(kOut, out_->address(), kSlotBytes), "register");
    require(fabric_.register_segment(kIn, in_->address(), kSlotBytes * arguments_.neighbours), "register");
  }

  void connect() {
    for (const Rank neighbour : neighbours_) require(fabric_.connect(neighbour, left()), "connect");
  }

  // Neighbour i is on the other side for the one that it names: its slot there is the next one, or the one before.
  void exchange() {
    const Mapping in = take(map(in_->address(), in_->bytes()), "map");
    for (std::uint32_t index = 0; index < neighbours_.size(); ++index) {
      const std::uint32_t slot = index ^ 1U;
      take(fabric_.write_notify({kOut, 0}, {neighbours_[index], kIn, slot * kSlotBytes}, kSlotBytes, slot, 1), "write");
    }
    require(fabric_.wait(0, left()), "wait");
    for (std::uint32_t slot = 0; slot < neighbours_.size(); ++slot) {
      take(fabric_.notification_wait(kIn, slot, 1, left()), "notification");
      std::array<Rank, kSlotBytes / sizeof(Rank)> seen{};
      require(copy_from(in, slot * kSlotBytes, seen.data(), sizeof seen), "copy");
      const bool is_right = std::all_of(seen.begin(), seen.end(), [&](Rank value) { return value == neighbours_[slot] + 1; });
      if (!is_right)
        throw Failure{"slot " + std::to_string(slot) + " is not what rank " + std::to_string(neighbours_[slot]) + " wrote"};
    }
  }

  void fill() {
    std::vector<std::byte> message(kMessageBytes, std::byte{1}), received(kMessageBytes);
    for (std::uint64_t done = 0; done < arguments_.fill_bytes; done += kMessageBytes) {
      std::vector<Operation> sends;
      for (const Rank neighbour : new_peers_) {
        sends.push_back(take(fabric_.post_send(neighbour, kFillTag, message.data(), kMessageBytes), "send"));
      }
      for (const Rank neighbour : new_peers_)
        take(fabric_.recv(neighbour, kFillTag, received.data(), kMessageBytes, left()), "recv");
      for (const Operation operation : sends) take(fabric_.wait_message(operation, left()), "send");
    }
  }

  std::size_t connected_count() const {
    const auto peers = fabric_.peers();
    return static_cast<std::size_t>(
        std::count_if(peers.begin(), peers.end(), [](const PeerState& peer) { return peer.is_connected; }));
  }

  // What the fabric itself says, of all connected peers.
  std::int64_t told_bytes() const {
    std::uint64_t bytes = 0;
    for (const PeerState& peer : fabric_.peers()) bytes += peer.memory_bytes;
    return static_cast<std::int64_t>(bytes);
  }

  void tell(const Footprint& before, const Footprint& after, std::int64_t told) {
    const std::array<std::int64_t, 12> own = {opened_ms_,         barrier_ms_,        connected_ms_,    exchanged_ms_,
                                              after.threads,      after.locked_bytes, before.pss_bytes, before.rss_bytes,
                                              before.descriptors, after.pss_bytes,    after.rss_bytes,  after.descriptors};
    const std::array<std::int64_t, 9> amounts = {before.pss_bytes,
                                                 before.rss_bytes,
                                                 before.descriptors,
                                                 after.pss_bytes,
                                                 after.rss_bytes,
                                                 after.descriptors,
                                                 static_cast<std::int64_t>(new_peers_.size()),
                                                 told,
                                                 static_cast<std::int64_t>(connected_count())};
    std::array<std::int64_t, 12> most{};
    std::array<std::int64_t, 9> sum{};
    require(fabric_.all_reduce({}, ReduceOperation::maximum, own, most, left()), "all_reduce");
    require(fabric_.all_reduce({}, ReduceOperation::sum, amounts, sum, left()), "all_reduce");
    if (fabric_.rank() != 0) return;
    const double ranks = fabric_.rank_count(), kib = 1024;
    const double peers = std::max<double>(static_cast<double>(sum[6]), 1);
    std::printf("%u ranks: opened after %.2f s, barrier %.2f s, %u neighbours connected %.2f s, data checked %.2f s\n",
                fabric_.rank_count(), static_cast<double>(most[0]) / 1e3, static_cast<double>(most[1]) / 1e3, arguments_.neighbours,
                static_cast<double>(most[2]) / 1e3, static_cast<double>(most[3]) / 1e3);
    std::printf("each rank: %.1f peers, PSS %.0f KiB, RSS %.0f KiB, %.1f descriptors; at most %lld threads, %lld descriptors\n",
                static_cast<double>(sum[8]) / ranks, static_cast<double>(sum[3]) / ranks / kib,
                static_cast<double>(sum[4]) / ranks / kib, static_cast<double>(sum[5]) / ranks, static_cast<long long>(most[4]),
                static_cast<long long>(most[11]));
    std::printf("each new peer (%.0f in all): PSS %.1f KiB, RSS %.1f KiB, %.2f descriptors\n", peers,
                static_cast<double>(sum[3] - sum[0]) / peers / kib, static_cast<double>(sum[4] - sum[1]) / peers / kib,
                static_cast<double>(sum[5] - sum[2]) / peers);
    std::printf("peers() tells %.1f KiB for each peer\n",
                static_cast<double>(sum[7]) / static_cast<double>(std::max<std::int64_t>(sum[8], 1)) / kib);
  }

  const Arguments arguments_;
  const Clock::time_point begin_ = Clock::now();
  const Clock::time_point deadline_;
  std::optional<DeviceMemory> out_, in_;  // outlive the fabric in which they are registered
  Fabric fabric_;
  std::vector<Rank> neighbours_;
  std::vector<Rank> new_peers_;  // neighbours that the first barrier had not connected
  std::int64_t opened_ms_ = 0, barrier_ms_ = 0, connected_ms_ = 0, exchanged_ms_ = 0;
};

}  // namespace

int main(int count, char** words) {
  gigabar::transport::serve_ucx_probes(count, words);
  const auto arguments = parse_arguments(count, words);
  if (!arguments) {
    std::fprintf(stderr, "usage: many_ranks [--neighbours K] [--fill BYTES] [--seconds S] [--plant-fault RANK]; K is even\n");
    return 2;
  }
  try {
    ManyRanks(*arguments).run();
    return 0;
  } catch (const Failure& failure) {
    std::fprintf(stderr, "rank %s: %s\n", std::getenv("RANK") != nullptr ? std::getenv("RANK") : "?", failure.text.c_str());
    return 1;
  }
}
