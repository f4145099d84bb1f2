// SPDX-License-Identifier: Apache-2.0
#include "base/json.hpp"

#include <nlohmann/json.hpp>
#include <utility>

#include "base/errors.hpp"
#include "base/in_place.hpp"
#include "base/shown.hpp"

namespace gigabar::inline v0::json {
namespace {

using Json = nlohmann::json;

// Empties what is nested from the inside, so that the destructor, which lists what an object or array holds, has nothing to list.
class Document : InPlace {
 public:
  ~Document() { empty(root); }

  Json root;

 private:
  static void empty(Json& value) noexcept {
    if (!value.is_structured()) return;
    for (Json& nested : value) empty(nested);
    value.clear();
  }
};

// Makes a document of what the parser finds. No temporary holds anything nested.
class Builder final : public nlohmann::json_sax<Json> {
 public:
  Builder(Json& root, const Limits& limits) : root_(root), limits_(limits) {}

  bool null() override { return add({}) != nullptr; }
  bool boolean(bool value) override { return add(value) != nullptr; }
  bool number_integer(Json::number_integer_t value) override { return add(value) != nullptr; }
  bool number_unsigned(Json::number_unsigned_t value) override { return add(value) != nullptr; }
  bool number_float(Json::number_float_t value, const std::string& /*text*/) override { return add(value) != nullptr; }
  bool string(std::string& value) override { return add(std::move(value)) != nullptr; }
  bool binary(Json::binary_t& /*value*/) override { refuse("has bytes that are no text"); }
  bool start_object(std::size_t /*count*/) override { return enter(Json::object()); }
  bool start_array(std::size_t /*count*/) override { return enter(Json::array()); }
  bool end_object() override { return leave(); }
  bool end_array() override { return leave(); }
  bool key(std::string& name) override {
    if (inside_.back()->contains(name)) refuse(text("has the name \"", shown(name), "\" twice in one object"));
    name_ = std::move(name);
    return true;
  }
  bool parse_error(std::size_t byte, const std::string& /*token*/, const nlohmann::detail::exception& error) override {
    if (dynamic_cast<const Json::parse_error*>(&error) != nullptr) refuse(text("is not JSON from byte ", byte, " on"));
    refuse(text("has a value that JSON cannot hold: ", shown(error.what())));
  }

 private:
  [[noreturn]] void refuse(std::string cause) const { throw Problem{std::string(limits_.whole), std::move(cause)}; }

  Json* add(Json value) {
    if (inside_.size() > limits_.depth) refuse(text("is nested deeper than ", limits_.depth));
    if (++count_ > limits_.values) refuse(text("has more than ", limits_.values, " values"));
    if (inside_.empty()) return &(root_ = std::move(value));
    Json& above = *inside_.back();
    if (above.is_object()) return &*above.emplace(name_, std::move(value)).first;
    above.push_back(std::move(value));
    return &above.back();
  }
  bool enter(Json value) {
    inside_.push_back(add(std::move(value)));
    return true;
  }
  bool leave() {
    inside_.pop_back();
    return true;
  }

