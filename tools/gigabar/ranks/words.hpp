// SPDX-License-Identifier: Apache-2.0
// What the ranks of a command tell each other beside what they measure, and what rank 0 prints of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gigabar/device.hpp"
#include "gigabar/fabric.hpp"
#include "support/report.hpp"

namespace gigabar::tool::ranks {

inline constexpr std::size_t kMaxCardBytes = 65536;

// Returns when rank 0 has left, which is after it knows what to say: a launcher ends all ranks when it sees the first one fail.
void let_rank_0_speak(Fabric& fabric);

// Waits for all ranks. Where some do not come rank 0 ends with their numbers and the reason of each, and the others as rank 0 says.
void await_ranks(Fabric& fabric, Timeout timeout);

// The same number for the same text. FNV-1a: no secret.
std::uint64_t digest_of_text(std::string_view text) noexcept;
// Ends the command as bad usage where the ranks' digests differ: started with different options they would wait for each other in
// vain.
void require_agreement(Fabric& fabric, std::uint64_t digest, Timeout timeout);

// A text of every rank, in their order, at rank 0; nothing elsewhere.
std::vector<std::string> gather(Fabric& fabric, std::string own, std::size_t most_bytes, Timeout timeout);

// How a rank introduces itself, as JSON: host, local rank, device.
Json rank_card(const Fabric& fabric, const std::optional<DeviceInfo>& device);
// What others sent is not trusted: ends the command where it is no card.
std::vector<Json> read_cards(const std::vector<std::string>& texts);
std::string dump(const Json& card);
bool is_stand_in_card(const Json& card);
// A text of the card, fit for a terminal; empty: none.
std::string text_of(const Json& card, const char* key);
// "rank 1: host, NVIDIA H200".
std::string introduction(std::size_t rank, const Json& card);

// Into the document; those that are no defaults are printed with who set them.
void tell_settings(Report& report, const Fabric& fabric);

}  // namespace gigabar::tool::ranks
