// A library of its own for a cell.
#include "any_ops.h"
