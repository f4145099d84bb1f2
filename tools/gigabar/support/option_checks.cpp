#include "support/option_checks.hpp"

#include <fmt/format.h>

#include <functional>
#include <utility>

#include "support/sizes.hpp"

namespace gigabar::tool {
namespace {

// A validator that hides its type name: the option's own help text says what it wants.
CLI::Validator validator(std::function<std::string(std::string&)> check) { return CLI::Validator(std::move(check), "", ""); }

}  // namespace

CLI::Validator byte_count(std::uint64_t least, std::uint64_t most) {
  return validator([=](std::string& text) -> std::string {
    const auto bytes = parse_size(text);
    if (!bytes) return fmt::format("'{}' is not a size; write bytes, or a number with K, M or G (powers of 1024)", text);
    if (*bytes < least || *bytes > most) return fmt::format("{} bytes is outside {}..{}", *bytes, least, most);
    text = std::to_string(*bytes);
    return {};
  });
}

CLI::Validator whole_number(std::uint64_t least, std::uint64_t most) {
  return validator([=](std::string& text) -> std::string {
    const auto number = parse_digits(text);
    if (!number) return fmt::format("'{}' is not a whole number; write digits only", text);
    if (*number < least || *number > most) return fmt::format("{} is outside {}..{}", *number, least, most);
    return {};
  });
}

CLI::Validator seconds(double most) {
  return validator([=](std::string& text) -> std::string {
    double value = 0;
    if (!CLI::detail::lexical_cast(text, value) || !(value > 0) || value > most) {
      return fmt::format("'{}' is not a time; write seconds above 0 and up to {}", text, most);
    }
    return {};
  });
}

}  // namespace gigabar::tool
