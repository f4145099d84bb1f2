// SPDX-License-Identifier: Apache-2.0
// PciAddress: text and back.
#include <array>
#include <charconv>
#include <cstdio>

#include "gigabar/device.hpp"

namespace gigabar {
namespace {

// A hexadecimal number that is the whole of `digits` and at most `most`.
std::optional<std::uint32_t> hexadecimal(std::string_view digits, std::uint32_t most) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  if (error != std::errc{} || end != digits.data() + digits.size() || value > most) return {};
  return value;
}

}  // namespace

std::string PciAddress::to_string() const try {
  std::array<char, 32> line{};
  std::snprintf(line.data(), line.size(), "%04x:%02x:%02x.%x", domain, unsigned{bus}, unsigned{device}, unsigned{function});
  return line.data();
} catch (...) {
  return {};
}

std::optional<PciAddress> PciAddress::parse(std::string_view text) {
  const std::size_t dot = text.rfind('.');
  const std::size_t second = text.rfind(':');
  if (dot == std::string_view::npos || second == std::string_view::npos || dot < second) return {};
  const std::string_view before = text.substr(0, second);
  const std::size_t first = before.rfind(':');
  const auto domain =
      first == std::string_view::npos ? std::optional<std::uint32_t>(0) : hexadecimal(before.substr(0, first), 0xffffffff);
  const auto bus = hexadecimal(first == std::string_view::npos ? before : before.substr(first + 1), 0xff);
  const auto device = hexadecimal(text.substr(second + 1, dot - second - 1), 0x1f);
  const auto function = hexadecimal(text.substr(dot + 1), 7);
  if (!domain || !bus || !device || !function) return {};
  return PciAddress{*domain, static_cast<std::uint8_t>(*bus), static_cast<std::uint8_t>(*device),
                    static_cast<std::uint8_t>(*function)};
}

}  // namespace gigabar
