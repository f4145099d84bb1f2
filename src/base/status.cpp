// SPDX-License-Identifier: Apache-2.0
#include "gigabar/status.hpp"

#include <array>
#include <cerrno>
#include <cstring>
#include <exception>
#include <new>
#include <system_error>
#include <typeinfo>

#include "base/errors.hpp"
#include "base/hexadecimal.hpp"
#include "base/log.hpp"
#include "base/names.hpp"
#include "base/uncancelled.hpp"

namespace gigabar::inline v0 {

std::string_view name_of(Status status) noexcept {
  constexpr auto kNames =
      std::to_array<std::string_view>({"ok", "invalid_argument", "out_of_range", "not_supported", "unavailable", "no_permission",
                                       "out_of_memory", "out_of_descriptors", "out_of_bar1", "busy", "timed_out",
                                       "verification_failed", "bad_file", "device_error", "peer_lost", "foreign_process"});
  static_assert(kNames.size() == static_cast<std::size_t>(Status::foreign_process) + 1);
  return name_at(kNames, status);
}

std::string_view name_of(AvailabilityCode code) noexcept {
  constexpr auto kNames =
      std::to_array<std::string_view>({"ok", "disabled", "not_built", "library_missing", "entry_point_missing", "symbol_missing",
                                       "driver_too_old", "driver_unknown", "no_device", "no_permission", "not_supported"});
  static_assert(kNames.size() == static_cast<std::size_t>(AvailabilityCode::not_supported) + 1);
  return name_at(kNames, code);
}

namespace {

// Made before there is a need for it, and never freed: an Error of it allocates nothing.
// NOLINTNEXTLINE(bugprone-throwing-static-initialization): where the loader has no memory nothing runs
const ErrorRecord no_memory_record{Status::out_of_memory,
                                   "gigabar",
                                   {},
                                   {},
                                   "the program has no memory left",
                                   "free memory, or raise its limit (ulimit -v, the control group's memory.max)"};

}  // namespace

namespace detail {

const ErrorRecord* keep_record(ErrorRecord&& record) noexcept {
  const ErrorRecord* const kept = new (std::nothrow) ErrorRecord(std::move(record));
  return kept != nullptr ? kept : &no_memory_record;
}

const ErrorRecord* copy_record(const ErrorRecord& record) noexcept {
  if (&record == &no_memory_record) return &no_memory_record;
  try {
    return new ErrorRecord(record);
  } catch (const std::bad_alloc&) {
    return &no_memory_record;
  }
}

void DropRecord::operator()(const ErrorRecord* record) const noexcept {
  if (record != &no_memory_record) delete record;
}

}  // namespace detail

Error Error::out_of_memory() noexcept {
  Error error;
  error.record_.reset(&no_memory_record);
  return error;
}

ErrorRecord& edit(Error& error) {
  if (&error.record() == &no_memory_record) error = Error(ErrorRecord(no_memory_record));
  if (&error.record() == &no_memory_record) throw std::bad_alloc();
  // Every other record was made by keep_record() or copy_record(), not const, for this Error alone.
  return const_cast<ErrorRecord&>(error.record());  // NOLINT(cppcoreguidelines-pro-type-const-cast)
}

Error cannot_start_thread(std::string operation, std::string object, int code) {
  if (code == EPERM || code == EACCES) {
    return make_error(Status::no_permission, std::move(operation), std::move(object),
                      "a thread cannot be started: this process may not call clone3 or clone",
                      "change the seccomp profile of its container or service: it must allow both, or answer clone3 with ENOSYS",
                      errno_code(code));
  }
  return make_error(Status::out_of_memory, std::move(operation), std::move(object),
                    "a thread cannot be started: the limit of threads is reached, or there is no memory for its stack",
                    "ask for fewer threads, or raise the user's limit (ulimit -u) or the control group's (pids.max)",
                    errno_code(code));
}

namespace {

// Of the standard library's own functions only the start of a thread throws these two; std::filesystem's exceptions are of another
// type.
bool is_about_a_thread(const std::system_error& error) {
  const bool is_plain = typeid(error) == typeid(std::system_error) && error.code().category() == std::generic_category();
  return is_plain && (error.code().value() == EAGAIN || error.code().value() == EPERM);
}

Error describe_system_error(const char* operation, const std::system_error& error) {
  const int code = error.code().value();
  if (is_about_a_thread(error)) return cannot_start_thread(operation, {}, code);
  const bool is_errno = error.code().category() == std::generic_category() || error.code().category() == std::system_category();
  if (is_errno) return make_error(status_of_errno(code, Status::unavailable), operation, {}, error.what(), {}, errno_code(code));
  return make_error(Status::unavailable, operation, {}, text(error.what(), " (", error.code().category().name(), " ", code, ")"));
}

Error describe_exception(const char* operation) {
  try {
    throw;
  } catch (const std::system_error& error) {
    return describe_system_error(operation, error);
  } catch (const std::bad_alloc&) {
    return make_error(Status::out_of_memory, operation, {}, no_memory_record.cause, no_memory_record.remedy);
  } catch (const std::exception& error) {
    return make_error(Status::unavailable, operation, {}, error.what());
  } catch (...) {
    return make_error(Status::unavailable, operation, {}, "something was thrown that is no std::exception");
  }
}

}  // namespace

Error error_of_exception(const char* operation) noexcept {
  const Uncancelled uncancelled;
  try {
    return describe_exception(operation);
  } catch (...) {
    return Error::out_of_memory();
  }
}

std::string ErrorRecord::message() const noexcept try {
  std::string line = operation;
  if (!object.empty()) line += ": " + object;
  line += ": " + cause;
  if (!native.name.empty()) line += " (" + native.name + ")";
  if (!remedy.empty()) line += "; " + remedy;
  if (!check.empty()) line += "; see 'gigabar explain " + check + "'";
  return line;
} catch (const std::bad_alloc&) {
  return "out of memory";  // short enough to need none
}

std::string hex_text(std::uint64_t value) { return "0x" + hexadecimal_text(value); }

std::string range_text(std::uintptr_t address, std::size_t bytes) { return text(hex_text(address), " +", bytes); }

NativeCode errno_code(int code) {
  const char* name = strerrorname_np(code);
  return {NativeDomain::system_errno, code, name != nullptr ? name : text("errno ", code)};
}

Status status_of_errno(int code, Status otherwise) {
  switch (code) {
    case EMFILE:
    case ENFILE: return Status::out_of_descriptors;
    case EACCES:
    case EPERM: return Status::no_permission;
    case ENOMEM: return Status::out_of_memory;
    case EBUSY: return Status::busy;
    default: return otherwise;
  }
}

Error make_errno_error(int code, std::string operation, std::string object, std::string_view what, std::string remedy,
                       Status otherwise) {
  return make_error(status_of_errno(code, otherwise), std::move(operation), std::move(object),
                    text(what, what.empty() ? "" : ": ", std::strerror(code)), std::move(remedy), errno_code(code));
}

Error make_error(Status status, std::string operation, std::string object, std::string cause, std::string remedy, NativeCode native,
                 std::string_view check) {
  Error error(ErrorRecord{status, std::move(operation), std::move(object), std::move(native), std::move(cause), std::move(remedy),
                          std::string(check)});
  if (is_logged(LogLevel::info)) log(LogLevel::info, error.message());
  return error;
}

Availability availability_of(const ErrorRecord& record) {
  AvailabilityCode code = AvailabilityCode::driver_unknown;
  if (record.status == Status::no_permission) code = AvailabilityCode::no_permission;
  if (record.status == Status::not_supported) code = AvailabilityCode::not_supported;
  if (record.status == Status::unavailable) {
    code = record.native.domain == NativeDomain::system_errno ? AvailabilityCode::no_device : AvailabilityCode::driver_too_old;
  }
  return {code, record.object + ": " + record.cause, record.remedy, record.native, record.check};
}

Error make_error(std::string operation, std::string object, const Availability& availability) {
  const Status status = availability.code == AvailabilityCode::no_permission ? Status::no_permission : Status::unavailable;
  return make_error(status, std::move(operation), std::move(object), text(name_of(availability.code), ": ", availability.reason),
                    availability.remedy, availability.native, availability.check);
}

}  // namespace gigabar::inline v0
