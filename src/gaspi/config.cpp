// SPDX-License-Identifier: Apache-2.0
// The configuration and the limits.
#include "gaspi/process.hpp"

using namespace gigabar;
using namespace gigabar::gaspi;

namespace {

bool is_within(std::uint64_t value, std::uint64_t min, std::uint64_t max) { return value >= min && value <= max; }

bool is_possible(const gaspi_config_t& config) {
  return is_within(config.sn_port, 1, 65535) && config.network <= GASPI_ARIES && is_within(config.queue_size_max, 1, kQueueDepth) &&
         is_within(config.queue_num, 1, kProgramQueues) && is_within(config.group_max, 1, kMaxGroups) &&
         is_within(config.segment_max, 1, kSegments) && is_within(config.transfer_size_max, 1, kMaxTransferBytes) &&
         is_within(config.notification_num, 1, kNotifications) &&
         is_within(config.passive_transfer_size_max, 1, kMaxPassiveBytes) &&
         is_within(config.allreduce_buf_size, 1, kAllreduceBytes) && is_within(config.allreduce_elem_max, 1, kMaxReduceElements) &&
         config.build_infrastructure <= GASPI_TOPOLOGY_DYNAMIC;
}

}  // namespace

gaspi_return_t pgaspi_config_get(gaspi_config_t* const config) {
  if (config == nullptr) return GASPI_ERR_NULLPTR;
  const std::scoped_lock lock(process().mutex);
  *config = process().config;
  return GASPI_SUCCESS;
}
GASPI_NAMED(gaspi_config_get);

gaspi_return_t pgaspi_config_set(const gaspi_config_t new_config) {
  const std::scoped_lock lock(process().mutex);
  if (process().fabric || process().joining.valid()) return GASPI_ERR_INITED;
  if (!is_possible(new_config)) return GASPI_ERR_CONFIG;
  process().config = new_config;
  return GASPI_SUCCESS;
}
GASPI_NAMED(gaspi_config_set);

gaspi_return_t pgaspi_version(float* const version) { return store(version, 17.1F); }
GASPI_NAMED(gaspi_version);

gaspi_return_t pgaspi_build_infrastructure(gaspi_number_t* const build) {
  return store(build, process().config.build_infrastructure);
}
GASPI_NAMED(gaspi_build_infrastructure);

gaspi_return_t pgaspi_group_max(gaspi_number_t* const group_max) { return store(group_max, process().config.group_max); }
GASPI_NAMED(gaspi_group_max);

gaspi_return_t pgaspi_segment_max(gaspi_number_t* const segment_max) { return store(segment_max, process().config.segment_max); }
GASPI_NAMED(gaspi_segment_max);

gaspi_return_t pgaspi_queue_size_max(gaspi_number_t* const queue_size_max) {
  return store(queue_size_max, process().config.queue_size_max);
}
GASPI_NAMED(gaspi_queue_size_max);

gaspi_return_t pgaspi_queue_max(gaspi_number_t* const queue_max) { return store(queue_max, kProgramQueues); }
GASPI_NAMED(gaspi_queue_max);

gaspi_return_t pgaspi_transfer_size_min(gaspi_size_t* const transfer_size_min) { return store(transfer_size_min, 1U); }
GASPI_NAMED(gaspi_transfer_size_min);

gaspi_return_t pgaspi_transfer_size_max(gaspi_size_t* const transfer_size_max) {
  return store(transfer_size_max, process().config.transfer_size_max);
}
GASPI_NAMED(gaspi_transfer_size_max);

gaspi_return_t pgaspi_notification_num(gaspi_number_t* const notification_num) {
  return store(notification_num, process().config.notification_num);
}
GASPI_NAMED(gaspi_notification_num);

gaspi_return_t pgaspi_passive_transfer_size_min(gaspi_size_t* const passive_transfer_size_min) {
  return store(passive_transfer_size_min, 1U);
}
GASPI_NAMED(gaspi_passive_transfer_size_min);

gaspi_return_t pgaspi_passive_transfer_size_max(gaspi_size_t* const passive_transfer_size_max) {
  return store(passive_transfer_size_max, process().config.passive_transfer_size_max);
}
GASPI_NAMED(gaspi_passive_transfer_size_max);

gaspi_return_t pgaspi_atomic_max(gaspi_atomic_value_t* const max_value) { return store(max_value, ~gaspi_atomic_value_t{0}); }
GASPI_NAMED(gaspi_atomic_max);

gaspi_return_t pgaspi_allreduce_buf_size(gaspi_size_t* const buf_size) {
  return store(buf_size, process().config.allreduce_buf_size);
}
GASPI_NAMED(gaspi_allreduce_buf_size);

gaspi_return_t pgaspi_allreduce_elem_max(gaspi_number_t* const elem_max) {
  return store(elem_max, process().config.allreduce_elem_max);
}
GASPI_NAMED(gaspi_allreduce_elem_max);

gaspi_return_t pgaspi_rw_list_elem_max(gaspi_number_t* const elem_max) { return store(elem_max, kMaxListElements); }
GASPI_NAMED(gaspi_rw_list_elem_max);
