//===- TestSpec.cpp - Specs in tests --------------------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "test/unit/frontend/TestSpec.h"

#include <fmt/format.h>

namespace plum::test {

using namespace frontend;

Spec::Spec(std::string text, const SpecOptions &options)
    : source("t.plum", std::move(text)), diags(source),
      layer(parseSpec(diags, options)) {}

static std::string printMessages(const Diagnostics &diags, bool warnings) {
  static constexpr const char *names[] = {"error", "warning", "remark", "note"};
  std::string out;
  bool shown = true;
  for (const Diagnostic &diagnostic : diags.all()) {
    if (diagnostic.severity != Severity::Note)
      shown = warnings || diagnostic.severity == Severity::Error;
    if (!shown)
      continue;
    Source::Place place = diags.source().place(diagnostic.range.begin);
    out +=
        fmt::format("{}:{}: {}: {}\n", place.line, place.column,
                    names[unsigned(diagnostic.severity)], diagnostic.message);
  }
  return out;
}

std::string Spec::messages() const { return printMessages(diags, true); }

std::string layerOf(const std::string &body, const std::string &output) {
  return "layer t(K = 4, V = 3) {\n"
         "  input q, k, r, w : [K] f32\n"
         "  input v, u : [V] f32\n"
         "  input a, b : f32\n"
         "  state S, P : [K, V] f32\n"
         "  state z : [K] f32\n" +
         body + "\n" +
         (output.empty() ? "output o : [V] f32 = q @ S" : output) + "\n}\n";
}

std::string print(const Expr *expr) {
  if (!expr)
    return "none";
  auto binary = [&](std::string_view op) {
    return fmt::format("({} {} {})", print(expr->args[0]), op,
                       print(expr->args[1]));
  };
  switch (expr->kind) {
  case ExprKind::Number:
    return fmt::format("{:g}{}", expr->number,
                       expr->shape.kind == Shape::Scalar ? ""
                                                         : expr->shape.str());
  case ExprKind::Ref:
    if (expr->symbol->kind == SymbolKind::State)
      return fmt::format("{}.{}", expr->symbol->name, expr->version);
    return expr->symbol->name;
  case ExprKind::Neg:
    return "-" + print(expr->args[0]);
  case ExprKind::Add:
    return binary("+");
  case ExprKind::Sub:
    return binary("-");
  case ExprKind::Mul:
    return binary("*");
  case ExprKind::Div:
    return binary("/");
  case ExprKind::MatMul:
    return binary("@");
  case ExprKind::Pow:
    return fmt::format("{}^{:g}", print(expr->args[0]), expr->number);
  case ExprKind::Transpose:
    return print(expr->args[0]) + "^T";
  case ExprKind::Diag:
    return fmt::format("diag({})", print(expr->args[0]));
  case ExprKind::Call: {
    std::string args;
    for (const Expr *arg : expr->args)
      args += (args.empty() ? "" : ", ") + print(arg);
    if (expr->eps != 0)
      args += fmt::format(", eps = {:g}", expr->eps);
    return fmt::format("{}({})", name(expr->func), args);
  }
  }
  return "?";
}

std::string print(const AffineUpdate &update) {
  std::string out = "keep";
  if (update.decayKind != AffineUpdate::None)
    out = fmt::format("{}{} {}",
                      update.decayKind == AffineUpdate::Scalar ? "scalar"
                                                               : "channel",
                      update.logDomain ? " log" : "", print(update.decay));
  auto scaled = [](const Expr *coeff, const std::string &value) {
    return coeff ? print(coeff) + " * " + value : value;
  };
  for (const Write &write : update.writes) {
    std::string inside = write.value ? print(write.value) : "";
    for (const Read &read : write.reads)
      inside += (inside.empty() ? "" : " + ") +
                scaled(read.coeff,
                       fmt::format("{} S.{}{}", print(read.key), read.version,
                                   read.decayed ? " decayed" : ""));
    out +=
        "; write " +
        scaled(write.coeff, fmt::format("{}^T ({})", print(write.key), inside));
  }
  return out;
}

static std::string print(const Stmt &stmt) {
  if (stmt.kind == Stmt::Update)
    return fmt::format("{}: {}\n", stmt.symbol->name,
                       stmt.affine ? print(*stmt.affine) : print(stmt.expr));
  return fmt::format("{} = {}\n", stmt.symbol->name, print(stmt.expr));
}

std::string print(const Layer &layer) {
  std::string out;
  for (const Stmt &stmt : layer.stmts)
    out += print(stmt);
  return out;
}

std::string printLayerOf(const std::string &body, const std::string &output) {
  Spec spec(layerOf(body, output));
  return spec.layer ? print(*spec.layer) : printMessages(spec.diags, false);
}

std::string updatesOf(const std::string &body) {
  Spec spec(layerOf(body));
  if (!spec.layer)
    return printMessages(spec.diags, false);
  std::string out;
  for (const Stmt &stmt : spec.layer->stmts)
    if (stmt.kind == Stmt::Update)
      out += print(stmt);
  return out;
}

std::string errorsOf(const std::string &body, const std::string &output) {
  Spec spec(layerOf(body, output));
  return printMessages(spec.diags, false);
}

} // namespace plum::test
