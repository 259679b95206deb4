//===- Maths.cpp - A chunk function as printed equations --------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One line per op, under the names that the printer gives the values, with
// primes in place of its numbers.
//
//===----------------------------------------------------------------------===//

#include "plum/Pipelines/Maths.h"

#include "plum/Transforms/Passes.h"

#include "mlir/IR/AsmState.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/Format.h"

#include <map>

using namespace mlir;
using namespace plum;
using namespace plum::chunk;

namespace {

/// Any fixed order of values will do.
struct Earlier {
  bool operator()(Value a, Value b) const {
    return a.getAsOpaquePointer() < b.getAsOpaquePointer();
  }
};

class Describer {
public:
  explicit Describer(func::FuncOp function)
      : function(function),
        names(function, OpPrintingFlags().printNameLocAsPrefix(true)),
        out(text) {}

  std::string run();

private:
  /// The printer's name without its number; a later value of the same name
  /// gets a prime: O, O', O''.
  const std::string &nameOf(Value value) {
    // One value, one name: inside its stage and outside.
    while (auto stage = value.getDefiningOp<StageOp>())
      value = stage.getBody().front().getTerminator()->getOperand(
          cast<OpResult>(value).getResultNumber());
    std::string &name = given[value];
    if (!name.empty())
      return name;
    llvm::raw_string_ostream stream(name);
    value.printAsOperand(stream, names);
    StringRef base = StringRef(name).drop_front(); // the %
    StringRef stem = base.rtrim("0123456789");
    if (stem.size() > 1 && stem.ends_with("_"))
      base = stem.drop_back();
    std::string plain = base.str();
    name = plain + std::string(used[plain]++, '\'');
    return name;
  }
  std::string namesOf(ValueRange values) {
    std::string all;
    for (Value value : values)
      all += (all.empty() ? "" : ", ") + nameOf(value);
    return all;
  }
  void line(Value result, const Twine &equation);
  void describe(Operation *op);

