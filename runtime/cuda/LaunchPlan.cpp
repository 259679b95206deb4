//===- LaunchPlan.cpp - What a run launches, worked out before ------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/LaunchPlan.h"

#include "runtime/Growing.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace plum::runtime::cuda {

namespace {

std::string text(int64_t number) { return std::to_string(number); }

/// The product, or nothing when it passes `most`.
std::optional<int64_t> product(std::initializer_list<int64_t> factors,
                               int64_t most) {
  int64_t result = 1;
  for (int64_t factor : factors)
    if (__builtin_mul_overflow(result, factor, &result))
      return std::nullopt;
  return result > most ? std::nullopt : std::optional(result);
}

constexpr int64_t largestGrid = std::numeric_limits<int32_t>::max();
constexpr int64_t largestCount = std::numeric_limits<uint32_t>::max();
constexpr int64_t largestWorkspace = int64_t(1) << 48;

int64_t ceilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

std::string describe(const KernelSet &set) {
  return "form " + std::string(name(set.form)) +
         (set.form == KernelForm::Chunk ? ", chunk " + text(set.chunk) : "");
}

/// Fills plan.args.tensors and plan.slots.
class TensorFiller {
public:
  TensorFiller(const RunArgs &args, const Problem &problem, LaunchPlan &plan)
      : args(args), problem(problem), plan(plan) {}

  Status params(const std::vector<ManifestTensor> &tensors) {
    for (size_t i = 0; i < tensors.size(); ++i)
      if (Status s = rows(tensors[i], "param", args.params[i]); !s)
        return s;
    return Status::ok();
  }
  Status inputs(const Manifest &manifest) {
    for (size_t i = 0; i < manifest.inputs.size(); ++i)
      if (Status s = rows(manifest.inputs[i], "input", args.inputs[i]); !s)
        return s;
    for (size_t s = 0; s < manifest.states.size() && args.appended; ++s)
      plan.slots[manifest.params.size() + *manifest.rowsInput(s)].optional =
          true;
    return Status::ok();
  }
  Status outputs(const std::vector<ManifestTensor> &tensors) {
    for (size_t i = 0; i < tensors.size(); ++i)
      if (Status s = rows(tensors[i], "output", args.outputs[i]); !s)
        return s;
    return Status::ok();
  }
  Status states(const std::vector<ManifestTensor> &tensors, const char *what,
                const std::vector<TensorView> &views, bool snapshots) {
    const bool final = &views == &args.finalStates;
    for (size_t i = 0, nth = 0; i < tensors.size(); ++i) {
      if (tensors[i].grows && !args.rowTables.empty() && final) {
        table(tensors[i], what, args.rowTables[nth++], problem.stateGroup[i]);
        continue;
      }
      // A growing state has no snapshots.
      if (views.empty() ||
          (tensors[i].grows && (snapshots || !args.rowTables.empty()))) {
        plan.args.tensors[plan.slots.size()].share = PLUM_GPU_SHARE(1);
        plan.slots.push_back({&tensors[i], what, 1, true, false, true});
      } else if (Status s = state(tensors[i], what, views[i], snapshots); !s)
        return s;
    }
    return Status::ok();
  }

private:
  /// [B, T, H, d], d contiguous.
  Status rows(const ManifestTensor &tensor, const char *what,
              const TensorView &view) {
    auto width = int64_t(byteSize(view.dtype));
    plum_gpu_tensor &entry = plan.args.tensors[plan.slots.size()];
    entry.sequence = view.shape[0] > 1 ? view.stride[0] * width : 0;
    entry.token = view.shape[1] > 1 ? view.stride[1] * width : 0;
    entry.head = view.shape[2] > 1 ? view.stride[2] * width : 0;
    const int64_t sharing = problem.heads / view.shape[2];
    if (problem.heads > (int64_t(1) << 31) / sharing)
      return Error{"",
                   std::string(what) + " '" + tensor.name + "' has " +
                       text(view.shape[2]) + " heads for " +
                       text(problem.heads) +
                       ", expected more where there are so many",
                   {"a kernel finds a shared head of at most 2^31 / " +
                    text(sharing) + " heads"}};
    entry.share = PLUM_GPU_SHARE(sharing);
    return add(tensor, what, view, view.shape[3] * width, 3, false);
  }

