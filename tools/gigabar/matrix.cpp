// SPDX-License-Identifier: Apache-2.0
// gigabar matrix: latency and bandwidth between all pairs of the ranks of a job, and what is slow among them.
#include <fmt/format.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/counted.hpp"
#include "commands.hpp"
#include "gigabar/fabric.hpp"
#include "matrix/job.hpp"
#include "ranks/exchange.hpp"
#include "ranks/measure.hpp"
#include "support/failure.hpp"
#include "support/options.hpp"
#include "support/report.hpp"

namespace gigabar::tool {
namespace ranks {
namespace {

using matrix::AtOnce, matrix::Judgement, matrix::Shown;

// Above those of exchanges.
constexpr Tag kFromRank0Tag = 4096, kHandOverTag = 4097, kPairTag = 4098;
constexpr std::uint64_t kLatencyBytes = 8;
constexpr std::uint32_t kRoundTripsPerWindow = 10;
constexpr int kExitSlow = 3;
constexpr std::size_t kMaxLocalRanks = 512;

enum class Measures : std::uint8_t { both, latency, bandwidth };
constexpr std::array<Named<Measures>, 3> kMeasures = {
    {{Measures::both, "both"}, {Measures::latency, "latency"}, {Measures::bandwidth, "bandwidth"}}};

struct MatrixOptions : JobOptions {
  std::string accelerator = "host";
  Place place = Place::host;  // settled
  Measures measures = Measures::both;
  AtOnce at_once = AtOnce::all;
  std::uint64_t bytes = std::uint64_t{1} << 20;
  std::uint32_t iteration_count = 10, warm_up_count = 2, window = 16;
  std::uint32_t again_count = 4;
  std::uint32_t local_count = 4;
  bool is_checked = false;
  std::string svg_path, csv_path, switches_path;
  // Settled.
  Plan latency, bandwidth;
  matrix::Switches switches;  // at rank 0, which judges
};

Plan plan_of(const MatrixOptions& options, Measure measure) {
  Plan plan;
  plan.options.measure = measure;
  plan.options.kind = Kind::write;
  plan.options.is_checked = options.is_checked;
  plan.options.window = options.window;
  plan.options.warm_up_count = options.warm_up_count;
  plan.options.iteration_count = options.iteration_count * (is_latency(measure) ? kRoundTripsPerWindow : 1);
  plan.options.fabric = options.fabric;
  plan.first_place = plan.second_place = options.place;
  plan.range = {kLatencyBytes, std::max(kLatencyBytes, options.bytes)};
  plan.sizes = {kLatencyBytes, options.bytes};
  return plan;
}

// From the command line alone.
MatrixOptions settled(MatrixOptions options) {
  options.place = place_of("-d", options.accelerator);
  options.fabric.options = fabric_options(options.fabric);
  // Where all ranks are at work they begin together.
  const bool is_all = options.at_once == AtOnce::all;
  options.latency = plan_of(options, is_all ? Measure::many_latencies : Measure::latency);
  options.bandwidth = plan_of(options, is_all ? Measure::many_bandwidths : Measure::bandwidth);
  if (rank_by_environment() != "0") return options;
  // Rank 0 reads and writes files.
  if (!options.switches_path.empty()) options.switches = matrix::read_switches(options.switches_path);
  for (const auto& [name, path] : {std::pair("--svg", options.svg_path), std::pair("--csv", options.csv_path)}) {
    if (!path.empty()) require_writable(name, path);
  }
  return options;
}

void require_several(Rank rank_count) {
  if (rank_count < 2) refuse_usage("the job has 1 rank, and matrix measures between ranks; start 2 or more");
}

// What is the same at all processes of a host, and differs between hosts of one name.
std::string machine_id() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

class MatrixSession : public BufferSession {
 public:
  MatrixSession(const MatrixOptions& options, Invocation& invocation)
      : BufferSession("matrix", options, invocation, require_several), options_(options), invocation_(invocation) {}

