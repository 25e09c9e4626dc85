#define NAME first
#include "macro_repeated.h"
#undef NAME
#define NAME k
#include "macro_repeated.h"
