//===- AssocOps.td - Ops of the assoc dialect --------------*- tablegen -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_DIALECTS_ASSOC_OPS_TD
#define PLUM_DIALECTS_ASSOC_OPS_TD

include "dialects/Assoc/AssocDialect.td"
include "mlir/IR/OpAsmInterface.td"
include "mlir/Interfaces/ControlFlowInterfaces.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

class Assoc_Op<string mnemonic, list<Trait> traits = []> : Op<Assoc_Dialect, mnemonic, traits>;

/// A row: vector<dxf32> of rank 1. A scalar: f32.
def Assoc_Row : VectorOfRankAndType<[1], [F32]>;
def Assoc_RowOrScalar : AnyTypeOf<[Assoc_Row, F32]>;

class Assoc_KeyRow<string row> : TypesMatchWith<
    "'" # row # "' is a row of the state's key dim K", "state", row,
    "::llvm::cast<::plum::assoc::StateType>($_self).getKeyRowType()">;
class Assoc_ValueRow<string row> : TypesMatchWith<
    "'" # row # "' is a row of the state's value dim V", "state", row,
    "::llvm::cast<::plum::assoc::StateType>($_self).getValueRowType()">;

/// An op that makes the next state out of the last one.
class Assoc_Update<string mnemonic, list<Trait> traits = []>
    : Assoc_Op<mnemonic, !listconcat([Pure, AllTypesMatch<["state", "result"]>,
        DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmResultNames"]>], traits)> {
  let results = (outs Assoc_StateType:$result);
  code asmName = [{
    void $cppClass::getAsmResultNames(::mlir::OpAsmSetValueNameFn setName) { setName(getResult(), "S"); }
  }];
  let extraClassDefinition = asmName;
}

//===----------------------------------------------------------------------===//
// The layer
//===----------------------------------------------------------------------===//

def Assoc_LayerOp : Assoc_Op<"layer", [IsolatedFromAbove, Symbol, SingleBlock,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmBlockArgumentNames"]>]> {
  let summary = "hold the equations of one token of one head";
  let description = [{
    The body's arguments are the layer's params, inputs and states in the
    order of `args`; the terminator `assoc.yield` gives the outputs and the
    next states. The layer itself is the recurrence: for each token the body
    runs once, the states of one token being the arguments of the next.

    Arguments have storage types (`vector<128xbf16>`); the body converts them
    to f32 with `arith.extf` and its outputs back with `arith.truncf`.

    Constraints: (C1) one entry of `args` per block argument. (C2) an argument
    has the type `!assoc.state` or `!assoc.list` exactly when its role is `state`. (C3) params,
    inputs and outputs are scalars or rows of f32, f16 or bf16. (C4) the
    yielded states have the types of the state arguments, in order. (C5) one
    name in `outputs` per yielded output. (C6) names are distinct. (C7) the
    updates of a state argument are a chain, each of the state that the last one
    made; the end of the chain is what is yielded for that argument. (C8) a
    list is appended to once.

    Example:
    ```mlir
    assoc.layer @linear args [#assoc.arg<input "q">, #assoc.arg<input "k">,
        #assoc.arg<input "v">, #assoc.arg<state "S">] outputs ["o"] {
    ^bb0(%q: vector<8xf32>, %k: vector<8xf32>, %v: vector<4xf32>,
         %S: !assoc.state<8, 4, kv, f32, f32>):
      %S1 = assoc.add %S, %k, %v : !assoc.state<8, 4, kv, f32, f32>
      %o = assoc.read %S1 at %q : !assoc.state<8, 4, kv, f32, f32>
      assoc.yield %o, %S1 : vector<4xf32>, !assoc.state<8, 4, kv, f32, f32>
    }
    ```
  }];
  let arguments = (ins
    SymbolNameAttr:$sym_name,
    TypedArrayAttrBase<Assoc_ArgAttr, "roles and names of the arguments">:$args,
    StrArrayAttr:$outputs);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$sym_name `args` $args `outputs` $outputs attr-dict-with-keyword $body";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::mlir::Block &getBlock() { return getBody().front(); }
    /// The arguments of one role, in order, with their names.
    ::llvm::SmallVector<::mlir::BlockArgument> argumentsOf(Role role);
    ::llvm::SmallVector<::llvm::StringRef> namesOf(Role role);
    YieldOp getYield();
    ::mlir::OperandRange yieldedOutputs();
    ::mlir::OperandRange yieldedStates();
  }];
}

