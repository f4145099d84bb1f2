// SPDX-License-Identifier: Apache-2.0
// Paths are named: explain() says what the report says afterwards, policies are kept or refused with the reason, limits are exact.
#include <algorithm>
#include <array>

#include "conformance/rank_segment.hpp"

namespace gigabar::test {
namespace {

constexpr std::size_t kSpan = (std::size_t{1} << 20) + 64;

Preference& member(PathPolicy& policy, TransferPath path) {
  switch (path) {
    case TransferPath::gdr: return policy.gdr;
    case TransferPath::p2p: return policy.p2p;
    case TransferPath::staged: return policy.staged;
    default: return policy.bar;
  }
}
PostOptions with(TransferPath path, Preference preference) {
  PathPolicy policy;
  member(policy, path) = preference;
  return {.queue = 0, .policy = policy};
}

// Whether there was an operation at all; its report has to say what was explained.
bool agrees(Fabric& fabric, const Result<Explanation>& said, const Result<Operation>& posted, std::uint64_t bytes) {
  EXPECT_TRUE(is_ok(said));
  if (!said) return false;
  EXPECT_EQ(said->is_possible, posted.is_ok()) << (posted ? said->reason : posted.error().message());
  EXPECT_FALSE(said->reason.empty());
  for (const auto& other : said->alternatives) {
    EXPECT_FALSE(other.name.empty());
    EXPECT_FALSE(other.why_not.empty()) << other.name;
  }
  if (!posted) {
    EXPECT_TRUE(fails(posted, Status::unavailable));
    return false;
  }
  EXPECT_TRUE(is_ok(fabric.wait(0, kPatience)));
  const auto report = fabric.report(*posted);
  EXPECT_TRUE(is_ok(report));
  if (!report) return true;
  EXPECT_EQ(gigabar::name_of(said->path), gigabar::name_of(report->path))
      << bytes << " bytes: " << said->reason << " / " << report->reason;
  EXPECT_EQ(said->transport, report->transport) << bytes << " bytes";
  EXPECT_NE(said->to_text().find(gigabar::name_of(report->path)), std::string::npos) << said->to_text();
  for (const RailShare& share : report->rails) {
    EXPECT_NE(std::ranges::find(said->rails, share.rail), said->rails.end()) << share.rail << " was not explained";
  }
  return true;
}

RANK_BODY(explain_then_do) {
  RankSegment origin(fabric, kOrigin, me.setup().origin, kSpan), target(fabric, kTarget, me.setup().target, kSpan);
  const Rank other = (me.rank() + 1) % me.rank_count();
  ASSERT_TRUE(me.meet());
  const std::uint64_t before = fabric.statistics().operations;
  EXPECT_TRUE(is_ok(fabric.explain_write({kOrigin, 3}, {other, kTarget, 5}, 70000, kPatience)));
  EXPECT_TRUE(is_ok(fabric.explain_read({kOrigin, 3}, {other, kTarget, 5}, 70000, kPatience)));
  EXPECT_EQ(fabric.statistics().operations, before) << "explaining does nothing";
  ASSERT_TRUE(me.meet());
  for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{64}, std::uint64_t{8192},
                                    std::uint64_t{30000}, std::uint64_t{32769}, std::uint64_t{131073}, std::uint64_t{1} << 20}) {
    for (const TransferPath path :
         {TransferPath::none, TransferPath::bar, TransferPath::p2p, TransferPath::gdr, TransferPath::staged}) {
      for (const Preference preference : {Preference::prefer, Preference::require, Preference::forbid}) {
        const PostOptions options = path == TransferPath::none ? PostOptions{} : with(path, preference);
        const LocalPlace here{kOrigin, 3};
        const RemotePlace there{other, kTarget, 5};
        SCOPED_TRACE(std::string(gigabar::name_of(path)) + " " + std::to_string(int(preference)) + ", bytes " +
                     std::to_string(bytes));
        agrees(fabric, fabric.explain_write(here, there, bytes, kPatience, options), fabric.write(here, there, bytes, options),
               bytes);
        agrees(fabric, fabric.explain_read(here, there, bytes, kPatience, options), fabric.read(here, there, bytes, options),
               bytes);
      }
    }
  }
  ASSERT_TRUE(me.meet());
}

