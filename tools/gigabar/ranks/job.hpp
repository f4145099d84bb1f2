// SPDX-License-Identifier: Apache-2.0
// What every command between ranks is made of: how a rank joins the job and leaves it, what ranks tell each other beside what they
// measure, their start where no launcher started them, and who speaks when something fails.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gigabar/device.hpp"
#include "gigabar/fabric.hpp"
#include "support/failure.hpp"
#include "support/options.hpp"
#include "support/report.hpp"

namespace gigabar::tool::ranks {

// --- Options --------------------------------------------------------------------------------------------------------------------

// With which every command between ranks chooses transports, paths, rails and limits: FabricOptions under the same names.
struct FabricSettings {
  FabricOptions options;                                    // once they are settled, all that is asked for
  std::vector<std::string> required, preferred, forbidden;  // names of paths, as typed
  double timeout_seconds = 30;                              // of one wait

  Timeout timeout() const noexcept;
};

inline constexpr const char* kTimeoutOfAWait =
    "Of one wait (for a rank, a connection, a message), not of the whole run: one that takes longer ends the run";

// --transport, --require, --prefer, --forbid, --gdr-limit, --gdr-read-limit, --eager-limit, --kernel-limit, --chunk, --chunks,
// --stripe, --rails, --rail-count, --rail-policy, --cpus, --timeout; `timeout_help`: what that is of.
void add_fabric_options(const Command& command, FabricSettings& settings, const char* timeout_help = kTimeoutOfAWait);

// What the options say together, settled. Ends the command as bad usage when a path is named twice, more than one is required, or a
// CPU may not be used.
FabricOptions fabric_options(const FabricSettings& settings);

// The options that all commands between ranks have.
struct JobOptions {
  std::string json_path;
  FabricSettings fabric;
};
// --json, and those of the fabric.
void add_job_options(const Command& command, JobOptions& options, const char* timeout_help = kTimeoutOfAWait);

// --- What ranks tell each other -------------------------------------------------------------------------------------------------

// For a wait while another rank does `count` things, each with its own deadline.
Timeout times(Timeout one, std::int64_t count) noexcept;

inline constexpr std::size_t kMaxIntroductionBytes = 65536;
inline constexpr SegmentId kSegment = 0;  // of the memory that is measured

bool is_of_stand_in(const Json& introduction);
// A text of the introduction, fit for a terminal; empty: none.
std::string text_of(const Json& introduction, const char* key);

// --- A rank ---------------------------------------------------------------------------------------------------------------------

// Ends the command as bad usage where it is not for so many ranks.
using CountCheck = std::function<void(Rank rank_count)>;
CountCheck exactly_two(std::string_view command);

// Ends the command with the error of a wait for that rank; it is named where it did nothing in time.
[[noreturn]] void fail_waiting_for(Rank rank, Timeout timeout, const Error& error);

// One rank, from joining the job to leaving it. Rank 0 has the report. A command's session has run(), which does all of it.
class RankSession {
 public:
  // Joins the job. Rank 0 first ends the command where the report cannot be written. `check_count`: is asked before that where the
  // environment says how many ranks there are, so that no rank is waited for in vain; else when all have come.
  RankSession(std::string_view command, const JobOptions& options, const Invocation& invocation, CountCheck check_count);
  // Of two ranks.
  RankSession(std::string_view command, const JobOptions& options, const Invocation& invocation)
      : RankSession(command, options, invocation, exactly_two(command)) {}
  RankSession(const RankSession&) = delete;
  RankSession& operator=(const RankSession&) = delete;

  Fabric& fabric() noexcept { return fabric_; }
  Rank rank() const noexcept { return fabric_.rank(); }

