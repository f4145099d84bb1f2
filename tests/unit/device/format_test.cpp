// SPDX-License-Identifier: Apache-2.0
// Every byte that the device writes for an HCA, and that the HCA answers, against rdma-core's own structs and helpers.
#include "rig.hpp"

#if __has_include(<infiniband/mlx5dv.h>)
#include <endian.h>
#include <infiniband/mlx5dv.h>

#include <cstddef>

namespace gigabar::soft_hca::test {
namespace {

constexpr std::uint64_t kRemoteAddress = 0x1122'3344'5566'7788;
constexpr std::uint32_t kRemoteKey = 0xdeadbeef;
constexpr std::uint64_t kLocalAddress = 0x7f00'1122'3344;
constexpr std::uint32_t kLocalKey = 0xcafef00d;
constexpr std::uint32_t kNumber = 0xabcde;
constexpr std::uint64_t kFirst = 0x71234;

// A block as rdma-core builds it.
struct Expected {
  unsigned char bytes[64] = {};

  Expected& control(std::uint64_t index, std::uint8_t opcode, std::uint8_t segment_count, std::uint8_t flags) {
    mlx5dv_set_ctrl_seg(reinterpret_cast<mlx5_wqe_ctrl_seg*>(bytes), static_cast<std::uint16_t>(index), opcode, 0, kNumber, flags,
                        segment_count, 0, 0);
    return *this;
  }
  Expected& remote(std::uint64_t address = kRemoteAddress) {
    mlx5_wqe_raddr_seg segment{};
    segment.raddr = htobe64(address);
    segment.rkey = htobe32(kRemoteKey);
    std::memcpy(bytes + 16, &segment, sizeof segment);
    return *this;
  }
  Expected& data(int segment, std::uint32_t byte_count) {
    mlx5dv_set_data_seg(reinterpret_cast<mlx5_wqe_data_seg*>(bytes + 16 * segment), byte_count, kLocalKey, kLocalAddress);
    return *this;
  }
  Expected& payload(const void* from, std::uint32_t byte_count) {
    mlx5_wqe_inl_data_seg header{};
    header.byte_count = htobe32(byte_count | MLX5_INLINE_SEG);
    std::memcpy(bytes + 32, &header, sizeof header);
    std::memcpy(bytes + 32 + sizeof header, from, byte_count);
    return *this;
  }
  Expected& atomic(std::uint64_t swap_or_add, std::uint64_t compare) {
    mlx5_wqe_atomic_seg segment{};
    segment.swap_add = htobe64(swap_or_add);
    segment.compare = htobe64(compare);
    std::memcpy(bytes + 32, &segment, sizeof segment);
    return *this;
  }
};

// A queue without an HCA: what was posted stays where it was stored.
class Format : public testing::Test {
 protected:
  Format() : ring_(64 * 16), words_(128) {
    queue_.ring = &ring_.at<mlx5::Block>(0);
    queue_.doorbell_record = &words_.at<std::uint32_t>(4);
    queue_.doorbell = &words_.at<std::uint64_t>(64);
    queue_.cq = &cq_;
    queue_.depth = 16;
    queue_.cq_depth = 1;
    queue_.number = kNumber;
    queue_.is_collapsed = true;
    queue_.reserved = queue_.ready = queue_.completed = kFirst;
    for (std::uint64_t& word : cq_.words) word = mlx5::kCqeUnwritten;
  }

  // Compares as many bytes as the WQE says it has: what lies behind is not looked at by anyone.
  void expect_block(std::uint64_t index, const Expected& expected) {
    const std::size_t bytes = 16 * std::size_t{expected.bytes[7]};
    ASSERT_GT(bytes, 0U);
    const auto* block = &ring_.at<unsigned char>((index % 16) * 64);
    for (std::size_t i = 0; i < bytes; ++i) EXPECT_EQ(int{block[i]}, int{expected.bytes[i]}) << "byte " << i << " of " << index;
  }
  void expect_rung(std::uint64_t end) {
    EXPECT_EQ(words_.at<std::uint32_t>(4 * MLX5_SND_DBR), htobe32(end & 0xffff));
    EXPECT_EQ(words_.at<std::uint32_t>(4 * MLX5_RCV_DBR), 0U);
    mlx5_wqe_ctrl_seg segment{};
    mlx5dv_set_ctrl_seg(&segment, static_cast<std::uint16_t>(end), 0, 0, kNumber, 0, 0, 0, 0);
    EXPECT_EQ(std::memcmp(&words_.at<std::uint64_t>(64), &segment, 8), 0);
  }

