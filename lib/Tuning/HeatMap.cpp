//===- HeatMap.cpp - Results as a picture ---------------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "HeatMap.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>

using namespace plum::runtime;

namespace {

std::string format(const char *pattern, double value) {
  char text[64];
  std::snprintf(text, sizeof text, pattern, value);
  return text;
}

/// For text and attributes of XML; what no XML may hold becomes '?'.
std::string escaped(const std::string &text) {
  std::string out;
  for (char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else
      out += static_cast<unsigned char>(c) < 0x20 || c & 0x80 ? '?' : c;
  }
  return out;
}

/// Rows are chunk sizes (0: step), columns entries.
struct Grid {
  std::vector<const TuningEntry *> columns;
  std::vector<int64_t> rows;

  /// The fastest of a chunk size, usable ones first; null: none was measured.
  const TuningResult *cell(size_t row, size_t column) const {
    const TuningResult *best = nullptr;
    for (const TuningResult &result : columns[column]->results)
      if (result.measured() && result.schedule.chunk == rows[row] &&
          (!best || std::pair(!result.usable(), result.ms) <
                        std::pair(!best->usable(), best->ms)))
        best = &result;
    return best;
  }
  bool isBest(size_t row, size_t column) const {
    const TuningResult *best = columns[column]->best();
    return best && best == cell(row, column);
  }
  std::string rowName(size_t row) const {
    return rows[row] ? "C = " + std::to_string(rows[row]) : "step";
  }
};

Grid gridOf(const TuningDatabase &database, const TuningKey &key) {
  Grid grid;
  std::set<int64_t> chunks;
  for (const TuningEntry &entry : database.entries) {
    TuningKey other = entry.key;
    other.bucket = key.bucket;
    if (other != key)
      continue;
    grid.columns.push_back(&entry);
    for (const TuningResult &result : entry.results)
      if (result.measured())
        chunks.insert(result.schedule.chunk);
  }
  grid.rows.assign(chunks.begin(), chunks.end());
  return grid;
}

/// White to a dark colour for 0 to 1.
std::string colour(double x, int red, int green, int blue) {
  x = std::isfinite(x) ? std::clamp(x, 0.0, 1.0) : 1;
  auto mix = [&](int dark) { return int(std::lround(250 - x * (250 - dark))); };
  char text[8];
  std::snprintf(text, sizeof text, "#%02x%02x%02x", mix(red), mix(green),
                mix(blue));
  return text;
}

constexpr int cellWidth = 110, cellHeight = 34, left = 80, top = 84;

std::string textAt(int x, int y, const std::string &text,
                   const std::string &attributes) {
  return "<text x=\"" + std::to_string(x) + "\" y=\"" + std::to_string(y) +
         "\" " + attributes + ">" + escaped(text) + "</text>\n";
}

/// One of the two maps, its columns starting at x.
std::string map(const Grid &grid, int x0, const std::string &title,
                bool isTime) {
  std::string out = textAt(x0, 46, title, "font-weight=\"bold\"");
  for (size_t c = 0; c < grid.columns.size(); ++c) {
    int x = x0 + int(c) * cellWidth;
    out +=
        textAt(x + cellWidth / 2, top - 8, grid.columns[c]->key.bucket.text(),
               "text-anchor=\"middle\" font-size=\"10\"");
    const TuningResult *best = grid.columns[c]->best();
    for (size_t r = 0; r < grid.rows.size(); ++r) {
      int y = top + int(r) * cellHeight;
      const TuningResult *result = grid.cell(r, c);
      std::string fill = "#ffffff", label = "-";
      if (result && isTime) {
        double times = best ? result->ms / best->ms : 4;
        fill = colour(std::log2(times) / 2, 200, 80, 30);
        label = format("%.4g ms", result->ms);
      } else if (result) {
        fill = colour(result->errors.r / result->errors.rLimit, 60, 90, 180);
        label = format("%.2e", result->errors.r);
      }
      bool frame = grid.isBest(r, c);
      out += "<rect x=\"" + std::to_string(x + 1) + "\" y=\"" +
             std::to_string(y + 1) + "\" width=\"" +
             std::to_string(cellWidth - 2) + "\" height=\"" +
             std::to_string(cellHeight - 2) + "\" fill=\"" + fill +
             "\" stroke=\"" + (frame ? "#000000" : "#cccccc") +
             "\" stroke-width=\"" + (frame ? "2" : "1") + "\">";
      if (result)
        out += "<title>" + escaped(result->schedule.text()) + "</title>";
      out += "</rect>\n";
      bool crossed = result && !result->usable();
      out += textAt(x + cellWidth / 2, y + 21, label,
                    crossed ? "text-anchor=\"middle\" "
                              "text-decoration=\"line-through\""
                            : "text-anchor=\"middle\"");
    }
  }
  return out;
}

} // namespace

std::string plum::tuning::heatMap(const TuningDatabase &database,
                                  const TuningKey &key) {
  Grid grid = gridOf(database, key);
  int columns = std::max<int>(int(grid.columns.size()), 1);
  int mapWidth = columns * cellWidth;
  int width = std::max(left + 2 * mapWidth + 60, 640);
  int height = top + int(grid.rows.size()) * cellHeight + 36;
  std::string out = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
                    "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" +
                    std::to_string(width) + "\" height=\"" +
                    std::to_string(height) +
                    "\" font-family=\"sans-serif\" font-size=\"12\">\n"
                    "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n";
  out += textAt(10, 20,
                key.layer + " on " + key.device + ", " + key.precision +
                    " precision, compiler " + key.compiler,
                "font-size=\"14\"");
  for (size_t r = 0; r < grid.rows.size(); ++r)
    out += textAt(left - 8, top + int(r) * cellHeight + 21, grid.rowName(r),
                  "text-anchor=\"end\"");
  out += map(grid, left, "time (white: best of its column)", true);
  out += map(grid, left + mapWidth + 40, "error R (dark: at the limit)", false);
  out += textAt(10, height - 12,
                "frame: chosen; struck out: above an error limit, never chosen",
                "font-size=\"10\"");
  return out + "</svg>\n";
}

std::string plum::tuning::table(const TuningDatabase &database,
                                const TuningKey &key) {
  Grid grid = gridOf(database, key);
  auto pad = [](std::string text, size_t width) {
    return text.size() < width ? std::string(width - text.size(), ' ') + text
                               : text;
  };
  std::string out = pad("", 10);
  for (const TuningEntry *column : grid.columns)
    out += pad(column->key.bucket.text(), 26);
  out += "\n" + pad("", 10);
  for (size_t c = 0; c < grid.columns.size(); ++c)
    out += pad("ms    error R ", 26);
  for (size_t r = 0; r < grid.rows.size(); ++r) {
    out += "\n" + pad(grid.rowName(r), 10);
    for (size_t c = 0; c < grid.columns.size(); ++c) {
      const TuningResult *result = grid.cell(r, c);
      out += pad(!result ? "-  "
                         : format("%.4g", result->ms) +
                               format("  %.2e", result->errors.r) +
                               (grid.isBest(r, c)   ? " *"
                                : !result->usable() ? " !"
                                                    : "  "),
                 26);
    }
  }
  return out + "\n* chosen; ! above an error limit, never chosen\n";
}
