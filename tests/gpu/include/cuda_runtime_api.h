/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_runtime_api.h - as much of CUDA's as libtally-cuda and its bench use, for the
 * test double.
 *
 * Names and meanings are those of NVIDIA's manual; numbers are as good as any others,
 * since nothing but the double stands behind them.
 */
#ifndef TALLY_TESTS_CUDA_RUNTIME_API_H
#define TALLY_TESTS_CUDA_RUNTIME_API_H

#include <stddef.h>

typedef enum {
	cudaSuccess,
	cudaErrorInvalidValue,
	cudaErrorMemoryAllocation,
	cudaErrorNotReady,
	cudaErrorNoDevice,
	cudaErrorInsufficientDriver,
	cudaErrorStreamCaptureUnsupported,
	cudaErrorStreamCaptureImplicit,
} cudaError_t;

enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2 };

typedef struct double_stream *cudaStream_t;
typedef struct double_event *cudaEvent_t;
typedef void (*cudaHostFn_t)(void *arg);

#define cudaStreamNonBlocking	 1u
#define cudaEventDisableTiming	 2u
#define cudaHostRegisterPortable 1u
#define cudaHostRegisterMapped	 2u
#define cudaHostRegisterReadOnly 8u

cudaError_t cudaGetLastError(void);
const char *cudaGetErrorString(cudaError_t rc);
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaDeviceGetPCIBusId(char *id, int len, int device);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t s);
cudaError_t cudaStreamSynchronize(cudaStream_t s);
cudaError_t cudaStreamQuery(cudaStream_t s);
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t ev, unsigned flags);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *ev, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t ev);
cudaError_t cudaEventRecord(cudaEvent_t ev, cudaStream_t s);
cudaError_t cudaEventQuery(cudaEvent_t ev);
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to);
#define cudaMemAttachGlobal 1u
cudaError_t cudaMallocManaged(void **p, size_t bytes, unsigned flags);
cudaError_t cudaMalloc(void **p, size_t bytes);
cudaError_t cudaFree(void *p);
cudaError_t cudaMallocHost(void **p, size_t bytes);
cudaError_t cudaFreeHost(void *p);
cudaError_t cudaHostRegister(void *p, size_t bytes, unsigned flags);
cudaError_t cudaHostUnregister(void *p);
cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned flags);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
			    cudaStream_t s);
cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device,
				size_t bytes, cudaStream_t s);
cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer);
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags);
enum cudaStreamCaptureMode { cudaStreamCaptureModeGlobal, cudaStreamCaptureModeRelaxed = 2 };
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone, cudaStreamCaptureStatusActive };
typedef struct double_graph *cudaGraph_t;

cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode mode);
cudaError_t cudaStreamIsCapturing(cudaStream_t s, enum cudaStreamCaptureStatus *status);
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *graph);
cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode);
cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t fn, void *arg);

#endif
