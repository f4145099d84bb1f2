// SPDX-License-Identifier: Apache-2.0
// libcuda: modules, and the one kernel that this machine can run, the readback kernel: a thread plays it. Kernels run one after the
// other, whatever their streams.
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "copy/readback/protocol.hpp"
#include "fakes/entry.hpp"
#include "gigabar/device/scope.hpp"

struct CUmod_st {};
struct CUfunc_st {};

namespace gigabar::fake {
namespace {

constexpr const char* kReadback = "gigabar_readback";

std::byte* place_of(std::uint64_t address) {
  const std::lock_guard lock(state().mutex);
  std::uint64_t contiguous_bytes = 0;
  return translate(address, &contiguous_bytes);
}

void wait_while(bool& condition) {
  while (std::atomic_ref(condition).load()) std::this_thread::sleep_for(std::chrono::microseconds(100));
}

void run_readback(readback::Launch launch) {
  Machine& machine = state().machine;
  wait_while(machine.is_full);
  launch.device = reinterpret_cast<const readback::DeviceSide*>(place_of(reinterpret_cast<std::uint64_t>(launch.device)));
  if (std::atomic_ref(machine.is_kernel_stuck).load()) {
    device::store_relaxed(&launch.host->started, launch.launch);
    wait_while(machine.is_kernel_stuck);
  }
  readback::Request requests[2];
  readback::serve(device::Thread(), launch, requests,
                  [&machine](std::uint64_t address) { return place_of(address) + (machine.is_kernel_wrong ? 4 : 0); });
}

// The thread of the last launch, which every next one waits for. At the end of the process it is left alone.
std::thread& last_kernel() {
  static std::thread& thread = *new std::thread;
  return thread;
}

std::atomic<std::uint32_t>& running() {
  static std::atomic<std::uint32_t>& count = *new std::atomic<std::uint32_t>(0);
  return count;
}

}  // namespace

std::uint32_t kernels_running() { return running().load(); }

}  // namespace gigabar::fake

using namespace gigabar::fake;

extern "C" {

CUresult CUDAAPI cuModuleLoadData(CUmodule* module, const void* image) {
  GIGABAR_FAKE_ENTER(cuModuleLoadData, context_unsafe);
  if (image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *module = new CUmod_st;
  ++s.module_count;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuModuleUnload(CUmodule module) {
  GIGABAR_FAKE_ENTER(cuModuleUnload, context);
  delete module;
  --s.module_count;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuModuleGetFunction(CUfunction* function, CUmodule, const char* name) {
  GIGABAR_FAKE_ENTER(cuModuleGetFunction, context);
  if (std::strcmp(name, kReadback) != 0) return CUDA_ERROR_NOT_FOUND;
  static CUfunc_st readback;
  *function = &readback;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuLaunchKernel(CUfunction, unsigned int blocks, unsigned int, unsigned int, unsigned int threads, unsigned int,
                                unsigned int, unsigned int, CUstream stream, void** parameters, void**) {
  GIGABAR_FAKE_ENTER(cuLaunchKernel, context);
  if (!s.streams.contains(stream) || blocks != 1 || threads != gigabar::readback::kThreads) return CUDA_ERROR_INVALID_VALUE;
  ++s.totals.total_launches;
  ++running();
  std::thread& last = last_kernel();
  last =
      std::thread([previous = std::move(last), launch = *static_cast<const gigabar::readback::Launch*>(parameters[0])]() mutable {
        if (previous.joinable()) previous.join();
        run_readback(launch);
        --running();
      });
  if (!s.machine.waits_for_kernels) return CUDA_SUCCESS;
  entry.lock.unlock();
  last.join();
  entry.lock.lock();
  return CUDA_SUCCESS;
}

}  // extern "C"