// A path that was forbidden is never taken; one that was required is taken or refused.
RANK_BODY(keep_policies) {
  RankSegment origin(fabric, kOrigin, me.setup().origin, kSpan), target(fabric, kTarget, me.setup().target, kSpan);
  const Rank other = (me.rank() + 1) % me.rank_count();
  ASSERT_TRUE(me.meet());
  for (const std::uint64_t bytes : {std::uint64_t{64}, std::uint64_t{20000}, std::uint64_t{500000}}) {
    for (const TransferPath path : {TransferPath::bar, TransferPath::p2p, TransferPath::gdr, TransferPath::staged}) {
      for (const Preference preference : {Preference::require, Preference::forbid}) {
        SCOPED_TRACE(std::string(gigabar::name_of(path)) + " " + std::to_string(int(preference)) + ", bytes " +
                     std::to_string(bytes));
        const auto posted = fabric.write({kOrigin, 0}, {other, kTarget, 0}, bytes, with(path, preference));
        if (!posted) {
          EXPECT_TRUE(fails(posted, Status::unavailable));
          if (preference == Preference::require) {
            EXPECT_TRUE(fails(posted, Status::unavailable, gigabar::name_of(path)));
          }
          continue;
        }
        EXPECT_TRUE(is_ok(fabric.wait(0, kPatience)));
        const auto report = fabric.report(*posted);
        ASSERT_TRUE(is_ok(report));
        if (is_host(me.setup().origin) && is_host(me.setup().target)) continue;  // not GPU memory
        EXPECT_EQ(report->path == path, preference == Preference::require)
            << gigabar::name_of(report->path) << ": " << report->reason;
      }
    }
  }
  ASSERT_TRUE(me.meet());
}

// Where every way is forbidden the error tells of each transport why.
RANK_BODY(forbid_everything) {
  RankSegment origin(fabric, kOrigin, me.setup().origin, kSpan), target(fabric, kTarget, me.setup().target, kSpan);
  ASSERT_TRUE(me.meet());
  const PathPolicy nothing{Preference::forbid, Preference::forbid, Preference::forbid, Preference::forbid};
  const PostOptions options{.queue = 0, .policy = nothing};
  const Rank other = (me.rank() + 1) % me.rank_count();
  const auto transport = gigabar::name_of(me.setup().transport);
  EXPECT_TRUE(fails(fabric.write({kOrigin, 0}, {other, kTarget, 0}, 64, options), Status::unavailable, transport));
  EXPECT_TRUE(fails(fabric.read({kOrigin, 0}, {other, kTarget, 0}, 300000, options), Status::unavailable, transport));
  const auto said = fabric.explain_write({kOrigin, 0}, {other, kTarget, 0}, 64, kPatience, options);
  ASSERT_TRUE(is_ok(said));
  EXPECT_FALSE(said->is_possible);
  EXPECT_FALSE(said->alternatives.empty());
  EXPECT_TRUE(is_ok(fabric.write({kOrigin, 0}, {other, kTarget, 0}, 64))) << "only that operation was meant";
  EXPECT_TRUE(is_ok(fabric.wait(0, kPatience)));
  ASSERT_TRUE(me.meet());
  EXPECT_TRUE(target.is_untouched_around(0, 64));
  ASSERT_TRUE(me.meet());
}

