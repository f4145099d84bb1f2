/* SPDX-License-Identifier: Apache-2.0 */
/* One-sided operations of a rank to itself. */
#include <string.h>

#include "unit/c/fabric_job.h"

static const gigabar_local_place from_start = {.offset_bytes = 0, .segment = SEGMENT};
static const gigabar_remote_place to_second_page = {.offset_bytes = 4096, .rank = 0, .segment = SEGMENT};

static void fill_first_page(Job job, unsigned char seed) {
  for (int i = 0; i < 4096; ++i) job.memory[i] = (unsigned char)(i * 3 + seed);
}

void case_writes_and_reads(void) {
  const Job job = open_job();
  gigabar_operation operation = 0;
  const gigabar_post_options options = {
      .struct_size = sizeof options,
      .field_mask = GIGABAR_POST_QUEUE | GIGABAR_POST_POLICY | GIGABAR_POST_CHUNK_BYTES | GIGABAR_POST_STRIPE_BYTES,
      .queue = 5,
      .policy = {GIGABAR_ALLOW, GIGABAR_ALLOW, GIGABAR_ALLOW, GIGABAR_ALLOW},
      .chunk_bytes = 4096,
      .stripe_bytes = 1 << 20};
  fill_first_page(job, 1);
  CHECK_OK(gigabar_fabric_write(job.fabric, from_start, to_second_page, 4096, &options, &operation));
  CHECK(operation != 0);
  CHECK_OK(gigabar_fabric_wait(job.fabric, 5, PATIENCE_NS));
  CHECK_OK(gigabar_fabric_flush(job.fabric, 0, PATIENCE_NS));
  CHECK(memcmp(job.memory, job.memory + 4096, 4096) == 0);
  memset(job.memory, 0, 4096);
  CHECK_OK(gigabar_fabric_read(job.fabric, from_start, to_second_page, 4096, NULL, NULL));
  CHECK_OK(gigabar_fabric_wait(job.fabric, 0, GIGABAR_FOREVER));
  CHECK(memcmp(job.memory, job.memory + 4096, 4096) == 0 && job.memory[1] == 4);
  const uint64_t word = UINT64_C(0x0123456789abcdef);
  CHECK_OK(gigabar_fabric_write_in_order(job.fabric, &word, to_second_page, sizeof word, NULL, NULL));
  CHECK_OK(gigabar_fabric_flush(job.fabric, 0, PATIENCE_NS));
  CHECK(memcmp(job.memory + 4096, &word, sizeof word) == 0);
  close_job(job);
}

void case_lists(void) {
  const Job job = open_job();
  const gigabar_list_piece pieces[] = {
      {.local = {.offset_bytes = 0, .segment = SEGMENT}, .remote_segment = SEGMENT, .remote_offset_bytes = 5000, .bytes = 10},
      {.local = {.offset_bytes = 100, .segment = SEGMENT}, .remote_segment = SEGMENT, .remote_offset_bytes = 6000, .bytes = 20}};
  uint32_t id = 0;
  fill_first_page(job, 2);
  CHECK_OK(gigabar_fabric_write_list(job.fabric, 0, pieces, 2, NULL, NULL));
  CHECK_OK(gigabar_fabric_flush(job.fabric, 0, PATIENCE_NS));
  CHECK(memcmp(job.memory + 5000, job.memory, 10) == 0 && memcmp(job.memory + 6000, job.memory + 100, 20) == 0);
  memset(job.memory, 0, 4096);
  CHECK_OK(gigabar_fabric_read_list(job.fabric, 0, pieces, 2, NULL, NULL));
  CHECK_OK(gigabar_fabric_wait(job.fabric, 0, PATIENCE_NS));
  CHECK(job.memory[1] == 5 && memcmp(job.memory + 6000, job.memory + 100, 20) == 0);
  CHECK_OK(gigabar_fabric_write_list_notify(job.fabric, 0, pieces, 2, SEGMENT, 77, 9, NULL, NULL));
  CHECK_OK(gigabar_notification_wait(job.fabric, SEGMENT, 70, 10, PATIENCE_NS, &id));
  CHECK(id == 77);
  CHECK_OK(gigabar_fabric_wait(job.fabric, 0, PATIENCE_NS));
  close_job(job);
}