def Assoc_YieldOp : Assoc_Op<"yield", [Pure, Terminator, ReturnLike,
    ParentOneOf<["LayerOp", "MapOp"]>]> {
  let summary = "end one token: outputs, then states";
  let description = [{
    In a layer: its outputs followed by its next states. In an `assoc.map`:
    the new row.
  }];
  let arguments = (ins Variadic<AnyType>:$values);
  let assemblyFormat = "attr-dict ($values^ `:` type($values))?";
  let builders = [OpBuilder<(ins), [{ /* for the implicit terminator */ }]>];
}

//===----------------------------------------------------------------------===//
// Forgetting
//===----------------------------------------------------------------------===//

def Assoc_GateOp : Assoc_Update<"gate"> {
  let summary = "multiply the state by one scalar";
  let description = [{
    Formula: `S' = w S`, w = exp(a) in the domain `log`, w = a in `linear`.
    S, S' : [K, V]; a scalar. fp32, one rounding per element. RetNet, Mamba-2,
    Gated DeltaNet.

    Constraints: none beyond the types.

    Example:
    ```mlir
    func.func @gate(%S: !assoc.state<8, 4, kv, f32, f32>, %a: f32) -> !assoc.state<8, 4, kv, f32, f32> {
      %S1 = assoc.gate %S by log %a : !assoc.state<8, 4, kv, f32, f32>
      return %S1 : !assoc.state<8, 4, kv, f32, f32>
    }
    ```
  }];
  let arguments = (ins Assoc_StateType:$state, Assoc_DomainAttr:$domain, F32:$decay);
  let assemblyFormat = "$state `by` custom<Domain>($domain) $decay attr-dict `:` qualified(type($state))";
}

def Assoc_DecayOp : Assoc_Update<"decay", [Assoc_KeyRow<"decay">]> {
  let summary = "multiply each key channel of the state by its own factor";
  let description = [{
    Formula: `S' = diag(w) S`, w = exp(a) in the domain `log`, w = a in
    `linear`. S, S' : [K, V]; a : [K]. fp32. GLA (arXiv 2312.06635), KDA.

    Constraints: (C1) `decay` is a row of the state's key dim K.

    Example:
    ```mlir
    func.func @decay(%S: !assoc.state<8, 4, kv, f32, f32>, %a: vector<8xf32>) -> !assoc.state<8, 4, kv, f32, f32> {
      %S1 = assoc.decay %S by log %a : !assoc.state<8, 4, kv, f32, f32>
      return %S1 : !assoc.state<8, 4, kv, f32, f32>
    }
    ```
  }];
  let arguments = (ins Assoc_StateType:$state, Assoc_DomainAttr:$domain, Assoc_Row:$decay);
  let assemblyFormat = "$state `by` custom<Domain>($domain) $decay attr-dict `:` qualified(type($state))";
}

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

def Assoc_AddOp : Assoc_Update<"add", [Assoc_KeyRow<"key">, Assoc_ValueRow<"value">]> {
  let summary = "add a fact to the state";
  let description = [{
    Formula: `S' = S + k^T v`. S, S' : [K, V]; k : [K]; v : [V]. fp32. What
    was stored under overlapping keys is disturbed. Linear attention
    (arXiv 2006.16236).

    Constraints: (C1) `key` is a row of K. (C2) `value` is a row of V.

    Example:
    ```mlir
    func.func @add(%S: !assoc.state<8, 4, kv, f32, f32>, %k: vector<8xf32>, %v: vector<4xf32>) -> !assoc.state<8, 4, kv, f32, f32> {
      %S1 = assoc.add %S, %k, %v : !assoc.state<8, 4, kv, f32, f32>
      return %S1 : !assoc.state<8, 4, kv, f32, f32>
    }
    ```
  }];
  let arguments = (ins Assoc_StateType:$state, Assoc_Row:$key, Assoc_Row:$value);
  let assemblyFormat = "$state `,` $key `,` $value attr-dict `:` qualified(type($state))";
}

