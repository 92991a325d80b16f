// The first stage of a convolutional network in one pass: convolution with bias, 2 x 2 max-pool, ReLU.
//
// A value of the convolution lives in a register until its window's winner is known; it is never written to memory.
// What the backward pass needs of it is one byte: which of the four won, or that the ReLU put out zero. The gradient
// of the weights then multiplies each pooled gradient with the pixels below its winner alone: a quarter of the work.
//
// Lanes of a vector are output channels. Sums run in one fixed order on one thread, so the bits depend on nothing but
// the numbers, this file, the compiler and the processor it compiles for. Plain C interface; no library is needed.

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
static const int ROW = 8;            // a table for the backward pass is two rows of so many pixels
static const int SILENT = 2 * ROW;   // the winner's code where the ReLU put out zero

struct Shape {
    int64_t images, channels, height, width, outputs, kernel, padding;

    int64_t pooled_height() const { return (height + 2 * padding - kernel + 1) / 2; }
    int64_t pooled_width() const { return (width + 2 * padding - kernel + 1) / 2; }
    int64_t pooled() const { return pooled_height() * pooled_width(); }
    int64_t taps() const { return channels * kernel * kernel; }
    int64_t padded_outputs() const { return (outputs + BLOCK - 1) / BLOCK * BLOCK; }
    int64_t stride() const { return width + 2 * padding + ROW; }
    int64_t plane() const { return (height + 2 * padding) * stride(); }
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

// One image with its border of zeros; the room behind each row may be read and is multiplied with nothing.
static void pad(const float *image, const Shape &s, float *planes) {
    memset(planes, 0, s.channels * s.plane() * sizeof(float));
    for (int64_t c = 0; c < s.channels; c++)
        for (int64_t y = 0; y < s.height; y++)
            memcpy(planes + c * s.plane() + (y + s.padding) * s.stride() + s.padding,
                   image + (c * s.height + y) * s.width, s.width * sizeof(float));
}

template <int K, int N>
static inline void pool_pixels(const float *corner, const Shape &s, const float *weights, const float *bias,
                               int64_t outputs, float *pooled, uint8_t *winners) {
    Floats sums[2][2 * N][2] = {};
    for (int64_t c = 0; c < s.channels; c++) {
        const float *patch = corner + c * s.plane();
#pragma GCC unroll 5
        for (int ky = 0; ky < K; ky++) {
#pragma GCC unroll 5
            for (int kx = 0; kx < K; kx++) {
                Floats first = load<Floats>(weights), second = load<Floats>(weights + LANES);
                weights += s.padded_outputs();
#pragma GCC unroll 2
                for (int y = 0; y < 2; y++)
#pragma GCC unroll 6
                    for (int x = 0; x < 2 * N; x++) {
                        float pixel = patch[(y + ky) * s.stride() + x + kx];
                        sums[y][x][0] += pixel * first;
                        sums[y][x][1] += pixel * second;
                    }
            }
        }
    }
    const Ints code[4] = {Ints{} + 0, Ints{} + 1, Ints{} + ROW, Ints{} + ROW + 1};
#pragma GCC unroll 3
    for (int n = 0; n < N; n++)
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++) {
            int64_t left = outputs - half * LANES;
            if (left <= 0) break;
            Floats most = sums[0][2 * n][half];
            Ints winner = code[0];
#pragma GCC unroll 3
            for (int i = 1; i < 4; i++) {
                Floats other = sums[i / 2][2 * n + i % 2][half];
                Ints wins = (other > most) | (other != other);  // what is not a number wins, as in torch
                most = wins ? other : most;
                winner = wins ? code[i] : winner;
            }
            most += load<Floats>(bias + half * LANES);
            Ints silent = most <= 0.0f;
            store_some(pooled + n * s.outputs + half * LANES, silent ? Floats{} : most, left);
            if (winners)
                store_some(winners + n * s.outputs + half * LANES,
                           __builtin_convertvector(silent ? Ints{} + SILENT : winner, Bytes), left);
        }
}

