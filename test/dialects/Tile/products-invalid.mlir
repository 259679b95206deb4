// Each numbered constraint of products and of the inverse, broken once.
// RUN: plum-opt %s -split-input-file -verify-diagnostics

func.func @dot_c1(%a: tensor<64x32xbf16>, %b: !tile.shared<16, 64, bf16>) {
  // expected-error @below {{'tile.dot' op expects operands of one depth, got 32 and 64}}
  %d = tile.dot %a, %b : tensor<64x32xbf16>, <16, 64, bf16> -> tensor<64x16xf32>
  return
}

// -----

func.func @dot_c1_transposed(%a: tensor<64x64xbf16>, %b: !tile.shared<16, 64, bf16>) {
  // expected-error @below {{'tile.dot' op expects operands of one depth, got 64 and 16}}
  %d = tile.dot %a, %b transposed : tensor<64x64xbf16>, <16, 64, bf16> -> tensor<64x64xf32>
  return
}

// -----

func.func @dot_c2(%a: tensor<64x64xbf16>, %b: !tile.shared<16, 64, bf16>) {
  // expected-error @below {{'tile.dot' op expects a result of type 'tensor<64x16xf32>', got 'tensor<64x64xf32>'}}
  %d = tile.dot %a, %b : tensor<64x64xbf16>, <16, 64, bf16> -> tensor<64x64xf32>
  return
}

// -----

func.func @dot_c2_wide(%a: tensor<64x64xbf16>, %b: !tile.shared<272, 64, bf16>) {
  // expected-error @below {{'tile.dot' op expects at most 256 columns, got 272}}
  %d = tile.dot %a, %b : tensor<64x64xbf16>, <272, 64, bf16> -> tensor<64x272xf32>
  return
}

// -----

func.func @dot_c3(%a: tensor<64x64xbf16>, %b: !tile.shared<16, 64, bf16>, %c: tensor<64x32xf32>) {
  // expected-error @below {{'tile.dot' op expects to add onto 'tensor<64x16xf32>', got 'tensor<64x32xf32>'}}
  %d = tile.dot %a, %b onto %c : tensor<64x32xf32> : tensor<64x64xbf16>, <16, 64, bf16> -> tensor<64x16xf32>
  return
}

// -----

func.func @dot_c4_operand(%a: tensor<64x64xbf16, #tile.layout<opb>>, %b: !tile.shared<16, 64, bf16>) {
  // expected-error @below {{'tile.dot' op expects an operand in layout acc, got opb}}
  %d = tile.dot %a, %b : tensor<64x64xbf16, #tile.layout<opb>>, <16, 64, bf16> -> tensor<64x16xf32, #tile.layout<acc>>
  return
}

// -----

func.func @dot_c4_result(%a: tensor<64x64xbf16, #tile.layout<acc>>, %b: !tile.shared<16, 64, bf16>) {
  // expected-error @below {{'tile.dot' op expects a result in layout acc, got opb}}
  %d = tile.dot %a, %b : tensor<64x64xbf16, #tile.layout<acc>>, <16, 64, bf16> -> tensor<64x16xf32, #tile.layout<opb>>
  return
}

// -----

func.func @dot_element(%a: tensor<64x64xf32>, %b: !tile.shared<16, 64, bf16>) {
  // expected-error @below {{'tile.dot' op operand #0 must be matrix of constant shape of bfloat16 type values, but got 'tensor<64x64xf32>'}}
  %d = tile.dot %a, %b : tensor<64x64xf32>, <16, 64, bf16> -> tensor<64x16xf32>
  return
}

// -----

func.func @dot_diag_c1(%x: tensor<64x16xbf16>, %y: tensor<64x32xbf16>, %c: tensor<64x16xf32>) {
  // expected-error @below {{'tile.dot_diag' op expects rows of one type, got 'tensor<64x16xbf16>' and 'tensor<64x32xbf16>'}}
  %d = tile.dot_diag %x, %y onto %c : tensor<64x16xbf16>, tensor<64x32xbf16> -> tensor<64x16xf32>
  return
}

// -----

