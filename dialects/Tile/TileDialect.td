//===- TileDialect.td - Layouts, tiles and rings -----------*- tablegen -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_DIALECTS_TILE_DIALECT_TD
#define PLUM_DIALECTS_TILE_DIALECT_TD

include "dialects/Tile/TileEnums.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/OpAsmInterface.td"
include "mlir/IR/OpBase.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/ControlFlowInterfaces.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Tile_Dialect : Dialect {
  let name = "tile";
  let cppNamespace = "::plum::tile";
  let summary = "kernels whose values are tiles with a place on the chip";
  let description = [{
    A kernel is run by a team of warps. Its values are tensors of static shape
    in the team's registers, in shared memory, or in a ring of stages that a
    producer keeps filling. Elementwise maths are the ops of `arith` and `math`
    on such tensors. docs/gpu.md tells the whole story.

    The encoding of a tensor says which thread holds what (`#tile.layout`). All
    matrix layouts give each warp 16 whole rows, so a team of w warps holds
    matrices of 16 w rows, rows never meet except in the ops that say so, and
    the result of one product is the left operand of the next without moving a
    bit. `tile-assign-layouts` finds the encodings from the ops that fix them:
    before it no tensor of a kernel has one, afterwards each has. A constraint
    that names a layout binds from then on.

    Shared memory tiles of 16-bit elements are stored in panels of 64 columns, a
    row of a panel being 128 bytes whose 16-byte pieces are permuted by the row
    (piece p of row r lies at p xor (r mod 8)): what tensor cores and ldmatrix
    read without bank conflicts, and what `prepare` leaves in memory for `scan`
    to copy in one piece.

    In the descriptions w is the number of warps, C that of the chunk's tokens,
    R that of its rows (C, where a token is one update), and m = 16 w. A kernel that scans is one with the role `scan` or `summary`.

    It is a dialect of its own because what makes a program legal here is where
    its values are: in which registers, under which barrier, in which stage.
  }];
  let useDefaultAttributePrinterParser = 1;
  let useDefaultTypePrinterParser = 1;
}

//===----------------------------------------------------------------------===//
// Attributes
//===----------------------------------------------------------------------===//

class Tile_Attr<string name, string mnemonicText> : AttrDef<Tile_Dialect, name> {
  let mnemonic = mnemonicText;
}

def Tile_LayoutAttr : Tile_Attr<"Layout", "layout"> {
  let summary = "which thread of the team holds which element";
  let description = [{
    `tensor<64x16xf32, #tile.layout<acc>>`. With lane l, g = l / 4, t = l % 4, in
    warp w:

    - `acc`: a matrix; the thread has rows 16w + g and 16w + g + 8, columns 8j +
      2t and 8j + 2t + 1. The accumulators of mma.m16n8 and wgmma; in bf16, their
      left operand. `acc_row`, `acc_col`: a vector along the columns or rows of
      such a matrix.
    - `opb`: a matrix; rows 16w + 2t, + 1, + 8, + 9, columns 8j + g: the right
      operand of mma.m16n8k16 with the rows as k. `opb_row`, `opb_col` alike.
    - `linear`: a vector; thread i has elements i, i + 32 w, ...
  }];
  let parameters = (ins EnumParameter<Tile_LayoutKindEnum>:$kind);
  let assemblyFormat = "`<` $kind `>`";
}

def Tile_ArgumentAttr : Tile_Attr<"Argument", "arg"> {
  let summary = "a tensor of plum_gpu_args: name and element type";
  let description = [{
    `#tile.arg<"k" : bf16>`. A state S stands in the list as `S` (where it comes
    from), `S.final` (where it goes) and `S.snapshot`.
  }];
  let parameters = (ins StringRefParameter<"name in the spec">:$name, "::mlir::Type":$element);
  let assemblyFormat = "`<` $name `:` $element `>`";
}

//===----------------------------------------------------------------------===//
// Types
//===----------------------------------------------------------------------===//

class Tile_Type<string name, string mnemonicText> : TypeDef<Tile_Dialect, name> {
  let mnemonic = mnemonicText;
}

