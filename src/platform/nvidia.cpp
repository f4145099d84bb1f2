// SPDX-License-Identifier: Apache-2.0
#include "platform/nvidia.hpp"

#include <string_view>
#include <vector>

#include "base/descriptor.hpp"
#include "base/options.hpp"
#include "driver/nvml/nvml.hpp"
#include "platform/roots.hpp"

namespace gigabar::inline v0 {
namespace {

bool is_version(std::string_view word) {
  return word.find('.') != std::string_view::npos && word.front() != '.' && word.size() < 32 &&
         word.find_first_not_of("0123456789.") == std::string_view::npos;
}

}  // namespace

std::string nvidia_version_in(const std::string& content) {
  for (const std::string_view word : words_of(std::string_view(content).substr(0, content.find('\n')))) {
    if (is_version(word)) return std::string(word);
  }
  return {};
}

std::optional<unsigned> nvidia_minor_in(const std::string& information) {
  constexpr std::string_view kKey = "Device Minor:";
  const std::size_t at = information.find(kKey);
  if (at == std::string::npos) return {};
  const std::vector<std::string_view> words = words_of(std::string_view(information).substr(at + kKey.size()));
  return words.empty() ? std::nullopt : parse_number<unsigned>(words.front(), 0, 1023);
}

std::string nvidia_driver_version() {
  for (const std::string& path :
       {platform_roots().sys + "/module/nvidia/version", platform_roots().proc + "/driver/nvidia/version"}) {
    if (const auto content = read_small_file(path)) {
      if (std::string version = nvidia_version_in(*content); !version.empty()) return version;
    }
  }
  return nvml::driver_version().value_or("");
}

std::optional<unsigned> nvidia_device_minor(const PciAddress& address) {
  if (const auto content = read_small_file(platform_roots().proc + "/driver/nvidia/gpus/" + address.to_string() + "/information")) {
    if (const auto minor = nvidia_minor_in(*content)) return minor;
  }
  return nvml::device_minor(address.to_string());
}

std::uint32_t nvidia_gpu_id(const PciAddress& address) noexcept {
  return address.domain << 16 | std::uint32_t{address.bus} << 8 | address.device;
}

}  // namespace gigabar::inline v0
