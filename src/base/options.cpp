#include "base/options.hpp"

#include <charconv>
#include <cstdlib>

namespace gigabar {

std::optional<std::string> environment(const char* name) {
  const char* value = secure_getenv(name);
  if (value == nullptr) return {};
  return std::string(value);
}

std::optional<std::uint64_t> parse_number(std::string_view text, std::uint64_t least, std::uint64_t most) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < least || value > most) return {};
  return value;
}

std::optional<std::uint64_t> parse_bytes(std::string_view text) {
  unsigned shift = 0;
  if (!text.empty()) {
    switch (text.back()) {
      case 'k':
      case 'K': shift = 10; break;
      case 'm':
      case 'M': shift = 20; break;
      case 'g':
      case 'G': shift = 30; break;
      default: break;
    }
  }
  if (shift != 0) text.remove_suffix(1);
  const auto value = parse_number(text, 1, (std::uint64_t{1} << 62) >> shift);
  if (!value) return {};
  return *value << shift;
}

}  // namespace gigabar
