/* A CUDA driver without a GPU, for tests: $TEGULA_CUDA_DRIVER names its library. Device memory is
   the host's, launches do nothing but must be ones that a device could start, an event later takes a
   millisecond more. What it says of itself
   comes from the environment: FAKE_CUDA_VERSION (13000), FAKE_CUDA_DEVICES (1),
   FAKE_CUDA_CAPABILITY (90), FAKE_CUDA_LOAD (the status of loading a module, 0). */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int number(const char* name, int otherwise) {
  const char* text = getenv(name);
  return text ? atoi(text) : otherwise;
}

int cuDriverGetVersion(int* version) {
  *version = number("FAKE_CUDA_VERSION", 13000);
  return 0;
}
int cuInit(unsigned flags) {
  (void)flags;
  return number("FAKE_CUDA_DEVICES", 1) > 0 ? 0 : 100;
}
int cuGetErrorString(int status, const char** text) {
  *text = status == 2 ? "out of memory" : status == 200 ? "device kernel image is invalid" : "fake";
  return 0;
}
int cuDeviceGetCount(int* n) {
  *n = number("FAKE_CUDA_DEVICES", 1);
  return 0;
}
int cuDeviceGet(int* device, int which) {
  *device = which;
  return 0;
}
int cuDeviceGetName(char* name, int size, int device) {
  (void)device;
  snprintf(name, (size_t)size, "Fake GPU");
  return 0;
}
int cuDeviceTotalMem_v2(size_t* bytes, int device) {
  (void)device;
  *bytes = (size_t)1 << 30;
  return 0;
}
int cuDeviceGetAttribute(int* value, int which, int device) {
  const int capability = number("FAKE_CUDA_CAPABILITY", 90);
  (void)device;
  switch (which) {
    case 13: *value = 1000000; break;  /* kHz of multiprocessors */
    case 16: *value = 132; break;      /* multiprocessors */
    case 36: *value = 1000000; break;  /* kHz of memory */
    case 37: *value = 1024; break;     /* bits of its bus */
    case 38: *value = 50 << 20; break; /* bytes of L2 */
    case 75: *value = capability / 10; break;
    case 76: *value = capability % 10; break;
    default: return 1;
  }
  return 0;
}
int cuDevicePrimaryCtxRetain(void** context, int device) {
  (void)device;
  *context = (void*)1;
  return 0;
}
int cuCtxSetCurrent(void* context) {
  (void)context;
  return 0;
}
int cuCtxGetDevice(int* device) {
  *device = 0;
  return 0;
}
int cuMemAlloc_v2(void** data, size_t bytes) {
  if (bytes > (size_t)1 << 30) return 2;
  *data = aligned_alloc(256, (bytes + 255) / 256 * 256);
  return 0;
}
int cuMemFree_v2(void* data) {
  free(data);
  return 0;
}
int cuMemcpy(void* to, const void* from, size_t bytes) {
  memcpy(to, from, bytes);
  return 0;
}
int cuMemsetD8_v2(void* to, unsigned char value, size_t bytes) {
  memset(to, value, bytes);
  return 0;
}
int cuMemsetD8Async(void* to, unsigned char value, size_t bytes, void* stream) {
  (void)stream;
  memset(to, value, bytes);
  return 0;
}
int cuMemcpyAsync(void* to, const void* from, size_t bytes, void* stream) {
  (void)stream;
  memcpy(to, from, bytes);
  return 0;
}
int cuMemHostAlloc(void** data, size_t bytes, unsigned flags) {
  (void)flags;
  *data = aligned_alloc(256, (bytes + 255) / 256 * 256);
  return 0;
}
int cuMemFreeHost(void* data) {
  free(data);
  return 0;
}
int cuMemGetInfo_v2(size_t* free_bytes, size_t* bytes) {
  *free_bytes = *bytes = (size_t)1 << 30;
  return 0;
}
int cuStreamWaitEvent(void* stream, void* event, unsigned flags) {
  (void)stream, (void)event, (void)flags;
  return 0;
}
static int is_capturing;
int cuStreamBeginCapture_v2(void* stream, int mode) {
  (void)stream, (void)mode;
  is_capturing = 1;
  return 0;
}
int cuStreamIsCapturing(void* stream, int* status) {
  (void)stream;
  *status = is_capturing;
  return 0;
}
int cuStreamEndCapture(void* stream, void** graph) {
  (void)stream;
  is_capturing = 0;
  *graph = (void*)6;
  return 0;
}
int cuGraphInstantiateWithFlags(void** runnable, void* graph, unsigned long long flags) {
  (void)graph, (void)flags;
  *runnable = (void*)7;
  return 0;
}
int cuGraphLaunch(void* runnable, void* stream) {
  (void)runnable, (void)stream;
  return 0;
}
int cuGraphExecDestroy(void* runnable) {
  (void)runnable;
  return 0;
}
int cuGraphDestroy(void* graph) {
  (void)graph;
  return 0;
}
int cuStreamCreate(void** stream, unsigned flags) {
  (void)flags;
  *stream = (void*)2;
  return 0;
}
int cuStreamSynchronize(void* stream) {
  (void)stream;
  return 0;
}
int cuEventCreate(void** event, unsigned flags) {
  (void)flags;
  *event = (void*)3;
  return 0;
}
int cuEventRecord(void* event, void* stream) {
  (void)event, (void)stream;
  return 0;
}
int cuEventSynchronize(void* event) {
  (void)event;
  return 0;
}
int cuEventElapsedTime(float* ms, void* from, void* to) {
  (void)from, (void)to;
  *ms = 1;
  return 0;
}
int cuModuleLoadData(void** module, const void* image) {
  (void)image;
  *module = (void*)4;
  return number("FAKE_CUDA_LOAD", 0);
}
int cuModuleUnload(void* module) {
  (void)module;
  return 0;
}
int cuModuleGetFunction(void** function, void* module, const char* name) {
  (void)module, (void)name;
  *function = (void*)5;
  return 0;
}
static int most_smem(void) {
  const int capability = number("FAKE_CUDA_CAPABILITY", 90);
  return (capability == 90 ? 227 : capability == 80 ? 163 : 99) * 1024;
}
int cuFuncSetAttribute(void* function, int which, int value) {
  (void)function;
  return which == 8 && value >= 0 && value <= most_smem() ? 0 : 1; /* dynamic shared memory */
}
int cuLaunchKernel(void* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                   unsigned bz, unsigned smem, void* stream, void** arguments, void** extra) {
  const int fits = gx > 0 && gy > 0 && gz > 0 && gy < 65536 && gz < 65536 && bx > 0 && by > 0 &&
                   bz > 0 && bx * by * bz <= 1024 && (int)smem <= most_smem();
  (void)f, (void)stream, (void)extra;
  return fits && arguments != NULL ? 0 : 1;
}
int cuLaunchKernelEx(const unsigned* config, void* f, void** arguments, void** extra) {
  return cuLaunchKernel(f, config[0], config[1], config[2], config[3], config[4], config[5], config[6],
                        NULL, arguments, extra);
}
int cuTensorMapEncodeTiled(void* map, int type, uint32_t rank, void* data, const uint64_t* dims,
                           const uint64_t* strides, const uint32_t* box, const uint32_t* every,
                           int interleave, int swizzle, int promotion, int fill) {
  (void)type, (void)rank, (void)data, (void)dims, (void)strides, (void)box, (void)every;
  (void)interleave, (void)swizzle, (void)promotion, (void)fill;
  memset(map, 0, 128);
  return 0;
}
