// A stage of a convolutional network in one pass: convolution with bias, 2 x 2 max-pool, ReLU.
//
// A value of the convolution lives in a register until its window's winner is known; it is never written to memory,
// and what no window covers is never computed. What the backward pass needs is one byte per pooled value: which of the
// four won, or that the ReLU put out zero. Gradients then follow the winners alone: at most a quarter of the work.
//
// Two kinds of input. Images: few channels, N x C x H x W, no gradient passed down; lanes of a vector are output
// channels. Maps: channels side by side, N x H x W x C, with C a multiple of the lanes; lanes are output channels
// forwards and input channels backwards. Sums run in one fixed order on one thread, so the bits depend on nothing but
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

// Of the four sums of each window keep the largest, add the bias, cut at zero, and note who won.
template <int N>
static inline void finish(const Floats (&sums)[2][2 * N][2], const Shape &s, const float *bias, int64_t outputs,
                          float *pooled, uint8_t *winners) {
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

struct Images {
    // One image with its border of zeros; the room behind each row may be read and is multiplied with nothing.
    static int64_t padded_size(const Shape &s) { return s.channels * s.plane() + ROW; }

    static const float *pad(const float *image, const Shape &s, float *planes) {
        for (int64_t c = 0; c < s.channels; c++)
            for (int64_t y = 0; y < s.height; y++)
                memcpy(planes + c * s.plane() + (y + s.padding) * s.stride() + s.padding,
                       image + (c * s.height + y) * s.width, s.width * sizeof(float));
        return planes;
    }

    static int64_t tap(const Shape &s, int64_t c, int64_t k) { return c * s.kernel * s.kernel + k; }

    template <int K, int N>
    static inline void pool(const float *planes, int64_t y, int64_t x, const Shape &s, const float *weights,
                            const float *bias, int64_t outputs, float *pooled, uint8_t *winners) {
        Floats sums[2][2 * N][2] = {};
        const int64_t padded = s.padded_outputs(), stride = s.stride();
        for (int64_t c = 0; c < s.channels; c++) {
            const float *patch = planes + c * s.plane() + 2 * y * stride + 2 * x;
#pragma GCC unroll 5
            for (int ky = 0; ky < K; ky++)
#pragma GCC unroll 5
                for (int kx = 0; kx < K; kx++) {
                    Floats first = load<Floats>(weights), second = load<Floats>(weights + LANES);
                    weights += padded;
#pragma GCC unroll 2
                    for (int dy = 0; dy < 2; dy++)
#pragma GCC unroll 6
                        for (int dx = 0; dx < 2 * N; dx++) {
                            float pixel = patch[(dy + ky) * stride + dx + kx];
                            sums[dy][dx][0] += pixel * first;
                            sums[dy][dx][1] += pixel * second;
                        }
                }
        }
        finish<N>(sums, s, bias, outputs, pooled, winners);
    }
};

struct Maps {
    static int64_t padded_size(const Shape &s) { return s.padded_height() * s.line(); }

    static const float *pad(const float *maps, const Shape &s, float *padded) {
        if (s.padding == 0) return maps;
        for (int64_t y = 0; y < s.height; y++)
            memcpy(padded + (y + s.padding) * s.line() + s.padding * s.channels, maps + y * s.width * s.channels,
                   s.width * s.channels * sizeof(float));
        return padded;
    }

    static int64_t tap(const Shape &s, int64_t c, int64_t k) { return k * s.channels + c; }

    template <int K, int N>
    static inline void pool(const float *maps, int64_t y, int64_t x, const Shape &s, const float *weights,
                            const float *bias, int64_t outputs, float *pooled, uint8_t *winners) {
        Floats sums[2][2 * N][2] = {};
        const int64_t channels = s.channels, padded = s.padded_outputs();
        const float *corner = maps + 2 * y * s.line() + 2 * x * channels;
        for (int ky = 0; ky < K; ky++)
            for (int kx = 0; kx < K; kx++) {
                const float *rows[2] = {corner + ky * s.line() + kx * channels,
                                        corner + (ky + 1) * s.line() + kx * channels};
                for (int64_t c = 0; c < channels; c++) {
                    Floats first = load<Floats>(weights), second = load<Floats>(weights + LANES);
                    weights += padded;
#pragma GCC unroll 2
                    for (int dy = 0; dy < 2; dy++)
#pragma GCC unroll 6
                        for (int dx = 0; dx < 2 * N; dx++) {
                            float pixel = rows[dy][dx * channels + c];
                            sums[dy][dx][0] += pixel * first;
                            sums[dy][dx][1] += pixel * second;
                        }
                }
            }
        finish<N>(sums, s, bias, outputs, pooled, winners);
    }
};

template <class Input, int K>
static void forward(const Shape &s, const float *input, const float *weights, const float *bias, float *pooled,
                    uint8_t *winners) {
    for (int64_t y = 0; y < s.pooled_height(); y++)
        for (int64_t o = 0; o < s.outputs; o += BLOCK)
            for (int64_t x = 0; x < s.pooled_width();) {
                int64_t at = (y * s.pooled_width() + x) * s.outputs + o, left = s.pooled_width() - x;
                float *to = pooled + at;
                uint8_t *noted = winners ? winners + at : nullptr;
                if (left >= PIXELS) {
                    Input::template pool<K, PIXELS>(input, y, x, s, weights + o, bias + o, s.outputs - o, to, noted);
                    x += PIXELS;
                } else if (PIXELS > 2 && left == 2) {
                    Input::template pool<K, 2>(input, y, x, s, weights + o, bias + o, s.outputs - o, to, noted);
                    x += 2;
                } else {
                    Input::template pool<K, 1>(input, y, x, s, weights + o, bias + o, s.outputs - o, to, noted);
                    x += 1;
                }
            }
}

template <class Input>
static int forward_all(const float *inputs, const float *weight, const float *bias, float *pooled, uint8_t *winners,
                       const Shape &s) {
    int64_t padded = s.padded_outputs(), squares = s.kernel * s.kernel;
    float *room = (float *)calloc(Input::padded_size(s) + (s.taps() + 1) * padded, sizeof(float));
    if (!room) return 1;
    float *weights = room + Input::padded_size(s), *biases = weights + s.taps() * padded;
    for (int64_t o = 0; o < s.outputs; o++)
        for (int64_t c = 0; c < s.channels; c++)
            for (int64_t k = 0; k < squares; k++)
                weights[Input::tap(s, c, k) * padded + o] = weight[(o * s.channels + c) * squares + k];
    if (bias) memcpy(biases, bias, s.outputs * sizeof(float));
    for (int64_t n = 0; n < s.images; n++) {
        const float *input = Input::pad(inputs + n * s.input_size(), s, room);
        uint8_t *noted = winners ? winners + n * s.pooled_size() : nullptr;
        float *to = pooled + n * s.pooled_size();
        (s.kernel == 3 ? forward<Input, 3> : forward<Input, 5>)(s, input, weights, biases, to, noted);
    }
    free(room);
    return 0;
}

// Images backwards: a table holds two rows of eight pixels, those below the upper and the lower half of a pooling
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

// Maps backwards: a vector holds input channels. Blocks of channels are laid out side by side, position by position, so
// that what the innermost loops touch stays in the nearest cache.
template <int V>
static void pack_block(const float *maps, int64_t c, const Shape &s, float *block) {
    for (int64_t at = 0; at < s.padded_height() * s.padded_width(); at++)
        memcpy(block + at * V * LANES, maps + at * s.channels + c, V * LANES * sizeof(float));
}

// Which pooled values of one image pass a gradient on: for each output, the position its winner begins to look at.
struct Slope {
    int32_t from;
    float value;
};

static void list_by_output(const Shape &s, const float *gradient, const uint8_t *winners, Slope *slopes,
                           int64_t *counts) {
    memset(counts, 0, s.outputs * sizeof(int64_t));
    for (int64_t y = 0; y < s.pooled_height(); y++)
        for (int64_t x = 0; x < s.pooled_width(); x++)
            for (int64_t o = 0; o < s.outputs; o++) {
                int64_t at = (y * s.pooled_width() + x) * s.outputs + o, winner = winners[at];
                int64_t from = (2 * y + winner / ROW) * s.padded_width() + 2 * x + winner % ROW;
                slopes[o * s.pooled() + counts[o]] = Slope{(int32_t)from, gradient[at]};
                counts[o] += winner != SILENT;
            }
}

// Add one image's share to the weight gradients of one output: R rows of the kernel, V vectors of input channels.
template <int K, int R, int V>
static inline void weight_rows(const Shape &s, const float *block, int64_t ky, const Slope *slopes, int64_t count,
                               float *totals) {
    Floats sums[R][K][V] = {};
    const int64_t line = s.padded_width() * V * LANES;
    for (int64_t i = 0; i < count; i++) {
        const float *from = block + slopes[i].from * (V * LANES) + ky * line;
        float slope = slopes[i].value;
#pragma GCC unroll 5
        for (int r = 0; r < R; r++)
#pragma GCC unroll 5
            for (int kx = 0; kx < K; kx++)
#pragma GCC unroll 2
                for (int v = 0; v < V; v++)
                    sums[r][kx][v] += load<Floats>(from + r * line + (kx * V + v) * LANES) * slope;
    }
#pragma GCC unroll 5
    for (int r = 0; r < R; r++)
#pragma GCC unroll 5
        for (int kx = 0; kx < K; kx++)
#pragma GCC unroll 2
            for (int v = 0; v < V; v++) {
                float *total = totals + (((ky + r) * K + kx) * V + v) * LANES;
                Floats sum = load<Floats>(total) + sums[r][kx][v];
                memcpy(total, &sum, sizeof sum);
            }
}

template <int K, int V>
static void weight_block(const Shape &s, const float *maps, int64_t c, const Slope *slopes, const int64_t *counts,
                         float *block, float *totals) {
    const int rows = LANES == 16 || K == 3 ? K : 1;  // of the kernel, whose sums fit into the registers
    pack_block<V>(maps, c, s, block);
    for (int64_t o = 0; o < s.outputs; o++)
        for (int64_t ky = 0; ky < K; ky += rows)
            weight_rows<K, rows, V>(s, block, ky, slopes + o * s.pooled(), counts[o],
                                    totals + o * K * K * V * LANES);
}

// The inner layout of weight gradients: blocks of channels, in each the outputs, in each the taps.
static int64_t block_width(const Shape &s, int64_t c) {
    return LANES == 16 && s.kernel == 3 && c + 2 * LANES <= s.channels ? 2 : 1;
}

template <int K>
static void map_weights(const Shape &s, const float *maps, const Slope *slopes, const int64_t *counts, float *block,
                        float *weights, float *bias) {
    for (int64_t c = 0; c < s.channels; c += block_width(s, c) * LANES) {
        float *totals = weights + c * s.outputs * K * K;
        (block_width(s, c) == 2 ? weight_block<K, 2> : weight_block<K, 1>)(s, maps, c, slopes, counts, block, totals);
    }
    for (int64_t o = 0; o < s.outputs; o++) {
        float sum = 0.0f;
        for (int64_t i = 0; i < counts[o]; i++) sum += slopes[o * s.pooled() + i].value;
        bias[o] += sum;
    }
}

// Gradients that pass down: for each pooled pixel the outputs sorted by who won there, so that the places their kernels
// reach are fixed and stay in registers. Outputs are taken in chunks whose kernels stay in the nearest cache.
static const int CHUNK = 512 / LANES;

struct Reached {
    int32_t output;
    float value;
};

static void list_by_winner(const Shape &s, const float *gradient, const uint8_t *winners, Reached *reached,
                           uint8_t *counts) {
    for (int64_t o = 0; o < s.outputs; o += CHUNK)
        for (int64_t pixel = 0; pixel < s.pooled(); pixel++, reached += 4 * CHUNK, counts += 4) {
            int64_t end = s.outputs - o < CHUNK ? s.outputs - o : CHUNK, number[8] = {};
            for (int64_t i = 0; i < end; i++) {
                int64_t at = pixel * s.outputs + o + i, winner = winners[at];
                int64_t list = winner == SILENT ? 4 : winner / ROW * 2 + winner % ROW;
                Reached *found = reached + (list < 4 ? list : 0) * CHUNK + number[list < 4 ? list : 0];
                *found = Reached{(int32_t)i, gradient[at]};
                number[list]++;
            }
            for (int list = 0; list < 4; list++) counts[list] = (uint8_t)number[list];
        }
}

template <int K, int DY, int DX>
static inline void reach(Floats (&sums)[K + 1][K + 1], const float *kernels, const Reached *reached, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        const float *kernel = kernels + reached[i].output * (K * K * LANES);
        float slope = reached[i].value;
#pragma GCC unroll 5
        for (int ky = 0; ky < K; ky++)
#pragma GCC unroll 5
            for (int kx = 0; kx < K; kx++)
                sums[DY + ky][DX + kx] += load<Floats>(kernel + (ky * K + kx) * LANES) * slope;
    }
}

