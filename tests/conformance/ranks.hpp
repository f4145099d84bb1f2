// SPDX-License-Identifier: Apache-2.0
// Tests whose ranks are real processes. A test names a body; each rank runs it in a process that was started anew (fork and exec of
// this program), with the environment a launcher leaves. What fails there is told here, with file, line and rank.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "gigabar/fabric.hpp"
#include "support/free_port.hpp"

namespace gigabar::test {

// What the memory of a test is. `device` is asked for on GPU machines only.
enum class MemoryChoice : std::uint8_t { host, shared, stand_in, device };
constexpr bool is_host(MemoryChoice choice) noexcept { return choice == MemoryChoice::host || choice == MemoryChoice::shared; }
std::string_view name_of(MemoryChoice choice) noexcept;

// What a test asks of its ranks; travels to them as text.
struct RankSetup {
  Rank rank_count = 2;
  TransportKind transport = TransportKind::local;
  MemoryChoice origin = MemoryChoice::host;  // memory that ranks post from
  MemoryChoice target = MemoryChoice::host;  // memory that others write to and read from
  TransferPath path = TransferPath::none;    // required of the fabric; none: as it chooses
  std::uint64_t amount = 0;                  // the body's to read: how often, how many
  std::string word;                          // the body's to read; without spaces

  std::string to_text() const;
  static RankSetup parse(const std::string& text);
  // "local_host_stand_in_bar_2": a test's name.
  std::string name() const;
};

// Ends every wait of a body that works, however slow the machine.
inline constexpr Timeout kPatience = Timeout::of(std::chrono::seconds(20));

// --- In a rank's process ---------------------------------------------------------------------------------------------------------

// What a body knows of its test.
class RankProcess {
 public:
  RankProcess();

  Rank rank() const noexcept { return rank_; }
  Rank rank_count() const noexcept { return setup_.rank_count; }
  const RankSetup& setup() const noexcept { return setup_; }
  // Only the setup's transport, only its path.
  FabricOptions options() const;

  // Waits until every rank is here, by way of the test's process and not of the fabric. False, with a failure, when another rank
  // ended before, or 60 s went by.
  [[nodiscard]] bool meet();
  // One word to the test, which waits for it with RankJob::hear(); and the next one from it. Nothing: it did not come in 60 s.
  void tell(const std::string& word);
  std::optional<std::string> hear();

 private:
  Rank rank_ = 0;
  RankSetup setup_;
  int control_ = -1;
};

struct RankBody {
  void (*with_fabric)(RankProcess&, Fabric&) = nullptr;  // the harness opens before, and after it meets and closes
  void (*bare)(RankProcess&) = nullptr;
};
bool add_body(const char* name, RankBody body);

// --- In the test's process -------------------------------------------------------------------------------------------------------

// The ranks of one test. Its destructor kills what still runs.
class RankJob {
 public:
  // `limit`: until the last rank has ended; then they are killed and the test has failed.
  RankJob(std::string body, RankSetup setup, std::chrono::seconds limit = std::chrono::seconds(50));
  ~RankJob();
  RankJob(const RankJob&) = delete;
  RankJob& operator=(const RankJob&) = delete;

  // For one rank, before it is started; null: not set.
  void set_environment(Rank rank, const std::string& name, const char* value);
  void set_body(Rank rank, std::string body) { bodies_[rank] = std::move(body); }
  void start(Rank rank);
  void start_all();

  // Waits for that word of that rank; false, with a failure, when the rank ended or said another.
  [[nodiscard]] bool hear(Rank rank, const std::string& word);
  // Its next word, when it has said one.
  std::optional<std::string> word_of(Rank rank);
  void tell(Rank rank, const std::string& word);
  // No meeting waits for this rank.
  void excuse(Rank rank) { excused_.insert(rank); }
  // A rank that is killed here is excused, and need not succeed. One that is stopped stands still when this returns.
  void send_signal(Rank rank, int signal);
  // Waits until the rank has ended, without judging how.
  void wait_end(Rank rank);
  // Waits until all have ended. Those that UCX ended by an assertion of its own; finish() does not judge them.
  std::set<Rank> forgive_ucx_aborts();
  pid_t process(Rank rank) const;
  std::uint16_t master_port() const noexcept { return master_port_; }

