//===- Recurrence.cpp - The definition of truth ---------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Interprets what the spec's author wrote (Stmt.written). Each expression is
// laid out once as a list of nodes, operands first, each with its own buffer;
// a token then is one pass over the lists. A node works on whole arrays, so
// that reading the tree costs little beside the arithmetic: O(K V) a token for
// the layers we ship.
//
// Two things are not materialised: a diagonal is its row, and in (k^T @ y) @ S
// the product k^T @ y, as k^T @ (y @ S) is the same without K^2 V work.
//
//===----------------------------------------------------------------------===//

#include "plum/Reference/Recurrence.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

namespace plum::reference {

namespace {
using frontend::Expr;
using frontend::ExprKind;
using frontend::Func;
using frontend::Layer;
using frontend::Shape;
using frontend::Stmt;
using frontend::Symbol;
using frontend::SymbolKind;

/// A value of one expression node. A row, a column and a diagonal [d] are d
/// elements, a matrix is rows * cols of them, row-major.
struct Node {
  const Expr *expr;
  std::vector<const Node *> args;
  const double *data = nullptr; ///< The value: the buffer, or someone else's.
  std::vector<double> buffer;
  size_t stride = 0; ///< A reference to an input: elements from token to token.
  const int64_t *held = nullptr; ///< attend: rows before this token's.