  /// [N, H, K, V] or [N, H, V, K].
  Status state(const ManifestTensor &tensor, const char *what,
               const TensorView &view, bool snapshots) {
    auto width = int64_t(byteSize(view.dtype));
    if (tensor.grows)
      return list(tensor, what, view);
    plum_gpu_tensor &entry = plan.args.tensors[plan.slots.size()];
    entry.sequence = view.stride[0] * width;
    if (snapshots) {
      entry.token = entry.sequence;
      entry.sequence *= problem.tokens / args.snapshotEvery;
    }
    entry.head = view.stride[1] * width;
    // A vector state's one index may be called row or column.
    bool matrix = tensor.shape.size() == 2;
    bool swapped = matrix && args.layout == StateLayout::VK;
    entry.row = view.stride[swapped || !matrix ? 3 : 2] * width;
    entry.column = view.stride[swapped ? 2 : 3] * width;
    entry.share = PLUM_GPU_SHARE(1);
    entry.dtype = view.dtype == DType::BF16 ? PLUM_GPU_BF16 : PLUM_GPU_F32;
    int inner = view.stride[3] == 1 ? 3 : 2;
    return add(tensor, what, view, view.shape[inner] * width, inner, true);
  }

  /// [N, H, capacity, d], d contiguous; H may be fewer.
  Status list(const ManifestTensor &tensor, const char *what,
              const TensorView &view) {
    auto width = int64_t(byteSize(view.dtype));
    plum_gpu_tensor &entry = plan.args.tensors[plan.slots.size()];
    entry.sequence = view.stride[0] * width;
    entry.head = view.stride[1] * width;
    entry.row = view.stride[2] * width;
    entry.share = PLUM_GPU_SHARE(problem.heads / view.shape[1]);
    entry.dtype = view.dtype == DType::BF16 ? PLUM_GPU_BF16 : PLUM_GPU_F32;
    return add(tensor, what, view, view.shape[3] * width, 3, true);
  }

  /// The address of a launch is that of the table.
  void table(const ManifestTensor &tensor, const char *what,
             const RowTable &table, int64_t sharing) {
    plum_gpu_tensor &entry = plan.args.tensors[plan.slots.size()];
    entry.sequence = table.base;
    entry.head = table.headStride;
    entry.row = table.rowStride;
    entry.share = PLUM_GPU_SHARE(sharing);
    entry.dtype = (table.dtype == DType::BF16 ? PLUM_GPU_BF16 : PLUM_GPU_F32) |
                  PLUM_GPU_TABLE;
    plan.slots.push_back({&tensor, what, 8, false, true, false});
  }

  /// Rows of a multiple of 16 bytes are read 16 bytes at a time, so they must
  /// begin on such a boundary; others element by element.
  Status add(const ManifestTensor &tensor, const char *what,
             const TensorView &view, int64_t rowBytes, int innerAxis,
             bool optional) {
    auto width = int64_t(byteSize(view.dtype));
    int64_t alignment = rowBytes > 0 && rowBytes % 16 == 0 ? 16 : width;
    bool empty = view.elements() == 0;
    plan.slots.push_back(
        {&tensor, what, uint32_t(alignment), optional, true, empty});
    constexpr const char *rowAxes[] = {"batch", "token", "head", "last"};
    constexpr const char *stateAxes[] = {"first", "head", "third", "last"};
    const auto &axes = optional ? stateAxes : rowAxes;
    for (int axis = 0; axis < 4 && !empty; ++axis)
      if (axis != innerAxis && view.shape[axis] > 1 &&
          view.stride[axis] * width % alignment != 0)
        return Error{
            "",
            std::string(what) + " '" + tensor.name + "' has a stride of " +
                text(view.stride[axis] * width) + " bytes along its " +
                axes[axis] + " axis, expected a multiple of " + text(alignment),
            {"kernels read 16 bytes at a time: pad the buffer so that every "
             "row of '" +
             tensor.name +
             "' starts on a 16-byte boundary, or make the tensor "
             "contiguous"}};
    return Status::ok();
  }

