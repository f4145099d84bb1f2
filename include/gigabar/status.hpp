// SPDX-License-Identifier: Apache-2.0
// The result of every call: a small status and, for a failure, one record with cause and remedy.
//
// No call of these headers throws, except Machine::here(), whose return type has no error. Where the program has no memory left, a
// call that returns a Result returns out_of_memory and has changed nothing, or the connection whose message
// could not be kept becomes peer_lost. A call that returns a plain value returns an empty one.
//
// A thread that is cancelled (pthread_cancel) inside a call ends after it, at its next cancellation point. Cancellation does not
// wake a call that waits: give it a time-out. Asynchronous cancelability (PTHREAD_CANCEL_ASYNCHRONOUS) is not supported.
//
// A callback (StreamOptions::progress, ExamineOptions::on_begin) may throw, which makes its call fail, or end its thread
// (pthread_exit): the call's own threads end first, and what it has allocated is freed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "gigabar/export.hpp"

namespace gigabar::inline v0 {

// Grouped by what must be done before the same call can succeed.
enum class Status : std::uint8_t {
  ok = 0,

  // The call: change the argument. Nothing was changed by the call.
  invalid_argument,
  out_of_range,
  not_supported,  // this memory or this combination can never work here

  // The operation: the same call can succeed later, or after the remedy.
  unavailable,  // the requested path does not exist on this machine; see Availability
  no_permission,
  out_of_memory,
  out_of_descriptors,
  out_of_bar1,  // the GPU's BAR1 aperture has no space for the window
  busy,
  timed_out,
  verification_failed,  // a new mapping did not show the memory it should; it was not handed out
  bad_file,             // a file that was read is truncated, malformed or hostile

  // The device: its driver reported an error; allocations on it may be lost.
  device_error,

  // The connection: the peer is gone or refused; other peers are unaffected. Forget it and connect again.
  peer_lost,

  // The process: the object belongs to another process, for example to the parent of a fork.
  foreign_process,
};

// The enumerator's name, for example "out_of_bar1". Any thread; never fails.
GIGABAR_API std::string_view name_of(Status status) noexcept;

// The numbering that a native code belongs to. Two domains never share one integer.
enum class NativeDomain : std::uint8_t { none, system_errno, cuda_driver, nvml, resource_manager, loader };

struct NativeCode {
  NativeDomain domain = NativeDomain::none;
  std::int64_t code = 0;
  std::string name;  // "EMFILE", "CUDA_ERROR_INVALID_VALUE", "NV_ERR_INVALID_ARGUMENT"
};

// Written by the code that detected the failure first. `message()` is one line.
struct ErrorRecord {
  Status status = Status::ok;
  std::string operation;  // "map"
  std::string object;     // "0x7f0000000000 +65536 on device 0"
  NativeCode native;
  std::string cause;   // what was observed, not an assumption
  std::string remedy;  // one sentence; empty when there is none
  // The doctor's check that explains the cause, for `gigabar explain`; empty when there is none. The initialiser allows records
  // without it.
  std::string check = {};  // NOLINT(readability-redundant-member-init)

  // "map: 0x7f..: <cause> (EMFILE 24); <remedy>; see 'gigabar explain <check>'".
  GIGABAR_API std::string message() const noexcept;
};

namespace detail {
// Owned copies of records. Where there is no memory for one: the static record that says out_of_memory.
GIGABAR_API const ErrorRecord* keep_record(ErrorRecord&& record) noexcept;
GIGABAR_API const ErrorRecord* copy_record(const ErrorRecord& record) noexcept;
struct DropRecord {
  GIGABAR_API void operator()(const ErrorRecord* record) const noexcept;
};
}  // namespace detail

// An owned error record, never empty. Returning it costs as much as returning a pointer.
class [[nodiscard]] Error {
 public:
  explicit Error(ErrorRecord record) noexcept : record_(detail::keep_record(std::move(record))) {}
  // The error of a program that has no memory left. Allocates nothing.
  GIGABAR_API static Error out_of_memory() noexcept;
  Error(Error&&) noexcept = default;
  Error& operator=(Error&&) noexcept = default;
  Error(const Error& other) noexcept : record_(other.record_ ? detail::copy_record(*other.record_) : nullptr) {}
  Error& operator=(const Error& other) noexcept {
    Error copy(other);
    record_.swap(copy.record_);
    return *this;
  }
  ~Error() = default;

