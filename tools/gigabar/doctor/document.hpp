// SPDX-License-Identifier: Apache-2.0
// The part of a document that holds a machine or what was found on it: what has a members_of() (src/doctor/members.hpp), with texts
// that are plain().
#pragma once

#include <concepts>
#include <ranges>
#include <string>
#include <string_view>
#include <type_traits>

#include "doctor/members.hpp"
#include "support/plain_text.hpp"
#include "support/report.hpp"

namespace gigabar::tool::doctor {

template <class Value>
Json document_of(const Value& value) {
  if constexpr (std::is_arithmetic_v<Value>) {
    return value;
  } else if constexpr (std::convertible_to<const Value&, std::string_view>) {
    return plain(value);
  } else if constexpr (requires { value.has_value(); }) {
    return value ? document_of(*value) : Json();
  } else if constexpr (std::ranges::range<const Value>) {
    return list_of(value, [](const auto& each) { return document_of(each); });
  } else {
    Json object = Json::object();
    members_of(value, [&object](std::string_view name, const auto& member) { object[std::string(name)] = document_of(member); });
    return object;
  }
}

}  // namespace gigabar::tool::doctor
