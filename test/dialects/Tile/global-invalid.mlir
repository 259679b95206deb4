// Each numbered constraint of ops on the layer's tensors and the blob, broken once.
// RUN: plum-opt %s -split-input-file -verify-diagnostics

// expected-note @below {{the kernel}}
tile.kernel @fetch_c1 "scan" chunk 16 warps 1 arguments [#tile.arg<"k" : bf16>] blob 0 slice 16 of 1 {
  %a = tile.alloc : <16, 64, bf16>
  // expected-error @below {{'tile.fetch' op expects a kernel that prepares, got role 'scan'}}
  tile.fetch "k" to %a : <16, 64, bf16>
}

// -----

// expected-note @below {{the kernel}}
tile.kernel @fetch_c2_name "prepare" chunk 16 warps 1 arguments [#tile.arg<"k" : bf16>] blob 0 {
  %a = tile.alloc : <16, 64, bf16>
  // expected-error @below {{'tile.fetch' op expects an argument of the kernel, got 'q'}}
  tile.fetch "q" to %a : <16, 64, bf16>
}

// -----

tile.kernel @fetch_c2_element "prepare" chunk 16 warps 1 arguments [#tile.arg<"k" : f32>] blob 0 {
  %a = tile.alloc : <16, 64, bf16>
  // expected-error @below {{'tile.fetch' op expects 'k' to be of 'bf16', got 'f32'}}
  tile.fetch "k" to %a : <16, 64, bf16>
}

// -----

tile.kernel @fetch_c3 "prepare" chunk 16 warps 1 arguments [#tile.arg<"k" : bf16>] blob 0 {
  %a = tile.alloc : <32, 64, bf16>
  // expected-error @below {{'tile.fetch' op expects a tile of 16 x 64, got '!tile.shared<32, 64, bf16>'}}
  tile.fetch "k" to %a : <32, 64, bf16>
}

// -----

func.func @param_c1_outside() {
  // expected-error @below {{'tile.param' op expects to stand in a 'tile.kernel'}}
  %a = tile.param "a" : f32
  return
}

// -----

// expected-note @below {{the kernel}}
tile.kernel @param_c1_name "prepare" chunk 16 warps 1 arguments [] blob 0 {
  // expected-error @below {{'tile.param' op expects an argument of the kernel, got 'a'}}
  %a = tile.param "a" : f32
}

// -----

tile.kernel @param_c2 "prepare" chunk 16 warps 1 arguments [#tile.arg<"a" : f32>] blob 0 {
  tile.strips 2 {
  ^bb0(%s: index):
    // expected-error @below {{'tile.param' op expects a strip of 16 values, got 'tensor<32xf32>'}}
    %a = tile.param "a" strip %s : tensor<32xf32>
    tile.yield
  }
}

// -----

// expected-note @below {{the kernel}}
tile.kernel @column_c1 "scan" chunk 16 warps 1 arguments [#tile.arg<"b" : f32>] blob 0 slice 16 of 1 {
  // expected-error @below {{'tile.column' op expects a kernel that prepares, got role 'scan'}}
  %b = tile.column "b" : tensor<16xf32>
}

// -----

// expected-note @below {{the kernel}}
tile.kernel @column_c2 "prepare" chunk 16 warps 1 arguments [#tile.arg<"b" : f32>] blob 0 {
  // expected-error @below {{'tile.column' op expects an argument of the kernel, got 'c'}}
  %b = tile.column "c" : tensor<16xf32>
}

// -----

tile.kernel @column_c3 "prepare" chunk 16 warps 1 arguments [#tile.arg<"b" : f32>] blob 0 {
  // expected-error @below {{'tile.column' op expects a column of type 'tensor<16xf32>', got 'tensor<32xf32>'}}
  %b = tile.column "b" : tensor<32xf32>
}

// -----

// expected-note @below {{the kernel}}
tile.kernel @export_c1 "scan" chunk 16 warps 1 arguments [] blob 2048 slice 16 of 1 {
  %a = tile.alloc : <16, 64, bf16>
  // expected-error @below {{'tile.export' op expects a kernel that prepares, got role 'scan'}}
  tile.export %a to 0 : <16, 64, bf16>
}

// -----

tile.kernel @export_c2 "prepare" chunk 16 warps 1 arguments [] blob 2048 {
  %a = tile.alloc : <16, 64, bf16>
  // expected-error @below {{'tile.export' op expects 2048 bytes in the blob of 2048, at a multiple of 16, got 16}}
  tile.export %a to 16 : <16, 64, bf16>
}

// -----

// expected-note @below {{the kernel}}
tile.kernel @export_vector_c1 "scan" chunk 16 warps 1 arguments [] blob 64 slice 16 of 1 {
  %a = arith.constant dense<0.0> : tensor<16xf32>
  // expected-error @below {{'tile.export_vector' op expects a kernel that prepares, got role 'scan'}}
  tile.export_vector %a to 0 : tensor<16xf32>
}

