// There are no conversions: what can only be made in one layout is not had in
// another.
// RUN: plum-opt %s --pass-pipeline='builtin.module(tile.kernel(tile-assign-layouts))' -split-input-file -verify-diagnostics

tile.kernel @sum_of_sums "prepare" chunk 16 warps 1 arguments [] blob 2048 {
  %x = arith.constant dense<0.0> : tensor<16x16xf32>
  // expected-error @below {{'tile.cumsum' op makes a value in layout acc, but a use needs opb}}
  %c = tile.cumsum %x : tensor<16x16xf32> -> tensor<16x16xf32>
  // expected-note @below {{the use}}
  %d = tile.cumsum %c : tensor<16x16xf32> -> tensor<16x16xf32>
  %h = arith.truncf %d : tensor<16x16xf32> to tensor<16x16xbf16>
  tile.export_matrix %h to 0 : tensor<16x16xbf16>
}

// -----

tile.kernel @sum_along_columns "prepare" chunk 16 warps 1 arguments [] blob 64 {
  %x = arith.constant dense<0.0> : tensor<16x16xf32>
  // expected-error @below {{'tile.reduce' op makes a value in layout acc_col, but a use needs linear}}
  %s = tile.reduce %x : tensor<16x16xf32> -> tensor<16xf32>
  // expected-note @below {{the use}}
  tile.export_vector %s to 0 : tensor<16xf32>
}

// -----

tile.kernel @carried_twice "prepare" chunk 16 warps 1 arguments [] blob 2048 {
  %F = tile.alloc : <1, 16, f32>
  %x = arith.constant dense<0.0> : tensor<16x16xf32>
  %y = tile.strips 1 init(%x : tensor<16x16xf32>) {
  ^bb0(%s: index, %c: tensor<16x16xf32>):
    // expected-error @below {{'tile.block_sum' op needs a carried value in layout opb}}
    tile.block_sum %c to %F : tensor<16x16xf32>, <1, 16, f32>
    tile.yield %c : tensor<16x16xf32>
  } : tensor<16x16xf32>
  %h = arith.truncf %y : tensor<16x16xf32> to tensor<16x16xbf16>
  tile.export_matrix %h to 0 : tensor<16x16xbf16>
}
