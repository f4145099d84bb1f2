// SPDX-License-Identifier: Apache-2.0
// Transfers from text. Every refusal names the column of the word, and what could stand there.
#include <algorithm>
#include <array>
#include <charconv>
#include <climits>
#include <optional>
#include <vector>

#include "base/errors.hpp"
#include "base/options.hpp"
#include "base/uncancelled.hpp"
#include "streams/plan.hpp"

namespace gigabar::inline v0 {
namespace {

constexpr std::size_t kMaxTransfers = 4096;  // from one line
constexpr std::uint64_t kMaxNode = 1023;
constexpr std::string_view kExample = "write for example gpu0->host ce bytes=1G, in quotes where a shell reads it";

constexpr std::string_view kSpaces = " \t\r\n";

// The text, of which every word below is a part.
struct Line {
  std::string_view whole;
  std::size_t number;

  Error refuse(std::string_view word, std::string_view what, std::string_view remedy = kExample) const {
    return make_error(Status::invalid_argument, "read transfer", text(number, ":", word.data() - whole.data() + 1),
                      text(quoted_word(word), " ", what), std::string(remedy));
  }
};

// What stands between separators: one more than there are separators.
std::vector<std::string_view> split(std::string_view part, std::string_view separators) {
  std::vector<std::string_view> parts;
  std::size_t begin = 0;
  for (;;) {
    const std::size_t end = part.find_first_of(separators, begin);
    parts.push_back(part.substr(begin, end - begin));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}

// A decimal number within [least, most], nothing else around it; "nan" and "inf" are in no range.
std::optional<double> parse_decimal(std::string_view word, double least, double most) {
  double value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc{} || end != word.data() + word.size() || !(value >= least && value <= most)) return {};
  return value;
}

std::string names_of(const auto& rows) {
  return joined(rows, ", ", [](const auto& row) { return row.name; });
}

template <class Row, std::size_t kCount>
const Row* find_row(const std::array<Row, kCount>& rows, std::string_view name) {
  const auto row = std::find_if(rows.begin(), rows.end(), [&](const Row& candidate) { return candidate.name == name; });
  return row == rows.end() ? nullptr : &*row;
}

struct ExecutorRow {
  std::string_view name;
  StreamExecutor executor;
  StreamSide side;
  unsigned most_workers;  // 0: has none to choose
};
constexpr std::array kExecutors = {
    ExecutorRow{"ce", StreamExecutor::copy_engine, StreamSide::automatic, 0},
    ExecutorRow{"ce-push", StreamExecutor::copy_engine, StreamSide::source, 0},
    ExecutorRow{"ce-pull", StreamExecutor::copy_engine, StreamSide::destination, 0},
    ExecutorRow{"sm", StreamExecutor::kernel, StreamSide::automatic, kMaxBlocks},
    ExecutorRow{"sm-push", StreamExecutor::kernel, StreamSide::source, kMaxBlocks},
    ExecutorRow{"sm-pull", StreamExecutor::kernel, StreamSide::destination, kMaxBlocks},
    ExecutorRow{"cpu", StreamExecutor::cpu, StreamSide::automatic, kMaxThreads},
    ExecutorRow{"flag", StreamExecutor::flag, StreamSide::automatic, 0},
    ExecutorRow{"chase", StreamExecutor::pointer_chase, StreamSide::automatic, 0},
};

struct FlagRow {
  std::string_view name;
  bool Transfer::* field;
};
constexpr std::array kFlags = {FlagRow{"background", &Transfer::is_background}, FlagRow{"latency", &Transfer::is_latency},
                               FlagRow{"stage", &Transfer::may_stage}};

// One end as it was written: host memory, or devices.
struct End {
  std::vector<StreamPlace> places;
  bool is_set = false;  // gpu[...] or gpu*, though it may hold one device

  bool is_host() const { return places.front().is_host(); }
};

// Reads the words of one transfer line.
class TransferReader {
 public:
  TransferReader(const Transfer& defaults, int device_count, const Line& line)
      : defaults_(defaults), transfer_(defaults), device_count_(device_count), line_(line) {}

  Result<void> read(const std::vector<std::string_view>& words) {
    ends_word_ = words.front();
    if (auto read = read_ends(words.front()); !read) return read;
    for (std::size_t i = 1; i < words.size(); ++i) {
      if (auto read = read_word(words[i]); !read) return read;
    }
    return check_length();
  }