  Status status() const noexcept { return record_->status; }
  const ErrorRecord& record() const noexcept { return *record_; }
  std::string message() const noexcept { return record_->message(); }

 private:
  template <class T>
  friend class Result;
  Error() noexcept = default;  // of a Result<void> that is ok
  std::unique_ptr<const ErrorRecord, detail::DropRecord> record_;
};

// A value, or the error that explains why there is none. (GCC 12 has no std::expected in C++20.)
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : content_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : content_(std::in_place_index<1>, std::move(error)) {}

  bool is_ok() const noexcept { return content_.index() == 0; }
  explicit operator bool() const noexcept { return is_ok(); }

  // Only when is_ok().
  T& value() & noexcept { return *std::get_if<0>(&content_); }
  const T& value() const& noexcept { return *std::get_if<0>(&content_); }
  T&& value() && noexcept { return std::move(*std::get_if<0>(&content_)); }
  T* operator->() noexcept { return std::get_if<0>(&content_); }
  const T* operator->() const noexcept { return std::get_if<0>(&content_); }
  T& operator*() & noexcept { return value(); }
  const T& operator*() const& noexcept { return value(); }

  // Only when !is_ok().
  Error& error() & noexcept { return *std::get_if<1>(&content_); }
  const Error& error() const& noexcept { return *std::get_if<1>(&content_); }
  Error&& error() && noexcept { return std::move(*std::get_if<1>(&content_)); }

  Status status() const noexcept { return is_ok() ? Status::ok : error().status(); }
  std::string message() const noexcept { return is_ok() ? std::string("ok") : error().message(); }

 private:
  std::variant<T, Error> content_;
};

// Success, or the error: a Result without a value, with the same functions. One pointer wide, so returning it costs nothing on the
// fast path.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() noexcept = default;
  Result(Error error) noexcept : error_(std::move(error)) {}

  bool is_ok() const noexcept { return error_.record_ == nullptr; }
  explicit operator bool() const noexcept { return is_ok(); }
  Status status() const noexcept { return is_ok() ? Status::ok : error_.status(); }
  std::string message() const noexcept { return is_ok() ? std::string("ok") : error_.message(); }

  // Only when !is_ok().
  Error& error() & noexcept { return error_; }
  const Error& error() const& noexcept { return error_; }
  Error&& error() && noexcept { return std::move(error_); }
  const ErrorRecord& record() const noexcept { return error_.record(); }

 private:
  Error error_;
};

// Whether and why a library, a device or a path is usable on this machine.
enum class AvailabilityCode : std::uint8_t {
  ok = 0,
  disabled,             // switched off by an option or an environment variable
  not_built,            // this build of Gigabar has no support for it
  library_missing,      // the shared library could not be opened
  entry_point_missing,  // the library has no symbol loader of the needed version
  symbol_missing,       // a required function is not in the library
  driver_too_old,
  driver_unknown,  // the driver's answer does not match any known interface
  no_device,
  no_permission,
  not_supported,  // present, but cannot do this
};

// The enumerator's name, for example "driver_too_old".
GIGABAR_API std::string_view name_of(AvailabilityCode code) noexcept;

// The reason why something is absent, as data: a code, one sentence, one remedy.
struct Availability {
  AvailabilityCode code = AvailabilityCode::ok;
  std::string reason;  // one sentence; for ok, what was found ("driver 580.159.04")
  std::string remedy;
  NativeCode native = {};  // NOLINT(readability-redundant-member-init)
  std::string check = {};  // as ErrorRecord::check  NOLINT(readability-redundant-member-init)

  bool is_ok() const noexcept { return code == AvailabilityCode::ok; }
};

}  // namespace gigabar::inline v0
