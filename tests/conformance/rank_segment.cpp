// SPDX-License-Identifier: Apache-2.0
#include "conformance/rank_segment.hpp"

#include <filesystem>

namespace gigabar::test {
namespace {

constexpr std::uint64_t kMinPieceBytes = 4096;  // the least chunk that may be asked for, and the least payload of a link

// Where there is a GPU, device memory too. Asked of the file system: CUDA must not be used in the process that forks.
std::vector<MemoryChoice> accelerators() {
  std::error_code ignored;
  if (std::filesystem::exists("/dev/nvidiactl", ignored)) return {MemoryChoice::stand_in, MemoryChoice::device};
  return {MemoryChoice::stand_in};
}

struct Ends {
  MemoryChoice origin, target;
};
std::vector<Ends> device_ends() {
  std::vector<Ends> all;
  for (const MemoryChoice memory : accelerators()) {
    all.push_back({memory, memory});
    all.push_back({MemoryChoice::host, memory});
    all.push_back({memory, MemoryChoice::host});
  }
  return all;
}

std::vector<TransferPath> device_paths(TransportKind kind) {
  switch (kind) {
    case TransportKind::local: return {TransferPath::bar, TransferPath::p2p, TransferPath::staged};
    case TransportKind::verbs: return {TransferPath::bar, TransferPath::gdr, TransferPath::staged};
    case TransportKind::ucx:
    case TransportKind::tcp: return {TransferPath::bar, TransferPath::staged};
  }
  return {};
}

// A copy engine cannot be given the pages of another process's plain host memory. A stand-in's are shared, whoever copies.
bool can_be_p2p(const RankSetup& ends) { return ends.origin != MemoryChoice::device || ends.target != MemoryChoice::host; }

}  // namespace

void expect_report(Fabric& fabric, Operation operation, const RankSetup& setup, std::uint64_t bytes) {
  const Result<OperationReport> report = fabric.report(operation);
  ASSERT_TRUE(is_ok(report));
  EXPECT_TRUE(report->is_done);
  EXPECT_EQ(report->status, Status::ok);
  EXPECT_EQ(report->bytes, bytes);
  if (bytes == 0) {
    EXPECT_EQ(report->path, TransferPath::none);
    return;
  }
  EXPECT_FALSE(report->reason.empty()) << "of path " << gigabar::name_of(report->path);
  EXPECT_NE(report->path, TransferPath::none);
  EXPECT_EQ(report->transport, setup.transport);
  EXPECT_GE(report->chunks, 1U);
  EXPECT_LE(report->chunks, 1 + bytes / kMinPieceBytes) << "cut far finer than any transport asks for: " << report->reason;
  EXPECT_GT(report->duration_ns, 0);
  std::uint64_t on_rails = 0;
  for (const RailShare& share : report->rails) on_rails += share.bytes;
  EXPECT_EQ(on_rails, bytes) << "over all rails";
  if (setup.path != TransferPath::none) {
    EXPECT_EQ(gigabar::name_of(report->path), gigabar::name_of(setup.path)) << bytes << " bytes: " << report->reason;
  }
}

std::vector<RankSetup> memory_setups(Rank rank_count) {
  std::vector<RankSetup> all = each_transport(rank_count);
  for (const RankSetup& plain : each_transport(rank_count)) {
    if (plain.transport == TransportKind::local) {
      all.push_back(plain);
      all.back().origin = all.back().target = MemoryChoice::shared;
    }
    for (const Ends& ends : device_ends()) {
      RankSetup setup = plain;
      setup.origin = ends.origin;
      setup.target = ends.target;
      all.push_back(setup);
    }
  }
  return all;
}

std::vector<RankSetup> data_setups() {
  std::vector<RankSetup> all = memory_setups();
  for (const RankSetup& ends : memory_setups()) {
    if (is_host(ends.origin) && is_host(ends.target)) continue;
    for (const TransferPath path : device_paths(ends.transport)) {
      if (path == TransferPath::p2p && !can_be_p2p(ends)) continue;
      RankSetup setup = ends;
      setup.path = path;
      all.push_back(setup);
    }
  }
  for (const Rank count : {1U, 3U, 4U}) {
    for (const RankSetup& setup : memory_setups(count)) {
      if (setup.origin == setup.target) all.push_back(setup);
    }
  }
  return all;
}

std::vector<RankSetup> rank_setups() {
  std::vector<RankSetup> all;
  for (const Rank count : {1U, 2U, 3U, 4U}) {
    for (const RankSetup& setup : each_transport(count)) all.push_back(setup);
  }
  return all;
}

std::vector<RankSetup> with_words(const std::vector<RankSetup>& setups, const std::vector<std::string>& words) {
  std::vector<RankSetup> all;
  for (const RankSetup& setup : setups) {
    for (const std::string& word : words) {
      all.push_back(setup);
      all.back().word = word;
    }
  }
  return all;
}

}  // namespace gigabar::test
