// SPDX-License-Identifier: Apache-2.0
// The threads of this process as the kernel shows them.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace gigabar::test {

struct OwnThread {
  std::string name;
  std::string cpus;  // "0-1": that it may run on
  bool is_main = false;
  bool has_ended = false;     // and is still listed
  std::uint64_t blocked = 0;  // a bit for each signal, the first of signal 1

  bool blocks(int signal) const { return (blocked >> (signal - 1) & 1) != 0; }
};

inline std::vector<OwnThread> own_threads() {
  std::vector<OwnThread> threads;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    OwnThread thread;
    thread.is_main = entry.path().filename() == std::to_string(::getpid());
    std::ifstream name(entry.path() / "comm"), status(entry.path() / "status");
    std::getline(name, thread.name);
    const std::string cpus = "Cpus_allowed_list:\t", blocked = "SigBlk:\t", state = "State:\t";
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with(cpus)) thread.cpus = line.substr(cpus.size());
      if (line.starts_with(state)) thread.has_ended = line[state.size()] == 'X' || line[state.size()] == 'Z';
      if (line.starts_with(blocked)) thread.blocked = std::stoull(line.substr(blocked.size()), nullptr, 16);
    }
    if (!thread.cpus.empty()) threads.push_back(thread);  // else it has ended meanwhile
  }
  return threads;
}

// Those whose names begin so, as soon as there are `count` of them; a thread names itself as the last thing of its beginning.
inline std::vector<OwnThread> threads_named(const std::string& name, std::size_t count = 1) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (true) {
    std::vector<OwnThread> found = own_threads();
    std::erase_if(found, [&](const OwnThread& thread) { return !thread.name.starts_with(name); });
    if (found.size() >= count || std::chrono::steady_clock::now() > end) return found;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

// The program's handlers run on its own threads. How many threads beside the main one there are. One that is just ending shows no
// signals any more: they are looked at again.
inline std::size_t expect_signals_blocked_beside_main() {
  const auto is_open = [](const OwnThread& thread) {
    return !thread.is_main && !thread.has_ended && !(thread.blocks(SIGINT) && thread.blocks(SIGTERM) && thread.blocks(SIGUSR1));
  };
  std::vector<OwnThread> threads = own_threads();
  for (int look = 0; look < 20 && std::ranges::any_of(threads, is_open); ++look) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    threads = own_threads();
  }
  for (const OwnThread& thread : threads) EXPECT_FALSE(is_open(thread)) << thread.name << " leaves signals unblocked";
  return threads.size() - 1;
}

inline std::string cpus_of_main_thread() {
  for (const OwnThread& thread : own_threads()) {
    if (thread.is_main) return thread.cpus;
  }
  return "no main thread";
}

}  // namespace gigabar::test
