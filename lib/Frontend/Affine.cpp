//===- Affine.cpp - Which updates have a chunkwise form -------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A chunk of tokens can be computed at once when each update is affine in its
// state with a transition "diagonal plus low rank":
//
//   S_{v+1} = D @ S_v + sum of key^T @ (coeff * (value + sum of reads))
//   read    = coeff * (key @ S_w)
//
// The update of S is multiplied out into a sum of terms (AffineForm.h), in
// which S stands either as a whole, D @ S, or in reads. What is left to do
// here:
//
//   decay   the terms with S as a whole, added up, are D. When every factor of
//           D is exp(x), looked at through locals, D is kept as log D = sum of
//           the x: the spec wrote it in that domain.
//   reads   key @ (D' @ S_v), where D' is the very decay of this update, is a
//           read after the decay; other factors go to the coefficient and key.
//   writes  terms with the same key become one write, as one solve serves all
//           of them; scalar factors that they share become its coefficient.
//
// For a vector state z : [K] think of the matrix z^T with one column: a value
// is a scalar, a plain row k is the write k^T @ 1.
//
// Updates of several states may read each other's in one direction only: a
// chunk of the first is computed before the second is begun.
//
//===----------------------------------------------------------------------===//

#include "plum/Frontend/Affine.h"

#include "AffineForm.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <fmt/format.h>
#include <set>

namespace plum::frontend {

namespace {
constexpr size_t maxFactors = 64;

class AffineAnalysis {
public:
  AffineAnalysis(Layer &layer, Diagnostics &diags, bool stepOnly)
      : layer(layer), diags(diags), stepOnly(stepOnly), forms(layer),
        builder(forms.builder) {}

  bool run();

private:
  void checkCycles();
  void analyse(Stmt &stmt);
  std::optional<AffineUpdate> analyseUpdate(const Stmt &stmt);
  void analyseAppend(Stmt &stmt);
  bool addDecay(AffineUpdate &update, const Stmt &stmt,
                const std::vector<Term> &wholes);
  const Expr *logOf(const Factors &decay, Range range);
  bool collectLogs(const Expr *factor, double &number,
                   std::vector<const Expr *> &logs);
  std::vector<Write> makeWrites(const Stmt &stmt, std::vector<Term> terms,
                                const Factors *decay);
  Write makeWrite(const Stmt &stmt, std::vector<Term> terms,
                  const Factors *decay);
  Read makeRead(const Stmt &stmt, Term term, const Factors *decay);
  void fail(const Stmt &stmt);
  void noteStep(Range range) {
    diags.note(range, "'--form step' runs it token by token");
  }
  void install();