  Shape shape() const { return expr->shape; }
  Shape::Kind kind() const { return expr->shape.kind; }
};

size_t elements(Shape shape) {
  return size_t(shape.kind == Shape::Diagonal ? shape.rows
                                              : shape.rows * shape.cols);
}

//===----------------------------------------------------------------------===//
// One node
//===----------------------------------------------------------------------===//

/// out[i] = f(a[i], b[i]) with scalars broadcast.
template <typename F> void zip(Node &node, F f) {
  const Node &a = *node.args[0], &b = *node.args[1];
  double *out = node.buffer.data();
  size_t count = node.buffer.size();
  if (a.kind() == Shape::Scalar) {
    double x = *a.data;
    for (size_t i = 0; i < count; ++i)
      out[i] = f(x, b.data[i]);
  } else if (b.kind() == Shape::Scalar) {
    double y = *b.data;
    for (size_t i = 0; i < count; ++i)
      out[i] = f(a.data[i], y);
  } else {
    for (size_t i = 0; i < count; ++i)
      out[i] = f(a.data[i], b.data[i]);
  }
}

template <typename F> void map(Node &node, F f) {
  const double *in = node.args[0]->data;
  for (size_t i = 0; i < node.buffer.size(); ++i)
    node.buffer[i] = f(in[i]);
}

/// A sum of which just one side is a diagonal: only there they differ.
void addDiagonal(Node &node, double sign) {
  const Node &a = *node.args[0], &b = *node.args[1];
  bool left = a.kind() == Shape::Diagonal;
  const Node &matrix = left ? b : a, &diagonal = left ? a : b;
  double matrixSign = left ? sign : 1, diagonalSign = left ? 1 : sign;
  size_t n = size_t(node.shape().cols);
  for (size_t i = 0; i < node.buffer.size(); ++i)
    node.buffer[i] = matrixSign * matrix.data[i];
  for (size_t i = 0; i < n; ++i)
    node.buffer[i * n + i] += diagonalSign * diagonal.data[i];
}

void evaluateSum(Node &node) {
  double sign = node.expr->kind == ExprKind::Add ? 1 : -1;
  bool diagonal = (node.args[0]->kind() == Shape::Diagonal) !=
                  (node.args[1]->kind() == Shape::Diagonal);
  if (diagonal)
    return addDiagonal(node, sign);
  if (sign > 0)
    zip(node, [](double x, double y) { return x + y; });
  else
    zip(node, [](double x, double y) { return x - y; });
}

void evaluateMatMul(Node &node) {
  const Node &a = *node.args[0], &b = *node.args[1];
  double *out = node.buffer.data();
  size_t rows = size_t(a.shape().rows), inner = size_t(a.shape().cols),
         cols = size_t(b.shape().cols);
  if (a.kind() == Shape::Diagonal) {
    if (b.kind() == Shape::Diagonal)
      cols = 1;
    for (size_t i = 0; i < rows; ++i)
      for (size_t j = 0; j < cols; ++j)
        out[i * cols + j] = a.data[i] * b.data[i * cols + j];
    return;
  }
  if (b.kind() == Shape::Diagonal) {
    for (size_t i = 0; i < rows; ++i)
      for (size_t j = 0; j < cols; ++j)
        out[i * cols + j] = a.data[i * cols + j] * b.data[j];
    return;
  }
  if (inner == 1) { // An outer product, the one in every update.
    for (size_t i = 0; i < rows; ++i)
      for (size_t j = 0; j < cols; ++j)
        out[i * cols + j] = a.data[i] * b.data[j];
    return;
  }
  std::fill(node.buffer.begin(), node.buffer.end(), 0.0);
  for (size_t i = 0; i < rows; ++i)
    for (size_t k = 0; k < inner; ++k) {
      double x = a.data[i * inner + k];
      for (size_t j = 0; j < cols; ++j)
        out[i * cols + j] += x * b.data[k * cols + j];
    }
}

void evaluateTranspose(Node &node) {
  // Only of a matrix; other shapes have the same elements.
  size_t rows = size_t(node.shape().rows), cols = size_t(node.shape().cols);
  for (size_t i = 0; i < rows; ++i)
    for (size_t j = 0; j < cols; ++j)
      node.buffer[i * cols + j] = node.args[0]->data[j * rows + i];
}

/// x * rsqrt(scale * sum x^2 + eps).
void evaluateNorm(Node &node, double scale) {
  const double *x = node.args[0]->data;
  double sum = 0;
  for (size_t i = 0; i < node.buffer.size(); ++i)
    sum += x[i] * x[i];
  double factor = 1 / std::sqrt(scale * sum + node.expr->eps);
  map(node, [&](double x) { return x * factor; });
}

void evaluateExtremum(Node &node) {
  bool isMin = node.expr->func == Func::Min;
  for (size_t i = 0; i < node.buffer.size(); ++i) {
    for (size_t n = 0; n < node.args.size(); ++n) {
      const Node &arg = *node.args[n];
      double x = arg.data[arg.kind() == Shape::Scalar ? 0 : i];
      double &out = node.buffer[i];
      if (n == 0 || (isMin ? x < out : x > out) || std::isnan(x))
        out = x;
    }
  }
}

/// softmax over the rows of the lists; of no rows, zeros.
void evaluateAttend(Node &node) {
  const Node &values = *node.args.back();
  size_t rows = size_t(*node.held) + values.expr->version;
  std::vector<double> scores(rows);
  for (size_t i = 0; i + 1 < node.args.size(); i += 2) {
    const double *q = node.args[i]->data, *keys = node.args[i + 1]->data;
    size_t width = elements(node.args[i]->shape());
    for (size_t row = 0; row < rows; ++row)
      for (size_t c = 0; c < width; ++c)
        scores[row] += q[c] * keys[row * width + c];
  }
  double largest = rows ? *std::max_element(scores.begin(), scores.end()) : 0;
  double sum = 0;
  for (double &score : scores)
    sum += score = std::exp(score - largest);
  size_t width = node.buffer.size();
  std::fill(node.buffer.begin(), node.buffer.end(), 0.0);
  for (size_t row = 0; row < rows; ++row)
    for (size_t c = 0; c < width; ++c)
      node.buffer[c] += scores[row] / sum * values.data[row * width + c];
}

void evaluateCall(Node &node) {
  Func func = node.expr->func;
  switch (func) {
  case Func::Min:
  case Func::Max:
    return evaluateExtremum(node);
  case Func::Sum: {
    const Node &arg = *node.args[0];
    double sum = 0;
    for (size_t i = 0; i < elements(arg.shape()); ++i)
      sum += arg.data[i];
    node.buffer[0] = sum;
    return;
  }
  case Func::L2Norm:
    return evaluateNorm(node, 1);
  case Func::RmsNorm:
    return evaluateNorm(node, 1 / double(node.buffer.size()));
  case Func::Attend:
    return evaluateAttend(node);
  case Func::Append:
    return; // An update, see Interpreter.
  default:
    return map(node, [&](double x) { return frontend::apply(func, x); });
  }
}

void evaluate(Node &node) {
  switch (node.expr->kind) {
  case ExprKind::Number:
  case ExprKind::Ref:
  case ExprKind::Diag:
    return; // Set up once: data points at the value.
  case ExprKind::Neg:
    return map(node, [](double x) { return -x; });
  case ExprKind::Add:
  case ExprKind::Sub:
    return evaluateSum(node);
  case ExprKind::Mul:
    return zip(node, [](double x, double y) { return x * y; });
  case ExprKind::Div:
    return zip(node, [](double x, double y) { return x / y; });
  case ExprKind::MatMul:
    return evaluateMatMul(node);
  case ExprKind::Pow: {
    double power = node.expr->number;
    return map(node, [&](double x) { return std::pow(x, power); });
  }
  case ExprKind::Transpose:
    if (!node.buffer.empty())
      evaluateTranspose(node);
    return;
  case ExprKind::Call:
    return evaluateCall(node);
  }
}

//===----------------------------------------------------------------------===//
// The layer
//===----------------------------------------------------------------------===//

/// A statement as a list of nodes and the place its value goes to.
struct Step {
  const Stmt *stmt;
  std::vector<Node *> nodes; ///< Operands first; the last is the value.
  double *target;
  size_t stride; ///< Output: elements from token to token.
};

class Interpreter {
public:
  Interpreter(const Layer &layer, Head &head);
  void run();

private:
  Node *add(Step &step, const Expr *expr);
  Node *addProduct(Step &step, const Expr *expr);
  void refer(Node &node);