// One operation's own chunk, up to the fabric's.
RANK_BODY(cut_into_own_chunks) {
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  RankSegment origin(fabric, kOrigin, me.setup().origin, kBytes), target(fabric, kTarget, me.setup().target, kBytes);
  const Rank other = (me.rank() + 1) % me.rank_count();
  PostOptions options = with(TransferPath::staged, Preference::require);
  const auto chunks_of = [&](std::optional<std::uint64_t> chunk_bytes, std::uint64_t seed) {
    origin.put_pattern(0, kBytes, seed, 0);
    options.chunk_bytes = chunk_bytes;
    const auto posted = fabric.write({kOrigin, 0}, {other, kTarget, 0}, kBytes, options);
    EXPECT_TRUE(is_ok(posted));
    EXPECT_TRUE(is_ok(fabric.wait(0, kPatience)));
    EXPECT_TRUE(is_ok(fabric.flush(other, kPatience)));
    const auto report = posted ? fabric.report(*posted) : Result<OperationReport>(posted.error());
    EXPECT_TRUE(is_ok(report));
    return report && report->path == TransferPath::staged ? report->chunks : 0;
  };
  ASSERT_TRUE(me.meet());
  const unsigned usual = chunks_of(std::nullopt, 1);
  for (const std::uint64_t chunk_bytes : {std::uint64_t{4096}, std::uint64_t{65536}}) {
    const unsigned chunks = chunks_of(chunk_bytes, chunk_bytes + me.rank());
    EXPECT_EQ(chunks, usual == 0 ? 0 : kBytes / chunk_bytes);
    ASSERT_TRUE(me.meet());
    const Rank writer = (me.rank() + me.rank_count() - 1) % me.rank_count();
    EXPECT_TRUE(target.holds_pattern(0, kBytes, chunk_bytes + writer, 0));
    ASSERT_TRUE(me.meet());
  }
  EXPECT_EQ(chunks_of(std::uint64_t{1} << 40, 2), usual) << "more than the fabric's";
  // A read is answered with that chunk too.
  options.chunk_bytes = 4096;
  EXPECT_TRUE(is_ok(fabric.read({kOrigin, 0}, {other, kTarget, 0}, kBytes, options)));
  EXPECT_TRUE(is_ok(fabric.wait(0, kPatience)));
  ASSERT_TRUE(me.meet());
}

// So that copies out of the GPU, the way over the wire and copies into it overlap.
RANK_BODY(cut_by_itself) {
  constexpr std::size_t kBytes = std::size_t{4} << 20;
  RankSegment origin(fabric, kOrigin, me.setup().origin, kBytes), target(fabric, kTarget, me.setup().target, kBytes);
  const Rank other = (me.rank() + 1) % me.rank_count();
  origin.put_pattern(0, kBytes, me.rank(), 0);
  ASSERT_TRUE(me.meet());
  const auto posted = fabric.write({kOrigin, 0}, {other, kTarget, 0}, kBytes, with(TransferPath::staged, Preference::require));
  ASSERT_TRUE(is_ok(posted));
  EXPECT_TRUE(is_ok(fabric.wait(0, kPatience)));
  EXPECT_TRUE(is_ok(fabric.flush(other, kPatience)));
  const auto report = fabric.report(*posted);
  ASSERT_TRUE(is_ok(report));
  EXPECT_TRUE(report->path != TransferPath::staged || report->chunks >= 4) << report->chunks;
  ASSERT_TRUE(me.meet());
  EXPECT_TRUE(target.holds_pattern(0, kBytes, (me.rank() + me.rank_count() - 1) % me.rank_count(), 0));
  ASSERT_TRUE(me.meet());
}

