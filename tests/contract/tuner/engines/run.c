/* run INPUTS OUTPUTS [LIBRARY]: run a model on files with the bytes of its inputs and outputs, one after the other. */
#include <stdio.h>
#include <stdlib.h>

#ifdef LINKED
#include "libmodel.h"
#else
#include "tunesmith.h"
#endif

enum { MOST = 16 };

static void *buffer(uint64_t bytes) { return aligned_alloc(64, (size_t)(bytes / 64 + 1) * 64); }

int main(int count, char **arguments) {
  const char *error = "";
#ifdef LINKED
  const tunesmith_api *model = LINKED(TUNESMITH_API_VERSION, &error);
#else
  const tunesmith_api *model = tunesmith_open(arguments[3], &error);
#endif
  tunesmith_session *session = NULL;
  if (count < 3 || !model || model->create(NULL, &session)) {
    fprintf(stderr, "%s\n", model ? model->error() : error);
    return 1;
  }
  const tunesmith_entry *entry = &model->description->entries[0];
  tunesmith_input inputs[MOST];
  tunesmith_output outputs[MOST];
  FILE *file = fopen(arguments[1], "rb");
  for (int i = 0; i < entry->input_count; ++i) {
    void *data = buffer(entry->inputs[i].bytes);
    if (fread(data, 1, entry->inputs[i].bytes, file) != entry->inputs[i].bytes) return 2;
    inputs[i] = (tunesmith_input){data, entry->inputs[i].bytes};
  }
  fclose(file);
  for (int i = 0; i < entry->output_count; ++i)
    outputs[i] = (tunesmith_output){buffer(entry->outputs[i].bytes), entry->outputs[i].bytes};
  if (model->run(session, inputs, entry->input_count, outputs, entry->output_count)) {
    fprintf(stderr, "%s\n", model->error());
    return 3;
  }
  file = fopen(arguments[2], "wb");
  for (int i = 0; i < entry->output_count; ++i) {
    fwrite(outputs[i].data, 1, outputs[i].bytes, file);
    free(outputs[i].data);
  }
  for (int i = 0; i < entry->input_count; ++i) free((void *)(uintptr_t)inputs[i].data);
  model->close(session);
  return fclose(file);
}
