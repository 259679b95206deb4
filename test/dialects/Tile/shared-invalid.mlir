// Each numbered constraint of tiles in shared memory, broken once.
// RUN: plum-opt %s -split-input-file -verify-diagnostics

tile.kernel @alloc_c1 "prepare" chunk 16 warps 1 arguments [] blob 0 {
  // expected-error @below {{'tile.alloc' op expects an offset of a multiple of 1024 bytes, got 512}}
  %a = tile.alloc at 512 : <16, 64, bf16>
}

// -----

func.func @alloc_outside() {
  // expected-error @below {{'tile.alloc' op expects parent op 'tile.kernel'}}
  %a = tile.alloc : <16, 64, bf16>
  return
}

// -----

func.func @reuse_c1(%a: !tile.shared<16, 64, bf16>) {
  // expected-error @below {{'tile.reuse' op expects a tile of at most 1024 bytes, got 2048}}
  %b = tile.reuse %a plus 1024 : <16, 64, bf16> to <16, 16, bf16>
  return
}

// -----

func.func @reuse_c2(%a: !tile.shared<16, 64, bf16>) {
  // expected-error @below {{'tile.reuse' op expects an offset of a multiple of 1024 bytes, got 64}}
  %b = tile.reuse %a plus 64 : <16, 64, bf16> to <1, 4, f32>
  return
}

// -----

func.func @load_c1_shape(%a: !tile.shared<16, 64, bf16>) {
  // expected-error @below {{'tile.load' op expects a result of type 'tensor<16x64xbf16>', got 'tensor<16x32xbf16>'}}
  %x = tile.load %a : <16, 64, bf16> -> tensor<16x32xbf16>
  return
}

// -----

func.func @load_c1_element(%a: !tile.shared<16, 64, bf16>) {
  // expected-error @below {{'tile.load' op expects a result of type 'tensor<16x64xbf16>', got 'tensor<16x64xf32>'}}
  %x = tile.load %a : <16, 64, bf16> -> tensor<16x64xf32>
  return
}

// -----

func.func @load_c1_transposed(%a: !tile.shared<16, 64, bf16>) {
  // expected-error @below {{'tile.load' op expects a result of type 'tensor<64x16xbf16>', got 'tensor<16x64xbf16>'}}
  %x = tile.load %a transposed : <16, 64, bf16> -> tensor<16x64xbf16>
  return
}

// -----

func.func @load_c1_blocks(%a: !tile.shared<4, 64, f32>) {
  // expected-error @below {{'tile.load' op expects a result of type 'tensor<64x64xf32>', got 'tensor<4x64xf32>'}}
  %x = tile.load %a blocks : <4, 64, f32> -> tensor<4x64xf32>
  return
}

// -----

func.func @load_c2_not_a_strip(%a: !tile.shared<16, 64, bf16>, %i: index) {
  // expected-error @below {{'tile.load' op expects the strip of a 'tile.strips'}}
  %x = tile.load %a strip %i : <16, 64, bf16> -> tensor<16x16xbf16>
  return
}

// -----

func.func @load_c2_too_many(%a: !tile.shared<16, 64, bf16>) {
  // expected-note @below {{the strips}}
  tile.strips 5 {
  ^bb0(%s: index):
    // expected-error @below {{'tile.load' op expects at most 4 strips of 64 columns, got 5}}
    %x = tile.load %a strip %s : <16, 64, bf16> -> tensor<16x16xbf16>
    tile.yield
  }
  return
}

// -----

func.func @load_c3_bf16(%a: !tile.shared<16, 64, bf16>) {
  // expected-error @below {{'tile.load' op expects 'strip' or 'transposed' of a tile of bf16}}
  %x = tile.load %a row 0 : <16, 64, bf16> -> tensor<16x64xbf16>
  return
}

// -----

func.func @load_c3_f32(%a: !tile.shared<4, 64, f32>) {
  // expected-error @below {{'tile.load' op expects 'row' or 'blocks' of a tile of f32}}
  %x = tile.load %a transposed : <4, 64, f32> -> tensor<64xf32>
  return
}

// -----

func.func @load_c3_row(%a: !tile.shared<4, 64, f32>) {
  // expected-error @below {{'tile.load' op expects a row below 4, got 4}}
  %x = tile.load %a row 4 : <4, 64, f32> -> tensor<64xf32>
  return
}

// -----

func.func @load_c4_transposed(%a: !tile.shared<16, 64, bf16>) {
  // expected-error @below {{'tile.load' op expects this matrix in layout acc, got opb}}
  %x = tile.load %a transposed : <16, 64, bf16> -> tensor<64x16xbf16, #tile.layout<opb>>
  return
}

// -----

