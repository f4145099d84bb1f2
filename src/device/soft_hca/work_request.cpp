// SPDX-License-Identifier: Apache-2.0
#include "device/soft_hca/work_request.hpp"

#include <algorithm>

#include "gigabar/device/memory.hpp"

namespace gigabar::soft_hca {
namespace {

namespace mlx5 = device::mlx5;

constexpr std::uint64_t kBytesOfZero = std::uint64_t{1} << 31;  // what hardware takes a data segment of 0 bytes for
constexpr std::size_t kWordsPerSegment = 4;

// The block's words, big-endian ones swapped on demand. Relaxed loads: the doorbell was taken by acquire before.
class Reader {
 public:
  explicit Reader(const mlx5::Block& block) {
    for (std::size_t i = 0; i < words_.size(); ++i) {
      words_[i] = device::load_relaxed(&block.segments[i / kWordsPerSegment].words[i % kWordsPerSegment]);
    }
  }
  std::uint32_t raw(std::size_t word) const { return words_[word]; }
  std::uint32_t value32(std::size_t word) const { return mlx5::big_endian(words_[word]); }
  std::uint64_t value64(std::size_t word) const { return mlx5::both_halves(value32(word + 1), value32(word)); }

 private:
  std::array<std::uint32_t, mlx5::kBlockBytes / sizeof(std::uint32_t)> words_{};
};

void read_data(const Reader& reader, std::size_t segment, WorkRequest& request) {
  const std::size_t word = segment * kWordsPerSegment;
  const std::uint32_t bytes = reader.value32(word);
  request.bytes = bytes == 0 ? kBytesOfZero : bytes;
  request.local_key = reader.value32(word + 1);
  request.local_address = reader.value64(word + 2);
}

void read_remote(const Reader& reader, WorkRequest& request) {
  request.remote_address = reader.value64(kWordsPerSegment);
  request.remote_key = reader.value32(kWordsPerSegment + 2);
}

bool read_inline(const Reader& reader, std::uint32_t segment_count, WorkRequest& request) {
  constexpr std::size_t kHeader = 2 * kWordsPerSegment;
  const std::uint32_t bytes = reader.value32(kHeader) & ~mlx5::kInlineFlag;
  if (bytes == 0 || bytes > mlx5::kMaxInlineBytes || segment_count != mlx5::inline_segment_count(bytes)) return false;
  request.is_inline = true;
  request.bytes = bytes;
  for (std::size_t i = 0; i < request.payload.size(); ++i) request.payload[i] = reader.raw(kHeader + 1 + i);
  return true;
}

bool read_read(const Reader& reader, std::uint32_t segment_count, WorkRequest& request) {
  read_remote(reader, request);
  read_data(reader, 2, request);
  return segment_count == 3;
}

bool read_write(const Reader& reader, std::uint32_t segment_count, WorkRequest& request) {
  if ((reader.value32(2 * kWordsPerSegment) & mlx5::kInlineFlag) == 0) return read_read(reader, segment_count, request);
  read_remote(reader, request);
  return read_inline(reader, segment_count, request);
}

bool read_atomic(const Reader& reader, std::uint32_t segment_count, WorkRequest& request) {
  read_remote(reader, request);
  request.swap_or_add = reader.value64(2 * kWordsPerSegment);
  request.compare = reader.value64(2 * kWordsPerSegment + 2);
  read_data(reader, 3, request);
  return segment_count == 4 && request.bytes == sizeof(std::uint64_t);
}

bool read_segments(const Reader& reader, std::uint32_t segment_count, WorkRequest& request) {
  switch (request.opcode) {
    case Opcode::nop: return segment_count == 1;
    case Opcode::rdma_write: return read_write(reader, segment_count, request);
    case Opcode::rdma_read: return read_read(reader, segment_count, request);
    case Opcode::compare_swap:
    case Opcode::fetch_add: return read_atomic(reader, segment_count, request);
    case Opcode::dump: read_data(reader, 1, request); return segment_count == 2;
  }
  return false;
}

}  // namespace

bool has_arrived(const mlx5::Block& block, std::uint64_t index, std::uint32_t queue_number) {
  const std::uint32_t what = mlx5::big_endian(device::load_acquire(&block.segments[0].words[0]));
  const std::uint32_t whose = mlx5::big_endian(device::load_acquire(&block.segments[0].words[1]));
  if ((what >> 8 & 0xffff) != (index & 0xffff) || whose >> 8 != queue_number) return false;
  if ((what & mlx5::kSequenceTagFlag) == 0) return true;
  for (std::size_t i = 0; i < mlx5::kTaggedSegments; ++i) {
    if (device::load_acquire(&block.segments[i].words[mlx5::kTagWord]) != mlx5::sequence_tag(index)) return false;
  }
  return true;
}

void clear_tags(mlx5::Block& block) {
  for (std::size_t i = 0; i < mlx5::kTaggedSegments; ++i) device::store_relaxed(&block.segments[i].words[mlx5::kTagWord], 0);
}

WorkRequest read_work_request(const mlx5::Block& block, std::uint64_t index, std::uint32_t queue_number) {
  const Reader reader(block);
  const std::uint32_t what = reader.value32(0);
  const std::uint32_t whose = reader.value32(1);
  WorkRequest request;
  request.opcode = static_cast<Opcode>(what & 0xff);
  request.flags = static_cast<std::uint8_t>(reader.raw(2) >> 24);
  const bool is_this =
      (what & ~mlx5::kSequenceTagFlag) >> 8 == (index & 0xffff) && whose >> 8 == queue_number;  // the rest of opmod is 0
  if (!is_this || !read_segments(reader, whose & 0xff, request)) request.syndrome = Syndrome::local_operation;
  return request;
}

}  // namespace gigabar::soft_hca
