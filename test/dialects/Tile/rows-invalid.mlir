// Each numbered constraint of ops on rows and of sums, broken once.
// RUN: plum-opt %s -split-input-file -verify-diagnostics

// expected-note @below {{the kernel}}
tile.kernel @valid_c1 "scan" chunk 16 warps 1 arguments [] blob 0 slice 16 of 1 {
  %x = arith.constant dense<0.0> : tensor<16xf32>
  // expected-error @below {{'tile.valid' op expects a kernel that prepares, got role 'scan'}}
  %y = tile.valid %x else 0.0 : tensor<16xf32> -> tensor<16xf32>
}

// -----

tile.kernel @valid_c2_rows "prepare" chunk 16 warps 1 arguments [] blob 0 {
  %x = arith.constant dense<0.0> : tensor<32xf32>
  // expected-error @below {{'tile.valid' op expects 16 rows, got 'tensor<32xf32>'}}
  %y = tile.valid %x else 0.0 : tensor<32xf32> -> tensor<32xf32>
}

// -----

tile.kernel @valid_c2_type "prepare" chunk 16 warps 1 arguments [] blob 0 {
  %x = arith.constant dense<0.0> : tensor<16xf32>
  // expected-error @below {{'tile.valid' op expects a result of type 'tensor<16xf32>', got 'tensor<16x16xf32>'}}
  %y = tile.valid %x else 0.0 : tensor<16xf32> -> tensor<16x16xf32>
}

// -----

tile.kernel @valid_c3 "prepare" chunk 16 warps 1 arguments [] blob 0 {
  %x = arith.constant dense<0.0> : tensor<16xf32, #tile.layout<acc_row>>
  // expected-error @below {{'tile.valid' op expects the value in layout acc or opb or acc_col or opb_col or linear, got acc_row}}
  %y = tile.valid %x else 0.0 : tensor<16xf32, #tile.layout<acc_row>> -> tensor<16xf32, #tile.layout<acc_row>>
}

// -----

tile.kernel @values_c1 "scan" chunk 16 warps 1 arguments [] blob 0 slice 16 of 1 {
  %x = arith.constant dense<0.0> : tensor<16x16xf32>
  // expected-error @below {{'tile.values' op expects a kernel with the role 'summary', got 'scan'}}
  %y = tile.values %x : tensor<16x16xf32>
}

// -----

func.func @broadcast_c1_row(%x: tensor<16xf32>) {
  // expected-error @below {{'tile.broadcast' op expects a matrix of 16 columns, got 'tensor<16x32xf32>'}}
  %y = tile.broadcast %x rows : tensor<16xf32> -> tensor<16x32xf32>
  return
}

// -----

func.func @broadcast_c1_column(%x: tensor<32xf32>) {
  // expected-error @below {{'tile.broadcast' op expects a matrix of 32 rows, got 'tensor<16x32xf32>'}}
  %y = tile.broadcast %x : tensor<32xf32> -> tensor<16x32xf32>
  return
}

// -----

func.func @broadcast_c2(%x: tensor<16xf32, #tile.layout<acc_col>>) {
  // expected-error @below {{'tile.broadcast' op expects a vector in layout opb_col, got acc_col}}
  %y = tile.broadcast %x : tensor<16xf32, #tile.layout<acc_col>> -> tensor<16x32xf32, #tile.layout<opb>>
  return
}

// -----

func.func @strip_c1(%x: tensor<16x32xf32, #tile.layout<opb>>) {
  tile.strips 2 {
  ^bb0(%s: index):
    // expected-error @below {{'tile.strip' op expects a result of type 'tensor<16x16xf32, #tile.layout<opb>>', got 'tensor<16x16xf32, #tile.layout<acc>>'}}
    %y = tile.strip %x at %s : tensor<16x32xf32, #tile.layout<opb>> -> tensor<16x16xf32, #tile.layout<acc>>
    tile.yield
  }
  return
}

