// SPDX-License-Identifier: Apache-2.0
// The launcher's server, which does not answer, answers what cannot be, or is not there: driver/pmix/pmix.hpp.
#include "driver/pmix/pmix.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "base/clock.hpp"
#include "support/isolated.hpp"
#include "unit/driver/fake_pmix.hpp"

namespace gigabar {
namespace {

using test::FakePmix;
using test::ScopedEnvironment;

constexpr const char* kKey = "a key of this test";

std::int64_t soon() { return now_ns() + 50'000'000; }

template <class T>
void expect_error(const Result<T>& result, Status status, const std::string& part) {
  ASSERT_FALSE(result) << part;
  EXPECT_EQ(result.status(), status) << result.error().message();
  EXPECT_NE(result.error().message().find(part), std::string::npos) << result.error().message();
}

ISOLATED_TEST(Pmix, NoLibrary) {
  const ScopedEnvironment library("GIGABAR_PMIX_LIBRARY", "/nonexistent/libpmix.so.2");
  expect_error(pmix::join(soon()), Status::unavailable, "join: the PMIx server");
  expect_error(pmix::put(kKey, "x"), Status::unavailable, "has not joined");
}

ISOLATED_TEST(Pmix, SizesThatCannotBe) {
  const FakePmix server;
  FakePmix::answer(FakePmix::kJobSize, FakePmix::late());
  expect_error(pmix::join(soon()), Status::timed_out, "did not answer before the deadline");
  FakePmix::answer(FakePmix::kJobSize, FakePmix::refused());
  expect_error(pmix::join(soon()), Status::no_permission, "PMIx_Get_nb failed: words of the fake server");
  FakePmix::answer(FakePmix::kJobSize, FakePmix::number(1));
  expect_error(pmix::join(soon()), Status::device_error, "no job size above that rank");
  FakePmix::answer(FakePmix::kJobSize, FakePmix::number(2));
  const auto joined = pmix::join(soon());
  ASSERT_TRUE(joined) << joined.error().message();
  EXPECT_EQ(joined->rank, 1U);
  EXPECT_EQ(joined->rank_count, 2U);
}

ISOLATED_TEST(Pmix, ValuesThatAreNotStoredOrFetched) {
  const FakePmix server;
  expect_error(pmix::fetch(0, kKey), Status::unavailable, "has not joined");
  ASSERT_TRUE(pmix::join(soon()));
  for (const char* const call : {"PMIx_Put", "PMIx_Commit", "PMIx_Get_nb"}) {
    FakePmix::fail(call, true);
    const bool is_get = std::string(call) == "PMIx_Get_nb";
    const Result<void> failed = is_get ? Result<void>(pmix::fetch(0, kKey).error()) : pmix::put(kKey, "x");
    expect_error(failed, Status::no_permission, std::string(call) + " failed: words of the fake server");
    FakePmix::fail(call, false);
  }
  EXPECT_TRUE(pmix::put(kKey, "x"));
  const auto fetched = [] {
    const auto fetch = pmix::fetch(0, kKey);
    EXPECT_TRUE(fetch && fetch->wait(soon()));
    return fetch->answer();
  };
  EXPECT_FALSE(fetched()->has_value()) << "it is not there yet";
  FakePmix::answer(kKey, FakePmix::refused());
  expect_error(fetched(), Status::no_permission, "PMIx_Get_nb failed");
  FakePmix::answer(kKey, FakePmix::number(7));
  expect_error(fetched(), Status::bad_file, "is no byte object");
  FakePmix::answer(kKey, FakePmix::bytes("some"));
  EXPECT_EQ(*fetched(), "some");
}

ISOLATED_TEST(Pmix, AForkedChild) {
  const FakePmix server;
  ASSERT_TRUE(pmix::join(soon()));
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(pmix::join(soon()).status() == Status::foreign_process ? 0 : 1);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace gigabar
