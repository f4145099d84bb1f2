// SPDX-License-Identifier: Apache-2.0
// JSON written from its beginning to its end. Where memory runs out it throws, and nothing has to be taken down.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "gigabar/status.hpp"

namespace gigabar::c {

class JsonText {
 public:
  // One value each; in a list, or behind key().
  void value(std::string_view text);
  void value(const char* text) { value(std::string_view(text)); }
  void value(const std::string& text) { value(std::string_view(text)); }
  void value(std::same_as<bool> auto truth) { raw(truth ? "true" : "false"); }
  void value(std::integral auto number)
    requires(!std::same_as<decltype(number), bool>)
  {
    raw(std::to_string(number));
  }
  void value(double number);  // null where it is not finite
  void null() { raw("null"); }

  void key(std::string_view name);
  template <class Value>
  void member(std::string_view name, const Value& content) {
    key(name);
    value(content);
  }
  template <class Value>
  void member(std::string_view name, const std::optional<Value>& content) {
    key(name);
    if (content) value(*content);
    if (!content) null();
  }
  // null in place of an empty text.
  void text_or_null(std::string_view name, const std::string& text);
  // `code`, `reason`, and `remedy` and `check` where there are any.
  void members(const Availability& availability);

  template <class Body>
  void object(Body&& body) {
    begin('{');
    body();
    end('}');
  }
  template <class Body>
  void object(std::string_view name, Body&& body) {
    key(name);
    object(body);
  }
  template <class Body>
  void array(std::string_view name, Body&& body) {
    key(name);
    begin('[');
    body();
    end(']');
  }
  template <class List, class Write>
  void list(std::string_view name, const List& all, Write&& write) {
    array(name, [&] {
      for (const auto& one : all) write(one);
    });
  }
  template <class List>
  void list(std::string_view name, const List& all) {
    list(name, all, [this](const auto& one) { this->value(one); });
  }
  // A list of objects, whose members `write` writes.
  template <class List, class Write>
  void objects(std::string_view name, const List& all, Write&& write) {
    list(name, all, [&](const auto& one) { object([&] { write(one); }); });
  }

  // The whole document, once.
  std::string take() { return std::move(text_) + "\n"; }

 private:
  void begin(char bracket);
  void end(char bracket);
  void raw(std::string_view content);
  void quote(std::string_view text);

  std::string text_;
  bool needs_comma_ = false;
};

}  // namespace gigabar::c
