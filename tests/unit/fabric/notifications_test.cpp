// SPDX-License-Identifier: Apache-2.0
// The words of segments: their memory, what of it is registered, and taking what others raise meanwhile.
#include "fabric/notifications.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "support/descriptors.hpp"
#include "support/no_more_descriptors.hpp"
#include "transport/local/open.hpp"

namespace gigabar::fabric {
namespace {

using transport::WordKind;

std::unique_ptr<Notifications> made_of(WordPages& pages) {
  auto made = Notifications::make(pages);
  EXPECT_TRUE(made) << made.error().message();
  return made ? std::move(*made) : nullptr;
}

TEST(Notifications, OfAllSegmentsHaveOneDescriptor) {
  const std::size_t before = test::open_descriptors();
  {
    WordPages pages;
    const auto local = transport::open_local({});
    ASSERT_TRUE(local);
    const std::size_t with_transport = test::open_descriptors();
    std::vector<std::unique_ptr<Notifications>> all;
    for (int segment = 0; segment < 50; ++segment) {
      all.push_back(made_of(pages));
      all.back()->register_with(**local);
      EXPECT_EQ(all.back()->why_not[static_cast<std::size_t>(TransportKind::local)], "");
      all.back()->raise(WordKind::set, kNotifications - 1, 7);
    }
    EXPECT_EQ(test::open_descriptors(), with_transport + 1);
    for (const auto& one : all) EXPECT_EQ(one->look(kNotifications - 1).value(), 7U);
  }
  EXPECT_EQ(test::open_descriptors(), before);
}

// Of whatever length: pages of arm64 may have 64 KiB, of which the words of a segment are no multiple.
TEST(Notifications, HaveWholePagesThatNobodyElseSeals) {
  WordPages pages;
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  std::vector<WordPages::Taken> all;
  for (std::uint64_t count = 0; count < 3; ++count) {
    auto taken = pages.take(page / 2 + 1);
    ASSERT_TRUE(taken) << taken.error().message();
    EXPECT_EQ(taken->offset_bytes, count * page);
    std::memset(taken->memory.get(), 1, page);
    all.push_back(std::move(*taken));
  }
  EXPECT_NE(::fcntl(all[0].descriptor, F_ADD_SEALS, F_SEAL_FUTURE_WRITE), 0);
  EXPECT_TRUE(pages.take(page));
}

#if GIGABAR_TEST_CAN_EXHAUST_DESCRIPTORS
// They work in this process, and peers are told why they cannot write them.
TEST(Notifications, NeedNoDescriptor) {
  WordPages pages;
  const auto local = transport::open_local({});
  ASSERT_TRUE(local);
  const auto made = test::without_descriptors([&] { return Notifications::make(pages); });
  ASSERT_TRUE(made) << made.error().message();
  (*made)->register_with(**local);
  EXPECT_EQ((*made)->regions[static_cast<std::size_t>(TransportKind::local)], nullptr);
  EXPECT_NE((*made)->why_not[static_cast<std::size_t>(TransportKind::local)].find("no memory file for its words: Too many"),
            std::string::npos);
  (*made)->raise(WordKind::add, 5, 3);
  EXPECT_EQ((*made)->look(5).value(), 3U);
  const auto later = made_of(pages);
  later->register_with(**local);
  EXPECT_NE(later->regions[static_cast<std::size_t>(TransportKind::local)], nullptr) << "there is room again";
}
#endif

TEST(WordPages, GiveTheirMemoryBackAndUseNoPlaceTwice) {
  WordPages pages;
  const auto blocks = [](int descriptor) {
    struct stat status{};
    EXPECT_EQ(::fstat(descriptor, &status), 0);
    return status.st_blocks;
  };
  auto first = pages.take(65536);
  auto second = pages.take(65536);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(blocks(second->descriptor), 0) << "pages that nobody touched";
  std::memset(first->memory.get(), 1, 65536);
  EXPECT_GE(blocks(second->descriptor), 128);
  first->memory.reset();
  EXPECT_EQ(blocks(second->descriptor), 0);
  const auto third = pages.take(65536);
  ASSERT_TRUE(third);
  EXPECT_EQ(third->offset_bytes, 131072U);
  EXPECT_EQ(third->memory.get()[100], std::byte{0});
}

// What is raised between a look and the taking is not lost: the wait for GPU memory is between them.
TEST(Notifications, TakeWhatWasSeenOnly) {
  WordPages pages;
  const auto words = made_of(pages);
  words->raise(WordKind::set, 1, 5);
  const auto seen = words->look(1);
  words->raise(WordKind::set, 1, 9);
  EXPECT_FALSE(words->take_all(1, seen));
  EXPECT_EQ(words->look(1).value(), 9U);
  EXPECT_TRUE(words->take_all(1, words->look(1)));
  EXPECT_EQ(words->look(1).value(), 0U);
  words->raise(WordKind::add, 1, 4);
  EXPECT_FALSE(words->take(1, 5));
  EXPECT_TRUE(words->look(1).is_at_least(4));
  EXPECT_TRUE(words->take(1, 3));
  EXPECT_EQ(words->look(1).value(), 1U);
}

}  // namespace
}  // namespace gigabar::fabric
