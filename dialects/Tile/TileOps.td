//===- TileOps.td - Kernels as tiles in registers and memory -*- tablegen -*-=//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_DIALECTS_TILE_OPS_TD
#define PLUM_DIALECTS_TILE_OPS_TD

include "dialects/Tile/TileEnums.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/OpBase.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/ControlFlowInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Tile_Dialect : Dialect {
  let name = "tile";
  let cppNamespace = "::plum::tile";
  let summary = "kernels whose values are tiles with a place on the chip";
  let description = [{
    A kernel is run by a team of warps. Its values are tensors of static shape
    in the team's registers, in shared memory, or in a ring of stages that a
    producer keeps filling. Elementwise maths are the ops of `arith` and `math`
    on such tensors.

    The encoding of a tensor says which thread holds what (`#tile.layout`). All
    matrix layouts give each warp 16 whole rows, so a team of w warps holds
    matrices of 16 w rows, rows never meet except in the ops that say so, and
    the result of one product is the left operand of the next without moving a
    bit. `tile-assign-layouts` finds the encodings from the ops that fix them.

    Shared memory tiles of 16-bit elements are stored in panels of 64 columns, a
    row of a panel being 128 bytes whose 16-byte pieces are permuted by the row
    (piece p of row r lies at p xor (r mod 8)): what tensor cores and ldmatrix
    read without bank conflicts, and what `prepare` leaves in memory for `scan`
    to copy in one piece.
  }];
  let useDefaultAttributePrinterParser = 1;
  let useDefaultTypePrinterParser = 1;
}

//===----------------------------------------------------------------------===//
// Attributes and types
//===----------------------------------------------------------------------===//

def Tile_LayoutAttr : AttrDef<Tile_Dialect, "Layout"> {
  let mnemonic = "layout";
  let summary = "which thread of the team holds which element";
  let description = [{
    With lane l, g = l / 4, t = l % 4, in warp w:

    - `acc`: a matrix; the thread has rows 16w + g and 16w + g + 8, columns 8j +
      2t and 8j + 2t + 1. The accumulators of mma.m16n8 and wgmma; in bf16, their
      left operand. `acc_row`, `acc_col`: a vector along the columns or rows of
      such a matrix.
    - `opb`: a matrix; rows 16w + 2t, + 1, + 8, + 9, columns 8j + g: the right
      operand of mma.m16n8k16 with the rows as k. `opb_row`, `opb_col` alike.
    - `linear`: a vector; thread i has elements i, i + threads, ...
  }];
  let parameters = (ins EnumParameter<Tile_LayoutKindEnum>:$kind);
  let assemblyFormat = "`<` $kind `>`";
}

def Tile_SharedType : TypeDef<Tile_Dialect, "Shared"> {
  let mnemonic = "shared";
  let summary = "a tile in shared memory";
  let description = [{
    `!tile.shared<64, 128, bf16>`: rows, columns, element. bf16 tiles are stored
    in swizzled panels, f32 tiles row by row.
  }];
  let parameters = (ins "int64_t":$rows, "int64_t":$cols, "::mlir::Type":$element);
  let assemblyFormat = "`<` $rows `,` $cols `,` $element `>`";
  let extraClassDeclaration = [{
    bool swizzled() const { return getElement().getIntOrFloatBitWidth() == 16; }
    /// Panels of 64 columns, for 16-bit elements.
    int64_t panels() const { return (getCols() + 63) / 64; }
    int64_t bytes() const {
      return swizzled() ? panels() * getRows() * 128 : getRows() * getCols() * 4;
    }
  }];
}

def Tile_RingType : TypeDef<Tile_Dialect, "Ring"> {
  let mnemonic = "ring";
  let summary = "stages in shared memory that a producer fills chunk after chunk";
  let parameters = (ins);
}

def Tile_PartAttr : AttrDef<Tile_Dialect, "Part"> {
  let mnemonic = "part";
  let summary = "what one piece of a stage holds and where it comes from";
  let description = [{
    `#tile.part<type = !tile.shared<64, 128, bf16>, blob = 0>`: a copy of the bytes
    at that offset of the chunk's blob (with `sliced`, of the panels of this kernel's
    slice). `#tile.part<type = ..., rows = "v">`: the chunk's
    rows of an input, the columns of this kernel's slice; rows past the end of
    the sequence are zero.
  }];
  let parameters = (ins "::plum::tile::SharedType":$type, DefaultValuedParameter<"int64_t", "-1">:$blob,
                        OptionalParameter<"::mlir::StringAttr">:$rows,
                        DefaultValuedParameter<"bool", "false">:$sliced);
  let assemblyFormat = "`<` struct(params) `>`";
}

