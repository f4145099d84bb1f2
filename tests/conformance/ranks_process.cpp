// SPDX-License-Identifier: Apache-2.0
// The rank's side: the test "Rank.<body>", which exists only in a process that a RankJob started.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>

#include "conformance/ranks.hpp"
#include "conformance/ranks_words.hpp"
#include "gigabar/mapping.hpp"

namespace gigabar::test {
namespace {

std::map<std::string, RankBody>& bodies() {
  static std::map<std::string, RankBody> all;
  return all;
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

void run_with_fabric(RankProcess& me, void (*body)(RankProcess&, Fabric&)) {
  Result<Fabric> fabric = Fabric::open(me.options());
  ASSERT_TRUE(is_ok(fabric)) << "open at rank " << me.rank();
  body(me, *fabric);
  // A rank that failed leaves at once: the others are told by their next meeting.
  if (testing::Test::HasFailure() || !me.meet()) return;
  EXPECT_TRUE(is_ok(fabric->close(kPatience))) << "close at rank " << me.rank();
}

// Failures in one line of place and one of text; the rest of GoogleTest's output says nothing about a rank.
class FailurePrinter : public testing::EmptyTestEventListener {
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    const char* file = result.file_name() == nullptr ? "?" : result.file_name();
    ::dprintf(STDOUT_FILENO, "%s:%d: %s\n", file, result.line_number(), result.message());
  }
};

class RankTest : public testing::Test {
  void TestBody() override {
    const std::string name = variable(kBodyVariable);
    const auto found = bodies().find(name);
    ASSERT_NE(found, bodies().end()) << "no body " << name;
    RankProcess me;
    if (found->second.bare != nullptr) {
      found->second.bare(me);
    } else {
      run_with_fabric(me, found->second.with_fabric);
    }
    // Windows that are kept for a next time hold freed memory, and where that comes from a file its descriptor.
    trim_mapping_cache();
  }
};

// Before main(): GoogleTest then finds this test and no other output.
[[maybe_unused]] const bool is_prepared = [] {
  if (std::getenv(kBodyVariable) == nullptr) return false;
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  delete listeners.Release(listeners.default_result_printer());
  listeners.Append(new FailurePrinter);
  testing::RegisterTest("Rank", "Body", nullptr, nullptr, __FILE__, __LINE__, []() -> RankTest* { return new RankTest; });
  return true;
}();

}  // namespace

bool add_body(const char* name, RankBody body) {
  bodies()[name] = body;
  return true;
}

RankProcess::RankProcess()
    : rank_(Rank(std::atoi(variable(kRankVariable).c_str()))),
      setup_(RankSetup::parse(variable(kSetupVariable))),
      control_(std::atoi(variable(kControlVariable).c_str())) {}

FabricOptions RankProcess::options() const {
  FabricOptions options;
  options.transports = {setup_.transport};
  options.ucx_trust_network = true;
  switch (setup_.path) {
    case TransferPath::gdr: options.policy.gdr = Preference::require; break;
    case TransferPath::p2p: options.policy.p2p = Preference::require; break;
    case TransferPath::bar: options.policy.bar = Preference::require; break;
    case TransferPath::staged: options.policy.staged = Preference::require; break;
    case TransferPath::host:
    case TransferPath::none: break;
  }
  return options;
}

void RankProcess::tell(const std::string& word) {
  EXPECT_EQ(::send(control_, word.data(), word.size(), MSG_NOSIGNAL), ssize_t(word.size())) << std::strerror(errno);
}

std::optional<std::string> RankProcess::hear() {
  pollfd waited{control_, POLLIN, 0};
  if (::poll(&waited, 1, 60000) <= 0) return std::nullopt;
  std::array<char, 256> buffer{};
  const ssize_t bytes = ::recv(control_, buffer.data(), buffer.size(), 0);
  if (bytes <= 0) return std::nullopt;
  return std::string(buffer.data(), std::size_t(bytes));
}

bool RankProcess::meet() {
  tell(kMeet);
  const std::optional<std::string> answer = hear();
  if (answer == kMet) return true;
  ADD_FAILURE() << "rank " << rank_ << " waited for the others: " << (answer ? *answer : std::string("nobody came"));
  return false;
}

}  // namespace gigabar::test
