/* run LIBRARY THREADS: print a line for each input and output: kind, dtype, shape and name. Sizes that vary are written
 * as d0, d1, ..., those that a run decides as -, and those of the first entry point follow in a line of their own.
 * run LIBRARY THREADS INPUTS OUTPUTS SIZES: run once on a file of all inputs' bytes, write a file of all outputs', and
 * print the shape of each. SIZES are those of all axes of all inputs, separated by commas.
 *
 * Exits with 2 if the CPU lacks instructions, with 1 after other errors, and prints them. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "tunesmith.h"

static int fail(const char *text) {
  fprintf(stderr, "%s\n", text);
  return 1;
}

static void describe(const char *kind, const tunesmith_tensor *tensors, int32_t count, const int32_t *const *axes,
                     const int32_t *const *open) {
  for (int32_t i = 0; i < count; ++i) {
    printf("%s\t%s\t", kind, tensors[i].dtype);
    for (int32_t axis = 0; axis < tensors[i].rank; ++axis)
      if (axes && axes[i][axis] >= 0)
        printf("d%" PRId32 ",", axes[i][axis]);
      else if (open && open[i][axis] >= 0)
        printf("-,");
      else
        printf("%" PRId64 ",", tensors[i].shape[axis]);
    printf("\t%s\n", tensors[i].name);
  }
}

static void describe_all(const tunesmith_api *model) {
  const tunesmith_entry *entry = &model->description->entries[0];
  describe("input", entry->inputs, entry->input_count, model->sizes->input_axes, NULL);
  describe("output", entry->outputs, entry->output_count, model->sizes->output_axes, model->sizes->open_axes);
  printf("sizes\t\t");
  for (int32_t i = 0; i < model->sizes->dimension_count; ++i) printf("%" PRId64 ",", model->sizes->values[i]);
  printf("\t\n");
}

static void *buffer(uint64_t bytes) { return aligned_alloc(64, (size_t)(bytes / 64 + 1) * 64); }

static uint64_t elements(const int64_t *shape, int32_t rank) {
  uint64_t count = 1;
  for (int32_t axis = 0; axis < rank; ++axis) count *= (uint64_t)shape[axis];
  return count;
}

/* Bytes of a tensor of another shape than the entry point's. */
static uint64_t bytes_of(const tunesmith_tensor *tensor, const int64_t *shape) {
  const uint64_t own = elements(tensor->shape, tensor->rank);
  return own ? tensor->bytes / own * elements(shape, tensor->rank) : 0;
}

static int read_inputs(const tunesmith_entry *entry, int64_t *const *shapes, const char *path,
                       tunesmith_input *inputs) {
  FILE *file = fopen(path, "rb");
  for (int32_t i = 0; file && i < entry->input_count; ++i) {
    const size_t bytes = (size_t)bytes_of(&entry->inputs[i], shapes[i]);
    void *data = buffer(bytes);
    if (!data || fread(data, 1, bytes, file) != bytes) return fail("cannot read the inputs");
    inputs[i] = (tunesmith_input){data, bytes};
  }
  return file && !fclose(file) ? 0 : fail("cannot read the inputs");
}

static int write_outputs(const tunesmith_entry *entry, int64_t *const *shapes, const char *path,
                         const tunesmith_output *outputs) {
  FILE *file = fopen(path, "wb");
  for (int32_t i = 0; file && i < entry->output_count; ++i) {
    const size_t bytes = (size_t)bytes_of(&entry->outputs[i], shapes[i]);
    if (fwrite(outputs[i].data, 1, bytes, file) != bytes) return fail("cannot write the outputs");
    for (int32_t axis = 0; axis < entry->outputs[i].rank; ++axis) printf("%" PRId64 ",", shapes[i][axis]);
    printf("\n");
  }
  return file && !fclose(file) ? 0 : fail("cannot write the outputs");
}

/* Allocate the shapes of tensors. */
static int64_t **shapes_of(const tunesmith_tensor *tensors, int32_t count) {
  int64_t **made = calloc((size_t)count + 1, sizeof *made);
  for (int32_t i = 0; made && i < count; ++i)
    if (!(made[i] = calloc((size_t)tensors[i].rank + 1, sizeof **made))) return NULL;
  return made;
}

static int run(const tunesmith_api *model, tunesmith_session *session, char **arguments) {
  const tunesmith_entry *entry = &model->description->entries[0];
  const int32_t input_count = entry->input_count, output_count = entry->output_count;
  tunesmith_input *inputs = calloc((size_t)input_count + 1, sizeof *inputs);
  tunesmith_output *outputs = calloc((size_t)output_count + 1, sizeof *outputs);
  int64_t **given = shapes_of(entry->inputs, input_count), **made = shapes_of(entry->outputs, output_count);
  if (!inputs || !outputs || !given || !made) return fail("no memory");
  char *size = arguments[2];
  for (int32_t i = 0; i < input_count; ++i)
    for (int32_t axis = 0; axis < entry->inputs[i].rank; ++axis) {
      given[i][axis] = strtoll(size, &size, 10);
      if (*size++ != ',') return fail("the sizes are not those of all axes");
    }
  const int64_t *const *shapes = (const int64_t *const *)given;
  if (model->shapes(session, shapes, input_count, made, output_count)) return fail(model->error());
  if (read_inputs(entry, given, arguments[0], inputs)) return 1;
  for (int32_t i = 0; i < output_count; ++i) {
    const uint64_t bytes = bytes_of(&entry->outputs[i], made[i]);
    outputs[i] = (tunesmith_output){buffer(bytes), bytes};
    if (!outputs[i].data) return fail("no memory for the outputs");
  }
  const int status = model->sizes->open_axes
                         ? model->run_open(session, inputs, input_count, outputs, output_count, made)
                         : model->run_shapes(session, inputs, shapes, input_count, outputs, output_count);
  if (status) return fail(model->error());
  return write_outputs(entry, made, arguments[1], outputs);
}

int main(int count, char **arguments) {
  if (count != 3 && count != 6) return fail("usage: run LIBRARY THREADS [INPUTS OUTPUTS SIZES]");
  const char *error = "";
  const tunesmith_api *model = tunesmith_open(arguments[1], &error);
  if (!model) return fail(error);
  if (count == 3) {
    describe_all(model);
    return 0;
  }
  tunesmith_options options = {.entry = TUNESMITH_ALL_ENTRIES, .threads = atoi(arguments[2])};
  tunesmith_session *session;
  const int status = model->create(&options, &session);
  if (status) {
    fail(model->error());
    return status == TUNESMITH_UNSUPPORTED_CPU ? 2 : 1;
  }
  return run(model, session, arguments + 3);
}
