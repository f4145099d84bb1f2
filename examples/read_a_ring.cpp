// SPDX-License-Identifier: Apache-2.0
// Prints the work requests that stand in a queue's ring, one line each: what to look at when a kernel's posts do not arrive. Here a
// function posts four, and nobody executes them.
#include <cstdio>
#include <gigabar/device/mlx5.hpp>
#include <gigabar/device/queue.hpp>
#include <vector>

namespace device = gigabar::device;
namespace mlx5 = gigabar::device::mlx5;
using device::Sharing;
using gigabar::Status;

const char* name_of(mlx5::Opcode opcode) {
  switch (opcode) {
    case mlx5::Opcode::nop: return "nop";
    case mlx5::Opcode::rdma_write: return "write";
    case mlx5::Opcode::rdma_read: return "read";
    case mlx5::Opcode::compare_swap: return "compare_swap";
    case mlx5::Opcode::fetch_add: return "fetch_add";
    case mlx5::Opcode::dump: return "dump";
  }
  return "unknown";
}

struct Request {
  std::uint16_t index = 0;
  mlx5::Opcode opcode = mlx5::Opcode::nop;
  std::uint8_t flags = 0;
  std::uint64_t remote_address = 0;
  std::uint32_t remote_key = 0;
};

// Words of a request are big-endian; the device's header puts them together, and takes them apart.
Request read(const mlx5::Block& block) {
  const auto field = [&](int segment, int word) { return mlx5::big_endian(block.segments[segment].words[word]); };
  Request request;
  request.opcode = static_cast<mlx5::Opcode>(field(0, 0) & 0xff);
  request.index = static_cast<std::uint16_t>(field(0, 0) >> 8);
  request.flags = static_cast<std::uint8_t>(block.segments[0].words[2] >> 24);
  if (request.opcode == mlx5::Opcode::nop || request.opcode == mlx5::Opcode::dump) return request;
  request.remote_address = mlx5::both_halves(field(1, 1), field(1, 0));
  request.remote_key = field(1, 2);
  return request;
}

// What a kernel may have posted. Stops at the first post that fails.
Status post_some(device::Queue& queue, device::Timeout timeout) {
  const device::Remote remote{0x10000, 7};
  const device::Local local{0x20000, 8};
  const device::Thread thread;
  device::Ticket ticket;
  Status status = post_write_notify<Sharing::exclusive>(thread, queue, remote, local, 4096, {0x18000, 7}, 1, ticket, timeout);
  if (status == Status::ok) status = post_read<Sharing::exclusive>(thread, queue, remote, local, 512, ticket, timeout);
  if (status == Status::ok) {
    status = post_fetch_add<Sharing::exclusive>(thread, queue, remote, 1, local, ticket, timeout, device::Fence::before);
  }
  return status;
}

int main() {
  std::vector<mlx5::Block> ring(8);
  std::vector<mlx5::Cqe> cq(1);
  for (std::uint64_t& word : cq[0].words) word = mlx5::kCqeUnwritten;
  std::uint32_t record = 0;
  std::uint64_t doorbell = 0;
  device::Queue queue;
  queue.ring = ring.data();
  queue.doorbell_record = &record;
  queue.doorbell = &doorbell;
  queue.cq = cq.data();
  queue.depth = static_cast<std::uint32_t>(ring.size());
  queue.cq_depth = 1;
  queue.is_collapsed = true;

  const device::Timeout once{0};
  if (const Status posted = post_some(queue, once); posted != Status::ok) {
    return std::printf("posting: %s\n", std::string(gigabar::name_of(posted)).c_str()), 1;
  }
  for (std::uint64_t i = queue.completed; i < queue.ready; ++i) {
    const Request request = read(ring[i & (queue.depth - 1)]);
    std::printf("%3u %-12s to 0x%llx, key %u%s%s\n", request.index, name_of(request.opcode),
                static_cast<unsigned long long>(request.remote_address), request.remote_key,
                (request.flags & mlx5::kCqUpdate) != 0 ? ", asks for a completion" : "",
                (request.flags & mlx5::kFenceMask) != 0 ? ", waits for earlier reads" : "");
  }
  // Nobody executes them: the ring fills up, and a post says so instead of waiting for ever.
  Status status = Status::ok;
  while (status == Status::ok) status = post_some(queue, once);
  std::printf("%llu posted; then %s\n", static_cast<unsigned long long>(queue.ready),
              std::string(gigabar::name_of(status)).c_str());
  return read(ring[0]).opcode == mlx5::Opcode::rdma_write && status == Status::timed_out ? 0 : 1;
}
