// SPDX-License-Identifier: Apache-2.0
#include "device/soft_hca/proxy_threads.hpp"

#include <pthread.h>

#include "base/counted.hpp"
#include "base/errors.hpp"
#include "base/start_thread.hpp"

namespace gigabar::soft_hca {

Result<std::unique_ptr<ProxyThreads>> ProxyThreads::start(SoftHca& hca, std::uint32_t thread_count) {
  if (thread_count == 0 || thread_count > kMaxThreads) {
    return make_error(Status::invalid_argument, "start proxy threads", counted(thread_count, "thread"),
                      text("not between 1 and ", kMaxThreads));
  }
  std::unique_ptr<ProxyThreads> proxies(new ProxyThreads(hca, thread_count));
  for (std::uint32_t i = 0; i < thread_count; ++i) {
    const std::string name = text("thread ", i + 1, " of ", thread_count);
    const auto work = [&proxies = *proxies, i] { proxies.work(i); };
    // Threads that did start end with the object.
    if (Result<void> started = start_thread(proxies->threads_[i], "start proxy threads", name, work); !started)
      return std::move(started).error();
  }
  return proxies;
}

void ProxyThreads::work(std::uint32_t index) noexcept {
  pthread_setname_np(pthread_self(), "gigabar-hca");
  std::uint32_t vain_polls = 0;
  while (!is_stopping_.load(std::memory_order_relaxed)) {
    vain_polls = hca_->poll(index, thread_count_) ? 0 : vain_polls + 1;
    if (vain_polls < kSpinPolls) continue;
    vain_polls = kSpinPolls;
    std::this_thread::yield();
  }
}

void ProxyThreads::stop() noexcept {
  is_stopping_.store(true, std::memory_order_relaxed);
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();  // else it was not started
  }
  threads_.clear();
}

}  // namespace gigabar::soft_hca
