//===- Result.h - A value or the reason there is none -----------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Errors are values: nothing in the libraries throws or aborts. An `Error` is
// a finished sentence for a person ("tensor 'k' has dtype F32, expected BF16"),
// with the place it was found (a file, a flag) and notes at other parties.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_SUPPORT_RESULT_H
#define PLUM_SUPPORT_RESULT_H

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace plum {

struct Error {
  std::string where;   ///< File, flag or tensor; may be empty.
  std::string message; ///< Lower case, no full stop; got and expected.
  std::vector<std::string> notes; ///< One sentence for each other party.

  /// "where: error: message" and a "note: ..." line for each note.
  std::string str() const {
    std::string text = where.empty() ? "error: " : where + ": error: ";
    text += message;
    for (const std::string &note : notes)
      text += "\nnote: " + note;
    return text;
  }
};

/// Either a T or an Error. Test it before taking the value.
template <typename T> class [[nodiscard]] Result {
public:
  Result(T value) : storage(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : storage(std::in_place_index<1>, std::move(error)) {}

  explicit operator bool() const { return storage.index() == 0; }
  T &operator*() { return std::get<0>(storage); }
  const T &operator*() const { return std::get<0>(storage); }
  T *operator->() { return &std::get<0>(storage); }
  const T *operator->() const { return &std::get<0>(storage); }
  Error &error() { return std::get<1>(storage); }
  const Error &error() const { return std::get<1>(storage); }

private:
  std::variant<T, Error> storage;
};

/// Success, or an Error.
class [[nodiscard]] Status {
public:
  Status() = default;
  Status(Error error) : failure(std::move(error)) {}
  static Status ok() { return {}; }

  explicit operator bool() const { return !failure; }
  const Error &error() const { return *failure; }

private:
  std::optional<Error> failure;
};

} // namespace plum

#endif // PLUM_SUPPORT_RESULT_H
