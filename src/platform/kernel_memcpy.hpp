// SPDX-License-Identifier: Apache-2.0
// How this machine's kernel copies few bytes: what soft-RoCE stores in the memory of a process, which looks at it meanwhile.
#pragma once

#include <string_view>

namespace gigabar::inline v0 {

// Whether memcpy() of 8 aligned bytes is one store. It is on x86-64 before Linux 6.4 where the processor has REP_GOOD and not ERMS:
// `rep movsq`. With ERMS, or FSRM from Linux 6.4, it is `rep movsb`, which may stop between any two bytes; without, two moves of
// the same 8 bytes, so that a value which a reader took in between comes again. Other processors count as not: aarch64 does the
// latter.
bool kernel_stores_words_once(std::string_view cpuinfo, std::string_view release);
// Of this machine (platform_roots(), uname); looked at once.
bool kernel_stores_words_once();

}  // namespace gigabar::inline v0
