// SPDX-License-Identifier: Apache-2.0
#include "platform/cpu_set.hpp"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>

#include "base/errors.hpp"
#include "base/log.hpp"
#include "base/options.hpp"
#include "base/quietly.hpp"
#include "platform/host_memory.hpp"
#include "platform/roots.hpp"

namespace gigabar::inline v0 {
namespace {

// cpu_set_t by itself ends at CPU 1023. These are 8 KiB, which every stack has room for.
using CpuMask = std::array<cpu_set_t, kMaxCpus / CPU_SETSIZE>;

}  // namespace

std::optional<std::vector<int>> parse_cpu_list(std::string_view list) {
  if (list.empty() || list.ends_with(',')) return {};
  NumberList parsed = parse_number_list(list, kMaxCpus);
  if (!parsed.is_well_formed) return {};
  return std::move(parsed.numbers);
}

std::string cpu_list_text(const std::vector<int>& cpus) {
  std::string line;
  for (std::size_t first = 0; first < cpus.size();) {
    std::size_t last = first;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
    line += text(line.empty() ? "" : ",", cpus[first]);
    if (last > first) line += text('-', cpus[last]);
    first = last + 1;
  }
  return line;
}

std::vector<int> cpus_in_both(const std::vector<int>& first, const std::vector<int>& second) {
  std::vector<int> both;
  std::set_intersection(first.begin(), first.end(), second.begin(), second.end(), std::back_inserter(both));
  return both;
}

std::optional<int> first_cpu_outside(const std::vector<int>& cpus, const std::vector<int>& others) {
  for (const int cpu : cpus) {
    if (!std::binary_search(others.begin(), others.end(), cpu)) return cpu;
  }
  return {};
}

std::vector<int> online_cpus() {
  return parse_cpu_list(word_in_file(platform_roots().sys + "/devices/system/cpu/online")).value_or(std::vector<int>());
}

std::vector<int> usable_cpus() {
  std::vector<int> cpus;
  CpuMask mask{};
  if (::sched_getaffinity(0, sizeof mask, mask.data()) != 0) return cpus;
  for (std::size_t cpu = 0; cpu < kMaxCpus; ++cpu) {
    if (CPU_ISSET_S(cpu, sizeof mask, mask.data())) cpus.push_back(static_cast<int>(cpu));
  }
  return cpus;
}

int keep_this_thread_on(const std::vector<int>& cpus) noexcept {
  if (cpus.empty()) return 0;
  CpuMask mask{};
  for (const int cpu : cpus) CPU_SET_S(static_cast<std::size_t>(cpu), sizeof mask, mask.data());
  return ::pthread_setaffinity_np(::pthread_self(), sizeof mask, mask.data());
}

void settle_this_thread(const char* name, const std::vector<int>& cpus) noexcept {
  const int code = keep_this_thread_on(cpus);
  ::pthread_setname_np(::pthread_self(), name);
  if (code == 0) return;
  quietly([&] { log(LogLevel::debug, text(name, " is not kept on CPUs ", cpu_list_text(cpus), ": ", std::strerror(code))); });
}

}  // namespace gigabar::inline v0