template <int K>
static void map_inputs(const Shape &s, const float *weights, const Reached *all, const uint8_t *numbers, float *block,
                       float *below) {
    for (int64_t c = 0; c < s.channels; c += LANES) {
        memset(block, 0, s.padded_height() * s.padded_width() * LANES * sizeof(float));
        const Reached *reached = all;
        const uint8_t *counts = numbers;
        for (int64_t o = 0; o < s.outputs; o += CHUNK) {
            const float *kernels = weights + (c * s.outputs + o * LANES) * K * K;
            for (int64_t pixel = 0; pixel < s.pooled(); pixel++, reached += 4 * CHUNK, counts += 4) {
                Floats sums[K + 1][K + 1] = {};
                reach<K, 0, 0>(sums, kernels, reached, counts[0]);
                reach<K, 0, 1>(sums, kernels, reached + CHUNK, counts[1]);
                reach<K, 1, 0>(sums, kernels, reached + 2 * CHUNK, counts[2]);
                reach<K, 1, 1>(sums, kernels, reached + 3 * CHUNK, counts[3]);
                int64_t y = pixel / s.pooled_width(), x = pixel % s.pooled_width();
#pragma GCC unroll 6
                for (int ky = 0; ky <= K; ky++)
#pragma GCC unroll 6
                    for (int kx = 0; kx <= K; kx++) {
                        float *place = block + ((2 * y + ky) * s.padded_width() + 2 * x + kx) * LANES;
                        Floats sum = load<Floats>(place) + sums[ky][kx];
                        memcpy(place, &sum, sizeof sum);
                    }
            }
        }
        for (int64_t y = 0; y < s.height; y++)
            for (int64_t x = 0; x < s.width; x++)
                memcpy(below + (y * s.width + x) * s.channels + c,
                       block + ((y + s.padding) * s.padded_width() + x + s.padding) * LANES, LANES * sizeof(float));
    }
}

