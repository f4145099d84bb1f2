// SPDX-License-Identifier: Apache-2.0
// JSON of what has a members_of() (doctor/members.hpp), written from its beginning to its end. Where memory runs out it throws, and
// nothing has to be taken down.
#pragma once

#include <concepts>
#include <ranges>
#include <string>
#include <string_view>
#include <utility>

#include "doctor/members.hpp"
#include "gigabar/status.hpp"

namespace gigabar::inline v0 {

// `code`, `reason`, and `remedy` and `check` where there are any.
void members_of(const Availability& availability, const auto& put) {
  put("code", name_of(availability.code));
  put("reason", availability.reason);
  if (!availability.remedy.empty()) put("remedy", availability.remedy);
  if (!availability.check.empty()) put("check", availability.check);
}

}  // namespace gigabar::inline v0

namespace gigabar::c {

class JsonText {
 public:
  template <class Value>
  void add(const Value& value) {
    if constexpr (std::same_as<Value, bool>) {
      raw(value ? "true" : "false");
    } else if constexpr (std::integral<Value>) {
      raw(std::to_string(value));
    } else if constexpr (std::floating_point<Value>) {
      add_number(value);
    } else if constexpr (std::convertible_to<const Value&, std::string_view>) {
      quote(value);
    } else if constexpr (requires { value.has_value(); }) {
      if (value) add(*value);
      if (!value) raw("null");
    } else if constexpr (std::ranges::range<const Value>) {
      begin('[');
      for (const auto& each : value) add(each);
      end(']');
    } else {
      begin('{');
      members_of(value, [this](std::string_view name, const auto& member) {
        quote(name);
        text_ += ": ";
        needs_comma_ = false;
        add(member);
      });
      end('}');
    }
  }

  std::string take() && { return std::move(text_) + "\n"; }

 private:
  void begin(char bracket);
  void end(char bracket);
  void raw(std::string_view content);
  void quote(std::string_view text);
  void add_number(double number);  // null where it is not finite

  std::string text_;
  bool needs_comma_ = false;
};

// The whole document.
template <class Value>
std::string json_of(const Value& value) {
  JsonText text;
  text.add(value);
  return std::move(text).take();
}

}  // namespace gigabar::c
