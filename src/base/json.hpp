// SPDX-License-Identifier: Apache-2.0
// JSON that nobody vouches for, read with a bound on everything, and JSON written. The fields of a type are described once, for
// both ways:
//
//   template <>
//   struct gigabar::json::Fields<Point> {
//     static void each(auto& field, auto& point) {
//       field("remark", point.remark);
//       field("bytes", point.bytes, Between{1, 4096});  // with a form, which says what else is refused
//     }
//   };
//
// When memory runs out, both ways throw std::bad_alloc and nothing else happens. That is why the documents of nlohmann-json stay
// inside json.cpp: the destructor of one with something nested allocates, and ends the program where it cannot.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gigabar::inline v0::json {

// What is wrong with a document, and where: "points[3].bytes", "is not a whole number from 1 to 4096". Thrown by the readers.
struct Problem {
  std::string place;
  std::string cause;

  std::string text() const { return place + ": " + cause; }
};

struct Limits {
  std::string_view whole = "the file";  // the place of a problem with the document as a whole
  bool is_exact = true;  // exactly the names that are described, each of them, and no control characters in texts. Otherwise other
                         // names are left aside, and a field that is absent keeps its value
  unsigned depth = 8;
  std::size_t values = std::size_t{1} << 20;  // objects, arrays, members and entries in all
  std::size_t entries = 4096;                 // of an array, and of an object of any names
  std::size_t text_bytes = 256;
};

// A value of a document, and where it stands. Asking for what it is not throws Problem. Lives as long as parse()'s `read`.
class Value {
 public:
  Value(const nlohmann::json& value, const Limits& limits, std::string place)
      : value_(&value), limits_(&limits), place_(std::move(place)) {}

  const std::string& place() const noexcept { return place_; }
  const Limits& limits() const noexcept { return *limits_; }
  // The same value with other limits, which have to outlive it.
  Value within(const Limits& limits) const { return {*value_, limits, place_}; }
  [[noreturn]] void refuse(std::string cause) const;

  bool is_null() const noexcept;
  bool is_text() const noexcept;
  bool is_object() const noexcept;
  bool boolean() const;
  const std::string& text() const;
  double real() const;
  std::uint64_t number(std::uint64_t least, std::uint64_t most) const;
  std::int64_t integer(std::int64_t least, std::int64_t most) const;

  // Of an object.
  std::optional<Value> member(std::string_view name) const;
  void expect_only(std::span<const std::string_view> names) const;
  // Members of any names, whose place is "place<between>name".
  void each_member(std::string_view between, const std::function<void(const std::string& name, const Value&)>& visit) const;
  // Of an array.
  std::size_t entry_count() const;
  Value entry(std::size_t index) const;

 private:
  const nlohmann::json* value_;
  const Limits* limits_;
  std::string place_;
};

// Calls `read` with the document. Throws Problem, and what `read` throws. A name that is given twice in an object is a problem too.
void parse(std::string_view text, const Limits& limits, const std::function<void(const Value&)>& read);

// Text for people: members and entries in lines of their own.
class Writer {
 public:
  explicit Writer(const Limits& limits) : limits_(limits) {}

  const Limits& limits() const noexcept { return limits_; }
  void begin(char opening);  // '{' or '['
  void end(char closing);
  void name(std::string_view name);  // of the member whose value comes next
  void null() { plain("null"); }
  void value(bool value) { plain(value ? "true" : "false"); }
  void value(std::uint64_t value) { plain(std::to_string(value)); }
  void value(std::int64_t value) { plain(std::to_string(value)); }
  void value(double value);
  // Bytes that are no UTF-8 are replaced, and what is longer than the limits allow is cut.
  void value(std::string_view value);
  std::string take() { return std::move(text_); }

 private:
  void plain(std::string_view text);
  void begin_line();

  const Limits& limits_;
  std::string text_;
  unsigned depth_ = 0;
  bool is_first_ = true;       // in the object or array
  bool is_after_name_ = true;  // the value stands behind its name, or is the document itself
};

// The fields of an object, see above. `each` is called with a reader or a writer of fields:
//   field(name, value)        as it is; with a form as third argument as that reads and writes it
//   field.needed(name, value) has to be there even in a document that is not exact; a text is not empty
//   field.constant(name, x)   has this value
// An optional value that holds nothing is null in an exact document, else left out, as is an empty text.
template <class T>
struct Fields;

template <class T>
concept HasFields = requires { sizeof(Fields<T>); };
template <class T>
inline constexpr bool kIsOptional = false;
template <class T>
inline constexpr bool kIsOptional<std::optional<T>> = true;

// ---- reading ----

inline void read(const Value& from, bool& to) { to = from.boolean(); }
inline void read(const Value& from, std::string& to) { to = from.text(); }
template <std::unsigned_integral Number>
void read(const Value& from, Number& to) {
  to = static_cast<Number>(from.number(0, std::numeric_limits<Number>::max()));
}
template <std::signed_integral Number>
void read(const Value& from, Number& to) {
  to = static_cast<Number>(from.integer(std::numeric_limits<Number>::min(), std::numeric_limits<Number>::max()));
}
template <HasFields T>
void read(const Value& from, T& to);
template <class T>
void read(const Value& from, std::map<std::string, T>& to) {
  from.each_member(".", [&](const std::string& name, const Value& value) { read(value, to[name]); });
}
template <class T>
void read(const Value& from, std::vector<T>& to) {
  const std::size_t count = from.entry_count();
  to.clear();
  for (std::size_t i = 0; i < count; ++i) read(from.entry(i), to.emplace_back());
}