def Tile_ArgumentAttr : AttrDef<Tile_Dialect, "Argument"> {
  let mnemonic = "arg";
  let summary = "a tensor of plum_gpu_args: name and element type";
  let parameters = (ins "::mlir::StringAttr":$name, "::mlir::Type":$element);
  let assemblyFormat = "`<` $name `:` $element `>`";
}

class Tile_Op<string mnemonic, list<Trait> traits = []> : Op<Tile_Dialect, mnemonic, traits>;
def Tile_Tensor : StaticShapeTensorOf<[F32, BF16]>;
def Tile_Matrix : AnyTypeOf<[Tile_Tensor]>;

//===----------------------------------------------------------------------===//
// Structure
//===----------------------------------------------------------------------===//

def Tile_KernelOp : Tile_Op<"kernel", [IsolatedFromAbove, Symbol, SingleBlock, NoTerminator]> {
  let summary = "a kernel, run by one team for each piece of work";
  let description = [{
    `role` says what a piece of work is: `prepare` has one chunk of one head,
    `scan` the chunks of one segment of one sequence, for one head and one slice
    of `slice` columns of V. `arguments` are the layer's tensors in the order of
    plum_gpu_args. `blob` is the size of what prepare leaves for scan, for each
    chunk and head.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, StrAttr:$role, I64Attr:$chunk, I64Attr:$warps,
                       TypedArrayAttrBase<Tile_ArgumentAttr, "the tensors of plum_gpu_args">:$arguments, I64Attr:$blob, DefaultValuedAttr<I64Attr, "0">:$slice,
                       DefaultValuedAttr<I64Attr, "1">:$slices);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    $sym_name $role `chunk` $chunk `warps` $warps `arguments` $arguments `blob` $blob
    (`slice` $slice^ `of` $slices)? attr-dict-with-keyword $body
  }];
}

def Tile_StripsOp : Tile_Op<"strips", [SingleBlock]> {
  let summary = "do the same for every 16 columns";
  let description = [{
    Runs the region for strip 0, 1, ... of 16 columns. The region's first
    argument is the strip's number, the others are carried, starting from `init`.
    It yields the carried values and then pieces of 16 columns, which are joined
    to the remaining results. Strips are unrolled: this is a schedule, so that
    long rows need few registers.
  }];
  let arguments = (ins I64Attr:$count, Variadic<AnyType>:$init);
  let results = (outs Variadic<AnyType>:$results);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$count (`init` `(` $init^ `:` type($init) `)`)? $body attr-dict (`:` type($results)^)?";
}

def Tile_ChunksOp : Tile_Op<"chunks", [SingleBlock]> {
  let summary = "scan the chunks of this team's segment";
  let description = [{
    Runs the region for each chunk in order. Carried values start from `init`.
    Products that are under way are waited for at the end of each turn.
  }];
  let arguments = (ins Variadic<AnyType>:$init);
  let results = (outs Variadic<AnyType>:$results);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "(`init` `(` $init^ `:` type($init) `)`)? $body attr-dict (`:` type($results)^)?";
}

def Tile_TailOp : Tile_Op<"tail", [SingleBlock, NoTerminator]> {
  let summary = "what is left to do after the last chunk, where there was one";
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$body attr-dict";
}

def Tile_YieldOp : Tile_Op<"yield", [Pure, Terminator, ReturnLike, ParentOneOf<["StripsOp", "ChunksOp"]>]> {
  let summary = "end a region of this dialect";
  let arguments = (ins Variadic<AnyType>:$values);
  let assemblyFormat = "attr-dict ($values^ `:` type($values))?";
  let builders = [OpBuilder<(ins), [{ /* for the implicit terminator */ }]>];
}

//===----------------------------------------------------------------------===//
// Shared memory
//===----------------------------------------------------------------------===//

def Tile_AllocOp : Tile_Op<"alloc"> {
  let summary = "a tile of shared memory, undefined at first";
  let description = [{ `offset` is set by `tile-plan-shared`; tiles that are never needed together may share bytes. }];
  let arguments = (ins OptionalAttr<I64Attr>:$offset);
  let results = (outs Tile_SharedType:$tile);
  let assemblyFormat = "(`at` $offset^)? attr-dict `:` type($tile)";
}

