//===- Diagnostics.h - Clang-style errors in a source file ------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A source text, places in it, and the messages about it:
//
//   kda.plum:12:8: error: 'tanh' of a state is not affine in 'S'
//      12 |   S = tanh(S)
//         |       ^~~~~~~
//   kda.plum:9:9: note: 'S' is declared here
//
// Messages are collected, not printed: libraries stay silent, mains render.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_SUPPORT_DIAGNOSTICS_H
#define PLUM_SUPPORT_DIAGNOSTICS_H

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace plum {

/// Half-open byte range [begin, end) in a Source.
struct Range {
  uint32_t begin = 0;
  uint32_t end = 0;
};

/// A named text ("<stdin>" or a path) with line lookup.
class Source {
public:
  Source(std::string name, std::string text);

  const std::string &name() const { return fileName; }
  std::string_view text() const { return contents; }
  /// 1-based line and column (bytes) of an offset; clamped to the text.
  struct Place {
    unsigned line, column;
  };
  Place place(uint32_t offset) const;
  std::string_view line(unsigned number) const;

private:
  std::string fileName, contents;
  std::vector<uint32_t> lineStarts;
};

enum class Severity : uint8_t { Error, Warning, Remark, Note };

struct Diagnostic {
  Severity severity;
  Range range;
  std::string message;
};

/// The messages about one source, in order. A note belongs to the message
/// before it.
class Diagnostics {
public:
  explicit Diagnostics(const Source &source) : src(source) {}

  void error(Range range, std::string message);
  void warning(Range range, std::string message);
  void remark(Range range, std::string message);
  void note(Range range, std::string message);

  bool hasErrors() const { return errors != 0; }
  const Source &source() const { return src; }
  const std::vector<Diagnostic> &all() const { return list; }
  /// Every message with its source line and caret; `remarks` shows those too.
  std::string render(bool remarks = false) const;

private:
  const Source &src;
  std::vector<Diagnostic> list;
  unsigned errors = 0;
};

} // namespace plum

#endif // PLUM_SUPPORT_DIAGNOSTICS_H