// -----

func.func @strip_c2(%x: tensor<16x32xf32>, %i: index) {
  // expected-error @below {{'tile.strip' op expects the strip of a 'tile.strips'}}
  %y = tile.strip %x at %i : tensor<16x32xf32> -> tensor<16x16xf32>
  return
}

// -----

func.func @mask_c1_shape(%x: tensor<64x32xf32>) {
  // expected-error @below {{'tile.mask' op expects a square matrix or blocks of 16 columns, got 'tensor<64x32xf32>'}}
  %y = tile.mask %x : tensor<64x32xf32> -> tensor<64x32xf32>
  return
}

// -----

func.func @mask_c1_type(%x: tensor<64x16xf32>) {
  // expected-error @below {{'tile.mask' op expects a result of type 'tensor<64x16xf32>', got 'tensor<64x64xf32>'}}
  %y = tile.mask %x : tensor<64x16xf32> -> tensor<64x64xf32>
  return
}

// -----

func.func @mask_c2(%x: tensor<64x16xf32, #tile.layout<opb>>) {
  // expected-error @below {{'tile.mask' op expects an operand in layout acc, got opb}}
  %y = tile.mask %x : tensor<64x16xf32, #tile.layout<opb>> -> tensor<64x16xf32, #tile.layout<opb>>
  return
}

// -----

func.func @reduce_c1(%x: tensor<64x16xf32>) {
  // expected-error @below {{'tile.reduce' op expects a result of type 'tensor<64xf32>', got 'tensor<16xf32>'}}
  %y = tile.reduce %x : tensor<64x16xf32> -> tensor<16xf32>
  return
}

// -----

func.func @diagonal_c1(%x: tensor<64x32xf32>) {
  // expected-error @below {{'tile.diagonal' op expects blocks of type 'tensor<64x16xf32>', got 'tensor<64x32xf32>'}}
  %y = tile.diagonal %x : tensor<64x32xf32> -> tensor<64xf32>
  return
}

// -----

func.func @diagonal_c2(%x: tensor<64x16xf32, #tile.layout<acc>>) {
  // expected-error @below {{'tile.diagonal' op expects the result in layout acc_col, got linear}}
  %y = tile.diagonal %x : tensor<64x16xf32, #tile.layout<acc>> -> tensor<64xf32, #tile.layout<linear>>
  return
}

// -----

func.func @reduce_rows_c1_parts(%x: tensor<64x16xf32>, %parts: !tile.shared<2, 16, f32>) {
  // expected-error @below {{'tile.reduce_rows' op expects a tile for parts of 4 x 16, got '!tile.shared<2, 16, f32>'}}
  %y = tile.reduce_rows %x through %parts : tensor<64x16xf32>, <2, 16, f32> -> tensor<16xf32>
  return
}

// -----

func.func @reduce_rows_c1_rows(%x: tensor<24x16xf32>, %parts: !tile.shared<2, 16, f32>) {
  // expected-error @below {{'tile.reduce_rows' op expects rows in blocks of 16, got 'tensor<24x16xf32>'}}
  %y = tile.reduce_rows %x through %parts : tensor<24x16xf32>, <2, 16, f32> -> tensor<16xf32>
  return
}

// -----

func.func @reduce_rows_c1(%x: tensor<64x16xf32>, %parts: !tile.shared<4, 16, f32>) {
  // expected-error @below {{'tile.reduce_rows' op expects a result of type 'tensor<16xf32>', got 'tensor<64xf32>'}}
  %y = tile.reduce_rows %x through %parts : tensor<64x16xf32>, <4, 16, f32> -> tensor<64xf32>
  return
}

// -----

