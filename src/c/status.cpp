// SPDX-License-Identifier: Apache-2.0
// The record of each thread's last failure.
#include "gigabar/status.h"

#include <cstring>
#include <new>
#include <optional>
#include <ranges>

#include "base/uncancelled.hpp"
#include "c/call.hpp"

namespace gigabar::c {
namespace {

struct Last {
  std::optional<Error> error;
  std::string message;  // made when it is asked for
};

Last& last() noexcept {
  thread_local Last last;
  return last;
}

// Numbers of C never change, so those of C++ must not either.
static_assert(static_cast<int>(Status::ok) == GIGABAR_OK);
static_assert(static_cast<int>(Status::invalid_argument) == GIGABAR_INVALID_ARGUMENT);
static_assert(static_cast<int>(Status::out_of_range) == GIGABAR_OUT_OF_RANGE);
static_assert(static_cast<int>(Status::not_supported) == GIGABAR_NOT_SUPPORTED);
static_assert(static_cast<int>(Status::unavailable) == GIGABAR_UNAVAILABLE);
static_assert(static_cast<int>(Status::no_permission) == GIGABAR_NO_PERMISSION);
static_assert(static_cast<int>(Status::out_of_memory) == GIGABAR_OUT_OF_MEMORY);
static_assert(static_cast<int>(Status::out_of_descriptors) == GIGABAR_OUT_OF_DESCRIPTORS);
static_assert(static_cast<int>(Status::out_of_bar1) == GIGABAR_OUT_OF_BAR1);
static_assert(static_cast<int>(Status::busy) == GIGABAR_BUSY);
static_assert(static_cast<int>(Status::timed_out) == GIGABAR_TIMED_OUT);
static_assert(static_cast<int>(Status::verification_failed) == GIGABAR_VERIFICATION_FAILED);
static_assert(static_cast<int>(Status::bad_file) == GIGABAR_BAD_FILE);
static_assert(static_cast<int>(Status::device_error) == GIGABAR_DEVICE_ERROR);
static_assert(static_cast<int>(Status::peer_lost) == GIGABAR_PEER_LOST);
static_assert(static_cast<int>(Status::foreign_process) == GIGABAR_FOREIGN_PROCESS);
static_assert(static_cast<int>(NativeDomain::system_errno) == GIGABAR_NATIVE_ERRNO);
static_assert(static_cast<int>(NativeDomain::cuda_driver) == GIGABAR_NATIVE_CUDA_DRIVER);
static_assert(static_cast<int>(NativeDomain::nvml) == GIGABAR_NATIVE_NVML);
static_assert(static_cast<int>(NativeDomain::resource_manager) == GIGABAR_NATIVE_RESOURCE_MANAGER);
static_assert(static_cast<int>(NativeDomain::loader) == GIGABAR_NATIVE_LOADER);

}  // namespace

gigabar_status keep(Error error) noexcept {
  Last& kept = last();
  kept.error.emplace(std::move(error));
  kept.message.clear();
  return static_cast<gigabar_status>(kept.error->status());
}

void refuse(const char* function, WrongArgument& wrong) {
  const Uncancelled uncancelled;  // it logs
  throw Refused{
      make_error(Status::invalid_argument, function, std::move(wrong.argument), std::move(wrong.cause), std::move(wrong.remedy))};
}

std::vector<std::string> parts_of(const std::string& list) {
  std::vector<std::string> parts(list.empty() ? 1 : 0);
  for (const auto part : std::views::split(list, ',')) parts.emplace_back(part.begin(), part.end());
  return parts;
}

char* new_text(const std::string& text) {
  auto* const copy = static_cast<char*>(::operator new(text.size() + 1));
  std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

}  // namespace gigabar::c

using namespace gigabar;
using namespace gigabar::c;

gigabar_status gigabar_last_error(gigabar_error* error) {
  // Its own failure is returned and not kept: the record that the caller asks about stays.
  try {
    named(__func__, [&] {
      static const ErrorRecord none;
      const ErrorRecord& record = last().error ? last().error->record() : none;
      Fields fields(&object_at(error, "error"), GIGABAR_ERROR_ALL, "error");
      fields.fill(GIGABAR_ERROR_STATUS, &gigabar_error::status, record.status);
      fields.fill(GIGABAR_ERROR_OPERATION, &gigabar_error::operation, record.operation.c_str());
      fields.fill(GIGABAR_ERROR_OBJECT, &gigabar_error::object, record.object.c_str());
      fields.fill(GIGABAR_ERROR_CAUSE, &gigabar_error::cause, record.cause.c_str());
      fields.fill(GIGABAR_ERROR_REMEDY, &gigabar_error::remedy, record.remedy.c_str());
      fields.fill(GIGABAR_ERROR_NATIVE_DOMAIN, &gigabar_error::native_domain, record.native.domain);
      fields.fill(GIGABAR_ERROR_NATIVE_CODE, &gigabar_error::native_code, record.native.code);
      fields.fill(GIGABAR_ERROR_NATIVE_NAME, &gigabar_error::native_name, record.native.name.c_str());
      fields.fill(GIGABAR_ERROR_CHECK, &gigabar_error::check, record.check.c_str());
      fields.fill(GIGABAR_ERROR_MESSAGE, &gigabar_error::message, gigabar_last_error_message());
      fields.finish();
    });
    return GIGABAR_OK;
  } catch (const Refused& refused) {
    return static_cast<gigabar_status>(refused.error.status());
  } catch (...) {
    return GIGABAR_OUT_OF_MEMORY;
  }
}

const char* gigabar_last_error_message(void) {
  Last& kept = last();
  if (!kept.error) return "ok";
  if (kept.message.empty()) kept.message = kept.error->message();
  return kept.message.c_str();
}

const char* gigabar_status_name(gigabar_status status) {
  return status < 0 || status > UINT8_MAX ? "unknown" : gigabar::name_of(static_cast<Status>(status)).data();
}

const char* gigabar_version(void) { return GIGABAR_VERSION; }

gigabar_status gigabar_text_free(char* text) {
  return guarded(__func__, [&] { ::operator delete(&object_at(text, "text")); });
}
