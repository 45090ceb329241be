# shellcheck shell=bash
# SPDX-FileCopyrightText: The kindex authors
# SPDX-License-Identifier: MIT

# The list of check.sh. Each entry: name, header, what to compile, the tests that should notice;
# then the old text, which is in the header exactly once, and the new one. The old text is kept
# short, so that reformatting does not touch it. What cannot be noticed here is not in the list:
# reading more of a page than is needed, grids of another size, whole units to addresses that are
# not aligned (gfx9 takes them), rounds of Newton's method (the emulator's reciprocal is exact),
# 32-bit products in the division of work (they need 2^32 units times blocks).

# Kernels that many mutations touch.
registers='L(128,64,preshuffled,registers,64)'
shared='L(128,64,preshuffled,shared,0) L(128,64,preshuffled,shared,64)'
global='L(128,64,preshuffled,global,0)'
shared_p16='L(128,16,preshuffled,shared,0) L(128,16,preshuffled,shared,64)'
registers_p16='L(128,16,preshuffled,registers,64)'
registers_p1='L(128,1,plain,registers,64)'
registers_run_time='L(128,0,preshuffled,registers,64)'
registers_d64='L(64,64,preshuffled,registers,32) L(64,16,preshuffled,registers,32)'
registers_d64_run_time='L(64,0,preshuffled,registers,32)'
shared_d256='L(256,64,preshuffled,shared,0) L(256,64,preshuffled,shared,64)'
store='S(128,64,preshuffled,bf16)'
store_run_time='S(128,0,preshuffled,bf16)'
store_p1_d256='S(256,1,plain,bf16)'
# Tests of single values store in pages of one token.
store_values='S(128,1,plain,bf16) S(128,1,plain,fp32) S(64,1,plain,fp32)'
gather='G(128,64,preshuffled)'
gather_p16='G(128,16,plain) G(128,16,preshuffled)'

# ---- layout and pages -------------------------------------------------------------------------

device 'layout: units of 16 dims half as far apart, store' cache_view.hpp "$store" \
  'store: each byte of a page*' << 'END'
(dim / 16) * 256
====
(dim / 16) * 128
END

device 'layout: tiles of 16 tokens half as far apart, gather' cache_view.hpp "$gather" \
  'gather: every geometry*' << 'END'
(t / 16) * 16 * head_dim
====
(t / 16) * 8 * head_dim
END

device 'layout: tokens of a tile in reverse order, gather' cache_view.hpp "$gather" \
  'gather: every geometry*' << 'END'
(t % 16) * 16 + dim % 16
====
(15 - t % 16) * 16 + dim % 16
END

device 'layout: scales group by group instead of token by token' cache_view.hpp \
  'S(256,64,preshuffled,bf16)' 'store: every geometry*' << 'END'
scales_per_token(head_dim) + group);
====
1 + group * page_size);
END

host 'layout: a wrong term in the definition' cache_view.hpp host_layout '[layout]' << 'END'
(t / 16) * 16 * head_dim
====
(t / 16) * 16 * 128
END

host 'layout: a page without room for its scales' cache_view.hpp host_layout '[layout]' << 'END'
(head_dim + 4 * scales_per_token(head_dim))
====
(head_dim + 4)
END

device 'pages: magic number of the division rounded down' detail/divider.hpp "$store_run_time" \
  'store: every geometry*' << 'END'
~std::uint64_t{0} / by + 1)
====
~std::uint64_t{0} / by)
END

host 'pages: 32-bit quotients lose a carry' detail/divider.hpp host_divider '[divider]' << 'END'
(high + (low >> 32)) >> 32
====
high >> 32
END

# ---- store ------------------------------------------------------------------------------------

device 'store: negative slots are not skipped' store.hpp "$store" \
  'store: slots that are none' << 'END'
static_cast<std::uint64_t>(slot) >= static_cast<std::uint64_t>(args.num_slots_in_cache)
====
slot >= args.num_slots_in_cache
END

device 'store: rows are read while their slots come' store.hpp "$store" \
  'store: rows of skipped tokens*' << 'END'
prefetch(own_part_of(existing));
====
static_cast<void>(*static_cast<const volatile char*>(own_part_of(existing)));
END

device 'store: slots beyond the cache are not skipped' store.hpp "$store" \
  'store: slots that are none' << 'END'
static_cast<std::uint64_t>(slot) >= static_cast<std::uint64_t>(args.num_slots_in_cache)
====
slot < 0
END

device 'store: one slot too many is in the cache' store.hpp "$store" \
  'store: slots that are none' << 'END'
static_cast<std::uint64_t>(slot) >= static_cast<std::uint64_t>(args.num_slots_in_cache)
====
static_cast<std::uint64_t>(slot) > static_cast<std::uint64_t>(args.num_slots_in_cache)
END

device 'store: int32 slots are read as int64' store.hpp "$store" \
  'store: every geometry*,store: slots that are none' << 'END'
__builtin_expect(args.slots_are_int64, 1)
====
__builtin_expect(1, 1)
END

device 'store: lanes past the last token store' store.hpp "$store" \
  'store: numbers of tokens*,store: the last row*' << 'END'
