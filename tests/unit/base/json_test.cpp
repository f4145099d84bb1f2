// SPDX-License-Identifier: Apache-2.0
// base/json.hpp: what is written is read, and what is not as described is refused, with its place.
#include "base/json.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace gigabar {
namespace {

enum class Colour : std::uint8_t { red, green };
std::string_view name_of(Colour colour) { return colour == Colour::red ? "red" : "green"; }

struct Part {
  std::string name;
  Colour colour = Colour::red;
  std::optional<unsigned> size;
  bool operator==(const Part&) const = default;
};

struct Whole {
  bool is_good = false;
  std::int64_t number = 0;
  std::uint64_t limit = 1;
  std::string remark;
  std::vector<Part> parts;
  std::map<std::string, int> counts;
  std::vector<std::vector<std::uint8_t>> rows;
  bool operator==(const Whole&) const = default;
};

}  // namespace

template <>
struct json::Fields<Part> {
  static void each(auto& field, auto& part) {
    field.needed("name", part.name);
    field("colour", part.colour, OneOf{std::array{Colour::red, Colour::green}});
    field("size", part.size, Between{2, 9});
  }
};

template <>
struct json::Fields<Whole> {
  static void each(auto& field, auto& whole) {
    field.constant("format", std::string_view("test"));
    field.constant("version", std::uint64_t{3});
    field("is_good", whole.is_good);
    field("number", whole.number);
    field("limit", whole.limit, Between{1, 100});
    field("remark", whole.remark);
    field("parts", whole.parts, AtMost{2});
    field("counts", whole.counts);
    field("rows", whole.rows);
  }
};

