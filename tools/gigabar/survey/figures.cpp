// SPDX-License-Identifier: Apache-2.0
#include "survey/figures.hpp"

#include <algorithm>

#include "support/statistics.hpp"

namespace gigabar::tool::survey {

double Figure::value() const {
  std::vector<double> sorted = samples;
  return median(sorted);
}

double Figure::least() const { return samples.empty() ? 0 : *std::min_element(samples.begin(), samples.end()); }
double Figure::most() const { return samples.empty() ? 0 : *std::max_element(samples.begin(), samples.end()); }

Json to_json(const Figure& figure) {
  Json json = {{"key", figure.key}, {"unit", figure.unit}};
  if (!figure.failure.empty()) {
    json["failure"] = figure.failure;
    return json;
  }
  json["value"] = figure.value();
  json["min"] = figure.least();
  json["max"] = figure.most();
  json["samples"] = figure.samples;
  json["passes"] = figure.pass_count;
  json["path"] = figure.path;
  if (!figure.link.empty()) json["link"] = figure.link;
  if (figure.ratio() > 0) json["ratio"] = figure.ratio();
  return json;
}

void add_pass(std::vector<Figure>& figures, std::vector<Figure> pass) {
  for (Figure& more : pass) {
    const auto known = std::find_if(figures.begin(), figures.end(), [&more](const Figure& each) { return each.key == more.key; });
    if (known == figures.end()) {
      figures.push_back(std::move(more));
      continue;
    }
    known->samples.insert(known->samples.end(), more.samples.begin(), more.samples.end());
    ++known->pass_count;
    if (known->failure.empty()) known->failure = std::move(more.failure);
  }
}

}  // namespace gigabar::tool::survey