  func::FuncOp function;
  AsmState names;
  std::map<Value, std::string, Earlier> given;
  llvm::StringMap<unsigned> used; ///< How many values have a name.
  std::string text;
  llvm::raw_string_ostream out;
};

void Describer::line(Value result, const Twine &equation) {
  std::string left = nameOf(result) + " = " + equation.str();
  out << "//   " << llvm::left_justify(left, 62) << " [";
  if (auto list = dyn_cast<assoc::ListType>(result.getType()))
    out << "*, " << list.getWidth();
  else
    llvm::interleaveComma(cast<RankedTensorType>(result.getType()).getShape(),
                          out);
  out << "]\n";
}

/// Strict or inclusive, by the moments of the rows.
StringRef maskOf(ArrayAttr rows) {
  bool after = llvm::all_of(rows.getAsRange<AtAttr>(), [](AtAttr at) {
    return at.getMoment() == Moment::After;
  });
  return after ? "j <= i" : "j < i";
}

/// True when rows look before their step's decay: they see G of the step
/// before.
bool lookBefore(ArrayAttr rows) {
  return llvm::all_of(rows.getAsRange<AtAttr>(), [](AtAttr at) {
    return at.getMoment() == Moment::Before;
  });
}

void Describer::describe(Operation *op) {
  TypeSwitch<Operation *>(op)
      .Case<chunk::MapOp>([&](chunk::MapOp op) {
        out << "//   " << namesOf(op.getResults()) << ": rows of the tokens\n";
      })
      .Case<CumsumOp>([&](CumsumOp op) {
        bool log = op.getDomain() == assoc::Domain::Log;
        line(op.getResult(),
             (log ? "cumsum(" : "cumsum(log ") + nameOf(op.getDecay()) + ")");
      })
      .Case<ScoresOp>([&](ScoresOp op) {
        std::string x = nameOf(op.getX()), y = nameOf(op.getY());
        StringRef mask = maskOf(op.getXRows());
        if (op.getDecay()) {
          std::string G = nameOf(op.getDecay());
          std::string at = lookBefore(op.getXRows()) ? "_(i-1) - " : "_i - ";
          line(op.getResult(),
               "<" + x + "_i, " + y + "_j exp(" + G + at + G + "_j)>, " + mask);
        } else {
          line(op.getResult(), "<" + x + "_i, " + y + "_j>, " + mask);
        }
      })
      .Case<InverseOp>([&](InverseOp op) {
        std::string scale =
            op.getScale() ? "diag(" + nameOf(op.getScale()) + ") " : "";
        line(op.getResult(), "(I - " + scale + nameOf(op.getScores()) + ")^-1");
      })
      .Case<ReadOp>([&](ReadOp op) {
        std::string x = nameOf(op.getX()), decay;
        if (op.getDecay() && lookBefore(op.getRows()))
          x += "_i", decay = " exp(" + nameOf(op.getDecay()) + "_(i-1))";
        else if (op.getDecay())
          decay = " exp(" + nameOf(op.getDecay()) + ")";
        line(op.getResult(), "(" + x + decay + ") " + nameOf(op.getState()));
      })
      .Case<ScaleOp>([&](ScaleOp op) {
        line(op.getResult(),
             "diag(" + nameOf(op.getBy()) + ") " + nameOf(op.getRows()));
      })
      .Case<arith::AddFOp>([&](arith::AddFOp op) {
        line(op.getResult(), nameOf(op.getLhs()) + " + " + nameOf(op.getRhs()));
      })
      .Case<MatmulOp>([&](MatmulOp op) {
        std::string onto = op.getOnto() ? nameOf(op.getOnto()) + " + " : "";
        line(op.getResult(),
             onto + nameOf(op.getMatrix()) + " " + nameOf(op.getRows()));
      })
      .Case<CarryOp>([&](CarryOp op) {
        std::string G = op.getDecay() ? nameOf(op.getDecay()) : "";
        std::string sum = G.empty() ? "" : "diag(exp " + G + "_C) ";
        sum += nameOf(op.getState());
        for (auto [key, value] : llvm::zip(op.getKeys(), op.getValues())) {
          std::string k = nameOf(key);
          if (!G.empty())
            k = "(" + k + " exp(" + G + "_C - " + G + "))";
          sum += " + " + k + "^T " + nameOf(value);
        }
        line(op.getResult(), sum);
      })
      .Case<AppendOp>([&](AppendOp op) {
        line(op.getResult(),
             "[" + nameOf(op.getList()) + "; " + nameOf(op.getRows()) + "]");
      })
      .Case<AttendOp>([&](AttendOp op) {
        std::string scores;
        for (auto [query, keys] : llvm::zip(op.getQueries(), op.getKeys()))
          scores += (scores.empty() ? "" : " + ") + nameOf(query) + " " +
                    nameOf(keys) + "^T";
        line(op.getResult(), "softmax(" + scores + ") " +
                                 nameOf(op.getValues()) +
                                 (op.getOwn() ? ", j <= i" : ", j < i"));
      })
      .Case<OutputOp>([&](OutputOp op) {
        out << "//   outputs: from " << namesOf(op.getIns()) << "\n";
      })
      .Case<StageOp>([&](StageOp op) {
        out << "// " << stringifyStage(op.getStage())
            << (op.getStage() == Stage::Prepare
                    ? ": does not depend on the state\n"
                    : ": depends on the state\n");
        for (Operation &inner : op.getBody().front())
          describe(&inner);
      });
}

std::string Describer::run() {
  out << "// @" << function.getName() << ": for each chunk of "
      << function->getAttrOfType<IntegerAttr>(kChunkAttr).getInt()
      << " tokens\n";
  function.walk([&](scf::ForOp loop) {
    for (Operation &op : loop.getBody()->without_terminator())
      describe(&op);
  });
  return text;
}

} // namespace

std::string plum::describeChunks(ModuleOp module) {
  std::string all;
  for (func::FuncOp function : module.getOps<func::FuncOp>())
    if (function->hasAttr(kChunkAttr))
      all += Describer(function).run() + "//\n";
  return all;
}
