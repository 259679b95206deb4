//===- TileOps.td - Maths on tiles in registers ------------*- tablegen -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// With TileStructure.td and TileMemory.td all ops of the dialect.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_DIALECTS_TILE_OPS_TD
#define PLUM_DIALECTS_TILE_OPS_TD

include "dialects/Tile/TileDialect.td"
include "dialects/Tile/TileMemory.td"
include "dialects/Tile/TileStructure.td"

//===----------------------------------------------------------------------===//
// Rows and columns
//===----------------------------------------------------------------------===//

def Tile_ValidOp : Tile_Op<"valid", [Pure]> {
  let summary = "replace the rows of tokens past the end of the sequence";
  let description = [{
    Row i of the result is row i of `value`, or `fill` where token i is past the
    end.

    Constraints: (C1) stands in `prepare`. (C2) the value has C rows, and the result
    its type. (C3) layouts: those with rows along the tokens, so neither acc_row
    nor opb_row.

    Example:
    ```mlir
    tile.kernel @valid "prepare" chunk 16 warps 1 arguments [#tile.arg<"a" : bf16>] blob 0 {
      %a = tile.column "a" : tensor<16xf32>
      %b = tile.valid %a else 0.0 : tensor<16xf32> -> tensor<16xf32>
    }
    ```
  }];
  let arguments = (ins Tile_Float:$value, F32Attr:$fill);
  let results = (outs Tile_Float:$result);
  let assemblyFormat = "$value `else` $fill attr-dict `:` type($value) `->` type($result)";
  let hasVerifier = 1;
}

def Tile_ValuesOp : Tile_Op<"values", [Pure, AllTypesMatch<["value", "result"]>]> {
  let summary = "take the values of a block, or zeros where the identity is followed";
  let description = [{
    Where a team has a slice of M the result is zero, else it is `value`, bit for
    bit. `value` may be anything where it is not taken.

    Constraints: (C1) stands in a kernel with the role `summary`.

    Example:
    ```mlir
    tile.kernel @values "summary" chunk 16 warps 1 arguments [#tile.arg<"v" : bf16>] blob 0 slice 16 of 2 {
      %ring = tile.ring 2 [#tile.part<type = <16, 16, bf16>, rows = "v", sliced = true>] : !tile.ring
      tile.chunks {
        %v = tile.acquire %ring : !tile.ring -> !tile.shared<16, 16, bf16>
        %vt = tile.load %v transposed : <16, 16, bf16> -> tensor<16x16xbf16>
        %taken = tile.values %vt : tensor<16x16xbf16>
        tile.release %ring : !tile.ring
        tile.yield
      }
    }
    ```
  }];
  let arguments = (ins Tile_Tensor:$value);
  let results = (outs Tile_Tensor:$result);
  let assemblyFormat = "$value attr-dict `:` type($value)";
  let hasVerifier = 1;
}

def Tile_BroadcastOp : Tile_Op<"broadcast", [Pure]> {
  let summary = "repeat a vector (or a number) along the rows or columns of a matrix";
  let description = [{
    `rows`: the vector is a row, the same for every row; else it is a column. A
    number fills a matrix or a vector.

    Constraints: (C1) a vector becomes a matrix with as many columns (`rows`) or rows
    (else) as it has elements. (C2) layouts: of a row acc_row to acc or opb_row to
    opb; of a column acc_col to acc or opb_col to opb.

    Example:
    ```mlir
    func.func @broadcast(%bias: tensor<32xf32>, %beta: tensor<16xf32>, %one: f32) {
      %a = tile.broadcast %bias rows : tensor<32xf32> -> tensor<16x32xf32>
      %b = tile.broadcast %beta : tensor<16xf32> -> tensor<16x32xf32>
      %c = tile.broadcast %one : f32 -> tensor<16xf32>
      return
    }
    ```
  }];
  let arguments = (ins Tile_VectorOrNumber:$value, UnitAttr:$rows);
  let results = (outs Tile_Float:$result);
  let assemblyFormat = "$value (`rows` $rows^)? attr-dict `:` type($value) `->` type($result)";
  let hasVerifier = 1;
}

