// Run a tuned model that the program is linked with, once, on zeros, and print the first outputs.
#include <cstdio>

#include "tunesmith.hpp"

int main() {
  try {
    tunesmith::model model(tunesmith_get_api);
    tunesmith::session session(model);
    std::vector<tunesmith::buffer<char>> memory;
    std::vector<tunesmith::input> inputs;
    std::vector<tunesmith::output> outputs;
    const tunesmith_entry &entry = session.entry();
    memory.reserve(static_cast<std::size_t>(entry.input_count + entry.output_count));
    for (int i = 0; i < entry.input_count; ++i) inputs.emplace_back(memory.emplace_back(entry.inputs[i].bytes));
    for (int i = 0; i < entry.output_count; ++i) outputs.emplace_back(memory.emplace_back(entry.outputs[i].bytes));
    session.run(inputs, outputs);
    const auto *values = static_cast<const float *>(outputs[0].data);
    for (std::size_t i = 0; i < 5 && i < outputs[0].bytes / sizeof *values; ++i) std::printf("%.6g\n", values[i]);
  } catch (const tunesmith::error &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