namespace {

constexpr json::Limits kExact{.depth = 4, .values = 60, .entries = 4, .text_bytes = 12};
constexpr json::Limits kOpen{.whole = "it", .is_exact = false, .depth = 4, .values = 60, .entries = 4, .text_bytes = 12};

Whole example() {
  return {true,
          std::numeric_limits<std::int64_t>::min(),
          100,
          "\"\\\xc3\xbc",
          {{"first", Colour::green, 9}, {"second", Colour::red, {}}},
          {{"a", -1}, {"b", 2}},
          {{255, 1, 2}, {}}};
}

Whole read(const std::string& text, const json::Limits& limits) {
  Whole whole;
  json::parse(text, limits, [&](const json::Value& document) { json::read(document, whole); });
  return whole;
}

// What is wrong with the text; empty: nothing.
std::string problem_of(const std::string& text, const json::Limits& limits) {
  try {
    read(text, limits);
    return {};
  } catch (const json::Problem& problem) {
    return problem.text();
  }
}

std::string with(const std::string& from, const std::string& to, const json::Limits& limits = kExact) {
  std::string text = json::to_text(example(), limits);
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from << " in " << text;
  return problem_of(text.replace(at, from.size(), to), limits);
}

TEST(Json, WhatIsWrittenIsRead) {
  for (const json::Limits& limits : {kExact, kOpen}) {
    EXPECT_EQ(read(json::to_text(example(), limits), limits), example());
    EXPECT_EQ(read(json::to_text(Whole(), limits), limits), Whole());
  }
}

TEST(Json, TextHasALineForEachValue) {
  Whole whole;
  whole.parts = {{"p", Colour::red, {}}};
  EXPECT_EQ(
      json::to_text(whole, kExact),
      "{\n \"format\": \"test\",\n \"version\": 3,\n \"is_good\": false,\n \"number\": 0,\n \"limit\": 1,\n \"remark\": \"\",\n"
      " \"parts\": [\n  {\n   \"name\": \"p\",\n   \"colour\": \"red\",\n   \"size\": null\n  }\n ],\n"
      " \"counts\": {},\n \"rows\": []\n}\n");
  EXPECT_EQ(json::to_text(Part{"p", Colour::green, {}}, kOpen), "{\n \"name\": \"p\",\n \"colour\": \"green\"\n}\n")
      << "what is not known is left out";
}

TEST(Json, ProblemsHaveAPlace) {
  EXPECT_EQ(with("\"test\"", "\"other\""), "format: is not \"test\"");
  EXPECT_EQ(with(": 3", ": 4"), "version: is not 3");
  EXPECT_EQ(with("true", "1"), "is_good: is neither true nor false");
  EXPECT_EQ(with("-9223372036854775808", "9223372036854775808"),
            "number: is not a whole number from -9223372036854775808 to 9223372036854775807");
  EXPECT_EQ(with("100", "101"), "limit: is not a whole number from 1 to 100");
  EXPECT_EQ(with("100", "0.5"), "limit: is not a whole number from 1 to 100");
  EXPECT_EQ(with("\"green\"", "\"blue\""), "parts[0].colour: is none of \"red\" \"green\"");
  EXPECT_EQ(with(": 9", ": 1"), "parts[0].size: is not a whole number from 2 to 9");
  EXPECT_EQ(with("\"first\"", "\"\""), "parts[0].name: is empty");
  EXPECT_EQ(with("\"first\"", "[]"), "parts[0].name: is not a text");
  EXPECT_EQ(with("\"a\": -1", "\"a\": null"), "counts.a: is not a whole number from -2147483648 to 2147483647");
  EXPECT_EQ(with("255", "256"), "rows[0][0]: is not a whole number from 0 to 255");
  EXPECT_EQ(problem_of("[]", kExact), "format: is not \"test\"");
  EXPECT_EQ(problem_of("{", kExact), "the file: is not JSON from byte 2 on");
  EXPECT_EQ(problem_of("", kOpen), "it: is not JSON from byte 1 on");
}

TEST(Json, WhatIsOfAnotherKindIsRefused) {
  const auto problem_with = [](const std::string& member) {
    return problem_of("{\"format\": \"test\", \"version\": 3, " + member + "}", kOpen);
  };
  EXPECT_EQ(problem_with("\"remark\": \"\""), "");
  EXPECT_EQ(problem_with("\"parts\": 7"), "parts: is not an array");
  EXPECT_EQ(problem_with("\"parts\": [7]"), "parts[0]: is not an object");
  EXPECT_EQ(problem_with("\"counts\": []"), "counts: is not an object");
  EXPECT_EQ(problem_with("\"rows\": [7]"), "rows[0]: is not an array");
  double number = 0;
  const auto real_of = [&](const json::Value& document) { number = document.entry(0).real(); };
  json::parse("[-1.5]", kOpen, real_of);
  EXPECT_EQ(number, -1.5);
  try {
    json::parse("[\"1.5\"]", kOpen, real_of);
    ADD_FAILURE() << "a text is no number";
  } catch (const json::Problem& problem) {
    EXPECT_EQ(problem.text(), "[0]: is not a number");
  }
  try {
    json::parse("[]", kOpen, real_of);
    ADD_FAILURE() << "there is no entry";
  } catch (const json::Problem& problem) {
    EXPECT_EQ(problem.text(), "it: has no entry 0");
  }
}

TEST(Json, AnExactDocumentHasExactlyItsNames) {
  EXPECT_EQ(with("\"is_good\": true,", ""), "the file: has no \"is_good\"");
  EXPECT_EQ(with("\"is_good\"", "\"more\": 1, \"is_good\""), "the file: has an unknown name \"more\"");
  EXPECT_EQ(with("\"name\"", "\"more\": 1, \"name\""), "parts[0]: has an unknown name \"more\"");
  EXPECT_EQ(with("\"name\"", "\"x\\u001b[2J\": 1, \"name\""), "parts[0]: has an unknown name \"x?[2J\"");
  EXPECT_EQ(with("first", "fi\\u001brst"), "parts[0].name: has a control character");
}

TEST(Json, AnOpenDocumentMayHaveOthers) {
  EXPECT_EQ(with("\"is_good\": true,", "", kOpen), "");
  EXPECT_EQ(with("\"is_good\"", "\"more\": 1, \"is_good\"", kOpen), "");
  EXPECT_EQ(with("\"name\": \"first\",", "", kOpen), "parts[0]: has no \"name\"");
  EXPECT_EQ(with("first", "fi\\u001brst", kOpen), "");
  EXPECT_EQ(with(": 9", ": null", kOpen), "parts[0].size: is not a whole number from 2 to 9");
}

TEST(Json, EverythingHasABound) {
  EXPECT_EQ(with("first", "first of many"), "parts[0].name: is longer than 12 bytes");
  EXPECT_EQ(with("\"a\": -1", "\"a\": 1, \"c\": 1, \"d\": 1, \"e\": 1"), "counts: has more than 4 entries");
  EXPECT_EQ(with("\"a\": -1", "\"a name of 13\": 1, \"a name of 13b\": 1"), "counts: has a name longer than 12 bytes");
  EXPECT_EQ(with("255,", "255, 3, 4, 5,"), "rows[0]: has more than 4 entries");
  EXPECT_EQ(with("\"parts\": [", "\"parts\": [{}, "), "parts: has more than 2 entries");
  EXPECT_EQ(with("true", "[[[[1]]]]"), "the file: is nested deeper than 4");
  std::string many = "[0";
  for (int i = 0; i < 60; ++i) many += ",0";
  EXPECT_EQ(problem_of(many + "]", kExact), "the file: has more than 60 values");
  EXPECT_EQ(with("\"b\": 2", "\"a\": 2"), "the file: has the name \"a\" twice in one object");
  EXPECT_NE(with("100", "1e999").find("the file: has a value that JSON cannot hold"), std::string::npos);
  EXPECT_EQ(problem_of(std::string(4'000'000, '['), kExact), "the file: is nested deeper than 4");
}

// A library's sentence can be of any encoding and length; what is written can always be read.
TEST(Json, TextOfAnyKindCanBeWritten) {
  for (const std::string& text :
       {std::string(13, 'a'), std::string(12, '\xff'), std::string("\xed\xa0\x80"), std::string("a\0b", 3)}) {
    Whole whole;
    whole.remark = text;
    const Whole again = read(json::to_text(whole, kOpen), kOpen);
    EXPECT_FALSE(again.remark.empty());
    EXPECT_LE(again.remark.size(), kOpen.text_bytes);
  }
}

}  // namespace
}  // namespace gigabar
