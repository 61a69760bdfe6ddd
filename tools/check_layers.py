#!/usr/bin/env python3
"""Fails on an include that points up, or sideways, among the folders of tegula/.

Dependencies point one way; ALLOWED below is the whole rule. The same holds for the DEPS of the
CMake targets. CUDA headers appear only in kernels/cuda and runtime.
"""

import pathlib
import re
import sys

KERNEL_DESCRIPTORS = ("tegula/kernels/kernel.h", "tegula/kernels/moves.h", "tegula/kernels/order.h", "tegula/kernels/registry.h",
                      "tegula/kernels/target.h", "tegula/kernels/cuda/capability.h")
TRAINING_AND_SERVING = {
    "base", "ir", "tile", "kernels", "ops", "cost", "passes", "plan", "comm", "runtime", "io", "text", "models"}

# What each folder may include, besides itself.
ALLOWED = {
    "base": set(),
    "io": {"base"},
    "text": {"base", "io"},
    "ir": {"base"},
    "tile": {"base"},
    "kernels": {"base", "tile"},
    "ops": {"base", "ir", "tile", "kernels"},
    "models": {"base", "ir", "ops", "io", "text"},
    "cost": {"base", "ir", "tile", "kernels", "ops"},
    "passes": {"base", "ir", "tile", "kernels", "ops", "cost"},
    "plan": {"base", "io", "ir", "tile", "kernels", "ops", "cost", "passes"},
    "comm": {"base", "io"},
    "runtime": {"base", "io", "ir", "tile", "kernels", "ops", "cost", "passes", "plan", "comm"},
    "planner": {"base", "io", "ir", "tile", "kernels", "ops", "cost", "passes", "plan", "models"},
    "train": TRAINING_AND_SERVING,
    "serve": TRAINING_AND_SERVING,
}
# These see more of kernels/ than the descriptors, because they launch them.
LAUNCHES_KERNELS = {"kernels", "runtime"}

CUDA_HEADER = re.compile(r"^(cuda|cublas|cudnn|nvrtc|nvToolsExt|nccl|mma\.h|cooperative_groups)")
CUDA_FOLDERS = ("tegula/kernels/cuda/", "tegula/runtime/")
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')
SUFFIXES = {".h", ".cpp", ".cu", ".cuh", ".inc"}
LAYER_TARGET = re.compile(r"\btegula_layer\(\s*(\w+)([^)]*)\)")


def problem_of(path, quoted, header):
    """Why a file of tegula/ may not include a header, or None."""
    folder = path.split("/")[1]
    if CUDA_HEADER.match(header) and not path.startswith(CUDA_FOLDERS):
        return "CUDA headers belong in tegula/kernels/cuda and tegula/runtime only"
    if header.startswith(("cli/", "python/", "tests/", "bench/", "examples/")):
        return "tegula/ is below the shells, tests and benchmarks"
    if not header.startswith("tegula/"):
        if quoted and header.startswith("."):
            return "write the path from the repository's root"
        return None
    parts = header.split("/")
    if len(parts) < 3:
        return None
    target = parts[1]
    if target == folder:
        return None
    if target not in ALLOWED:
        return f"tegula/{target} is not a layer that tools/check_layers.py knows"
    if target not in ALLOWED[folder]:
        allowed = ", ".join(sorted(ALLOWED[folder])) or "nothing"
        return f"{folder} may include {allowed}, and {target} is not among them"
    if target == "kernels" and folder not in LAUNCHES_KERNELS and header not in KERNEL_DESCRIPTORS:
        return f"of kernels/, {folder} may include only {' and '.join(KERNEL_DESCRIPTORS)}"
    return None


def problems_of_sources(root):
    for file in sorted((root / "tegula").rglob("*")):
        path = file.relative_to(root).as_posix()
        if file.suffix not in SUFFIXES or path.count("/") < 2:
            continue
        folder = path.split("/")[1]
        if folder not in ALLOWED:
            yield f"{path}: tegula/{folder} is not a layer that tools/check_layers.py knows"
            continue
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            match = INCLUDE.match(line)
            if match:
                why = problem_of(path, match[1] == '"', match[2])
                if why:
                    yield f"{path}:{number}: includes {match[2]}: {why}"


def problems_of_targets(root):
    for cmake in sorted((root / "tegula").rglob("CMakeLists.txt")):
        where = cmake.relative_to(root).as_posix()
        text = re.sub(r"#.*", "", cmake.read_text(encoding="utf-8"))
        for name, arguments in LAYER_TARGET.findall(text):
            words = arguments.split()
            if "DEPS" not in words:
                continue
            for word in words[words.index("DEPS") + 1:]:
                if word.isupper():
                    break
                if word not in ALLOWED.get(name, set()):
                    yield f"{where}: layer {name} may not depend on {word}"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
    problems = [*problems_of_sources(root), *problems_of_targets(root)]
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
