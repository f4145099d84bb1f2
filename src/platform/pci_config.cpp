// SPDX-License-Identifier: Apache-2.0
#include "platform/pci_config.hpp"

#include <array>
#include <bitset>
#include <utility>

namespace gigabar::inline v0 {
namespace {

constexpr std::size_t kHeaderBytes = 64;
constexpr std::size_t kOrdinaryBytes = 256;
constexpr std::size_t kAllBytes = 4096;

constexpr unsigned kExpressId = 0x10;
constexpr unsigned kSerialNumberId = 0x0003;
constexpr unsigned kAcsId = 0x000d;
constexpr unsigned kAtsId = 0x000f;

bool is_set(std::uint32_t value, unsigned bit) noexcept { return ((value >> bit) & 1U) != 0; }

unsigned field(std::uint32_t value, unsigned first_bit, unsigned bit_count) noexcept {
  return (value >> first_bit) & ((1U << bit_count) - 1U);
}

// 0 stands for 128 bytes, 5 for 4096; 6 and 7 are reserved.
std::optional<unsigned> packet_bytes(unsigned code) noexcept {
  return code <= 5 ? std::optional<unsigned>(128U << code) : std::nullopt;
}

// The little-endian number of so many bytes; nothing where the bytes end before.
std::optional<std::uint32_t> number_at(std::string_view bytes, std::size_t at, std::size_t count) noexcept {
  if (at + count > bytes.size()) return {};
  std::uint32_t value = 0;
  for (std::size_t i = count; i-- > 0;) value = value << 8U | static_cast<unsigned char>(bytes[at + i]);
  return value;
}
std::optional<std::uint32_t> word_at(std::string_view bytes, std::size_t at) noexcept { return number_at(bytes, at, 2); }

// Where a capability starts, or why that is not known.
struct Place {
  unsigned offset = 0;  // 0: not found
  bool is_hidden = false;
};

// Both lists are walked in the same way: `step` gives the id at an offset and the next offset, or nothing past the end. A list that
// comes back to where it was is damaged: what it did not name may be there all the same.
template <class Step>
Place find_in_list(unsigned first, unsigned least, unsigned wanted, const Step& step) {
  std::bitset<kAllBytes> seen;
  unsigned at = first;
  while (at >= least) {
    if (seen.test(at)) return {0, true};
    seen.set(at);
    const std::optional<std::pair<unsigned, unsigned>> entry = step(at);
    if (!entry) return {0, true};
    if (entry->first == wanted) return {at, false};
    at = entry->second;
  }
  return {};
}

Place find_ordinary(std::string_view bytes, unsigned wanted) {
  constexpr std::size_t kStatusAt = 0x06, kHeaderTypeAt = 0x0e, kListAt = 0x34;
  constexpr std::size_t kCardBusListAt = 0x14;
  constexpr unsigned kHasListBit = 4;
  if (!is_set(word_at(bytes, kStatusAt).value_or(0), kHasListBit)) return {};
  const bool is_card_bus = field(number_at(bytes, kHeaderTypeAt, 1).value_or(0), 0, 7) == 2;
  const unsigned first = number_at(bytes, is_card_bus ? kCardBusListAt : kListAt, 1).value_or(0) & ~3U;
  return find_in_list(first, kHeaderBytes, wanted, [&](unsigned at) -> std::optional<std::pair<unsigned, unsigned>> {
    const auto entry = word_at(bytes, at);
    if (!entry) return {};
    return std::pair{field(*entry, 0, 8), field(*entry, 8, 8) & ~3U};
  });
}

Place find_extended(std::string_view bytes, unsigned wanted) {
  return find_in_list(kOrdinaryBytes, kOrdinaryBytes, wanted, [&](unsigned at) -> std::optional<std::pair<unsigned, unsigned>> {
    const auto entry = number_at(bytes, at, 4);
    if (!entry || *entry == ~std::uint32_t{0}) return {};
    return std::pair{field(*entry, 0, 16), field(*entry, 20, 12) & ~3U};
  });
}

PciCapability<PciExpressCapability> read_express(std::string_view bytes) {
  constexpr unsigned kRegisterBytes = 0x14;  // of the oldest version: up to Link Status
  const Place place = find_ordinary(bytes, kExpressId);
  if (place.offset == 0) return {{}, place.is_hidden};
  const auto control = word_at(bytes, place.offset + 0x08);
  if (!control || place.offset + kRegisterBytes > bytes.size()) return {};
  return {PciExpressCapability{packet_bytes(field(*control, 5, 3)), packet_bytes(field(*control, 12, 3)), is_set(*control, 4)},
          false};
}

PciCapability<PciAcsCapability> read_acs(std::string_view bytes) {
  const Place place = find_extended(bytes, kAcsId);
  if (place.offset == 0) return {{}, place.is_hidden};
  const auto can = word_at(bytes, place.offset + 4), control = word_at(bytes, place.offset + 6);
  if (!can || !control) return {};
  return {PciAcsCapability{static_cast<std::uint16_t>(*can), static_cast<std::uint16_t>(*control)}, false};
}

PciCapability<PciAtsCapability> read_ats(std::string_view bytes) {
  const Place place = find_extended(bytes, kAtsId);
  if (place.offset == 0) return {{}, place.is_hidden};
  const auto control = word_at(bytes, place.offset + 6);
  if (!control) return {};
  return {PciAtsCapability{is_set(*control, 15)}, false};
}

}  // namespace

std::string acs_text(std::uint16_t bits) {
  constexpr std::array<std::string_view, 7> kNames{"SV", "TB", "RR", "CR", "UF", "EC", "DT"};
  std::string list;
  for (unsigned bit = 0; bit < kNames.size(); ++bit) {
    if (!is_set(bits, bit)) continue;
    if (!list.empty()) list += ' ';
    list += kNames[bit];
  }
  return list.empty() ? "none" : list;
}

std::optional<PciConfig> PciConfig::parse(std::string_view bytes) {
  const std::string_view space = bytes.substr(0, kAllBytes);
  if (space.size() < kHeaderBytes) return {};
  PciConfig config;
  config.bytes = space.size();
  config.is_gone = word_at(space, 0) == 0xffff;
  if (config.is_gone) return config;
  config.express = read_express(space);
  if (config.express.is_absent()) {
    // Extended capabilities are a matter of PCI Express (and of PCI-X 2.0, which no device of interest here is).
    config.acs.is_hidden = config.ats.is_hidden = false;
    return config;
  }
  config.acs = read_acs(space);
  config.ats = read_ats(space);
  return config;
}

std::string without_serial_number(const std::string& bytes) {
  std::string config = bytes;
  const unsigned offset = find_extended(config, kSerialNumberId).offset;
  if (offset != 0 && offset + 12 <= config.size()) config.replace(offset + 4, 8, 8, '\0');
  return config;
}

}  // namespace gigabar::inline v0
