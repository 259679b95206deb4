// What cannot be a tile, a part or a layout.
// RUN: plum-opt %s -split-input-file -verify-diagnostics

// expected-error @below {{expects a tile of bf16 or f32, got 'f16'}}
func.func private @shared_c1_element(!tile.shared<64, 128, f16>)

// -----

// expected-error @below {{expects a tile of 'bf16' to have multiples of 16 rows and columns, got 64 and 24}}
func.func private @shared_c1_columns(!tile.shared<64, 24, bf16>)

// -----

// expected-error @below {{expects a tile of 'f32' to have multiples of 1 rows and columns, got 0 and 24}}
func.func private @shared_c1_empty(!tile.shared<0, 24, f32>)

// -----

// expected-error @below {{expects either an offset in the blob or rows}}
func.func private @part_c1_both() attributes {p = #tile.part<type = <16, 64, bf16>, blob = 0, rows = "k">}

// -----

// expected-error @below {{expects either an offset in the blob or rows}}
func.func private @part_c1_neither() attributes {p = #tile.part<type = <16, 64, bf16>>}

// -----

// expected-error @below {{expects rows of bf16, got 'f32'}}
func.func private @part_c2_element() attributes {p = #tile.part<type = <16, 64, f32>, rows = "k">}

// -----

// expected-error @below {{expected ::plum::tile::LayoutKind to be one of: acc, acc_row, acc_col, opb, opb_row, opb_col, linear}}
// expected-error @below {{failed to parse}}
func.func private @layout(tensor<16xf32, #tile.layout<diagonal>>)
