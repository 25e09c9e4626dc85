// Which symbols a shared library exports.
#pragma once

#if defined(MACO_STATIC_LIBRARY) || !defined(__GNUC__)
#define MACO_API
#else
#define MACO_API __attribute__((visibility("default")))
#endif