// For Python. Weights: O x C x K x K. Pooled values and winners: N x H' x W' x O, channels side by side. Winners may be
// null where no gradient will be asked for, and so may gradients that nobody wants. All give 0, or 1 without memory.

extern "C" int xfed_lanes(void) { return LANES; }

extern "C" int xfed_images_forward(const float *images, const float *weight, const float *bias, float *pooled,
                                   uint8_t *winners, const Shape *shape) {
    return forward_all<Images>(images, weight, bias, pooled, winners, *shape);
}

extern "C" int xfed_maps_forward(const float *maps, const float *weight, const float *bias, float *pooled,
                                 uint8_t *winners, const Shape *shape) {
    return forward_all<Maps>(maps, weight, bias, pooled, winners, *shape);
}

extern "C" int xfed_images_backward(const float *images, const float *gradient, const uint8_t *winners,
                                    float *weight_gradient, float *bias_gradient, const Shape *shape) {
    const Shape &s = *shape;
    int64_t padded = s.padded_outputs();
    float *planes = (float *)calloc(Images::padded_size(s) + (s.taps() + 1) * padded, sizeof(float));
    if (!planes) return 1;
    float *weights = planes + Images::padded_size(s), *biases = weights + s.taps() * padded;
    for (int64_t n = 0; n < s.images; n++) {
        Images::pad(images + n * s.input_size(), s, planes);
        (s.kernel == 3 ? image_backward<3> : image_backward<5>)(
            s, planes, gradient + n * s.pooled_size(), winners + n * s.pooled_size(), weights, biases);
    }
    for (int64_t o = 0; o < s.outputs; o++)
        for (int64_t t = 0; t < s.taps(); t++) weight_gradient[o * s.taps() + t] = weights[t * padded + o];
    memcpy(bias_gradient, biases, s.outputs * sizeof(float));
    free(planes);
    return 0;
}