func.func @load_c4_matrix(%a: !tile.shared<16, 64, bf16>) {
  // expected-error @below {{'tile.load' op expects a matrix in layout acc or opb, got linear}}
  %x = tile.load %a : <16, 64, bf16> -> tensor<16x64xbf16, #tile.layout<linear>>
  return
}

// -----

func.func @load_c4_vector(%a: !tile.shared<4, 64, f32>) {
  // expected-error @below {{'tile.load' op expects a vector in layout acc_row or acc_col or opb_row or opb_col or linear, got acc}}
  %x = tile.load %a row 0 : <4, 64, f32> -> tensor<64xf32, #tile.layout<acc>>
  return
}

// -----

func.func @element_c1(%a: !tile.shared<4, 64, f32>) {
  // expected-error @below {{'tile.element' op expects an element of '!tile.shared<4, 64, f32>', got [0, 64]}}
  %x = tile.element %a[0, 64] : <4, 64, f32>
  return
}

// -----

func.func @element_bf16(%a: !tile.shared<16, 64, bf16>) {
  // expected-error @below {{'tile.element' op operand #0 must be tile of f32, but got '!tile.shared<16, 64, bf16>'}}
  %x = tile.element %a[0, 0] : <16, 64, bf16>
  return
}

// -----

func.func @store_c1_shape(%x: tensor<64x16xbf16>, %a: !tile.shared<16, 64, bf16>) {
  // expected-error @below {{'tile.store' op expects a value of type 'tensor<16x64xbf16>', got 'tensor<64x16xbf16>'}}
  tile.store %x to %a : tensor<64x16xbf16>, <16, 64, bf16>
  return
}

// -----

func.func @store_c1_element(%x: tensor<16x64xf32>, %a: !tile.shared<16, 64, bf16>) {
  // expected-error @below {{'tile.store' op expects a value of type 'tensor<16x64xbf16>', got 'tensor<16x64xf32>'}}
  tile.store %x to %a : tensor<16x64xf32>, <16, 64, bf16>
  return
}

// -----

func.func @store_c2(%x: tensor<16x16xbf16>, %a: !tile.shared<16, 64, bf16>, %i: index) {
  // expected-error @below {{'tile.store' op expects the strip of a 'tile.strips'}}
  tile.store %x to %a strip %i : tensor<16x16xbf16>, <16, 64, bf16>
  return
}

// -----

func.func @store_c3_bf16(%x: tensor<16x64xbf16>, %a: !tile.shared<16, 64, bf16>) {
  // expected-error @below {{'tile.store' op expects 'strip' or 'transposed' of a tile of bf16}}
  tile.store %x to %a row 0 : tensor<16x64xbf16>, <16, 64, bf16>
  return
}

// -----

func.func @store_c3_tokens(%x: tensor<16x64xbf16>, %a: !tile.shared<16, 64, bf16>) {
  // expected-error @below {{'tile.store' op expects 'strip' or 'transposed' of a tile of bf16}}
  tile.store %x to %a tokens : tensor<16x64xbf16>, <16, 64, bf16>
  return
}

// -----

func.func @store_c3_f32(%x: tensor<64xf32>, %a: !tile.shared<4, 64, f32>) {
  // expected-error @below {{'tile.store' op expects 'row' or 'tokens' of a tile of f32}}
  tile.store %x to %a transposed : tensor<64xf32>, <4, 64, f32>
  return
}

// -----

func.func @store_c3_row(%x: tensor<64xf32>, %a: !tile.shared<4, 64, f32>) {
  // expected-error @below {{'tile.store' op expects a row below 4, got 7}}
  tile.store %x to %a row 7 : tensor<64xf32>, <4, 64, f32>
  return
}

// -----

func.func @store_c4_matrix(%x: tensor<16x64xbf16, #tile.layout<opb>>, %a: !tile.shared<16, 64, bf16>) {
  // expected-error @below {{'tile.store' op expects the value in layout acc, got opb}}
  tile.store %x to %a : tensor<16x64xbf16, #tile.layout<opb>>, <16, 64, bf16>
  return
}

// -----

func.func @store_c4_vector(%x: tensor<64xf32, #tile.layout<acc_col>>, %a: !tile.shared<4, 64, f32>) {
  // expected-error @below {{'tile.store' op expects the value in layout linear, got acc_col}}
  tile.store %x to %a : tensor<64xf32, #tile.layout<acc_col>>, <4, 64, f32>
  return
}

// -----

func.func @store_c4_tokens(%x: tensor<64xf32, #tile.layout<linear>>, %a: !tile.shared<4, 64, f32>) {
  // expected-error @below {{'tile.store' op expects the value in layout acc_col, got linear}}
  tile.store %x to %a tokens : tensor<64xf32, #tile.layout<linear>>, <4, 64, f32>
  return
}
