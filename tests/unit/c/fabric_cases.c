/* SPDX-License-Identifier: Apache-2.0 */
/* The job, its segments, and handles that are none. */
#define _POSIX_C_SOURCE 200809L /* fork */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit/c/fabric_job.h"

static const gigabar_transport local_only[] = {GIGABAR_TRANSPORT_LOCAL};

Job open_job(void) {
  Job job = {NULL, calloc(2, 4096)};
  const gigabar_fabric_options options = {
      .struct_size = sizeof options, .field_mask = GIGABAR_FABRIC_RANK | GIGABAR_FABRIC_RANK_COUNT, .rank = 0, .rank_count = 1};
  CHECK_OK(gigabar_fabric_open(&options, &job.fabric));
  CHECK_OK(gigabar_segment_register(job.fabric, SEGMENT, job.memory, 8192));
  return job;
}

void close_job(Job job) {
  CHECK_OK(gigabar_segment_deregister(job.fabric, SEGMENT, PATIENCE_NS));
  CHECK_OK(gigabar_fabric_close(job.fabric, PATIENCE_NS));
  free(job.memory);
}

void case_fabric_opens_and_describes(void) {
  const Job job = open_job();
  gigabar_fabric_info info = {.struct_size = sizeof info, .field_mask = GIGABAR_FABRIC_INFO_ALL};
  char* text = NULL;
  CHECK_OK(gigabar_fabric_connect(job.fabric, 0, PATIENCE_NS));
  CHECK_OK(gigabar_fabric_describe(job.fabric, &info));
  CHECK(info.field_mask == GIGABAR_FABRIC_INFO_ALL);
  CHECK(info.rank == 0 && info.rank_count == 1 && info.local_rank == 0 && info.device == 0 && info.refused_strangers == 0);
  CHECK_OK(gigabar_fabric_json(job.fabric, &text));
  CHECK(strstr(text, "\"settings\": [{\"name\": ") != NULL &&
        strstr(text, "\"peers\": [{\"rank\": 0, \"is_connected\": true") != NULL);
  CHECK_OK(gigabar_text_free(text));
  CHECK_OK(gigabar_fabric_progress(job.fabric));
  CHECK_REFUSED(GIGABAR_BUSY, "", gigabar_fabric_forget(job.fabric, 0));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "rank 1", gigabar_fabric_connect(job.fabric, 1, 0));
  close_job(job);
  gigabar_fabric* fabric = NULL;
  CHECK_OK(gigabar_fabric_open(NULL, &fabric));
  CHECK_OK(gigabar_fabric_abandon(fabric));
}

/* A forked child can do nothing with its parent's fabric but leave it alone. */
void case_fabric_of_the_parent(void) {
  const Job job = open_job();
  int ended = -1;
  const pid_t child = fork();
  if (child == 0) {
    gigabar_fabric_info info = {.struct_size = sizeof info, .field_mask = GIGABAR_FABRIC_INFO_ALL};
    char* text = NULL;
    const int is_refused = gigabar_fabric_describe(job.fabric, &info) == GIGABAR_FOREIGN_PROCESS &&
                           gigabar_fabric_json(job.fabric, &text) == GIGABAR_FOREIGN_PROCESS && text == NULL &&
                           gigabar_fabric_progress(job.fabric) == GIGABAR_FOREIGN_PROCESS &&
                           strstr(gigabar_last_error_message(), "parent") != NULL &&
                           gigabar_fabric_abandon(job.fabric) == GIGABAR_OK;
    _exit(is_refused ? 0 : 1);
  }
  CHECK(child > 0 && waitpid(child, &ended, 0) == child && ended == 0);
  close_job(job);
}