func.func @reduce_rows_c2(%x: tensor<64x16xf32, #tile.layout<acc>>, %parts: !tile.shared<4, 16, f32>) {
  // expected-error @below {{'tile.reduce_rows' op expects the result in layout acc_row, got acc_col}}
  %y = tile.reduce_rows %x through %parts : tensor<64x16xf32, #tile.layout<acc>>, <4, 16, f32> -> tensor<16xf32, #tile.layout<acc_col>>
  return
}

// -----

func.func @reduce_c2(%x: tensor<64x16xf32, #tile.layout<acc>>) {
  // expected-error @below {{'tile.reduce' op expects the result in layout acc_col, got linear}}
  %y = tile.reduce %x : tensor<64x16xf32, #tile.layout<acc>> -> tensor<64xf32, #tile.layout<linear>>
  return
}

// -----

func.func @cumsum_c1(%x: tensor<64x16xf32>) {
  // expected-error @below {{'tile.cumsum' op expects a result of type 'tensor<64x16xf32>', got 'tensor<64x32xf32>'}}
  %y = tile.cumsum %x : tensor<64x16xf32> -> tensor<64x32xf32>
  return
}

// -----

func.func @cumsum_c2(%x: tensor<64x16xf32>) {
  // expected-error @below {{'tile.cumsum' op expects halves of 8, 4, 2 or 1 rows, got 0}}
  %y = tile.cumsum %x half 0 : tensor<64x16xf32> -> tensor<64x16xf32>
  return
}

// -----

func.func @cumsum_c3(%x: tensor<64x16xf32, #tile.layout<acc>>) {
  // expected-error @below {{'tile.cumsum' op expects the value in layout opb, got acc}}
  %y = tile.cumsum %x : tensor<64x16xf32, #tile.layout<acc>> -> tensor<64x16xf32, #tile.layout<acc>>
  return
}

// -----

func.func @block_sum_c1(%x: tensor<64x32xf32>, %t: !tile.shared<2, 32, f32>) {
  // expected-error @below {{'tile.block_sum' op expects a value of type 'tensor<32x32xf32>', got 'tensor<64x32xf32>'}}
  tile.block_sum %x to %t : tensor<64x32xf32>, <2, 32, f32>
  return
}

// -----

func.func @block_sum_c2(%x: tensor<64x16xf32>, %t: !tile.shared<4, 32, f32>, %i: index) {
  // expected-error @below {{'tile.block_sum' op expects the strip of a 'tile.strips'}}
  tile.block_sum %x to %t strip %i : tensor<64x16xf32>, <4, 32, f32>
  return
}

// -----

func.func @block_sum_c3(%x: tensor<64x32xf32, #tile.layout<acc>>, %t: !tile.shared<4, 32, f32>) {
  // expected-error @below {{'tile.block_sum' op expects the value in layout opb, got acc}}
  tile.block_sum %x to %t : tensor<64x32xf32, #tile.layout<acc>>, <4, 32, f32>
  return
}

// -----

func.func @cumulate_c1(%x: tensor<64xf32>, %t: !tile.shared<1, 32, f32>) {
  // expected-error @below {{'tile.cumulate' op expects a tile of 1 x 64, got '!tile.shared<1, 32, f32>'}}
  tile.cumulate %x to %t : tensor<64xf32>, <1, 32, f32>
  return
}

// -----

func.func @cumulate_c2(%x: tensor<64xf32, #tile.layout<acc_col>>, %t: !tile.shared<1, 64, f32>) {
  // expected-error @below {{'tile.cumulate' op expects the value in layout linear, got acc_col}}
  tile.cumulate %x to %t : tensor<64xf32, #tile.layout<acc_col>>, <1, 64, f32>
  return
}

// -----

func.func @column_sums_c1(%k: !tile.shared<64, 32, bf16>, %w: !tile.shared<1, 32, f32>) {
  // expected-error @below {{'tile.column_sums' op expects weights of 1 x 64, got '!tile.shared<1, 32, f32>'}}
  %s = tile.column_sums %k weighted %w : <64, 32, bf16>, <1, 32, f32> -> tensor<32xf32>
  return
}