if (token > last ||
====
if (
END

device 'store: the number of slots alone counts' store.hpp 'S(128,16,plain,bf16)' \
  'store: the shorter of rows*' << 'END'
num_tokens = stored_tokens(params);
====
num_tokens = params.num_slots;
END

device 'store: rows of k are taken to be dense' store.hpp "$store" \
  'store: a slice of a wider*,store: every geometry*' << 'END'
row * args.k_row_stride_bytes
====
row * std::int64_t{geometry::head_dim * element_bytes(Config::k_type)}
END

device 'store: 32-bit offsets of rows of k' store.hpp "$store" \
  'store: rows of k beyond*' << 'END'
row * args.k_row_stride_bytes
====
row * static_cast<std::uint32_t>(args.k_row_stride_bytes)
END

device 'store: 32-bit offsets of pages' store.hpp "$store" 'store: pages around*' << 'END'
page * args.page_stride_bytes
====
page * static_cast<std::uint32_t>(args.page_stride_bytes)
END

device 'store: 32-bit slots' store.hpp 'S(64,1,plain,bf16)' \
  'store: slots beyond*' << 'END'
args.pages.page(static_cast<std::uint64_t>(slot))
====
args.pages.page(static_cast<std::uint32_t>(slot) & 0x7FFFFFFFu)
END

device 'store: both scales of 256 dims at the place of the first' store.hpp "$store_p1_d256" \
  'store: the two groups of 256*' << 'END'
unit / Config::lanes_per_group)))
====
0)))
END

device 'store: the second scale of 256 dims is not written' store.hpp "$store_p1_d256" \
  'store: the two groups of 256*' << 'END'
if (unit % Config::lanes_per_group == 0)
====
if (unit == 0)
END

device 'store: the largest magnitude of half a group' detail/wave.hpp "$store_values" \
  'store: scales to the bit,store: every geometry*' << 'END'
exchange_near<0x141>(value)
====
value
END

device 'store: even elements do not count for the scale' detail/convert.hpp "$store_values" \
  'store: scales to the bit,store: every geometry*' << 'END'
low_half > largest ? low_half : largest
====
largest
END

device 'store: odd bf16 elements keep bits of their neighbours' detail/convert.hpp "$store_values" \
  'store: every finite bf16*' << 'END'
bits_to_float(word & 0xFFFF0000u)
====
bits_to_float(word)
END

device 'store: another floor of the scale' store.hpp "$store_values" 'store: scales to the bit' << 'END'
0x38D1B717u
====
0x38D1B716u
END

device 'store: quotient of the scale without its correction' store.hpp "$store_values" \
  'store: scales are correctly*' << 'END'
multiply_add_rn(rest, args.inverse_quant_max, product)
====
product
END

device 'store: ue8m0 rounds to the nearest power of two' store.hpp "$store_values" \
  'store: ue8m0*' << 'END'
0x007FFFFFu : 0u
====
0x00400000u : 0u
END

device 'store: ue8m0 doubles exact powers of two' store.hpp "$store_values" 'store: ue8m0*' << 'END'
0x007FFFFFu : 0u
====
0x00800000u : 0u
END

device 'store: always the format'"'"'s maximum' store.hpp "$store_values" \
  'store: scales to the bit,store: every geometry*' << 'END'
params.quant_max == 0 ? fp8_max(geometry::format) : params.quant_max
====
fp8_max(geometry::format)
END

device 'store: the reciprocal where division is asked for' store.hpp "$store_values" \
  'store: reciprocal and exact*,store: quotients*' << 'END'
if (!Plain && args.exact_division)
====
if (false)
END

device 'store: infinities count for the scale' store.hpp "$store_values" \
  'store: values that are not finite' << 'END'
if (bits < infinity_bits) amax_bits
====
if (bits <= infinity_bits) amax_bits
END

device 'store: NaN is not replaced' store.hpp "$store_values" 'store: values that are not finite' << 'END'
if (bits > infinity_bits) value[i] = 0;
====

END

device 'store: infinities are not clamped' store.hpp "$store_values" \
  'store: values that are not finite' << 'END'
value[i] = fminf(fmaxf(value[i], -args.quant_max), args.quant_max);
====

END

device 'store: infinities take the plain path' store.hpp "$store_values" \
  'store: values that are not finite,store: one value*' << 'END'
amax_bits >= args.plain_amax_end
====
amax_bits > args.plain_amax_end
END

device 'store: a format that the device does not know' store.hpp "$store" \
  'store: refused calls*' << 'END'
if (device.native_format != geometry::format) return hipErrorNotSupported;
====

END

# ---- gather -----------------------------------------------------------------------------------

device 'gather: the owner one step too far' gather.hpp "$gather_p16" \
  'gather: numbers of sequences' << 'END'
(num_before - 1) * step
====
num_before * step
END

device 'gather: the wave looks at one sequence too few' gather.hpp "$gather_p16" \
  'gather: the first and the last*' << 'END'
(count + lanes_at_once - 1) / lanes_at_once
====
(count + lanes_at_once - 2) / lanes_at_once
END

device 'gather: owners are looked for one by one' gather.hpp "$gather_p16" \
  'gather: the search*' << 'END'
  int count = num_seqs;
====
  while (first + 1 < num_seqs && first_chunk_of(first + 1, cu_seq_lens[first + 1]) <= chunk)
    ++first;
  int count = 1;
END

device 'gather: first chunks belong to the sequence before' gather.hpp "$gather_p16" \
  'gather: numbers of sequences,gather: sequences of length 0*' << 'END'
first_chunk_of(seq[i], first_token[i]) <= chunk
====
first_chunk_of(seq[i], first_token[i]) < chunk
END

device 'gather: two sequences share a chunk' gather.hpp "$gather_p16" \
  'gather: numbers of sequences' << 'END'
chunk_tokens + static_cast<std::uint32_t>(seq);
====
chunk_tokens + static_cast<std::uint32_t>(seq) / 2;
END

device 'gather: the last chunk is missing' gather.hpp "$gather" \
  'gather: numbers of tokens*' << 'END'
(params.num_tokens - 1) / detail::chunk_tokens + params.num_seqs;
====
(params.num_tokens - 1) / detail::chunk_tokens + params.num_seqs - 1;
END

