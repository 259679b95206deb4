# What quickstart and check share: packages, configure, build. Sourced, not run.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

# Debian 12 names. openblas is loaded at run time, never linked.
packages=(cmake ninja-build clang-22 lld-22 libclang-rt-22-dev libmlir-22-dev
          mlir-22-tools llvm-22-dev llvm-22-tools clang-format-22 python3
          nlohmann-json3-dev libcli11-dev libfmt-dev libgtest-dev
          libpcre2-dev libutf8proc-dev
          libopenblas0-pthread)

step() { printf '\n== %s\n' "$*"; }

install_packages() {
  local missing=() package
  for package in "${packages[@]}"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' ||
      missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return
  step "installing ${missing[*]}"
  local sudo=()
  [ "$(id -u)" -eq 0 ] || sudo=(sudo)
  "${sudo[@]}" apt-get update -qq
  DEBIAN_FRONTEND=noninteractive "${sudo[@]}" apt-get install -y -qq \
    --no-install-recommends "${missing[@]}" >/dev/null
}

# Names NVIDIA's assembler in PLUM_PTXAS: that of a toolkit if there is one, else
# the one in NVIDIA's wheel on PyPI, which is kept in build/ptxas.
provide_ptxas() {
  local wheel=nvidia-cuda-nvcc==13.0.88 own=build/ptxas place
  for place in "${PLUM_PTXAS:-}" "$(command -v ptxas)" /usr/local/cuda/bin/ptxas \
               "$root/$own/ptxas"; do
    [ -x "$place" ] && export PLUM_PTXAS=$place && return
  done
  local packages=(python3-pip) # install_packages sees this one
  install_packages
  step "fetching ptxas ($wheel)"
  mkdir -p "$own"
  python3 -m pip -q download --no-deps --only-binary :all: -d "$own" "$wheel"
  python3 -m zipfile -e "$own"/nvidia_cuda_nvcc-*.whl "$own/wheel"
  mv "$own"/wheel/nvidia/*/bin/ptxas "$own/ptxas"
  chmod +x "$own/ptxas"
  rm -rf "$own/wheel" "$own"/*.whl
  export PLUM_PTXAS=$root/$own/ptxas
}

# configure DIR [cmake options]
configure() {
  local dir=$1
  shift
  [ -f "$dir/build.ninja" ] && return
  step "configuring $dir"
  cmake -G Ninja -S . -B "$dir" -DCMAKE_C_COMPILER=clang-22 \
    -DCMAKE_CXX_COMPILER=clang++-22 "$@" >"$dir.log" 2>&1 ||
    { cat "$dir.log"; exit 1; }
  rm -f "$dir.log"
}

# build DIR [targets]
build() {
  local dir=$1
  shift
  step "building $dir ${*:-everything}"
  NINJA_STATUS='[%f/%t, %es] ' ninja -C "$dir" "$@"
}
