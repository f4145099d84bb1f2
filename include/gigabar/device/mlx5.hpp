// SPDX-License-Identifier: Apache-2.0
// The binary format of an mlx5 send queue, its completion queue and its doorbell, for kernels and for the CPU.
//
// A work request (WQE) consists of 16-byte segments; here it is always one 64-byte block (WQEBB). Fields of more than one byte are
// big-endian. A segment is built in registers as four 32-bit words in the order of memory, so a GPU stores it by one access of 16
// bytes.
// Source: infiniband/mlx5dv.h of rdma-core 44; the unit test compares the formats byte by byte. DUMP is not in it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gigabar/device/memory.hpp"

#if !defined(__CUDA_ARCH__)
#include <bit>
#endif

namespace gigabar::inline v0::device::mlx5 {

// --- Bytes -----------------------------------------------------------------------------------------------------------------------

#if !defined(__CUDA_ARCH__)
static_assert(std::endian::native == std::endian::little, "the builders swap");
#endif

GIGABAR_DEVICE std::uint32_t big_endian(std::uint32_t value) {
#if defined(__CUDA_ARCH__)
  return __byte_perm(value, 0, 0x0123);
#else
  return __builtin_bswap32(value);
#endif
}
GIGABAR_DEVICE std::uint16_t big_endian(std::uint16_t value) { return static_cast<std::uint16_t>(value << 8 | value >> 8); }
GIGABAR_DEVICE std::uint32_t low_half(std::uint64_t value) { return static_cast<std::uint32_t>(value); }
GIGABAR_DEVICE std::uint32_t high_half(std::uint64_t value) { return static_cast<std::uint32_t>(value >> 32); }
GIGABAR_DEVICE std::uint64_t both_halves(std::uint32_t low, std::uint32_t high) { return std::uint64_t{high} << 32 | low; }

// --- Work requests ---------------------------------------------------------------------------------------------------------------

inline constexpr std::uint32_t kSegmentBytes = 16;
inline constexpr std::uint32_t kBlockBytes = 64;
inline constexpr std::uint32_t kSegmentsPerBlock = kBlockBytes / kSegmentBytes;
inline constexpr std::uint32_t kShortInlineBytes = 12;      // of payload in a WQE of three segments
inline constexpr std::uint32_t kMaxInlineBytes = 28;        // of payload in one block
inline constexpr std::uint32_t kMaxBytes = 1U << 30;        // of one message
inline constexpr std::uint32_t kInlineFlag = 0x8000'0000U;  // in the byte count of an inline segment

enum class Opcode : std::uint8_t {
  nop = 0x00,
  rdma_write = 0x08,
  rdma_read = 0x10,
  compare_swap = 0x11,
  fetch_add = 0x12,
  dump = 0x23,  // reads local memory and discards it: afterwards, what the HCA wrote there before is in place
};

// Byte 11 of the control segment (fm_ce_se).
inline constexpr std::uint8_t kCqUpdate = 0x08;    // write a CQE also on success
inline constexpr std::uint8_t kSmallFence = 0x20;  // wait for earlier reads and atomics of the queue
inline constexpr std::uint8_t kFence = 0x80;       // and for the landing of their results
inline constexpr std::uint8_t kFenceMask = 0xe0;

struct alignas(16) Segment {
  std::uint32_t words[4];  // as they lie in memory
};
static_assert(sizeof(Segment) == kSegmentBytes);

struct Block {
  Segment segments[kSegmentsPerBlock];
};
static_assert(sizeof(Block) == kBlockBytes);

// `index` is the WQE's own index, of which 16 bits are stored; `segment_count` includes this segment (ds).
GIGABAR_DEVICE Segment control_segment(std::uint64_t index, Opcode opcode, std::uint32_t queue_number, std::uint32_t segment_count,
                                       std::uint8_t flags, std::uint32_t immediate = 0) {
  const std::uint32_t index16 = static_cast<std::uint32_t>(index & 0xffff);
  return {{big_endian(index16 << 8 | static_cast<std::uint32_t>(opcode)), big_endian(queue_number << 8 | segment_count),
           static_cast<std::uint32_t>(flags) << 24, big_endian(immediate)}};
}

GIGABAR_DEVICE Segment remote_segment(std::uint64_t address, std::uint32_t key) {
  return {{big_endian(high_half(address)), big_endian(low_half(address)), big_endian(key), 0}};
}

// `bytes` must not be 0: the hardware reads that as 2 GiB.
GIGABAR_DEVICE Segment data_segment(std::uint64_t address, std::uint32_t key, std::uint32_t bytes) {
  return {{big_endian(bytes), big_endian(key), big_endian(high_half(address)), big_endian(low_half(address))}};
}

// The header and the first 12 bytes of payload; inline_rest() has the next 16. `words` is the payload in the order of memory.
GIGABAR_DEVICE Segment inline_segment(const std::uint64_t* words, std::uint32_t bytes) {
  return {{big_endian(bytes | kInlineFlag), low_half(words[0]), high_half(words[0]), low_half(words[1])}};
}
GIGABAR_DEVICE Segment inline_rest(const std::uint64_t* words) {
  return {{high_half(words[1]), low_half(words[2]), high_half(words[2]), low_half(words[3])}};
}
// The number of segments of an inline write.
GIGABAR_DEVICE std::uint32_t inline_segment_count(std::uint32_t bytes) { return bytes <= kShortInlineBytes ? 3 : 4; }

// `compare` is used by compare_swap only.
GIGABAR_DEVICE Segment atomic_segment(std::uint64_t swap_or_add, std::uint64_t compare) {
  return {{big_endian(high_half(swap_or_add)), big_endian(low_half(swap_or_add)), big_endian(high_half(compare)),
           big_endian(low_half(compare))}};
}

// One access of 16 bytes. Relaxed: a later store publishes it.
GIGABAR_DEVICE void store_segment(Segment* place, const Segment& segment) {
#if defined(__CUDA_ARCH__)
  asm volatile("st.relaxed.sys.global.v4.b32 [%0], {%1, %2, %3, %4};"
               :
               : "l"(place), "r"(segment.words[0]), "r"(segment.words[1]), "r"(segment.words[2]), "r"(segment.words[3])
               : "memory");
#else
  for (int i = 0; i < 4; ++i) store_relaxed(&place->words[i], segment.words[i]);
#endif
}

// --- Sequence tags ---------------------------------------------------------------------------------------------------------------
// For a software HCA only: a WQE with a sequence tag in each segment shows that all of it has arrived, so its stores need
// not be ordered before the doorbell. Tags are in words that hardware does not read: in the immediate, in the reserved word of
// the address, and behind at most 8 inline bytes. The reader clears these words, also where there was no tag, so that no tag is
// older than its WQE.

inline constexpr std::uint32_t kSequenceTagFlag = 0x8000'0000U;  // in opmod, which is 0 for hardware
inline constexpr std::uint32_t kTaggedSegments = 3;
inline constexpr std::uint32_t kMaxTaggedBytes = 8;  // of payload
inline constexpr std::uint32_t kTagWord = 3;         // of each segment
GIGABAR_DEVICE std::uint32_t sequence_tag(std::uint64_t index) { return static_cast<std::uint32_t>(index) | 0x8000'0000U; }

// One access: a reader sees all of it or nothing.
GIGABAR_DEVICE void store_tagged(Segment* place, const Segment& segment, std::uint64_t index) {
#if defined(__CUDA_ARCH__)
  asm volatile("{ .reg .b128 all; mov.b128 all, {%1, %2}; st.relaxed.sys.global.b128 [%0], all; }"
               :
               : "l"(place), "l"(both_halves(segment.words[0], segment.words[1])),
                 "l"(both_halves(segment.words[2], sequence_tag(index)))
               : "memory");
#else
  for (std::uint32_t i = 0; i < kTagWord; ++i) store_relaxed(&place->words[i], segment.words[i]);
  store_release(&place->words[kTagWord], sequence_tag(index));
#endif
}

// --- Doorbell --------------------------------------------------------------------------------------------------------------------

// The second of the two 32-bit words of a queue pair's record belongs to the send queue; `index` is behind the last WQE.
inline constexpr std::uint32_t kSendRecordIndex = 1;
GIGABAR_DEVICE std::uint32_t doorbell_record(std::uint64_t index) { return big_endian(static_cast<std::uint32_t>(index & 0xffff)); }

// The 8 bytes for the HCA's register: the beginning of a control segment, of which the HCA reads index and queue only.
GIGABAR_DEVICE std::uint64_t doorbell(std::uint64_t index, std::uint32_t queue_number) {
  return both_halves(big_endian(static_cast<std::uint32_t>(index & 0xffff) << 8), big_endian(queue_number << 8));
}

// --- Completions -----------------------------------------------------------------------------------------------------------------

// 64 bytes as eight words. A reader needs only the last one: it has queue, WQE, kind and owner of the entry in one access.
struct alignas(64) Cqe {
  std::uint64_t words[8];
};
static_assert(sizeof(Cqe) == 64);
inline constexpr std::uint32_t kCqeErrorWord = 6;                  // bytes 48 .. 55: the syndrome is 55, the vendor's is 54
inline constexpr std::uint32_t kCqeLastWord = 7;                   // bytes 56 .. 63
inline constexpr std::uint64_t kCqeUnwritten = ~std::uint64_t{0};  // every word before the HCA has written the entry

enum class CqeOpcode : std::uint8_t { request = 0, request_error = 13, response_error = 14, invalid = 15 };

GIGABAR_DEVICE CqeOpcode cqe_opcode(std::uint64_t last_word) { return static_cast<CqeOpcode>(last_word >> 60); }
GIGABAR_DEVICE std::uint32_t cqe_owner(std::uint64_t last_word) { return static_cast<std::uint32_t>(last_word >> 56) & 1; }
// Index of the WQE that the entry belongs to.
GIGABAR_DEVICE std::uint16_t cqe_wqe_index(std::uint64_t last_word) {
  return big_endian(static_cast<std::uint16_t>(last_word >> 32 & 0xffff));
}
GIGABAR_DEVICE std::uint8_t cqe_syndrome(std::uint64_t error_word) { return static_cast<std::uint8_t>(error_word >> 56); }
GIGABAR_DEVICE std::uint8_t cqe_vendor_syndrome(std::uint64_t error_word) { return static_cast<std::uint8_t>(error_word >> 48); }

GIGABAR_DEVICE std::uint64_t cqe_last_word(CqeOpcode opcode, std::uint32_t owner, std::uint64_t wqe_index, Opcode wqe_opcode,
                                           std::uint32_t queue_number) {
  const std::uint32_t about = big_endian(static_cast<std::uint32_t>(wqe_opcode) << 24 | queue_number);
  const std::uint32_t index = big_endian(static_cast<std::uint16_t>(wqe_index & 0xffff));
  return both_halves(about, index | (static_cast<std::uint32_t>(opcode) << 4 | owner) << 24);
}
GIGABAR_DEVICE std::uint64_t cqe_error_word(std::uint8_t syndrome, std::uint8_t vendor_syndrome) {
  return std::uint64_t{syndrome} << 56 | std::uint64_t{vendor_syndrome} << 48;
}
// Bytes 40 .. 47 of a CQE without error: the byte count is in the last four.
GIGABAR_DEVICE std::uint64_t cqe_count_word(std::uint32_t bytes) { return both_halves(0, big_endian(bytes)); }
inline constexpr std::uint32_t kCqeCountWord = 5;

enum class Syndrome : std::uint8_t {
  none = 0x00,
  local_length = 0x01,
  local_operation = 0x02,  // a malformed WQE
  local_protection = 0x04,
  flushed = 0x05,  // not begun, or with unknown outcome, because an earlier WQE failed
  bad_response = 0x10,
  local_access = 0x11,
  remote_request = 0x12,
  remote_access = 0x13,
  remote_operation = 0x14,
  retries_exceeded = 0x15,  // the peer does not respond
  not_ready_retries_exceeded = 0x16,
  remote_aborted = 0x22,
};

}  // namespace gigabar::inline v0::device::mlx5
