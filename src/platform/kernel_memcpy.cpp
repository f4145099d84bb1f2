// SPDX-License-Identifier: Apache-2.0
#include "platform/kernel_memcpy.hpp"

#include <sys/utsname.h>

#include <sstream>
#include <string>
#include <utility>

#include "base/descriptor.hpp"
#include "base/options.hpp"
#include "platform/roots.hpp"

namespace gigabar::inline v0 {
namespace {

constexpr std::pair<int, int> kFirstWithoutMovsq{6, 4};

bool is_before(std::string_view release, std::pair<int, int> version) {
  std::pair<int, int> read{0, 0};
  std::istringstream text{std::string(release)};
  char dot = 0;
  return text >> read.first >> dot >> read.second && dot == '.' && read < version;
}

}  // namespace

bool kernel_stores_words_once(std::string_view cpuinfo, std::string_view release) {
  const std::size_t begin = cpuinfo.find("\nflags");
  if (begin == std::string_view::npos) return false;
  bool is_good = false;
  for (const std::string_view flag : words_of(cpuinfo.substr(begin + 1, cpuinfo.find('\n', begin + 1) - begin - 1))) {
    if (flag == "erms") return false;
    is_good = is_good || flag == "rep_good";
  }
  return is_good && is_before(release, kFirstWithoutMovsq);
}

bool kernel_stores_words_once() {
  static const bool does = [] {
    // About 2 KiB for each processor.
    const auto cpuinfo = read_small_file(platform_roots().proc + "/cpuinfo", 16 << 20);
    utsname system{};
    return cpuinfo && ::uname(&system) == 0 && kernel_stores_words_once(*cpuinfo, system.release);
  }();
  return does;
}

}  // namespace gigabar::inline v0
