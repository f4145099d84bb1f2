// SPDX-License-Identifier: Apache-2.0
#include "gigabar/kernel_ring.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/counted.hpp"
#include "base/errors.hpp"
#include "base/uncancelled.hpp"
#include "gigabar/mapping.hpp"
#include "gigabar/memory.hpp"

namespace gigabar::inline v0 {
namespace {

constexpr std::uint32_t kMinRingBytes = device::kMinRingLines * sizeof(device::MessageLine);
constexpr std::uint32_t kMaxRingBytes = std::uint32_t{1} << 30;

// What the CPU writes, in device memory. The lines follow.
struct DeviceSide {
  device::RingEnd from_cpu, to_cpu;
  alignas(128) std::uint32_t cpu_status = 0;
  alignas(128) std::uint64_t credit = 0;  // of what kernels send
};

// What kernels write, in host memory. The lines follow.
struct HostSide {
  std::uint64_t credit = 0;                      // of what the CPU sends
  alignas(128) std::uint32_t kernel_status = 0;  // stays ok: a kernel is not known to be lost
};

device::RingEnd ring_end(void* lines, std::uint64_t* credit, const std::uint32_t* status, std::uint32_t bytes) {
  device::RingEnd end;
  end.lines = static_cast<device::MessageLine*>(lines);
  end.credit = credit;
  end.status = status;
  end.line_count = bytes / sizeof(device::MessageLine);
  return end;
}

}  // namespace

struct KernelRing::State {
  State(DeviceMemory device_memory, HostMemory host_memory, Mapping map_of_device)
      : device(std::move(device_memory)), host(std::move(host_memory)), mapping(std::move(map_of_device)) {}

  DeviceMemory device;
  HostMemory host;
  Mapping mapping;  // of device; it goes first
  // The CPU's ends.
  device::RingEnd send_end, recv_end;
  device::CpuSendRing to_kernel;
  device::CpuRecvRing from_kernel;
  std::uint64_t late_answers = 0;
  std::vector<std::byte> cut_off;  // the arguments of which to_kernel has sent a part

