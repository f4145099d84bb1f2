// SPDX-License-Identifier: Apache-2.0
#include "gaspi/process.hpp"

using namespace gigabar;
using namespace gigabar::gaspi;

namespace {

struct Description {
  const char *name, *text;
};
// In the order of Counter.
constexpr std::array kDescriptions{
    Description{"writes", "writes that were posted; of a list each"},
    Description{"write_bytes", "bytes of these writes"},
    Description{"reads", "reads that were posted; of a list each"},
    Description{"read_bytes", "bytes of these reads"},
    Description{"notifications", "notifications that were posted"},
    Description{"waits", "calls of gaspi_wait and gaspi_queue_purge"},
    Description{"notification_waits", "calls of gaspi_notify_waitsome"},
    Description{"barriers", "calls of gaspi_barrier"},
    Description{"reductions", "calls of gaspi_allreduce and gaspi_allreduce_user"},
    Description{"passive_sends", "calls of gaspi_passive_send"},
    Description{"passive_receives", "calls of gaspi_passive_receive"},
    Description{"atomics", "calls of gaspi_atomic_fetch_add and gaspi_atomic_compare_swap"},
};
static_assert(kDescriptions.size() == std::size_t(Counter::count));
constexpr gaspi_number_t kLevel = 1;  // from which on they count

}  // namespace

gaspi_return_t pgaspi_statistic_verbosity_level(gaspi_number_t verbosity_level) {
  statistic_level = verbosity_level;
  return GASPI_SUCCESS;
}
GASPI_NAMED(gaspi_statistic_verbosity_level);

gaspi_return_t pgaspi_statistic_counter_max(gaspi_statistic_counter_t* const counter_max) {
  return store(counter_max, kDescriptions.size());
}
GASPI_NAMED(gaspi_statistic_counter_max);

gaspi_return_t pgaspi_statistic_counter_info(gaspi_statistic_counter_t counter, gaspi_statistic_argument_t* const counter_argument,
                                             gaspi_string_t* const counter_name, gaspi_string_t* const counter_description,
                                             gaspi_number_t* const verbosity_level) {
  if (counter >= kDescriptions.size()) return GASPI_ERR_INV_NUM;
  if (counter_argument == nullptr || counter_name == nullptr || counter_description == nullptr || verbosity_level == nullptr)
    return GASPI_ERR_NULLPTR;
  *counter_argument = GASPI_STATISTIC_ARGUMENT_NONE;
  *counter_name = const_cast<char*>(kDescriptions[counter].name);  // the interface's type; nobody writes there
  *counter_description = const_cast<char*>(kDescriptions[counter].text);
  *verbosity_level = kLevel;
  return GASPI_SUCCESS;
}
GASPI_NAMED(gaspi_statistic_counter_info);

gaspi_return_t pgaspi_statistic_counter_get(gaspi_statistic_counter_t counter, gaspi_number_t /*argument*/,
                                            gaspi_ulong* const value) {
  if (counter >= kDescriptions.size()) return GASPI_ERR_INV_NUM;
  return store(value, statistic_counters[counter].load());
}
GASPI_NAMED(gaspi_statistic_counter_get);

gaspi_return_t pgaspi_statistic_counter_reset(gaspi_statistic_counter_t counter) {
  if (counter >= kDescriptions.size()) return GASPI_ERR_INV_NUM;
  statistic_counters[counter] = 0;
  return GASPI_SUCCESS;
}
GASPI_NAMED(gaspi_statistic_counter_reset);

gaspi_return_t pgaspi_pcontrol(gaspi_pointer_t /*argument*/) { return GASPI_SUCCESS; }
GASPI_NAMED(gaspi_pcontrol);