def Assoc_DeltaOp : Assoc_Update<"delta", [Assoc_KeyRow<"key">, Assoc_ValueRow<"value">]> {
  let summary = "replace what the state holds under a key";
  let description = [{
    Formula: `S' = S + beta k^T (v - k S)`. S, S' : [K, V]; k : [K]; v : [V];
    beta scalar. With |k| = 1 and beta = 1 reading k afterwards gives exactly
    v. fp32. The delta rule (arXiv 2102.11174), DeltaNet (arXiv 2406.06484).

    Constraints: (C1) `key` is a row of K. (C2) `value` is a row of V.

    Example:
    ```mlir
    func.func @delta(%S: !assoc.state<8, 4, kv, f32, f32>, %k: vector<8xf32>, %v: vector<4xf32>, %beta: f32) -> !assoc.state<8, 4, kv, f32, f32> {
      %S1 = assoc.delta %S, %k, %v, %beta : !assoc.state<8, 4, kv, f32, f32>
      return %S1 : !assoc.state<8, 4, kv, f32, f32>
    }
    ```
  }];
  let arguments = (ins Assoc_StateType:$state, Assoc_Row:$key, Assoc_Row:$value, F32:$beta);
  let assemblyFormat = "$state `,` $key `,` $value `,` $beta attr-dict `:` qualified(type($state))";
}

def Assoc_EraseOp : Assoc_Update<"erase", [Assoc_KeyRow<"along">, Assoc_KeyRow<"at">,
    AllTypesMatch<["state", "of"]>]> {
  let summary = "add a multiple of what an earlier state reads";
  let description = [{
    Formula: `S' = S + e^T (c f P)`, where P is `of`: the state itself or an
    earlier value of it. S, S', P : [K, V]; e (`along`), f (`at`) : [K]; c
    (`by`) scalar. With e = f and c = -1 it removes what is stored along f.
    fp32. DeltaNet's erasure, GDN-2, RWKV-7 (arXiv 2503.14456).

    Constraints: (C1) `along` is a row of K. (C2) `at` is a row of K. (C3)
    `of` has the type of the state.

    Example:
    ```mlir
    func.func @erase(%S: !assoc.state<8, 4, kv, f32, f32>, %e: vector<8xf32>, %f: vector<8xf32>, %c: f32) -> !assoc.state<8, 4, kv, f32, f32> {
      %S1 = assoc.erase %S along %e by %c at %f of %S : !assoc.state<8, 4, kv, f32, f32>
      return %S1 : !assoc.state<8, 4, kv, f32, f32>
    }
    ```
  }];
  let arguments = (ins Assoc_StateType:$state, Assoc_Row:$along, F32:$by, Assoc_Row:$at,
                       Assoc_StateType:$of);
  let assemblyFormat = "$state `along` $along `by` $by `at` $at `of` $of attr-dict `:` qualified(type($state))";
}

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

def Assoc_ReadOp : Assoc_Op<"read", [Pure, Assoc_KeyRow<"key">, Assoc_ValueRow<"result">]> {
  let summary = "read the state at a key";
  let description = [{
    Formula: `o = q S`. S : [K, V]; q (`key`) : [K]; o : [V]. Sums in fp32.

    Constraints: (C1) `key` is a row of K. (C2) the result is a row of V.

    Example:
    ```mlir
    func.func @read(%S: !assoc.state<8, 4, kv, f32, f32>, %q: vector<8xf32>) -> vector<4xf32> {
      %o = assoc.read %S at %q : !assoc.state<8, 4, kv, f32, f32>
      return %o : vector<4xf32>
    }
    ```
  }];
  let arguments = (ins Assoc_StateType:$state, Assoc_Row:$key);
  let results = (outs Assoc_Row:$result);
  let assemblyFormat = "$state `at` $key attr-dict `:` qualified(type($state))";
}

