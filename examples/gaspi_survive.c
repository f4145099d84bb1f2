/* SPDX-License-Identifier: Apache-2.0 */
/* The last rank is killed; the others find that out, form a group without it, and sum over that: gigabar run -n 3 --
 * ./gaspi_survive The calls of gaspi_proc_kill are counted by a function that replaces GASPI's own. */
#include <PGASPI.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int kills;

gaspi_return_t gaspi_proc_kill(const gaspi_rank_t rank, const gaspi_timeout_t timeout_ms) {
  ++kills;
  return pgaspi_proc_kill(rank, timeout_ms);
}

static int failed(const char* what, gaspi_return_t code) {
  fprintf(stderr, "%s: %s\n", what, gaspi_error_str(code));
  return 1;
}

int main(void) {
  const gaspi_timeout_t timeout = 20000;
  gaspi_return_t code = gaspi_proc_init(timeout);
  if (code != GASPI_SUCCESS) return failed("init", code);
  gaspi_rank_t rank = 0, count = 0;
  gaspi_proc_rank(&rank);
  gaspi_proc_num(&count);
  if (count < 2) return puts("start at least two ranks"), 1;
  const gaspi_rank_t victim = (gaspi_rank_t)(count - 1);
  if ((code = gaspi_barrier(GASPI_GROUP_ALL, timeout)) != GASPI_SUCCESS) return failed("barrier", code);
  if (rank == victim) return sleep(60), 1;
  if (rank == 0 && (code = gaspi_proc_kill(victim, timeout)) != GASPI_SUCCESS) return failed("kill", code);

  while ((code = gaspi_barrier(GASPI_GROUP_ALL, 1000)) == GASPI_TIMEOUT) continue;
  gaspi_state_t* const states = malloc(count * sizeof *states);
  if (states == NULL || gaspi_state_vec_get(states) != GASPI_SUCCESS || states[victim] != GASPI_STATE_CORRUPT)
    return failed("the victim is alive", code);

  gaspi_group_t group = 0;
  if ((code = gaspi_group_create(&group)) != GASPI_SUCCESS) return failed("group", code);
  for (gaspi_rank_t member = 0; member < count; ++member) {
    if (states[member] == GASPI_STATE_HEALTHY) gaspi_group_add(group, member);
  }
  free(states);
  if ((code = gaspi_group_commit(group, timeout)) != GASPI_SUCCESS) return failed("commit", code);
  int one = 1, sum = 0;
  code = gaspi_allreduce(&one, &sum, 1, GASPI_OP_SUM, GASPI_TYPE_INT, group, timeout);
  if (code != GASPI_SUCCESS) return failed("allreduce", code);
  gaspi_printf("%d of %u ranks go on; this one has killed %d\n", sum, (unsigned)count, kills);
  if ((code = gaspi_barrier(group, timeout)) != GASPI_SUCCESS) return failed("barrier", code);
  code = gaspi_proc_term(timeout);
  return code == GASPI_SUCCESS && sum == count - 1 ? 0 : failed("term", code);
}