  Remote remote_{kRemoteAddress, kRemoteKey};
  Local local_{kLocalAddress, kLocalKey};
  Bytes ring_, words_;
  mlx5::Cqe cq_;
  device::Queue queue_;
  Ticket ticket_;
};

TEST_F(Format, Write) {
  ASSERT_EQ(device::post_write<kAlone>(Thread{}, queue_, remote_, local_, 4096, ticket_, kShort), Status::ok);
  expect_block(kFirst, Expected().control(kFirst, MLX5_OPCODE_RDMA_WRITE, 3, MLX5_WQE_CTRL_CQ_UPDATE).remote().data(2, 4096));
  expect_rung(kFirst + 1);
  EXPECT_EQ(ticket_.index, kFirst + 1);
}

// Written down once, so that a mistake in how the helpers are called shows too.
TEST_F(Format, WriteIsTheKnownBytes) {
  ASSERT_EQ(device::post_write<kAlone>(Thread{}, queue_, remote_, local_, 4096, ticket_, kShort), Status::ok);
  constexpr unsigned char kKnown[48] = {0x00, 0x12, 0x34, 0x08, 0x0a, 0xbc, 0xde, 0x03, 0x00, 0x00, 0x00, 0x08,
                                        0x00, 0x00, 0x00, 0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88,
                                        0xde, 0xad, 0xbe, 0xef, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x10, 0x00,
                                        0xca, 0xfe, 0xf0, 0x0d, 0x00, 0x00, 0x7f, 0x00, 0x11, 0x22, 0x33, 0x44};
  EXPECT_EQ(std::memcmp(&ring_.at<char>((kFirst % 16) * 64), kKnown, sizeof kKnown), 0);
}

TEST_F(Format, InlineWriteOfEverySize) {
  const Inline payload{{0x0807'0605'0403'0201, 0x100f'0e0d'0c0b'0a09, 0x1817'1615'1413'1211, 0x1c1b'1a19}, 0};
  std::uint64_t index = kFirst;
  for (std::uint32_t bytes = 1; bytes <= mlx5::kMaxInlineBytes; ++bytes, ++index) {
    queue_.completed = index;
    Inline part = payload;
    part.bytes = bytes;
    ASSERT_EQ(device::post_inline_write<kAlone>(Thread{}, queue_, remote_, part, ticket_, kShort), Status::ok);
    const std::uint8_t segment_count = bytes <= 12 ? 3 : 4;
    Expected expected;
    expected.control(index, MLX5_OPCODE_RDMA_WRITE, segment_count, MLX5_WQE_CTRL_CQ_UPDATE).remote().payload(payload.words, bytes);
    // Payload is compared up to its end.
    const std::size_t end = 36 + bytes;
    EXPECT_EQ(std::memcmp(&ring_.at<char>((index % 16) * 64), expected.bytes, end), 0) << bytes;
  }
  Inline too_long = payload;
  too_long.bytes = mlx5::kMaxInlineBytes + 1;
  queue_.completed = index;
  EXPECT_EQ(device::post_inline_write<kAlone>(Thread{}, queue_, remote_, too_long, ticket_, kShort), Status::invalid_argument);
  expect_block(index, Expected().control(index, MLX5_OPCODE_NOP, 1, MLX5_WQE_CTRL_CQ_UPDATE));
}

TEST_F(Format, ReadAndFencedRead) {
  ASSERT_EQ(device::post_read<kAlone>(Thread{}, queue_, remote_, local_, 7, ticket_, kShort), Status::ok);
  ASSERT_EQ(device::post_read<kAlone>(Thread{}, queue_, remote_, local_, 7, ticket_, kShort, Fence::before), Status::ok);
  expect_block(kFirst, Expected().control(kFirst, MLX5_OPCODE_RDMA_READ, 3, MLX5_WQE_CTRL_CQ_UPDATE).remote().data(2, 7));
  const std::uint8_t flags = MLX5_WQE_CTRL_CQ_UPDATE | MLX5_WQE_CTRL_FENCE;
  expect_block(kFirst + 1, Expected().control(kFirst + 1, MLX5_OPCODE_RDMA_READ, 3, flags).remote().data(2, 7));
}

TEST_F(Format, ConfirmedReadIsFollowedByAFencedDump) {
  queue_.confirms_reads = true;
  ASSERT_EQ(device::post_read<kAlone>(Thread{}, queue_, remote_, local_, 7, ticket_, kShort), Status::ok);
  expect_block(kFirst, Expected().control(kFirst, MLX5_OPCODE_RDMA_READ, 3, 0).remote().data(2, 7));
  const std::uint8_t flags = MLX5_WQE_CTRL_CQ_UPDATE | MLX5_WQE_CTRL_FENCE;
  expect_block(kFirst + 1, Expected().control(kFirst + 1, 0x23, 2, flags).data(1, 7));
  expect_rung(kFirst + 2);
}

TEST_F(Format, Atomics) {
  constexpr std::uint64_t kA = 0x0102'0304'0506'0708, kB = 0xf1f2'f3f4'f5f6'f7f8;
  ASSERT_EQ(device::post_fetch_add<kAlone>(Thread{}, queue_, remote_, kA, local_, ticket_, kShort), Status::ok);
  ASSERT_EQ(device::post_compare_swap<kAlone>(Thread{}, queue_, remote_, kA, kB, local_, ticket_, kShort), Status::ok);
  expect_block(kFirst,
               Expected().control(kFirst, MLX5_OPCODE_ATOMIC_FA, 4, MLX5_WQE_CTRL_CQ_UPDATE).remote().atomic(kA, 0).data(3, 8));
  expect_block(
      kFirst + 1,
      Expected().control(kFirst + 1, MLX5_OPCODE_ATOMIC_CS, 4, MLX5_WQE_CTRL_CQ_UPDATE).remote().atomic(kB, kA).data(3, 8));
}

TEST_F(Format, NopAndWhatHasNoBytes) {
  ASSERT_EQ(device::post_nop<kAlone>(Thread{}, queue_, ticket_, kShort, Fence::before), Status::ok);
  ASSERT_EQ(device::post_write<kAlone>(Thread{}, queue_, remote_, local_, 0, ticket_, kShort), Status::ok);
  expect_block(kFirst, Expected().control(kFirst, MLX5_OPCODE_NOP, 1, MLX5_WQE_CTRL_CQ_UPDATE | MLX5_WQE_CTRL_FENCE));
  expect_block(kFirst + 1, Expected().control(kFirst + 1, MLX5_OPCODE_NOP, 1, MLX5_WQE_CTRL_CQ_UPDATE));
}

TEST_F(Format, WriteAndNotification) {
  const Remote place{kRemoteAddress + 0x100, kRemoteKey};
  constexpr std::uint32_t kValue = 0x0a0b0c0d;
  ASSERT_EQ(device::post_write_notify<kAlone>(Thread{}, queue_, remote_, local_, 64, place, kValue, ticket_, kShort), Status::ok);
  expect_block(kFirst, Expected().control(kFirst, MLX5_OPCODE_RDMA_WRITE, 3, 0).remote().data(2, 64));
  const auto second = Expected()
                          .control(kFirst + 1, MLX5_OPCODE_RDMA_WRITE, 3, MLX5_WQE_CTRL_CQ_UPDATE)
                          .remote(place.address)
                          .payload(&kValue, sizeof kValue);
  expect_block(kFirst + 1, second);
  expect_rung(kFirst + 2);
}

// What the software HCA answers, read with rdma-core's structs.
TEST(FormatOfCompletions, AreRdmaCores) {
  static_assert(sizeof(mlx5::Cqe) == sizeof(mlx5_cqe64) && sizeof(mlx5::Cqe) == sizeof(mlx5_err_cqe));
  QueueOptions options;
  options.depth = 4;
  options.is_collapsed = false;
  options.first_index = 0x1fffe;
  Rig rig(options);
  Ticket ticket;
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(device::post_write<kAlone>(Thread{}, rig.queue(), rig.at_peer(0), rig.at_local(0), 100, ticket, kShort), Status::ok);
    rig.run();
    ASSERT_EQ(device::wait<kAlone>(Thread{}, rig.queue(), ticket, kShort), Status::ok);
  }
  const auto* cqes = &rig.queues[0].cq.at<mlx5_cqe64>(0);
  auto second = cqes[1];
  EXPECT_EQ(mlx5dv_get_cqe_opcode(&second), MLX5_CQE_REQ);
  EXPECT_EQ(mlx5dv_get_cqe_owner(&second), 0);
  EXPECT_EQ(be16toh(second.wqe_counter), 0xffff);
  EXPECT_EQ(be32toh(second.byte_cnt), 100U);
  EXPECT_EQ(be32toh(second.sop_drop_qpn), std::uint32_t{MLX5_OPCODE_RDMA_WRITE} << 24 | rig.queues[0].number);
  auto fifth = cqes[0];
  EXPECT_EQ(mlx5dv_get_cqe_owner(&fifth), 1);
  EXPECT_EQ(be16toh(fifth.wqe_counter), 2);

