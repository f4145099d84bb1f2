// SPDX-License-Identifier: Apache-2.0
// A protocol of two blocks, tested without a GPU: one fills a ring of messages, the other empties it. The two functions are what
// kernels call; here three threads of the CPU play each block, so that a debugger or ThreadSanitizer sees every access.
#include <cstdio>
#include <gigabar/device/copy.hpp>
#include <gigabar/device/memory.hpp>
#include <gigabar/device/scope.hpp>
#include <gigabar/status.hpp>
#include <thread>
#include <vector>

namespace device = gigabar::device;
using gigabar::Status;

constexpr std::uint32_t kSlots = 4, kMessageBytes = 512, kMessages = 1000;

struct Ring {
  alignas(16) std::byte slots[kSlots][kMessageBytes];
  alignas(128) std::uint64_t filled = 0;   // messages; written by the sender
  alignas(128) std::uint64_t emptied = 0;  // messages; written by the receiver
};

// Waits until the word is at least `value`. One thread looks, all get the answer, and see what was released before that value.
template <class Scope>
GIGABAR_DEVICE Status await(const Scope& scope, const std::uint64_t* word, std::uint64_t value, device::Timeout timeout) {
  bool is_late = false;
  if (scope.rank() == 0) {
    device::Deadline deadline(timeout);
    while (device::load_acquire(word) < value && !is_late) is_late = deadline.has_passed();
  }
  return scope.any(is_late) ? Status::timed_out : Status::ok;
}

// Tells the other block: everything that this one did before is seen behind the value.
template <class Scope>
GIGABAR_DEVICE void tell(const Scope& scope, std::uint64_t* word, std::uint64_t value) {
  scope.sync();
  if (scope.rank() == 0) device::store_release(word, value);
}

template <class Scope>
GIGABAR_DEVICE Status send_all(const Scope& scope, Ring& ring, const std::byte* from, device::Timeout timeout) {
  for (std::uint64_t i = 0; i < kMessages; ++i) {
    if (i >= kSlots) {
      if (const Status status = await(scope, &ring.emptied, i + 1 - kSlots, timeout); status != Status::ok) return status;
    }
    copy_bytes(scope, ring.slots[i % kSlots], from + i * kMessageBytes, kMessageBytes);
    tell(scope, &ring.filled, i + 1);
  }
  return Status::ok;
}

template <class Scope>
GIGABAR_DEVICE Status receive_all(const Scope& scope, Ring& ring, std::byte* to, device::Timeout timeout) {
  for (std::uint64_t i = 0; i < kMessages; ++i) {
    if (const Status status = await(scope, &ring.filled, i + 1, timeout); status != Status::ok) return status;
    copy_bytes(scope, to + i * kMessageBytes, ring.slots[i % kSlots], kMessageBytes);
    tell(scope, &ring.emptied, i + 1);
  }
  return Status::ok;
}

// Three threads that call `block` as one; what the first of them gets.
template <class Block>
std::thread start(Status& ended, const Block& block) {
  return std::thread([&ended, block] {
    device::CpuTeam team(3);
    std::vector<std::thread> others;
    for (std::uint32_t rank = 1; rank < 3; ++rank) {
      others.emplace_back([&, rank] { block(device::CpuTeam::Member(team, rank)); });
    }
    ended = block(device::CpuTeam::Member(team, 0));
    for (std::thread& other : others) other.join();
  });
}

int main() {
  std::vector<std::byte> sent(kMessages * kMessageBytes), received(sent.size());
  for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<std::byte>(i / kMessageBytes + i * 3);
  Ring ring;
  Status sender = Status::timed_out, receiver = Status::timed_out, nobody = Status::ok;
  const device::Timeout patience{10'000'000'000};  // ns, of one wait
  std::thread first = start(sender, [&](const auto& scope) { return send_all(scope, ring, sent.data(), patience); });
  std::thread second = start(receiver, [&](const auto& scope) { return receive_all(scope, ring, received.data(), patience); });
  first.join();
  second.join();

  // The error path: a receiver whose sender does not come ends in its time.
  Ring empty;
  start(nobody, [&](const auto& scope) { return receive_all(scope, empty, received.data(), {50'000'000}); }).join();

  std::printf("sender %s, receiver %s, without a sender %s; data %s\n", std::string(name_of(sender)).c_str(),
              std::string(name_of(receiver)).c_str(), std::string(name_of(nobody)).c_str(), sent == received ? "right" : "wrong");
  return sender == Status::ok && receiver == Status::ok && nobody == Status::timed_out && sent == received ? 0 : 1;
}
