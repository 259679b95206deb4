// A kernel that no CTA can hold.
// RUN: plum-opt %s --pass-pipeline='builtin.module(tile.kernel(tile-assign-layouts),plum-tile-to-nvvm{sm=90})' -verify-diagnostics

// expected-error @below {{'tile.kernel' op needs 262144 bytes of shared memory, more than a CTA can have}}
tile.kernel @plum_large_prepare128 "prepare" chunk 128 warps 8 arguments [] blob 0 {
  %a = tile.alloc : <128, 512, bf16>
  %b = tile.alloc : <128, 512, bf16>
  %x = tile.load %a : <128, 512, bf16> -> tensor<128x512xbf16>
  tile.store %x to %b : tensor<128x512xbf16>, <128, 512, bf16>
}
