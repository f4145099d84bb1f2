// SPDX-License-Identifier: Apache-2.0
#include "ranks/words.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <utility>

#include "ranks/fabric_failure.hpp"
#include "support/plain_text.hpp"

namespace gigabar::tool::ranks {
namespace {

constexpr Tag kCardTag = 3;
constexpr Tag kNothingTag = 4;  // never sent

}  // namespace

void let_rank_0_speak(Fabric& fabric) {
  constexpr auto kLongest = std::chrono::seconds(5);
  static_cast<void>(fabric.recv(0, kNothingTag, nullptr, 0, Timeout::of(kLongest)));
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