template <int K>
static void forward(const Shape &s, const float *planes, const float *weights, const float *bias, float *pooled,
                    uint8_t *winners) {
    for (int64_t o = 0; o < s.outputs; o += BLOCK)
        for (int64_t y = 0; y < s.pooled_height(); y++) {
            const float *row = planes + 2 * y * s.stride();
            int64_t x = 0;
            for (; x < s.pooled_width(); ) {
                int64_t at = (y * s.pooled_width() + x) * s.outputs + o;
                uint8_t *noted = winners ? winners + at : nullptr;
                if (x + PIXELS <= s.pooled_width()) {
                    pool_pixels<K, PIXELS>(row + 2 * x, s, weights + o, bias + o, s.outputs - o, pooled + at, noted);
                    x += PIXELS;
                } else {
                    pool_pixels<K, 1>(row + 2 * x, s, weights + o, bias + o, s.outputs - o, pooled + at, noted);
                    x += 1;
                }
            }
        }
}

// Two rows of eight pixels: those below the upper and the lower half of a pooling window, for one row of a kernel.
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
static void backward_rows(const Shape &s, const float *planes, int64_t row, const float *gradient,
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

static void backward_bias(const Shape &s, const float *gradient, const uint8_t *winners, int64_t outputs,
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
static void backward(const Shape &s, const float *planes, const float *gradient, const uint8_t *winners,
                     float *weights, float *bias) {
    const int many = LANES == 16 ? (K == 3 ? 9 : K) : (K == 3 ? 3 : 1);  // rows whose sums fit into the registers
    for (int64_t o = 0; o < s.outputs; o += LANES) {
        int64_t left = s.outputs - o, rows = s.channels * K, row = 0;
        for (; row + many <= rows; row += many)
            backward_rows<K, many>(s, planes, row, gradient + o, winners + o, left, weights + o);
        for (; row + K <= rows; row += K)
            backward_rows<K, K>(s, planes, row, gradient + o, winners + o, left, weights + o);
        backward_bias(s, gradient + o, winners + o, left, bias + o);
    }
}

// Images: N x C x H x W. Weights: O x C x K x K. Pooled values and winners: N x H' x W' x O, channels side by side.
// Winners may be null where no gradient will be asked for. Both give 0, or 1 where there is no memory.

extern "C" int xfed_first_stage_forward(const float *images, const float *weight, const float *bias, float *pooled,
                                        uint8_t *winners, const Shape *shape) {
    const Shape &s = *shape;
    int64_t padded = s.padded_outputs(), size = s.pooled() * s.outputs;
    float *planes = (float *)calloc(s.channels * s.plane() + ROW + (s.taps() + 1) * padded, sizeof(float));
    if (!planes) return 1;
    float *weights = planes + s.channels * s.plane() + ROW, *biases = weights + s.taps() * padded;
    for (int64_t o = 0; o < s.outputs; o++) {
        for (int64_t t = 0; t < s.taps(); t++) weights[t * padded + o] = weight[o * s.taps() + t];
        biases[o] = bias ? bias[o] : 0.0f;
    }
    for (int64_t n = 0; n < s.images; n++) {
        pad(images + n * s.channels * s.height * s.width, s, planes);
        uint8_t *noted = winners ? winners + n * size : nullptr;
        (s.kernel == 3 ? forward<3> : forward<5>)(s, planes, weights, biases, pooled + n * size, noted);
    }
    free(planes);
    return 0;
}

extern "C" int xfed_first_stage_backward(const float *images, const float *gradient, const uint8_t *winners,
                                         float *weight_gradient, float *bias_gradient, const Shape *shape) {
    const Shape &s = *shape;
    int64_t padded = s.padded_outputs(), size = s.pooled() * s.outputs;
    float *planes = (float *)calloc(s.channels * s.plane() + ROW + (s.taps() + 1) * padded, sizeof(float));
    if (!planes) return 1;
    float *weights = planes + s.channels * s.plane() + ROW, *biases = weights + s.taps() * padded;
    for (int64_t n = 0; n < s.images; n++) {
        pad(images + n * s.channels * s.height * s.width, s, planes);
        (s.kernel == 3 ? backward<3> : backward<5>)(s, planes, gradient + n * size, winners + n * size, weights,
                                                     biases);
    }
    for (int64_t o = 0; o < s.outputs; o++) {
        for (int64_t t = 0; t < s.taps(); t++) weight_gradient[o * s.taps() + t] = weights[t * padded + o];
        if (bias_gradient) bias_gradient[o] = biases[o];
    }
    free(planes);
    return 0;
}