void case_fabric_options(void) {
  gigabar_fabric* fabric = NULL;
  char* text = NULL;
  const gigabar_fabric_options options = {
      .struct_size = sizeof options,
      .field_mask = GIGABAR_FABRIC_RANK | GIGABAR_FABRIC_RANK_COUNT | GIGABAR_FABRIC_TRANSPORTS | GIGABAR_FABRIC_UCX_TRUST_NETWORK |
                    GIGABAR_FABRIC_RAILS | GIGABAR_FABRIC_RAIL_COUNT | GIGABAR_FABRIC_RAIL_POLICY | GIGABAR_FABRIC_DEVICE |
                    GIGABAR_FABRIC_CPUS | GIGABAR_FABRIC_POLICY | GIGABAR_FABRIC_EAGER_BYTES | GIGABAR_FABRIC_GDR_BYTES |
                    GIGABAR_FABRIC_GDR_READ_BYTES | GIGABAR_FABRIC_CHUNK_BYTES | GIGABAR_FABRIC_CHUNK_COUNT |
                    GIGABAR_FABRIC_KERNEL_BYTES | GIGABAR_FABRIC_STRIPE_BYTES | GIGABAR_FABRIC_GID_INDEX |
                    GIGABAR_FABRIC_TRAFFIC_CLASS | GIGABAR_FABRIC_SERVICE_LEVEL | GIGABAR_FABRIC_PROGRESS_THREAD |
                    GIGABAR_FABRIC_CONNECT_TIMEOUT_NS,
      .rank = 0,
      .rank_count = 1,
      .transports = local_only,
      .transport_count = 1,
      .ucx_trust_network = 1,
      .rails = "mlx5_0,mlx5_1/1",
      .rail_count = 2,
      .rail_policy = GIGABAR_RAILS_ROUND_ROBIN,
      .device = 1,
      .cpus = "any",
      .policy = {.gdr = GIGABAR_FORBID, .p2p = GIGABAR_ALLOW, .bar = GIGABAR_REQUIRE, .staged = GIGABAR_PREFER},
      .eager_bytes = 2048,
      .gdr_bytes = 16384,
      .gdr_read_bytes = 32768,
      .chunk_bytes = 65536,
      .chunk_count = 3,
      .kernel_bytes = 4096,
      .stripe_bytes = 1048576,
      .gid_index = 4,
      .traffic_class = 104,
      .service_level = 5,
      .progress_thread = 0,
      .connect_timeout_ns = PATIENCE_NS};
  static const char* const settings[][2] = {{"transports", "local"},
                                            {"ucx_trust_network", "yes"},
                                            {"rails", "mlx5_0,mlx5_1/1"},
                                            {"rail_count", "2"},
                                            {"rail_policy", "round_robin"},
                                            {"device", "1"},
                                            {"cpus", "any"},
                                            {"gdr", "forbid"},
                                            {"bar", "require"},
                                            {"staged", "prefer"},
                                            {"eager_limit", "2048"},
                                            {"gdr_limit", "16384"},
                                            {"gdr_read_limit", "32768"},
                                            {"chunk", "65536"},
                                            {"chunks", "3"},
                                            {"kernel_limit", "4096"},
                                            {"stripe", "1048576"},
                                            {"gid_index", "4"},
                                            {"traffic_class", "104"},
                                            {"service_level", "5"},
                                            {"progress_thread", "no"}};
  CHECK_OK(gigabar_fabric_open(&options, &fabric));
  gigabar_fabric_info info = {.struct_size = sizeof info, .field_mask = GIGABAR_FABRIC_INFO_DEVICE};
  CHECK_OK(gigabar_fabric_describe(fabric, &info));
  CHECK(info.field_mask == GIGABAR_FABRIC_INFO_DEVICE && info.device == 1);
  /* Each value has arrived where the engine says what it uses. */
  CHECK_OK(gigabar_fabric_json(fabric, &text));
  for (size_t i = 0; i < sizeof settings / sizeof settings[0]; ++i) {
    char wanted[128];
    snprintf(wanted, sizeof wanted, "{\"name\": \"%s\", \"value\": \"%s\", \"source\": \"option\"}", settings[i][0],
             settings[i][1]);
    if (strstr(text, wanted) == NULL) report_failure(__FILE__, __LINE__, wanted);
  }
  CHECK_OK(gigabar_text_free(text));
  CHECK_OK(gigabar_fabric_close(fabric, PATIENCE_NS));
}

