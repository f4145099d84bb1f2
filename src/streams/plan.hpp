// SPDX-License-Identifier: Apache-2.0
// What a transfer's fields mean when they are not set, what they may be, and how messages name them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "gigabar/streams.hpp"

namespace gigabar::inline v0 {

// Limits of one transfer, for the text form and check_plan alike.
inline constexpr std::uint64_t kMaxTransferBytes = std::uint64_t{1} << 46;
inline constexpr std::uint64_t kMaxIterations = std::uint64_t{1} << 60;
inline constexpr double kMaxSeconds = 86400;          // of a transfer
inline constexpr double kMaxTimeoutSeconds = 604800;  // of a plan: longer than any transfer with its delay
inline constexpr double kMaxDelaySeconds = 3600;
inline constexpr unsigned kMaxBlocks = 65535;
inline constexpr unsigned kMaxThreads = 256;

// The device that does the work: whose copy engine or kernel, or whose memory the CPU maps; -1 when both ends are host memory.
int working_device(const Transfer& transfer) noexcept;
// The device whose NUMA node is "nearest" for the transfer's host end; -1 when both ends are host memory. With a host end there is
// one GPU at most, and it does the work.
inline int nearest_device(const Transfer& transfer) noexcept { return working_device(transfer); }
// "transfer 3 (gpu0->host ce bytes=1G)": how every message names one.
std::string describe_transfer(std::size_t index, const Transfer& transfer);
// The first detector's record, with the transfer in front.
ErrorRecord failure_of(std::size_t index, const Transfer& transfer, ErrorRecord record);

// 1 to 64 bytes without spaces, control characters, ';' and '#': what the text form can say.
bool is_group_name(std::string_view name) noexcept;
// "this machine has gpu0 to gpu7", for the causes of errors.
std::string devices_text(int device_count);
// A user's word for a message: in quotation marks, one line, printable, shortened.
std::string quoted_word(std::string_view word);

}  // namespace gigabar::inline v0
