// SPDX-License-Identifier: Apache-2.0
#include "ranks/path_use.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace gigabar::tool::ranks {

std::string path_text(const OperationReport& report) {
  std::string text(report.transport ? name_of(*report.transport) : "");
  if (report.path != TransferPath::none) text += (text.empty() ? "" : " ") + std::string(name_of(report.path));
  if (report.rails.empty() || report.transport == TransportKind::local) return text.empty() ? "none" : text;
  std::string rails;
  for (const RailShare& share : report.rails) rails += (rails.empty() ? "" : ", ") + share.rail;
  return fmt::format("{} ({})", text, rails);
}

Json to_json(const OperationReport& report) {
  Json rails = Json::array();
  for (const RailShare& share : report.rails) rails.push_back({{"rail", share.rail}, {"bytes", share.bytes}});
  return {{"text", path_text(report)},    {"transport", report.transport ? Json(name_of(*report.transport)) : Json()},
          {"path", name_of(report.path)}, {"rails", std::move(rails)},
          {"bytes", report.bytes},        {"chunks", report.chunks},
          {"retries", report.retries},    {"reason", report.reason}};
}

PathUse path_use_of(std::span<const OperationReport> reports) {
  PathUse use;
  std::vector<std::string> texts;
  for (const OperationReport& report : reports) {
    std::string text = path_text(report);
    if (std::find(texts.begin(), texts.end(), text) != texts.end()) continue;
    use.text += (use.text.empty() ? "" : " + ") + text;
    texts.push_back(std::move(text));
  }
  if (reports.empty()) return use;
  use.detail = to_json(reports.back());
  if (texts.size() > 1) use.detail["all"] = texts;
  return use;
}

}  // namespace gigabar::tool::ranks
