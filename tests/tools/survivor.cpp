// SPDX-License-Identifier: Apache-2.0
// One rank of three, for `gigabar run --keep-going -n 3 -- survivor`: rank 2 is killed while the others wait at a barrier for it.
// They hear of the loss there, go on as a group of two, and end by themselves with status 0.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <string>

#include "gigabar/fabric.hpp"

namespace {

using namespace gigabar;

constexpr Rank kVictim = 2;
const Timeout kPatience = Timeout::of(std::chrono::seconds(60));

int fail(const char* what, const Result<void>& outcome) {
  std::printf("%s: %s\n", what, outcome.message().c_str());
  return 1;
}

}  // namespace

int main() {
  auto fabric = Fabric::open({});
  if (!fabric) return std::printf("open: %s\n", fabric.error().message().c_str()), 1;
  if (Result<void> met = fabric->barrier({}, kPatience); !met) return fail("first barrier", met);
  if (fabric->rank() == kVictim) return ::raise(SIGKILL);
  const Result<void> lost = fabric->barrier({}, kPatience);
  if (lost.status() != Status::peer_lost) return fail("barrier without rank 2", lost);
  if (Result<void> met = fabric->barrier({0, 1}, kPatience); !met) return fail("barrier of the survivors", met);
  if (Result<void> closed = fabric->close(kPatience); !closed) return fail("close", closed);
  std::printf("rank %u: peer_lost, and went on\n", fabric->rank());
  return 0;
}