// A program that looks at its own memory instead of waiting: the bytes come while it does nothing but ask for progress. Where the
// NIC places them it need not even do that.
BARE_RANK_BODY(look_at_memory) {
  FabricOptions options = me.options();
  options.progress_thread = false;
  auto fabric = Fabric::open(options);
  ASSERT_TRUE(is_ok(fabric));
  constexpr std::uint64_t kRounds = 200;
  const bool is_placed_by_nic = me.setup().transport == TransportKind::verbs;
  {
    RankSegment origin(*fabric, kOrigin, MemoryChoice::host, 8192), target(*fabric, kTarget, MemoryChoice::host, 8192);
    const Rank other = (me.rank() + 1) % me.rank_count();
    ASSERT_TRUE(is_ok(fabric->connect(other, kPatience)));
    ASSERT_TRUE(is_ok(fabric->remote_segment(other, kTarget, kPatience)));
    ASSERT_TRUE(is_ok(fabric->barrier({}, kPatience)));
    auto* const source = reinterpret_cast<volatile std::uint64_t*>(origin.address());
    const auto* const seen = reinterpret_cast<const volatile std::uint64_t*>(target.address());
    const auto post = [&](std::uint64_t round) {
      // Of both sorts: those that a NIC takes with the request itself, and those it fetches.
      const std::uint64_t bytes = round % 2 == 0 ? 8 : 2048;
      source[bytes / 8 - 1] = round;
      const auto posted = fabric->write({kOrigin, 0}, {other, kTarget, 0}, bytes);
      EXPECT_TRUE(is_ok(posted));
      if (posted) {
        const auto report = fabric->report(*posted);
        EXPECT_TRUE(is_ok(report));
      }
      return bytes / 8 - 1;
    };
    const auto comes = [&](std::uint64_t round, std::uint64_t index) {
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (seen[index] != round) {
        if (!is_placed_by_nic) {
          EXPECT_TRUE(is_ok(fabric->progress()));
        }
        if (std::chrono::steady_clock::now() > end) return false;
      }
      return true;
    };
    for (std::uint64_t round = 1; round <= kRounds; ++round) {
      const std::uint64_t index = round % 2 == 0 ? 0 : 255;
      if (me.rank() != 0) {
        ASSERT_TRUE(comes(round, index)) << "round " << round;
      }
      post(round);
      if (me.rank() == 0) {
        ASSERT_TRUE(comes(round, index)) << "round " << round;
      }
      ASSERT_TRUE(is_ok(fabric->wait(0, kPatience)));
    }
    ASSERT_TRUE(me.meet());
  }
  EXPECT_TRUE(is_ok(fabric->close(kPatience)));
  EXPECT_TRUE(fails(fabric->progress(), Status::unavailable, "closed"));
}

// --- Limits ---------------------------------------------------------------------------------------------------------------------

constexpr std::uint64_t kEager = 4096, kGdr = 32768, kGdrRead = 16384;

TransferPath path_of(Fabric& fabric, const Result<Operation>& posted, std::uint64_t bytes) {
  EXPECT_TRUE(is_ok(posted)) << bytes << " bytes";
  EXPECT_TRUE(is_ok(fabric.wait(0, kPatience))) << bytes << " bytes";
  if (!posted) return TransferPath::none;
  const auto report = fabric.report(*posted);
  EXPECT_TRUE(is_ok(report));
  return report ? report->path : TransferPath::none;
}

// The word says what NICs may register. Paths change between a limit and the next byte, not elsewhere.
BARE_RANK_BODY(switch_at_the_limits) {
  const bool is_registered = me.setup().word == "registered";
  FabricOptions options = me.options();
  options.stand_in_registration = is_registered;
  options.limits.eager_bytes = kEager;
  options.limits.gdr_bytes = kGdr;
  options.limits.gdr_read_bytes = kGdrRead;
  auto fabric = Fabric::open(options);
  ASSERT_TRUE(is_ok(fabric));
  {
    RankSegment origin(*fabric, kOrigin, me.setup().origin, kSpan), target(*fabric, kTarget, me.setup().target, kSpan);
    ASSERT_TRUE(me.meet());
    const RemotePlace there{(me.rank() + 1) % me.rank_count(), kTarget, 0};
    const bool is_local = me.setup().transport == TransportKind::local;
    const TransferPath direct = is_local ? TransferPath::p2p : is_registered ? TransferPath::gdr : TransferPath::staged;
    const TransferPath above = is_local ? TransferPath::p2p : TransferPath::staged;
    const auto expect_write = [&](std::uint64_t bytes, TransferPath path) {
      const TransferPath seen = path_of(*fabric, fabric->write({kOrigin, 0}, there, bytes), bytes);
      EXPECT_EQ(gigabar::name_of(seen), gigabar::name_of(path)) << "write of " << bytes;
    };
    const auto expect_read = [&](std::uint64_t bytes, TransferPath path) {
      const TransferPath seen = path_of(*fabric, fabric->read({kOrigin, 0}, there, bytes), bytes);
      EXPECT_EQ(gigabar::name_of(seen), gigabar::name_of(path)) << "read of " << bytes;
    };
    // The limits themselves first: what was decided for a size serves others between the same limits.
    expect_write(kEager, TransferPath::bar);
    expect_write(1, TransferPath::bar);
    expect_write(kGdr, direct);
    expect_write(kEager + 1, direct);
    expect_write(kGdr + 1, above);
    expect_write(1 << 20, above);
    expect_read(kGdrRead, direct);
    expect_read(kGdrRead + 1, above);
    expect_read(1 << 20, above);
    ASSERT_TRUE(me.meet());
  }
  if (!is_registered && me.setup().transport != TransportKind::local) {
    RankSegment origin(*fabric, kOrigin, me.setup().origin, kSpan), target(*fabric, kTarget, me.setup().target, kSpan);
    ASSERT_TRUE(me.meet());
    const RemotePlace there{(me.rank() + 1) % me.rank_count(), kTarget, 0};
    EXPECT_TRUE(
        fails(fabric->write({kOrigin, 0}, there, kGdr, with(TransferPath::gdr, Preference::require)), Status::unavailable, "gdr"));
    ASSERT_TRUE(me.meet());
  }
  EXPECT_TRUE(is_ok(fabric->close(kPatience)));
}