  // Until every rank has ended; each has to succeed.
  void finish();

 private:
  struct Child;
  Child* child(Rank rank);
  std::vector<std::string> environment_of(Rank rank) const;
  // Moves pipes and meetings on until `is_done`, or the limit is over (false).
  bool pump(const std::function<bool()>& is_done);
  // Until all have ended, or the limit is over (false).
  bool wait_all();
  void take_control(Child& child);
  static void take_output(Child& child);
  void hold_meeting();

  std::string body_;
  RankSetup setup_;
  std::int64_t deadline_ns_;
  std::chrono::seconds limit_;
  std::uint16_t master_port_;
  std::string key_, id_;
  std::map<Rank, std::string> bodies_;
  std::map<Rank, std::map<std::string, std::optional<std::string>>> variables_;
  std::map<Rank, std::unique_ptr<Child>> children_;
  std::set<Rank> excused_;
};

// Every rank runs `body` and has to succeed.
void run_ranks(const std::string& body, const RankSetup& setup, std::chrono::seconds limit = std::chrono::seconds(50));

// Which transports the tests are made for: GIGABAR_CONFORMANCE_TRANSPORTS ("local,verbs"), else local, tcp, and ucx where it is
// there.
const std::vector<TransportKind>& tested_transports();
bool is_tested(TransportKind kind);
// Of sockets: the receiver's CPU places all bytes.
constexpr bool is_by_sockets(TransportKind kind) noexcept { return kind == TransportKind::ucx || kind == TransportKind::tcp; }
// One setup per tested transport.
std::vector<RankSetup> each_transport(Rank rank_count);
// GoogleTest names the parameter of a test that failed.
void PrintTo(const RankSetup& setup, std::ostream* out);
// A test's name from its parameter.
std::string setup_name(const testing::TestParamInfo<RankSetup>& info);

// --- What an outcome was --------------------------------------------------------------------------------------------------------

testing::AssertionResult is_ok(const Result<void>& outcome);
template <class T>
testing::AssertionResult is_ok(const Result<T>& result) {
  if (result.is_ok()) return testing::AssertionSuccess();
  return testing::AssertionFailure() << result.error().message();
}
// An error with that status whose one line holds `text`.
testing::AssertionResult fails(const Result<void>& outcome, Status status, std::string_view text = {});
template <class T>
testing::AssertionResult fails(const Result<T>& result, Status status, std::string_view text = {}) {
  if (result.is_ok()) return testing::AssertionFailure() << "succeeded";
  return fails(Result<void>(Error(result.error())), status, text);
}

// A bad argument: invalid_argument or out_of_range, and its one line holds `text`.
testing::AssertionResult refuses(const Result<void>& outcome, std::string_view text = {});
template <class T>
testing::AssertionResult refuses(const Result<T>& result, std::string_view text = {}) {
  return refuses(result.is_ok() ? Result<void>() : Result<void>(Error(result.error())), text);
}

// Where everything takes longer, in an emulated processor, GIGABAR_CONFORMANCE_SCALE=20 makes rounds so many times fewer; a
// sanitizer does the same.
unsigned scale();
std::uint64_t rounds(std::uint64_t count);
// The size of the largest transfers: there at most 17 MiB, which is still more than one work request carries.
std::size_t largest(std::size_t bytes);

}  // namespace gigabar::test

// A body with an open fabric: RANK_BODY(name) { ... me ... fabric ... }. And one that opens itself.
#define RANK_BODY(name)                                                                                                        \
  static void name([[maybe_unused]] gigabar::test::RankProcess& me, [[maybe_unused]] gigabar::Fabric& fabric);                 \
  [[maybe_unused]] static const bool name##_is_known = gigabar::test::add_body(#name, {.with_fabric = name, .bare = nullptr}); \
  static void name([[maybe_unused]] gigabar::test::RankProcess& me, [[maybe_unused]] gigabar::Fabric& fabric)
#define BARE_RANK_BODY(name)                                                                                                   \
  static void name([[maybe_unused]] gigabar::test::RankProcess& me);                                                           \
  [[maybe_unused]] static const bool name##_is_known = gigabar::test::add_body(#name, {.with_fabric = nullptr, .bare = name}); \
  static void name([[maybe_unused]] gigabar::test::RankProcess& me)