  DeviceSide* for_kernels() const noexcept { return static_cast<DeviceSide*>(device.address()); }
  DeviceSide* mapped() const noexcept { return reinterpret_cast<DeviceSide*>(mapping.address()); }
  void fill(std::uint32_t ring_bytes);
};

// Addresses in an end are those of who uses the end.
void KernelRing::State::fill(std::uint32_t ring_bytes) {
  auto* const shared = static_cast<HostSide*>(host.address());
  *shared = HostSide();
  send_end = ring_end(mapped() + 1, &shared->credit, &shared->kernel_status, ring_bytes);
  recv_end = ring_end(shared + 1, &mapped()->credit, &shared->kernel_status, ring_bytes);
  DeviceSide first;
  first.from_cpu = ring_end(for_kernels() + 1, &shared->credit, &for_kernels()->cpu_status, ring_bytes);
  first.to_cpu = ring_end(shared + 1, &for_kernels()->credit, &for_kernels()->cpu_status, ring_bytes);
  // By words: a mapping may take aligned accesses only.
  auto* const words = reinterpret_cast<std::uint64_t*>(mapping.address());
  for (std::size_t i = 0; i < mapping.bytes() / sizeof *words; ++i) {
    std::uint64_t word = 0;
    if (i < sizeof first / sizeof word)
      std::memcpy(&word, reinterpret_cast<const std::byte*>(&first) + i * sizeof word, sizeof word);
    device::store_relaxed(words + i, word);
  }
  device::fence_system();  // out of the write-combining buffer
  to_kernel.open(send_end);
  from_kernel.open(recv_end);
}

Result<KernelRing> KernelRing::open(int device, const KernelRingOptions& options) try {
  const Uncancelled uncancelled;
  const std::uint32_t bytes = options.ring_bytes;
  if (bytes < kMinRingBytes || bytes > kMaxRingBytes || !std::has_single_bit(bytes)) {
    return make_error(Status::invalid_argument, "kernel ring", text("ring_bytes ", bytes),
                      text("it is no power of two between ", kMinRingBytes, " and ", kMaxRingBytes), "give such a number");
  }
  auto memory = DeviceMemory::allocate(device, sizeof(DeviceSide) + bytes);
  if (!memory) return std::move(memory).error();
  auto host = HostMemory::allocate(sizeof(HostSide) + bytes);
  if (!host) return std::move(host).error();
  auto mapping = map(memory->address(), sizeof(DeviceSide) + bytes);
  if (!mapping) return std::move(mapping).error();
  auto state = std::make_unique<State>(std::move(*memory), std::move(*host), std::move(*mapping));
  state->fill(bytes);
  return KernelRing(std::move(state));
} catch (...) {
  return error_of_exception("kernel ring open");
}

KernelRing::KernelRing(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
KernelRing::KernelRing(KernelRing&&) noexcept = default;
KernelRing& KernelRing::operator=(KernelRing&&) noexcept = default;
KernelRing::~KernelRing() = default;

device::RingEnd* KernelRing::from_cpu() const noexcept { return &state_->for_kernels()->from_cpu; }
device::RingEnd* KernelRing::to_cpu() const noexcept { return &state_->for_kernels()->to_cpu; }
device::CpuSendRing& KernelRing::to_kernel() noexcept { return state_->to_kernel; }
device::CpuRecvRing& KernelRing::from_kernel() noexcept { return state_->from_kernel; }

Result<std::uint64_t> KernelRing::call(const void* arguments, std::uint64_t bytes, void* answer, std::uint64_t capacity,
                                       Timeout timeout) try {
  const Uncancelled uncancelled;
  const device::Thread thread;
  const device::Timeout wait = timeout.is_forever() ? device::kForever : device::Timeout{static_cast<std::uint64_t>(timeout.ns())};
  std::uint64_t got = 0;
  const auto refuse = [&](Status status, std::string cause, std::string remedy) {
    return make_error(status, "call", text("kernel, with ", counted(bytes, "byte")), std::move(cause), std::move(remedy));
  };
  const auto late = [&](std::string cause) {
    return refuse(Status::timed_out, std::move(cause), "look whether the kernel runs, or wait longer");
  };
  for (; state_->late_answers != 0; --state_->late_answers) {
    const auto drop = [](std::uint64_t, std::uint32_t, std::uint32_t) {};
    const Status status = recv_words(thread, state_->from_kernel, device::kMaxMessageBytes, drop, got, wait);
    if (status != Status::ok) return late("the answer to the call before has not arrived");
  }
  if (bytes > device::kMaxMessageBytes) {
    return refuse(Status::out_of_range, text("a message has at most ", device::kMaxMessageBytes, " bytes"), "split the arguments");
  }
  const std::span given(static_cast<const std::byte*>(arguments), bytes);
  if (state_->to_kernel.done_bytes != 0 && !std::ranges::equal(state_->cut_off, given)) {
    return refuse(Status::invalid_argument, "other arguments were sent in part by the call before, and would be mixed with these",
                  "repeat the call that timed out");
  }
  if (device::send(thread, state_->to_kernel, arguments, bytes, wait) != Status::ok) {
    if (state_->to_kernel.done_bytes != 0) state_->cut_off.assign(given.begin(), given.end());
    return late("the kernel makes no room for the arguments");
  }
  state_->late_answers = 1;
  const Status received = device::recv(thread, state_->from_kernel, answer, capacity, got, wait);
  if (received == Status::out_of_range) {
    return make_error(received, "call", text("answer of ", counted(got, "byte")),
                      text("there is room for ", counted(capacity, "byte")), "give as much memory as the longest answer takes");
  }
  if (received != Status::ok) return late("no answer has arrived");
  state_->late_answers = 0;
  return got;
} catch (...) {
  return error_of_exception("call");
}

void KernelRing::stop() noexcept {
  device::store_release(&state_->mapped()->cpu_status, static_cast<std::uint32_t>(Status::peer_lost));
  device::fence_system();  // out of the write-combining buffer
}

}  // namespace gigabar::inline v0
