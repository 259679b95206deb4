// Each numbered constraint of loops over chunks, rings and stages, broken once.
// RUN: plum-opt %s -split-input-file -verify-diagnostics

tile.kernel @chunks_c1 "scan" chunk 16 warps 1 arguments [] blob 0 slice 16 of 1 {
  %x = arith.constant 0.0 : f32
  // expected-error @below {{'tile.chunks' op expects region arguments of types 'f32', got }}
  %y = tile.chunks init(%x : f32) {
    tile.yield %x : f32
  } : f32
}

// -----

tile.kernel @chunks_c2_count "scan" chunk 16 warps 1 arguments [] blob 0 slice 16 of 1 {
  %x = arith.constant 0.0 : f32
  // expected-error @below {{'tile.chunks' op expects to yield 1 carried values, got 0 for 1 results}}
  %y = tile.chunks init(%x : f32) {
  ^bb0(%c: f32):
    tile.yield
  } : f32
}

// -----

tile.kernel @chunks_c2_types "scan" chunk 16 warps 1 arguments [] blob 0 slice 16 of 1 {
  %x = arith.constant 0.0 : f32
  // expected-error @below {{'tile.chunks' op expects to have results of the types of 'f32', got 'index'}}
  %y = tile.chunks init(%x : f32) {
  ^bb0(%c: f32):
    tile.yield %c : f32
  } : index
}

// -----

// expected-note @below {{the kernel}}
tile.kernel @chunks_c3_role "prepare" chunk 16 warps 1 arguments [] blob 0 {
  // expected-error @below {{'tile.chunks' op expects a kernel that scans, got role 'prepare'}}
  tile.chunks { tile.yield }
}

// -----

tile.kernel @chunks_c3_twice "scan" chunk 16 warps 1 arguments [] blob 0 slice 16 of 1 {
  // expected-note @below {{another is here}}
  tile.chunks { tile.yield }
  // expected-error @below {{'tile.chunks' op expects to be the kernel's only one}}
  tile.chunks { tile.yield }
}

// -----

func.func @chunks_alone() {
  // expected-error @below {{'tile.chunks' op expects parent op 'tile.kernel'}}
  tile.chunks { tile.yield }
  return
}

// -----

tile.kernel @tail_c1 "scan" chunk 16 warps 1 arguments [] blob 0 slice 16 of 1 {
  // expected-error @below {{'tile.tail' op expects to stand after 'tile.chunks'}}
  tile.tail {}
}

// -----

