/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl.h - as much of NCCL's as libtally-cuda uses, for the test double.
 */
#ifndef TALLY_TESTS_NCCL_H
#define TALLY_TESTS_NCCL_H

#include <cuda_runtime_api.h>

typedef enum {
	ncclSuccess,
	ncclInternalError,
	ncclInvalidUsage,
	ncclRemoteError,
	ncclInProgress,
} ncclResult_t;

typedef enum {
	ncclInt8, ncclUint8, ncclInt32, ncclInt64, ncclFloat16, ncclFloat32, ncclFloat64,
	ncclBfloat16,
} ncclDataType_t;

typedef enum { ncclSum } ncclRedOp_t;
typedef struct double_comm *ncclComm_t;
typedef struct { char internal[128]; } ncclUniqueId;
typedef struct { int blocking; } ncclConfig_t;

#define NCCL_CONFIG_INITIALIZER { 1 }

const char *ncclGetErrorString(ncclResult_t rc);
const char *ncclGetLastError(ncclComm_t comm);
ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int n, ncclUniqueId id, int me,
				    ncclConfig_t *config);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclCommFinalize(ncclComm_t comm);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);
ncclResult_t ncclReduce(const void *in, void *out, size_t count, ncclDataType_t type,
			ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t s);
ncclResult_t ncclBroadcast(const void *in, void *out, size_t count, ncclDataType_t type,
			   int root, ncclComm_t comm, cudaStream_t s);
ncclResult_t ncclReduceScatter(const void *in, void *out, size_t count, ncclDataType_t type,
			       ncclRedOp_t op, ncclComm_t comm, cudaStream_t s);
ncclResult_t ncclAllGather(const void *in, void *out, size_t count, ncclDataType_t type,
			   ncclComm_t comm, cudaStream_t s);

#endif
