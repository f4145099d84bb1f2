// SPDX-License-Identifier: Apache-2.0
// Sets of CPUs, as ascending numbers, each once: their text, who may use which, and threads that are kept on some.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gigabar::inline v0 {

inline constexpr std::size_t kMaxCpus = 65536;  // beyond every kernel's CONFIG_NR_CPUS

// "0-7,16", as the kernel writes lists. Nothing for other text: an empty list or part, a range downwards, kMaxCpus and above.
std::optional<std::vector<int>> parse_cpu_list(std::string_view list);
std::string cpu_list_text(const std::vector<int>& cpus);

std::vector<int> cpus_in_both(const std::vector<int>& first, const std::vector<int>& second);
// The first of `cpus` that is not in `others`.
std::optional<int> first_cpu_outside(const std::vector<int>& cpus, const std::vector<int>& others);

// Empty: the machine does not say.
std::vector<int> online_cpus();
// Those that the calling thread may run on, and the threads that it starts; empty: the kernel does not say.
std::vector<int> usable_cpus();

// Keeps the calling thread on `cpus`; nothing is done for none. 0, or what the kernel answers: an errno.
int keep_this_thread_on(const std::vector<int>& cpus) noexcept;

// How a thread of the library begins, before it allocates anything: named for ps and top (at most 15 letters), and kept on `cpus`.
// Where the kernel refuses it runs as it is, with a word in the log (debug).
void settle_this_thread(const char* name, const std::vector<int>& cpus) noexcept;

}  // namespace gigabar::inline v0