/* As many pieces as a queue holds operations. Their notification needs no room, another one does. */
void case_longest_list(void) {
  const Job job = open_job();
  static gigabar_list_piece pieces[1024];
  uint32_t id = 0;
  fill_first_page(job, 4);
  for (uint64_t i = 0; i < 1024; ++i) {
    pieces[i].local = (gigabar_local_place){.offset_bytes = 4 * i, .segment = SEGMENT};
    pieces[i].remote_segment = SEGMENT;
    pieces[i].remote_offset_bytes = 4096 + 4 * i;
    pieces[i].bytes = 4;
  }
  CHECK_OK(gigabar_fabric_write_list_notify(job.fabric, 0, pieces, 1024, SEGMENT, 78, 9, NULL, NULL));
  CHECK_REFUSED(GIGABAR_BUSY, "queue 0", gigabar_fabric_notify(job.fabric, 0, SEGMENT, 77, 1, NULL, NULL));
  CHECK_REFUSED(GIGABAR_BUSY, "queue 0", gigabar_fabric_write_list_notify(job.fabric, 0, pieces, 1, SEGMENT, 77, 1, NULL, NULL));
  CHECK_OK(gigabar_notification_wait(job.fabric, SEGMENT, 77, 2, PATIENCE_NS, &id));
  CHECK(id == 78 && memcmp(job.memory, job.memory + 4096, 4096) == 0);
  CHECK_OK(gigabar_fabric_wait(job.fabric, 0, PATIENCE_NS));
  close_job(job);
}

void case_notifications(void) {
  const Job job = open_job();
  uint32_t id = 0, previous = 0;
  fill_first_page(job, 3);
  CHECK_REFUSED(GIGABAR_TIMED_OUT, "", gigabar_notification_wait(job.fabric, SEGMENT, 0, 100, 0, &id));
  CHECK_OK(gigabar_fabric_notify(job.fabric, 0, SEGMENT, 12, 34, NULL, NULL));
  CHECK_OK(gigabar_notification_wait(job.fabric, SEGMENT, 0, 100, PATIENCE_NS, &id));
  CHECK(id == 12);
  CHECK_OK(gigabar_notification_reset(job.fabric, SEGMENT, 12, &previous));
  CHECK(previous == 34);
  CHECK_OK(gigabar_fabric_notify_add(job.fabric, 0, SEGMENT, 5, 2, NULL, NULL));
  CHECK_OK(gigabar_fabric_write_notify_add(job.fabric, from_start, to_second_page, 16, 5, 1, NULL, NULL));
  CHECK_OK(gigabar_notification_wait_count(job.fabric, SEGMENT, 5, 3, PATIENCE_NS));
  CHECK(memcmp(job.memory, job.memory + 4096, 16) == 0);
  CHECK_REFUSED(GIGABAR_TIMED_OUT, "", gigabar_notification_wait_count(job.fabric, SEGMENT, 5, 1, 1000));
  CHECK_OK(gigabar_fabric_write_notify(job.fabric, from_start, to_second_page, 4096, 6, 1, NULL, NULL));
  CHECK_OK(gigabar_notification_wait(job.fabric, SEGMENT, 6, 1, PATIENCE_NS, &id));
  CHECK(memcmp(job.memory, job.memory + 4096, 4096) == 0);
  CHECK_OK(gigabar_fabric_wait(job.fabric, 0, PATIENCE_NS));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "id", gigabar_notification_wait(job.fabric, SEGMENT, 0, 1, 0, NULL));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "timeout_ns", gigabar_notification_wait(job.fabric, SEGMENT, 0, 1, -2, &id));
  CHECK_REFUSED(GIGABAR_OUT_OF_RANGE, "65536", gigabar_notification_wait(job.fabric, SEGMENT, 65536, 1, 0, &id));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "timeout_ns", gigabar_notification_wait_count(job.fabric, SEGMENT, 0, 1, -2));
  CHECK_REFUSED(GIGABAR_OUT_OF_RANGE, "65536", gigabar_notification_wait_count(job.fabric, SEGMENT, 65536, 1, 0));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "previous", gigabar_notification_reset(job.fabric, SEGMENT, 0, NULL));
  CHECK_REFUSED(GIGABAR_OUT_OF_RANGE, "65536", gigabar_notification_reset(job.fabric, SEGMENT, 65536, &previous));
  close_job(job);
}