  void run() {
    join();
    count_ = fabric().rank_count();
    agree("matrix", options_.accelerator, name_in(kMeasures, options_.measures), name_in(matrix::kAtOnce, options_.at_once),
          options_.bytes, options_.iteration_count, options_.warm_up_count, options_.window, options_.again_count,
          options_.is_checked);
    make_buffers(options_.bandwidth, options_.place);
    meet(timeout());
    if (report() != nullptr) print_titles();
    meet_others();
    measure_all();
    if (report() != nullptr) tell_results();
    leave(patience_with_rank_0());
    if (report() == nullptr) return;
    write_files();
    if (has_slow()) invocation_.exit_status = kExitSlow;
  }

 private:
  bool has(Measures measure) const noexcept { return options_.measures == Measures::both || options_.measures == measure; }

  // --- Who is where --------------------------------------------------------------------------------------------------------------

  // How long rank 0 may think: about the paths between all ranks, which takes seconds where there are thousands.
  Timeout patience_with_rank_0() const { return times(timeout(), 1 + count_ / 100); }

  // Numbers of rank 0 at every rank: how many bytes they are, and then themselves. What another process sent is not trusted.
  std::vector<int> numbers_from_rank_0(std::vector<int> numbers, std::size_t most_count) {
    const Timeout patience = patience_with_rank_0();
    std::uint64_t bytes = numbers.size() * sizeof(int);
    for (Rank to = 1; rank() == 0 && to < count_; ++to) {
      require(fabric().send(to, kFromRank0Tag, &bytes, sizeof bytes, patience));
      require(fabric().send(to, kFromRank0Tag, numbers.data(), bytes, patience));
    }
    if (rank() == 0) return numbers;
    take(fabric().recv(0, kFromRank0Tag, &bytes, sizeof bytes, patience));
    if (bytes > most_count * sizeof(int)) fail("rank 0 has announced a text that is too long");
    numbers.assign(bytes / sizeof(int), 0);
    take(fabric().recv(0, kFromRank0Tag, numbers.data(), numbers.size() * sizeof(int), patience));
    const auto is_none = [most_count](int number) { return number < 0 || static_cast<std::size_t>(number) > most_count; };
    if (std::any_of(numbers.begin(), numbers.end(), is_none)) fail("rank 0 has sent something else than numbers");
    return numbers;
  }

  void meet_others() {
    Json own = introduction_of(device_);
    own["note"] = buffers_.front()->note();
    const std::vector<Json> introductions = introduce(own);
    const Json location = {
        {"machine", machine_id()},
        {"tree", matrix::switch_of_slurm(std::getenv("SLURM_TOPOLOGY_ADDR"), std::getenv("SLURM_TOPOLOGY_ADDR_PATTERN"))}};
    const std::vector<Json> locations = gather_introductions(location, kMaxIntroductionBytes, timeout());
    for (std::size_t i = 0; i < introductions.size(); ++i) {
      whereabouts_.push_back(
          {text_of(introductions[i], "host"), text_of(locations[i], "machine"), "", text_of(locations[i], "tree")});
    }
    std::vector<int> hosts;
    for (const matrix::Placement& each : matrix::places_of(whereabouts_, options_.switches).ranks) hosts.push_back(each.host);
    hosts_ = numbers_from_rank_0(hosts, count_);
    if (hosts_.size() != count_) fail("rank 0 has sent the hosts of another number of ranks");
  }

  // --- Measuring -----------------------------------------------------------------------------------------------------------------

  void measure_all() {
    figures_.latency_us = figures_.gb_per_s = matrix::RankRow(count_);
    const std::size_t most_numbers = is_all_at_once() ? count_ : std::size_t{count_} * (count_ - 1) / 2;
    std::optional<std::vector<int>> wanted;  // numbers as visit_wanted() counts them; nothing: all
    for (std::uint32_t pass = 0; !wanted || !wanted->empty(); ++pass) {
      measure_pass(wanted, pass);
      gather_figures();
      wanted = numbers_from_rank_0(pass < options_.again_count ? what_is_slow(pass) : std::vector<int>(), most_numbers);
    }
  }