// expected-note @below {{the kernel}}
tile.kernel @ring_c1 "prepare" chunk 16 warps 1 arguments [] blob 2048 {
  // expected-error @below {{'tile.ring' op expects a kernel that scans, got role 'prepare'}}
  %r = tile.ring 2 [#tile.part<type = <16, 64, bf16>, blob = 0>] : !tile.ring
}

// -----

tile.kernel @ring_c2 "scan" chunk 16 warps 1 arguments [] blob 2048 slice 16 of 1 {
  // expected-error @below {{'tile.ring' op expects a stage and a part, got 0 and 1}}
  %r = tile.ring 0 [#tile.part<type = <16, 64, bf16>, blob = 0>] : !tile.ring
}

// -----

tile.kernel @ring_c3_end "scan" chunk 16 warps 1 arguments [] blob 2048 slice 16 of 1 {
  // expected-error @below {{'tile.ring' op expects 2048 bytes in the blob of 2048, at a multiple of 16, got 16}}
  %r = tile.ring 2 [#tile.part<type = <16, 64, bf16>, blob = 16>] : !tile.ring
}

// -----

tile.kernel @ring_c3_start "scan" chunk 16 warps 1 arguments [] blob 4096 slice 16 of 1 {
  // expected-error @below {{'tile.ring' op expects 2048 bytes in the blob of 4096, at a multiple of 16, got 8}}
  %r = tile.ring 2 [#tile.part<type = <16, 64, bf16>, blob = 8>] : !tile.ring
}

// -----

// expected-note @below {{the kernel}}
tile.kernel @ring_c4_name "scan" chunk 16 warps 1 arguments [] blob 0 slice 16 of 1 {
  // expected-error @below {{'tile.ring' op expects an argument of the kernel, got 'k'}}
  %r = tile.ring 2 [#tile.part<type = <16, 64, bf16>, rows = "k">] : !tile.ring
}

// -----

tile.kernel @ring_c4_element "scan" chunk 16 warps 1 arguments [#tile.arg<"k" : f32>] blob 0 slice 16 of 1 {
  // expected-error @below {{'tile.ring' op expects 'k' to be of 'bf16', got 'f32'}}
  %r = tile.ring 2 [#tile.part<type = <16, 64, bf16>, rows = "k">] : !tile.ring
}

// -----

tile.kernel @ring_c4_slice "scan" chunk 16 warps 1 arguments [#tile.arg<"v" : bf16>] blob 0 slice 16 of 4 {
  // expected-error @below {{'tile.ring' op expects rows of 16 x 16, got '!tile.shared<16, 64, bf16>'}}
  %r = tile.ring 2 [#tile.part<type = <16, 64, bf16>, rows = "v", sliced = true>] : !tile.ring
}

// -----

tile.kernel @acquire_c1 "scan" chunk 16 warps 1 arguments [] blob 2048 slice 16 of 1 {
  // expected-note @below {{the ring}}
  %r = tile.ring 2 [#tile.part<type = <16, 64, bf16>, blob = 0>] : !tile.ring
  tile.chunks {
    // expected-error @below {{'tile.acquire' op expects the parts '!tile.shared<16, 64, bf16>', got '!tile.shared<16, 16, bf16>'}}
    %p = tile.acquire %r : !tile.ring -> !tile.shared<16, 16, bf16>
    tile.yield
  }
}

// -----

tile.kernel @acquire_outside "scan" chunk 16 warps 1 arguments [] blob 2048 slice 16 of 1 {
  %r = tile.ring 2 [#tile.part<type = <16, 64, bf16>, blob = 0>] : !tile.ring
  // expected-error @below {{'tile.acquire' op expects parent op 'tile.chunks'}}
  %p = tile.acquire %r : !tile.ring -> !tile.shared<16, 64, bf16>
}

// -----

tile.kernel @previous_c1 "scan" chunk 16 warps 1 arguments [] blob 2048 slice 16 of 1 {
  // expected-note @below {{the ring}}
  %r = tile.ring 2 [#tile.part<type = <16, 64, bf16>, blob = 0>] : !tile.ring
  tile.chunks {
    // expected-error @below {{'tile.previous' op expects the parts '!tile.shared<16, 64, bf16>', got '!tile.shared<16, 16, bf16>'}}
    %p = tile.previous %r : !tile.ring -> !tile.shared<16, 16, bf16>
    tile.yield
  }
}

// -----

tile.kernel @previous_c2 "scan" chunk 16 warps 1 arguments [] blob 2048 slice 16 of 1 {
  // expected-note @below {{the ring}}
  %r = tile.ring 1 [#tile.part<type = <16, 64, bf16>, blob = 0>] : !tile.ring
  tile.chunks {
    // expected-error @below {{'tile.previous' op expects a ring of two stages or more, got 1}}
    %p = tile.previous %r : !tile.ring -> !tile.shared<16, 64, bf16>
    tile.yield
  }
}

// -----

tile.kernel @release_c1 "scan" chunk 16 warps 1 arguments [] blob 2048 slice 16 of 1 {
  // expected-note @below {{the ring}}
  %r = tile.ring 1 [#tile.part<type = <16, 64, bf16>, blob = 0>] : !tile.ring
  tile.chunks {
    // expected-error @below {{'tile.release' op expects a ring of two stages or more, got 1}}
    tile.release %r previous : !tile.ring
    tile.yield
  }
}

// -----

tile.kernel @release_outside "scan" chunk 16 warps 1 arguments [] blob 2048 slice 16 of 1 {
  %r = tile.ring 2 [#tile.part<type = <16, 64, bf16>, blob = 0>] : !tile.ring
  // expected-error @below {{'tile.release' op expects parent op 'tile.chunks'}}
  tile.release %r : !tile.ring
}