func.func @dot_diag_c2(%x: tensor<64x16xbf16>, %c: tensor<64x64xf32>) {
  // expected-error @below {{'tile.dot_diag' op expects blocks of type 'tensor<64x16xf32>', got 'tensor<64x64xf32>'}}
  %d = tile.dot_diag %x, %x onto %c : tensor<64x16xbf16>, tensor<64x16xbf16> -> tensor<64x64xf32>
  return
}

// -----

func.func @dot_diag_c2_half(%x: tensor<64x16xbf16>, %c: tensor<64x16xf32>) {
  // expected-error @below {{'tile.dot_diag' op expects blocks of type 'tensor<64x8xf32>', got 'tensor<64x16xf32>'}}
  %d = tile.dot_diag %x, %x onto %c half 4 : tensor<64x16xbf16>, tensor<64x16xbf16> -> tensor<64x16xf32>
  return
}

// -----

func.func @dot_diag_c3(%x: tensor<64x16xbf16>, %c: tensor<64x8xf32>) {
  // expected-error @below {{'tile.dot_diag' op expects halves of 8, 4, 2 or 1 rows, got 3}}
  %d = tile.dot_diag %x, %x onto %c half 3 : tensor<64x16xbf16>, tensor<64x16xbf16> -> tensor<64x8xf32>
  return
}

// -----

func.func @join_halves_c1_count(%h: tensor<16x8xf32>) {
  // expected-error @below {{'tile.join_halves' op expects four halves, got 1}}
  %d = tile.join_halves(%h : tensor<16x8xf32>) -> tensor<16x16xf32>
  return
}

// -----

func.func @join_halves_c1_half(%h: tensor<16x16xf32>) {
  // expected-error @below {{'tile.join_halves' op expects a half of type 'tensor<16x8xf32>', got 'tensor<16x16xf32>'}}
  %d = tile.join_halves(%h, %h, %h, %h : tensor<16x16xf32>, tensor<16x16xf32>, tensor<16x16xf32>, tensor<16x16xf32>)
      -> tensor<16x16xf32>
  return
}

// -----

func.func @join_halves_c1_result(%h: tensor<16x8xf32>) {
  // expected-error @below {{'tile.join_halves' op expects a result of type 'tensor<16x16xf32>', got 'tensor<16x8xf32>'}}
  %d = tile.join_halves(%h, %h, %h, %h : tensor<16x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>)
      -> tensor<16x8xf32>
  return
}

// -----

func.func @join_halves_c2(%h: tensor<16x8xf32>, %v: tensor<8xf32>) {
  // expected-error @below {{'tile.join_halves' op expects a diagonal of type 'tensor<16xf32>', got 'tensor<8xf32>'}}
  %d = tile.join_halves(%h, %h, %h, %h : tensor<16x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>)
      diagonal %v : tensor<8xf32> -> tensor<16x16xf32>
  return
}

// -----