void case_post_refusals(void) {
  const Job job = open_job();
  const gigabar_list_piece piece = {.local = {.segment = SEGMENT}, .remote_segment = SEGMENT, .bytes = 1};
  const gigabar_local_place local = {.segment = SEGMENT};
  const gigabar_remote_place remote = {.segment = SEGMENT};
  gigabar_remote_place nobody = remote;
  gigabar_post_options options = {.struct_size = sizeof options, .field_mask = GIGABAR_POST_STRIPE_BYTES * 2};
  nobody.rank = 1;
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "options->field_mask",
                gigabar_fabric_write(job.fabric, local, remote, 1, &options, NULL));
  options.field_mask = GIGABAR_POST_POLICY;
  options.policy.gdr = -1;
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "options->policy.gdr", gigabar_fabric_read(job.fabric, local, remote, 1, &options, NULL));
  options.policy.gdr = 0;
  options.policy.staged = 4;
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "options->policy.staged",
                gigabar_fabric_notify(job.fabric, 0, SEGMENT, 0, 1, &options, NULL));
  options.field_mask = GIGABAR_POST_QUEUE;
  options.queue = 16;
  CHECK_REFUSED(GIGABAR_OUT_OF_RANGE, "16", gigabar_fabric_write(job.fabric, local, remote, 1, &options, NULL));
  options.struct_size = 3;
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "options->struct_size",
                gigabar_fabric_write(job.fabric, local, remote, 1, &options, NULL));
  CHECK_REFUSED(GIGABAR_OUT_OF_RANGE, "", gigabar_fabric_write(job.fabric, local, remote, 8193, NULL, NULL));
  CHECK_REFUSED(GIGABAR_OUT_OF_RANGE, "", gigabar_fabric_read(job.fabric, local, remote, UINT64_MAX, NULL, NULL));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "rank 1", gigabar_fabric_write(job.fabric, local, nobody, 1, NULL, NULL));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "piece_count", gigabar_fabric_write_list(job.fabric, 0, &piece, 0, NULL, NULL));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "piece_count", gigabar_fabric_read_list(job.fabric, 0, &piece, 1025, NULL, NULL));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "pieces", gigabar_fabric_write_list(job.fabric, 0, NULL, 1, NULL, NULL));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "pieces",
                gigabar_fabric_write_list_notify(job.fabric, 0, NULL, 1, SEGMENT, 0, 1, NULL, NULL));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "value", gigabar_fabric_notify(job.fabric, 0, SEGMENT, 0, 0, NULL, NULL));
  CHECK_REFUSED(GIGABAR_OUT_OF_RANGE, "", gigabar_fabric_notify_add(job.fabric, 0, SEGMENT, 65536, 1, NULL, NULL));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "value", gigabar_fabric_write_notify(job.fabric, local, remote, 1, 0, 0, NULL, NULL));
  CHECK_REFUSED(GIGABAR_OUT_OF_RANGE, "", gigabar_fabric_write_notify_add(job.fabric, local, remote, 1, 65536, 1, NULL, NULL));
  CHECK_REFUSED(GIGABAR_OUT_OF_RANGE, "", gigabar_fabric_write_in_order(job.fabric, &piece, remote, 65, NULL, NULL));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "", gigabar_fabric_write_in_order(job.fabric, NULL, remote, 8, NULL, NULL));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "timeout_ns", gigabar_fabric_wait(job.fabric, 0, -2));
  CHECK_REFUSED(GIGABAR_OUT_OF_RANGE, "16", gigabar_fabric_wait(job.fabric, 16, 0));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "timeout_ns", gigabar_fabric_flush(job.fabric, 0, -2));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "rank 1", gigabar_fabric_flush(job.fabric, 1, 0));
  close_job(job);
}