def Tile_ReuseOp : Tile_Op<"reuse", [Pure]> {
  let summary = "the bytes of a tile that is done with, as another tile";
  let description = [{ Constraints: (C1) the new tile, `offset` bytes in, ends within the old one. }];
  let arguments = (ins Tile_SharedType:$from, DefaultValuedAttr<I64Attr, "0">:$offset);
  let results = (outs Tile_SharedType:$tile);
  let assemblyFormat = "$from (`plus` $offset^)? attr-dict `:` type($from) `to` type($tile)";
  let hasVerifier = 1;
}

def Tile_RingOp : Tile_Op<"ring"> {
  let summary = "a ring of stages, each with the parts of one chunk";
  let description = [{
    Stages are filled by a producer in the order of chunks, as far ahead as there
    are stages. On sm_90a the producer is a warpgroup of its own that gives up its
    registers; blobs come by bulk copies, rows by 16-byte copies.
  }];
  let arguments = (ins I64Attr:$stages, TypedArrayAttrBase<Tile_PartAttr, "the parts of a stage">:$parts);
  let results = (outs Tile_RingType:$ring);
  let assemblyFormat = "$stages $parts attr-dict `:` type($ring)";
}

def Tile_AcquireOp : Tile_Op<"acquire"> {
  let summary = "wait until this chunk's stage is filled";
  let description = [{ Gives the parts of the stage. Inside `tile.chunks` only. }];
  let arguments = (ins Tile_RingType:$ring);
  let results = (outs Variadic<Tile_SharedType>:$parts);
  let assemblyFormat = "$ring attr-dict `:` type($ring) `->` type($parts)";
}

