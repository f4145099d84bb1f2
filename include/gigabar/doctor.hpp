// SPDX-License-Identifier: Apache-2.0
// Checks of everything that decides which path a transfer takes and how fast it is: what was read, a verdict, why it matters, and
// what to do. A check never changes the machine.
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

namespace gigabar {

enum class Verdict : std::uint8_t {
  pass,
  warn,     // works, slower or less than it could
  fail,     // a path is broken, or wrong data may come of it
  unknown,  // what would decide could not be read; this is not a pass
  skip,     // does not apply to this machine
};
GIGABAR_API std::string_view name_of(Verdict verdict) noexcept;  // "PASS", "WARN", ...

// One thing that was looked at.
struct Reading {
  std::string source;  // a path, or a call with its object: "/proc/cmdline", "cuDeviceGetAttribute(GPU_DIRECT_RDMA_SUPPORTED)"
  std::string value;   // trimmed to one line; "missing", "permission denied" when it could not be read
};

struct Finding {
  std::string check;    // "pci.acs"
  std::string subject;  // "GPU 0000:3b:00.0 and mlx5_0"; empty: the machine
  Verdict verdict = Verdict::unknown;
  std::string statement;  // one sentence: what is so
  std::vector<Reading> readings;
  std::string remedy;         // what to do, with the command; empty for pass and skip
  bool needs_reboot = false;  // the remedy takes effect after a reboot
};

// What stands behind a check; the same for every finding of it.
struct CheckInfo {
  std::string_view id;
  std::string_view title;  // "ACS redirection below a common switch"
  std::string_view why;    // one sentence: what it costs when it is wrong
  bool is_trial = false;   // does something (registers, maps, copies) rather than reads; only on a live machine
  // The page: paragraphs of plain text, without the headings.
  std::string_view what;     // what it is
  std::string_view harm;     // how it hurts
  std::string_view confirm;  // how to confirm, with commands
  std::string_view mend;     // how to mend, with commands
  std::string_view source;   // documents and reports it rests on
};

// In the order in which they are run and listed. Never empty; ids are unique.
GIGABAR_API std::span<const CheckInfo> checks();
// Null: there is no such check.
GIGABAR_API const CheckInfo* find_check(std::string_view id);

// What a user sees, and what is known about it.
struct Symptom {
  std::string_view program;  // who prints it: "NCCL"; empty: these are a user's own words
  std::string_view text;     // the message as the program prints it, or "cannot register GPU memory: errno 14 (EFAULT)"
  std::span<const std::string_view> checks;  // ids, the likeliest first; empty: no check can see the cause
  std::string_view means;                    // the cause, in a sentence or two
  std::string_view remedy;                   // what to do
};
// Those in users' own words, to choose from.
GIGABAR_API std::span<const Symptom> symptoms();
// Those that programs print.
GIGABAR_API std::span<const Symptom> known_messages();

struct TellingLine {
  const Symptom* symptom = nullptr;
  std::size_t number = 0;  // of the line, from 1
  std::string text;        // the line, or the part of it around what was recognised: at most 200 printable characters
};

struct Diagnosis {
  std::vector<TellingLine> lines;  // the most telling first, each with another symptom; empty: nothing is known
  std::vector<std::string_view>
      checks;  // of all of them, in that order, each once; empty although `lines` is not: no check can see it
};
// What `text` tells: a sentence, a line of a program, or a whole log of any bytes. Messages that programs print come before users'
// words, and those that name a cause before those that only say that something failed.
// Threads: any. Cost: about 0.1 s and 6 MiB of memory per MiB of text.
GIGABAR_API Diagnosis diagnose(std::string_view text);

struct ExamineOptions {
  std::vector<std::string> only;               // ids, or groups by their first part ("pci"); empty: all, in the order of checks()
  bool with_trials = true;                     // false: none is run; one that `only` names is a `skip`
  std::chrono::milliseconds deadline{30'000};  // checks not begun by then are `unknown` with that reason
  std::function<void(const CheckInfo&)> on_begin;  // called before each check; may be empty
};

struct Examination {
  Topology topology;
  std::vector<Finding> findings;

  GIGABAR_API std::size_t count(Verdict verdict) const noexcept;
};

// Runs the checks. A check that has nothing to look at gives one `skip` that says why.
// Errors: invalid_argument (`only` names no check; the record lists near ones). A check that fails itself is `unknown`.
// Threads: any; one examination at a time per process when trials run. Cost: below a second without trials, seconds with them.
GIGABAR_API Result<Examination> examine(const Machine& machine, const ExamineOptions& options = {});

// Whether a path can be used on this machine, with reason and remedy, and the check that tells more.
struct PathReport {
  std::string path;         // "mapping.rm", "gdr.dmabuf", "p2p", "rdma", ...
  std::string description;  // "CPU mapping of GPU memory through the resource manager"
  Availability availability;
  std::string check;  // id of the check to read; empty: none
};
GIGABAR_API std::vector<PathReport> availability(const Machine& machine);

}  // namespace gigabar
