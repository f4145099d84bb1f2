// SPDX-License-Identifier: Apache-2.0
// Names, records, results: gigabar/status.hpp and base/errors.hpp.
#include "gigabar/status.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <ios>
#include <memory>
#include <new>
#include <set>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

#include "base/errors.hpp"

namespace gigabar {
namespace {

TEST(StatusNames, EachEnumeratorHasItsOwn) {
  std::set<std::string_view> names;
  for (int value = 0; value <= static_cast<int>(Status::foreign_process); ++value)
    names.insert(name_of(static_cast<Status>(value)));
  EXPECT_EQ(names.size(), static_cast<std::size_t>(Status::foreign_process) + 1);
  EXPECT_EQ(name_of(Status::ok), "ok");
  EXPECT_EQ(name_of(Status::out_of_bar1), "out_of_bar1");
  EXPECT_EQ(name_of(Status::verification_failed), "verification_failed");
  EXPECT_EQ(name_of(Status::foreign_process), "foreign_process");
  EXPECT_FALSE(names.contains("unknown"));
  EXPECT_EQ(name_of(static_cast<Status>(200)), "unknown");
}

TEST(AvailabilityNames, EachEnumeratorHasItsOwn) {
  std::set<std::string_view> names;
  for (int value = 0; value <= static_cast<int>(AvailabilityCode::not_supported); ++value) {
    names.insert(name_of(static_cast<AvailabilityCode>(value)));
  }
  EXPECT_EQ(names.size(), static_cast<std::size_t>(AvailabilityCode::not_supported) + 1);
  EXPECT_EQ(name_of(AvailabilityCode::driver_too_old), "driver_too_old");
  EXPECT_EQ(name_of(AvailabilityCode::entry_point_missing), "entry_point_missing");
  EXPECT_FALSE(names.contains("unknown"));
}

TEST(ErrorRecord, MessageHoldsEveryPartOnOneLine) {
  const Error error =
      make_error(Status::out_of_descriptors, "map", "0x1000 +64", "open: too many", "raise the limit", errno_code(EMFILE));
  const std::string message = error.message();
  EXPECT_EQ(message.find('\n'), std::string::npos);
  std::size_t at = 0;
  for (const char* part : {"map", "0x1000 +64", "open: too many", "EMFILE", "raise the limit"}) {
    at = message.find(part, at);
    EXPECT_NE(at, std::string::npos) << part << " in order in: " << message;
  }
}

TEST(ErrorRecord, AbsentPartsLeaveNoPunctuation) {
  EXPECT_EQ(make_error(Status::busy, "map", "", "in use").message(), "map: in use");
  EXPECT_EQ(make_error(Status::busy, "map", "", "in use", "wait", {}, "mod.gdrdrv").message(),
            "map: in use; wait; see 'gigabar explain mod.gdrdrv'");
}

TEST(ErrnoCode, NamesKnownAndUnknownCodes) {
  EXPECT_EQ(errno_code(EMFILE).name, "EMFILE");
  EXPECT_EQ(errno_code(EMFILE).domain, NativeDomain::system_errno);
  EXPECT_EQ(errno_code(EMFILE).code, EMFILE);
  EXPECT_NE(errno_code(524).name.find("524"), std::string::npos);  // the kernel's ENOTSUPP, which libc cannot name
}

TEST(StatusOfErrno, MapsLimitsAndPermissions) {
  EXPECT_EQ(status_of_errno(EMFILE), Status::out_of_descriptors);
  EXPECT_EQ(status_of_errno(ENFILE), Status::out_of_descriptors);
  EXPECT_EQ(status_of_errno(EACCES), Status::no_permission);
  EXPECT_EQ(status_of_errno(EPERM), Status::no_permission);
  EXPECT_EQ(status_of_errno(ENOMEM), Status::out_of_memory);
  EXPECT_EQ(status_of_errno(EIO), Status::device_error);
  EXPECT_EQ(status_of_errno(EIO, Status::bad_file), Status::bad_file);
}

TEST(AvailabilityError, CarriesReasonRemedyAndCode) {
  const Availability availability{AvailabilityCode::driver_too_old, "CUDA 11.0 is here", "install a newer driver", {}};
  const Error error = make_error("map", "device 0", availability);
  EXPECT_EQ(error.status(), Status::unavailable);
  EXPECT_NE(error.message().find("driver_too_old"), std::string::npos);
  EXPECT_NE(error.message().find("CUDA 11.0 is here"), std::string::npos);
  EXPECT_NE(error.message().find("install a newer driver"), std::string::npos);
  EXPECT_EQ(error.record().check, "");
  const Availability denied{AvailabilityCode::no_permission, "r", "", {}};
  EXPECT_EQ(make_error("map", "", denied).status(), Status::no_permission);
}

TEST(Text, RangesAndNumbers) {
  EXPECT_EQ(range_text(0x7f0012340000, 65536), "0x7f0012340000 +65536");
  EXPECT_EQ(hex_text(0), "0x0");
  EXPECT_EQ(text("device ", 3, " of ", 8), "device 3 of 8");
}

Error sample_error() { return make_error(Status::busy, "test", "object", "cause"); }

TEST(Error, CopiesAreIndependent) {
  Error first = sample_error();
  Error second = first;
  edit(second).cause = "other";
  EXPECT_EQ(first.record().cause, "cause");
  first = second;
  EXPECT_EQ(first.record().cause, "other");
}

TEST(Result, HoldsMoveOnlyValuesAndErrors) {
  Result<std::unique_ptr<int>> good = std::make_unique<int>(7);
  ASSERT_TRUE(good);
  EXPECT_EQ(good.status(), Status::ok);
  EXPECT_EQ(**good, 7);
  const std::unique_ptr<int> taken = std::move(good).value();
  EXPECT_EQ(*taken, 7);
  const Result<std::unique_ptr<int>> bad = sample_error();
  EXPECT_FALSE(bad.is_ok());
  EXPECT_EQ(bad.status(), Status::busy);
  EXPECT_EQ(bad.error().record().operation, "test");
}

TEST(ResultWithoutValue, IsOkWithoutARecordAndGivesTheErrorAway) {
  const Result<void> fine;
  EXPECT_TRUE(fine.is_ok());
  EXPECT_EQ(fine.message(), "ok");
  EXPECT_EQ(fine.status(), Status::ok);
  static_assert(sizeof(Result<void>) == sizeof(void*));
  Result<void> failed = sample_error();
  EXPECT_FALSE(failed);
  EXPECT_EQ(failed.status(), Status::busy);
  const std::string message = failed.message();
  EXPECT_EQ(std::move(failed).error().message(), message);
}

// --- Exceptions ------------------------------------------------------------------------------------------------------------------

template <class Throw>
ErrorRecord record_of(const Throw& thrower) {
  try {
    thrower();
  } catch (...) {
    return error_of_exception("test").record();
  }
  return {};
}

bool says(const ErrorRecord& record, std::string_view part) { return record.message().find(part) != std::string::npos; }

TEST(ErrorOfException, NamesThreadsOnlyWhereOneWasRefused) {
  // As libstdc++ throws it where pthread_create() is refused.
  const ErrorRecord limit = record_of([] { throw std::system_error(EAGAIN, std::generic_category()); });
  EXPECT_EQ(limit.status, Status::out_of_memory);
  EXPECT_TRUE(says(limit, "a thread cannot be started")) << limit.message();
  const ErrorRecord forbidden = record_of([] { throw std::system_error(EPERM, std::generic_category()); });
  EXPECT_EQ(forbidden.status, Status::no_permission);
  EXPECT_TRUE(says(forbidden, "seccomp")) << forbidden.message();

  const ErrorRecord deadlock = record_of([] { throw std::system_error(EDEADLK, std::generic_category(), "a lock"); });
  EXPECT_EQ(deadlock.status, Status::unavailable);
  EXPECT_EQ(deadlock.native.name, "EDEADLK");
  EXPECT_TRUE(says(deadlock, "a lock")) << deadlock.message();
  EXPECT_FALSE(says(deadlock, "thread")) << deadlock.message();
  const ErrorRecord file = record_of(
      [] { throw std::filesystem::filesystem_error("cannot list", "/a/folder", std::error_code(EPERM, std::generic_category())); });
  EXPECT_EQ(file.status, Status::no_permission);
  EXPECT_EQ(file.native.name, "EPERM");
  EXPECT_TRUE(says(file, "/a/folder")) << file.message();
  EXPECT_FALSE(says(file, "thread")) << file.message();
  const ErrorRecord descriptors = record_of([] { throw std::system_error(EMFILE, std::system_category(), "open"); });
  EXPECT_EQ(descriptors.status, Status::out_of_descriptors);
}

TEST(ErrorOfException, NumbersOfOtherDomainsAreNoErrno) {
  const ErrorRecord other = record_of([] { throw std::system_error(make_error_code(std::io_errc::stream), "a stream"); });
  EXPECT_EQ(other.status, Status::unavailable);
  EXPECT_EQ(other.native.domain, NativeDomain::none);
  EXPECT_TRUE(says(other, "a stream") && says(other, "iostream 1")) << other.message();
}

TEST(ErrorOfException, OfEverythingElse) {
  EXPECT_EQ(record_of([] { throw std::bad_alloc(); }).status, Status::out_of_memory);
  const ErrorRecord logic = record_of([] { throw std::out_of_range("beyond the end"); });
  EXPECT_EQ(logic.status, Status::unavailable);
  EXPECT_TRUE(says(logic, "beyond the end")) << logic.message();
  EXPECT_EQ(record_of([] { throw 5; }).status, Status::unavailable);
}

}  // namespace
}  // namespace gigabar
