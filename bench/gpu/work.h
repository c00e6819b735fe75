/* SPDX-License-Identifier: Apache-2.0 */
/*
 * work.h - a kernel that computes, as training does beside its gradients' sums.
 *
 * Reads and writes GPU memory and multiplies in between.  It is PTX that the driver
 * translates for the GPU that is here, so no compiler of CUDA's is needed.  One thread, the
 * current device; errors are texts.
 */
#ifndef TALLY_BENCH_GPU_WORK_H
#define TALLY_BENCH_GPU_WORK_H

#include <cuda_runtime_api.h>

struct work {
	void *kernel;		/* the driver's */
	void *data;		/* owned: GPU memory */
	int (*launch)(void *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
		      unsigned by, unsigned bz, unsigned shared, cudaStream_t stream,
		      void **params, void **extra);
};

/* NULL, or what went wrong. */
const char *work_init(struct work *w);
void work_fini(struct work *w);
const char *work_launch(const struct work *w, cudaStream_t stream);

#endif
