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
  json["path"] = figure.path;
  if (!figure.link.empty()) json["link"] = figure.link;
  if (figure.ratio > 0) json["ratio"] = figure.ratio;
  return json;
}

}  // namespace gigabar::tool::survey