// The form of a field without one.
struct AsItIs {
  template <class T>
  void read(const Value& from, T& to) const {
    to = T{};
    json::read(from, to);
  }
};

class FieldReader {
 public:
  explicit FieldReader(const Value& object) : object_(object) {}

  template <class T, class Form = AsItIs>
  void operator()(std::string_view name, T& to, const Form& form = {}) {
    const std::optional<Value> found = find(name, object_.limits().is_exact);
    if (!found) return;
    if constexpr (kIsOptional<T>) {
      to.reset();
      if (!object_.limits().is_exact || !found->is_null()) form.read(*found, to.emplace());
    } else {
      form.read(*found, to);
    }
  }
  template <class T, class Form = AsItIs>
  void needed(std::string_view name, T& to, const Form& form = {}) {
    const Value found = *find(name, true);
    form.read(found, to);
    if constexpr (std::same_as<T, std::string>) {
      // A thing without a name could not be told from another, nor be written again.
      if (to.empty()) found.refuse("is empty");
    }
  }
  void constant(std::string_view name, std::string_view wanted);
  void constant(std::string_view name, std::uint64_t wanted);
  // All fields were read: an exact document has no more.
  void end() const;

 private:
  std::optional<Value> find(std::string_view name, bool is_needed);

  const Value& object_;
  std::vector<std::string_view> known_;
};

template <HasFields T>
void read(const Value& from, T& to) {
  FieldReader field(from);
  Fields<T>::each(field, to);
  field.end();
}

// ---- writing ----

inline void write(Writer& to, bool value) { to.value(value); }
inline void write(Writer& to, const std::string& value) { to.value(std::string_view(value)); }
template <std::unsigned_integral Number>
void write(Writer& to, const Number& value) {
  to.value(std::uint64_t{value});
}
template <std::signed_integral Number>
void write(Writer& to, const Number& value) {
  to.value(std::int64_t{value});
}
template <HasFields T>
void write(Writer& to, const T& value);
template <class T>
void write(Writer& to, const std::map<std::string, T>& values) {
  to.begin('{');
  for (const auto& [name, value] : values) {
    to.name(name);
    write(to, value);
  }
  to.end('}');
}
template <class T>
void write(Writer& to, const std::vector<T>& values) {
  to.begin('[');
  for (const T& value : values) write(to, value);
  to.end(']');
}

class FieldWriter {
 public:
  explicit FieldWriter(Writer& writer) : writer_(writer) {}

  template <class T, class Form = AsItIs>
  void operator()(std::string_view name, const T& value, const Form& form = {}) {
    if constexpr (kIsOptional<T>) {
      if (value) {
        needed(name, *value, form);
      } else if (writer_.limits().is_exact) {
        writer_.name(name);
        writer_.null();
      }
    } else {
      if constexpr (std::same_as<T, std::string>) {
        if (value.empty() && !writer_.limits().is_exact) return;
      }
      needed(name, value, form);
    }
  }
  // A form without write() leaves the value as it is.
  template <class T, class Form = AsItIs>
  void needed(std::string_view name, const T& value, [[maybe_unused]] const Form& form = {}) {
    writer_.name(name);
    if constexpr (requires { form.write(writer_, value); }) {
      form.write(writer_, value);
    } else {
      write(writer_, value);
    }
  }
  template <class T>
  void constant(std::string_view name, const T& value) {
    writer_.name(name);
    writer_.value(value);
  }

 private:
  Writer& writer_;
};

template <HasFields T>
void write(Writer& to, const T& value) {
  to.begin('{');
  FieldWriter field(to);
  Fields<T>::each(field, value);
  to.end('}');
}

// The whole document.
template <class T>
std::string to_text(const T& value, const Limits& limits) {
  Writer writer(limits);
  write(writer, value);
  return writer.take() + "\n";
}

// ---- forms ----

struct Between {
  std::uint64_t least, most;

  template <std::integral Number>
  void read(const Value& from, Number& to) const {
    to = static_cast<Number>(from.number(least, most));
  }
};

// At most so many entries.
struct AtMost {
  std::size_t count;

  template <class T>
  void read(const Value& from, std::vector<T>& to) const {
    if (from.entry_count() > count) from.refuse("has more than " + std::to_string(count) + " entries");
    json::read(from, to);
  }
};

// One of these enumerators, by the name that name_of() gives it.
template <class Enum, std::size_t kCount>
struct OneOf {
  std::array<Enum, kCount> all;

  void read(const Value& from, Enum& to) const {
    const auto found = std::find_if(all.begin(), all.end(), [&](Enum one) { return name_of(one) == from.text(); });
    if (found == all.end()) refuse(from);
    to = *found;
  }
  void write(Writer& to, const Enum& value) const { to.value(name_of(value)); }

 private:
  [[noreturn]] void refuse(const Value& from) const {
    std::string cause = "is none of";
    for (const Enum one : all) cause.append(" \"").append(name_of(one)).append("\"");
    from.refuse(std::move(cause));
  }
};
template <class Enum, std::size_t kCount>
OneOf(std::array<Enum, kCount>) -> OneOf<Enum, kCount>;

}  // namespace gigabar::inline v0::json
