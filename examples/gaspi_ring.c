/* SPDX-License-Identifier: Apache-2.0 */
/* A token goes round the ring of ranks by GASPI's one-sided functions, and each barrier's time is measured by a function that
 * replaces GASPI's own: gigabar run -n 3 -- ./gaspi_ring */
#include <PGASPI.h>
#include <stdio.h>

static gaspi_time_t in_barriers;

/* What a profiling tool does: its own gaspi_barrier, around pgaspi_barrier. */
gaspi_return_t gaspi_barrier(const gaspi_group_t group, const gaspi_timeout_t timeout_ms) {
  gaspi_time_t begin = 0, end = 0;
  gaspi_time_get(&begin);
  const gaspi_return_t code = pgaspi_barrier(group, timeout_ms);
  gaspi_time_get(&end);
  in_barriers += end - begin;
  return code;
}

static int failed(const char* what, gaspi_return_t code) {
  fprintf(stderr, "%s: %s\n", what, gaspi_error_str(code));
  return 1;
}

int main(void) {
  const gaspi_timeout_t timeout = 20000;
  const gaspi_segment_id_t segment = 0;
  gaspi_return_t code = gaspi_proc_init(timeout);
  if (code != GASPI_SUCCESS) return failed("init", code);
  gaspi_rank_t rank = 0, count = 0;
  gaspi_proc_rank(&rank);
  gaspi_proc_num(&count);

  code = gaspi_segment_create(segment, 2 * sizeof(unsigned), GASPI_GROUP_ALL, timeout, GASPI_MEM_INITIALIZED);
  if (code != GASPI_SUCCESS) return failed("segment", code);
  gaspi_pointer_t memory = NULL;
  gaspi_segment_ptr(segment, &memory);
  unsigned* const token = memory; /* [0] comes from the left, [1] goes to the right */

  gaspi_notification_id_t id = 0;
  gaspi_notification_t value = 0;
  if (rank != 0) {
    if ((code = gaspi_notify_waitsome(segment, 0, 1, &id, timeout)) != GASPI_SUCCESS) return failed("wait for the token", code);
    gaspi_notify_reset(segment, id, &value);
  }
  token[1] = token[0] + rank + 1;
  code = gaspi_write_notify(segment, sizeof(unsigned), (gaspi_rank_t)((rank + 1) % count), segment, 0, sizeof(unsigned), 0, 1, 0,
                            timeout);
  if (code != GASPI_SUCCESS) return failed("write", code);
  if ((code = gaspi_wait(0, timeout)) != GASPI_SUCCESS) return failed("queue", code);
  if (rank == 0) {
    if ((code = gaspi_notify_waitsome(segment, 0, 1, &id, timeout)) != GASPI_SUCCESS) return failed("wait for the token", code);
    printf("the token came back as %u, after %u ranks\n", token[0], (unsigned)count);
    if (token[0] != count * (count + 1U) / 2) return 1;
  }
  if ((code = gaspi_barrier(GASPI_GROUP_ALL, timeout)) != GASPI_SUCCESS) return failed("barrier", code);
  gaspi_printf("%.3f ms in barriers\n", (double)in_barriers);
  code = gaspi_proc_term(timeout);
  return code == GASPI_SUCCESS ? 0 : failed("term", code);
}
