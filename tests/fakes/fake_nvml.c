/* A fake of NVIDIA's library, for machines without a GPU. It has every GPU but GPU-unknown, and fails as the real one
   does: the use of a MIG instance is 3 (NVML_ERROR_NOT_SUPPORTED), a UUID that it does not know 6 (NVML_ERROR_NOT_FOUND).
   The file that the environment variable FAKE_NVML names says more: `hangs` makes readings hang,
   `lost` makes them fail with 15, NVML_ERROR_GPU_IS_LOST, `missing` makes nvmlInit_v2 fail with 9,
   NVML_ERROR_DRIVER_NOT_LOADED. Written from the reference of the library (docs.nvidia.com/deploy/nvml-api). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef unsigned int uint;
typedef struct { uint gpu, memory; } Utilization;
typedef struct { unsigned long long total, free, used; } Memory;

static int state(void) {
    char word[16] = "";
    FILE *file = getenv("FAKE_NVML") ? fopen(getenv("FAKE_NVML"), "r") : NULL;
    if (file) {
        if (!fgets(word, sizeof word, file)) word[0] = 0;
        fclose(file);
    }
    if (!strncmp(word, "hangs", 5)) sleep(1000);
    return !strncmp(word, "lost", 4) ? 15 : !strncmp(word, "missing", 7) ? 9 : 0;
}

int nvmlInit_v2(void) { return state() == 9 ? 9 : 0; }

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    *device = (void *)(long)(strncmp(uuid, "MIG-", 4) ? 1 : 2);
    return strcmp(uuid, "GPU-unknown") ? 0 : 6;
}

int nvmlDeviceGetUtilizationRates(void *device, Utilization *found) {
    if (state()) return state();
    if (device == (void *)2) return 3;
    found->gpu = 87;
    found->memory = 40;
    return 0;
}

int nvmlDeviceGetMemoryInfo(void *device, Memory *found) {
    (void)device;
    if (state()) return state();
    found->total = 80ull << 30;
    found->used = 40ull << 30;
    found->free = found->total - found->used;
    return 0;
}

int nvmlDeviceGetPowerUsage(void *device, uint *milliwatts) {
    *milliwatts = 310400;
    return state() ? state() : device == (void *)2 ? 3 : 0;
}

int nvmlDeviceGetTemperature(void *device, int sensor, uint *celsius) {
    *celsius = sensor ? 0 : 61;
    return state() ? state() : device == (void *)2 ? 3 : 0;
}

int nvmlDeviceGetClockInfo(void *device, int clock, uint *mhz) {
    *mhz = clock == 1 ? 1980 : 0;
    return state() ? state() : device == (void *)2 ? 3 : 0;
}