  // Where all ranks are at work at once batches are counted, else pairs, in their order. `visit` sees each batch that has wanted
  // pairs, with these alone.
  template <class Visit>
  void visit_wanted(const std::optional<std::vector<int>>& wanted, const Visit& visit) const {
    int number = 0;
    matrix::visit_batches(hosts_, options_.at_once, [&](const Pairing& pairs) {
      const auto is_wanted = [&] { return !wanted || std::binary_search(wanted->begin(), wanted->end(), number); };
      Pairing chosen;
      for (const auto& pair : pairs) {
        if (is_wanted()) chosen.push_back(pair);
        if (!is_all_at_once()) ++number;
      }
      if (is_all_at_once()) ++number;
      if (!chosen.empty()) visit(chosen);
    });
  }

  void measure_pass(const std::optional<std::vector<int>>& wanted, std::uint32_t pass) {
    const auto begin = std::chrono::steady_clock::now();
    std::size_t batch_count = 0, done = 0;
    visit_wanted(wanted, [&](const Pairing&) { ++batch_count; });
    matrix::Turns turns(hosts_, options_.at_once);
    visit_wanted(wanted, [&](const Pairing& pairs) {
      if (report() != nullptr) {
        const double elapsed_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        report()->show_progress("{}batch {} of {}{}", pass == 0 ? "" : "what looks slow again: ", done + 1, batch_count,
                                time_left(elapsed_s, static_cast<double>(done), static_cast<double>(batch_count)));
      }
      ++done;
      // Of turns, a batch may be behind all that were before it.
      patience_ =
          times(patient_timeout(options_.bandwidth, options_.bytes), is_all_at_once() ? 1 : static_cast<std::int64_t>(done));
      std::optional<Rank> partner;
      for (const auto& pair : pairs) {
        if (!is_all_at_once()) hand_over(turns.take(pair));
        if (pair.first == static_cast<int>(rank())) partner = static_cast<Rank>(pair.second);
        if (pair.second == static_cast<int>(rank())) partner = static_cast<Rank>(pair.first);
      }
      if (partner || is_all_at_once()) measure_pair(partner);
    });
    meet(patience_);
  }

  bool is_all_at_once() const noexcept { return options_.at_once == AtOnce::all; }

  // Small messages, behind all that the rank which had the turn did.
  void hand_over(const std::vector<std::pair<int, int>>& all) {
    for (const auto& [from, to] : all) {
      if (from == static_cast<int>(rank())) tell(static_cast<Rank>(to), kHandOverTag);
      if (to != static_cast<int>(rank())) continue;
      // A rank that has a connection is told when the other one is lost.
      require(fabric().connect(static_cast<Rank>(from), timeout()));
      hear(static_cast<Rank>(from), kHandOverTag);
    }
  }

  void tell(Rank to, Tag what) {
    constexpr std::uint32_t kNothing = 0;
    require(fabric().send(to, what, &kNothing, sizeof kNothing, patience_));
  }
  void hear(Rank from, Tag what) {
    std::uint32_t nothing = 0;
    take(fabric().recv(from, what, &nothing, sizeof nothing, patience_));
  }

  // Without a partner: a rank that the others' barriers need.
  void measure_pair(std::optional<Rank> partner) {
    if (partner) require(fabric().connect(*partner, timeout()));
    if (has(Measures::latency)) measure_with(partner, options_.latency, rank() < partner.value_or(0));
    if (!has(Measures::bandwidth)) return;
    for (const bool is_lesser : {true, false})
      measure_with(partner, options_.bandwidth, (rank() < partner.value_or(0)) == is_lesser);
  }

