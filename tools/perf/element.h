/*
 * element.h - one element of any type.
 *
 * Role:   numbers to elements and back, for data that every type in question represents exactly.
 * Thread: pure functions. Elements need no alignment.
 */
#ifndef PERF_ELEMENT_H
#define PERF_ELEMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "gyre/gyre.h"

/* Pairs are of a value and an index; all other types are values themselves. */
bool perf_is_pair(gyre_dtype type);
gyre_dtype perf_value_type(gyre_dtype type);
gyre_dtype perf_index_type(gyre_dtype type); /* of a pair */

/* Of values, not pairs. */
bool perf_is_f8(gyre_dtype type);
bool perf_is_float(gyre_dtype type);
bool perf_is_signed(gyre_dtype type); /* floating-point types are */

/* Floating-point types; the value must be exact in the type, zero or a normal number of it. */
void perf_put_float(gyre_dtype type, void *element, double value);
double perf_get_float(gyre_dtype type, const void *element);
/* Integer types; put keeps the low bits. get extends the sign of a signed type. */
void perf_put_integer(gyre_dtype type, void *element, uint64_t value);
uint64_t perf_get_integer(gyre_dtype type, const void *element);
/* Any type: the number as it stands; a pair gets its index as well. */
void perf_put(gyre_dtype type, void *element, double value, int64_t index);
/* "-3", "0.5", "(0.5, 7)". */
void perf_element_text(gyre_dtype type, const void *element, char *out, size_t capacity);

#endif
