/* A small network in 8 bits, whose every tensor lies where plan.h says: nothing is allocated, nothing is static but
 * the arena and the weights. */
#define NET_DEFINE_ARENAS
#include "plan.h"
#include "weights.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define TENSOR(name) ((int8_t *)NET_ARENA_AT(name))

_Static_assert((-3 >> 1) == -2, "shifts round down");

static int8_t narrowed(int32_t sum, int shift) {
    int32_t value = (sum + (1 << (shift - 1))) >> shift;
    return (int8_t)(value > 127 ? 127 : value < -128 ? -128 : value);
}

/* Height, width, channels; 3 × 3 with a border of zeros. */
static void convolve(const int8_t *in, int size, int from, int to, const int8_t *weights, int shift, int8_t *out) {
    for (int y = 0; y < size; y++)
        for (int x = 0; x < size; x++)
            for (int o = 0; o < to; o++) {
                int32_t sum = 0;
                for (int dy = -1; dy <= 1; dy++)
                    for (int dx = -1; dx <= 1; dx++) {
                        if (y + dy < 0 || y + dy >= size || x + dx < 0 || x + dx >= size) continue;
                        for (int i = 0; i < from; i++)
                            sum += in[((y + dy) * size + x + dx) * from + i]
                                   * weights[((o * 3 + dy + 1) * 3 + dx + 1) * from + i];
                    }
                out[(y * size + x) * to + o] = narrowed(sum, shift);
            }
}

static void depthwise(const int8_t *in, int size, int channels, const int8_t *weights, int shift, int8_t *out) {
    for (int y = 0; y < size; y++)
        for (int x = 0; x < size; x++)
            for (int c = 0; c < channels; c++) {
                int32_t sum = 0;
                for (int dy = -1; dy <= 1; dy++)
                    for (int dx = -1; dx <= 1; dx++)
                        if (y + dy >= 0 && y + dy < size && x + dx >= 0 && x + dx < size)
                            sum += in[((y + dy) * size + x + dx) * channels + c]
                                   * weights[((dy + 1) * 3 + dx + 1) * channels + c];
                out[(y * size + x) * channels + c] = narrowed(sum, shift);
            }
}

static void pointwise(const int8_t *in, int pixels, int from, int to, const int8_t *weights, int shift, int8_t *out) {
    for (int p = 0; p < pixels; p++)
        for (int o = 0; o < to; o++) {
            int32_t sum = 0;
            for (int i = 0; i < from; i++) sum += in[p * from + i] * weights[o * from + i];
            out[p * to + o] = narrowed(sum, shift);
        }
}

static void rectify(const int8_t *in, int count, int8_t *out) {
    for (int i = 0; i < count; i++) out[i] = in[i] > 0 ? in[i] : 0;
}

static void add(const int8_t *one, const int8_t *other, int count, int8_t *out) {
    for (int i = 0; i < count; i++) out[i] = narrowed(one[i] + other[i], 1);
}

static void largest_of_four(const int8_t *in, int size, int channels, int8_t *out) {
    for (int y = 0; y < size / 2; y++)
        for (int x = 0; x < size / 2; x++)
            for (int c = 0; c < channels; c++) {
                int8_t most = -128;
                for (int k = 0; k < 4; k++) {
                    int8_t each = in[((2 * y + k / 2) * size + 2 * x + k % 2) * channels + c];
                    most = each > most ? each : most;
                }
                out[(y * (size / 2) + x) * channels + c] = most;
            }
}

int main(void) {
    memset(net_arena, 0xAA, sizeof net_arena);
    memcpy(TENSOR(IMAGE), IMAGE, sizeof IMAGE);
    convolve(TENSOR(IMAGE), SIZE, 4, 16, CONV, 8, TENSOR(CONV));
    rectify(TENSOR(CONV), SIZE * SIZE * 16, TENSOR(RELU));
    depthwise(TENSOR(RELU), SIZE, 16, DEPTHWISE, 6, TENSOR(DEPTHWISE));
    pointwise(TENSOR(DEPTHWISE), SIZE * SIZE, 16, 16, POINTWISE, 7, TENSOR(POINTWISE));
    add(TENSOR(RELU), TENSOR(POINTWISE), SIZE * SIZE * 16, TENSOR(ADD));
    largest_of_four(TENSOR(ADD), SIZE, 16, TENSOR(POOL));
    pointwise(TENSOR(POOL), 1, SIZE * SIZE * 4, 10, DENSE, 9, TENSOR(LOGITS));
    for (int i = 0; i < 10; i++) printf("%d ", TENSOR(LOGITS)[i]);
    printf("%x\n", NET_PLAN_ID);
    return 0;
}
