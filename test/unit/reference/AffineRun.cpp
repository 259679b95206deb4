//===- AffineRun.cpp - A layer run by its normal forms --------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AffineRun.h"

#include "gtest/gtest.h"

#include <cmath>
#include <map>
#include <random>
#include <unordered_map>

namespace plum::test {

using namespace frontend;

namespace {
using Values = std::vector<double>;

class AffineRun {
public:
  AffineRun(const Layer &layer, reference::Head &head)
      : layer(layer), head(head) {
    for (const Symbol *state : layer.states) {
      auto span = head.states[state->index];
      versions[{state, 0}] = Values(span.begin(), span.end());
    }
  }
  void run();

private:
  void step();
  void update(const Stmt &stmt);
  const Values &value(const Expr *expr);
  Values compute(const Expr *expr);
  Values product(const Expr *expr);
  double scalar(const Expr *expr) { return expr ? value(expr)[0] : 1; }

  const Layer &layer;
  reference::Head &head;
  int64_t token = 0;
  std::map<std::pair<const Symbol *, unsigned>, Values> versions;
  std::unordered_map<const Symbol *, Values> locals;
  std::unordered_map<const Expr *, Values> memo; ///< Of this token.
};
} // namespace

void AffineRun::run() {
  for (; token < head.tokens; ++token)
    step();
  for (const Symbol *state : layer.states)
    std::copy_n(versions[{state, 0}].begin(), head.states[state->index].size(),
                head.states[state->index].begin());
}

void AffineRun::step() {
  memo.clear();
  std::map<const Symbol *, unsigned> last;
  for (const Stmt &stmt : layer.stmts) {
    if (stmt.kind == Stmt::Update) {
      update(stmt);
      last[stmt.symbol] = stmt.version + 1;
    } else if (stmt.kind == Stmt::Output) {
      const Values &x = value(stmt.expr);
      std::copy_n(x.begin(), x.size(),
                  head.outputs[stmt.symbol->index].begin() +
                      token * int64_t(x.size()));
    } else if (stmt.expr) {
      locals[stmt.symbol] = value(stmt.expr);
    }
  }
  for (auto [state, version] : last)
    versions[{state, 0}] = versions[{state, version}];
}

void AffineRun::update(const Stmt &stmt) {
  const AffineUpdate &affine = *stmt.affine;
  Values before = versions[{stmt.symbol, stmt.version}];
  bool vector = stmt.symbol->shape.kind == Shape::Row;
  size_t K = size_t(vector ? stmt.symbol->shape.cols : stmt.symbol->shape.rows),
         V = before.size() / K;
  Values decayed = before;
  if (affine.decayKind != AffineUpdate::None) {
    const Values &decay = value(affine.decay);
    bool channel = affine.decayKind == AffineUpdate::Channel;
    EXPECT_EQ(decay.size(), channel ? K : 1);
    for (size_t i = 0; i < before.size(); ++i) {
      double d = decay[channel ? i / V : 0];
      decayed[i] *= affine.logDomain ? std::exp(d) : d;
    }
  }
  Values after = decayed;
  for (const Write &write : affine.writes) {
    Values sum(V, 0.0);
    if (write.value) {
      const Values &x = value(write.value);
      EXPECT_EQ(x.size(), V);
      for (size_t j = 0; j < V; ++j)
        sum[j] += x[j];
    }
    for (const Read &read : write.reads) {
      EXPECT_TRUE(!read.decayed || read.version == stmt.version);
      const Values &state =
          read.decayed ? decayed : versions.at({stmt.symbol, read.version});
      const Values &key = value(read.key);
      EXPECT_EQ(key.size(), K);
      for (size_t i = 0; i < K; ++i)
        for (size_t j = 0; j < V; ++j)
          sum[j] += scalar(read.coeff) * key[i] * state[i * V + j];
    }
    const Values &key = value(write.key);
    EXPECT_EQ(key.size(), K);
    for (size_t i = 0; i < K; ++i)
      for (size_t j = 0; j < V; ++j)
        after[i * V + j] += key[i] * scalar(write.coeff) * sum[j];
  }
  versions[{stmt.symbol, stmt.version + 1}] = after;
}

const Values &AffineRun::value(const Expr *expr) {
  auto found = memo.find(expr);
  if (found != memo.end())
    return found->second;
  Values result = compute(expr);
  return memo[expr] = std::move(result);
}

/// Only what the normal form allows.
Values AffineRun::product(const Expr *expr) {
  const Expr *left = expr->args[0], *right = expr->args[1];
  EXPECT_EQ(left->shape.kind, Shape::Row);
  const Values &x = value(left);
  if (right->kind == ExprKind::Transpose) {
    const Expr *row = right->args[0];
    EXPECT_EQ(row->shape.kind, Shape::Row);
    bool read =
        row->kind == ExprKind::Ref && row->symbol->kind == SymbolKind::State;
    const Values &y =
        read ? versions.at({row->symbol, row->version}) : value(row);
    double sum = 0;
    for (size_t i = 0; i < x.size(); ++i)
      sum += x[i] * y.at(i);
    return {sum};
  }
  EXPECT_TRUE(right->kind == ExprKind::Ref &&
              right->symbol->kind == SymbolKind::State);
  const Values &state = versions.at({right->symbol, right->version});
  size_t V = state.size() / x.size();
  Values out(V, 0.0);
  for (size_t i = 0; i < state.size(); ++i)
    out[i % V] += x[i / V] * state[i];
  return out;
}

Values AffineRun::compute(const Expr *expr) {
  EXPECT_TRUE(expr->shape.kind == Shape::Scalar ||
              expr->shape.kind == Shape::Row);
  size_t count = size_t(expr->shape.cols);
  if (expr->kind == ExprKind::Number)
    return Values(count, expr->number);
  if (expr->kind == ExprKind::MatMul)
    return product(expr);
  if (expr->kind == ExprKind::Ref) {
    const Symbol *symbol = expr->symbol;
    switch (symbol->kind) {
    case SymbolKind::Dim:
      return {double(symbol->value)};
    case SymbolKind::Param: {
      auto span = head.params[symbol->index];
      return Values(span.begin(), span.end());
    }
    case SymbolKind::Input: {
      auto span =
          head.inputs[symbol->index].subspan(size_t(token) * count, count);
      return Values(span.begin(), span.end());
    }
    case SymbolKind::Local:
      return locals.at(symbol);
    default:
      ADD_FAILURE() << "a whole state in a normal form";
      return Values(count, 0.0);
    }
  }
  std::vector<const Values *> args;
  for (const Expr *arg : expr->args)
    value(arg); // All of them first: the memo may move its values.
  for (const Expr *arg : expr->args)
    args.push_back(&value(arg));
  auto at = [&](size_t arg, size_t i) {
    return args[arg]->size() == 1 ? args[arg]->front() : args[arg]->at(i);
  };
  Values out(count);
  double sum = 0, squares = 0;
  for (size_t i = 0; i < args[0]->size(); ++i) {
    sum += at(0, i);
    squares += at(0, i) * at(0, i);
  }
  for (size_t i = 0; i < count; ++i) {
    double x = at(0, i), y = args.size() > 1 ? at(1, i) : 0;
    switch (expr->kind) {
    case ExprKind::Neg:
      out[i] = -x;
      break;
    case ExprKind::Add:
      out[i] = x + y;
      break;
    case ExprKind::Sub:
      out[i] = x - y;
      break;
    case ExprKind::Mul:
      out[i] = x * y;
      break;
    case ExprKind::Div:
      out[i] = x / y;
      break;
    case ExprKind::Pow:
      out[i] = std::pow(x, expr->number);
      break;
    case ExprKind::Call:
      out[i] = x;
      if (expr->func == Func::Sum)
        out[i] = sum;
      else if (expr->func == Func::L2Norm)
        out[i] = x / std::sqrt(squares + expr->eps);
      else if (expr->func == Func::RmsNorm)
        out[i] = x / std::sqrt(squares / double(count) + expr->eps);
      else if (expr->func == Func::Min || expr->func == Func::Max)
        for (size_t n = 1; n < args.size(); ++n)
          out[i] = expr->func == Func::Min ? std::min(out[i], at(n, i))
                                           : std::max(out[i], at(n, i));
      else
        out[i] = apply(expr->func, x);
      break;
    default:
      ADD_FAILURE() << "not in normal form: kind " << int(expr->kind);
    }
  }
  return out;
}

void runAffine(const Layer &layer, reference::Head &head) {
  AffineRun(layer, head).run();
}

HeadData::HeadData(const Layer &layer, int64_t tokens, uint32_t seed)
    : tokens(tokens) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal(0, 0.5);
  auto fill = [&](auto &list, const auto &symbols, int64_t times, bool draw) {
    for (const Symbol *symbol : symbols) {
      Values &values = list.emplace_back(
          size_t(symbol->shape.rows * symbol->shape.cols * times));
      for (double &x : values)
        x = draw ? normal(random) : 0;
    }
  };
  fill(params, layer.params, 1, true);
  fill(inputs, layer.inputs, tokens, true);
  fill(states, layer.states, 1, true);
  fill(outputs, layer.outputs, tokens, false);
}

reference::Head HeadData::head() {
  reference::Head head;
  head.tokens = tokens;
  for (Values &values : params)
    head.params.emplace_back(values);
  for (Values &values : inputs)
    head.inputs.emplace_back(values);
  for (Values &values : states)
    head.states.emplace_back(values);
  for (Values &values : outputs)
    head.outputs.emplace_back(values);
  return head;
}

} // namespace plum::test
