#include "fabric/op_table.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <random>
#include <unordered_map>
#include <vector>

#include "fabric/state.hpp"

namespace gigabar::fabric {
namespace {

TEST(OpTable, FindsWhatIsThereAndNothingElse) {
  OpTable table;
  std::vector<Op> ops(3);
  EXPECT_EQ(table.find(7), nullptr);
  table.erase(7);
  table.insert(7, &ops[0]);
  table.insert(7 + 64, &ops[1]);  // the same place at first
  table.insert(7 + 128, &ops[2]);
  EXPECT_EQ(table.size(), 3U);
  EXPECT_EQ(table.find(7), &ops[0]);
  EXPECT_EQ(table.find(71), &ops[1]);
  EXPECT_EQ(table.find(135), &ops[2]);
  EXPECT_EQ(table.find(8), nullptr);
  table.erase(7);
  EXPECT_EQ(table.find(7), nullptr);
  EXPECT_EQ(table.find(71), &ops[1]) << "one that was put further on is still found";
  EXPECT_EQ(table.find(135), &ops[2]);
  EXPECT_EQ(table.size(), 2U);
}

// Ids as operations have them: most ends soon, some stay for long, so that places are taken and left in every order.
TEST(OpTable, IsLikeAMapThroughManyOperations) {
  OpTable table;
  std::unordered_map<std::uint64_t, Op*> map;
  std::vector<std::uint64_t> ids;
  std::deque<Op> ops;
  std::mt19937_64 random(1);
  std::uint64_t last = ~std::uint64_t{0} - 150'000;  // the last numbers that there are
  for (int step = 0; step < 200'000; ++step) {
    if (ids.empty() || (ids.size() < 3000 && random() % 2 == 0)) {
      last += 1 + random() % 2;
      if (last == 0) last = 1;
      table.insert(last, &ops.emplace_back());
      map[last] = &ops.back();
      ids.push_back(last);
    } else {
      const std::size_t index = random() % 3 == 0 ? random() % ids.size() : ids.size() - 1;
      table.erase(ids[index]);
      map.erase(ids[index]);
      ids[index] = ids.back();
      ids.pop_back();
    }
    ASSERT_EQ(table.size(), map.size());
    const std::uint64_t asked = last - random() % 4000;
    const auto found = map.find(asked);
    ASSERT_EQ(table.find(asked), found == map.end() ? nullptr : found->second) << "step " << step;
  }
  for (const auto& [id, op] : map) ASSERT_EQ(table.find(id), op);
}

}  // namespace
}  // namespace gigabar::fabric
