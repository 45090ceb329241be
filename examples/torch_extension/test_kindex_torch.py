# SPDX-FileCopyrightText: The kindex authors
# SPDX-License-Identifier: MIT
"""An indexer step through kindex_torch against the same step in plain torch.

    python3 setup.py build_ext --inplace && python3 -m pytest -s

quantise and store the new K, gather, logits, torch.topk: bytes, logits and the selected sets must
be the reference's, for decode and prefill, in every layout, with and without a graph. -s shows
the times."""

import dataclasses
import pathlib
import shutil

import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip("no GPU that PyTorch sees", allow_module_level=True)

import kindex_torch as kt

HEAD_DIM = 128
NUM_HEADS = 64
TOPK = 2048
DEVICE = "cuda"
LAYOUTS = [
    pytest.param(64, False, id="plain64"),
    pytest.param(64, True, id="preshuffled64"),
    pytest.param(1, False, id="plain1"),
]

torch.backends.cuda.matmul.allow_tf32 = False


def native_fp8():
    if torch.version.hip and "gfx942" in torch.cuda.get_device_properties(0).gcnArchName:
        return torch.float8_e4m3fnuz
    return torch.float8_e4m3fn


FP8 = native_fp8()
FP8_MAX = torch.finfo(FP8).max
# Of sum |w| |q| |k|: Hopper's tensor cores cut fp8 sums to about 13 fraction bits, at every step.
TOLERANCE = 2.0**-20 if torch.version.hip else 2.0**-11


# The plain torch side -----------------------------------------------------------------------------
def torch_quantise(k, ue8m0):
    k = k.float()
    amax = k.abs().amax(-1).clamp_min(1e-4)
    scale = amax / torch.full_like(amax, FP8_MAX)  # by a number PyTorch multiplies with its inverse
    if ue8m0:
        bits = scale.view(torch.int32)
        scale = ((bits + 0x7FFFFF) & 0x7F800000).view(torch.float32)
    values = (k * (1 / scale)[:, None]).clamp(-FP8_MAX, FP8_MAX)
    return values.to(FP8).view(torch.uint8), scale


