// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// One mutant: the few kernels that a mutation touches, from mutated headers whose namespace has
// another name. check.sh writes a source that includes this once per mutant, hence no include
// guard, after the mutant's kindex.hpp and with
//
//   KINDEX_MUTANT             its number
//   KINDEX_MUTANT_NAMESPACE   the namespace of its headers
//   KINDEX_MUTANT_KERNELS     the kernels that it has:
//                               S(head_dim, page_size, layout, k_type)          store
//                               G(head_dim, page_size, layout)                  gather
//                               L(head_dim, page_size, layout, query, heads)    logits

namespace KINDEX_MUTANT_NAMESPACE {
namespace {
namespace mutant {

// True if `dispatch` picks this geometry for the view.
template <class Geometry>
bool picked(const cache_view& view) {
  if (view.layout != Geometry::layout || view.format != Geometry::format ||
      view.head_dim != Geometry::head_dim) {
    return false;
  }
  for (const int compiled : {1, 16, 32, 64, 128, 256}) {
    if (view.page_size == compiled) return Geometry::page_size == compiled;
  }
  return Geometry::page_size == 0;
}

// Calls `use` with the geometry in the view's fp8 format, if dispatch would pick it.
template <int PageSize, page_layout Layout, int HeadDim, class Use>
void if_picked(const cache_view& view, Use use) {
  using fnuz = cache_geometry<PageSize, Layout, fp8_format::e4m3fnuz, HeadDim>;
  using fn = cache_geometry<PageSize, Layout, fp8_format::e4m3fn, HeadDim>;
  if (picked<fnuz>(view)) use(fnuz{});
  if (picked<fn>(view)) use(fn{});
}

template <class Geometry, element_type Type>
void try_store(const store_params& params, hipStream_t stream, bool& taken, hipError_t& status) {
  if (params.k_type != Type) return;
  taken = true;
  status = KINDEX_MUTANT_NAMESPACE::store<store_config<Geometry, Type>>(params, stream);
}

template <class Geometry>
void try_gather(const gather_params& params, hipStream_t stream, bool& taken, hipError_t& status) {
  taken = true;
  status = KINDEX_MUTANT_NAMESPACE::gather<gather_config<Geometry>>(params, stream);
}

template <class Geometry, query_source Query, int Heads>
void try_logits(const paged_mqa_logits_params& params, hipStream_t stream, bool& taken,
                hipError_t& status) {
  (void)detail::target::with_logits_config<Geometry>(
      params.next_n, params.num_heads, [&](auto config) {
        if constexpr (decltype(config)::query == Query && decltype(config)::heads == Heads) {
          taken = true;
          status = KINDEX_MUTANT_NAMESPACE::paged_mqa_logits<decltype(config)>(params, stream);
        }
        return hipSuccess;
      });
}

// Each runs the call if one of the kernels here is the one for it; else returns false.

bool store([[maybe_unused]] const void* any, [[maybe_unused]] hipStream_t stream,
           [[maybe_unused]] hipError_t& status) {
  [[maybe_unused]] const auto& params = *static_cast<const store_params*>(any);
  bool taken = false;
#define S(D, P, LAYOUT, TYPE)                                                         \
  if_picked<P, page_layout::LAYOUT, D>(params.cache, [&](auto geometry) {             \
    try_store<decltype(geometry), element_type::TYPE>(params, stream, taken, status); \
  });
#define G(D, P, LAYOUT)
#define L(D, P, LAYOUT, QUERY, HEADS)
  KINDEX_MUTANT_KERNELS
#undef S
#undef G
#undef L
  return taken;
}

bool gather([[maybe_unused]] const void* any, [[maybe_unused]] hipStream_t stream,
            [[maybe_unused]] hipError_t& status) {
  [[maybe_unused]] const auto& params = *static_cast<const gather_params*>(any);
  bool taken = false;
#define S(D, P, LAYOUT, TYPE)
#define G(D, P, LAYOUT)                                                   \
  if_picked<P, page_layout::LAYOUT, D>(params.cache, [&](auto geometry) { \
    try_gather<decltype(geometry)>(params, stream, taken, status);        \
  });
#define L(D, P, LAYOUT, QUERY, HEADS)
  KINDEX_MUTANT_KERNELS
#undef S
#undef G
#undef L
  return taken;
}

bool logits([[maybe_unused]] const void* any, [[maybe_unused]] hipStream_t stream,
            [[maybe_unused]] hipError_t& status) {
  [[maybe_unused]] const auto& params = *static_cast<const paged_mqa_logits_params*>(any);
  bool taken = false;
#define S(D, P, LAYOUT, TYPE)
#define G(D, P, LAYOUT)
#define L(D, P, LAYOUT, QUERY, HEADS)                                                          \
  if_picked<P, page_layout::LAYOUT, D>(params.cache, [&](auto geometry) {                      \
    try_logits<decltype(geometry), query_source::QUERY, HEADS>(params, stream, taken, status); \
  });
  KINDEX_MUTANT_KERNELS
#undef S
#undef G
#undef L
  return taken;
}

const ::kindex_test::mutant_registration registered(KINDEX_MUTANT, store, gather, logits);

}  // namespace mutant
}  // namespace
}  // namespace KINDEX_MUTANT_NAMESPACE
