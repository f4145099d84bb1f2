// SPDX-License-Identifier: Apache-2.0
// Names of paths and addresses: text and back.
#include <array>
#include <cstdio>

#include "base/hexadecimal.hpp"
#include "base/names.hpp"
#include "gigabar/types.hpp"

namespace gigabar::inline v0 {
namespace {

constexpr auto kPathNames = std::to_array<std::string_view>({"none", "host", "bar", "p2p", "gdr", "staged"});
static_assert(kPathNames.size() == static_cast<std::size_t>(TransferPath::staged) + 1);

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
      first == std::string_view::npos ? std::optional<std::uint32_t>(0) : hexadecimal<std::uint32_t>(before.substr(0, first));
  const auto bus = hexadecimal<std::uint8_t>(first == std::string_view::npos ? before : before.substr(first + 1));
  const auto device = hexadecimal<std::uint8_t>(text.substr(second + 1, dot - second - 1), 0x1f);
  const auto function = hexadecimal<std::uint8_t>(text.substr(dot + 1), 7);
  if (!domain || !bus || !device || !function) return {};
  return PciAddress{*domain, *bus, *device, *function};
}

std::string_view name_of(TransportKind kind) noexcept {
  constexpr std::array<std::string_view, kTransportKinds> kNames{"local", "verbs", "ucx", "tcp"};
  return name_at(kNames, kind);
}

std::string_view name_of(TransferPath path) noexcept { return name_at(kPathNames, path); }
std::optional<TransferPath> transfer_path_from_name(std::string_view name) noexcept {
  return value_named<TransferPath>(kPathNames, name);
}

}  // namespace gigabar::inline v0