  const RunArgs &args;
  const Problem &problem;
  LaunchPlan &plan;
};

Status fillTensors(const Manifest &manifest, const RunArgs &args,
                   const Problem &problem, LaunchPlan &plan) {
  size_t count = manifest.params.size() + manifest.inputs.size() +
                 manifest.outputs.size() + 3 * manifest.states.size();
  if (count > PLUM_GPU_MAX_TENSORS)
    return Error{"",
                 "the layer has " + text(int64_t(count)) +
                     " tensors, kernels take at most " +
                     text(PLUM_GPU_MAX_TENSORS),
                 {}};
  TensorFiller filler(args, problem, plan);
  if (Status s = filler.params(manifest.params); !s)
    return s;
  if (Status s = filler.inputs(manifest); !s)
    return s;
  if (Status s = filler.states(manifest.states, "initial state",
                               args.initialStates, false);
      !s)
    return s;
  if (Status s = filler.states(manifest.states, "final state", args.finalStates,
                               false);
      !s)
    return s;
  if (Status s = filler.outputs(manifest.outputs); !s)
    return s;
  const std::vector<TensorView> none;
  return filler.states(manifest.states, "snapshot",
                       args.snapshotEvery > 0 ? args.snapshots : none, true);
}

/// P, checked when the caller chose it.
Result<int64_t> chooseSegments(const Manifest &manifest, const KernelSet &set,
                               const GpuSizes &sizes, int64_t wanted,
                               int processors) {
  const ManifestKernel *scan = set.find(manifest, KernelRole::Scan);
  bool able = scan && set.find(manifest, KernelRole::Summary) &&
              set.find(manifest, KernelRole::Combine);
  if (wanted == 0)
    return able ? segmentsFor(sizes, set.chunk, scan->slices, processors) : 1;
  if (wanted < 0)
    return Error{
        "", "got " + text(wanted) + " segments, expected at least 1", {}};
  if (wanted > 1 && !able)
    return Error{"",
                 "has no summary kernel for " + describe(set) +
                     ": a sequence cannot be split into " + text(wanted) +
                     " segments",
                 {}};
  int64_t chunks = ceilDiv(sizes.tokens, set.chunk);
  if (wanted > 1 && wanted > chunks)
    return Error{"",
                 "got " + text(wanted) + " segments for " + text(chunks) +
                     " chunks, expected at most one for each",
                 {}};
  return wanted;
}

/// Blocks of a kernel; nothing when there are too many.
std::optional<int64_t> gridOf(const ManifestKernel &kernel,
                              const LaunchPlan &plan, bool hasSummary) {
  const GpuSizes &sizes = plan.sizes;
  switch (kernel.grid) {
  case KernelGrid::One:
    return 1;
  case KernelGrid::Chunks:
    return product({chunksOf(sizes, plan.chunk), sizes.heads, kernel.slices},
                   largestGrid);
  case KernelGrid::Tokens: {
    int64_t together =
        kernel.role == KernelRole::Attend ? plan.args.head_block : 1;
    return product({sizes.packed ? 1 : sizes.sequences, sizes.tokens,
                    sizes.heads / together, kernel.slices},
                   largestGrid);
  }
  case KernelGrid::Sequences:
    break;
  }
  int64_t parts = 1;
  if (kernel.role == KernelRole::Scan && hasSummary)
    parts = plan.segments;
  else if (kernel.role == KernelRole::Summary)
    parts = 2 * plan.segments - 3;
  return product({sizes.sequences, sizes.heads, kernel.slices, parts},
                 largestGrid);
}

/// The most heads, of those that a block can have, that share every growing
/// state side by side.
uint32_t headBlock(const Problem &problem, const Manifest &manifest,
                   const KernelSet &set) {
  int64_t shared = problem.heads;
  for (int64_t group : problem.stateGroup)
    shared = std::gcd(shared, group);
  int64_t most = shared;
  for (size_t index : set.kernels)
    if (manifest.kernels[index].role == KernelRole::Attend)
      most = std::min(most, manifest.kernels[index].headBlock);
  while (shared % most)
    --most;
  return uint32_t(most);
}

Status fillLaunches(const Manifest &manifest, const KernelSet &set,
                    const RunArgs &args, LaunchPlan &plan) {
  bool hasSummary = set.find(manifest, KernelRole::Summary) != nullptr;
  for (size_t index : set.kernels) {
    const ManifestKernel &kernel = manifest.kernels[index];
    if (kernel.role == KernelRole::Index && !plan.sizes.packed)
      continue;
    const bool carries = kernel.role == KernelRole::Carry;
    if (carries && (args.initialStates.empty() || !args.rowTables.empty()))
      continue;
    if (kernel.role == KernelRole::Append && args.appended)
      continue;
    if ((kernel.role == KernelRole::Summary ||
         kernel.role == KernelRole::Combine) &&
        plan.segments == 1)
      continue;
    std::optional<int64_t> grid = gridOf(kernel, plan, hasSummary);
    if (!grid)
      return Error{"",
                   "kernel '" + kernel.symbol + "' would need more than " +
                       text(largestGrid) + " blocks",
                   {"run fewer sequences or heads at a time"}};
    if (*grid > 0 && plan.sizes.sequences > 0)
      plan.launches.push_back({index, uint32_t(*grid), carries});
  }
  return Status::ok();
}

Status fillCounts(const Manifest &manifest, const KernelSet &set,
                  const RunArgs &args, LaunchPlan &plan) {
  const GpuSizes &sizes = plan.sizes;
  int64_t chunks = sizes.packed ? chunksOf(sizes, plan.chunk)
                                : ceilDiv(sizes.tokens, plan.chunk);
  for (auto [what, count] :
       {std::pair("sequences", sizes.sequences),
        std::pair("tokens", sizes.tokens), std::pair("heads", sizes.heads),
        std::pair("chunks", chunks)})
    if (count > largestCount)
      return Error{"",
                   "a run of " + text(count) + " " + what +
                       " is too large, expected at most " + text(largestCount),
                   {}};
  if (args.snapshotEvery % plan.chunk != 0)
    return Error{"",
                 "states every " + text(args.snapshotEvery) +
                     " tokens, expected a multiple of the chunk, " +
                     text(plan.chunk),
                 {"step kernels keep states after any number of tokens"}};
  if (sizes.packed && set.form == KernelForm::Chunk &&
      !set.find(manifest, KernelRole::Index))
    return Error{"", "has no index kernel, so it runs no packed sequences", {}};
  plan.args.sequences = uint32_t(sizes.sequences);
  plan.args.tokens = uint32_t(sizes.tokens);
  plan.args.heads = uint32_t(sizes.heads);
  plan.args.chunks = uint32_t(chunks);
  plan.args.segments = uint32_t(plan.segments);
  if (args.snapshotEvery <= sizes.tokens) // Else there are none.
    plan.args.snapshot_every = uint32_t(args.snapshotEvery / plan.chunk);
  if (args.cuSeqlens && args.cuSeqlens.dtype == DType::I64)
    plan.args.flags |= PLUM_GPU_CU64;
  if (args.slots && args.slots.dtype == DType::I64)
    plan.args.flags |= PLUM_GPU_SLOTS64;
  if (args.past && args.past.dtype == DType::I64)
    plan.args.flags |= PLUM_GPU_PAST64;
  return Status::ok();
}

} // namespace

