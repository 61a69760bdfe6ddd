// The outcome of a call of the driver: its status, and for a kernel that failed, why.
#pragma once

#include <string>

namespace tegula::emulated {

// CUresult.
enum Status : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNoDevice = 100,
  kInvalidImage = 200,
  kNoBinaryForGpu = 209,
  kInvalidHandle = 400,
  kIllegalState = 401,
  kNotFound = 500,
  kIllegalAddress = 700,
  kLaunchOutOfResources = 701,
  kLaunchFailed = 719,
  kCooperativeTooLarge = 720,
  kCaptureUnsupported = 900,
  kCaptureInvalidated = 901,
  kCaptureMerge = 902,
  kCaptureUnmatched = 903,
  kCaptureUnjoined = 904,
  kCaptureIsolation = 905,
  kCaptureImplicit = 906,
  kCapturedEvent = 907,
  kUnknown = 999,
};

struct Outcome {
  Status status = kSuccess;
  std::string message;  // with kIllegalAddress and kLaunchFailed
};

// Prints a failed kernel's message, keeps it for cuGetErrorString, and gives its status.
int told(const Outcome& outcome);

// With FAKE_CUDA_LOST=N the GPU falls off its bus with launch number N (a graph's is one): that
// call and all that follow fail, as kUnknown.
Status check_not_lost(bool is_launch = false);

// A number of the environment.
int setting(const char* name, int otherwise);

}  // namespace tegula::emulated