void case_atomics(void) {
  const Job job = open_job();
  gigabar_remote_place odd = to_second_page;
  uint64_t previous = 99, now = 0;
  odd.offset_bytes += 4;
  CHECK_OK(gigabar_fabric_fetch_add(job.fabric, to_second_page, 5, PATIENCE_NS, &previous));
  CHECK(previous == 0);
  CHECK_OK(gigabar_fabric_compare_swap(job.fabric, to_second_page, 5, 8, PATIENCE_NS, &previous));
  CHECK(previous == 5);
  CHECK_OK(gigabar_fabric_compare_swap(job.fabric, to_second_page, 5, 9, PATIENCE_NS, &previous));
  memcpy(&now, job.memory + 4096, sizeof now);
  CHECK(previous == 8 && now == 8);
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "", gigabar_fabric_fetch_add(job.fabric, odd, 1, PATIENCE_NS, &previous));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "", gigabar_fabric_compare_swap(job.fabric, odd, 1, 2, PATIENCE_NS, &previous));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "previous", gigabar_fabric_fetch_add(job.fabric, to_second_page, 1, 0, NULL));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "previous", gigabar_fabric_compare_swap(job.fabric, to_second_page, 1, 2, 0, NULL));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "timeout_ns", gigabar_fabric_fetch_add(job.fabric, to_second_page, 1, -2, &previous));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "timeout_ns",
                gigabar_fabric_compare_swap(job.fabric, to_second_page, 1, 2, -2, &previous));
  close_job(job);
}

void case_reports_and_explanations(void) {
  const Job job = open_job();
  gigabar_operation operation = 0;
  gigabar_operation_report report = {.struct_size = sizeof report, .field_mask = GIGABAR_REPORT_ALL};
  char* text = NULL;
  CHECK_OK(gigabar_fabric_write(job.fabric, from_start, to_second_page, 4096, NULL, &operation));
  CHECK_OK(gigabar_fabric_wait(job.fabric, 0, PATIENCE_NS));
  CHECK_OK(gigabar_fabric_report(job.fabric, operation, &report));
  CHECK(report.field_mask == GIGABAR_REPORT_ALL);
  CHECK(report.is_done == 1 && report.status == GIGABAR_OK && report.bytes == 4096 && report.transport == GIGABAR_TRANSPORT_LOCAL);
  CHECK(report.path != GIGABAR_PATH_NONE && report.chunks >= 1 && report.duration_ns >= 0);
  CHECK(report.reason[0] != '\0' && memchr(report.rails, '\0', sizeof report.rails) != NULL);
  CHECK_OK(gigabar_fabric_explain_write(job.fabric, from_start, to_second_page, 4096, PATIENCE_NS, NULL, &text));
  CHECK(strstr(text, "\"is_possible\": true, \"path\": \"") != NULL && strstr(text, "\"alternatives\": [") != NULL);
  CHECK_OK(gigabar_text_free(text));
  CHECK_OK(gigabar_fabric_explain_read(job.fabric, from_start, to_second_page, 4096, PATIENCE_NS, NULL, &text));
  CHECK(strstr(text, "\"transport\": \"local\"") != NULL);
  CHECK_OK(gigabar_text_free(text));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "report", gigabar_fabric_report(job.fabric, operation, NULL));
  CHECK_REFUSED(GIGABAR_OUT_OF_RANGE, "", gigabar_fabric_report(job.fabric, operation + 1000, &report));
  report.field_mask = GIGABAR_REPORT_ALL * 2;
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "report->field_mask", gigabar_fabric_report(job.fabric, operation, &report));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "text",
                gigabar_fabric_explain_write(job.fabric, from_start, to_second_page, 1, 0, NULL, NULL));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "text",
                gigabar_fabric_explain_read(job.fabric, from_start, to_second_page, 1, 0, NULL, NULL));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "timeout_ns",
                gigabar_fabric_explain_write(job.fabric, from_start, to_second_page, 1, -2, NULL, &text));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "timeout_ns",
                gigabar_fabric_explain_read(job.fabric, from_start, to_second_page, 1, -2, NULL, &text));
  close_job(job);
}
