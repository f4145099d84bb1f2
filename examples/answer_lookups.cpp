// SPDX-License-Identifier: Apache-2.0
// A kernel stays and answers look-ups in a table of the GPU's memory; the CPU calls it without starting anything.
// Compiled by nvcc (-x cu) a warp of the GPU serves; by a C++ compiler a thread of the CPU does, over memory of a stand-in.
#include <cstdio>
#include <gigabar/kernel_ring.hpp>
#include <gigabar/memory.hpp>
#include <thread>
#include <vector>

namespace device = gigabar::device;
using gigabar::Status;
using namespace std::chrono_literals;

constexpr std::uint32_t kEntries = 4096, kKeys = 16, kCalls = 500;

GIGABAR_DEVICE std::uint32_t entry(std::uint32_t key) { return key * 2654435761U; }

// Each message has keys; its answer has their entries.
template <class Scope>
GIGABAR_DEVICE void serve(const Scope& scope, device::RingEnd* from_cpu, device::RingEnd* to_cpu, const std::uint32_t* table) {
  device::CpuRecvRing questions;
  device::CpuSendRing answers;
  questions.open(*from_cpu);
  answers.open(*to_cpu);
  const auto look_up = [=](std::uint64_t, std::uint32_t key) { return table[key % kEntries]; };
  std::uint64_t bytes = 0;
  while (reply_words(scope, questions, answers, look_up, bytes, device::kForever) == Status::ok) {
  }
  questions.close(scope);
  answers.close(scope);
}

#if defined(__CUDACC__)
__global__ void serve_on_gpu(device::RingEnd* from_cpu, device::RingEnd* to_cpu, std::uint32_t* table) {
  for (std::uint32_t key = threadIdx.x; key < kEntries; key += 32) table[key] = entry(key);
  __syncwarp();
  serve(device::Warp{}, from_cpu, to_cpu, table);
}

class Server {
 public:
  explicit Server(const gigabar::KernelRing& ring) {
    if (cudaMalloc(&table_, kEntries * sizeof *table_) != cudaSuccess) return;
    serve_on_gpu<<<1, 32>>>(ring.from_cpu(), ring.to_cpu(), table_);
  }
  bool end() { return cudaDeviceSynchronize() == cudaSuccess && cudaFree(table_) == cudaSuccess; }

 private:
  std::uint32_t* table_ = nullptr;
};
#else
class Server {
 public:
  explicit Server(const gigabar::KernelRing& ring)
      : table_(kEntries), thread_([this, from = ring.from_cpu(), to = ring.to_cpu()] {
          for (std::uint32_t key = 0; key < kEntries; ++key) table_[key] = entry(key);
          serve(device::Thread{}, from, to, table_.data());
        }) {}
  bool end() { return thread_.join(), true; }

 private:
  std::vector<std::uint32_t> table_;
  std::thread thread_;
};
#endif

int main() {
  auto ring = gigabar::KernelRing::open(0);
  if (!ring) return std::puts(ring.error().message().c_str()), 1;
  Server server(*ring);
  std::uint32_t wrong = 0;
  const auto begin = std::chrono::steady_clock::now();
  for (std::uint32_t call = 0; call < kCalls; ++call) {
    std::uint32_t keys[kKeys], entries[kKeys];
    for (std::uint32_t i = 0; i < kKeys; ++i) keys[i] = (call * 37 + i * i) % kEntries;
    auto bytes = ring->call(keys, sizeof keys, entries, sizeof entries, 5s);
    if (!bytes) return std::puts(bytes.error().message().c_str()), 1;
    for (std::uint32_t i = 0; i < kKeys; ++i) wrong += *bytes != sizeof keys || entries[i] != entry(keys[i]);
  }
  const std::chrono::duration<double, std::micro> elapsed = std::chrono::steady_clock::now() - begin;
  ring->stop();
  const bool is_ended = server.end();
  std::printf("%u calls of %u look-ups, %u wrong, %.2f us per call\n", kCalls, kKeys, wrong, elapsed.count() / kCalls);
  return is_ended && wrong == 0 ? 0 : 1;
}
