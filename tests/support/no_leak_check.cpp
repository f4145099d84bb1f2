// SPDX-License-Identifier: Apache-2.0
// For test programs that start and end many of UCX's workers: each has a thread of UCX's own, and now and then the leak checker
// faults itself while it looks at one that has just ended. Under the address sanitizer everything else is still checked.
extern "C" {
// NOLINTNEXTLINE(bugprone-reserved-identifier): the sanitizer asks for this name
__attribute__((visibility("default"))) int __lsan_is_turned_off();
__attribute__((visibility("default"))) int __lsan_is_turned_off() { return 1; }
}
