/* SPDX-License-Identifier: Apache-2.0 */
/* Messages and collectives of a rank with itself. */
#include <string.h>

#include "unit/c/fabric_job.h"

void case_messages(void) {
  const Job job = open_job();
  const char sent[] = "a message";
  char received[64] = "";
  gigabar_received about = {0};
  gigabar_operation send = 0, receive = 0;
  CHECK_OK(gigabar_message_post_recv(job.fabric, 0, 0x70, 0xf0, received, sizeof received, NULL, &receive));
  CHECK_OK(gigabar_message_post_send(job.fabric, 0, 0x71, sent, sizeof sent, NULL, &send));
  CHECK_OK(gigabar_message_wait(job.fabric, receive, PATIENCE_NS, &about));
  CHECK_OK(gigabar_message_wait(job.fabric, send, PATIENCE_NS, NULL));
  CHECK(about.rank == 0 && about.tag == 0x71 && about.bytes == sizeof sent && strcmp(received, sent) == 0);
  memset(received, 0, sizeof received);
  CHECK_OK(gigabar_message_send(job.fabric, 0, 5, sent, sizeof sent, PATIENCE_NS, NULL));
  CHECK_OK(gigabar_message_recv(job.fabric, GIGABAR_ANY_RANK, 5, received, sizeof received, PATIENCE_NS, NULL, &about));
  CHECK(about.tag == 5 && strcmp(received, sent) == 0);
  CHECK_OK(gigabar_message_send(job.fabric, 0, 6, NULL, 0, PATIENCE_NS, NULL));
  CHECK_OK(gigabar_message_recv(job.fabric, 0, 6, NULL, 0, PATIENCE_NS, NULL, NULL));
  CHECK_OK(gigabar_message_post_recv(job.fabric, 0, 7, UINT64_MAX, received, sizeof received, NULL, &receive));
  CHECK_REFUSED(GIGABAR_TIMED_OUT, "", gigabar_message_wait(job.fabric, receive, 0, NULL));
  CHECK_OK(gigabar_message_cancel_recv(job.fabric, receive));
  close_job(job);
}

void case_message_refusals(void) {
  const Job job = open_job();
  char buffer[16] = "";
  gigabar_operation operation = 0;
  gigabar_post_options options = {.struct_size = sizeof options, .field_mask = GIGABAR_POST_STRIPE_BYTES * 2};
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "rank 1", gigabar_message_post_send(job.fabric, 1, 0, buffer, 1, NULL, &operation));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "", gigabar_message_post_send(job.fabric, 0, 0, NULL, 1, NULL, &operation));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "", gigabar_message_post_recv(job.fabric, 0, 0, 0, NULL, 1, NULL, &operation));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "options->field_mask",
                gigabar_message_post_send(job.fabric, 0, 0, buffer, 1, &options, &operation));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "options->field_mask",
                gigabar_message_post_recv(job.fabric, 0, 0, 0, buffer, 1, &options, &operation));
  CHECK(operation == 0);
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "options->field_mask", gigabar_message_send(job.fabric, 0, 0, buffer, 1, 0, &options));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "options->field_mask",
                gigabar_message_recv(job.fabric, 0, 0, buffer, 1, 0, &options, NULL));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "timeout_ns", gigabar_message_send(job.fabric, 0, 0, buffer, 1, -2, NULL));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "timeout_ns", gigabar_message_recv(job.fabric, 0, 0, buffer, 1, -2, NULL, NULL));
  CHECK_REFUSED(GIGABAR_TIMED_OUT, "", gigabar_message_recv(job.fabric, 0, 0, buffer, 1, 0, NULL, NULL));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "timeout_ns", gigabar_message_wait(job.fabric, 1, -2, NULL));
  CHECK(gigabar_message_wait(job.fabric, 123456, 0, NULL) != GIGABAR_OK);
  CHECK(gigabar_message_cancel_recv(job.fabric, 123456) != GIGABAR_OK);
  close_job(job);
}

void case_collectives(void) {
  const Job job = open_job();
  const uint32_t all[] = {0};
  const int64_t integers[] = {-5, 7};
  const double reals[] = {0.5};
  int64_t integer_results[2] = {0};
  double real_results[1] = {0};
  CHECK_OK(gigabar_barrier(job.fabric, NULL, 0, PATIENCE_NS));
  CHECK_OK(gigabar_barrier(job.fabric, all, 1, PATIENCE_NS));
  CHECK_OK(gigabar_all_reduce_int64(job.fabric, NULL, 0, GIGABAR_SUM, integers, integer_results, 2, PATIENCE_NS));
  CHECK(integer_results[0] == -5 && integer_results[1] == 7);
  CHECK_OK(gigabar_all_reduce_double(job.fabric, all, 1, GIGABAR_MAXIMUM, reals, real_results, 1, PATIENCE_NS));
  CHECK(real_results[0] > 0.49 && real_results[0] < 0.51);
  close_job(job);
}

void case_collective_refusals(void) {
  const Job job = open_job();
  const uint32_t nobody[] = {1};
  static int64_t integers[256];
  static double reals[256];
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "rank_count", gigabar_barrier(job.fabric, nobody, 0, 0));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "rank_count", gigabar_barrier(job.fabric, nobody, 2, 0));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "ranks", gigabar_barrier(job.fabric, NULL, 1, 0));
  CHECK(gigabar_barrier(job.fabric, nobody, 1, 0) != GIGABAR_OK);
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "timeout_ns", gigabar_barrier(job.fabric, NULL, 0, -2));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "reduction", gigabar_all_reduce_int64(job.fabric, NULL, 0, 3, integers, integers, 1, 0));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "reduction", gigabar_all_reduce_double(job.fabric, NULL, 0, -1, reals, reals, 1, 0));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "values", gigabar_all_reduce_int64(job.fabric, NULL, 0, 0, NULL, integers, 1, 0));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "results", gigabar_all_reduce_double(job.fabric, NULL, 0, 0, reals, NULL, 1, 0));
  CHECK_REFUSED(GIGABAR_OUT_OF_RANGE, "", gigabar_all_reduce_int64(job.fabric, NULL, 0, 0, integers, integers, 0, 0));
  CHECK_REFUSED(GIGABAR_OUT_OF_RANGE, "", gigabar_all_reduce_double(job.fabric, NULL, 0, 0, reals, reals, 256, 0));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "timeout_ns",
                gigabar_all_reduce_int64(job.fabric, NULL, 0, 0, integers, integers, 1, -2));
  close_job(job);
}
