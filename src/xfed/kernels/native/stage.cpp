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

#include "forward.h"
#include "images.h"
#include "maps.h"

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
