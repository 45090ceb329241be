// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

#include "hazards.hpp"

namespace kindex::emulator {
namespace {

// The hardware stalls when its counters are full; here the oldest access is then complete.
constexpr int counter_limit = 63;

void retire(wave& w, int index) {
  const pending_access& p = w.pending[index];
  if (p.vector) --w.pending_vector;
  if (p.lds_record >= 0) w.lds_records_used &= ~(1u << p.lds_record);
  --w.pending_count;
  for (int k = index; k < w.pending_count; ++k) w.pending[k] = w.pending[k + 1];
}

// Leaves at most `keep` accesses of one counter outstanding, oldest first.
void retire_down_to(wave& w, bool vector, int keep) {
  int outstanding = vector ? w.pending_vector : w.pending_count - w.pending_vector;
  int kept = 0;
  for (int k = 0; k < w.pending_count; ++k) {
    const pending_access& p = w.pending[k];
    if (p.vector == vector && outstanding > keep) {
      --outstanding;
      if (vector) --w.pending_vector;
      if (p.lds_record >= 0) w.lds_records_used &= ~(1u << p.lds_record);
    } else {
      w.pending[kept++] = p;
    }
  }
  w.pending_count = kept;
}

void rebuild(wave& w) {
  std::memset(w.pending_by_vector, 0, sizeof w.pending_by_vector);
  std::memset(w.pending_by_scalar, 0, sizeof w.pending_by_scalar);
  for (int k = 0; k < w.pending_count; ++k) {
    const pending_access& p = w.pending[k];
    uint64_t* words = p.vector ? w.pending_by_vector : w.pending_by_scalar;
    for (int m = 0; m < p.source->destination_mask_count; ++m) {
      words[p.source->destination_masks[m].word] |= p.source->destination_masks[m].bits;
    }
  }
}

void report_hazard(wave& w, const instruction& i, const register_mask& mask, uint64_t hit) {
  const int number = mask.word * 64 + __builtin_ctzll(hit);
  std::string name;
  if (number >= vector_registers) {
    name = "s" + std::to_string(number - vector_registers);
  } else if (number >= accumulator_base) {
    name = "a" + std::to_string(number - accumulator_base);
  } else {
    name = "v" + std::to_string(number);
  }
  report(w, i, finding_kind::register_hazard, -1,
         "register " + name + " used before the s_waitcnt that makes it valid");
}

}  // namespace

void check_hazards(wave& w, const instruction& i) {
  for (int k = 0; k < i.source_mask_count; ++k) {
    const register_mask& m = i.source_masks[k];
    const uint64_t hit = (w.pending_by_vector[m.word] | w.pending_by_scalar[m.word]) & m.bits;
    if (hit) return report_hazard(w, i, m, hit);
  }
  // Results of the same kind return in order, so a second load into the same register is fine;
  // scalar loads and different kinds do not.
  for (int k = 0; k < i.destination_mask_count; ++k) {
    const register_mask& m = i.destination_masks[k];
    uint64_t pending = w.pending_by_vector[m.word] | w.pending_by_scalar[m.word];
    if (i.kind == instruction_class::lds) pending = w.pending_by_vector[m.word];
    if (i.counts_vector && !i.counts_scalar) pending = w.pending_by_scalar[m.word];
    if (i.counts_vector && i.counts_scalar) pending = 0;
    if (pending & m.bits) return report_hazard(w, i, m, pending & m.bits);
  }
}

void add_pending(wave& w, const instruction& i) {
  const auto add = [&](bool vector) {
    const int outstanding = vector ? w.pending_vector : w.pending_count - w.pending_vector;
    if (outstanding >= counter_limit) {
      for (int k = 0; k < w.pending_count; ++k) {
        if (w.pending[k].vector == vector) {
          retire(w, k);
          rebuild(w);
          break;
        }
      }
    }
    pending_access& p = w.pending[w.pending_count++];
    p = {&i, vector, i.kind == instruction_class::smem, -1};
    if (vector) ++w.pending_vector;
    uint64_t* words = vector ? w.pending_by_vector : w.pending_by_scalar;
    for (int m = 0; m < i.destination_mask_count; ++m) {
      words[i.destination_masks[m].word] |= i.destination_masks[m].bits;
    }
  };
  if (i.counts_vector) add(true);
  if (i.counts_scalar) add(false);
}

void run_waitcnt(wave& w, const instruction& i) {
  if (!w.pending_count) return;
  if (i.wait_vector >= 0) retire_down_to(w, true, i.wait_vector);
  if (i.wait_scalar >= 0) {
    // Scalar loads return in any order: only waiting for all of them says anything.
    bool any_order = false;
    for (int k = 0; k < w.pending_count; ++k) {
      any_order |= !w.pending[k].vector && w.pending[k].scalar_memory;
    }
    if (i.wait_scalar == 0 || !any_order) retire_down_to(w, false, i.wait_scalar);
  }
  rebuild(w);
}

}  // namespace kindex::emulator
