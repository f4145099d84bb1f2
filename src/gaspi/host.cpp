// SPDX-License-Identifier: Apache-2.0
// Time and processors of this host.
#include <sched.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "base/clock.hpp"
#include "gaspi/process.hpp"

using namespace gigabar;
using namespace gigabar::gaspi;

namespace {

// "0-3,8", as the kernel writes it. Only CPUs that a set can name.
cpu_set_t cpus_of(const std::string& list) {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::istringstream ranges(list);
  for (std::string range; std::getline(ranges, range, ',');) {
    const std::size_t dash = range.find('-');
    const auto first = number_of(range.substr(0, dash));
    const auto last = dash == std::string::npos ? first : number_of(range.substr(dash + 1));
    if (!first || !last) continue;
    for (unsigned cpu = *first; cpu <= *last && cpu < CPU_SETSIZE; ++cpu) CPU_SET(cpu, &set);
  }
  return set;
}

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

double scaling_mhz() {
  const std::string khz = first_line("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq");
  return khz.empty() ? 0 : std::strtod(khz.c_str(), nullptr) / 1000;
}

double cpuinfo_mhz() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("cpu MHz")) return std::strtod(line.c_str() + line.find(':') + 1, nullptr);
  }
  return 0;
}

}  // namespace

gaspi_return_t pgaspi_time_ticks(gaspi_cycles_t* const ticks) { return store(ticks, now_ns()); }
GASPI_NAMED(gaspi_time_ticks);

gaspi_return_t pgaspi_time_get(gaspi_time_t* const wtime) {
  static const std::int64_t begin_ns = now_ns();
  return store(wtime, static_cast<double>(now_ns() - begin_ns) / 1e6);
}
GASPI_NAMED(gaspi_time_get);

gaspi_return_t pgaspi_cpu_frequency(gaspi_float* const cpu_mhz) {
  return guarded([&] {
    const double scaling = scaling_mhz();
    return store(cpu_mhz, scaling > 0 ? scaling : cpuinfo_mhz());
  });
}
GASPI_NAMED(gaspi_cpu_frequency);

gaspi_return_t pgaspi_machine_type(char machine_type[16]) {
  return guarded([&]() -> gaspi_return_t {
    if (machine_type == nullptr) return GASPI_ERR_NULLPTR;
    const auto found = devices();
    const bool has_gpu = found && !found->empty() && !found->front().is_stand_in;
    std::snprintf(machine_type, 16, "%s", has_gpu ? "GPU" : "CPU");
    return GASPI_SUCCESS;
  });
}
GASPI_NAMED(gaspi_machine_type);

gaspi_return_t pgaspi_numa_socket(gaspi_uchar* const socket) {
  if (socket == nullptr) return GASPI_ERR_NULLPTR;
  unsigned cpu = 0, node = 0;
  if (::getcpu(&cpu, &node) != 0) return GASPI_ERROR;
  return store(socket, node);
}
GASPI_NAMED(gaspi_numa_socket);

gaspi_return_t pgaspi_set_socket_affinity(const gaspi_uchar socket) {
  return guarded([&]() -> gaspi_return_t {
    const std::string list = first_line("/sys/devices/system/node/node" + std::to_string(socket) + "/cpulist");
    const cpu_set_t cpus = cpus_of(list);
    return CPU_COUNT(&cpus) != 0 && ::sched_setaffinity(0, sizeof cpus, &cpus) == 0 ? GASPI_SUCCESS : GASPI_ERROR;
  });
}
GASPI_NAMED(gaspi_set_socket_affinity);

void pgaspi_print_affinity_mask(void) {
  const Uncancelled uncancelled;
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  if (::sched_getaffinity(0, sizeof cpus, &cpus) != 0) return;
  std::fputs("CPUs of this thread:", stdout);
  for (unsigned cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &cpus)) std::printf(" %u", cpu);
  }
  std::fputc('\n', stdout);
}
GASPI_NAMED(gaspi_print_affinity_mask);

void pgaspi_delay(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ __volatile__("yield");
#endif
}
GASPI_NAMED(gaspi_delay);