// -----

tile.kernel @export_vector_c2 "prepare" chunk 16 warps 1 arguments [] blob 64 {
  %a = arith.constant dense<0.0> : tensor<32xf32>
  // expected-error @below {{'tile.export_vector' op expects 128 bytes in the blob of 64, at a multiple of 16, got 0}}
  tile.export_vector %a to 0 : tensor<32xf32>
}

// -----

tile.kernel @export_vector_c3 "prepare" chunk 16 warps 1 arguments [] blob 128 {
  %a = arith.constant dense<0.0> : tensor<32xf32>
  // expected-error @below {{'tile.export_vector' op expects a value of type 'tensor<16xf32>', got 'tensor<32xf32>'}}
  tile.export_vector %a tokens to 0 : tensor<32xf32>
}

// -----

tile.kernel @export_vector_c4 "prepare" chunk 16 warps 1 arguments [] blob 128 {
  %a = arith.constant dense<0.0> : tensor<32xf32, #tile.layout<acc_row>>
  // expected-error @below {{'tile.export_vector' op expects the value in layout linear, got acc_row}}
  tile.export_vector %a to 0 : tensor<32xf32, #tile.layout<acc_row>>
}

// -----

tile.kernel @export_vector_c4_tokens "prepare" chunk 16 warps 1 arguments [] blob 128 {
  %a = arith.constant dense<0.0> : tensor<16xf32, #tile.layout<linear>>
  // expected-error @below {{'tile.export_vector' op expects the value in layout acc_col, got linear}}
  tile.export_vector %a tokens to 0 : tensor<16xf32, #tile.layout<linear>>
}

// -----

// expected-note @below {{the kernel}}
tile.kernel @export_matrix_c1 "scan" chunk 16 warps 1 arguments [] blob 2048 slice 16 of 1 {
  %a = arith.constant dense<0.0> : tensor<16x16xbf16>
  // expected-error @below {{'tile.export_matrix' op expects a kernel that prepares, got role 'scan'}}
  tile.export_matrix %a to 0 : tensor<16x16xbf16>
}

// -----

tile.kernel @export_matrix_c2 "prepare" chunk 16 warps 1 arguments [] blob 2048 {
  %a = arith.constant dense<0.0> : tensor<16x80xbf16>
  // expected-error @below {{'tile.export_matrix' op expects 4096 bytes in the blob of 2048, at a multiple of 16, got 0}}
  tile.export_matrix %a to 0 : tensor<16x80xbf16>
}

// -----

tile.kernel @export_matrix_c3 "prepare" chunk 16 warps 1 arguments [] blob 2048 {
  %a = arith.constant dense<0.0> : tensor<16x16xbf16, #tile.layout<opb>>
  // expected-error @below {{'tile.export_matrix' op expects an operand in layout acc, got opb}}
  tile.export_matrix %a to 0 : tensor<16x16xbf16, #tile.layout<opb>>
}

// -----

tile.kernel @write_rows_c1 "scan" chunk 16 warps 1 arguments [#tile.arg<"o" : f32>] blob 0 slice 16 of 1 {
  %p = tile.alloc : <16, 16, bf16>
  %a = arith.constant dense<0.0> : tensor<16x16xbf16>
  tile.chunks {
    // expected-error @below {{'tile.write_rows' op expects 'o' to be of 'bf16', got 'f32'}}
    tile.write_rows %a through %p to "o" : tensor<16x16xbf16>, <16, 16, bf16>
    tile.yield
  }
}

// -----

tile.kernel @write_rows_c2 "scan" chunk 32 warps 1 arguments [#tile.arg<"o" : bf16>] blob 0 slice 16 of 1 {
  %p = tile.alloc : <16, 16, bf16>
  %a = arith.constant dense<0.0> : tensor<16x32xbf16>
  tile.chunks {
    // expected-error @below {{'tile.write_rows' op expects a panel of 32 x 16, got '!tile.shared<16, 16, bf16>'}}
    tile.write_rows %a through %p to "o" : tensor<16x32xbf16>, <16, 16, bf16>
    tile.yield
  }
}

// -----

tile.kernel @write_rows_c3 "scan" chunk 16 warps 1 arguments [#tile.arg<"o" : bf16>] blob 0 slice 16 of 1 {
  %p = tile.alloc : <16, 16, bf16>
  %a = arith.constant dense<0.0> : tensor<16x16xbf16, #tile.layout<opb>>
  tile.chunks {
    // expected-error @below {{'tile.write_rows' op expects an operand in layout acc, got opb}}
    tile.write_rows %a through %p to "o" : tensor<16x16xbf16, #tile.layout<opb>>, <16, 16, bf16>
    tile.yield
  }
}

