/* Classify a picture with a tuned model: classify libmodel.so picture.ppm
 *
 *     tar -xf best.tar
 *     cc -O2 -I. classify.c -o classify -ldl
 *
 * The model takes one picture as float32 [1, 3, height, width] with values from 0 to 1, and its first output has a
 * float32 score for each class. For a model that was trained with other values, change prepare().
 */
#include <stdio.h>
#include <stdlib.h>

#include "tunesmith.h"

enum { CHANNELS = 3, SHOWN = 5 };

typedef struct picture {
  int width, height;
  unsigned char *pixels; /* RGB, row by row */
} picture;

static int read_ppm(const char *path, picture *read) {
  int most = 0;
  FILE *file = fopen(path, "rb");
  if (!file) return 0;
  read->pixels = NULL;
  if (fscanf(file, "P6 %d %d %d", &read->width, &read->height, &most) == 3 && fgetc(file) != EOF && most == 255 &&
      read->width > 0 && read->height > 0 && read->width < 1 << 14 && read->height < 1 << 14) {
    size_t bytes = (size_t)read->width * (size_t)read->height * CHANNELS;
    read->pixels = malloc(bytes);
    if (read->pixels && fread(read->pixels, 1, bytes, file) != bytes) {
      free(read->pixels);
      read->pixels = NULL;
    }
  }
  fclose(file);
  return read->pixels != NULL;
}

/* Sample the nearest pixels, channel by channel. */
static void prepare(const picture *from, float *to, size_t height, size_t width) {
  for (size_t channel = 0; channel < CHANNELS; ++channel)
    for (size_t y = 0; y < height; ++y)
      for (size_t x = 0; x < width; ++x) {
        size_t row = y * (size_t)from->height / height, column = x * (size_t)from->width / width;
        *to++ = (float)from->pixels[(row * (size_t)from->width + column) * CHANNELS + channel] / 255.0f;
      }
}

static void show_best(const float *scores, size_t count) {
  char *shown = calloc(count, 1);
  for (int place = 0; shown && place < SHOWN && (size_t)place < count; ++place) {
    size_t best = count;
    for (size_t i = 0; i < count; ++i)
      if (!shown[i] && (best == count || scores[i] > scores[best])) best = i;
    shown[best] = 1;
    printf("%zu %.6g\n", best, (double)scores[best]);
  }
  free(shown);
}

int main(int count, char **arguments) {
  const char *error = NULL;
  picture given;
  if (count != 3) {
    fprintf(stderr, "usage: %s libmodel.so picture.ppm\n", arguments[0]);
    return 2;
  }
  const tunesmith_api *model = tunesmith_open(arguments[1], &error);
  if (!model) {
    fprintf(stderr, "%s\n", error);
    return 1;
  }
  const tunesmith_entry *entry = &model->description->entries[0];
  const tunesmith_tensor *image = entry->inputs, *scores = entry->outputs;
  if (entry->input_count != 1 || image->rank != 4 || image->shape[0] != 1 || image->shape[1] != CHANNELS ||
      strcmp(image->dtype, "float32") != 0 || strcmp(scores->dtype, "float32") != 0) {
    fprintf(stderr, "%s is no classifier of pictures\n", arguments[1]);
    return 1;
  }
  if (!read_ppm(arguments[2], &given)) {
    fprintf(stderr, "%s is not a binary PPM picture\n", arguments[2]);
    return 1;
  }
  /* Inputs and outputs at multiples of 64 bytes are used in place. */
  float *input = aligned_alloc(64, (image->bytes + 63) / 64 * 64);
  float *output = aligned_alloc(64, (scores->bytes + 63) / 64 * 64);
  tunesmith_output *outputs = calloc((size_t)entry->output_count, sizeof *outputs); /* NULL: not wanted */
  tunesmith_session *session = NULL;
  int failed = 1;
  if (input && output && outputs && !model->create(NULL, &session)) {
    tunesmith_input inputs[] = {{input, image->bytes}};
    outputs[0].data = output;
    outputs[0].bytes = scores->bytes;
    prepare(&given, input, (size_t)image->shape[2], (size_t)image->shape[3]);
    failed = model->run(session, inputs, 1, outputs, entry->output_count) != TUNESMITH_OK;
  }
  if (failed)
    fprintf(stderr, "%s\n", model->error());
  else
    show_best(output, scores->bytes / sizeof *output);
  model->close(session);
  free(outputs);
  free(output);
  free(input);
  free(given.pixels);
  return failed;
}
