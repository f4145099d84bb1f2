/* SPDX-License-Identifier: Apache-2.0 */
/* Each rank writes its number into the next rank's memory and raises a notification there: gigabar run -n 3 -- ./ranks_from_c
 * Rank 0 prints why the write took its path. */
#include <gigabar.h>
#include <stdio.h>

#define PATIENCE_NS INT64_C(10000000000)

/* Says what has failed, once. */
static gigabar_status tell(gigabar_status status) {
  if (status != GIGABAR_OK) fprintf(stderr, "%s\n", gigabar_last_error_message());
  return status;
}

static gigabar_status exchange(gigabar_fabric* fabric, uint32_t rank, uint32_t rank_count, uint64_t words[2]) {
  const gigabar_local_place own = {.segment = 1, .offset_bytes = 0};
  const gigabar_remote_place next = {.rank = (rank + 1) % rank_count, .segment = 1, .offset_bytes = sizeof words[0]};
  uint32_t id = 0;
  char* why = NULL;
  gigabar_status status = gigabar_segment_register(fabric, 1, words, 2 * sizeof words[0]);
  if (status == GIGABAR_OK) status = gigabar_barrier(fabric, NULL, 0, PATIENCE_NS); /* every rank has its segment */
  if (status == GIGABAR_OK) status = gigabar_fabric_write_notify(fabric, own, next, sizeof words[0], 0, 1, NULL, NULL);
  if (status == GIGABAR_OK) status = gigabar_notification_wait(fabric, 1, 0, 1, PATIENCE_NS, &id);
  if (status == GIGABAR_OK) status = gigabar_fabric_wait(fabric, 0, PATIENCE_NS);
  if (status == GIGABAR_OK && rank == 0) status = gigabar_fabric_explain_write(fabric, own, next, 8, PATIENCE_NS, NULL, &why);
  if (why != NULL) fputs(why, stdout);
  if (why != NULL) gigabar_text_free(why);
  if (status == GIGABAR_OK)
    status = gigabar_barrier(fabric, NULL, 0, PATIENCE_NS); /* nobody leaves before all have what they need */
  if (status == GIGABAR_OK) status = gigabar_segment_deregister(fabric, 1, PATIENCE_NS);
  return status;
}

int main(void) {
  gigabar_fabric* fabric = NULL;
  gigabar_fabric_info info = {.struct_size = sizeof info, .field_mask = GIGABAR_FABRIC_INFO_RANK | GIGABAR_FABRIC_INFO_RANK_COUNT};
  if (tell(gigabar_fabric_open(NULL, &fabric)) != GIGABAR_OK) return 1;
  if (tell(gigabar_fabric_describe(fabric, &info)) != GIGABAR_OK) return 1;
  uint64_t words[2] = {info.rank, UINT64_MAX};
  const uint32_t previous = (info.rank + info.rank_count - 1) % info.rank_count;
  if (tell(exchange(fabric, info.rank, info.rank_count, words)) != GIGABAR_OK) return 1;
  printf("rank %u has received %u\n", (unsigned)info.rank, (unsigned)words[1]);
  return tell(gigabar_fabric_close(fabric, PATIENCE_NS)) == GIGABAR_OK && words[1] == previous ? 0 : 1;
}