  // Appends every pair of the ends, `count` times each.
  Result<void> append_to(std::vector<Transfer>& transfers) const {
    const std::size_t before = transfers.size();
    for (const StreamPlace& source : source_.places) {
      for (const StreamPlace& destination : destination_.places) {
        if (is_skipped(source, destination)) continue;
        if (transfers.size() + count_ > kMaxTransfers) {
          return refuse(ends_word_, text("makes more than ", kMaxTransfers, " transfers with what stands before it"),
                        "give fewer devices, a smaller count, or several lines");
        }
        Transfer next = transfer_;
        next.source = source;
        next.destination = destination;
        transfers.insert(transfers.end(), count_, next);
      }
    }
    if (transfers.size() != before) return {};
    return refuse(ends_word_, text("gives no pair of different devices; ", devices_text(device_count_)),
                  "a copy within one device is written gpu0->gpu0");
  }

 private:
  using Setter = Result<void> (TransferReader::*)(std::string_view value);
  struct KeyRow {
    std::string_view name;
    Setter set;
  };

  Error refuse(std::string_view word, std::string_view what, std::string_view remedy = kExample) const {
    return line_.refuse(word, what, remedy);
  }

  // Stores what was read of the word; nothing: it is refused.
  template <class Read, class Field>
  Result<void> take(std::string_view word, const std::optional<Read>& read, Field& field, std::string_view what,
                    std::string_view remedy = kExample) const {
    if (!read) return refuse(word, what, remedy);
    field = static_cast<Field>(*read);
    return {};
  }

  // --- ends

  Result<void> read_ends(std::string_view word) {
    const std::size_t arrow = word.find("->");
    if (arrow == std::string_view::npos) {
      return refuse(word, "is no pair of ends; expected SOURCE->DESTINATION, without spaces around the arrow");
    }
    auto source = read_end(word.substr(0, arrow), defaults_.source);
    if (!source) return std::move(source).error();
    auto destination = read_end(word.substr(arrow + 2), defaults_.destination);
    if (!destination) return std::move(destination).error();
    source_ = std::move(source).value();
    destination_ = std::move(destination).value();
    return {};
  }

  Result<End> read_end(std::string_view word, const StreamPlace& defaults) const {
    if (word == "host" || word.starts_with("host:")) return read_host(word, defaults);
    if (!word.starts_with("gpu")) {
      return refuse(word, "is no place; expected gpuN, gpu[A,B], gpu[A..B], gpu*, host, host:NODE or host:any");
    }
    const std::string_view devices = word.substr(3);
    if (devices == "*") return read_all(word);
    if (!devices.starts_with('[')) {
      auto device = read_device(devices, word);
      if (!device) return std::move(device).error();
      return End{{{.device = *device}}};
    }
    if (!devices.ends_with(']')) return refuse(word, "is not closed; expected ']' at its end");
    return read_set(devices.substr(1, devices.size() - 2));
  }

  Result<End> read_host(std::string_view word, const StreamPlace& defaults) const {
    if (word == "host") return End{{{.pages = defaults.pages, .numa_node = defaults.numa_node}}};
    const std::string_view node = word.substr(5);
    if (node == "any") return End{{{.pages = defaults.pages, .numa_node = StreamPlace::kAnyNode}}};
    const auto number = parse_number(node, 0, kMaxNode);
    if (!number) return refuse(node, text("is no NUMA node; expected a number up to ", kMaxNode, ", or any"));
    return End{{{.pages = defaults.pages, .numa_node = static_cast<int>(*number)}}};
  }

  Result<End> read_all(std::string_view word) const {
    if (device_count_ <= 0) return refuse(word, text("stands for every GPU; ", devices_text(device_count_)));
    End end{.places = {}, .is_set = true};
    if (auto added = add_range(end, word, 0, device_count_ - 1); !added) return std::move(added).error();
    return end;
  }

  // Between the brackets: numbers and ranges.
  Result<End> read_set(std::string_view list) const {
    End end{.places = {}, .is_set = true};
    for (const std::string_view part : split(list, ",")) {
      const std::size_t dots = part.find("..");
      const std::string_view first_word = part.substr(0, dots);
      const std::string_view last_word = dots == std::string_view::npos ? part : part.substr(dots + 2);
      const auto first = read_device(first_word, first_word);
      if (!first) return first.error();
      const auto last = read_device(last_word, last_word);
      if (!last) return last.error();
      if (last.value() < first.value()) return refuse(part, "runs backwards; expected the smaller number first");
      if (auto added = add_range(end, part, first.value(), last.value()); !added) return std::move(added).error();
    }
    return end;
  }

