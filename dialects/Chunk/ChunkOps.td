//===- ChunkOps.td - The chunkwise form as equations -------*- tablegen -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_DIALECTS_CHUNK_OPS_TD
#define PLUM_DIALECTS_CHUNK_OPS_TD

include "dialects/Assoc/AssocDialect.td"
include "dialects/Chunk/ChunkEnums.td"
include "mlir/IR/OpAsmInterface.td"
include "mlir/Interfaces/ControlFlowInterfaces.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Chunk_Dialect : Dialect {
  let name = "chunk";
  let cppNamespace = "::plum::chunk";
  let summary = "C tokens of a state-space layer as a few matrix equations";
  let description = [{
    After `assoc-to-chunk` a chunk of C tokens is a graph of statically shaped
    tensors whose rows are steps. The derivation is docs/wy-form.md; the ops
    are its terms:

        G      = cumsum(a)                    chunk.cumsum
        M_xy   = <x_i, y_j exp(G_i - G_j)>    chunk.scores (masked)
        T      = (I - diag(c) M)^-1           chunk.inverse
        R      = (x exp(G)) S                 chunk.read
        S'     = diag(exp G_C) S + K^^T U     chunk.carry

    It is a dialect of its own because it is legal only where every shape is a
    constant and every row knows its step, and it knows nothing of tokens' order
    beyond that.
  }];
  let useDefaultAttributePrinterParser = 1;
  let dependentDialects = ["::plum::assoc::AssocDialect"];
}

class Chunk_Op<string mnemonic, list<Trait> traits = []> : Op<Chunk_Dialect, mnemonic, traits>;

/// An op with one result that prints under a name of the field.
class Chunk_Named<string mnemonic, string resultName, list<Trait> traits = []>
    : Chunk_Op<mnemonic, !listconcat([Pure,
        DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmResultNames"]>], traits)> {
  let extraClassDefinition = [{
    void $cppClass::getAsmResultNames(::mlir::OpAsmSetValueNameFn setName) {
      setName(getResult(), "}] # resultName # [{");
    }
  }];
}

//===----------------------------------------------------------------------===//
// Attributes
//===----------------------------------------------------------------------===//

def Chunk_AtAttr : AttrDef<Chunk_Dialect, "At"> {
  let mnemonic = "at";
  let summary = "the step, within its token, and the moment of a row";
  let description = [{
    `#chunk.at<1, decayed>`: the row meets the state in step 1 of its token,
    after that step's decay and before its write. `before` is before the decay
    (the state as the step found it), `after` is after the write; written rows
    (keys) are `after`. A list of these says how many rows a token has and where
    each stands: row i belongs to token i / p and entry i mod p.
  }];
  let parameters = (ins "int64_t":$step, "::plum::chunk::Moment":$moment);
  let assemblyFormat = "`<` $step `,` $moment `>`";
}

def Chunk_RowsAttr : TypedArrayAttrBase<Chunk_AtAttr, "where the rows of a token stand">;

class Chunk_Constant<int rank, string what>
    : RankedTensorOf<[F32], [HasAnyRankOfPred<[rank]>, HasStaticShapePred], what # " of constant shape">;
def Chunk_Matrix : Chunk_Constant<2, "matrix">;
def Chunk_Column : Chunk_Constant<1, "column">;
def Chunk_MatrixOrColumn : AnyTypeOf<[Chunk_Matrix, Chunk_Column]>;

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

def Chunk_MapOp : Chunk_Op<"map", [SingleBlock, Pure,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmResultNames"]>]> {
  let summary = "run per-token maths on each token of a chunk";
  let description = [{
    For the tokens t .. t+n-1, n = min(C, T - t), runs the region on the rows of
    `ins` and stacks what it yields: result r has `perToken[r]` rows a token, so
    shape `[C * perToken[r], d]` (`[C * perToken[r]]` for scalars). The rows of
    tokens past the end of the sequence are filled with `fill[r]`, the value
    that changes nothing (0 for keys, values and log decays, 1 for linear
    decays). `ins` are whole sequences `[?, d]`, read at row t + i, or rows of
    this chunk `[C, d]`, read at row i.

    Constraints: (C1) one region argument per input: its row as a vector, or a
    scalar. (C2) the yield gives perToken[r] values of result r, in order. (C3)
    shapes as above. (C4) one fill and one perToken entry per result, and one of
    `names`, where given: what the results are printed as.

    Example:
    ```mlir
    func.func @map(%t: index, %T: index, %x: tensor<?x8xf32>) -> tensor<16x8xf32> {
      %y = chunk.map 16 at %t of %T (%x : tensor<?x8xf32>) per_token [1] fill [0.0] {
      ^bb0(%row: vector<8xf32>):
        %d = arith.addf %row, %row : vector<8xf32>
        chunk.yield %d : vector<8xf32>
      } : tensor<16x8xf32>
      return %y : tensor<16x8xf32>
    }
    ```
  }];
  let arguments = (ins I64Attr:$chunk, Index:$token, Index:$tokens, Variadic<AnyRankedTensor>:$ins,
                       DenseI64ArrayAttr:$perToken, DenseF64ArrayAttr:$fill,
                       OptionalAttr<StrArrayAttr>:$names);
  let results = (outs Variadic<Chunk_MatrixOrColumn>:$results);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    $chunk `at` $token `of` $tokens `(` ($ins^ `:` type($ins))? `)` `per_token` $perToken `fill` $fill
    (`names` $names^)? $body attr-dict (`:` type($results)^)?
  }];
  let hasVerifier = 1;
}