extern "C" int xfed_maps_backward(const float *maps, const float *weight, const float *gradient,
                                  const uint8_t *winners, float *maps_gradient, float *weight_gradient,
                                  float *bias_gradient, const Shape *shape) {
    const Shape &s = *shape;
    int64_t squares = s.kernel * s.kernel, all = s.outputs * s.taps(), size = Maps::padded_size(s);
    int64_t chunks = (s.outputs + CHUNK - 1) / CHUNK, positions = s.padded_height() * s.padded_width();
    float *room = (float *)calloc(size + 2 * LANES * positions + 2 * all + s.outputs, sizeof(float));
    Slope *slopes = (Slope *)malloc((s.pooled_size() + 1) * sizeof(Slope));
    Reached *reached = (Reached *)malloc((chunks * s.pooled() * 4 * CHUNK + 1) * sizeof(Reached));
    int64_t *counts = (int64_t *)malloc(s.outputs * sizeof(int64_t));
    uint8_t *numbers = (uint8_t *)malloc(chunks * s.pooled() * 4);
    int missing = !room || !slopes || !reached || !counts || !numbers;
    if (!missing) {
        float *block = room + size, *weights = block + 2 * LANES * positions, *sums = weights + all;
        float *biases = sums + all;
        for (int64_t o = 0; o < s.outputs; o++)
            for (int64_t c = 0; c < s.channels; c++)
                for (int64_t k = 0; k < squares; k++)
                    weights[((c / LANES * s.outputs + o) * squares + k) * LANES + c % LANES] =
                        weight[(o * s.channels + c) * squares + k];
        for (int64_t n = 0; n < s.images; n++) {
            const float *slope = gradient + n * s.pooled_size();
            const uint8_t *winner = winners + n * s.pooled_size();
            if (weight_gradient) {
                const float *padded = Maps::pad(maps + n * s.input_size(), s, room);
                list_by_output(s, slope, winner, slopes, counts);
                (s.kernel == 3 ? map_weights<3> : map_weights<5>)(s, padded, slopes, counts, block, sums, biases);
            }
            if (maps_gradient) {
                list_by_winner(s, slope, winner, reached, numbers);
                float *below = maps_gradient + n * s.input_size();
                (s.kernel == 3 ? map_inputs<3> : map_inputs<5>)(s, weights, reached, numbers, block, below);
            }
        }
        if (weight_gradient) {
            for (int64_t start = 0; start < s.channels; start += block_width(s, start) * LANES) {
                int64_t wide = block_width(s, start) * LANES;
                for (int64_t o = 0; o < s.outputs; o++)
                    for (int64_t c = 0; c < wide; c++)
                        for (int64_t k = 0; k < squares; k++)
                            weight_gradient[(o * s.channels + start + c) * squares + k] =
                                sums[start * s.outputs * squares + (o * squares + k) * wide + c];
            }
            memcpy(bias_gradient, biases, s.outputs * sizeof(float));
        }
    }
    free(room), free(slopes), free(reached), free(counts), free(numbers);
    return missing;
}
