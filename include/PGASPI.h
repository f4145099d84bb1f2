/* SPDX-License-Identifier: Apache-2.0 */
/* The second name of each function of GASPI.h and GASPI_Ext.h: a tool defines gaspi_* and calls pgaspi_*. */
#ifndef GIGABAR_PGASPI_H
#define GIGABAR_PGASPI_H

#include "GASPI_Ext.h"

#ifdef __cplusplus
extern "C" {
#endif

extern __typeof__(gaspi_config_get) pgaspi_config_get;
extern __typeof__(gaspi_config_set) pgaspi_config_set;
extern __typeof__(gaspi_version) pgaspi_version;
extern __typeof__(gaspi_proc_init) pgaspi_proc_init;
extern __typeof__(gaspi_proc_term) pgaspi_proc_term;
extern __typeof__(gaspi_proc_rank) pgaspi_proc_rank;
extern __typeof__(gaspi_proc_num) pgaspi_proc_num;
extern __typeof__(gaspi_proc_kill) pgaspi_proc_kill;
extern __typeof__(gaspi_connect) pgaspi_connect;
extern __typeof__(gaspi_disconnect) pgaspi_disconnect;
extern __typeof__(gaspi_state_vec_get) pgaspi_state_vec_get;
extern __typeof__(gaspi_network_type) pgaspi_network_type;
extern __typeof__(gaspi_build_infrastructure) pgaspi_build_infrastructure;
extern __typeof__(gaspi_group_create) pgaspi_group_create;
extern __typeof__(gaspi_group_delete) pgaspi_group_delete;
extern __typeof__(gaspi_group_add) pgaspi_group_add;
extern __typeof__(gaspi_group_commit) pgaspi_group_commit;
extern __typeof__(gaspi_group_num) pgaspi_group_num;
extern __typeof__(gaspi_group_size) pgaspi_group_size;
extern __typeof__(gaspi_group_ranks) pgaspi_group_ranks;
extern __typeof__(gaspi_group_max) pgaspi_group_max;
extern __typeof__(gaspi_segment_alloc) pgaspi_segment_alloc;
extern __typeof__(gaspi_segment_register) pgaspi_segment_register;
extern __typeof__(gaspi_segment_create) pgaspi_segment_create;
extern __typeof__(gaspi_segment_bind) pgaspi_segment_bind;
extern __typeof__(gaspi_segment_use) pgaspi_segment_use;
extern __typeof__(gaspi_segment_delete) pgaspi_segment_delete;
extern __typeof__(gaspi_segment_num) pgaspi_segment_num;
extern __typeof__(gaspi_segment_list) pgaspi_segment_list;
extern __typeof__(gaspi_segment_ptr) pgaspi_segment_ptr;
extern __typeof__(gaspi_segment_max) pgaspi_segment_max;
extern __typeof__(gaspi_write) pgaspi_write;
extern __typeof__(gaspi_read) pgaspi_read;
extern __typeof__(gaspi_write_list) pgaspi_write_list;
extern __typeof__(gaspi_read_list) pgaspi_read_list;
extern __typeof__(gaspi_wait) pgaspi_wait;
extern __typeof__(gaspi_notify) pgaspi_notify;
extern __typeof__(gaspi_write_notify) pgaspi_write_notify;
extern __typeof__(gaspi_write_list_notify) pgaspi_write_list_notify;
extern __typeof__(gaspi_read_notify) pgaspi_read_notify;
extern __typeof__(gaspi_read_list_notify) pgaspi_read_list_notify;
extern __typeof__(gaspi_notify_waitsome) pgaspi_notify_waitsome;
extern __typeof__(gaspi_notify_reset) pgaspi_notify_reset;
extern __typeof__(gaspi_passive_send) pgaspi_passive_send;
extern __typeof__(gaspi_passive_receive) pgaspi_passive_receive;
extern __typeof__(gaspi_passive_queue_purge) pgaspi_passive_queue_purge;
extern __typeof__(gaspi_atomic_fetch_add) pgaspi_atomic_fetch_add;
extern __typeof__(gaspi_atomic_compare_swap) pgaspi_atomic_compare_swap;
extern __typeof__(gaspi_barrier) pgaspi_barrier;
extern __typeof__(gaspi_allreduce) pgaspi_allreduce;
extern __typeof__(gaspi_allreduce_user) pgaspi_allreduce_user;
extern __typeof__(gaspi_queue_create) pgaspi_queue_create;
extern __typeof__(gaspi_queue_delete) pgaspi_queue_delete;
extern __typeof__(gaspi_queue_purge) pgaspi_queue_purge;
extern __typeof__(gaspi_queue_size) pgaspi_queue_size;
extern __typeof__(gaspi_queue_num) pgaspi_queue_num;
extern __typeof__(gaspi_queue_size_max) pgaspi_queue_size_max;
extern __typeof__(gaspi_queue_max) pgaspi_queue_max;
extern __typeof__(gaspi_transfer_size_min) pgaspi_transfer_size_min;
extern __typeof__(gaspi_transfer_size_max) pgaspi_transfer_size_max;
extern __typeof__(gaspi_notification_num) pgaspi_notification_num;
extern __typeof__(gaspi_passive_transfer_size_min) pgaspi_passive_transfer_size_min;
extern __typeof__(gaspi_passive_transfer_size_max) pgaspi_passive_transfer_size_max;
extern __typeof__(gaspi_atomic_max) pgaspi_atomic_max;
extern __typeof__(gaspi_allreduce_buf_size) pgaspi_allreduce_buf_size;
extern __typeof__(gaspi_allreduce_elem_max) pgaspi_allreduce_elem_max;
extern __typeof__(gaspi_rw_list_elem_max) pgaspi_rw_list_elem_max;
extern __typeof__(gaspi_time_ticks) pgaspi_time_ticks;
extern __typeof__(gaspi_time_get) pgaspi_time_get;
extern __typeof__(gaspi_print_error) pgaspi_print_error;
extern __typeof__(gaspi_statistic_verbosity_level) pgaspi_statistic_verbosity_level;
extern __typeof__(gaspi_statistic_counter_max) pgaspi_statistic_counter_max;
extern __typeof__(gaspi_statistic_counter_info) pgaspi_statistic_counter_info;
extern __typeof__(gaspi_statistic_counter_get) pgaspi_statistic_counter_get;
extern __typeof__(gaspi_statistic_counter_reset) pgaspi_statistic_counter_reset;
extern __typeof__(gaspi_pcontrol) pgaspi_pcontrol;
extern __typeof__(gaspi_initialized) pgaspi_initialized;
extern __typeof__(gaspi_proc_local_rank) pgaspi_proc_local_rank;
extern __typeof__(gaspi_proc_local_num) pgaspi_proc_local_num;
extern __typeof__(gaspi_proc_ping) pgaspi_proc_ping;
extern __typeof__(gaspi_segment_avail_local) pgaspi_segment_avail_local;
extern __typeof__(gaspi_segment_size) pgaspi_segment_size;
extern __typeof__(gaspi_cpu_frequency) pgaspi_cpu_frequency;
extern __typeof__(gaspi_machine_type) pgaspi_machine_type;
extern __typeof__(gaspi_numa_socket) pgaspi_numa_socket;
extern __typeof__(gaspi_set_socket_affinity) pgaspi_set_socket_affinity;
extern __typeof__(gaspi_print_affinity_mask) pgaspi_print_affinity_mask;
extern __typeof__(gaspi_printf) pgaspi_printf;
extern __typeof__(gaspi_printf_to) pgaspi_printf_to;
extern __typeof__(gaspi_error_str) pgaspi_error_str;
extern __typeof__(gaspi_delay) pgaspi_delay;
extern __typeof__(gaspi_device_open) pgaspi_device_open;
extern __typeof__(gaspi_device_close) pgaspi_device_close;

#ifdef __cplusplus
}
#endif

#endif