def Chunk_OutputOp : Chunk_Op<"output", [SingleBlock, Pure, AttrSizedOperandSegments]> {
  let summary = "write the rows of a chunk's outputs";
  let description = [{
    Runs the region on the rows of `ins` as `chunk.map` does; row t + i of each
    result is what it yields for token i, in the output's storage type, and the
    other rows are those of `outs`.

    Constraints: (C1) one region argument per input. (C2) one yielded row per
    output, of its element type and length. (C3) results have the types of
    `outs`.

    Example:
    ```mlir
    func.func @out(%t: index, %T: index, %x: tensor<16x8xf32>, %o: tensor<?x8xf32>) -> tensor<?x8xf32> {
      %y = chunk.output 16 at %t of %T (%x : tensor<16x8xf32>) into (%o : tensor<?x8xf32>) {
      ^bb0(%row: vector<8xf32>):
        chunk.yield %row : vector<8xf32>
      } : tensor<?x8xf32>
      return %y : tensor<?x8xf32>
    }
    ```
  }];
  let arguments = (ins I64Attr:$chunk, Index:$token, Index:$tokens, Variadic<AnyRankedTensor>:$ins,
                       Variadic<AnyRankedTensor>:$outs);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    $chunk `at` $token `of` $tokens `(` ($ins^ `:` type($ins))? `)`
    `into` `(` ($outs^ `:` type($outs))? `)` $body attr-dict (`:` type($results)^)?
  }];
  let hasVerifier = 1;
}

def Chunk_YieldOp : Chunk_Op<"yield", [Pure, Terminator, ReturnLike,
    ParentOneOf<["MapOp", "OutputOp", "StageOp"]>]> {
  let summary = "end a region of this dialect";
  let description = [{ The values are explained at the op that holds the region. }];
  let arguments = (ins Variadic<AnyType>:$values);
  let assemblyFormat = "attr-dict ($values^ `:` type($values))?";
  let builders = [OpBuilder<(ins), [{ /* for the implicit terminator */ }]>];
}

//===----------------------------------------------------------------------===//
// Decay
//===----------------------------------------------------------------------===//

def Chunk_CumsumOp : Chunk_Named<"cumsum", "G", [SameOperandsAndResultType]> {
  let summary = "cumulate the log decay over the steps of a chunk";
  let description = [{
    Formula: `G_i = sum_{t <= i} log w_t`, w = exp(a) in the domain `log`, w = a
    in `linear`. a, G : [R, K] or, for one factor per step, [R], R = C x steps
    per token. G is only ever used through exp(G_i - G_j) with j <= i, so a
    lowering may keep running products of w instead of sums of logarithms; then
    w = 0 and w < 0 are exact too, and no exponent is ever formed.

    Constraints: none beyond the types.

    Example:
    ```mlir
    func.func @cumsum(%a: tensor<16x8xf32>) -> tensor<16x8xf32> {
      %G = chunk.cumsum log %a in <-5.0, 0.0> : tensor<16x8xf32>
      return %G : tensor<16x8xf32>
    }
    ```
  }];
  let arguments = (ins Assoc_DomainAttr:$domain, Chunk_MatrixOrColumn:$decay, OptionalAttr<Assoc_BoundsAttr>:$bounds);
  let results = (outs Chunk_MatrixOrColumn:$result);
  let assemblyFormat = "custom<Domain>($domain) $decay (`in` $bounds^)? attr-dict `:` type($decay)";
}

//===----------------------------------------------------------------------===//
// Matrices of a chunk
//===----------------------------------------------------------------------===//

