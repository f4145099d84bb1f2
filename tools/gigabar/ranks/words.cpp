// SPDX-License-Identifier: Apache-2.0
#include "ranks/words.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <utility>

#include "base/remaining.hpp"
#include "ranks/fabric_failure.hpp"
#include "support/plain_text.hpp"

namespace gigabar::tool::ranks {
namespace {

constexpr Tag kCardTag = 3;
constexpr Tag kNothingTag = 4;  // never sent

double seconds_of(Timeout timeout) noexcept { return static_cast<double>(timeout.ns()) * 1e-9; }

// "rank 3", "ranks 1, 2, 5 and 40 more".
std::string ranks_text(const std::vector<Rank>& ranks) {
  constexpr std::size_t kMaxNamed = 16;
  const std::size_t named = std::min(ranks.size(), kMaxNamed);
  const std::string more = ranks.size() > named ? fmt::format(" and {} more", ranks.size() - named) : "";
  return fmt::format("{} {}{}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(std::span(ranks).first(named), ", "), more);
}

// Ranks without a connection to this one, by what they lack.
using Absent = std::map<std::string, std::vector<Rank>>;

// `failure`: of a rank that came and is lost, which may be so because it waited in vain for those that did not come.
Absent connect_to_all(Fabric& fabric, Timeout timeout, Result<void>& failure) {
  // The connections that are made end themselves after the fabric's time, which is the same, and say then what they lack.
  constexpr std::chrono::milliseconds kForTheReason(200);
  const Remaining time(Timeout::of(std::chrono::nanoseconds(timeout.ns()) + kForTheReason));
  for (Rank rank = 1; rank < fabric.rank_count(); ++rank) static_cast<void>(fabric.connect(rank, Timeout::test()));
  Absent absent;
  for (Rank rank = 1; rank < fabric.rank_count(); ++rank) {
    Result<void> connected = fabric.connect(rank, time.left());
    if (connected.status() == Status::timed_out) {
      absent[connected.record().cause].push_back(rank);
    } else if (!connected) {
      failure = std::move(connected);
    }
  }
  return absent;
}

[[noreturn]] void fail_for(const Absent& absent, Rank rank_count, Timeout timeout) {
  std::string causes;
  bool is_one = absent.size() == 1;
  for (const auto& [cause, ranks] : absent) {
    causes += fmt::format("{}{} of {}: {}", causes.empty() ? "" : "; ", ranks_text(ranks), rank_count, cause);
    is_one &= ranks.size() == 1;
  }
  throw FabricFailure(
      Status::timed_out,
      fmt::format("not every rank has come within {:g} s (--timeout): {}; look at what {} printed, and whether {} started with the "
                  "same MASTER_ADDR, MASTER_PORT and job key as rank 0",
                  seconds_of(timeout), causes, is_one ? "it" : "they", is_one ? "it was" : "they were"));
}

}  // namespace

void let_rank_0_speak(Fabric& fabric) {
  constexpr auto kLongest = std::chrono::seconds(5);
  static_cast<void>(fabric.recv(0, kNothingTag, nullptr, 0, Timeout::of(kLongest)));
}

void await_ranks(Fabric& fabric, Timeout timeout) {
  if (fabric.rank() == 0) {
    Result<void> failure;
    const Absent absent = connect_to_all(fabric, timeout, failure);
    if (!absent.empty()) fail_for(absent, fabric.rank_count(), timeout);
    require_of_fabric(failure);
    require_of_fabric(fabric.barrier({}, timeout));
    return;
  }
  // Longer than rank 0, which says more.
  constexpr std::chrono::seconds kForRank0(5);
  const Result<void> met = fabric.barrier({}, Timeout::of(std::chrono::nanoseconds(timeout.ns()) + kForRank0));
  if (met.status() == Status::timed_out) {
    throw FabricFailure(Status::timed_out,
                        fmt::format("not every rank has come within {:g} s (--timeout); rank 0 tells which", seconds_of(timeout)));
  }
  require_of_fabric(met);
}

std::uint64_t digest_of_text(std::string_view text) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char letter : text) hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3U;
  return hash;
}

void require_agreement(Fabric& fabric, std::uint64_t digest, Timeout timeout) {
  const std::array<std::int64_t, 1> own = {static_cast<std::int64_t>(digest)};
  std::array<std::int64_t, 1> least{};
  std::array<std::int64_t, 1> most{};
  require_of_fabric(fabric.all_reduce({}, ReduceOperation::minimum, own, least, timeout));
  require_of_fabric(fabric.all_reduce({}, ReduceOperation::maximum, own, most, timeout));
  if (least != most) refuse_usage("the ranks were started with different options; give all of them the same");
}

std::vector<std::string> gather(Fabric& fabric, std::string own, std::size_t most_bytes, Timeout timeout) {
  if (fabric.rank() != 0) {
    require_of_fabric(fabric.send(0, kCardTag, own.data(), own.size(), timeout));
    return {};
  }
  std::vector<std::string> texts = {std::move(own)};
  for (Rank from = 1; from < fabric.rank_count(); ++from) {
    std::string text(most_bytes, '\0');
    const Received received = take_from_fabric(fabric.recv(from, kCardTag, text.data(), text.size(), timeout));
    text.resize(received.bytes);
    texts.push_back(std::move(text));
  }
  return texts;
}

Json rank_card(const Fabric& fabric, const std::optional<DeviceInfo>& device) {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  return {{"rank", fabric.rank()},
          {"host", plain(host.data())},
          {"local_rank", fabric.local_rank()},
          {"device", device ? tool::to_json(*device) : Json()},
          {"is_stand_in", device && device->is_stand_in}};
}

std::vector<Json> read_cards(const std::vector<std::string>& texts) {
  std::vector<Json> cards;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    cards.push_back(Json::parse(texts[i], nullptr, false));
    if (!cards.back().is_object()) fail(fmt::format("rank {} has introduced itself with something else than a card", i));
  }
  return cards;
}

std::string dump(const Json& card) { return card.dump(-1, ' ', false, Json::error_handler_t::replace); }

bool is_stand_in_card(const Json& card) { return card.contains("is_stand_in") && card["is_stand_in"] == true; }

std::string text_of(const Json& card, const char* key) {
  return card.is_object() && card.contains(key) && card[key].is_string() ? plain(card[key].get<std::string>()) : std::string();
}

std::string introduction(std::size_t rank, const Json& card) {
  const Json device = card.value("device", Json());
  const std::string memory =
      device.is_object() ? text_of(device, "name") + std::string(stand_in_label(is_stand_in_card(card))) : "host memory";
  return fmt::format("rank {}: {}, {}", rank, text_of(card, "host"), memory);
}

void tell_settings(Report& report, const Fabric& fabric) {
  Json settings = Json::array();
  for (const Setting& setting : fabric.settings()) {
    settings.push_back({{"name", setting.name}, {"value", setting.value}, {"source", setting.source}});
    if (setting.source != "default") report.print("# {}: {} ({})\n", setting.name, setting.value, setting.source);
  }
  report.document()["settings"] = std::move(settings);
}

}  // namespace gigabar::tool::ranks
