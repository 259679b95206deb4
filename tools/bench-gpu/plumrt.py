"""libplumrt.so from PyTorch: bundles as functions of tensors.

    layer = Layer("lib/libplumrt.so", "kda.bundle")
    plan = layer.plan(tensors)              # checks shapes, allocates a workspace
    plan.launch(tensors, stream)            # enqueues kernels, nothing else

`tensors` is a Tensors: dicts by name, axes as runtime/plumrt.h has them
(inputs [B, T, H, ...], params [H, ...], states [N, H, ...]). A bundle for a CPU
has no plan; `layer.run(tensors)` computes at once.
"""
import ctypes
import json
from dataclasses import dataclass, field

import torch

AUTO, STEP, CHUNK = 0, 1, 2
KV, VK = 0, 1
DTYPES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2, torch.int32: 3, torch.int64: 4}
SIZE = ctypes.c_size_t
POINTER = ctypes.c_void_p


class CTensor(ctypes.Structure):
    _fields_ = [("data", POINTER), ("dtype", ctypes.c_int32), ("reserved", ctypes.c_int32),
                ("shape", ctypes.c_int64 * 4), ("stride", ctypes.c_int64 * 4)]


class RunArgs(ctypes.Structure):
    _fields_ = ([("size", SIZE)]
                + [(name, POINTER) for name in
                   ("inputs", "params", "outputs", "initial_states", "final_states", "cu_seqlens")]
                + [("cu_count", ctypes.c_int64), ("slots", POINTER), ("slot_count", ctypes.c_int64)]
                + [(name, ctypes.c_int32) for name in ("cu_dtype", "slot_dtype", "layout", "form")]
                + [("chunk", ctypes.c_int64), ("threads", ctypes.c_int32), ("reserved", ctypes.c_int32),
                   ("states_every", ctypes.c_int64), ("snapshots", POINTER),
                   ("past", POINTER), ("past_count", ctypes.c_int64),
                   ("past_dtype", ctypes.c_int32), ("reserved2", ctypes.c_int32)])


class PlanInfo(ctypes.Structure):
    _fields_ = [("size", SIZE), ("workspace_bytes", ctypes.c_uint64), ("chunk", ctypes.c_int64),
                ("segments", ctypes.c_int64), ("form", ctypes.c_int32), ("kernels", ctypes.c_int32)]


class Launch(ctypes.Structure):
    _fields_ = ([("size", SIZE)]
                + [(name, POINTER) for name in
                   ("inputs", "params", "outputs", "initial_states", "final_states", "snapshots",
                    "cu_seqlens", "slots", "workspace")]
                + [("workspace_bytes", ctypes.c_uint64), ("stream", POINTER), ("past", POINTER)])


assert ctypes.sizeof(CTensor) == 80 and ctypes.sizeof(RunArgs) == 152
assert ctypes.sizeof(PlanInfo) == 40 and ctypes.sizeof(Launch) == 104


@dataclass
class Tensors:
    """The tensors of one run, by the names of the spec."""
    inputs: dict
    params: dict
    outputs: dict
    initial: dict = field(default_factory=dict)  # empty: zeros
    final: dict = field(default_factory=dict)    # empty: not wanted
    cu_seqlens: torch.Tensor = None
    slots: torch.Tensor = None
    snapshots: dict = field(default_factory=dict)  # states after `every`, 2 `every`, ... tokens
    every: int = 0
    past: torch.Tensor = None  # rows of growing states before the run; empty: as many as there are


def view(tensor, declared, kind):
    """The four axes of plumrt_tensor."""
    shape, stride = list(tensor.shape), list(tensor.stride())
    own = len(declared)
    if kind == "state":  # [N, H, 1, K]; one that grows comes with its rows
        missing = 4 - len(shape)
        shape[2:2], stride[2:2] = [1] * missing, [1] * missing
    else:
        if own == 0:
            shape.append(1), stride.append(1)
        if kind == "param":
            shape[:0], stride[:0] = [1, 1], [0, 0]
    if len(shape) != 4:
        raise ValueError(f"a {kind} of declared shape {declared} cannot be {list(tensor.shape)}")
    return CTensor(tensor.data_ptr(), DTYPES[tensor.dtype], 0, (ctypes.c_int64 * 4)(*shape),
                   (ctypes.c_int64 * 4)(*stride))


