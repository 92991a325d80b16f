// Forwards: both kinds of input, and what they share.
#pragma once

#include "vectors.h"

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