  // Whom this rank measures with is done with what was before; where all are at work at once, everybody is.
  void begin_with(std::optional<Rank> partner) {
    if (is_all_at_once()) return meet(patience_);
    tell(*partner, kPairTag);
    hear(*partner, kPairTag);
  }

  void measure_with(std::optional<Rank> partner, const Plan& plan, bool is_active) {
    begin_with(partner);
    const bool is_time = is_latency(plan.options.measure);
    const std::uint64_t bytes = is_time ? kLatencyBytes : options_.bytes;
    const Seat seat{partner.value_or(rank()), partner && is_active, !partner};
    std::barrier<> gate(1);
    Measurement measured = Exchange(fabric(), *buffers_.front(), plan, clock_, seat, 0, bytes).measure(gate);
    figures_.add(measured, fmt::format("from rank {}: ", seat.partner));
    if (!seat.is_active) return;
    const double p50_us = summarize(measured.samples_ps, kNsPerPs).p50_us;
    if (!(p50_us > 0)) return;
    const matrix::PathIndex path = paths_.index_of(measured.path.text);
    if (is_time) return figures_.latency_us.keep_less(*partner, p50_us, path);
    const double gb = static_cast<double>(bytes) * plan.options.window * 1e-9;
    figures_.gb_per_s.keep_more(*partner, gb / (p50_us * 1e-6), path);
    note_rails(*partner, measured.path.detail);
  }

  // Of the writes to other hosts, which are all alike where each rank has its own rails.
  void note_rails(Rank partner, const Json& detail) {
    if (hosts_[partner] == hosts_[rank()] || !detail.contains("rails")) return;
    std::string rails;
    for (const Json& each : detail["rails"]) rails += (rails.empty() ? "" : ", ") + each["rail"].get<std::string>();
    rails_.insert(std::move(rails));
  }

  void gather_figures() {
    figures_.path_texts = paths_.all();
    figures_.rails = rails_.size() == 1 ? *rails_.begin() : "";
    const std::vector<std::string> texts = gather(matrix::encode(figures_), matrix::most_encoded_bytes(count_), timeout());
    if (report() == nullptr) return;
    job_.emplace(count_);
    complaint_ = {};
    for (std::size_t from = 0; from < texts.size(); ++from) {
      const auto row = matrix::decode(texts[from], count_);
      if (!row) fail(fmt::format("rank {} has sent something else than its figures", from));
      job_->set_row(from, *row);
      whereabouts_[from].rails = row->rails;
      complaint_.add(*row, fmt::format("rank {} ", from));
    }
    places_ = matrix::places_of(whereabouts_, options_.switches);
    shown_.clear();
    const auto judge = [&](const matrix::Figures& figures, bool is_latency) {
      shown_.push_back({figures, matrix::judge(figures, is_latency, places_.ranks), job_->paths.all(), places_});
    };
    // Names what is slow in the bandwidth first: it tells directions apart.
    if (has(Measures::bandwidth)) judge(job_->gb_per_s, false);
    if (has(Measures::latency)) judge(job_->latency_us, true);
  }

  // Whether a part that many paths name explains why this one is slow.
  bool is_of_slow_part(const Judgement& judgement, std::size_t from, std::size_t to) const {
    constexpr std::size_t kManyPaths = 8;
    return std::any_of(judgement.slow.begin(), judgement.slow.end(), [&](const matrix::Slow& slow) {
      return slow.path_count >= kManyPaths && matrix::crosses(slow, places_.ranks, from, to);
    });
  }

