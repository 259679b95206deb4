//===- Diagnostics.cpp - Clang-style errors in a source file --------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Collects messages and renders them with the source line and a caret. A note
// at the very place of the message before it is one line, without the source
// again. Long lines are cut to a window around the caret, and bytes that a
// terminal should not get are replaced, so that hostile input cannot make
// enormous or harmful output.
//
//===----------------------------------------------------------------------===//

#include "plum/Support/Diagnostics.h"

#include <algorithm>
#include <fmt/format.h>
#include <iterator>

namespace plum {

//===----------------------------------------------------------------------===//
// Source
//===----------------------------------------------------------------------===//

Source::Source(std::string name, std::string text)
    : fileName(std::move(name)), contents(std::move(text)) {
  lineStarts.push_back(0);
  for (uint32_t i = 0; i < contents.size(); ++i)
    if (contents[i] == '\n')
      lineStarts.push_back(i + 1);
}

Source::Place Source::place(uint32_t offset) const {
  offset = std::min<uint32_t>(offset, contents.size());
  auto after = std::upper_bound(lineStarts.begin(), lineStarts.end(), offset);
  unsigned line = unsigned(after - lineStarts.begin());
  return {line, offset - lineStarts[line - 1] + 1};
}

std::string_view Source::line(unsigned number) const {
  if (number == 0 || number > lineStarts.size())
    return {};
  uint32_t begin = lineStarts[number - 1];
  std::string_view rest = std::string_view(contents).substr(begin);
  rest = rest.substr(0, rest.find('\n'));
  if (rest.ends_with('\r'))
    rest.remove_suffix(1);
  return rest;
}

//===----------------------------------------------------------------------===//
// Diagnostics
//===----------------------------------------------------------------------===//

void Diagnostics::error(Range range, std::string message) {
  ++errors;
  list.push_back({Severity::Error, range, std::move(message)});
}

void Diagnostics::warning(Range range, std::string message) {
  list.push_back({Severity::Warning, range, std::move(message)});
}

void Diagnostics::remark(Range range, std::string message) {
  list.push_back({Severity::Remark, range, std::move(message)});
}

void Diagnostics::note(Range range, std::string message) {
  list.push_back({Severity::Note, range, std::move(message)});
}

namespace {
std::string_view severityName(Severity severity) {
  switch (severity) {
  case Severity::Error:
    return "error";
  case Severity::Warning:
    return "warning";
  case Severity::Remark:
    return "remark";
  case Severity::Note:
    return "note";
  }
  return "";
}

bool isContinuationByte(char c) { return (c & 0xc0) == 0x80; }

/// The source line of `range` under a gutter with its number, and the line
/// that marks the range.
void renderSnippet(std::string &out, const Source &source, Range range) {
  constexpr size_t window = 160, before = 80;
  Source::Place place = source.place(range.begin);
  std::string_view line = source.line(place.line);
  size_t begin = std::min<size_t>(place.column - 1, line.size());
  size_t length = range.end > range.begin ? range.end - range.begin : 1;
  size_t end = std::min(begin + length, std::max(line.size(), begin + 1));

  size_t first = line.size() > window && begin > before ? begin - before : 0;
  while (first > 0 && first < line.size() && isContinuationByte(line[first]))
    --first;
  size_t last = std::min(line.size(), first + window);
  std::string text = first ? "..." : "", marks = first ? "   " : "";
  for (size_t i = first; i < std::max(last, begin + 1); ++i) {
    char c = i < last ? line[i] : ' ';
    bool control = (static_cast<unsigned char>(c) < 0x20 && c != '\t') ||
                   static_cast<unsigned char>(c) == 0x7f;
    if (i < last)
      text += control ? '?' : c;
    if (isContinuationByte(c))
      continue; // One column for one character.
    if (i == begin)
      marks += '^';
    else if (i > begin && i < end)
      marks += '~';
    else if (i < begin)
      marks += c == '\t' ? '\t' : ' ';
  }
  if (last < line.size())
    text += "...";
  fmt::format_to(std::back_inserter(out), "{:5} | {}\n      | {}\n", place.line,
                 text, marks);
}
} // namespace

std::string Diagnostics::render(bool remarks) const {
  std::string out;
  bool shown = true;
  const Diagnostic *previous = nullptr;
  for (const Diagnostic &diagnostic : list) {
    if (diagnostic.severity != Severity::Note) // Notes follow their message.
      shown = remarks || diagnostic.severity != Severity::Remark;
    if (!shown)
      continue;
    Source::Place place = src.place(diagnostic.range.begin);
    fmt::format_to(std::back_inserter(out), "{}:{}:{}: {}: {}\n", src.name(),
                   place.line, place.column, severityName(diagnostic.severity),
                   diagnostic.message);
    bool repeated = diagnostic.severity == Severity::Note && previous &&
                    previous->range.begin == diagnostic.range.begin &&
                    previous->range.end == diagnostic.range.end;
    if (!repeated)
      renderSnippet(out, src, diagnostic.range);
    previous = &diagnostic;
  }
  return out;
}

} // namespace plum