def Chunk_ScoresOp : Chunk_Named<"scores", "M"> {
  let summary = "match rows with earlier rows through the decay between them";
  let description = [{
    Formula: `M[i, j] = sum_c x_i[c] y_j[c] exp(G(i)[c] - G(j)[c])` where row j
    was written before row i looks, 0 elsewhere. G(i) is the G of row i's step,
    or of the step before where its moment is `before`; row i sees the writes of
    earlier steps, and those of its own step when its moment is `after`. x : [X,
    K]; y : [Y, K]; G : [R, K] or [R]; M : [X, Y]. No exponent is positive: a
    lowering factors exp(G(i) - G(j)) through an anchor between the two rows, in
    sub-blocks of 16 tokens.

    Constraints: (C1) x and y have one K. (C2) x and y have the same number of
    tokens for their `at` lists. (C3) the decay has steps x tokens rows. (C4) the
    result is [X, Y]. (C5) every row stands in a step below `steps`.

    Example:
    ```mlir
    func.func @scores(%x: tensor<16x8xf32>, %y: tensor<16x8xf32>, %G: tensor<16x8xf32>) -> tensor<16x16xf32> {
      %M = chunk.scores %x [#chunk.at<0, decayed>], %y [#chunk.at<0, after>] decay(%G : tensor<16x8xf32>) steps 1
          : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xf32>
      return %M : tensor<16x16xf32>
    }
    ```
  }];
  let arguments = (ins Chunk_Matrix:$x, Chunk_RowsAttr:$xRows, Chunk_Matrix:$y, Chunk_RowsAttr:$yRows,
                       Optional<Chunk_MatrixOrColumn>:$decay, I64Attr:$steps);
  let results = (outs Chunk_Matrix:$result);
  let assemblyFormat = [{
    $x $xRows `,` $y $yRows (`decay` `(` $decay^ `:` type($decay) `)`)? `steps` $steps attr-dict
    `:` type($x) `,` type($y) `->` type($result)
  }];
  let hasVerifier = 1;
}

def Chunk_InverseOp : Chunk_Named<"inverse", "T", [AllTypesMatch<["scores", "result"]>]> {
  let summary = "invert the unit lower triangular system of a chunk";
  let description = [{
    Formula: `T = (I - diag(c) M)^-1`, M strictly lower triangular, c = 1 when
    absent. M, T : [R, R]; c : [R]. fp32 forward substitution, exact in the sense
    that no power series is involved: entries are bounded by the recurrence, not
    by powers of M.

    Constraints: (C1) M is square. (C2) c has R entries.

    Example:
    ```mlir
    func.func @inverse(%M: tensor<16x16xf32>, %c: tensor<16xf32>) -> tensor<16x16xf32> {
      %T = chunk.inverse %M scaled(%c : tensor<16xf32>) : tensor<16x16xf32>
      return %T : tensor<16x16xf32>
    }
    ```
  }];
  let arguments = (ins Chunk_Matrix:$scores, Optional<Chunk_Column>:$scale);
  let results = (outs Chunk_Matrix:$result);
  let assemblyFormat = "$scores (`scaled` `(` $scale^ `:` type($scale) `)`)? attr-dict `:` type($scores)";
  let hasVerifier = 1;
}

def Chunk_ReadOp : Chunk_Named<"read", "R"> {
  let summary = "read the state at the start of the chunk through the decay since";
  let description = [{
    Formula: `R_i = (x_i exp(G(i))) S`, G(i) as in `chunk.scores`. x : [X, K];
    S : [K, V]; R : [X, V]. fp32.

    Constraints: (C1) x has the state's K. (C2) the decay has steps x tokens
    rows. (C3) the result is [X, V]. (C4) every row stands in a step
    below `steps`.

    Example:
    ```mlir
    func.func @read(%S: tensor<8x4xf32>, %q: tensor<16x8xf32>, %G: tensor<16xf32>) -> tensor<16x4xf32> {
      %R = chunk.read %S at %q [#chunk.at<0, after>] decay(%G : tensor<16xf32>) steps 1
          : tensor<8x4xf32>, tensor<16x8xf32> -> tensor<16x4xf32>
      return %R : tensor<16x4xf32>
    }
    ```
  }];
  let arguments = (ins Chunk_Matrix:$state, Chunk_Matrix:$x, Chunk_RowsAttr:$rows,
                       Optional<Chunk_MatrixOrColumn>:$decay, I64Attr:$steps);
  let results = (outs Chunk_Matrix:$result);
  let assemblyFormat = [{
    $state `at` $x $rows (`decay` `(` $decay^ `:` type($decay) `)`)? `steps` $steps attr-dict
    `:` type($state) `,` type($x) `->` type($result)
  }];
  let hasVerifier = 1;
}

