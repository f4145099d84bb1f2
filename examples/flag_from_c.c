/* SPDX-License-Identifier: Apache-2.0 */
/* A message and its flag into device memory, through the C interface: GIGABAR_STAND_IN=1 ./flag_from_c on a machine without a GPU.
 * With CUDA's own memory only the allocation is another one. */
#include <gigabar.h>
#include <stdio.h>
#include <string.h>

int main(void) {
  const char message[] = "hello, GPU";
  char seen[sizeof message] = "";
  gigabar_memory* memory = NULL;
  gigabar_mapping* mapping = NULL;
  void* address = NULL;
  gigabar_mapping_info info = {.struct_size = sizeof info, .field_mask = GIGABAR_MAPPING_BACKEND | GIGABAR_MAPPING_IS_STAND_IN};

  gigabar_status status = gigabar_memory_allocate(0, 65536, GIGABAR_ALLOCATOR_CUDA_MALLOC, &memory);
  if (status == GIGABAR_OK) status = gigabar_memory_address(memory, &address);
  if (status == GIGABAR_OK) status = gigabar_map(address, 65536, NULL, &mapping);
  if (status == GIGABAR_OK) status = gigabar_mapping_describe(mapping, &info);
  if (status == GIGABAR_OK)
    status = gigabar_publish64(mapping, 0, message, sizeof message, 4096, 1); /* a kernel waits for the flag */
  if (status == GIGABAR_OK) status = gigabar_copy_from(mapping, 0, seen, sizeof seen);
  if (status != GIGABAR_OK) fprintf(stderr, "%s\n", gigabar_last_error_message());
  if (status == GIGABAR_OK) printf("'%s' by backend %d%s\n", seen, info.backend, info.is_stand_in ? " [stand-in]" : "");
  if (mapping != NULL) gigabar_unmap(mapping);
  if (memory != NULL) gigabar_memory_free(memory);
  return status == GIGABAR_OK && strcmp(seen, message) == 0 ? 0 : 1;
}
