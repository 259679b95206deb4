//===- TileMemory.td - Shared and global memory ------------*- tablegen -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_DIALECTS_TILE_MEMORY_TD
#define PLUM_DIALECTS_TILE_MEMORY_TD

include "dialects/Tile/TileDialect.td"

//===----------------------------------------------------------------------===//
// Tiles
//===----------------------------------------------------------------------===//

def Tile_AllocOp : Tile_Named<"alloc", [HasParent<"KernelOp">]> {
  let summary = "reserve a tile of shared memory, undefined at first";
  let description = [{
    `offset` in bytes is set by `plum-tile-to-nvvm`. Two tiles share bytes where a
    barrier lies between the last use of one and the first of the other; an
    exported tile is in use to the kernel's end.

    Constraints: (C1) an offset is a multiple of 1024, where the swizzle starts
    anew.

    Example:
    ```mlir
    tile.kernel @alloc "prepare" chunk 16 warps 1 arguments [] blob 0 {
      %rows = tile.alloc : <16, 64, bf16>
      %sums = tile.alloc at 2048 : <1, 64, f32>
    }
    ```
  }];
  let arguments = (ins OptionalAttr<I64Attr>:$offset);
  let results = (outs Tile_SharedType:$tile);
  let assemblyFormat = "(`at` $offset^)? attr-dict `:` type($tile)";
  let hasVerifier = 1;
}

def Tile_ReuseOp : Tile_Letter<"reuse", "tile", [Pure]> {
  let summary = "take the bytes of a tile that is done with as another tile";
  let description = [{
    The old tile is not used any more once the new one is written.

    Constraints: (C1) the new tile, `offset` bytes in, ends within the old one.
    (C2) `offset` is a multiple of 1024.

    Example:
    ```mlir
    func.func @reuse(%old: !tile.shared<64, 64, bf16>) -> !tile.shared<16, 64, bf16> {
      %tile = tile.reuse %old plus 2048 : <64, 64, bf16> to <16, 64, bf16>
      return %tile : !tile.shared<16, 64, bf16>
    }
    ```
  }];
  let arguments = (ins Tile_SharedType:$from, DefaultValuedAttr<I64Attr, "0">:$offset);
  let results = (outs Tile_SharedType:$tile);
  let assemblyFormat = "$from (`plus` $offset^)? attr-dict `:` type($from) `to` type($tile)";
  let hasVerifier = 1;
}

def Tile_BarrierOp : Tile_Op<"barrier"> {
  let summary = "make the team's writes to shared memory visible to the team";
  let description = [{
    Whatever a warp wrote to shared memory before is seen by every warp, and by
    copies to global memory, after it.

    Example:
    ```mlir
    func.func @exchange(%x: tensor<64x16xbf16>, %t: !tile.shared<64, 16, bf16>) -> tensor<16x64xbf16> {
      tile.store %x to %t : tensor<64x16xbf16>, <64, 16, bf16>
      tile.barrier
      %y = tile.load %t transposed : <64, 16, bf16> -> tensor<16x64xbf16>
      return %y : tensor<16x64xbf16>
    }
    ```
  }];
  let assemblyFormat = "attr-dict";
}

def Tile_LoadOp : Tile_Named<"load"> {
  let summary = "read a tile, or a part of it, into registers";
  let description = [{
    From a tile of bf16 [r, n] comes a matrix: [r, n]; with `strip` its 16 columns
    [r, 16]; with `transposed` the transpose [n, r], which exchanges rows between
    warps.

    From a tile of f32 [r, n] comes a vector [n]: row `row`, 0 if not given. With
    `blocks` comes a matrix [16 r, n] ([16 r, 16] with `strip`), all 16 rows of
    warp i being row i of the tile.

    Constraints: (C1) the result has the element and the shape of what is read.
    (C2) `strip` is the number of an enclosing `tile.strips`, whose strips lie in
    the tile. (C3) `transposed` is of bf16 and without strip; `row` and `blocks` are
    of f32 and exclude one another; `row` is one of the tile's. (C4) layouts: of a
    matrix acc or opb, transposed or by blocks acc; of a vector any.

    Example:
    ```mlir
    func.func @load(%k: !tile.shared<64, 32, bf16>, %sums: !tile.shared<4, 32, f32>) {
      %whole = tile.load %k : <64, 32, bf16> -> tensor<64x32xbf16>
      %kt = tile.load %k transposed : <64, 32, bf16> -> tensor<32x64xbf16>
      %row = tile.load %sums row 3 : <4, 32, f32> -> tensor<32xf32>
      tile.strips 2 {
      ^bb0(%strip: index):
        %x = tile.load %k strip %strip : <64, 32, bf16> -> tensor<64x16xbf16>
        %s = tile.load %sums strip %strip blocks : <4, 32, f32> -> tensor<64x16xf32>
        tile.yield
      }
      return
    }
    ```
  }];
  let arguments = (ins Tile_SharedType:$from, Optional<Index>:$strip, UnitAttr:$transposed, UnitAttr:$blocks,
                       OptionalAttr<I64Attr>:$row);
  let results = (outs Tile_Tensor:$result);
  let assemblyFormat = [{
    $from (`strip` $strip^)? (`row` $row^)? (`transposed` $transposed^)? (`blocks` $blocks^)? attr-dict
    `:` type($from) `->` type($result)
  }];
  let hasVerifier = 1;
}