  ASSERT_EQ(device::post_write<kAlone>(Thread{}, rig.queue(), {kPeerBase, 0}, rig.at_local(0), 100, ticket, kShort), Status::ok);
  rig.run();
  mlx5_err_cqe bad;
  std::memcpy(&bad, &cqes[1], sizeof bad);
  EXPECT_EQ(bad.op_own >> 4, MLX5_CQE_REQ_ERR);
  EXPECT_EQ(bad.op_own & 1, 1);
  EXPECT_EQ(bad.syndrome, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
  EXPECT_EQ(bad.vendor_err_synd, 0);
  EXPECT_EQ(be16toh(bad.wqe_counter), 3);
  EXPECT_EQ(be32toh(bad.s_wqe_opcode_qpn), std::uint32_t{MLX5_OPCODE_RDMA_WRITE} << 24 | rig.queues[0].number);
}

TEST(FormatOfConstants, AreRdmaCores) {
  EXPECT_EQ(mlx5::kBlockBytes, std::uint32_t{MLX5_SEND_WQE_BB});
  EXPECT_EQ(mlx5::kInlineFlag, MLX5_INLINE_SEG);
  EXPECT_EQ(mlx5::kSendRecordIndex, std::uint32_t{MLX5_SND_DBR});
  EXPECT_EQ(mlx5::kCqUpdate, MLX5_WQE_CTRL_CQ_UPDATE);
  EXPECT_EQ(mlx5::kFence, MLX5_WQE_CTRL_FENCE);
  EXPECT_EQ(mlx5::kSmallFence, MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE);
  using enum mlx5::Syndrome;
  const std::pair<mlx5::Syndrome, int> kSyndromes[] = {{local_length, MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR},
                                                       {local_operation, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR},
                                                       {local_protection, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR},
                                                       {flushed, MLX5_CQE_SYNDROME_WR_FLUSH_ERR},
                                                       {bad_response, MLX5_CQE_SYNDROME_BAD_RESP_ERR},
                                                       {local_access, MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR},
                                                       {remote_request, MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR},
                                                       {remote_access, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR},
                                                       {remote_operation, MLX5_CQE_SYNDROME_REMOTE_OP_ERR},
                                                       {retries_exceeded, MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR},
                                                       {not_ready_retries_exceeded, MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR},
                                                       {remote_aborted, MLX5_CQE_SYNDROME_REMOTE_ABORTED_ERR}};
  for (const auto& [ours, theirs] : kSyndromes) EXPECT_EQ(static_cast<int>(ours), theirs);
}

}  // namespace
}  // namespace gigabar::soft_hca::test
#else
TEST(Format, IsRdmaCores) { GTEST_SKIP() << "no infiniband/mlx5dv.h here"; }
#endif