  Layer &layer;
  Diagnostics &diags;
  bool stepOnly;
  FormBuilder forms;
  ExprBuilder &builder;
  std::set<std::pair<uint32_t, std::string>> reported;
};

//===----------------------------------------------------------------------===//
// The layer
//===----------------------------------------------------------------------===//

bool AffineAnalysis::run() {
  checkCycles();
  for (Stmt &stmt : layer.stmts)
    analyse(stmt);
  if (!reported.empty() && !stepOnly)
    return false;
  layer.affine = reported.empty();
  install();
  return true;
}

/// The rows of a whole chunk are appended at once.
void AffineAnalysis::analyseAppend(Stmt &stmt) {
  const Expr *row = stmt.written->args[1];
  const Symbol *list = stmt.symbol;
  const Expr *value = nullptr;
  if (forms.statesOf(row) >> list->index & 1)
    forms.failure = {
        row->range,
        fmt::format("the row appended to '{0}' depends on '{0}'", list->name)};
  else
    value = forms.normal(row);
  if (!value)
    return fail(stmt);
  stmt.expr = builder.withArgs(stmt.written, {stmt.written->args[0], value});
}

void AffineAnalysis::analyse(Stmt &stmt) {
  if (stmt.kind == Stmt::Update && stmt.symbol->shape.kind == Shape::List)
    return analyseAppend(stmt);
  if (stmt.kind == Stmt::Update) {
    stmt.affine = analyseUpdate(stmt);
    if (!stmt.affine)
      fail(stmt);
    return;
  }
  bool value = stmt.symbol->shape.kind == Shape::Scalar ||
               (stmt.symbol->shape.kind == Shape::Row &&
                (stmt.kind == Stmt::Output || !forms.needsWhole(stmt.written)));
  stmt.expr = value ? forms.normal(stmt.written) : nullptr;
  if (value && !stmt.expr)
    fail(stmt);
}

/// The normal forms become the definitions, or what was written stays.
void AffineAnalysis::install() {
  std::map<const Symbol *, const Stmt *> definitions;
  for (Stmt &stmt : layer.stmts) {
    if (!layer.affine)
      stmt.expr = stmt.written;
    if (stmt.kind != Stmt::Update)
      definitions[stmt.symbol] = &stmt;
  }
  for (Symbol &symbol : layer.symbols)
    if (auto found = definitions.find(&symbol); found != definitions.end())
      symbol.definition =
          found->second->expr ? found->second->expr : found->second->written;
}

void AffineAnalysis::fail(const Stmt &stmt) {
  const Failure &why = forms.failure;
  if (!reported.emplace(why.range.begin, why.message).second || stepOnly)
    return;
  diags.error(why.range, why.message);
  bool inside =
      why.range.begin >= stmt.range.begin && why.range.end <= stmt.range.end;
  if (!inside)
    diags.note(stmt.range,
               fmt::format("in this {} of '{}'",
                           stmt.kind == Stmt::Update ? "update" : "value",
                           stmt.symbol->name));
  bool ofUpdate =
      stmt.kind == Stmt::Update && (!why.state || why.state == stmt.symbol);
  if (ofUpdate) {
    bool vector = stmt.symbol->shape.kind == Shape::Row;
    diags.note(why.range,
               vector
                   ? fmt::format("a chunkwise form needs the affine step {0} "
                                 "-> w * {0} + (y @ {0}^T) * x + k, and w, x, "
                                 "y, k free of '{0}'",
                                 stmt.symbol->name)
                   : fmt::format("a chunkwise form needs the affine step {0} "
                                 "-> diag(w) @ {0} + x^T @ (y @ {0}) + k^T @ "
                                 "v, and w, x, y, k, v free of '{0}'",
                                 stmt.symbol->name));
  } else if (why.state) {
    bool vector = why.state->shape.kind == Shape::Row;
    diags.note(why.range,
               fmt::format("a chunkwise form never holds '{0}' of each token, "
                           "only its reads x @ {0}{1}",
                           why.state->name, vector ? "^T" : ""));
  }
  const Symbol *state = why.state                   ? why.state
                        : stmt.kind == Stmt::Update ? stmt.symbol
                                                    : nullptr;
  if (state)
    diags.note(state->range, fmt::format("'{}' is declared here", state->name));
  noteStep(stmt.range);
}

void AffineAnalysis::checkCycles() {
  size_t count = layer.states.size();
  std::vector<uint64_t> reach(count);
  std::vector<Range> places(count);
  for (const Stmt &stmt : layer.stmts) {
    if (stmt.kind != Stmt::Update)
      continue;
    size_t state = stmt.symbol->index;
    uint64_t others = forms.statesOf(stmt.written) & ~(uint64_t(1) << state);
    if (others && !reach[state])
      places[state] = stmt.range;
    reach[state] |= others;
  }
  for (size_t via = 0; via < count; ++via)
    for (size_t from = 0; from < count; ++from)
      if (reach[from] >> via & 1)
        reach[from] |= reach[via];
  uint64_t seen = 0;
  for (size_t state = 0; state < count; ++state) {
    if (!(reach[state] >> state & 1) || (seen >> state & 1))
      continue;
    std::string names;
    uint64_t cycle = 0;
    for (size_t other = 0; other < count; ++other)
      if ((reach[state] >> other & 1) && (reach[other] >> state & 1))
        cycle |= uint64_t(1) << other;
    seen |= cycle;
    int left = std::popcount(cycle);
    for (size_t other = 0; other < count; ++other)
      if (cycle >> other & 1)
        names += fmt::format("'{}'{}", layer.states[other]->name,
                             --left > 1  ? ", "
                             : left == 1 ? " and "
                                         : "");
    std::string message =
        fmt::format("the updates of states {} depend on each other", names);
    reported.emplace(places[state].begin, message);
    if (stepOnly)
      continue;
    diags.error(places[state], message);
    diags.note(places[state], "a chunkwise form computes one state for a whole "
                              "chunk before the next");
    for (size_t other = 0; other < count; ++other)
      if (other != state && (cycle >> other & 1))
        diags.note(places[other], fmt::format("'{}' is updated here",
                                              layer.states[other]->name));
    noteStep(places[state]);
  }
}

//===----------------------------------------------------------------------===//
// Updates
//===----------------------------------------------------------------------===//

std::optional<AffineUpdate> AffineAnalysis::analyseUpdate(const Stmt &stmt) {
  const Symbol *state = stmt.symbol;
  std::optional<Form> form = forms.form(stmt.written, state);
  if (!form)
    return std::nullopt;
  std::vector<Term> wholes, writes;
  for (Term &term : form->terms) {
    if (term.core == Term::Whole) {
      bool current = term.state == state && term.version == stmt.version;
      if (!current) {
        forms.failure = {
            term.range,
            term.state == state
                ? fmt::format("state '{}' of before an earlier update is used "
                              "as a whole",
                              state->name)
                : fmt::format("state '{}' is added to state '{}' as a whole",
                              term.state->name, state->name),
            state};
        return std::nullopt;
      }
      wholes.push_back(std::move(term));
    } else if (term.core == Term::Diag) {
      forms.failure = {term.range, "a diagonal matrix is not low rank", state};
      return std::nullopt;
    } else {
      writes.push_back(std::move(term));
    }
  }
  AffineUpdate update;
  if (!addDecay(update, stmt, wholes))
    return std::nullopt;
  const Factors *decay = wholes.size() == 1 ? &wholes[0].coeff : nullptr;
  update.writes = makeWrites(stmt, std::move(writes), decay);
  return update;
}

//===----------------------------------------------------------------------===//
// Decay
//===----------------------------------------------------------------------===//

bool AffineAnalysis::addDecay(AffineUpdate &update, const Stmt &stmt,
                              const std::vector<Term> &wholes) {
  auto set = [&](const Expr *decay, bool logDomain) {
    update.decay = decay;
    update.logDomain = logDomain;
    update.decayKind = decay->shape.kind == Shape::Row ? AffineUpdate::Channel
                                                       : AffineUpdate::Scalar;
  };
  if (wholes.empty()) { // The state is overwritten.
    set(builder.number(0, stmt.range), false);
    return true;
  }
  if (wholes.size() == 1) {
    const Factors &factors = wholes[0].coeff;
    if (factors.isOne())
      return true;
    if (const Expr *log = logOf(factors, wholes[0].range))
      set(log, true);
    else
      set(product(factors, wholes[0].range, builder), false);
    return true;
  }
  // S + diag(w) @ S and the like: add up.
  double numbers = 0;
  const Expr *sum = nullptr;
  for (const Term &term : wholes) {
    Factors factors = term.coeff;
    if (factors.scalars.empty() && factors.rows.empty()) {
      numbers += factors.number;
      continue;
    }
    const Expr *part = product(factors, term.range, builder);
    sum = sum ? builder.add(sum, part) : part;
  }
  if (!sum && numbers == 1)
    return true;
  const Expr *constant = builder.number(numbers, wholes[0].range);
  set(!sum ? constant : numbers == 0 ? sum : builder.add(constant, sum), false);
  return true;
}

/// log of the product when every factor is an exponential (or a positive
/// constant next to one); null otherwise.
const Expr *AffineAnalysis::logOf(const Factors &decay, Range range) {
  double number = decay.number;
  std::vector<const Expr *> logs;
  for (const std::vector<const Expr *> *list : {&decay.scalars, &decay.rows})
    for (const Expr *factor : *list)
      if (!collectLogs(factor, number, logs))
        return nullptr;
  if (logs.empty() || !(number > 0) || !std::isfinite(number))
    return nullptr;
  const Expr *sum = nullptr;
  for (const Expr *log : logs)
    sum = sum ? builder.add(sum, log) : log;
  if (number != 1)
    sum = builder.add(sum, builder.number(std::log(number), range));
  return sum;
}

bool AffineAnalysis::collectLogs(const Expr *factor, double &number,
                                 std::vector<const Expr *> &logs) {
  while (factor->kind == ExprKind::Ref &&
         factor->symbol->kind == SymbolKind::Local &&
         !forms.needsWhole(factor) && factor->shape.kind != Shape::Column) {
    const Expr *definition = forms.normal(factor->symbol->definition);
    if (!definition)
      return false;
    factor = definition;
  }
  if (std::optional<double> value = constantValue(factor)) {
    number *= *value;
    return true;
  }
  if (factor->kind == ExprKind::Call && factor->func == Func::Exp) {
    if (logs.size() == maxFactors) // Shared nodes may be met very often.
      return false;
    logs.push_back(factor->args[0]);
    return true;
  }
  return factor->kind == ExprKind::Mul &&
         collectLogs(factor->args[0], number, logs) &&
         collectLogs(factor->args[1], number, logs);
}

//===----------------------------------------------------------------------===//
// Writes
//===----------------------------------------------------------------------===//

/// The row that a term is written at; for a vector state a plain row is it.
const Expr *keyOf(const Term &term) { return term.key ? term.key : term.row; }

std::vector<Write> AffineAnalysis::makeWrites(const Stmt &stmt,
                                              std::vector<Term> terms,
                                              const Factors *decay) {
  std::vector<std::vector<Term>> groups;
  for (Term &term : terms) {
    auto group = std::find_if(groups.begin(), groups.end(), [&](auto &group) {
      return sameValue(keyOf(group.front()), keyOf(term));
    });
    if (group != groups.end())
      group->push_back(std::move(term));
    else
      groups.push_back({std::move(term)});
  }
  std::vector<Write> writes;
  for (std::vector<Term> &group : groups)
    writes.push_back(makeWrite(stmt, std::move(group), decay));
  return writes;
}

/// Takes the factors that all terms share out of them.
Factors takeCommon(std::vector<Term> &terms) {
  double number = terms[0].coeff.number;
  bool equal = true, opposite = true;
  for (const Term &term : terms) {
    equal &= term.coeff.number == number;
    opposite &= std::fabs(term.coeff.number) == std::fabs(number);
  }
  Factors common;
  if (number != 0 && (equal || opposite))
    common.number = equal ? number : std::fabs(number);
  for (Term &term : terms)
    term.coeff.number /= common.number;

  for (const Expr *factor : std::vector(terms[0].coeff.scalars)) {
    std::vector<std::vector<const Expr *>::iterator> places;
    for (Term &term : terms) {
      std::vector<const Expr *> &list = term.coeff.scalars;
      auto place = std::find_if(list.begin(), list.end(), [&](auto *other) {
        return sameValue(factor, other);
      });
      if (place == list.end())
        break;
      places.push_back(place);
    }
    if (places.size() < terms.size())
      continue;
    common.scalars.push_back(factor);
    for (size_t i = 0; i < terms.size(); ++i)
      terms[i].coeff.scalars.erase(places[i]);
  }
  return common;
}

Write AffineAnalysis::makeWrite(const Stmt &stmt, std::vector<Term> terms,
                                const Factors *decay) {
  bool vector = stmt.symbol->shape.kind == Shape::Row;
  Range range = terms.front().range;
  Factors common = takeCommon(terms);
  Write write{.coeff = product(common, range, builder),
              .key = keyOf(terms.front()),
              .value = nullptr,
              .reads = {},
              .range = range};
  for (Term &term : terms) {
    if (term.core == Term::Read) {
      write.reads.push_back(makeRead(stmt, std::move(term), decay));
      continue;
    }
    const Expr *core = vector ? builder.number(1, term.range) : term.row;
    const Expr *value = times(term.coeff, core, term.range, builder);
    write.value = write.value ? builder.add(write.value, value) : value;
  }
  return write;
}

Read AffineAnalysis::makeRead(const Stmt &stmt, Term term,
                              const Factors *decay) {
  bool decayed = decay && !decay->isOne() && term.version == stmt.version &&
                 sameFactors(term.decay, *decay);
  const Expr *key = term.row;
  if (!decayed) {
    key = timesRows(key, term.decay.rows, builder);
    term.decay.rows.clear();
    term.coeff.multiply(term.decay);
  }
  return {product(term.coeff, term.range, builder), key, term.version, decayed};
}
} // namespace

bool analyseAffine(Layer &layer, Diagnostics &diags, bool stepOnly) {
  return AffineAnalysis(layer, diags, stepOnly).run();
}

} // namespace plum::frontend