void case_fabric_open_refusals(void) {
  gigabar_fabric* fabric = NULL;
  gigabar_fabric_options options = {.struct_size = sizeof options, .field_mask = GIGABAR_FABRIC_CONNECT_TIMEOUT_NS * 2};
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "fabric", gigabar_fabric_open(NULL, NULL));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "options->field_mask", gigabar_fabric_open(&options, &fabric));
  options.field_mask = GIGABAR_FABRIC_RAIL_POLICY;
  options.rail_policy = 3;
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "options->rail_policy", gigabar_fabric_open(&options, &fabric));
  options.field_mask = GIGABAR_FABRIC_POLICY;
  options.policy.bar = 4;
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "options->policy.bar", gigabar_fabric_open(&options, &fabric));
  options.field_mask = GIGABAR_FABRIC_CPUS;
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "options->cpus", gigabar_fabric_open(&options, &fabric));
  options.field_mask = GIGABAR_FABRIC_JOB_KEY;
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "options->job_key", gigabar_fabric_open(&options, &fabric));
  options.field_mask = GIGABAR_FABRIC_MASTER_ADDRESS;
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "options->master_address", gigabar_fabric_open(&options, &fabric));
  options.field_mask = GIGABAR_FABRIC_RAILS;
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "options->rails", gigabar_fabric_open(&options, &fabric));
  options.field_mask = GIGABAR_FABRIC_TRANSPORTS;
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "options->transport_count", gigabar_fabric_open(&options, &fabric));
  options.transport_count = 5;
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "options->transport_count", gigabar_fabric_open(&options, &fabric));
  options.transport_count = 1;
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "options->transports", gigabar_fabric_open(&options, &fabric));
  const gigabar_transport unknown = 4;
  options.transports = &unknown;
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "options->transports", gigabar_fabric_open(&options, &fabric));
  options.field_mask = GIGABAR_FABRIC_CONNECT_TIMEOUT_NS;
  options.connect_timeout_ns = -2;
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "options->connect_timeout_ns", gigabar_fabric_open(&options, &fabric));
  options.struct_size = 15;
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "options->struct_size", gigabar_fabric_open(&options, &fabric));
  CHECK(fabric == NULL);
}

/* What each function says of a fabric that is null. */
void case_fabric_handle_refusals(void) {
  const gigabar_local_place local = {0};
  const gigabar_remote_place remote = {0};
  const gigabar_list_piece piece = {0};
  gigabar_fabric_info info = {.struct_size = sizeof info};
  gigabar_operation_report report = {.struct_size = sizeof report};
  char* text = NULL;
  void* address = NULL;
  uint64_t number = 0;
  uint32_t id = 0;
  int64_t integer = 0;
  double real = 0;
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "fabric", gigabar_fabric_close(NULL, 0));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "fabric", gigabar_fabric_abandon(NULL));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "fabric", gigabar_fabric_describe(NULL, &info));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "fabric", gigabar_fabric_json(NULL, &text));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "fabric", gigabar_fabric_connect(NULL, 0, 0));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "fabric", gigabar_fabric_forget(NULL, 0));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "fabric", gigabar_segment_register(NULL, 0, &number, 8));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "fabric", gigabar_segment_quiesce(NULL, 0, 0));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "fabric", gigabar_segment_enable(NULL, 0));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "fabric", gigabar_segment_deregister(NULL, 0, 0));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "fabric", gigabar_segment_remote_bytes(NULL, 0, 0, 0, &number));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "fabric", gigabar_segment_map(NULL, 0, 0, 0, 0, &address));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "fabric", gigabar_segment_unmap(NULL, 0, 0, 0));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "fabric", gigabar_fabric_write(NULL, local, remote, 0, NULL, NULL));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "fabric", gigabar_fabric_read(NULL, local, remote, 0, NULL, NULL));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "fabric", gigabar_fabric_write_list(NULL, 0, &piece, 1, NULL, NULL));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "fabric", gigabar_fabric_read_list(NULL, 0, &piece, 1, NULL, NULL));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "fabric", gigabar_fabric_write_notify(NULL, local, remote, 0, 0, 1, NULL, NULL));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "fabric", gigabar_fabric_write_notify_add(NULL, local, remote, 0, 0, 1, NULL, NULL));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "fabric", gigabar_fabric_write_list_notify(NULL, 0, &piece, 1, 0, 0, 1, NULL, NULL));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "fabric", gigabar_fabric_notify(NULL, 0, 0, 0, 1, NULL, NULL));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "fabric", gigabar_fabric_notify_add(NULL, 0, 0, 0, 1, NULL, NULL));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "fabric", gigabar_fabric_write_in_order(NULL, &number, remote, 8, NULL, NULL));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "fabric", gigabar_fabric_fetch_add(NULL, remote, 1, 0, &number));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "fabric", gigabar_fabric_compare_swap(NULL, remote, 1, 2, 0, &number));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "fabric", gigabar_notification_wait(NULL, 0, 0, 1, 0, &id));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "fabric", gigabar_notification_wait_count(NULL, 0, 0, 1, 0));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "fabric", gigabar_notification_reset(NULL, 0, 0, &id));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "fabric", gigabar_fabric_wait(NULL, 0, 0));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "fabric", gigabar_fabric_flush(NULL, 0, 0));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "fabric", gigabar_fabric_progress(NULL));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "fabric", gigabar_fabric_report(NULL, 1, &report));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "fabric", gigabar_fabric_explain_write(NULL, local, remote, 1, 0, NULL, &text));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "fabric", gigabar_fabric_explain_read(NULL, local, remote, 1, 0, NULL, &text));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "fabric", gigabar_message_post_send(NULL, 0, 0, NULL, 0, NULL, NULL));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "fabric", gigabar_message_post_recv(NULL, 0, 0, 0, NULL, 0, NULL, NULL));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "fabric", gigabar_message_wait(NULL, 1, 0, NULL));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "fabric", gigabar_message_cancel_recv(NULL, 1));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "fabric", gigabar_message_send(NULL, 0, 0, NULL, 0, 0, NULL));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "fabric", gigabar_message_recv(NULL, 0, 0, NULL, 0, 0, NULL, NULL));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "fabric", gigabar_barrier(NULL, NULL, 0, 0));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "fabric", gigabar_all_reduce_int64(NULL, NULL, 0, 0, &integer, &integer, 1, 0));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "fabric", gigabar_all_reduce_double(NULL, NULL, 0, 0, &real, &real, 1, 0));
}