 protected:
  // Waits for all ranks: from here on nobody refuses and leaves before all have come. Where some do not come rank 0 ends with their
  // numbers and the reason of each, and the others as rank 0 says. Afterwards this thread, and what it allocates, is where the
  // fabric's are.
  void join();
  // Whether all ranks, each of which asks, have the same values.
  template <class... Values>
  bool is_same_everywhere(const Values&... values) {
    std::string text;
    ((text += fmt::format("{} ", values)), ...);
    return is_same_text(text);
  }
  // Ends the command as bad usage where the values differ: started with different options ranks would wait for each other in vain.
  template <class... Values>
  void agree(const Values&... values) {
    if (!is_same_everywhere(values...)) refuse_usage("the ranks were started with different options; give all of them the same");
  }
  void meet(Timeout timeout) { require(fabric_.barrier({}, timeout)); }
  // The session's device. Ends the command where this process does not have it.
  static DeviceInfo device_of(int index);

  // A text of every rank, in their order, at rank 0; nothing elsewhere.
  std::vector<std::string> gather(std::string own, std::size_t most_bytes, Timeout timeout);
  // The same as JSON objects: what others sent is not trusted.
  std::vector<Json> gather_introductions(const Json& own, std::size_t most_bytes, Timeout timeout);
  // How a rank introduces itself: host, local rank, device.
  Json introduction_of(const std::optional<DeviceInfo>& device) const;
  // Gathers the introductions; rank 0 prints who is who, each with its "note", says whether stand-ins are among them, and has all
  // in the document.
  std::vector<Json> introduce(const Json& own);
  Json settings_json() const;
  // Into the document; those that are no defaults are printed with who set them.
  void tell_settings();
  // Says that data are wrong, where they are; the command then ends with the first of it.
  void complain(const Complaint& complaint, const std::string& count);
  // Until the rank leaves.
  void register_segment(SegmentId id, void* address, std::size_t bytes);
  // All ranks leave: rank 0 writes the report. Ends the command where data were wrong.
  void leave(Timeout timeout);

  Timeout timeout() const noexcept { return timeout_; }
  Report* report() noexcept { return report_.get(); }  // at rank 0 only

  std::vector<std::shared_ptr<void>> memory_;  // of segments and messages: outlives the fabric

 private:
  bool is_same_text(std::string_view text);

  Fabric fabric_;
  std::vector<SegmentId> segments_;
  const CountCheck check_count_;
  const Timeout timeout_;
  std::unique_ptr<Report> report_;
  std::string first_wrong_;
};

// A launcher has started this process as a rank. Ends the command where Fabric::open() would refuse what launchers have left.
bool is_under_launcher();
// The rank's number as the launcher wrote it; "0" when nobody says. Rank 0 speaks, also before the fabric is open.
std::string rank_by_environment();
// Starts `rank_count` ranks of this same command on this host and waits for them.
void run_local_ranks(unsigned rank_count, std::string_view command, Invocation& invocation);
// Ends a rank as `failure` says. Only rank 0 says how the command line cannot be followed: it is the same one everywhere. Another
// one first waits until rank 0 has left, or a moment where there is no job yet: a launcher ends all ranks when it sees the first
// one fail.
void end_rank(const CommandFailure& failure, RankSession* session, Invocation& invocation);

// A command as one rank of a job, or its own `local_count` ranks where there is no launcher. Session: a RankSession that is made of
// a plan and the invocation. `make_plan` settles the fabric's options too, and ends as bad usage where the command line cannot be
// followed.
template <class Session, class MakePlan>
void run_ranks(std::string_view command, unsigned local_count, const MakePlan& make_plan, Invocation& invocation) {
  std::unique_ptr<Session> session;
  try {
    const auto plan = make_plan();
    if (!is_under_launcher()) return run_local_ranks(local_count, command, invocation);
    session = std::make_unique<Session>(plan, invocation);
    session->run();
  } catch (const CommandFailure& failure) {
    end_rank(failure, session.get(), invocation);
  }
}

// Such a command of two ranks; `make_plan` gets its options.
template <class Session, class Options, class MakePlan>
Subcommand<Options> add_pair_command(const Command& program, Invocation& invocation, std::string_view name, const char* description,
                                     const MakePlan& make_plan) {
  return add_subcommand<Options>(program, invocation, name, description,
                                 [name, make_plan](const Options& options, Invocation& invoked) {
                                   run_ranks<Session>(name, 2, [&] { return make_plan(options); }, invoked);
                                 });
}

}  // namespace gigabar::tool::ranks
