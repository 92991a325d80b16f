// Backwards on images.
#pragma once

#include "vectors.h"

// A table holds two rows of eight pixels, those below the upper and the lower half of a pooling
// window for one row of the kernel. Each lane picks the pixel below its own winner.
#if LANES == 16
struct Table {
    __m512 pixels;
    Table(const float *upper, int64_t stride)
        : pixels(_mm512_castpd_ps(_mm512_insertf64x4(
              _mm512_castps_pd(_mm512_castps256_ps512(_mm256_loadu_ps(upper))),
              _mm256_castps_pd(_mm256_loadu_ps(upper + stride)), 1))) {}
    Floats at(Ints where) const { return (Floats)_mm512_permutexvar_ps((__m512i)where, pixels); }
};
#elif LANES == 8
struct Table {
    __m256 upper, lower;
    Table(const float *row, int64_t stride) : upper(_mm256_loadu_ps(row)), lower(_mm256_loadu_ps(row + stride)) {}
    Floats at(Ints where) const {
        __m256 above = _mm256_permutevar8x32_ps(upper, (__m256i)where);
        __m256 below = _mm256_permutevar8x32_ps(lower, (__m256i)where);
        return (Floats)_mm256_blendv_ps(above, below, (__m256)(where << 28));  // bit 3 says which row
    }
};
#else
struct Table {
    float pixels[2 * ROW];
    Table(const float *upper, int64_t stride) {
        memcpy(pixels, upper, ROW * sizeof(float));
        memcpy(pixels + ROW, upper + stride, ROW * sizeof(float));
    }
    Floats at(Ints where) const {
        Floats found;
        for (int lane = 0; lane < LANES; lane++) found[lane] = pixels[where[lane] & (2 * ROW - 1)];
        return found;
    }
};
#endif

// Add one image's share to the gradients of R rows of the kernel, which stay in registers meanwhile.
template <int K, int R>
static void image_rows(const Shape &s, const float *planes, int64_t row, const float *gradient,
                       const uint8_t *winners, int64_t outputs, float *totals) {
    Floats sums[R][K] = {};
    const float *corners[R];
#pragma GCC unroll 9
    for (int r = 0; r < R; r++) corners[r] = planes + (row + r) / K * s.plane() + (row + r) % K * s.stride();
    for (int64_t y = 0; y < s.pooled_height(); y++)
        for (int64_t x = 0; x < s.pooled_width(); x++) {
            int64_t pixel = y * s.pooled_width() + x, corner = 2 * y * s.stride() + 2 * x;
            Ints where = __builtin_convertvector(load_some<Bytes>(winners + pixel * s.outputs, outputs), Ints);
            Floats slope = load_some<Floats>(gradient + pixel * s.outputs, outputs);
            slope = where == SILENT ? Floats{} : slope;
#pragma GCC unroll 9
            for (int r = 0; r < R; r++) {
                Table below(corners[r] + corner, s.stride());
#pragma GCC unroll 5
                for (int kx = 0; kx < K; kx++) sums[r][kx] += below.at(where + kx) * slope;
            }
        }
#pragma GCC unroll 9
    for (int r = 0; r < R; r++)
#pragma GCC unroll 5
        for (int kx = 0; kx < K; kx++) {
            float *total = totals + ((row + r) * K + kx) * s.padded_outputs();
            Floats sum = load<Floats>(total) + sums[r][kx];
            memcpy(total, &sum, sizeof sum);
        }
}

static void image_bias(const Shape &s, const float *gradient, const uint8_t *winners, int64_t outputs,
                       float *totals) {
    Floats sum = {};
    for (int64_t pixel = 0; pixel < s.pooled(); pixel++) {
        Ints where = __builtin_convertvector(load_some<Bytes>(winners + pixel * s.outputs, outputs), Ints);
        Floats slope = load_some<Floats>(gradient + pixel * s.outputs, outputs);
        sum += where == SILENT ? Floats{} : slope;
    }
    sum += load<Floats>(totals);
    memcpy(totals, &sum, sizeof sum);
}

template <int K>
static void image_backward(const Shape &s, const float *planes, const float *gradient, const uint8_t *winners,
                           float *weights, float *bias) {
    const int many = LANES == 16 ? (K == 3 ? 9 : K) : (K == 3 ? 3 : 1);  // rows whose sums fit into the registers
    for (int64_t o = 0; o < s.outputs; o += LANES) {
        int64_t left = s.outputs - o, rows = s.channels * K, row = 0;
        for (; row + many <= rows; row += many)
            image_rows<K, many>(s, planes, row, gradient + o, winners + o, left, weights + o);
        for (; row + K <= rows; row += K)
            image_rows<K, K>(s, planes, row, gradient + o, winners + o, left, weights + o);
        image_bias(s, gradient + o, winners + o, left, bias + o);
    }
}