  // Numbers of what has a path that looks slow behind pass `pass`: whatever disturbed it may have passed, so that it is measured
  // again. Many paths that look slow twice, and name the same part, are no disturbance: they take longest.
  std::vector<int> what_is_slow(std::uint32_t pass) const {
    const auto is_slow = [&](const std::pair<int, int>& pair) {
      const auto one = static_cast<std::size_t>(pair.first), other = static_cast<std::size_t>(pair.second);
      return std::any_of(shown_.begin(), shown_.end(), [&](const Shown& shown) {
        const auto looks_slow = [&](std::size_t from, std::size_t to) {
          return shown.judgement.comparison.is_slow[from * count_ + to] != 0 &&
                 (pass == 0 || !is_of_slow_part(shown.judgement, from, to));
        };
        return looks_slow(one, other) || looks_slow(other, one);
      });
    };
    std::vector<int> numbers;
    int number = 0;
    matrix::visit_batches(hosts_, options_.at_once, [&](const Pairing& pairs) {
      if (is_all_at_once()) {
        if (std::any_of(pairs.begin(), pairs.end(), is_slow)) numbers.push_back(number);
        ++number;
        return;
      }
      for (const auto& pair : pairs) {
        if (is_slow(pair)) numbers.push_back(number);
        ++number;
      }
    });
    return numbers;
  }

  // --- What rank 0 says ----------------------------------------------------------------------------------------------------------

  void print_titles() {
    report()->print("# Gigabar {} Matrix of {}, memory of the {}\n", GIGABAR_VERSION, counted(count_, "rank"),
                    options_.place == Place::device ? "devices" : "hosts");
    report()->print(
        "# latency: write of {} with notification, half of a round trip; bandwidth: windows of {} writes of {}; medians\n",
        counted(kLatencyBytes, "byte"), options_.window, bytes_text(options_.bytes));
    tell_setup();
  }

  bool has_slow() const {
    return std::any_of(shown_.begin(), shown_.end(), [](const Shown& each) { return !each.judgement.slow.empty(); });
  }

  void tell_results() {
    for (const Shown& each : shown_) {
      if (count_ <= matrix::kMaxRanksInTable) {
        report()->print("# {} ({}): rows send, columns receive; !: slow\n{}", each.measure(), each.unit(), matrix::table_of(each));
      }
      report()->print("{}", matrix::summary_of(each));
      if (report()->has_document()) tell_document(each);
    }
    tell_places();
    complain(complaint_, counted(complaint_.wrong_count, "round"));
    for (const Shown& each : shown_) {
      for (std::size_t i = 0; i < each.judgement.slow.size(); ++i) report()->print("slow: {}\n", matrix::line_of(each, i));
    }
    if (!has_slow()) report()->print("# nothing is slow\n");
  }

  void tell_document(const Shown& shown) {
    const Plan& plan = shown.is_latency() ? options_.latency : options_.bandwidth;
    Json result = {{"measure", shown.measure()},
                   {"bytes", shown.is_latency() ? kLatencyBytes : options_.bytes},
                   {"iterations", plan.options.iteration_count.value_or(0)},
                   {"warm_up", options_.warm_up_count},
                   {"window", shown.is_latency() ? 1 : options_.window}};
    result.update(matrix::document_of(shown));
    report()->add_result(std::move(result));
  }

  void tell_places() {
    Json& document = report()->document();
    document["buffers"] = options_.place == Place::device ? "D D" : "H H";
    document["at_once"] = name_in(matrix::kAtOnce, options_.at_once);
    document["path_texts"] = job_->paths.all();
    document["hosts"] = places_.hosts;
    document["rails"] = places_.rails;
    document["switches"] = places_.groups;
    document["places"] = list_of(places_.ranks, [](const matrix::Placement& place) -> Json {
      return {{"host", place.host}, {"rail", index_or_null(place.rail)}, {"switch", index_or_null(place.group)}};
    });
    document["is_checked"] = options_.is_checked;
    document["wrong_count"] = complaint_.wrong_count;
    document["is_slow"] = has_slow();
  }

  void write_files() {
    const Shown *latency = nullptr, *bandwidth = nullptr;
    std::vector<const Shown*> both;
    for (const Shown& each : shown_) {
      (each.is_latency() ? latency : bandwidth) = &each;
      both.push_back(&each);
    }
    if (!options_.csv_path.empty()) write_file("--csv", options_.csv_path, matrix::csv_of(latency, bandwidth));
    if (options_.svg_path.empty()) return;
    const std::string title =
        fmt::format("{} on {}, memory of the {}{}", counted(count_, "rank"), counted(places_.hosts.size(), "host"),
                    options_.place == Place::device ? "devices" : "hosts", stand_in_label(report()->is_stand_in()));
    write_file("--svg", options_.svg_path, matrix::svg_of(both, title));
  }

