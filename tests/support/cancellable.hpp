// SPDX-License-Identifier: Apache-2.0
// A thread of a test that is cancelled, or ends itself, inside a call.
#pragma once

#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <functional>
#include <utility>

namespace gigabar::test {

// A thread that runs `body` and ends at the cancellation point behind it, if it was cancelled.
class Cancellable {
 public:
  explicit Cancellable(std::function<void()> body) : body_(std::move(body)) {
    EXPECT_EQ(::pthread_create(&thread_, nullptr, &Cancellable::run, this), 0);
  }
  void cancel() const { EXPECT_EQ(::pthread_cancel(thread_), 0); }
  void expect_cancelled_behind_it() const {
    void* answer = nullptr;
    ASSERT_EQ(::pthread_join(thread_, &answer), 0);
    EXPECT_EQ(answer, PTHREAD_CANCELED);
    EXPECT_TRUE(is_done_) << "it ended inside";
  }
  void expect_ended_inside(void* with) const {
    void* answer = nullptr;
    ASSERT_EQ(::pthread_join(thread_, &answer), 0);
    EXPECT_EQ(answer, with);
    EXPECT_FALSE(is_done_) << "the call returned";
  }

 private:
  static void* run(void* self) {
    auto& thread = *static_cast<Cancellable*>(self);
    thread.body_();
    thread.is_done_ = true;
    ::pthread_testcancel();
    return nullptr;
  }
  const std::function<void()> body_;
  std::atomic<bool> is_done_ = false;
  pthread_t thread_{};
};

}  // namespace gigabar::test
