// SPDX-License-Identifier: Apache-2.0
// A process that ends with mappings alive, in whatever order its static objects go, ends cleanly.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>

#include "support/isolated.hpp"
#include "support/mapping_session.hpp"

namespace gigabar {
namespace {

using test::FakeSession;
using test::MappingSession;
using test::must_map;

constexpr std::size_t kBlock = std::size_t{2} << 20;

std::optional<Mapping>& early_static() {
  static std::optional<Mapping> mapping;  // made before the library's own statics, so destroyed after them
  return mapping;
}

TEST(ProcessEnd, WithAMappingInAStaticObject) {
  const pid_t child = ::fork();
  if (child == 0) {
    early_static();
    static auto* const session = new MappingSession;  // not destroyed: the machine outlives the process's end
    session->have_all_backends();
    session->start();
    auto allocated = DeviceMemory::allocate(0, kBlock);
    static DeviceMemory memory = std::move(*allocated);
    early_static() = must_map(reinterpret_cast<CUdeviceptr>(memory.address()), kBlock, test::require(MappingBackend::rm));
    static Mapping late = must_map(reinterpret_cast<CUdeviceptr>(memory.address()), 100, test::require(MappingBackend::gdrdrv));
    std::exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace gigabar
