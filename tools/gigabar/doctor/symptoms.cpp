#include "doctor/symptoms.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <iostream>
#include <string>

#include "support/failure.hpp"
#include "support/plain_text.hpp"
#include "support/sizes.hpp"

namespace gigabar::tool::doctor {
namespace {

constexpr int kMostTries = 3;

std::string list_text() {
  std::string text;
  std::size_t number = 0;
  for (const Symptom& symptom : symptoms()) text += fmt::format("{:>3}  {}\n", ++number, symptom.text);
  return text;
}

// One line, without keeping more of it than a number can have.
bool read_line(std::string& line) {
  constexpr std::size_t kMostBytes = 64;
  line.clear();
  for (int letter = std::cin.get(); letter != std::char_traits<char>::eof(); letter = std::cin.get()) {
    if (letter == '\n') return true;
    if (line.size() < kMostBytes) line += static_cast<char>(letter);
  }
  return !line.empty();
}

const Symptom* symptom_of(const std::string& line) {
  const auto number = parse_digits(line);
  if (!number || *number < 1 || *number > symptoms().size()) return nullptr;
  return &symptoms()[*number - 1];
}

const Symptom& ask(Report& report) {
  std::string line;
  for (int tries = 0; tries < kMostTries; ++tries) {
    report.print("which one (1 to {})? ", symptoms().size());
    if (!read_line(line)) break;
    if (const Symptom* const chosen = symptom_of(line)) return *chosen;
  }
  report.print("\n");
  refuse_usage(fmt::format("--symptom: no number from 1 to {} was given; describe it instead: --symptom TEXT", symptoms().size()));
}

}  // namespace

const Symptom* choose_symptom(const Options& options, Report& report) {
  if (!options.symptom.empty()) {
    if (const Symptom* const found = match_symptom(options.symptom)) return found;
    report.print("{}", list_text());
    refuse_usage(fmt::format("--symptom '{}': no known symptom is like it; take words of one of those listed, or run all checks",
                             plain(options.symptom, 200)));
  }
  report.print("{}", list_text());
  if (isatty(STDIN_FILENO) != 1) return nullptr;
  return &ask(report);
}

}  // namespace gigabar::tool::doctor
