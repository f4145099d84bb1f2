// SPDX-License-Identifier: Apache-2.0
// gigabar explain: the page of a check.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/edit_distance.hpp"
#include "commands.hpp"
#include "doctor/output.hpp"
#include "gigabar/doctor.hpp"
#include "support/failure.hpp"
#include "support/option_checks.hpp"
#include "support/plain_text.hpp"
#include "support/text_table.hpp"

namespace gigabar::tool {
namespace {

constexpr std::size_t kWidth = 100;
constexpr std::size_t kMaxNear = 5;

// Ids of the same group are near however long they are.
std::string near_ids(std::string_view wanted) {
  const std::string_view group = wanted.substr(0, wanted.find('.'));
  std::vector<std::pair<std::size_t, std::string_view>> near;
  for (const CheckInfo& check : checks()) {
    const bool is_of_group = check.id.substr(0, check.id.find('.')) == group;
    near.emplace_back(edit_distance(wanted.substr(0, 64), check.id) / (is_of_group ? 4 : 1), check.id);
  }
  std::sort(near.begin(), near.end());
  std::string text;
  for (std::size_t i = 0; i < std::min(kMaxNear, near.size()); ++i) text += (i == 0 ? "" : ", ") + std::string(near[i].second);
  return text;
}

void print_part(const char* heading, std::string_view text) {
  if (!text.empty()) fmt::print("\n{}\n{}", heading, wrapped(text, kWidth, 2));
}

void print_page(const CheckInfo& check) {
  fmt::print("{}: {}\n", check.id, check.title);
  fmt::print("{}", wrapped(check.why, kWidth, 2));
  if (check.is_probe) fmt::print("  A probe: it does something rather than read, and only on the machine that it runs on.\n");
  print_part("What it is", check.what);
  print_part("Impact", check.impact);
  print_part("How to confirm", check.confirm);
  print_part("Remedy", check.remedy);
  print_part("Source", check.source);
}

void print_list() {
  TextTable table({{"id", true}, {"title", true}});
  for (const CheckInfo& check : checks()) table.add_row({std::string(check.id), std::string(check.title)});
  fmt::print("{}\n'gigabar explain ID' prints the page of one\n", table.take_text());
}

void run_explain(const std::string& typed, const Invocation&) {
  if (typed.empty()) return print_list();
  const std::string id = doctor::current_id_with_note(typed);
  const CheckInfo* const check = find_check(id);
  if (check == nullptr) {
    refuse_usage(
        fmt::format("'{}': there is no such check; near ones are {}; without an id all are listed", plain(id, 100), near_ids(id)));
  }
  print_page(*check);
}

}  // namespace

void add_explain(const Command& program, Invocation& invocation) {
  const auto [command, id] =
      add_subcommand<std::string>(program, invocation, "explain",
                                  "What a check of 'doctor' is about: its impact, how to confirm it, and the remedy", run_explain);
  command->add_option("check", id, "Id of the check, as 'gigabar doctor' prints it; without one, all are listed")->type_name("ID");
  command->footer("Exit status: 0 done, 2 there is no such check.");
}

}  // namespace gigabar::tool