def Tile_PreviousOp : Tile_Op<"previous"> {
  let summary = "the parts of the stage of the chunk before";
  let description = [{ On the first chunk those of this chunk's stage; after `tile.chunks` those of the last. }];
  let arguments = (ins Tile_RingType:$ring);
  let results = (outs Variadic<Tile_SharedType>:$parts);
  let assemblyFormat = "$ring attr-dict `:` type($ring) `->` type($parts)";
}

def Tile_ReleaseOp : Tile_Op<"release"> {
  let summary = "give a stage back to the producer";
  let description = [{
    This chunk's stage or, with `previous`, that of the chunk before (nothing on
    the first chunk). Every product that reads the stage has been waited for.
  }];
  let arguments = (ins Tile_RingType:$ring, UnitAttr:$previous);
  let assemblyFormat = "$ring (`previous` $previous^)? attr-dict `:` type($ring)";
}

def Tile_BarrierOp : Tile_Op<"barrier"> {
  let summary = "the team's writes to shared memory are seen by the team";
  let assemblyFormat = "attr-dict";
}

def Tile_FetchOp : Tile_Op<"fetch"> {
  let summary = "start copying the chunk's rows of an input to shared memory";
  let description = [{ Rows past the end of the sequence are zero. `tile.arrived` waits for all copies. }];
  let arguments = (ins StrAttr:$input, Tile_SharedType:$to);
  let assemblyFormat = "$input `to` $to attr-dict `:` type($to)";
}

def Tile_ArrivedOp : Tile_Op<"arrived"> {
  let summary = "wait for the team's copies";
  let assemblyFormat = "attr-dict";
}

def Tile_LoadOp : Tile_Op<"load"> {
  let summary = "read a tile, or one strip of it, into registers";
  let description = [{
    The result has the tile's rows and the columns of `strip`, or all of them. A
    tile of one row gives a vector. `transposed`: the result is the transpose. `blocks`: the tile has one row
    for each warp, which all 16 rows of the warp read.
  }];
  let arguments = (ins Tile_SharedType:$from, Optional<Index>:$strip, UnitAttr:$transposed, UnitAttr:$blocks,
                       OptionalAttr<I64Attr>:$row);
  let results = (outs Tile_Tensor:$result);
  let assemblyFormat = [{
    $from (`strip` $strip^)? (`row` $row^)? (`transposed` $transposed^)? (`blocks` $blocks^)? attr-dict
    `:` type($from) `->` type($result)
  }];
}

def Tile_ElementOp : Tile_Op<"element"> {
  let summary = "one element of an f32 tile, for every thread";
  let arguments = (ins Tile_SharedType:$from, I64Attr:$row, I64Attr:$col);
  let results = (outs F32:$result);
  let assemblyFormat = "$from `[` $row `,` $col `]` attr-dict `:` type($from)";
}

def Tile_StoreOp : Tile_Op<"store"> {
  let summary = "write registers to a tile, or to one strip of it";
  let description = [{
    As `tile.load`. A `linear` or `acc_col` vector goes to row `row` of an f32
    tile. `transposed`: the tile gets the transpose.
  }];
  let arguments = (ins Tile_Tensor:$value, Tile_SharedType:$to, Optional<Index>:$strip, UnitAttr:$transposed,
                       OptionalAttr<I64Attr>:$row);
  let assemblyFormat = [{
    $value `to` $to (`strip` $strip^)? (`row` $row^)? (`transposed` $transposed^)? attr-dict
    `:` type($value) `,` type($to)
  }];
}

//===----------------------------------------------------------------------===//
// Registers
//===----------------------------------------------------------------------===//

def Tile_ParamOp : Tile_Op<"param", [Pure]> {
  let summary = "this head's values of a param";
  let description = [{ One value for all: a tensor of shape [1] that broadcasts; or a row, or one strip of it. }];
  let arguments = (ins StrAttr:$name, Optional<Index>:$strip);
  let results = (outs AnyTypeOf<[F32, Tile_Tensor]>:$result);
  let assemblyFormat = "$name (`strip` $strip^)? attr-dict `:` type($result)";
}

def Tile_ColumnOp : Tile_Op<"column"> {
  let summary = "the chunk's values of an input that is a scalar per token";
  let description = [{ Tokens past the end of the sequence read 0. }];
  let arguments = (ins StrAttr:$name);
  let results = (outs Tile_Tensor:$result);
  let assemblyFormat = "$name attr-dict `:` type($result)";
}

def Tile_ValidOp : Tile_Op<"valid", [Pure]> {
  let summary = "replace the rows of tokens past the end of the sequence";
  let description = [{ Row i of the result is row i of `value`, or `fill` where token i is past the end. }];
  let arguments = (ins Tile_Tensor:$value, F32Attr:$fill);
  let results = (outs Tile_Tensor:$result);
  let assemblyFormat = "$value `else` $fill attr-dict `:` type($value) `->` type($result)";
}

def Tile_BroadcastOp : Tile_Op<"broadcast", [Pure]> {
  let summary = "repeat a vector (or a number) along the rows or columns of a matrix";
  let description = [{ `rows`: the vector is a row, the same for every row; else it is a column. }];
  let arguments = (ins AnyTypeOf<[F32, Tile_Tensor]>:$value, UnitAttr:$rows);
  let results = (outs Tile_Tensor:$result);
  let assemblyFormat = "$value (`rows` $rows^)? attr-dict `:` type($value) `->` type($result)";
}

def Tile_StripOp : Tile_Op<"strip", [Pure]> {
  let summary = "16 columns of a matrix";
  let arguments = (ins Tile_Tensor:$value, Index:$strip);
  let results = (outs Tile_Tensor:$result);
  let assemblyFormat = "$value `at` $strip attr-dict `:` type($value) `->` type($result)";
}

def Tile_ReduceOp : Tile_Op<"reduce", [Pure]> {
  let summary = "sum each row";
  let description = [{ [M, N] to [M]. Always in the same order. }];
  let arguments = (ins Tile_Tensor:$value);
  let results = (outs Tile_Tensor:$result);
  let assemblyFormat = "$value attr-dict `:` type($value) `->` type($result)";
}

def Tile_CumsumOp : Tile_Op<"cumsum", [Pure]> {
  let summary = "cumulate down each block of 16 rows";
  let description = [{
    Row i of a block becomes the sum of rows 0 .. i of the block, or with
    `exclusive` of rows 0 .. i-1.

    With `half` = h (8, 4, 2, 1) rows are taken in groups of 2h with a border
    between the halves: a row i of the upper half becomes the sum of the rows from
    the border to i (without i where `exclusive`), a row j of the lower half the
    sum of rows j+1 up to the border. For logarithms of decays, which are not
    positive, no exponential of a result exceeds 1, and for i in the upper and j in
    the lower half of a group the two exponentials multiply to the decay from j to
    i.

    On tensor cores: the product with a triangle of ones, the operand split in
    two bf16 terms, which keeps 16 bits of every summand.
  }];
  let arguments = (ins Tile_Tensor:$value, OptionalAttr<I64Attr>:$half, UnitAttr:$exclusive);
  let results = (outs Tile_Tensor:$result);
  let assemblyFormat = "$value (`half` $half^)? (`exclusive` $exclusive^)? attr-dict `:` type($value) `->` type($result)";
}

def Tile_BlockSumOp : Tile_Op<"block_sum"> {
  let summary = "sum each block of 16 rows into a row of a tile";
  let arguments = (ins Tile_Tensor:$value, Tile_SharedType:$to, Optional<Index>:$strip);
  let assemblyFormat = "$value `to` $to (`strip` $strip^)? attr-dict `:` type($value) `,` type($to)";
}

def Tile_CumulateOp : Tile_Op<"cumulate"> {
  let summary = "cumulate a column over the whole chunk into shared memory";
  let description = [{ Element i of the tile becomes the sum of elements 0 .. i. fp32. The team's barrier is inside. }];
  let arguments = (ins Tile_Tensor:$value, Tile_SharedType:$to);
  let assemblyFormat = "$value `to` $to attr-dict `:` type($value) `,` type($to)";
}

def Tile_DotOp : Tile_Op<"dot", [Pure]> {
  let summary = "multiply registers with a tile of shared memory";
  let description = [{
    `D = A B^T + C` with A [M, k] in bf16 registers and B [N, k] in shared memory;
    `transposed`: `D = A B + C` with B [k, N]. C = 0 when absent. On sm_90a with a
    team of whole warpgroups this is wgmma, and runs until D is used.
  }];
  let arguments = (ins Tile_Tensor:$a, Tile_SharedType:$b, Optional<Tile_Tensor>:$c, UnitAttr:$transposed);
  let results = (outs Tile_Tensor:$result);
  let assemblyFormat = [{
    $a `,` $b (`onto` $c^ `:` type($c))? (`transposed` $transposed^)? attr-dict
    `:` type($a) `,` type($b) `->` type($result)
  }];
}

def Tile_DotDiagOp : Tile_Op<"dot_diag", [Pure, AllTypesMatch<["c", "result"]>]> {
  let summary = "multiply each warp's rows with its own rows";
  let description = [{
    `D[i, j] = C[i, j] + sum_c x[i, c] y[16 w + j, c]` for row i of warp w: the 16
    x 16 blocks on the diagonal of x y^T, [M, 16]. Both in bf16 registers.
  }];
  let arguments = (ins Tile_Tensor:$x, Tile_Tensor:$y, Tile_Tensor:$c);
  let results = (outs Tile_Tensor:$result);
  let assemblyFormat = "$x `,` $y `onto` $c attr-dict `:` type($x) `,` type($y) `->` type($result)";
}

def Tile_DotBlocksOp : Tile_Op<"dot_blocks", [Pure, AttrSizedOperandSegments]> {
  let summary = "the blocks of x y^T below the diagonal";
  let description = [{
    For every x, `D[i, j] = sum_c x[i, c] f[I, J, c] y[j, c]` where I = i / 16 > J =
    j / 16, else 0. f is 1, or row I (I - 1) / 2 + J of `scale`, an f32 tile. With `diagonal`, I = J belongs to the result as well. D : [M, M].
  }];
  let arguments = (ins Variadic<Tile_Tensor>:$x, Tile_SharedType:$y, Optional<Tile_SharedType>:$scale,
                       UnitAttr:$diagonal);
  let results = (outs Variadic<Tile_Tensor>:$results);
  let assemblyFormat = [{
    `(` $x `:` type($x) `)` `,` $y `:` type($y) (`scaled` $scale^ `:` type($scale))? (`diagonal` $diagonal^)?
    attr-dict `->` type($results)
  }];
}

def Tile_PlaceDiagOp : Tile_Op<"place_diag", [Pure]> {
  let summary = "put blocks on the diagonal of a matrix";
  let arguments = (ins Tile_Tensor:$blocks, Tile_Tensor:$into);
  let results = (outs Tile_Tensor:$result);
  let assemblyFormat = "$blocks `into` $into attr-dict `:` type($blocks) `,` type($into) `->` type($result)";
}

def Tile_MaskOp : Tile_Op<"mask", [Pure]> {
  let summary = "keep what a row may see";
  let description = [{
    Element (i, j) is kept where j < i, or j = i with `inclusive`; else 0. With
    `half` = h, only where j is in the lower and i in the upper half of the same
    group of 2h (for [M, 16] blocks of the diagonal).
  }];
  let arguments = (ins Tile_Tensor:$value, UnitAttr:$inclusive, OptionalAttr<I64Attr>:$half);
  let results = (outs Tile_Tensor:$result);
  let assemblyFormat = [{
    $value (`inclusive` $inclusive^)? (`half` $half^)? attr-dict `:` type($value) `->` type($result)
  }];
}

def Tile_HalfOp : Tile_Op<"half", [Pure]> {
  let summary = "keep the rows of the upper (or lower) halves of groups";
  let description = [{ Rows are in groups of 2 `half`; the others become 0. }];
  let arguments = (ins Tile_Tensor:$value, I64Attr:$half, UnitAttr:$upper);
  let results = (outs Tile_Tensor:$result);
  let assemblyFormat = "$value $half (`upper` $upper^)? attr-dict `:` type($value) `->` type($result)";
}

def Tile_InverseOp : Tile_Op<"inverse"> {
  let summary = "the transposed inverse of I - N";
  let description = [{
    `to[j, i] = s[j] (I - N)^-1[i, j]`, N [M, M] strictly lower triangular, s = 1 when
    absent. Blocks of 16 by substitution in fp32, then exact merges on tensor cores
    with bf16 operands. `scratch`: M x M bf16 and M x 20 f32. The team's barriers
    are inside.
  }];
  let arguments = (ins Tile_Tensor:$value, Optional<Tile_Tensor>:$scale, Tile_SharedType:$to,
                       Tile_SharedType:$blocks, Tile_SharedType:$diagonal);
  let assemblyFormat = [{
    $value (`scaled` $scale^ `:` type($scale))? `to` $to `scratch` $blocks `,` $diagonal attr-dict
    `:` type($value) `,` type($to) `,` type($blocks) `,` type($diagonal)
  }];
}

//===----------------------------------------------------------------------===//
// Results
//===----------------------------------------------------------------------===//

def Tile_ExportOp : Tile_Op<"export"> {
  let summary = "copy a tile to the chunk's blob";
  let description = [{ The tile's bytes as they are, after a barrier. The tile is not written again. }];
  let arguments = (ins Tile_SharedType:$tile, I64Attr:$blob);
  let assemblyFormat = "$tile `to` $blob attr-dict `:` type($tile)";
}

def Tile_ExportVectorOp : Tile_Op<"export_vector"> {
  let summary = "write a vector to the chunk's blob, as f32";
  let arguments = (ins Tile_Tensor:$value, I64Attr:$blob);
  let assemblyFormat = "$value `to` $blob attr-dict `:` type($value)";
}

def Tile_ExportMatrixOp : Tile_Op<"export_matrix"> {
  let summary = "write a matrix in registers to the chunk's blob";
  let description = [{ The same bytes that `tile.export` of a tile with these elements writes. }];
  let arguments = (ins Tile_Tensor:$value, I64Attr:$blob);
  let assemblyFormat = "$value `to` $blob attr-dict `:` type($value)";
}

def Tile_WriteRowsOp : Tile_Op<"write_rows"> {
  let summary = "write rows of an output from shared memory";
  let description = [{
    The rows of this chunk, or with `previous` of the chunk before, that are
    inside the sequence; the columns of the kernel's slice. Each warpgroup (the
    team, where smaller) writes the columns that it stored; its barriers are
    inside.
  }];
  let arguments = (ins Tile_Tensor:$value, Tile_SharedType:$panel, StrAttr:$output, UnitAttr:$previous);
  let assemblyFormat = [{
    $value `through` $panel `to` $output (`previous` $previous^)? attr-dict `:` type($value) `,` type($panel)
  }];
}

def Tile_LoadStateOp : Tile_Op<"load_state"> {
  let summary = "the transposed state at the start of the segment";
  let description = [{
    [V slice, K]: the initial state, zeros where none is given; what `combine` left,
    in a later segment. `summary`: the start for M (identity) or B (zeros).
  }];
  let arguments = (ins StrAttr:$name, UnitAttr:$summary);
  let results = (outs Tile_Tensor:$result);
  let assemblyFormat = "$name (`summary` $summary^)? attr-dict `:` type($result)";
}

def Tile_StoreStateOp : Tile_Op<"store_state"> {
  let summary = "write the transposed state at the end of the segment";
  let arguments = (ins Tile_Tensor:$value, StrAttr:$name, UnitAttr:$summary);
  let assemblyFormat = "$value `to` $name (`summary` $summary^)? attr-dict `:` type($value)";
}

#endif // PLUM_DIALECTS_TILE_OPS_TD