  Result<void> add_range(End& end, std::string_view word, int first, int last) const {
    for (int device = first; device <= last; ++device) {
      const StreamPlace place{.device = device};
      if (std::find(end.places.begin(), end.places.end(), place) != end.places.end()) {
        return refuse(word, text("names device ", device, " a second time"));
      }
      if (end.places.size() == kMaxTransfers) return refuse(word, text("stands for more than ", kMaxTransfers, " devices"));
      end.places.push_back(place);
    }
    return {};
  }

  // `shown`: the word that a message quotes.
  Result<int> read_device(std::string_view word, std::string_view shown) const {
    const bool is_number = !word.empty() && word.find_first_not_of("0123456789") == std::string_view::npos;
    if (!is_number) return refuse(shown, "is no device; expected a number, as in gpu0, gpu[0,1] or gpu[0..3]");
    const auto number = parse_number(word, 0, INT_MAX);
    if (!number || static_cast<int>(*number) >= device_count_) {
      return refuse(shown, text("does not exist; ", devices_text(device_count_)), "name a device that exists");
    }
    return static_cast<int>(*number);
  }

  // --- everything behind the ends

  Result<void> read_word(std::string_view word) {
    if (const std::size_t equals = word.find('='); equals != std::string_view::npos) return read_key(word, equals);
    if (const FlagRow* flag = find_row(kFlags, word)) {
      if (is_repeated(flag->name)) return refuse(word, "stands here a second time");
      transfer_.*flag->field = true;
      return {};
    }
    const std::size_t colon = std::min(word.find(':'), word.size());
    if (const ExecutorRow* executor = find_row(kExecutors, word.substr(0, colon))) return read_executor(word, colon, *executor);
    return refuse(word, text("is unknown; expected an executor (", names_of(kExecutors), "), a word (", names_of(kFlags),
                             ") or KEY=VALUE (", names_of(kKeys), ")"));
  }

  Result<void> read_executor(std::string_view word, std::size_t colon, const ExecutorRow& executor) {
    if (is_repeated("executor")) return refuse(word, "is a second executor");
    if (transfer_.executor != executor.executor) transfer_.worker_count = 0;  // the defaults' are another executor's
    transfer_.executor = executor.executor;
    transfer_.side = executor.side;
    if (colon == word.size()) return {};
    if (executor.most_workers == 0) return refuse(word, "has no blocks or threads to choose; expected sm:BLOCKS or cpu:THREADS");
    const std::string_view count = word.substr(colon + 1);
    return take(count, parse_number(count, 1, executor.most_workers), transfer_.worker_count,
                text("is no number of blocks or threads; expected 1 to ", executor.most_workers));
  }

  Result<void> read_key(std::string_view word, std::size_t equals) {
    const KeyRow* key = find_row(kKeys, word.substr(0, equals));
    if (key == nullptr) return refuse(word, text("has an unknown key; expected ", names_of(kKeys)));
    if (is_repeated(key->name)) return refuse(word, "gives its key a second time");
    return (this->*key->set)(word.substr(equals + 1));
  }

  // Each word may stand once; the second time it is repeated.
  bool is_repeated(std::string_view name) {
    if (std::find(seen_.begin(), seen_.end(), name) != seen_.end()) return true;
    seen_.push_back(name);
    return false;
  }

  Result<void> set_bytes(std::string_view value) {
    auto bytes = parse_bytes(value);
    if (bytes > kMaxTransferBytes) bytes.reset();
    return take(value, bytes, transfer_.bytes,
                text("is no size; expected bytes as a whole number with K, M or G, from 1 to ", kMaxTransferBytes >> 30, "G"),
                "write for example bytes=256M");
  }

  Result<void> set_iterations(std::string_view value) {
    length_ = value;
    return take(value, parse_number(value, 0, kMaxIterations), transfer_.iterations,
                text("is no number of iterations; expected 0 to ", kMaxIterations), "write for example iterations=100");
  }

  Result<void> set_seconds(std::string_view value) {
    seconds_ = value;
    auto seconds = parse_decimal(value, 0, kMaxSeconds);
    if (seconds == 0.0) seconds.reset();
    return take(value, seconds, transfer_.seconds, "is no duration; expected seconds above 0 and up to 86400",
                "write for example seconds=2.5");
  }

