// SPDX-License-Identifier: Apache-2.0
// Eight blocks of a kernel write as one: each rank sends a large message to the next one, again and again, and each message is
// counted there when all its parts are in place: gigabar run -n 2 -- ./kernel_blocks
// Compiled by nvcc (-x cu) blocks of the GPUs work; by a C++ compiler threads of the CPU do, over memory of a stand-in.
#include <cstdio>
#include <gigabar/device_session.hpp>
#include <thread>
#include <vector>

namespace device = gigabar::device;
using gigabar::Rank;
using gigabar::Status;
using namespace std::chrono_literals;

constexpr gigabar::SegmentId kSource = 0, kDestination = 1;
constexpr std::uint64_t kBytes = std::uint64_t{4} << 20, kWords = kBytes / sizeof(std::uint32_t);
constexpr std::uint32_t kMessages = 20, kBlocks = device::blocks_for(kBytes), kGroup = 0;
constexpr device::CounterId kCounter = 0;
constexpr device::Timeout kPatience{5'000'000'000};  // ns, of one wait

GIGABAR_DEVICE std::uint32_t word_of(Rank rank, std::uint32_t message, std::uint64_t i) {
  return rank * 1000 + message * 7 + static_cast<std::uint32_t>(i);
}

// By all blocks: the threads of the whole scope share the words. `wrong`: words that were not as sent, of this thread.
template <class Blocks>
GIGABAR_DEVICE Status pass_on(const Blocks& blocks, const device::DeviceFabric& fabric, std::uint32_t* source,
                              const std::uint32_t* destination, std::uint32_t& wrong) {
  const Rank next = (fabric.rank + 1) % fabric.rank_count;
  const Rank previous = (fabric.rank + fabric.rank_count - 1) % fabric.rank_count;
  for (std::uint32_t message = 1; message <= kMessages; ++message) {
    for (std::uint64_t i = blocks.rank(); i < kWords; i += blocks.size()) source[i] = word_of(fabric.rank, message, i);
    blocks.sync();  // a block may copy what another one has made
    Status status = write_count(blocks, fabric, {kSource, 0}, {next, kDestination, 0}, kBytes, kCounter);
    std::uint32_t count = 0;
    if (status == Status::ok) status = counter_wait(blocks, fabric, previous, kCounter, message, kPatience, count);
    if (status != Status::ok) return status;
    for (std::uint64_t i = blocks.rank(); i < kWords; i += blocks.size()) {
      wrong += device::load_relaxed(destination + i) != word_of(previous, message, i) ? 1 : 0;
    }
    status = barrier(blocks, fabric, kPatience);  // all have looked: the next message may come
    if (status != Status::ok) return status;
  }
  return Status::ok;
}

struct Ended {
  Status status = Status::ok;
  std::uint32_t wrong = 0;
};

#if defined(__CUDACC__)
__global__ void run_on_gpu(device::DeviceFabric fabric, std::uint32_t* source, const std::uint32_t* destination, Ended* ended) {
  device::Blocks blocks;
  std::uint32_t wrong = 0;
  Status status = open_blocks(fabric, kGroup, gridDim.x, blockIdx.x, blocks);
  if (status == Status::ok) status = pass_on(blocks, fabric, source, destination, wrong);
  if (wrong != 0) atomicAdd(&ended->wrong, wrong);
  if (status != Status::ok) ended->status = status;
}

Ended run_kernel(int gpu, const device::DeviceFabric& fabric, void* source, const void* destination) {
  Ended result{Status::device_error};
  Ended* ended = nullptr;
  if (cudaSetDevice(gpu) != cudaSuccess || cudaMalloc(&ended, sizeof *ended) != cudaSuccess) return result;
  if (cudaMemset(ended, 0, sizeof *ended) != cudaSuccess) return result;  // ok, and nothing wrong
  run_on_gpu<<<kBlocks, 512>>>(fabric, static_cast<std::uint32_t*>(source), static_cast<const std::uint32_t*>(destination), ended);
  if (cudaMemcpy(&result, ended, sizeof result, cudaMemcpyDeviceToHost) != cudaSuccess) result.status = Status::device_error;
  cudaFree(ended);
  return result;
}
#else
Ended run_kernel(int, const device::DeviceFabric& fabric, void* source, const void* destination) {
  std::vector<Ended> ends(kBlocks);
  std::vector<std::jthread> threads;
  for (std::uint32_t index = 0; index < kBlocks; ++index) {
    threads.emplace_back([&, index] {
      device::BasicBlocks<device::Thread> blocks;
      Ended& end = ends[index];
      end.status = open_blocks(fabric, kGroup, kBlocks, index, blocks);
      if (end.status != Status::ok) return;
      end.status =
          pass_on(blocks, fabric, static_cast<std::uint32_t*>(source), static_cast<const std::uint32_t*>(destination), end.wrong);
    });
  }
  threads.clear();  // awaits them
  Ended result;
  for (const Ended& end : ends) {
    result.wrong += end.wrong;
    if (end.status != Status::ok) result.status = end.status;
  }
  return result;
}
#endif

template <class Failed>
int tell(const Failed& failed) {
  return std::puts(failed.error().message().c_str()), 1;
}

int main() {
  auto fabric = gigabar::Fabric::open({});
  if (!fabric) return tell(fabric);
  auto source = gigabar::DeviceMemory::allocate(fabric->device(), kBytes);
  if (!source) return tell(source);
  auto destination = gigabar::DeviceMemory::allocate(fabric->device(), kBytes);
  if (!destination) return tell(destination);
  if (auto done = fabric->register_segment(kSource, source->address(), kBytes); !done) return tell(done);
  if (auto done = fabric->register_segment(kDestination, destination->address(), kBytes); !done) return tell(done);
  auto session = gigabar::DeviceSession::open(*fabric);
  if (!session) return tell(session);
  const auto begin = std::chrono::steady_clock::now();
  const Ended ended = run_kernel(fabric->device(), session->handle(), source->address(), destination->address());
  const std::chrono::duration<double, std::micro> elapsed = std::chrono::steady_clock::now() - begin;
  std::printf("rank %u: %s, %u wrong words, %.2f us per message of %u blocks\n", fabric->rank(),
              std::string(name_of(ended.status)).c_str(), ended.wrong, elapsed.count() / kMessages, kBlocks);
  if (auto closed = session->close(10s); !closed) return tell(closed);
  if (auto done = fabric->deregister_segment(kSource, 10s); !done) return tell(done);
  if (auto done = fabric->deregister_segment(kDestination, 10s); !done) return tell(done);
  if (auto closed = fabric->close(10s); !closed) return tell(closed);
  return ended.status == Status::ok && ended.wrong == 0 ? 0 : 1;
}