def Tile_ElementOp : Tile_Letter<"element", "e"> {
  let summary = "read one element of an f32 tile into every thread";
  let description = [{
    Constraints: (C1) `row` and `col` lie in the tile.

    Example:
    ```mlir
    func.func @last(%G: !tile.shared<1, 64, f32>) -> f32 {
      %e = tile.element %G[0, 63] : <1, 64, f32>
      return %e : f32
    }
    ```
  }];
  let arguments = (ins Tile_Shared32:$from, I64Attr:$row, I64Attr:$col);
  let results = (outs F32:$result);
  let assemblyFormat = "$from `[` $row `,` $col `]` attr-dict `:` type($from)";
  let hasVerifier = 1;
}

def Tile_StoreOp : Tile_Op<"store"> {
  let summary = "write registers to a tile, or to a part of it";
  let description = [{
    As `tile.load`: to a tile of bf16 [r, n] a matrix [r, n], with `strip` [r, 16],
    with `transposed` [n, r]. To a tile of f32 a vector [n] goes as row `row`;
    with `tokens` it is one along the rows of matrices.

    Constraints: (C1) the value has the element and the shape of what is written.
    (C2) `strip` is the number of an enclosing `tile.strips`, whose strips lie in
    the tile. (C3) `strip` and `transposed` are of bf16 and exclude one another;
    `row` and `tokens` are of f32, and `row` is one of the tile's. (C4) layouts: of a matrix acc, of a vector
    linear, or acc_col with `tokens`.

    Example:
    ```mlir
    func.func @store(%x: tensor<64x32xbf16>, %sum: tensor<32xf32>, %k: !tile.shared<64, 32, bf16>,
                     %sums: !tile.shared<4, 32, f32>) {
      tile.store %x to %k : tensor<64x32xbf16>, <64, 32, bf16>
      tile.store %sum to %sums row 3 : tensor<32xf32>, <4, 32, f32>
      return
    }
    ```
  }];
  let arguments = (ins Tile_Tensor:$value, Tile_SharedType:$to, Optional<Index>:$strip, UnitAttr:$transposed, UnitAttr:$tokens,
                       OptionalAttr<I64Attr>:$row);
  let assemblyFormat = [{
    $value `to` $to (`strip` $strip^)? (`row` $row^)? (`transposed` $transposed^)? (`tokens` $tokens^)? attr-dict
    `:` type($value) `,` type($to)
  }];
  let hasVerifier = 1;
}

def Tile_StashOp : Tile_Op<"stash"> {
  let summary = "leave a strip's registers in shared memory";
  let description = [{
    For the same threads to read again with `tile.unstash`, each its own: no barrier
    is needed, and in what order they lie is nobody's business. A strip has room for
    one matrix of f32 or for two of bf16, the second with `second`.

    Constraints: (C1) the value is [r, 16], of an f32 tile [r, n]. (C2) `strip` is the
    number of an enclosing `tile.strips`, whose strips lie in the tile. (C3) `second`
    is of bf16. (C4) layouts: of f32 opb, of bf16 acc.

    Example:
    ```mlir
    func.func @stash(%a: tensor<64x16xf32>, %x: tensor<64x16xbf16>, %kept: !tile.shared<64, 32, f32>) {
      tile.strips 2 {
      ^bb0(%strip: index):
        tile.stash %a in %kept strip %strip : tensor<64x16xf32>, <64, 32, f32>
        %b = tile.unstash %kept strip %strip : <64, 32, f32> -> tensor<64x16xf32>
        tile.stash %x in %kept strip %strip second : tensor<64x16xbf16>, <64, 32, f32>
        tile.yield
      }
      return
    }
    ```
  }];
  let arguments = (ins Tile_Tensor:$value, Tile_Shared32:$to, Index:$strip, UnitAttr:$second);
  let assemblyFormat = "$value `in` $to `strip` $strip (`second` $second^)? attr-dict `:` type($value) `,` type($to)";
  let hasVerifier = 1;
}

