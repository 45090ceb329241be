# SPDX-FileCopyrightText: The kindex authors
# SPDX-License-Identifier: MIT
"""Builds kindex_torch for the GPU vendor that the installed PyTorch is for.

    python3 setup.py build_ext --inplace

PYTORCH_ROCM_ARCH chooses AMD targets as usual (default here: gfx942).
KINDEX_TORCH_ALL_KERNELS=1 builds every page size, head_dim and number of heads (minutes)."""

import os
import pathlib

import torch
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension

here = pathlib.Path(__file__).resolve().parent
root = here.parents[1]
os.chdir(here)

include_dirs = [str(here), str(root / "include")]
macros = [("KINDEX_TORCH_ALL_KERNELS", os.environ.get("KINDEX_TORCH_ALL_KERNELS", "0"))]
device_sources = ["store_gather.hip", "logits.hip"]
device_flags = ["-O3"]

if torch.version.hip:
    os.environ.setdefault("PYTORCH_ROCM_ARCH", "gfx942")
else:
    # HIP's names for CUDA, where no HIP is installed; and nvcc knows a source by its name.
    include_dirs.insert(0, str(root / "tests" / "cuda"))
    macros.append(("__HIP_PLATFORM_NVIDIA__", "1"))
    generated = here / "build" / "cuda"
    generated.mkdir(parents=True, exist_ok=True)
    for index, source in enumerate(device_sources):
        wrapper = generated / (pathlib.Path(source).stem + ".cu")
        wrapper.write_text(f'#include "{source}"\n')
        device_sources[index] = str(wrapper.relative_to(here))
    # sm_90a, not sm_90: wgmma exists only there. Naming it stops PyTorch from naming others.
    device_flags.append("-gencode=arch=compute_90a,code=sm_90a")

setup(
    name="kindex_torch",
    version="0.1.0",
    packages=["kindex_torch"],
    ext_modules=[
        CUDAExtension(
            "kindex_torch._C",
            ["binding.cpp", *device_sources],
            include_dirs=include_dirs,
            define_macros=macros,
            extra_compile_args={"cxx": ["-O2", "-Wall"], "nvcc": device_flags},
        )
    ],
    cmdclass={"build_ext": BuildExtension},
)
