// Vectors of the processor at hand, and the shape of a stage's work.
#pragma once

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__AVX512F__)
#include <immintrin.h>
#define LANES 16
#define PIXELS 3  // pooled pixels whose 4 x 2 sums fill the registers
#elif defined(__AVX2__)
#include <immintrin.h>
#define LANES 8
#define PIXELS 1
#else
#define LANES 4
#define PIXELS 1
#endif

typedef float Floats __attribute__((vector_size(4 * LANES)));
typedef int32_t Ints __attribute__((vector_size(4 * LANES)));
typedef uint8_t Bytes __attribute__((vector_size(LANES)));

static const int BLOCK = 2 * LANES;  // output channels computed together
static const int ROW = 8;            // a table for images is two rows of so many pixels
static const int SILENT = 2 * ROW;   // the winner's code where the ReLU put out zero; else 8 * row + column

struct Shape {
    int64_t images, channels, height, width, outputs, kernel, padding;

    int64_t pooled_height() const { return (height + 2 * padding - kernel + 1) / 2; }
    int64_t pooled_width() const { return (width + 2 * padding - kernel + 1) / 2; }
    int64_t pooled() const { return pooled_height() * pooled_width(); }
    int64_t pooled_size() const { return pooled() * outputs; }
    int64_t input_size() const { return channels * height * width; }
    int64_t taps() const { return channels * kernel * kernel; }
    int64_t padded_outputs() const { return (outputs + BLOCK - 1) / BLOCK * BLOCK; }
    int64_t padded_height() const { return height + 2 * padding; }
    int64_t padded_width() const { return width + 2 * padding; }
    int64_t stride() const { return padded_width() + ROW; }        // of a row of an image
    int64_t plane() const { return padded_height() * stride(); }  // of a channel of an image
    int64_t line() const { return padded_width() * channels; }    // of a row of maps
};

template <class Vector, class Number>
static inline Vector load(const Number *from) {
    Vector vector;
    memcpy(&vector, from, sizeof vector);
    return vector;
}

template <class Vector, class Number>
static inline Vector load_some(const Number *from, int64_t count) {
    if (count >= LANES) return load<Vector>(from);
    Vector vector = {};
    memcpy(&vector, from, count * sizeof(Number));
    return vector;
}

template <class Vector, class Number>
static inline void store_some(Number *to, Vector vector, int64_t count) {
    if (count >= LANES)
        memcpy(to, &vector, sizeof vector);
    else
        memcpy(to, &vector, count * sizeof(Number));
}
