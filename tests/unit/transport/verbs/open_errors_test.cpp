// SPDX-License-Identifier: Apache-2.0
// What the system refuses while verbs is opened and links are made: each call in turn, and libraries and machines that lack
// something.
#include <cerrno>
#include <string>

#include "support/failing_calls.hpp"
#include "support/isolated.hpp"
#include "unit/transport/verbs/fake_rdma.hpp"

namespace gigabar::transport {
namespace {

using gigabar::test::errors_of_each;
using gigabar::test::FailingCall;
using test::alive;
using test::End;
using test::FakeMachine;
using test::Pair;
using test::ScopedEnvironment;

Result<void> open_and_close() {
  End end;
  if (const auto error = end.open("a0")) return *error;
  return {};
}

ISOLATED_TEST(VerbsOpenErrors, EachCallOfTheSystem) {
  const FakeMachine machine("a0 10.9.0.1; a1 10.9.0.2");
  ASSERT_TRUE(open_and_close());
  struct Case {
    const char* function;
    int error;
    std::vector<const char*> parts;
  };
  for (const Case& one : {Case{"fcntl", EINVAL, {"channel of rdma_cm: fcntl failed", "completion channel of a0: fcntl failed"}},
                          Case{"mmap", ENOMEM, {"mmap: a page"}}, Case{"epoll_create1", EMFILE, {"epoll_create1 failed"}},
                          Case{"epoll_ctl", ENOSPC, {"epoll_ctl failed"}}}) {
    const std::string errors = errors_of_each(one.function, one.error, open_and_close);
    for (const char* const part : one.parts) EXPECT_NE(errors.find(part), std::string::npos) << part << " of:\n" << errors;
    EXPECT_EQ(alive(), 0) << one.function;
  }
}

// Ports are looked for with ids of their own, which may fail; the one that listens may not.
ISOLATED_TEST(VerbsOpenErrors, TheIdThatListens) {
  const FakeMachine machine("a0 10.9.0.1; a1 10.9.0.2");
  for (const char* const call : {"create_id", "bind_addr"}) {
    std::string errors;
    for (int skip = 0; skip < 5; ++skip) {
      test::fail(call, ENODEV, skip);
      if (const Result<void> opened = open_and_close(); !opened) errors += opened.message() + "\n";
      EXPECT_EQ(alive(), 0) << call;
    }
    EXPECT_TRUE(open_and_close());
    EXPECT_NE(errors.find(std::string("rdma_") + call + " failed"), std::string::npos) << errors;
  }
}

ISOLATED_TEST(VerbsOpenErrors, LinksThatCannotBeMade) {
  const FakeMachine machine("a0 10.9.0.1; a1 10.9.0.2");
  {
    Pair pair;
    ASSERT_NO_FATAL_FAILURE(pair.open());
    const auto make = [&]() -> Result<void> {
      const bool is_made = pair.begin();
      pair.first.links.clear();
      pair.second.links.clear();
      if (is_made) return {};
      return *pair.refused;
    };
    const int before = alive();
    for (const auto& [function, error, part] : {std::tuple{"getrandom", ENOSYS, "a token: getrandom failed"},
                                                std::tuple{"mmap", ENOMEM, "there is no memory for its messages"}}) {
      const std::string errors = errors_of_each(function, error, make);
      EXPECT_NE(errors.find(part), std::string::npos) << errors;
      EXPECT_EQ(alive(), before) << function;
    }
  }
  EXPECT_EQ(alive(), 0);
}

ISOLATED_TEST(VerbsOpenErrors, AMachineWithoutDevices) {
  const FakeMachine machine("");
  End end;
  const auto error = end.open("");
  ASSERT_TRUE(error);
  EXPECT_EQ(error->status(), Status::unavailable);
  EXPECT_NE(error->message().find("no RDMA device that libibverbs knows"), std::string::npos) << error->message();
}

ISOLATED_TEST(VerbsOpenErrors, ALibraryWithoutCompletionChannels) {
  const ScopedEnvironment verbs("GIGABAR_VERBS_LIBRARY", gigabar::test::kFakeVerbsLibrary);
  const ScopedEnvironment rdmacm("GIGABAR_RDMACM_LIBRARY", gigabar::test::kFakeRdmaLibrary);
  const auto opened = open_verbs({});
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.status(), Status::unavailable);
  EXPECT_NE(opened.error().message().find("no completion channels"), std::string::npos) << opened.error().message();
}

}  // namespace
}  // namespace gigabar::transport
