// Backwards on maps.
#pragma once

#include "vectors.h"

// A vector holds input channels. Blocks of channels are laid out side by side, position by position, so
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