  Result<void> set_delay(std::string_view value) {
    return take(value, parse_decimal(value, 0, kMaxDelaySeconds), transfer_.delay_seconds,
                "is no delay; expected seconds from 0 to 3600", "write for example delay=0.5");
  }

  // One kind for the host end or both, or two for source and destination.
  Result<void> set_pages(std::string_view value) {
    const std::vector<std::string_view> kinds = split(value, ",");
    const bool has_two_hosts = source_.is_host() && destination_.is_host();
    if (!source_.is_host() && !destination_.is_host()) {
      return refuse(value, "chooses host pages, and neither end is host memory", "leave pages away");
    }
    if (kinds.size() > (has_two_hosts ? 2U : 1U)) {
      return refuse(value, "names more kinds of pages than there are host ends", "write for example pages=huge");
    }
    for (const std::string_view kind : kinds) {
      const auto pages = pages_named(kind);
      if (!pages) return refuse(kind, "is no kind of host pages; expected pinned, pageable, wc or huge");
      if (source_.is_host() && kind.data() == value.data()) source_.places.front().pages = *pages;
      if (destination_.is_host()) destination_.places.front().pages = *pages;
    }
    return {};
  }

  static std::optional<HostPages> pages_named(std::string_view name) {
    for (const HostPages pages : {HostPages::pinned, HostPages::pageable, HostPages::write_combined, HostPages::huge}) {
      if (name == name_of(pages)) return pages;
    }
    return {};
  }

  Result<void> set_group(std::string_view value) {
    if (!is_group_name(value)) {
      return refuse(value, "is no name of a group; expected 1 to 64 characters without spaces", "write for example group=nvlink");
    }
    transfer_.group = value;
    return {};
  }

  Result<void> set_count(std::string_view value) {
    return take(value, parse_number(value, 1, kMaxTransfers), count_, text("is no count; expected 1 to ", kMaxTransfers),
                "write for example count=2");
  }

  // Of iterations and seconds, the one that was written replaces the other's default.
  Result<void> check_length() {
    if (length_ && seconds_ && transfer_.iterations != 0) {
      return refuse(*seconds_, "is a second length; expected either iterations or seconds", "write for example seconds=2.5");
    }
    if (seconds_) transfer_.iterations = 0;
    if (length_ && transfer_.iterations != 0) transfer_.seconds = 0;
    return {};
  }

  // --- pairs

  bool is_skipped(const StreamPlace& source, const StreamPlace& destination) const {
    return (source_.is_set || destination_.is_set) && !source.is_host() && source.device == destination.device;
  }

  static constexpr std::array<KeyRow, 7> kKeys = {{{"bytes", &TransferReader::set_bytes},
                                                   {"iterations", &TransferReader::set_iterations},
                                                   {"seconds", &TransferReader::set_seconds},
                                                   {"delay", &TransferReader::set_delay},
                                                   {"pages", &TransferReader::set_pages},
                                                   {"group", &TransferReader::set_group},
                                                   {"count", &TransferReader::set_count}}};

  const Transfer& defaults_;
  Transfer transfer_;
  int device_count_;
  const Line& line_;
  std::string_view ends_word_;
  End source_;
  End destination_;
  std::optional<std::string_view> length_;
  std::optional<std::string_view> seconds_;
  std::size_t count_ = 1;
  std::vector<std::string_view> seen_;
};

}  // namespace

Result<std::vector<Transfer>> parse_transfers(std::string_view text, const Transfer& defaults, int device_count,
                                              std::size_t line) try {
  const Uncancelled uncancelled;
  const std::string_view whole = text.substr(0, text.find_last_not_of(kSpaces) + 1);
  const Line origin{text, line};
  if (const std::size_t at = whole.find('\n'); at != std::string_view::npos) {
    return origin.refuse(whole.substr(at, 1), "is a line break; expected one line");  // a comment would hide the lines behind it
  }
  std::vector<Transfer> transfers;
  for (const std::string_view part : split(whole.substr(0, whole.find('#')), ";")) {
    const std::vector<std::string_view> words = words_of(part, kSpaces);
    if (words.empty()) continue;
    TransferReader reader(defaults, device_count, origin);
    if (auto read = reader.read(words); !read) return std::move(read).error();
    if (auto appended = reader.append_to(transfers); !appended) return std::move(appended).error();
  }
  return transfers;
} catch (...) {
  return error_of_exception("parse_transfers");
}

}  // namespace gigabar::inline v0