const ManifestKernel *KernelSet::find(const Manifest &manifest,
                                      KernelRole role) const {
  for (size_t index : kernels)
    if (manifest.kernels[index].role == role)
      return &manifest.kernels[index];
  return nullptr;
}

std::vector<KernelSet> kernelSets(const Manifest &manifest) {
  std::vector<KernelSet> sets;
  for (size_t i = 0; i < manifest.kernels.size(); ++i) {
    const ManifestKernel &kernel = manifest.kernels[i];
    auto same = [&](const KernelSet &set) {
      return set.form == kernel.form && set.chunk == kernel.chunk;
    };
    auto found = std::find_if(sets.begin(), sets.end(), same);
    if (found == sets.end())
      found = sets.insert(found, {kernel.form, kernel.chunk, {}});
    found->kernels.push_back(i);
  }
  return sets;
}

Result<KernelSet> chooseKernels(const Manifest &manifest,
                                const GpuOptions &options,
                                const GpuSizes &sizes) {
  std::vector<KernelSet> sets = kernelSets(manifest);
  auto find = [&](KernelForm form, int64_t chunk) {
    return std::find_if(sets.begin(), sets.end(), [&](const KernelSet &set) {
      return set.form == form && (chunk == 0 || set.chunk == chunk);
    });
  };
  auto step = find(KernelForm::Step, 0);
  auto chunk = find(KernelForm::Chunk, options.chunk);
  bool single = sizes.tokens <= (sizes.packed ? sizes.sequences : 1);
  auto found = options.form == Form::Step                  ? step
               : options.form == Form::Chunk               ? chunk
               : options.chunk != 0 && chunk == sets.end() ? chunk
               : single && step != sets.end()              ? step
               : chunk != sets.end()                       ? chunk
                                                           : step;
  if (found != sets.end())
    return *found;
  Error error{"", "", {}};
  error.message = options.form == Form::Step ? "has no step kernel"
                  : options.chunk != 0 ? "has no kernel for chunks of " +
                                             text(options.chunk) + " tokens"
                                       : "has no chunk kernel";
  for (const KernelSet &set : sets)
    error.notes.push_back("it has " + describe(set));
  return error;
}