device 'gather: chunks go on in the next sequence' gather.hpp "$gather" \
  'gather: nothing is written twice*' << 'END'
uniform(args.cu_seq_lens[seq + 1]);
====
uniform(args.cu_seq_lens[args.num_seqs]);
END

device 'gather: rows past the lengths are written' gather.hpp "$gather" \
  'gather: rows beyond the lengths*' << 'END'
seq_end < args.num_tokens ? seq_end : args.num_tokens
====
args.num_tokens
END

device 'gather: lengths beyond the rows are not cut' gather.hpp "$gather" \
  'gather: lengths beyond the rows*' << 'END'
seq_end < args.num_tokens ? seq_end : args.num_tokens
====
seq_end
END

device 'gather: negative page ids are pages' gather.hpp "$gather" \
  'gather: page ids that are none*' << 'END'
page >= 0 && page < args.num_pages
====
page < args.num_pages
END

device 'gather: one page too many' gather.hpp "$gather" 'gather: page ids that are none*' << 'END'
page >= 0 && page < args.num_pages
====
page >= 0 && page <= args.num_pages
END

device 'gather: entries past the table are read' gather.hpp "$gather" \
  'gather: sequences longer*' << 'END'
&& entry < args.block_table_width)
====
&& entry <= args.block_table_width)
END

device 'gather: 32-bit offsets of pages' gather.hpp "$gather" 'gather: pages around*' << 'END'
page * args.page_stride_bytes
====
static_cast<std::uint32_t>(page * args.page_stride_bytes)
END

device 'gather: 32-bit offsets of table rows' gather.hpp "$gather_p16" \
  'gather: rows of the table*' << 'END'
args.block_table + seq * args.block_table_stride
====
args.block_table + static_cast<int>(seq * args.block_table_stride)
END

device 'gather: 32-bit offsets of rows of K' gather.hpp "$gather" \
  'gather: rows of the output*,gather: waves whose*' << 'END'
(first_token + row) * args.dst_k_stride_bytes
====
static_cast<std::uint32_t>((first_token + row) * args.dst_k_stride_bytes)
END

device 'gather: 32-bit offsets of rows of scales' gather.hpp "$gather" \
  'gather: rows of the output*' << 'END'
(first_token + lane) * args.dst_scale_stride
====
static_cast<std::int32_t>((first_token + lane) * args.dst_scale_stride)
END

device 'gather: the scale of the neighbour' gather.hpp "$gather" 'gather: every geometry*' << 'END'
scale_offset_in_page(page_size, geometry::head_dim, token_in_page, 0));
====
scale_offset_in_page(page_size, geometry::head_dim, token_in_page ^ 1, 0));
END

device 'gather: rows without a page keep what a register held' gather.hpp "$gather" \
  'gather: page ids that are none*' << 'END'
value[step] = u32x4{0, 0, 0, 0};
====
value[step] = u32x4{1, 1, 1, 1};
END

device 'gather: whole waves where rows end sooner' gather.hpp "$gather" \
  'gather: numbers of tokens*' << 'END'
