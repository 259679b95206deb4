//===- TileStructure.td - Kernels and their loops ----------*- tablegen -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_DIALECTS_TILE_STRUCTURE_TD
#define PLUM_DIALECTS_TILE_STRUCTURE_TD

include "dialects/Tile/TileDialect.td"

def Tile_KernelOp : Tile_Op<"kernel", [IsolatedFromAbove, Symbol, SingleBlock, NoTerminator]> {
  let summary = "define a kernel, run by one team for each piece of work";
  let description = [{
    `role` says what a piece of work is. `prepare` has one chunk of one head.
    `scan` has the chunks of one segment of one sequence, for one head and one
    slice of `slice` columns of V. `summary` has the same chunks as `scan` and
    finds what they do to any state that enters them: S' = M S + B. A team has a
    slice of B, or a slice of M, which is where the identity, as the columns of a
    state, ends when all values are zero.

    With `teams` = P a `prepare` has P teams, which run the body side by side, each
    with a P-th of the channels: of n strips of a matrix team p has strips p n / P
    and on, so that its tensors are a P-th as wide, and products over channels are
    the team's part of a sum, which `tile.sum_teams` completes. Columns [C] are the
    same in every team. What fills or copies a whole tile is done by all threads
    together, a `tile.team` by one team alone.

    `arguments` are the layer's tensors in the order of plum_gpu_args
    (include/plum/ABI/GpuABI.h). `blob` is the size in bytes of what prepare leaves
    for scan, for each chunk and head. `diagonal` says that chunks erase nothing:
    then M is diagonal, and segments have its diagonal instead.

    With `steps` n a token is n updates, one after another, and each is a row: a
    chunk of C tokens has R = n C rows, row i being update i mod n of token i / n.
    Where rows of inputs are read, an op names one input, whose row of the token is
    read n times, or as many as there are steps, "k1,k2", each being read for its
    step. Outputs are those of a token's last row.

    Constraints: (C1) the role is one of these. (C2) `chunk` is a positive multiple
    of 16. (C3) `warps` is R / 16 in `prepare`, else slice / 16, and at least
    1. (C4) there are slices, in `prepare` one of 0 columns. (C5) `arguments` have
    different names. (C6) `blob` is a multiple of 16, and not negative. (C7)
    matrices inside have 16 x warps rows. (C8) of the tensors inside, all have a
    layout or none. (C9) `diagonal` is not of `prepare`. (C10) `teams` is at least 1,
    and 1 unless the role is `prepare`. (C11) there is a step or more.

    Example:
    ```mlir
    tile.kernel @zeros "prepare" chunk 16 warps 1 arguments [#tile.arg<"k" : bf16>] blob 64 {
      %zero = arith.constant dense<0.0> : tensor<16xf32>
      tile.export_vector %zero to 0 : tensor<16xf32>
    }
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, StrAttr:$role, I64Attr:$chunk, I64Attr:$warps,
                       TypedArrayAttrBase<Tile_ArgumentAttr, "the tensors of plum_gpu_args">:$arguments,
                       I64Attr:$blob, DefaultValuedAttr<I64Attr, "0">:$slice,
                       DefaultValuedAttr<I64Attr, "1">:$slices, UnitAttr:$diagonal,
                       DefaultValuedAttr<I64Attr, "1">:$teams, DefaultValuedAttr<I64Attr, "1">:$steps);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    $sym_name $role `chunk` $chunk (`steps` $steps^)? `warps` $warps (`teams` $teams^)? `arguments` $arguments `blob` $blob
    (`slice` $slice^ `of` $slices)? (`diagonal` $diagonal^)? attr-dict-with-keyword $body
  }];
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
  let extraClassDeclaration = [{
    /// Goes through the chunks of a segment: `scan` or `summary`.
    bool scans() { return getRole() != "prepare"; }
    /// Rows of a chunk.
    int64_t rows() { return int64_t(getChunk()) * int64_t(getSteps()); }
    /// Element type of an argument; null where there is none of that name.
    ::mlir::Type elementOf(::llvm::StringRef name);
  }];
}

/// A region whose arguments print under the names of what they start from.
class Tile_Loop<string mnemonic, list<Trait> traits = []> : Tile_Op<mnemonic, !listconcat([SingleBlock,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmBlockArgumentNames"]>], traits)>;

def Tile_StripsOp : Tile_Loop<"strips"> {
  let summary = "do the same for every 16 columns";
  let description = [{
    Runs the region for strip 0, 1, ... of 16 columns. The region's first
    argument is the strip's number, the others are carried, starting from `init`.
    It yields the carried values and then pieces of 16 columns, which are joined
    to the remaining results. Strips are unrolled: this is a schedule, so that
    long rows need few registers.

    Constraints: (C1) the region has an `index` and one argument of each `init`'s
    type. (C2) it yields values of these types first, and the first results have
    them as well. (C3) for every further result [m, 16 count] it yields a piece [m,
    16] of the same element and layout. (C4) `count` is positive.

    Example:
    ```mlir
    func.func @squares(%x: tensor<16x32xf32>, %zero: tensor<16x16xf32>) -> (tensor<16x16xf32>, tensor<16x32xf32>) {
      %sum, %squares = tile.strips 2 init(%zero : tensor<16x16xf32>) {
      ^bb0(%strip: index, %so_far: tensor<16x16xf32>):
        %s = tile.strip %x at %strip : tensor<16x32xf32> -> tensor<16x16xf32>
        %y = arith.mulf %s, %s : tensor<16x16xf32>
        %next = arith.addf %so_far, %y : tensor<16x16xf32>
        tile.yield %next, %y : tensor<16x16xf32>, tensor<16x16xf32>
      } : tensor<16x16xf32>, tensor<16x32xf32>
      return %sum, %squares : tensor<16x16xf32>, tensor<16x32xf32>
    }
    ```
  }];
  let arguments = (ins I64Attr:$count, Variadic<AnyType>:$init);
  let results = (outs Variadic<AnyType>:$results);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$count (`init` `(` $init^ `:` type($init) `)`)? $body attr-dict (`:` type($results)^)?";
  let hasVerifier = 1;
}

def Tile_ChunksOp : Tile_Loop<"chunks", [HasParent<"KernelOp">]> {
  let summary = "scan the chunks of this team's segment";
  let description = [{
    Runs the region for each chunk in order. Carried values start from `init`.
    Products that are under way are waited for at the end of each turn.

    Constraints: (C1) the region has one argument of each `init`'s type. (C2) it
    yields values of these types, and the results have them as well. (C3) the
    kernel scans, and this is its only `tile.chunks`.

    Example:
    ```mlir
    tile.kernel @decay "scan" chunk 16 warps 1 arguments [#tile.arg<"S" : f32>, #tile.arg<"S.final" : f32>] blob 0
        slice 16 of 1 {
      %half = arith.constant dense<0.5> : tensor<16x16xf32>
      %S = tile.load_state "S" : tensor<16x16xf32>
      %end = tile.chunks init(%S : tensor<16x16xf32>) {
      ^bb0(%s: tensor<16x16xf32>):
        %next = arith.mulf %s, %half : tensor<16x16xf32>
        tile.yield %next : tensor<16x16xf32>
      } : tensor<16x16xf32>
      tile.store_state %end to "S" : tensor<16x16xf32>
    }
    ```
  }];
  let arguments = (ins Variadic<AnyType>:$init);
  let results = (outs Variadic<AnyType>:$results);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "(`init` `(` $init^ `:` type($init) `)`)? $body attr-dict (`:` type($results)^)?";
  let hasVerifier = 1;
}

def Tile_TailOp : Tile_Op<"tail", [SingleBlock, NoTerminator, HasParent<"KernelOp">]> {
  let summary = "do what is left after the last chunk, where there was one";
  let description = [{
    What a turn of `tile.chunks` puts off to the next one, once more.

    Constraints: (C1) stands after the kernel's `tile.chunks`.

    Example:
    ```mlir
    tile.kernel @late "scan" chunk 16 warps 1 arguments [#tile.arg<"o" : bf16>] blob 0 slice 16 of 1 {
      %panel = tile.alloc : <16, 16, bf16>
      %zero = arith.constant dense<0.0> : tensor<16x16xbf16>
      %last = tile.chunks init(%zero : tensor<16x16xbf16>) {
      ^bb0(%rows: tensor<16x16xbf16>):
        tile.write_rows %rows through %panel to "o" previous : tensor<16x16xbf16>, <16, 16, bf16>
        tile.yield %rows : tensor<16x16xbf16>
      } : tensor<16x16xbf16>
      tile.tail {
        tile.write_rows %last through %panel to "o" previous : tensor<16x16xbf16>, <16, 16, bf16>
      }
    }
    ```
  }];
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$body attr-dict";
  let hasVerifier = 1;
}

def Tile_TeamOp : Tile_Op<"team", [SingleBlock, NoTerminator, HasParent<"KernelOp">]> {
  let summary = "do something in one team only";
  let description = [{
    The other teams go on with what follows. A barrier inside is the team's own.

    Constraints: (C1) the kernel has a team of this number.

    Example:
    ```mlir
    tile.kernel @second "prepare" chunk 16 warps 1 teams 2 arguments [#tile.arg<"q" : bf16>] blob 2048 {
      %zero = arith.constant dense<0.0> : tensor<16x16xbf16>
      tile.team 1 {
        tile.export_matrix %zero to 0 : tensor<16x16xbf16>
      }
    }
    ```
  }];
  let arguments = (ins I64Attr:$number);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$number $body attr-dict";
  let hasVerifier = 1;
}

def Tile_YieldOp : Tile_Op<"yield", [Pure, Terminator, ReturnLike, ParentOneOf<["StripsOp", "ChunksOp"]>]> {
  let summary = "end a region of this dialect";
  let description = [{ The values are explained at the op that holds the region. }];
  let arguments = (ins Variadic<AnyType>:$values);
  let assemblyFormat = "attr-dict ($values^ `:` type($values))?";
  let builders = [OpBuilder<(ins), [{ /* for the implicit terminator */ }]>];
}

#endif // PLUM_DIALECTS_TILE_STRUCTURE_TD