int64_t chunksOf(const GpuSizes &sizes, int64_t chunk) {
  if (sizes.packed)
    return sizes.tokens / chunk + sizes.sequences;
  int64_t each = ceilDiv(sizes.tokens, chunk);
  return product({sizes.sequences, each}, largestWorkspace)
      .value_or(largestWorkspace);
}

Result<WorkspaceSections> workspaceFor(const Manifest &manifest,
                                       const KernelSet &set,
                                       const GpuSizes &sizes,
                                       int64_t segments) {
  int64_t blobBytes = 0, segmentBytes = 0;
  for (size_t index : set.kernels) {
    blobBytes = std::max(blobBytes, manifest.kernels[index].blobBytes);
    segmentBytes = std::max(segmentBytes, manifest.kernels[index].segmentBytes);
  }
  auto offsets = product({2, sizes.sequences + 1, 4}, largestWorkspace);
  auto blobs = product({chunksOf(sizes, set.chunk), sizes.heads, blobBytes},
                       largestWorkspace);
  auto states = product({sizes.sequences, sizes.heads, segments, segmentBytes},
                        largestWorkspace);
  if (!offsets || !blobs || !states)
    return Error{"", "the workspace of a run of this size is out of range", {}};
  WorkspaceSections sections;
  auto place = [&](int64_t bytes) {
    uint64_t offset = sections.bytes;
    sections.bytes += uint64_t(bytes + 255) / 256 * 256;
    return offset;
  };
  sections.chunkOffsets = place(sizes.packed ? *offsets : 0);
  sections.blobs = place(*blobs);
  sections.segments = place(segments > 1 ? *states : 0);
  return sections;
}

int64_t segmentsFor(const GpuSizes &sizes, int64_t chunk, int64_t slices,
                    int processors) {
  auto blocks = product({sizes.sequences, sizes.heads, slices}, largestGrid);
  if (!blocks || *blocks == 0)
    return 1;
  int64_t chunks = sizes.packed ? sizes.tokens / chunk / sizes.sequences
                                : ceilDiv(sizes.tokens, chunk);
  int64_t best = 1;
  for (int64_t p = 3; *blocks * p <= processors && 4 * p <= chunks; ++p)
    if (*blocks * (2 * p - 3) <= processors)
      best = p;
  return best;
}

Result<LaunchPlan> planLaunch(const Manifest &manifest, const RunArgs &args,
                              const GpuOptions &options, int processors) {
  Result<Problem> problem = checkDeviceProblem(manifest, args);
  if (!problem)
    return problem.error();
  LaunchPlan plan;
  plan.sizes = {problem->sequenceCount, problem->tokens, problem->heads,
                bool(args.cuSeqlens)};
  plan.pool = bool(args.slots);
  plan.past = bool(args.past);
  plan.args.past_rows = uint32_t(defaultPast(manifest, args));
  Result<KernelSet> set = chooseKernels(manifest, options, plan.sizes);
  if (!set)
    return set.error();
  if (manifest.growingState())
    plan.args.head_block = headBlock(*problem, manifest, *set);
  plan.form = set->form;
  plan.chunk = set->chunk;
  Result<int64_t> segments =
      chooseSegments(manifest, *set, plan.sizes, options.segments, processors);
  if (!segments)
    return segments.error();
  plan.segments = *segments;
  if (Status s = fillCounts(manifest, *set, args, plan); !s)
    return s.error();
  if (Status s = fillTensors(manifest, args, *problem, plan); !s)
    return s.error();
  Result<WorkspaceSections> sections =
      workspaceFor(manifest, *set, plan.sizes, plan.segments);
  if (!sections)
    return sections.error();
  plan.workspace = *sections;
  if (Status s = fillLaunches(manifest, *set, args, plan); !s)
    return s.error();
  return plan;
}

} // namespace plum::runtime::cuda
