// SPDX-License-Identifier: Apache-2.0
// Tests code that posts work requests, without an adapter and without a GPU: a queue in host memory, a function that posts to it as
// a kernel does, and a thread that executes what was posted, as an adapter does. The second post names a key that the peer does not
// know, and its wait ends with the adapter's reason.
#include <atomic>
#include <cstdio>
#include <cstring>
#include <gigabar/device/mlx5.hpp>
#include <gigabar/device/queue.hpp>
#include <thread>
#include <vector>

namespace device = gigabar::device;
namespace mlx5 = gigabar::device::mlx5;
using device::Sharing;
using gigabar::Status;

constexpr std::uint32_t kDepth = 64, kQueueNumber = 0x2a, kOurKey = 11, kPeerKey = 22;

// What a kernel does: bytes, then a notification behind them, and a wait until local memory may be used again.
template <class Scope>
GIGABAR_DEVICE Status send(const Scope& scope, device::Queue& queue, device::Remote to, device::Local from, std::uint32_t bytes,
                           device::Remote notification, device::Timeout timeout) {
  device::Ticket ticket;
  const Status posted = post_write_notify<Sharing::exclusive>(scope, queue, to, from, bytes, notification, 1, ticket, timeout);
  return posted == Status::ok ? wait<Sharing::exclusive>(scope, queue, ticket, timeout) : posted;
}

// --- The adapter -----------------------------------------------------------------------------------------------------------------

// One write request. Its data lie in the request itself or at a local address.
mlx5::Syndrome execute(const mlx5::Segment* segments) {
  const auto field = [&](int segment, int word) { return mlx5::big_endian(segments[segment].words[word]); };
  const auto address = [&](int segment, int word) { return mlx5::both_halves(field(segment, word + 1), field(segment, word)); };
  if (static_cast<mlx5::Opcode>(field(0, 0) & 0xff) != mlx5::Opcode::rdma_write) return mlx5::Syndrome::local_operation;
  if (field(1, 2) != kPeerKey) return mlx5::Syndrome::remote_access;
  auto* const to = reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(address(1, 0)));
  const std::uint32_t count = field(2, 0);
  if ((count & mlx5::kInlineFlag) != 0) {
    std::memcpy(to, &segments[2].words[1], count & ~mlx5::kInlineFlag);
  } else {
    if (field(2, 1) != kOurKey) return mlx5::Syndrome::local_protection;
    std::memcpy(to, reinterpret_cast<const void*>(static_cast<std::uintptr_t>(address(2, 2))), count);
  }
  return mlx5::Syndrome::none;
}

// Follows the doorbell record until it is told to stop, or a request fails: then it executes nothing more, as hardware does.
void serve(device::Queue& queue, const std::atomic<bool>& is_over) {
  for (std::uint16_t next = 0; !is_over;) {
    const auto end = static_cast<std::uint16_t>(mlx5::big_endian(device::load_acquire(queue.doorbell_record)));
    if (next == end) {
      std::this_thread::yield();
      continue;
    }
    const mlx5::Segment* const segments = queue.ring[next & (queue.depth - 1)].segments;
    const mlx5::Syndrome syndrome = execute(segments);
    const bool is_good = syndrome == mlx5::Syndrome::none;
    const auto flags = static_cast<std::uint8_t>(segments[0].words[2] >> 24);
    if (!is_good)
      device::store_relaxed(&queue.cq->words[mlx5::kCqeErrorWord], mlx5::cqe_error_word(static_cast<std::uint8_t>(syndrome), 0));
    if (!is_good || (flags & mlx5::kCqUpdate) != 0) {
      const auto kind = is_good ? mlx5::CqeOpcode::request : mlx5::CqeOpcode::request_error;
      device::store_release(&queue.cq->words[mlx5::kCqeLastWord],
                            mlx5::cqe_last_word(kind, 0, next, mlx5::Opcode::rdma_write, kQueueNumber));
    }
    if (!is_good) return;
    ++next;
  }
}

// --- Both together ---------------------------------------------------------------------------------------------------------------

int main() {
  std::vector<mlx5::Block> ring(kDepth);
  std::vector<mlx5::Cqe> cq(1);
  for (std::uint64_t& word : cq[0].words) word = mlx5::kCqeUnwritten;
  std::uint32_t record = 0;
  std::uint64_t doorbell = 0;
  device::Queue queue;
  queue.ring = ring.data();
  queue.doorbell_record = &record;
  queue.doorbell = &doorbell;
  queue.cq = cq.data();
  queue.depth = kDepth;
  queue.cq_depth = 1;
  queue.number = kQueueNumber;
  queue.is_collapsed = true;

  std::vector<std::byte> ours(5000), theirs(5000);
  for (std::size_t i = 0; i < ours.size(); ++i) ours[i] = static_cast<std::byte>(i * 5 + 1);
  std::uint32_t notification = 0;
  const auto place = [](const auto* memory) { return static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(memory)); };
  const device::Local from{place(ours.data()), kOurKey};
  const device::Remote raised{place(&notification), kPeerKey};
  const device::Timeout patience{5'000'000'000};  // ns

  std::atomic<bool> is_over = false;
  std::thread adapter([&] { serve(queue, is_over); });
  const Status good = send(device::Thread{}, queue, {place(theirs.data()), kPeerKey}, from, 5000, raised, patience);
  const Status bad = send(device::Thread{}, queue, {place(theirs.data()), 99}, from, 5000, raised, patience);
  is_over = true;
  adapter.join();

  const device::QueueError error = device::error_of<Sharing::exclusive>(queue);
  const bool is_reason_right = error.is_set && error.syndrome == mlx5::Syndrome::remote_access && error.wqe_index == 2;
  std::printf("a write: %s, notification %u; with a wrong key: %s at request %u\n", std::string(name_of(good)).c_str(),
              notification, std::string(name_of(bad)).c_str(), error.wqe_index);
  return good == Status::ok && ours == theirs && notification == 1 && bad == Status::peer_lost && is_reason_right ? 0 : 1;
}