// -----

func.func @column_sums_c2(%k: !tile.shared<64, 32, bf16>, %w: !tile.shared<1, 64, f32>) {
  // expected-error @below {{'tile.column_sums' op expects a result of type 'tensor<32xf32>', got 'tensor<64xf32>'}}
  %s = tile.column_sums %k weighted %w : <64, 32, bf16>, <1, 64, f32> -> tensor<64xf32>
  return
}

// -----

func.func @column_sums_c3(%k: !tile.shared<64, 32, bf16>, %w: !tile.shared<1, 64, f32>) {
  // expected-error @below {{'tile.column_sums' op expects the result in layout linear, got acc_row}}
  %s = tile.column_sums %k weighted %w : <64, 32, bf16>, <1, 64, f32> -> tensor<32xf32, #tile.layout<acc_row>>
  return
}

// -----

func.func @row_dots_c1(%q: !tile.shared<64, 32, bf16>, %z: !tile.shared<1, 64, f32>) {
  // expected-error @below {{'tile.row_dots' op expects a vector of 1 x 32, got '!tile.shared<1, 64, f32>'}}
  tile.row_dots %q, %z to %z : <64, 32, bf16>, <1, 64, f32>, <1, 64, f32>
  return
}

// -----

func.func @row_dots_c2(%q: !tile.shared<64, 32, bf16>, %z: !tile.shared<1, 32, f32>) {
  // expected-error @below {{'tile.row_dots' op expects a result of 1 x 64, got '!tile.shared<1, 32, f32>'}}
  tile.row_dots %q, %z to %z : <64, 32, bf16>, <1, 32, f32>, <1, 32, f32>
  return
}

// -----

func.func @stash_c1(%a: tensor<64x32xf32>, %kept: !tile.shared<64, 32, f32>) {
  tile.strips 2 {
  ^bb0(%strip: index):
    // expected-error @below {{'tile.stash' op expects a value of type 'tensor<64x16xf32>', got 'tensor<64x32xf32>'}}
    tile.stash %a in %kept strip %strip : tensor<64x32xf32>, <64, 32, f32>
    tile.yield
  }
  return
}

// -----

func.func @stash_c2(%a: tensor<64x16xf32>, %kept: !tile.shared<64, 32, f32>, %i: index) {
  // expected-error @below {{'tile.stash' op expects the strip of a 'tile.strips'}}
  tile.stash %a in %kept strip %i : tensor<64x16xf32>, <64, 32, f32>
  return
}

// -----

func.func @stash_c3(%a: tensor<64x16xf32>, %kept: !tile.shared<64, 16, f32>) {
  tile.strips 1 {
  ^bb0(%strip: index):
    // expected-error @below {{'tile.stash' op expects 'second' of bf16, got 'tensor<64x16xf32>'}}
    tile.stash %a in %kept strip %strip second : tensor<64x16xf32>, <64, 16, f32>
    tile.yield
  }
  return
}

// -----

func.func @stash_c4(%a: tensor<64x16xf32, #tile.layout<acc>>, %kept: !tile.shared<64, 16, f32>) {
  tile.strips 1 {
  ^bb0(%strip: index):
    // expected-error @below {{'tile.stash' op expects the value in layout opb, got acc}}
    tile.stash %a in %kept strip %strip : tensor<64x16xf32, #tile.layout<acc>>, <64, 16, f32>
    tile.yield
  }
  return
}

// -----

func.func @unstash_c4(%kept: !tile.shared<64, 16, f32>) {
  tile.strips 1 {
  ^bb0(%strip: index):
    // expected-error @below {{'tile.unstash' op expects the value in layout acc, got opb}}
    %x = tile.unstash %kept strip %strip : <64, 16, f32> -> tensor<64x16xbf16, #tile.layout<opb>>
    tile.yield
  }
  return
}
