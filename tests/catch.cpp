// The header that test programs read precompiled is compiled with this file, as main.cpp has to
// include Catch2 in its own way.
#include "tests/catch.h"
