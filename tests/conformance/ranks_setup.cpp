// SPDX-License-Identifier: Apache-2.0
// What a test asks of its ranks, as text, and which transports it is asked for.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <ostream>
#include <sstream>
#include <stdexcept>

#include "base/options.hpp"
#include "conformance/ranks.hpp"
#include "conformance/ranks_words.hpp"

namespace gigabar::test {
namespace {

// The library is opened at run time, and only where its headers were there when it was built.
bool is_ucx_there() {
#if __has_include(<ucp/api/ucp.h>)
  for (const char* folder : {"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/usr/lib64",
                             "/usr/lib", "/usr/local/lib"}) {
    std::error_code ignored;
    if (std::filesystem::exists(std::filesystem::path(folder) / "libucp.so.0", ignored)) return true;
  }
#endif
  return false;
}

std::vector<TransportKind> find_transports() {
  std::vector<TransportKind> all;
  if (environment(kBodyVariable)) return all;  // a rank, which needs none of the tests' parameters
  const std::optional<std::string> asked = environment("GIGABAR_CONFORMANCE_TRANSPORTS");
  for (const TransportKind kind : {TransportKind::local, TransportKind::verbs, TransportKind::ucx, TransportKind::tcp}) {
    const bool is_default =
        kind == TransportKind::local || kind == TransportKind::tcp || (kind == TransportKind::ucx && is_ucx_there());
    const bool is_asked = asked && (',' + *asked + ',').find(',' + std::string(gigabar::name_of(kind)) + ',') != std::string::npos;
    if (asked ? is_asked : is_default) all.push_back(kind);
  }
  return all;
}

}  // namespace

unsigned scale() {
#if defined(GIGABAR_SANITIZE_ADDRESS) || defined(GIGABAR_SANITIZE_THREAD)
  return 20;
#else
  static const std::optional<std::string> asked = environment("GIGABAR_CONFORMANCE_SCALE");
  static const auto times = asked ? parse_number(*asked, 1, 1000) : std::optional<std::uint64_t>(1);
  if (!times) throw std::runtime_error("GIGABAR_CONFORMANCE_SCALE is no number from 1 to 1000");
  return unsigned(*times);
#endif
}

std::uint64_t rounds(std::uint64_t count) { return std::max<std::uint64_t>(count / scale(), 1); }

std::size_t largest(std::size_t bytes) { return scale() > 1 ? std::min(bytes, std::size_t{17} << 20) : bytes; }

std::string_view name_of(MemoryChoice choice) noexcept {
  switch (choice) {
    case MemoryChoice::host: return "host";
    case MemoryChoice::shared: return "shared";
    case MemoryChoice::stand_in: return "stand_in";
    case MemoryChoice::device: return "device";
  }
  return "unknown";
}

std::string RankSetup::to_text() const {
  std::ostringstream text;
  text << rank_count << ' ' << unsigned(transport) << ' ' << unsigned(origin) << ' ' << unsigned(target) << ' ' << unsigned(path)
       << ' ' << amount << ' ' << (word.empty() ? "-" : word);
  return text.str();
}

RankSetup RankSetup::parse(const std::string& text) {
  RankSetup setup;
  unsigned transport = 0, origin = 0, target = 0, path = 0;
  std::istringstream(text) >> setup.rank_count >> transport >> origin >> target >> path >> setup.amount >> setup.word;
  setup.transport = TransportKind(transport);
  setup.origin = MemoryChoice(origin);
  setup.target = MemoryChoice(target);
  setup.path = TransferPath(path);
  if (setup.word == "-") setup.word.clear();
  return setup;
}

std::string RankSetup::name() const {
  std::ostringstream text;
  text << gigabar::name_of(transport) << '_' << name_of(origin) << '_' << name_of(target);
  if (path != TransferPath::none) text << '_' << gigabar::name_of(path);
  if (!word.empty()) text << '_' << word;
  text << '_' << rank_count;
  return text.str();
}

const std::vector<TransportKind>& tested_transports() {
  static const std::vector<TransportKind> all = find_transports();
  return all;
}

bool is_tested(TransportKind kind) {
  const auto& all = tested_transports();
  return std::find(all.begin(), all.end(), kind) != all.end();
}

std::vector<RankSetup> each_transport(Rank rank_count) {
  std::vector<RankSetup> setups;
  for (const TransportKind kind : tested_transports()) {
    RankSetup setup;
    setup.rank_count = rank_count;
    setup.transport = kind;
    setups.push_back(setup);
  }
  return setups;
}

void PrintTo(const RankSetup& setup, std::ostream* out) { *out << setup.name(); }

std::string setup_name(const testing::TestParamInfo<RankSetup>& info) { return info.param.name(); }

testing::AssertionResult is_ok(const Result<void>& outcome) {
  if (outcome.is_ok()) return testing::AssertionSuccess();
  return testing::AssertionFailure() << outcome.message();
}

testing::AssertionResult fails(const Result<void>& outcome, Status status, std::string_view text) {
  if (outcome.is_ok()) return testing::AssertionFailure() << "succeeded";
  if (outcome.status() != status) {
    return testing::AssertionFailure() << gigabar::name_of(outcome.status()) << " where " << gigabar::name_of(status)
                                       << " was expected: " << outcome.message();
  }
  if (outcome.message().find(text) == std::string::npos) {
    return testing::AssertionFailure() << "does not name \"" << text << "\": " << outcome.message();
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult refuses(const Result<void>& outcome, std::string_view text) {
  return fails(outcome, outcome.status() == Status::out_of_range ? Status::out_of_range : Status::invalid_argument, text);
}

}  // namespace gigabar::test
