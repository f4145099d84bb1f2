/* SPDX-License-Identifier: Apache-2.0 */
/* Callers of other ages: one that was compiled with the first version of the structures, one whose structures end earlier still,
 * and one that knows more than the library. What lies behind and between their members is garbage, and the library neither reads
 * nor changes it. */
#include "abi/gigabar_1_0.h"

#include <stdlib.h>
#include <string.h>

/* check.h includes the header of today, which would declare everything once more. */
void report_failure(const char* file, int line, const char* what);
#define CHECK(condition) ((condition) ? (void)0 : report_failure(__FILE__, __LINE__, #condition))
#define CHECK_OK(call) CHECK((call) == GIGABAR_OK)
#define CASE(name) void case_##name(void);
#include "unit/c/cases.h"
#undef CASE

enum { kGarbage = 0xa5, kGuard = 64 };

/* A structure of `bytes` bytes in garbage, followed by more of it. */
static void* in_garbage(size_t bytes) {
  unsigned char* const memory = malloc(bytes + kGuard);
  CHECK(memory != NULL);
  memset(memory, kGarbage, bytes + kGuard);
  return memory;
}

/* Frees it when the library has left everything from byte `from` on as it was. */
static void check_and_free(void* structure, size_t from, size_t bytes) {
  const unsigned char* const memory = structure;
  size_t changed = 0;
  for (size_t i = from; i < bytes + kGuard; ++i) changed += memory[i] != kGarbage;
  CHECK(changed == 0);
  free(structure);
}

void case_structures_of_the_first_version(void) {
  gigabar_memory* memory = NULL;
  gigabar_mapping* mapping = NULL;
  void* address = NULL;
  gigabar_map_options* options = in_garbage(sizeof *options);
  gigabar_mapping_info* info = in_garbage(sizeof *info);
  gigabar_device_info* device = in_garbage(sizeof *device);
  gigabar_error* error = in_garbage(sizeof *error);
  CHECK_OK(gigabar_memory_allocate(0, 4096, GIGABAR_ALLOCATOR_CUDA_MALLOC, &memory));
  CHECK_OK(gigabar_memory_address(memory, &address));
  options->struct_size = sizeof *options;
  options->field_mask = GIGABAR_MAP_BACKEND; /* the other members are garbage */
  options->backend = GIGABAR_BACKEND_HOST;
  CHECK_OK(gigabar_map(address, 4096, options, &mapping));
  info->struct_size = sizeof *info;
  info->field_mask = GIGABAR_MAPPING_ALL;
  CHECK_OK(gigabar_mapping_describe(mapping, info));
  CHECK(info->field_mask == GIGABAR_MAPPING_ALL && info->bytes == 4096 && info->address == address && info->is_stand_in == 1);
  device->struct_size = sizeof *device;
  device->field_mask = GIGABAR_DEVICE_NAME | GIGABAR_DEVICE_IS_STAND_IN;
  CHECK_OK(gigabar_device_describe(0, device));
  CHECK(strstr(device->name, "stand-in") != NULL && device->is_stand_in == 1);
  error->struct_size = sizeof *error;
  error->field_mask = GIGABAR_ERROR_STATUS | GIGABAR_ERROR_MESSAGE;
  CHECK_OK(gigabar_last_error(error));
  CHECK(error->message == gigabar_last_error_message());
  CHECK_OK(gigabar_unmap(mapping));
  CHECK_OK(gigabar_memory_free(memory));
  check_and_free(options, offsetof(gigabar_map_options, verification), sizeof *options);
  check_and_free(info, offsetof(gigabar_mapping_info, is_shared) + sizeof info->is_shared, sizeof *info);
  check_and_free(device, offsetof(gigabar_device_info, numa_node), sizeof *device);
  check_and_free(error, sizeof *error, sizeof *error);
}

void case_structures_that_end_early(void) {
  /* As a version would have had them in which these were the last members. */
  const size_t options_bytes = offsetof(gigabar_map_options, verification),
               info_bytes = offsetof(gigabar_mapping_info, device_address);
  gigabar_memory* memory = NULL;
  gigabar_mapping* mapping = NULL;
  void* address = NULL;
  gigabar_map_options* options = in_garbage(options_bytes);
  gigabar_mapping_info* info = in_garbage(info_bytes);
  CHECK_OK(gigabar_memory_allocate(0, 4096, GIGABAR_ALLOCATOR_CUDA_MALLOC, &memory));
  CHECK_OK(gigabar_memory_address(memory, &address));
  options->struct_size = options_bytes;
  options->field_mask = GIGABAR_MAP_BACKEND;
  options->backend = GIGABAR_BACKEND_HOST;
  CHECK_OK(gigabar_map(address, 4096, options, &mapping));
  info->struct_size = info_bytes;
  info->field_mask = GIGABAR_MAPPING_ADDRESS | GIGABAR_MAPPING_BYTES;
  CHECK_OK(gigabar_mapping_describe(mapping, info));
  CHECK(info->address == address && info->bytes == 4096);
  /* A mask with a member that is not there is an error of the caller. */
  info->field_mask = GIGABAR_MAPPING_DEVICE;
  CHECK(gigabar_mapping_describe(mapping, info) == GIGABAR_INVALID_ARGUMENT);
  CHECK(strstr(gigabar_last_error_message(), "info->struct_size") != NULL);
  options->field_mask = GIGABAR_MAP_INHERIT_ON_FORK;
  gigabar_mapping* other = NULL;
  CHECK(gigabar_map(address, 4096, options, &other) == GIGABAR_INVALID_ARGUMENT && other == NULL);
  CHECK(strstr(gigabar_last_error_message(), "options->struct_size") != NULL);
  CHECK_OK(gigabar_unmap(mapping));
  CHECK_OK(gigabar_memory_free(memory));
  check_and_free(options, options_bytes, options_bytes);
  check_and_free(info, info_bytes, info_bytes);
}

void case_structures_of_a_later_version(void) {
  struct later {
    gigabar_device_info first;
    uint64_t more[4];
  };
  struct later* info = in_garbage(sizeof *info);
  info->first.struct_size = sizeof *info;
  info->first.field_mask = GIGABAR_DEVICE_NAME;
  CHECK_OK(gigabar_device_describe(0, &info->first)); /* asks for nothing that is unknown */
  info->first.field_mask = GIGABAR_DEVICE_NAME | UINT64_C(1) << 60;
  CHECK(gigabar_device_describe(0, &info->first) == GIGABAR_INVALID_ARGUMENT);
  CHECK(strstr(gigabar_last_error_message(), "info->field_mask") != NULL);
  check_and_free(info, offsetof(gigabar_device_info, uuid), sizeof *info);
}
