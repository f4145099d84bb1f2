// SPDX-License-Identifier: Apache-2.0
// A file of the build inside the library.
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
