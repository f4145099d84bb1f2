// SPDX-License-Identifier: Apache-2.0
// Wrong arguments, and memory that is deregistered while it is in use: the error says so.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <string>

#include "unit/transport/ucx/pair.hpp"
#include "unit/transport/ucx/raw_client.hpp"

namespace gigabar::transport::ucx::test {
namespace {

constexpr std::size_t kBytes = 32 << 20;  // in many pieces, of which few are under way at once

template <class T>
void expect_refusal(const Result<T>& result, Status status, const std::string& part) {
  ASSERT_FALSE(result) << part;
  EXPECT_EQ(result.status(), status) << result.error().message();
  EXPECT_NE(result.error().message().find(part), std::string::npos) << result.error().message();
}

TEST(UcxRefusals, OffersAndAnswers) {
  Pair pair;
  Parcel offer;
  expect_refusal(pair.near->offer(pair.to_far, 1, offer), Status::invalid_argument, "UCX has one rail");
  ASSERT_NO_FATAL_FAILURE(pair.connect());
  expect_refusal(pair.near_link->complete({}), Status::invalid_argument, "it was completed before");
  auto offered = pair.near->offer(pair.to_far, 0, offer);
  ASSERT_TRUE(offered) << offered.message();
  Parcel with_descriptor;
  with_descriptor.descriptors.emplace_back();
  expect_refusal((*offered)->complete(std::move(with_descriptor)), Status::bad_file, "descriptors came too");
  EXPECT_TRUE(pair.poll_until([&] { return pair.near_sink.errors.size() == 1; })) << "and breaks the link";
}

TEST(UcxRefusals, AMessageBeyondTheLimit) {
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(pair.connect());
  const std::vector<std::byte> payload(pair.near_link->limits().payload_bytes + 1);
  EXPECT_EQ(pair.near_link->post_message({}, payload), Posted::broken);
  ASSERT_TRUE(pair.poll_until([&] { return pair.near_sink.errors.size() == 1; }));
  EXPECT_NE(pair.near_sink.errors[pair.near_link.get()].find("are more than the limit"), std::string::npos)
      << pair.near_sink.errors[pair.near_link.get()];
}

TEST(UcxRefusals, Keys) {
  Pair pair;
  Buffer buffer(*pair.far, 100);
  Parcel key = std::move(buffer.region->key(pair.to_near)).value();
  key.descriptors.emplace_back();
  expect_refusal(pair.near->open_region(pair.to_far, std::move(key)), Status::bad_file, "it came with descriptors");
  std::string said;
  const auto decode = [&](const std::string& bytes) {
    if (const auto decoded = decode_region_key(bytes); !decoded) said += decoded.error().message() + "\n";
  };
  decode(encode(RegionKey{1, 2, 0, false}));
  const std::string good = encode(RegionKey{1, 2, 8, false});
  for (std::size_t at = 0; at < good.size(); ++at) {
    std::string changed = good;
    changed[at] = 7;
    decode(changed);
  }
  for (const char* const part : {"its length in bytes is out of range", "neither host memory nor a mapped GPU's"})
    EXPECT_NE(said.find(part), std::string::npos) << part;
}

// A link that moves large memory.
struct LargePair : Pair {
  LargePair() {
    connect();
    here = std::make_unique<Buffer>(*near, kBytes);
    there = std::make_unique<Buffer>(*far, kBytes);
    remote = open_far(*there->region);
  }
  void expect_error(Recorder& sink, const Link* link, const char* part) {
    ASSERT_TRUE(poll_until([&] { return !sink.errors.empty(); })) << part;
    EXPECT_NE(sink.errors.begin()->second.find(part), std::string::npos) << sink.errors.begin()->second;
    EXPECT_EQ(sink.errors.begin()->first, link);
  }
  std::unique_ptr<Buffer> here, there;
  std::unique_ptr<RemoteRegion> remote;
};

TEST(UcxRefusals, ARegionThatGoesDuringItsWrite) {
  LargePair pair;
  pair.post([&] { return pair.near_link->post_write(*pair.here->region, 0, *pair.remote, 0, kBytes, 1); });
  pair.here->region.reset();
  pair.expect_error(pair.near_sink, pair.near_link.get(), "the local region was taken back during the write");
}

TEST(UcxRefusals, ARegionThatGoesDuringItsRead) {
  LargePair pair;
  const std::size_t bytes = pair.near_link->limits().read_bytes < kBytes ? pair.near_link->limits().read_bytes : kBytes;
  pair.post([&] { return pair.near_link->post_read(*pair.here->region, 0, *pair.remote, 0, bytes, 1); });
  pair.here->region.reset();
  pair.expect_error(pair.near_sink, pair.near_link.get(), "the local region was taken back during the read");
}

TEST(UcxRefusals, ARegionThatGoesWhileItIsReadFrom) {
  LargePair pair;
  const std::size_t bytes = pair.near_link->limits().read_bytes < kBytes ? pair.near_link->limits().read_bytes : kBytes;
  pair.post([&] { return pair.near_link->post_read(*pair.here->region, 0, *pair.remote, 0, bytes, 1); });
  // The far side has taken the question; the rest of the answer waits for a near side that does not read.
  pair.near->poll(pair.near_sink);
  for (int turn = 0; turn < 2000; ++turn) pair.far->poll(pair.far_sink);
  pair.there->region.reset();
  pair.expect_error(pair.far_sink, pair.far_link.get(), "it reads from a region that was taken back");
}

}  // namespace
}  // namespace gigabar::transport::ucx::test