def Tile_StripOp : Tile_Op<"strip", [Pure]> {
  let summary = "take 16 columns of a matrix";
  let description = [{
    Constraints: (C1) of [m, n] comes [m, 16], of the same element and layout. (C2)
    `strip` is the number of an enclosing `tile.strips`, whose strips lie in the
    matrix.

    Example: see `tile.strips`.
    ```mlir
    func.func @strip(%x: tensor<16x32xf32>) {
      tile.strips 2 {
      ^bb0(%strip: index):
        %s = tile.strip %x at %strip : tensor<16x32xf32> -> tensor<16x16xf32>
        tile.yield
      }
      return
    }
    ```
  }];
  let arguments = (ins Tile_Matrix:$value, Index:$strip);
  let results = (outs Tile_Matrix:$result);
  let assemblyFormat = "$value `at` $strip attr-dict `:` type($value) `->` type($result)";
  let hasVerifier = 1;
}

def Tile_MaskOp : Tile_Letter<"mask", "M", [Pure]> {
  let summary = "keep what a row may see";
  let description = [{
    Of a matrix [m, m], element (i, j) is kept where j < i, or j = i with
    `inclusive`; else it becomes 0. Of [m, 16], which is the blocks on the
    diagonal, the same within each block.

    Constraints: (C1) the value is [m, m] or [m, 16], and the result has its type.
    (C2) layouts: acc.

    Example:
    ```mlir
    func.func @mask(%scores: tensor<64x64xf32>, %blocks: tensor<64x16xf32>) {
      %M = tile.mask %scores inclusive : tensor<64x64xf32> -> tensor<64x64xf32>
      %N = tile.mask %blocks : tensor<64x16xf32> -> tensor<64x16xf32>
      return
    }
    ```
  }];
  let arguments = (ins Tile_Matrix32:$value, UnitAttr:$inclusive);
  let results = (outs Tile_Matrix32:$result);
  let assemblyFormat = "$value (`inclusive` $inclusive^)? attr-dict `:` type($value) `->` type($result)";
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Sums
//===----------------------------------------------------------------------===//

def Tile_ReduceOp : Tile_Letter<"reduce", "sum", [Pure]> {
  let summary = "sum each row";
  let description = [{
    Formula: `sum_i = sum_c x[i, c]`, [m, n] to [m]. Always in the same order.

    Constraints: (C1) the result has one element for each row. (C2) layouts: acc to
    acc_col.

    Example:
    ```mlir
    func.func @reduce(%x: tensor<64x16xf32>) -> tensor<64xf32> {
      %sum = tile.reduce %x : tensor<64x16xf32> -> tensor<64xf32>
      return %sum : tensor<64xf32>
    }
    ```
  }];
  let arguments = (ins Tile_Matrix32:$value);
  let results = (outs Tile_Vector:$result);
  let assemblyFormat = "$value attr-dict `:` type($value) `->` type($result)";
  let hasVerifier = 1;
}

def Tile_ReduceRowsOp : Tile_Letter<"reduce_rows", "sum"> {
  let summary = "sum each column";
  let description = [{
    Formula: `sum_c = sum_i x[i, c]`, [m, n] to [n]. A column is spread over the warps
    of a team: each leaves its rows' sums in its row of the tile, and all threads
    read them, always in the same order. The team meets twice.

    Constraints: (C1) m is a multiple of 16; the tile is [m / 16, n] of f32, and the
    result has one element for each column. (C2) layouts: acc to acc_row.

    Example:
    ```mlir
    func.func @reduce_rows(%x: tensor<128x64xf32>, %parts: !tile.shared<8, 64, f32>) -> tensor<64xf32> {
      %sum = tile.reduce_rows %x through %parts : tensor<128x64xf32>, <8, 64, f32> -> tensor<64xf32>
      return %sum : tensor<64xf32>
    }
    ```
  }];
  let arguments = (ins Tile_Matrix32:$value, Tile_Shared32:$parts);
  let results = (outs Tile_Vector:$result);
  let assemblyFormat = "$value `through` $parts attr-dict `:` type($value) `,` type($parts) `->` type($result)";
  let hasVerifier = 1;
}

def Tile_DiagonalOp : Tile_Letter<"diagonal", "sum", [Pure]> {
  let summary = "take the diagonal of each block";
  let description = [{
    Formula: `sum_i = x[i, i mod 16]`, [m, 16] to [m]. Of `tile.dot_diag` of rows with
    themselves it is the sum of each row's squares, by tensor cores.

    Constraints: (C1) x is [m, 16], and the result has one element for each row.
    (C2) layouts: acc to acc_col.

    Example:
    ```mlir
    func.func @squares(%k: tensor<64x16xbf16>, %zero: tensor<64x16xf32>) -> tensor<64xf32> {
      %D = tile.dot_diag %k, %k onto %zero : tensor<64x16xbf16>, tensor<64x16xbf16> -> tensor<64x16xf32>
      %sum = tile.diagonal %D : tensor<64x16xf32> -> tensor<64xf32>
      return %sum : tensor<64xf32>
    }
    ```
  }];
  let arguments = (ins Tile_Matrix32:$value);
  let results = (outs Tile_Vector:$result);
  let assemblyFormat = "$value attr-dict `:` type($value) `->` type($result)";
  let hasVerifier = 1;
}

def Tile_ColumnSumsOp : Tile_Letter<"column_sums", "sum"> {
  let summary = "sum the rows of a tile, each with a weight";
  let description = [{
    Formula: `sum_c = sum_i w[i] tile[i, c]`, in fp32 and in the order of the rows.

    Constraints: (C1) the weights are one row with an element for each of the
    tile's rows. (C2) the result has one element for each column. (C3) layouts:
    linear.

    Example:
    ```mlir
    func.func @column_sums(%k: !tile.shared<64, 128, bf16>, %w: !tile.shared<1, 64, f32>) -> tensor<128xf32> {
      %sum = tile.column_sums %k weighted %w : <64, 128, bf16>, <1, 64, f32> -> tensor<128xf32>
      return %sum : tensor<128xf32>
    }
    ```
  }];
  let arguments = (ins Tile_Shared16:$from, Tile_Shared32:$weights);
  let results = (outs Tile_Vector:$result);
  let assemblyFormat = [{
    $from `weighted` $weights attr-dict `:` type($from) `,` type($weights) `->` type($result)
  }];
  let hasVerifier = 1;
}

def Tile_RowDotsOp : Tile_Op<"row_dots"> {
  let summary = "multiply the rows of a tile with one vector";
  let description = [{
    Formula: `to[i] = sum_c tile[i, c] vector[c]`, in fp32, beside the tensor cores.
    Complete after a barrier.

    Constraints: (C1) the vector is one row with an element for each of the tile's
    columns. (C2) `to` is one row with an element for each of the tile's rows.

    Example:
    ```mlir
    func.func @row_dots(%q: !tile.shared<64, 128, bf16>, %z: !tile.shared<1, 128, f32>, %n: !tile.shared<1, 64, f32>) {
      tile.row_dots %q, %z to %n : <64, 128, bf16>, <1, 128, f32>, <1, 64, f32>
      return
    }
    ```
  }];
  let arguments = (ins Tile_Shared16:$rows, Tile_Shared32:$vector, Tile_Shared32:$to);
  let assemblyFormat = [{
    $rows `,` $vector `to` $to attr-dict `:` type($rows) `,` type($vector) `,` type($to)
  }];
  let hasVerifier = 1;
}

def Tile_SumTeamsOp : Tile_Op<"sum_teams"> {
  let summary = "add up what the teams have";
  let description = [{
    Each result is the sum of its operand over the teams, in their order. Columns
    become complete in every team; of matrices team p of P gets those with numbers
    p, p + P, ..., and what others have of them is not defined. Through shared
    memory; one barrier of all teams is inside.

    Constraints: (C1) the kernel has two teams or more. (C2) results have the types
    of their operands, which are columns [m] or all matrices [m, n]. (C3) the tile
    is [n P, m] for n columns, [l (P - 1) m, n] for l matrices. (C4) layouts: acc, of columns acc_col.

    Example:
    ```mlir
    tile.kernel @sums "prepare" chunk 16 warps 1 teams 2 arguments [#tile.arg<"q" : bf16>] blob 0 {
      %column = tile.alloc : <2, 16, f32>
      %part = arith.constant dense<1.0> : tensor<16xf32>
      %whole = tile.sum_teams(%part : tensor<16xf32>) through %column : <2, 16, f32> -> tensor<16xf32>
    }
    ```
  }];
  let arguments = (ins Variadic<Tile_Float>:$values, Tile_Shared32:$through);
  let results = (outs Variadic<Tile_Float>:$results);
  let assemblyFormat = [{
    `(` $values `:` type($values) `)` `through` $through `:` type($through) attr-dict `->` type($results)
  }];
  let extraClassDeclaration = [{
    /// Rows and columns of the tile that `values` values of a type need.
    static std::pair<int64_t, int64_t> scratch(::mlir::RankedTensorType type, int64_t values, int64_t teams);
    bool columns() {
      return ::llvm::cast<::mlir::RankedTensorType>(getValues()[0].getType()).getRank() == 1;
    }
  }];
  let hasVerifier = 1;
}

def Tile_CumsumOp : Tile_Letter<"cumsum", "c", [Pure]> {
  let summary = "cumulate down each block of 16 rows";
  let description = [{
    Row i of a block becomes the sum of rows 0 .. i of the block, or with
    `exclusive` of rows 0 .. i-1. With `from` they all start from that number.

    With `half` = h (8, 4, 2, 1) rows are taken in groups of 2h with a border
    between the halves: a row i of the upper half becomes the sum of the rows from
    the border to i (without i where `exclusive`), a row j of the lower half the
    sum of rows j+1 up to the border. For logarithms of decays, which are not
    positive, no exponential of a result exceeds 1, and for i in the upper and j in
    the lower half of a group the two exponentials multiply to the decay from j to
    i.

    On tensor cores: the product with a triangle of ones, the operand split in
    two bf16 terms, which keeps 16 bits of every summand.

    Constraints: (C1) the result has the value's shape. (C2) `half` is 8, 4, 2 or
    1. (C3) layouts: opb to acc.

    Example:
    ```mlir
    func.func @cumsum(%a: tensor<64x16xf32>) {
      %c = tile.cumsum %a : tensor<64x16xf32> -> tensor<64x16xf32>
      %h = tile.cumsum %a half 4 exclusive : tensor<64x16xf32> -> tensor<64x16xf32>
      %s = tile.cumsum %a from 56.0 : tensor<64x16xf32> -> tensor<64x16xf32>
      return
    }
    ```
  }];
  let arguments = (ins Tile_Matrix32:$value, OptionalAttr<I64Attr>:$half, UnitAttr:$exclusive, OptionalAttr<F32Attr>:$from);
  let results = (outs Tile_Matrix32:$result);
  let assemblyFormat = [{
    $value (`half` $half^)? (`exclusive` $exclusive^)? (`from` $from^)? attr-dict `:` type($value) `->` type($result)
  }];
  let hasVerifier = 1;
}

def Tile_BlockSumOp : Tile_Op<"block_sum"> {
  let summary = "sum each block of 16 rows into a row of a tile";
  let description = [{
    Formula: `to[I, c] = sum_i x[16 I + i, c]`.

    Constraints: (C1) of [m, n], with `strip` [m, 16], the tile is [m / 16, n]. (C2)
    `strip` is the number of an enclosing `tile.strips`, whose strips lie in the
    tile. (C3) layouts: opb.

    Example:
    ```mlir
    func.func @sums(%a: tensor<64x32xf32>, %F: !tile.shared<4, 32, f32>) {
      tile.block_sum %a to %F : tensor<64x32xf32>, <4, 32, f32>
      return
    }
    ```
  }];
  let arguments = (ins Tile_Matrix32:$value, Tile_Shared32:$to, Optional<Index>:$strip);
  let assemblyFormat = "$value `to` $to (`strip` $strip^)? attr-dict `:` type($value) `,` type($to)";
  let hasVerifier = 1;
}

def Tile_CumulateOp : Tile_Op<"cumulate"> {
  let summary = "cumulate a column over the whole chunk into shared memory";
  let description = [{
    Element i of the tile becomes the sum of elements 0 .. i. fp32. The team's
    barrier is inside.

    Constraints: (C1) of [n], the tile is [1, n]. (C2) layouts: linear.

    Example:
    ```mlir
    func.func @cumulate(%a: tensor<64xf32>, %G: !tile.shared<1, 64, f32>) {
      tile.cumulate %a to %G : tensor<64xf32>, <1, 64, f32>
      return
    }
    ```
  }];
  let arguments = (ins Tile_Vector:$value, Tile_Shared32:$to);
  let assemblyFormat = "$value `to` $to attr-dict `:` type($value) `,` type($to)";
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

def Tile_DotOp : Tile_Letter<"dot", "D", [Pure]> {
  let summary = "multiply registers with a tile of shared memory";
  let description = [{
    Formula: `D = A B^T + C` with A [m, k] in bf16 registers and B [n, k] in shared
    memory; `transposed`: `D = A B + C` with B [k, n]. C = 0 when absent. fp32
    accumulators. On sm_90a with a team of whole warpgroups this is wgmma, and runs
    until D is used, other than as the C of a next one.

    Constraints: (C1) A and B have one k. (C2) the result is [m, n]; n is at most
    256. (C3) C has the result's type. (C4) layouts: acc.

    Example:
    ```mlir
    func.func @dot(%S: tensor<64x128xbf16>, %Q: !tile.shared<16, 128, bf16>, %P: !tile.shared<128, 16, bf16>) {
      %D = tile.dot %S, %Q : tensor<64x128xbf16>, <16, 128, bf16> -> tensor<64x16xf32>
      %E = tile.dot %S, %P onto %D : tensor<64x16xf32> transposed
          : tensor<64x128xbf16>, <128, 16, bf16> -> tensor<64x16xf32>
      return
    }
    ```
  }];
  let arguments = (ins Tile_Matrix16:$a, Tile_Shared16:$b, Optional<Tile_Matrix32>:$c, UnitAttr:$transposed);
  let results = (outs Tile_Matrix32:$result);
  let assemblyFormat = [{
    $a `,` $b (`onto` $c^ `:` type($c))? (`transposed` $transposed^)? attr-dict
    `:` type($a) `,` type($b) `->` type($result)
  }];
  let hasVerifier = 1;
}

def Tile_DotDiagOp : Tile_Letter<"dot_diag", "D", [Pure, AllTypesMatch<["c", "result"]>]> {
  let summary = "multiply each warp's rows with its own rows";
  let description = [{
    Formula: `D[i, j] = C[i, j] + sum_c x[i, c] y[16 I + j, c]` for row i of block I:
    the 16 x 16 blocks on the diagonal of x y^T, [m, 16]. Both in bf16 registers.

    With `half` = h only what `tile.join_halves` takes of them for halves of h rows,
    [m, 8]: of h = 8 rows 8 to 15 with columns 0 to 7 of the block, in rows 8 to 15;
    of smaller h for each row the 8 columns that start where its own 8 rows do.

    Constraints: (C1) x and y have one type [m, k]. (C2) C is [m, 16], with `half`
    [m, 8]. (C3) `half` is 8, 4, 2 or 1. (C4) layouts: acc.

    Example:
    ```mlir
    func.func @diagonal(%x: tensor<64x16xbf16>, %y: tensor<64x16xbf16>, %c: tensor<64x16xf32>) -> tensor<64x16xf32> {
      %D = tile.dot_diag %x, %y onto %c : tensor<64x16xbf16>, tensor<64x16xbf16> -> tensor<64x16xf32>
      return %D : tensor<64x16xf32>
    }
    ```
  }];
  let arguments = (ins Tile_Matrix16:$x, Tile_Matrix16:$y, Tile_Matrix32:$c, OptionalAttr<I64Attr>:$half);
  let results = (outs Tile_Matrix32:$result);
  let assemblyFormat = [{
    $x `,` $y `onto` $c (`half` $half^)? attr-dict `:` type($x) `,` type($y) `->` type($result)
  }];
  let hasVerifier = 1;
}

def Tile_JoinHalvesOp : Tile_Letter<"join_halves", "D", [Pure, AttrSizedOperandSegments]> {
  let summary = "make blocks of what each pass over halves has";
  let description = [{
    Rows i of the upper and j of the lower half of a group of 2h rows meet in the
    pass of that h, each pair in one: element (i, j) of a block, j < i, is that of
    the `tile.dot_diag` with `half` h. On the diagonal is `diagonal`, or 0; above it
    0.

    Constraints: (C1) `halves` are four [m, 8], of h = 8, 4, 2, 1 in this order; the
    result is [m, 16]. (C2) `diagonal` is [m]. (C3) layouts: acc, acc_col.

    Example:
    ```mlir
    func.func @join(%a: tensor<16x8xf32>, %b: tensor<16x8xf32>, %c: tensor<16x8xf32>, %d: tensor<16x8xf32>,
                    %dots: tensor<16xf32>) {
      %D = tile.join_halves(%a, %b, %c, %d : tensor<16x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>)
          diagonal %dots : tensor<16xf32> -> tensor<16x16xf32>
      return
    }
    ```
  }];
  let arguments = (ins Variadic<Tile_Matrix32>:$halves, Optional<Tile_Vector>:$diagonal);
  let results = (outs Tile_Matrix32:$result);
  let assemblyFormat = [{
    `(` $halves `:` type($halves) `)` (`diagonal` $diagonal^ `:` type($diagonal))? attr-dict `->` type($result)
  }];
  let hasVerifier = 1;
}

def Tile_DotBlocksOp : Tile_Letter<"dot_blocks", "M", [Pure, AttrSizedOperandSegments]> {
  let summary = "multiply rows with those of the blocks before";
  let description = [{
    Formula: for every x, `M[i, j] = sum_c x[i, c] f[I, J, c] y[j, c]` where I = i / 16
    > J = j / 16, else 0: the blocks of x y^T below the diagonal. f is 1, or, between
    blocks that are not neighbours, row (I - 1) (I - 2) / 2 + J of `scale`; y f is
    rounded. With `diagonal`, I = J belongs to the result as well. In a kernel of
    P teams c runs over the team's channels. With `low` y is the sum of two tiles, of
    which the second has what the first lacks, and y f is two bf16 terms as well.

    Constraints: (C1) every x is [m, k], and has a result [m, m]; there is one. (C2)
    y and `low` are [m, k P]. (C3) `scale` is [(b - 1) (b - 2) / 2, k P] for b = m / 16 blocks,
    and excludes `diagonal`. (C4) layouts: acc.

    Example:
    ```mlir
    func.func @scores(%q: tensor<48x64xbf16>, %k: tensor<48x64xbf16>, %y: !tile.shared<48, 64, bf16>,
                      %f: !tile.shared<1, 64, f32>) {
      %A, %B = tile.dot_blocks(%q, %k : tensor<48x64xbf16>, tensor<48x64xbf16>), %y : <48, 64, bf16>
          scaled %f : !tile.shared<1, 64, f32> -> tensor<48x48xf32>, tensor<48x48xf32>
      %C = tile.dot_blocks(%q : tensor<48x64xbf16>), %y : <48, 64, bf16> diagonal -> tensor<48x48xf32>
      return
    }
    ```
  }];
  let arguments = (ins Variadic<Tile_Matrix16>:$x, Tile_Shared16:$y, Optional<Tile_Shared16>:$low,
                       Optional<Tile_Shared32>:$scale, UnitAttr:$diagonal);
  let results = (outs Variadic<Tile_Matrix32>:$results);
  let assemblyFormat = [{
    `(` $x `:` type($x) `)` `,` $y `:` type($y) (`low` $low^ `:` type($low))?
    (`scaled` $scale^ `:` type($scale))? (`diagonal` $diagonal^)? attr-dict `->` type($results)
  }];
  let hasVerifier = 1;
}

def Tile_PlaceDiagOp : Tile_Letter<"place_diag", "M", [Pure]> {
  let summary = "put blocks on the diagonal of a matrix";
  let description = [{
    The blocks of `tile.dot_diag` replace those of a matrix.

    Constraints: (C1) blocks [m, 16], `into` [m, m], and the result has the latter's
    type. (C2) layouts: acc.

    Example:
    ```mlir
    func.func @place(%D: tensor<64x16xf32>, %M: tensor<64x64xf32>) -> tensor<64x64xf32> {
      %N = tile.place_diag %D into %M : tensor<64x16xf32>, tensor<64x64xf32> -> tensor<64x64xf32>
      return %N : tensor<64x64xf32>
    }
    ```
  }];
  let arguments = (ins Tile_Matrix32:$blocks, Tile_Matrix32:$into);
  let results = (outs Tile_Matrix32:$result);
  let assemblyFormat = "$blocks `into` $into attr-dict `:` type($blocks) `,` type($into) `->` type($result)";
  let hasVerifier = 1;
}

def Tile_InverseOp : Tile_Op<"inverse", [AttrSizedOperandSegments]> {
  let summary = "invert I - N, transposed";
  let description = [{
    Formula: `to[j, i] = s[j] (I - N)^-1[i, j]`, N [m, m] strictly lower triangular, s =
    1 when absent. Blocks of 16 by substitution in fp32, then exact merges on
    tensor cores with bf16 operands. `scratch` holds blocks and one diagonal. The
    team's barriers are inside; `to` is complete after one more.

    With `low` every number has two bf16 terms, the second being what the first one
    lacks: operands of the merges have, and of the result `to` holds the first ones
    and `low` the second. `low ... scratch` is for the second terms of the blocks.

    Constraints: (C1) N is square, and s has as many elements as N rows. (C2) `to`,
    the first scratch tile, `low` and its scratch are bf16 [m, m] and all different,
    the second scratch tile is f32 [m, 20]. (C3) layouts: acc, of s acc_col.

    Example:
    ```mlir
    func.func @inverse(%N: tensor<64x64xf32>, %s: tensor<64xf32>, %to: !tile.shared<64, 64, bf16>,
                       %b: !tile.shared<64, 64, bf16>, %d: !tile.shared<64, 20, f32>,
                       %l: !tile.shared<64, 64, bf16>, %c: !tile.shared<64, 64, bf16>) {
      tile.inverse %N scaled %s : tensor<64xf32> to %to scratch %b, %d
          : tensor<64x64xf32>, <64, 64, bf16>, <64, 64, bf16>, <64, 20, f32>
      tile.inverse %N to %to scratch %b, %d low %l scratch %c : !tile.shared<64, 64, bf16>, !tile.shared<64, 64, bf16>
          : tensor<64x64xf32>, <64, 64, bf16>, <64, 64, bf16>, <64, 20, f32>
      return
    }
    ```
  }];
  let arguments = (ins Tile_Matrix32:$value, Optional<Tile_Vector>:$scale, Tile_Shared16:$to,
                       Tile_Shared16:$blocks, Tile_Shared32:$diagonal,
                       Optional<Tile_Shared16>:$low, Optional<Tile_Shared16>:$lowBlocks);
  let assemblyFormat = [{
    $value (`scaled` $scale^ `:` type($scale))? `to` $to `scratch` $blocks `,` $diagonal
    (`low` $low^ `scratch` $lowBlocks `:` type($low) `,` type($lowBlocks))? attr-dict
    `:` type($value) `,` type($to) `,` type($blocks) `,` type($diagonal)
  }];
  let hasVerifier = 1;
}

#endif // PLUM_DIALECTS_TILE_OPS_TD