// What a rank takes inside a message is its own to say: the smaller limit of the two holds in both directions, for writes and for
// messages.
BARE_RANK_BODY(heed_the_smaller_limit) {
  FabricOptions options = me.options();
  options.limits.eager_bytes = me.rank() == 0 ? 2 * kEager : kEager;
  auto fabric = Fabric::open(options);
  ASSERT_TRUE(is_ok(fabric));
  {
    RankSegment origin(*fabric, kOrigin, me.setup().origin, kSpan), target(*fabric, kTarget, me.setup().target, kSpan);
    const Rank other = 1 - me.rank();
    ASSERT_TRUE(me.meet());
    EXPECT_EQ(path_of(*fabric, fabric->write({kOrigin, 0}, {other, kTarget, 0}, kEager), kEager), TransferPath::bar);
    EXPECT_NE(path_of(*fabric, fabric->write({kOrigin, 0}, {other, kTarget, 0}, kEager + 1), kEager + 1), TransferPath::bar);
    std::vector<char> out(kEager + 1), in(kEager + 1);
    for (const std::size_t bytes : {kEager, kEager + 1}) {
      const auto received = fabric->post_recv(other, 1, ~Tag{0}, in.data(), bytes);
      ASSERT_TRUE(is_ok(received));
      const auto sent = fabric->post_send(other, 1, out.data(), bytes);
      ASSERT_TRUE(is_ok(sent));
      ASSERT_TRUE(is_ok(fabric->wait_message(*received, kPatience)));
      ASSERT_TRUE(is_ok(fabric->wait_message(*sent, kPatience)));
      const auto report = fabric->report(*sent);
      ASSERT_TRUE(is_ok(report));
      EXPECT_EQ(report->reason.find("inside a message") != std::string::npos, bytes <= kEager) << bytes << ": " << report->reason;
    }
    ASSERT_TRUE(me.meet());
  }
  EXPECT_TRUE(is_ok(fabric->close(kPatience)));
}

// Chunks of the size that was asked for.
BARE_RANK_BODY(cut_into_chunks) {
  FabricOptions options = me.options();
  options.stand_in_registration = false;
  options.limits.chunk_bytes = 65536;
  options.policy.staged = Preference::require;
  auto fabric = Fabric::open(options);
  ASSERT_TRUE(is_ok(fabric));
  {
    RankSegment origin(*fabric, kOrigin, me.setup().origin, kSpan), target(*fabric, kTarget, me.setup().target, kSpan);
    ASSERT_TRUE(me.meet());
    const auto posted = fabric->write({kOrigin, 0}, {(me.rank() + 1) % me.rank_count(), kTarget, 0}, 10 * 65536);
    ASSERT_TRUE(is_ok(posted));
    ASSERT_TRUE(is_ok(fabric->wait(0, kPatience)));
    const auto report = fabric->report(*posted);
    ASSERT_TRUE(is_ok(report));
    EXPECT_EQ(report->chunks, 10U) << report->reason;
    ASSERT_TRUE(me.meet());
  }
  EXPECT_TRUE(is_ok(fabric->close(kPatience)));
}