func.func @join_halves_c3(%h: tensor<16x8xf32, #tile.layout<acc>>, %v: tensor<16xf32, #tile.layout<linear>>) {
  // expected-error @below {{'tile.join_halves' op expects the diagonal in layout acc_col, got linear}}
  %d = tile.join_halves(%h, %h, %h, %h : tensor<16x8xf32, #tile.layout<acc>>, tensor<16x8xf32, #tile.layout<acc>>,
      tensor<16x8xf32, #tile.layout<acc>>, tensor<16x8xf32, #tile.layout<acc>>)
      diagonal %v : tensor<16xf32, #tile.layout<linear>> -> tensor<16x16xf32, #tile.layout<acc>>
  return
}

// -----

func.func @dot_diag_c4(%x: tensor<64x16xbf16, #tile.layout<opb>>, %c: tensor<64x16xf32, #tile.layout<acc>>) {
  // expected-error @below {{'tile.dot_diag' op expects an operand in layout acc, got opb}}
  %d = tile.dot_diag %x, %x onto %c : tensor<64x16xbf16, #tile.layout<opb>>, tensor<64x16xbf16, #tile.layout<opb>>
      -> tensor<64x16xf32, #tile.layout<acc>>
  return
}

// -----

func.func @dot_blocks_c1_count(%x: tensor<32x64xbf16>, %y: !tile.shared<32, 64, bf16>) {
  // expected-error @below {{'tile.dot_blocks' op expects a result for each of some operands, got 2 for 1}}
  %a, %b = tile.dot_blocks(%x : tensor<32x64xbf16>), %y : <32, 64, bf16> -> tensor<32x32xf32>, tensor<32x32xf32>
  return
}

// -----

func.func @dot_blocks_c1_result(%x: tensor<32x64xbf16>, %y: !tile.shared<32, 64, bf16>) {
  // expected-error @below {{'tile.dot_blocks' op expects a result of type 'tensor<32x32xf32>', got 'tensor<32x64xf32>'}}
  %a = tile.dot_blocks(%x : tensor<32x64xbf16>), %y : <32, 64, bf16> -> tensor<32x64xf32>
  return
}

// -----

func.func @dot_blocks_c2(%x: tensor<32x64xbf16>, %y: !tile.shared<64, 64, bf16>) {
  // expected-error @below {{'tile.dot_blocks' op expects a tile of 32 x 64, got '!tile.shared<64, 64, bf16>'}}
  %a = tile.dot_blocks(%x : tensor<32x64xbf16>), %y : <64, 64, bf16> -> tensor<32x32xf32>
  return
}

// -----

func.func @dot_blocks_c2_low(%x: tensor<32x64xbf16>, %y: !tile.shared<32, 64, bf16>, %l: !tile.shared<32, 32, bf16>) {
  // expected-error @below {{'tile.dot_blocks' op expects a low tile of 32 x 64, got '!tile.shared<32, 32, bf16>'}}
  %a = tile.dot_blocks(%x : tensor<32x64xbf16>), %y : <32, 64, bf16> low %l : !tile.shared<32, 32, bf16> -> tensor<32x32xf32>
  return
}

// -----

func.func @dot_blocks_c3_rows(%x: tensor<64x64xbf16>, %y: !tile.shared<64, 64, bf16>, %f: !tile.shared<4, 64, f32>) {
  // expected-error @below {{'tile.dot_blocks' op expects factors of 3 x 64, got '!tile.shared<4, 64, f32>'}}
  %a = tile.dot_blocks(%x : tensor<64x64xbf16>), %y : <64, 64, bf16> scaled %f : !tile.shared<4, 64, f32>
      -> tensor<64x64xf32>
  return
}

// -----

func.func @dot_blocks_c3_diagonal(%x: tensor<32x64xbf16>, %y: !tile.shared<32, 64, bf16>, %f: !tile.shared<1, 64, f32>) {
  // expected-error @below {{'tile.dot_blocks' op expects no factors for blocks on the diagonal}}
  %a = tile.dot_blocks(%x : tensor<32x64xbf16>), %y : <32, 64, bf16> scaled %f : !tile.shared<1, 64, f32> diagonal
      -> tensor<32x32xf32>
  return
}

// -----

func.func @dot_blocks_c4(%x: tensor<32x64xbf16, #tile.layout<opb>>, %y: !tile.shared<32, 64, bf16>) {
  // expected-error @below {{'tile.dot_blocks' op expects an operand in layout acc, got opb}}
  %a = tile.dot_blocks(%x : tensor<32x64xbf16, #tile.layout<opb>>), %y : <32, 64, bf16>
      -> tensor<32x32xf32, #tile.layout<acc>>
  return
}

// -----

func.func @place_diag_c1(%b: tensor<32x16xf32>, %m: tensor<32x64xf32>) {
  // expected-error @below {{'tile.place_diag' op expects a matrix of type 'tensor<32x32xf32>', got 'tensor<32x64xf32>'}}
  %a = tile.place_diag %b into %m : tensor<32x16xf32>, tensor<32x64xf32> -> tensor<32x64xf32>
  return
}

// -----

func.func @place_diag_c2(%b: tensor<32x16xf32, #tile.layout<opb>>, %m: tensor<32x32xf32, #tile.layout<acc>>) {
  // expected-error @below {{'tile.place_diag' op expects an operand in layout acc, got opb}}
  %a = tile.place_diag %b into %m : tensor<32x16xf32, #tile.layout<opb>>, tensor<32x32xf32, #tile.layout<acc>>
      -> tensor<32x32xf32, #tile.layout<acc>>
  return
}

// -----

!h = !tile.shared<64, 64, bf16>
!d = !tile.shared<64, 20, f32>
func.func @inverse_c1_square(%n: tensor<64x32xf32>, %to: !h, %b: !h, %d: !d) {
  // expected-error @below {{'tile.inverse' op expects a matrix of type 'tensor<64x64xf32>', got 'tensor<64x32xf32>'}}
  tile.inverse %n to %to scratch %b, %d : tensor<64x32xf32>, <64, 64, bf16>, <64, 64, bf16>, <64, 20, f32>
  return
}

// -----

!h = !tile.shared<64, 64, bf16>
!d = !tile.shared<64, 20, f32>
func.func @inverse_c1_factors(%n: tensor<64x64xf32>, %s: tensor<32xf32>, %to: !h, %b: !h, %d: !d) {
  // expected-error @below {{'tile.inverse' op expects factors of type 'tensor<64xf32>', got 'tensor<32xf32>'}}
  tile.inverse %n scaled %s : tensor<32xf32> to %to scratch %b, %d
      : tensor<64x64xf32>, <64, 64, bf16>, <64, 64, bf16>, <64, 20, f32>
  return
}

// -----

!h = !tile.shared<64, 64, bf16>
func.func @inverse_c2_scratch(%n: tensor<64x64xf32>, %to: !h, %b: !h, %d: !tile.shared<64, 16, f32>) {
  // expected-error @below {{'tile.inverse' op expects scratch of 64 x 20, got '!tile.shared<64, 16, f32>'}}
  tile.inverse %n to %to scratch %b, %d : tensor<64x64xf32>, <64, 64, bf16>, <64, 64, bf16>, <64, 16, f32>
  return
}

// -----

!h = !tile.shared<64, 64, bf16>
!d = !tile.shared<64, 20, f32>
func.func @inverse_c2_same(%n: tensor<64x64xf32>, %to: !h, %d: !d) {
  // expected-error @below {{'tile.inverse' op expects scratch apart from the result}}
  tile.inverse %n to %to scratch %to, %d : tensor<64x64xf32>, <64, 64, bf16>, <64, 64, bf16>, <64, 20, f32>
  return
}

// -----

!h = !tile.shared<64, 64, bf16>
!d = !tile.shared<64, 20, f32>
func.func @inverse_c2_low(%n: tensor<64x64xf32>, %to: !h, %b: !h, %d: !d, %l: !h, %c: !tile.shared<32, 64, bf16>) {
  // expected-error @below {{'tile.inverse' op expects low scratch of 64 x 64, got '!tile.shared<32, 64, bf16>'}}
  tile.inverse %n to %to scratch %b, %d low %l scratch %c : !tile.shared<64, 64, bf16>, !tile.shared<32, 64, bf16>
      : tensor<64x64xf32>, <64, 64, bf16>, <64, 64, bf16>, <64, 20, f32>
  return
}

// -----

!h = !tile.shared<64, 64, bf16>
!d = !tile.shared<64, 20, f32>
func.func @inverse_c2_same_low(%n: tensor<64x64xf32>, %to: !h, %b: !h, %d: !d, %l: !h) {
  // expected-error @below {{'tile.inverse' op expects scratch apart from the result}}
  tile.inverse %n to %to scratch %b, %d low %l scratch %b : !tile.shared<64, 64, bf16>, !tile.shared<64, 64, bf16>
      : tensor<64x64xf32>, <64, 64, bf16>, <64, 64, bf16>, <64, 20, f32>
  return
}

// -----

!h = !tile.shared<64, 64, bf16>
!d = !tile.shared<64, 20, f32>
func.func @inverse_c3(%n: tensor<64x64xf32, #tile.layout<acc>>, %s: tensor<64xf32, #tile.layout<acc_row>>, %to: !h,
                      %b: !h, %d: !d) {
  // expected-error @below {{'tile.inverse' op expects the factors in layout acc_col, got acc_row}}
  tile.inverse %n scaled %s : tensor<64xf32, #tile.layout<acc_row>> to %to scratch %b, %d
      : tensor<64x64xf32, #tile.layout<acc>>, <64, 64, bf16>, <64, 64, bf16>, <64, 20, f32>
  return
}