  Json& root_;
  const Limits& limits_;
  std::vector<Json*> inside_;  // the objects and arrays that have begun
  std::string name_;           // of the value that comes next in an object
  std::size_t count_ = 0;
};

bool is_control(char letter) { return static_cast<unsigned char>(letter) < 0x20 || letter == 0x7f; }

// Of a string, a number or a truth value: without anything nested.
std::string text_of(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace

void parse(std::string_view text, const Limits& limits, const std::function<void(const Value&)>& read) {
  Document document;
  Builder builder(document.root, limits);
  Json::sax_parse(text.begin(), text.end(), &builder);
  read(Value(document.root, limits, ""));
}

// ---- Value ----

void Value::refuse(std::string cause) const {
  throw Problem{place_.empty() ? std::string(limits_->whole) : place_, std::move(cause)};
}

bool Value::is_null() const noexcept { return value_->is_null(); }
bool Value::is_text() const noexcept { return value_->is_string(); }
bool Value::is_object() const noexcept { return value_->is_object(); }

bool Value::boolean() const {
  if (!value_->is_boolean()) refuse("is neither true nor false");
  return value_->get<bool>();
}

const std::string& Value::text() const {
  if (!value_->is_string()) refuse("is not a text");
  const auto& content = value_->get_ref<const std::string&>();
  if (content.size() > limits_->text_bytes) refuse(gigabar::text("is longer than ", limits_->text_bytes, " bytes"));
  if (limits_->is_exact && std::any_of(content.begin(), content.end(), is_control)) refuse("has a control character");
  return content;
}

double Value::real() const {
  if (!value_->is_number()) refuse("is not a number");
  return value_->get<double>();
}

std::uint64_t Value::number(std::uint64_t least, std::uint64_t most) const {
  const bool is_within =
      value_->is_number_unsigned() && value_->get<std::uint64_t>() >= least && value_->get<std::uint64_t>() <= most;
  if (!is_within) refuse(gigabar::text("is not a whole number from ", least, " to ", most));
  return value_->get<std::uint64_t>();
}

std::int64_t Value::integer(std::int64_t least, std::int64_t most) const {
  const bool is_whole = value_->is_number_integer() &&
                        !(value_->is_number_unsigned() && value_->get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max());
  if (!is_whole || value_->get<std::int64_t>() < least || value_->get<std::int64_t>() > most) {
    refuse(gigabar::text("is not a whole number from ", least, " to ", most));
  }
  return value_->get<std::int64_t>();
}

std::optional<Value> Value::member(std::string_view name) const {
  if (!value_->is_object()) refuse("is not an object");
  const auto found = value_->find(name);
  if (found == value_->end()) return {};
  return Value(*found, *limits_, place_.empty() ? std::string(name) : gigabar::text(place_, ".", name));
}

void Value::expect_only(std::span<const std::string_view> names) const {
  for (const auto& [name, value] : value_->get_ref<const Json::object_t&>()) {
    const bool is_known = std::find(names.begin(), names.end(), name) != names.end();
    if (!is_known) refuse(gigabar::text("has an unknown name \"", shown(name), "\""));
  }
}

void Value::each_member(std::string_view between, const std::function<void(const std::string&, const Value&)>& visit) const {
  if (!value_->is_object()) refuse("is not an object");
  if (value_->size() > limits_->entries) refuse(gigabar::text("has more than ", limits_->entries, " entries"));
  for (const auto& [name, value] : value_->get_ref<const Json::object_t&>()) {
    if (name.size() > limits_->text_bytes) refuse(gigabar::text("has a name longer than ", limits_->text_bytes, " bytes"));
    visit(name, Value(value, *limits_, gigabar::text(place_, between, shown(name))));
  }
}

std::size_t Value::entry_count() const {
  if (!value_->is_array()) refuse("is not an array");
  if (value_->size() > limits_->entries) refuse(gigabar::text("has more than ", limits_->entries, " entries"));
  return value_->size();
}

Value Value::entry(std::size_t index) const {
  if (index >= entry_count()) refuse(gigabar::text("has no entry ", index));
  return {(*value_)[index], *limits_, gigabar::text(place_, "[", index, "]")};
}

// ---- FieldReader ----

std::optional<Value> FieldReader::find(std::string_view name, bool is_needed) {
  known_.push_back(name);
  std::optional<Value> found = object_.member(name);
  if (!found && is_needed) object_.refuse(text("has no \"", name, "\""));
  return found;
}

void FieldReader::constant(std::string_view name, std::string_view wanted) {
  known_.push_back(name);
  const std::optional<Value> found = object_.is_object() ? object_.member(name) : std::nullopt;
  if (!found || !found->is_text() || found->text() != wanted) throw Problem{std::string(name), text("is not \"", wanted, "\"")};
}

void FieldReader::constant(std::string_view name, std::uint64_t wanted) {
  const std::optional<Value> found = find(name, true);
  if (found->number(0, UINT64_MAX) != wanted) found->refuse(text("is not ", wanted));
}

void FieldReader::end() const {
  if (object_.limits().is_exact) object_.expect_only(known_);
}

// ---- Writer ----

void Writer::begin_line() {
  text_ += '\n';
  text_.append(depth_, ' ');
}

// A value, or a member's name, behind what separates it from the one before.
void Writer::plain(std::string_view text) {
  if (!std::exchange(is_after_name_, false)) {
    if (!std::exchange(is_first_, false)) text_ += ',';
    begin_line();
  }
  text_ += text;
}

void Writer::begin(char opening) {
  plain({&opening, 1});
  ++depth_;
  is_first_ = true;
}

void Writer::end(char closing) {
  --depth_;
  if (!is_first_) begin_line();
  text_ += closing;
  is_first_ = false;
}

void Writer::name(std::string_view name) {
  plain(text_of(name) + ": ");
  is_after_name_ = true;
}

void Writer::value(double value) { plain(text_of(value)); }

void Writer::value(std::string_view value) {
  // A byte that is replaced becomes three.
  const bool is_ascii =
      std::none_of(value.begin(), value.end(), [](char letter) { return static_cast<unsigned char>(letter) > 0x7f; });
  plain(text_of(value.substr(0, is_ascii ? limits_.text_bytes : limits_.text_bytes / 3)));
}

}  // namespace gigabar::inline v0::json
