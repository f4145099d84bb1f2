#include "gigabar/status.hpp"

#include <cerrno>
#include <cstring>
#include <sstream>

#include "base/errors.hpp"
#include "base/log.hpp"

namespace gigabar {

std::string_view name_of(Status status) noexcept {
  switch (status) {
    case Status::ok: return "ok";
    case Status::invalid_argument: return "invalid_argument";
    case Status::out_of_range: return "out_of_range";
    case Status::not_supported: return "not_supported";
    case Status::unavailable: return "unavailable";
    case Status::no_permission: return "no_permission";
    case Status::out_of_memory: return "out_of_memory";
    case Status::out_of_descriptors: return "out_of_descriptors";
    case Status::out_of_bar1: return "out_of_bar1";
    case Status::busy: return "busy";
    case Status::timed_out: return "timed_out";
    case Status::verification_failed: return "verification_failed";
    case Status::bad_file: return "bad_file";
    case Status::device_error: return "device_error";
    case Status::peer_lost: return "peer_lost";
    case Status::foreign_process: return "foreign_process";
  }
  return "unknown";
}

std::string_view name_of(AvailabilityCode code) noexcept {
  switch (code) {
    case AvailabilityCode::ok: return "ok";
    case AvailabilityCode::disabled: return "disabled";
    case AvailabilityCode::not_built: return "not_built";
    case AvailabilityCode::library_missing: return "library_missing";
    case AvailabilityCode::entry_point_missing: return "entry_point_missing";
    case AvailabilityCode::symbol_missing: return "symbol_missing";
    case AvailabilityCode::driver_too_old: return "driver_too_old";
    case AvailabilityCode::driver_unknown: return "driver_unknown";
    case AvailabilityCode::no_device: return "no_device";
    case AvailabilityCode::no_permission: return "no_permission";
    case AvailabilityCode::not_supported: return "not_supported";
  }
  return "unknown";
}

std::string ErrorRecord::message() const {
  std::string line = operation;
  if (!object.empty()) line += ": " + object;
  line += ": " + cause;
  if (!native.name.empty()) line += " (" + native.name + ")";
  if (!remedy.empty()) line += "; " + remedy;
  if (!check.empty()) line += "; see 'gigabar explain " + check + "'";
  return line;
}

std::string hex_text(std::uint64_t value) {
  std::ostringstream out;
  out << "0x" << std::hex << value;
  return std::move(out).str();
}

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

}  // namespace gigabar
