// SPDX-License-Identifier: Apache-2.0
// JSON of what has a members_of() (doctor/members.hpp), written from its beginning to its end. Where memory runs out it throws, and
// nothing has to be taken down. First what only the C interface's documents show, member by member.
#pragma once

#include <concepts>
#include <optional>
#include <ranges>
#include <string>
#include <string_view>
#include <utility>

#include "doctor/members.hpp"
#include "gigabar/device.hpp"
#include "gigabar/fabric.hpp"
#include "gigabar/mapping.hpp"
#include "gigabar/status.hpp"

namespace gigabar::inline v0 {

// `code`, `reason`, and `remedy` and `check` where there are any.
void members_of(const Availability& availability, const auto& put) {
  put("code", name_of(availability.code));
  put("reason", availability.reason);
  if (!availability.remedy.empty()) put("remedy", availability.remedy);
  if (!availability.check.empty()) put("check", availability.check);
}

void members_of(const PathReport& path, const auto& put) {
  put("path", path.path);
  put("description", path.description);
  members_of(path.availability, put);
}

void members_of(const DriverReport& driver, const auto& put) {
  put("name", driver.name);
  members_of(driver.availability, put);
}

void members_of(const PassedOver& backend, const auto& put) {
  put("backend", name_of(backend.backend));
  members_of(backend.why, put);
}

void members_of(const Setting& setting, const auto& put) {
  put("name", setting.name);
  put("value", setting.value);
  put("source", setting.source);
}

void members_of(const PeerState& peer, const auto& put) {
  put("rank", peer.rank);
  put("is_connected", peer.is_connected);
  put("is_broken", peer.is_broken);
  put("is_same_host", peer.is_same_host);
  put("why", if_told(peer.why));
  put("transport", peer.transport ? std::optional(name_of(*peer.transport)) : std::nullopt);
  put("rails", peer.rails);
  put("memory_bytes", peer.memory_bytes);
}

void members_of(const Explanation::Alternative& other, const auto& put) {
  put("name", other.name);
  put("why_not", other.why_not);
}

void members_of(const Explanation& explanation, const auto& put) {
  put("is_possible", explanation.is_possible);
  put("path", name_of(explanation.path));
  put("transport", explanation.transport ? std::optional(name_of(*explanation.transport)) : std::nullopt);
  put("rails", explanation.rails);
  put("chunk_bytes", explanation.chunk_bytes);
  put("reason", explanation.reason);
  put("alternatives", explanation.alternatives);
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
