//===- AST.cpp - A layer spec as checked equations ------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Names and meanings of shapes and functions.
//
//===----------------------------------------------------------------------===//

#include "plum/Frontend/AST.h"

#include <cmath>
#include <fmt/format.h>

namespace plum::frontend {

std::string Shape::str() const {
  switch (kind) {
  case Scalar:
    return "scalar";
  case Row:
    return fmt::format("[{}]", cols);
  case Column:
    return fmt::format("[{}]^T", rows);
  case Matrix:
    return fmt::format("[{}, {}]", rows, cols);
  case Diagonal:
    return fmt::format("diag [{}]", rows);
  case List:
    return fmt::format("[*, {}]", cols);
  }
  return "";
}

namespace {
struct NamedFunc {
  Func func;
  std::string_view name;
};
constexpr NamedFunc namedFuncs[] = {
    {Func::Exp, "exp"},           {Func::Log, "log"},
    {Func::Sqrt, "sqrt"},         {Func::Rsqrt, "rsqrt"},
    {Func::Sigmoid, "sigmoid"},   {Func::Tanh, "tanh"},
    {Func::Softplus, "softplus"}, {Func::Silu, "silu"},
    {Func::Relu, "relu"},         {Func::Elu, "elu"},
    {Func::Abs, "abs"},           {Func::Min, "min"},
    {Func::Max, "max"},           {Func::Sum, "sum"},
    {Func::L2Norm, "l2norm"},     {Func::RmsNorm, "rmsnorm"},
    {Func::Append, "append"},     {Func::Attend, "attend"}};
} // namespace

std::string_view name(Func func) {
  for (const NamedFunc &entry : namedFuncs)
    if (entry.func == func)
      return entry.name;
  return "?";
}

std::optional<Func> parseFunc(std::string_view name) {
  for (const NamedFunc &entry : namedFuncs)
    if (entry.name == name)
      return entry.func;
  return std::nullopt;
}

double apply(Func func, double x) {
  // 1 / (1 + exp(-x)), never exponentiating a positive number.
  auto sigmoid = [](double x) {
    double e = std::exp(-std::fabs(x));
    return (x >= 0 ? 1 : e) / (1 + e);
  };
  switch (func) {
  case Func::Exp:
    return std::exp(x);
  case Func::Log:
    return std::log(x);
  case Func::Sqrt:
    return std::sqrt(x);
  case Func::Rsqrt:
    return 1 / std::sqrt(x);
  case Func::Sigmoid:
    return sigmoid(x);
  case Func::Tanh:
    return std::tanh(x);
  case Func::Softplus: // log(1 + exp(x)); a NaN stays one.
    return (x < 0 ? 0 : x) + std::log1p(std::exp(-std::fabs(x)));
  case Func::Silu:
    return x * sigmoid(x);
  case Func::Relu:
    return x < 0 ? 0 : x;
  case Func::Elu:
    return x > 0 ? x : std::expm1(x);
  case Func::Abs:
    return std::fabs(x);
  case Func::Min:
  case Func::Max:
  case Func::Sum:
  case Func::L2Norm:
  case Func::RmsNorm:
  case Func::Append:
  case Func::Attend:
    break; // Not functions of one number.
  }
  return x;
}

const Symbol *Layer::rowsOf(const Symbol &list) const {
  for (const Stmt &stmt : stmts)
    if (stmt.kind == Stmt::Update && stmt.symbol == &list &&
        list.shape.kind == Shape::List) {
      const Symbol *row = stmt.written->args[1]->symbol;
      return row && row->kind == SymbolKind::Input ? row : nullptr;
    }
  return nullptr;
}

} // namespace plum::frontend