// -----

tile.kernel @write_rows_outside "scan" chunk 16 warps 1 arguments [#tile.arg<"o" : bf16>] blob 0 slice 16 of 1 {
  %p = tile.alloc : <16, 16, bf16>
  %a = arith.constant dense<0.0> : tensor<16x16xbf16>
  // expected-error @below {{'tile.write_rows' op expects parent op to be one of 'tile.chunks, tile.tail'}}
  tile.write_rows %a through %p to "o" : tensor<16x16xbf16>, <16, 16, bf16>
}

// -----

// expected-note @below {{the kernel}}
tile.kernel @load_state_c1 "scan" chunk 16 warps 1 arguments [#tile.arg<"S" : f32>] blob 0 slice 16 of 1 {
  // expected-error @below {{'tile.load_state' op expects a kernel with the role 'summary', got 'scan'}}
  %S = tile.load_state "S" summary : tensor<16x16xf32>
}

// -----

// expected-note @below {{the kernel}}
tile.kernel @load_state_c1_absent "summary" chunk 16 warps 1 arguments [#tile.arg<"S" : f32>] blob 0 slice 16 of 1 {
  // expected-error @below {{'tile.load_state' op expects 'summary' in a kernel with that role}}
  %S = tile.load_state "S" : tensor<16x16xf32>
}

// -----

// expected-note @below {{the kernel}}
tile.kernel @load_state_c2_role "prepare" chunk 16 warps 1 arguments [#tile.arg<"S" : f32>] blob 0 {
  // expected-error @below {{'tile.load_state' op expects a kernel that scans, got role 'prepare'}}
  %S = tile.load_state "S" : tensor<16x16xf32>
}

// -----

// expected-note @below {{the kernel}}
tile.kernel @load_state_c2_name "scan" chunk 16 warps 1 arguments [#tile.arg<"S" : f32>] blob 0 slice 16 of 1 {
  // expected-error @below {{'tile.load_state' op expects an argument of the kernel, got 'z'}}
  %S = tile.load_state "z" : tensor<16x16xf32>
}

// -----

tile.kernel @load_state_c3 "scan" chunk 16 warps 1 arguments [#tile.arg<"S" : f32>] blob 64 slice 16 of 1 {
  // expected-error @below {{'tile.load_state' op expects no copy in the blob of 'tensor<16x16xf32>'}}
  %S = tile.load_state "S" kept 0 : tensor<16x16xf32>
}

// -----

tile.kernel @load_state_c3_absent "scan" chunk 16 warps 1 arguments [#tile.arg<"z" : f32>] blob 64 slice 16 of 1 {
  // expected-error @below {{'tile.load_state' op expects a copy in the blob of 'tensor<16xf32>'}}
  %z = tile.load_state "z" : tensor<16xf32>
}

// -----

tile.kernel @load_state_c4 "scan" chunk 16 warps 1 arguments [#tile.arg<"S" : f32>] blob 0 slice 16 of 1 {
  // expected-error @below {{'tile.load_state' op expects a state in layout acc, got opb}}
  %S = tile.load_state "S" : tensor<16x16xf32, #tile.layout<opb>>
}

// -----

tile.kernel @load_state_c4_vector "scan" chunk 16 warps 1 arguments [#tile.arg<"z" : f32>] blob 64 slice 16 of 1 {
  // expected-error @below {{'tile.load_state' op expects a state in layout linear, got acc_row}}
  %z = tile.load_state "z" kept 0 : tensor<16xf32, #tile.layout<acc_row>>
}

// -----

// expected-note @below {{the kernel}}
tile.kernel @store_state_c1 "scan" chunk 16 warps 1 arguments [#tile.arg<"S" : f32>] blob 0 slice 16 of 1 {
  %a = arith.constant dense<0.0> : tensor<16x16xf32>
  // expected-error @below {{'tile.store_state' op expects a kernel with the role 'summary', got 'scan'}}
  tile.store_state %a to "S" summary : tensor<16x16xf32>
}

// -----

// expected-note @below {{the kernel}}
tile.kernel @store_state_c2 "scan" chunk 16 warps 1 arguments [#tile.arg<"S" : f32>] blob 0 slice 16 of 1 {
  %a = arith.constant dense<0.0> : tensor<16x16xf32>
  // expected-error @below {{'tile.store_state' op expects an argument of the kernel, got 'S.final'}}
  tile.store_state %a to "S" : tensor<16x16xf32>
}

// -----

tile.kernel @store_state_c3 "scan" chunk 16 warps 1 arguments [#tile.arg<"S.final" : f32>] blob 0 slice 16 of 1 {
  %a = arith.constant dense<0.0> : tensor<16x16xf32, #tile.layout<opb>>
  // expected-error @below {{'tile.store_state' op expects a state in layout acc, got opb}}
  tile.store_state %a to "S" : tensor<16x16xf32, #tile.layout<opb>>
}

