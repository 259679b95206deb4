//===- Sema.cpp - Declarations and statements of a layer ------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Walks the statements in order, as a name means its value at that place: a
// local is unknown before its line, a state's reference records how many
// updates came before it.
//
//===----------------------------------------------------------------------===//

#include "Sema.h"

#include "plum/Frontend/Affine.h"

#include <algorithm>
#include <fmt/format.h>

namespace plum::frontend {

namespace {
/// Levenshtein distance, upper and lower case being the same. Names are short,
/// but input may be hostile: long names count as far apart.
size_t editDistance(std::string_view a, std::string_view b) {
  constexpr size_t maxLength = 64;
  if (a.size() > maxLength || b.size() > maxLength)
    return maxLength;
  auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; };
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j)
    row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      size_t change = diagonal + (lower(a[i - 1]) != lower(b[j - 1]));
      diagonal = row[j];
      row[j] = std::min({change, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

std::string_view describe(SymbolKind kind) {
  switch (kind) {
  case SymbolKind::Dim:
    return "a dim";
  case SymbolKind::Param:
    return "a param";
  case SymbolKind::Input:
    return "an input";
  case SymbolKind::State:
    return "a state";
  case SymbolKind::Local:
    return "a local";
  case SymbolKind::Output:
    return "an output";
  }
  return "";
}
} // namespace

std::unique_ptr<Layer> Sema::check(const syntax::Layer &syntaxLayer) {
  source = &syntaxLayer;
  layer = std::make_unique<Layer>();
  layer->name = source->name.text;
  layer->range = source->name.range;
  checkDims(*source);
  for (const syntax::Stmt &stmt : source->stmts)
    checkStmt(stmt);
  if (!diags.hasErrors())
    checkWhole(*source);
  if (diags.hasErrors())
    return nullptr;
  return std::move(layer);
}

//===----------------------------------------------------------------------===//
// Names
//===----------------------------------------------------------------------===//

bool Sema::isNew(syntax::Name name) {
  auto found = table.find(name.text);
  if (found == table.end())
    return true;
  diags.error(name.range, fmt::format("redefinition of '{}'", name.text));
  diags.note(found->second->range,
             fmt::format("'{}' is first defined here", name.text));
  return false;
}

Symbol *Sema::declare(SymbolKind kind, syntax::Name name, Shape shape,
                      DType dtype) {
  std::vector<const Symbol *> *lists[] = {&layer->dims,   &layer->params,
                                          &layer->inputs, &layer->states,
                                          &layer->locals, &layer->outputs};
  std::vector<const Symbol *> &list = *lists[unsigned(kind)];
  Symbol symbol{.kind = kind,
                .name = std::string(name.text),
                .range = name.range,
                .shape = shape,
                .dtype = dtype};
  symbol.index = unsigned(list.size());
  Symbol *added = &layer->symbols.emplace_back(std::move(symbol));
  list.push_back(added);
  table[name.text] = added;
  return added;
}

std::vector<std::string_view> Sema::visibleNames(bool dimsOnly) const {
  std::vector<std::string_view> names;
  for (const Symbol &symbol : layer->symbols)
    if (symbol.kind == SymbolKind::Dim ||
        (!dimsOnly && symbol.kind != SymbolKind::Output))
      names.push_back(symbol.name);
  return names;
}

void Sema::noteNearest(Range range, std::string_view wrong,
                       const std::vector<std::string_view> &names) {
  std::string_view nearest;
  size_t best = (wrong.size() + 1) / 2 + 1;
  for (std::string_view name : names) {
    size_t distance = editDistance(wrong, name);
    if (distance < best && distance < std::max(wrong.size(), name.size())) {
      best = distance;
      nearest = name;
    }
  }
  if (!nearest.empty())
    diags.note(range, fmt::format("did you mean '{}'?", nearest));
}

//===----------------------------------------------------------------------===//
// Dims and types
//===----------------------------------------------------------------------===//

void Sema::checkDims(const syntax::Layer &source) {
  for (const syntax::Dim &dim : source.dims) {
    if (!isNew(dim.name))
      continue;
    Symbol *symbol =
        declare(SymbolKind::Dim, dim.name, Shape::scalar(), DType::F32);
    auto set = options.dims.find(symbol->name);
    if (set != options.dims.end()) {
      symbol->value = set->second;
      if (symbol->value < 1 || symbol->value > maxExtent)
        diags.error(dim.name.range,
                    fmt::format("dim '{0}' is {1} by '--set {0}={1}', expected "
                                "1 to {2}",
                                dim.name.text, symbol->value, maxExtent));
    } else if (!dim.value) {
      diags.error(dim.name.range,
                  fmt::format("dim '{0}' has no value; give it one with '--set "
                              "{0}=...'",
                              dim.name.text));
    } else {
      symbol->value = dim.value->value;
      if (symbol->value < 1 || symbol->value > maxExtent)
        diags.error(dim.value->range,
                    fmt::format("dim '{}' is {}, expected 1 to {}",
                                dim.name.text, symbol->value, maxExtent));
    }
    if (symbol->value < 1 || symbol->value > maxExtent)
      symbol->value = 1; // Said once; go on with a harmless one.
    symbol->constant = double(symbol->value);
  }
  for (const auto &[name, value] : options.dims) {
    auto found = table.find(name);
    if (found != table.end())
      continue;
    diags.error(source.name.range,
                fmt::format("layer '{}' has no dim '{}', set by '--set {}={}'",
                            source.name.text, name, name, value));
    noteNearest(source.name.range, name, visibleNames(true));
  }
}

std::optional<int64_t> Sema::checkExtent(const syntax::Extent &extent) {
  if (extent.name.empty()) {
    if (extent.value >= 1 && extent.value <= maxExtent)
      return extent.value;
    diags.error(extent.range, fmt::format("extent is {}, expected 1 to {}",
                                          extent.value, maxExtent));
    return std::nullopt;
  }
  auto found = table.find(extent.name);
  if (found != table.end() && found->second->kind == SymbolKind::Dim)
    return found->second->value;
  if (found != table.end()) {
    diags.error(extent.range,
                fmt::format("'{}' is {}, expected a dim or an integer",
                            extent.name, describe(found->second->kind)));
    diags.note(found->second->range,
               fmt::format("'{}' is declared here", extent.name));
    return std::nullopt;
  }
  diags.error(extent.range, fmt::format("unknown dim '{}'", extent.name));
  noteNearest(extent.range, extent.name, visibleNames(true));
  return std::nullopt;
}

std::optional<Shape> Sema::checkType(const syntax::Type &type) {
  if (type.extents.size() > 2) {
    diags.error(type.range,
                fmt::format("a type has at most two extents, got {}",
                            type.extents.size()));
    return std::nullopt;
  }
  bool list = type.extents.size() == 2 && type.extents[0].grows;
  std::vector<int64_t> extents;
  for (const syntax::Extent &extent : type.extents) {
    if (list && &extent == &type.extents[0])
      continue;
    if (extent.grows) {
      diags.error(extent.range, "'*' is the first of two extents: '[*, K]' is "
                                "a list of rows");
      return std::nullopt;
    }
    std::optional<int64_t> value = checkExtent(extent);
    if (!value)
      return std::nullopt;
    extents.push_back(*value);
  }
  if (list)
    return Shape::list(extents[0]);
  if (extents.empty())
    return Shape::scalar();
  if (extents.size() == 1)
    return Shape::row(extents[0]);
  return Shape::matrix(extents[0], extents[1]);
}

//===----------------------------------------------------------------------===//
// Statements
//===----------------------------------------------------------------------===//

void Sema::checkStmt(const syntax::Stmt &stmt) {
  switch (stmt.kind) {
  case syntax::Stmt::Param:
  case syntax::Stmt::Input:
  case syntax::Stmt::State:
    return checkDeclaration(stmt);
  case syntax::Stmt::Assign:
  case syntax::Stmt::AddAssign:
  case syntax::Stmt::SubAssign:
    return checkAssignment(stmt);
  case syntax::Stmt::Output:
    return checkOutput(stmt);
  }
}

void Sema::checkDeclaration(const syntax::Stmt &stmt) {
  SymbolKind kind = stmt.kind == syntax::Stmt::Param   ? SymbolKind::Param
                    : stmt.kind == syntax::Stmt::Input ? SymbolKind::Input
                                                       : SymbolKind::State;
  std::optional<Shape> shape = checkType(stmt.type);
  bool state = kind == SymbolKind::State;
  if (shape && state && shape->kind == Shape::Scalar) {
    diags.error(stmt.type.range,
                "a state is a row or a matrix, got scalar; write '[1]'");
    shape.reset();
  } else if (shape && !state &&
             (shape->kind == Shape::Matrix || shape->kind == Shape::List)) {
    diags.error(stmt.type.range, fmt::format("{} is a scalar or a row, got {}",
                                             describe(kind), shape->str()));
    shape.reset();
  }
  for (const syntax::Name &name : stmt.names) {
    if (!isNew(name))
      continue;
    if (!shape) {
      poisoned.insert(name.text);
      continue;
    }
    if (state && layer->states.size() == maxStates) {
      diags.error(name.range,
                  fmt::format("a layer has at most {} states", maxStates));
      poisoned.insert(name.text);
      continue;
    }
    declare(kind, name, *shape, stmt.type.dtype);
  }
}

void Sema::checkAssignment(const syntax::Stmt &stmt) {
  const syntax::Name &name = stmt.names.front();
  auto found = table.find(name.text);
  if (found != table.end() && found->second->kind == SymbolKind::State)
    return checkUpdate(stmt, *found->second);
  bool compound = stmt.kind != syntax::Stmt::Assign;
  std::string_view op = stmt.kind == syntax::Stmt::AddAssign   ? "+="
                        : stmt.kind == syntax::Stmt::SubAssign ? "-="
                                                               : "=";
  if (found != table.end()) {
    const Symbol &symbol = *found->second;
    if (compound)
      diags.error(stmt.op, fmt::format("'{}' updates a state, but '{}' is {}",
                                       op, name.text, describe(symbol.kind)));
    else if (symbol.kind == SymbolKind::Local)
      diags.error(name.range, fmt::format("redefinition of '{}'", name.text));
    else
      diags.error(name.range, fmt::format("'{}' is {} and cannot be assigned",
                                          name.text, describe(symbol.kind)));
    diags.note(symbol.range,
               symbol.kind == SymbolKind::Local
                   ? fmt::format("'{}' is first defined here", name.text)
                   : fmt::format("'{}' is declared here", name.text));
    return;
  }
  if (compound && !poisoned.contains(name.text)) {
    diags.error(stmt.op, fmt::format("'{}' updates a state, but '{}' is not "
                                     "declared",
                                     op, name.text));
    noteNearest(name.range, name.text, visibleNames(false));
    check(*stmt.expr);
    return;
  }
  const Expr *expr = check(*stmt.expr);
  if (poisoned.contains(name.text))
    return;
  if (!expr) {
    poisoned.insert(name.text);
    return;
  }
  if (expr->shape.kind == Shape::List) {
    refuseList(expr, "a local");
    poisoned.insert(name.text);
    return;
  }
  Symbol *symbol = declare(SymbolKind::Local, name, expr->shape, DType::F32);
  symbol->definition = expr;
  symbol->constant = constantValue(expr);
  layer->stmts.push_back({.kind = Stmt::Define,
                          .range = stmt.range,
                          .symbol = symbol,
                          .written = expr,
                          .expr = expr});
}

void Sema::refuseList(const Expr *list, std::string_view use) {
  diags.error(list->range,
              fmt::format("a growing state is not {}: it is written by "
                          "'append' and read by 'attend'",
                          use));
  if (list->kind == ExprKind::Ref)
    diags.note(list->symbol->range,
               fmt::format("'{}' is declared here", list->symbol->name));
}

bool Sema::checkAppend(const syntax::Stmt &stmt, const Symbol &state,
                       const Expr *expr) {
  bool append = stmt.kind == syntax::Stmt::Assign &&
                expr->kind == ExprKind::Call && expr->func == Func::Append &&
                expr->args[0]->symbol == &state;
  if (!append) {
    diags.error(stmt.range,
                fmt::format("the update of growing state '{0}' expects '{0} = "
                            "append({0}, row)'",
                            state.name));
    diags.note(state.range, fmt::format("'{}' is declared here", state.name));
    return false;
  }
  if (expr->args[0]->version > 0) {
    diags.error(stmt.range,
                fmt::format("growing state '{}' is appended to twice, expected "
                            "one row a token",
                            state.name));
    diags.note(state.range, fmt::format("'{}' is declared here", state.name));
    return false;
  }
  return true;
}

void Sema::checkUpdate(const syntax::Stmt &stmt, Symbol &state) {
  const syntax::Name &name = stmt.names.front();
  updating = &state;
  const Expr *expr = check(*stmt.expr);
  if (expr && stmt.kind != syntax::Stmt::Assign &&
      state.shape.kind != Shape::List) {
    ExprKind kind =
        stmt.kind == syntax::Stmt::AddAssign ? ExprKind::Add : ExprKind::Sub;
    // A scalar may broadcast, but whole shapes must agree: said as below.
    bool square =
        expr->shape.kind == Shape::Diagonal &&
        state.shape == Shape::matrix(expr->shape.rows, expr->shape.cols);
    if (expr->shape.kind == Shape::Scalar || expr->shape == state.shape ||
        square) {
      const Expr *before = make({.kind = ExprKind::Ref,
                                 .range = name.range,
                                 .shape = state.shape,
                                 .symbol = &state,
                                 .version = versions[&state]});
      expr = make({.kind = kind,
                   .range = stmt.range,
                   .shape = state.shape,
                   .args = {before, expr}});
    }
  }
  updating = nullptr;
  unsigned version = versions[&state]++;
  if (!expr)
    return;
  if (state.shape.kind == Shape::List && !checkAppend(stmt, state, expr))
    return;
  if (expr->shape != state.shape) {
    diags.error(stmt.expr->range,
                fmt::format("the update of state '{}' expects {}, got {}",
                            state.name, state.shape.str(), expr->shape.str()));
    diags.note(state.range, fmt::format("'{}' is declared here", state.name));
    return;
  }
  layer->stmts.push_back({.kind = Stmt::Update,
                          .range = stmt.range,
                          .symbol = &state,
                          .written = expr,
                          .expr = expr,
                          .version = version});
}

void Sema::checkOutput(const syntax::Stmt &stmt) {
  const syntax::Name &name = stmt.names.front();
  std::optional<Shape> shape = checkType(stmt.type);
  if (shape && (shape->kind == Shape::Matrix || shape->kind == Shape::List)) {
    diags.error(
        stmt.type.range,
        fmt::format("an output is a scalar or a row, got {}", shape->str()));
    shape.reset();
  }
  const Expr *expr = check(*stmt.expr);
  if (!isNew(name))
    return;
  if (!shape) {
    poisoned.insert(name.text);
    return;
  }
  if (expr && expr->shape != *shape) {
    diags.error(stmt.expr->range,
                fmt::format("output '{}' expects {}, got {}", name.text,
                            shape->str(), expr->shape.str()));
    diags.note(stmt.type.range, fmt::format("'{}' has this type", name.text));
  }
  Symbol *symbol = declare(SymbolKind::Output, name, *shape, stmt.type.dtype);
  symbol->definition = expr;
  if (expr)
    layer->stmts.push_back({.kind = Stmt::Output,
                            .range = stmt.range,
                            .symbol = symbol,
                            .written = expr,
                            .expr = expr});
}

/// What can only be said of the layer as a whole.
void Sema::checkWhole(const syntax::Layer &source) {
  if (layer->states.empty())
    diags.error(source.name.range,
                fmt::format("layer '{}' has no state", layer->name));
  if (layer->outputs.empty())
    diags.error(source.name.range,
                fmt::format("layer '{}' has no output", layer->name));
  for (const Symbol &symbol : layer->symbols) {
    bool isUsed = used.contains(&symbol);
    if (symbol.shape.kind == Shape::List && versions[&symbol] == 0) {
      // All of a layer's lists have the same length.
      diags.error(symbol.range, fmt::format("growing state '{}' is never "
                                            "appended to, expected one row a "
                                            "token",
                                            symbol.name));
    } else if (symbol.kind == SymbolKind::State) {
      if (versions[&symbol] == 0 || !isUsed)
        diags.warning(symbol.range,
                      fmt::format("state '{}' is never {}", symbol.name,
                                  isUsed              ? "updated"
                                  : versions[&symbol] ? "read"
                                                      : "updated or read"));
    } else if (!isUsed && symbol.kind == SymbolKind::Input) {
      diags.warning(symbol.range,
                    fmt::format("unused input '{}'", symbol.name));
    } else if (!isUsed && symbol.kind == SymbolKind::Param) {
      diags.warning(symbol.range,
                    fmt::format("unused param '{}'", symbol.name));
    } else if (!isUsed && symbol.kind == SymbolKind::Local) {
      diags.warning(symbol.range,
                    fmt::format("unused local '{}'", symbol.name));
    }
  }
}

} // namespace plum::frontend
