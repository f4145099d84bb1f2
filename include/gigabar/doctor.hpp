// SPDX-License-Identifier: Apache-2.0
// Checks of everything that decides the path of a transfer and its speed. A finding has the readings, a verdict, why it matters,
// and what to do. A check never changes the machine.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gigabar/export.hpp"
#include "gigabar/machine.hpp"
#include "gigabar/status.hpp"
#include "gigabar/topology.hpp"

namespace gigabar::inline v0 {

enum class Verdict : std::uint8_t {
  pass,
  warn,     // works, slower or less than it could
  fail,     // a path is broken, or wrong data may result
  unknown,  // the deciding value could not be read; this is not a pass
  skip,     // does not apply to this machine
};
GIGABAR_API std::string_view name_of(Verdict verdict) noexcept;  // "PASS", "WARN", ...

// One value that was read.
struct Reading {
  std::string source;  // a path, or a call with its object: "/proc/cmdline", "cuDeviceGetAttribute(GPU_DIRECT_RDMA_SUPPORTED)"
  std::string value;   // trimmed to one line; "missing", "permission denied" when it could not be read
};

struct Finding {
  std::string check;    // "pci.acs"
  std::string subject;  // "GPU 0000:3b:00.0 and mlx5_0"; empty: the machine
  Verdict verdict = Verdict::unknown;
  std::string statement;  // one sentence: the fact
  std::vector<Reading> readings;
  std::string remedy;         // what to do, with the command; empty for pass and skip
  bool needs_reboot = false;  // the remedy takes effect after a reboot
};

// The description of a check; the same for all its findings.
struct CheckInfo {
  std::string_view id;
  std::string_view title;  // "ACS redirection below a common switch"
  std::string_view why;    // one sentence: the impact of a failure
  bool is_probe = false;   // does something (registers, maps, copies) instead of only reading; on a live machine only
  // The page: paragraphs of plain text, without the headings.
  std::string_view what;  // what it examines
  std::string_view impact;
  std::string_view confirm;  // how to confirm it, with commands
  std::string_view remedy;   // with commands
  std::string_view source;   // the documents and reports that it is based on
};

// In the order in which they are run and listed. Never empty; ids are unique.
GIGABAR_API std::span<const CheckInfo> checks();
// Returns null when there is no such check.
GIGABAR_API const CheckInfo* find_check(std::string_view id);

// A message or an observation of a user, and what is known about it.
struct Symptom {
  std::string_view program;  // that prints it: "NCCL"; empty: a user's own words
  std::string_view text;     // the message as the program prints it, or "cannot register GPU memory: errno 14 (EFAULT)"
  std::span<const std::string_view> checks;  // ids, the likeliest first; empty: no check can see the cause
  std::string_view means;                    // the cause, in a sentence or two
  std::string_view remedy;                   // what to do
};
// The symptoms in users' own words, to choose from.
GIGABAR_API std::span<const Symptom> symptoms();
// The messages that programs print.
GIGABAR_API std::span<const Symptom> known_messages();

struct TellingLine {
  const Symptom* symptom = nullptr;
  std::size_t number = 0;  // of the line, from 1
  std::string text;        // the line, or its part around the recognised text: at most 200 printable characters
};

struct Diagnosis {
  std::vector<TellingLine> lines;  // the most significant first, each with another symptom; empty: nothing is known
  std::vector<std::string_view>
      checks;  // of all lines, in that order, each once; empty although `lines` is not: no check can detect the cause
};
// Diagnoses `text`: a sentence, a line of a program, or a whole log of any bytes. Messages that programs print come before users'
// words. Messages that name a cause come before those that only say that something failed.
// Threads: any. Cost: about 0.1 s and 6 MiB of memory per MiB of text.
GIGABAR_API Diagnosis diagnose(std::string_view text);

struct ExamineOptions {
  std::vector<std::string> only;               // ids, or groups by their first part ("pci"); empty: all, in the order of checks()
  bool with_probes = true;                     // false: no probe is run; a probe that `only` names is a `skip`
  std::chrono::milliseconds deadline{30'000};  // checks not begun by then are `unknown` with that reason
  std::function<void(const CheckInfo&)> on_begin;  // called before each check; may be empty
};

struct Examination {
  Topology topology;
  bool has_topology = true;  // false: it could not be discovered, and the last of its notes says why
  std::vector<Finding> findings;

  GIGABAR_API std::size_t count(Verdict verdict) const noexcept;
};

// Runs the checks. A check without a subject gives one `skip` that says why.
// Errors: invalid_argument (`only` names no check; the record lists similar ones). A check that fails to run is `unknown`.
// Threads: any; one examination at a time per process when probes run. Cost: below a second without probes, seconds with them.
GIGABAR_API Result<Examination> examine(const Machine& machine, const ExamineOptions& options = {});

// Whether a path can be used on this machine, with reason and remedy, and the check with the details.
struct PathReport {
  std::string path;         // "mapping.rm", "gdr.dmabuf", "p2p", "rdma", ...
  std::string description;  // "CPU mapping of GPU memory through the resource manager"
  Availability availability;
  std::string check;  // id of the check to read; empty: none
};
GIGABAR_API std::vector<PathReport> availability(const Machine& machine);

}  // namespace gigabar::inline v0