def Assoc_WholeOp : Assoc_Op<"whole", [Pure, Assoc_KeyRow<"result">]> {
  let summary = "take a vector state as a row";
  let description = [{
    Formula: `h[c] = S[c, 0]`. S : [K, 1]; h : [K]. A recurrence that uses its
    vector state elementwise (`o = h`) reads no key; it runs token by token, in
    the step form only.

    Constraints: (C1) the state has V = 1. (C2) the result is a row of K.

    Example:
    ```mlir
    func.func @whole(%h: !assoc.state<8, 1, kv, f32, f32>) -> vector<8xf32> {
      %o = assoc.whole %h : !assoc.state<8, 1, kv, f32, f32>
      return %o : vector<8xf32>
    }
    ```
  }];
  let arguments = (ins Assoc_StateType:$state);
  let results = (outs Assoc_Row:$result);
  let assemblyFormat = "$state attr-dict `:` qualified(type($state))";
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Never forgetting
//===----------------------------------------------------------------------===//

def Assoc_AppendOp : Assoc_Op<"append", [Pure, AllTypesMatch<["list", "result"]>,
    TypesMatchWith<"'row' is a row of the list", "list", "row",
                   "::llvm::cast<::plum::assoc::ListType>($_self).getRowType()">,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmResultNames"]>]> {
  let summary = "add a row to a list";
  let description = [{
    Formula: `L' = [L; x]`. L : [n, d]; x : [d]; L' : [n + 1, d]. The rows are
    kept as they are: nothing is forgotten, and the state grows. The keys and
    the values of softmax attention (arXiv 1706.03762).

    Constraints: (C1) `row` is a row of the list's width.

    Example:
    ```mlir
    func.func @append(%L: !assoc.list<8, f32>, %x: vector<8xf32>) -> !assoc.list<8, f32> {
      %L1 = assoc.append %L, %x : !assoc.list<8, f32>
      return %L1 : !assoc.list<8, f32>
    }
    ```
  }];
  let arguments = (ins Assoc_ListType:$list, Assoc_Row:$row);
  let results = (outs Assoc_ListType:$result);
  let assemblyFormat = "$list `,` $row attr-dict `:` qualified(type($list))";
  let extraClassDefinition = [{
    void $cppClass::getAsmResultNames(::mlir::OpAsmSetValueNameFn setName) { setName(getResult(), "L"); }
  }];
}

def Assoc_AttendOp : Assoc_Op<"attend", [Pure, AttrSizedOperandSegments,
    DeclareOpInterfaceMethods<InferTypeOpInterface>]> {
  let summary = "read lists by the softmax of scores";
  let description = [{
    Formula: `o = softmax(sum_i q_i K_i^T) V`. K_i : [n, d_i] (`keys`); q_i :
    [d_i] (`queries`); V : [n, e] (`values`); o : [e]. Of no rows at all the
    result is 0. One pair is attention (arXiv 1706.03762); with two, a query has
    a part for a latent and one for a shared key (multi-head latent attention,
    arXiv 2405.04434). fp32; a lowering subtracts the largest score it has seen
    before it exponentiates.

    Constraints: (C1) as many queries as keys, at least one. (C2) query i is a
    row of keys i. (C3) all lists are as long: each has this token's row, or
    none has. (C4) the result is a row of the values.

    Example:
    ```mlir
    func.func @attend(%q: vector<8xf32>, %K: !assoc.list<8, f32>, %V: !assoc.list<4, f32>) -> vector<4xf32> {
      %o = assoc.attend(%q) keys(%K : !assoc.list<8, f32>) values(%V : !assoc.list<4, f32>) : vector<8xf32>
      return %o : vector<4xf32>
    }
    ```
  }];
  let arguments = (ins Variadic<Assoc_Row>:$queries, Variadic<Assoc_ListType>:$keys, Assoc_ListType:$values);
  let results = (outs Assoc_Row:$result);
  let assemblyFormat = [{
    `(` $queries `)` `keys` `(` $keys `:` qualified(type($keys)) `)`
    `values` `(` $values `:` qualified(type($values)) `)` attr-dict `:` type($queries)
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// The lists hold this token's row.
    bool seesOwn() { return getValues().getDefiningOp<AppendOp>() != nullptr; }
  }];
}

//===----------------------------------------------------------------------===//
// Anything else, token by token
//===----------------------------------------------------------------------===//

def Assoc_MapOp : Assoc_Update<"map", [SingleBlock, AttrSizedOperandSegments]> {
  let summary = "make each row of the next state from a row of this one";
  let description = [{
    Formula: `S'[c, :] = f(c; S[c, :], w_1[c], ..., w_n[c])` for each key
    channel c, f being the region; values from outside are the same for every
    c, and `assoc.read` of any state inside is allowed. This is how updates
    that are not affine (`tanh(S)`, `S * S`) run: token by token, in the step
    form only. There is no chunkwise form of it.

    The region's arguments are the rows of `states` (vector<Vxf32> of the first
    state's shape), then one f32 for each of `columns`.

    Constraints: (C1) all states have one K. (C2) `columns` are rows of K. (C3)
    the region's arguments are as above. (C4) it yields one row of V.

    Example:
    ```mlir
    func.func @squash(%S: !assoc.state<8, 4, kv, f32, f32>) -> !assoc.state<8, 4, kv, f32, f32> {
      %S1 = assoc.map %S, (%S : !assoc.state<8, 4, kv, f32, f32>) columns() {
      ^bb0(%row: vector<4xf32>):
        %t = math.tanh %row : vector<4xf32>
        assoc.yield %t : vector<4xf32>
      } : !assoc.state<8, 4, kv, f32, f32>
      return %S1 : !assoc.state<8, 4, kv, f32, f32>
    }
    ```
  }];
  let arguments = (ins Assoc_StateType:$state, Variadic<Assoc_StateType>:$sources,
                       Variadic<Assoc_Row>:$columns);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    $state `,` `(` ($sources^ `:` qualified(type($sources)))? `)` `columns` `(` ($columns^ `:` type($columns))? `)`
    $body attr-dict `:` qualified(type($state))
  }];
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Normal form
//===----------------------------------------------------------------------===//

