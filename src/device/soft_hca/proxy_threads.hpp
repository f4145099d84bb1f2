// SPDX-License-Identifier: Apache-2.0
// Threads that poll a software HCA.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "device/soft_hca/soft_hca.hpp"

namespace gigabar::soft_hca {

// Each has a share of the queues. A thread that finds nothing to do looks again for a while, then lets others run between looks: it
// never sleeps, because nothing wakes it. When it is stopped or stalled, waits on the device end by their own deadlines.
class ProxyThreads {
 public:
  static constexpr std::uint32_t kMaxThreads = 64;
  static constexpr std::uint32_t kSpinPolls = 2000;  // in vain, before the thread yields: some 100 us

  // `thread_count`: 1 to kMaxThreads. Errors: invalid_argument, out_of_memory (a thread cannot be started; none runs then).
  static Result<std::unique_ptr<ProxyThreads>> start(SoftHca& hca, std::uint32_t thread_count);
  ProxyThreads(const ProxyThreads&) = delete;
  ProxyThreads& operator=(const ProxyThreads&) = delete;
  ~ProxyThreads() { stop(); }

  // Ends and joins them, after the poll that they are in.
  void stop() noexcept;

 private:
  ProxyThreads(SoftHca& hca, std::uint32_t thread_count) : hca_(&hca), thread_count_(thread_count), threads_(thread_count) {}
  void work(std::uint32_t index) noexcept;

  SoftHca* hca_;
  std::atomic<bool> is_stopping_{false};
  const std::uint32_t thread_count_;
  std::vector<std::thread> threads_;
};

}  // namespace gigabar::soft_hca
