// SPDX-License-Identifier: Apache-2.0
// Types that several components share: ranks and the memory they register, time-outs, paths, PCI addresses.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "gigabar/export.hpp"

namespace gigabar::inline v0 {

// --- Ranks and what they own ----------------------------------------------------------------------------------------------------

using Rank = std::uint32_t;
using SegmentId = std::uint16_t;       // 0 .. kMaxSegments - 1, chosen by the program
using QueueId = std::uint8_t;          // 0 .. kQueues - 1
using NotificationId = std::uint32_t;  // 0 .. kNotifications - 1, of one segment
using Tag = std::uint64_t;

inline constexpr unsigned kMaxSegments = 1024;
inline constexpr unsigned kQueues = 16;
inline constexpr unsigned kQueueDepth = 1024;  // operations of one queue before a wait; each piece of a list counts
inline constexpr unsigned kNotifications = 65536;
inline constexpr unsigned kMaxListPieces = 1024;
inline constexpr unsigned kMaxOrderedBytes = 64;  // of write_in_order
inline constexpr unsigned kMaxReduceElements = 255;
inline constexpr Rank kAnyRank = 0xffffffff;

struct LocalPlace {
  SegmentId segment = 0;
  std::uint64_t offset_bytes = 0;
};
struct RemotePlace {
  Rank rank = 0;
  SegmentId segment = 0;
  std::uint64_t offset_bytes = 0;
};

// How long a call may wait. When the time is over, the call returns timed_out. That is not an error of the peer: nothing is lost,
// and the same call can be made again.
class Timeout {
 public:
  // Tests once, without waiting.
  static constexpr Timeout test() noexcept { return Timeout(0); }
  // Any duration, as in `barrier({}, 10s)`. A negative one tests once; the maximum is a century.
  template <class Number, class Period>
  constexpr Timeout(std::chrono::duration<Number, Period> duration) noexcept : ns_(ns_of(duration)) {}
  template <class Number, class Period>
  static constexpr Timeout of(std::chrono::duration<Number, Period> duration) noexcept {
    return Timeout(duration);
  }
  // The wait ends with the operation, or with peer_lost when no rank is left that could end it: the peer is dead; a member of the
  // group is dead (at every member); or, in a wait for any rank, every other rank is dead. After a second the wait also checks
  // ranks without a connection. A rank that was never started may still arrive. A rank that has communicated with itself waits for
  // itself.
  static constexpr Timeout forever() noexcept { return Timeout(-1); }

  constexpr bool is_forever() const noexcept { return ns_ < 0; }
  constexpr std::int64_t ns() const noexcept { return ns_; }

 private:
  explicit constexpr Timeout(std::int64_t ns) noexcept : ns_(ns) {}
  template <class Number, class Period>
  static constexpr std::int64_t ns_of(std::chrono::duration<Number, Period> duration) noexcept {
    constexpr std::chrono::nanoseconds kCentury = std::chrono::hours(24 * 365 * 100);
    const std::chrono::duration<double, std::nano> ns = duration;
    if (!(ns.count() > 0)) return 0;  // also a NaN
    if (ns >= kCentury) return kCentury.count();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
  }
  std::int64_t ns_;
};

// --- Paths between ranks --------------------------------------------------------------------------------------------------------

// The transport of the bytes.
enum class TransportKind : std::uint8_t {
  local,  // one host: shared memory, CUDA IPC, CPU mappings of GPU memory
  verbs,  // InfiniBand, RoCE, iWARP
  ucx,    // UCP: TCP and every network that UCX supports
  tcp     // TCP, over connections that have proved the job's key
};
inline constexpr std::size_t kTransportKinds = 4;
GIGABAR_API std::string_view name_of(TransportKind kind) noexcept;

// The path of the bytes.
enum class TransferPath : std::uint8_t {
  none,    // there were no bytes to move
  host,    // host memory at both ends, without a copy by this library
  bar,     // CPUs load from and store to GPU memory through mappings (host memory: plain copies): at both ends of a message, or
           // the writer's alone
  p2p,     // one GPU's copy engine accesses the other memory, over NVLink or PCIe
  gdr,     // the NIC reads and writes GPU memory directly
  staged,  // through pinned host memory in chunks
};
GIGABAR_API std::string_view name_of(TransferPath path) noexcept;
GIGABAR_API std::optional<TransferPath> transfer_path_from_name(std::string_view name) noexcept;

// --- Hardware -------------------------------------------------------------------------------------------------------------------

struct PciAddress {
  std::uint32_t domain = 0;
  std::uint8_t bus = 0;
  std::uint8_t device = 0;
  std::uint8_t function = 0;

  // "0000:3b:00.0": lower case, as in Linux's /sys.
  GIGABAR_API std::string to_string() const;
  // Reads "[domain:]bus:device.function" in hexadecimal; nothing when the text is not of that form.
  GIGABAR_API static std::optional<PciAddress> parse(std::string_view text);
  bool operator==(const PciAddress&) const = default;
};

}  // namespace gigabar::inline v0
