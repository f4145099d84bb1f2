// SPDX-License-Identifier: Apache-2.0
// Changes of bytes and documents at random, and how long to go on. A round that fails prints its seed; GIGABAR_FUZZ_SEED repeats
// from there, GIGABAR_FUZZ_SECONDS (default 2) says for how long.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>

#include "base/options.hpp"

namespace gigabar::test {

class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : random_(seed) {}

  // In [0, end).
  std::size_t below(std::size_t end) { return end == 0 ? 0 : static_cast<std::size_t>(random_() % end); }
  bool once_in(std::size_t times) { return below(times) == 0; }

  std::string bytes(std::size_t most) {
    std::string made(below(most + 1), '\0');
    for (char& byte : made) byte = static_cast<char>(random_());
    return made;
  }

  // What parsers of numbers, lists and texts stumble over.
  std::string token() {
    static constexpr auto kTokens = std::to_array<std::string_view>({"",
                                                                     "0",
                                                                     "-1",
                                                                     "1",
                                                                     "255",
                                                                     "4294967295",
                                                                     "4294967296",
                                                                     "18446744073709551615",
                                                                     "18446744073709551616",
                                                                     "-9223372036854775808",
                                                                     "0x",
                                                                     "0xffffffffffffffffff",
                                                                     "1e999",
                                                                     "nan",
                                                                     "inf",
                                                                     "0-",
                                                                     "-0",
                                                                     "0-4294967295",
                                                                     "9-0",
                                                                     ",",
                                                                     ",,,,",
                                                                     ":",
                                                                     "::",
                                                                     "/",
                                                                     "..",
                                                                     "../..",
                                                                     "\n",
                                                                     "\n\n",
                                                                     " ",
                                                                     "\t",
                                                                     "%s%n",
                                                                     "\"",
                                                                     "\\",
                                                                     "{",
                                                                     "[",
                                                                     "}",
                                                                     "]",
                                                                     "null",
                                                                     "true",
                                                                     "[N/A]",
                                                                     "Unknown",
                                                                     "\x1b[31m",
                                                                     "\xff\xfe",
                                                                     "\xc3\xa9",
                                                                     "unlimited",
                                                                     "ACTIVE",
                                                                     "GT/s",
                                                                     "DMA-FQ",
                                                                     "identity",
                                                                     "0000:03:00.0",
                                                                     "ffff:ff:1f.7",
                                                                     "RoCE v2"});
    return std::string(kTokens[below(kTokens.size())]);
  }

  std::string changed(std::string text, std::size_t most_changes = 4) {
    for (std::size_t left = 1 + below(most_changes); left > 0; --left) {
      const std::size_t at = below(text.size() + 1);
      switch (below(7)) {
        case 0:
          if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
          break;
        case 1:
          if (at < text.size()) text[at] = static_cast<char>(random_());
          break;
        case 2: text.insert(at, token()); break;
        case 3: text.erase(at, below(16)); break;
        case 4: text.insert(at, text.substr(below(text.size() + 1), below(64))); break;
        case 5: text.resize(once_in(8) ? at : text.size()); break;
        default: text.replace(at, below(8), token()); break;
      }
    }
    return text;
  }

  nlohmann::json value() {
    switch (below(10)) {
      case 0: return nullptr;
      case 1: return once_in(2);
      case 2: return static_cast<std::int64_t>(random_());
      case 3: return static_cast<std::uint64_t>(random_());
      case 4: return static_cast<std::int64_t>(below(300)) - 20;
      case 5: return 1.5e300;
      case 6: return nlohmann::json::array({token(), 1});
      case 7: return nlohmann::json::object({{token(), 1}});
      default: return token();
    }
  }

  // Replaces, removes or adds a value somewhere in the document.
  void change(nlohmann::json& document) {
    nlohmann::json* at = &document;
    while (at->is_structured() && !at->empty() && (at == &document || !once_in(4))) {
      auto chosen = at->begin();
      std::advance(chosen, static_cast<std::ptrdiff_t>(below(at->size())));
      if (once_in(12)) {
        at->erase(chosen);
        return;
      }
      at = &*chosen;
    }
    if (at->is_object() && once_in(2)) {
      (*at)[token()] = value();
    } else if (at->is_array() && once_in(2)) {
      at->push_back(value());
    } else if (at->is_string() && !once_in(4)) {
      *at = changed(at->get<std::string>());
    } else {
      *at = value();
    }
  }

 private:
  std::mt19937_64 random_;
};

// Calls body(mutator) with a new seed each time, until the time is over or something failed. Answers how often.
template <class Body>
std::size_t for_a_while(const Body& body) {
  using Clock = std::chrono::steady_clock;
  const auto given = parse_number(environment("GIGABAR_FUZZ_SEED").value_or(""), 0, UINT64_MAX);
  const auto seconds = parse_number(environment("GIGABAR_FUZZ_SECONDS").value_or(""), 0, 86400).value_or(2);
  const std::uint64_t first =
      given.value_or(static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch().count()));
  // Before anything can crash.
  std::cout << "GIGABAR_FUZZ_SEED=" << first << std::endl;
  const auto end = Clock::now() + std::chrono::seconds(seconds);
  std::size_t rounds = 0;
  do {
    const std::uint64_t seed = first + rounds;
    const testing::ScopedTrace trace(__FILE__, __LINE__, "GIGABAR_FUZZ_SEED=" + std::to_string(seed));
    Mutator mutator(seed);
    body(mutator);
    ++rounds;
  } while (Clock::now() < end && !testing::Test::HasFailure());
  return rounds;
}

}  // namespace gigabar::test
