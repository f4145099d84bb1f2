// SPDX-License-Identifier: Apache-2.0
// What ranks tell each other for verbs links: the bytes of addresses, offers, answers, keys and private data, and the header of
// every message. All of it comes from other processes, so every reader checks everything and none of them needs a library.
//
// Numbers are little endian.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gigabar/memory.hpp"
#include "transport/transport.hpp"

namespace gigabar::transport::rdma {

inline constexpr std::uint8_t kWireVersion = 5;
inline constexpr std::size_t kMaxRails = 16;

// Which ports can talk to each other.
enum class Technology : std::uint8_t { infiniband, roce, iwarp };
std::string_view name_of(Technology technology) noexcept;

// A port by the address that rdma_cm knows it by.
struct RailAddress {
  Technology technology = Technology::roce;
  bool is_ipv6 = false;
  std::array<std::uint8_t, 16> bytes{};  // an IPv4 address in the first four; the others are 0
  std::uint8_t prefix_bits = 0;          // of its network
  std::uint16_t port = 0;                // where it listens; 0: it does not

  bool operator==(const RailAddress&) const = default;
};
// "10.77.0.1", "fd00::1".
std::string text_of(const RailAddress& address);
bool is_same_network(const RailAddress& first, const RailAddress& second) noexcept;

// Proves that who connects is who was told of the port. Random, for one connection.
using Token = std::array<std::uint8_t, 16>;
// Takes the same time wherever they differ.
bool is_equal(const Token& first, const Token& second) noexcept;

struct Offer {
  std::uint8_t rail = 0;  // of the initiator
  RailAddress from;
  Token token{};  // which the initiator will show when it connects
};
struct Answer {
  std::uint8_t rail = 0;  // of the acceptor
  RailAddress to;
  Token token{};  // which the acceptor will show when it accepts
};
struct Key {
  MemoryKind kind = MemoryKind::host_pageable;
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  std::vector<std::uint32_t> keys;  // one per rail
  bool has_atomics = false;         // of adapters, atomic with each other on whatever rail they come
};

std::string write_card(std::span<const RailAddress> rails);
std::string write_offer(const Offer& offer);
std::string write_answer(const Answer& answer);
std::string write_key(const Key& key);
// Nothing: not of this kind and version, too long or short, or with a value that cannot be.
std::optional<std::vector<RailAddress>> read_card(std::string_view bytes);
std::optional<Offer> read_offer(std::string_view bytes);
std::optional<Answer> read_answer(std::string_view bytes);
std::optional<Key> read_key(std::string_view bytes);

// What both sides of a connection say in rdma_cm's private data, of which InfiniBand and RoCE leave 56 bytes. The network may have
// appended zeros.
struct Introduction {
  Token token{};
  std::uint64_t probe_address = 0;  // 8 bytes that the other may read, to see whether this side's adapter answers
  std::uint32_t probe_key = 0;
  bool is_in_order = false;  // whether this side's adapter carries out one request after the other
};
inline constexpr std::size_t kIntroductionBytes = 36;
std::array<std::uint8_t, kIntroductionBytes> write_introduction(const Introduction& introduction);
std::optional<Introduction> read_introduction(std::span<const std::uint8_t> bytes);

// Why a connection was refused.
enum class Refusal : std::uint8_t { unknown_token = 1, no_resources = 2 };
inline constexpr std::size_t kRefusalBytes = 8;
std::array<std::uint8_t, kRefusalBytes> write_refusal(Refusal refusal);
std::optional<Refusal> read_refusal(std::span<const std::uint8_t> bytes);

// The first bytes of every message; the caller's header and the payload follow. In messages that go inline the zeros at the end of
// the caller's header stay away: siw takes 80 bytes inline, and up to 32 together with its own header.
enum class MessageKind : std::uint8_t {
  hello = 1,    // the initiator's first: an iWARP acceptor must not send before it has come
  payload = 2,  // the caller's header and payload
  credits = 3   // nothing but credits
};
struct MessageHeader {
  MessageKind kind = MessageKind::payload;
  bool follows_gpu_writes = false;  // writes to GPU memory were posted since the message before
  bool wants_credits = false;       // the sender had none left for a message since the one before
  std::uint16_t credits = 0;        // so many receives were posted anew since the message before
  std::uint16_t payload_bytes = 0;  // without the caller's header
  std::uint8_t caller_bytes = 0;    // of the caller's header, a multiple of 8; those that are not there are 0
};
inline constexpr std::size_t kMessageHeaderBytes = 8;
// How many bytes of the caller's header, a multiple of 8, are not only zeros at its end.
std::uint8_t needed_bytes(const Header& header) noexcept;
void write_message_header(const MessageHeader& header, std::byte* bytes) noexcept;
// Nothing: it is none, or `message` is not as long as it says.
std::optional<MessageHeader> read_message_header(std::span<const std::byte> message) noexcept;

}  // namespace gigabar::transport::rdma