def torch_store(k, cache, slots, ue8m0, preshuffle):
    page_size = cache.size(1)
    pages = cache.flatten(1)
    assert pages.data_ptr() == cache.data_ptr()
    data, scale = torch_quantise(k, ue8m0)
    page, token = slots // page_size, slots % page_size
    dim = torch.arange(HEAD_DIM, device=k.device)
    if preshuffle:
        row = (token // 16) * 16 * HEAD_DIM + (token % 16) * 16
        offset = row[:, None] + (dim // 16) * 256 + dim % 16
    else:
        offset = (token * HEAD_DIM)[:, None] + dim
    pages[page[:, None], offset] = data
    offset = page_size * HEAD_DIM + 4 * token[:, None] + torch.arange(4, device=k.device)
    pages[page[:, None], offset] = scale.view(torch.uint8).view(-1, 4)


def torch_gather(cache, table, preshuffle):
    """K bytes [sequences, W * P, D] and scales [sequences, W * P] of whole block tables."""
    page_size = cache.size(1)
    pages = cache[table.clamp_min(0).long()].flatten(2)
    k, scale = pages[..., : page_size * HEAD_DIM], pages[..., page_size * HEAD_DIM :]
    if preshuffle:
        k = k.unflatten(-1, (page_size // 16, HEAD_DIM // 16, 16, 16)).transpose(-3, -2)
    k = k.reshape(table.size(0), -1, HEAD_DIM)
    return k, scale.contiguous().view(torch.float32).reshape(table.size(0), -1)


def torch_logits(q, k, scale, weights, dtype):
    """[sequences, rows, tokens] for q [sequences, rows, H, D]."""
    k = k.view(FP8).to(dtype)
    logits = []
    for first in range(0, q.size(1), 64):
        dots = torch.einsum("srhd,std->srht", q[:, first : first + 64].to(dtype), k).relu_()
        w = weights[:, first : first + 64].to(dtype)
        logits.append(torch.einsum("srht,srh->srt", dots, w))
    return torch.cat(logits, 1).float() * scale[:, None]


def error_bound(q, k, scale, weights):
    """What the logits may differ by: TOLERANCE of the products that a dot is the sum of."""
    absolute = lambda x: x.view(FP8).float().abs()
    q = torch.einsum("srhd,srh->srd", absolute(q), weights.abs())
    return torch.einsum("srd,std->srt", q, absolute(k)) * scale[:, None] * TOLERANCE


def select(logits, visible):
    """What torch.topk selects among the columns that a row sees, as a mask."""
    indices = logits.topk(min(TOPK, logits.size(-1)), dim=-1).indices
    chosen = torch.zeros_like(logits, dtype=torch.bool).scatter_(-1, indices, True)
    return chosen & (torch.arange(logits.size(-1), device=logits.device) < visible[:, None])


# A step -------------------------------------------------------------------------------------------
@dataclasses.dataclass
class Step:
    """Sequences with a cache; in each the last `rows` tokens are new and ask. The cache is one
    layer of a larger buffer, as engines have it, and its pages are in no order."""

    rows: int  # queries of a sequence
    group: int  # of them in one row of q_fp8: next_n
    page_size: int
    preshuffle: bool
    lens: list
    seed: int = 0

    def __post_init__(self):
        generator = torch.Generator(DEVICE).manual_seed(self.seed)
        random = lambda *shape: torch.randn(*shape, device=DEVICE, generator=generator)
        size, num_seqs = self.page_size, len(self.lens)
        num_pages = [-(-length // size) for length in self.lens]
        self.width = max(num_pages)
        total = sum(num_pages) + 3
        self.buffer = torch.zeros(total, 2, size, HEAD_DIM + 4, dtype=torch.uint8, device=DEVICE)
        self.cache = self.buffer[:, 1]
        order = torch.randperm(total, device=DEVICE, generator=generator)
        self.table = torch.full((num_seqs, self.width), -1, dtype=torch.int32, device=DEVICE)
        first = 0
        for s, pages in enumerate(num_pages):
            self.table[s, :pages] = order[first : first + pages].int()
            first += pages

        # Tokens that the queries look for, TOPK a sequence and all of them older than the queries:
        # which ones are selected does not hang on the last bits of a logit.
        k, slots = [], []
        topic = random(num_seqs, HEAD_DIM).sign() / 2
        for s, length in enumerate(self.lens):
            rows = random(length, HEAD_DIM) / 2
            old = length - self.rows
            assert length <= TOPK or old >= TOPK
            wanted = torch.randperm(max(old, 0), device=DEVICE, generator=generator)[:TOPK]
            rows[wanted] += topic[s]
            k.append(rows.bfloat16())
            token = torch.arange(length, device=DEVICE)
            slots.append(self.table[s, token // size].long() * size + token % size)
        self.k_old = torch.cat([rows[: -self.rows] for rows in k])
        self.k_new = torch.cat([rows[-self.rows :] for rows in k])
        self.slots_old = torch.cat([s[: -self.rows] for s in slots])
        self.slots_new = torch.cat([s[-self.rows :] for s in slots])

        q = random(num_seqs, self.rows, NUM_HEADS, HEAD_DIM) / 2 + topic[:, None, None]
        self.q = q.to(FP8)
        self.weights = torch.rand(
            num_seqs, self.rows, NUM_HEADS, device=DEVICE, generator=generator
        ) + 0.1
        self.visible = torch.stack(
            [torch.arange(n - self.rows + 1, n + 1, device=DEVICE) for n in self.lens]
        ).int()
        self.cu_seq_lens = torch.tensor([0, *self.lens], device=DEVICE).cumsum(0).int()
        self.columns = self.width * size

        # What an engine keeps from step to step.
        tokens = sum(self.lens)
        self.dst_k = torch.empty(tokens, HEAD_DIM, dtype=FP8, device=DEVICE)
        self.dst_scale = torch.empty(tokens, 1, dtype=torch.float32, device=DEVICE)
        self.logits = torch.full(
            (num_seqs * self.rows, self.columns), 7.0, dtype=torch.float32, device=DEVICE
        )
        groups = self.rows // self.group
        self.q_call = self.q.view(num_seqs * groups, self.group, NUM_HEADS, HEAD_DIM)
        self.lens_call = self.visible.view(num_seqs * groups, self.group)
        self.table_call = self.table.repeat_interleave(groups, 0) if groups > 1 else self.table

    # The engine's three calls.
    def store(self, k, slots):
        kt.indexer_k_quant_and_cache(k, self.cache, slots, 128, "ue8m0", self.preshuffle)

    def gather(self):
        kt.cp_gather_indexer_k_quant_cache(
            self.cache, self.dst_k, self.dst_scale, self.table, self.cu_seq_lens,
            preshuffle=self.preshuffle,
        )

    def compute_logits(self):
        kt.deepgemm_fp8_paged_mqa_logits(
            self.q_call,
            self.cache.unsqueeze(2),
            self.weights.view(-1, NUM_HEADS),
            self.logits,
            self.lens_call if self.group > 1 else self.lens_call[:, 0],
            self.table_call,
            self.columns,
            Preshuffle=self.preshuffle,
            KVBlockSize=self.page_size,
            ChunkK=256,
            WavePerEU=2,
            fill_neg_infinity=True,
        )

    def run(self):
        self.store(self.k_new, self.slots_new)
        self.gather()
        self.compute_logits()
        self.topk = self.logits.topk(min(TOPK, self.columns), dim=-1).indices

    def run_torch(self, cache, dtype):
        torch_store(self.k_new, cache, self.slots_new, True, self.preshuffle)
        k, scale = torch_gather(cache, self.table, self.preshuffle)
        logits = torch_logits(self.q, k, scale, self.weights, dtype)
        column = torch.arange(self.columns, device=DEVICE)
        logits.masked_fill_(column >= self.visible[..., None], float("-inf"))
        return k, scale, logits.flatten(0, 1)

    def check(self, cache_before):
        """The state after `run` against plain torch from the same start."""
        buffer = cache_before.clone()
        k, scale, logits = self.run_torch(buffer[:, 1], torch.float32)
        bound = error_bound(self.q, k, scale, self.weights).flatten(0, 1)
        assert torch.equal(self.buffer, buffer), "bytes of the cache"

        real = torch.arange(self.columns, device=DEVICE) < self.visible[:, -1:]
        assert torch.equal(self.dst_k.view(torch.uint8), k[real]), "gathered K"
        assert torch.equal(self.dst_scale[:, 0], scale[real]), "gathered scales"

        visible = self.visible.flatten()
        seen = torch.arange(self.columns, device=DEVICE) < visible[:, None]
        assert torch.equal(self.logits == float("-inf"), ~seen), "-inf exactly where nothing is seen"
        error = (self.logits - logits).abs()[seen]
        assert (error <= bound[seen]).all(), "logits"

        wanted = select(logits, visible)
        # The premise: no row's choice hangs on rounding.
        worst_in = logits.masked_fill(~wanted, float("inf")).amin(-1)
        best_out = logits.masked_fill(wanted, float("-inf")).amax(-1)
        slack = bound.masked_fill(~seen, 0).amax(-1)
        assert (worst_in - best_out > 2 * slack).all(), "the test's own data"
        chosen = torch.zeros_like(seen).scatter_(-1, self.topk, True) & seen
        assert torch.equal(chosen, wanted), "selected set"
        assert torch.equal(wanted.sum(-1), visible.clamp_max(TOPK).long())


def decode(page_size, preshuffle, seed=0):
    lens = [1, 2, 63, 64, 65, 1000, 2048, 2049] + [4096 + 80 * i for i in range(56)]
    return Step(1, 1, page_size, preshuffle, lens, seed)


def prefill(page_size, preshuffle, seed=0):
    """512 new tokens in each of four prompts; eight of their rows share one reading of K."""
    return Step(512, 8, page_size, preshuffle, [512, 2048, 4000, 6001], seed)


KINDS = [pytest.param(decode, id="decode"), pytest.param(prefill, id="prefill")]


def microseconds(call, repeats=20):
    for _ in range(3):
        call()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(repeats):
        call()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) * 1000 / repeats


@pytest.mark.parametrize("page_size,preshuffle", LAYOUTS)
@pytest.mark.parametrize("kind", KINDS)
def test_step(kind, page_size, preshuffle, request):
    step = kind(page_size, preshuffle)
    step.store(step.k_old, step.slots_old)
    before = step.buffer.clone()
    step.run()
    step.check(before)

    cache = before[:, 1]
    k, scale = torch_gather(cache, step.table, preshuffle)
    times = [
        ("store", lambda: step.store(step.k_new, step.slots_new),
         lambda: torch_store(step.k_new, cache, step.slots_new, True, preshuffle)),
        ("gather", step.gather, lambda: torch_gather(cache, step.table, preshuffle)),
        ("logits", step.compute_logits,
         lambda: torch_logits(step.q, k, scale, step.weights, torch.bfloat16)),
        ("step", step.run,
         lambda: step.run_torch(cache, torch.bfloat16)[2].topk(min(TOPK, step.columns))),
    ]
    print(f"\n{request.node.callspec.id:24} {'kindex':>10} {'torch bf16':>12}  us")
    for name, ours, theirs in times:
        print(f"  {name:22} {microseconds(ours):10.1f} {microseconds(theirs, 5):12.1f}")


@pytest.mark.parametrize("page_size,preshuffle", LAYOUTS)
@pytest.mark.parametrize("kind", KINDS)
def test_graph(kind, page_size, preshuffle):
    """The first call of the step is captured; the graph then runs on other data and lengths."""
    step = kind(page_size, preshuffle, seed=1)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step.run()
    assert (step.logits == 7.0).all(), "a captured call does not run"
    step.store(step.k_old, step.slots_old)
    before = step.buffer.clone()
    graph.replay()
    step.check(before)

    # Shorter contexts, new keys and queries: only device memory changes.
    if kind is decode:
        step.lens = [n // 2 + 1 if n < TOPK else n for n in step.lens]
        step.visible.copy_(torch.tensor(step.lens, device=DEVICE)[:, None])
        step.cu_seq_lens.copy_(torch.tensor([0, *step.lens], device=DEVICE).cumsum(0))
        tokens = sum(step.lens)
    step.q.copy_((step.q.float() * 0.5).to(FP8))
    step.weights.mul_(0.25)
    step.dst_k.view(torch.uint8).zero_()
    before = step.buffer.clone()
    graph.replay()
    if kind is decode:  # rows of dst behind the last sequence are not touched
        assert (step.dst_k.view(torch.uint8)[tokens:] == 0).all()
        step.dst_k, step.dst_scale = step.dst_k[:tokens], step.dst_scale[:tokens]
    step.check(before)


def test_current_stream():
    """The calls run on the current stream: they see what was queued there before them."""
    step = decode(64, True, seed=2)
    step.store(step.k_old, step.slots_old)
    before = step.buffer.clone()
    k, step.k_new = step.k_new, torch.empty_like(step.k_new)
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(20_000_000)
        step.k_new.copy_(k)
        step.run()
    torch.cuda.synchronize()
    step.check(before)


def test_random_weights():
    """Weights of both signs, one length a sequence, two rows of a sequence, columns untouched."""
    step = Step(2, 2, 64, True, [700, 65, 2, 300])
    step.weights = torch.randn_like(step.weights)
    step.store(step.k_old, step.slots_old)
    before = step.buffer.clone()
    step.store(step.k_new, step.slots_new)
    lens = step.visible[:, -1].contiguous()
    call = lambda out, **more: kt.deepgemm_fp8_paged_mqa_logits(
        step.q_call, step.cache.unsqueeze(2), step.weights.view(-1, NUM_HEADS), out, lens,
        step.table, step.columns, True, 64, **more,
    )
    wide = torch.full((8, step.columns + 5), 7.0, device=DEVICE)
    assert call(wide) is None
    k, scale, logits = step.run_torch(before[:, 1], torch.float32)
    bound = error_bound(step.q, k, scale, step.weights).flatten(0, 1)
    seen = torch.arange(wide.size(1), device=DEVICE) < step.visible.flatten()[:, None]
    assert (wide[~seen] == 7.0).all()
    error = (wide[:, : step.columns] - logits).abs()
    seen = seen[:, : step.columns]
    assert (error[seen] <= bound[seen]).all()
    narrow = wide[:, : step.columns].contiguous()
    call(narrow, TotalCuCount=80, VarCtxSchedule=lens)
    assert torch.equal(narrow[seen], wide[:, : step.columns][seen])


@pytest.mark.parametrize("page_size,preshuffle", LAYOUTS)
def test_one_row(page_size, preshuffle):
    """One sequence of one token: PyTorch leaves anything in the stride of a dimension of one."""
    odd = lambda x: x.as_strided(
        x.shape, [3 if size == 1 else stride for size, stride in zip(x.shape, x.stride())])
    step = Step(1, 1, page_size, preshuffle, [1])
    for name in ("k_new", "dst_k", "dst_scale", "table", "logits", "q_call", "lens_call",
                 "table_call"):
        setattr(step, name, odd(getattr(step, name)))
    assert step.k_new.stride() == (3, 1) and step.q_call.stride() == (3, 3, HEAD_DIM, 1)
    before = step.buffer.clone()
    step.run()
    step.check(before)


@pytest.mark.parametrize("slot_type", [torch.int64, torch.int32])
@pytest.mark.parametrize("k_type", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("scale_fmt", ["ue8m0", None])
def test_store_types(k_type, slot_type, scale_fmt):
    wide = torch.randn(300, HEAD_DIM + 64, device=DEVICE).to(k_type)
    k = wide[:, 64:]  # rows of a wider tensor
    slots = torch.randperm(8 * 64, device=DEVICE)[:300]
    caches = [torch.zeros(8, 64, HEAD_DIM + 4, dtype=torch.uint8, device=DEVICE) for _ in range(2)]
    torch_store(k[:290], caches[0], slots[:290], scale_fmt is not None, True)
    slots[290:] = -1  # padding of a captured batch
    kt.indexer_k_quant_and_cache(k, caches[1], slots.to(slot_type), 128, scale_fmt, preshuffle=True)
    assert torch.equal(*caches)


def refusal_cases():
    k = lambda: torch.zeros(4, 128, dtype=torch.bfloat16, device=DEVICE)
    cache = lambda size=64: torch.zeros(2, size, 132, dtype=torch.uint8, device=DEVICE)
    slots = lambda: torch.zeros(4, dtype=torch.int64, device=DEVICE)
    store = kt.indexer_k_quant_and_cache

    def logits(**changes):
        arguments = dict(
            q_fp8=torch.zeros(2, 1, 64, 128, device=DEVICE).to(FP8),
            kv_cache=cache().unsqueeze(2),
            weights=torch.zeros(2, 64, device=DEVICE),
            out_logits=torch.zeros(2, 128, device=DEVICE),
            context_lens=torch.ones(2, dtype=torch.int32, device=DEVICE),
            kv_indices=torch.zeros(2, 2, dtype=torch.int32, device=DEVICE),
            max_model_len=128,
            Preshuffle=True,
            KVBlockSize=64,
        )
        arguments.update(changes)
        kt.deepgemm_fp8_paged_mqa_logits(**arguments)

    other = torch.float8_e4m3fn if FP8 == torch.float8_e4m3fnuz else torch.float8_e4m3fnuz
    return {
        r"page_size 24 is not a multiple of 16 \(preshuffled layout\)":
            lambda: store(k(), cache(24), slots(), 128, None, True),
        r"this build does not have them: it has head_dim 128":
            lambda: store(k(), cache(48), slots(), 128, None, True),
        r"quant_block_size 64 with head_dim 128":
            lambda: store(k(), cache(), slots(), 64, None),
        r"scale_fmt \"e8m0\" is not": lambda: store(k(), cache(), slots(), 128, "e8m0"),
        r"slot_mapping has type Short": lambda: store(k(), cache(), slots().short(), 128, None),
        r"slot_mapping is on cpu": lambda: store(k(), cache(), slots().cpu(), 128, None),
        r"k has stride 2": lambda: store(
            torch.zeros(4, 256, dtype=torch.bfloat16, device=DEVICE)[:, ::2], cache(), slots(), 128,
            None),
        r"must follow one another": lambda: store(
            k(), torch.zeros(2, 64, 160, dtype=torch.uint8, device=DEVICE)[..., :132], slots(), 128,
            None),
        r"KVBlockSize 1 is not the page size": lambda: logits(KVBlockSize=1),
        r"kv_indices has type Long": lambda: logits(
            kv_indices=torch.zeros(2, 2, dtype=torch.int64, device=DEVICE)),
        r"out_logits has 128 columns, max_model_len is 129": lambda: logits(max_model_len=129),
        r"q_format e4m3fn\w* differs from the cache's": lambda: logits(
            q_fp8=torch.zeros(2, 1, 64, 128, device=DEVICE).to(other)),
        r"num_heads 24 is neither 8 nor a multiple of 16": lambda: logits(
            q_fp8=torch.zeros(2, 1, 24, 128, device=DEVICE).to(FP8),
            weights=torch.zeros(2, 24, device=DEVICE)),
        r"context_lens has shape \[3, 2\]": lambda: logits(
            context_lens=torch.ones(3, 2, dtype=torch.int32, device=DEVICE)),
    }


@pytest.mark.parametrize("message", list(refusal_cases()))
def test_refusals(message):
    with pytest.raises(RuntimeError, match="kindex: .*" + message):
        refusal_cases()[message]()


def test_schema():
    k = torch.randn(4, 128, dtype=torch.bfloat16, device=DEVICE)
    cache = torch.zeros(2, 64, 132, dtype=torch.uint8, device=DEVICE)
    slots = torch.arange(4, device=DEVICE)
    torch.library.opcheck(
        kt.indexer_k_quant_and_cache, (k, cache, slots, 128, "ue8m0", True),
        test_utils=("test_schema", "test_faketensor"),
    )


def test_hipify_changes_no_header(tmp_path):
    """PyTorch rewrites the headers below an AMD extension's folder, a vendored kindex too: they must
    come out as they are, or two copies of the library meet in one program."""
    from torch.utils.hipify import hipify_python

    include = pathlib.Path(__file__).resolve().parents[2] / "include"
    shutil.copytree(include, tmp_path / "include")
    source = tmp_path / "use.hip"
    source.write_text("#include <kindex/kindex.hpp>\n#include <kindex/reference.hpp>\n")
    hipify_python.hipify(
        project_directory=str(tmp_path),
        output_directory=str(tmp_path),
        header_include_dirs=[str(tmp_path / "include")],
        includes=[str(tmp_path / "*")],
        extra_files=[str(source)],
        is_pytorch_extension=True,
        show_detailed=False,
        hipify_extra_files_only=True,
    )
    before = {p.relative_to(include): p.read_text() for p in include.rglob("*.hpp")}
    after = {p.relative_to(tmp_path / "include"): p.read_text()
             for p in (tmp_path / "include").rglob("*") if p.is_file()}
    assert sorted(map(str, after)) == sorted(map(str, before))
    assert after == before