def Assoc_StepOp : Assoc_Update<"step", [AttrSizedOperandSegments]> {
  let summary = "one normalised step: decay, then erases and writes";
  let description = [{
    The only update left after `assoc-normalize`. With D the decay (1 when
    absent) and P_i the state that erase i reads:

        S' = D S + sum_i e_i^T (c_i f_i P_i) + sum_j k_j^T u_j

    P_i is `D S` where `decayed[i]` is true, else the value `of[i]`, which is S
    or an earlier state. e_i, f_i, k_j : [K]; u_j : [V]; c_i scalar. An erase
    and a write along one and the same key value are merged by the chunkwise
    form. A token with n dependent updates is n steps.

    Constraints: (C1) `along`, `by`, `at`, `of` and `decayed` have one entry
    per erase. (C2) `keys` and `values` have one entry per write. (C3) `along`,
    `at` and `keys` are rows of K, `values` rows of V. (C4) the decay is an f32
    or a row of K. (C5) `of` has the state's type.

    Example:
    ```mlir
    func.func @step(%S: !assoc.state<8, 4, kv, f32, f32>, %a: vector<8xf32>, %k: vector<8xf32>, %u: vector<4xf32>, %c: f32) -> !assoc.state<8, 4, kv, f32, f32> {
      %S1 = assoc.step %S decay log(%a : vector<8xf32>) in <-5.0, 0.0>
          erase along(%k) by(%c) at(%k) of(%S) decayed [true] write keys(%k) values(%u)
          : !assoc.state<8, 4, kv, f32, f32>
      return %S1 : !assoc.state<8, 4, kv, f32, f32>
    }
    ```
  }];
  let arguments = (ins
    Assoc_StateType:$state,
    Optional<Assoc_RowOrScalar>:$decay,
    OptionalAttr<Assoc_DomainAttr>:$domain,
    OptionalAttr<Assoc_BoundsAttr>:$bounds,
    Variadic<Assoc_Row>:$along, Variadic<F32>:$by, Variadic<Assoc_Row>:$at,
    Variadic<Assoc_StateType>:$of, DenseBoolArrayAttr:$decayed,
    Variadic<Assoc_Row>:$keys, Variadic<Assoc_Row>:$values);
  let hasCustomAssemblyFormat = 1; // row types follow from the state's type
  let hasVerifier = 1;
}

#endif // PLUM_DIALECTS_ASSOC_OPS_TD
