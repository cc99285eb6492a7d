/* SPDX-License-Identifier: Apache-2.0 */
/* The headers are C: their assertions hold in a C compiler too, and nothing of C++ has crept in. */
#include "paceline/batches.h"
#include "paceline/comm.h"
#include "paceline/copier.h"
#include "paceline/layouts.h"
#include "paceline/loader.h"
#include "paceline/ops.h"
#include "paceline/ops_device.h"
#include "paceline/optim.h"
#include "paceline/optim_device.h"
#include "paceline/paceline.h"
#include "paceline/shards.h"
#include "paceline/sources.h"
#include "paceline/window.h"

size_t paceline_record_size_in_c(void);
size_t paceline_record_size_in_c(void) { return sizeof(struct paceline_step_record); }
