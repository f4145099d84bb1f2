// SPDX-License-Identifier: Apache-2.0
// One rank of a large job, for `gigabar run -n N -- many_ranks`: opens its fabric, meets all ranks at a barrier, writes to its
// neighbours and checks what they wrote. Rank 0 says how long that took and what a rank and each of its peers cost.
//
//   many_ranks [--neighbours K] [--bytes B] [--rounds R] [--fill BYTES] [--seconds S] [--kill RANK] [--plant-fault RANK]
//
// K neighbours, half of them on each side, or all others (default 2), and B bytes to each (default 64). R more rounds of these
// writes are timed. --fill: so many bytes of messages to each new one, so that what a connection takes into use as it goes is
// counted too. S: everything must be done by then (default 60). --kill: that rank is killed when all are connected; the others hear
// of it at a barrier, by name, go on without it, and stay until the launcher has seen the loss. --plant-fault: that rank writes
// wrong data, which its neighbours must find.
#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "base/errors.hpp"
#include "gigabar/copy.hpp"
#include "gigabar/device.hpp"
#include "gigabar/fabric.hpp"
#include "gigabar/mapping.hpp"
#include "gigabar/memory.hpp"
#include "transport/ucx/open.hpp"

namespace {

using namespace gigabar;

constexpr SegmentId kOut = 0, kIn = 1;
constexpr std::uint64_t kMessageBytes = 4096;
constexpr Tag kFillTag = 7;

struct Arguments {
  std::uint32_t neighbours = 2;
  std::uint64_t slot_bytes = 64;  // that each neighbour writes
  std::uint32_t rounds = 0;
  std::uint64_t fill_bytes = 0;
  std::uint32_t seconds = 60;
  std::optional<Rank> victim;
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
    if (name == "--bytes") is_known = parse(value, arguments.slot_bytes);
    if (name == "--rounds") is_known = parse(value, arguments.rounds);
    if (name == "--fill") is_known = parse(value, arguments.fill_bytes);
    if (name == "--seconds") is_known = parse(value, arguments.seconds);
    if (name == "--kill") is_known = parse(value, arguments.victim.emplace());
    if (name == "--plant-fault") is_known = parse(value, arguments.wrong_rank.emplace());
    if (!is_known) return {};
  }
  const bool is_whole_words = arguments.slot_bytes != 0 && arguments.slot_bytes % sizeof(std::uint32_t) == 0;
  if (count % 2 == 0 || arguments.neighbours == 0 || arguments.seconds == 0 || !is_whole_words) return {};
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
    if (arguments.neighbours % 2 != 0 && arguments.neighbours + 1 != count)
      throw Failure{"--neighbours: an even number, or all others"};
    for (Rank step = 1; step <= arguments.neighbours / 2; ++step) {
      neighbours_.push_back((fabric_.rank() + step) % count);
      neighbours_.push_back((fabric_.rank() + count - step) % count);
    }
    if (arguments.neighbours % 2 != 0) neighbours_.push_back((fabric_.rank() + count / 2) % count);  // the one opposite
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
    check();
    require(fabric_.barrier({}, left()), "barrier");
    exchanged_ms_ = elapsed_ms();
    if (arguments_.victim) return lose(*arguments_.victim);
    fill();
    require(fabric_.barrier({}, left()), "barrier");
    const Footprint after = footprint();
    tell(before, after, told_bytes());
    if (arguments_.rounds > 0) time_rounds();
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

  static std::uint32_t word_of(Rank writer, std::size_t index) {
    return writer + 1 + static_cast<std::uint32_t>(index) * 0x9e3779b1U;
  }

  // Memory of the rank's device: a stand-in's, where there is no GPU.
  void make_segments() {
    const auto found = take(devices(), "devices");
    const int device = found[fabric_.local_rank() % found.size()].index;
    const std::uint64_t in_bytes = arguments_.slot_bytes * arguments_.neighbours;
    out_.emplace(take(DeviceMemory::allocate(device, arguments_.slot_bytes), "allocate"));
    in_.emplace(take(DeviceMemory::allocate(device, in_bytes), "allocate"));
    std::vector<std::uint32_t> own(arguments_.slot_bytes / sizeof(std::uint32_t));
    for (std::size_t index = 0; index < own.size(); ++index) own[index] = word_of(fabric_.rank(), index);
    if (arguments_.wrong_rank == fabric_.rank()) own.back() ^= 1U;
    const Mapping out = take(map(out_->address(), out_->bytes()), "map");
    take(copy({out, 0}, own.data(), arguments_.slot_bytes), "copy");
    require(fabric_.register_segment(kOut, out_->address(), arguments_.slot_bytes), "register");
    require(fabric_.register_segment(kIn, in_->address(), in_bytes), "register");
  }

  void connect() {
    for (const Rank neighbour : neighbours_) require(fabric_.connect(neighbour, left()), "connect");
  }

