/* run LIBRARY THREADS: print a line for each input and output: kind, dtype, shape and name.
 * run LIBRARY THREADS INPUTS OUTPUTS: run once on a file of all inputs' bytes, and write a file of all outputs'.
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

static void describe(const char *kind, const tunesmith_tensor *tensors, int32_t count) {
  for (int32_t i = 0; i < count; ++i) {
    printf("%s\t%s\t", kind, tensors[i].dtype);
    for (int32_t axis = 0; axis < tensors[i].rank; ++axis) printf("%" PRId64 ",", tensors[i].shape[axis]);
    printf("\t%s\n", tensors[i].name);
  }
}

static void *buffer(uint64_t bytes) { return aligned_alloc(64, (size_t)(bytes / 64 + 1) * 64); }

static int run(const tunesmith_api *model, tunesmith_session *session, const char *given, const char *made) {
  const tunesmith_entry *entry = &model->description->entries[0];
  tunesmith_input *inputs = calloc((size_t)entry->input_count + 1, sizeof *inputs);
  tunesmith_output *outputs = calloc((size_t)entry->output_count + 1, sizeof *outputs);
  FILE *file = fopen(given, "rb");
  if (!inputs || !outputs || !file) return fail("cannot read the inputs");
  for (int32_t i = 0; i < entry->input_count; ++i) {
    const size_t bytes = (size_t)entry->inputs[i].bytes;
    void *data = buffer(bytes);
    if (!data || fread(data, 1, bytes, file) != bytes) return fail("cannot read the inputs");
    inputs[i] = (tunesmith_input){data, bytes};
  }
  fclose(file);
  for (int32_t i = 0; i < entry->output_count; ++i) {
    outputs[i] = (tunesmith_output){buffer(entry->outputs[i].bytes), entry->outputs[i].bytes};
    if (!outputs[i].data) return fail("no memory for the outputs");
  }
  if (model->run(session, inputs, entry->input_count, outputs, entry->output_count)) return fail(model->error());
  file = fopen(made, "wb");
  if (!file) return fail("cannot write the outputs");
  for (int32_t i = 0; i < entry->output_count; ++i)
    if (fwrite(outputs[i].data, 1, outputs[i].bytes, file) != outputs[i].bytes) return fail("cannot write the outputs");
  return fclose(file) ? fail("cannot write the outputs") : 0;
}

int main(int count, char **arguments) {
  if (count != 3 && count != 5) return fail("usage: run LIBRARY THREADS [INPUTS OUTPUTS]");
  const char *error = "";
  const tunesmith_api *model = tunesmith_open(arguments[1], &error);
  if (!model) return fail(error);
  if (count == 3) {
    const tunesmith_entry *entry = &model->description->entries[0];
    describe("input", entry->inputs, entry->input_count);
    describe("output", entry->outputs, entry->output_count);
    return 0;
  }
  tunesmith_options options = {.threads = atoi(arguments[2])};
  tunesmith_session *session;
  const int status = model->create(&options, &session);
  if (status) {
    fail(model->error());
    return status == TUNESMITH_UNSUPPORTED_CPU ? 2 : 1;
  }
  return run(model, session, arguments[3], arguments[4]);
}
