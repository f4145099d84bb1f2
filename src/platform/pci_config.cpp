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

// Little-endian numbers; nothing where the bytes end before.
class Bytes {
 public:
  explicit Bytes(std::string_view bytes) : bytes_(bytes.substr(0, kAllBytes)) {}

  std::size_t size() const noexcept { return bytes_.size(); }
  std::optional<std::uint8_t> byte(std::size_t at) const noexcept {
    return at < bytes_.size() ? std::optional<std::uint8_t>(static_cast<std::uint8_t>(bytes_[at])) : std::nullopt;
  }
  std::optional<std::uint16_t> word(std::size_t at) const noexcept {
    const auto low = byte(at), high = byte(at + 1);
    if (!low || !high) return {};
    return static_cast<std::uint16_t>(static_cast<unsigned>(*low) | static_cast<unsigned>(*high) << 8U);
  }
  std::optional<std::uint32_t> double_word(std::size_t at) const noexcept {
    const auto low = word(at), high = word(at + 2);
    if (!low || !high) return {};
    return std::uint32_t{*low} | std::uint32_t{*high} << 16U;
  }

 private:
  std::string_view bytes_;
};

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

Place find_ordinary(const Bytes& bytes, unsigned wanted) {
  constexpr std::size_t kStatusAt = 0x06, kHeaderTypeAt = 0x0e, kListAt = 0x34;
  constexpr std::size_t kCardBusListAt = 0x14;
  constexpr unsigned kHasListBit = 4;
  if (!is_set(bytes.word(kStatusAt).value_or(0), kHasListBit)) return {};
  const bool is_card_bus = field(bytes.byte(kHeaderTypeAt).value_or(0), 0, 7) == 2;
  const unsigned first = bytes.byte(is_card_bus ? kCardBusListAt : kListAt).value_or(0) & ~3U;
  return find_in_list(first, kHeaderBytes, wanted, [&](unsigned at) -> std::optional<std::pair<unsigned, unsigned>> {
    const auto entry = bytes.word(at);
    if (!entry) return {};
    return std::pair{field(*entry, 0, 8), field(*entry, 8, 8) & ~3U};
  });
}

Place find_extended(const Bytes& bytes, unsigned wanted) {
  return find_in_list(kOrdinaryBytes, kOrdinaryBytes, wanted, [&](unsigned at) -> std::optional<std::pair<unsigned, unsigned>> {
    const auto entry = bytes.double_word(at);
    if (!entry || *entry == ~std::uint32_t{0}) return {};
    return std::pair{field(*entry, 0, 16), field(*entry, 20, 12) & ~3U};
  });
}

PciCapability<PciExpressCapability> read_express(const Bytes& bytes) {
  constexpr unsigned kRegisterBytes = 0x14;  // of the oldest version: up to Link Status
  const Place place = find_ordinary(bytes, kExpressId);
  if (place.offset == 0) return {{}, place.is_hidden};
  const auto control = bytes.word(place.offset + 0x08);
  if (!control || place.offset + kRegisterBytes > bytes.size()) return {};
  return {PciExpressCapability{packet_bytes(field(*control, 5, 3)), packet_bytes(field(*control, 12, 3)), is_set(*control, 4)},
          false};
}

PciCapability<PciAcsCapability> read_acs(const Bytes& bytes) {
  const Place place = find_extended(bytes, kAcsId);
  if (place.offset == 0) return {{}, place.is_hidden};
  const auto can = bytes.word(place.offset + 4), control = bytes.word(place.offset + 6);
  if (!can || !control) return {};
  return {PciAcsCapability{*can, *control}, false};
}

PciCapability<PciAtsCapability> read_ats(const Bytes& bytes) {
  const Place place = find_extended(bytes, kAtsId);
  if (place.offset == 0) return {{}, place.is_hidden};
  const auto control = bytes.word(place.offset + 6);
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
  const Bytes space(bytes);
  if (space.size() < kHeaderBytes) return {};
  PciConfig config;
  config.bytes = space.size();
  config.is_gone = space.word(0) == 0xffff;
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

}  // namespace gigabar::inline v0
