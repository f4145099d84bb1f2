// SPDX-License-Identifier: Apache-2.0
// What every function of the C interface is made of: its body throws a Refused where the C++ API returns an error, and a
// WrongArgument; guarded() keeps the record for gigabar_last_error() and returns its status.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/errors.hpp"
#include "gigabar/status.h"
#include "gigabar/status.hpp"

namespace gigabar::c {

struct Refused {
  Error error;
};

// Of a function that named() knows; `argument` is its name in the header.
struct WrongArgument {
  std::string argument, cause, remedy;
};
[[noreturn]] inline void refuse(std::string argument, std::string cause, std::string remedy) {
  throw WrongArgument{std::move(argument), std::move(cause), std::move(remedy)};
}

// Keeps the record of this thread.
gigabar_status keep(Error error) noexcept;

// The record of that argument of the function, thrown.
[[noreturn]] void refuse(const char* function, WrongArgument& wrong);

template <class Body>
void named(const char* function, Body&& body) {
  try {
    body();
  } catch (WrongArgument& wrong) {
    refuse(function, wrong);
  }
}

template <class Body>
gigabar_status guarded(const char* function, Body&& body) noexcept {
  try {
    named(function, body);
    return GIGABAR_OK;
  } catch (Refused& refused) {
    return keep(std::move(refused.error));
  } catch (...) {
    return keep(error_of_exception(function));
  }
}

// The value, or the end of the call.
template <class T>
T take(Result<T> result) {
  if (!result) throw Refused{std::move(result).error()};
  return std::move(result).value();
}
inline void take(Result<void> result) {
  if (!result) throw Refused{std::move(result).error()};
}

// The object behind a pointer that may not be null.
template <class T>
T& object_at(T* pointer, const char* argument) {
  if (pointer == nullptr) [[unlikely]]
    refuse(argument, "it is null", "pass the address of an object");
  return *pointer;
}

// A number of an enumeration of C, as the C++ one. `count`: numbers 0 to count - 1 are known.
template <class Enumeration>
Enumeration enumerator(std::int32_t number, std::int32_t count, const char* argument) {
  if (number < 0 || number >= count) [[unlikely]]
    refuse(argument, text(number, " is not one of its values"), text("pass a value from 0 to ", count - 1));
  return static_cast<Enumeration>(number);
}

// A text of the caller's, with room for what fits and its end.
template <std::size_t kBytes>
void copy_text(const std::string& text, char (&field)[kBytes]) noexcept {
  const std::size_t length = text.copy(field, kBytes - 1);
  field[length] = '\0';
}

// "a,b" as its parts.
std::vector<std::string> parts_of(const std::string& list);

// A copy for the caller, which gigabar_text_free() frees.
char* new_text(const std::string& text);

// A structure of the caller's, of any age: struct_size bytes of it are there, and the fields of field_mask count.
template <class Struct>
class Fields {
 public:
  // Ends the call when the structure is not one, or asks for fields beyond `known`. A null structure has no fields.
  Fields(Struct* object, std::uint64_t known, const char* argument) : object_(object), argument_(argument) {
    if (object == nullptr) return;
    if (object->struct_size < sizeof object->struct_size + sizeof object->field_mask) {
      refuse(text(argument, "->struct_size"), text("it is ", object->struct_size), "set it to sizeof of the structure");
    }
    size_ = object->struct_size;
    mask_ = object->field_mask;
    if ((mask_ & ~known) != 0) {
      refuse(text(argument, "->field_mask"), text("bits ", hex_text(mask_ & ~known), " are unknown to this library"),
             "clear them, or use a later version of libgigabar.so.1");
    }
  }

  bool has(std::uint64_t bit) const noexcept { return (mask_ & bit) != 0; }

  // The member, or null where the caller has not set its bit.
  template <class Member>
  const Member* find(std::uint64_t bit, Member Struct::* member) const {
    if (!has(bit)) return nullptr;
    return &room_of(member);
  }

  // Takes what the caller has set, as a value of another type.
  template <class Member, class Wanted>
  void read(std::uint64_t bit, Member Struct::* member, Wanted& wanted) const {
    if (const Member* const set = find(bit, member)) wanted = static_cast<Wanted>(*set);
  }

  // Fills a member that the caller asks for.
  template <class Member, class Value>
  void fill(std::uint64_t bit, Member Struct::* member, const Value& value) {
    if (!has(bit)) return;
    filled_ |= bit;
    if constexpr (std::is_array_v<Member>) {
      copy_text(value, room_of(member));
    } else {
      room_of(member) = static_cast<Member>(value);
    }
  }
  // The caller learns what was filled.
  void finish() { object_->field_mask = filled_; }

 private:
  template <class Member>
  auto& room_of(Member Struct::* member) const {
    auto& room = object_->*member;
    const auto end = static_cast<std::size_t>(reinterpret_cast<const char*>(&room + 1) - reinterpret_cast<const char*>(object_));
    if (end > size_) {
      refuse(text(argument_, "->struct_size"), text("the structure of ", size_, " bytes ends before a field of its mask"),
             "set it to sizeof of the structure");
    }
    return room;
  }

  Struct* object_;
  const char* argument_;
  std::uint64_t size_ = 0;
  std::uint64_t mask_ = 0;
  std::uint64_t filled_ = 0;
};

}  // namespace gigabar::c
