// SPDX-License-Identifier: Apache-2.0
// Registered memory of a test, and the setups that every kind of memory and path is tried with.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "conformance/rank_memory.hpp"
#include "conformance/ranks.hpp"

namespace gigabar::test {

inline constexpr SegmentId kOrigin = 1;
inline constexpr SegmentId kTarget = 2;
inline constexpr SegmentId kSecondTarget = 3;

// Registers, and deregisters at its end: meet before, or others still use it.
class RankSegment : public RankMemory {
 public:
  RankSegment(Fabric& fabric, SegmentId id, MemoryChoice choice, std::size_t bytes, std::size_t shift_bytes = 0)
      : RankMemory(choice, bytes, shift_bytes), fabric_(fabric), id_(id) {
    EXPECT_TRUE(is_ok(fabric_.register_segment(id_, address(), bytes)));
  }
  ~RankSegment() { EXPECT_TRUE(is_ok(fabric_.deregister_segment(id_, kPatience))); }
  RankSegment(const RankSegment&) = delete;
  RankSegment& operator=(const RankSegment&) = delete;

 private:
  Fabric& fabric_;
  SegmentId id_;
};

// Posts, and once more after a full queue was waited for.
template <class Post>
Result<Operation> post_patiently(Fabric& fabric, QueueId queue, const Post& post) {
  Result<Operation> operation = post();
  if (operation.is_ok() || operation.status() != Status::busy) return operation;
  if (Result<void> waited = fabric.wait(queue, kPatience); !waited) return std::move(waited).error();
  return post();
}

// Whether the setup's required path has to serve an operation of that size. `bar` is for what fits into one message.
inline bool is_always_possible(const RankSetup& setup, std::uint64_t bytes) {
  return setup.path != TransferPath::bar || bytes <= 4096;
}

// What the report of a finished operation says against the setup.
void expect_report(Fabric& fabric, Operation operation, const RankSetup& setup, std::uint64_t bytes);

// Every transport x memory at both ends x path that is possible there, with two ranks; paths without a policy with 1, 3 and 4 too.
std::vector<RankSetup> data_setups();
// Every transport x memory at both ends, as the fabric chooses.
std::vector<RankSetup> memory_setups(Rank rank_count = 2);
// Every transport x rank counts 1, 2, 3, 4, host memory.
std::vector<RankSetup> rank_setups();
// One setup for each of `words`, which the body reads.
std::vector<RankSetup> with_words(const std::vector<RankSetup>& setups, const std::vector<std::string>& words);

}  // namespace gigabar::test
