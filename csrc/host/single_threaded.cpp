// libstdc++'s headers read __libc_single_threaded, where the C library of the build has it, to
// choose between plain and atomic reference counts. Only glibc 2.32 and newer export it: this
// definition replaces theirs inside the library, which thus loads on older systems. It always
// answers that other threads may run.

#include <stdlib.h>

#ifdef __GLIBC__
extern "C" __attribute__((visibility("hidden"))) char __libc_single_threaded;
char __libc_single_threaded = 0;
#endif
