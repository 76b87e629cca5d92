#include "driver.h"

#include <dlfcn.h>

struct driver cu;

int driver_open(void)
{
    if (cu.handle)
        return 0;
    cu.handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!cu.handle)
        return -1;
#define LOOK_UP(name, params) *(void **)&cu.name = dlsym(cu.handle, #name);
    DRIVER_SYMBOLS(LOOK_UP)
#undef LOOK_UP
    return 0;
}

const char *driver_error(CUresult result)
{
    const char *name = NULL;
    if (cu.cuGetErrorName && cu.cuGetErrorName(result, &name) == SUCCESS && name)
        return name;
    return "unknown error";
}
