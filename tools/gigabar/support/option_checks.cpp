// SPDX-License-Identifier: Apache-2.0
#include "support/option_checks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <string_view>

#include "base/counted.hpp"
#include "base/options.hpp"
#include "support/failure.hpp"

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
    const auto value = read_number(text);
    if (value && *value >= least && *value <= most) return {};
    return fmt::format("'{}' is not a number from {} to {}", text, least, most);
  };
  return {name, check};
}

Value number_above_0(double most, const char* name, const char* what) {
  const Check check = [=](std::string& text) -> std::string {
    const auto value = read_number(text);
    if (value && *value > 0 && *value <= most) return {};
    return fmt::format("'{}' is not {} above 0 and up to {}", text, what, most);
  };
  return {name, check};
}

Value seconds(double most) { return number_above_0(most, "SECONDS", "a time; write seconds"); }

Check file_name() {
  return [](std::string& text) { return text.empty() || text == "-" ? "'" + text + "' is not a file's name" : std::string(); };
}

std::optional<double> read_number(std::string_view text) {
  double value = 0;
  const auto [at, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && at == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

std::optional<std::uint64_t> parse_size(const std::string& text) {
  return parse_bytes(text, 0, std::numeric_limits<std::uint64_t>::max());
}

std::optional<SizeRange> parse_size_range(const std::string& text, const SizeRange& otherwise) {
  const std::size_t colon = text.find(':');
  const std::string least = colon == std::string::npos ? "" : text.substr(0, colon);
  const std::string most = colon == std::string::npos ? text : text.substr(colon + 1);
  if (least.empty() && most.empty()) return {};
  const auto first = least.empty() ? std::optional(otherwise.least_bytes) : parse_size(least);
  const auto last = most.empty() ? std::optional(otherwise.most_bytes) : parse_size(most);
  if (!first || !last || *first > *last || *last > kMaxBytes) return {};
  return SizeRange{*first, *last};
}

std::vector<std::uint64_t> sizes_of(const SizeRange& range) {
  std::vector<std::uint64_t> sizes;
  for (std::uint64_t bytes = range.least_bytes; bytes <= range.most_bytes; bytes = std::max<std::uint64_t>(1, bytes * 2)) {
    sizes.push_back(bytes);
  }
  return sizes;
}

Option add_range_option(const Command& command, const std::string& names, std::string& target, const std::string& help,
                        const std::string& usual) {
  return command.add_option(names, target, help)->type_name("[MIN:]MAX")->default_str(usual);
}

SizeRange settle_range(const std::string& option, const std::string& typed, const RangeRule& rule) {
  const auto range = typed.empty() ? std::optional(rule.usual) : parse_size_range(typed, rule.usual);
  const std::uint64_t unit = std::max<std::uint64_t>(rule.unit, 1);
  const bool is_good = range && range->most_bytes <= rule.most && range->least_bytes % unit == 0;
  if (is_good && (range->least_bytes > 0 || rule.unit == 0)) return *range;
  const std::string multiple =
      rule.unit == 0 ? "" : " from 1 on" + (unit == 1 ? "" : fmt::format(", a multiple of {},", unit)) + " and";
  refuse_usage(fmt::format("{} {}: this is no range of sizes; write MAX or MIN:MAX, MIN{} not above MAX, at most {}, as in {}:{}",
                           option, typed, multiple, rule.most, format_bytes(rule.usual.least_bytes),
                           format_bytes(rule.usual.most_bytes)));
}

}  // namespace gigabar::tool