  const MatrixOptions options_;
  Invocation& invocation_;
  Rank count_ = 0;
  std::vector<int> hosts_;        // of each rank
  Timeout patience_ = timeout();  // of the batch under way
  // Of this rank.
  matrix::RankFigures figures_;
  matrix::PathTexts paths_{matrix::kMaxPathTextsOfRank};
  std::set<std::string> rails_;  // of its writes to other hosts
  // Of all ranks, at rank 0.
  std::vector<matrix::Whereabouts> whereabouts_;
  matrix::Places places_;
  std::optional<matrix::JobFigures> job_;
  std::vector<Shown> shown_;  // refers to the two before
  Complaint complaint_;
};

}  // namespace
}  // namespace ranks

void add_matrix(const Command& program, Invocation& invocation) {
  using ranks::MatrixOptions;
  const auto [command, options] = add_subcommand<MatrixOptions>(
      program, invocation, "matrix", "Latency and bandwidth between all pairs of ranks, and what is slow among them",
      [](const MatrixOptions& chosen, Invocation& invoked) {
        ranks::run_ranks<ranks::MatrixSession>("matrix", chosen.local_count, [&] { return ranks::settled(chosen); }, invoked);
      });
  command->add_option("-d,--accelerator", options.accelerator, Value{"cuda|host"},
                      "Memory of every rank: cuda (stand-ins where there is no GPU), or host");
  command->add_choice("--measure", options.measures, ranks::kMeasures, "What is measured");
  command->add_choice("--at-once", options.at_once, matrix::kAtOnce,
                      "Pairs at the same time: all (every rank talks to one other), host (pairs that share no host), or one");
  command->add_option("-s,--size", options.bytes, byte_count(1, std::uint64_t{1} << 30), "Bytes of one write of the bandwidth");
  command->add_option("-W,--window-size", options.window, whole_number(1, ranks::kMaxWindow),
                      "Messages under way before an acknowledgement is awaited");
  command->add_option("-i,--iterations", options.iteration_count, whole_number(1, 1000000),
                      "Timed windows per path, and ten times as many round trips");
  command->add_option("-x,--warmup", options.warm_up_count, whole_number(0, 1000000), "Untimed rounds before the timed ones");
  command->add_option("--again", options.again_count, whole_number(0, 100),
                      "Most times that what looks slow is measured again; the better figure counts");
  command->add_option("--switches", options.switches_path, Value{"FILE"},
                      "Hosts behind one switch: on each line the switch's name, then its hosts; without, as Slurm says");
  command->add_flag("-c,--validation", options.is_checked,
                    "Check all data, different ones in every round; wrong data are status 1");
  command->add_option("--csv", options.csv_path, Value{"FILE"},
                      "Also write a line for each path: both ends, figures, shares of the usual, path");
  command->add_option("--svg", options.svg_path, Value{"FILE"}, "Also draw heat maps: an SVG file");
  command->add_option("-n,--ranks", options.local_count, whole_number(2, ranks::kMaxLocalRanks),
                      "How many ranks, without a launcher");
  ranks::add_job_options(command, options);
  command->footer(
      "Ranks: those of mpirun, srun, torchrun or 'gigabar run'; started alone, the command starts its own on this host. The device "
      "of a rank is its local rank modulo the devices. Each path is compared with those of its kind: within a host, behind one "
      "switch, between switches. Exit status: 0 nothing is slow; 3 something is; 1 a rank failed, or data were wrong; 2 the "
      "command "
      "line cannot be followed.");
}

}  // namespace gigabar::tool