if (lane < num_tokens && entry <
====
if (entry <
END

device 'gather: lanes without a row write scales' gather.hpp "$gather" \
  'gather: numbers of tokens*' << 'END'
  if (lane < num_tokens) {
====
  {
END

# ---- logits: lengths, work, fill --------------------------------------------------------------

device 'logits: every row sees one token less' detail/logits_work.hpp "$shared" \
  'logits: what the rows*' << 'END'
visible += n + 1 - args.next_n;
====
visible += n - args.next_n;
END

device 'logits: rows see their tokens in reverse order' detail/logits_work.hpp "$shared" \
  'logits: what the rows*' << 'END'
visible += n + 1 - args.next_n;
====
visible -= n;
END

device 'logits: lengths near the smallest integer wrap' detail/logits_work.hpp "$shared" \
  'logits: lengths beyond*' << 'END'
  visible = visible > 0 ? visible : 0;
  if (!args.lens_per_row)
====
  if (!args.lens_per_row)
END

device 'logits: no clamp to the width' paged_mqa_logits.hpp "$shared" \
  'logits: lengths beyond*' << 'END'
params.logits_width < table_tokens ? params.logits_width : table_tokens
====
table_tokens
END

device 'logits: no clamp to the table' paged_mqa_logits.hpp "$shared" \
  'logits: lengths beyond*' << 'END'
params.logits_width < table_tokens ? params.logits_width : table_tokens
====
params.logits_width
END

device 'logits: the last row is taken to be the longest' detail/logits_work.hpp "$shared" \
  'logits: per-row lengths*' << 'END'
tokens[i] = visible > tokens[i] ? visible : tokens[i];
====
tokens[i] = visible;
END

device 'logits: stride of the rows'"'"' lengths ignored' detail/logits_work.hpp "$shared" \
  'logits: per-row lengths*,logits: lengths of rows*' << 'END'
(args.lens_per_row ? n * args.context_lens_next_n_stride : 0)
====
(args.lens_per_row ? n : 0)
END

device 'logits: stride of the lengths ignored' detail/logits_work.hpp "$registers" \
  'logits: strides and alignments*' << 'END'
args.context_lens[seq * args.context_lens_batch_stride
====
args.context_lens[seq
END

device 'logits: stride of the lengths ignored by the division' detail/logits_work.hpp \
  "$registers" 'logits: strides and alignments*' << 'END'
args.context_lens + existing * args.context_lens_batch_stride;
====
args.context_lens + existing;
END

device 'logits: what is left over belongs to no block' detail/logits_work.hpp "$registers" \
  'logits: widths*' << 'END'
each + (blockIdx.x < left ? 1 : 0)
====
each
END

device 'logits: a partly filled unit is not one' detail/logits_work.hpp "$registers" \
  'logits: widths*' << 'END'
(static_cast<std::uint32_t>(tokens) + unit_tokens - 1) / unit_tokens
====
static_cast<std::uint32_t>(tokens) / unit_tokens
END

device 'logits: a block ends one unit too soon' detail/logits_work.hpp "$registers" \
  'logits: widths*' << 'END'
work.cost = counted_all ? cost : work.cost;
====
work.cost = counted_all && cost != 0 ? cost - 1 : work.cost;
END

device 'logits: a block begins one unit too late' detail/logits_work.hpp "$registers" \
  'logits: widths*' << 'END'
work.offset = uniform(shuffle(offset, lane));
      return work;
====
work.offset = uniform(shuffle(offset, lane)) + start_cost + 1;
      return work;
END

device 'logits: where a piece begins in a run is forgotten' detail/logits_work.hpp "$registers_p16" \
  'logits: arrays end*' << 'END'
work.offset = uniform(shuffle(offset, lane));
  }
====
work.offset = 0;
  }
END

device 'logits: a run that is counted once more begins too soon' detail/logits_work.hpp \
  "$registers_p16" 'logits: arrays end*' << 'END'
first = uniform(shuffle(run_first, lane));
====
first = uniform(shuffle(run_first, lane)) - 1;
END

device 'logits: the cost of a start is forgotten between pieces' detail/logits_work.hpp \
  "$registers" 'logits: lengths around*,logits: one wave*' << 'END'
units_of(work.num_tokens) + start_cost - work.offset
====
units_of(work.num_tokens) - work.offset
END

device 'logits: sequences without tokens are busy' detail/logits_work.hpp "$registers_d64" \
  'logits: one wave*' << 'END'
ballot(tokens > 0);
====
ballot(candidate < args.num_seqs);
END

device 'logits: the search for the next sequence leaves one out' detail/logits_work.hpp \
  "$registers" 'logits: as many empty*' << 'END'
seq < args.num_seqs; seq += wave_size) {
====
seq < args.num_seqs; seq += wave_size + 1) {
END

device 'logits: lengths are read past the batch' detail/logits_work.hpp \
  "$registers_p16 $shared_p16" 'logits: arrays end*' << 'END'
run_first + per_lane < end ? run_first + per_lane : end;
====
run_first + per_lane;
END

device 'logits: the fill goes one column beyond the width' detail/logits_work.hpp "$registers" \
  'logits: widths*' << 'END'
first + fill_columns : args.logits_width;
====
first + fill_columns : args.logits_width + 1;
END

device 'logits: the fill is one column short' detail/logits_work.hpp "$registers" \
  'logits: widths*' << 'END'
t < end; t += wave_size
====
t < end - 1; t += wave_size
END

device 'logits: the fill begins one column late' detail/logits_work.hpp "$registers" \
  'logits: widths*' << 'END'
first > visible ? first : visible;
====
first > visible ? first : visible + 1;
END

device 'logits: no launch for the fill alone' paged_mqa_logits.hpp "$registers" \
  'logits: sequences without*' << 'END'
if (pieces > num_blocks * waves) num_blocks = (pieces + waves - 1) / waves;
====

END

device 'logits: all waves fill the same pieces' detail/logits_gfx9.hpp "$registers" \
  'logits: widths*' << 'END'
std::int64_t{blockIdx.x} * waves + wave_ - turn
====
std::int64_t{blockIdx.x} * waves - turn
END

device 'logits: the next sequence as long as an empty one' detail/logits_work.hpp \
  "$registers_d64" 'logits: one wave*' << 'END'
work.num_tokens = uniform(shuffle(tokens, lane));
====
work.num_tokens = uniform(tokens);
END

# ---- logits: pages ----------------------------------------------------------------------------

device 'logits: 32-bit offsets of pages' detail/page_stream_gfx9.hpp "$registers" \
  'logits: contiguous caches*' << 'END'
static_cast<std::int64_t>(id) * args_.page_stride_bytes
====
id * static_cast<std::uint32_t>(args_.page_stride_bytes)
END

device 'logits: 32-bit offsets of pages, pages of one token' detail/page_stream_gfx9.hpp \
  "$registers_p1" 'logits: contiguous caches*' << 'END'
static_cast<std::int64_t>(id) * args_.page_stride_bytes
====
id * static_cast<std::uint32_t>(args_.page_stride_bytes)
END

device 'logits: 32-bit offsets of table rows' detail/page_stream_gfx9.hpp "$registers" \
  'logits: rows of table*' << 'END'
args_.block_table + seq * args_.block_table_stride
====
args_.block_table + static_cast<int>(seq * args_.block_table_stride)
END

device 'logits: page ids are not checked, units in a page' detail/page_stream_gfx9.hpp \
  "$registers" 'logits: page ids*' << 'END'
lane_valid_ = id < args_.num_pages;
====
lane_valid_ = true;
END

device 'logits: one page too many' detail/page_stream_gfx9.hpp "$registers" \
  'logits: page ids*' << 'END'
lane_valid_ = id < args_.num_pages;
====
lane_valid_ = id <= args_.num_pages;
END

device 'logits: page ids are not checked, small pages' detail/page_stream_gfx9.hpp "$registers_p16" \
  'logits: page ids*' << 'END'
lane_valid_ = upper ? valid[1] : valid[0];
====
lane_valid_ = true;
END

device 'logits: K of tokens without a page is read' detail/page_stream_gfx9.hpp "$registers_p16" \
  'logits: page ids*' << 'END'
valid[b] = id < args_.num_pages;
====
valid[b] = true;
END

device 'logits: page ids are not checked, pages of one token' detail/page_stream_gfx9.hpp \
  "$registers_p1" 'logits: page ids*' << 'END'
lane_valid_ = upper ? valid[1] : valid[0];
====
lane_valid_ = upper ? valid[1] : true;
END

device 'logits: ids beyond 2^31 are pages of a vast cache' paged_mqa_logits.hpp "$registers" \
  '[mutants]' << 'END'
params.cache.num_pages < num_ids ? params.cache.num_pages : num_ids
====
params.cache.num_pages
END

device 'logits: the last page id of int32 is none' paged_mqa_logits.hpp "$registers_p1" \
  'logits: page 2*' << 'END'
constexpr std::int64_t num_ids = std::int64_t{1} << 31;
====
constexpr std::int64_t num_ids = (std::int64_t{1} << 31) - 1;
END

device 'logits: wrong page for the second half of a unit' detail/page_stream_gfx9.hpp "$registers_p16" \
  'logits: the same bits in every*' << 'END'
ids_.at(static_cast<int>(entry));
====
ids_.at(static_cast<int>(b == 1 ? args_.pages.page(first_token) : entry));
END

device 'logits: chunks of page ids do not overlap' detail/page_stream_gfx9.hpp \
  "$registers_d64_run_time" 'logits: one wave over many pages of 272*' << 'END'
unit_in_page ? wave_size : wave_size - unit_tokens / tile_tokens;
====
wave_size;
END

device 'logits: the next chunk of page ids one entry late' detail/page_ids.hpp \
  "$registers_d64" 'logits: one wave*' << 'END'
last_entry - first_ >= wave_size,
====
last_entry - first_ > wave_size,
END

device 'logits: chunks of a neighbouring wave, pages of one token' detail/page_stream_gfx9.hpp \
  "$registers_p1" 'logits: the same bits in every*' << 'END'
page_size == 1 ? unit_step * unit_tokens
====
page_size == 1 ? unit_tokens
END

device 'logits: table entries past the last token are read' detail/page_stream_gfx9.hpp \
  "$registers" 'logits: the table is not read*' << 'END'
const int rest = num_entries - first;
====
const int rest = num_entries + 1 - first;
END

device 'logits: the last page of a sequence is none' detail/page_stream_gfx9.hpp "$registers" \
  'logits: widths*' << 'END'
static_cast<int>(args_.pages.page(last_token)) + 1,
====
static_cast<int>(args_.pages.page(last_token)),
END

device 'logits: the plain order in a preshuffled page' detail/page_stream_gfx9.hpp "$registers" \
  'logits: one-hot*' << 'END'
is_plain ? 32 : 2 * 256;
====
is_plain ? 32 : 32;
END

device 'logits: tokens of plain pages in another order' detail/page_stream_gfx9.hpp \
  'L(128,64,plain,registers,64)' 'logits: one-hot*' << 'END'
const int token = static_cast<int>(lane % block_tokens);
====
const int token = static_cast<int>(lane / 2);
END

device 'logits: always the first unit of a page' detail/page_stream_gfx9.hpp \
  'L(128,256,preshuffled,registers,64)' 'logits: the same bits in every*' << 'END'
unit % units_per_page * unit_tokens;
====
0;
END

device 'logits: the scale of the neighbour' detail/page_stream_gfx9.hpp "$registers" \
  'logits: one-hot*' << 'END'
scale_source_.load_word(lane_id() * 4)
====
scale_source_.load_word((lane_id() ^ 1) * 4)
END

device 'logits: scales of the first block for both, 256 dims' detail/page_stream_gfx9.hpp \
  "$shared_d256" 'logits: the same bits in every*' << 'END'
const int token = b * block_tokens + lane_id() % block_tokens;
====
const int token = lane_id() % block_tokens;
END

device 'logits: scales of the first block for both' detail/page_stream_gfx9.hpp \
  "$registers_run_time" 'logits: the same bits in every*' << 'END'
upper ? scales[1] : scales[0];
====
upper ? scales[0] : scales[0];
END

device 'logits: scales of pages that are none are read' detail/page_stream_gfx9.hpp \
  "$registers_p16" 'logits: page ids*' << 'END'
readable ? page + scale_offset_in_page(
====
valid[b] || b == 0 ? page + scale_offset_in_page(
END

# ---- logits: q, weights, sums -----------------------------------------------------------------

device 'logits: relu after the sum of two heads' detail/mma_gfx9.hpp "$registers" \
  'logits: one-hot*' << 'END'
{relu(value[4 * i], bound), relu(value[4 * i + 1], bound)};
====
{relu(value[4 * i] + value[4 * i + 1], bound), 0.0f};
END

device 'logits: no relu for every other head' detail/mma_gfx9.hpp "$registers" \
  'logits: one-hot*' << 'END'
{relu(value[4 * i + 2], bound), relu(value[4 * i + 3], bound)};
====
{relu(value[4 * i + 2], bound), value[4 * i + 3]};
END

device 'logits: negative weights count as positive' detail/mma_gfx9.hpp "$registers" \
  'logits: one-hot*' << 'END'
__builtin_elementwise_fma(low, weights.quad[i].xy, sum);
====
__builtin_elementwise_fma(low, __builtin_elementwise_abs(weights.quad[i].xy), sum);
END

device 'logits: weights of another row' detail/logits_gfx9.hpp "$shared" \
  'logits: what the rows*,logits: random*' << 'END'
row_index(args, seq, n) * args.weights_row_stride
====
row_index(args, seq, args.next_n - 1 - n) * args.weights_row_stride
END

device 'logits: weights of other heads' detail/logits_gfx9.hpp "$registers" \
  'logits: one-hot*' << 'END'
loaded.quad[i] = __builtin_bit_cast(f32x4, load_unit<16>(weights + i * 2 * unit_bytes));
====
loaded.quad[i] = __builtin_bit_cast(f32x4, load_unit<16>(weights + (i ^ 1) * 2 * unit_bytes));
END

device 'logits: rows of weights are taken to be dense' detail/logits_gfx9.hpp "$registers $shared" \
  'logits: strides and alignments*' << 'END'
row_index(args, seq, n) * args.weights_row_stride
====
row_index(args, seq, n) * args.num_heads
END

device 'logits: 32-bit offsets of rows of weights' detail/logits_gfx9.hpp "$registers" \
  'logits: rows of table*' << 'END'
row_index(args, seq, n) * args.weights_row_stride
====
static_cast<int>(row_index(args, seq, n) * args.weights_row_stride)
END

device 'logits: heads of q are taken to be dense' detail/logits_gfx9.hpp "$registers $shared" \
  'logits: strides and alignments*' << 'END'
(first + head < num_heads ? head : 0) * args.q_head_stride
====
(first + head < num_heads ? head : 0) * Geometry::head_dim
END

device 'logits: rows of q are taken to be dense' detail/logits_gfx9.hpp "$shared_p16" \
  'logits: strides and alignments*' << 'END'
n * args.q_next_n_stride
====
n * num_heads * Geometry::head_dim
END

device 'logits: 32-bit offsets of q' detail/logits_gfx9.hpp "$registers" \
  'logits: strides of q*' << 'END'
args.q + seq * args.q_batch_stride
====
args.q + static_cast<std::uint32_t>(seq * args.q_batch_stride)
END

device 'logits: 8 heads read 32 heads of q' detail/logits_gfx9.hpp "$shared" \
  'logits: shapes of head_dim 128' << 'END'
(first + head < num_heads ? head : 0)
====
head
END

device 'logits: 8 heads count twice' detail/logits_gfx9.hpp "$shared" \
  'logits: shapes of head_dim 128' << 'END'
return head < num_heads ? weight : 0.0f;
====
return weight;
END

device 'logits: the second scale group takes the first scale' detail/logits_gfx9.hpp \
  "$shared_d256" 'logits: random*' << 'END'
f32x2{scale.y, scale.y}
====
f32x2{scale.x, scale.x}
END

device 'logits: whole units are stored' detail/logits_gfx9.hpp "$registers" \
  'logits: widths*' << 'END'
tokens > 0 ? tokens * 4 : 0
====
tokens > 0 ? unit_tokens * 4 : 0
END

device 'logits: rows write what their sequence sees' detail/logits_gfx9.hpp "$shared" \
  'logits: what the rows*' << 'END'
broadcast(visible_bytes, n)
====
broadcast(visible_bytes, args.next_n - 1)
END

device 'logits: what half of the rows see is not known' detail/logits_gfx9.hpp "$shared" \
  'logits: what the rows*' << 'END'
lane < args.next_n ? lane : 0
====
lane < args.next_n / 2 ? lane : 0
END

device 'logits: 32-bit offsets of rows of logits, bytes' detail/logits_gfx9.hpp \
  "$shared" 'logits: rows beyond*' << 'END'
args.logits + first_row * args.logits_row_stride +
====
args.logits + ((first_row * args.logits_row_stride) & 0x3FFFFFFF) +
END

device 'logits: 32-bit offsets of rows of logits, elements' detail/logits_gfx9.hpp \
  "$shared" 'logits: rows beyond*' << 'END'
args.logits + first_row * args.logits_row_stride +
====
args.logits + static_cast<int>(first_row * args.logits_row_stride) +
END

device 'logits: the scales of the unit before' detail/logits_gfx9.hpp "$registers_d64" \
  'logits: one wave*' << 'END'
    scales = next_scales;
====

END

device 'logits: the validity of the unit before' detail/logits_gfx9.hpp \
  "$registers_p16 $registers_p1" '[mutants]' << 'END'
    lane_valid = next_lane_valid;
====

END

device 'logits: the other set of registers' detail/logits_gfx9.hpp "$shared" \
  'logits: lengths around*' << 'END'
compute(unit, odd);
====
compute(unit, even);
END

device 'logits: weights of four heads for all' detail/logits_gfx9.hpp "$shared" \
  'logits: what the rows*' << 'END'
[lane % block_heads] = weight;
====
[lane % 4] = weight;
END

device 'logits: no room for the weights in shared memory' detail/logits_gfx9.hpp "$shared" \
  'logits: what the rows*' << 'END'
(Config::geometry::head_dim + 4)
====
Config::geometry::head_dim
END

device 'logits: no barrier before q is overwritten' detail/logits_gfx9.hpp "$shared_p16" \
  'logits: arrays end*' << 'END'
    __syncthreads();  // nobody reads the previous sequence's any more
====

END

device 'logits: no barrier before q is read' detail/logits_gfx9.hpp "$shared" \
  'logits: what the rows*' << 'END'
    }
    __syncthreads();
====
    }
END

device 'logits: q in registers for any number of rows' detail/logits_gfx9.hpp "$registers" \
  'logits: shapes of head_dim 128' << 'END'
if (next_n == 1 && num_heads == 64)
====
if (num_heads == 64)
END

device 'logits: q that is too large for shared memory' detail/logits_gfx9.hpp "$shared $global" \
  'logits: shapes of head_dim 128' << 'END'
<= max_dynamic_shared_bytes) {
====
<= 3 * max_dynamic_shared_bytes) {
END

device 'logits: a format that the device does not know' paged_mqa_logits.hpp "$registers" \
  'logits: a refused call*' << 'END'
if (device.native_format != geometry::format) return hipErrorNotSupported;
====

END

# ---- what is refused --------------------------------------------------------------------------

host 'validate: formats of q and cache may differ' validate.hpp host_validate '[validate]' << 'END'
check.require(params.q_format == params.cache.format,
====
check.require(true,
END

host 'validate: any number of heads up to 128' validate.hpp host_validate '[validate]' << 'END'
heads == 8 || (heads % 16 == 0 && heads <= 128)
====
heads <= 128
END

host 'validate: store of any number of tokens' validate.hpp host_validate '[validate]' << 'END'
stored <= max_store_tokens
====
stored <= max_rows
END

host 'validate: gather of as many sequences as rows' validate.hpp host_validate '[validate]' << 'END'
params.num_seqs <= max_gather_seqs
====
params.num_seqs <= max_rows
END

host 'validate: preshuffled pages of 24 tokens' validate.hpp host_validate '[validate]' << 'END'
support(view.page_size % 16 == 0, "page_size
====
support(view.page_size % 8 == 0, "page_size
END

host 'validate: any page stride' validate.hpp host_validate '[validate]' << 'END'
require(stride % alignment == 0,
====
require(true,
END

host 'validate: pages may overlap' validate.hpp host_validate '[validate]' << 'END'
require(stride >= payload,
====
require(stride >= payload - 16,
END

host 'validate: products beyond 64 bits' validate.hpp host_validate '[validate]' << 'END'
__builtin_mul_overflow(bytes, rows, &bytes);
====
false;
END

host 'validate: quant_max 224 in e4m3fn' validate.hpp host_validate '[validate]' << 'END'
check.require(quant_max == 0 || quant_max == 448.0f,
====
check.require(quant_max == 0 || quant_max == 448.0f || quant_max == 224.0f,
END

host 'validate: int64 slots at any multiple of 4' validate.hpp host_validate '[validate]' << 'END'
params.slots.is_int64 ? 8 : 4
====
4
END

host 'validate: no room for a step behind the last column' validate.hpp host_validate \
  '[validate]' << 'END'
max_logits_width = INT32_MAX - 511;
====
max_logits_width = INT32_MAX - 510;
END

host 'validate: rows of logits may overlap' validate.hpp host_validate '[validate]' << 'END'
"logits_row_stride", params.logits_row_stride, "logits_width", params.logits_width,
====
"logits_row_stride", params.logits_row_stride, "logits_width", 0,
END

host 'validate: q at any address' validate.hpp host_validate '[validate]' << 'END'
check.pointer("q", params.q, 16);
====
check.pointer("q", params.q, 4);
END

# ---- the reference that tests compare with ----------------------------------------------------

host 'reference: fp8 ties away from zero' fp8.hpp host_fp8 '[fp8]' << 'END'
(rest == 0.5 && (integer & 1) != 0)
====
rest == 0.5
END

host 'reference: relu after the weight' reference.hpp host_reference '[reference]' << 'END'
const double relu = product > 0 ? product : 0;
====
const double relu = product;
END

host 'reference: the length does not count the new tokens' reference.hpp host_reference \
  '[reference]' << 'END'
- params.next_n + n + 1;
====
+ n;
END

# ---- Hopper, on the model ---------------------------------------------------------------------

hopper 'Hopper: a stage serves other warpgroups in turn' detail/plan_sm90.hpp '*long pieces*' << 'END'
stages < max_stages ? stages / num_computers * num_computers : max_stages;
====
4;
END

hopper 'Hopper: two slots of q leave no room for K' detail/plan_sm90.hpp '*more rows*' << 'END'
max_query_slots * slot_bytes + held_pair_bytes <= most_slot_bytes;
====
slot_bytes != 0;
END

hopper 'Hopper: K before the barriers are there' detail/loader_sm90.hpp '*every way*' << 'END'
memory_.wait_for_barriers_as_k_loader();
====

END

hopper 'Hopper: work is taken before it is divided' detail/block_memory_sm90.hpp '*every way*' << 'END'
sync_threads<work_is_known, 2 * wave_size>();
====

END

hopper 'Hopper: a stage is filled before it is free' detail/loader_sm90.hpp '*every way*' << 'END'
wait(&ring_.empty[stage], position_.parity ^ 1);
====

END

hopper 'Hopper: K is read before it is there' detail/computer_sm90.hpp '*every way*' << 'END'
wait(&ring_.full[position_.stage], position_.parity);
====

END

hopper 'Hopper: a slot of q is filled before it is free' detail/loader_sm90.hpp '*every way*' << 'END'
wait(&ring_.query_empty[query_position_.stage], query_position_.parity ^ 1);
====

END

hopper 'Hopper: q of the sequence that was guessed' detail/loader_sm90.hpp '*every way*' << 'END'
const bool right = guessed && piece.seq == probable_seq_;
====
const bool right = guessed;
END

hopper 'Hopper: K is dropped first though the launch fills' detail/loader_sm90.hpp \
  '*dropped from L2*' << 'END'
 && !args_.fill_neg_infinity
====

END

hopper 'Hopper: the right q under the wrong one' detail/loader_sm90.hpp '*every way*' << 'END'
if (guessed && !right) hand_over({-1, 0, 0, 0, 0, false});
====

END

hopper 'Hopper: weights are used before they are there' detail/loader_sm90.hpp '*every way*' << 'END'
arrive_when_copied(full);
====
arrive(full);
END

hopper 'Hopper: a piece is put in order before it is told of' detail/loader_sm90.hpp \
  '*every way*' << 'END'
expect(copied, static_cast<std::uint32_t>(
====
arrive_expecting(copied, static_cast<std::uint32_t>(
END

hopper 'Hopper: half of q is put in order' detail/loader_sm90.hpp '*every way*' << 'END'
put_in_order(memory_.query_of(slot), piece.num_rows * args_.num_heads);
====
put_in_order(memory_.query_of(slot), piece.num_rows * args_.num_heads / 2);
END

hopper 'Hopper: q of spread heads as if they were together' detail/loader_sm90.hpp '*every way*' << 'END'
args_.q_head_stride == head_dim ? args_.num_heads : 1;
====
args_.num_heads;
END

hopper 'Hopper: q of 64 dims in the order of 128' detail/query_layout_sm90.hpp '*every way*' << 'END'
head / (128 / row_bytes);
====
head;
END

hopper 'Hopper: the upper dims of q among the lower ones' detail/query_layout_sm90.hpp \
  '*every way*' << 'END'
rows * row_units + step % steps_per_row * 2;
====
step * 2;
END

hopper 'Hopper: a warpgroup keeps a slot of q' detail/computer_sm90.hpp '*every way*' << 'END'
arrive(&ring_.query_empty[slot]);
====
if (position_.stage % num_computers != 1) arrive(&ring_.query_empty[slot]);
END

hopper 'Hopper: a sequence that is only begun is waited for' detail/logits_work.hpp '*blocks that*' << 'END'
work.cost <= static_cast<std::uint32_t>(start_cost);
====
work.cost == 0;
END

hopper 'Hopper: of two sequences of a lane the first where the second begins' detail/logits_work.hpp \
  '*several steps*' << 'END'
if (offset < cost_of(i - 1)) break;
====
break;
END

hopper 'Hopper: a block without work does not end' detail/loader_sm90.hpp '*blocks that*' << 'END'
if (none) load_query({-1, 0, 0, 0, 0, true});
====

END

hopper 'Hopper: pieces to fill are taken from anywhere' detail/block_memory_sm90.hpp \
  '*every way*' << 'END'
ring.num_fill_pieces_taken = 0;
====

END

hopper 'Hopper: blocks fill the same pieces' detail/logits_sm90.hpp '*every way*' << 'END'
* gridDim.x + blockIdx.x;
====
* gridDim.x;
END

hopper 'Hopper: held logits a pair apart, not three' detail/computer_sm90.hpp '*more rows*' << 'END'
first_own + i * tokens_between_turns;
====
first_own + i * pair_tokens;
END

hopper 'Hopper: turns begin anew with every sequence' detail/computer_sm90.hpp '*every way*' << 'END'
turn_ = token - piece.first_token - num_pairs * pair_tokens;
====
static_cast<void>(num_pairs);
END

hopper 'Hopper: rows of held logits change places' detail/computer_sm90.hpp '*every way*' << 'END'
held_ + row * held_stride;
====
held_ + (piece.num_rows - 1 - row) * held_stride;
END

hopper 'Hopper: page ids of 32 pages that a pair straddles' detail/page_stream_sm90.hpp '*long pieces*' << 'END'
page_size == unit_tokens ? wave_size
====
page_size % unit_tokens == 0 ? wave_size
END

hopper 'Hopper: a stage of pages of one token is full too soon' detail/page_stream_sm90.hpp '*every way*' << 'END'
2 * num_warps * wave_size;
====
num_warps * wave_size;
END

hopper 'Hopper: one bit for two small pages' detail/stage_sm90.hpp '*every way*' << 'END'
page_size == 1 ? 1 : piece_tokens;
====
page_size == 1 ? 1 : 2 * piece_tokens;
END

hopper 'Hopper: pages of all warps in the first word' detail/stage_sm90.hpp '*every way*' << 'END'
valid[num_valid_words == 1 ? 0 : bit / 32]
====
valid[0]
END

hopper 'Hopper: scales of small pages a page late' detail/stage_sm90.hpp '*every way*' << 'END'
token % piece_tokens * token_bytes
====
token * token_bytes
END

hopper 'Hopper: plain rows left in the order in which they were read' detail/computer_sm90.hpp \
  '*every way*' << 'END'
low = swapped ? high : was;
====
low = was;
END

hopper 'Hopper: plain rows of 64 dims in the order of 128' detail/stage_sm90.hpp '*every way*' << 'END'
head_dim == 64 ? row / 2 : row;
====
row;
END

hopper 'Hopper: the second half of K instead of the first' detail/computer_sm90.hpp '*every way*' << 'END'
load_half(stage, 0, k.half[0]);
====
load_half(stage, 1, k.half[0]);
END

hopper 'Hopper: K of 256 dims loaded for one half alone' detail/computer_sm90.hpp '*every way*' << 'END'
load_half(k.stage, half, k.half[0]);
====
load_half(k.stage, 0, k.half[0]);
END

hopper 'Hopper: small tiles as far apart as if no scales lay between' detail/stage_sm90.hpp \
  '*every way*' << 'END'
tile_bytes = scales_follow ? piece_bytes : tile_tokens * head_dim;
====
tile_bytes = tile_tokens * head_dim;
END

hopper 'Hopper: the other half of every tile' detail/computer_sm90.hpp '*every way*' << 'END'
half * 8 + step
====
(half ^ 1) * 8 + step
END

hopper 'Hopper: a stage is free while K is multiplied where it lies' detail/computer_sm90.hpp \
  '*every way*' << 'END'
half == 1 && column + Blocks
====
half == 0 && column + Blocks
END

hopper 'Hopper: the second of two rows gets the weights of the first' detail/computer_sm90.hpp \
  '*every way*' << 'END'
(weights + block * heads + first);
====
(weights + first);
END

hopper 'Hopper: weights in the order of heads' detail/block_memory_sm90.hpp '*every way*' << 'END'
head / 16 * 16 + pair * 4 + matrix * 2 + head % 2;
====
head;
END
