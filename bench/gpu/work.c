// SPDX-License-Identifier: Apache-2.0
/*
 * The kernel of the bench, and how the driver is asked for it: at run time, as libcuda comes
 * with the driver.  In CUDA C it is
 *
 *	for (i = place of this thread; i < n; i += number of threads) {
 *		v = x[i];
 *		for (k = 0; k < rounds; k++)
 *			v = v * 0.5f + 1.0f;
 *		x[i] = v;
 *	}
 */
#include "bench/gpu/work.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

#define FLOATS		(16u << 20)
#define ROUNDS		4096u		/* some ms on a data-center GPU */
#define BLOCK		256u
#define BLOCKS		2048u

static const char ptx[] =
	".version 6.4\n"
	".target sm_70\n"
	".address_size 64\n"
	".visible .entry work(.param .u64 x, .param .u32 n, .param .u32 rounds)\n"
	"{\n"
	"	.reg .pred %p<4>;\n"
	"	.reg .f32 %f<4>;\n"
	"	.reg .b32 %r<9>;\n"
	"	.reg .b64 %d<4>;\n"
	"	ld.param.u64 %d0, [x];\n"
	"	cvta.to.global.u64 %d1, %d0;\n"
	"	ld.param.u32 %r0, [n];\n"
	"	ld.param.u32 %r1, [rounds];\n"
	"	mov.u32 %r2, %ntid.x;\n"
	"	mov.u32 %r3, %nctaid.x;\n"
	"	mul.lo.s32 %r4, %r3, %r2;\n"
	"	mov.u32 %r5, %ctaid.x;\n"
	"	mov.u32 %r6, %tid.x;\n"
	"	mad.lo.s32 %r7, %r5, %r2, %r6;\n"
	"	mov.f32 %f1, 0f3F000000;\n"
	"	mov.f32 %f2, 0f3F800000;\n"
	"element:\n"
	"	setp.ge.u32 %p0, %r7, %r0;\n"
	"	@%p0 bra done;\n"
	"	mul.wide.u32 %d2, %r7, 4;\n"
	"	add.s64 %d3, %d1, %d2;\n"
	"	ld.global.f32 %f0, [%d3];\n"
	"	mov.u32 %r8, 0;\n"
	"again:\n"
	"	.pragma \"nounroll\";\n"
	"	fma.rn.f32 %f0, %f0, %f1, %f2;\n"
	"	add.s32 %r8, %r8, 1;\n"
	"	setp.lt.u32 %p1, %r8, %r1;\n"
	"	@%p1 bra again;\n"
	"	st.global.f32 [%d3], %f0;\n"
	"	add.s32 %r7, %r7, %r4;\n"
	"	bra element;\n"
	"done:\n"
	"	ret;\n"
	"}\n";

const char *work_init(struct work *w)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *module;
	int (*load)(void **module, const void *image);
	int (*find)(void **kernel, void *module, const char *name);

	*w = (struct work){ .kernel = NULL };
	if (!driver)
		return "there is no driver, libcuda.so.1";
	load = (int (*)(void **, const void *))dlsym(driver, "cuModuleLoadData");
	find = (int (*)(void **, void *, const char *))dlsym(driver, "cuModuleGetFunction");
	w->launch = (int (*)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
			     unsigned, cudaStream_t, void **, void **))
		    dlsym(driver, "cuLaunchKernel");
	if (!load || !find || !w->launch)
		return "the driver has no cuModuleLoadData, or what goes with it";
	if (cudaMalloc(&w->data, FLOATS * sizeof(float)))	/* and makes the context */
		return "no memory on the GPU";
	if (load(&module, ptx) || find(&w->kernel, module, "work"))
		return "the driver does not take the kernel";
	return NULL;
}

void work_fini(struct work *w)
{
	(void)cudaFree(w->data);
}

const char *work_launch(const struct work *w, cudaStream_t stream)
{
	void *data = w->data;
	uint32_t n = FLOATS, rounds = ROUNDS;
	void *params[] = { &data, &n, &rounds };

	return w->launch(w->kernel, BLOCKS, 1, 1, BLOCK, 1, 1, 0, stream, params, NULL) ?
	       "the kernel does not start" : NULL;
}
