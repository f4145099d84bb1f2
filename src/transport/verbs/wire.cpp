// SPDX-License-Identifier: Apache-2.0
#include "transport/verbs/wire.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/bytes.hpp"
#include "base/names.hpp"

namespace gigabar::transport::rdma {
namespace {

constexpr std::string_view kAddressMagic = "gbVc";
constexpr std::string_view kOfferMagic = "gbVo";
constexpr std::string_view kAnswerMagic = "gbVa";
constexpr std::string_view kKeyMagic = "gbVk";
constexpr std::string_view kIntroductionMagic = "gbVi";
constexpr std::string_view kRefusalMagic = "gbVr";
constexpr std::uint8_t kFollowsGpuWrites = 1, kWantsCredits = 2;  // flags of a message
// The longest range that any machine has.
constexpr std::uint64_t kMaxRegionBytes = std::uint64_t{1} << 48;

ByteWriter begin(std::string_view magic) {
  ByteWriter writer(magic);
  writer.number(kWireVersion);
  return writer;
}

ByteReader after(std::string_view magic, std::string_view bytes) {
  ByteReader reader(bytes);
  reader.expect(reader.bytes(magic.size()) == magic);
  reader.expect(reader.number<std::uint8_t>() == kWireVersion);
  return reader;
}

void write_address(ByteWriter& writer, const RailAddress& rail) {
  writer.number(static_cast<std::uint8_t>(rail.technology)).number(static_cast<std::uint8_t>(rail.is_ipv6));
  writer.number(rail.prefix_bits).number(rail.port).bytes(view_of(rail.bytes));
}

RailAddress read_address(ByteReader& reader) {
  RailAddress rail;
  const auto technology = reader.number<std::uint8_t>();
  const auto family = reader.number<std::uint8_t>();
  reader.expect(technology <= static_cast<std::uint8_t>(Technology::iwarp) && family <= 1);
  if (reader.is_ok()) rail.technology = static_cast<Technology>(technology);
  rail.is_ipv6 = family == 1;
  rail.prefix_bits = reader.number<std::uint8_t>();
  rail.port = reader.number<std::uint16_t>();
  rail.bytes = reader.array<16>();
  reader.expect(rail.prefix_bits <= (rail.is_ipv6 ? 128 : 32));
  reader.expect(rail.is_ipv6 || std::all_of(rail.bytes.begin() + 4, rail.bytes.end(), [](std::uint8_t byte) { return byte == 0; }));
  reader.expect(std::any_of(rail.bytes.begin(), rail.bytes.end(), [](std::uint8_t byte) { return byte != 0; }));
  return rail;
}

template <class Value>
std::optional<Value> if_done(const ByteReader& reader, Value value) {
  if (!reader.is_done()) return {};
  return value;
}

// Offers and answers: a rail of the sender with its address, and a token.
std::string write_told(std::string_view magic, std::uint8_t rail, const RailAddress& address, const Token& token) {
  ByteWriter writer = begin(magic);
  writer.number(rail);
  write_address(writer, address);
  return writer.bytes(view_of(token)).take();
}

template <class Told>
std::optional<Told> read_told(std::string_view magic, std::string_view bytes) {
  ByteReader reader = after(magic, bytes);
  Told told{reader.number<std::uint8_t>(), read_address(reader), reader.array<16>()};
  reader.expect(told.rail < kMaxRails);
  return if_done(reader, std::move(told));
}

std::string_view text_of(std::span<const std::uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

template <std::size_t kCount>
std::array<std::uint8_t, kCount> fixed(const std::string& bytes) {
  std::array<std::uint8_t, kCount> result{};
  std::memcpy(result.data(), bytes.data(), std::min(bytes.size(), kCount));
  return result;
}

}  // namespace

std::string_view name_of(Technology technology) noexcept {
  return name_at(std::array<std::string_view, 3>{"InfiniBand", "RoCE", "iWARP"}, technology);
}

std::string text_of(const RailAddress& address) {
  char text[INET6_ADDRSTRLEN] = {};
  ::inet_ntop(address.is_ipv6 ? AF_INET6 : AF_INET, address.bytes.data(), text, sizeof text);
  return text;
}

bool is_same_network(const RailAddress& first, const RailAddress& second) noexcept {
  if (first.is_ipv6 != second.is_ipv6) return false;
  const unsigned bits = std::min(first.prefix_bits, second.prefix_bits);
  for (unsigned bit = 0; bit < bits; ++bit) {
    if (((first.bytes[bit / 8] ^ second.bytes[bit / 8]) & (0x80 >> bit % 8)) != 0) return false;
  }
  return true;
}

bool is_equal(const Token& first, const Token& second) noexcept {
  unsigned difference = 0;
  for (std::size_t i = 0; i < first.size(); ++i) difference |= static_cast<unsigned>(first[i] ^ second[i]);
  return difference == 0;
}

std::string write_card(std::span<const RailAddress> rails) {
  ByteWriter writer = begin(kAddressMagic);
  const std::size_t count = std::min(rails.size(), kMaxRails);
  writer.number(static_cast<std::uint8_t>(count));
  for (const RailAddress& rail : rails.first(count)) write_address(writer, rail);
  return writer.take();
}

std::optional<std::vector<RailAddress>> read_card(std::string_view bytes) {
  ByteReader reader = after(kAddressMagic, bytes);
  const auto count = reader.number<std::uint8_t>();
  reader.expect(count >= 1 && count <= kMaxRails);
  std::vector<RailAddress> rails;
  for (unsigned i = 0; i < count && reader.is_ok(); ++i) rails.push_back(read_address(reader));
  return if_done(reader, std::move(rails));
}

std::string write_offer(const Offer& offer) { return write_told(kOfferMagic, offer.rail, offer.from, offer.token); }

std::optional<Offer> read_offer(std::string_view bytes) { return read_told<Offer>(kOfferMagic, bytes); }

std::string write_answer(const Answer& answer) { return write_told(kAnswerMagic, answer.rail, answer.to, answer.token); }

std::optional<Answer> read_answer(std::string_view bytes) {
  auto answer = read_told<Answer>(kAnswerMagic, bytes);
  if (answer && answer->to.port == 0) answer.reset();
  return answer;
}

std::string write_key(const Key& key) {
  ByteWriter writer = begin(kKeyMagic);
  writer.number(static_cast<std::uint8_t>(key.kind));
  writer.number(key.address);
  writer.number(key.bytes);
  const std::size_t count = std::min(key.keys.size(), kMaxRails);
  writer.number(static_cast<std::uint8_t>(count));
  for (std::size_t i = 0; i < count; ++i) writer.number(key.keys[i]);
  writer.number(static_cast<std::uint8_t>(key.has_atomics));
  return writer.take();
}

std::optional<Key> read_key(std::string_view bytes) {
  ByteReader reader = after(kKeyMagic, bytes);
  Key key;
  const auto kind = reader.number<std::uint8_t>();
  reader.expect(kind <= static_cast<std::uint8_t>(MemoryKind::stand_in));
  if (reader.is_ok()) key.kind = static_cast<MemoryKind>(kind);
  key.address = reader.number<std::uint64_t>();
  key.bytes = reader.number<std::uint64_t>();
  reader.expect(key.bytes >= 1 && key.bytes <= kMaxRegionBytes && key.address <= UINT64_MAX - key.bytes);
  const auto count = reader.number<std::uint8_t>();
  reader.expect(count >= 1 && count <= kMaxRails);
  for (unsigned i = 0; i < count && reader.is_ok(); ++i) key.keys.push_back(reader.number<std::uint32_t>());
  const auto has_atomics = reader.number<std::uint8_t>();
  reader.expect(has_atomics <= 1);
  key.has_atomics = has_atomics == 1;
  return if_done(reader, std::move(key));
}

std::array<std::uint8_t, kIntroductionBytes> write_introduction(const Introduction& introduction) {
  ByteWriter writer = begin(kIntroductionMagic);
  writer.number(static_cast<std::uint8_t>(introduction.is_in_order ? 1 : 0));
  writer.bytes(view_of(std::array<std::uint8_t, 2>{}));
  writer.number(introduction.probe_address);
  writer.number(introduction.probe_key);
  writer.bytes(view_of(introduction.token));
  return fixed<kIntroductionBytes>(writer.take());
}

std::optional<Introduction> read_introduction(std::span<const std::uint8_t> bytes) {
  ByteReader reader = after(kIntroductionMagic, text_of(bytes));
  Introduction introduction;
  const auto is_in_order = reader.number<std::uint8_t>();
  reader.expect(is_in_order <= 1);
  introduction.is_in_order = is_in_order == 1;
  reader.array<2>();
  introduction.probe_address = reader.number<std::uint64_t>();
  introduction.probe_key = reader.number<std::uint32_t>();
  introduction.token = reader.array<16>();
  if (!reader.is_ok()) return {};
  return introduction;
}

std::array<std::uint8_t, kRefusalBytes> write_refusal(Refusal refusal) {
  ByteWriter writer = begin(kRefusalMagic);
  writer.number(static_cast<std::uint8_t>(refusal));
  return fixed<kRefusalBytes>(writer.take());
}

std::optional<Refusal> read_refusal(std::span<const std::uint8_t> bytes) {
  ByteReader reader = after(kRefusalMagic, text_of(bytes));
  const auto refusal = reader.number<std::uint8_t>();
  reader.expect(refusal >= 1 && refusal <= static_cast<std::uint8_t>(Refusal::no_resources));
  if (!reader.is_ok()) return {};
  return static_cast<Refusal>(refusal);
}

void write_message_header(const MessageHeader& header, std::byte* bytes) noexcept {
  bytes[0] = static_cast<std::byte>(header.kind);
  bytes[1] =
      static_cast<std::byte>((header.follows_gpu_writes ? kFollowsGpuWrites : 0) | (header.wants_credits ? kWantsCredits : 0));
  std::memcpy(bytes + 2, &header.credits, sizeof header.credits);
  std::memcpy(bytes + 4, &header.payload_bytes, sizeof header.payload_bytes);
  bytes[6] = static_cast<std::byte>(header.caller_bytes);
  bytes[7] = std::byte{0};
}

std::uint8_t needed_bytes(const Header& header) noexcept {
  const auto words = std::bit_cast<std::array<std::uint64_t, kHeaderBytes / 8>>(header);
  std::size_t count = words.size();
  while (count > 0 && words[count - 1] == 0) --count;
  return static_cast<std::uint8_t>(8 * count);
}

std::optional<MessageHeader> read_message_header(std::span<const std::byte> message) noexcept {
  if (message.size() < kMessageHeaderBytes) return {};
  const auto at = [&](std::size_t index) { return std::to_integer<std::uint32_t>(message[index]); };
  if (at(0) < 1 || at(0) > 3 || at(1) > (kFollowsGpuWrites | kWantsCredits)) return {};
  MessageHeader header;
  header.kind = static_cast<MessageKind>(at(0));
  header.follows_gpu_writes = (at(1) & kFollowsGpuWrites) != 0;
  header.wants_credits = (at(1) & kWantsCredits) != 0;
  std::memcpy(&header.credits, message.data() + 2, sizeof header.credits);
  std::memcpy(&header.payload_bytes, message.data() + 4, sizeof header.payload_bytes);
  header.caller_bytes = static_cast<std::uint8_t>(at(6));
  if (header.caller_bytes > kHeaderBytes || header.caller_bytes % 8 != 0 || at(7) != 0) return {};
  if (header.kind != MessageKind::payload && message.size() != kMessageHeaderBytes) return {};
  if (message.size() != kMessageHeaderBytes + header.caller_bytes + header.payload_bytes) return {};
  return header;
}

}  // namespace gigabar::transport::rdma
