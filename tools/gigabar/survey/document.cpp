// SPDX-License-Identifier: Apache-2.0
#include "survey/document.hpp"

#include <fmt/format.h>

#include <cmath>

#include "base/old_check_ids.hpp"
#include "support/failure.hpp"
#include "support/files.hpp"
#include "support/plain_text.hpp"
#include "support/report.hpp"

namespace gigabar::tool::survey {
namespace {

// Not the ordered kind of Json, which is slow with many keys.
using Tree = nlohmann::json;

const Tree& member(const Tree& object, const char* key) {
  static const Tree* const nothing = new Tree();
  return object.is_object() && object.contains(key) ? object[key] : *nothing;
}

Tree parse_tree(const std::string& path, std::string_view text) {
  // What is nested deeper than any survey is dropped as it is read.
  constexpr int kMaxDepth = 32;
  const auto is_kept = [](int depth, Tree::parse_event_t, Tree&) { return depth < kMaxDepth; };
  Tree document = Tree::parse(text, is_kept, false);
  if (document.is_discarded() || !document.is_object()) refuse_usage(fmt::format("{}: is not JSON", path));
  if (member(document, "tool") != "survey") {
    refuse_usage(fmt::format("{}: was not written by 'gigabar survey'", path));
  }
  const Tree& schema = member(document, "schema");
  if (schema != 1 && schema != 2) {
    refuse_usage(fmt::format("{}: has schema {}, and this program reads 1 and 2; use the gigabar that wrote it, or write it again",
                             path, plain(schema.dump(), 40)));
  }
  return document;
}

std::string word(const Tree& object, const char* key) {
  const Tree& value = member(object, key);
  if (value.is_null()) return {};
  return plain(value.is_string() ? value.get<std::string>() : value.dump());
}

void read_facts(const Tree& document, Document& survey) {
  const Tree& machine = member(document, "machine");
  for (const char* key : {"cpu", "kernel", "cores"}) survey.facts[key] = word(machine, key);
  const Tree& device = member(document, "device");
  for (const char* key : {"name", "driver", "is_stand_in"}) survey.facts[fmt::format("device {}", key)] = word(device, key);
  for (const Tree& route : member(member(document, "topology"), "routes")) {
    const auto end = [&route](const char* key) { return word(member(route, key), "kind") + word(member(route, key), "index"); };
    survey.facts[fmt::format("route {}-{}", end("first"), end("second"))] =
        fmt::format("{} {}", word(route, "relation"), word(route, "bottleneck"));
  }
}

void read_figures(const Tree& document, Document& survey) {
  for (const Tree& figure : member(document, "results")) {
    const auto number = [&figure](const char* key) {
      const Tree& value = member(figure, key);
      return value.is_number() ? value.get<double>() : std::nan("");
    };
    const Measured measured{word(figure, "unit"),           number("value"),        number("min"), number("max"),
                            std::fmax(number("passes"), 1), word(figure, "failure")};
    const bool is_good = std::isfinite(measured.value) && measured.value > 0 && std::isfinite(measured.least + measured.most);
    const std::string key = word(figure, "key");
    if (!key.empty() && (is_good || !measured.failure.empty())) survey.figures[key] = measured;
  }
}

std::string passes_text(const Tree& passes) {
  const Tree& count = member(passes, "count");
  const Tree& seconds = member(passes, "seconds");
  if (!count.is_number() || !seconds.is_number()) return "of an older Gigabar, in one pass";
  const auto number = count.get<double>();
  return fmt::format("{} {} over {:.0f} s", number, number == 1 ? "pass" : "passes", seconds.get<double>());
}

}  // namespace

Document parse_document(const std::string& path, std::string_view text) {
  const Tree document = parse_tree(path, text);
  Document survey;
  survey.passes = passes_text(member(document, "passes"));
  survey.label = fmt::format("{}, {}", word(member(document, "machine"), "host"), word(document, "date"));
  read_facts(document, survey);
  read_figures(document, survey);
  for (const Tree& finding : member(document, "findings")) {
    survey.verdicts[current_check_id(word(finding, "check")) + " " + word(finding, "subject")] = word(finding, "verdict");
  }
  if (survey.figures.empty()) refuse_usage(fmt::format("{}: holds no figures; run 'gigabar survey' again", path));
  return survey;
}

Document read_document(std::string_view option, const std::string& path) {
  constexpr std::string_view kRemedy = "give a file that 'gigabar survey --json FILE' wrote";
  return parse_document(path, read_file(option, path, {std::size_t{64} << 20, kRemedy, kRemedy}));
}

}  // namespace gigabar::tool::survey
