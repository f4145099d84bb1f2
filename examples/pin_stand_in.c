/* SPDX-License-Identifier: Apache-2.0 */
/* Writes to pinned memory through libgdrapi on a machine without a GPU: GIGABAR_STAND_IN=1 ./pin_stand_in. With a GPU only the
 * allocation is another one, cudaMalloc's. */
#include <gdrapi.h>
#include <gigabar/stand_in.h>
#include <stdio.h>
#include <string.h>

#define BYTES GPU_PAGE_SIZE

int main(void) {
  const char message[] = "hello, GPU";
  char seen[sizeof message] = "";
  void* memory = NULL;
  void* mapped = NULL;
  gdr_mh_t handle = {0};
  gdr_t g = gdr_open();
  int code = g == NULL || gigabar_stand_in_allocate(0, BYTES, &memory);
  if (code == 0) code = gdr_pin_buffer(g, (unsigned long)memory, BYTES, 0, 0, &handle);
  if (code == 0) code = gdr_map(g, handle, &mapped, BYTES);
  if (code == 0) code = gdr_copy_to_mapping(handle, mapped, message, sizeof message);
  if (code == 0) code = gdr_copy_from_mapping(handle, seen, mapped, sizeof seen);
  if (code == 0) code = gdr_unmap(g, handle, mapped, BYTES);
  if (code == 0) code = gdr_unpin_buffer(g, handle);
  if (code == 0) code = gigabar_stand_in_free(memory);
  if (code == 0) code = gdr_close(g);
  if (code != 0) fputs("failed; GDRCOPY_ENABLE_LOGGING=1 says why\n", stderr);
  return code == 0 && strcmp(seen, message) == 0 ? 0 : 1;
}