def Chunk_ScaleOp : Chunk_Named<"scale", "cR", [AllTypesMatch<["rows", "result"]>]> {
  let summary = "scale each row by its own factor";
  let description = [{
    Formula: `Y = diag(c) X`. c : [R]; X, Y : [R, V].

    Constraints: (C1) c has R entries.

    Example:
    ```mlir
    func.func @scale(%c: tensor<16xf32>, %X: tensor<16x4xf32>) -> tensor<16x4xf32> {
      %Y = chunk.scale %X by %c : tensor<16x4xf32>, tensor<16xf32>
      return %Y : tensor<16x4xf32>
    }
    ```
  }];
  let arguments = (ins Chunk_Matrix:$rows, Chunk_Column:$by);
  let results = (outs Chunk_Matrix:$result);
  let assemblyFormat = "$rows `by` $by attr-dict `:` type($rows) `,` type($by)";
  let hasVerifier = 1;
}

def Chunk_MatmulOp : Chunk_Named<"matmul", "P"> {
  let summary = "multiply a lower triangular matrix of the chunk with rows";
  let description = [{
    Formula: `P = M U + A`, A = 0 when absent. M : [X, Y], block lower triangular
    over tokens (what lies above the diagonal is zero and is not read); U :
    [Y, V]; A, P : [X, V]. fp32.

    Constraints: (C1) M's columns are U's rows. (C2) the result is [X, V]. (C3) A
    has the result's type.

    Example:
    ```mlir
    func.func @matmul(%M: tensor<16x16xf32>, %U: tensor<16x4xf32>) -> tensor<16x4xf32> {
      %P = chunk.matmul %M, %U : tensor<16x16xf32>, tensor<16x4xf32> -> tensor<16x4xf32>
      return %P : tensor<16x4xf32>
    }
    ```
  }];
  let arguments = (ins Chunk_Matrix:$matrix, Chunk_Matrix:$rows, Optional<Chunk_Matrix>:$onto);
  let results = (outs Chunk_Matrix:$result);
  let assemblyFormat = [{
    $matrix `,` $rows (`onto` `(` $onto^ `:` type($onto) `)`)? attr-dict
    `:` type($matrix) `,` type($rows) `->` type($result)
  }];
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// The state
//===----------------------------------------------------------------------===//

def Chunk_CarryOp : Chunk_Named<"carry", "S", [AllTypesMatch<["state", "result"]>, AttrSizedOperandSegments]> {
  let summary = "carry the state over a whole chunk";
  let description = [{
    Formula: `S' = diag(exp G_C) S + sum_j K^_j^T U_j` with `K^[i] = k_i exp(G_C -
    G(i))`, G_C the G of the last step. S, S' : [K, V]; k : [Y, K]; U : [Y, V].
    fp32. A lowering updates S in place: this is the last use of it.

    Constraints: (C1) as many key as value matrices and row lists. (C2) keys
    [Y, K] and values [Y, V] of one Y. (C3) the decay has steps x tokens rows. (C4) every
    row stands in a step below `steps`.

    Example:
    ```mlir
    func.func @carry(%S: tensor<8x4xf32>, %k: tensor<16x8xf32>, %U: tensor<16x4xf32>, %G: tensor<16x8xf32>) -> tensor<8x4xf32> {
      %S1 = chunk.carry %S keys(%k : tensor<16x8xf32>) rows [[#chunk.at<0, after>]]
          values(%U : tensor<16x4xf32>) decay(%G : tensor<16x8xf32>) steps 1 : tensor<8x4xf32>
      return %S1 : tensor<8x4xf32>
    }
    ```
  }];
  let arguments = (ins Chunk_Matrix:$state, Variadic<Chunk_Matrix>:$keys, ArrayAttr:$keyRows,
                       Variadic<Chunk_Matrix>:$values, Optional<Chunk_MatrixOrColumn>:$decay, I64Attr:$steps);
  let results = (outs Chunk_Matrix:$result);
  let assemblyFormat = [{
    $state `keys` `(` ($keys^ `:` type($keys))? `)` `rows` $keyRows
    `values` `(` ($values^ `:` type($values))? `)` (`decay` `(` $decay^ `:` type($decay) `)`)?
    `steps` $steps attr-dict `:` type($state)
  }];
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Growing states
//===----------------------------------------------------------------------===//

def Chunk_AppendOp : Chunk_Named<"append", "L", [AllTypesMatch<["list", "result"]>]> {
  let summary = "add the rows of a chunk to a list";
  let description = [{
    Formula: `L' = [L; X_0; ...; X_n]`, n + 1 = min(C, T - t) the tokens of this
    chunk. L : [m, d]; X : [C, d]; L' : [m + n + 1, d]. A lowering writes the rows
    behind those of the list, where the caller has made room.

    Constraints: (C1) the rows have the list's width.

    Example:
    ```mlir
    func.func @append(%t: index, %T: index, %L: !assoc.list<8, f32>, %X: tensor<16x8xf32>) -> !assoc.list<8, f32> {
      %L1 = chunk.append %L, %X at %t of %T : !assoc.list<8, f32>, tensor<16x8xf32>
      return %L1 : !assoc.list<8, f32>
    }
    ```
  }];
  let arguments = (ins Assoc_ListType:$list, Chunk_Matrix:$rows, Index:$token, Index:$tokens);
  let results = (outs Assoc_ListType:$result);
  let assemblyFormat = "$list `,` $rows `at` $token `of` $tokens attr-dict `:` qualified(type($list)) `,` type($rows)";
  let hasVerifier = 1;
}

def Chunk_AttendOp : Chunk_Named<"attend", "O", [AttrSizedOperandSegments]> {
  let summary = "read lists by the softmax of scores, for each row of a chunk";
  let description = [{
    Formula: `O_i = softmax_{j < s_i} (sum_p Q_p[i] K_p[j]^T) V`, for token t + i
    of the chunk that begins at t, s_i = m + i + 1 with `own` and m + i without,
    m the rows that the lists had before the chunk. The lists are those after
    the chunk's appends. Q_p : [C, d_p]; K_p : [*, d_p]; V : [*, e]; O : [C, e];
    0 where s_i = 0. fp32. A lowering takes blocks of rows and rescales what it
    has by exp(largest so far - new largest), so that no exponent is positive
    and nothing of the size C x s is kept.

    Constraints: (C1) as many queries as keys, at least one, each of the keys'
    width. (C2) all queries have C rows. (C3) the result is [C, e].

    Example:
    ```mlir
    func.func @attend(%t: index, %T: index, %Q: tensor<16x8xf32>, %K: !assoc.list<8, f32>, %V: !assoc.list<4, f32>) -> tensor<16x4xf32> {
      %O = chunk.attend own(%Q : tensor<16x8xf32>) keys(%K : !assoc.list<8, f32>) values(%V : !assoc.list<4, f32>)
          at %t of %T -> tensor<16x4xf32>
      return %O : tensor<16x4xf32>
    }
    ```
  }];
  let arguments = (ins UnitAttr:$own, Variadic<Chunk_Matrix>:$queries, Variadic<Assoc_ListType>:$keys,
                       Assoc_ListType:$values, Index:$token, Index:$tokens);
  let results = (outs Chunk_Matrix:$result);
  let assemblyFormat = [{
    (`own` $own^)? `(` $queries `:` type($queries) `)` `keys` `(` $keys `:` qualified(type($keys)) `)`
    `values` `(` $values `:` qualified(type($values)) `)` `at` $token `of` $tokens attr-dict `->` type($result)
  }];
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// The plan
//===----------------------------------------------------------------------===//

def Chunk_StageOp : Chunk_Op<"stage", [SingleBlock, Pure,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmResultNames"]>]> {
  let summary = "hold the part of a chunk's work that does, or does not, need the state";
  let description = [{
    Made by `chunk-plan`. `prepare` holds every op whose value does not depend
    on a state: chunks may run it in any order and in parallel. `scan` holds the
    rest, which runs chunk after chunk. The results are what the region yields.

    Constraints: (C1) the yield gives one value per result, of its type. (C2) no
    op inside `prepare` uses a value made by a `scan` of the same block.

    Example:
    ```mlir
    func.func @stage(%a: tensor<16x8xf32>) -> tensor<16x8xf32> {
      %G = chunk.stage prepare {
        %g = chunk.cumsum log %a : tensor<16x8xf32>
        chunk.yield %g : tensor<16x8xf32>
      } : tensor<16x8xf32>
      return %G : tensor<16x8xf32>
    }
    ```
  }];
  let arguments = (ins Chunk_StageEnum:$stage);
  let results = (outs Variadic<AnyType>:$results);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$stage $body attr-dict (`:` type($results)^)?";
  let hasVerifier = 1;
}

#endif // PLUM_DIALECTS_CHUNK_OPS_TD