// --- The tests ------------------------------------------------------------------------------------------------------------------

std::vector<RankSetup> device_setups() {
  std::vector<RankSetup> all = memory_setups();
  std::erase_if(all, [](const RankSetup& setup) { return is_host(setup.origin) && is_host(setup.target); });
  return all;
}
std::vector<RankSetup> stand_in_setups() {
  std::vector<RankSetup> all = device_setups();
  std::erase_if(
      all, [](const RankSetup& setup) { return setup.origin != MemoryChoice::stand_in || setup.target != MemoryChoice::stand_in; });
  return all;
}

class FabricPaths : public testing::TestWithParam<RankSetup> {};
TEST_P(FabricPaths, ExplainedAsTheyAreTaken) { run_ranks("explain_then_do", GetParam()); }
TEST_P(FabricPaths, PoliciesAreKept) { run_ranks("keep_policies", GetParam()); }
INSTANTIATE_TEST_SUITE_P(Memory, FabricPaths, testing::ValuesIn(memory_setups()), setup_name);

std::vector<RankSetup> host_setups() {
  std::vector<RankSetup> all = memory_setups();
  std::erase_if(all,
                [](const RankSetup& setup) { return setup.origin != MemoryChoice::host || setup.target != MemoryChoice::host; });
  return all;
}
class FabricPlainWrites : public testing::TestWithParam<RankSetup> {};
TEST_P(FabricPlainWrites, AreSeenByWhoLooks) { run_ranks("look_at_memory", GetParam()); }
INSTANTIATE_TEST_SUITE_P(Memory, FabricPlainWrites, testing::ValuesIn(host_setups()), setup_name);

class FabricForbidden : public testing::TestWithParam<RankSetup> {};
TEST_P(FabricForbidden, EverythingTellsWhy) { run_ranks("forbid_everything", GetParam()); }
INSTANTIATE_TEST_SUITE_P(Memory, FabricForbidden, testing::ValuesIn(device_setups()), setup_name);

class FabricLimitsExact : public testing::TestWithParam<RankSetup> {};
TEST_P(FabricLimitsExact, SwitchThere) { run_ranks("switch_at_the_limits", GetParam()); }
INSTANTIATE_TEST_SUITE_P(Refused, FabricLimitsExact, testing::ValuesIn(with_words(stand_in_setups(), {"refused"})), setup_name);

std::vector<RankSetup> registering_setups() {
  std::vector<RankSetup> all = with_words(stand_in_setups(), {"registered"});
  std::erase_if(all, [](const RankSetup& setup) { return is_by_sockets(setup.transport); });  // they write through mappings
  return all;
}
INSTANTIATE_TEST_SUITE_P(Registered, FabricLimitsExact, testing::ValuesIn(registering_setups()), setup_name);

class FabricLimitsOfTwo : public testing::TestWithParam<RankSetup> {};
TEST_P(FabricLimitsOfTwo, TheSmallerHolds) { run_ranks("heed_the_smaller_limit", GetParam()); }
INSTANTIATE_TEST_SUITE_P(Memory, FabricLimitsOfTwo, testing::ValuesIn(stand_in_setups()), setup_name);

class FabricChunks : public testing::TestWithParam<RankSetup> {};
TEST_P(FabricChunks, AreAsLargeAsAsked) { run_ranks("cut_into_chunks", GetParam()); }
TEST_P(FabricChunks, OfOneOperationAreToo) { run_ranks("cut_into_own_chunks", GetParam()); }
TEST_P(FabricChunks, OverlapByThemselves) { run_ranks("cut_by_itself", GetParam()); }
INSTANTIATE_TEST_SUITE_P(Memory, FabricChunks, testing::ValuesIn(stand_in_setups()), setup_name);

}  // namespace
}  // namespace gigabar::test
