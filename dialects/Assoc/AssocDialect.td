//===- AssocDialect.td - Updates of an associative memory --*- tablegen -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_DIALECTS_ASSOC_DIALECT_TD
#define PLUM_DIALECTS_ASSOC_DIALECT_TD

include "dialects/Assoc/AssocEnums.td"
include "mlir/IR/OpBase.td"
include "mlir/IR/AttrTypeBase.td"

def Assoc_Dialect : Dialect {
  let name = "assoc";
  let cppNamespace = "::plum::assoc";
  let summary = "one token of a state-space layer as updates of its memory";
  let description = [{
    A sequence layer keeps a memory `S` of shape `[K, V]` that maps keys to
    values: reading with a row `q` of length K gives `q S`, a row of length V.
    The ops say how one token changes it: multiply it (`gate`, `decay`), add a
    fact (`add`), remove one (`erase`), replace one (`delta`). A memory that
    never forgets is a list of rows instead: `append` adds one, and `attend`
    reads all of them through a softmax. Elementwise maths on rows is left to `arith`, `math` and `vector`: a row of length d is
    a `vector<dxf32>`, a scalar an `f32`.

    A state is a value: every update returns the new one, and each value is
    the memory at one point in time. Conversions of layout and dtype are
    explicit; nothing in this dialect converts silently.
  }];
  let useDefaultAttributePrinterParser = 1;
  let useDefaultTypePrinterParser = 1;
}

//===----------------------------------------------------------------------===//
// Attributes
//===----------------------------------------------------------------------===//

def Assoc_DomainAttr : EnumAttr<Assoc_Dialect, Assoc_DomainEnum, "domain"> {
  let summary = "`log`: the factor is exp(a); `linear`: it is a itself";
  let assemblyFormat = "`<` $value `>`"; // ops print the bare word
}

class Assoc_Attr<string name, string mnemonicText, list<Trait> traits = []>
    : AttrDef<Assoc_Dialect, name, traits> {
  let mnemonic = mnemonicText;
}

def Assoc_ArgAttr : Assoc_Attr<"Arg", "arg"> {
  let summary = "name and role of one argument of a layer";
  let description = [{
    `#assoc.arg<input "q">`. A `param` is one value per head, an `input` one
    row per token and head, a `state` the memory itself.
  }];
  let parameters = (ins "::plum::assoc::Role":$role, StringRefParameter<"name in the spec">:$name);
  let assemblyFormat = "`<` $role $name `>`";
}

def Assoc_BoundsAttr : Assoc_Attr<"Bounds", "bounds"> {
  let summary = "proven bounds of a decay, in its domain";
  let description = [{
    `#assoc.bounds<-5.0, 0.0>`: every value lies in [low, high]. Written by
    `assoc-normalize` from the interval of the gate's expression; absent means
    nothing was proven. With `assumed` the upper bound is the contract of a
    plain input (a log decay given as an input is taken to be <= 0).
  }];
  let parameters = (ins APFloatParameter<"">:$low, APFloatParameter<"">:$high,
                        DefaultValuedParameter<"bool", "false">:$assumed);
  let builders = [AttrBuilder<(ins "double":$low, "double":$high, "bool":$assumed), [{
    return $_get($_ctxt, ::llvm::APFloat(low), ::llvm::APFloat(high), assumed);
  }]>];
  let hasCustomAssemblyFormat = 1; // infinities have no float syntax
}

//===----------------------------------------------------------------------===//
// Types
//===----------------------------------------------------------------------===//

def Assoc_StateType : TypeDef<Assoc_Dialect, "State"> {
  let mnemonic = "state";
  let summary = "a memory of shape [K, V] at one point in time";
  let description = [{
    `!assoc.state<128, 64, kv, f32, f32>`: key dim K, value dim V, order of
    the dims in memory, storage dtype, accumulation dtype. A vector state `[K]`
    (the normaliser of linear attention) is a state with V = 1.

    Constraints: (C1) K >= 1 and V >= 1. (C2) storage is f32, f16 or bf16.
    (C3) the accumulation type is f32.
  }];
  let parameters = (ins "int64_t":$keyDim, "int64_t":$valueDim, "::plum::assoc::Layout":$layout,
                        "::mlir::Type":$storage, "::mlir::Type":$accumulate);
  let assemblyFormat = "`<` $keyDim `,` $valueDim `,` $layout `,` $storage `,` $accumulate `>`";
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// vector<Kxf32> and vector<Vxf32>.
    ::mlir::VectorType getKeyRowType() const;
    ::mlir::VectorType getValueRowType() const;
  }];
}

def Assoc_ListType : TypeDef<Assoc_Dialect, "List"> {
  let mnemonic = "list";
  let summary = "a growing memory: one row for each token so far";
  let description = [{
    `!assoc.list<64, f32>`: rows of 64 numbers, storage dtype. How many there
    are is known when the layer runs; each token appends one, so all lists of a
    layer have the same length at the same point in time.

    Constraints: (C1) rows have at least one number. (C2) storage is f32, f16
    or bf16.
  }];
  let parameters = (ins "int64_t":$width, "::mlir::Type":$storage);
  let assemblyFormat = "`<` $width `,` $storage `>`";
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// vector<widthxf32>.
    ::mlir::VectorType getRowType() const;
  }];
}

#endif // PLUM_DIALECTS_ASSOC_DIALECT_TD
