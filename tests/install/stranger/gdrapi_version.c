/* SPDX-License-Identifier: Apache-2.0 */
/* A C program that knows nothing but gdrapi.h; fails when the library is not of the header's version. */
#include <gdrapi.h>
#include <stdio.h>

int main(void) {
  int major = 0, minor = 0;
  gdr_runtime_get_version(&major, &minor);
  printf("gdrapi %d.%d\n", major, minor);
  return major == GDR_API_MAJOR_VERSION && minor == GDR_API_MINOR_VERSION ? 0 : 1;
}