def Tile_SharedType : Tile_Type<"Shared", "shared"> {
  let summary = "a tile in shared memory";
  let description = [{
    `!tile.shared<64, 128, bf16>`: rows, columns, element. bf16 tiles are stored
    in swizzled panels, f32 tiles row by row.

    Constraints: (C1) bf16 with multiples of 16 rows and columns, or f32 with at
    least one of each.
  }];
  let parameters = (ins "int64_t":$rows, "int64_t":$cols, "::mlir::Type":$element);
  let assemblyFormat = "`<` $rows `,` $cols `,` $element `>`";
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    bool swizzled() const { return getElement().getIntOrFloatBitWidth() == 16; }
    /// Panels of 64 columns, for 16-bit elements.
    int64_t panels() const { return (getCols() + 63) / 64; }
    int64_t bytes() const {
      return swizzled() ? panels() * getRows() * 128 : getRows() * getCols() * 4;
    }
  }];
}

def Tile_RingType : Tile_Type<"Ring", "ring"> {
  let summary = "stages in shared memory that a producer fills chunk after chunk";
  let description = [{ `!tile.ring`. What a stage holds is said by the `tile.ring` that makes it. }];
  let parameters = (ins);
}

// After the type that it holds.
def Tile_PartAttr : Tile_Attr<"Part", "part"> {
  let summary = "what one piece of a stage holds and where it comes from";
  let description = [{
    `#tile.part<type = !tile.shared<64, 128, bf16>, blob = 0>`: a copy of the bytes
    at that offset of the chunk's blob (with `sliced`, of the panels of this kernel's
    slice). `#tile.part<type = ..., rows = "k">`: the chunk's
    rows of an input (with `sliced`, the columns of this kernel's slice); rows past
    the end of the sequence are zero.

    Constraints: (C1) either `blob` or `rows`. (C2) rows are bf16.
  }];
  let parameters = (ins "::plum::tile::SharedType":$type, DefaultValuedParameter<"int64_t", "-1">:$blob,
                        OptionalParameter<"::mlir::StringAttr">:$rows,
                        DefaultValuedParameter<"bool", "false">:$sliced);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

//===----------------------------------------------------------------------===//
// Operands
//===----------------------------------------------------------------------===//

class Tile_TensorOf<list<Type> elements, int rank, string what>
    : RankedTensorOf<elements, [HasAnyRankOfPred<[rank]>, HasStaticShapePred], what # " of constant shape">;
def Tile_Matrix : Tile_TensorOf<[F32, BF16], 2, "matrix">;
def Tile_Matrix32 : Tile_TensorOf<[F32], 2, "matrix">;
def Tile_Matrix16 : Tile_TensorOf<[BF16], 2, "matrix">;
def Tile_Vector : Tile_TensorOf<[F32], 1, "vector">;
def Tile_Tensor : AnyTypeOf<[Tile_Matrix, Tile_Vector]>;
def Tile_Float : AnyTypeOf<[Tile_Matrix32, Tile_Vector]>;
def Tile_VectorOrNumber : AnyTypeOf<[F32, Tile_Vector]>;

class Tile_SharedOf<string element, string what>
    : Type<And<[CPred<"::llvm::isa<::plum::tile::SharedType>($_self)">,
                CPred<"::llvm::cast<::plum::tile::SharedType>($_self).getElement().is" # element # "()">]>,
           what, "::plum::tile::SharedType">;
def Tile_Shared16 : Tile_SharedOf<"BF16", "tile of bf16">;
def Tile_Shared32 : Tile_SharedOf<"F32", "tile of f32">;

class Tile_Op<string mnemonic, list<Trait> traits = []> : Op<Tile_Dialect, mnemonic, traits>;

/// An op whose results print under a name that Tile.cpp finds.
class Tile_Named<string mnemonic, list<Trait> traits = []>
    : Tile_Op<mnemonic, !listconcat([DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmResultNames"]>], traits)>;

/// An op with one result that prints under a letter.
class Tile_Letter<string mnemonic, string letter, list<Trait> traits = []> : Tile_Named<mnemonic, traits> {
  let extraClassDefinition = [{
    void $cppClass::getAsmResultNames(::mlir::OpAsmSetValueNameFn setName) {
      for (::mlir::Value result : getOperation()->getResults())
        setName(result, "}] # letter # [{");
    }
  }];
}

#endif // PLUM_DIALECTS_TILE_DIALECT_TD