// -----

// expected-note @below {{the kernel}}
tile.kernel @keep_state_c1 "prepare" chunk 16 warps 1 arguments [#tile.arg<"S" : f32>] blob 64 {
  // expected-error @below {{'tile.keep_state' op expects an argument of the kernel, got 'z'}}
  tile.keep_state "z" 16 to 0
}

// -----

// expected-note @below {{the kernel}}
tile.kernel @keep_state_c1_role "scan" chunk 16 warps 1 arguments [#tile.arg<"z" : f32>] blob 64 slice 16 of 1 {
  // expected-error @below {{'tile.keep_state' op expects a kernel that prepares, got role 'scan'}}
  tile.keep_state "z" 16 to 0
}

// -----

tile.kernel @keep_state_c2 "prepare" chunk 16 warps 1 arguments [#tile.arg<"z" : f32>] blob 64 {
  // expected-error @below {{'tile.keep_state' op expects 64 bytes in the blob of 64, at a multiple of 16, got 16}}
  tile.keep_state "z" 16 to 16
}

// -----

tile.kernel @store_decay_c1 "scan" chunk 16 warps 1 arguments [] blob 0 slice 16 of 1 diagonal {
  %d = arith.constant dense<1.0> : tensor<16xf32>
  // expected-error @below {{'tile.store_decay' op expects a kernel with the role 'summary', got 'scan'}}
  tile.store_decay %d : tensor<16xf32>
}

// -----

tile.kernel @store_decay_c1_full "summary" chunk 16 warps 1 arguments [] blob 0 slice 16 of 1 {
  %d = arith.constant dense<1.0> : tensor<16xf32>
  // expected-error @below {{'tile.store_decay' op expects a kernel that is 'diagonal'}}
  tile.store_decay %d : tensor<16xf32>
}

// -----

tile.kernel @store_decay_c2 "summary" chunk 16 warps 1 arguments [] blob 0 slice 16 of 1 diagonal {
  %d = arith.constant dense<1.0> : tensor<16xf32, #tile.layout<acc_row>>
  // expected-error @below {{'tile.store_decay' op expects the decay in layout linear, got acc_row}}
  tile.store_decay %d : tensor<16xf32, #tile.layout<acc_row>>
}

// -----

// expected-note @below {{the kernel}}
tile.kernel @export_rows_c1_role "scan" chunk 16 warps 1 arguments [#tile.arg<"o" : bf16>] blob 0 slice 16 of 1 {
  %t = tile.alloc : <16, 64, bf16>
  // expected-error @below {{'tile.export_rows' op expects a kernel that prepares, got role 'scan'}}
  tile.export_rows %t to "o" : <16, 64, bf16>
}

// -----

tile.kernel @export_rows_c1 "prepare" chunk 16 warps 1 arguments [#tile.arg<"o" : f32>] blob 0 {
  %t = tile.alloc : <16, 64, bf16>
  // expected-error @below {{'tile.export_rows' op expects 'o' to be of 'bf16', got 'f32'}}
  tile.export_rows %t to "o" : <16, 64, bf16>
}

// -----

tile.kernel @export_rows_c2 "prepare" chunk 16 warps 1 arguments [#tile.arg<"o" : bf16>] blob 0 {
  %t = tile.alloc : <32, 64, bf16>
  // expected-error @below {{'tile.export_rows' op expects a tile of 16 x 64, got '!tile.shared<32, 64, bf16>'}}
  tile.export_rows %t to "o" : <32, 64, bf16>
}

// -----

tile.kernel @fetch_c2_steps "prepare" chunk 16 steps 3 warps 3 arguments [#tile.arg<"k1" : bf16>, #tile.arg<"k2" : bf16>] blob 0 {
  %t = tile.alloc : <48, 64, bf16>
  // expected-error @below {{'tile.fetch' op expects an input, or one for each of 3 steps, got 'k1,k2'}}
  tile.fetch "k1,k2" to %t : <48, 64, bf16>
}

// -----

// expected-note @below {{the kernel}}
tile.kernel @step_c1 "scan" chunk 16 warps 1 arguments [] blob 0 slice 16 of 1 {
  // expected-error @below {{'tile.step' op expects a kernel that prepares, got role 'scan'}}
  %s = tile.step : tensor<16xf32>
}

// -----

tile.kernel @step_c2 "prepare" chunk 16 steps 2 warps 2 arguments [] blob 0 {
  // expected-error @below {{'tile.step' op expects a column of type 'tensor<32xf32>', got 'tensor<16xf32>'}}
  %s = tile.step : tensor<16xf32>
}