void case_segments(void) {
  const Job job = open_job();
  uint64_t bytes = 0;
  void* address = NULL;
  CHECK_OK(gigabar_segment_remote_bytes(job.fabric, 0, SEGMENT, PATIENCE_NS, &bytes));
  CHECK(bytes == 8192);
  CHECK_OK(gigabar_segment_quiesce(job.fabric, SEGMENT, PATIENCE_NS));
  CHECK_OK(gigabar_segment_enable(job.fabric, SEGMENT));
  CHECK_OK(gigabar_segment_map(job.fabric, 0, SEGMENT, PATIENCE_NS, GIGABAR_MAPPED_FOR_CPU, &address));
  CHECK(address == job.memory);
  CHECK_REFUSED(GIGABAR_BUSY, "", gigabar_fabric_close(job.fabric, 0)); /* and is open as before */
  CHECK_OK(gigabar_segment_unmap(job.fabric, 0, SEGMENT, GIGABAR_MAPPED_FOR_CPU));
  close_job(job);
}

void case_segment_refusals(void) {
  const Job job = open_job();
  char other[64];
  uint64_t bytes = 0;
  void* address = NULL;
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "", gigabar_segment_register(job.fabric, SEGMENT, other, sizeof other));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "", gigabar_segment_register(job.fabric, 4, NULL, 64));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "", gigabar_segment_register(job.fabric, 4, other, 0));
  CHECK_REFUSED(GIGABAR_OUT_OF_RANGE, "1024", gigabar_segment_register(job.fabric, 1024, other, sizeof other));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "timeout_ns", gigabar_segment_quiesce(job.fabric, SEGMENT, -2));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "timeout_ns", gigabar_segment_deregister(job.fabric, SEGMENT, INT64_MIN));
  CHECK(gigabar_segment_quiesce(job.fabric, 9, 0) != GIGABAR_OK);
  CHECK(gigabar_segment_enable(job.fabric, 9) != GIGABAR_OK);
  CHECK(gigabar_segment_deregister(job.fabric, 9, 0) != GIGABAR_OK);
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "bytes", gigabar_segment_remote_bytes(job.fabric, 0, SEGMENT, 0, NULL));
  CHECK_REFUSED(GIGABAR_OUT_OF_RANGE, "", gigabar_segment_remote_bytes(job.fabric, 0, 9, PATIENCE_NS, &bytes));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "address", gigabar_segment_map(job.fabric, 0, SEGMENT, 0, 0, NULL));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "mapped_for", gigabar_segment_map(job.fabric, 0, SEGMENT, 0, 2, &address));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "mapped_for", gigabar_segment_unmap(job.fabric, 0, SEGMENT, -1));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "", gigabar_segment_unmap(job.fabric, 0, SEGMENT, GIGABAR_MAPPED_FOR_CPU));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "info", gigabar_fabric_describe(job.fabric, NULL));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "text", gigabar_fabric_json(job.fabric, NULL));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "timeout_ns", gigabar_fabric_connect(job.fabric, 0, -3));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "timeout_ns", gigabar_fabric_close(job.fabric, -3));
  close_job(job);
}
