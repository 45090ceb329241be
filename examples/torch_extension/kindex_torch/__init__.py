# SPDX-FileCopyrightText: The kindex authors
# SPDX-License-Identifier: MIT
"""kindex as PyTorch operators, under the names and with the arguments that engines call today."""

import pathlib

import torch

_libraries = sorted(pathlib.Path(__file__).parent.glob("_C*.so"))
if not _libraries:
    raise ImportError("kindex_torch is not built: python3 setup.py build_ext --inplace")
torch.ops.load_library(_libraries[0])

indexer_k_quant_and_cache = torch.ops.kindex.indexer_k_quant_and_cache
cp_gather_indexer_k_quant_cache = torch.ops.kindex.cp_gather_indexer_k_quant_cache
deepgemm_fp8_paged_mqa_logits = torch.ops.kindex.deepgemm_fp8_paged_mqa_logits

# All results are written in place: there is nothing for torch.compile to know about them.
for _name in (
    "indexer_k_quant_and_cache",
    "cp_gather_indexer_k_quant_cache",
    "deepgemm_fp8_paged_mqa_logits",
):
    torch.library.register_fake(f"kindex::{_name}", lambda *args, **kwargs: None)