  Head &head;
  std::deque<Node> nodes;
  std::deque<Expr> reassociated; ///< Stand-ins, see addProduct.
  std::unordered_map<const Symbol *, std::vector<double>> locals;
  std::vector<Step> steps;
  int64_t held; ///< Rows of the growing states before the current token.
};

Interpreter::Interpreter(const Layer &layer, Head &head)
    : head(head), held(head.past) {
  for (const Symbol *local : layer.locals)
    locals[local].resize(elements(local->shape));
  for (const Stmt &stmt : layer.stmts) {
    Step step{&stmt, {}, nullptr, 0};
    if (stmt.kind == Stmt::Define) {
      step.target = locals[stmt.symbol].data();
    } else if (stmt.kind == Stmt::Update) {
      step.target = head.states[stmt.symbol->index].data();
      if (stmt.symbol->shape.kind == Shape::List) {
        step.stride = size_t(stmt.symbol->shape.cols);
        step.target += size_t(head.past) * step.stride;
        add(step, stmt.written->args[1]);
        steps.push_back(std::move(step));
        continue;
      }
    } else {
      step.target = head.outputs[stmt.symbol->index].data();
      step.stride = elements(stmt.symbol->shape);
    }
    add(step, stmt.written);
    steps.push_back(std::move(step));
  }
}

/// Adds the node of `expr` behind those of its operands.
Node *Interpreter::add(Step &step, const Expr *expr) {
  if (expr->kind == ExprKind::MatMul &&
      expr->args[0]->kind == ExprKind::MatMul &&
      expr->args[0]->args[0]->shape.kind == Shape::Column)
    return addProduct(step, expr);
  std::vector<const Node *> args;
  for (const Expr *arg : expr->args)
    args.push_back(add(step, arg));
  Node &node = nodes.emplace_back();
  node.expr = expr;
  node.args = std::move(args);
  bool sameElements =
      expr->kind == ExprKind::Diag ||
      (expr->kind == ExprKind::Transpose && expr->shape.kind != Shape::Matrix);
  if (expr->kind == ExprKind::Call && expr->func == Func::Attend)
    node.held = &held;
  if (expr->kind == ExprKind::Ref) {
    refer(node);
  } else if (sameElements) {
    node.data = nullptr; // Of the operand; its place may move with the token.
  } else {
    node.buffer.resize(elements(expr->shape), expr->number);
    node.data = node.buffer.data();
  }
  step.nodes.push_back(&node);
  return &node;
}

/// (k^T @ y) @ M as k^T @ (y @ M).
Node *Interpreter::addProduct(Step &step, const Expr *expr) {
  const Expr *column = expr->args[0]->args[0], *row = expr->args[0]->args[1];
  Expr inner = *expr;
  inner.shape = Shape::row(expr->shape.cols);
  if (expr->args[1]->shape.kind == Shape::Column)
    inner.shape = Shape::scalar();
  inner.args = {row, expr->args[1]};
  const Expr *innerExpr = &reassociated.emplace_back(std::move(inner));
  Expr outer = *expr;
  if (innerExpr->shape.kind == Shape::Scalar)
    outer.kind = ExprKind::Mul;
  outer.args = {column, innerExpr};
  return add(step, &reassociated.emplace_back(std::move(outer)));
}

void Interpreter::refer(Node &node) {
  const Symbol &symbol = *node.expr->symbol;
  switch (symbol.kind) {
  case SymbolKind::Dim:
    node.buffer = {double(symbol.value)};
    node.data = node.buffer.data();
    break;
  case SymbolKind::Param:
    node.data = head.params[symbol.index].data();
    break;
  case SymbolKind::Input:
    node.data = head.inputs[symbol.index].data();
    node.stride = elements(symbol.shape);
    break;
  case SymbolKind::State:
    node.data = head.states[symbol.index].data();
    break;
  case SymbolKind::Local:
    node.data = locals[&symbol].data();
    break;
  case SymbolKind::Output:
    break; // Sema lets nobody read one.
  }
}

void Interpreter::run() {
  for (int64_t token = 0; token < head.tokens; ++token, ++held)
    for (Step &step : steps) {
      for (Node *node : step.nodes) {
        if (node->buffer.empty() && !node->args.empty())
          node->data = node->args[0]->data;
        evaluate(*node);
      }
      const Node &value = *step.nodes.back();
      std::copy_n(value.data, elements(value.shape()), step.target);
      step.target += step.stride;
      for (Node *node : step.nodes)
        node->data += node->stride;
    }
}
} // namespace

void run(const Layer &layer, Head &head) { Interpreter(layer, head).run(); }

} // namespace plum::reference
