// SPDX-License-Identifier: Apache-2.0
#include "support/option_checks.hpp"

#include <fmt/format.h>

#include <charconv>

#include "base/counted.hpp"
#include "base/options.hpp"
#include "support/sizes.hpp"

namespace gigabar::tool {

Value byte_count(std::uint64_t least, std::uint64_t most) {
  const Check check = [=](std::string& text) -> std::string {
    const auto bytes = parse_size(text);
    if (!bytes) return fmt::format("'{}' is not a size; write bytes, or a number with K, M or G (powers of 1024)", text);
    if (*bytes < least || *bytes > most) return fmt::format("{} is outside {}..{}", counted(*bytes, "byte"), least, most);
    text = std::to_string(*bytes);
    return {};
  };
  return {"BYTES", check, true};
}

Value whole_number(std::uint64_t least, std::uint64_t most, const char* name) {
  const Check check = [=](std::string& text) -> std::string {
    const auto number = parse_number(text, 0, ~std::uint64_t{0});
    if (!number) return fmt::format("'{}' is not a whole number; write digits only", text);
    if (*number < least || *number > most) return fmt::format("{} is outside {}..{}", *number, least, most);
    return {};
  };
  return {name, check};
}

Value real_number(double least, double most, const char* name) {
  const Check check = [=](std::string& text) -> std::string {
    double value = 0;
    if (read_number(text, value) && value >= least && value <= most) return {};
    return fmt::format("'{}' is not a number from {} to {}", text, least, most);
  };
  return {name, check};
}

Value number_above_0(double most, const char* name, const char* what) {
  const Check check = [=](std::string& text) -> std::string {
    double value = 0;
    if (read_number(text, value) && value > 0 && value <= most) return {};
    return fmt::format("'{}' is not {} above 0 and up to {}", text, what, most);
  };
  return {name, check};
}

Value seconds(double most) { return number_above_0(most, "SECONDS", "a time; write seconds"); }

Check file_name() {
  return [](std::string& text) { return text.empty() || text == "-" ? "'" + text + "' is not a file's name" : std::string(); };
}

bool read_number(const std::string& text, double& value) {
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && at == end;
}

Value any_text(const char* name) {
  return {name, [](std::string&) { return std::string(); }};
}

}  // namespace gigabar::tool