def Tile_UnstashOp : Tile_Op<"unstash"> {
  let summary = "read a strip's registers back";
  let description = [{
    Constraints: as of `tile.stash`.

    Example: see `tile.stash`.
    ```mlir
    func.func @unstash(%kept: !tile.shared<64, 16, f32>) {
      tile.strips 1 {
      ^bb0(%strip: index):
        %b = tile.unstash %kept strip %strip : <64, 16, f32> -> tensor<64x16xf32>
        tile.yield
      }
      return
    }
    ```
  }];
  let arguments = (ins Tile_Shared32:$from, Index:$strip, UnitAttr:$second);
  let results = (outs Tile_Tensor:$result);
  let assemblyFormat = "$from `strip` $strip (`second` $second^)? attr-dict `:` type($from) `->` type($result)";
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Rings
//===----------------------------------------------------------------------===//

def Tile_RingOp : Tile_Letter<"ring", "ring", [HasParent<"KernelOp">]> {
  let summary = "make a ring of stages, each with the parts of one chunk";
  let description = [{
    Stages are filled by a producer in the order of chunks, as far ahead as there
    are stages. On sm_90a the producer is a warpgroup of its own that gives up its
    registers; blobs come by bulk copies, rows by 16-byte copies. On sm_80 it is one
    warp.

    Constraints: (C1) the kernel scans. (C2) there is a stage and a part. (C3) a
    part of the blob starts at a multiple of 16 bytes and lies within the blob.
    (C4) a part with rows is [R, columns], `sliced` [R, slice], of an argument of
    the part's element.

    Example:
    ```mlir
    tile.kernel @ring "scan" chunk 16 warps 1 arguments [#tile.arg<"v" : bf16>] blob 4096 slice 16 of 4 {
      %ring = tile.ring 3 [#tile.part<type = <16, 128, bf16>, blob = 0>,
                           #tile.part<type = <16, 16, bf16>, rows = "v", sliced = true>] : !tile.ring
    }
    ```
  }];
  let arguments = (ins I64Attr:$stages, TypedArrayAttrBase<Tile_PartAttr, "the parts of a stage">:$parts);
  let results = (outs Tile_RingType:$ring);
  let assemblyFormat = "$stages $parts attr-dict `:` type($ring)";
  let hasVerifier = 1;
}

def Tile_AcquireOp : Tile_Named<"acquire", [HasParent<"ChunksOp">]> {
  let summary = "wait until this chunk's stage is filled";
  let description = [{
    Gives the parts of the stage, valid up to its release. They print under the
    input's name, or as `at` and the offset in the blob.

    Constraints: (C1) the results have the types of the ring's parts, in order.

    Example:
    ```mlir
    tile.kernel @acquire "scan" chunk 16 warps 1 arguments [#tile.arg<"v" : bf16>] blob 2048 slice 16 of 1 {
      %ring = tile.ring 2 [#tile.part<type = <16, 64, bf16>, blob = 0>,
                           #tile.part<type = <16, 16, bf16>, rows = "v", sliced = true>] : !tile.ring
      tile.chunks {
        %at0, %v = tile.acquire %ring : !tile.ring -> !tile.shared<16, 64, bf16>, !tile.shared<16, 16, bf16>
        tile.release %ring : !tile.ring
        tile.yield
      }
    }
    ```
  }];
  let arguments = (ins Tile_RingType:$ring);
  let results = (outs Variadic<Tile_SharedType>:$parts);
  let assemblyFormat = "$ring attr-dict `:` type($ring) `->` type($parts)";
  let hasVerifier = 1;
}

def Tile_PreviousOp : Tile_Named<"previous", [ParentOneOf<["ChunksOp", "TailOp"]>]> {
  let summary = "give the parts of the stage of the chunk before";
  let description = [{
    On the first chunk those of this chunk's stage; after `tile.chunks` those of
    the last. Nothing is waited for: the chunk before acquired it.

    Constraints: (C1) the results have the types of the ring's parts, in order.
    (C2) the ring has two stages or more.

    Example:
    ```mlir
    tile.kernel @previous "scan" chunk 16 warps 1 arguments [] blob 2048 slice 16 of 1 {
      %ring = tile.ring 2 [#tile.part<type = <16, 64, bf16>, blob = 0>] : !tile.ring
      tile.chunks {
        %at0 = tile.acquire %ring : !tile.ring -> !tile.shared<16, 64, bf16>
        %before = tile.previous %ring : !tile.ring -> !tile.shared<16, 64, bf16>
        tile.release %ring previous : !tile.ring
        tile.yield
      }
    }
    ```
  }];
  let arguments = (ins Tile_RingType:$ring);
  let results = (outs Variadic<Tile_SharedType>:$parts);
  let assemblyFormat = "$ring attr-dict `:` type($ring) `->` type($parts)";
  let hasVerifier = 1;
}

def Tile_ReleaseOp : Tile_Op<"release", [HasParent<"ChunksOp">]> {
  let summary = "give a stage back to the producer";
  let description = [{
    This chunk's stage or, with `previous`, that of the chunk before (nothing on
    the first chunk). Without `previous` every product that is under way is waited
    for first; with it, whoever writes the kernel sees to it that the products
    that read the stage have been.

    Constraints: (C1) with `previous` the ring has two stages or more.

    Example:
    ```mlir
    tile.kernel @release "scan" chunk 16 warps 1 arguments [] blob 2048 slice 16 of 1 {
      %ring = tile.ring 2 [#tile.part<type = <16, 64, bf16>, blob = 0>] : !tile.ring
      tile.chunks {
        %at0 = tile.acquire %ring : !tile.ring -> !tile.shared<16, 64, bf16>
        tile.release %ring : !tile.ring
        tile.yield
      }
    }
    ```
  }];
  let arguments = (ins Tile_RingType:$ring, UnitAttr:$previous);
  let assemblyFormat = "$ring (`previous` $previous^)? attr-dict `:` type($ring)";
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// From global memory
//===----------------------------------------------------------------------===//

def Tile_FetchOp : Tile_Op<"fetch"> {
  let summary = "start copying the chunk's rows of an input to shared memory";
  let description = [{
    Rows past the end of the sequence are zero. `tile.arrived` waits for all
    copies.

    Constraints: (C1) stands in `prepare`. (C2) `input` is an argument of the
    tile's element. (C3) the tile has R rows.

    Example:
    ```mlir
    tile.kernel @fetch "prepare" chunk 16 warps 1 arguments [#tile.arg<"k" : bf16>] blob 0 {
      %k = tile.alloc : <16, 64, bf16>
      tile.fetch "k" to %k : <16, 64, bf16>
      tile.arrived
    }
    ```
  }];
  let arguments = (ins StrAttr:$input, Tile_Shared16:$to);
  let assemblyFormat = "$input `to` $to attr-dict `:` type($to)";
  let hasVerifier = 1;
}

def Tile_ArrivedOp : Tile_Op<"arrived"> {
  let summary = "wait for the team's copies";
  let description = [{
    Of all warps; it is a barrier as well.

    Example: see `tile.fetch`.
    ```mlir
    tile.kernel @arrived "prepare" chunk 16 warps 1 arguments [] blob 0 {
      tile.arrived
    }
    ```
  }];
  let assemblyFormat = "attr-dict";
}

def Tile_ParamOp : Tile_Named<"param", [Pure]> {
  let summary = "read this head's values of a param";
  let description = [{
    A number; a row [n]; with `strip` 16 values of the row. Where they scale the
    rows of the transposed state (layout acc_col in a kernel that scans), those
    of the team's slice.

    Constraints: (C1) `name` is an argument of the kernel. (C2) `strip` is the
    number of an enclosing `tile.strips` and gives [16].

    Example:
    ```mlir
    tile.kernel @param "prepare" chunk 16 warps 1 arguments [#tile.arg<"a" : f32>, #tile.arg<"b" : bf16>] blob 0 {
      %a = tile.param "a" : f32
      %b = tile.param "b" : tensor<64xf32>
    }
    ```
  }];
  let arguments = (ins StrAttr:$name, Optional<Index>:$strip);
  let results = (outs Tile_VectorOrNumber:$result);
  let assemblyFormat = "$name (`strip` $strip^)? attr-dict `:` type($result)";
  let hasVerifier = 1;
}

def Tile_ColumnOp : Tile_Named<"column"> {
  let summary = "read the chunk's values of an input that is a scalar per token";
  let description = [{
    Tokens past the end of the sequence read 0.

    Constraints: (C1) stands in `prepare`. (C2) `name` is an argument of the
    kernel. (C3) the result is [R].

    Example:
    ```mlir
    tile.kernel @column "prepare" chunk 16 warps 1 arguments [#tile.arg<"beta" : bf16>] blob 0 {
      %beta = tile.column "beta" : tensor<16xf32>
    }
    ```
  }];
  let arguments = (ins StrAttr:$name);
  let results = (outs Tile_Vector:$result);
  let assemblyFormat = "$name attr-dict `:` type($result)";
  let hasVerifier = 1;
}

def Tile_StepOp : Tile_Op<"step"> {
  let summary = "say which of its token's steps each row is";
  let description = [{
    0.0, 1.0, ..., as a column: where steps differ in more than what they read.

    Constraints: (C1) stands in `prepare`. (C2) the result is [R].

    Example:
    ```mlir
    tile.kernel @steps "prepare" chunk 16 steps 2 warps 2 arguments [] blob 0 {
      %s = tile.step : tensor<32xf32>
    }
    ```
  }];
  let results = (outs Tile_Vector:$result);
  let assemblyFormat = "attr-dict `:` type($result)";
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// To global memory
//===----------------------------------------------------------------------===//

def Tile_ExportOp : Tile_Op<"export"> {
  let summary = "copy a tile to the chunk's blob";
  let description = [{
    The tile's bytes as they are, after a barrier. The tile is not written again:
    on sm_90a the copy runs on.

    Constraints: (C1) stands in `prepare`. (C2) the bytes from `blob` on lie
    within the blob and start at a multiple of 16.

    Example:
    ```mlir
    tile.kernel @export "prepare" chunk 16 warps 1 arguments [#tile.arg<"k" : bf16>] blob 2048 {
      %k = tile.alloc : <16, 64, bf16>
      tile.fetch "k" to %k : <16, 64, bf16>
      tile.arrived
      tile.export %k to 0 : <16, 64, bf16>
    }
    ```
  }];
  let arguments = (ins Tile_SharedType:$tile, I64Attr:$blob);
  let assemblyFormat = "$tile `to` $blob attr-dict `:` type($tile)";
  let hasVerifier = 1;
}

def Tile_ExportVectorOp : Tile_Op<"export_vector"> {
  let summary = "write a vector to the chunk's blob, as f32";
  let description = [{
    With `tokens`, one element for each row of the chunk, else along the columns.

    Constraints: (C1) stands in `prepare`. (C2) the bytes from `blob` on lie
    within the blob and start at a multiple of 16. (C3) with `tokens` the vector is
    [R]. (C4) layouts: linear; with `tokens` acc_col.

    Example:
    ```mlir
    tile.kernel @vectors "prepare" chunk 16 warps 1 arguments [] blob 320 {
      %one = arith.constant dense<1.0> : tensor<16xf32>
      %row = arith.constant dense<0.0> : tensor<64xf32>
      tile.export_vector %one tokens to 0 : tensor<16xf32>
      tile.export_vector %row to 64 : tensor<64xf32>
    }
    ```
  }];
  let arguments = (ins Tile_Vector:$value, UnitAttr:$tokens, I64Attr:$blob);
  let assemblyFormat = "$value (`tokens` $tokens^)? `to` $blob attr-dict `:` type($value)";
  let hasVerifier = 1;
}

def Tile_ExportMatrixOp : Tile_Op<"export_matrix"> {
  let summary = "write a matrix in registers to the chunk's blob";
  let description = [{
    The same bytes that `tile.export` of a tile with these elements writes.

    Constraints: (C1) stands in `prepare`. (C2) the bytes from `blob` on lie
    within the blob and start at a multiple of 16. (C3) layouts: acc.

    Example:
    ```mlir
    tile.kernel @matrix "prepare" chunk 16 warps 1 arguments [] blob 2048 {
      %zero = arith.constant dense<0.0> : tensor<16x16xbf16>
      tile.export_matrix %zero to 0 : tensor<16x16xbf16>
    }
    ```
  }];
  let arguments = (ins Tile_Matrix16:$value, I64Attr:$blob);
  let assemblyFormat = "$value `to` $blob attr-dict `:` type($value)";
  let hasVerifier = 1;
}

def Tile_ExportRowsOp : Tile_Op<"export_rows"> {
  let summary = "write the rows of a tile to an output";
  let description = [{
    Those of tokens that are inside the sequence, after a barrier: an output that
    does not depend on the state is done here.

    Constraints: (C1) stands in `prepare`, and `output` is an argument of bf16. (C2)
    the tile has R rows.

    Example:
    ```mlir
    tile.kernel @rows "prepare" chunk 16 warps 1 arguments [#tile.arg<"v" : bf16>, #tile.arg<"o" : bf16>] blob 0 {
      %v = tile.alloc : <16, 64, bf16>
      tile.fetch "v" to %v : <16, 64, bf16>
      tile.arrived
      tile.export_rows %v to "o" : <16, 64, bf16>
    }
    ```
  }];
  let arguments = (ins Tile_Shared16:$tile, StrAttr:$output);
  let assemblyFormat = "$tile `to` $output attr-dict `:` type($tile)";
  let hasVerifier = 1;
}

def Tile_WriteRowsOp : Tile_Op<"write_rows", [ParentOneOf<["ChunksOp", "TailOp"]>]> {
  let summary = "write rows of an output through shared memory";
  let description = [{
    `value` is transposed, [slice, R]. Written are the rows of this chunk, or with
    `previous` of the chunk before, that are inside the sequence; the columns of
    the kernel's slice. Each warpgroup (the team, where smaller) writes the columns
    that it stored; its barriers are inside.

    Constraints: (C1) `output` is an argument of bf16. (C2) the value is [slice, R],
    the panel [R, slice]. (C3) layouts: acc.

    Example:
    ```mlir
    tile.kernel @write "scan" chunk 16 warps 1 arguments [#tile.arg<"v" : bf16>, #tile.arg<"o" : bf16>] blob 0
        slice 16 of 1 {
      %panel = tile.alloc : <16, 16, bf16>
      %ring = tile.ring 2 [#tile.part<type = <16, 16, bf16>, rows = "v", sliced = true>] : !tile.ring
      tile.chunks {
        %v = tile.acquire %ring : !tile.ring -> !tile.shared<16, 16, bf16>
        %vt = tile.load %v transposed : <16, 16, bf16> -> tensor<16x16xbf16>
        tile.write_rows %vt through %panel to "o" : tensor<16x16xbf16>, <16, 16, bf16>
        tile.release %ring : !tile.ring
        tile.yield
      }
    }
    ```
  }];
  let arguments = (ins Tile_Matrix16:$value, Tile_Shared16:$panel, StrAttr:$output, UnitAttr:$previous);
  let assemblyFormat = [{
    $value `through` $panel `to` $output (`previous` $previous^)? attr-dict `:` type($value) `,` type($panel)
  }];
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// States
//===----------------------------------------------------------------------===//

def Tile_KeepStateOp : Tile_Op<"keep_state", [HasParent<"KernelOp">]> {
  let summary = "copy a vector state to the blob of its sequence's first chunk";
  let description = [{
    The initial state, f32, zeros where none is given; of later chunks nothing is
    written. The teams of a scan all read a vector state and one of them writes it
    at the end, maybe to where it came from, while others have yet to start: so
    they read this copy.

    Constraints: (C1) stands in `prepare`, and `name` is an argument. (C2) `columns`
    numbers from `blob` on lie within the blob and start at a multiple of 16 bytes.

    Example:
    ```mlir
    tile.kernel @keep "prepare" chunk 16 warps 1 arguments [#tile.arg<"z" : f32>] blob 256 {
      tile.keep_state "z" 64 to 0
    }
    ```
  }];
  let arguments = (ins StrAttr:$name, I64Attr:$columns, I64Attr:$blob);
  let assemblyFormat = "$name $columns `to` $blob attr-dict";
  let hasVerifier = 1;
}

def Tile_LoadStateOp : Tile_Named<"load_state", [HasParent<"KernelOp">]> {
  let summary = "read a state at the start of the segment";
  let description = [{
    Of a matrix the transposed slice, [slice, K], of a vector all of it, [K]: of the
    first segment the initial state, zeros where none is given; of a later one what
    `combine` left in plum_gpu_args.segment_states. `kept` says where in the blob
    `tile.keep_state` left the copy of a vector.

    `summary`: a slice of B starts from the initial state in the first segment, so
    that B is all that is known about its end, and from zeros in later ones; a
    slice of M starts from rows of the identity, [K slice, K].

    Constraints: (C1) has `summary` in kernels with that role, and only there. (C2)
    the kernel scans, and `name` is an argument. (C3) `kept` is of vectors, outside
    of summaries, and only there. (C4) layouts: acc, of a vector linear.

    Example: see `tile.chunks`.
    ```mlir
    tile.kernel @load "scan" chunk 16 warps 1 arguments [#tile.arg<"S" : f32>, #tile.arg<"z" : f32>] blob 512
        slice 16 of 1 {
      %S = tile.load_state "S" : tensor<16x128xf32>
      %z = tile.load_state "z" kept 0 : tensor<128xf32>
    }
    ```
  }];
  let arguments = (ins StrAttr:$name, UnitAttr:$summary, OptionalAttr<I64Attr>:$kept);
  let results = (outs Tile_Float:$result);
  let assemblyFormat = "$name (`summary` $summary^)? (`kept` $kept^)? attr-dict `:` type($result)";
  let hasVerifier = 1;
}

def Tile_StoreStateOp : Tile_Op<"store_state", [HasParent<"KernelOp">]> {
  let summary = "write a state at the end of the segment";
  let description = [{
    Of the last segment to the final state, where it is wanted. Where an earlier
    segment ends, the next starts: nothing is written. A vector [K], which all teams
    of a head have, is written by that of the first slice.

    Where the run wants states in between (plum_gpu_args.snapshot_every), what is
    stored is a result of the kernel's `tile.chunks`, and the state argument has a
    `.snapshot`, the chunk's value is written there after every so many chunks.

    `summary`: the slice of M or B to plum_gpu_args.segment_states, which holds
    M^T [K, K] (or its diagonal, see `tile.store_decay`) and B^T [V, K], f32, for each
    segment of each head of each sequence; a vector is one more row of B^T. Rows of
    a last slice that are beyond K or V are left out.

    Constraints: (C1) has `summary` in kernels with that role, and only there. (C2)
    the kernel scans, and `name` is an argument, without `summary` with its
    `.final`. (C3) layouts: acc, of a vector linear.

    Example: see `tile.chunks`.
    ```mlir
    tile.kernel @copy "scan" chunk 16 warps 1 arguments [#tile.arg<"S" : f32>, #tile.arg<"S.final" : f32>] blob 0
        slice 16 of 1 {
      %S = tile.load_state "S" : tensor<16x128xf32>
      tile.store_state %S to "S" : tensor<16x128xf32>
    }
    ```
  }];
  let arguments = (ins Tile_Float:$value, StrAttr:$name, UnitAttr:$summary);
  let assemblyFormat = "$value `to` $name (`summary` $summary^)? attr-dict `:` type($value)";
  let hasVerifier = 1;
}

def Tile_StoreDecayOp : Tile_Op<"store_decay", [HasParent<"KernelOp">]> {
  let summary = "write the decay of the whole segment, the diagonal of M";
  let description = [{
    In the place of M, [K]: where nothing is erased, M is diagonal, and no team
    follows the identity.

    Constraints: (C1) stands in a kernel with the role `summary` that is `diagonal`.
    (C2) layouts: linear.

    Example:
    ```mlir
    tile.kernel @decays "summary" chunk 16 warps 1 arguments [#tile.arg<"S" : f32>] blob 0 slice 16 of 1
        diagonal {
      %S = tile.load_state "S" summary : tensor<16x64xf32>
      %d = arith.constant dense<1.0> : tensor<64xf32>
      tile.store_decay %d : tensor<64xf32>
    }
    ```
  }];
  let arguments = (ins Tile_Vector:$value);
  let assemblyFormat = "$value attr-dict `:` type($value)";
  let hasVerifier = 1;
}

#endif // PLUM_DIALECTS_TILE_MEMORY_TD
