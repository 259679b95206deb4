//===- RandomSpec.cpp - Layers nobody has written yet ---------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "test/integration/RandomSpec.h"

using namespace plum;
using namespace plum::test;

namespace {
/// Collects declarations and statements while the layer is drawn.
struct Writer {
  Dice dice;
  std::string declarations, definitions, statements;
  int64_t inputs = 0, locals = 0;
  std::vector<std::string> outputs;

  /// A new input of `shape` ("" for a scalar).
  std::string input(const std::string &shape) {
    std::string name = "x" + std::to_string(inputs++);
    declarations += "  input  " + name + " : " + shape +
                    (shape.empty() ? "" : " ") +
                    dice.pick({"bf16", "bf16", "f32", "f16"}) + "\n";
    return name;
  }
  std::string define(const std::string &expr) {
    std::string name = "t" + std::to_string(locals++);
    definitions += "  " + name + " = " + expr + "\n";
    return name;
  }
  void statement(const std::string &text) { statements += "  " + text + "\n"; }

  /// A row [K] of norm one.
  std::string key() {
    return define("l2norm(" + input("[K]") + ", eps = 1e-6)");
  }
  /// A gate in (0, 1): a scalar, or a row of `shape`.
  std::string gate(const std::string &shape = "") {
    return define("sigmoid(" + input(shape) + ")");
  }

  std::string logDecay(const std::string &x);
  std::string decay(bool &channel);
  std::string mergedWrite();
  std::string erase();
  void update(bool first, bool vector);
  void output(const std::string &read);
};
} // namespace

/// The log of a decay: bounded, or not.
std::string Writer::logDecay(const std::string &x) {
  switch (dice.below(4)) {
  case 0:
    return "-5 * sigmoid(" + x + ")";
  case 1:
    return "-softplus(" + x + ")";
  case 2:
    return "-softplus(-" + x + ") / 16";
  default:
    return "-0.6065 * sigmoid(2 * " + x + " - 1)";
  }
}

/// A decay factor as it stands in an update; `channel` when it is a row [K].
std::string Writer::decay(bool &channel) {
  channel = false;
  switch (dice.below(6)) {
  case 0:
    return "0.97";
  case 1: {
    // One param is enough for all decays of a layer.
    if (declarations.find("param  p ") == std::string::npos)
      declarations += "  param  p : f32\n";
    return "exp(" + define(dice.chance(0.5) ? "-softplus(p)" : "-exp(p)") + ")";
  }
  case 2: // The linear domain.
    channel = dice.chance(0.5);
    return gate(channel ? "[K]" : "");
  case 3:
    return "exp(" + define(logDecay(input(""))) + ")";
  default:
    channel = true;
    return "exp(" + define(logDecay(input("[K]"))) + ")";
  }
}

/// A write that reads along its own key: the fast form.
std::string Writer::mergedWrite() {
  std::string k = key(), v = input("[V]");
  switch (dice.below(4)) {
  case 0:
    return gate() + " * " + k + "^T @ (" + v + " - " + k + " @ S)";
  case 1: // Erase and write with gates of their own.
    return k + "^T @ (" + gate("[V]") + " * " + v + " - (" + gate("[K]") +
           " * " + k + ") @ S)";
  case 2:
    return k + "^T @ (" + gate() + " * (" + v + " - " + k + " @ S))";
  default: // Eigenvalues down to -1.
    return "2 * " + gate() + " * " + k + "^T @ (" + v + " - " + k + " @ S)";
  }
}

/// e^T (f S) with e != f, |e| <= 0.3.
std::string Writer::erase() {
  std::string e = define("0.3 * " + key());
  return e + "^T @ (" + key() + " @ S)";
}

