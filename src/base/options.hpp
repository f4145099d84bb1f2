// Settings from the environment and numbers from text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gigabar {

// The variable's value; nothing when it is unset, or when real and effective ids differ (a setuid program's environment is not
// trusted). Read each time: tests and programs may change it.
std::optional<std::string> environment(const char* name);

// A whole decimal number, nothing else around it, within [least, most].
std::optional<std::uint64_t> parse_number(std::string_view text, std::uint64_t least, std::uint64_t most);

// "4096", "64K", "2M", "1G" (powers of 1024, either case); nothing for other text, zero, or more than 2^62.
std::optional<std::uint64_t> parse_bytes(std::string_view text);

}  // namespace gigabar
