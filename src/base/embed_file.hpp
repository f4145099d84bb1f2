// SPDX-License-Identifier: Apache-2.0
// Files of the build inside the library.
#pragma once

// Defines `symbol`, at a multiple of 64, with the content of `file` (a string literal) and a zero byte behind it, so that a text
// can be read as a string.
#define GIGABAR_EMBED_FILE(symbol, file) \
  asm(".pushsection .rodata, \"a\"\n"    \
      ".balign 64\n"                     \
      ".hidden " #symbol                 \
      "\n"                               \
      ".global " #symbol "\n" #symbol    \
      ":\n"                              \
      ".incbin \"" file                  \
      "\"\n"                             \
      ".byte 0\n"                        \
      ".popsection\n");                  \
  extern "C" const unsigned char symbol[]

// Defines `symbol` as the fat binary that gigabar_device_code() made for this translation unit; as null where the build has none.
#if defined(GIGABAR_DEVICE_CODE)
#define GIGABAR_EMBED_DEVICE_CODE(symbol) GIGABAR_EMBED_FILE(symbol, GIGABAR_DEVICE_CODE)
#else
#define GIGABAR_EMBED_DEVICE_CODE(symbol) static const unsigned char* const symbol = nullptr
#endif
