/* SPDX-License-Identifier: Apache-2.0 */
/* Pins a buffer that begins anywhere in GPU memory, and finds its first byte in the mapping: GIGABAR_STAND_IN=1 ./pin_any_address.
 * gdr_map returns the address of the first pinned GPU page, not that of the buffer. Each step that fails says which. */
#include <gdrapi.h>
#include <gigabar/stand_in.h>
#include <stdio.h>
#include <string.h>

#define BYTES (2 * GPU_PAGE_SIZE)
#define OFFSET 1000 /* of the buffer in its allocation */

static int failed(const char* step, int code) {
  if (code != 0) fprintf(stderr, "%s: %s; GDRCOPY_ENABLE_LOGGING=1 says why\n", step, strerror(code));
  return code;
}

/* Writes `text` to GPU memory at `address`, reads it back, and sets `*is_same`. */
static int write_and_read(gdr_t g, gdr_mh_t handle, unsigned long address, const char* text, int* is_same) {
  char seen[64] = "";
  gdr_info_t info;
  void* mapped = NULL;
  char* buffer;
  int code = failed("gdr_get_info", gdr_get_info(g, handle, &info));
  if (code == 0) code = failed("gdr_map", gdr_map(g, handle, &mapped, info.mapped_size));
  if (code != 0) return code;
  buffer = (char*)mapped + (address - info.va);
  code = failed("gdr_copy_to_mapping", gdr_copy_to_mapping(handle, buffer, text, strlen(text) + 1));
  if (code == 0) code = failed("gdr_copy_from_mapping", gdr_copy_from_mapping(handle, seen, buffer, strlen(text) + 1));
  *is_same = strcmp(seen, text) == 0;
  return failed("gdr_unmap", gdr_unmap(g, handle, mapped, info.mapped_size)) != 0 ? -1 : code;
}

int main(void) {
  void* memory = NULL;
  gdr_mh_t handle = {0};
  int is_same = 0, code;
  gdr_t g = gdr_open();
  if (g == NULL) return perror("gdr_open"), 1;
  code = failed("allocate", gigabar_stand_in_allocate(0, BYTES, &memory)); /* with a GPU: cudaMalloc */
  if (code == 0) {
    const unsigned long address = (unsigned long)memory + OFFSET;
    code = failed("gdr_pin_buffer", gdr_pin_buffer(g, address, 4096, 0, 0, &handle));
    if (code == 0) {
      code = write_and_read(g, handle, address, "hello, GPU", &is_same);
      if (failed("gdr_unpin_buffer", gdr_unpin_buffer(g, handle)) != 0) code = -1;
    }
    if (failed("free", gigabar_stand_in_free(memory)) != 0) code = -1;
  }
  if (failed("gdr_close", gdr_close(g)) != 0) code = -1;
  return code == 0 && is_same ? 0 : 1;
}
