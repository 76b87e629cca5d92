// A Go program that calls the driver as cgo programs do: linked to it, from threads that Go made.
package main

/*
#cgo LDFLAGS: -lcuda
#include <stddef.h>
int cuInit(unsigned), cuDeviceGet(int *, int), cuDeviceTotalMem_v2(size_t *, int);
int cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *), cuMemAlloc_v2(unsigned long long *, size_t);

static int ask(size_t beyond, size_t *total, int *given) {
    int device = 0, failed = cuInit(0);
    unsigned long long address;
    void *context;
    if (!failed) failed = cuDeviceGet(&device, 0);
    if (!failed) failed = cuDeviceTotalMem_v2(total, device);
    if (!failed) failed = cuDevicePrimaryCtxRetain(&context, device);
    if (!failed) failed = cuCtxSetCurrent(context);
    if (!failed) *given = cuMemAlloc_v2(&address, beyond);
    return failed;
}
*/
import "C"

import (
	"fmt"
	"os"
	"strconv"
)

func main() {
	beyond, _ := strconv.ParseUint(os.Args[2], 10, 64)
	said := make(chan string)
	go func() {
		var total C.size_t
		var given C.int
		if failed := C.ask(C.size_t(beyond), &total, &given); failed != 0 {
			said <- fmt.Sprintf("error %d", failed)
			return
		}
		said <- fmt.Sprintf("total %d beyond %d", total, given)
	}()
	fmt.Println(<-said)
}