/// One update of S, its decay first or in the same statement.
void Writer::update(bool first, bool vector) {
  bool channel = false;
  std::string factor;
  if (first ? dice.chance(0.8) : dice.chance(0.2))
    factor = decay(channel);

  std::vector<std::string> terms;
  int64_t erases = dice.below(3), writes = 1 + dice.below(2);
  for (int64_t i = 0; i < writes; ++i)
    terms.push_back(dice.chance(0.6) ? mergedWrite()
                                     : key() + "^T @ " + input("[V]"));
  for (int64_t i = 0; i < erases; ++i)
    terms.push_back(erase());
  std::string sum;
  for (size_t i = 0; i < terms.size(); ++i)
    sum += (i ? " + " : "") + terms[i];

  std::string decayed = factor.empty() ? "S"
                        : channel      ? "diag(" + factor + ") @ S"
                                       : factor + " * S";
  if (vector) { // The count of what is written, under the same decay.
    std::string k = define("abs(" + input("[K]") + ")");
    statement("z = " + (factor.empty() ? "z" : factor + " * z") + " + " + k);
  }
  switch (dice.below(3)) {
  case 0: // Reads see the state before the decay.
    statement("S = " + decayed + " + " + sum);
    return;
  case 1: // After it.
    if (!factor.empty())
      statement("S = " + decayed);
    statement("S += " + sum);
    return;
  default: // Each write an update of its own; the last one subtracted.
    if (!factor.empty())
      statement("S = " + decayed);
    for (size_t i = 0; i + 1 < terms.size(); ++i)
      statement("S += " + terms[i]);
    statement("S -= -1 * (" + terms.back() + ")");
  }
}

void Writer::output(const std::string &read) {
  std::string name = "o" + std::to_string(outputs.size());
  std::string value = read;
  switch (dice.below(6)) {
  case 0:
    value = "silu(" + input("[V]") + ") * (" + read + ")";
    break;
  case 1:
    value = read + " + 0.1 * " + input("[V]");
    break;
  case 2:
    value = "rmsnorm(" + read + ", eps = 1e-3) * " + gate();
    break;
  case 3:
    value = "(" + read + ") / (1 + abs(" + input("") + "))";
    break;
  default:
    break;
  }
  statement("output " + name + " : [V] " + dice.pick({"bf16", "f32", "f16"}) +
            " = " + value);
  outputs.push_back(name);
}

Spec test::randomSpec(uint32_t seed) {
  Writer writer{Dice(seed), {}, {}, {}, 0, 0, {}};
  Dice &dice = writer.dice;
  int64_t K = dice.pick({8, 20, 33, 64}), V = dice.pick({8, 20, 33, 64});
  bool vector = dice.chance(0.2), second = dice.chance(0.15);
  int64_t updates = 1 + dice.below(2);

  std::string q = writer.define(writer.key() + " * K^-0.5");
  if (dice.chance(0.2))
    writer.output(q + " @ S"); // Before the token.
  for (int64_t i = 0; i < updates; ++i) {
    writer.update(i == 0, vector && i == 0);
    if (i + 1 < updates && dice.chance(0.3))
      writer.output(q + " @ S"); // Between the updates.
  }
  if (second) // Beside S, or storing what S answers.
    writer.statement("R = 0.9 * R + " + writer.key() + "^T @ " +
                     (dice.chance(0.5) ? writer.input("[V]")
                                       : "(" + writer.key() + " @ S)"));
  std::string read = q + " @ S";
  if (second)
    read += " - " + q + " @ R";
  if (vector)
    read = "(" + read + ") / (1 + abs(" + q + ") @ z^T)";
  writer.output(read);

  std::string states = "  state  S" + std::string(second ? ", R" : "") +
                       " : [K, V] f32\n" +
                       (vector ? "  state  z : [K] f32\n" : "");
  Spec spec;
  spec.name = "random" + std::to_string(seed);
  spec.text = "layer " + spec.name + "(K = " + std::to_string(K) +
              ", V = " + std::to_string(V) + ") {\n" + writer.declarations +
              states + writer.definitions + writer.statements + "}\n";
  return spec;
}
