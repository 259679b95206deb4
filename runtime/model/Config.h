//===- Config.h - Checked access to config.json -----------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// config.json comes from anywhere and says how much memory a model takes, so
// every number is checked when it is read: there, of its type, in range. What
// is wrong first is kept with its place, later reads return harmless values,
// and one test at the end of a reader is enough.
//
// Releases and the transformers library spell fields differently; a reader
// gives all spellings, the first one present counts. A field that is null is
// absent.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_MODEL_CONFIG_H
#define PLUM_RUNTIME_MODEL_CONFIG_H

#include "runtime/Json.h"

#include <initializer_list>
#include <memory>
#include <optional>

namespace plum::model {

using Names = std::initializer_list<std::string_view>;

/// No dim of a model is larger; products of three of them fit into int64.
inline constexpr int64_t maxDim = int64_t(1) << 20;
/// Layers and experts.
inline constexpr int64_t maxCount = int64_t(1) << 16;

/// The text of a config.json: JSON, but for the infinities and NaNs that
/// Python writes, which become {"__float__": "Infinity"} as in newer files.
Result<runtime::Json> parseConfig(std::string_view text,
                                  const std::string &where);
/// `directory`/config.json.
Result<runtime::Json> readConfig(const std::string &directory);

/// All of a file of at most `largest` bytes.
Result<std::string> readFile(const std::string &path, int64_t largest);

class Config {
public:
  Config(const runtime::Json &value, const std::string &where)
      : Config(&value, "", std::make_shared<runtime::JsonErrors>(where)) {}

  bool has(Names names) const { return find(names).first; }
  /// A part of its own; empty when absent.
  Config part(std::string_view name) const;

  /// Required, 1 to `most`.
  int64_t dim(Names names, int64_t most = maxDim) const;
  int64_t dimOr(Names names, int64_t otherwise, int64_t most = maxDim) const;
  /// Required or not, `least` to `most`.
  int64_t integer(Names names, int64_t least, int64_t most) const;
  int64_t integerOr(Names names, int64_t otherwise, int64_t least,
                    int64_t most) const;
  /// Finite; infinities come as {"__float__": ...} and are refused.
  double number(Names names) const;
  double numberOr(Names names, double otherwise) const;
  /// Numbers, infinities among them; empty when absent.
  std::vector<double> numbers(Names names) const;
  bool flagOr(Names names, bool otherwise) const;
  std::string textOr(Names names, const std::string &otherwise) const;
  /// Integers between `least` and `most`, or texts; empty when absent.
  std::vector<int64_t> integers(Names names, int64_t least, int64_t most) const;
  std::vector<std::string> texts(Names names) const;

  /// Adds an error at a field.
  void error(std::string_view name, const std::string &message) const;
  /// The field must have this value (or be absent): other values mean a model
  /// that would be computed wrongly.
  void onlyFlag(std::string_view name, bool value) const;
  void onlyText(std::string_view name, const std::string &value) const;

  bool any() const { return errors->any(); }
  Error take() const { return errors->take(); }

private:
  Config(const runtime::Json *value, std::string path,
         std::shared_ptr<runtime::JsonErrors> errors)
      : value(value), path(std::move(path)), errors(std::move(errors)) {}
  /// The first field present, and its name; else null and the first name.
  std::pair<const runtime::Json *, std::string_view> find(Names names) const;
  std::string join(std::string_view name) const {
    return path.empty() ? std::string(name) : path + "." + std::string(name);
  }
  int64_t checked(const runtime::Json &field, std::string_view name,
                  int64_t least, int64_t most) const;

  const runtime::Json *value; ///< Null: a part that is absent.
  std::string path;
  std::shared_ptr<runtime::JsonErrors> errors;
};

} // namespace plum::model

#endif // PLUM_RUNTIME_MODEL_CONFIG_H
