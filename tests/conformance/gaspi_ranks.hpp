// SPDX-License-Identifier: Apache-2.0
// Tests of GASPI's interface, whose ranks are processes of the rank harness.
#pragma once

#include <GASPI.h>
#include <GASPI_Ext.h>

#include <cstdint>
#include <string>
#include <vector>

#include "conformance/ranks.hpp"

namespace gigabar::test {

// Ends every wait of a body that works, however slow the machine. In milliseconds.
inline constexpr gaspi_timeout_t kLong = 20000;

// A job whose ranks use the setup's transport alone.
class GaspiJob : public RankJob {
 public:
  GaspiJob(const std::string& body, const RankSetup& setup, std::chrono::seconds limit = std::chrono::seconds(60))
      : RankJob(body, setup, limit) {
    for (Rank rank = 0; rank < setup.rank_count; ++rank) {
      set_environment(rank, "GIGABAR_TRANSPORTS", std::string(gigabar::name_of(setup.transport)).c_str());
      set_environment(rank, "GIGABAR_UCX_TRUST_NETWORK", "1");
    }
  }
};

inline void run_gaspi(const std::string& body, const RankSetup& setup) {
  GaspiJob job(body, setup);
  job.start_all();
  job.finish();
}

// Between init and term; the last barrier of a body that failed is left out.
void run_between(RankProcess& me, void (*body)(RankProcess&));

// The segment's memory as numbers.
template <class Number>
Number* numbers(gaspi_segment_id_t segment) {
  gaspi_pointer_t pointer = nullptr;
  EXPECT_EQ(gaspi_segment_ptr(segment, &pointer), GASPI_SUCCESS);
  return static_cast<Number*>(pointer);
}

// Waits for the notification and takes it.
inline gaspi_notification_t take(gaspi_segment_id_t segment, gaspi_notification_id_t id) {
  gaspi_notification_id_t first = ~0U;
  gaspi_notification_t value = 0;
  EXPECT_EQ(gaspi_notify_waitsome(segment, id, 1, &first, kLong), GASPI_SUCCESS) << "notification " << id;
  EXPECT_EQ(first, id);
  EXPECT_EQ(gaspi_notify_reset(segment, id, &value), GASPI_SUCCESS);
  return value;
}

}  // namespace gigabar::test

// The body of a rank between gaspi_proc_init and gaspi_proc_term.
#define GASPI_BODY(name)                                    \
  static void name##_between(RankProcess& me);              \
  BARE_RANK_BODY(name) { run_between(me, name##_between); } \
  static void name##_between([[maybe_unused]] RankProcess& me)

#define ASSERT_CODE(expected, call) ASSERT_EQ(expected, call) << gaspi_error_str(expected) << " was expected"
#define EXPECT_CODE(expected, call) EXPECT_EQ(expected, call) << gaspi_error_str(expected) << " was expected"
#define ASSERT_DONE(call) ASSERT_CODE(GASPI_SUCCESS, call)
#define EXPECT_DONE(call) EXPECT_CODE(GASPI_SUCCESS, call)