  // Neighbour i is on the other side for the one that it names: its slot there is the next one, or the one before. The one opposite
  // has the last slot at both.
  std::uint32_t slot_at(std::uint32_t index) const { return std::min(index ^ 1U, arguments_.neighbours - 1); }

  void exchange() {
    const std::uint64_t bytes = arguments_.slot_bytes;
    for (std::uint32_t index = 0; index < neighbours_.size(); ++index) {
      const std::uint32_t slot = slot_at(index);
      take(fabric_.write_notify_add({kOut, 0}, {neighbours_[index], kIn, slot * bytes}, bytes, slot, 1), "write");
    }
    require(fabric_.wait(0, left()), "wait");
    for (std::uint32_t slot = 0; slot < neighbours_.size(); ++slot) {
      require(fabric_.notification_wait_count(kIn, slot, 1, left()), "notification");
    }
  }

  void check() {
    const Mapping in = take(map(in_->address(), in_->bytes()), "map");
    std::vector<std::uint32_t> seen(arguments_.slot_bytes / sizeof(std::uint32_t));
    for (std::uint32_t slot = 0; slot < neighbours_.size(); ++slot) {
      take(copy(seen.data(), {in, slot * arguments_.slot_bytes}, arguments_.slot_bytes), "copy");
      for (std::size_t index = 0; index < seen.size(); ++index) {
        if (seen[index] == word_of(neighbours_[slot], index)) continue;
        throw Failure{text("slot ", slot, " is not what rank ", neighbours_[slot], " wrote, from byte ",
                           index * sizeof(std::uint32_t), " on")};
      }
    }
  }

  // A counter of notifications lets a fast writer begin its next round at once.
  void time_rounds() {
    require(fabric_.barrier({}, left()), "barrier");
    const Clock::time_point begin = Clock::now();
    for (std::uint32_t round = 0; round < arguments_.rounds; ++round) exchange();
    require(fabric_.barrier({}, left()), "barrier");
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    check();
    if (fabric_.rank() != 0) return;
    const double writes = static_cast<double>(fabric_.rank_count()) * arguments_.neighbours * arguments_.rounds;
    std::printf("%u ranks wrote %llu bytes to each of %u others, %u times: %.2f GB/s together\n", fabric_.rank_count(),
                static_cast<unsigned long long>(arguments_.slot_bytes), arguments_.neighbours, arguments_.rounds,
                writes * static_cast<double>(arguments_.slot_bytes) / seconds / 1e9);
  }

  // Process numbers mean the same to the processes of one PID namespace of one host.
  static std::int64_t process_numbering() {
    std::string host;
    std::ifstream("/proc/sys/kernel/random/boot_id") >> host;
    std::error_code none;
    const std::string space = std::filesystem::read_symlink("/proc/self/ns/pid", none).string();
    return static_cast<std::int64_t>(std::hash<std::string>()(host + space));
  }

  struct ProcessName {
    pid_t number;
    std::int64_t numbering;
  };

  // Tells all ranks the process of this one.
  ProcessName name_process(Rank rank) {
    std::array<std::int64_t, 2> own{}, name{};
    if (fabric_.rank() == rank) own = {::getpid(), process_numbering()};
    require(fabric_.all_reduce({}, ReduceOperation::sum, own, name, left()), "all_reduce");
    return {static_cast<pid_t>(name[0]), name[1]};
  }

  // `gigabar run` counts the ranks that still run when it reaps the one that was killed.
  void stay_until_reaped(Rank victim, pid_t process) const {
    while (::kill(process, 0) == 0) {
      if (Clock::now() >= deadline_) throw Failure{text("rank ", victim, " was killed, but nobody reaped its process ", process)};
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  void lose(Rank victim) {
    const ProcessName process = name_process(victim);
    if (fabric_.rank() == victim) ::raise(SIGKILL);
    const Result<void> lost = fabric_.barrier({}, left());
    if (lost.status() != Status::peer_lost) throw Failure{text("barrier without rank ", victim, ": ", lost.message())};
    if (lost.message().find(text("rank ", victim)) == std::string::npos) throw Failure{"another rank is named: " + lost.message()};
    std::vector<Rank> others;
    for (Rank rank = 0; rank < fabric_.rank_count(); ++rank) {
      if (rank != victim) others.push_back(rank);
    }
    require(fabric_.barrier(others, left()), "barrier of the others");
    require(fabric_.close(left()), "close");
    std::printf("rank %u: peer_lost, and went on\n", fabric_.rank());
    if (process.numbering == process_numbering()) stay_until_reaped(victim, process.number);
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
    std::printf("%u ranks: opened after %.3f s, barrier %.3f s, %u neighbours connected %.3f s, data checked %.3f s\n",
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
    std::fprintf(stderr,
                 "usage: many_ranks [--neighbours K] [--bytes B] [--rounds R] [--fill BYTES] [--seconds S] [--kill RANK]\n"
                 "                  [--plant-fault RANK]; B is a multiple of 4\n");
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