class Layer:
    def __init__(self, library, directory, device=0):
        self.lib = ctypes.CDLL(library)
        self.error = ctypes.create_string_buffer(4096)
        self.lib.plumrt_gpu_manifest.restype = self.lib.plumrt_manifest.restype = ctypes.c_char_p
        self.handle = POINTER()
        with open(directory + "/manifest.json") as file:
            self.manifest = json.load(file)
        self.on_gpu = self.manifest["target"] != "cpu"
        path = directory.encode()
        if self.on_gpu:
            torch.cuda.init() if torch.cuda.is_available() else None
            self.check(self.lib.plumrt_gpu_open(path, device, ctypes.byref(self.handle), *self.text()))
        else:
            self.check(self.lib.plumrt_open(path, ctypes.byref(self.handle), *self.text()))

    def text(self):
        return self.error, SIZE(len(self.error))

    def check(self, failed):
        if failed:
            raise RuntimeError(self.error.value.decode())

    def ordered(self, tensors, kind):
        return [tensors[entry["name"]] for entry in self.manifest[kind]] if tensors else []

    def args(self, t, form, chunk, layout):
        keep = []  # what the struct points to

        def array(tensors, kind, what):
            if not tensors:
                return None
            views = [view(x, entry["shape"], what)
                     for x, entry in zip(self.ordered(tensors, kind), self.manifest[kind])]
            keep.append((CTensor * len(views))(*views))
            return ctypes.cast(keep[-1], POINTER)

        args = RunArgs(size=ctypes.sizeof(RunArgs), inputs=array(t.inputs, "inputs", "input"),
                       params=array(t.params, "params", "param"),
                       outputs=array(t.outputs, "outputs", "output"),
                       initial_states=array(t.initial, "states", "state"),
                       final_states=array(t.final, "states", "state"),
                       snapshots=array(t.snapshots, "states", "state"), states_every=t.every,
                       layout=layout, form=form, chunk=chunk)
        if t.cu_seqlens is not None:
            args.cu_seqlens, args.cu_count = t.cu_seqlens.data_ptr(), t.cu_seqlens.numel()
            args.cu_dtype = DTYPES[t.cu_seqlens.dtype]
        if t.slots is not None:
            args.slots, args.slot_count = t.slots.data_ptr(), t.slots.numel()
            args.slot_dtype = DTYPES[t.slots.dtype]
        if t.past is not None:
            args.past, args.past_count = t.past.data_ptr(), t.past.numel()
            args.past_dtype = DTYPES[t.past.dtype]
        return args, keep

    def run(self, tensors, form=AUTO, chunk=0, layout=KV):
        args, keep = self.args(tensors, form, chunk, layout)
        self.check(self.lib.plumrt_run(self.handle, ctypes.byref(args), *self.text()))

    def plan(self, tensors, form=AUTO, chunk=0, segments=0, layout=KV):
        return Plan(self, tensors, form, chunk, segments, layout)


class Plan:
    def __init__(self, layer, tensors, form, chunk, segments, layout):
        self.layer, self.handle = layer, POINTER()
        args, keep = layer.args(tensors, form, chunk, layout)
        layer.check(layer.lib.plumrt_plan_create(layer.handle, ctypes.byref(args), ctypes.c_int64(segments),
                                                 ctypes.byref(self.handle), *layer.text()))
        self.info = PlanInfo(size=ctypes.sizeof(PlanInfo))
        layer.check(layer.lib.plumrt_plan_query(self.handle, ctypes.byref(self.info), *layer.text()))
        device = next(iter(tensors.inputs.values())).device
        # torch aligns to 512 on a GPU; the host's allocator need not.
        memory = torch.empty(self.info.workspace_bytes + 256, dtype=torch.uint8, device=device)
        skip = -memory.data_ptr() % 256
        self.workspace = memory[skip:skip + self.info.workspace_bytes]

    def prepare(self, t, stream=0):
        """A launch as a struct: launching it again costs no Python to speak of."""
        keep = [t]

        def array(tensors, kind):
            if not tensors:
                return None
            addresses = [x.data_ptr() for x in self.layer.ordered(tensors, kind)]
            keep.append((POINTER * len(addresses))(*addresses))
            return ctypes.cast(keep[-1], POINTER)

        launch = Launch(size=ctypes.sizeof(Launch), inputs=array(t.inputs, "inputs"),
                        params=array(t.params, "params"), outputs=array(t.outputs, "outputs"),
                        initial_states=array(t.initial, "states"), final_states=array(t.final, "states"),
                        snapshots=array(t.snapshots, "states"),
                        cu_seqlens=None if t.cu_seqlens is None else t.cu_seqlens.data_ptr(),
                        slots=None if t.slots is None else t.slots.data_ptr(),
                        workspace=self.workspace.data_ptr(), workspace_bytes=self.info.workspace_bytes,
                        stream=stream, past=None if t.past is None else t.past.data_ptr())
        return launch, keep

    def enqueue(self, launch):
        self.layer.check(self.layer.lib.plumrt_plan_launch(self.handle, ctypes.byref(launch), *self.layer.text()))

    def launch(self, tensors, stream=None):
        if stream is None:
            stream = torch.cuda.current_stream().cuda_stream if torch.cuda.is_available() else 0
        launch, keep = self.prepare(tensors, stream)
        self.enqueue(launch)

    def __del__(self):
        if self.handle:
            self.layer.lib.plumrt_plan_destroy(self.handle)
