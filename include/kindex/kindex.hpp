// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// All of kindex's public headers. reference.hpp, the CPU oracle, is included on its own.
#pragma once

#include "cache_view.hpp"
#include "config.hpp"
#include "dispatch.hpp"
#include "fp8.hpp"
#include "gather.hpp"
#include "paged_mqa_logits.hpp"
#include "params.hpp"
#include "store.hpp"
#include "validate.hpp"
#include "version.hpp"
