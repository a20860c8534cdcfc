#ifndef __cuda_cuda_h__
#define CUDA_VERSION 12090
#endif
